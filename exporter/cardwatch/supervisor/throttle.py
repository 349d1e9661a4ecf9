# SPDX-License-Identifier: Apache-2.0
"""Throttle time of the reasons for which the driver keeps no counter.

While a reason's bit is set, the time since the last sample is added. A gap of
more than three intervals adds nothing: nobody knows what happened in it.
"""

from __future__ import annotations

from collections.abc import Mapping

MAX_GAP_INTERVALS = 3


class ThrottleClock:
    """Seconds per reason of one card, since this process first saw the card."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last: float | None = None

    def add(self, reasons: Mapping[str, bool] | None, monotonic: float, interval: float) -> None:
        """Take in one sample. ``None``: the driver did not tell, the chain is broken."""
        last, self._last = self._last, None if reasons is None else monotonic
        if reasons is None:
            return
        gap = 0.0 if last is None else monotonic - last
        counted = gap if 0 < gap <= MAX_GAP_INTERVALS * interval else 0.0
        for reason, active in reasons.items():
            self.seconds[reason] = self.seconds.get(reason, 0.0) + (counted if active else 0.0)
