# SPDX-License-Identifier: Apache-2.0
"""The file ``events.db``: the only place that knows SQL and imports ``sqlite3``.

Everything here may block on the disk. Errors leave as ``StoreError``.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from cardwatch.journal.records import Counter, CounterKey, Mark, Row
from cardwatch.journal.schema import STEPS
from cardwatch.kmsg.position import Position

FILE = "events.db"
CORRUPT = "corrupt"
NEWER = "newer"
UNAVAILABLE = "unavailable"

_BUSY_S = 5.0
_WAL_BYTES = 4 * 1024 * 1024
_MAX_MARKS = 1000
_NO_CODE = -1  # a key column cannot be NULL
_CLOCK_WAS_SET = 1577836800.0  # 2020: an earlier time is that of a clock before it was set
_AHEAD_S = 86400.0
_NO_LIMIT = 2**63 - 1
_FULL, _ROOM = 0.95, 0.85
_ROW_FIELDS = tuple(part.name for part in fields(Row))
_EVENT_COLUMNS = ", ".join("class" if name == "cls" else name for name in _ROW_FIELDS)


class StoreError(Exception):
    """The file cannot be used: ``corrupt``, written by a ``newer`` version, or ``unavailable``."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass
class Contents:
    """What an earlier run left, save the events themselves."""

    counters: dict[CounterKey, Counter] = field(default_factory=dict)
    positions: dict[str, Position] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)
    last_row: int = 0
    """The highest number of a row."""


@dataclass
class Changes:
    """What one transaction writes, in absolute terms: to write it twice is to write it once.

    Each row has its number.
    """

    rows: Sequence[Row] = ()
    counters: Mapping[CounterKey, Counter] = field(default_factory=dict)
    positions: Iterable[Position] = ()
    marks: Sequence[Mark] = ()
    anew: bool = False
    """The counters on disk do not go on from where ours began: replace them all."""


@contextlib.contextmanager
def _explained(path: Path) -> Generator[None, None, None]:
    try:
        yield
    except sqlite3.Error as error:
        text = f"{path}: {error}"
        # Only damage is told by the base class; full, read-only, busy are OperationalError.
        if type(error) is sqlite3.DatabaseError or "no such" in str(error):
            raise StoreError(CORRUPT, text) from error
        raise StoreError(UNAVAILABLE, text) from error
    except OSError as error:
        raise StoreError(UNAVAILABLE, f"{path}: {error.strerror or error}") from error
    except (ValueError, TypeError) as error:  # of a value that is not what its column holds
        raise StoreError(CORRUPT, f"{path}: {error}") from error


class Store:
    """An open journal file. For the thread that opened it only."""

    def __init__(self, directory: Path, steps: Sequence[Sequence[str]] = STEPS) -> None:
        """Open the file, make it if there is none, and bring its tables up to date."""
        self.path = directory / FILE
        self._last_mark = 0
        with _explained(self.path):
            directory.mkdir(parents=True, exist_ok=True)
            _create(self.path)
            self._db = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None)
        try:
            with _explained(self.path):
                self._prepare(steps)
                self._data_version = self._number("PRAGMA data_version")
        except StoreError:
            self.close()
            raise

    def _prepare(self, steps: Sequence[Sequence[str]]) -> None:
        db = self._db
        found = " ".join(str(db.execute("PRAGMA quick_check(1)").fetchone()[0]).split())
        if found != "ok":
            raise StoreError(CORRUPT, f"{self.path}: {found}")
        version = self._number("PRAGMA user_version")
        if version > len(steps):
            raise StoreError(NEWER, f"{self.path}: was written by a newer version")
        if version == 0 and self._number("SELECT count(*) FROM sqlite_master"):
            raise StoreError(CORRUPT, f"{self.path}: has tables that are not ours")
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # before the first table
        db.execute("PRAGMA journal_mode = WAL")
        # The last lines before a node dies are what a journal is for: they must outlive the power.
        db.execute("PRAGMA synchronous = FULL")
        db.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
        for number, step in enumerate(steps[version:], version + 1):
            with self._transaction():
                for statement in step:
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {number}")

    @contextlib.contextmanager
    def _transaction(self) -> Generator[None, None, None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise

    def _number(self, query: str) -> int:
        return int(self._db.execute(query).fetchone()[0])

    def close(self) -> None:
        """Close the file. What was committed is on disk already."""
        with contextlib.suppress(sqlite3.Error):
            self._db.close()

    # -- reading and writing ------------------------------------------------------------------

    def load(self) -> Contents:
        """Read what an earlier run left; its marks count as known."""
        with _explained(self.path):
            self._last_mark = self._number("SELECT coalesce(max(id), 0) FROM marks")
            return _contents(self._db)

    def write(self, changes: Changes) -> list[Mark]:
        """Write in one transaction; return the marks that others had put there since."""
        last_mark = self._last_mark
        try:
            with _explained(self.path), self._transaction():
                self._write_rows(changes.rows)
                if changes.anew:
                    self._db.execute("DELETE FROM counters")
                self._write_counters(changes.counters)
                self._db.executemany(
                    "INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?)",
                    [(p.source, p.boot_id, p.seq, p.detail) for p in changes.positions],
                )
                others = self._new_marks()
                for mark in changes.marks:
                    self._last_mark = _insert_mark(self._db, mark)
        except StoreError:
            self._last_mark = last_mark
            raise
        return others

    def _write_rows(self, rows: Sequence[Row]) -> None:
        self._db.executemany(
            f"INSERT INTO events ({_EVENT_COLUMNS}) "  # noqa: S608  (column names of our own)
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
            "count = excluded.count, last_time = excluded.last_time, message = excluded.message, "
            "source = excluded.source, detail = excluded.detail",
            [_values(row) for row in rows],
        )

    def _write_counters(self, counters: Mapping[CounterKey, Counter]) -> None:
        self._db.executemany(
            "INSERT OR REPLACE INTO counters VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (k.gpu, k.kind, _NO_CODE if k.code is None else k.code, k.cls, k.severity,
                 c.count, c.first_time, c.last_time)
                for k, c in counters.items()
            ],
        )  # fmt: skip

    def marks_of_others(self) -> list[Mark]:
        """Return marks that another process wrote since the last look."""
        with _explained(self.path):
            version = self._number("PRAGMA data_version")
            if version == self._data_version:
                return []
            self._data_version = version
            return self._new_marks()

    def _new_marks(self) -> list[Mark]:
        found = self._db.execute(
            "SELECT id, gpu, kind, time, origin FROM marks WHERE id > ? ORDER BY id",
            (self._last_mark,),
        ).fetchall()
        if found:
            self._last_mark = found[-1][0]
        return [Mark(*row[1:]) for row in found]

    # -- retention ----------------------------------------------------------------------------

    def retain(self, now: float, age_s: float, max_bytes: int) -> None:
        """Delete events that are too old, then the oldest until the file is small enough."""
        with _explained(self.path):
            self._delete_aged(now, now - age_s)
            while self._used_bytes() > max_bytes * _FULL:
                if not self._delete_oldest(max_bytes * _ROOM / self._used_bytes()):
                    break
            if self._number("PRAGMA page_count") * self._number("PRAGMA page_size") > max_bytes:
                # execute() would stop after the first page: the statement's rows have no columns.
                self._db.executescript("PRAGMA incremental_vacuum")

    def is_full(self, max_bytes: int) -> bool:
        """Say whether the file takes up all that it may."""
        with _explained(self.path):
            return self._used_bytes() > max_bytes * _FULL

    def _delete_aged(self, now: float, cutoff: float) -> None:
        """Delete from the front, and no further than the first row that is young.

        Rows are in the order of arrival. A clock that was wrong for a while gives
        rows a wrong age, which must cost neither them nor the rows around them.
        """
        young = self._db.execute(
            "SELECT min(id) FROM events WHERE last_time BETWEEN ? AND ?", (cutoff, now + _AHEAD_S)
        ).fetchone()[0]
        last = self._db.execute(
            "SELECT max(id) FROM events WHERE last_time >= ? AND last_time < ? AND id < ?",
            (_CLOCK_WAS_SET, cutoff, _NO_LIMIT if young is None else young),
        ).fetchone()[0]
        if last is not None:
            self._db.execute("DELETE FROM events WHERE id <= ?", (last,))

    def _used_bytes(self) -> int:
        pages = self._number("PRAGMA page_count") - self._number("PRAGMA freelist_count")
        return pages * self._number("PRAGMA page_size")

    def _delete_oldest(self, keep: float) -> int:
        """Delete all but this share of the rows, at least one; return how many."""
        rows = self._number("SELECT count(*) FROM events")
        count = min(rows, max(1, int(rows * (1 - keep))))
        return self._db.execute(
            "DELETE FROM events WHERE id IN (SELECT id FROM events ORDER BY id LIMIT ?)", (count,)
        ).rowcount


# -- for other threads and processes ----------------------------------------------------------


def read_contents(directory: Path) -> Contents:
    """Read what is there, without a lock and without writing."""
    path = directory / FILE
    with _explained(path), contextlib.closing(_read_only(path)) as db:
        return _contents(db)


def read_events(
    directory: Path, since: float | None = None, gpu: str | None = None, limit: int = 1000
) -> list[Row]:
    """Return the newest rows first. Works while another process writes; none without a file."""
    path = directory / FILE
    if not path.exists():
        return []
    with _explained(path), contextlib.closing(_read_only(path)) as db:
        found = db.execute(
            f"SELECT {_EVENT_COLUMNS} FROM events "  # noqa: S608  (column names of our own)
            "WHERE (? IS NULL OR last_time >= ?) AND (? IS NULL OR gpu = ?) "
            "ORDER BY id DESC LIMIT ?",
            (since, since, gpu, gpu, limit),
        ).fetchall()
        return [_row(values) for values in found]


def add_mark(directory: Path, mark: Mark) -> None:
    """Write a mark from any process; whoever keeps the journal notices it."""
    store = Store(directory)
    try:
        store.load()
        store.write(Changes(marks=[mark]))
    finally:
        store.close()


def set_aside(directory: Path, keep: int = 3) -> str:
    """Rename the file to ``events.db.broken-<n>`` and return that name; keep the newest few."""
    path = directory / FILE
    with _explained(path):
        broken = sorted(
            (int(number), found)
            for found in directory.glob(f"{FILE}.broken-*")
            if (number := found.name.rpartition("-")[2]).isdigit()
        )
        name = f"{FILE}.broken-{broken[-1][0] + 1 if broken else 1}"
        path.replace(directory / name)
        for suffix in ("-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                path.with_name(FILE + suffix).unlink()
        for _number, found in broken[: max(0, len(broken) + 1 - keep)]:
            found.unlink()
    return name


def _create(path: Path) -> None:
    """Make the file readable for its group only, and owned like the directory it is in."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
    except FileExistsError:
        return
    try:
        if os.geteuid() == 0:
            owner = path.parent.stat()
            os.fchown(file, owner.st_uid, owner.st_gid)
    finally:
        os.close(file)


def _read_only(path: Path) -> sqlite3.Connection:
    """Open for reading; a disk that cannot be written has no room for a lock file either."""
    address = path.absolute().as_uri()
    db = sqlite3.connect(f"{address}?mode=ro", uri=True, timeout=_BUSY_S, isolation_level=None)
    try:
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        db.close()
        return sqlite3.connect(f"{address}?immutable=1", uri=True, isolation_level=None)
    return db


def _contents(db: sqlite3.Connection) -> Contents:
    contents = Contents()
    for gpu, kind, code, cls, severity, count, first, last in db.execute("SELECT * FROM counters"):
        key = CounterKey(gpu, kind, None if code == _NO_CODE else code, cls, severity)
        contents.counters[key] = Counter(count, first, last)
    for values in db.execute("SELECT source, boot_id, seq, detail FROM positions"):
        contents.positions[values[0]] = Position(*values)
    for values in db.execute("SELECT gpu, kind, time, origin FROM marks ORDER BY id"):
        contents.marks.append(Mark(*values))
    contents.last_row = db.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()[0]
    return contents


def _insert_mark(db: sqlite3.Connection, mark: Mark) -> int:
    values = (mark.gpu, mark.kind, mark.time, mark.origin)
    number = db.execute(
        "INSERT INTO marks (gpu, kind, time, origin) VALUES (?, ?, ?, ?)", values
    ).lastrowid
    assert number is not None
    db.execute("DELETE FROM marks WHERE id <= ?", (number - _MAX_MARKS,))
    return number


def _values(row: Row) -> tuple[Any, ...]:
    return (
        row.id, row.time, row.last_time, row.gpu, row.kind, row.code, row.cls, row.severity,
        row.action, row.source, int(row.old), row.count, row.message, _json(row.detail),
        _json(row.extra),
    )  # fmt: skip


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


def _row(values: tuple[Any, ...]) -> Row:
    named = dict(zip(_ROW_FIELDS, values, strict=True))
    named["old"] = bool(named["old"])
    named["detail"] = json.loads(named["detail"])
    named["extra"] = json.loads(named["extra"])
    return Row(**named)
