# SPDX-License-Identifier: Apache-2.0
"""Writes ``[gpu-health]`` lines in a thread of its own: a full pipe or disk delays nobody."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from cardwatch.healthlog.files import WorkloadFiles
from cardwatch.healthlog.line import Notice, written
from cardwatch.healthlog.rate import Rate

log = logging.getLogger("cardwatch.healthlog")

_MAX_WAITING = 2000
_MAX_PROBLEMS = 100
_IDLE_S = 60.0


def to_stderr(line: str) -> None:
    """Write a line where the process logs."""
    sys.stderr.write(line + "\n")


class HealthLog:
    """Logs events, at a bounded rate, to ``emit`` and to the files of the workloads."""

    def __init__(
        self,
        *,
        form: str = "logfmt",
        directory: Path | None = None,
        emit: Callable[[str], None] = to_stderr,
        files: WorkloadFiles | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._form, self._emit, self._clock = form, emit, clock
        self._files = files or (WorkloadFiles(directory) if directory is not None else None)
        self._rate: Rate[tuple[str, ...]] = Rate()
        self._waiting: deque[tuple[Notice, tuple[str, ...]]] = deque()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._problems: dict[str, str] = {}
        self.dropped = 0

    def start(self) -> None:
        """Start the thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="health-log", daemon=True)
            self._thread.start()

    def note(self, notice: Notice, workloads: Sequence[str] = ()) -> None:
        """Log an event, also into the files of these workloads. Never waits."""
        with self._lock:
            self._queue(self._rate.take(notice, tuple(workloads), self._clock()))
        self._wake.set()

    @property
    def problem(self) -> str | None:
        """Why lines miss in a file; they still went to ``emit``."""
        return next(iter(tuple(self._problems.values())), None)

    def _queue(self, lines: list[tuple[Notice, tuple[str, ...]]]) -> None:
        for line in lines:
            if len(self._waiting) >= _MAX_WAITING:
                self.dropped += 1
            else:
                self._waiting.append(line)

    def close(self, timeout: float = 1.0) -> bool:
        """Write what was gathered and end the thread. True when it ended in time."""
        with self._lock:
            self._stopping = True
            self._queue(self._rate.rest())
        self._wake.set()
        thread, self._thread = self._thread, None
        if thread is None:
            return True
        thread.join(timeout)
        return not thread.is_alive()

    # -- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            self._wake.clear()
            with self._lock:
                now = self._clock()
                self._queue(self._rate.due(now))
                lines = list(self._waiting)
                self._waiting.clear()
                stopping = self._stopping
                next_due = self._rate.next_due()
            for notice, workloads in lines:
                self._write(notice, workloads)
            if stopping:
                return
            self._wake.wait(_IDLE_S if next_due is None else max(0.0, next_due - now))

    def _write(self, notice: Notice, workloads: tuple[str, ...]) -> None:
        try:
            line = written(notice, self._form)
        except Exception:
            log.exception("a health line could not be made of %r", notice)
            return
        with contextlib.suppress(OSError, ValueError):  # nobody reads our log any more
            self._emit(line)
        for workload in workloads if self._files is not None else ():
            self._append(workload, line)

    def _append(self, workload: str, line: str) -> None:
        assert self._files is not None
        try:
            self._files.append(workload, line)
        except OSError as error:
            problem = f"{workload!r}: {error.strerror or error}"
            if problem != self._problems.get(workload):
                log.error("health log: %s", problem)
            if len(self._problems) < _MAX_PROBLEMS:
                self._problems[workload] = problem
        else:
            self._problems.pop(workload, None)
