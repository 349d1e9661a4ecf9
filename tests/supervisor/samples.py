# SPDX-License-Identifier: Apache-2.0
"""Short ways to say what a child reported."""

from __future__ import annotations

from typing import Any

from cardwatch.sample import CardSample, Frame, OpenCall
from cardwatch.supervisor.cards import Cards
from cardwatch.supervisor.roster import Entry, Roster

INTERVAL = 5.0


def card(slot: int, uuid: str | None, at: float, **more: Any) -> CardSample:
    """Return a sample of a card that answers, taken at this second."""
    rows = more.pop("rows", {"gpu_temperature_celsius": [((), 50.0)]})
    return CardSample(slot=slot, uuid=uuid, time=1000 + at, monotonic=at, rows=rows, **more)


def unreadable(
    slot: int, at: float, error: str = "unknown", state: str = "unreadable"
) -> CardSample:
    """Return a sample of an index that gave no handle."""
    sample = card(slot, None, at, rows={}, up=False, state=state, error=error)
    sample.faults = {"card": error}
    return sample


def established(index: int, last_seen: float = 10_000.0) -> Entry:
    """Return a card that was here for hours, once."""
    return Entry(0.0, last_seen, index, "0000:b1:00", {"model": "H100"})


def book(**roster: Entry) -> Cards:
    """Return an empty book over a roster in memory; names have _ for -."""
    known = {name.replace("_", "-"): entry for name, entry in roster.items()}
    return Cards(Roster(None, cards=known), INTERVAL)


def frame(*cards: CardSample, listed: int | None = None, **more: Any) -> Frame:
    """Return what a child says at the end of a pass."""
    count = len(cards) if listed is None else listed
    return Frame(pid=1, listed=count, pass_done=True, cards=list(cards), **more)


def open_call(slot: int | None, age: float) -> OpenCall:
    return OpenCall(slot, "DeviceGetTemperatureV", age)


def states(cards: Cards, now: float, away: tuple[str, str] | None = None) -> dict[str, str]:
    """Return the state of each card that is shown."""
    return {view.card.uuid: view.state for view in cards.views(now, away)}
