# SPDX-License-Identifier: Apache-2.0
"""When a card was last reset, as far as that can be seen, and when its ECC count last grew.

The driver does not tell of a reset. It shows: counters since driver load that
fall, a recovery action that is taken back, a card that answers again after it
was lost or asked for a reset, and, from R615 on, the card's own uptime. What
none of these shows (a reset of a card without ECC and energy counter, for one)
is not seen; ``cardwatch events clear`` records it by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cardwatch.journal.records import Mark
from cardwatch.sample import CardSample

RESET, CLEARED, ECC_GREW = "reset", "cleared", "ecc_uncorrected"
SETTLING = (RESET, CLEARED)

_SHAKY_STATES = ("lost", "reset_required")
_UPTIME_SLACK_S = 5.0


@dataclass
class _Seen:
    """What the last sample of a card showed."""

    energy: float | None = None
    ecc: float | None = None
    uncorrected: float | None = None
    recovery_action: float | None = None
    shaky: bool = False


@dataclass
class Resets:
    """Marks of all cards; ``note`` keeps a new one for later runs."""

    note: Callable[[Mark], None]
    last_reset: dict[str, float] = field(default_factory=dict)
    ecc_grew: dict[str, float] = field(default_factory=dict)
    _seen: dict[str, _Seen] = field(default_factory=dict)

    def restore(self, mark: Mark) -> None:
        """Take in a mark of an earlier run or of another process."""
        if mark.kind in SETTLING:
            self.last_reset[mark.gpu] = max(mark.time, self.last_reset.get(mark.gpu, mark.time))
        elif mark.kind == ECC_GREW:
            self.ecc_grew[mark.gpu] = max(mark.time, self.ecc_grew.get(mark.gpu, mark.time))

    def _mark(self, uuid: str, kind: str, time: float, origin: str) -> None:
        mark = Mark(uuid, kind, time, origin)
        self.restore(mark)
        self.note(mark)

    def was_reset(self, uuid: str, time: float, origin: str) -> None:
        """Note a reset that was seen otherwise, such as an Xid 154 back to 0."""
        self._mark(uuid, RESET, time, origin)

    def lost(self, uuid: str) -> None:
        """Note that a card is gone: when it answers again, it was reset."""
        self._seen.setdefault(uuid, _Seen()).shaky = True

    def look(self, uuid: str, sample: CardSample) -> None:
        """Compare a new sample of a card with the one before."""
        seen = self._seen.get(uuid)
        if sample.state in _SHAKY_STATES:
            self.lost(uuid)
            return
        if not sample.up:
            return
        now = _Seen(
            energy=_value(sample, "gpu_energy_joules_total"),
            ecc=_sum(sample, None),
            uncorrected=_sum(sample, "uncorrected"),
            recovery_action=_value(sample, "gpu_recovery_action"),
        )
        origin = None if seen is None else _reset_between(seen, now)
        if origin is not None:
            self._mark(uuid, RESET, sample.time, origin)
        self._look_at_uptime(uuid, sample)
        self._look_at_ecc(uuid, sample, seen, now)
        self._seen[uuid] = _carried(seen, now)

    def _look_at_uptime(self, uuid: str, sample: CardSample) -> None:
        if sample.uptime is None:
            return
        up_since = sample.time - sample.uptime
        known = self.last_reset.get(uuid)
        if known is None or up_since > known + _UPTIME_SLACK_S:
            self._mark(uuid, RESET, up_since, "uptime")

    def _look_at_ecc(self, uuid: str, sample: CardSample, seen: _Seen | None, now: _Seen) -> None:
        """Note growth; when errors came that were there at first sight, nobody knows."""
        before = None if seen is None else seen.uncorrected
        if before is not None and now.uncorrected is not None and now.uncorrected > before:
            self._mark(uuid, ECC_GREW, sample.time, "counter")


def _reset_between(seen: _Seen, now: _Seen) -> str | None:
    """Return by what a reset shows between two samples, or None."""
    if seen.shaky:
        return "answers_again"
    if _fell(seen.recovery_action, now.recovery_action) and now.recovery_action == 0:
        return "recovery_action"
    if _fell(seen.ecc, now.ecc):
        return "ecc_counter"
    return "energy_counter" if _fell(seen.energy, now.energy) else None


def _fell(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and after < before


def _carried(seen: _Seen | None, now: _Seen) -> _Seen:
    """Keep what this sample lacks from the one before, so that one bad reading hides nothing."""
    if seen is not None:
        for name in ("energy", "ecc", "uncorrected", "recovery_action"):
            if getattr(now, name) is None:
                setattr(now, name, getattr(seen, name))
    return now


def _value(sample: CardSample, family: str) -> float | None:
    rows = sample.rows.get(family)
    return rows[0][1] if rows else None


def _sum(sample: CardSample, kind: str | None) -> float | None:
    """Add up the ECC counters; None when they did not all read."""
    rows = sample.rows.get("gpu_ecc_errors_total")
    if not rows or "gpu_ecc_errors_total" in sample.faults:
        return None
    return sum(value for labels, value in rows if kind is None or labels[0] == kind)
