# SPDX-License-Identifier: Apache-2.0
"""From driver answers to readings: one module per topic, one function per group of families.

``READERS`` is the order of a pass: cheap getters first, process lists and
per-link work last, so that a card which hangs late has shown the most.
"""

from __future__ import annotations

from collections.abc import Callable

from cardwatch.readings import (
    clocks,
    ecc,
    fabric,
    memory,
    mig,
    modes,
    nvlink,
    pcie,
    power,
    processes,
    repair,
    temperature,
    throttling,
    utilization,
)
from cardwatch.readings.card import CardPass

READERS: tuple[Callable[[CardPass], None], ...] = (
    utilization.read,
    clocks.read,
    power.read,
    temperature.read,
    memory.read,
    throttling.read,
    pcie.read,
    ecc.read,
    repair.read,
    modes.read,
    fabric.read,
    nvlink.read,
    processes.read,
    mig.read,
)
