# SPDX-License-Identifier: Apache-2.0
"""How long to wait before the next child."""

from __future__ import annotations

from cardwatch.supervisor.backoff import Backoff


def test_waits_double_up_to_five_minutes() -> None:
    """5 s, 10 s, ... 300 s, and no longer."""
    backoff = Backoff()
    assert [backoff.after(0.0) for _ in range(9)] == [5, 10, 20, 40, 80, 160, 300, 300, 300]


def test_a_child_that_worked_longer_than_its_wait_starts_over() -> None:
    """Crashes a day apart are not a series."""
    backoff = Backoff()
    for _ in range(4):
        backoff.after(0.0)
    assert backoff.after(3600.0) == 5
    assert backoff.after(0.0) == 10


def test_a_child_that_worked_shortly_does_not() -> None:
    """A few seconds of work between crashes is still a crash loop."""
    backoff = Backoff()
    assert [backoff.after(3.0) for _ in range(3)] == [5, 10, 20]
