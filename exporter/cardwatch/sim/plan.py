# SPDX-License-Identifier: Apache-2.0
"""What the faults of a scenario make of the node and of each card, over time.

Owns the step from a list of faults to plain facts that hold for a stretch of
time. Such stretches are worked out once and shared by all threads: they are
immutable, and which one is current follows from the time alone.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from cardwatch.sim.card import Card, Derating, Physics, Window
from cardwatch.sim.faults import FOREVER, Fault, misfit, with_effects
from cardwatch.sim.models import REASON_BITS, MigProfile
from cardwatch.sim.scenario import CardSpec, Scenario

DRIVER_LOADED = -6 * 3600.0
"""The driver was loaded this long before the epoch: counters do not start at 0."""

_OBSTACLES = ("hang", "slow")
_OVERRIDES = ("missing", "error", "value")
_CURED_BY_RESET = ("lost", "recovery_action")

_FACTORS = {  # what throttling leaves of the load, where the scenario does not say
    "sw_power_cap": 0.85,
    "sw_thermal_slowdown": 0.7,
    "hw_thermal_slowdown": 0.5,
    "hw_power_brake_slowdown": 0.5,
    "hw_slowdown": 0.5,
}
_USUAL_FACTOR = 0.9
_HOT = ("sw_thermal_slowdown", "hw_thermal_slowdown")
# hw_slowdown is the umbrella bit over these two (facts/nvml.md, clocks)
_UNDER_HW_SLOWDOWN = ("hw_thermal_slowdown", "hw_power_brake_slowdown")


class Stretch(Protocol):
    """Facts that hold from ``start`` up to but not including ``end``."""

    @property
    def start(self) -> float:
        """First moment."""

    @property
    def end(self) -> float:
        """First moment after."""


S = TypeVar("S", bound=Stretch)


class Timeline(Generic[S]):
    """Gives the stretch that holds at a time, building each when first needed."""

    def __init__(self, changes: Iterable[float], build: Callable[[float, float], S]) -> None:
        self._changes = sorted(set(changes) - {-FOREVER, FOREVER})
        self._build = build
        self._current = build(-FOREVER, self._changes[0] if self._changes else FOREVER)

    def at(self, t: float) -> S:
        """Give what holds at ``t``."""
        current = self._current
        if current.start <= t < current.end:
            return current
        index = bisect.bisect_right(self._changes, t)
        start = self._changes[index - 1] if index else -FOREVER
        end = self._changes[index] if index < len(self._changes) else FOREVER
        self._current = current = self._build(start, end)
        return current


@dataclass(frozen=True)
class NodeFacts:
    """What holds for the node: ``listing`` is the card at each index, None a hole."""

    start: float
    end: float
    listing: tuple[int | None, ...]
    outages: int  # how often the driver went away so far
    gone: bool
    library_missing: bool
    mismatch: Fault | None
    denied: bool
    obstacles: tuple[Fault, ...]
    overrides: tuple[Fault, ...]


@dataclass(frozen=True)
class CardFacts:
    """What holds for one card."""

    start: float
    end: float
    loaded: float  # when its volatile counters began
    gone: bool  # lost, or no longer listed
    denied: bool
    obstacles: tuple[Fault, ...]
    overrides: tuple[Fault, ...]
    fields: tuple[Fault, ...]
    reasons: int
    throttled: bool
    pending: bool
    failure: bool
    remapped: int
    recovery_action: int
    links_down: frozenset[int]
    pcie: tuple[int, int]
    sram_exceeded: bool
    mig: tuple[MigProfile, ...] | None


class NodePlan:
    """The node over time."""

    def __init__(self, scenario: Scenario) -> None:
        self._faults = scenario.faults
        self._count = len(scenario.cards)
        self._outages = [fault for fault in self._faults if fault.kind == "driver_gone"]
        self.timeline = Timeline(_changes(self._faults), self._facts)

    def _facts(self, start: float, end: float) -> NodeFacts:
        active = [fault for fault in self._faults if fault.active(start)]
        of_all = [fault for fault in active if fault.gpu is None]
        kinds = {fault.kind for fault in of_all}
        return NodeFacts(
            start=start,
            end=end,
            listing=self._listing(active),
            outages=sum(fault.at <= start for fault in self._outages),
            gone="driver_gone" in kinds,
            library_missing="library_missing" in kinds,
            mismatch=next((fault for fault in active if fault.kind == "mismatch"), None),
            denied="denied" in kinds,
            obstacles=_of(of_all, *_OBSTACLES),
            overrides=tuple(each for each in _of(of_all, *_OVERRIDES) if "call" in each.values),
        )

    def _listing(self, active: list[Fault]) -> tuple[int | None, ...]:
        order: list[int] = list(range(self._count))
        for fault in _of(active, "swap"):
            one, other = (order.index(card) for card in fault.values["gpus"])
            order[one], order[other] = order[other], order[one]
        unlisted = {fault.gpu for fault in _of(active, "unlisted")}
        holes = {fault.gpu for fault in _of(active, "hole")}
        return tuple(None if card in holes else card for card in order if card not in unlisted)


class CardPlan:
    """One card over time: its physics, its facts, and the counts of its errors."""

    def __init__(self, seed: int, number: int, spec: CardSpec, faults: tuple[Fault, ...]) -> None:
        self.number, self.spec = number, spec
        mine = [fault for fault in faults if fault.hits(number) and not misfit(fault, spec.model)]
        self._resets = sorted(fault.at for fault in mine if fault.kind == "reset")
        ended = [fault.until for fault in mine if fault.kind == "driver_gone"]
        self._loads = sorted({*self._resets, *ended} - {FOREVER})
        self._faults = tuple(
            self._until_cured(effect) for fault in mine for effect in with_effects(fault)
        )
        self._steps = {
            kind: _of(self._faults, kind) for kind in ("ecc", "nvlink_errors", "pcie", "row_remap")
        }
        self._leaks = _of(self._faults, "memory_leak")
        self._reasons = _reason_windows(self._faults)
        heat = tuple(window for reason in _HOT for window in self._reasons.get(reason, ()))
        self.card = Card(seed, number, spec.model, _deratings(self._faults), heat)
        self.timeline = Timeline([*_changes(self._faults), *self._loads], self._facts)
        self._physics = Physics(self.card, 0.0)

    def physics(self, t: float) -> Physics:
        """Give the card at ``t``; calls of one pass share it."""
        physics = self._physics
        if physics.t != t:
            self._physics = physics = Physics(self.card, t)
        return physics

    def ecc(self, kind: str, location: str, t: float) -> int:
        """Count the card's ECC errors over its life."""
        if location not in self.spec.model.ecc:
            return 0
        count = self._wear(t) if (kind, location) == ("corrected", "dram") else 0
        for fault in self._steps["ecc"]:
            if (fault.values["type"], fault.values["location"]) == (kind, location):
                count += fault.count(t)
        return count

    def _wear(self, t: float) -> int:
        """Count the corrected errors that any healthy memory has now and then."""
        hours = _hours_between_errors(self.card)
        return int((t - DRIVER_LOADED) / (hours * 3600) + hours % 4)

    def nvlink_errors(self, kind: str, link: int | None, t: float) -> int:
        """Count errors of one link, or of all with ``link`` None."""
        return sum(
            fault.count(t)
            for fault in self._steps["nvlink_errors"]
            if fault.values["kind"] == kind and link in (None, fault.values.get("link", 0))
        )

    def replays(self, t: float) -> int:
        """Count PCIe replays."""
        return sum(
            fault.count(t) * int(fault.values.get("replays", 0)) for fault in self._steps["pcie"]
        )

    def reason_seconds(self, reason: str, t: float) -> float:
        """Count the seconds that a throttle reason held."""
        windows = self._reasons.get(reason, ())
        seconds = sum(min(t, each.end) - each.start for each in windows if each.start < t)
        return seconds + (self.card.capped_seconds(t) if reason == "sw_power_cap" else 0.0)

    def leaked(self, t: float) -> int:
        """Give the bytes that a leaking process has taken beyond its share."""
        return sum(
            int((min(t, fault.until) - fault.at) * fault.values["mib_per_second"]) << 20
            for fault in self._leaks
            if fault.active(t)
        )

    def _until_cured(self, fault: Fault) -> Fault:
        if fault.kind not in _CURED_BY_RESET:
            return fault
        return dataclasses.replace(fault, until=min(fault.until, self._reset_after(fault.at)))

    def _reset_after(self, t: float) -> float:
        return next((reset for reset in self._resets if reset > t), FOREVER)

    def _facts(self, start: float, end: float) -> CardFacts:
        active = [fault for fault in self._faults if fault.active(start)]
        kinds = {fault.kind for fault in active}
        overrides = _of(active, *_OVERRIDES)
        actions = sorted(_of(active, "recovery_action"), key=lambda fault: fault.at)
        throttles = _of(active, "throttle")
        remaps = _of(active, "row_remap")
        return CardFacts(
            start=start,
            end=end,
            loaded=next((load for load in reversed(self._loads) if load <= start), DRIVER_LOADED),
            gone=bool(kinds & {"lost", "unlisted"}),
            denied="denied" in kinds,
            obstacles=_of(active, *_OBSTACLES),
            overrides=tuple(fault for fault in overrides if "call" in fault.values),
            fields=tuple(fault for fault in overrides if "field" in fault.values),
            reasons=_reason_mask(throttles),
            throttled=bool(throttles),
            pending=any(self._pending(fault, start) for fault in remaps),
            failure=any(fault.values.get("failure", False) for fault in remaps),
            remapped=sum(fault.at <= start for fault in self._steps["row_remap"]),
            recovery_action=actions[-1].values["action"] if actions else 0,
            links_down=frozenset(
                link for fault in _of(active, "nvlink_down") for link in fault.values["links"]
            ),
            pcie=self._pcie(_of(active, "pcie")),
            sram_exceeded=any(fault.values.get("threshold") for fault in _of(active, "ecc")),
            mig=self._mig(_of(active, "mig")),
        )

    def _pending(self, fault: Fault, t: float) -> bool:
        asked: bool = fault.values.get("pending", not fault.values.get("failure", False))
        return asked and t < self._reset_after(fault.at)

    def _pcie(self, active: tuple[Fault, ...]) -> tuple[int, int]:
        generation, width = self.spec.model.pcie
        for fault in active:
            generation = fault.values.get("generation", generation)
            width = fault.values.get("width", width)
        return generation, width

    def _mig(self, active: tuple[Fault, ...]) -> tuple[MigProfile, ...] | None:
        if not active:
            return None
        known = {profile.name: profile for profile in self.spec.model.mig}
        return tuple(known[name] for name in active[-1].values["instances"])


def _hours_between_errors(card: Card) -> int:
    """Give how long this card's memory goes between two corrected errors."""
    return 5 + int(card.identity.uuid[4:8], 16) % 31


def _of(faults: Iterable[Fault], *kinds: str) -> tuple[Fault, ...]:
    return tuple(fault for fault in faults if fault.kind in kinds)


def _changes(faults: Iterable[Fault]) -> set[float]:
    return {moment for fault in faults for moment in (fault.at, fault.until)}


def _reason_mask(throttles: tuple[Fault, ...]) -> int:
    mask = 0
    for fault in throttles:
        mask |= REASON_BITS[fault.values["reason"]]
        if fault.values["reason"] in _UNDER_HW_SLOWDOWN:
            mask |= REASON_BITS["hw_slowdown"]
    return mask


def _reason_windows(faults: Iterable[Fault]) -> dict[str, tuple[Window, ...]]:
    """Give the times of each reason without overlaps, so that none counts twice."""
    times: dict[str, list[Window]] = {}
    for fault in sorted(_of(faults, "throttle"), key=lambda fault: fault.at):
        windows = times.setdefault(fault.values["reason"], [])
        start, end = fault.at, fault.until
        if windows and windows[-1].end >= start:
            start, end = windows[-1].start, max(end, windows.pop().end)
        windows.append(Window(start, end))
    return {reason: tuple(windows) for reason, windows in times.items()}


def _deratings(faults: Iterable[Fault]) -> tuple[Derating, ...]:
    """Cut overlapping throttle faults into stretches with the lowest factor of each."""
    throttles = _of(faults, "throttle")
    changes = sorted(_changes(throttles))
    rows: list[Derating] = []
    for start, end in itertools.pairwise(changes):
        factors = [_factor(fault) for fault in throttles if fault.active(start)]
        if factors:
            rows.append(Derating(start, end, min(factors)))
    return tuple(rows)


def _factor(fault: Fault) -> float:
    usual = _FACTORS.get(fault.values["reason"], _USUAL_FACTOR)
    return float(fault.values.get("factor", usual))
