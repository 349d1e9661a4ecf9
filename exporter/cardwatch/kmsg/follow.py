# SPDX-License-Identifier: Apache-2.0
"""A regular file of raw records, read from its start and followed as it grows.

Notices when the file is replaced, cut or written anew, and finds the place
again where an earlier run had stopped. Never writes to the file.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Sequence
from pathlib import Path

from cardwatch.kmsg.numbering import Line
from cardwatch.kmsg.record import split
from cardwatch.kmsg.sources import CHUNK_BYTES, FLAGS, RECORD_BYTES, Lines, Slice, same_file

_TAIL = 64
"""So many bytes before our place are compared, to notice a file written anew."""


class FileSource:
    """Follows the file at a path. ``mark`` and ``last`` say where an earlier run stopped."""

    kernel = False
    look_again_s = 0.2

    def __init__(self, path: Path, mark: Sequence[int] = (), last: Line | None = None) -> None:
        self._path = path
        self.fd: int | None = None  # polling a file always says that there is more
        self._file = os.open(path, FLAGS)
        self._go_to(0)
        place = self._marked(mark)
        if place is None and last is not None:
            place = self._behind(last)
        self.continued = place is not None
        """True when the place of the earlier run is in this file."""
        if place:
            self._go_to(place)

    def _go_to(self, place: int) -> None:
        self._lines = Lines()
        self._read_to = place
        self._look_back()

    @property
    def _place(self) -> int:
        """The offset behind the last complete line."""
        return self._read_to - self._lines.pending

    def _look_back(self) -> None:
        length = min(_TAIL, self._place)
        self._tail = os.pread(self._file, length, self._place - length)

    # -- the place of an earlier run ----------------------------------------------------------

    def _marked(self, mark: Sequence[int]) -> int | None:
        """Return the marked place if this is the same file and the text before it still stands."""
        if len(mark) != 5:
            return None
        device, inode, place, length, checksum = mark
        status = os.fstat(self._file)
        if (status.st_dev, status.st_ino) != (device, inode) or not 0 <= length <= place:
            return None
        tail = os.pread(self._file, length, place - length)
        return place if len(tail) == length and zlib.crc32(tail) == checksum else None

    def _behind(self, last: Line) -> int | None:
        """Return the place behind the last line of the earlier run if it is in the file."""
        number = b",%d,%d," % (last.seq, last.usec)
        base, data = 0, b""
        while more := os.pread(self._file, CHUNK_BYTES, base + len(data)):
            data += more
            end = data.rfind(b"\n") + 1
            if number in data:
                place = 0
                for line in data[:end].split(b"\n")[:-1]:
                    place += len(line) + 1
                    if _is(line, last):
                        return base + place
            if len(data) - end > RECORD_BYTES:
                end = len(data)  # no line of ours is so long
            base, data = base + end, data[end:]
        return None

    # -- reading ------------------------------------------------------------------------------

    def read(self) -> Slice:
        """Read some lines; at the end of the file see whether it is still the same."""
        if self._is_rewritten():
            self._go_to(0)
        data = os.pread(self._file, CHUNK_BYTES, self._read_to)
        if not data:
            return self._at_end()
        self._read_to += len(data)
        records = self._lines.feed(data)
        self._look_back()
        return Slice(records)

    def _is_rewritten(self) -> bool:
        length = len(self._tail)
        return os.pread(self._file, length, self._place - length) != self._tail

    def _at_end(self) -> Slice:
        status = os.fstat(self._file)
        if status.st_size < self._read_to:
            self._go_to(0)
            return Slice([])
        if not same_file(status, os.stat(self._path)):
            return Slice(self._follow_rotation())
        return Slice([], caught_up=True)

    def _follow_rotation(self) -> list[bytes]:
        """Take up the file that now has the name, from its start; return the old one's last."""
        new = os.open(self._path, FLAGS)
        records = self._lines.end()
        self.close()
        self._file = new
        self._go_to(0)
        return records

    def mark(self) -> list[int]:
        """Return the place behind the last complete line, and how to know it again."""
        status = os.fstat(self._file)
        tail = self._tail
        return [status.st_dev, status.st_ino, self._place, len(tail), zlib.crc32(tail)]

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(OSError):
            os.close(self._file)


def _is(line: bytes, wanted: Line) -> bool:
    raw = split(line)
    return raw is not None and Line.of(raw.seq, raw.usec, line) == wanted
