# SPDX-License-Identifier: Apache-2.0
"""The record that declares one condition.

The verdict waits (``hold``) only where a moment proves nothing; what the driver
says outright counts at once. An alert waits longer (``alert_for``) so that a
planned reset wakes nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from cardwatch.verdict.case import CardPredicate, NodePredicate

PAGE, TICKET, OBSERVE_TIER = TIERS = ("page", "ticket", "observe")
ACTIONS = ("drain", "reset", "rma", "none")
OK, OBSERVE, DEGRADED, FAILED = range(4)
"""Values of ``gpu_health_state``."""

MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0
ROLL_OUT = 10 * MINUTE
FLAG_RELEASE = MINUTE
"""After a flag fell, so that one which flaps does not make the verdict flap."""


@dataclass(frozen=True)
class Threshold:
    """One number that can be overridden.

    unit  seconds, ratio (0 to 1), count, per_second or celsius.
    """

    value: float
    unit: str
    help: str


@dataclass(frozen=True, kw_only=True)
class Condition:
    """What card and node conditions have in common.

    runbook    the alert of the bundle whose page tells what to do.
    hold, release  seconds that evidence must last, and be away.
    alert_for, alert_keep  ``for`` and ``keep_firing_for`` of the alert rule, in seconds, where
               they are not those of the verdict: ``rule_for`` and ``rule_keep`` give both.
    """

    id: str
    tier: str
    level: int
    action: str
    runbook: str
    help: str
    hold: float = 0.0
    release: float = FLAG_RELEASE
    alert_for: float | None = None
    alert_keep: float | None = None
    thresholds: Mapping[str, Threshold] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def rule_for(self) -> float:
        """Seconds that the alert rule waits."""
        return self.hold if self.alert_for is None else self.alert_for

    @property
    def rule_keep(self) -> float:
        """Seconds that the alert rule goes on firing; never less than an exporter roll-out."""
        return max(self.release, ROLL_OUT) if self.alert_keep is None else self.alert_keep


@dataclass(frozen=True, kw_only=True)
class CardCondition(Condition):
    """A condition of one card. ``by_readings``: unknown while the card shows no readings."""

    predicate: CardPredicate
    by_readings: bool = True


@dataclass(frozen=True, kw_only=True)
class NodeCondition(Condition):
    """A condition of the node, for which no card is to blame."""

    predicate: NodePredicate
