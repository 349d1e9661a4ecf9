# SPDX-License-Identifier: Apache-2.0
"""The real /dev/kmsg, there and back. A program's lines have facility 1, so the flag relaxes it."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest
from kmsg_harness import Delivered, eventually, reading, xid

from cardwatch.kmsg.reader import read_boot_id

DEVICE = Path("/dev/kmsg")


@pytest.fixture
def mine() -> str:
    """A text that nobody else writes, or a skip where the log cannot be read and written."""
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        pytest.skip("/dev/kmsg cannot be read and written (root, with CAP_SYSLOG)")
    try:
        os.close(os.open(DEVICE, os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        pytest.skip(f"/dev/kmsg cannot be opened: {error}")
    return f"cardwatch test {uuid.uuid4()}"


def _print(text: str) -> None:
    # Opened each time: the kernel limits how much one opening may write.
    with DEVICE.open("w") as log:
        log.write(f"<4>{text}\n")


def _texts(delivered: Delivered, mine: str) -> list[str]:
    return [
        record.text
        for record in delivered.records
        for _ in range(record.count)
        if mine in record.text
    ]


def test_a_line_written_to_the_log_comes_back_once(delivered: Delivered, mine: str) -> None:
    """It is found behind all others, awaited at the end, and not repeated after a restart."""
    more = {"any_facility": True, "boot_id": read_boot_id()}
    _print(xid(31, f"{mine} before"))
    with reading(DEVICE, delivered, **more):
        delivered.until(lambda: xid(31, f"{mine} before") in _texts(delivered, mine))
        _print(xid(43, f"{mine} caf\u00e9 \\ while"))
        delivered.until(lambda: len(_texts(delivered, mine)) == 2)
    _print(xid(79, f"{mine} between"))
    position = delivered.batches[-1].position
    with reading(DEVICE, delivered, position=position, **more) as reader:
        delivered.until(lambda: len(_texts(delivered, mine)) == 3)
        assert reader.status().counts.lost == 0
    assert _texts(delivered, mine) == [
        xid(31, f"{mine} before"),
        xid(43, f"{mine} caf\u00e9 \\ while"),
        xid(79, f"{mine} between"),
    ]


def test_without_the_flag_a_programs_line_is_no_event(delivered: Delivered, mine: str) -> None:
    """Nobody can make us page by writing a driver's line into the log."""
    _print(xid(79, mine))
    with reading(DEVICE, delivered) as strict:
        relaxed = Delivered()
        with reading(DEVICE, relaxed, any_facility=True):
            relaxed.until(lambda: _texts(relaxed, mine))
        eventually(lambda: strict.status().counts.foreign)
    assert _texts(delivered, mine) == []
