# SPDX-License-Identifier: Apache-2.0
"""The verdict per card: which conditions hold, since when, and how bad that is.

Pure judgement: facts and both clocks come in, a verdict goes out. Owns what
must be remembered between two moments, and drops it with the card.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cardwatch.verdict.case import Case, NodeCase, Peer
from cardwatch.verdict.conditions import CARD_CONDITIONS, NODE_CONDITIONS
from cardwatch.verdict.evidence.presence import driver_is_away
from cardwatch.verdict.facts import CardFacts, NodeFacts
from cardwatch.verdict.history import History
from cardwatch.verdict.latch import Latch, Moment
from cardwatch.verdict.record import OK, TIERS, Condition
from cardwatch.verdict.thresholds import NO_OVERRIDES, Overrides, in_force
from cardwatch.verdict.wording import clock

_TELLING = (
    "gpu_utilization_ratio",
    "gpu_clock_hertz",
    "gpu_power_watts",
    "gpu_temperature_celsius",
    "gpu_ecc_errors_total",
    "gpu_recovery_action",
    "gpu_row_remap_pending",
    "gpu_throttle_seconds_total",
)
"""A card that shows none of these was not judged healthy, it was not judged."""


@dataclass(frozen=True)
class Held:
    """One condition that holds. ``since`` is wall clock; ``text`` is for the engineer on call."""

    condition: str
    tier: str
    level: int
    action: str
    runbook: str
    since: float
    value: float | None
    limit: float | None
    text: str


@dataclass(frozen=True)
class CardVerdict:
    """The verdict on one card, worst condition first.

    state  0 ok, 1 observe, 2 degraded, 3 failed; None when it cannot be judged,
           and then ``reason`` says why.
    """

    state: int | None
    conditions: tuple[Held, ...] = ()
    reason: str = ""


@dataclass
class _Memory:
    """What is remembered of one card."""

    history: History = field(default_factory=History)
    latches: dict[str, Latch] = field(default_factory=lambda: defaultdict(Latch))


class Judge:
    """Judges every card of a node, moment after moment.

    patient  False for a command that looks once: no condition then waits for
             its hold time. Rates and shares need time all the same.
    """

    def __init__(self, overrides: Overrides = NO_OVERRIDES, *, patient: bool = True) -> None:
        self.node: tuple[Held, ...] = ()
        """Conditions of the node as of the last moment, for which no card is to blame."""
        self._patient = patient
        self._memories: dict[str, _Memory] = {}
        self._node_latches: dict[str, Latch] = defaultdict(Latch)
        self.apply(overrides)

    def apply(self, overrides: Overrides) -> None:
        """Take on other thresholds; what holds now is judged by them from now on."""
        self._card_rules = [(c, in_force(c, overrides)) for c in CARD_CONDITIONS]
        self._node_rules = [(c, in_force(c, overrides)) for c in NODE_CONDITIONS]

    def observe(
        self,
        cards: Sequence[CardFacts],
        node: NodeFacts,
        now_monotonic: float,
        now_wall: float,
        interval: float,
    ) -> dict[str, CardVerdict]:
        """Judge all cards at this moment; a card that is not among them is forgotten."""
        moment = Moment(now_monotonic, now_wall, interval, None)
        cards = sorted(cards, key=lambda card: card.uuid)
        self._memories = {
            card.uuid: self._memories.get(card.uuid) or _Memory() for card in cards
        }  # fmt: skip
        for card in cards:
            history = self._memories[card.uuid].history
            history.feed(card, now_monotonic, now_wall, interval)
        models = self._by_model(cards)
        self._judge_node(NodeCase(node, cards, {}), moment)
        return {
            card.uuid: self._judge(card, node, models.get(card.model, ()), moment)
            for card in cards
        }  # fmt: skip

    def _by_model(self, cards: Sequence[CardFacts]) -> dict[str, list[Peer]]:
        models: dict[str, list[Peer]] = defaultdict(list)
        for card in cards:
            if card.model:
                models[card.model].append(Peer(card, self._memories[card.uuid].history))
        return models

    def _judge_node(self, case: NodeCase, moment: Moment) -> None:
        held = []
        for condition, limits in self._node_rules:
            finding = condition.predicate(NodeCase(case.node, case.cards, limits))
            latch = self._node_latches[condition.id]
            latch.update(finding, moment, self._hold(limits), limits["release"])
            if latch.held:
                held.append(_held(condition, latch))
        self.node = _in_order(held)

    def _judge(
        self, card: CardFacts, node: NodeFacts, same_model: Sequence[Peer], moment: Moment
    ) -> CardVerdict:
        memory = self._memories[card.uuid]
        peers = [peer for peer in same_model if peer.card.uuid != card.uuid]
        events = card.since_reset(moment.wall)
        case = Case(card, node, memory.history, peers, events, moment.now, moment.wall, {})
        at = replace(moment, last_reset=card.last_reset)
        held = []
        for condition, limits in self._card_rules:
            at.known = not condition.by_readings or card.rows is not None
            case.limits = limits
            finding = condition.predicate(case) if at.known else None
            latch = memory.latches[condition.id]
            latch.update(finding, at, self._hold(limits), limits["release"])
            if latch.held:
                held.append(_held(condition, latch))
        conditions = _in_order(held)
        if conditions:
            return CardVerdict(conditions[0].level, conditions)
        reason = _cannot_be_judged(card, node)
        return CardVerdict(None if reason else OK, (), reason)

    def _hold(self, limits: Mapping[str, float]) -> float:
        return limits["hold"] if self._patient else 0.0


def _held(condition: Condition, latch: Latch) -> Held:
    finding = latch.finding
    assert finding is not None  # a latch that holds has seen its evidence
    text = finding.text
    if not latch.present:
        text = f"{text} Last seen at {clock(latch.last_wall)}."
    return Held(
        condition.id,
        condition.tier,
        condition.level,
        condition.action,
        condition.runbook,
        latch.began_wall if finding.since is None else finding.since,
        finding.value,
        finding.limit,
        text,
    )


def _in_order(held: Sequence[Held]) -> tuple[Held, ...]:
    """Put the worst first; among equals, the one that wakes somebody."""
    return tuple(sorted(held, key=lambda h: (-h.level, TIERS.index(h.tier), h.condition)))


def _cannot_be_judged(card: CardFacts, node: NodeFacts) -> str:
    """Return why nothing can be said of a card for which no condition holds; empty if it can."""
    if card.state == "detached":
        return "cardwatch let go of the driver for now"
    if driver_is_away(node):
        return f"the driver cannot be used ({node.driver_error})"
    if card.rows is None or not card.up:
        return f"the card does not answer ({card.cause or card.state})"
    if not any(card.rows.get(family) for family in _TELLING):
        return "the card answers, but no reading tells how it is"
    return ""
