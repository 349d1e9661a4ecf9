# SPDX-License-Identifier: Apache-2.0
"""How times, shares and names are written in the sentences of a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

MOST_NAMES = 3


def clock(timestamp: float) -> str:
    """Write a wall clock time; the date is there because a latch can be days old."""
    try:
        return f"{datetime.fromtimestamp(timestamp, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, OSError, ValueError):
        return "an unknown time"


def span(seconds: float) -> str:
    """Write a length of time in the largest unit that keeps it a whole number."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def percent(ratio: float) -> str:
    """Write a share."""
    return f"{100 * ratio:.0f} %"


def names(words: Sequence[str]) -> str:
    """Write the first few names and how many more there are."""
    shown = ", ".join(words[:MOST_NAMES])
    more = len(words) - MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
