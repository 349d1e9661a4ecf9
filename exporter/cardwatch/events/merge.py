# SPDX-License-Identifier: Apache-2.0
"""One event that two sources tell is one event.

Each telling of one source is paired with one of the other for the same card and
code within five seconds. So of what comes in such a time, the larger of the two
numbers counts, never their sum, and what only one of them tells is not lost.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass

WINDOW_S = 5.0

KERNEL, DRIVER = "kmsg", "nvml"

_OTHER = {KERNEL: DRIVER, DRIVER: KERNEL}
_KEEP_S = 120.0
"""A line of the kernel log may come that late, as after a failure to read it."""

_TOGETHER_S = 0.5
_MAX_KEYS = 4096
_MAX_TOLD = 512


@dataclass
class _Told:
    """Events of one source that the other has not told yet: when they were, when they came."""

    first: float
    last: float
    came: float
    number: int

    def near(self, other: _Told) -> bool:
        """Say whether these may be the same: by their own times, or by when they came."""
        if abs(self.came - other.came) <= WINDOW_S:
            return True
        return self.first - WINDOW_S <= other.last and other.first - WINDOW_S <= self.last


class Merge:
    """What is not paired yet, by card and code."""

    def __init__(self) -> None:
        self._told: OrderedDict[tuple[str, int], dict[str, deque[_Told]]] = OrderedDict()

    def count(
        self, source: str, card: str, code: int, number: int, came: float,
        first: float, last: float | None = None,
    ) -> int:  # fmt: skip
        """Take in ``number`` events of one source; return how many of them are new.

        came         when they arrived, in monotonic seconds.
        first, last  when they happened, by the wall clock.
        """
        told = self._of((card, code))
        fresh = _Told(first, first if last is None else max(first, last), came, number)
        others = told[_OTHER[source]]
        while others and came - others[0].came > _KEEP_S:
            others.popleft()
        for other in others:
            if fresh.number and other.near(fresh):
                paired = min(fresh.number, other.number)
                other.number -= paired
                fresh.number -= paired
        while others and others[0].number == 0:
            others.popleft()
        if fresh.number:
            _keep(told[source], fresh)
        return fresh.number

    def _of(self, key: tuple[str, int]) -> dict[str, deque[_Told]]:
        told = self._told.get(key)
        if told is None:
            told = self._told[key] = {s: deque(maxlen=_MAX_TOLD) for s in (KERNEL, DRIVER)}
            if len(self._told) > _MAX_KEYS:
                self._told.popitem(last=False)
        self._told.move_to_end(key)
        return told


def _keep(own: deque[_Told], fresh: _Told) -> None:
    """Keep what is new until the other source tells it; a flood is kept in few pieces."""
    last = own[-1] if own else None
    if (
        last is not None
        and abs(fresh.came - last.came) <= _TOGETHER_S
        and abs(fresh.first - last.first) <= _TOGETHER_S
    ):
        last.last = max(last.last, fresh.last)
        last.number += fresh.number
    else:
        own.append(_Told(fresh.first, fresh.last, fresh.came, fresh.number))
