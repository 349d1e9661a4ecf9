# SPDX-License-Identifier: Apache-2.0
"""The table of conditions keeps its rules, and knows only families and alerts that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cardwatch.families import BY_NAME
from cardwatch.verdict import CONDITIONS, TIERS, Condition
from cardwatch.verdict.history import LONGEST_WINDOW_S
from cardwatch.verdict.record import ACTIONS

PACKAGE = Path(__file__).parents[2] / "exporter/cardwatch/verdict"
CATALOGUE = Path(__file__).parents[3] / "shared/facts/alerts.md"

UNITS = {"seconds", "ratio", "count", "per_second", "celsius"}


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda c: c.id)
def test_a_row_keeps_the_rules(condition: Condition) -> None:
    """Words are of the contract, numbers are sane, help is a sentence."""
    assert re.fullmatch(r"[a-z][a-z0-9_]*", condition.id)
    assert condition.tier in TIERS
    assert condition.level in (1, 2, 3)
    assert condition.action in ACTIONS
    assert re.fullmatch(r"GPU[A-Za-z]+", condition.runbook)
    assert condition.help.endswith(".")
    assert 0 <= condition.hold <= condition.rule_for
    assert 0 <= condition.release <= condition.rule_keep
    for name, threshold in condition.thresholds.items():
        assert threshold.unit in UNITS
        assert name not in ("hold", "release")
        assert name != "window" or threshold.value <= LONGEST_WINDOW_S


def test_what_pages_is_at_least_degraded_and_observing_wakes_nobody() -> None:
    """Level and tier do not contradict each other."""
    for condition in CONDITIONS:
        assert condition.tier != "page" or condition.level >= 2
        assert condition.tier != "observe" or condition.level == 1
        assert condition.level < 3 or condition.tier == "page"


def test_a_runbook_belongs_to_one_tier() -> None:
    """An alert has one tier; what is only observed may point to the page that explains it."""
    tiers: dict[str, set[str]] = {}
    for condition in CONDITIONS:
        if condition.tier != "observe":
            tiers.setdefault(condition.runbook, set()).add(condition.tier)
    assert {runbook for runbook, found in tiers.items() if len(found) > 1} == set()


def test_every_family_that_is_read_exists() -> None:
    """A renamed family must not silence a condition."""
    read = {
        name
        for path in PACKAGE.rglob("*.py")
        for name in re.findall(r'"(gpu_[a-z0-9_]+)"', path.read_text())
    }
    links = {f"gpu_pcie_link_{what}_max" for what in ("generation", "width")}
    events = {"gpu_off_bus", "gpu_init_failed"}
    assert len(read) > 20
    assert (read | links) - events <= BY_NAME.keys()


def test_nothing_is_read_or_written_here() -> None:
    """The judgement is pure: no clock, no file, no log, no environment."""
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        assert not re.search(r"^(import|from) (time|os|io|logging|pathlib|random)\b", text, re.M)
        assert "open(" not in text.replace("_open(", "")
