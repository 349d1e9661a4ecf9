# SPDX-License-Identifier: Apache-2.0
"""Durations as people write them (``500ms``, ``5s``, ``1h30m``), in seconds.

Owns the one notation that flags, environment, config and scenario files share.
"""

from __future__ import annotations

import re

ALLOWED = "a duration such as 500ms, 5s, 10m or 1h30m"

_UNITS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_DURATION = re.compile("".join(f"(?:{_NUMBER}{unit}(?![a-z]))?" for unit in _UNITS))
_MAX_LENGTH = 40


def parse_duration(text: str) -> float:
    """Give the seconds of a duration; ``ValueError`` says what is allowed.

    A bare number has no unit and is refused, except 0. Each unit may stand
    once, the larger before the smaller, as in Prometheus.
    """
    if text == "0":
        return 0.0
    match = _DURATION.fullmatch(text) if text and len(text) <= _MAX_LENGTH else None
    if match is None:
        raise ValueError(ALLOWED)
    parts = zip(match.groups(), _UNITS.values(), strict=True)
    return sum(float(number) * seconds for number, seconds in parts if number is not None)


def format_duration(seconds: float) -> str:
    """Write seconds the way ``parse_duration`` reads them, to the millisecond."""
    rest = round(seconds * 1000)
    if rest <= 0:
        return "0s"
    text = ""
    for unit, size in _UNITS.items():
        count, rest = divmod(rest, round(size * 1000))
        if count:
            text += f"{count}{unit}"
    return text
