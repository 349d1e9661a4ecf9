# SPDX-License-Identifier: Apache-2.0
"""What sequence numbers tell: repetitions and losses."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cardwatch.kmsg.numbering import KernelNumbering, Line, StreamNumbering


@given(st.lists(st.integers(min_value=1, max_value=5), min_size=1), st.integers(0, 3))
def test_losses_are_the_gaps(steps: list[int], times: int) -> None:
    """Read any number of times over, each number counts once and each gap counts once."""
    numbers = [sum(steps[: n + 1]) for n in range(len(steps))]
    kernel = KernelNumbering(0)
    accepted = [n for n in numbers if kernel.accept(n)]
    for _ in range(times):
        kernel.reopened()
        assert not any(kernel.accept(n) for n in numbers)
    assert accepted == numbers
    assert kernel.lost == numbers[-1] - len(numbers)


def test_the_first_record_of_all_tells_no_loss() -> None:
    """Without a known position nothing can be missing before the oldest record."""
    kernel = KernelNumbering(None)
    assert kernel.accept(5000)
    assert kernel.lost == 0


def test_a_record_passed_over_is_not_lost() -> None:
    """One that was too long is counted as that, also when it is passed again."""
    kernel = KernelNumbering(None)
    kernel.accept(1)
    assert kernel.pass_over()
    kernel.accept(3)
    kernel.reopened()
    assert not kernel.accept(1)
    assert not kernel.pass_over()
    assert not kernel.accept(3)
    assert kernel.accept(4)
    assert kernel.lost == 0


def _line(seq: int, text: bytes = b"x", usec: int | None = None) -> Line:
    return Line.of(seq, seq * 10 if usec is None else usec, text)


def test_lines_repeated_count_once_and_new_lines_with_old_numbers_count() -> None:
    """A second log in the same file is not taken for a repetition of the first."""
    stream = StreamNumbering()
    assert all(stream.accept(_line(n)) for n in range(100, 200))
    assert not any(stream.accept(_line(n)) for n in range(100, 200))
    assert all(stream.accept(_line(n, b"of another boot", n * 7)) for n in range(50, 120))


def test_hand_made_lines_may_share_a_number() -> None:
    """Lines that differ in their text only are different lines."""
    stream = StreamNumbering()
    assert stream.accept(_line(1, b"one"))
    assert stream.accept(_line(1, b"two"))
    assert not stream.accept(_line(1, b"one"))


def test_after_a_restart_a_log_repeated_from_its_start_counts_only_what_is_new() -> None:
    """The few lines remembered stand for all those before them."""
    first = StreamNumbering()
    for n in range(500):
        first.accept(_line(n))
    second = StreamNumbering(first.kept())
    assert [n for n in range(510) if second.accept(_line(n))] == list(range(500, 510))


def test_memory_is_bounded() -> None:
    """A stream of any length is remembered in a limited number of lines."""
    stream = StreamNumbering()
    for n in range(40_000):
        stream.accept(_line(n))
    assert len(stream._recent) <= 16384
    assert len(stream.kept()) <= 32
