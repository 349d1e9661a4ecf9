# SPDX-License-Identifier: Apache-2.0
"""The book of events over a journal and a health log that only remember what they were told."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any, cast

import pytest

from cardwatch.events import book as module
from cardwatch.events.book import EventBook, Place
from cardwatch.healthlog.line import Notice
from cardwatch.healthlog.writer import HealthLog
from cardwatch.journal.journal import Journal
from cardwatch.journal.records import Entry, Row
from cardwatch.kernlog.event import OFF_BUS, SXID, XID, Event
from cardwatch.kmsg.batch import Batch, Record
from cardwatch.kmsg.position import Position
from cardwatch.sample import DriverEvent
from cardwatch.xid.classify import Override

PCI, UUID = "0000:3b:00", "GPU-a"
POSITION = Position("/dev/kmsg", "boot", 7)


class FakeJournal:
    """Keeps what was committed, and counts it by card and code."""

    def __init__(self) -> None:
        self.commits: list[tuple[list[Entry], Position | None]] = []

    def commit(self, entries: Iterable[Entry], position: Position | None = None) -> None:
        self.commits.append((list(entries), position))

    def entries(self) -> list[Entry]:
        return [entry for entries, _ in self.commits for entry in entries]

    def counts(self) -> dict[tuple[str, int | None], int]:
        found: dict[tuple[str, int | None], int] = {}
        for entry in self.entries():
            key = entry.gpu, entry.event.code
            found[key] = found.get(key, 0) + entry.count
        return found


class FakeHealthLog:
    """Keeps what was to be logged."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []

    def note(self, notice: Notice) -> None:
        self.notices.append(notice)


class Desk:
    """A book with everything around it."""

    def __init__(self) -> None:
        self.journal, self.log = FakeJournal(), FakeHealthLog()
        self.recovery: int | None = None
        self.resets: list[tuple[str, float]] = []
        self.book = EventBook(
            cast(Journal, self.journal),
            cast(HealthLog, self.log),
            place=lambda pci: Place(UUID, "3") if pci == PCI else None,
            recovery=lambda _uuid, _since: self.recovery,
            on_reset=lambda uuid, when: self.resets.append((uuid, when)),
            index=lambda uuid: "3" if uuid == UUID else "",
        )

    def kernel(self, *events: Event, count: int = 1, old: bool = False, at: float = 0.0) -> None:
        when = at or time.time()
        record = Record(1, when, when, "text", events, count=count, old=old)
        self.book.take_batch(Batch((record,), POSITION))

    def driver(self, code: int, *, up: bool = True, kind: int = 0x8, uuid: str = UUID) -> None:
        told = DriverEvent(uuid, kind, code, time.time())
        self.book.take_driver([told], kernel_log_up=up)

    def settle(self) -> None:
        """Let every driver event have waited long enough."""
        self.book.release(time.monotonic() + module.HOLD_S)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def xid(code: int, **more: Any) -> Event:
    return Event(XID, code=code, **{"pci": PCI, "message": f"text of {code}", **more})


def test_an_event_is_kept_with_card_class_and_position(desk: Desk) -> None:
    """Entry and position are one commit; log line and JSON say the same."""
    desk.kernel(xid(79))
    ((entries, position),) = desk.journal.commits
    assert position == POSITION
    assert [(e.gpu, e.cls, e.count, e.source) for e in entries] == [(UUID, "critical", 1, "kmsg")]
    (notice,) = desk.log.notices
    assert (notice.uuid, notice.gpu, notice.code, notice.cls) == (UUID, "3", 79, "critical")
    (shown,) = desk.book.events()
    assert (shown["uuid"], shown["gpu"], shown["xid"], shown["tier"]) == (UUID, "3", 79, "page")


def test_a_batch_without_events_moves_the_position(desk: Desk) -> None:
    """Otherwise other people's records would be read again after a restart."""
    desk.book.take_batch(Batch((), POSITION))
    assert desk.journal.commits == [([], POSITION)]


def test_a_card_without_a_name_is_called_by_its_place(desk: Desk) -> None:
    """By its address, by the name that the line tells, or unknown: never empty."""
    desk.kernel(xid(79, pci="0000:aa:00"), xid(79, pci=None, uuid="GPU-b"), xid(79, pci=None))
    assert [e.gpu for e in desk.journal.entries()] == ["pci-0000:aa:00", "GPU-b", "unknown"]


def test_an_event_that_both_tell_counts_once(desk: Desk) -> None:
    """The driver's event waits for the line, and adds nothing to it."""
    desk.driver(31)
    assert desk.journal.commits == []
    desk.kernel(xid(31))
    desk.settle()
    assert desk.journal.counts() == {(UUID, 31): 1}
    assert len(desk.log.notices) == len(desk.book.events()) == 1


def test_a_line_that_comes_late_adds_its_text_only(desk: Desk) -> None:
    """Counted and logged when the driver told of it; the text goes to the journal."""
    desk.driver(31)
    desk.settle()
    desk.kernel(xid(31))
    assert desk.journal.counts() == {(UUID, 31): 1}
    assert [(e.count, e.event.message) for e in desk.journal.entries()] == [
        (1, ""),
        (0, "text of 31"),
    ]
    assert len(desk.log.notices) == 1
    (shown,) = desk.book.events()
    assert (shown["message"], shown["source"], shown["gpu"]) == ("text of 31", "nvml", "3")


def test_the_driver_alone_is_believed(desk: Desk) -> None:
    """After a second with a log, at once without one."""
    desk.driver(43)
    assert desk.journal.counts() == {}
    desk.settle()
    desk.driver(45, up=False)
    assert desk.journal.counts() == {(UUID, 43): 1, (UUID, 45): 1}


def test_driver_events_that_are_no_xid_are_not_counted(desk: Desk) -> None:
    """MIG change, unavailable and recovery show in readings."""
    for kind in (0x100, 0x4000, 0x8000):
        desk.driver(1, up=False, kind=kind)
    assert desk.journal.commits == []


def test_records_from_before_the_first_start_count_once(desk: Desk) -> None:
    """They are marked as old, and no event of the driver is taken for one of them."""
    desk.kernel(xid(31), count=3, old=True)
    desk.driver(31, up=False)
    assert [(e.count, e.old, e.source) for e in desk.journal.entries()] == [
        (3, True, "kmsg"),
        (1, False, "nvml"),
    ]


def test_equal_lines_count_each(desk: Desk) -> None:
    """A record of many equal lines is one entry and one log line with a count."""
    desk.kernel(xid(31), count=500)
    assert desk.journal.counts() == {(UUID, 31): 500}
    assert [notice.count for notice in desk.log.notices] == [500]


def test_xid_154_back_to_zero_is_a_reset(desk: Desk) -> None:
    """It is told with the time of the record, and with no other value."""
    desk.kernel(xid(154, recovery_to=0), at=1000.0)
    desk.kernel(xid(154, recovery_to=1), at=1001.0)
    assert desk.resets == [(UUID, 1000.0)]
    assert [e.cls for e in desk.journal.entries()] == ["info", "critical"]


def test_the_drivers_xid_154_waits_for_a_sample_that_shows_its_value(desk: Desk) -> None:
    """A recovery action read before the event says nothing of it."""
    desk.driver(154, up=False)
    desk.settle()
    assert desk.journal.commits == []
    desk.recovery = 1
    desk.settle()
    assert [(e.cls, e.event.recovery_to) for e in desk.journal.entries()] == [("critical", 1)]


def test_the_drivers_xid_154_does_not_wait_for_ever(desk: Desk) -> None:
    """A card without that reading has its event counted all the same."""
    desk.driver(154, up=False)
    desk.book.release(time.monotonic() + module.RECOVERY_WAIT_S)
    assert desk.journal.counts() == {(UUID, 154): 1}


def test_the_end_counts_what_still_waits(desk: Desk) -> None:
    """On a stop nothing that the driver told is dropped."""
    desk.driver(43)
    desk.driver(154, up=False)
    desk.book.release(float("inf"))
    assert desk.journal.counts() == {(UUID, 43): 1, (UUID, 154): 1}


def test_a_switch_error_is_kept_under_the_switch(desk: Desk) -> None:
    """Its severity is settled there; it never touches a card."""
    event = Event(SXID, code=24007, pci=PCI, switch="nvidia-nvswitch0", severity="fatal")
    desk.kernel(event)
    (entry,) = desk.journal.entries()
    assert (entry.gpu, entry.event.severity) == ("nvidia-nvswitch0", "fatal")
    assert desk.book.events()[0]["sxid"] == 24007


def test_a_lost_card_without_a_code_is_an_event(desk: Desk) -> None:
    """It has no Xid, and pages."""
    desk.kernel(Event(OFF_BUS, pci=PCI, message="GPU has fallen off the bus."))
    (shown,) = desk.book.events()
    assert (shown["kind"], shown["xid"], shown["tier"]) == (OFF_BUS, None, "page")


def test_overrides_change_what_comes_after(desk: Desk) -> None:
    """Settings can be read again while the book is open."""
    desk.kernel(xid(31))
    desk.book.overrides = {31: Override("critical", "RESET_GPU")}
    desk.kernel(xid(31))
    entries = desk.journal.entries()
    assert (entries[1].cls, entries[1].action) == ("critical", "RESET_GPU")
    assert entries[0].cls != "critical"


def test_events_of_earlier_runs_are_shown_below_those_of_this_one(desk: Desk) -> None:
    """Newest first; a row that only carries a text is no event."""

    def row(number: int, code: int, count: int = 1) -> Row:
        return Row(
            id=number, time=float(number), last_time=float(number), gpu=UUID, kind=XID, code=code,
            cls="critical", severity="", action="RESET_GPU", source="kmsg", old=False,
            count=count, message="", detail={"pci": PCI}, extra={},
        )  # fmt: skip

    desk.kernel(xid(31))
    desk.book.restore([row(3, 48), row(2, 13, count=0), row(1, 79)])
    shown = desk.book.events()
    assert [event["xid"] for event in shown] == [31, 48, 79]
    assert (shown[1]["tier"], shown[1]["pci"], shown[1]["gpu"]) == ("page", PCI, "3")
    assert shown[1].keys() == shown[0].keys()


def test_both_threads_may_tell_at_once(desk: Desk) -> None:
    """Reader and loop tell the same five hundred events, and so many are counted."""
    start = threading.Barrier(3)

    def read() -> None:
        start.wait()
        for _ in range(500):
            desk.kernel(xid(31))

    def loop() -> None:
        start.wait()
        for _ in range(500):
            desk.driver(31, up=False)

    threads = [threading.Thread(target=work) for work in (read, loop)]
    for thread in threads:
        thread.start()
    start.wait()
    while any(thread.is_alive() for thread in threads):
        desk.book.events()
    assert desk.journal.counts()[UUID, 31] == 500
