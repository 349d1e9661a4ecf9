# SPDX-License-Identifier: Apache-2.0
"""What the reader hands on: records with what the parser made of them, and the place reached."""

from __future__ import annotations

from dataclasses import dataclass

from cardwatch.kernlog.event import Event
from cardwatch.kmsg.position import Position


@dataclass(frozen=True)
class Record:
    """One text and its events. Repetitions of a text within a batch are one record.

    seq        number of the first of them.
    time       wall clock seconds of the first; ``last_time`` of the last.
    events     of the first; each happened ``count`` times.
    old        it was there before we started, and no earlier run of ours is known.
    """

    seq: int
    time: float
    last_time: float
    text: str
    events: tuple[Event, ...]
    count: int = 1
    old: bool = False


@dataclass(frozen=True)
class Batch:
    """Records, oldest first, and the position behind them.

    Whoever keeps both in one transaction has each record exactly once. A batch
    without records only moves the position.
    """

    records: tuple[Record, ...]
    position: Position
