# SPDX-License-Identifier: Apache-2.0
"""The journal as it is in memory: what the page shows, and what the disk does not have yet.

Counters here are the truth; the disk gets copies of them. Not for several
threads at once: the journal holds a lock around it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cardwatch.journal.drafts import Draft, Drafts, stored_code
from cardwatch.journal.records import Counter, CounterKey, Entry, Mark, Row
from cardwatch.journal.store import Changes, Contents
from cardwatch.kmsg.position import Position

_MAX_COUNTERS = 4096
_MAX_MARKS = 1000
_AHEAD_S = 60.0


@dataclass
class Taken:
    """What was taken out to be written, so that it can be put back."""

    changes: Changes
    drafts: list[Draft]


class Image:
    """Counters, positions, marks and the rows that wait."""

    def __init__(self) -> None:
        self.counters: dict[CounterKey, Counter] = {}
        self.positions: dict[str, Position] = {}
        self.marks: list[Mark] = []
        self.drafts = Drafts()
        self._changed_counters: set[CounterKey] = set()
        self._changed_positions: set[str] = set()
        self._new_marks: list[Mark] = []
        self._anew = False
        self._last_row = 0
        self._in_flight: list[Row] = []
        self.writes = 0

    # -- what happens -------------------------------------------------------------------------

    def add(self, entries: Iterable[Entry], position: Position | None, now: float) -> None:
        """Note events, and how far the log was read that they are from."""
        for entry in entries:
            self.drafts.add(entry, now)
            if entry.count > 0:
                self._count(entry, now)
        if position is not None:
            self.positions[position.source] = position
            self._changed_positions.add(position.source)

    def _count(self, entry: Entry, now: float) -> None:
        event = entry.event
        code = stored_code(event)
        key = CounterKey(entry.gpu, event.kind, code, entry.cls, event.severity or "")
        if key not in self.counters and len(self.counters) >= _MAX_COUNTERS:
            key = key._replace(code=None)
        first = event.time if event.time is not None else now
        last = first if entry.last_time is None else max(first, entry.last_time)
        known = self.counters.get(key)
        if known is None:
            self.counters[key] = Counter(entry.count, first, last)
        else:
            # The clock was set back if what we know lies ahead: then the newest event is last.
            newest = last if known.last_time > now + _AHEAD_S else max(last, known.last_time)
            self.counters[key] = Counter(
                known.count + entry.count, min(first, known.first_time), newest
            )
        self._changed_counters.add(key)

    def mark(self, mark: Mark, *, write: bool) -> None:
        """Note a mark; ``write`` when it is not on disk."""
        self.marks = [*self.marks, mark][-_MAX_MARKS:]
        if write:
            self._new_marks.append(mark)

    # -- from and to the disk -----------------------------------------------------------------

    @property
    def changed(self) -> bool:
        """True when the disk lacks something."""
        return bool(
            self._changed_counters
            or self._changed_positions
            or self._new_marks
            or len(self.drafts)
            or self._anew
        )

    @property
    def urgent(self) -> bool:
        """True when that is more than a position."""
        return bool(self._changed_counters or self._new_marks or len(self.drafts) or self._anew)

    def number_rows_after(self, last: int) -> None:
        """Note the highest number of a row on disk."""
        self._last_row = max(self._last_row, last)

    def restore(self, contents: Contents) -> None:
        """Put what an earlier run left below what happened since."""
        for key, earlier in contents.counters.items():
            known = self.counters.get(key)
            if known is None:
                self.counters[key] = earlier
            else:
                self.counters[key] = Counter(
                    earlier.count + known.count,
                    min(earlier.first_time, known.first_time),
                    max(earlier.last_time, known.last_time),
                )
        self.positions = {**contents.positions, **self.positions}
        self.marks = [*contents.marks, *self.marks][-_MAX_MARKS:]

    def start_anew(self) -> None:
        """Note that the disk does not have what the page showed: all of it is to be written."""
        self._anew = True
        self._changed_counters = set(self.counters)
        self._changed_positions = set(self.positions)

    def rewrite_marks(self) -> None:
        """Note that the disk has none of the marks either."""
        self._new_marks = list(self.marks)

    def take(self) -> Taken:
        """Take out what the disk lacks, all of one moment."""
        self._last_row, drafts = self.drafts.take(self._last_row)
        self._in_flight = [row for _draft, row in drafts]
        taken = Taken(
            Changes(
                rows=self._in_flight,
                counters={key: self.counters[key] for key in self._changed_counters},
                positions=[self.positions[source] for source in self._changed_positions],
                marks=self._new_marks,
                anew=self._anew,
            ),
            [draft for draft, _row in drafts],
        )
        self._changed_counters, self._changed_positions = set(), set()
        self._new_marks, self._anew = [], False
        return taken

    def put_back(self, taken: Taken) -> None:
        """Return what could not be written."""
        self._in_flight = []
        self.drafts.put_back(taken.drafts)
        self._changed_counters |= set(taken.changes.counters)
        self._changed_positions |= {position.source for position in taken.changes.positions}
        self._new_marks = [*taken.changes.marks, *self._new_marks][-_MAX_MARKS:]
        self._anew = self._anew or taken.changes.anew

    def written(self) -> None:
        """Note that the disk has what was taken."""
        self.writes += 1
        self._in_flight = []

    @property
    def pending(self) -> int:
        """How many rows the disk lacks."""
        return len(self.drafts) + len(self._in_flight)

    def waiting_rows(self) -> list[Row]:
        """Return the rows that the disk lacks, or has with an older count."""
        waiting = self.drafts.rows()
        newer = {row.id for row in waiting}
        return [row for row in self._in_flight if row.id not in newer] + waiting
