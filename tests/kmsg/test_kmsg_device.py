# SPDX-License-Identifier: Apache-2.0
"""Reading a kernel log that behaves as /dev/kmsg does."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from kmsg_harness import BOOT, PATIENCE_S, Delivered, FakeKernel, parse, reading, xid

from cardwatch.kernlog.event import Event
from cardwatch.kmsg.batch import Batch
from cardwatch.kmsg.clock import RecordClock
from cardwatch.kmsg.position import Position
from cardwatch.kmsg.reader import KernelLog, Status, read_boot_id

PATH = "/dev/kmsg"


def _reading(kernel: FakeKernel, delivered: Delivered, **more: Any) -> Any:
    more.setdefault("opener", kernel.source)
    return reading(PATH, delivered, **more)


def test_records_come_as_events_with_their_position(
    kernel: FakeKernel, delivered: Delivered
) -> None:
    """What was there and what comes later is delivered, in order, with the place behind it."""
    kernel.print("usb 1-1: new device")
    kernel.print(xid(31))
    with _reading(kernel, delivered):
        delivered.until_code(31)
        kernel.print("systemd[1]: started")
        kernel.print(xid(79))
        delivered.until_code(79)
    assert delivered.codes == [31, 79]
    assert delivered.batches[-1].position == Position(PATH, BOOT, 3)
    (first, _second) = delivered.records
    assert (first.seq, first.text, first.events[0].uptime) == (1, xid(31), 0.001)


def test_what_the_kernel_overwrote_is_counted_and_reading_goes_on(
    kernel: FakeKernel, delivered: Delivered
) -> None:
    """After EPIPE the gap in the numbers is the loss, and the records still held all come."""
    kernel = FakeKernel(size=10)
    kernel.print(xid(1))
    with _reading(kernel, delivered) as reader:
        delivered.until_code(1)
        with kernel._lock:  # the reader cannot follow
            kernel._records += [b"4,%d,0,-;noise\n" % n for n in range(1, 40)]
            del kernel._records[:30]
            kernel._first = 30
        kernel.print(xid(2))
        delivered.until_code(2)
        assert reader.status().counts.lost == 30
    assert delivered.codes == [1, 2]
    kernel.close()


def test_a_record_too_long_is_passed_over_and_counted(
    kernel: FakeKernel, delivered: Delivered
) -> None:
    """The kernel skips a record that does not fit (EINVAL); that is no loss and no end."""
    kernel.print(xid(1))
    kernel.print("x" * 9000)
    kernel.print(xid(2))
    with _reading(kernel, delivered) as reader:
        delivered.until_code(2)
        counts = reader.status().counts
    assert (counts.too_long, counts.lost) == (1, 0)
    assert delivered.codes == [1, 2]


def test_only_the_kernels_own_records_count(kernel: FakeKernel, delivered: Delivered) -> None:
    """A line that a program wrote into the log has another facility and is no event."""
    kernel.print(xid(79), priority=12)
    kernel.print(xid(31), priority=6)
    with _reading(kernel, delivered) as reader:
        delivered.until_code(31)
        assert reader.status().counts.foreign == 1
    assert delivered.codes == [31]


def test_a_drill_may_relax_the_facility(kernel: FakeKernel, delivered: Delivered) -> None:
    """With the flag, lines that a program wrote count as well."""
    kernel.print(xid(79), priority=12)
    with _reading(kernel, delivered, any_facility=True):
        delivered.until_code(79)


def test_prefix_properties_and_escapes_are_understood(
    kernel: FakeKernel, delivered: Delivered
) -> None:
    """More prefix fields, property lines and escaped bytes do not get into the text."""
    kernel.print(
        xid(43, "name=\\x5b\\xc3\\xa9\\x5d\\x0a, Ch 1") + "\n SUBSYSTEM=pci\n DEVICE=+pci:x",
        more=",caller=T1946,future=1",
    )
    with _reading(kernel, delivered):
        delivered.until_code(43)
    assert delivered.records[0].text == xid(43, "name=[é]\n, Ch 1")


def test_a_restart_goes_on_behind_the_last_record(kernel: FakeKernel, delivered: Delivered) -> None:
    """Records up to the known number are not even parsed again (case A33)."""
    parsed: list[str] = []

    def remembering(text: str, time: float, uptime: float) -> list[Event]:
        parsed.append(text)
        return parse(text, time, uptime)

    kernel.print(xid(31))
    with _reading(kernel, delivered):
        delivered.until_code(31)
    kernel.print(xid(43))
    position = delivered.batches[-1].position
    with _reading(kernel, delivered, position=position, parse=remembering) as reader:
        delivered.until_code(43)
        assert reader.status().counts.repeated == 1
    assert delivered.codes == [31, 43]
    assert parsed == [xid(43)]


def test_what_was_lost_during_a_restart_is_counted(delivered: Delivered) -> None:
    """If the oldest record is not the next one, those between are lost."""
    kernel = FakeKernel(size=5)
    for code in range(20):
        kernel.print(xid(code))
    with _reading(kernel, delivered, position=Position(PATH, BOOT, 9)) as reader:
        delivered.until_code(19)
        assert reader.status().counts.lost == 5
    kernel.close()


def test_another_boot_is_read_from_its_oldest_record(
    kernel: FakeKernel, delivered: Delivered
) -> None:
    """Numbers of an earlier boot say nothing about this one."""
    kernel.print(xid(31))
    with _reading(kernel, delivered, position=Position(PATH, "of yesterday", 5000)):
        delivered.until_code(31)
    assert delivered.batches[-1].position == Position(PATH, BOOT, 0)
    assert not delivered.records[0].old


def test_a_position_that_is_not_of_this_log_is_given_up(
    kernel: FakeKernel, delivered: Delivered
) -> None:
    """A number that the log never reached would silence it for ever."""
    kernel.print(xid(31))
    with _reading(kernel, delivered, position=Position(PATH, BOOT, 10**9)):
        delivered.until_code(31)


@pytest.mark.parametrize("error", [errno.ENODEV, errno.EIO, errno.EBADF, errno.ENOMEM])
def test_any_error_is_followed_by_another_try(
    kernel: FakeKernel, delivered: Delivered, error: int
) -> None:
    """A read that fails closes the device, opens it again and repeats nothing."""
    kernel.print(xid(31))
    with _reading(kernel, delivered) as reader:
        delivered.until_code(31)
        kernel.fail(OSError(error, os.strerror(error)))
        delivered.until(lambda: any(s.error for s in delivered.statuses))
        kernel.print(xid(43))
        delivered.until_code(43)
        assert reader.status().up
    assert delivered.codes == [31, 43]
    assert kernel.opened == 2
    assert [s.up for s in delivered.statuses] == [True, False, True]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errno.ENOENT, "not_found"),
        (errno.EPERM, "permission_denied"),
        (errno.EACCES, "permission_denied"),
        (errno.EIO, "read_error"),
    ],
)
def test_a_device_that_cannot_be_opened_says_why_and_is_tried_again(
    kernel: FakeKernel, delivered: Delivered, error: int, code: str
) -> None:
    """In a container without the device the reason shows; once it is there, all is read (A44)."""
    failures = [OSError(error, os.strerror(error))] * 3

    def opener(path: Path, mark: object, last: object) -> Any:
        if failures:
            raise failures.pop()
        return kernel.source(path, mark, last)

    kernel.print(xid(31))
    with _reading(kernel, delivered, opener=opener):
        delivered.until_code(31)
    assert [(s.up, s.error) for s in delivered.statuses] == [(False, code), (True, None)]


def test_an_error_of_our_own_does_not_end_the_reader(
    kernel: FakeKernel, delivered: Delivered
) -> None:
    """Even a defect is only another reason to begin again."""
    surprises = [RuntimeError("surprise")]

    def opener(path: Path, mark: object, last: object) -> Any:
        if surprises:
            raise surprises.pop()
        return kernel.source(path, mark, last)

    kernel.print(xid(31))
    with _reading(kernel, delivered, opener=opener):
        delivered.until_code(31)
    assert delivered.statuses[0].error == "internal_error"


def test_a_parser_that_fails_costs_one_line(kernel: FakeKernel, delivered: Delivered) -> None:
    """The line counts for nothing, is counted as such, and the others come."""

    def choosy(text: str, time: float, uptime: float) -> list[Event]:
        if "13," in text:
            raise ValueError
        return parse(text, time, uptime)

    kernel.print(xid(13))
    kernel.print(xid(31))
    with _reading(kernel, delivered, parse=choosy) as reader:
        delivered.until_code(31)
        assert reader.status().parser_errors == 1
    assert delivered.codes == [31]


def test_a_batch_that_could_not_be_delivered_comes_again(
    kernel: FakeKernel, delivered: Delivered
) -> None:
    """Whoever takes batches may fail for a while; nothing is lost and nothing comes twice."""
    failures = [RuntimeError("full"), RuntimeError("full")]

    def reluctant(batch: Batch) -> None:
        if failures:
            raise failures.pop()
        delivered.take(batch)

    kernel.print(xid(31))
    reader = KernelLog(
        PATH, parse, reluctant, boot_id=BOOT, opener=kernel.source, retry_s=(0.01, 0.05)
    )
    reader.start()
    delivered.until_code(31)
    assert reader.stop()
    assert delivered.codes == [31]


def test_stopping_delivers_the_position_reached(kernel: FakeKernel, delivered: Delivered) -> None:
    """Other people's records are not read again by the next run either."""
    kernel.print(xid(31))
    with _reading(kernel, delivered):
        delivered.until_code(31)
        kernel.print("noise")
        assert kernel.read_out.wait(PATIENCE_S)
    assert delivered.batches[-1].position.seq == 1
    assert delivered.batches[-1].records == ()


def test_switched_off_it_does_nothing(delivered: Delivered) -> None:
    """`off` is neither up nor an error."""
    with reading("off", delivered) as reader:
        assert reader.status() == Status(enabled=False)


class _Clock:
    """Both clocks, set by the test."""

    def __init__(self, wall: float, boot: float) -> None:
        self.wall_s, self.boot_s = wall, boot
        self.record = RecordClock(lambda: self.wall_s, lambda: self.boot_s)


def test_times_are_wall_clock_times(kernel: FakeKernel, delivered: Delivered) -> None:
    """Time since boot becomes time of day, and what was there before the start is old."""
    clock = _Clock(wall=1_700_000_000.0, boot=1000.0)
    kernel.print(xid(1), usec=400_000_000)
    kernel.print(xid(2), usec=1_000_000_000)
    with _reading(kernel, delivered, clock=clock.record):
        delivered.until_code(2)
    first, second = delivered.records
    assert (first.time, first.old) == (pytest.approx(1_699_999_400.0), True)
    assert (second.time, second.old) == (pytest.approx(1_700_000_000.0), False)
    assert first.events[0].time == first.time


def test_a_step_of_the_clock_moves_only_later_records() -> None:
    """The offset is taken anew with every slice."""
    clock = _Clock(wall=1000.0, boot=100.0)
    assert clock.record.wall(90_000_000) == pytest.approx(990.0)
    clock.wall_s, clock.boot_s = 5020.0, 120.0  # 20 s later, set forward by 4000 s
    clock.record.adjust()
    assert clock.record.wall(119_000_000) == pytest.approx(5019.0)


def test_a_log_clock_that_fell_behind_is_corrected_by_what_arrives() -> None:
    """After months up the log's clock may be minutes late: a new record was made just now."""
    clock = _Clock(wall=1000.0, boot=100.0)
    clock.record.adjust(live_usec=40_000_000)
    assert clock.record.wall(40_000_000) == pytest.approx(1000.0)
    assert clock.record.wall(35_000_000) == pytest.approx(995.0)
    clock.record.adjust(live_usec=99_900_000)
    assert clock.record.wall(99_900_000) == pytest.approx(999.9)


def test_no_record_is_from_the_future() -> None:
    """A file from another machine may count from a boot long before ours."""
    clock = _Clock(wall=1000.0, boot=100.0)
    assert clock.record.wall(10**12) == 1000.0


@pytest.fixture
def holding() -> tuple[list[Event], Any]:
    """A parser that holds an event back until it is asked to settle."""
    held: list[Event] = []

    def parse_and_hold(text: str, time: float, uptime: float) -> list[Event]:
        if "off the bus" in text:
            held.append(Event("gpu_off_bus", time, "0000:3b:00", message=text))
        return []

    return held, parse_and_hold


def test_what_the_parser_holds_back_comes_when_the_log_is_quiet(
    kernel: FakeKernel, delivered: Delivered, holding: tuple[list[Event], Any]
) -> None:
    """A lost card whose Xid never comes is told soon after, also while others use the log."""
    held, parse_and_hold = holding

    def settle() -> list[Event]:
        given, held[:] = list(held), []
        return given

    kernel.print("NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.")
    with _reading(kernel, delivered, parse=parse_and_hold, settle=settle):
        delivered.until(lambda: delivered.records)
    (record,) = delivered.records
    assert (record.events[0].kind, record.count, record.seq) == ("gpu_off_bus", 1, 0)


def test_the_boot_id_is_the_kernels(tmp_path: Path) -> None:
    """It is read below the given /proc, and unknown where it cannot be."""
    assert read_boot_id(tmp_path) == "unknown"
    file = tmp_path / "sys/kernel/random/boot_id"
    file.parent.mkdir(parents=True)
    file.write_text(f"{BOOT}\n")
    assert read_boot_id(tmp_path) == BOOT
