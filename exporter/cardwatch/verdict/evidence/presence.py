# SPDX-License-Identifier: Apache-2.0
"""Whether the card is there, answers, and can be believed."""

from __future__ import annotations

import math

from cardwatch.verdict.case import Case, Finding, NodeCase
from cardwatch.verdict.facts import NOT_CREDIBLE, NodeFacts
from cardwatch.verdict.wording import clock, names

_NOT_AWAY = (None, "detached", "starting")
_OF_THE_CARD = ("lost", "reset_required", "denied")
"""States in which the driver did answer and spoke of the card."""


def driver_is_away(node: NodeFacts) -> bool:
    """Say whether the driver cannot be used at all, so that no card can be blamed."""
    return node.source_up is False and node.driver_error is not None


def lost(case: Case) -> Finding | None:
    """Find a card that the driver calls gone, or no longer lists."""
    card = case.card
    if card.state != "lost":
        return None
    how = "no longer lists this card" if card.cause == "not_listed" else "says this card is lost"
    return Finding(
        f"The driver {how}: fallen off the bus, or taken out.{_counts(case.node)} "
        "Its jobs are dead or hang; drain the host."
    )


def _counts(node: NodeFacts) -> str:
    if node.listed is None or node.detected is None:
        return ""
    return f" The driver lists {node.listed} cards, the PCI bus shows {node.detected}."


def hung(case: Case) -> Finding | None:
    """Find a driver call about the card that does not come back."""
    card = case.card
    if card.state != "hung":
        return None
    seen = card.sampled_at
    age = None if seen is None or not math.isfinite(seen) else case.now - seen
    since = "" if age is None else f"; its last reading is from {clock(case.wall - age)}"
    return Finding(
        f"The driver does not answer about this card{since}. "
        "Do not start more tools that ask the driver: they hang as well.",
        value=age,
    )


def reset_required(case: Case) -> Finding | None:
    """Find that the driver answers that the card needs a reset first."""
    if case.card.state != "reset_required":
        return None
    return Finding("The driver refuses work on this card until it is reset.")


def collection_failing(case: Case) -> Finding | None:
    """Find that nothing that matters reads on this card although the driver is there."""
    card = case.card
    if card.up or card.state not in ("ok", "unreadable") or driver_is_away(case.node):
        return None
    if card.cause == "starting":
        return None
    some = len(card.rows or ())
    rest = f"; {some} lesser readings still come, which proves nothing" if some else ""
    return Finding(
        f"Utilization, clocks and power of this card cannot be read "
        f"({card.cause or 'unknown_error'}){rest}.",
        value=float(len(card.failing())),
    )


def reading_failing(case: Case) -> Finding | None:
    """Find a reading that fails although the card answers and supports it."""
    failing = case.card.failing()
    if not case.card.up or not failing:
        return None
    return Finding(
        f"The card answers, but the driver fails to read {names(failing)} "
        f"({case.card.faults[failing[0]]}).",
        value=float(len(failing)),
        limit=0.0,
    )


def reading_out_of_range(case: Case) -> Finding | None:
    """Find an impossible value that came with a success code, as from broken cards."""
    wrong = case.card.faulty(NOT_CREDIBLE)
    if not wrong:
        return None
    return Finding(
        f"The driver gives impossible values for {names(wrong)}. Broken cards do this while "
        "everything looks fine: run a diagnosis before trusting this card.",
        value=float(len(wrong)),
        limit=0.0,
    )


def denied(case: Case) -> Finding | None:
    """Find that we may not read the card, which says nothing about the card."""
    if case.card.state != "denied":
        return None
    return Finding(
        "cardwatch has no permission to read this card, so nobody watches it: "
        "`cardwatch doctor` names the way out."
    )


def driver_away(case: NodeCase) -> Finding | None:
    """Find that the driver as a whole cannot be used; its cards are not to blame."""
    node = case.node
    if not driver_is_away(node) or node.driver_error in _NOT_AWAY:
        return None
    if case.cards and all(card.state in _OF_THE_CARD for card in case.cards):
        return None
    return Finding(
        f"The driver of this node cannot be used ({node.driver_error}): none of its "
        f"{len(case.cards)} cards can work or be judged. This is the driver, not the cards.",
        value=float(len(case.cards)),
    )
