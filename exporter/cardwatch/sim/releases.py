# SPDX-License-Identifier: Apache-2.0
"""What driver releases differ in: symbols, field ids, versions they go with.

From the binding and header releases compared in facts/nvml.md ("first seen").
"""

from __future__ import annotations

import bisect

Release = tuple[int, int]

SYMBOLS: dict[str, Release] = {
    # call -> first driver (branch, minor) whose library has it
    "SystemGetDriverBranch": (560, 0),
    "DeviceGetMemoryInfo_v2": (510, 0),
    "DeviceGetJpgUtilization": (535, 0),
    "DeviceGetOfaUtilization": (535, 0),
    "DeviceGetTemperatureV": (570, 0),
    "DeviceGetMarginTemperature": (570, 0),
    "DeviceGetGpuUptime": (615, 0),
    "DeviceGetCurrentClocksEventReasons": (535, 0),
    "DeviceGetSupportedClocksEventReasons": (535, 0),
    "DeviceGetSramEccErrorStatus": (535, 161),
    "DeviceGetRepairStatus": (580, 0),
    "DeviceGetGpuFabricInfo": (525, 0),
}

_LAST_FIELDS: tuple[tuple[Release, int], ...] = (
    # first driver -> highest field id that it knows; anything above is an invalid argument
    ((0, 0), 160),
    ((515, 0), 184),
    ((525, 150), 196),
    ((555, 0), 204),
    ((560, 0), 229),
    ((570, 0), 268),
    ((575, 0), 274),
    ((590, 0), 288),
    ((595, 0), 300),
    ((610, 0), 302),
    ((615, 0), 308),
)

_CUDA: tuple[tuple[int, int], ...] = (
    *((410, 10_000), (450, 11_000), (470, 11_040), (510, 11_060), (515, 11_070)),
    *((520, 11_080), (525, 12_000), (530, 12_010), (535, 12_020), (545, 12_030)),
    *((550, 12_040), (555, 12_050), (560, 12_060), (565, 12_070), (570, 12_080)),
    *((575, 12_090), (580, 13_000), (590, 13_010), (595, 13_020), (610, 13_040)),
    (615, 13_050),
)


def missing_symbols(release: Release) -> frozenset[str]:
    """Name the calls that the library of this driver does not have."""
    return frozenset(call for call, since in SYMBOLS.items() if release < since)


def last_field(release: Release) -> int:
    """Give the highest field id that this driver knows."""
    releases = [since for since, _ in _LAST_FIELDS]
    return _LAST_FIELDS[bisect.bisect_right(releases, release) - 1][1]


def cuda_version(release: Release) -> int:
    """Give the CUDA version that this driver supports, 13050 for 13.5."""
    index = bisect.bisect_right(_CUDA, (release[0], 1 << 30)) - 1
    return _CUDA[max(index, 0)][1]


def nvml_version(driver: str) -> str:
    """Give the version of the library that comes with a driver."""
    return f"{cuda_version((int(driver.split('.')[0]), 0)) // 1000}.{driver}"


def event_counters_moved(release: Release) -> bool:
    """Say whether the driver has 251-253 where later ones have 269-271."""
    return (575, 0) <= release < (580, 82)
