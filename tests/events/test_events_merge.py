# SPDX-License-Identifier: Apache-2.0
"""One event told by two sources is one event."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cardwatch.events.merge import DRIVER, KERNEL, Merge

WALL = 1_800_000_000.0


def _count(merge: Merge, source: str, came: float, number: int = 1, **more: float) -> int:
    happened = more.get("happened", came)
    last = more.get("last", happened)
    return merge.count(source, "GPU-a", 31, number, came, WALL + happened, WALL + last)


def test_what_one_source_tells_is_not_lost() -> None:
    """Each line of the log alone, and each event of the driver alone, counts."""
    for source in (KERNEL, DRIVER):
        merge = Merge()
        assert [_count(merge, source, t) for t in (0.0, 0.1, 60.0)] == [1, 1, 1]


def test_the_second_source_adds_nothing_within_five_seconds() -> None:
    """Whichever comes first, the other one is the same event."""
    for first, second in ((KERNEL, DRIVER), (DRIVER, KERNEL)):
        merge = Merge()
        assert _count(merge, first, 0.0) == 1
        assert _count(merge, second, 4.9) == 0
        assert _count(merge, second, 5.0) == 1


def test_the_larger_number_counts() -> None:
    """Three lines and five driver events of one burst are five."""
    merge = Merge()
    assert _count(merge, KERNEL, 0.0, 3) == 3
    assert [_count(merge, DRIVER, 1.0 + n / 10) for n in range(5)] == [0, 0, 0, 1, 1]


def test_after_five_seconds_it_is_another_event() -> None:
    """What is further apart by both clocks is not the same."""
    merge = Merge()
    assert _count(merge, KERNEL, 0.0) == 1
    assert _count(merge, DRIVER, 5.1) == 1


def test_a_steady_series_told_by_both_counts_each_once() -> None:
    """No boundary of a window cuts a pair in two, however long it goes on."""
    merge = Merge()
    total = 0
    for step in range(50):
        total += _count(merge, KERNEL, 2.0 * step)
        total += _count(merge, DRIVER, 2.0 * step + 1.5)
    assert total == 50


def test_a_late_line_is_recognised_by_its_own_time() -> None:
    """The log could not be read for half a minute: its line is still the driver's event."""
    merge = Merge()
    assert _count(merge, DRIVER, 0.0) == 1
    assert _count(merge, KERNEL, 30.0, happened=0.2) == 0
    assert _count(merge, KERNEL, 30.0, happened=30.0) == 1


def test_a_record_of_many_lines_pairs_with_each_of_them() -> None:
    """Equal lines of a batch span a time; the driver's events lie within it."""
    merge = Merge()
    assert _count(merge, KERNEL, 60.0, 3, happened=0.0, last=20.0) == 3
    assert _count(merge, DRIVER, 70.0, happened=10.0) == 0


def test_cards_and_codes_are_apart() -> None:
    """Another card or code is another event."""
    merge = Merge()
    assert merge.count(KERNEL, "GPU-a", 31, 1, 0.0, WALL) == 1
    assert merge.count(DRIVER, "GPU-b", 31, 1, 0.0, WALL) == 1
    assert merge.count(DRIVER, "GPU-a", 43, 1, 0.0, WALL) == 1
    assert merge.count(DRIVER, "GPU-a", 31, 1, 0.0, WALL) == 0


def test_memory_is_bounded_in_cards_and_in_events() -> None:
    """A flood of names and of lines keeps a bounded amount."""
    merge = Merge()
    for number in range(6000):
        merge.count(KERNEL, f"GPU-{number}", 31, 1, 0.0, WALL)
    for second in range(3000):
        merge.count(KERNEL, "GPU-a", 31, 1, float(second), WALL + second)
    told = merge._told
    assert len(told) <= 4096
    assert max(len(own) for both in told.values() for own in both.values()) <= 512


@given(
    st.lists(
        st.tuples(
            st.sampled_from((KERNEL, DRIVER)),
            st.integers(1, 5),
            st.floats(0, 4.9, allow_nan=False),
        ),
        max_size=30,
    )
)
def test_within_five_seconds_the_count_is_the_larger_of_the_two(
    told: list[tuple[str, int, float]],
) -> None:
    """In any order and number, never the sum and never less than what one source told."""
    merge = Merge()
    told.sort(key=lambda item: item[2])
    total = sum(_count(merge, source, at, number) for source, number, at in told)
    each = [sum(number for s, number, _ in told if s == source) for source in (KERNEL, DRIVER)]
    assert total == max(each)
