# SPDX-License-Identifier: Apache-2.0
"""A flood of Xid lines with few texts (case A35). CARDWATCH_FLOOD_LINES sets its size."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import pytest
from kmsg_harness import Delivered, FakeKernel, parse, reading, xid

from cardwatch.kernlog.event import Event

LINES = int(os.environ.get("CARDWATCH_FLOOD_LINES", "200000"))
TEXTS = 29
GROWTH_MIB = 50


def _text(number: int) -> str:
    return xid(95, f"pid=7062, Uncontained: LTC TAG (0x2,0x{number % TEXTS:x}). RST: Yes")


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _counted(delivered: Delivered) -> int:
    return sum(record.count for record in delivered.records)


def _check(delivered: Delivered, before: float) -> None:
    counts: Counter[str] = Counter()
    for record in delivered.records:
        counts[record.text] += record.count
    assert counts == Counter(_text(number) for number in range(LINES))
    assert len(delivered.records) < LINES / 100
    assert _resident_mib() - before < GROWTH_MIB


@pytest.mark.timeout(600)
def test_a_flood_in_a_file_is_counted_exactly(tmp_path: Path, delivered: Delivered) -> None:
    """Every line counts, and what is delivered grows with the texts and not with the lines."""
    file = tmp_path / "kmsg"
    with file.open("w") as out:
        for number in range(LINES):
            out.write(f"4,{number},{number * 10},-;{_text(number)}\n")
    before = _resident_mib()
    with reading(file, delivered):
        delivered.until(lambda: _counted(delivered) == LINES)
    _check(delivered, before)


@pytest.mark.timeout(600)
def test_a_flood_of_the_device_is_counted_exactly(delivered: Delivered) -> None:
    """One record a read, and the parser sees only a few of each text."""

    class Endless(FakeKernel):
        number = 0

        def read(self, fd: int, size: int) -> bytes:
            if self.number == LINES:
                raise BlockingIOError
            self.number += 1
            return f"4,{self.number},{self.number * 10},-;{_text(self.number - 1)}\n".encode()

    parsed = 0

    def counting(text: str, time: float, uptime: float) -> list[Event]:
        nonlocal parsed
        parsed += 1
        return parse(text, time, uptime)

    kernel = Endless()
    before = _resident_mib()
    with reading("/dev/kmsg", delivered, opener=kernel.source, parse=counting) as reader:
        delivered.until(lambda: _counted(delivered) == LINES)
        assert reader.status().counts.lost == 0
    kernel.close()
    _check(delivered, before)
    assert parsed <= LINES / 100


def test_repeated_lines_that_need_each_other_are_not_remembered(
    delivered: Delivered, kernel: FakeKernel
) -> None:
    """A text that is an event only after another one is asked about every time."""
    state = {"open": False}

    def pairs(text: str, time: float, uptime: float) -> list[Event]:
        complete = bool(re.search("second", text)) and state["open"]
        state["open"] = "first" in text
        return [Event("gpu_off_bus", time, message=text)] if complete else []

    for _ in range(50):
        kernel.print("NVRM: first")
        kernel.print("NVRM: second")
        kernel.print("NVRM: second")
    with reading("/dev/kmsg", delivered, opener=kernel.source, parse=pairs):
        delivered.until(lambda: _counted(delivered) >= 50)
    assert _counted(delivered) == 50
