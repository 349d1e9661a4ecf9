# SPDX-License-Identifier: Apache-2.0
"""The book of events: takes them in from both sources, counts each once, tells who must know.

The kernel log's reader calls from its own thread, everything else from the
loop; a lock keeps the two apart. A driver event waits a second for its line in
the kernel log, which says more; where no log is read it counts at once.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from cardwatch.events.merge import DRIVER, KERNEL, Merge
from cardwatch.healthlog.line import Notice
from cardwatch.healthlog.writer import HealthLog
from cardwatch.journal.journal import Journal
from cardwatch.journal.records import Entry, Row
from cardwatch.kernlog.event import SXID, XID, Event
from cardwatch.kmsg.batch import Batch, Record
from cardwatch.sample import DriverEvent
from cardwatch.xid.classify import (
    NO_OVERRIDES,
    RUNBOOKS,
    TIERS,
    Classified,
    Overrides,
    classify,
    sxid_severity,
)

HOLD_S = 1.0
RECOVERY_WAIT_S = 15.0
"""So long a driver event for Xid 154 waits for a sample that shows what is asked for."""

_XID_EVENT = 0x8
_RECOVERY_CHANGED = 154
_RECENT = 1000


@dataclass(frozen=True)
class Place:
    """Which card is at a PCI address: its UUID and index."""

    uuid: str
    index: str


@dataclass(frozen=True)
class _Held:
    """A driver event that waits for its line in the kernel log. Times are monotonic."""

    due: float
    came: float
    told: DriverEvent


class EventBook:
    """Takes events in.

    place     tells which card is at a PCI address, None if that is not known.
    recovery  tells the recovery action that a card has shown since a moment (wall clock), None
              if none was read since: a driver event for Xid 154 has no value.
    on_reset  is told of an Xid 154 back to 0.
    index     tells the index of a card, empty if that is not known.
    """

    def __init__(
        self,
        journal: Journal,
        health_log: HealthLog,
        *,
        place: Callable[[str], Place | None],
        recovery: Callable[[str, float], int | None],
        on_reset: Callable[[str, float], None],
        index: Callable[[str], str] = lambda _uuid: "",
        overrides: Overrides = NO_OVERRIDES,
    ) -> None:
        self.overrides = overrides
        self._recent: deque[dict[str, Any]] = deque(maxlen=_RECENT)
        self._index = index
        self._journal, self._health_log = journal, health_log
        self._place, self._recovery, self._on_reset = place, recovery, on_reset
        self._merge = Merge()
        self._lock = threading.Lock()
        self._held: list[_Held] = []

    def restore(self, rows: Iterable[Row]) -> None:
        """Take in the newest events of earlier runs, newest first."""
        earlier = [_of_row(row, self._index(row.gpu)) for row in rows if row.count > 0]
        with self._lock:
            self._recent.extendleft(earlier)

    def events(self) -> list[dict[str, Any]]:
        """Return the newest events, newest first."""
        with self._lock:
            return list(reversed(self._recent))

    # -- from the kernel log ---------------------------------------------------------------

    def take_batch(self, batch: Batch) -> None:
        """Take in what the reader hands on; events and position go to the journal as one."""
        with self._lock:
            entries = [
                self._from_kernel(record, event)
                for record in batch.records
                for event in record.events
            ]
            self._journal.commit(entries, batch.position)

    def _from_kernel(self, record: Record, event: Event) -> Entry:
        name, index = self._who(event)
        count = record.count
        if event.kind == XID and event.code is not None and not record.old:
            count = self._merge.count(
                KERNEL, name, event.code, count, time.monotonic(), record.time, record.last_time
            )
        if event.kind == SXID:
            severity = sxid_severity(event.code, event.severity) or ""
            event = replace(event, severity=severity)
        if event.recovery_to == 0:
            self._on_reset(name, record.last_time)
        timed = replace(event, time=record.time)
        entry = self._entry(timed, name, count, record.last_time, KERNEL, old=record.old)
        if count:
            self._tell(entry, index)
        else:  # the driver told of it first: the line only adds its text
            self._tell_text(entry)
        return entry

    def _who(self, event: Event) -> tuple[str, str]:
        """Return the name under which an event is kept, and the card's index if there is one."""
        if event.kind == SXID:
            return event.switch or "", ""
        place = self._place(event.pci) if event.pci else None
        if place is not None:
            return place.uuid, place.index
        return event.uuid or (f"pci-{event.pci}" if event.pci else "unknown"), ""

    # -- from the driver -------------------------------------------------------------------

    def take_driver(self, events: Iterable[DriverEvent], *, kernel_log_up: bool) -> None:
        """Take in driver events; those that are no Xid only tell what readings show as well."""
        now = time.monotonic()
        due = now + HOLD_S if kernel_log_up else now
        with self._lock:
            self._held += [_Held(due, now, e) for e in events if e.type == _XID_EVENT]
        self.release(now)

    def release(self, now: float) -> None:
        """Count the driver events that have waited long enough for the kernel log."""
        with self._lock:
            ready = [held for held in self._held if self._is_ready(held, now)]
            if not ready:
                return
            self._held = [held for held in self._held if held not in ready]
            entries = [self._from_driver(held) for held in ready]
            self._journal.commit([entry for entry in entries if entry is not None])

    def _is_ready(self, held: _Held, now: float) -> bool:
        if held.due > now:
            return False
        if held.told.data != _RECOVERY_CHANGED or now - held.due >= RECOVERY_WAIT_S:
            return True
        return self._recovery(held.told.uuid, held.told.time) is not None

    def _from_driver(self, held: _Held) -> Entry | None:
        told = held.told
        code = told.data
        count = self._merge.count(DRIVER, told.uuid, code, 1, held.came, told.time)
        if count == 0:
            return None
        event = Event(
            kind=XID,
            time=told.time,
            uuid=told.uuid,
            code=code,
            mig_gi=told.gpu_instance,
            mig_ci=told.compute_instance,
            recovery_to=(
                self._recovery(told.uuid, told.time) if code == _RECOVERY_CHANGED else None
            ),
        )
        entry = self._entry(event, told.uuid, count, told.time, DRIVER, old=False)
        self._tell(entry, self._index(told.uuid))
        return entry

    # -- telling -----------------------------------------------------------------------------

    def _entry(
        self, event: Event, name: str, count: int, last_time: float, source: str, *, old: bool
    ) -> Entry:
        classified = classify(event, self.overrides)
        return Entry(
            gpu=name,
            event=event,
            cls=classified.class_,
            count=count,
            last_time=last_time,
            source=source,
            old=old,
            action=classified.action,
        )

    def _tell(self, entry: Entry, index: str) -> None:
        """Log the event and keep it among the recent ones."""
        event = entry.event
        classified = classify(event, self.overrides)
        when = event.time if event.time is not None else entry.last_time or 0.0
        self._health_log.note(
            Notice(
                time=when, kind=event.kind, uuid=entry.gpu, cls=entry.cls, code=event.code,
                gpu=index, meaning=classified.meaning, action=entry.action,
                message=event.message, count=entry.count,
            )
        )  # fmt: skip
        self._recent.append(_of_entry(entry, index, when, classified))

    def _tell_text(self, entry: Entry) -> None:
        """Add the text of the kernel log to an event that the driver told first."""
        for shown in reversed(self._recent):
            if (shown["uuid"], shown["xid"]) == (entry.gpu, entry.event.code):
                if shown["source"] == DRIVER and not shown["message"]:
                    shown["message"] = entry.event.message
                return


def _of_entry(entry: Entry, index: str, when: float, classified: Classified) -> dict[str, Any]:
    event = entry.event
    return {
        "time": when,
        "last_time": entry.last_time,
        "gpu": index,
        "uuid": entry.gpu,
        "pci": event.pci,
        "kind": event.kind,
        "xid": event.code if event.kind == XID else None,
        "sxid": event.code if event.kind == SXID else None,
        "class": entry.cls,
        "tier": classified.tier,
        "action": entry.action,
        "meaning": classified.meaning,
        "runbook": classified.runbook,
        "severity": event.severity,
        "recovery_to_code": event.recovery_to,
        "source": entry.source,
        "count": entry.count,
        "message": event.message,
    }


def _of_row(row: Row, index: str) -> dict[str, Any]:
    """Return an event of an earlier run as it was shown then."""
    event = Event(kind=row.kind, code=row.code, severity=row.severity or None)
    return {
        "time": row.time,
        "last_time": row.last_time,
        "gpu": index,
        "uuid": row.gpu,
        "pci": row.detail.get("pci"),
        "kind": row.kind,
        "xid": row.code if row.kind == XID else None,
        "sxid": row.code if row.kind == SXID else None,
        "class": row.cls,
        "tier": TIERS.get(row.cls, "ticket"),
        "action": row.action,
        "meaning": classify(event).meaning,
        "runbook": RUNBOOKS.get(row.cls, "") if row.kind == XID else classify(event).runbook,
        "severity": row.severity or None,
        "recovery_to_code": row.detail.get("recovery_to"),
        "source": row.source,
        "count": row.count,
        "message": row.message,
    }
