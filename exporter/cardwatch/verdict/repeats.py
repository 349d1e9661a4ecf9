# SPDX-License-Identifier: Apache-2.0
"""How many events fell into the last while, from merged counts that only ever grow.

A merged event tells its first and last time and a count, maybe of days. Growth
seen here is dated; what was counted before the first look is taken as evenly
spread between first and last time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from cardwatch.verdict.facts import SeenEvent

Key = tuple[str, "int | None", str, "str | None", float]

MERGE_S = 30.0
_MOST_ENTRIES = 128
"""More than the longest window has steps of ``MERGE_S``."""


def key_of(event: SeenEvent) -> Key:
    """Return what tells one merged event from another, whatever its count is by now."""
    return (event.kind, event.code, event.cls, event.severity, event.first_time)


@dataclass(slots=True)
class _Count:
    """What was there at the first look, and growth since, by wall clock."""

    first: float
    last: float
    at_first_look: int
    total: int
    grown: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_MOST_ENTRIES))

    def grow(self, total: int, when: float) -> None:
        more, self.total = total - self.total, total
        if self.grown and when - self.grown[-1][0] < MERGE_S:
            more += self.grown.pop()[1]
        self.grown.append((when, more))

    def since(self, begin: float) -> int:
        return self._spread(begin) + sum(more for when, more in self.grown if when >= begin)

    def _spread(self, begin: float) -> int:
        length = self.last - self.first
        if self.last < begin:
            return 0
        if self.first >= begin or length <= 0:
            return self.at_first_look
        return 1 + math.floor((self.at_first_look - 1) * (self.last - begin) / length)


class Repeats:
    """The counts of one card's events."""

    def __init__(self) -> None:
        self._counts: dict[Key, _Count] = {}

    def note(self, events: Iterable[SeenEvent]) -> None:
        """Take in all events of the card as they are counted now."""
        seen: dict[Key, tuple[int, float]] = {}
        for event in events:
            key = key_of(event)
            count, last = seen.get(key, (0, event.last_time))
            seen[key] = count + event.count, max(last, event.last_time)
        counts: dict[Key, _Count] = {}
        for key, (count, last) in seen.items():
            known = self._counts.get(key)
            if known is None or count < known.total:
                known = _Count(key[-1], last, count, count)
            elif count > known.total:
                known.grow(count, last)
            counts[key] = known
        self._counts = counts

    def since(self, events: Iterable[SeenEvent], begin: float) -> int:
        """Return how many of these fell after a time."""
        keys = {key_of(event) for event in events}
        return sum(count.since(begin) for key, count in self._counts.items() if key in keys)
