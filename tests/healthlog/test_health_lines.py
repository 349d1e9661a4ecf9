# SPDX-License-Identifier: Apache-2.0
"""The [gpu-health] lines: their form, their rate, and that nothing about them blocks."""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardwatch.healthlog.line import TAG, Notice, written
from cardwatch.healthlog.rate import Rate
from cardwatch.healthlog.writer import HealthLog

GPU = "GPU-aaaaaaaa-0000-4000-8000-000000000001"


def notice(code: int | None = 79, message: str = "text", **more: Any) -> Notice:
    more.setdefault("uuid", GPU)
    more.setdefault("cls", "critical")
    return Notice(1_800_000_000.25, "xid", code=code, message=message, **more)


def test_a_line_says_everything_in_logfmt() -> None:
    """Level, card, code, class, action, meaning and message, with what is known beside them."""
    line = written(
        notice(
            gpu="3", action="drain", meaning="the card left the bus",
            message="GPU has fallen off the bus.",
            extra={"workload": "ns/pod", "container": "", "job": "17"},
        ),
        "logfmt",
    )  # fmt: skip
    assert line == (
        f"{TAG} ts=2027-01-15T08:00:00.250Z level=error uuid={GPU} gpu=3 kind=xid code=79 "
        'class=critical action=drain count=1 meaning="the card left the bus" workload=ns/pod '
        'job=17 message="GPU has fallen off the bus."'
    )


def test_a_line_says_the_same_in_json() -> None:
    """A shipper can parse it and find it by the same tag."""
    fields = json.loads(written(notice(cls="info", extra={"job": "17"}), "json"))
    assert fields["tag"] == TAG
    assert (fields["level"], fields["code"], fields["count"], fields["job"]) == (
        "info",
        79,
        1,
        "17",
    )


@given(st.text(), st.text(), st.sampled_from(["logfmt", "json"]))
def test_no_text_can_break_a_line_or_forge_a_field(message: str, name: str, form: str) -> None:
    """Whatever a process is called, the line is one line of ASCII with the right code."""
    line = written(notice(31, message, extra={name: message, "code": "79"}), form)
    assert line.isascii()
    assert line.isprintable()
    if form == "json":
        assert json.loads(line)["code"] == 31
    else:
        lexer = shlex.shlex(line.removeprefix(f"{TAG} "), posix=True)
        lexer.whitespace_split, lexer.commenters, lexer.quotes = True, "", '"'
        lexer.escapedquotes = '"'
        assert [word for word in lexer if word.startswith("code=")] == ["code=31"]


def test_the_first_is_logged_at_once_and_then_one_line_in_ten_seconds() -> None:
    """The counts of all lines add up to the events."""
    rate: Rate[str] = Rate()
    lines: list[tuple[float, int]] = []
    for tenth in range(251):
        now = tenth / 10
        lines += [(now, n.count) for n, _where in rate.due(now)]
        lines += [(now, n.count) for n, _where in rate.take(notice(), "", now)]
    lines += [(25.1, n.count) for n, _where in rate.rest()]
    assert [at for at, _count in lines] == [0, 10, 20, 25.1]
    assert sum(count for _at, count in lines) == 251


def test_after_a_quiet_time_the_next_is_the_first_again() -> None:
    """Nothing is held back when nothing came before it."""
    rate: Rate[str] = Rate()
    assert len(rate.take(notice(), "", 0)) == 1
    assert rate.due(10) == []
    assert rate.next_due() is None
    assert len(rate.take(notice(), "", 11)) == 1


def test_cards_codes_and_texts_are_apart() -> None:
    """Only equal events wait for each other."""
    rate: Rate[str] = Rate()
    different = [notice(), notice(31), notice(message="other"), notice(uuid="GPU-2")]
    assert all(len(rate.take(each, "", 0)) == 1 for each in different)


def test_a_flood_of_new_texts_is_one_text() -> None:
    """Beyond twenty texts of a code in ten seconds there is one line for all others."""
    rate: Rate[str] = Rate()
    lines = [line for n in range(1000) for line in rate.take(notice(31, f"at {n:x}"), "", 0.0)]
    assert len(lines) == 21
    assert len(rate.take(notice(48), "", 0.0)) == 1
    later = rate.due(10)
    assert sum(n.count for n, _where in [*lines, *later]) == 1000


def test_memory_of_the_rate_is_bounded() -> None:
    """With too many cards and codes, the oldest line comes early and no count is lost."""
    rate: Rate[str] = Rate()
    count = 0
    for number in range(5000):
        for _ in range(2):
            count += sum(n.count for n, _w in rate.take(notice(number), "", 0.0))
    assert len(rate._gathered) <= 1024
    assert count + sum(n.count for n, _w in rate.rest()) == 10_000


@pytest.fixture
def emitted() -> Iterator[tuple[list[str], threading.Event]]:
    """Lines that were written, and a gate that can hold the writer up."""
    gate = threading.Event()
    gate.set()
    yield [], gate
    gate.set()


def test_a_log_that_nobody_reads_delays_nobody(
    emitted: tuple[list[str], threading.Event],
) -> None:
    """A full pipe holds up the writer's thread; what it cannot keep is counted."""
    lines, gate = emitted
    gate.clear()

    def emit(line: str) -> None:
        gate.wait()
        lines.append(line)

    log = HealthLog(emit=emit)
    log.start()
    for code in range(5000):
        log.note(notice(code))
    assert not log.close(0)
    gate.set()
    log.close()
    threads = [t for t in threading.enumerate() if t.name == "health-log"]
    for thread in threads:
        thread.join()
    assert len(lines) + log.dropped >= 5000
    assert log.dropped > 0


def test_a_count_comes_when_its_time_is_over_and_the_rest_at_the_end() -> None:
    """The thread wakes by itself for the line that is due."""
    clock = [0.0]
    lines: list[str] = []
    came = threading.Condition()

    def emit(line: str) -> None:
        with came:
            lines.append(line)
            came.notify_all()

    log = HealthLog(emit=emit, clock=lambda: clock[0])
    log.start()
    for _ in range(3):
        log.note(notice())
    clock[0] = 10.5
    log.note(notice(31))  # wakes the thread, which then sees what time it is
    with came:
        assert came.wait_for(lambda: len(lines) == 3, 20)
    log.note(notice(count=7))
    assert log.close(20)
    counts = [word for line in lines for word in line.split() if word.startswith("count=")]
    assert sorted(counts) == ["count=1", "count=1", "count=2", "count=7"]


def test_an_emitter_that_fails_does_not_end_the_log() -> None:
    """A closed stderr is no reason to stop writing files."""
    calls: list[str] = []

    def emit(line: str) -> None:
        calls.append(line)
        raise BrokenPipeError

    log = HealthLog(emit=emit)
    log.start()
    log.note(notice(1))
    log.note(notice(2))
    assert log.close(20)
    assert len(calls) == 2
