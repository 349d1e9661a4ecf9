# SPDX-License-Identifier: Apache-2.0
"""The roster on disk: what survives a restart, and what becomes of a broken file."""

from __future__ import annotations

import fcntl
import json
import logging
import os
from pathlib import Path

import pytest

from cardwatch.supervisor.roster import FILE, LOCK, Entry, Roster, forget, on_file

HOUR = 3600.0


def _open(directory: Path) -> Roster:
    roster = Roster(directory)
    roster.load()
    return roster


def _cards(directory: Path) -> set[str]:
    return set(json.loads((directory / FILE).read_text())["cards"])


def test_what_was_saved_is_read_again(tmp_path: Path) -> None:
    """Cards with all their facts, and when the node was first seen."""
    roster = _open(tmp_path)
    roster.node_first_seen = 5.0
    roster.saw("GPU-a", 10.0, 3, "0000:3b:00", {"model": "H100", "serial": "1"})
    roster.saw("GPU-a", 20.0, 4, "0000:3c:00", {"model": "H100"})
    roster.save(20.0)
    again = _open(tmp_path)
    assert again.node_first_seen == 5.0
    assert again.cards == {"GPU-a": Entry(10.0, 20.0, 4, "0000:3c:00", {"model": "H100"})}
    assert again.problem is None


@pytest.mark.parametrize(("seconds", "expected"), [(600.0, False), (600.1, True)])
def test_a_card_is_established_after_ten_minutes(seconds: float, expected: bool) -> None:
    """Over ten minutes between first and last sight."""
    assert Entry(100.0, 100.0 + seconds, 0).established is expected


def test_a_clock_that_was_set_back_does_not_make_a_card_older(tmp_path: Path) -> None:
    """First seen is never after last seen."""
    roster = _open(tmp_path)
    roster.saw("GPU-a", 5000.0, 0, "", {})
    roster.saw("GPU-a", 100.0, 0, "", {})
    assert (roster.cards["GPU-a"].first_seen, roster.cards["GPU-a"].last_seen) == (100.0, 100.0)


def test_the_file_is_written_once_a_minute_and_at_once_for_a_new_card(tmp_path: Path) -> None:
    """A new card can be forgotten as soon as it is shown."""
    roster = _open(tmp_path)
    roster.saw("GPU-a", 0.0, 0, "", {})
    roster.save(0.0)
    roster.saw("GPU-a", 30.0, 0, "", {})
    roster.save(30.0)
    assert on_file(tmp_path)["GPU-a"].last_seen == 0.0
    roster.save(60.0)
    assert on_file(tmp_path)["GPU-a"].last_seen == 30.0
    roster.saw("GPU-b", 61.0, 1, "", {})
    roster.save(61.0)
    assert set(on_file(tmp_path)) == {"GPU-a", "GPU-b"}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        '{"version": 2, "cards": {}}',
        '{"version": 1}',
        '{"version": 1, "cards": {"GPU-a": {}}}',
        '{"version": 1, "cards": {"GPU-a": 5}}',
        '{"version": 1, "cards": {}, "node_first_seen": "yesterday"}',
        '{"version": 1, "cards": {}, "node_first_seen": NaN}',
        '{"version": 1, "cards": {"GPU-a": {"first_seen": 1, "last_seen": 1, "index": 1e999, '
        '"pci": "", "info": {}}}}',
        "\x00\xff",
        '{"version": 1, "cards": ' + "[" * 100_000,
    ],
)
def test_a_broken_file_is_set_aside_and_kept(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The run starts with nothing, the old content stays for whoever wants to look."""
    (tmp_path / FILE).write_text(content)
    with caplog.at_level(logging.ERROR):
        roster = _open(tmp_path)
    assert roster.cards == {}
    assert "cards.broken" in str(roster.problem)
    assert (tmp_path / "cards.broken").read_text() == content
    assert len(caplog.records) == 1
    roster.save(0.0)
    assert roster.problem is None
    assert _cards(tmp_path) == set()


def test_a_missing_directory_is_made(tmp_path: Path) -> None:
    """Nothing is wrong with a first start."""
    roster = _open(tmp_path / "new/state")
    roster.save(0.0)
    assert roster.problem is None
    assert _cards(tmp_path / "new/state") == set()


def test_a_directory_that_cannot_be_made_is_said_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The cards live in memory; when the cause is gone, the file is written."""
    (tmp_path / "blocked").write_text("")
    with caplog.at_level(logging.ERROR):
        roster = _open(tmp_path / "blocked/state")
        roster.saw("GPU-a", 0.0, 0, "", {})
        for now in (0.0, 60.0, 120.0):
            roster.save(now)
    assert roster.problem is not None
    assert len(caplog.records) == 1
    (tmp_path / "blocked").unlink()
    roster.save(180.0)
    assert roster.problem is None
    assert _cards(tmp_path / "blocked/state") == {"GPU-a"}


def test_a_card_taken_off_the_file_is_noticed_once(tmp_path: Path) -> None:
    """`forget` in another process is told to the caller, and not undone by the next save."""
    roster = _open(tmp_path)
    for index, uuid in enumerate(("GPU-a", "GPU-b")):
        roster.saw(uuid, 0.0, index, "", {})
    roster.save(0.0)
    assert roster.forgotten() == []
    assert forget(tmp_path, ["GPU-a", "GPU-x"]) == ["GPU-a"]
    assert roster.forgotten() == ["GPU-a"]
    assert roster.forgotten() == []
    roster.save(60.0)
    assert _cards(tmp_path) == {"GPU-b"}


def test_a_save_does_not_overwrite_what_somebody_forgot(tmp_path: Path) -> None:
    """Between two looks at the file, a save waits until it was looked at."""
    roster = _open(tmp_path)
    roster.saw("GPU-a", 0.0, 0, "", {})
    roster.save(0.0)
    forget(tmp_path, ["GPU-a"])
    roster.save(60.0)
    assert _cards(tmp_path) == set()
    assert roster.problem is None
    assert roster.forgotten() == ["GPU-a"]
    roster.save(60.0)
    assert _cards(tmp_path) == set()


def test_a_lock_held_by_the_other_side_is_no_problem(tmp_path: Path) -> None:
    """A save that comes in between is made up for at the next chance."""
    roster = _open(tmp_path)
    roster.save(0.0)
    roster.saw("GPU-a", 1.0, 0, "", {})
    descriptor = os.open(tmp_path / LOCK, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    roster.save(61.0)
    assert roster.problem is None
    assert _cards(tmp_path) == set()
    os.close(descriptor)
    roster.save(61.1)
    assert _cards(tmp_path) == {"GPU-a"}


def test_a_broken_file_under_a_running_exporter_forgets_nobody(tmp_path: Path) -> None:
    """Rubbish is not an order to forget."""
    roster = _open(tmp_path)
    roster.saw("GPU-a", 0.0, 0, "", {})
    roster.save(0.0)
    (tmp_path / FILE).write_text("{")
    assert roster.forgotten() == []
    assert set(roster.cards) == {"GPU-a"}


def test_without_a_directory_nothing_is_written() -> None:
    """Commands that keep no state still have a roster."""
    roster = Roster(None)
    roster.load()
    roster.saw("GPU-a", 0.0, 0, "", {})
    roster.save(0.0, force=True)
    assert roster.forgotten() == []
    assert roster.problem is None


def test_the_roster_has_an_end(tmp_path: Path) -> None:
    """A driver that makes up names cannot fill the disk."""
    roster = _open(tmp_path)
    for number in range(1000):
        roster.saw(f"GPU-{number}", 0.0, 0, "", {})
    assert len(roster.cards) <= 256


def test_forgetting_in_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """The command can name it."""
    with pytest.raises(FileNotFoundError):
        forget(tmp_path, ["GPU-a"])
    assert on_file(tmp_path) == {}


def test_a_broken_file_is_not_changed_by_forget(tmp_path: Path) -> None:
    """`forget` raises instead."""
    (tmp_path / FILE).write_text("{")
    with pytest.raises(ValueError, match="Expecting"):
        forget(tmp_path, ["GPU-a"])
    assert (tmp_path / FILE).read_text() == "{"
