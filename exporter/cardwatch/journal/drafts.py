# SPDX-License-Identifier: Apache-2.0
"""Rows that are not on disk yet, or not with their newest count.

Equal events of ten seconds are one row, so that a flood of some texts is a few
rows. Bounded: the oldest are given up, and counted. Not for several threads at once.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cardwatch.journal.records import MAX_CODE, MAX_TEXT, Entry, Row
from cardwatch.kernlog.event import Event

MERGE_S = 10.0
MAX_DRAFTS = 10_000
_MAX_OPEN = 1024

_MAX_TEXTS = 100
"""So many texts of one code of one card in ten seconds get rows of their own; a flood of ever
new texts would push everything else out of the journal."""

_Kind = tuple[str, str, int | None, str, bool]
_Key = tuple[_Kind, str | None]


@dataclass(eq=False)
class Draft:
    """A row that may still grow. It keeps the number that the first write gives to it."""

    row: Row


class Drafts:
    """The rows in memory."""

    def __init__(self, limit: int = MAX_DRAFTS) -> None:
        self._limit = limit
        self._open: OrderedDict[_Key, Draft] = OrderedDict()
        self._dirty: OrderedDict[int, Draft] = OrderedDict()
        self._texts: OrderedDict[_Kind, tuple[float, int]] = OrderedDict()
        self.dropped = 0

    def __len__(self) -> int:
        """Return how many rows wait for the disk."""
        return len(self._dirty)

    def add(self, entry: Entry, now: float) -> None:
        """Note an entry: in a row of the last ten seconds, or in a new one."""
        time = entry.event.time if entry.event.time is not None else now
        last = time if entry.last_time is None else max(entry.last_time, time)
        key: _Key = _kind(entry), entry.event.message
        draft = self._told_later(entry, time) if entry.count == 0 else None
        if draft is None:
            draft = self._merged(key, entry, time, last)
        if draft is None and self._is_flood(key[0], time):
            key = key[0], None
            draft = self._merged(key, entry, time, last)
        if draft is None:
            draft = Draft(_row(entry, time, last))
        self._open[key] = draft
        self._open.move_to_end(key)
        if len(self._open) > _MAX_OPEN:
            self._open.popitem(last=False)
        self._dirty[id(draft)] = draft
        self._bound()

    def _merged(self, key: _Key, entry: Entry, time: float, last: float) -> Draft | None:
        """Count the entry in a row of the last ten seconds, if there is one."""
        draft = self._open.get(key)
        if draft is None or abs(time - draft.row.time) >= MERGE_S:
            return None
        count, newest = draft.row.count + entry.count, max(last, draft.row.last_time)
        draft.row = dataclasses.replace(draft.row, count=count, last_time=newest)
        return draft

    def _is_flood(self, kind: _Kind, time: float) -> bool:
        """Count a new text; True when ten seconds have seen too many of this kind."""
        since, texts = self._texts.get(kind, (time, 0))
        if abs(time - since) >= MERGE_S:
            since, texts = time, 0
        self._texts[kind] = since, texts + 1
        self._texts.move_to_end(kind)
        if len(self._texts) > _MAX_OPEN:
            self._texts.popitem(last=False)
        return texts >= _MAX_TEXTS

    def _told_later(self, entry: Entry, time: float) -> Draft | None:
        """Find the row of an event that came without text, and give it the text."""
        draft = self._open.pop((_kind(entry), ""), None)
        if draft is None or draft.row.message or abs(time - draft.row.time) >= MERGE_S:
            return None
        told = _row(entry, draft.row.time, draft.row.last_time)
        draft.row = dataclasses.replace(told, id=draft.row.id, count=draft.row.count)
        return draft

    def _bound(self) -> None:
        while len(self._dirty) > self._limit:
            self._dirty.popitem(last=False)
            self.dropped += 1

    def take(self, last_row: int) -> tuple[int, list[tuple[Draft, Row]]]:
        """Take out what waits, each with how its row looks at this moment.

        New rows get the numbers after ``last_row``; the highest is returned.
        """
        taken = []
        for draft in self._dirty.values():
            if draft.row.id is None:
                last_row += 1
                draft.row = dataclasses.replace(draft.row, id=last_row)
            taken.append((draft, draft.row))
        self._dirty.clear()
        return last_row, taken

    def put_back(self, drafts: Iterable[Draft]) -> None:
        """Return drafts that could not be written; those that came meanwhile are newer."""
        newer = self._dirty
        self._dirty = OrderedDict((id(draft), draft) for draft in drafts)
        self._dirty.update(newer)
        self._bound()

    def rows(self) -> list[Row]:
        """Return the rows that wait for the disk."""
        return [draft.row for draft in self._dirty.values()]


def _kind(entry: Entry) -> _Kind:
    return entry.gpu, entry.event.kind, entry.event.code, entry.cls, entry.old


def _row(entry: Entry, time: float, last_time: float) -> Row:
    event = entry.event
    return Row(
        id=None,
        time=time,
        last_time=last_time,
        gpu=entry.gpu,
        kind=event.kind,
        code=stored_code(event),
        cls=entry.cls,
        severity=event.severity or "",
        action=entry.action,
        source=entry.source,
        old=entry.old,
        count=entry.count,
        message=_storable(event.message),
        detail=_detail(event),
        extra=dict(entry.extra),
    )


def stored_code(event: Event) -> int | None:
    """Return the code in the range that a store holds."""
    return None if event.code is None else max(0, min(event.code, MAX_CODE))


def _detail(event: Event) -> Mapping[str, Any]:
    """Return what the event tells and no column has."""
    told: dict[str, Any] = {}
    for part in dataclasses.fields(event):
        value = getattr(event, part.name)
        if part.name not in _COLUMNS and value is not None and value != ():
            told[part.name] = _storable(value) if isinstance(value, str) else value
    return told


def _storable(text: str) -> str:
    """Cut a text, and replace what is not Unicode: half a pair, as other sources may bring."""
    return text[:MAX_TEXT].encode("utf-8", "replace").decode()


_COLUMNS = frozenset({"kind", "time", "code", "severity", "message"})
