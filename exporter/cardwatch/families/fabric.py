# SPDX-License-Identifier: Apache-2.0
"""Whether the card has joined the fabric of NVSwitches that its node belongs to.

Hopper and newer; absent where there is no fabric. A card that has not joined runs no CUDA work.
"""

from __future__ import annotations

from cardwatch.families import ranges
from cardwatch.families.record import Family, Profile, Type

_INFO = "nvmlDeviceGetGpuFabricInfoV (v3, v2), else nvmlDeviceGetGpuFabricInfo"

FAMILIES: tuple[Family, ...] = (
    Family(
        "gpu_fabric_state",
        Type.GAUGE,
        "How far the card is with joining the fabric: 1 not started, 2 in progress, 3 completed. "
        "Completed does not mean that it worked: see gpu_fabric_healthy.",
        accept=ranges.FABRIC_STATE,
        sources={"nvml": f"{_INFO} (state)"},
    ),
    Family(
        "gpu_fabric_healthy",
        Type.GAUGE,
        "1 when the card joined without error and no health bit of the fabric speaks against it, "
        "else 0. Absent until joining is completed.",
        profile=Profile.STANDARD,
        accept=ranges.FLAG,
        sources={"nvml": f"{_INFO} (status, healthSummary, healthMask)"},
    ),
)
