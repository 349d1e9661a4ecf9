# SPDX-License-Identifier: Apache-2.0
"""Why and for how long a card held its clocks down.

Judge by the share of time, not by single moments: a software power cap is normal at full load,
and a hardware slowdown shows for an instant when the performance state changes. A driver's
counter starts again with the driver, a summed one with the exporter.
"""

from __future__ import annotations

from cardwatch.families import ranges
from cardwatch.families.record import Family, Profile, Type

FAMILIES: tuple[Family, ...] = (
    Family(
        "gpu_throttle_seconds_total",
        Type.COUNTER,
        "Time clocks were held down, by reason. sw_power_cap, thermal, hw_power_brake_slowdown, "
        "sync_boost, board_limit, reliability: driver's counter where it has one. Else samples "
        "added up; a gap over 3 intervals adds 0.",
        unit="seconds",
        labels=("reason",),
        profile=Profile.STANDARD,
        split={
            "sw_power_cap": Profile.CORE,
            "sw_thermal_slowdown": Profile.CORE,
            "hw_thermal_slowdown": Profile.CORE,
            "hw_power_brake_slowdown": Profile.CORE,
            "hw_slowdown": Profile.CORE,
        },
        accept=ranges.SECONDS,
        sources={
            "nvml": "field 74 sw_power_cap, 76 sync_boost, 77 board_limit, 79 reliability; "
            "269 sw_thermal_slowdown (else 75), 270 hw_thermal_slowdown, "
            "271 hw_power_brake_slowdown, these three from driver 580.82",
            "exporter": "all other reasons, and those whose field does not answer: "
            "sum of sample intervals in which the bit is set",
        },
    ),
    Family(
        "gpu_throttle_reason_active",
        Type.GAUGE,
        "1 while the driver names this reason at the moment of the sample, 0 for other reasons "
        "the card knows; bit_N is one we do not know. Misses bursts between samples.",
        labels=("reason",),
        profile=Profile.STANDARD,
        accept=ranges.FLAG,
        sources={
            "nvml": "nvmlDeviceGetCurrentClocksEventReasons, "
            "else nvmlDeviceGetCurrentClocksThrottleReasons; which rows: "
            "nvmlDeviceGetSupportedClocksEventReasons, "
            "else nvmlDeviceGetSupportedClocksThrottleReasons"
        },
    ),
)
