# SPDX-License-Identifier: Apache-2.0
"""Decides which raw records count, by number and facility, and keeps the count of the others."""

from __future__ import annotations

import json
from dataclasses import dataclass

from cardwatch.kmsg.clock import RecordClock
from cardwatch.kmsg.digest import Digest, maybe_ours
from cardwatch.kmsg.follow import FileSource
from cardwatch.kmsg.numbering import KernelNumbering, Line, StreamNumbering, from_json, to_json
from cardwatch.kmsg.position import Position
from cardwatch.kmsg.record import sequence, split
from cardwatch.kmsg.sources import Source


@dataclass
class Counts:
    """What became of the records since the start.

    read       records that came out of the source, repetitions included.
    lost       overwritten before they could be read, by the gap in the numbers.
    too_long   passed over because they do not fit in a buffer.
    malformed  lines that are no records.
    repeated   of the drivers, but read before.
    foreign    of the drivers by their text, but written by a program.
    """

    read: int = 0
    lost: int = 0
    too_long: int = 0
    malformed: int = 0
    repeated: int = 0
    foreign: int = 0


class Intake:
    """Takes slices of raw records and hands what counts to the digest."""

    def __init__(
        self,
        digest: Digest,
        clock: RecordClock,
        *,
        source: str,
        boot_id: str,
        position: Position | None,
        any_facility: bool,
    ) -> None:
        self._digest, self._clock = digest, clock
        self._source, self._boot_id = source, boot_id
        self._any_facility = any_facility
        self._known_before = position is not None
        same_boot = position is not None and position.boot_id == boot_id
        self._kernel = KernelNumbering(position.seq if position and same_boot else None)
        self._stream = StreamNumbering(from_json(position.detail)) if position else None
        self._same_boot = same_boot
        self._lost_before = 0
        self.counts = Counts()
        self.newest_usec: int | None = None
        """Time of the newest record of the kernel's since somebody put None here."""

    # -- where to begin -----------------------------------------------------------------------

    @property
    def last_line(self) -> Line | None:
        """The last line that counted, for a file to be searched for it."""
        return self._stream.last if self._stream else None

    def opened(self, source: Source) -> None:
        """Note that a source was opened, at its start or at the earlier run's place."""
        if source.kernel:
            self._kernel.reopened()
            return
        known = source.continued if isinstance(source, FileSource) else self._same_boot
        if self._stream is None or not known:
            self._stream = StreamNumbering()
        self._same_boot = True  # what comes from now on is of this boot

    def is_another_log(self) -> bool:
        """Say at the end of the log whether the position was not of this log; if so forget it."""
        if not self._kernel.foreign:
            return False
        self._lost_before += self._kernel.lost
        self._kernel = KernelNumbering(None)
        return True

    # -- records ------------------------------------------------------------------------------

    def take_kernel(self, record: bytes) -> None:
        """Take in a record of the kernel's device."""
        counts = self.counts
        if not record:
            counts.too_long += self._kernel.pass_over()
            return
        counts.read += 1
        ours = maybe_ours(record)
        if not ours:
            seq = sequence(record)
            if seq is None:
                counts.malformed += 1
            else:
                self._kernel.accept(seq)
            return
        raw = split(record)
        if raw is None:
            counts.malformed += 1
            return
        if not self._kernel.accept(raw.seq):
            counts.repeated += 1
        elif not (self._any_facility or raw.of_kernel):
            counts.foreign += 1
        else:
            self.newest_usec = raw.usec
            self._digest.take(raw.seq, raw.usec, raw.text, old=self._is_old(raw.usec))

    def take_line(self, record: bytes) -> None:
        """Take in a line of a file or FIFO."""
        counts = self.counts
        if not record:
            counts.too_long += 1
            return
        if record[0] == 0x20:
            return  # a property of the record before it
        counts.read += 1
        if not maybe_ours(record):
            return
        raw = split(record)
        if raw is None:
            counts.malformed += 1
            return
        if not (self._any_facility or raw.of_kernel):
            counts.foreign += 1
            return
        assert self._stream is not None
        if not self._stream.accept(Line.of(raw.seq, raw.usec, record)):
            counts.repeated += 1
            return
        self._digest.take(raw.seq, raw.usec, raw.text, old=self._is_old(raw.usec))

    def _is_old(self, usec: int) -> bool:
        return not self._known_before and usec < self._clock.started_usec

    # -- the place reached --------------------------------------------------------------------

    def lost(self) -> int:
        """Return how many records the kernel overwrote before we could read them."""
        return self._lost_before + self._kernel.lost

    def position(self, source: Source) -> Position | None:
        """Return the place behind the last record; None before the first."""
        if source.kernel:
            last = self._kernel.last
            return None if last is None else Position(self._source, self._boot_id, last)
        if self._stream is None or self._stream.last is None:
            return None
        detail = json.dumps(
            {"mark": source.mark(), "lines": to_json(self._stream.kept())}, separators=(",", ":")
        )
        return Position(self._source, self._boot_id, self._stream.last.seq, detail)


def mark_of(position: Position | None) -> tuple[int, ...]:
    """Return the mark within a file that a position carries; empty when there is none."""
    if position is None or not position.detail:
        return ()
    try:
        return tuple(int(part) for part in json.loads(position.detail)["mark"])
    except (ValueError, TypeError, KeyError):
        return ()
