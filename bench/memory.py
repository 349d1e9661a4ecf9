# SPDX-License-Identifier: Apache-2.0
"""Memory of all our processes together, and whether it grows from sample to sample.

A sample is one pass over all eight cards. To have 10,000 of them in a minute or
two, `cardwatch serve` runs with an interval below the least that it accepts;
the driver stand-in answers at once. The page is scraped every second, so that
the web side does its part.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass

from machine import HERE, Process, Stub, cardwatch, driver, fetch, ready

INTERVAL_S = 0.008
EARLY, LATE = 2_000, 10_000
_COUNT = "nvmlDeviceGetCount_v2"  # called once a pass


@dataclass(frozen=True)
class Memory:
    """Sum of PSS of parent and child after so many samples."""

    early_samples: int
    early_mib: float
    samples: int
    mib: float

    @property
    def growth_mib(self) -> float:
        """How much it grew between the two."""
        return self.mib - self.early_mib


def measure(limit_s: float, early: int = EARLY, late: int = LATE) -> Memory:
    """Sample until there are enough, or the time is up."""
    with driver(0) as stub, _fast(stub) as process:
        ready(process)
        end = time.monotonic() + limit_s
        marks = []
        for wanted, until in ((early, end - limit_s / 2), (late, end)):
            while stub.calls()[_COUNT] < wanted and time.monotonic() < until:
                fetch(process.port, gzip=True)
                time.sleep(1.0)
            marks += [stub.calls()[_COUNT], process.pss_mib()]
    return Memory(*marks)


def _fast(stub: Stub) -> AbstractContextManager[Process]:
    return cardwatch(stub, command=(str(HERE / "inside.py"), "fast", str(INTERVAL_S)))
