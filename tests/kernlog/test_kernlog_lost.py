# SPDX-License-Identifier: Apache-2.0
"""Cards that are gone or did not start: many lines, one event."""

from __future__ import annotations

import pytest

from cardwatch.kernlog.event import INIT_FAILED, OFF_BUS, XID, Event
from cardwatch.kernlog.parse import Parser

HEADER = "NVRM: The NVIDIA GPU 0000:{}:00.0"
MIDDLE = "NVRM: (PCI ID: 10de:26b5) installed in this system has"
END = "NVRM: fallen off the bus and is not responding to commands."
XID_79 = "NVRM: Xid (PCI:0000:b3:00): 79, GPU has fallen off the bus."
PLAIN = "NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus."
PROBE_NEW = "nvidia 0000:b3:00.0: probe with driver nvidia failed with error -1"
PROBE_OLD = "nvidia: probe of 0000:b3:00.0 failed with error -1"
SUMMARY = "NVRM: The NVIDIA probe routine failed for {} device(s)."
ADAPTER = "NVRM: GPU 0000:b3:00.0: RmInitAdapter failed! (0x24:0x72:1568)"
ADAPTER_2 = "NVRM: GPU 0000:b3:00.0: rm_init_adapter failed, device minor number 5"
LOADING = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.158.01  Release Build"
USB = "usb 1-1: new high-speed USB device number 3"


def parsed(*texts: str, clock: float | None = 100.0) -> list[Event]:
    parser = Parser()
    found: list[Event] = []
    for number, text in enumerate(texts):
        found += parser.feed(text, None, None if clock is None else clock + number / 1000)
    return found + parser.flush()


def kinds(*texts: str, clock: float | None = 100.0) -> list[tuple[str, str | None]]:
    return [(e.kind if e.code is None else str(e.code), e.pci) for e in parsed(*texts, clock=clock)]


B3, LOST = "0000:b3:00", (OFF_BUS, "0000:b3:00")
FAILED = (INIT_FAILED, "0000:b3:00")
CLOCKS = pytest.mark.parametrize("clock", [100.0, None], ids=["clock", "order"])


@CLOCKS
@pytest.mark.parametrize(
    "texts",
    [
        (HEADER.format("b3"), MIDDLE, END),
        (HEADER.format("b3"), USB, MIDDLE, LOADING, USB, END),
        (HEADER.format("b3") + "\n" + MIDDLE + "\n" + END,),
        (HEADER.format("b3") + "\n               " + MIDDLE + "\n               " + END,),
        (HEADER.format("b3") + " (PCI ID: 10de:1e07) installed in this",
         "NVRM: system has fallen off the bus and is not responding to commands."),
        (HEADER.format("b3") + " installed in this system has fallen off the bus and is not "
         "responding to commands.",),
        (HEADER.format("b3"), "NVRM: installed in this system has", END),
        (HEADER.format("b3"), MIDDLE, END, PROBE_OLD, SUMMARY.format(1), LOADING),
        (HEADER.format("b3"), MIDDLE, END, PROBE_NEW, SUMMARY.format(1), LOADING),
        (PLAIN,),
        (PLAIN, PLAIN),
        ("NVRM: GPU at 0000:b3:00.0 has fallen off the bus.",),
        (PLAIN, "NVRM: GPU 0000:b3:00.0: GPU serial number is 1320000000000."),
    ],
    ids=range(13),
)  # fmt: skip
def test_a_lost_card_without_an_xid_is_one_event(
    texts: tuple[str, ...], clock: float | None
) -> None:
    """The sentence of three lines, its other breaks, and the plain line each tell one loss."""
    assert kinds(*texts, clock=clock) == [LOST]


def test_the_message_is_the_whole_sentence() -> None:
    """The parts of the sentence are put together, without the driver's mark."""
    (event,) = parsed(HEADER.format("b3"), MIDDLE, END)
    assert event.message == (
        "The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:26b5) installed in this system has "
        "fallen off the bus and is not responding to commands."
    )


@CLOCKS
@pytest.mark.parametrize(
    "texts",
    [
        (XID_79, PLAIN),
        (PLAIN, XID_79),
        (XID_79, USB, PLAIN, "NVRM: GPU 0000:b3:00.0: GPU serial number is 1."),
        (PLAIN, USB, XID_79, PLAIN),
        (XID_79, HEADER.format("b3"), MIDDLE, END, PROBE_OLD, SUMMARY.format(1)),
    ],
    ids=range(5),
)
def test_lines_beside_an_xid_79_are_part_of_it(texts: tuple[str, ...], clock: float | None) -> None:
    """The driver tells one loss with the number and without, in either order."""
    assert kinds(*texts, clock=clock) == [("79", B3)]


def test_xid_79_of_another_card_does_not_hide_a_loss() -> None:
    """Only lines about the same card belong together."""
    assert sorted(kinds(PLAIN, "NVRM: Xid (PCI:0000:1a:00): 79, GPU has fallen off the bus.")) == [
        ("79", "0000:1a:00"),
        LOST,
    ]


@CLOCKS
def test_two_sentences_that_run_into_each_other_are_two_cards(clock: float | None) -> None:
    """Two threads of the driver may print at once."""
    mixed = (HEADER.format("b3"), HEADER.format("b4"), MIDDLE, MIDDLE, END, END, SUMMARY.format(2))
    assert sorted(kinds(*mixed, clock=clock)) == [LOST, (OFF_BUS, "0000:b4:00")]


def test_a_sentence_with_an_xid_in_between_gives_both() -> None:
    """An Xid inside the sentence neither ends it nor is lost."""
    other = "NVRM: Xid (PCI:0000:1a:00): 43, pid=1, name=x, Ch 1"
    assert sorted(kinds(HEADER.format("b3"), other, MIDDLE, END)) == [("43", "0000:1a:00"), LOST]


def test_a_loss_after_the_first_one_is_over_is_a_new_event() -> None:
    """The same card lost again an hour later counts again."""
    parser = Parser()
    found = parser.feed(XID_79, None, 100.0) + parser.feed(PLAIN, None, 3700.0) + parser.flush()
    assert [event.code or event.kind for event in found] == [79, OFF_BUS]


def test_a_loss_is_told_without_waiting_for_the_end() -> None:
    """An event that waits for its Xid comes out when time goes on, by any record, or on flush."""
    by_record, by_other, by_flush = Parser(), Parser(), Parser()
    for parser in (by_record, by_other, by_flush):
        assert parser.feed(PLAIN, None, 100.0) == []
    assert len(by_record.feed(LOADING, None, 103.0)) == 1
    assert len(by_other.feed(USB, None, 103.0)) == 1
    assert len(by_flush.flush()) == 1
    assert by_flush.flush() == []


def test_an_xid_79_is_never_held_back() -> None:
    """A page must not wait."""
    parser = Parser()
    assert [event.code for event in parser.feed(XID_79, None, 100.0)] == [79]


@CLOCKS
@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ((ADAPTER, ADAPTER_2), [FAILED]),
        ((ADAPTER_2,), [FAILED]),
        ((ADAPTER, ADAPTER_2, PROBE_OLD, SUMMARY.format(1)), [FAILED]),
        ((ADAPTER, ADAPTER_2, ADAPTER, ADAPTER_2), [FAILED, FAILED]),
        (("NVRM: RmInitAdapter failed! (0x26:0x38:1170)",
          "NVRM: rm_init_adapter(0) failed"), [(INIT_FAILED, None)]),
        (("NVRM: RmInitAdapter: osInitNvMapping failed, bailing out of RmInitAdapter",), []),
        (("NVRM: osInitNvMapping: *** Cannot attach gpu",), []),
        ((PROBE_NEW, SUMMARY.format(1), "NVRM: None of the NVIDIA devices were initialized."),
         [FAILED]),
        ((PROBE_OLD, SUMMARY.format(1)), [FAILED]),
        ((SUMMARY.format(1),), [(INIT_FAILED, None)]),
        ((PROBE_OLD, SUMMARY.format(2)), [FAILED, (INIT_FAILED, None)]),
        ((HEADER.format("b3") + " (PCI ID: 10de:1287)",
          "NVRM: installed in this system is not supported by the 304.131",
          "NVRM: NVIDIA Linux driver release. Please see 'Appendix", PROBE_OLD, SUMMARY.format(1)),
         [FAILED]),
        ((HEADER.format("b3") + " (PCI ID: 10de:1c82)",
          "NVRM: nvidia.ko because it does not include the required GPU", PROBE_NEW,
          SUMMARY.format(1)), [FAILED]),
        ((HEADER.format("b3") + " (PCI ID: 10de:2bb3)",
          "NVRM: installed in this system requires use of the NVIDIA open kernel modules."),
         [FAILED]),
        ((HEADER.format("b3") + " (PCI ID: 10de:2d04)", PROBE_NEW, SUMMARY.format(1)), [FAILED]),
        ((HEADER.format("b3") + " (PCI ID: 10de:2d04)", SUMMARY.format(1)), [FAILED]),
        ((HEADER.format("b3"), MIDDLE), []),
        (("NVRM: The NVIDIA probe routine was not called for 1 device(s).",), []),
    ],
    ids=range(18),
)  # fmt: skip
def test_cards_that_did_not_start(
    texts: tuple[str, ...], expected: list[tuple[str, str | None]], clock: float | None
) -> None:
    """Each attempt is one event, however many lines tell it; none of them is an Xid."""
    assert kinds(*texts, clock=clock) == expected


def test_a_sentence_whose_end_comes_much_later_is_not_that_sentence() -> None:
    """Lines of another day do not end a sentence that was cut off."""
    parser = Parser()
    parser.feed(HEADER.format("b3"), None, 100.0)
    assert parser.feed(END, None, 9000.0) == []
    assert parser.flush() == []


def test_what_is_remembered_is_bounded() -> None:
    """A log full of sentences without an end costs no more memory than a short one."""
    parser = Parser()
    for number in range(3000):
        parser.feed(f"NVRM: The NVIDIA GPU {number:04x}:00:00.0")
        parser.feed(f"NVRM: GPU {number:04x}:00:00.0: RmInitAdapter failed! (0x1:0x2:3)")
        parser.feed(
            f"NVRM: GPU at PCI:{number:04x}:00:00: GPU-aaaaaaaa-0000-4000-8000-{number:012x}"
        )
    state = parser._lost
    for kept in (state._headers, state._lost, state._failed, state._adapter, state._explained):
        assert len(kept) <= 256
    assert len(parser._uuids) <= 1024


def test_a_lost_card_gets_its_uuid() -> None:
    """Also a card that is only told by plain lines is named."""
    parser = Parser({"0000:b3:00": "GPU-b3"})
    parser.feed(PLAIN)
    assert [(event.kind, event.uuid) for event in parser.flush()] == [(OFF_BUS, "GPU-b3")]
    assert [event.kind for event in parser.feed(XID_79)] == [XID]
