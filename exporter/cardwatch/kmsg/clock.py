# SPDX-License-Identifier: Apache-2.0
"""Wall clock time of kernel records, which carry microseconds since boot."""

from __future__ import annotations

import time
from collections.abc import Callable

_LAG_S = 1.0
"""How far the kernel's log clock may trail CLOCK_BOOTTIME before we correct for it."""


def boottime() -> float:
    """Return the seconds since boot, suspended time included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class RecordClock:
    """Turns record times into wall clock times.

    The offset is taken anew for every slice of records, so that a step of the
    wall clock moves the records after it and no others. The log's clock is not
    disciplined by NTP and stands still in suspend: on a node that has been up
    for months it can be minutes behind. A record that arrives while we wait at
    the end of the log was made just now, which tells by how much.
    """

    def __init__(
        self, wall: Callable[[], float] = time.time, boot: Callable[[], float] = boottime
    ) -> None:
        self._wall, self._boot = wall, boot
        self._lag = 0.0
        self.started_usec = int(boot() * 1e6)
        self.adjust()

    def adjust(self, live_usec: int | None = None) -> None:
        """Take the offset anew; ``live_usec`` is the time of a record that just arrived."""
        boot = self._boot()
        self._now = self._wall()
        if live_usec is not None:
            lag = boot - live_usec / 1e6
            self._lag = lag if lag > _LAG_S else 0.0
        self._offset = self._now - boot + self._lag

    def wall(self, usec: int) -> float:
        """Return when a record was made; never later than now."""
        return min(self._offset + usec / 1e6, self._now)
