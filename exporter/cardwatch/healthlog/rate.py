# SPDX-License-Identifier: Apache-2.0
"""How often equal events are logged: the first at once, then one line in ten seconds with a count.

Equal means the same card, code and text. A flood of ever new texts is treated
as one text. Nothing is left out of the counts. Not for several threads at once.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

from cardwatch.healthlog.line import Notice

EVERY_S = 10.0
_MAX_KEYS = 1024
_MAX_TEXTS = 20
"""So many texts of one code of one card in ten seconds have lines of their own."""

Where = TypeVar("Where")
_Kind = tuple[str, str, int | None]


@dataclass
class _Gathered(Generic[Where]):
    """What came since the last line of one text. ``notice`` is the newest."""

    until: float
    notice: Notice | None = None
    where: Where | None = None
    count: int = 0


class Rate(Generic[Where]):
    """Decides what is logged now. ``Where`` goes along with each notice."""

    def __init__(self) -> None:
        self._gathered: OrderedDict[tuple[_Kind, str | None], _Gathered[Where]] = OrderedDict()
        self._texts: OrderedDict[_Kind, tuple[float, int]] = OrderedDict()

    def take(self, notice: Notice, where: Where, now: float) -> list[tuple[Notice, Where]]:
        """Take in a notice and return what is to be logged at once."""
        kind: _Kind = (notice.uuid, notice.kind, notice.code)
        key: tuple[_Kind, str | None] = (kind, notice.message)
        gathered = self._gathered.get(key)
        if gathered is None and self._is_flood(kind, now):
            key = (kind, None)
            gathered = self._gathered.get(key)
        if gathered is not None:
            gathered.notice, gathered.where = notice, where
            gathered.count += notice.count
            return []
        self._gathered[key] = _Gathered(now + EVERY_S)
        lines = [(notice, where)]
        if len(self._gathered) > _MAX_KEYS:
            _key, oldest = self._gathered.popitem(last=False)
            lines += _line(oldest)
        return lines

    def _is_flood(self, kind: _Kind, now: float) -> bool:
        since, texts = self._texts.get(kind, (now, 0))
        if now - since >= EVERY_S:
            since, texts = now, 0
        self._texts[kind] = since, texts + 1
        self._texts.move_to_end(kind)
        if len(self._texts) > _MAX_KEYS:
            self._texts.popitem(last=False)
        return texts >= _MAX_TEXTS

    def due(self, now: float) -> list[tuple[Notice, Where]]:
        """Return the lines whose ten seconds are over."""
        lines: list[tuple[Notice, Where]] = []
        while self._gathered:
            key, first = next(iter(self._gathered.items()))
            if first.until > now:
                break
            del self._gathered[key]
            if first.count:
                lines += _line(first)
                self._gathered[key] = _Gathered(now + EVERY_S)
        return lines

    def rest(self) -> list[tuple[Notice, Where]]:
        """Return everything that was gathered, at the end."""
        lines = [line for gathered in self._gathered.values() for line in _line(gathered)]
        self._gathered.clear()
        return lines

    def next_due(self) -> float | None:
        """Return when ``due`` has something to do; None while it has not."""
        first = next(iter(self._gathered.values()), None)
        return None if first is None else first.until


def _line(gathered: _Gathered[Where]) -> list[tuple[Notice, Where]]:
    if gathered.notice is None or gathered.where is None:
        return []
    return [(dataclasses.replace(gathered.notice, count=gathered.count), gathered.where)]
