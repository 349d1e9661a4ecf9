# SPDX-License-Identifier: Apache-2.0
"""Answers the driver calls that are about one card or one MIG instance.

Owns one table of calls for cards and one for MIG instances. Each answer takes
the view and the call's further arguments, and raises ``DriverError`` as the
driver would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from cardwatch.nvml.codes import INVALID_ARGUMENT, NOT_SUPPORTED, DriverError
from cardwatch.sim.field_values import field_values, unsupported
from cardwatch.sim.models import ADA, MIB, Limits
from cardwatch.sim.view import ECC_TYPES, Instance, ProcessRow, View, location_name

_BAR1_USED = 2 * MIB
_MAX_INSTANCES = 7
_P0 = 0

T = TypeVar("T")


def _has(value: T | None) -> T:
    """Give back a value that the card has; None is one that it lacks."""
    if value is None:
        raise DriverError(NOT_SUPPORTED)
    return value


def _within(value: object, count: int) -> int:
    """Take an argument from 0 to below ``count``."""
    if isinstance(value, int) and 0 <= value < count:
        return value
    raise DriverError(INVALID_ARGUMENT)


# memory


def _memory(of: View | Instance) -> tuple[int, int, int, int]:
    total, reserved, used = of.memory
    return total, reserved, total - reserved - used, used


def _memory_v1(of: View | Instance) -> tuple[int, int, int]:
    total, reserved, used = of.memory
    return total, total - reserved - used, used + reserved


def _bar1(of: View | Instance) -> tuple[int, int, int]:
    view = of.view if isinstance(of, Instance) else of
    total = _has(view.model.bar1_mib) * MIB
    return total, total - _BAR1_USED, _BAR1_USED


# utilization: NOT_SUPPORTED on a card in MIG mode


def _measured(view: View) -> View:
    if view.facts.mig is not None:
        raise DriverError(NOT_SUPPORTED)
    return view


def _utilization(view: View) -> tuple[int, int]:
    physics = _measured(view).physics
    unified = view.model.memory_mib is None  # there the memory controller reads 0 for ever
    return physics.utilization, 0 if unified else physics.memory_utilization


def _video(view: View, share: float) -> int:
    return round(_measured(view).physics.utilization * view.model.video_load * share)


def _engine(view: View, *, available: bool) -> int:
    _has(available or None)
    return _video(view, 0.1)


# temperature and fans


def _temperature(view: View, sensor: int) -> int:
    _within(sensor, 2 if view.release >= (615, 0) else 1)
    return view.temperature


def _threshold(view: View, kind: int) -> int:
    rows = view.model.thresholds
    values = (rows.shutdown, rows.slowdown, rows.memory_max, rows.gpu_max)
    return _has(values[_within(kind, len(values))])


def _margin(view: View) -> int:
    _has(view.model.architecture >= ADA or None)
    return view.model.thresholds.slowdown - view.temperature


def _fan(view: View, fan: int = 0) -> int:
    _has(view.model.fans or None)
    _within(fan, view.model.fans)
    # Off below 50 degrees, as desktop cards do it; the fans of a card differ a little.
    speed = (view.physics.temperature_c - 50) * 3 + 30 - 2 * fan
    return 0 if view.temperature < 50 else min(100, round(speed))


# power


def _limits(view: View) -> Limits:
    return _has(view.model.limits)


def _power_limit(view: View) -> int:
    return _limits(view).default


# clocks


def _clock(view: View, kind: int) -> int:
    physics, clocks = view.physics, view.model.clocks
    _within(kind, 4)
    if kind == 2:
        return _has(physics.memory_clock)
    if kind == 3:
        return physics.sm_clock * clocks.video // clocks.sm
    return physics.sm_clock


def _max_clock(view: View, kind: int) -> int:
    clocks = view.model.clocks
    memory = None if clocks.idle_memory is None else clocks.memory
    return _has((clocks.sm, clocks.sm, memory, clocks.video)[_within(kind, 4)])


def _performance_state(view: View) -> int:
    return _P0 if view.physics.job.running else view.model.idle_state


# ECC and repair


def _ecc_mode(view: View) -> tuple[int, int]:
    _has(view.model.ecc or None)
    return int(view.spec.ecc), int(view.spec.ecc)


def _total_ecc(view: View, kind: int, counter: int) -> int:
    name = ECC_TYPES[_within(kind, 2)]
    return view.ecc_total(name, lifetime=bool(_within(counter, 2)))


def _ecc(view: View, kind: int, counter: int, location: int) -> int:
    name, where = ECC_TYPES[_within(kind, 2)], location_name(location)
    return view.ecc(name, where, lifetime=bool(_within(counter, 2)))


def _sram_status(view: View) -> tuple[int]:
    if not (view.spec.ecc and view.model.ampere_or_newer):
        raise DriverError(NOT_SUPPORTED)
    return (int(view.facts.sram_exceeded),)


def _remapped(view: View) -> tuple[int, int, int, int]:
    facts = view.row_remaps
    return 0, facts.remapped, int(facts.pending), int(facts.failure)


def _remap_histogram(view: View) -> tuple[int, int, int, int, int]:
    used = view.row_remaps.remapped
    # Each remapped row takes one bank down a step; a failure means one bank is spent.
    spent = int(view.facts.failure)
    return view.model.remap_banks - used, used - spent, 0, 0, spent


def _retired(view: View, cause: int) -> int:
    pages = view.retired_pages  # not supported on cards that remap rows
    return pages.remapped if _within(cause, 2) else 0


def _repair(view: View) -> tuple[int, int]:
    _has(view.model.remap_banks or None)
    return 0, 0


# NVLink, modes, MIG


def _link_state(view: View, link: int) -> int:
    return int(view.link_up(link))


def _mig_mode(view: View) -> tuple[int, int]:
    _has(view.model.mig or None)
    on = int(view.facts.mig is not None)
    return on, on


def _not_a_mig_instance(_view: View) -> int:
    raise DriverError(INVALID_ARGUMENT)


def _attributes(instance: Instance) -> tuple[int, int, int]:
    slices = instance.profile.slices
    return slices, slices, instance.memory_total // MIB


def _no_processes(_of: View | Instance) -> list[ProcessRow]:
    return []


Answer = Callable[..., Any]

CARD_CALLS: dict[str, Answer] = {
    "DeviceGetUUID": lambda view: view.card.identity.uuid,
    "DeviceGetName": lambda view: view.model.name,
    "DeviceGetSerial": lambda view: _has(view.card.identity.serial),
    "DeviceGetBoardPartNumber": lambda view: _has(view.model.board_part),
    "DeviceGetVbiosVersion": lambda view: view.model.vbios,
    "DeviceGetInforomImageVersion": lambda view: _has(view.model.inforom),
    "DeviceGetPciBusId": lambda view: view.card.identity.pci.nvml,
    "DeviceGetGpuUptime": lambda view: int(view.t - view.facts.loaded),
    "DeviceGetArchitecture": lambda view: view.model.architecture,
    "DeviceGetCudaComputeCapability": lambda view: view.model.compute,
    "DeviceGetMemoryInfo_v2": _memory,
    "DeviceGetMemoryInfo": _memory_v1,
    "DeviceGetBAR1MemoryInfo": _bar1,
    "DeviceGetUtilizationRates": _utilization,
    "DeviceGetEncoderUtilization": lambda view: _video(view, 0.6),
    "DeviceGetDecoderUtilization": lambda view: _video(view, 1.0),
    "DeviceGetJpgUtilization": lambda view: _engine(view, available=view.model.jpeg),
    "DeviceGetOfaUtilization": lambda view: _engine(view, available=view.model.ofa),
    "DeviceGetTemperatureV": _temperature,
    "DeviceGetTemperature": _temperature,
    "DeviceGetTemperatureThreshold": _threshold,
    "DeviceGetMarginTemperature": _margin,
    "DeviceGetNumFans": lambda view: view.model.fans,
    "DeviceGetFanSpeed_v2": _fan,
    "DeviceGetFanSpeed": _fan,
    "DeviceGetPowerUsage": lambda view: view.power_mw,
    "DeviceGetEnforcedPowerLimit": _power_limit,
    "DeviceGetPowerManagementLimit": _power_limit,
    "DeviceGetPowerManagementDefaultLimit": _power_limit,
    "DeviceGetPowerManagementLimitConstraints": lambda view: (
        _limits(view).minimum,
        _limits(view).maximum,
    ),
    "DeviceGetTotalEnergyConsumption": lambda view: view.energy_mj,
    "DeviceGetClockInfo": _clock,
    "DeviceGetMaxClockInfo": _max_clock,
    "DeviceGetPerformanceState": _performance_state,
    "DeviceGetCurrentClocksEventReasons": lambda view: view.reasons,
    "DeviceGetCurrentClocksThrottleReasons": lambda view: view.reasons,
    "DeviceGetSupportedClocksEventReasons": lambda view: view.model.reasons,
    "DeviceGetSupportedClocksThrottleReasons": lambda view: view.model.reasons,
    "DeviceGetEccMode": _ecc_mode,
    "DeviceGetTotalEccErrors": _total_ecc,
    "DeviceGetMemoryErrorCounter": _ecc,
    "DeviceGetSramEccErrorStatus": _sram_status,
    "DeviceGetRemappedRows": _remapped,
    "DeviceGetRowRemapperHistogram": _remap_histogram,
    "DeviceGetRetiredPages": _retired,
    "DeviceGetRetiredPagesPendingStatus": lambda view: int(view.retired_pages.pending),
    "DeviceGetRepairStatus": _repair,
    "DeviceGetCurrPcieLinkGeneration": lambda view: view.pcie_generation,
    "DeviceGetCurrPcieLinkWidth": lambda view: view.facts.pcie[1],
    "DeviceGetMaxPcieLinkGeneration": lambda view: view.model.pcie[0],
    "DeviceGetMaxPcieLinkWidth": lambda view: view.model.pcie[1],
    "DeviceGetPcieReplayCounter": lambda view: view.replays,
    "DeviceGetNvLinkState": _link_state,
    "DeviceGetGpuFabricInfo": lambda view: view.fabric(),
    "DeviceGetPersistenceMode": lambda _view: 1,
    "DeviceGetComputeMode": lambda _view: 0,
    "DeviceGetMigMode": _mig_mode,
    "DeviceGetMaxMigDeviceCount": lambda view: _MAX_INSTANCES * int(view.facts.mig is not None),
    "DeviceGetGpuInstanceId": _not_a_mig_instance,
    "DeviceGetComputeInstanceId": _not_a_mig_instance,
    "DeviceGetAttributes": _not_a_mig_instance,
    "DeviceGetComputeRunningProcesses": lambda view: view.processes(),
    "DeviceGetGraphicsRunningProcesses": lambda view: view.processes(graphics=True),
    "DeviceGetMPSComputeRunningProcesses": _no_processes,
    "DeviceGetFieldValues": field_values,
}
"""What a card answers. ``DeviceGetMigDeviceHandleByIndex`` is the driver's own."""

INSTANCE_CALLS: dict[str, Answer] = {
    "DeviceGetUUID": lambda instance: instance.uuid,
    "DeviceGetName": lambda instance: f"{instance.view.model.name} MIG {instance.profile.name}",
    "DeviceGetMemoryInfo_v2": _memory,
    "DeviceGetMemoryInfo": _memory_v1,
    "DeviceGetBAR1MemoryInfo": _bar1,
    "DeviceGetGpuInstanceId": lambda instance: instance.number,
    "DeviceGetComputeInstanceId": lambda _instance: 0,
    "DeviceGetAttributes": _attributes,
    "DeviceGetComputeRunningProcesses": lambda instance: instance.processes(),
    "DeviceGetGraphicsRunningProcesses": _no_processes,
    "DeviceGetMPSComputeRunningProcesses": _no_processes,
    "DeviceGetFieldValues": lambda _instance, requests: unsupported(requests),
}
"""What a MIG instance answers; anything else is not supported there."""
