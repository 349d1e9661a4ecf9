# SPDX-License-Identifier: Apache-2.0
"""Checks of single values of a scenario file.

A check takes what YAML gave and returns the value to keep, or raises
``ValueError`` whose text is what would have been allowed. The caller adds
file, key and value.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any

from cardwatch.nvml import codes
from cardwatch.nvml.calls import CALLS
from cardwatch.settings.durations import parse_duration

Check = Callable[[object], Any]

_MAX_TEXT = 500
_NOT_PLAIN = ("Init", "Shutdown", "DeviceGetHandleByIndex", "DeviceGetMigDeviceHandleByIndex")


def duration(value: object) -> float:
    """Take a written duration; 0 needs no unit."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return parse_duration("")
    return parse_duration(str(value))


def positive_duration(value: object) -> float:
    """Take a written duration above 0."""
    seconds = duration(value)
    if seconds <= 0:
        raise ValueError("a duration above 0, such as 500ms or 5s")
    return seconds


def whole(lowest: int, highest: int) -> Check:
    """Take a whole number in an inclusive range."""

    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
            raise ValueError(f"a whole number from {lowest} to {highest}")
        return value

    return check


def number(lowest: float, highest: float) -> Check:
    """Take a number in an inclusive range."""

    def check(value: object) -> float:
        numeric = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not (numeric and lowest <= value <= highest):  # type: ignore[operator]
            raise ValueError(f"a number from {lowest:g} to {highest:g}")
        return float(value)  # type: ignore[arg-type]

    return check


def choice(*allowed: str) -> Check:
    """Take one of a few words."""

    def check(value: object) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise ValueError("one of " + ", ".join(allowed))
        return value

    return check


def boolean(value: object) -> bool:
    """Take true or false."""
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def text(value: object) -> str:
    """Take one printable line."""
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= _MAX_TEXT:
        raise ValueError(f"one line of 1 to {_MAX_TEXT} printable characters")
    return value


def call_name(value: object) -> str:
    """Take the name of a driver call."""
    if isinstance(value, str) and value in CALLS:
        return value
    raise ValueError("a driver call such as DeviceGetPowerUsage" + did_you_mean(value, CALLS))


def plain_call(value: object) -> str:
    """Take the name of a call whose answer a scenario can write down."""
    name = call_name(value)
    if name in _NOT_PLAIN:
        raise ValueError("a driver call with a plain answer, such as DeviceGetPowerUsage")
    return name


def return_code(value: object) -> int:
    """Take an NVML return code by name or number."""
    names = {name: number for number, name in codes.NAMES.items() if number}
    if isinstance(value, str) and value in names:
        return names[value]
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1000:
        return value
    raise ValueError("an NVML error by name or number: " + ", ".join(names))


def several(item: Check, lowest: int, highest: int) -> Check:
    """Take a list of different values, each of which passes ``item``."""

    def check(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list) or not lowest <= len(value) <= highest:
            raise ValueError(f"a list of {lowest} to {highest} values")
        return tuple(item(each) for each in value)

    return check


def different(item: Check, lowest: int, highest: int) -> Check:
    """Take a list in which no value stands twice."""
    listed = several(item, lowest, highest)

    def check(value: object) -> tuple[Any, ...]:
        values: tuple[Any, ...] = listed(value)
        if len(set(values)) != len(values):
            raise ValueError("a list without repeated values")
        return values

    return check


def answer(value: object) -> object:
    """Take any plain answer of a call; lists become the tuples that drivers give."""
    if isinstance(value, list):
        return tuple(answer(each) for each in value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ValueError("a number, text or list")


def did_you_mean(value: object, known: Iterable[str]) -> str:
    """End a sentence with the known word that comes closest, if one does."""
    close = difflib.get_close_matches(str(value), list(known), n=1, cutoff=0.75)
    return f" (did you mean {close[0]}?)" if close else ""
