# SPDX-License-Identifier: Apache-2.0
"""docs/events.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from cardwatch.verdict.conditions import CONDITIONS
from cardwatch.verdict.record import DEGRADED, FAILED, OBSERVE
from cardwatch.xid.catalogue import CLASSES
from cardwatch.xid.classify import TIERS

TEXT = (Path(__file__).parents[2] / "docs" / "events.md").read_text()
STATES = {OBSERVE: "observe", DEGRADED: "degraded", FAILED: "failed"}


def _rows(columns: int) -> dict[str, list[str]]:
    """Return the rows of all tables with so many columns, by their first word."""
    lines = [line for line in TEXT.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {row[0].strip("`"): row[1:] for row in cells if len(row) == columns}


def _seconds(text: str) -> float:
    if text == "at once":
        return 0.0
    found = re.fullmatch(r"([0-9.]+)(m|h)", text)
    assert found is not None, text
    return float(found[1]) * {"m": 60, "h": 3600}[found[2]]


def test_the_table_of_conditions_is_the_one_in_force() -> None:
    """Every condition with its tier, state, action, waiting time and help, and no other."""
    rows = _rows(6)
    assert list(rows) == [condition.id for condition in CONDITIONS]
    for condition in CONDITIONS:
        tier, state, action, waits, text = rows[condition.id]
        assert (tier, state, action) == (condition.tier, STATES[condition.level], condition.action)
        assert _seconds(waits) == condition.hold
        assert text == condition.help


def test_the_table_of_classes_has_their_tiers() -> None:
    """Every class, each with the tier that decides who is told."""
    rows = {name: row[0] for name, row in _rows(3).items() if name in CLASSES}
    assert rows == {name: TIERS[name] for name in CLASSES}
