# SPDX-License-Identifier: Apache-2.0
"""Clock rates at the moment of the sample, their maxima, and the performance state.

A low clock alone says little: hold it against utilization and the throttling reasons.
"""

from __future__ import annotations

from cardwatch.families import ranges
from cardwatch.families.record import Family, Profile, Type

_SPLIT = {"sm": Profile.CORE, "memory": Profile.STANDARD}

FAMILIES: tuple[Family, ...] = (
    Family(
        "gpu_clock_hertz",
        Type.GAUGE,
        "Clock rate at the moment of the sample (sm, memory, graphics, video). Low on an idle "
        "card, which is no fault.",
        unit="hertz",
        labels=("clock",),
        profile=Profile.FULL,
        split=_SPLIT,
        accept=ranges.HERTZ,
        sources={"nvml": "nvmlDeviceGetClockInfo (0 graphics, 1 sm, 2 memory, 3 video)"},
    ),
    Family(
        "gpu_clock_max_hertz",
        Type.GAUGE,
        "Highest clock rate the card can be set to; under load and within its power limit it may "
        "stay below.",
        unit="hertz",
        labels=("clock",),
        profile=Profile.FULL,
        split=_SPLIT,
        accept=ranges.HERTZ,
        sources={"nvml": "nvmlDeviceGetMaxClockInfo (0 graphics, 1 sm, 2 memory, 3 video)"},
    ),
    Family(
        "gpu_performance_state",
        Type.GAUGE,
        "Performance state at the moment of the sample: 0 is the fastest, 15 the slowest. Many "
        "data-centre cards stay at 0 even when idle.",
        profile=Profile.STANDARD,
        accept=ranges.PERFORMANCE_STATE,
        sources={"nvml": "nvmlDeviceGetPerformanceState"},
    ),
)
