# SPDX-License-Identifier: Apache-2.0
"""The one table of metric families, by topic in page order.

Add a family to the topic module where a reader would look for it; nothing else lists names.
`check()` says what is wrong with the table; a test calls it, importing does not.
"""

from __future__ import annotations

from collections import Counter
from types import ModuleType

from cardwatch.families import (
    baseline,
    changelog,
    checks,
    clocks,
    ecc,
    events,
    fabric,
    inventory,
    itself,
    memory,
    mig,
    modes,
    nvlink,
    pcie,
    power,
    repair,
    temperature,
    throttling,
    utilization,
    verdict,
    workloads,
)
from cardwatch.families.record import Family, Profile, Scope, Stability, Type

__all__ = [
    "ALL",
    "BY_NAME",
    "TOPICS",
    "Family",
    "Profile",
    "Scope",
    "Stability",
    "Type",
    "by_scope",
    "check",
    "exported",
    "planned",
]

TOPICS: tuple[ModuleType, ...] = (
    inventory,
    memory,
    utilization,
    temperature,
    power,
    clocks,
    throttling,
    ecc,
    repair,
    events,
    pcie,
    nvlink,
    fabric,
    modes,
    mig,
    workloads,
    baseline,
    verdict,
    checks,
    changelog,
    itself,
)
"""Topic modules in page order; each has FAMILIES and says in its docstring what the topic is."""

ALL: tuple[Family, ...] = tuple(family for topic in TOPICS for family in topic.FAMILIES)
"""Every family, planned ones included, in page order."""

BY_NAME: dict[str, Family] = {family.name: family for family in ALL}


def exported() -> tuple[Family, ...]:
    """Return the families that this release exports, in page order."""
    return tuple(family for family in ALL if family.planned is None)


def planned() -> tuple[Family, ...]:
    """Return the families that no code exports yet, in page order."""
    return tuple(family for family in ALL if family.planned is not None)


def by_scope() -> dict[Scope, tuple[Family, ...]]:
    """Return all families by what one series of them speaks of, in page order."""
    return {scope: tuple(f for f in ALL if f.scope is scope) for scope in Scope}


def check() -> list[str]:
    """Return what is wrong with the table, one line each; empty when it keeps all rules."""
    found = [f"{family.name}: {problem}" for family in ALL for problem in family.problems()]
    for what, keys in (
        ("name", [family.name for family in ALL]),
        # OpenMetrics names a family without _total or _info, so those must differ as well.
        ("OpenMetrics name", [family.base_name for family in ALL]),
        ("reading", [f"{family.reading} ({family.scope.name})" for family in ALL]),
    ):
        found += [
            f"{what} {key} is declared {n} times" for key, n in Counter(keys).items() if n > 1
        ]
    for family in ALL:
        lowest = min([family.profile, *family.split.values()])
        if family.nonzero_profile is not None and family.nonzero_profile >= lowest:
            found.append(f"{family.name}: nonzero_profile is not below profile")
        if family.accept is not None and family.accept[0] >= family.accept[1]:
            found.append(f"{family.name}: accept is not a range")
    return found
