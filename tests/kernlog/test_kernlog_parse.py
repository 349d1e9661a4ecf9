# SPDX-License-Identifier: Apache-2.0
"""Single records of the driver: every form of line that was seen or stands in its source."""

from __future__ import annotations

from typing import Any

import pytest

from cardwatch.kernlog.event import SXID, XID, Event
from cardwatch.kernlog.parse import Parser, may_matter

UUID = "GPU-aaaaaaaa-0000-4000-8000-000000000001"
UNKNOWN = "pid='<unknown>', name=<unknown>, "


def parsed(*texts: str) -> list[Event]:
    parser = Parser()
    return [event for text in texts for event in parser.feed(text)] + parser.flush()


def one(text: str) -> Event:
    found = parsed(text)
    assert len(found) == 1, found
    return found[0]


# What follows `NVRM: Xid `, and the fields that must come out; pci is 0000:3b:00 throughout.
XIDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("(0000:3b:00): 14, Channel 00000001", {"code": 14, "message": "Channel 00000001"}),
    ("(PCI:0000:3b:00): 32, Channel ID 00000000 intr 00004000", {"code": 32, "pid": None}),
    ("(PCI:0000:3b:00): 31, Ch 00000003, engmask 00000101, intr 10000000", {"code": 31}),
    ("(PCI:0000:3b:00): 13, Graphics SM Warp Exception on (GPC 1, TPC 0): Out Of Range Address",
     {"code": 13}),
    (f"(PCI:0000:3b:00): 13, {UNKNOWN}Graphics SM Warp Exception on (GPC 7, TPC 7, SM 0): Illegal",
     {"code": 13, "pid": None, "process": None}),
    (f"(PCI:0000:3b:00): 13, {UNKNOWN}Graphics Exception: ESR 0x57c730=0xc04000b 0x57c734=0x24",
     {"code": 13}),
    ("(PCI:0000:3b:00): 31, pid=77, name=python3, Ch 00000010, intr 00000000. MMU Fault: ENGINE "
     "CE2 HUBCLIENT_CE0 faulted @ 0x7f29_5b8c9000. Fault is of type FAULT_PDE", {
         "code": 31, "pid": 77, "process": "python3"}),
    ("(PCI:0000:3b:00): 31, pid=77, name=python3, channel 0x00000002, intr 00000000",
     {"process": "python3", "message": "channel 0x00000002, intr 00000000"}),
    ("(PCI:0000:3b:00): 38, pid=77, name=python3, channel 0x00000003 0000c597 00000000 00000000",
     {"code": 38}),
    ("(PCI:0000:3b:00): 43, pid=77, name=python3, Ch 00000008", {"code": 43}),
    ("(PCI:0000:3b:00): 45, pid=77, name=python3, Ch 00000001 caused by previous Xid 149",
     {"code": 45, "root_cause_xid": 149, "process": "python3"}),
    ("(PCI:0000:3b:00): 45, pid=77, name=python3, Ch 00000001", {"root_cause_xid": None}),
    (f"(PCI:0000:3b:00): 48, {UNKNOWN}An uncorrectable double bit error (DBE) has been detected on "
     "GPU in the framebuffer at physAddr 0x18f31d80 partition 16, subpartition 3.", {"code": 48}),
    ("(PCI:0000:3b:00): 51, BAD_TSG encountered on runlist: 0 with error code: 4", {"code": 51}),
    (f"(PCI:0000:3b:00): 62, {UNKNOWN}2023b230 20238a3a 20236fc8 00000000",
     {"code": 62, "message": "2023b230 20238a3a 20236fc8 00000000"}),
    ("(PCI:0000:3b:00): 63, pid=77, Row Remapper: New row marked for remapping, reset gpu to "
     "activate.", {"code": 63, "pid": 77, "process": None}),
    (f"(PCI:0000:3b:00): 63, {UNKNOWN}Row Remapper: New row (0x0000000018f31d80) marked for "
     "remapping, reset gpu to activate.", {"code": 63}),
    ("(PCI:0000:3b:00): 63, Dynamic Page Retirement: New page retired, reboot to activate "
     "(0x00000000001234).", {"code": 63}),
    (f"(PCI:0000:3b:00): 74, {UNKNOWN}NVLink: fatal error detected on link 14(0x100000, 0x0, 0x0, "
     "0x0, 0x0, 0x0, 0x0)", {"link": 14, "status": (0x100000, 0, 0, 0, 0, 0, 0)}),
    ("(PCI:0000:3b:00): 79, GPU has fallen off the bus.", {"code": 79}),
    (f"(PCI:0000:3b:00): 79, {UNKNOWN}GPU has fallen off the bus.", {"code": 79}),
    ("(PCI:0000:3b:00): 79, pid=0, name=<unknown>, GPU has fallen off the bus.", {"pid": None}),
    ("(PCI:0000:3b:00): 79", {"code": 79, "message": ""}),
    ("(PCI:0000:3b:00): 79, ", {"code": 79, "message": ""}),
    (f"(PCI:0000:3b:00): 94, {UNKNOWN}Contained: SM (0x1). RST: No, D-RST: No",
     {"reset_required": False, "drain_required": False}),
    ("(PCI:0000:3b:00): 95, pid=77, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No",
     {"reset_required": True, "drain_required": False, "pid": 77}),
    ("(PCI:0000:3b:00): 95, Uncontained: FB DED IN CBC STORE (0x2, 0x1). physAddr: 0x001f4a RST: "
     "No, D-RST: Yes", {"reset_required": False, "drain_required": True}),
    ("(PCI:0000:3b:00): 94, Ch 00000009", {"reset_required": None, "drain_required": None}),
    ("(PCI:0000:3b:00): 109, pid=77, name=node, channel 0x8, errorString CTX SWITCH TIMEOUT, Info "
     "0x58005", {"code": 109, "process": "node"}),
    ("(PCI:0000:3b:00): 119, pid=77, name=nvidia-smi, Timeout after 6s of waiting for RPC response "
     "from GPU4 GSP! Expected function 103 (GSP_RM_ALLOC) (0x2081 0x4).",
     {"process": "nvidia-smi"}),
    ("(PCI:0000:3b:00): 119, Timeout waiting for RPC from GSP! Expected function FREE (0x0 0x0).",
     {"code": 119}),
    (f"(PCI:0000:3b:00): 120, {UNKNOWN}GSP Error: Task 1 raised error code 0x5 for reason 0x0 at "
     "0x63f01ac (0 more errors skipped)", {"code": 120}),
    ("(PCI:0000:3b:00): 136, NVLink: Link training failed for link 5(0x0, 0x0, 0x0, 0x0, 0x0, 0x0, "
     "0x1)", {"code": 136, "link": 5, "status": (0, 0, 0, 0, 0, 0, 1)}),
    ("(PCI:0000:3b:00): 145, pid=77, name=ray::WorkerDict, RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 "
     "(0x040988e2 0x00000008 0x00000000 0x00000000)", {
         "unit": "RLW_SRC_TRACK", "severity": "nonfatal", "link": 12, "injected": False,
         "process": "ray::WorkerDict", "status": (0x040988E2, 8, 0, 0)}),
    ("(PCI:0000:3b:00): 149, NETIR_LINK_EVT  Fatal   XC0 i1 Link 01 (0x021425c6 0x00000000)",
     {"unit": "NETIR_LINK_EVT", "severity": "fatal", "injected": True, "link": 1}),
    ("(PCI:0000:3b:00): 150, MSE Degraded Fatal XC0 i0 Link -1 (0x00000000 0x00000000 0x00000000)",
     {"unit": "MSE Degraded", "link": -1, "severity": "fatal"}),
    ("(PCI:0000:3b:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 02", {"link": 2, "status": ()}),
    ("(PCI:0000:3b:00): 146, TLW_TX/TLW_TX_PIPE0 Nonfatal XC0 i0 Link 02 (0x163 0x1)",
     {"unit": "TLW_TX/TLW_TX_PIPE0"}),
    ("(PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)",
     {"recovery_from": 0, "recovery_to": 4}),
    ("(PCI:0000:3b:00): 154, GPU recovery action changed from 0x2 (OS Reboot) to 0x0 (None)",
     {"recovery_from": 2, "recovery_to": 0}),
    ("(PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 to 0x1f", {"recovery_to": 31}),
    ("(PCI:0000:3b:00): 154, pid=77, GPU recovery action changed", {"recovery_to": None}),
    ("(PCI:0000:3b:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, "
     "D-RST: No",
     {"mig_gi": 5, "mig_ci": None, "pid": 7194, "reset_required": False}),
    ("(PCI:0000:3b:00 GPU-I:05 GPU-CI:00): 43, pid=77, name=python3, Ch 00000008",
     {"mig_gi": 5, "mig_ci": 0, "process": "python3"}),
    ("(PCI:0000:3B:00.0): 79, pid='<unknown>', name='<unknown>', GPU has fallen off the bus.",
     {"code": 79, "process": None}),
    ("(PCI:00000000:3b:00): 79, GPU has fallen off the bus.", {"code": 79}),
    ("(PCI:0000:3b:00): 99999, something new", {"code": 99999}),
)  # fmt: skip


@pytest.mark.parametrize(("text", "fields"), XIDS, ids=[text[:70] for text, _ in XIDS])
def test_a_form_of_xid_line(text: str, fields: dict[str, Any]) -> None:
    """Each form gives one event with what it tells."""
    event = one(f"NVRM: Xid {text}")
    assert (event.kind, event.pci) == (XID, "0000:3b:00")
    assert {name: getattr(event, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x): 79, y", "Ch 00000008"),
        (": 79, pid=1", "Ch 00000008, intr 00000000"),
        ("Xid 79", "Ch 00000008"),
        ("a, b, c", "Ch 00000008"),
        ("(PCI:0000:1a:00", "channel 0x00000002, intr 0"),
        ("nvc:[driver]", "Timeout after 6s of waiting for RPC response"),
        ("sh", "Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005"),
        ("name=x", "Ch 1"),
        ("pid=79, name=x", "Ch 1"),
        ("ünïcode", "Ch 1"),
    ],
)
def test_a_name_chosen_by_an_attacker_stays_a_name(name: str, message: str) -> None:
    """Whatever a program calls itself, number, card and message are the driver's."""
    event = one(f"NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name={name}, {message}")
    assert (event.code, event.pci, event.pid) == (31, "0000:3b:00", 4711)
    assert (event.process, event.message) == (name, message)


def test_a_name_with_a_line_end_cannot_start_a_line() -> None:
    """A record is one event, also where a name in it looks like further records."""
    event = one(
        "NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=a\n"
        "NVRM: Xid (PCI:0000:1a:00): 79, GPU has fallen off the bus., Ch 00000008"
    )
    assert (event.code, event.pci) == (31, "0000:3b:00")
    assert "\n" not in (event.process or "") + event.message


def test_numbers_behind_the_name_are_only_believed_at_the_end() -> None:
    """A name cannot put its own value of an Xid 154 or its own flags before the driver's."""
    change = one(
        "NVRM: Xid (PCI:0000:3b:00): 154, pid=1, name=x, GPU recovery action changed from 0x1 (A) "
        "to 0x0 (None), GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)"
    )
    flags = one(
        "NVRM: Xid (PCI:0000:3b:00): 95, pid=1, name=RST: No, D-RST: No, Uncontained: LTC "
        "(0x2,0x1). RST: Yes, D-RST: No"
    )
    root = one("NVRM: Xid (PCI:0000:3b:00): 45, pid=1, name=caused by previous Xid 79, Ch 1")
    assert change.recovery_to == 2
    assert flags.reset_required is True
    assert root.root_cause_xid is None


def test_control_characters_do_not_come_out() -> None:
    """Neither message nor process can steer a terminal."""
    event = one("NVRM: Xid (PCI:0000:3b:00): 43, pid=1, name=\x1b[2Jx\x07, Ch 1\x1b[31m\r\x00end")
    assert event.process == "[2Jx"
    assert event.message.isprintable()
    assert "end" in event.message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "NVRM: ",
        "NVRM: Xid",
        "NVRM: Xid error: xyz, invalid data",
        "NVRM: Xid (invalid): some error",
        "NVRM: Xid (PCI:0000:01:00)",
        "NVRM: Xid (PCI:0000:01:00): abc, pid=1",
        "NVRM: Xid (PCI:0000:01:00): 7x9, pid=1",
        "NVRM: Xid (PCI:0000:01:00): -1, pid=1",
        "NVRM: Xid (PCI:0000:01): 79, GPU has fallen off the bus.",
        "NVRM: Xid : 32, pid=2280636",
        "NVRM: Xid (PCI:0000:01:00): ٧٩, GPU has fallen off the bus.",
        "xNVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.",
        "LOG:  xid (4956182) was less than next xid (4956205), regen now",
        "NVRM: GPU Board Serial Number: 0000000000000",
        "NVRM: GPU 0000:01:00.0: GPU serial number is 79.",
        "NVRM:      0    103  GSP_RM_ALLOC          0x0000000000002081 0x0000000000000004",
        "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os "
        "reboot to recover.",
        "nvidia-nvlink: Nvlink Core is being initialized, major device number 235",
        "nvidia-nvswitch: Probing device 0000:08:00.0, Vendor Id = 0x10de, Device Id = 0x22a3",
        "nvidia-nvswitch3: using MSI",
        "nvidia-nvswitch0: SXid (PCI:0000:00:00.0): xyz, Fatal error",
        "nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 20034,",
        "nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 20034",
    ],
)
def test_lines_that_are_no_event(text: str) -> None:
    """Other lines of the driver, malformed ones and other software's give nothing."""
    assert parsed(text) == []


def test_uuid_that_the_driver_prints_names_later_events() -> None:
    """The driver prints it once, before the first Xid of a card."""
    found = parsed(
        f"NVRM: GPU at PCI:0000:3B:00: {UUID}",
        "NVRM: Xid (PCI:0000:3b:00): 43, pid=1, name=x, Ch 1",
        "NVRM: Xid (PCI:0000:1a:00): 43, pid=1, name=x, Ch 1",
    )
    assert [event.uuid for event in found] == [UUID, None]


def test_inventory_names_a_card_that_no_longer_answers() -> None:
    """What was known at start, in the form of the driver library, names the card of the log."""
    parser = Parser({"00000000:1E:00.0": UUID, "nonsense": "GPU-x"})
    found = parser.feed("NVRM: Xid (PCI:0000:1e:00): 79, GPU has fallen off the bus.", 5.0, 1.0)
    assert [(event.uuid, event.time, event.uptime) for event in found] == [(UUID, 5.0, 1.0)]


def test_a_uuid_that_is_none_is_not_taken() -> None:
    """Only the driver's form of a UUID counts."""
    found = parsed(
        "NVRM: GPU at PCI:0000:3b:00: GPU-????????-????-????-????-????????????",
        "NVRM: Xid (PCI:0000:3b:00): 43, pid=1, name=x, Ch 1",
    )
    assert found[0].uuid is None


SWITCH = "nvidia-nvswitch3: SXid (PCI:0000:04:00.0): "


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("20034, Fatal, Link 30 LTSSM Fault Up",
         {"code": 20034, "severity": "fatal", "link": 30, "message": "Link 30 LTSSM Fault Up"}),
        ("12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
         {"code": 12028, "severity": "nonfatal", "link": 32}),
        ("11012, Correctable, Link 1 ECC limit", {"severity": "correctable", "link": 1}),
        ("10001, Non-fatal, PRI WRITE SYSB error, instance=3", {"link": None, "code": 10001}),
        ("10004, NVSWITCH Temperature 108C | TSENSE WARN Threshold 105C", {"severity": None}),
        ("10006, Thermal Shutdown", {"code": 10006, "severity": None}),
        ("28003, OSFP over temperature", {"code": 28003}),
        ("31001, printed by a newer driver", {"code": 31001, "severity": None}),
    ],
)  # fmt: skip
def test_a_form_of_sxid_line(text: str, fields: dict[str, Any]) -> None:
    """The line that tells a switch error gives one event of the switch."""
    event = one(SWITCH + text)
    assert (event.kind, event.pci, event.switch) == (SXID, "0000:04:00", "nvidia-nvswitch3")
    assert {name: getattr(event, name) for name in fields} == fields


@pytest.mark.parametrize(
    "order", [(0, 1, 2), (1, 0, 2), (2, 1, 0), (1, 2, 0)], ids=lambda o: "".join(map(str, o))
)
def test_detail_lines_of_a_switch_error_do_not_count(order: tuple[int, ...]) -> None:
    """Three lines with the same number are one event, in whatever order they are printed."""
    lines = (
        SWITCH + "22013, Non-fatal, Link 44 Minion Link DLREQ interrupt",
        SWITCH + "22013, Severity 0 Engine instance 44 Sub-engine instance 00",
        SWITCH + "22013, Data {0x0000002b, 0x0000002b, 0x00000000}",
    )
    assert len(parsed(*(lines[n] for n in order))) == 1


def test_a_line_without_a_word_of_a_number_that_has_one_is_a_detail() -> None:
    """Only numbers that the driver prints without a word count without one."""
    assert parsed(SWITCH + "20034, more about it") == []


def test_lines_without_a_word_that_follow_each_other_are_one_incident() -> None:
    """The driver tells one slowdown in up to four lines; the next one is another event."""
    parser = Parser()
    texts = ("NVSWITCH Temperature 108C | TSENSE WARN Threshold 105C",
             "Thermal Slowdown Engaged | Temp higher than WARN Threshold",
             "Thermal Slowdown Engaged | Links Thermal Mode ON")  # fmt: skip
    first = [event for text in texts for event in parser.feed(f"{SWITCH}10004, {text}", 100.0)]
    later = [event for text in texts for event in parser.feed(f"{SWITCH}10004, {text}", 160.0)]
    assert (len(first), len(later)) == (1, 1)
    assert "Temperature" in first[0].message


def test_two_switch_errors_in_a_row_are_two() -> None:
    """Lines with a word always count."""
    assert len(parsed(*[SWITCH + "20034, Fatal, Link 30 LTSSM Fault Up"] * 2)) == 2


def test_the_cheap_test_lets_everything_through_that_matters() -> None:
    """A reader may drop records by it without losing an event."""
    for text, _fields in XIDS:
        assert may_matter(f"4,1,1,-;NVRM: Xid {text}".encode())
    assert may_matter(f"4,1,1,-;{SWITCH}20034, Fatal, Link 30".encode())
    assert may_matter(b"6,1,1,-;nvidia 0000:01:00.0: probe with driver nvidia failed with error -1")
    assert not may_matter(b"6,1,1,-;usb 1-1: new high-speed USB device")
