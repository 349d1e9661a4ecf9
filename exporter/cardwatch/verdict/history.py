# SPDX-License-Identifier: Apache-2.0
"""What a card did over the last minutes: sums, shares and peaks in bounded windows.

Owns the arithmetic of time: each sample stands for the time since the one
before; a gap of more than three intervals stands for nothing; a counter that
falls was reset and adds nothing. Never judges.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from cardwatch.verdict.facts import CardFacts
from cardwatch.verdict.repeats import Repeats

BUCKET_S = 30.0
"""Windows are kept in steps of this size."""

SHORTEST_WINDOW_S = 300.0
"""Below, a step more or less would matter."""

LONGEST_WINDOW_S = 3600.0
MAX_GAP_INTERVALS = 3
RESET_STEP_S = 5.0
"""A reset time that moves less than this is the same reset, told a little differently."""

BUSY_UTILIZATION = 0.5
"""From here on a card counts as busy; what it does below is its own business."""

WORKING_UTILIZATION = 0.2
"""From here on a card does something: less than busy, as when it waits for a slow link."""

CORRECTED = "corrected"
BUSY = "busy"
WORKING = "working"
THROTTLE_REASONS = (
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "hw_slowdown",
    "applications_clocks_setting",
)
_BUSY_MEANS = (
    ("clock", "gpu_clock_hertz", ("sm",)),
    ("power", "gpu_power_watts", ()),
    ("temperature", "gpu_temperature_celsius", ()),
    ("utilization", "gpu_utilization_ratio", ()),
)
_PEAKS = (
    ("generation", "gpu_pcie_link_generation"),
    ("width", "gpu_pcie_link_width"),
    ("links", "gpu_nvlink_active_links"),
    ("utilization", "gpu_utilization_ratio"),
)
_ECC = "gpu_ecc_errors_total"
_THROTTLE = "gpu_throttle_seconds_total"


@dataclass
class Sums:
    """Amounts with the seconds they were observed over, and highest values, by name."""

    start: float
    amounts: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    peaks: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, amount: float, seconds: float) -> None:
        """Add an amount observed over so many seconds."""
        self.amounts[name] = self.amounts.get(name, 0.0) + amount
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def peak(self, name: str, value: float) -> None:
        """Keep the highest value."""
        self.peaks[name] = max(value, self.peaks.get(name, value))


class History:
    """The recent past of one card. Times are monotonic seconds unless said otherwise."""

    def __init__(self) -> None:
        self.repeats = Repeats()
        self.uncorrected_increased: float | None = None
        """Wall clock of the last growth seen here since the count last fell."""
        self.uncorrected_seen: float | None = None
        """Wall clock at which the present uncorrected count was first seen here."""
        self._buckets: deque[Sums] = deque(maxlen=int(LONGEST_WINDOW_S / BUCKET_S) + 2)
        self._closed_sums: dict[tuple[str, float], tuple[float, float]] = {}
        self._closed_peaks: dict[tuple[str, float], float | None] = {}
        self._closed_parts: dict[float, list[Sums]] = {}
        self._closed_until = math.inf
        self._busy_means: tuple[float, float, Mapping[str, float] | None] | None = None
        self._counters: dict[tuple[str, ...], tuple[float, float]] = {}
        self._uncorrected: dict[tuple[str, ...], float] = {}
        self._last: float | None = None
        self._reset: float | None = None

    # -- taking in ------------------------------------------------------------------

    def feed(self, card: CardFacts, now: float, wall: float, interval: float) -> None:
        """Take in what is shown of the card; a sample seen before adds nothing."""
        self._note_reset(card.last_reset)
        self.repeats.note(card.events)
        at = card.sampled_at
        if card.rows is None or at is None or not math.isfinite(at) or at == self._last:
            return
        longest = MAX_GAP_INTERVALS * interval
        gap = 0.0 if self._last is None else at - self._last
        step = gap if 0 < gap <= longest else 0.0
        self._last, self._busy_means = at, None
        bucket = self._bucket(at)
        self._add_gauges(card, bucket, step)
        self._add_throttling(card, bucket, at, longest)
        self._add_corrected(card, bucket, at, longest)
        self._note_uncorrected(card, wall - max(0.0, now - at))

    def _note_reset(self, reset: float | None) -> None:
        """End the story so far at a reset: what was measured before it is of another life."""
        if reset is None:
            return
        if self._reset is not None and reset > self._reset + RESET_STEP_S:
            self._buckets.clear()
            self._forget_closed()
            self._busy_means = None
        self._reset = reset

    def _bucket(self, at: float) -> Sums:
        if not self._buckets or not 0 <= at - self._buckets[-1].start < BUCKET_S:
            self._buckets.append(Sums(at))
            self._forget_closed()
        return self._buckets[-1]

    def _add_gauges(self, card: CardFacts, bucket: Sums, step: float) -> None:
        for name, family in _PEAKS:
            value = card.one(family)
            if value is not None:
                bucket.peak(name, value)
        utilization = card.one("gpu_utilization_ratio")
        if not step or utilization is None:
            return
        busy = utilization >= BUSY_UTILIZATION
        bucket.add(BUSY, step if busy else 0.0, step)
        bucket.add(WORKING, step if utilization >= WORKING_UTILIZATION else 0.0, step)
        if busy:
            for name, family, labels in _BUSY_MEANS:
                value = card.one(family, *labels)
                if value is not None:
                    bucket.add(name, value * step, step)

    def _add_throttling(self, card: CardFacts, bucket: Sums, at: float, longest: float) -> None:
        """Prefer the driver's counter; its failure must not be filled from another count."""
        own_stands_in = card.faults.get(_THROTTLE) in (None, "unsupported")
        for reason in THROTTLE_REASONS:
            value, source = card.one(_THROTTLE, reason), "driver"
            if value is None and own_stands_in:
                value, source = card.throttled.get(reason), "own"
            if value is None:
                continue
            grown = self._grown((_THROTTLE, reason, source), value, at, longest)
            if grown is not None:
                # A coarse counter may jump; no reason lasts longer than the time itself.
                bucket.add(reason, min(grown[0], grown[1]), grown[1])

    def _add_corrected(self, card: CardFacts, bucket: Sums, at: float, longest: float) -> None:
        errors, seconds = 0.0, 0.0
        for labels, value in card.family(_ECC):
            if labels[:1] == (CORRECTED,):
                grown = self._grown((_ECC, *labels), value, at, longest)
                if grown is not None:
                    errors += grown[0]
                    seconds = max(seconds, grown[1])
        if seconds:
            bucket.add(CORRECTED, errors, seconds)

    def _grown(
        self, key: tuple[str, ...], value: float, at: float, longest: float
    ) -> tuple[float, float] | None:
        """Return by how much a counter grew in how many seconds; None if nobody can say."""
        before = self._counters.get(key)
        self._counters[key] = (value, at)
        if before is None or value < before[0] or not 0 < at - before[1] <= longest:
            return None
        return value - before[0], at - before[1]

    def _note_uncorrected(self, card: CardFacts, wall: float) -> None:
        """Note growth whatever the gap: an error that nobody watched is an error all the same."""
        present = {
            labels: value
            for labels, value in card.family(_ECC)
            if labels[:1] == ("uncorrected",)
        }  # fmt: skip
        before = self._uncorrected
        known = [labels for labels in present if labels in before]
        if any(present[labels] != before[labels] for labels in known) or not before:
            self.uncorrected_seen = wall if any(present.values()) else None
        if any(present[labels] < before[labels] for labels in known):
            self.uncorrected_increased = None
        elif any(present[labels] > before[labels] for labels in known):
            self.uncorrected_increased = wall
        before.update(present)

    # -- asking ---------------------------------------------------------------------

    def share(self, name: str, window: float, now: float) -> float:
        """Return the amount per second over a window, which for seconds is a share.

        Time not observed counts as free of it up to half the window, so that the
        first seconds after a start do not look like the whole.
        """
        amount, observed = self._sum(name, window, now)
        return amount / max(observed, window / 2)

    def amount(self, name: str, window: float, now: float) -> float:
        """Return the amount that came together in a window."""
        return self._sum(name, window, now)[0]

    def busy_means(self, window: float, now: float) -> Mapping[str, float] | None:
        """Return the means over a card's busy time by name; None unless that is half the window."""
        if self._busy_means is None or self._busy_means[:2] != (window, now):
            self._busy_means = (window, now, self._find_busy_means(window, now))
        return self._busy_means[2]

    def _find_busy_means(self, window: float, now: float) -> Mapping[str, float] | None:
        if self.amount(BUSY, window, now) < window / 2:
            return None
        sums = {name: self._sum(name, window, now) for name, *_ in _BUSY_MEANS}
        return {name: amount / time for name, (amount, time) in sums.items() if time > 0}

    def highest(self, name: str, window: float, now: float) -> float | None:
        """Return the highest value of a window; None where there was none."""
        self._forget_closed_before(now)
        key = (name, window)
        if key not in self._closed_peaks:
            parts = self._closed(window, now)
            peaks = [part.peaks[name] for part in parts if name in part.peaks]
            self._closed_peaks[key] = max(peaks, default=None)
        closed, last = self._closed_peaks[key], self._open(window, now)
        open_peak = None if last is None else last.peaks.get(name)
        known = [peak for peak in (closed, open_peak) if peak is not None]
        return max(known, default=None)

    def _sum(self, name: str, window: float, now: float) -> tuple[float, float]:
        """Return the amount in a window, and the seconds over which it was observed."""
        self._forget_closed_before(now)
        key = (name, window)
        closed = self._closed_sums.get(key)
        if closed is None:
            parts = [part for part in self._closed(window, now) if name in part.amounts]
            amount = math.fsum(part.amounts[name] for part in parts)
            closed = amount, math.fsum(part.seconds[name] for part in parts)
            self._closed_sums[key] = closed
        last = self._open(window, now)
        if last is None or name not in last.amounts:
            return closed
        return closed[0] + last.amounts[name], closed[1] + last.seconds[name]

    def _open(self, window: float, now: float) -> Sums | None:
        """Return the bucket that still takes in samples, if it is in the window."""
        last = self._buckets[-1] if self._buckets else None
        return last if last is not None and last.start > now - window else None

    def _closed(self, window: float, now: float) -> list[Sums]:
        """Return the other buckets of a window; one may stay in it a bucket's length too long."""
        if window not in self._closed_parts:
            others = islice(self._buckets, max(0, len(self._buckets) - 1))
            self._closed_parts[window] = [b for b in others if b.start > now - window]
            self._closed_until = min(self._closed_until, now + BUCKET_S)
        return self._closed_parts[window]

    def _forget_closed_before(self, now: float) -> None:
        if now >= self._closed_until:
            self._forget_closed()

    def _forget_closed(self) -> None:
        self._closed_parts.clear()
        self._closed_sums.clear()
        self._closed_peaks.clear()
        self._closed_until = math.inf
