# SPDX-License-Identifier: Apache-2.0
"""The driver calls we make, with the plain shape of each answer.

Names are those of NVML without the ``nvml`` prefix and, where only one version
is used, without the version suffix. A call's first argument is a handle unless
it starts with ``System``, ``EventSet``, ``Init`` or ``Shutdown``.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Protocol

Handle = Hashable
"""Opaque to everybody but the driver that gave it."""

CALLS: dict[str, str] = {
    # life cycle
    "Init": "() -> None",
    "Shutdown": "() -> None",
    # system
    "SystemGetDriverVersion": "() -> str",
    "SystemGetNVMLVersion": "() -> str",
    "SystemGetCudaDriverVersion": "() -> int, 13050 for 13.5",
    "SystemGetDriverBranch": "() -> str, R560 and newer",
    "DeviceGetCount": "() -> int",
    "DeviceGetHandleByIndex": "(index) -> handle",
    # identity
    "DeviceGetUUID": "-> str",
    "DeviceGetName": "-> str",
    "DeviceGetSerial": "-> str",
    "DeviceGetBoardPartNumber": "-> str",
    "DeviceGetVbiosVersion": "-> str",
    "DeviceGetInforomImageVersion": "-> str",
    "DeviceGetPciBusId": "-> str, 00000000:3B:00.0",
    "DeviceGetArchitecture": "-> int, 9 is Hopper",
    "DeviceGetCudaComputeCapability": "-> (major, minor)",
    "DeviceGetGpuUptime": "-> int, seconds since the driver initialised the card; R615 and newer",
    # memory, bytes
    "DeviceGetMemoryInfo_v2": "-> (total, reserved, free, used), used excludes reserved",
    "DeviceGetMemoryInfo": "-> (total, free, used), used includes reserved",
    "DeviceGetBAR1MemoryInfo": "-> (total, free, used)",
    # utilization, percent
    "DeviceGetUtilizationRates": "-> (gpu, memory controller)",
    "DeviceGetEncoderUtilization": "-> int",
    "DeviceGetDecoderUtilization": "-> int",
    "DeviceGetJpgUtilization": "-> int",
    "DeviceGetOfaUtilization": "-> int",
    # temperature, degrees Celsius
    "DeviceGetTemperatureV": "(sensor) -> int, R570 and newer",
    "DeviceGetTemperature": "(sensor) -> int",
    "DeviceGetTemperatureThreshold": "(type) -> int; 0 shutdown, 1 slowdown, 2 memory, 3 GPU max",
    "DeviceGetMarginTemperature": "-> int",
    "DeviceGetNumFans": "-> int",
    "DeviceGetFanSpeed_v2": "(fan) -> int, percent of the maximum",
    "DeviceGetFanSpeed": "-> int, percent of the maximum",
    # power, milliwatts and millijoules
    "DeviceGetPowerUsage": "-> int",
    "DeviceGetEnforcedPowerLimit": "-> int",
    "DeviceGetPowerManagementLimit": "-> int",
    "DeviceGetPowerManagementDefaultLimit": "-> int",
    "DeviceGetPowerManagementLimitConstraints": "-> (min, max)",
    "DeviceGetTotalEnergyConsumption": "-> int",
    # clocks, megahertz
    "DeviceGetClockInfo": "(type) -> int; 0 graphics, 1 SM, 2 memory, 3 video",
    "DeviceGetMaxClockInfo": "(type) -> int",
    "DeviceGetPerformanceState": "-> int, 0..15, 32 unknown",
    "DeviceGetCurrentClocksEventReasons": "-> bit mask",
    "DeviceGetCurrentClocksThrottleReasons": "-> bit mask, before R535",
    "DeviceGetSupportedClocksEventReasons": "-> bit mask",
    "DeviceGetSupportedClocksThrottleReasons": "-> bit mask, before R535",
    # ECC
    "DeviceGetEccMode": "-> (current, pending)",
    "DeviceGetTotalEccErrors": "(type, counter) -> int; type 0 corrected, 1 uncorrected; "
    "counter 0 since driver load, 1 lifetime",
    "DeviceGetMemoryErrorCounter": "(type, counter, location) -> int",
    "DeviceGetSramEccErrorStatus": "-> (threshold exceeded,)",
    # repair
    "DeviceGetRemappedRows": "-> (correctable, uncorrectable, pending, failure)",
    "DeviceGetRowRemapperHistogram": "-> (max, high, partial, low, none)",
    "DeviceGetRetiredPages": "(cause) -> int, number of pages; 0 several SBE, 1 DBE",
    "DeviceGetRetiredPagesPendingStatus": "-> int",
    "DeviceGetRepairStatus": "-> (channel pending, tpc pending)",
    # PCIe
    "DeviceGetCurrPcieLinkGeneration": "-> int",
    "DeviceGetCurrPcieLinkWidth": "-> int",
    "DeviceGetMaxPcieLinkGeneration": "-> int, of slot and card",
    "DeviceGetMaxPcieLinkWidth": "-> int, of slot and card",
    "DeviceGetPcieReplayCounter": "-> int",
    # NVLink and fabric
    "DeviceGetNvLinkState": "(link) -> int, 1 active",
    "DeviceGetGpuFabricInfo": "-> (version, state, status, health mask or None, summary or None)",
    # modes
    "DeviceGetPersistenceMode": "-> int",
    "DeviceGetComputeMode": "-> int",
    "DeviceGetMigMode": "-> (current, pending)",
    # MIG
    "DeviceGetMaxMigDeviceCount": "-> int",
    "DeviceGetMigDeviceHandleByIndex": "(index) -> handle",
    "DeviceGetGpuInstanceId": "-> int, of a MIG handle",
    "DeviceGetComputeInstanceId": "-> int, of a MIG handle",
    "DeviceGetAttributes": "-> (GPU slices, compute slices, memory MB), of a MIG handle",
    # processes: rows of (pid, bytes or None, GPU instance or None, compute instance or None)
    "DeviceGetComputeRunningProcesses": "-> rows",
    "DeviceGetGraphicsRunningProcesses": "-> rows",
    "DeviceGetMPSComputeRunningProcesses": "-> rows",
    # events: a set is an opaque handle of its own
    "EventSetCreate": "() -> event set",
    "DeviceGetSupportedEventTypes": "-> bit mask of event types",
    "DeviceRegisterEvents": "(bit mask, event set) -> key by which events name this card",
    "EventSetWait": "(event set, milliseconds) -> (key, type, data, GPU instance or None, "
    "compute instance or None); code 10 when there was none",
    "EventSetFree": "(event set) -> None",
    # fields: one (code, value type, latency us, raw 64 bits) per request
    "DeviceGetFieldValues": "(((field id, scope), ...)) -> answers in the same order",
}


class Driver(Protocol):
    """Something that answers driver calls: a library, a simulation or a capture."""

    def call(self, name: str, *args: Any) -> Any:
        """Make one call of ``CALLS`` and return its answer.

        May block for as long as the driver does. Raises ``DriverError`` with the
        return code when the answer is not success.
        """
        ...
