# SPDX-License-Identifier: Apache-2.0
"""Reading a FIFO whose writers come and go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kmsg_harness import BOOT, Delivered, line, reading, xid


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """A FIFO without a writer."""
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    return path


def _write(fifo: Path, text: str) -> None:
    with fifo.open("w") as out:
        out.write(text)


def test_a_writer_may_leave_and_return(fifo: Path, delivered: Delivered) -> None:
    """The end of one writer is not the end of the log, and a last line needs no line break."""
    with reading(fifo, delivered) as reader:
        for number, code in enumerate((31, 43, 13, 79, 48)):
            _write(fifo, line(number, xid(code)).rstrip("\n"))
            delivered.until_code(code)
        assert reader.status().up
    assert delivered.codes == [31, 43, 13, 79, 48]
    assert [status.up for status in delivered.statuses] == [True]


def test_a_reader_without_a_writer_is_up_and_can_be_stopped(
    fifo: Path, delivered: Delivered
) -> None:
    """Nobody has to write for the source to be there."""
    with reading(fifo, delivered):
        delivered.until(lambda: delivered.statuses)
    assert [status.up for status in delivered.statuses] == [True]


def test_a_writer_that_repeats_the_log_adds_only_what_is_new(
    fifo: Path, delivered: Delivered
) -> None:
    """A helper that copies the log begins with the oldest record whenever it starts (A33)."""
    with reading(fifo, delivered):
        _write(fifo, line(842, xid(31)))
        delivered.until_code(31)
        _write(fifo, line(842, xid(31)) + line(843, xid(43)))
        delivered.until_code(43)
    with reading(fifo, delivered, position=delivered.batches[-1].position) as reader:
        _write(fifo, line(842, xid(31)) + line(843, xid(43)) + line(844, xid(79)))
        delivered.until_code(79)
        assert reader.status().counts.repeated == 2
    assert delivered.codes == [31, 43, 79]


def test_after_a_boot_the_numbers_begin_anew(fifo: Path, delivered: Delivered) -> None:
    """What an earlier boot's number says is not held against this boot's records."""
    with reading(fifo, delivered):
        _write(fifo, line(842, xid(31)))
        delivered.until_code(31)
    position = delivered.batches[-1].position
    assert position.boot_id == BOOT
    with reading(fifo, delivered, position=position, boot_id="the next one"):
        _write(fifo, line(842, xid(31)))
        delivered.until(lambda: delivered.codes == [31, 31])


def test_a_fifo_that_is_replaced_is_taken_up(fifo: Path, delivered: Delivered) -> None:
    """The name is what counts: a new FIFO under it is read, whatever became of the old one."""
    with reading(fifo, delivered):
        _write(fifo, line(1, xid(31)))
        delivered.until_code(31)
        fifo.unlink()
        os.mkfifo(fifo)
        _write(fifo, line(2, xid(43)))
        delivered.until_code(43)
