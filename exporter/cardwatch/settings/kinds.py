# SPDX-License-Identifier: Apache-2.0
"""Kinds of values a setting can have: from text or YAML to the value, or why not.

A parser raises ``ValueError`` whose text says what is allowed; the caller adds
which setting it was and where it stood.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cardwatch.families import ALL
from cardwatch.families.record import Profile
from cardwatch.settings.durations import parse_duration
from cardwatch.text import MAX_BYTES, label
from cardwatch.verdict.thresholds import Overrides, thresholds
from cardwatch.xid.classify import Override, overrides

_LABEL = re.compile(r"^[a-zA-Z_][a-zA-Z0-9_]*$")


def text(value: Any) -> str:
    """Accept any text that is not empty."""
    if isinstance(value, (dict, list)) or value is None or not str(value).strip():
        raise ValueError("expected text")
    return str(value).strip()


def path(value: Any) -> Path:
    """Accept a path; ``~`` is the home directory."""
    return Path(text(value)).expanduser()


def duration(least: float, most: float) -> Callable[[Any], float]:
    """Accept a duration within limits, in seconds."""

    def parse(value: Any) -> float:
        seconds = parse_duration(text(value))
        if not least <= seconds <= most:
            raise ValueError(f"expected a duration from {least:g}s to {most:g}s")
        return seconds

    return parse


def count(value: Any) -> int:
    """Accept a whole number from 0."""
    if isinstance(value, bool) or not re.fullmatch(r"\d{1,9}", str(value).strip()):
        raise ValueError("expected a whole number, 0 or more")
    return int(value)


def flag(value: Any) -> bool:
    """Accept true or false, in YAML or as a word."""
    known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    word = str(value).strip().lower()
    if word not in known:
        raise ValueError("expected true or false")
    return known[word]


def one_of(*words: str) -> Callable[[Any], str]:
    """Accept one of a few words."""

    def parse(value: Any) -> str:
        if str(value) not in words:
            raise ValueError(f"expected one of {', '.join(words)}")
        return str(value)

    return parse


def profile(value: Any) -> Profile:
    """Accept core, standard or full."""
    return Profile[one_of("core", "standard", "full")(value).upper()]


def labels(value: Any) -> tuple[tuple[str, str], ...]:
    """Accept a mapping of label names that no family uses to texts."""
    if not isinstance(value, Mapping):
        raise ValueError("expected a mapping such as {cluster: prod, rack: r12}")
    taken = {name for family in ALL for name in family.all_labels}
    for name in value:
        if not isinstance(name, str) or not _LABEL.match(name) or name.startswith("__"):
            raise ValueError(f"{name!r} is not a label name (letters, digits and _)")
        if name in taken:
            raise ValueError(f"label {name!r} is used by our own series; choose another name")
    return tuple((name, _label_value(name, item)) for name, item in value.items())


def xid(value: Any) -> Mapping[int, Override]:
    """Accept class and action per Xid code."""
    return overrides(value)


def health(value: Any) -> Overrides:
    """Accept thresholds per condition of the verdict."""
    return thresholds(value, parse_duration)


def _label_value(name: str, value: Any) -> str:
    if isinstance(value, (dict, list)) or value is None:
        raise ValueError(f"the value of label {name!r} is not text")
    if label(str(value)) != str(value) or not str(value):
        raise ValueError(
            f"the value of label {name!r} must be plain text of 1 to {MAX_BYTES} bytes"
        )
    return str(value)
