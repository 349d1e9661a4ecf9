# SPDX-License-Identifier: Apache-2.0
"""One event that two sources tell is one event.

Within five seconds, what counts for a card and code is the larger of the two
sources' numbers, never their sum; what only one of them tells is not lost.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

WINDOW_S = 5.0
_MAX_WINDOWS = 4096

KERNEL, DRIVER = "kmsg", "nvml"


@dataclass
class _Window:
    began: float
    told: dict[str, int]
    counted: int = 0


class Merge:
    """Windows by card and code. Times are monotonic seconds of arrival."""

    def __init__(self) -> None:
        self._windows: OrderedDict[tuple[str, int], _Window] = OrderedDict()

    def count(self, source: str, card: str, code: int, number: int, now: float) -> int:
        """Take in ``number`` events of one source; return how many of them are new."""
        key = (card, code)
        window = self._windows.get(key)
        if window is None or now - window.began > WINDOW_S:
            window = _Window(now, {KERNEL: 0, DRIVER: 0})
            self._windows[key] = window
            self._windows.move_to_end(key)
            if len(self._windows) > _MAX_WINDOWS:
                self._windows.popitem(last=False)
        window.told[source] += number
        new = max(window.told.values()) - window.counted
        window.counted += new
        return new
