# SPDX-License-Identifier: Apache-2.0
"""Dates as logs write them, to seconds since 1970; None for a date that cannot be.

A date without a year is of the newest year that does not put it into the future.
A date without a zone is in the zone that the reader was told, UTC by default.
"""

from __future__ import annotations

import re
from calendar import timegm
from dataclasses import dataclass
from time import gmtime

_MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
    )
}
_LEAP_CYCLE = 8  # a 29 February is at most that many years back
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_OFFSET = re.compile(r"([+-])(\d{2}):?(\d{2})")
_SPAN = (1990, 2200)


@dataclass(frozen=True)
class Calendar:
    """How to read incomplete dates: the time now, and seconds east of UTC where none is told."""

    now: float
    offset: float = 0.0

    def iso(self, found: re.Match[str]) -> float | None:
        """Return the time of a match with year, month, day, clock, fraction and zone."""
        return self._seconds(
            int(found["year"]), int(found["month"]), int(found["day"]), found["clock"],
            found["fraction"], found["zone"],
        )  # fmt: skip

    def named(self, found: re.Match[str]) -> float | None:
        """Return the time of a match whose month is a name and whose year may be missing."""
        month = _MONTHS.get(found["month"][:3].lower())
        if month is None:
            return None
        fields = found.groupdict()
        day, clock, fraction = int(found["day"]), found["clock"], fields.get("fraction")
        if fields.get("year"):
            return self._seconds(int(found["year"]), month, day, clock, fraction, None)
        latest = _year(self.now + self.offset)
        for year in range(latest, latest - _LEAP_CYCLE - 1, -1):
            seconds = self._seconds(year, month, day, clock, fraction, None)
            if seconds is not None and seconds <= self.now:
                return seconds
        return None

    def _seconds(
        self, year: int, month: int, day: int, clock: str, fraction: str | None, zone: str | None
    ) -> float | None:
        hour, minute, second = (int(part) for part in clock.split(":"))
        if not (_SPAN[0] <= year < _SPAN[1] and 1 <= month <= 12 and 1 <= day <= _DAYS[month - 1]):
            return None
        if (
            hour > 23
            or minute > 59
            or second > 60
            or (month == 2 and day == 29 and not _leap(year))
        ):
            return None
        whole = timegm((year, month, day, hour, minute, second))
        return whole + float(f"0.{fraction or 0}") - self._east(zone)

    def _east(self, zone: str | None) -> float:
        if not zone:
            return self.offset
        found = _OFFSET.fullmatch(zone)
        if found is None:
            return 0.0  # Z, UTC, GMT
        seconds = int(found[2]) * 3600 + int(found[3]) * 60
        return -seconds if found[1] == "-" else seconds


def _leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _year(seconds: float) -> int:
    return gmtime(seconds).tm_year
