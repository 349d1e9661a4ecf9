# SPDX-License-Identifier: Apache-2.0
"""Answers ``DeviceGetFieldValues``: one code, type, latency and value per field.

Owns the table of field ids that a simulated card knows, and the lies that real
drivers tell about them (facts/nvml.md, sections 0 and 2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from cardwatch.nvml.codes import INVALID_ARGUMENT, NOT_SUPPORTED, DriverError
from cardwatch.nvml.fields import (
    ALL_LINKS,
    TYPE_DOUBLE,
    TYPE_INT,
    TYPE_UINT,
    TYPE_ULONGLONG,
)
from cardwatch.sim.faults import Fault
from cardwatch.sim.models import ADA
from cardwatch.sim.plan import CardFacts
from cardwatch.sim.releases import Release, event_counters_moved, last_field
from cardwatch.sim.view import ECC_TYPES, View

Answer = tuple[int, int, int, int]
Getter = Callable[[View, int], int]

_JUNK = 0xDEADBEEF0BADF00D
"""What stands in the value of an entry that failed: nobody may read it."""

_U64 = (1 << 64) - 1


class Known(NamedTuple):
    """How a card answers one field id, and since which driver."""

    get: Getter
    type: int = TYPE_ULONGLONG
    since: Release = (0, 0)


def field_values(view: View, requests: Iterable[tuple[int, int]]) -> list[Answer]:
    """Answer the requests in their order."""
    changed = {fault.values["field"]: fault for fault in view.facts.fields}
    return [_answer(view, number, scope, changed.get(number)) for number, scope in requests]


def _answer(view: View, number: int, scope: int, fault: Fault | None) -> Answer:
    latency = 2 + number % 9
    known = _known(view.release, number)
    try:
        value = known.get(view, scope)
    except DriverError as error:
        code, value = error.code, _JUNK
    else:
        code = 0
    kind = known.type
    if number in _ECC_FIELDS and not view.spec.ecc and view.model.ecc_off_garbage:
        code, kind, latency, value = 0, TYPE_DOUBLE, 0, _JUNK
    if fault is not None and fault.kind == "error":
        code, value = fault.values["code"], _JUNK
    elif fault is not None:
        code, value = 0, fault.values["value"]
    return code, kind, latency, int(value) & _U64


def unsupported(requests: Iterable[tuple[int, int]]) -> list[Answer]:
    """Answer for a MIG instance, which has no fields of its own."""
    return [(NOT_SUPPORTED, TYPE_DOUBLE, 0, _JUNK) for _ in requests]


def _known(release: Release, number: int) -> Known:
    if number > last_field(release):
        return _INVALID
    if event_counters_moved(release) and number in _MOVED:
        return _MOVED[number]
    known = _FIELDS.get(number, _ABSENT)
    if release < known.since:
        return _ABSENT
    if number == 82 and release[0] == 545:
        return known._replace(type=TYPE_DOUBLE)  # R545 calls the integer a double
    return known


def _absent(_view: View, _scope: int) -> int:
    raise DriverError(NOT_SUPPORTED)


def _invalid(_view: View, _scope: int) -> int:
    raise DriverError(INVALID_ARGUMENT)


def _supported(condition: object) -> None:
    if not condition:
        raise DriverError(NOT_SUPPORTED)


_ABSENT, _INVALID = Known(_absent), Known(_invalid)


def _ecc_total(kind: str, *, lifetime: bool) -> Known:
    # The driver leaves the type of ECC fields unset.
    return Known(lambda view, _: view.ecc_total(kind, lifetime=lifetime), TYPE_DOUBLE)


def _ecc_at(kind: str, location: str, *, lifetime: bool) -> Known:
    return Known(lambda view, _: view.ecc(kind, location, lifetime=lifetime), TYPE_DOUBLE)


def _ecc_fields() -> dict[int, Known]:
    fields = {
        3 + 2 * lifetime + position: _ecc_total(kind, lifetime=bool(lifetime))
        for lifetime in (0, 1)
        for position, kind in enumerate(ECC_TYPES)
    }
    for lifetime in (0, 1):
        first = 18 if lifetime else 7
        for position, location in enumerate(("l1", "l2", "dram", "register_file", "texture")):
            for offset, kind in enumerate(ECC_TYPES):
                number = first + 2 * position + offset
                fields[number] = _ecc_at(kind, location, lifetime=bool(lifetime))
        fields[first + 10] = _ecc_at("uncorrected", "cbu", lifetime=bool(lifetime))
    return fields


def _ecc_mode(view: View, _scope: int) -> int:
    _supported(view.model.ecc)
    return int(view.spec.ecc)


def _reason(name: str, since: Release = (0, 0)) -> Known:
    return Known(lambda view, _: view.reason_ns(name), TYPE_ULONGLONG, since)


def _smoothing(value: int) -> Known:
    """Answer a power smoothing setting, which early 575 and 580 drivers have in 269-271."""

    def get(view: View, _scope: int) -> int:
        _supported(view.model.smoothing)
        return value

    return Known(get, TYPE_UINT, (570, 0))


def _memory_temperature(view: View, _scope: int) -> int:
    _supported(view.model.memory_temperature)
    return round(view.physics.memory_temperature_c)


def _power(scope: int, watts: float) -> int:
    # Scope 1 is a module of GPU and Grace, which none of our models is.
    _supported(scope == 0)
    return round(1000 * watts)


def _power_average(view: View, scope: int) -> int:
    _supported(view.model.average_power)
    return _power(scope, view.physics.mean_power_w)


def _power_limit(name: str) -> Known:
    def get(view: View, scope: int) -> int:
        _supported(view.model.limits and scope == 0)
        return int(getattr(view.model.limits, name))

    return Known(get, TYPE_UINT, (535, 0))


def _margin(name: str) -> Known:
    """Answer a T.Limit: degrees beyond the highest operating temperature, downwards."""

    def get(view: View, _scope: int) -> int:
        _supported(view.model.architecture >= ADA)
        thresholds = view.model.thresholds
        if name == "memory_max":
            _supported(thresholds.memory_max)
            return 0
        return thresholds.gpu_max - int(getattr(thresholds, name))

    return Known(get, TYPE_INT, (525, 150))


def _nvlink_errors(kind: str, oldest: int, newest: int, *, per_link: bool) -> Known:
    def get(view: View, scope: int) -> int:
        _supported(oldest <= view.nvlink.generation <= newest)
        link = scope if per_link and scope != ALL_LINKS else None
        return view.nvlink_errors(kind, link)

    return Known(get)


def _nvlink_bytes(oldest: int, newest: int, unit: int, *, received: bool) -> Known:
    def get(view: View, scope: int) -> int:
        _supported(oldest <= view.nvlink.generation <= newest)
        total = view.nvlink_bytes(received=received)
        if scope == ALL_LINKS:
            return total // unit
        up = view.link_up(scope)  # a bad link number is refused first
        return total // view.nvlink.links // unit if up else 0

    return Known(get)


def _nvlink_state(view: View, scope: int) -> int:
    return int(view.link_up(scope))


def _nvlink_speed(view: View, scope: int) -> int:
    return view.nvlink.speed if view.link_up(scope) else 0


def _pcie_bytes(*, received: bool) -> Known:
    return Known(lambda view, _: view.pcie_bytes(received=received), TYPE_ULONGLONG, (555, 0))


def _recovery_action(view: View, _scope: int) -> int:
    _supported(view.model.ampere_or_newer and view.model.ecc)
    return view.facts.recovery_action


def _never(_repairs: CardFacts) -> int:
    """Answer 0 for a card that has such repairs: ours are all of uncorrected errors."""
    return 0


_ECC_FIELDS = _ecc_fields()

_FIELDS: dict[int, Known] = {
    1: Known(_ecc_mode, TYPE_UINT),
    2: Known(_ecc_mode, TYPE_UINT),
    **_ECC_FIELDS,
    29: Known(lambda view, _: _never(view.retired_pages), TYPE_UINT),
    30: Known(lambda view, _: view.retired_pages.remapped, TYPE_UINT),
    31: Known(lambda view, _: int(view.retired_pages.pending), TYPE_UINT),
    92: Known(lambda view, _: _never(view.retired_pages), TYPE_UINT),
    93: Known(lambda view, _: int(view.retired_pages.pending), TYPE_UINT),
    38: _nvlink_errors("crc_flit", 1, 3, per_link=False),
    45: _nvlink_errors("crc_data", 1, 3, per_link=False),
    52: _nvlink_errors("replay", 1, 3, per_link=False),
    59: _nvlink_errors("recovery", 1, 3, per_link=False),
    74: _reason("sw_power_cap"),
    75: _reason("sw_thermal_slowdown"),
    76: _reason("sync_boost"),
    77: _reason("board_limit"),
    79: _reason("reliability"),
    82: Known(_memory_temperature, TYPE_UINT),
    83: Known(lambda view, _: view.energy_mj),
    90: Known(lambda view, _: view.nvlink.speed, TYPE_UINT),
    91: Known(lambda view, _: view.nvlink.links, TYPE_UINT),
    94: Known(lambda view, _: view.replays, TYPE_UINT),
    138: _nvlink_bytes(1, 4, 1024, received=False),
    139: _nvlink_bytes(1, 4, 1024, received=True),
    142: Known(lambda view, _: _never(view.row_remaps), TYPE_UINT),
    143: Known(lambda view, _: view.row_remaps.remapped, TYPE_UINT),
    144: Known(lambda view, _: int(view.row_remaps.pending), TYPE_UINT),
    145: Known(lambda view, _: int(view.row_remaps.failure), TYPE_UINT),
    160: _nvlink_errors("ecc", 3, 3, per_link=False),
    161: _nvlink_errors("replay", 4, 4, per_link=True),
    162: _nvlink_errors("recovery", 4, 4, per_link=True),
    163: _nvlink_errors("crc_flit", 4, 4, per_link=True),
    164: Known(_nvlink_speed, TYPE_UINT),
    165: Known(_nvlink_state, TYPE_UINT),
    185: Known(_power_average, TYPE_UINT),
    186: Known(lambda view, scope: _power(scope, view.physics.power_w), TYPE_UINT),
    187: _power_limit("minimum"),
    188: _power_limit("maximum"),
    189: _power_limit("default"),
    190: _power_limit("default"),
    192: _power_limit("default"),
    193: _margin("shutdown"),
    194: _margin("slowdown"),
    195: _margin("memory_max"),
    196: _margin("gpu_max"),
    197: _pcie_bytes(received=False),
    198: _pcie_bytes(received=True),
    202: _nvlink_bytes(5, 6, 1, received=False),
    204: _nvlink_bytes(5, 6, 1, received=True),
    215: _nvlink_errors("recovery", 5, 6, per_link=True),
    219: _nvlink_errors("effective", 5, 6, per_link=True),
    221: _nvlink_errors("symbol", 5, 6, per_link=True),
    230: Known(_recovery_action, TYPE_UINT, (570, 0)),
    251: _smoothing(0),
    252: _smoothing(0),
    253: _smoothing(1),
    269: _reason("sw_thermal_slowdown"),
    270: _reason("hw_thermal_slowdown"),
    271: _reason("hw_power_brake_slowdown"),
}

_MOVED: dict[int, Known] = {
    251: _reason("sw_thermal_slowdown"),
    252: _reason("hw_thermal_slowdown"),
    253: _reason("hw_power_brake_slowdown"),
    269: _smoothing(0),
    270: _smoothing(100),
    271: _smoothing(100),
}
"""The ids that early 575 and 580 drivers use otherwise: nothing fails, all is wrong."""
