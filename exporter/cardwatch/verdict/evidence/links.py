# SPDX-License-Identifier: Apache-2.0
"""The card's links: fabric, NVLink, PCI Express."""

from __future__ import annotations

from cardwatch.verdict.case import Case, Finding
from cardwatch.verdict.facts import CardFacts
from cardwatch.verdict.history import WORKING, History
from cardwatch.verdict.wording import span

_COMPLETED = 3
_FABRIC_WORDS: dict[float, str] = {1: "not started", 2: "in progress"}


def fabric_not_ready(case: Case) -> Finding | None:
    """Find a card that has not joined the fabric, so no CUDA work can start on it."""
    state = case.card.one("gpu_fabric_state")
    if state is None or state >= _COMPLETED:
        return None
    return Finding(
        f"Joining the NVLink fabric is {_FABRIC_WORDS.get(state, 'unknown')} "
        f"(state {state:.0f}, completed is 3): no CUDA program can start. "
        "Look at the fabric manager first.",
        value=state,
        limit=float(_COMPLETED),
    )


def fabric_unhealthy(case: Case) -> Finding | None:
    """Find a card that joined the fabric, and that the fabric calls unhealthy."""
    if case.card.one("gpu_fabric_healthy") != 0:
        return None
    return Finding(
        "The card joined the NVLink fabric but is reported unhealthy: lower bandwidth, bad "
        "routes or a wrong configuration.",
        value=0.0,
        limit=1.0,
    )


def nvlink_inactive(case: Case) -> Finding | None:
    """Find fewer links up than on the other cards of the same model."""
    window = case.limits["window"]
    active = _links(case.card, case.history, window, case.now)
    if active is None or _in_grace(case) or any(p.card.state == "lost" for p in case.peers):
        return None  # a lost card takes links of its neighbours with it
    expected = case.card.expected_links
    if expected is None:
        expected = _expected_of_peers(case, active, window)
    if expected is None or active >= expected:
        return None
    return Finding(
        f"{active:.0f} NVLinks were up at most over {span(window)}, expected {expected:.0f}.",
        value=active,
        limit=expected,
    )


def _in_grace(case: Case) -> bool:
    """Links train for minutes after boot; without a known reset there is nothing to wait for."""
    reset = case.card.last_reset
    return reset is not None and 0 <= case.wall - reset < case.limits["grace"]


def _links(card: CardFacts, history: History, window: float, now: float) -> float | None:
    """Return the most links lately up; None where they cannot be compared."""
    split = card.mig or card.one("gpu_mig_mode_enabled") == 1
    if split or card.one("gpu_nvlink_active_links") is None:
        return None
    return history.highest("links", window, now)


def _expected_of_peers(case: Case, active: float, window: float) -> float | None:
    """Return the best of the peers, if they leave no other explanation.

    Where half of the cards have fewer, that is how the machine is wired and not
    a fault of this card.
    """
    counts = [_links(p.card, p.history, window, case.now) for p in case.peers]
    known = [count for count in counts if count is not None]
    if len(known) < case.limits["peers"]:
        return None
    best = max(known, default=active)
    below = 1 + sum(1 for count in known if count < best)
    return best if 2 * below < len(known) + 1 else None


def pcie_degraded(case: Case) -> Finding | None:
    """Find a link to the host that stays below what slot and card can do while the card works."""
    window = case.limits["window"]
    utilization = case.history.highest("utilization", window, case.now)
    if utilization is None or utilization <= case.limits["utilization"]:
        return None
    if case.history.amount(WORKING, window, case.now) < case.limits["working_time"]:
        return None  # moments of work on a card that rests prove nothing
    problems: list[tuple[float, float, str]] = []
    for what, unit in (("generation", "generation {:.0f}"), ("width", "{:.0f} lanes")):
        best = case.history.highest(what, window, case.now)
        limit = case.card.one(f"gpu_pcie_link_{what}_max")
        if best is not None and limit is not None and best < limit:
            words = f"{unit.format(best)} of {unit.format(limit)}"
            problems.append((best, limit, words))
    if not problems:
        return None
    value, limit, _ = problems[0]
    told = " and ".join(words for *_, words in problems)
    return Finding(
        f"The PCI Express link ran at {told} at best over {span(window)}, although the card was "
        "busy: slot, riser or card. Transfers are slow, results are right.",
        value=value,
        limit=limit,
    )
