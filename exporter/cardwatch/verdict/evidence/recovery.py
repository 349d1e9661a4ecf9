# SPDX-License-Identifier: Apache-2.0
"""What the driver asks to be done with the card: recovery action and repairs that wait."""

from __future__ import annotations

from cardwatch.verdict.case import CardPredicate, Case, Finding
from cardwatch.verdict.wording import names

ACTIONS = {
    1: "a reset of this card",
    2: "a reboot of the node",
    3: "an end of all peer-to-peer traffic of this card",
    4: "no new work on this card, then a reset",
    5: "a recovery of the IMEX domain",
    6: "a reset of the PCI bus",
    7: "a reboot of the whole system",
}
"""``nvmlDeviceGpuRecoveryAction_t``; a higher number is not worse."""


def asks_for(*actions: int) -> CardPredicate:
    """Return the predicate that the driver asks for one of these actions."""

    def predicate(case: Case) -> Finding | None:
        value = case.card.one("gpu_recovery_action")
        if value is None or value not in actions:
            return None
        return Finding(
            f"The driver asks for {ACTIONS[int(value)]} (recovery action {value:.0f}).",
            value=value,
            limit=0.0,
        )

    predicate.__name__ = "asks_for_" + "_".join(str(action) for action in actions)
    return predicate


def reset_pending(case: Case) -> Finding | None:
    """Find what takes effect only at the next reset of the card."""
    card = case.card
    waiting = []
    if card.one("gpu_retired_pages_pending") == 1:
        waiting.append("retired memory pages")
    units = [labels[0] for labels, value in card.family("gpu_repair_pending") if labels and value]
    waiting += [f"a repair of its {unit}" for unit in sorted(units)]
    mode = card.one("gpu_ecc_mode_enabled")
    pending = card.one("gpu_ecc_mode_pending_enabled")
    if mode is not None and pending is not None and mode != pending:
        waiting.append(f"ECC being switched {'on' if pending else 'off'}")
    if not waiting:
        return None
    return Finding(
        f"Waiting for the next reset of this card: {names(waiting)}.", value=float(len(waiting))
    )
