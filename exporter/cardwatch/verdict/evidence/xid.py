# SPDX-License-Identifier: Apache-2.0
"""What the kernel log and the driver's events say of the card since its last reset.

The class of an event is decided before it comes here. Classes ``application``
and ``info`` are no evidence against a card, however many there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from cardwatch.verdict.case import Case, Finding
from cardwatch.verdict.evidence.recovery import ACTIONS
from cardwatch.verdict.facts import SeenEvent
from cardwatch.verdict.wording import clock, names, span

_BLAMES_THE_CARD = frozenset({"hardware", "link", "firmware"})
_WORDS = {
    "gpu_off_bus": "the kernel says that it has fallen off the bus",
    "gpu_init_failed": "the driver failed to start it",
}


def critical(case: Case) -> Finding | None:
    """Find an event after which the card must not be used until it is reset."""
    found = [e for e in case.events if e.cls == "critical" or _is_critical_line(e)]
    if not found:
        return None
    return _finding(case, found, "No reset since; do not trust this card until it had one.")


def _is_critical_line(event: SeenEvent) -> bool:
    return event.kind in _WORDS and event.tier == "page"


def repeated(case: Case) -> Finding | None:
    """Find hardware events again and again: one is noise, three are a failing part."""
    window, limit = case.limits["window"], case.limits["count"]
    begin = max(case.wall - window, _reset(case))
    found = [e for e in case.events if e.cls == "hardware" and _blames_the_card(e)]
    count = case.history.repeats.since(found, begin)
    if count < limit:
        return None
    codes = names(sorted({_name(e) for e in found if e.last_time >= begin}))
    return Finding(
        f"{count} hardware events within {span(window)} ({codes}), limit {limit:g}: "
        "a failing part.",
        value=float(count),
        limit=limit,
        since=_begin(found, begin),
    )


def _reset(case: Case) -> float:
    return -math.inf if case.card.last_reset is None else case.card.last_reset


def _begin(found: Sequence[SeenEvent], earliest: float) -> float:
    """Return when these began; a merged event may have begun before the time looked at."""
    return max(min(event.first_time for event in found), earliest)


def _blames_the_card(event: SeenEvent) -> bool:
    origin = frozenset(event.origin)
    return not origin or ("application" not in origin and bool(origin & _BLAMES_THE_CARD))


def hardware(case: Case) -> Finding | None:
    """Find a single hardware event: work for this week."""
    return _recent(case, "hardware", "Plan a visit; three within an hour are a failing part.")


def contained(case: Case) -> Finding | None:
    """Find a memory error that ended one program only."""
    return _recent(case, "contained", "Restart that program; reset the card at its next pause.")


def unknown(case: Case) -> Finding | None:
    """Find a code that the table does not have."""
    return _recent(case, "unknown", "Not in our table: look it up and give it a class.")


def _recent(case: Case, cls: str, then: str) -> Finding | None:
    begin = case.wall - case.limits["window"]
    found = [e for e in case.events if e.cls == cls and e.last_time > begin]
    return _finding(case, found, then) if found else None


def _finding(case: Case, found: Sequence[SeenEvent], then: str) -> Finding:
    """Tell the newest event, how often there were any, and the other codes."""
    newest = found[-1]
    others = sorted({_name(e) for e in found} - {_name(newest)})
    beside = f" Also {names(others)}." if others else ""
    count = sum(event.count for event in found)
    began = _begin(found, _reset(case))
    last_of = f", the last of {count} events" if count > 1 else ""
    return Finding(
        f"{_told(newest)} at {clock(newest.last_time)}{last_of}.{beside} {then}",
        value=None if newest.code is None else float(newest.code),
        since=began,
    )


def _name(event: SeenEvent) -> str:
    if event.code is None:
        return event.kind
    return f"{'SXid' if event.kind == 'sxid' else 'Xid'} {event.code}"


def _told(event: SeenEvent) -> str:
    if event.code is None and event.kind in _WORDS:
        return f"About this card {_WORDS[event.kind]}"
    wish = ACTIONS.get(event.recovery_to or 0)
    detail = f", asking for {wish}" if wish else ""
    advice = f", advice {event.action}" if event.action and not wish else ""
    return f"{_name(event)} ({event.cls}{detail}{advice})"
