# SPDX-License-Identifier: Apache-2.0
"""The files beside the workloads' logs: names, size, and what an attacker may have put there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cardwatch.healthlog.files import WorkloadFiles, file_name
from cardwatch.healthlog.line import Notice
from cardwatch.healthlog.writer import HealthLog


def _lines(directory: Path, name: str) -> list[str]:
    return (directory / name).read_text().splitlines()


def test_names_of_workloads_are_names_of_files() -> None:
    """The usual ones can be guessed by whoever sets up the shipper."""
    assert file_name("namespace/pod-0") == "namespace_pod-0.log"
    assert file_name("slurm:123") == "slurm:123.log"
    assert file_name("trainer") == "trainer.log"


_HOSTILE = (
    "",
    ".",
    "..",
    "/",
    "../../etc/passwd",
    ".hidden",
    "a\x00b",
    "a\nb",
    "x" * 5000,
    "\udce9",
)


@pytest.mark.parametrize("workload", _HOSTILE)
def test_a_hostile_name_stays_in_the_directory(tmp_path: Path, workload: str) -> None:
    """Whatever a process calls itself, its lines are in one plain file."""
    directory = tmp_path / "logs"
    WorkloadFiles(directory).append(workload, "line")
    (file,) = directory.iterdir()
    assert file.read_text() == "line\n"
    assert file.name.endswith(".log")
    assert not file.name.startswith(".")
    assert list(tmp_path.iterdir()) == [directory]


@given(st.text(max_size=300), st.text(max_size=300))
@example("a/b", "a_b")
@example("a%2Fb", "a/b")
@example("x" * 300, "x" * 301)
def test_different_workloads_have_different_files(one: str, other: str) -> None:
    """Nobody writes into another's file by taking a similar name, and every name fits."""
    names = file_name(one), file_name(other)
    assert (names[0] == names[1]) is (one == other)
    for name in names:
        assert "/" not in name
        assert len((name + ".1").encode()) <= 255


def test_a_file_is_rotated_before_it_is_too_large(tmp_path: Path) -> None:
    """There are two files at most, none larger than allowed, and the newest lines are there."""
    files = WorkloadFiles(tmp_path, max_bytes=100)
    for number in range(50):
        files.append("job", f"line {number:03}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.log", "job.log.1"]
    assert all(path.stat().st_size <= 100 for path in tmp_path.iterdir())
    lines = _lines(tmp_path, "job.log.1") + _lines(tmp_path, "job.log")
    assert lines == [f"line {number:03}" for number in range(50 - len(lines), 50)]


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    """A link in the place of a file is refused, whether it leads anywhere or not."""
    directory = tmp_path / "logs"
    directory.mkdir()
    target = tmp_path / "target"
    (directory / "a.log").symlink_to(target)
    target_that_is = tmp_path / "precious"
    target_that_is.write_text("precious")
    (directory / "b.log").symlink_to(target_that_is)
    files = WorkloadFiles(directory)
    for workload in ("a", "b"):
        with pytest.raises(OSError):  # noqa: PT011  (the number differs between systems)
            files.append(workload, "line")
    assert not target.exists()
    assert target_that_is.read_text() == "precious"


def test_rotation_does_not_follow_a_link_either(tmp_path: Path) -> None:
    """A link in the place of the rotated file is replaced, and what it led to stays."""
    directory = tmp_path / "logs"
    precious = tmp_path / "precious"
    precious.write_text("precious")
    files = WorkloadFiles(directory, max_bytes=10)
    files.append("a", "12345678")
    (directory / "a.log.1").symlink_to(precious)
    files.append("a", "next")
    assert precious.read_text() == "precious"
    assert _lines(directory, "a.log.1") == ["12345678"]


def test_other_things_than_files_are_refused(tmp_path: Path) -> None:
    """A FIFO would block us, and a second name of somebody's file would change that file."""
    precious = tmp_path / "precious"
    precious.write_text("precious")
    directory = tmp_path / "logs"
    directory.mkdir()
    os.mkfifo(directory / "fifo.log")
    os.link(precious, directory / "link.log")
    (directory / "directory.log").mkdir()
    files = WorkloadFiles(directory)
    for workload in ("fifo", "link", "directory"):
        with pytest.raises(OSError):  # noqa: PT011  (the number differs between systems)
            files.append(workload, "line")
    assert precious.read_text() == "precious"


def test_the_number_of_files_is_bounded(tmp_path: Path) -> None:
    """Jobs come and go for years; the files that were quiet for longest go too."""
    files = WorkloadFiles(tmp_path, max_files=3)
    for number in range(6):
        files.append(f"slurm:{number}", "line")
        os.utime(tmp_path / f"slurm:{number}.log", (number, number))
    (tmp_path / "somebody-elses.txt").touch()
    assert sorted(path.name for path in tmp_path.glob("*.log")) == [
        "slurm:3.log", "slurm:4.log", "slurm:5.log",
    ]  # fmt: skip


def test_each_workload_of_a_card_gets_the_line(tmp_path: Path) -> None:
    """A card may be shared, and a file that fails costs neither the others nor the log."""
    (tmp_path / "bad.log").symlink_to("/nowhere")
    lines: list[str] = []
    log = HealthLog(directory=tmp_path, emit=lines.append)
    log.start()
    log.note(Notice(0.0, "xid", "GPU-1", "critical", 79), ["ns/a", "bad", "ns/b"])
    assert log.close(20)
    assert len(lines) == 1
    assert _lines(tmp_path, "ns_a.log") == _lines(tmp_path, "ns_b.log") == lines
    assert log.problem is not None
    assert "'bad'" in log.problem


def test_a_problem_ends_with_its_cause(tmp_path: Path) -> None:
    """Once the file can be written the problem is over."""
    (tmp_path / "job.log").symlink_to("/nowhere")
    log = HealthLog(directory=tmp_path, emit=lambda line: None)
    log.start()
    log.note(Notice(0.0, "xid", "GPU-1", "critical", 79), ["job"])
    while log.problem is None:
        os.sched_yield()
    (tmp_path / "job.log").unlink()
    log.note(Notice(0.0, "xid", "GPU-1", "critical", 48), ["job"])
    assert log.close(20)
    assert log.problem is None
