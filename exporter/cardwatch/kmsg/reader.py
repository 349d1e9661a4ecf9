# SPDX-License-Identifier: Apache-2.0
"""The thread that reads the kernel log and hands on batches, for as long as the process lives.

Whatever goes wrong, it says so in its status and tries again. It works in
slices of a millisecond with pauses between them, so that a flood delays
nobody else in the process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from cardwatch.kmsg.batch import Batch
from cardwatch.kmsg.clock import RecordClock
from cardwatch.kmsg.digest import Digest, Parse, Settle
from cardwatch.kmsg.follow import FileSource
from cardwatch.kmsg.intake import Counts, Intake, mark_of
from cardwatch.kmsg.numbering import Line
from cardwatch.kmsg.position import Position
from cardwatch.kmsg.sources import DeviceSource, FifoSource, Source, SourceError, explain

log = logging.getLogger("cardwatch.kmsg")

OFF = "off"
BOOT_ID = Path("sys/kernel/random/boot_id")

_SLICE_S = 0.001
_PAUSE_S = 0.0005
_CHECK_EVERY = 32
"""So many records between two looks at the clock within a slice."""

_QUIET_S = 0.5
"""After so long without a record of ours the parser need not hold back anything."""

_BATCH_S = 0.25
_BATCH_ENTRIES = 256
_MOVE_S = 10.0
"""The position alone is handed on this often while only other people's records come."""

_FIRST_RETRY_S = 0.5
_LAST_RETRY_S = 30.0

OpenSource = Callable[[Path, tuple[int, ...], Line | None], Source]


@dataclass(frozen=True)
class Status:
    """How the reader fares. ``error`` fits the label; ``detail`` is for people."""

    enabled: bool
    up: bool = False
    error: str | None = None
    detail: str = ""
    last_success: float | None = None
    parser_errors: int = 0
    counts: Counts = field(default_factory=Counts)


def read_boot_id(procfs: Path = Path("/proc")) -> str:
    """Return the id of this boot, or ``unknown``."""
    try:
        return (procfs / BOOT_ID).read_text().strip()[:64] or "unknown"
    except OSError:
        return "unknown"


def open_source(path: Path, mark: tuple[int, ...], last: Line | None) -> Source:
    """Open what is at the path. ``mark`` and ``last`` are where to go on in a file."""
    mode = path.stat().st_mode
    if stat.S_ISCHR(mode):
        return DeviceSource(path)
    if stat.S_ISFIFO(mode):
        return FifoSource(path)
    if stat.S_ISREG(mode):
        return FileSource(path, mark, last)
    raise SourceError("unsupported_file", "is no device, FIFO or regular file")


class KernelLog:
    """Reads one kernel log.

    ``parse`` makes events of a line; ``settle`` gives those that it still held
    back when the log has been quiet for a moment. ``deliver`` is called in the reader's
    thread; a batch for which it raises is given to it again. ``on_change``
    is called there too, whenever the source comes up or goes down.
    """

    def __init__(
        self,
        path: Path | str,
        parse: Parse,
        deliver: Callable[[Batch], None],
        *,
        settle: Settle | None = None,
        position: Position | None = None,
        boot_id: str = "unknown",
        any_facility: bool = False,
        on_change: Callable[[Status], None] | None = None,
        clock: RecordClock | None = None,
        opener: OpenSource = open_source,
        retry_s: tuple[float, float] = (_FIRST_RETRY_S, _LAST_RETRY_S),
    ) -> None:
        self._path = Path(path)
        self._deliver, self._on_change, self._opener = deliver, on_change, opener
        self._retry_s = retry_s
        self._clock = clock or RecordClock()
        self._digest = Digest(parse, settle, self._clock)
        self._position = position
        self._intake = Intake(
            self._digest,
            self._clock,
            source=str(path),
            boot_id=boot_id,
            position=position,
            any_facility=any_facility,
        )
        self._status = Status(enabled=str(path) != OFF)
        self._stopping = threading.Event()
        self._wake_out, self._wake_in = -1, -1
        self._thread: threading.Thread | None = None
        self._handed_at = self._record_at = float("-inf")

    # -- for other threads --------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread, unless the log is switched off."""
        if not self._status.enabled or self._thread is not None:
            return
        self._wake_out, self._wake_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="kmsg", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 1.0) -> bool:
        """Ask the thread to hand on what it has and end. True when it did."""
        self._stopping.set()
        thread, self._thread = self._thread, None
        if thread is None:
            return True
        with contextlib.suppress(OSError):
            os.write(self._wake_in, b"x")
        thread.join(timeout)
        if thread.is_alive():
            return False
        os.close(self._wake_in)
        os.close(self._wake_out)
        return True

    def status(self) -> Status:
        """Return how the reader fares at this moment."""
        counts = replace(self._intake.counts, lost=self._intake.lost())
        return replace(self._status, counts=counts, parser_errors=self._digest.parser_errors)

    # -- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        self._delay_s = self._retry_s[0]
        while not self._stopping.is_set():
            try:
                self._read_source()
            except SourceError as error:
                self._failed(error.code, str(error))
            except OSError as error:
                explained = explain(error)
                self._failed(explained.code, str(explained))
            except Exception as error:
                log.exception("kernel log: the reader failed and starts anew")
                self._failed("internal_error", repr(error))
            if not self._stopping.wait(self._delay_s):
                self._delay_s = min(self._delay_s * 2, self._retry_s[1])

    def _read_source(self) -> None:
        last = self._intake.last_line
        source = self._opener(self._path, mark_of(self._position), last)
        try:
            self._intake.opened(source)
            self._follow(source)
        finally:
            try:
                if self._stopping.is_set():
                    self._digest.settle()
                self._hand_on(source, move=self._stopping.is_set())
            finally:
                source.close()

    def _follow(self, source: Source) -> None:
        waited = False
        while not self._stopping.is_set():
            piece = source.read()
            self._succeeded()
            taken = self._digest.taken
            self._take(source, piece.records)
            self._clock.adjust(self._intake.newest_usec if waited and piece.caught_up else None)
            now = time.monotonic()
            if self._digest.taken > taken:
                self._record_at = now
            elif piece.caught_up and now - self._record_at >= _QUIET_S:
                self._digest.settle()
            due = now - self._handed_at >= _BATCH_S or self._digest.size >= _BATCH_ENTRIES
            if piece.caught_up or due:
                self._hand_on(source, move=now - self._handed_at >= _MOVE_S)
            waited = piece.caught_up
            if not piece.caught_up:
                time.sleep(_PAUSE_S)
            elif source.kernel and self._intake.is_another_log():
                log.warning("kernel log: the kept position is not of this log; read from its start")
                return
            else:
                self._wait(source)

    def _take(self, source: Source, records: list[bytes]) -> None:
        self._intake.newest_usec = None
        take = self._intake.take_kernel if source.kernel else self._intake.take_line
        end = time.monotonic() + _SLICE_S
        for number, record in enumerate(records, 1):
            take(record)
            if number % _CHECK_EVERY == 0 and time.monotonic() > end:
                time.sleep(_PAUSE_S)
                end = time.monotonic() + _SLICE_S

    def _wait(self, source: Source) -> None:
        """Wait for more records, a stop, or the time to look anyway."""
        poll = select.poll()
        poll.register(self._wake_out, select.POLLIN)
        if source.fd is not None:
            poll.register(source.fd, select.POLLIN)
        soon = min(source.look_again_s, _QUIET_S) if self._digest.unsettled else source.look_again_s
        poll.poll(soon * 1000)

    def _hand_on(self, source: Source, *, move: bool) -> None:
        """Deliver what was gathered, and try until that succeeds: it must not be lost."""
        if not self._digest.size and not move:
            return
        position = self._intake.position(source)
        if position is None or (not self._digest.size and position == self._position):
            self._handed_at = time.monotonic()
            return
        batch = Batch(self._digest.flush(), position)
        delay = self._retry_s[0]
        while True:
            try:
                self._deliver(batch)
                break
            except Exception as error:
                log.exception("kernel log: a batch could not be delivered")
                self._failed("delivery_failed", repr(error))
                if self._stopping.wait(delay):
                    return  # not delivered, so its position is not kept either
                delay = min(delay * 2, self._retry_s[1])
        self._position = position
        self._handed_at = time.monotonic()

    # -- status -------------------------------------------------------------------------------

    def _succeeded(self) -> None:
        self._delay_s = self._retry_s[0]
        came_up = not self._status.up
        self._status = Status(enabled=True, up=True, last_success=time.time())
        if came_up:
            log.info("kernel log: reading %s", self._path)
            self._changed()

    def _failed(self, code: str, text: str) -> None:
        earlier = self._status
        self._status = replace(earlier, up=False, error=code, detail=f"{self._path}: {text}")
        if (earlier.up, earlier.error) != (False, code):
            log.error("kernel log: %s: %s (%s); will try again", self._path, text, code)
            self._changed()

    def _changed(self) -> None:
        if self._on_change is not None:
            try:
                self._on_change(self.status())
            except Exception:
                log.exception("kernel log: a change of status could not be told")
