# SPDX-License-Identifier: Apache-2.0
"""`cardwatch events decode`."""

from __future__ import annotations

import gzip
import io
import json
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from kernlog_samples import NOW

from cardwatch.commands import Parser, events
from cardwatch.kernlog.dates import Calendar
from cardwatch.kernlog.decode import decode

CONTRACT = {
    "time", "pci", "uuid", "xid", "sxid", "class", "tier", "action", "pid", "process", "mig_gi",
    "mig_ci", "severity", "recovery_to_code", "root_cause_xid", "count", "message",
}  # fmt: skip
UUID = "GPU-aaaaaaaa-0000-4000-8000-000000000001"
LOG = f"""\
[    1.000000] Linux version 6.8.0
[   10.000000] NVRM: GPU at PCI:0000:3b:00: {UUID}
[   10.000001] NVRM: Xid (PCI:0000:3b:00): 43, pid=77, name=python3, Ch 00000008
Feb 14 05:03:41 node-a kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.
Feb 14 05:03:41 node-a kernel: NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.
2026-02-14T05:03:41Z nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Fatal, Link 30 LTSSM Fault Up
2026-02-14T05:03:41Z nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Severity 1 Engine instance 30
NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x0 to 0x4 (Drain and Reset)
NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT Fatal XC0 i1 Link 01 (0x021425c6 0x00000000)
NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:26b5) installed in this
NVRM: system has fallen off the bus and is not responding to commands.
NVRM: GPU 0000:0a:00.0: RmInitAdapter failed! (0x24:0x72:1568)
"""


def run(*arguments: str) -> int:
    parser = Parser(prog="cardwatch events")
    events.add_arguments(parser)
    return events.run(parser.parse_args(arguments))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "bundle.log"
    path.write_text(LOG)
    return path


def rows(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_every_event_of_a_bundle_once_as_json(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One object a line with class, tier and action, and all fields that the contract names."""
    assert run("decode", str(log), "--format", "json") == 0
    found = rows(capsys)
    assert [(r["xid"] or r["sxid"] or r["class"], r["class"], r["tier"]) for r in found] == [
        (43, "application", "observe"),
        (79, "critical", "page"),
        (20034, "critical", "page"),
        (154, "critical", "page"),
        (149, "info", "none"),
        ("gpu_off_bus", "gpu_off_bus", "page"),
        ("gpu_init_failed", "gpu_init_failed", "page"),
    ]
    assert all(set(r) >= CONTRACT for r in found)
    assert found[0]["uuid"] == found[1]["uuid"] == UUID
    assert found[0]["uptime"] == 10.000001
    assert (found[2]["switch"], found[2]["severity"]) == ("nvidia-nvswitch0", "fatal")
    assert (found[3]["recovery_to_code"], found[3]["recovery_to"]) == (4, "Drain and Reset")
    assert found[3]["action"] == "DRAIN_AND_RESET"
    assert (found[4]["injected"], found[4]["reason"], found[4]["intr_info"]) == (
        True, 33, "0x021425c6",
    )  # fmt: skip
    assert found[5]["pci"] == "0000:b3:00"


def test_a_table_for_people(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same as lines with a head; an event without a name has its words."""
    assert run("decode", str(log)) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].split() == list(events._HEAD)
    assert len(said) == 8
    assert "Xid 79" in said[2]
    assert "SXid 20034" in said[3]
    assert "off bus" in said[6]
    assert "init failed" in said[7]


def test_gzip_is_unpacked(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rotated logs are read as they lie, known by their first bytes and not by their name."""
    packed = tmp_path / "messages.1"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    assert run("decode", str(packed), "--format", "json") == 0
    assert len(rows(capsys)) == 7


@pytest.mark.parametrize("arguments", [("decode", "-"), ("decode",)])
def test_standard_input_is_read(
    arguments: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a file, or with a dash, the log comes from a pipe, packed or not."""
    for data in (LOG.encode(), gzip.compress(LOG.encode())):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        assert run(*arguments, "--format", "json") == 0
        assert len(rows(capsys)) == 7


@pytest.mark.parametrize("name", ["missing.log", "."])
def test_a_file_that_cannot_be_read_is_one_line_and_exit_2(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line names the file and the reason."""
    assert run("decode", str(tmp_path / name), "--format", "json") == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert str(tmp_path) in said.err


def test_a_torn_archive_tells_what_it_held_and_exit_2(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What can be read of a damaged file is shown before the error."""
    packed = tmp_path / "torn.gz"
    packed.write_bytes(gzip.compress(log.read_bytes() * 50)[:-20])
    assert run("decode", str(packed), "--format", "json") == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert said.out


def test_a_log_without_events_is_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing found is an answer."""
    path = tmp_path / "quiet.log"
    path.write_bytes(b"")
    assert run("decode", str(path), "--format", "json") == 0
    assert capsys.readouterr().out == ""


def test_hostile_text_cannot_steer_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Control and direction characters of a log come out as harmless ones, in both forms."""
    path = tmp_path / "hostile.log"
    path.write_bytes(
        b"4,1,1,-;NVRM: Xid (PCI:0000:3b:00): 43, pid=1, "
        b"name=a\\x1b[2J\xe2\x80\xaeb, Ch \\x07\\x0a1\xe2\x80\xae\n"
    )
    assert run("decode", str(path)) == 0
    table = capsys.readouterr().out
    assert run("decode", str(path), "--format", "json") == 0
    as_json = capsys.readouterr().out
    for text in (*table.splitlines(), *as_json.splitlines()):
        assert text.isprintable()
    assert as_json.isascii()
    assert len(table.splitlines()) == 2


def test_dates_without_a_zone_are_read_in_the_zone_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A log from a machine in another zone can be read with its own."""
    path = tmp_path / "a.log"
    path.write_text("[Sat Feb 14 07:03:41 2026] NVRM: Xid (PCI:0000:3b:00): 79, GPU lost\n")
    assert run("decode", str(path), "--format", "json") == 0
    utc = rows(capsys)[0]["time"]
    assert run("decode", str(path), "--format", "json", "--utc-offset", "+02:00") == 0
    assert utc - rows(capsys)[0]["time"] == 7200


@pytest.mark.parametrize("offset", ["2", "+2:00", "+15:00", "CET", "+02:60"])
def test_a_wrong_zone_is_one_line_and_exit_2(
    offset: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line says how a zone is written."""
    with pytest.raises(SystemExit) as stopped:
        run("decode", f"--utc-offset={offset}")
    assert stopped.value.code == 2
    assert "such as +02:00" in capsys.readouterr().err


def test_lines_of_user_space_only_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A drill writes into the kernel log from user space; nobody else's such line counts."""
    path = tmp_path / "drill.log"
    path.write_text("12,1,1,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n")
    assert run("decode", str(path), "--format", "json") == 0
    assert rows(capsys) == []
    assert run("decode", str(path), "--format", "json", "--any-facility") == 0
    assert [r["xid"] for r in rows(capsys)] == [79]


def test_memory_does_not_grow_with_the_log() -> None:
    """A log of any size is read in the same memory: twice the lines, no more at the end."""

    def lines(count: int) -> list[int]:
        text = "[{0:6d}.{0:06d}] NVRM: Xid (PCI:0000:3b:00): 43, pid={0}, name=p, Ch 1\n"
        texts = (text.format(n).encode() for n in range(count))
        sizes = []
        for number, _told in enumerate(decode(texts, Calendar(NOW))):
            if number in (count // 2, count - 2):
                sizes.append(tracemalloc.get_traced_memory()[0])
        return sizes

    tracemalloc.start()
    try:
        half, full = lines(60_000)
    finally:
        tracemalloc.stop()
    assert full - half < 1 << 20
