# SPDX-License-Identifier: Apache-2.0
"""Lines of a log of any shape to the kernel records in it.

Finds for each line by itself what stands before the message, so that a support
bundle may mix raw ``/dev/kmsg``, dmesg, journal, syslog, container logs and bare
text. Puts a record that a tool printed over several lines together again. Holds one
record at a time, so it needs no more memory for a large log; never raises.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from cardwatch.kernlog.dates import Calendar
from cardwatch.kernlog.parse import MAX_RECORD, may_matter
from cardwatch.kernlog.prefix import Prefix, unescape

# Longer lines are cut: a record of the kernel is far shorter, whatever stands before it.
MAX_LINE = 32768

_ANSI = re.compile(rb"\x1b(?:\[[0-9;:?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\))")
# ` SUBSYSTEM=pci` behind a raw record, a property of it.
_PROPERTY = re.compile(r" [A-Z][A-Z0-9_]{0,63}=")
_BOMS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_JSON_TEXT = ("MESSAGE", "log", "message", "msg", "line")
_JSON_TIME = ("time", "timestamp", "@timestamp", "ts")
_JSON_DEPTH = 2
_JSON_KERNEL = {"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel"}


@dataclass(frozen=True)
class Line:
    """One record: its text and what the prefix told of its time.

    ``stamp`` is equal for two lines only if they are the same record, or printed
    within the same microsecond; with ``replay`` only if they are the same record.
    """

    text: str
    time: float | None = None
    uptime: float | None = None
    stamp: str | None = None
    replay: bool = False


class Shapes:
    """Lines in, records out; one for each log."""

    def __init__(self, calendar: Calendar, *, any_facility: bool = False) -> None:
        self._calendar = calendar
        self._any_facility = any_facility
        self._held: Line | None = None
        self._indent = 0
        self._raw = False

    def feed(self, raw: bytes) -> list[Line]:
        """Take one line and return the records that are complete now."""
        raw = raw[:MAX_LINE]
        if b"\0" in raw:
            raw = raw.replace(b"\0", b"")  # also makes ASCII of what was UTF-16
        if b"\x1b" in raw:
            raw = _ANSI.sub(b"", raw)
        indented = raw[:1] in (b" ", b"\t")
        if not may_matter(raw) and not (indented and self._held):
            return self.flush() if self._held else []
        line = _decoded(raw)
        indent = len(line) - len(line.lstrip(" \t"))
        if self._held and indented and self._continues(line, indent):
            return []
        return self.flush() + self._begin(line, indent)

    def flush(self) -> list[Line]:
        """Return the record that waits for further lines; call at the end."""
        held, self._held = self._held, None
        return [] if held is None else [held]

    def _begin(self, text: str, indent: int) -> list[Line]:
        prefix = Prefix(self._calendar, self._any_facility)
        if text.lstrip().startswith("{"):
            return _from_json(text, prefix, 0)
        rest = prefix.strip(text)
        if rest is None:
            return []
        found = _line(prefix, unescape(rest) if prefix.complete else rest)
        if not prefix.pieces:
            return [found]
        self._held, self._indent, self._raw = found, indent, prefix.complete
        return []

    def _continues(self, text: str, indent: int) -> bool:
        """Add an indented line to the record held; False where it is a record of its own."""
        assert self._held is not None
        if self._raw:
            return _PROPERTY.match(text) is not None
        prefix = Prefix(self._calendar, self._any_facility)
        prefix.strip(text)
        if indent <= self._indent or prefix.marks:
            return False
        whole = f"{self._held.text}\n{text.strip()}"
        held = self._held
        self._held = Line(whole[:MAX_RECORD], held.time, held.uptime, held.stamp, held.replay)
        return True


def _decoded(raw: bytes) -> str:
    for mark in _BOMS:
        raw = raw.removeprefix(mark)
    return raw.decode("utf-8", "replace").rstrip("\r\n")


def _line(prefix: Prefix, text: str) -> Line:
    return Line(text[:MAX_RECORD], prefix.time, prefix.uptime, prefix.stamp, prefix.replay)


def _from_json(text: str, prefix: Prefix, depth: int) -> list[Line]:
    """Return the record in a line of JSON, as docker and the journal write them."""
    try:
        row: Any = json.loads(text)
    except (ValueError, RecursionError):
        return []
    if not isinstance(row, dict):
        return []
    for key, wanted in _JSON_KERNEL.items():
        if row.get(key, wanted) != wanted:
            return []
    _json_time(row, prefix)
    message = next((row[key] for key in _JSON_TEXT if isinstance(row.get(key), str)), "")
    if message.lstrip().startswith("{") and depth < _JSON_DEPTH:
        return _from_json(message, prefix, depth + 1)
    rest = prefix.strip(message.rstrip("\r\n"))
    return [] if rest is None else [_line(prefix, unescape(rest) if prefix.complete else rest)]


def _json_time(row: dict[str, Any], prefix: Prefix) -> None:
    micros = str(row.get("__REALTIME_TIMESTAMP", ""))
    if micros.isascii() and micros.isdigit() and len(micros) <= 18:
        prefix.time, prefix.stamp = int(micros) / 1e6, micros
    for key in _JSON_TIME:
        value = row.get(key)
        if isinstance(value, str):
            outer = Prefix(prefix.calendar, any_facility=True)
            outer.strip(f"{value[:64]} NVRM: ")
            prefix.time = outer.time if prefix.time is None else prefix.time
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            prefix.time = float(value) if prefix.time is None else prefix.time
