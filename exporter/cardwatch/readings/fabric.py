# SPDX-License-Identifier: Apache-2.0
"""NVLink fabric: registration state and health.

The health mask packs fields in which 1 means "bad" beside one in which 1 means
"good" (nvmlGpuFabricInfoV_t); widths are our own constants, because the
binding's were wrong for years.
"""

from __future__ import annotations

from cardwatch.nvml.codes import NOT_SUPPORTED, DriverError
from cardwatch.readings.card import CardPass

COMPLETED = 3

_TRUE = 1  # of a two-bit field: 0 not told, 1 true, 2 false
_BAD_WHEN_TRUE = {"degraded_bandwidth": 0, "route_recovery": 2, "route_unhealthy": 4,
                  "access_timeout_recovery": 6}  # fmt: skip
_CONFIGURATION_SHIFT, _CONFIGURATION_MASK = 8, 0xF
_CONFIGURATION_RIGHT = (0, 1)  # not told, correct


def read(card: CardPass) -> None:
    """Read the fabric state and, once registration is completed, its health."""
    with card.attempt("gpu_fabric_state", "gpu_fabric_healthy"):
        _version, state, status, mask, summary = card.ask("DeviceGetGpuFabricInfo")
        if state == 0:
            raise DriverError(NOT_SUPPORTED)
        card.put("gpu_fabric_state", state)
        if state == COMPLETED:
            # The status means something only when registration has completed.
            healthy = status == 0 and _healthy(mask, summary)
            card.put("gpu_fabric_healthy", int(healthy))


def _healthy(mask: int | None, summary: int | None) -> bool:
    if summary not in (None, 0, 1):  # 0 not told, 1 healthy, 2 unhealthy, 3 limited capacity
        return False
    if mask is None:
        return True
    if any(mask >> shift & 0x3 == _TRUE for shift in _BAD_WHEN_TRUE.values()):
        return False
    return mask >> _CONFIGURATION_SHIFT & _CONFIGURATION_MASK in _CONFIGURATION_RIGHT
