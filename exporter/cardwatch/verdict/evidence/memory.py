# SPDX-License-Identifier: Apache-2.0
"""Memory errors of the card and the repair of its rows.

Judged by what happened since the last reset, never by lifetime totals: those
stay above zero on a repaired card.
"""

from __future__ import annotations

from cardwatch.verdict.case import Case, Finding
from cardwatch.verdict.history import CORRECTED
from cardwatch.verdict.wording import clock, span

_ECC = "gpu_ecc_errors_total"
_RECOVERY_ACTION_CHANGED = 154
"""Follows contained and uncontained errors alike, so it tells nothing of which it was."""

RESET_SLACK_S = 10.0
"""A reset inferred from a falling count has the time of the sample with the new count."""


def _uncorrected(case: Case) -> tuple[float, float] | None:
    """Return count and time of growth since the last reset, or None."""
    count = case.card.total(_ECC, "uncorrected")
    seen = (case.history.uncorrected_increased, case.card.uncorrected_increased)
    known = [time for time in seen if time is not None]
    if not count or not known:
        return None
    grown, reset = max(known), case.card.last_reset
    return None if reset is not None and reset > grown else (count, grown)


def _contained(case: Case, grown: float) -> bool:
    """Say whether the kernel log calls the error contained, and nothing worse came with it."""
    if any(e.cls == "critical" and e.code != _RECOVERY_ACTION_CHANGED for e in case.events):
        return False
    near = case.limits["near"]
    return any(e.cls == "contained" and abs(e.last_time - grown) <= near for e in case.events)


def uncorrected(case: Case) -> Finding | None:
    """Find that memory lost data, and nothing says that the damage stayed within one program."""
    found = _uncorrected(case)
    if found is None or _contained(case, found[1]):
        return None
    return _finding(found, "not known to be contained: any result of this card may be wrong")


def uncorrected_contained(case: Case) -> Finding | None:
    """Find that memory lost data of one program; Xid 94 says that the others are unharmed."""
    found = _uncorrected(case)
    if found is None or not _contained(case, found[1]):
        return None
    return _finding(found, "contained (Xid 94): one program was ended, the others are unharmed")


def _finding(found: tuple[float, float], what: str) -> Finding:
    count, grown = found
    return Finding(
        f"Uncorrectable memory errors: {count:.0f} since the driver was loaded, the last at "
        f"{clock(grown)}; {what}. No reset since.",
        value=count,
        limit=0.0,
        since=grown,
    )


def uncorrected_earlier(case: Case) -> Finding | None:
    """Find a count that was above zero when we first looked; nobody saw when it grew."""
    count = case.card.total(_ECC, "uncorrected")
    seen = case.history.uncorrected_seen
    if not count or _uncorrected(case) is not None:
        return None
    reset = case.card.last_reset
    if reset is not None and seen is not None and reset > seen + RESET_SLACK_S:
        return None
    return Finding(
        f"{count:.0f} uncorrectable memory errors since the driver was loaded, from before "
        "cardwatch looked. Reset the card at the next occasion.",
        value=count,
        limit=0.0,
    )


def corrected_rate(case: Case) -> Finding | None:
    """Find a storm of corrected errors; single ones are normal."""
    window, limit = case.limits["window"], case.limits["rate"]
    rate = case.history.share(CORRECTED, window, case.now)
    if rate <= limit:
        return None
    return Finding(
        f"{rate:.3g} corrected memory errors per second over {span(window)}, limit {limit:g}. "
        "No data is lost yet, but such cards stall tools that ask them.",
        value=rate,
        limit=limit,
    )


def sram_threshold(case: Case) -> Finding | None:
    """Find that the card itself says that its SRAM errors passed the vendor's limit."""
    if case.card.one("gpu_ecc_sram_threshold_exceeded") != 1:
        return None
    return Finding(
        "SRAM errors passed the vendor's own limit: a case for replacement. Drain soon.",
        value=1.0,
        limit=0.0,
    )


def row_remap_failure(case: Case) -> Finding | None:
    """Find a bad memory row that could not be replaced by a spare one."""
    if case.card.one("gpu_row_remap_failure") != 1:
        return None
    return Finding(
        "A bad memory row could not be replaced: a case for replacement of the card. Data is "
        "right until the next error there; a reset does not cure it.",
        value=1.0,
        limit=0.0,
    )


def row_remap_pending(case: Case) -> Finding | None:
    """Find a bad memory row that will be replaced at the next reset."""
    if case.card.one("gpu_row_remap_pending") != 1:
        return None
    return Finding(
        "A bad memory row waits for the next reset to be replaced by a spare one. Work may go on.",
        value=1.0,
        limit=0.0,
    )
