# SPDX-License-Identifier: Apache-2.0
"""What a journal holds: counters, rows, positions, marks."""

from __future__ import annotations

import dataclasses
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from journal_harness import GPU, NOW, OTHER, counts, entry, eventually, opened

from cardwatch.journal.journal import Journal
from cardwatch.journal.records import Counter, CounterKey, Entry, Mark
from cardwatch.journal.store import FILE, add_mark, read_events
from cardwatch.kernlog.event import Event
from cardwatch.kmsg.position import Position

PLACE = Position("/dev/kmsg", "boot", 17, '{"mark":[]}')


def test_everything_survives_a_restart(tmp_path: Path) -> None:
    """Counters, last times, rows, positions and marks are what they were."""
    with opened(tmp_path) as journal:
        journal.commit([entry(79), entry(31, cls="application", count=3)], PLACE)
        journal.commit([entry(79, NOW + 60)])
        journal.mark(Mark(GPU, "reset", NOW + 70, "xid154"))
        before = journal.counters(), journal.events(), journal.marks()
    with opened(tmp_path) as journal:
        assert journal.counters() == before[0]
        assert journal.marks() == before[2]
        assert journal.position("/dev/kmsg") == PLACE
        assert journal.poll_marks() == []
        rows = journal.events()
    assert [dataclasses.replace(row, id=None) for row in rows] == [
        dataclasses.replace(row, id=None) for row in before[1]
    ]
    key = CounterKey(GPU, "xid", 79, "critical")
    assert before[0][key] == Counter(2, NOW, NOW + 60)


def test_memory_shows_at_once_what_was_told() -> None:
    """Counters do not wait for a disk, and without a directory that is no problem."""
    with opened(None) as journal:
        journal.commit([entry(count=5)], PLACE)
        assert counts(journal) == {(GPU, 79): 5}
        assert journal.position("/dev/kmsg") == PLACE
        assert [row.count for row in journal.events()] == [5]
        assert journal.status().problem is None


def test_equal_events_of_ten_seconds_are_one_row(tmp_path: Path) -> None:
    """The first is a row at once; what follows raises its count, and later there is another."""
    with opened(tmp_path) as journal:
        for second in range(25):
            journal.commit([entry(13, NOW + second), entry(13, NOW + second, gpu=OTHER, count=2)])
        eventually(lambda: not journal.status().pending)
        mine = journal.events(gpu=GPU)
        assert sum(row.count for row in journal.events()) == 75
    assert [(row.time - NOW, row.last_time - NOW, row.count) for row in mine] == [
        (20, 24, 5), (10, 19, 10), (0, 9, 10),
    ]  # fmt: skip


def test_a_flood_of_new_texts_does_not_fill_the_journal(tmp_path: Path) -> None:
    """Beyond a hundred texts in ten seconds the rest of a code's share a row; nothing is lost."""
    with opened(tmp_path) as journal:
        for number in range(1000):
            journal.commit([entry(31, NOW + number / 1000, text=f"address {number:x}")])
        journal.commit([entry(48, NOW + 1)])
        rows = journal.events()
        assert counts(journal)[GPU, 31] == 1000
    assert len(rows) == 102
    assert sum(row.count for row in rows if row.code == 31) == 1000
    assert rows[0].code == 48


def test_the_text_of_an_event_may_come_later(tmp_path: Path) -> None:
    """The driver's event has no text; the kernel's line for it adds one and counts nothing."""
    with opened(tmp_path) as journal:
        journal.commit([entry(79, text="", source="nvml")])
        journal.commit([entry(79, NOW + 0.2, text="GPU has fallen off the bus.", count=0)])
        (row,) = journal.events()
        assert counts(journal) == {(GPU, 79): 1}
    assert (row.message, row.count, row.source) == ("GPU has fallen off the bus.", 1, "kmsg")


def test_details_and_hostile_text_are_kept(tmp_path: Path) -> None:
    """What has no column is kept beside it, and no text or number can break a row."""
    event = Event(
        "xid", NOW, "0000:3b:00", code=2**70, pid=7, process="a\x00\ud800'; DROP TABLE events; --",
        status=(1, 2), link=-1, message="x" * 5000 + "\n",
    )  # fmt: skip
    with opened(tmp_path) as journal:
        journal.commit([Entry(GPU, event, "unknown", extra={"workload": "ns/pod"})])
        eventually(lambda: not journal.status().pending)
    (row,) = read_events(tmp_path)
    assert row.detail["process"].endswith("DROP TABLE events; --")
    assert (row.detail["status"], row.detail["link"], row.detail["pid"]) == ([1, 2], -1, 7)
    assert row.extra == {"workload": "ns/pod"}
    assert (row.code, len(row.message)) == (2**62, 2000)


def test_events_are_chosen_by_time_card_and_number(tmp_path: Path) -> None:
    """The newest come first, whether they are on disk or not."""
    with opened(tmp_path) as journal:
        for minute in range(10):
            gpu = GPU if minute % 2 else OTHER
            journal.commit([entry(minute, NOW + 60 * minute, gpu=gpu)])
        assert [row.code for row in journal.events(limit=3)] == [9, 8, 7]
        assert [row.code for row in journal.events(since=NOW + 400)] == [9, 8, 7]
        assert [row.code for row in journal.events(gpu=OTHER, limit=2)] == [8, 6]
    assert [row.code for row in read_events(tmp_path, since=NOW + 400, gpu=GPU)] == [9, 7]


def test_a_clock_set_back_hides_no_event(tmp_path: Path) -> None:
    """The newest event is the last, even if its time is earlier than that of the one before."""
    clock = [NOW + 3600]
    with opened(tmp_path, clock=lambda: clock[0]) as journal:
        journal.commit([entry(79, NOW + 3600)])
        clock[0] = NOW
        journal.commit([entry(79, NOW)])
        (counter,) = journal.counters().values()
        assert counter == Counter(2, NOW, NOW)
        assert [row.time for row in journal.events()] == [NOW, NOW + 3600]


def test_the_number_of_counters_is_bounded() -> None:
    """A drill that invents codes is counted together in the end, and never forgotten."""
    with opened(None) as journal:
        journal.commit([entry(code) for code in range(5000)])
        counters = counts(journal)
        assert len(counters) <= 4097
        assert sum(counters.values()) == 5000
        assert counters[GPU, None] == 5000 - 4096


def test_another_process_reads_while_this_one_writes(tmp_path: Path) -> None:
    """`events list` works beside a running exporter, and after its end."""
    script = (
        "import sys\nfrom pathlib import Path\nfrom cardwatch.journal.store import read_events\n"
        "print([row.code for row in read_events(Path(sys.argv[1]))])"
    )

    def listed() -> str:
        command = [sys.executable, "-c", script, str(tmp_path)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    assert listed() == "[]"
    with opened(tmp_path) as journal:
        journal.commit([entry(31), entry(79)])
        eventually(lambda: not journal.status().pending)
        assert listed() == "[79, 31]"
        journal.commit([entry(48)])
        eventually(lambda: not journal.status().pending)
        assert listed() == "[48, 79, 31]"
    assert listed() == "[48, 79, 31]"


def test_a_mark_of_another_process_is_noticed(tmp_path: Path) -> None:
    """`events clear` reaches the running exporter through the file, once, and stays."""
    script = (
        "import sys\nfrom pathlib import Path\nfrom cardwatch.journal.records import Mark\n"
        "from cardwatch.journal.store import add_mark\n"
        "add_mark(Path(sys.argv[1]), Mark('GPU-1', 'cleared', 5.0, 'cli'))"
    )
    mark = Mark("GPU-1", "cleared", 5.0, "cli")
    seen: list[Mark] = []
    with opened(tmp_path) as journal:
        journal.mark(Mark(GPU, "reset", 1.0, "boot"))
        subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)
        eventually(lambda: seen.extend(journal.poll_marks()) or seen)
        assert seen == [mark]
        assert mark in journal.marks()
        assert journal.poll_marks() == []
    with opened(tmp_path) as journal:
        assert mark in journal.marks()
        assert journal.poll_marks() == []


def test_a_mark_can_be_written_before_any_exporter_ran(tmp_path: Path) -> None:
    """The file is made, and the first run finds the mark."""
    add_mark(tmp_path, Mark(GPU, "cleared", 5.0, "cli"))
    with opened(tmp_path) as journal:
        assert journal.marks() == [Mark(GPU, "cleared", 5.0, "cli")]


def test_only_one_exporter_writes(tmp_path: Path) -> None:
    """A second one in the same directory knows what is there, says so, and takes over later."""
    with opened(tmp_path) as first:
        first.commit([entry(79)], PLACE)
        eventually(lambda: not first.status().pending)
        second = Journal(tmp_path, retry_s=0.05, clock=lambda: NOW)
        assert second.open(20)
        assert counts(second) == {(GPU, 79): 1}
        assert "another exporter" in (second.status().problem or "")
        second.commit([entry(79, NOW + 60)])
    eventually(lambda: second.status().problem is None and not second.status().pending)
    assert second.close(20)
    with opened(tmp_path) as third:
        assert counts(third) == {(GPU, 79): 2}
        assert [row.count for row in third.events()] == [1, 1]


def test_a_position_alone_waits_for_company(tmp_path: Path) -> None:
    """Reading on through other people's records costs no write each; closing keeps the place."""
    with opened(tmp_path) as journal:
        journal.commit([entry(79)], PLACE)
        eventually(lambda: not journal.status().pending)
        written = journal.status().written_at
        assert written == NOW
        journal.commit([], dataclasses.replace(PLACE, seq=99))
        with sqlite3.connect(tmp_path / FILE) as db:
            assert db.execute("SELECT seq FROM positions").fetchall() == [(17,)]
        db.close()
    with opened(tmp_path) as journal:
        position = journal.position("/dev/kmsg")
    assert position is not None
    assert position.seq == 99


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_the_file_is_not_for_everybody(tmp_path: Path, umask: int) -> None:
    """Rows hold names of processes and workloads."""
    import os

    earlier = os.umask(umask)
    try:
        with opened(tmp_path):
            pass
    finally:
        os.umask(earlier)
    assert (tmp_path / FILE).stat().st_mode & 0o007 == 0
