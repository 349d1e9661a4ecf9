# SPDX-License-Identifier: Apache-2.0
"""From raw records to what they mean, fast enough for a flood of the same few texts.

Most records are not ours, which one look for a word settles. A flood repeats a
few texts: what the parser made of one of them is remembered and counted. A
parser keeps state over several lines, so only texts that are one complete
event by themselves are remembered, and even these it sees again from time to time.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cardwatch.kernlog.event import SXID, XID, Event
from cardwatch.kmsg.batch import Record
from cardwatch.kmsg.clock import RecordClock
from cardwatch.kmsg.record import readable

log = logging.getLogger("cardwatch.kmsg")

Parse = Callable[[str, float, float], Sequence[Event]]
"""Text of a record, its wall clock time and its seconds since boot, to complete events."""

Settle = Callable[[], Sequence[Event]]
"""Gives up the events that wait for another line."""

_SHOWN_TIMES = 4
_SHOWN_EVERY_USEC = 10_000_000
"""Of equal texts, the parser sees so many in every ten seconds."""

_SAME_S = 0.01
_MAX_KNOWN = 1024
_MAX_TEXT = 2048
_OFF_BUS_XID = 79  # what parsers join with other lines about the same card


def maybe_ours(record: bytes) -> bool:
    """Say by a look at the bytes whether a record can be one of the NVIDIA drivers'."""
    return b"NVRM" in record or b"nvidia" in record


@dataclass
class _Known:
    """What the parser makes of a text, and how often it was asked since when."""

    text: str
    events: tuple[Event, ...]
    since_usec: int
    shown: int = 1


@dataclass
class _Open:
    """A record of the batch that is being gathered."""

    known: _Known
    seq: int
    usec: int
    last_usec: int
    old: bool
    count: int = 1


class Digest:
    """Gathers records until ``flush``; holds no more than one entry per distinct text."""

    def __init__(self, parse: Parse, settle: Settle | None, clock: RecordClock) -> None:
        self._parse, self._settle = parse, settle
        self._last: tuple[int, int, bool] | None = None
        self._clock = clock
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._open: dict[tuple[bytes, bool], _Open] = {}
        self._single: list[_Open] = []
        self.parser_errors = 0
        self.taken = 0

    @property
    def size(self) -> int:
        """How many entries are waiting for ``flush``."""
        return len(self._single)

    def take(self, seq: int, usec: int, text: bytes, *, old: bool) -> None:
        """Take in one record of the kernel's."""
        self.taken += 1
        self._last = seq, usec, old
        known = self._known.get(text)
        if known is None or self._due(known, usec):
            known = self._ask(text, usec)
            if not known.events:
                return
        entry = self._open.get((text, old))
        if entry is not None and _same(entry.known, known):
            entry.count += 1
            entry.last_usec = usec
            return
        entry = _Open(known, seq, usec, usec, old)
        self._single.append(entry)
        if self._known.get(text) is known:
            self._open[text, old] = entry

    @staticmethod
    def _due(known: _Known, usec: int) -> bool:
        if abs(usec - known.since_usec) >= _SHOWN_EVERY_USEC:
            return True
        return known.shown < _SHOWN_TIMES

    def _ask(self, text: bytes, usec: int) -> _Known:
        """Let the parser read a text, and remember its answer where that is safe."""
        line = readable(text)
        earlier = self._known.pop(text, None)
        fresh = _Known(line, self._parsed(line, usec), usec)
        if earlier is not None and abs(usec - earlier.since_usec) < _SHOWN_EVERY_USEC:
            fresh.since_usec, fresh.shown = earlier.since_usec, earlier.shown + 1
        if _stands_alone(fresh):
            if len(self._known) >= _MAX_KNOWN:
                self._known.popitem(last=False)
            self._known[text] = fresh
        return fresh

    def _parsed(self, line: str, usec: int) -> tuple[Event, ...]:
        try:
            return tuple(self._parse(line, self._clock.wall(usec), usec / 1e6))
        except Exception:
            self.parser_errors += 1
            if self.parser_errors == 1:
                log.exception("the parser failed on %r; the line counts for nothing", line[:300])
            return ()

    def settle(self) -> None:
        """Take in what the parser held back, now that nothing came for a while."""
        if self._settle is None or self._last is None:
            return
        seq, usec, old = self._last
        self._last = None
        try:
            held = self._settle()
        except Exception:
            self.parser_errors += 1
            log.exception("the parser failed to settle what it had held back")
            return
        for event in held:
            known = _Known(event.message, (event,), usec)
            self._single.append(_Open(known, seq, usec, usec, old))

    @property
    def unsettled(self) -> bool:
        """True when something came since the parser was last asked what it holds back."""
        return self._last is not None

    def flush(self) -> tuple[Record, ...]:
        """Return what was gathered, in the order of the first of each text."""
        records = tuple(self._record(entry) for entry in self._single)
        self._single.clear()
        self._open.clear()
        return records

    def _record(self, entry: _Open) -> Record:
        time, uptime = self._clock.wall(entry.usec), entry.usec / 1e6
        events = entry.known.events
        told = events[0].time
        if told is not None and abs(told - time) < _SAME_S and events[0].uptime == uptime:
            time = told
        else:
            events = tuple(_dated(event, time, uptime) for event in events)
        return Record(
            seq=entry.seq,
            time=time,
            last_time=max(time, self._clock.wall(entry.last_usec)),
            text=entry.known.text,
            events=events,
            count=entry.count,
            old=entry.old,
        )


def _dated(event: Event, time: float, uptime: float) -> Event:
    return dataclasses.replace(event, time=time, uptime=uptime)


def _same(one: _Known, other: _Known) -> bool:
    """Say whether the parser made the same of a text, whenever it was asked."""
    if one is other:
        return True
    return [_dated(event, 0, 0) for event in one.events] == [
        _dated(event, 0, 0) for event in other.events
    ]


def _stands_alone(known: _Known) -> bool:
    """Say whether a text is one complete event, whatever the lines around it say."""
    if len(known.events) != 1 or "\n" in known.text or len(known.text) > _MAX_TEXT:
        return False
    event = known.events[0]
    return (
        event.kind in (XID, SXID)
        and event.code != _OFF_BUS_XID
        and event.code is not None
        and str(event.code) in known.text
    )
