# SPDX-License-Identifier: Apache-2.0
"""What a card draws, what it may draw, and the energy it has taken so far.

For averages over a time of your choice use the rate of the energy counter: the gauges are single
moments or the driver's own short averages.
"""

from __future__ import annotations

from cardwatch.families import ranges
from cardwatch.families.record import Family, Profile, Type

FAMILIES: tuple[Family, ...] = (
    Family(
        "gpu_power_watts",
        Type.GAUGE,
        "Power draw, what nvidia-smi calls power.draw: a 1 s average on Ampere (except GA100) and "
        "newer, instantaneous on older cards.",
        unit="watts",
        accept=ranges.WATTS,
        sources={"nvml": "nvmlDeviceGetPowerUsage"},
    ),
    Family(
        "gpu_power_limit_watts",
        Type.GAUGE,
        "Power limit in force now, whoever set it: the lowest of the requested limit and caps "
        "from outside the driver.",
        unit="watts",
        accept=ranges.WATTS,
        sources={"nvml": "nvmlDeviceGetEnforcedPowerLimit"},
    ),
    Family(
        "gpu_power_instant_watts",
        Type.GAUGE,
        "Power draw at the moment of the sample, not averaged. Short peaks between samples are "
        "not seen.",
        unit="watts",
        profile=Profile.STANDARD,
        accept=ranges.WATTS,
        sources={"nvml": "field 186 (NVML_FI_DEV_POWER_INSTANT), scope 0"},
    ),
    Family(
        "gpu_power_limit_default_watts",
        Type.GAUGE,
        "Power limit the card starts with. gpu_power_limit_watts below it means that somebody or "
        "something capped the card.",
        unit="watts",
        profile=Profile.STANDARD,
        accept=ranges.WATTS,
        sources={"nvml": "nvmlDeviceGetPowerManagementDefaultLimit"},
    ),
    Family(
        "gpu_energy_joules_total",
        Type.COUNTER,
        "Energy taken since the driver was loaded, by the driver's counter; without persistence "
        "mode it may restart when the last client leaves. On Grace modules it may cover the CPU.",
        unit="joules",
        profile=Profile.STANDARD,
        accept=ranges.JOULES,
        sources={"nvml": "nvmlDeviceGetTotalEnergyConsumption"},
    ),
    Family(
        "gpu_power_limit_requested_watts",
        Type.GAUGE,
        "Power limit that was asked for through the driver; the one in force may be lower.",
        unit="watts",
        profile=Profile.FULL,
        accept=ranges.WATTS,
        sources={"nvml": "nvmlDeviceGetPowerManagementLimit"},
    ),
    Family(
        "gpu_power_limit_min_watts",
        Type.GAUGE,
        "Lowest power limit that the card lets anyone set.",
        unit="watts",
        profile=Profile.FULL,
        accept=ranges.WATTS,
        sources={"nvml": "nvmlDeviceGetPowerManagementLimitConstraints"},
    ),
    Family(
        "gpu_power_limit_max_watts",
        Type.GAUGE,
        "Highest power limit that the card lets anyone set.",
        unit="watts",
        profile=Profile.FULL,
        accept=ranges.WATTS,
        sources={"nvml": "nvmlDeviceGetPowerManagementLimitConstraints"},
    ),
    Family(
        "gpu_module_power_watts",
        Type.GAUGE,
        "Power draw of the whole module, GPU and Grace CPU together, at the moment of the sample. "
        "Do not add it to gpu_power_watts.",
        unit="watts",
        profile=Profile.FULL,
        accept=ranges.WATTS,
        sources={"nvml": "field 186 (NVML_FI_DEV_POWER_INSTANT), scope 1"},
    ),
)
