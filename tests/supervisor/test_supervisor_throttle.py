# SPDX-License-Identifier: Apache-2.0
"""The exporter's own sum of throttle time."""

from __future__ import annotations

import pytest

from cardwatch.supervisor.throttle import ThrottleClock


def test_the_first_sample_adds_nothing() -> None:
    """Nobody knows how long the bit was set before."""
    clock = ThrottleClock()
    clock.add({"sw_power_cap": True}, 100, 5)
    assert clock.seconds == {"sw_power_cap": 0.0}


def test_each_reason_counts_for_itself() -> None:
    """Time is added to the reasons that are active, the others stand still."""
    clock = ThrottleClock()
    clock.add({"sw_power_cap": True, "gpu_idle": False}, 100, 5)
    clock.add({"sw_power_cap": True, "gpu_idle": False}, 105, 5)
    clock.add({"sw_power_cap": False, "gpu_idle": True}, 111, 5)
    assert clock.seconds == {"sw_power_cap": 5.0, "gpu_idle": 6.0}


@pytest.mark.parametrize(("gap", "added"), [(15.0, 15.0), (15.01, 0.0), (0.0, 0.0), (-3.0, 0.0)])
def test_only_a_gap_of_up_to_three_intervals_counts(gap: float, added: float) -> None:
    """Too long a gap, none, or one backwards adds nothing."""
    clock = ThrottleClock()
    clock.add({"hw_slowdown": True}, 100, 5)
    clock.add({"hw_slowdown": True}, 100 + gap, 5)
    assert clock.seconds == {"hw_slowdown": added}


def test_a_sample_that_does_not_tell_breaks_the_chain() -> None:
    """After it, counting starts anew; what was counted stays."""
    clock = ThrottleClock()
    for at, reasons in ((0, True), (5, True), (10, None), (15, True), (20, True)):
        clock.add(None if reasons is None else {"hw_slowdown": reasons}, at, 5)
    assert clock.seconds == {"hw_slowdown": 10.0}


def test_a_sum_never_falls() -> None:
    """Whatever comes, the counter only grows."""
    clock = ThrottleClock()
    sums = []
    for at, active in ((0, True), (5, True), (3, True), (60, True), (62, False), (64, True)):
        clock.add({"hw_slowdown": active}, at, 5)
        sums.append(clock.seconds["hw_slowdown"])
    assert sums == sorted(sums)
