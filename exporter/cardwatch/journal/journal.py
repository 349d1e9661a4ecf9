# SPDX-License-Identifier: Apache-2.0
"""The journal of a running exporter: told by any thread, written by one of its own.

Telling it something changes memory at once and never waits for the disk. The
writer takes what has gathered, counters and log positions of one moment
together, and writes it in one transaction: whatever ends the process, the next
one goes on exactly there. While the disk refuses, memory keeps what it can and
the writer tries again.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from cardwatch.journal import store as disk
from cardwatch.journal.image import Image
from cardwatch.journal.records import Counter, CounterKey, Entry, Mark, Row, Status
from cardwatch.journal.store import Contents, Store, StoreError
from cardwatch.kmsg.position import Position

log = logging.getLogger("cardwatch.journal")

LOCK = "events.lock"
RETENTION_S = 30 * 86400.0
MAX_BYTES = 64 * 1024 * 1024
RETRY_S = 30.0

_LOOK_S = 1.0
_MOVE_S = 60.0
"""A position without events is written this often: it costs the disk more than it saves."""

_RETAIN_EVERY_S = 600.0
_STUCK_S = 10.0
_READ_TRIES = 5
_DAY_S = 86400.0
_UNNUMBERED = 2**63


class Journal:
    """Counters, events, marks and log positions of this node, kept across restarts.

    ``directory`` None keeps everything in memory, which is then no problem.
    """

    def __init__(
        self,
        directory: Path | None,
        *,
        retention_s: float = RETENTION_S,
        max_bytes: int = MAX_BYTES,
        retry_s: float = RETRY_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._directory = directory
        self._retention_s, self._max_bytes, self._retry_s = retention_s, max_bytes, retry_s
        self._clock = clock
        self._lock = threading.Lock()
        self._image = Image()
        self._others_marks: list[Mark] = []
        self._problem: str | None = None
        self._set_aside: str | None = None
        self._restored = False
        self._written_at: float | None = None
        self._busy_since: float | None = None
        self._loaded = threading.Event()
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        # the writer's own
        self._store: Store | None = None
        self._lock_file = -1
        self._moved_at = self._retained_at = self._put_away_at = float("-inf")
        self._opened = (clock(), time.monotonic())

    # -- for other threads --------------------------------------------------------------------

    def open(self, wait: float = 1.0) -> bool:
        """Start the writer and wait for what an earlier run left. False if it is not read yet."""
        if self._directory is None:
            self._loaded.set()
        elif self._thread is None:
            self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
            self._thread.start()
        return self._loaded.wait(wait)

    def commit(self, entries: Iterable[Entry], position: Position | None = None) -> None:
        """Note events, and the log position behind them, as one."""
        with self._lock:
            self._image.add(entries, position, self._clock())
            urgent = self._image.urgent
        if urgent:
            self._wake.set()

    def mark(self, mark: Mark) -> None:
        """Note something done to a card by this process."""
        with self._lock:
            self._image.mark(mark, write=self._directory is not None)
        self._wake.set()

    def poll_marks(self) -> list[Mark]:
        """Return marks that other processes wrote since the last call."""
        with self._lock:
            marks, self._others_marks = self._others_marks, []
        return marks

    def counters(self) -> dict[CounterKey, Counter]:
        """Return every counter, with the last times."""
        with self._lock:
            return dict(self._image.counters)

    def position(self, source: str) -> Position | None:
        """Return how far a log was read."""
        with self._lock:
            return self._image.positions.get(source)

    def marks(self) -> list[Mark]:
        """Return the marks that are known, oldest first."""
        with self._lock:
            return list(self._image.marks)

    def events(
        self, since: float | None = None, gpu: str | None = None, limit: int = 1000
    ) -> list[Row]:
        """Return the newest rows first, those that wait for the disk included. May block on it."""
        for _ in range(_READ_TRIES):
            with self._lock:
                waiting, writes = self._image.waiting_rows(), self._image.writes
            on_disk = self._on_disk(since, gpu, limit)
            if self._image.writes == writes:
                break  # else rows went from there to here meanwhile
        newer = {row.id for row in waiting}
        rows = [row for row in on_disk if row.id not in newer]
        rows += [
            row
            for row in reversed(waiting)
            if (since is None or row.last_time >= since) and (gpu is None or row.gpu == gpu)
        ]
        # By arrival, which no clock confuses: rows without a number came last.
        rows.sort(key=lambda row: row.id or _UNNUMBERED, reverse=True)
        return rows[:limit]

    def _on_disk(self, since: float | None, gpu: str | None, limit: int) -> list[Row]:
        if self._directory is None:
            return []
        try:
            return disk.read_events(self._directory, since, gpu, limit)
        except StoreError as error:
            log.debug("journal: %s", error)  # the status has it
            return []

    def status(self) -> Status:
        """Return how the journal fares at this moment."""
        busy = self._busy_since
        problem = self._problem
        if busy is not None and time.monotonic() - busy > _STUCK_S:
            problem = f"{self._directory}: the disk does not answer"
        with self._lock:
            return Status(
                problem=problem,
                loaded=self._loaded.is_set(),
                restored=self._restored,
                set_aside=self._set_aside,
                dropped=self._image.drafts.dropped,
                pending=self._image.pending,
                written_at=self._written_at,
            )

    def close(self, timeout: float = 2.0) -> bool:
        """Write what is there and end the writer. True when it ended in time."""
        self._stopping = True
        self._wake.set()
        thread, self._thread = self._thread, None
        if thread is None:
            return True
        thread.join(timeout)
        return not thread.is_alive()

    # -- the writer ---------------------------------------------------------------------------

    def _run(self) -> None:
        retry_at = float("-inf")
        while True:
            stopping = self._stopping
            if self._store is None and (stopping or time.monotonic() >= retry_at):
                self._attempt(self._connect)
                self._loaded.set()
                retry_at = time.monotonic() + self._retry_s
            if self._store is not None:
                self._attempt(self._work)
            if stopping:
                break
            self._wake.wait(_LOOK_S)
            self._wake.clear()
        self._disconnect()
        self._let_go()

    def _attempt(self, step: Callable[[], None]) -> None:
        """Do one step on the disk; whatever goes wrong becomes the problem."""
        self._busy_since = time.monotonic()
        try:
            step()
        except StoreError as error:
            self._disconnect()
            self._fail(str(error))
            if error.reason in (disk.CORRUPT, disk.NEWER):
                self._put_away(error)
        except Exception as error:
            log.exception("journal: the writer failed and starts anew")
            self._disconnect()
            self._fail(repr(error))
        finally:
            self._busy_since = None

    def _fail(self, problem: str) -> None:
        if problem != self._problem:
            log.error("journal: %s; events are kept in memory", problem)
        self._problem = problem

    def _connect(self) -> None:
        assert self._directory is not None
        try:
            self._take_lock(self._directory)
            store = Store(self._directory)
        except (StoreError, OSError) as error:
            self._load_only()
            if isinstance(error, OSError):
                raise StoreError(disk.UNAVAILABLE, str(error)) from error
            raise
        self._store = store
        self._restore(store.load())

    def _restore(self, contents: Contents) -> None:
        with self._lock:
            image = self._image
            image.number_rows_after(contents.last_row)
            if self._restored:  # by an earlier connection: only what others did since is news
                known = set(image.marks)
                for mark in contents.marks:
                    if mark not in known:
                        image.mark(mark, write=False)
                        self._others_marks.append(mark)
            elif self._loaded.is_set() or image.positions:
                # The page went on without it, and the log was read from its start: a jump of
                # the counters now would look like that many new events.
                image.start_anew()
            else:
                image.restore(contents)
            self._restored = True

    def _load_only(self) -> None:
        """Read what an earlier run left where nothing can be written."""
        assert self._directory is not None
        if self._loaded.is_set():
            return
        try:
            contents = disk.read_contents(self._directory)
        except StoreError:
            return
        self._restore(contents)

    def _take_lock(self, directory: Path) -> None:
        """Be the only writer, also while the disk refuses: two would overwrite each other."""
        path = directory / LOCK
        if self._lock_file >= 0:
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(self._lock_file), path.stat()):
                    return
            self._let_go()
        directory.mkdir(parents=True, exist_ok=True)
        # Open for reading is enough, and leaves an operator free to make the disk read-only.
        file = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(file)
            if isinstance(error, BlockingIOError):
                text = f"{directory}: another exporter keeps its journal here"
                raise StoreError(disk.UNAVAILABLE, text) from error
            raise
        self._lock_file = file

    def _let_go(self) -> None:
        file, self._lock_file = self._lock_file, -1
        if file >= 0:
            os.close(file)

    def _disconnect(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def _put_away(self, error: StoreError) -> None:
        """Set a file aside that cannot be used, and begin another one at once."""
        assert self._directory is not None
        if time.monotonic() - self._put_away_at < self._retry_s:
            return  # the disk itself is what is broken
        self._put_away_at = time.monotonic()
        try:
            self._take_lock(self._directory)
            name = disk.set_aside(self._directory)
            log.error("journal: %s; it is now %s, and a new one begins", error, name)
            with self._lock:
                self._set_aside = name
                self._restored = True  # by what memory has
                self._image.start_anew()
                self._image.rewrite_marks()
            self._store = Store(self._directory)
            self._store.load()
            self._problem = None
        except (StoreError, OSError) as second:
            self._disconnect()
            self._fail(str(second))

    def _work(self) -> None:
        """Write what has gathered, look for marks of others, and keep the file small."""
        assert self._store is not None
        now = time.monotonic()
        with self._lock:
            due = self._image.urgent or (
                self._image.changed and (self._stopping or now - self._moved_at >= _MOVE_S)
            )
        if due:
            self._moved_at = now
            self._write(self._store)
        self._note_others(self._store.marks_of_others())
        if now - self._retained_at >= _RETAIN_EVERY_S or self._store.is_full(self._max_bytes):
            self._retained_at = now
            self._store.retain(self._plausible_now(), self._retention_s, self._max_bytes)
        if self._problem is not None:
            log.warning("journal: %s is written again", self._store.path)
        self._problem = None

    def _write(self, store: Store) -> None:
        with self._lock:
            taken = self._image.take()
        try:
            others = store.write(taken.changes)
        except BaseException:
            with self._lock:
                self._image.put_back(taken)
            raise
        with self._lock:
            self._image.written()
        self._written_at = self._clock()
        self._note_others(others)

    def _note_others(self, marks: list[Mark]) -> None:
        with self._lock:
            for mark in marks:
                self._image.mark(mark, write=False)
                self._others_marks.append(mark)

    def _plausible_now(self) -> float:
        """Return the time for retention: a clock that leaps ahead must not empty the journal."""
        wall, monotonic = self._opened
        return min(self._clock(), wall + (time.monotonic() - monotonic) + _DAY_S)
