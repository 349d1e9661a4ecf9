# SPDX-License-Identifier: Apache-2.0
"""How long to wait before the next reading child."""

from __future__ import annotations

FIRST_S = 5.0
LAST_S = 300.0


class Backoff:
    """5 s, doubling to 5 min; back to 5 s after a child that worked longer than its wait."""

    def __init__(self, first: float = FIRST_S, last: float = LAST_S) -> None:
        self._first, self._last = first, last
        self._next = first

    def after(self, worked_s: float) -> float:
        """Return the wait after a child that gave frames for so long."""
        if worked_s > self._next:
            self._next = self._first
        wait = self._next
        self._next = min(self._next * 2, self._last)
        return wait
