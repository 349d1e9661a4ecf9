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
from cardwatch.journal.records import Entry
from cardwatch.kernlog.event import SXID, XID, Event
from cardwatch.kmsg.batch import Batch, Record
from cardwatch.sample import DriverEvent
from cardwatch.xid.classify import NO_OVERRIDES, Overrides, classify, sxid_severity

HOLD_S = 1.0
_XID_EVENT = 0x8
_RECENT = 1000


@dataclass(frozen=True)
class Place:
    """Which card is at a PCI address: its UUID and index."""

    uuid: str
    index: str


class EventBook:
    """Takes events in.

    place     tells which card is at a PCI address, None if that is not known.
    recovery  tells the recovery action a card shows now: a driver event for Xid 154 has no value.
    on_reset  is told of an Xid 154 back to 0.
    """

    def __init__(
        self,
        journal: Journal,
        health_log: HealthLog,
        *,
        place: Callable[[str], Place | None],
        recovery: Callable[[str], int | None],
        on_reset: Callable[[str, float], None],
        overrides: Overrides = NO_OVERRIDES,
    ) -> None:
        self.overrides = overrides
        self.recent: deque[dict[str, Any]] = deque(maxlen=_RECENT)
        self._journal, self._health_log = journal, health_log
        self._place, self._recovery, self._on_reset = place, recovery, on_reset
        self._merge = Merge()
        self._lock = threading.Lock()
        self._held: list[tuple[float, DriverEvent]] = []

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
            count = self._merge.count(KERNEL, name, event.code, count, time.monotonic())
        if event.kind == SXID:
            severity = sxid_severity(event.code, event.severity) or ""
            event = replace(event, severity=severity)
        if event.recovery_to == 0:
            self._on_reset(name, record.last_time)
        timed = replace(event, time=record.time)
        entry = self._entry(timed, name, count, record.last_time, KERNEL, old=record.old)
        if count:  # else the driver told of it first: the line only adds its text
            self._tell(entry, index)
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
            self._held += [(due, e) for e in events if e.type == _XID_EVENT]
        self.release(now)

    def release(self, now: float) -> None:
        """Count the driver events that have waited long enough for the kernel log."""
        with self._lock:
            ready = [event for due, event in self._held if due <= now]
            if not ready:
                return
            self._held = [item for item in self._held if item[0] > now]
            entries = [self._from_driver(event, now) for event in ready]
            self._journal.commit([entry for entry in entries if entry is not None])

    def _from_driver(self, told: DriverEvent, now: float) -> Entry | None:
        code = told.data
        count = self._merge.count(DRIVER, told.uuid, code, 1, now)
        if count == 0:
            return None
        event = Event(
            kind=XID,
            time=told.time,
            uuid=told.uuid,
            code=code,
            mig_gi=told.gpu_instance,
            mig_ci=told.compute_instance,
            recovery_to=self._recovery(told.uuid) if code == 154 else None,
        )
        entry = self._entry(event, told.uuid, count, told.time, DRIVER, old=False)
        self._tell(entry, "")
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
        self.recent.append(
            {
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
        )
