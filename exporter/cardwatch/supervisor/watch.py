# SPDX-License-Identifier: Apache-2.0
"""Events and verdicts beside the readings: kernel log, driver events, journal, resets, judge.

Runs only in ``serve``: one process keeps the journal of a node. What other
commands need of it they read from the state directory.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cardwatch.events.book import EventBook, Place
from cardwatch.events.resets import Resets
from cardwatch.healthlog.writer import HealthLog
from cardwatch.journal.journal import Journal
from cardwatch.journal.records import Counter, CounterKey
from cardwatch.journal.store import FILE, StoreError, read_contents
from cardwatch.kernlog.event import XID, Event
from cardwatch.kernlog.parse import Parser
from cardwatch.kmsg.batch import Batch
from cardwatch.kmsg.reader import OFF, KernelLog, read_boot_id
from cardwatch.sample import Frame
from cardwatch.supervisor.cards import Cards, View
from cardwatch.supervisor.snapshot import Snapshot
from cardwatch.verdict import CardFacts, CardVerdict, Held, Judge, NodeFacts, SeenEvent
from cardwatch.verdict import Overrides as VerdictOverrides
from cardwatch.xid import catalogue
from cardwatch.xid.classify import NO_OVERRIDES, TIERS, Overrides

START_AFTER_S = 3.0
"""The log is read from here on at the latest: by then the cards should have told who they are."""


@dataclass(frozen=True)
class WatchOptions:
    """How events are watched.

    kmsg  path of the kernel log, or ``off``.
    any_facility  also records that user space wrote: for drills.
    """

    directory: Path | None
    kmsg: str
    any_facility: bool = False
    procfs: Path = Path("/proc")
    log_format: str = "logfmt"
    workload_logs: Path | None = None
    overrides: Overrides = field(default_factory=lambda: NO_OVERRIDES)


class Watch:
    """Owns the parts and brings them together at every refresh."""

    def __init__(self, options: WatchOptions, cards: Cards, on_change: Callable[[], None]) -> None:
        self.options = options
        self._cards = cards
        self._on_change = on_change
        self._born = time.monotonic()
        self.journal = Journal(options.directory)
        self.health_log = HealthLog(form=options.log_format, directory=options.workload_logs)
        self.resets = Resets(self.journal.mark)
        self.book = EventBook(
            self.journal,
            self.health_log,
            place=self._place,
            recovery=self._recovery,
            on_reset=lambda uuid, when: self.resets.was_reset(uuid, when, "xid154"),
            overrides=options.overrides,
        )
        self.judge = Judge()
        self.verdicts: dict[str, CardVerdict] = {}
        self.kernel_log: KernelLog | None = None
        self.watching: tuple[bool | None, str | None] = (None, None)
        self._ever_up = False
        self._parser = Parser()
        self._looked: dict[str, float] = {}
        self._driver_was_away = False

    # -- life ----------------------------------------------------------------------------------

    def open(self) -> None:
        """Start journal and health log; counters and marks of earlier runs are back after that."""
        self.journal.open()
        self.health_log.start()
        for mark in self.journal.marks():
            self.resets.restore(mark)

    def start_reading(self) -> None:
        """Start the kernel log's reader where an earlier run left off."""
        if self.kernel_log is not None or self.options.kmsg == OFF:
            return
        self.kernel_log = KernelLog(
            self.options.kmsg,
            self._parse,
            self._deliver,
            settle=self._parser.flush,
            position=self.journal.position(self.options.kmsg),
            boot_id=read_boot_id(self.options.procfs),
            any_facility=self.options.any_facility,
            on_change=lambda _status: self._on_change(),
        )
        self.kernel_log.start()

    def close(self) -> None:
        """Hand on what is there and end the threads, in little more than two seconds at worst."""
        if self.kernel_log is not None:
            self.kernel_log.stop(0.7)
        self.book.release(float("inf"))
        self.health_log.close(0.3)
        self.journal.close(1.0)

    # -- taking in ---------------------------------------------------------------------------

    def _parse(self, text: str, wall: float, uptime: float) -> Sequence[Event]:
        return self._parser.feed(text, wall, uptime)

    def _deliver(self, batch: Batch) -> None:
        self.book.take_batch(batch)
        self._on_change()

    def take_frame(self, frame: Frame) -> None:
        """Take in the driver events of a frame."""
        self.watching = (frame.watching, frame.watch_error)
        if frame.events:
            self.book.take_driver(frame.events, kernel_log_up=self.kernel_log_up)

    @property
    def kernel_log_up(self) -> bool:
        """Whether the kernel log is being read."""
        return self.kernel_log is not None and self.kernel_log.status().up

    def _place(self, pci: str) -> Place | None:
        """Return the card at an address, by the book or by the roster."""
        for card in list(self._cards.known.values()):
            if card.pci == pci:
                return Place(card.uuid, str(card.index))
        for uuid, entry in list(self._cards.roster.cards.items()):
            if entry.pci == pci:
                return Place(uuid, str(entry.index))
        return None

    def _recovery(self, uuid: str) -> int | None:
        card = self._cards.known.get(uuid)
        rows = card.sample.rows.get("gpu_recovery_action") if card and card.sample else None
        return int(rows[0][1]) if rows else None

    # -- at every refresh --------------------------------------------------------------------

    def refresh(self, snap: Snapshot, *, started: bool) -> None:
        """Look at new samples for resets, count what waited, judge every card."""
        now = time.monotonic()
        if started or now - self._born > START_AFTER_S:
            self.start_reading()
        self.book.release(now)
        for mark in self.journal.poll_marks():
            self.resets.restore(mark)
        self._note_driver(snap)
        for view in snap.views:
            self._look(view)
        facts = [self._facts(view, snap) for view in snap.views]
        self.verdicts = self.judge.observe(
            facts, node_facts(snap), now, snap.time, snap.identity.interval
        )

    def _note_driver(self, snap: Snapshot) -> None:
        """Note a load of the driver: it was not loaded and answers again."""
        away = snap.source_error in ("driver_not_loaded", "driver_library_mismatch")
        if self._driver_was_away and snap.source_up:
            for view in snap.views:
                self.resets.was_reset(view.card.uuid, snap.time, "driver_load")
        self._driver_was_away = away or (self._driver_was_away and not snap.source_up)

    def _look(self, view: View) -> None:
        uuid, sample = view.card.uuid, view.sample
        if view.state == "lost":
            self.resets.lost(uuid)
        if sample is not None and self._looked.get(uuid) != sample.monotonic:
            self._looked[uuid] = sample.monotonic
            self.resets.look(uuid, sample)

    def last_reset(self, uuid: str, boot: float | None) -> float | None:
        """Return the newest of boot and every reset that was seen or recorded."""
        known = [t for t in (boot, self.resets.last_reset.get(uuid)) if t is not None]
        return max(known) if known else None

    def _facts(self, view: View, snap: Snapshot) -> CardFacts:
        uuid = view.card.uuid
        return card_facts(
            view,
            self.events_of(uuid, view.card.pci),
            self.last_reset(uuid, snap.host.boot_time),
            self.resets.ecc_grew.get(uuid),
        )

    # -- showing ---------------------------------------------------------------------------------

    def counters(self) -> Mapping[str, Mapping[CounterKey, Counter]]:
        """Return the counters by card."""
        found: dict[str, dict[CounterKey, Counter]] = defaultdict(dict)
        for key, counter in self.journal.counters().items():
            found[key.gpu][key] = counter
        return found

    def events_of(self, uuid: str, pci: str) -> list[SeenEvent]:
        """Return the events of a card, those included that came before it told its name."""
        return seen_events(self.journal.counters(), uuid, pci)

    @property
    def counting(self) -> bool:
        """True once one source of Xids was up, or an earlier run's counts are back."""
        if not self._ever_up:
            self._ever_up = (
                self.kernel_log_up
                or self.watching[0] is True
                or (self.journal.status().restored and bool(self.journal.counters()))
            )
        return self._ever_up


def judge_once(
    snap: Snapshot, directory: Path | None, thresholds: VerdictOverrides
) -> tuple[dict[str, CardVerdict], tuple[Held, ...]]:
    """Judge one snapshot beside what the journal on disk knows, without keeping one."""
    contents = None
    if directory is not None and (directory / FILE).exists():
        with contextlib.suppress(StoreError):
            contents = read_contents(directory)
    resets = Resets(lambda _mark: None)
    for mark in contents.marks if contents else ():
        resets.restore(mark)
    counters = contents.counters if contents else {}
    facts = []
    for view in snap.views:
        uuid = view.card.uuid
        known = [t for t in (snap.host.boot_time, resets.last_reset.get(uuid)) if t is not None]
        events = seen_events(counters, uuid, view.card.pci)
        facts.append(card_facts(view, events, max(known, default=None), resets.ecc_grew.get(uuid)))
    judge = Judge(thresholds, patient=False)
    verdicts = judge.observe(
        facts, node_facts(snap), time.monotonic(), snap.time, snap.identity.interval
    )
    return verdicts, judge.node


def node_facts(snap: Snapshot) -> NodeFacts:
    """Return what the judge looks at of the node."""
    return NodeFacts(
        driver_error=snap.source_error if snap.source_up is False else None,
        listed=snap.listed,
        detected=None if snap.host.gpus is None else len(snap.host.gpus),
        source_up=snap.source_up,
    )


def card_facts(
    view: View, events: Sequence[SeenEvent], last_reset: float | None, ecc_grew: float | None
) -> CardFacts:
    """Return what the judge looks at of one card."""
    card, sample = view.card, view.sample
    return CardFacts(
        uuid=card.uuid,
        index=view.index,
        model=card.info.get("model", ""),
        state=view.state,
        up=view.up,
        cause=view.cause,
        rows=None if sample is None else sample.rows,
        faults={} if sample is None else sample.faults,
        sampled_at=None if sample is None else sample.monotonic,
        throttled=card.throttle.seconds,
        events=events,
        last_reset=last_reset,
        uncorrected_increased=ecc_grew,
        mig=bool(sample and sample.mig),
    )


def seen_events(counters: Mapping[CounterKey, Counter], uuid: str, pci: str) -> list[SeenEvent]:
    """Return the events of a card, by its UUID or by its place before that was known."""
    return [
        _seen(key, counter)
        for key, counter in counters.items()
        if key.gpu == uuid or (pci and key.gpu == f"pci-{pci}")
    ]


def _seen(key: CounterKey, counter: Counter) -> SeenEvent:
    entry = catalogue.xid(key.code) if key.kind == XID and key.code is not None else None
    return SeenEvent(
        kind=key.kind,
        code=key.code,
        cls=key.cls,
        tier=TIERS.get(key.cls, "ticket"),
        action=entry.action if entry else "",
        first_time=counter.first_time,
        last_time=counter.last_time,
        count=counter.count,
        severity=key.severity or None,
        origin=entry.origin if entry else (),
    )
