# SPDX-License-Identifier: Apache-2.0
"""What a predicate may look at, and what it says when its condition is there.

Owns the records between the judge and the predicates, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cardwatch.verdict.facts import CardFacts, NodeFacts, SeenEvent
from cardwatch.verdict.history import History


@dataclass(frozen=True)
class Peer:
    """Another card of the same model on this node."""

    card: CardFacts
    history: History


@dataclass(slots=True)
class Case:
    """One card at one moment.

    events  those that no reset has settled, oldest first.
    limits  the thresholds of the condition in question: the judge changes them from one to
            the next, which is why this record alone is not frozen. Predicates leave it be.
    """

    card: CardFacts
    node: NodeFacts
    history: History
    peers: Sequence[Peer]
    events: tuple[SeenEvent, ...]
    now: float
    wall: float
    limits: Mapping[str, float]


@dataclass(frozen=True)
class NodeCase:
    """The node and all its cards at one moment."""

    node: NodeFacts
    cards: Sequence[CardFacts]
    limits: Mapping[str, float]


@dataclass(frozen=True)
class Finding:
    """A condition is there now.

    text   for the engineer on call: what is wrong, with value and limit.
    since  wall clock at which it began, where the evidence itself tells.
    """

    text: str
    value: float | None = None
    limit: float | None = None
    since: float | None = None


CardPredicate = Callable[[Case], "Finding | None"]
NodePredicate = Callable[[NodeCase], "Finding | None"]
