# SPDX-License-Identifier: Apache-2.0
"""The verdict per card: one table of conditions, judged over readings and events.

Pure: facts and clocks are handed in, nothing is read or written here.
"""

from __future__ import annotations

from cardwatch.verdict.conditions import (
    BY_ID,
    CARD_CONDITIONS,
    CONDITIONS,
    NODE_CONDITIONS,
)
from cardwatch.verdict.facts import CardFacts, NodeFacts, SeenEvent
from cardwatch.verdict.judge import CardVerdict, Held, Judge
from cardwatch.verdict.record import TIERS, Condition, Threshold
from cardwatch.verdict.thresholds import NO_OVERRIDES, Overrides, in_force, thresholds

__all__ = [
    "BY_ID",
    "CARD_CONDITIONS",
    "CONDITIONS",
    "NODE_CONDITIONS",
    "NO_OVERRIDES",
    "TIERS",
    "CardFacts",
    "CardVerdict",
    "Condition",
    "Held",
    "Judge",
    "NodeFacts",
    "Overrides",
    "SeenEvent",
    "Threshold",
    "in_force",
    "thresholds",
]
