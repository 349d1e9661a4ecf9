# SPDX-License-Identifier: Apache-2.0
"""A whole log to its events, each once.

Reads a stream of any size in constant memory. A record that stands in the log twice,
because a bundle holds the same part of the kernel log in two files, is one event
where its time is told finely enough to know it again. Equal events in a row become
one with a count.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import BinaryIO

from cardwatch.kernlog.dates import Calendar
from cardwatch.kernlog.event import Event
from cardwatch.kernlog.parse import Parser
from cardwatch.kernlog.shapes import MAX_LINE, Line, Shapes

_SEEN = 20_000


@dataclass(frozen=True)
class Told:
    """An event, how often the log tells it in a row, and the time of the last one."""

    event: Event
    count: int = 1
    last_time: float | None = None


def read_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Return the lines of a stream; of one that is too long, the beginning."""
    while line := stream.readline(MAX_LINE):
        yield line
        while line and not line.endswith(b"\n"):
            line = stream.readline(MAX_LINE)


def decode(
    lines: Iterable[bytes], calendar: Calendar, *, any_facility: bool = False
) -> Iterator[Told]:
    """Return the events of a log."""
    parser = Parser(ordered=True)
    records = _once(_records(lines, Shapes(calendar, any_facility=any_facility)))
    last: Told | None = None
    for event in _events(records, parser):
        if last is not None and _same(last.event, event):
            last = Told(last.event, last.count + 1, event.time)
            continue
        if last is not None:
            yield last
        last = Told(event, 1, event.time)
    if last is not None:
        yield last


def _records(lines: Iterable[bytes], shapes: Shapes) -> Iterator[Line]:
    for raw in lines:
        yield from shapes.feed(raw)
    yield from shapes.flush()


def _once(records: Iterable[Line]) -> Iterator[Line]:
    """Leave out records that came before.

    Two equal lines in a row stay two, however equal their time is: a tool printed two.
    """
    seen: OrderedDict[int, None] = OrderedDict()
    before: str | None = None
    for record in records:
        if record.stamp is None:
            before = None
            yield record
            continue
        key = hash((record.stamp, record.text))
        if key in seen and (record.replay or record.stamp != before):
            continue
        seen[key] = None
        if len(seen) > _SEEN:
            seen.popitem(last=False)
        before = record.stamp
        yield record


def _events(records: Iterable[Line], parser: Parser) -> Iterator[Event]:
    for record in records:
        yield from parser.feed(record.text, record.time, record.uptime)
    yield from parser.flush()


def _same(one: Event, other: Event) -> bool:
    return _WHAT(one) == _WHAT(other)


# All of an event but when it was and what was found out about the card.
_WHAT = attrgetter(*(f.name for f in fields(Event) if f.name not in ("time", "uptime", "uuid")))
