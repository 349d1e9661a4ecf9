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

_OPEN_S = 0.2
"""The loop waits no longer for the journal: a slow disk's counts come in when they do."""

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
            index=self._index,
            overrides=options.overrides,
        )
        self.judge = Judge()
        self.verdicts: dict[str, CardVerdict] = {}
        self.kernel_log: KernelLog | None = None
        self.watching: tuple[bool | None, str | None] = (None, None)
        self._ever_up = False
        self._restored = False
        self._parser = Parser()
        self._looked: dict[str, float] = {}
        self._driver_was_away = False

    # -- life ----------------------------------------------------------------------------------

    def open(self) -> None:
        """Start journal and health log; counters and marks of earlier runs are back after that."""
        self.journal.open(_OPEN_S)
        self.health_log.start()
        self._restore()

    def _restore(self) -> None:
        """Take in what earlier runs left, as soon as the disk has given it."""
        if self._restored or not self.journal.status().loaded:
            return
        self._restored = True
        for mark in self.journal.marks():
            self.resets.restore(mark)
        self.book.restore(row for row in self.journal.events() if row.id is not None)

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
        # In a slot that got another card, the one seen last is meant.
        roster = dict(self._cards.roster.cards)
        found = [
            (card.seen, entry.last_seen if (entry := roster.get(card.uuid)) else 0.0,
             card.uuid, card.index)
            for card in list(self._cards.known.values())
            if card.pci == pci
        ]  # fmt: skip
        found += [
            (float("-inf"), entry.last_seen, uuid, entry.index)
            for uuid, entry in roster.items()
            if entry.pci == pci
        ]
        if not found:
            return None
        *_, uuid, index = max(found)
        return Place(uuid, str(index))

    def _index(self, uuid: str) -> str:
        card = self._cards.known.get(uuid)
        return "" if card is None else str(card.index)

    def _recovery(self, uuid: str, since: float) -> int | None:
        card = self._cards.known.get(uuid)
        sample = card.sample if card else None
        if sample is None or sample.time < since:
            return None
        rows = sample.rows.get("gpu_recovery_action")
        return int(rows[0][1]) if rows else None

    # -- at every refresh --------------------------------------------------------------------

    def refresh(self, snap: Snapshot, *, started: bool, child: bool = True) -> None:
        """Look at new samples for resets, count what waited, judge every card.

        child  False while no reading child is there: nobody waits for driver events then.
        """
        now = time.monotonic()
        self._restore()
        if (started and self._restored) or now - self._born > START_AFTER_S:
            self.start_reading()
        if not child and self.watching[0] is not None:
            self.watching = (False, snap.source_error or "starting")
        self.book.release(now)
        for mark in self.journal.poll_marks():
            self.resets.restore(mark)
        self._note_driver(snap)
        for view in snap.views:
            self._look(view)
        counters = self.journal.counters()
        facts = [self._facts(view, snap, counters) for view in snap.views]
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

    def last_reset(self, view: View, boot: float | None) -> float | None:
        """Return the newest of boot and every reset that was seen or recorded."""
        return newest_reset(self.resets, view, boot)

    def _facts(
        self, view: View, snap: Snapshot, counters: Mapping[CounterKey, Counter]
    ) -> CardFacts:
        uuid = view.card.uuid
        return card_facts(
            view,
            seen_events(counters, uuid, view.card.pci),
            self.last_reset(view, snap.host.boot_time),
            self.resets.ecc_grew.get(uuid),
        )

    # -- showing ---------------------------------------------------------------------------------

    def counters(self) -> Mapping[str, Mapping[CounterKey, Counter]]:
        """Return the counters by card."""
        found: dict[str, dict[CounterKey, Counter]] = defaultdict(dict)
        for key, counter in self.journal.counters().items():
            found[key.gpu][key] = counter
        return found

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


def newest_reset(resets: Resets, view: View, boot: float | None) -> float | None:
    """Return the newest of boot and the resets of a card, also by its place in the node."""
    by_name = (resets.last_reset.get(name) for name in (view.card.uuid, f"pci-{view.card.pci}"))
    return max((t for t in (boot, *by_name) if t is not None), default=None)


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
