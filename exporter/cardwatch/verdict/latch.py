# SPDX-License-Identifier: Apache-2.0
"""When evidence becomes a condition and when the condition is over.

Evidence must last for the hold time; a condition stays until the evidence has
been away for the release time, or until a reset later than the evidence. So
every latch opens: the facts cannot keep one that no longer speak for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from cardwatch.verdict.case import Finding

GRACE_INTERVALS = 3
"""Evidence that goes missing for no longer than this has not gone away."""

UNKNOWN_KEEP_S = 900.0
"""What was wrong with a card that now shows no readings is believed for this long."""


@dataclass(slots=True)
class Moment:
    """Now, by both clocks, and what holds for every condition of a card.

    known  False while the readings that the condition is judged by are not there.
    """

    now: float
    wall: float
    interval: float
    last_reset: float | None
    known: bool = True


@dataclass(slots=True)
class Latch:
    """One condition of one card. ``began`` and ``last``: when evidence was first and last seen."""

    held: bool = False
    finding: Finding | None = None
    began: float = 0.0
    began_wall: float = 0.0
    last: float = 0.0
    last_wall: float = 0.0
    present: bool = False

    def update(self, finding: Finding | None, moment: Moment, hold: float, release: float) -> None:
        """Take in the evidence of this moment."""
        self.present = finding is not None
        if finding is not None:
            if self.finding is None:
                self.began, self.began_wall = moment.now, moment.wall
            self.finding, self.last, self.last_wall = finding, moment.now, moment.wall
            self.held = self.held or moment.now - self.began >= hold
        elif self.finding is not None and self._over(moment, release):
            self.held, self.finding = False, None

    def _over(self, moment: Moment, release: float) -> bool:
        # What is shown may be an interval old, so evidence just after a reset may be from before.
        reset = moment.last_reset
        if reset is not None and reset > self.last_wall - moment.interval:
            return True
        away = moment.now - self.last
        if not self.held:
            return away > GRACE_INTERVALS * moment.interval
        return away >= (release if moment.known else max(release, UNKNOWN_KEEP_S))
