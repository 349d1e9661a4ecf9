# SPDX-License-Identifier: Apache-2.0
"""Written durations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardwatch.settings.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5s", 5),
        ("10m", 600),
        ("500ms", 0.5),
        ("1h30m", 5400),
        ("1.5s", 1.5),
        ("2d", 172800),
        ("0", 0),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    """A number with its unit, or several from large to small, gives seconds."""
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["", "5", "s", "5 s", "-5s", "1s1m", "1s1s", "5x", "5s\n", "1e3s", "\u0665s", "9" * 60 + "s"],
)
def test_bad_durations_say_what_is_allowed(text: str) -> None:
    """Anything else is refused with an example of what is allowed."""
    with pytest.raises(ValueError, match="such as 500ms, 5s, 10m"):
        parse_duration(text)


@given(st.integers(min_value=1, max_value=10**10))
def test_durations_survive_writing_and_reading(milliseconds: int) -> None:
    """What is formatted reads back to the same time."""
    seconds = milliseconds / 1000
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, abs=1e-6)


def test_zero_is_written_with_a_unit() -> None:
    """No time at all is 0s."""
    assert format_duration(0) == "0s"
