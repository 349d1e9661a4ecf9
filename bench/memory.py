# SPDX-License-Identifier: Apache-2.0
"""Memory of all our processes together, and whether it grows from sample to sample.

A sample is one pass over all eight cards. To have 10,000 of them in a minute or
two, `cardwatch serve` runs with an interval below the least that it accepts;
the driver stand-in answers at once. The page is scraped every second, so that
the web side does its part.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import AbstractContextManager
from dataclasses import dataclass

from machine import HERE, Process, Stub, cardwatch, driver, fetch, ready

INTERVAL_S = 0.008
EARLY, LATE = 2_000, 10_000
_LOOKS = 5
_COUNT = "nvmlDeviceGetCount_v2"  # called once a pass


@dataclass(frozen=True)
class Memory:
    """Both processes together, after so many samples. Growth is that of memory of their own."""

    early_samples: int
    samples: int
    pss_mib: float
    growth_mib: float


def measure(limit_s: float, early: int = EARLY, late: int = LATE) -> Memory:
    """Sample until there are enough, or the time is up."""
    with driver(0) as stub, _fast(stub) as process:
        ready(process)
        end = time.monotonic() + limit_s
        early_samples, _, early_own = _mark(process, stub, early, end - limit_s / 2)
        samples, pss, own = _mark(process, stub, late, end)
    return Memory(early_samples, samples, pss, own - early_own)


def _mark(process: Process, stub: Stub, wanted: int, until: float) -> tuple[int, float, float]:
    """Return samples taken, PSS and own memory: the least of the last seconds, without litter."""
    last: deque[tuple[float, float]] = deque(maxlen=_LOOKS)
    while stub.calls()[_COUNT] < wanted and time.monotonic() < until:
        fetch(process.port, gzip=True)
        last.append((process.pss_mib(), process.own_mib()))
        time.sleep(1.0)
    return stub.calls()[_COUNT], min(pss for pss, _ in last), min(own for _, own in last)


def _fast(stub: Stub) -> AbstractContextManager[Process]:
    return cardwatch(stub, command=(str(HERE / "inside.py"), "fast", str(INTERVAL_S)))
