# SPDX-License-Identifier: Apache-2.0
"""The record of one finding, and text from outside made fit to be printed."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

_MAX_SHOWN = 300


class Level(str, enum.Enum):
    """PROBLEM: something that we should see is hidden. NOTE: worth knowing. OK: as it should be."""

    PROBLEM = "problem"
    NOTE = "note"
    OK = "ok"


@dataclass(frozen=True)
class Finding:
    """One thing found.

    id      stable name, for scripts.
    title   one line: the thing and its value.
    detail  one line: why it matters and what was seen.
    fix     what to do, one step or alternative a line; a problem always has one.
    """

    id: str
    level: Level
    title: str
    detail: str = ""
    fix: str = ""


def problem(name: str, title: str, detail: str, *fix: str) -> Finding:
    """Return a problem; every one names its way out."""
    return Finding(name, Level.PROBLEM, title, detail, "\n".join(step for step in fix if step))


def note(name: str, title: str, detail: str = "", *fix: str) -> Finding:
    """Return something worth knowing."""
    return Finding(name, Level.NOTE, title, detail, "\n".join(step for step in fix if step))


def ok(name: str, title: str, detail: str = "") -> Finding:
    """Return something that is as it should be."""
    return Finding(name, Level.OK, title, detail)


def plain(text: str) -> str:
    """Return text in which nothing can move a cursor, break a line or turn the writing round."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def shown(value: object) -> str:
    """Return a value from outside for use within a sentence: printable and not too long."""
    text = plain(str(value))
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."


def numbers(values: Iterable[int]) -> str:
    """Return whole numbers the short way: ``0-3, 5``."""
    runs: list[list[int]] = []
    for value in sorted(set(values)):
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def count(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun."""
    return f"{number} {one if number == 1 else many or one + 's'}"
