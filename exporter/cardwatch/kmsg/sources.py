# SPDX-License-Identifier: Apache-2.0
"""Where records come from: the kernel's device, or a FIFO. Files are in ``follow``.

A source gives the records that are there, in slices of bounded size, and never
blocks. What went wrong is a ``SourceError`` with a name that fits a label.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

RECORD_BYTES = 8192
"""What a record can take at most; with less room the kernel skips the record."""

SLICE_RECORDS = 256
CHUNK_BYTES = 32 * 1024
_MAX_PASSED_OVER = 4096

Read = Callable[[int, int], bytes]
Open = Callable[[Path, int], int]

FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class SourceError(Exception):
    """The source cannot be read now. ``code`` fits the label ``error``."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass
class Slice:
    """Some records, oldest first. An empty one stands for a record too long to read."""

    records: list[bytes]
    caught_up: bool = False


class Source(Protocol):
    """What the reader needs of a source."""

    kernel: bool
    """True for the kernel's own numbering; false where only the lines can be trusted."""
    fd: int | None
    """What to poll at the end of the log; None where polling does not tell."""
    look_again_s: float
    """How long to wait at the end of the log before looking again anyway."""

    def read(self) -> Slice:
        """Return the next slice. Raises ``SourceError`` or ``OSError``."""

    def mark(self) -> list[int]:
        """Return the place in the source behind the last slice, for ``open_source``."""

    def close(self) -> None:
        """Let go of the source."""


def explain(error: OSError) -> SourceError:
    """Return a failed system call as a ``SourceError``."""
    if error.errno in (errno.EACCES, errno.EPERM):
        code = "permission_denied"
    elif error.errno in (errno.ENOENT, errno.ENXIO, errno.ENODEV, errno.ENOTDIR):
        code = "not_found"
    else:
        code = "read_error"
    return SourceError(code, error.strerror or str(error))


def open_path(path: Path, flags: int) -> int:
    """Open a path without waiting for anybody."""
    return os.open(path, flags)


class DeviceSource:
    """``/dev/kmsg``: one record per read."""

    kernel = True
    look_again_s = 2.0

    def __init__(self, path: Path, *, read: Read = os.read, opener: Open = open_path) -> None:
        self._read = read
        self.fd: int | None = opener(path, FLAGS)
        self._passed_over = 0

    def read(self) -> Slice:
        """Read records until the end of the log or the end of the slice."""
        fd, read = self.fd, self._read
        assert fd is not None
        records: list[bytes] = []
        for _ in range(SLICE_RECORDS):
            try:
                record = read(fd, RECORD_BYTES)
            except BlockingIOError:
                return Slice(records, caught_up=True)
            except BrokenPipeError:
                # Overwritten before we came to it. The kernel has moved us to the oldest
                # record that it still holds, whose number tells how many are gone.
                continue
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                self._pass_over()
                records.append(b"")
                continue
            if not record:
                raise SourceError("read_error", "ends like a file, so it is no kernel log")
            self._passed_over = 0
            records.append(record)
        return Slice(records)

    def _pass_over(self) -> None:
        self._passed_over += 1
        if self._passed_over > _MAX_PASSED_OVER:
            raise SourceError("read_error", "no record of it can be read (invalid argument)")

    def mark(self) -> list[int]:
        """Return nothing: the sequence number says it all."""
        return []

    def close(self) -> None:
        """Close the device."""
        fd, self.fd = self.fd, None
        if fd is not None:
            with contextlib.suppress(OSError):
                os.close(fd)


class Lines:
    """Cuts a stream of bytes into lines, of which none may be longer than a record.

    ``pending`` is how many bytes have come since the last line break.
    """

    def __init__(self) -> None:
        self.pending = 0
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete. One that is too long becomes an empty one."""
        lines = (self._rest + data).split(b"\n")
        lines = [line if len(line) <= RECORD_BYTES else b"" for line in lines]
        if len(lines) == 1:
            self.pending += len(data)
        else:
            if self.pending > RECORD_BYTES:
                lines[0] = b""
            self.pending = len(data) - data.rfind(b"\n") - 1
        self._rest = lines.pop()
        return lines

    def end(self) -> list[bytes]:
        """Return what came without a line break when nothing more will come."""
        whole = self.pending == len(self._rest) > 0
        rest, self._rest, self.pending = self._rest, b"", 0
        return [rest] if whole else []


class FifoSource:
    """A FIFO whose writers may come and go."""

    kernel = False
    look_again_s = 1.0

    def __init__(self, path: Path) -> None:
        self._path = path
        self.fd: int | None = os.open(path, FLAGS)
        self._lines = Lines()

    def read(self) -> Slice:
        """Read what is in the pipe."""
        assert self.fd is not None
        try:
            data = os.read(self.fd, CHUNK_BYTES)
        except BlockingIOError:
            self._check_path()
            return Slice([], caught_up=True)
        if data:
            return Slice(self._lines.feed(data))
        records = self._lines.end()
        self._reopen()
        return Slice(records, caught_up=True)

    def _reopen(self) -> None:
        """Open anew after the last writer left, so that polling waits for the next one.

        The new descriptor comes before the old one goes: what a quick writer
        has put into the pipe since would go with the last descriptor.
        """
        new = os.open(self._path, FLAGS)
        if not stat.S_ISFIFO(os.fstat(new).st_mode):
            os.close(new)
            raise SourceError("not_found", "is no FIFO any more")
        self.close()
        self.fd = new

    def _check_path(self) -> None:
        assert self.fd is not None
        if not same_file(os.fstat(self.fd), os.stat(self._path)):
            raise SourceError("not_found", "was replaced")

    def mark(self) -> list[int]:
        """Return nothing: a FIFO has no places."""
        return []

    def close(self) -> None:
        """Close the FIFO."""
        fd, self.fd = self.fd, None
        if fd is not None:
            with contextlib.suppress(OSError):
                os.close(fd)


def same_file(one: os.stat_result, other: os.stat_result) -> bool:
    """Tell whether two looks were at one and the same file."""
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
