# SPDX-License-Identifier: Apache-2.0
"""Temperatures of die and memory, the card's own limits, and its fans.

The limits are the card's, so a rule needs no table of models. Cards cooled by the chassis have
no fan rows.
"""

from __future__ import annotations

from cardwatch.families import ranges
from cardwatch.families.record import Family, Profile, Type

FAMILIES: tuple[Family, ...] = (
    Family(
        "gpu_temperature_celsius",
        Type.GAUGE,
        "Temperature of the GPU die at the moment of the sample; not the memory's, and not the "
        "hottest spot.",
        unit="celsius",
        accept=ranges.DIE_CELSIUS,
        sources={"nvml": "nvmlDeviceGetTemperatureV (sensor 0), else nvmlDeviceGetTemperature"},
    ),
    Family(
        "gpu_memory_temperature_celsius",
        Type.GAUGE,
        "Temperature of the card's memory at the moment of the sample. Absent on cards without "
        "the sensor.",
        unit="celsius",
        profile=Profile.STANDARD,
        accept=ranges.SENSOR_CELSIUS,
        sources={"nvml": "field 82 (NVML_FI_DEV_MEMORY_TEMP)"},
    ),
    Family(
        "gpu_temperature_threshold_celsius",
        Type.GAUGE,
        "Temperature at which the card acts: slowdown, shutdown, gpu_max and memory_max (highest "
        "for normal work). Absolute, set by the vendor; newer cards may give only the margin.",
        unit="celsius",
        labels=("threshold",),
        profile=Profile.STANDARD,
        accept=ranges.SENSOR_CELSIUS,
        sources={
            "nvml": "nvmlDeviceGetTemperatureThreshold "
            "(0 shutdown, 1 slowdown, 2 memory_max, 3 gpu_max)"
        },
    ),
    Family(
        "gpu_fan_speed_ratio",
        Type.GAUGE,
        "Speed the driver asks of each fan, as a share of its full speed; may exceed 1, and a "
        "blocked fan still shows it.",
        unit="ratio",
        labels=("fan",),
        profile=Profile.STANDARD,
        accept=ranges.FAN_RATIO,
        sources={
            "nvml": "nvmlDeviceGetNumFans with nvmlDeviceGetFanSpeed_v2, else nvmlDeviceGetFanSpeed"
        },
    ),
    Family(
        "gpu_temperature_margin_celsius",
        Type.GAUGE,
        "Degrees left until the nearest slowdown; 0 or less while the card slows itself. Some "
        "cards report it wrongly: judge it together with throttling.",
        unit="celsius",
        profile=Profile.FULL,
        accept=ranges.MARGIN_CELSIUS,
        sources={"nvml": "nvmlDeviceGetMarginTemperature"},
    ),
)
