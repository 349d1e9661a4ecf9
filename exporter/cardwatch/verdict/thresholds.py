# SPDX-License-Identifier: Apache-2.0
"""The operator's own numbers for conditions, and the numbers in force.

Owns the names and units that a config file may use. Never judges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from cardwatch.verdict.conditions import BY_ID
from cardwatch.verdict.history import LONGEST_WINDOW_S, SHORTEST_WINDOW_S
from cardwatch.verdict.record import DAY, Condition

Overrides = Mapping[str, Mapping[str, float]]
"""Condition id -> name of a threshold, ``hold`` or ``release`` -> number in base units."""

NO_OVERRIDES: Overrides = MappingProxyType({})
TIMERS = ("hold", "release")


def thresholds(value: Any, parse_duration: Callable[[str], float]) -> Overrides:
    """Accept what a config file gives for its thresholds.

    Times need a unit, ratios are from 0 to 1, other numbers 0 or more. Raises
    ``ValueError`` that says what is allowed.
    """
    if not isinstance(value, Mapping):
        raise ValueError("expected a mapping such as {thermal_slowdown: {hardware_share: 0.2}}")
    found: dict[str, Mapping[str, float]] = {}
    for name, numbers in value.items():
        condition = BY_ID.get(name) if isinstance(name, str) else None
        if condition is None:
            raise ValueError(f"{name!r} is not a condition; allowed are {', '.join(BY_ID)}")
        if not isinstance(numbers, Mapping):
            raise ValueError(f"{name}: expected a mapping of {_allowed(condition)} to numbers")
        found[condition.id] = MappingProxyType(
            {key: _number(condition, key, number, parse_duration) for key, number in
             numbers.items()}
        )  # fmt: skip
    return MappingProxyType(found)


def in_force(condition: Condition, overrides: Overrides) -> Mapping[str, float]:
    """Return the numbers of a condition: its own thresholds, ``hold`` and ``release``."""
    numbers = {name: threshold.value for name, threshold in condition.thresholds.items()}
    numbers |= {"hold": condition.hold, "release": condition.release}
    return MappingProxyType(numbers | dict(overrides.get(condition.id, {})))


def _allowed(condition: Condition) -> str:
    return ", ".join((*condition.thresholds, *TIMERS))


def _number(
    condition: Condition, key: Any, value: Any, parse_duration: Callable[[str], float]
) -> float:
    where = f"{condition.id}.{key}"
    if key in TIMERS:
        return _seconds(where, value, parse_duration, DAY)
    threshold = condition.thresholds.get(key) if isinstance(key, str) else None
    if threshold is None:
        raise ValueError(f"{where} is not a threshold; allowed are {_allowed(condition)}")
    if threshold.unit == "seconds":
        # Windows are kept in memory; other ages are only compared with.
        longest = LONGEST_WINDOW_S if key == "window" else DAY
        shortest = SHORTEST_WINDOW_S if key == "window" else 0.0
        return _seconds(where, value, parse_duration, longest, shortest)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{where}: expected a number")
    most = 1.0 if threshold.unit == "ratio" else math.inf
    if not 0 <= value <= most or math.isinf(value):
        allowed = "from 0 to 1" if threshold.unit == "ratio" else "0 or more"
        raise ValueError(f"{where}: expected a number {allowed}")
    return float(value)


def _seconds(
    where: str,
    value: Any,
    parse_duration: Callable[[str], float],
    longest: float,
    shortest: float = 0.0,
) -> float:
    try:
        seconds = parse_duration(str(value))
    except ValueError as error:
        raise ValueError(f"{where}: expected {error}") from None
    if not shortest <= seconds <= longest:
        raise ValueError(f"{where}: expected a duration from {shortest:g}s to {longest:g}s")
    return seconds
