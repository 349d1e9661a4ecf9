# SPDX-License-Identifier: Apache-2.0
"""The figures of one run as a table, and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One figure. ``budget`` is the most that is allowed; ``peer`` the same figure of the peer."""

    name: str
    value: float
    unit: str = ""
    budget: float | None = None
    peer: float | None = None

    @property
    def met(self) -> bool | None:
        """Say whether the budget holds; None without one. Not a number is not met."""
        return None if self.budget is None else self.value <= self.budget

    @property
    def times(self) -> float | None:
        """How many times the peer's figure is ours: above 1 is better than the peer."""
        return None if self.peer is None or self.value <= 0 else self.peer / self.value


_HEADS = ("figure", "measured", "budget", "met", "peer", "peer / ours")


def table(figures: list[Figure]) -> str:
    """Return the figures as a Markdown table."""
    rows = [_HEADS, *(_row(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _row(figure: Figure) -> tuple[str, ...]:
    met = {None: "", True: "yes", False: "MISSED"}[figure.met]
    times = "" if figure.times is None else f"{figure.times:.2g}"
    return (figure.name, _shown(figure.value, figure.unit), _shown(figure.budget, figure.unit), met,
            _shown(figure.peer, figure.unit), times)  # fmt: skip


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    digits = f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
    return f"{digits} {unit}".strip()


def missed(figures: list[Figure]) -> list[Figure]:
    """Return the figures whose budget does not hold."""
    return [figure for figure in figures if figure.met is False]


def as_json(figures: list[Figure], **more: Any) -> dict[str, Any]:
    """Return the run as a JSON document."""
    return {
        **more,
        "figures": [{**asdict(figure), "met": figure.met} for figure in figures],
    }
