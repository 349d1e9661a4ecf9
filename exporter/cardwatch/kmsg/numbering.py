# SPDX-License-Identifier: Apache-2.0
"""Which records were read before, and which were lost, by their sequence numbers.

The kernel's own numbers rise by one, so a gap is a loss and a lower number is a
repetition. A file or FIFO holds what somebody chose to write: parts of a log,
a log twice over, or the logs of several boots. There only a line that is
exactly one of those already read is a repetition.
"""

from __future__ import annotations

import json
import zlib
from collections import OrderedDict
from itertools import islice
from typing import NamedTuple

_REMEMBERED = 16384
_KEPT = 32
"""Lines remembered across a restart: enough to tell a replay from another log."""


class KernelNumbering:
    """Numbers of ``/dev/kmsg``. ``last`` is the newest record that was accepted."""

    def __init__(self, last: int | None) -> None:
        self.last = last
        self.lost = 0
        self._expected = None if last is None else last + 1
        self._seen: int | None = None

    def reopened(self) -> None:
        """Note that reading begins again at the oldest record."""
        self._seen = None

    def accept(self, seq: int) -> bool:
        """Note a record. False when it was read before."""
        self._seen = seq
        if self.last is not None and seq <= self.last:
            return False
        if self._expected is not None and seq > self._expected:
            self.lost += seq - self._expected
        self.last, self._expected = seq, seq + 1
        return True

    def pass_over(self) -> bool:
        """Note a record too long to read. False when its number was passed before."""
        if self.last is not None and (self._seen is None or self._seen < self.last):
            return False
        if self._expected is not None:
            self._expected += 1
        return True

    @property
    def foreign(self) -> bool:
        """True at the end of a log that does not reach up to the position: it is another log."""
        return self.last is not None and self._seen is not None and self._seen < self.last


class Line(NamedTuple):
    """What identifies a line of a file or FIFO."""

    seq: int
    usec: int
    checksum: int

    @classmethod
    def of(cls, seq: int, usec: int, record: bytes) -> Line:
        """Identify a record; the checksum parts hand-made lines that share a number."""
        return cls(seq, usec, zlib.crc32(record))


class StreamNumbering:
    """Numbers of a file or FIFO, where only the lines themselves can be trusted."""

    def __init__(self, kept: tuple[Line, ...] = ()) -> None:
        # Not a dict, which searches longer for its first key with every one that was taken.
        self._recent: OrderedDict[Line, None] = OrderedDict.fromkeys(kept)
        self.last: Line | None = kept[-1] if kept else None
        self._floor = min((line.seq for line in kept), default=0)
        self._resuming = bool(kept)

    def accept(self, line: Line) -> bool:
        """Note a line. False when it was read before."""
        recent = self._recent
        if line in recent:
            return False
        last = self.last
        if self._resuming and last and line.seq < self._floor and line.usec <= last.usec:
            return False  # further back than we remember of the earlier run: a log repeated
        self._resuming = False
        recent[line] = None
        if len(recent) > _REMEMBERED:
            recent.popitem(last=False)
        self.last = line
        return True

    def kept(self) -> tuple[Line, ...]:
        """Return what to remember across a restart."""
        newest = tuple(islice(reversed(self._recent), _KEPT))
        return newest[::-1]


def to_json(lines: tuple[Line, ...]) -> list[list[int]]:
    """Write lines in a form for JSON."""
    return [list(line) for line in lines]


def from_json(text: str) -> tuple[Line, ...]:
    """Read what ``to_json`` wrote below the key ``lines``; nothing when it is not that."""
    try:
        return tuple(Line(int(s), int(u), int(c)) for s, u, c in json.loads(text)["lines"])
    except (ValueError, TypeError, KeyError):
        return ()
