# SPDX-License-Identifier: Apache-2.0
"""How long events are kept, by age and by size, with clocks that are wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from journal_harness import NOW, counts, entry, eventually, opened

from cardwatch.journal.drafts import _row
from cardwatch.journal.store import FILE, Changes, Store, read_events

DAY = 86400.0
Put = Callable[[float], None]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An open file."""
    store = Store(tmp_path)
    store.load()
    yield store
    store.close()


@pytest.fixture
def put(store: Store) -> Put:
    """Write a row with a certain time, in order of the calls."""
    numbers = iter(range(1, 10**6))

    def put(time: float) -> None:
        row = dataclasses.replace(_row(entry(79, time), time, time), id=next(numbers))
        store.write(Changes(rows=[row]))

    return put


def _ages(directory: Path) -> list[int]:
    """Return the ages in days, the row that came first at the front."""
    return [round((NOW - row.time) / DAY) for row in reversed(read_events(directory))]


def test_what_is_too_old_goes(store: Store, put: Put, tmp_path: Path) -> None:
    """Rows over 30 days old are deleted, younger ones stay."""
    for age in (90, 40, 31, 29, 1, 0):
        put(NOW - age * DAY)
    store.retain(NOW, 30 * DAY, 2**30)
    assert _ages(tmp_path) == [29, 1, 0]


def test_a_row_with_a_wrong_time_costs_nothing_around_it(
    store: Store, put: Put, tmp_path: Path
) -> None:
    """Rows written while the clock was wrong go with their neighbours, by order of arrival."""
    for age in (40, 20, 400, 10, -500, 5):  # a year behind for a while, and then ahead
        put(NOW - age * DAY)
    store.retain(NOW, 30 * DAY, 2**30)
    assert _ages(tmp_path) == [20, 400, 10, -500, 5]
    store.retain(NOW + 22 * DAY, 30 * DAY, 2**30)
    assert _ages(tmp_path) == [-500, 5]
    store.retain(NOW + 40 * DAY, 30 * DAY, 2**30)
    assert _ages(tmp_path) == []


def test_rows_of_a_clock_that_was_not_set_yet_are_not_old(
    store: Store, put: Put, tmp_path: Path
) -> None:
    """A node that boots in 1970 writes its events then."""
    put(1000.0)
    store.retain(NOW, 30 * DAY, 2**30)
    assert len(read_events(tmp_path)) == 1


def test_a_clock_that_leaps_ahead_does_not_empty_the_journal(tmp_path: Path) -> None:
    """Time cannot pass faster than it does: by a day at most."""
    clock = [NOW]
    with opened(tmp_path, clock=lambda: clock[0]) as journal:
        journal.commit([entry(79)])
        eventually(lambda: not journal.status().pending)
        clock[0] = NOW + 400 * DAY
        journal._retained_at = float("-inf")
        journal.commit([entry(31)])
        eventually(lambda: not journal.status().pending and journal._retained_at > 0)
        assert len(journal.events()) == 2


def test_the_oldest_go_when_the_file_is_full(tmp_path: Path) -> None:
    """The file stays within its size whatever comes, the newest rows are there, counters all."""
    size = 1024 * 1024
    with opened(tmp_path, max_bytes=size) as journal:
        for number in range(3000):
            journal.commit([entry(79, NOW + 60 * number, text="x" * 1900)])
            if number % 100 == 0:
                eventually(lambda: not journal.status().pending)
        eventually(lambda: not journal.status().pending)
        assert list(counts(journal).values()) == [3000]
        newest = journal.events(limit=100)
        assert [row.time for row in newest] == [NOW + 60 * n for n in range(2999, 2899, -1)]
    assert (tmp_path / FILE).stat().st_size <= size
    assert not (tmp_path / f"{FILE}-wal").exists()


def test_a_smaller_limit_shrinks_the_file(tmp_path: Path) -> None:
    """Room that is no longer allowed is given back."""
    with opened(tmp_path) as journal:
        for number in range(1000):
            journal.commit([entry(79, NOW + 60 * number, text="x" * 1900)])
    assert (tmp_path / FILE).stat().st_size > 1024 * 1024
    with opened(tmp_path, max_bytes=512 * 1024) as journal:
        eventually(lambda: len(journal.events()) < 400)
    assert (tmp_path / FILE).stat().st_size <= 512 * 1024
