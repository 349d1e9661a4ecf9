# SPDX-License-Identifier: Apache-2.0
"""Reader and journal together, killed in the middle of a burst."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from journal_harness import eventually, opened

SCRIPT = Path(__file__).with_name("burst_process.py")
LINES = 20_000
TEXTS = 29


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A kernel log without a line."""
    path = tmp_path / "kmsg"
    path.touch()
    return path


class _Burst:
    """Writes the log, as far as it is let."""

    def __init__(self, log: Path) -> None:
        self._log, self._written = log, 0

    def write(self, upto: int) -> None:
        with self._log.open("a", buffering=1) as out:
            for number in range(self._written, upto):
                text = f"NVRM: Xid (PCI:0000:3b:00): 95, text {number % TEXTS}"
                out.write(f"4,{number},{number * 1000},-;{text}\n")
        self._written = upto


def _start(log: Path, state: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(log), str(state)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def _sums(process: subprocess.Popen[str]) -> Iterator[int]:
    assert process.stdout is not None
    for text in process.stdout:
        yield int(text)


def test_three_kills_during_a_burst_change_no_sum(tmp_path: Path, log: Path) -> None:
    """Every line counts once, in the counters and in the rows, however often we are killed."""
    burst = _Burst(log)
    for part in range(1, 4):
        process = _start(log, tmp_path / "state")
        writer = threading.Thread(target=burst.write, args=(part * LINES // 4,))
        writer.start()
        wanted = (part - 1) * LINES // 4 + 500
        assert any(total >= wanted for total in _sums(process))
        process.kill()  # it may have read less than was written, and kept less than it read
        process.communicate()
        writer.join()
    burst.write(LINES)
    process = _start(log, tmp_path / "state")
    assert any(total == LINES for total in _sums(process))
    process.communicate()
    assert process.returncode == 0
    with opened(tmp_path / "state", clock=time.time) as journal:
        assert sum(counter.count for counter in journal.counters().values()) == LINES
        assert sum(row.count for row in journal.events(limit=LINES)) == LINES
        assert journal.status().dropped == 0


def test_a_restart_with_nothing_new_counts_nothing(tmp_path: Path, log: Path) -> None:
    """The same log, read by run after run, stays counted once."""
    _Burst(log).write(100)
    process = _start(log, tmp_path / "state")
    assert any(total == 100 for total in _sums(process))
    process.communicate()
    process = _start(log, tmp_path / "state")
    out, _err = process.communicate()
    assert out == ""
    with opened(tmp_path / "state", clock=time.time) as journal:
        eventually(lambda: journal.status().loaded)
        assert sum(counter.count for counter in journal.counters().values()) == 100
