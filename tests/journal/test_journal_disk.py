# SPDX-License-Identifier: Apache-2.0
"""A journal whose disk is full, read-only, damaged or not there."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from journal_harness import GPU, NOW, Disk, counts, entry, eventually, opened, small_disk

from cardwatch.journal import drafts, schema, store
from cardwatch.journal.journal import Journal
from cardwatch.journal.records import Mark
from cardwatch.journal.store import FILE, Changes, Store, StoreError, read_events
from cardwatch.kmsg.position import Position

PLACE = Position("/dev/kmsg", "boot", 17)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A small disk."""
    with small_disk(tmp_path / "disk") as disk:
        yield disk


def _on_disk(directory: Path) -> int:
    return sum(row.count for row in read_events(directory))


def test_a_full_disk_loses_nothing_that_memory_holds(disk: Disk) -> None:
    """Events go on counting, the problem is named, and all is written once there is room."""
    with opened(disk.directory, retry_s=0.05) as journal:
        journal.commit([entry(79)], PLACE)
        eventually(lambda: not journal.status().pending)
        disk.fill()
        for minute in range(1, 50):
            journal.commit([entry(79, NOW + 60 * minute, text="x" * 1500)])
        eventually(lambda: journal.status().problem)
        assert counts(journal) == {(GPU, 79): 50}
        if disk.mounted:  # where it is only pretended, nobody can read that disk either
            assert sum(row.count for row in journal.events()) == 50
        disk.free()
        eventually(lambda: not journal.status().problem and not journal.status().pending)
        assert journal.status().dropped == 0
    assert _on_disk(disk.directory) == 50
    with opened(disk.directory) as journal:
        assert counts(journal) == {(GPU, 79): 50}


def test_a_disk_that_is_full_at_the_start_still_tells_what_was(disk: Disk) -> None:
    """Counters go on from where they were, although nothing can be written."""
    with opened(disk.directory) as journal:
        journal.commit([entry(79, count=7)], PLACE)
    disk.fill()
    with opened(disk.directory, retry_s=0.05) as journal:
        assert counts(journal) == {(GPU, 79): 7}
        assert journal.position("/dev/kmsg") == PLACE
        journal.commit([entry(79, NOW + 60)])
        eventually(lambda: journal.status().problem)
        disk.free()
        eventually(lambda: not journal.status().problem and not journal.status().pending)
    with opened(disk.directory) as journal:
        assert counts(journal) == {(GPU, 79): 8}


def test_a_read_only_disk_tells_what_was_and_is_tried_again(disk: Disk) -> None:
    """The earlier counters are there, the problem is named, and ends with its cause."""
    if not disk.mounted:
        os.chmod(disk.directory, 0o555)  # not as good: root may write all the same
    with opened(disk.directory) as journal:
        journal.commit([entry(79, count=7)], PLACE)
    if not disk.mounted:
        return
    disk.read_only(True)
    with opened(disk.directory, retry_s=0.05) as journal:
        assert journal.status().problem
        assert counts(journal) == {(GPU, 79): 7}
        journal.commit([entry(79, NOW + 60)])
        assert [row.count for row in journal.events()] == [1, 7]
        disk.read_only(False)
        eventually(lambda: not journal.status().problem and not journal.status().pending)
    with opened(disk.directory) as journal:
        assert counts(journal) == {(GPU, 79): 8}


def test_a_directory_that_cannot_be_made_leaves_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The problem is logged once, not with every try, and everything else works."""
    (tmp_path / "file").touch()
    with opened(tmp_path / "file/state", retry_s=0.01) as journal:
        journal.commit([entry(79)], PLACE)
        first = journal.status().problem
        journal.commit([entry(79)])
        assert first == journal.status().problem is not None
        assert counts(journal) == {(GPU, 79): 2}
        assert journal.events(gpu=GPU)[0].count == 2
    assert len([r for r in caplog.records if r.levelno == logging.ERROR]) == 1


def test_a_disk_that_comes_late_gets_what_the_page_showed(tmp_path: Path) -> None:
    """Counters on it that the page never showed would look like new events, so they end."""
    with opened(tmp_path / "real") as journal:
        journal.commit([entry(79, count=100), entry(31, count=5)], PLACE)
    (tmp_path / "state").touch()
    with opened(tmp_path / "state", retry_s=0.05) as journal:
        journal.commit([entry(79, NOW + 60)], Position("/dev/kmsg", "boot", 18))
        (tmp_path / "state").unlink()
        (tmp_path / "real").rename(tmp_path / "state")
        eventually(lambda: not journal.status().problem and not journal.status().pending)
        assert counts(journal) == {(GPU, 79): 1}
    with opened(tmp_path / "state") as journal:
        assert counts(journal) == {(GPU, 79): 1}
        assert sum(row.count for row in journal.events()) == 106


def test_memory_is_bounded_and_says_what_it_gave_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest rows go first; counters are never given up."""
    rows = drafts.Drafts(limit=10)
    for minute in range(25):
        rows.add(entry(79, NOW + 60 * minute), NOW)
    assert len(rows) == 10
    assert rows.dropped == 15
    _last, taken = rows.take(0)
    rows.add(entry(79, NOW + 9999), NOW)
    rows.put_back(draft for draft, _row in taken)
    assert (len(rows), rows.dropped) == (10, 16)
    assert rows.rows()[-1].time == NOW + 9999


def _damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[100:3000] = b"\xa5" * 2900
    path.write_bytes(data)


@pytest.mark.parametrize("how", ["garbage", "page", "empty_page", "foreign"])
def test_a_damaged_file_is_set_aside(tmp_path: Path, how: str) -> None:
    """It is kept under another name, a new one begins, and the process goes on."""
    with opened(tmp_path) as journal:
        journal.commit([entry(79)], PLACE)
    path = tmp_path / FILE
    if how == "garbage":
        path.write_bytes(b"this is no database at all " * 400)
    elif how == "page":
        _damage(path)
    elif how == "empty_page":
        path.write_bytes(path.read_bytes()[:4096] + b"\0" * 40960)
    else:
        path.unlink()
        db = sqlite3.connect(path)
        db.execute("CREATE TABLE somebody_elses (x)")
        db.close()
    size = path.stat().st_size
    with opened(tmp_path) as journal:
        journal.commit([entry(31)])
        eventually(lambda: not journal.status().pending)
        assert journal.status().problem is None
        assert journal.status().set_aside == f"{FILE}.broken-1"
    assert (tmp_path / f"{FILE}.broken-1").stat().st_size == size
    with opened(tmp_path) as journal:
        assert counts(journal)[GPU, 31] == 1
        assert journal.status().set_aside is None


def test_damage_while_it_is_open_costs_history_and_no_counter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new file gets all that memory knows."""
    with opened(tmp_path) as journal:
        journal.commit([entry(79, count=7)], PLACE)
        journal.mark(Mark(GPU, "reset", NOW, "boot"))
        eventually(lambda: not journal.status().pending)
        failures = [StoreError(store.CORRUPT, "database disk image is malformed")]
        write = Store.write

        def failing(self: Store, changes: Changes) -> list[Mark]:
            if failures:
                raise failures.pop()
            return write(self, changes)

        monkeypatch.setattr(Store, "write", failing)
        journal.commit([entry(79, NOW + 60)])
        eventually(lambda: journal.status().set_aside)
        eventually(lambda: not journal.status().problem and not journal.status().pending)
    with opened(tmp_path) as journal:
        assert counts(journal) == {(GPU, 79): 8}
        assert journal.position("/dev/kmsg") == PLACE
        assert journal.marks() == [Mark(GPU, "reset", NOW, "boot")]


def test_only_the_newest_damaged_files_are_kept(tmp_path: Path) -> None:
    """A bad disk is not filled with what it broke."""
    for _ in range(5):
        (tmp_path / FILE).write_bytes(b"no database")
        name = store.set_aside(tmp_path)
    assert name == f"{FILE}.broken-5"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{FILE}.broken-{number}" for number in (3, 4, 5)
    ]


def test_an_older_schema_is_brought_up_to_date(tmp_path: Path) -> None:
    """Each missing step runs once, and what the file holds stays."""
    Store(tmp_path).close()
    steps = (*schema.STEPS, ("ALTER TABLE events ADD COLUMN note TEXT NOT NULL DEFAULT ''",))
    with opened(tmp_path) as journal:
        journal.commit([entry(79)], PLACE)
    for _ in range(2):
        newer = Store(tmp_path, steps)
        assert next(iter(newer.load().counters.values())).count == 1
        newer.close()
    db = sqlite3.connect(tmp_path / FILE)
    assert db.execute("PRAGMA user_version").fetchone()[0] == schema.VERSION + 1
    assert db.execute("SELECT note FROM events").fetchall() == [("",)]
    db.close()


def test_a_step_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """A step is done as a whole or not at all."""
    Store(tmp_path).close()
    steps = (*schema.STEPS, ("CREATE TABLE half (x)", "no such statement"))
    with pytest.raises(StoreError):
        Store(tmp_path, steps)
    db = sqlite3.connect(tmp_path / FILE)
    assert db.execute("PRAGMA user_version").fetchone()[0] == schema.VERSION
    assert not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'half'").fetchall()
    db.close()


def test_a_file_of_a_newer_version_is_set_aside(tmp_path: Path) -> None:
    """After a downgrade the newer file is kept for the next upgrade, unread."""
    Store(tmp_path, (*schema.STEPS, ("CREATE TABLE future (x)",))).close()
    with opened(tmp_path) as journal:
        assert journal.status().set_aside == f"{FILE}.broken-1"
        assert journal.status().problem is None


def test_what_is_written_twice_is_there_once(tmp_path: Path) -> None:
    """If the disk fails after the fact, the second try repeats nothing."""
    journal = Journal(None)
    journal.commit([entry(79)], PLACE)
    taken = journal._image.take()
    disk = Store(tmp_path)
    disk.load()
    disk.write(taken.changes)
    disk.write(taken.changes)
    assert next(iter(disk.load().counters.values())).count == 1
    disk.close()
    assert len(read_events(tmp_path)) == 1


def test_a_writer_that_is_busy_elsewhere_does_not_block(tmp_path: Path) -> None:
    """While another process holds the file, telling the journal something takes no time of ours."""
    with opened(tmp_path, retry_s=0.05) as journal:
        other = sqlite3.connect(tmp_path / FILE, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        journal.commit([entry(79)])
        assert counts(journal) == {(GPU, 79): 1}
        assert journal.status().pending <= 1
        other.execute("COMMIT")
        other.close()
        eventually(lambda: not journal.status().pending)
    assert _on_disk(tmp_path) == 1


def test_changes_may_be_empty(tmp_path: Path) -> None:
    """A write of nothing is a write."""
    disk = Store(tmp_path)
    assert disk.write(Changes()) == []
    disk.close()
