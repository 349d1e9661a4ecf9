# SPDX-License-Identifier: Apache-2.0
"""The faults that are not answers: kernel log lines, and a process gone wrong.

Owns when a line of the simulated kernel log is due, when the reading process
crashes, writes junk or stops listening to SIGTERM. ``tick`` does what is due;
every driver call ticks, and a process that wants it on time calls it itself.
"""

from __future__ import annotations

import fcntl
import math
import os
import random
import resource
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from cardwatch.sim.card import identity
from cardwatch.sim.faults import Fault, xid_text
from cardwatch.sim.scenario import Scenario

_GARBAGE_EVERY_S = 0.1
_LEVEL = 3  # an error; facility 0, the kernel, is the bits above
_SEQUENCES_PER_EPOCH = 10_000


class Line(NamedTuple):
    """One line for the kernel log."""

    at: float
    text: str


def kernel_lines(scenario: Scenario, seed: int) -> list[Line]:
    """Give what the kernel will log in this scenario, in order of time."""
    lines = [
        Line(fault.at, _xid_line(fault, scenario, seed))
        for fault in scenario.faults
        if fault.kind == "xid"
    ]
    lines += [
        Line(fault.at, fault.values["text"]) for fault in scenario.faults if fault.kind == "log"
    ]
    return sorted(lines, key=lambda line: line.at)


def _xid_line(fault: Fault, scenario: Scenario, seed: int) -> str:
    number = fault.gpu or 0
    pci = identity(seed, number, scenario.cards[number].model).pci
    text = xid_text(fault)
    tail = f", {text}" if text else ""
    code = fault.values["code"]
    return f"NVRM: Xid (PCI:{pci.kernel_log}): {code}, pid='<unknown>', name=<unknown>{tail}"


class KernelLog:
    """A file of raw kernel log records, one of which is written once for each line.

    A record's sequence number follows from the epoch and its place in the
    scenario. Whoever finds the number in the file leaves the line out, so that
    a process that takes over from another does not repeat it.
    """

    def __init__(self, path: Path, lines: list[Line], epoch: float, boot: float) -> None:
        self._path, self._lines = path, lines
        self._epoch, self._boot = epoch, boot
        self._written = 0
        path.touch()  # fail here, where the path was given, and not in a driver call

    @property
    def next_due(self) -> float:
        """Moment of the first line that this process has not dealt with."""
        return self._lines[self._written].at if self._written < len(self._lines) else math.inf

    def write_due(self, t: float) -> None:
        """Append the records that are due and not in the file."""
        if t < self.next_due:
            return
        with self._path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            present = {_sequence(record) for record in file.read().splitlines()}
            while self.next_due <= t:
                number = int(self._epoch) * _SEQUENCES_PER_EPOCH + self._written
                if number not in present:
                    file.write(self._record(number, self._lines[self._written]))
                self._written += 1

    def _record(self, number: int, line: Line) -> bytes:
        microseconds = max(0, int((self._epoch + line.at - self._boot) * 1e6))
        return f"{_LEVEL},{number},{microseconds},-;{line.text}\n".encode()


def _sequence(record: bytes) -> int | None:
    parts = record.split(b",", 2)
    return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else None


def boot_time() -> float:
    """Say when this machine booted: readers of kernel logs count from there."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


class Stage:
    """Does what the scenario does to the process and the kernel log."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        started: float,
        *,
        log: KernelLog | None,
        emit_raw: Callable[[bytes], None] | None,
        crash: Callable[[], None],
        ignore_sigterm: Callable[[bool], None],
    ) -> None:
        self._log = log
        self._emit_raw, self._crash, self._ignore_sigterm = emit_raw, crash, ignore_sigterm
        faults = scenario.faults
        self._crashes = sorted(
            fault.at for fault in faults if fault.kind == "crash" and fault.at > started
        )
        self._garbage = [fault for fault in faults if fault.kind == "garbage"]
        self._stubborn = [fault for fault in faults if fault.kind == "stubborn"]
        self._is_stubborn = False
        self._seed = seed
        self._junked = -math.inf
        self._lock = threading.Lock()
        self._asleep = (-math.inf, -math.inf)  # nothing to do between these

    def tick(self, t: float) -> None:
        """Do what is due. Cheap when nothing is; safe from any thread."""
        since, until = self._asleep
        if since <= t < until or not self._lock.acquire(blocking=False):
            return
        try:
            if self._log is not None:
                self._log.write_due(t)
            self._set_stubborn(on=any(fault.active(t) for fault in self._stubborn))
            if any(fault.active(t) for fault in self._garbage):
                self._junk(t)
            if self._crashes and t >= self._crashes[0]:
                del self._crashes[0]
                self._crash()
            self._asleep = (t, self._next_due(t))
        finally:
            self._lock.release()

    def _next_due(self, t: float) -> float:
        moments = [self._log.next_due] if self._log is not None else []
        moments += self._crashes[:1]
        windows = self._garbage + self._stubborn
        moments += [when for fault in windows for when in (fault.at, fault.until) if when > t]
        if any(fault.active(t) for fault in self._garbage):
            moments.append(t + _GARBAGE_EVERY_S)
        return min(moments, default=math.inf)

    def _set_stubborn(self, *, on: bool) -> None:
        if on != self._is_stubborn:
            self._is_stubborn = on
            self._ignore_sigterm(on)

    def _junk(self, t: float) -> None:
        if self._emit_raw is not None and t - self._junked >= _GARBAGE_EVERY_S:
            self._junked = t
            source = random.Random(f"{self._seed} {int(t / _GARBAGE_EVERY_S)}")  # noqa: S311
            self._emit_raw(source.randbytes(source.randint(40, 400)) + b"\n")


def crash_now() -> None:
    """End this process as a fault in the driver's library does."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no core file: it was on purpose
    os.kill(os.getpid(), signal.SIGSEGV)


def ignore_sigterm(on: bool) -> None:  # noqa: FBT001
    """Make this process deaf to SIGTERM, or as it was before.

    Driver calls run in threads, where Python cannot set signal handlers, so
    the C library is asked. A process stuck in the driver is deaf the same way.
    """
    import ctypes

    libc_signal = ctypes.CDLL(None).signal
    libc_signal.restype = ctypes.c_void_p
    libc_signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    if on:
        _handlers.append(libc_signal(signal.SIGTERM, int(signal.SIG_IGN)))
    elif _handlers:
        libc_signal(signal.SIGTERM, _handlers.pop())


_handlers: list[int | None] = []
