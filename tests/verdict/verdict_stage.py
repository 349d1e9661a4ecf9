# SPDX-License-Identifier: Apache-2.0
"""A node of puppets under virtual time: facts are set by hand, the judge looks at every step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from cardwatch.sample import Rows
from cardwatch.verdict import CardFacts, CardVerdict, Held, Judge, NodeFacts, SeenEvent

START_WALL = 1_800_000_000.0
START = 50_000.0
MODEL = "H100 80GB HBM3"
ECC, THROTTLE = "gpu_ecc_errors_total", "gpu_throttle_seconds_total"

HEALTHY: dict[str, dict[tuple[str, ...], float]] = {
    "gpu_utilization_ratio": {(): 0.98},
    "gpu_clock_hertz": {("sm",): 1.755e9},
    "gpu_clock_max_hertz": {("sm",): 1.98e9},
    "gpu_power_watts": {(): 640.0},
    "gpu_power_limit_watts": {(): 700.0},
    "gpu_temperature_celsius": {(): 62.0},
    "gpu_temperature_threshold_celsius": {("slowdown",): 87.0},
    "gpu_memory_used_bytes": {(): 6e10},
    THROTTLE: {("hw_thermal_slowdown",): 0.0, ("hw_power_brake_slowdown",): 0.0},
    ECC: {
        ("corrected", "dram"): 3.0,
        ("corrected", "sram"): 0.0,
        ("uncorrected", "dram"): 0.0,
        ("uncorrected", "sram"): 0.0,
    },
    "gpu_ecc_mode_enabled": {(): 1.0},
    "gpu_ecc_mode_pending_enabled": {(): 1.0},
    "gpu_ecc_sram_threshold_exceeded": {(): 0.0},
    "gpu_row_remap_pending": {(): 0.0},
    "gpu_row_remap_failure": {(): 0.0},
    "gpu_repair_pending": {("channel",): 0.0, ("tpc",): 0.0},
    "gpu_recovery_action": {(): 0.0},
    "gpu_pcie_link_generation": {(): 5.0},
    "gpu_pcie_link_width": {(): 16.0},
    "gpu_pcie_link_generation_max": {(): 5.0},
    "gpu_pcie_link_width_max": {(): 16.0},
    "gpu_nvlink_active_links": {(): 18.0},
    "gpu_fabric_state": {(): 3.0},
    "gpu_fabric_healthy": {(): 1.0},
    "gpu_mig_mode_enabled": {(): 0.0},
}


@dataclass
class Puppet:
    """One card whose facts a test sets. ``rates``: growth per second of counters."""

    uuid: str
    index: int
    model: str = MODEL
    state: str = "ok"
    up: bool = True
    cause: str | None = None
    shown: bool = True
    rows: dict[str, dict[tuple[str, ...], float]] = field(
        default_factory=lambda: {name: dict(rows) for name, rows in HEALTHY.items()}
    )
    rates: dict[tuple[str, ...], float] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    throttled: dict[str, float] = field(
        default_factory=lambda: {"sw_thermal_slowdown": 0.0, "hw_slowdown": 0.0}
    )
    shares: dict[str, float] = field(default_factory=dict)
    events: list[SeenEvent] = field(default_factory=list)
    last_reset: float | None = START_WALL - 86_400
    uncorrected_increased: float | None = None
    expected_links: float | None = None
    mig: bool = False
    sampled_at: float | None = None

    def set(self, family: str, value: float, *labels: str) -> None:
        self.rows.setdefault(family, {})[labels] = value

    def drop(self, *families: str) -> None:
        for family in families:
            self.rows.pop(family, None)

    def answers(self, state: str, cause: str | None = None, *, shown: bool = False) -> None:
        """Let the card be in a state other than ok, with or without readings."""
        self.state, self.up, self.cause, self.shown = state, state == "ok", cause, shown

    def step(self, seconds: float, now: float) -> None:
        for (family, *labels), rate in self.rates.items():
            self.rows[family][tuple(labels)] += rate * seconds
        for reason, share in self.shares.items():
            self.throttled[reason] = self.throttled.get(reason, 0.0) + share * seconds
        if self.shown:
            self.sampled_at = now

    def facts(self) -> CardFacts:
        rows: dict[str, Rows] = {name: list(rows.items()) for name, rows in self.rows.items()}
        return CardFacts(
            uuid=self.uuid,
            index=self.index,
            model=self.model,
            state=self.state,
            up=self.up,
            cause=self.cause,
            rows=rows if self.shown else None,
            faults=dict(self.faults) if self.shown else {},
            sampled_at=self.sampled_at if self.shown else None,
            throttled=dict(self.throttled),
            events=tuple(self.events),
            last_reset=self.last_reset,
            uncorrected_increased=self.uncorrected_increased,
            expected_links=self.expected_links,
            mig=self.mig,
        )


class Stage:
    """Some cards, a judge and two clocks that only ``run`` moves."""

    def __init__(self, count: int = 5, interval: float = 10.0, **judge: Any) -> None:
        self.judge = Judge(**judge)
        self.interval = interval
        self.now, self.wall = START, START_WALL
        self.cards = [Puppet(f"GPU-{index}", index) for index in range(count)]
        self.node = NodeFacts(None, count, count, True)
        self.verdicts: dict[str, CardVerdict] = {}
        self.arrange: Callable[[list[CardFacts]], Iterable[CardFacts]] = iter

    @property
    def card(self) -> Puppet:
        """The card that most tests are about; not the first, so that order shows."""
        return self.cards[min(3, len(self.cards) - 1)]

    def look(self) -> dict[str, CardVerdict]:
        """Judge at this moment."""
        facts = list(self.arrange([card.facts() for card in self.cards]))
        self.verdicts = self.judge.observe(facts, self.node, self.now, self.wall, self.interval)
        return self.verdicts

    def run(self, seconds: float, each: Callable[[], None] = lambda: None) -> None:
        """Let time go by, one sample per interval; ``each`` may set facts before each."""
        end = self.now + seconds
        while self.now < end:
            step = min(self.interval, end - self.now)
            self.now += step
            self.wall += step
            each()
            for card in self.cards:
                card.step(step, self.now)
            self.look()

    def skip(self, seconds: float) -> None:
        """Let time go by in which nobody looks."""
        self.now += seconds
        self.wall += seconds

    def reset(self, card: Puppet) -> None:
        """Let the card be reset now."""
        card.last_reset = self.wall

    def event(self, card: Puppet, code: int | None, cls: str, **more: Any) -> SeenEvent:
        """Let an event of the card happen now."""
        facts: dict[str, Any] = {
            "kind": "xid",
            "tier": "page" if cls == "critical" else "ticket",
            "action": "RESET_GPU",
            "first_time": self.wall,
            "last_time": self.wall,
            "origin": ("hardware",),
            **more,
        }
        event = SeenEvent(code=code, cls=cls, **facts)
        card.events.append(event)
        return event

    def verdict(self, card: Puppet | None = None) -> CardVerdict:
        return self.verdicts[(card or self.card).uuid]

    def held(self, card: Puppet | None = None) -> dict[str, Held]:
        return {held.condition: held for held in self.verdict(card).conditions}

    def quiet(self) -> bool:
        """Say whether no card and not the node has anything."""
        return not self.judge.node and all(v.state == 0 for v in self.verdicts.values())
