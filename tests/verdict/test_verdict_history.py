# SPDX-License-Identifier: Apache-2.0
"""Windows over time: shares, rates and peaks, gaps, resets and bounds."""

from __future__ import annotations

import pytest

from cardwatch.verdict import CardFacts
from cardwatch.verdict.history import BUCKET_S, LONGEST_WINDOW_S, History

INTERVAL = 5.0
THERMAL = "hw_thermal_slowdown"


def _card(at: float, *, thermal: float | None = None, corrected: float | None = None,
          own: float | None = None, fault: str | None = None, links: float | None = None,
          reset: float | None = None) -> CardFacts:  # fmt: skip
    rows = {}
    if thermal is not None:
        rows["gpu_throttle_seconds_total"] = [((THERMAL,), thermal)]
    if corrected is not None:
        rows["gpu_ecc_errors_total"] = [(("corrected", "dram"), corrected)]
    if links is not None:
        rows["gpu_nvlink_active_links"] = [((), links)]
    return CardFacts(
        "GPU-x",
        rows=rows,
        faults={} if fault is None else {"gpu_throttle_seconds_total": fault},
        sampled_at=at,
        throttled={} if own is None else {THERMAL: own},
        last_reset=reset,
    )


def _feed(history: History, card: CardFacts) -> None:
    assert card.sampled_at is not None
    history.feed(card, card.sampled_at, 1e9 + card.sampled_at, INTERVAL)


def test_a_share_is_the_time_of_the_reason_over_the_time_observed() -> None:
    """Half of each interval throttled is a share of one half."""
    history = History()
    for step in range(200):
        _feed(history, _card(step * INTERVAL, thermal=step * INTERVAL / 2))
    assert history.share(THERMAL, 600.0, 199 * INTERVAL) == pytest.approx(0.5, abs=0.01)


def test_the_first_seconds_do_not_look_like_the_whole_window() -> None:
    """A card throttled from the first sample on is not yet throttled for most of the window."""
    history = History()
    for step in range(4):
        _feed(history, _card(step * INTERVAL, thermal=step * INTERVAL))
    assert history.share(THERMAL, 900.0, 15.0) == pytest.approx(15 / 450)


def test_a_gap_of_more_than_three_intervals_adds_nothing() -> None:
    """Nobody knows what happened in it, whatever the counters say afterwards."""
    history = History()
    _feed(history, _card(0, thermal=0, corrected=0))
    _feed(history, _card(15, thermal=15, corrected=15))
    _feed(history, _card(31, thermal=31, corrected=1_000_000))
    assert history.amount(THERMAL, 600.0, 31) == 15
    assert history.amount("corrected", 600.0, 31) == 15


def test_a_counter_that_falls_adds_nothing_and_goes_on_from_there() -> None:
    """A driver reload starts counters again."""
    history = History()
    for at, count in ((0, 100), (5, 104), (10, 1), (15, 3)):
        _feed(history, _card(at, corrected=count))
    assert history.amount("corrected", 600.0, 15) == 6


def test_a_missing_reading_is_bridged_by_the_counter() -> None:
    """One sample without the row loses nothing: the next one holds the growth of both."""
    history = History()
    _feed(history, _card(0, corrected=0))
    _feed(history, _card(5))
    _feed(history, _card(10, corrected=8))
    assert history.amount("corrected", 600.0, 10) == 8


def test_the_drivers_counter_and_our_own_are_never_mixed() -> None:
    """Another source starts anew; a failed driver counter is not filled from ours."""
    history = History()
    _feed(history, _card(0, thermal=5000, own=0))
    _feed(history, _card(5, own=5))
    _feed(history, _card(10, own=10))
    assert history.amount(THERMAL, 600.0, 10) == 5
    _feed(history, _card(15, own=15, fault="unknown"))
    assert history.amount(THERMAL, 600.0, 15) == 5


def test_no_reason_lasts_longer_than_the_time_itself() -> None:
    """A coarse counter that jumps is cut to the length of the interval."""
    history = History()
    _feed(history, _card(0, thermal=0))
    _feed(history, _card(5, thermal=60))
    assert history.amount(THERMAL, 600.0, 5) == 5


def test_what_is_older_than_the_window_is_over() -> None:
    """Also when no further sample comes."""
    history = History()
    for step in range(10):
        _feed(history, _card(step * INTERVAL, thermal=step * INTERVAL, links=18))
    assert history.highest("links", 600.0, 45) == 18
    late = 45 + 600 + BUCKET_S
    assert history.share(THERMAL, 600.0, late) == 0
    assert history.highest("links", 600.0, late) is None


def test_a_peak_leaves_with_its_bucket() -> None:
    """The highest value counts for the window and no longer."""
    history = History()
    for step in range(400):
        _feed(history, _card(step * INTERVAL, links=18 if step < 10 else 12))
        now = step * INTERVAL
        best = history.highest("links", 600.0, now)
        if now <= 600:
            assert best == 18
        if now > 645 + BUCKET_S:
            assert best == 12


def test_a_reset_ends_the_story_and_a_wobbling_clock_does_not() -> None:
    """Evidence from before a reset is of another life; a few seconds are the same reset."""
    history = History()
    for step in range(10):
        _feed(history, _card(step * INTERVAL, thermal=step * INTERVAL, reset=1000 + step))
    assert history.amount(THERMAL, 600.0, 45) == 45
    _feed(history, _card(50, thermal=0, reset=2000))
    assert history.amount(THERMAL, 600.0, 50) == 0


def test_memory_is_bounded() -> None:
    """A day at one sample per second keeps no more than the longest window."""
    history = History()
    for step in range(20_000):
        history.feed(_card(step * 3.0, corrected=step), step * 3.0, 1e9, 3.0)
    assert len(history._buckets) <= LONGEST_WINDOW_S / BUCKET_S + 2
    assert history.amount("corrected", LONGEST_WINDOW_S, 60_000) <= 1_230


def test_a_clock_that_goes_back_adds_nothing() -> None:
    """A sample older than the last one has no length."""
    history = History()
    _feed(history, _card(100, corrected=0))
    _feed(history, _card(50, corrected=50))
    _feed(history, _card(55, corrected=55))
    assert history.amount("corrected", 600.0, 100) == 5
