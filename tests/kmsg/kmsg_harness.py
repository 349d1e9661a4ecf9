# SPDX-License-Identifier: Apache-2.0
"""A kernel log that is only pretended, a parser that knows one shape, and what was delivered."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cardwatch.kernlog.event import Event
from cardwatch.kmsg.batch import Batch, Record
from cardwatch.kmsg.reader import KernelLog, Status
from cardwatch.kmsg.sources import DeviceSource, Source

PATIENCE_S = 20.0
BOOT = "8a02e9ad-0000-4a0b-b385-6f64f90fae74"

_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-f:]+)\): (\d+), (.*)", re.DOTALL)


def parse(text: str, at: float, uptime: float) -> list[Event]:
    """Know the plainest line of all."""
    found = _XID.match(text)
    if not found:
        return []
    code = int(found[2])
    return [Event("xid", at, found[1], code=code, message=found[3], uptime=uptime)]


def xid(code: int, text: str = "Ch 00000008") -> str:
    """Write a driver's line."""
    return f"NVRM: Xid (PCI:0000:3b:00): {code}, {text}"


def line(seq: int, text: str, *, usec: int | None = None, priority: int = 4) -> str:
    """Write a raw record as a file holds it."""
    return f"{priority},{seq},{seq * 1000 if usec is None else usec},-;{text}\n"


class Delivered:
    """Batches as they come, and a way to wait for them."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.statuses: list[Status] = []
        self._came = threading.Condition()

    def take(self, batch: Batch) -> None:
        with self._came:
            self.batches.append(batch)
            self._came.notify_all()

    def changed(self, status: Status) -> None:
        with self._came:
            self.statuses.append(status)
            self._came.notify_all()

    def until(self, condition: Callable[[], Any]) -> None:
        """Wait for something that a batch or a change of status brings about."""
        with self._came:
            assert self._came.wait_for(condition, PATIENCE_S), (self.codes, self.statuses)

    @property
    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in batch.records]

    @property
    def codes(self) -> list[int | None]:
        return [
            event.code
            for record in self.records
            for event in record.events
            for _ in range(record.count)
        ]

    def until_code(self, code: int) -> None:
        self.until(lambda: code in self.codes)


def eventually(condition: Callable[[], Any]) -> None:
    """Wait for what nobody tells about."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        threading.Event().wait(0.01)


@contextlib.contextmanager
def reading(path: Path | str, delivered: Delivered, **more: Any) -> Iterator[KernelLog]:
    """Run a reader; it must end when asked."""
    more.setdefault("boot_id", BOOT)
    more.setdefault("retry_s", (0.01, 0.05))
    reader = KernelLog(
        path, more.pop("parse", parse), delivered.take, on_change=delivered.changed, **more
    )
    reader.start()
    try:
        yield reader
    finally:
        assert reader.stop(PATIENCE_S)


class FakeKernel:
    """A log of bounded size that forgets its oldest records, read as the kernel lets it be read."""

    def __init__(self, size: int = 1000) -> None:
        self._size = size
        self._records: list[bytes] = []
        self._first = 0
        self._readable = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._places: dict[int, int] = {}
        self._lock = threading.Lock()
        self.errors: list[OSError] = []
        """Raised by the next reads, one by one."""
        self.opened = 0
        self.read_out = threading.Event()
        """Set when a reader has seen the end of the log."""

    def print(
        self, text: str, *, priority: int = 4, usec: int | None = None, more: str = ""
    ) -> None:
        self.read_out.clear()
        with self._lock:
            seq = self._first + len(self._records)
            at = seq * 1000 if usec is None else usec
            self._records.append(f"{priority},{seq},{at},-{more};{text}\n".encode())
            while len(self._records) > self._size:
                del self._records[0]
                self._first += 1
        os.eventfd_write(self._readable, 1)

    def fail(self, *errors: OSError) -> None:
        with self._lock:
            self.errors += errors
        os.eventfd_write(self._readable, 1)

    def read(self, fd: int, size: int) -> bytes:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._readable)
        with self._lock:
            if self.errors:
                raise self.errors.pop(0)
            place = self._places[fd]
            if place < self._first:
                self._places[fd] = self._first
                raise BrokenPipeError
            if place == self._first + len(self._records):
                self.read_out.set()
                raise BlockingIOError
            self._places[fd] = place + 1
            record = self._records[place - self._first]
        if len(record) > size:
            raise OSError(errno.EINVAL, "Invalid argument")
        return record

    def open(self, path: Path, flags: int) -> int:
        fd = os.dup(self._readable)
        with self._lock:
            self.opened += 1
            self._places[fd] = self._first
        return fd

    def source(self, path: Path, mark: object, last: object) -> Source:
        """Open the log, as the reader asks for it."""
        return DeviceSource(path, read=self.read, opener=self.open)

    def close(self) -> None:
        os.close(self._readable)
