# SPDX-License-Identifier: Apache-2.0
"""One simulated card: who it is, and its physics over time.

Everything is a pure function of (seed, card, time). Faults reach in here only
as windows fixed at the start: throttling lowers the load in them, heat raises
the temperature. Counters are integrals since the beginning of time; whoever
answers takes the difference to the last driver load.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from cardwatch.sim.activity import Activity, Job, fraction, mix
from cardwatch.sim.models import MIB, Model

FIRST_PID = 1 << 22
"""Simulated processes live above the kernel's highest pid, so that nobody
takes a real process of this machine for one of them."""

_BUSES = (
    *(0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF),
    *(0x07, 0x0F, 0x2A, 0x37, 0x84, 0x8B, 0xA5, 0xB7),
)
_WAVE_S = 47.0  # idle power breathes a little, or a dashboard looks frozen
_WAVE = 0.02
_SLOW_S, _FAST_S = 50.0, 8.0
_HEAT_UP_S, _COOL_DOWN_S = 15.0, 30.0
_LOAD_S = 15.0  # a job takes this long to fill its memory
_DESKTOP_BYTES = 181 * MIB
_CONTEXT_BYTES = 4 * MIB  # what the driver itself holds on an idle card


class PciAddress(NamedTuple):
    """Domain and bus; simulated cards are device 0, function 0."""

    domain: int
    bus: int

    @property
    def nvml(self) -> str:
        """As NVML writes it: ``00000000:1B:00.0``."""
        return f"{self.domain:08X}:{self.bus:02X}:00.0"

    @property
    def sysfs(self) -> str:
        """As Linux writes it: ``0000:1b:00.0``."""
        return f"{self.domain:04x}:{self.bus:02x}:00.0"

    @property
    def kernel_log(self) -> str:
        """As the driver's log lines have it: ``0000:1b:00``."""
        return f"{self.domain:04x}:{self.bus:02x}:00"


@dataclass(frozen=True)
class Identity:
    """What tells one card from another."""

    uuid: str
    serial: str | None
    pci: PciAddress


def identity(seed: int, card: int, model: Model) -> Identity:
    """Give the card its identity, the same at every start of the node."""
    digits = f"{mix(seed, card, 11) % 10**10:010d}"
    serial = None if model.serial is None else model.serial + digits
    return Identity("GPU-" + _uuid(seed, card), serial, _pci(card, model))


def mig_uuid(seed: int, card: int, position: int, profile: str) -> str:
    """Give one MIG instance its UUID."""
    return "MIG-" + _uuid(seed, card, position + 1, *profile.encode())


def _uuid(*parts: int) -> str:
    text = f"{mix(*parts, 12):016x}{mix(*parts, 13):016x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _pci(card: int, model: Model) -> PciAddress:
    if model.pci_domain:
        return PciAddress(model.pci_domain, 1 + card)
    return PciAddress(card // len(_BUSES), _BUSES[card % len(_BUSES)])


class Derating(NamedTuple):
    """A time in which only part of the load is done. Deratings do not overlap."""

    start: float
    end: float
    factor: float


class Window(NamedTuple):
    """A time from ``start`` up to but not including ``end``."""

    start: float
    end: float


class Card:
    """The physics of one card."""

    def __init__(
        self,
        seed: int,
        number: int,
        model: Model,
        deratings: tuple[Derating, ...] = (),
        heat: tuple[Window, ...] = (),
    ) -> None:
        self.seed, self.number, self.model = seed, number, model
        self.identity = identity(seed, number, model)
        self.activity = Activity(seed, number)
        self._deratings = deratings
        self._heat = heat
        self._inlet = 27.0 + 4.0 * fraction(seed, number, 21)
        self._rise = 33.0 + 5.0 * fraction(seed, number, 22)
        self._idle_w = model.idle_w * (0.94 + 0.12 * fraction(seed, number, 23))
        top = model.limits.default / 1000 if model.limits else model.busy_w
        self._span_w = min(model.busy_w, top) - self._idle_w * (1 + _WAVE)
        self._phase = 2 * math.pi * fraction(seed, number, 24)
        self._memory_share = 0.82 + 0.13 * fraction(seed, number, 25)

    def derating(self, t: float) -> Derating | None:
        """Give the throttling that holds at ``t``."""
        return next((each for each in self._deratings if each.start <= t < each.end), None)

    def power_w(self, t: float, load: float) -> float:
        """Give the power at a load that is already derated."""
        wave = _WAVE * math.sin(2 * math.pi * t / _WAVE_S + self._phase)
        return self._idle_w * (1 + wave) + self._span_w * load

    def energy_j(self, t: float) -> float:
        """Integrate ``power_w``."""
        wave = _WAVE * _WAVE_S / (2 * math.pi)
        wave *= math.cos(self._phase) - math.cos(2 * math.pi * t / _WAVE_S + self._phase)
        return self._idle_w * (t + wave) + self._span_w * self.work(t)

    def work(self, t: float) -> float:
        """Integrate the load that was really done, in seconds of full load."""
        return self._through_deratings(self.activity.area, t)

    def capped_seconds(self, t: float) -> float:
        """Count seconds at the power limit, those of deratings excepted."""
        return self._through_deratings(self.activity.capped_seconds, t, within=0.0)

    def _through_deratings(
        self, area: Callable[[float], float], t: float, within: float | None = None
    ) -> float:
        """Sum an integral up to ``t``, scaled by ``within`` or its factor in each derating.

        Piece by piece and forwards: all but the last piece are constants, so the
        sum cannot fall by rounding.
        """
        total = mark = 0.0
        for each in self._deratings:
            if t <= each.start:
                break
            start, end = area(each.start), area(min(t, each.end))
            total += start - mark
            total += (each.factor if within is None else within) * (end - start)
            mark = end
        return total + (area(t) - mark)

    def temperature_c(self, t: float) -> float:
        """Follow the mean power of the last seconds, and the heat of faults."""
        now = self.energy_j(t)
        slow = (now - self.energy_j(t - _SLOW_S)) / _SLOW_S
        fast = (now - self.energy_j(t - _FAST_S)) / _FAST_S
        share = (0.7 * slow + 0.3 * fast) / self.model.busy_w
        natural = self._inlet + self._rise * share
        heat = max((_warmth(window, t) for window in self._heat), default=0.0)
        return natural + heat * (self.model.thresholds.slowdown + 1 - natural)

    def job_memory(self, job: Job) -> int:
        """Give the bytes that the job of the moment holds on this card."""
        if not job.running:
            return 0
        filled = min(1.0, 0.1 + 0.9 * job.age / _LOAD_S)
        return int(self.model.process_mib * self._memory_share * filled) * MIB

    def job_pid(self, job: Job, part: int = 0) -> int:
        """Give the process that runs the job on this card."""
        return FIRST_PID + mix(self.seed, self.number, job.number, part) % 1_000_000

    @property
    def desktop_pid(self) -> int:
        """The display server of a desktop card."""
        return FIRST_PID + 1_000_000 + self.number


def _warmth(window: Window, t: float) -> float:
    """Say how much of a fault's heat is there: it comes quickly and goes slowly."""
    reached = min(1.0, max(0.0, (min(t, window.end) - window.start) / _HEAT_UP_S))
    return reached * max(0.0, 1 - max(0.0, t - window.end) / _COOL_DOWN_S)


class Physics:
    """One card at one moment; what is cheap is taken at once, the rest when asked for."""

    def __init__(self, card: Card, t: float) -> None:
        self.card, self.t = card, t
        self.job = card.activity.job(t)
        self.demand = card.activity.value(self.job)
        self.derating = card.derating(t)
        self.factor = self.derating.factor if self.derating else 1.0
        self.load = self.demand * self.factor

    @cached_property
    def power_w(self) -> float:
        """Power now."""
        return self.card.power_w(self.t, self.load)

    @cached_property
    def mean_power_w(self) -> float:
        """Power over the last second, as newer cards tell it."""
        return self.card.energy_j(self.t) - self.card.energy_j(self.t - 1.0)

    @cached_property
    def temperature_c(self) -> float:
        """Temperature of the chip."""
        return self.card.temperature_c(self.t)

    @property
    def memory_temperature_c(self) -> float:
        """Temperature of the memory, which is a little warmer under load."""
        return self.temperature_c + 3.0 + 8.0 * self.load

    @property
    def utilization(self) -> int:
        """Percent of time in which anything ran: high long before the load is."""
        return round(100 * (1 - (1 - min(1.0, self.demand)) ** 2))

    @property
    def memory_utilization(self) -> int:
        """Percent of time in which the memory controller was busy."""
        return round(62 * self.load)

    @property
    def sm_clock(self) -> int:
        """Clock in MHz: full under light load, lower near the power limit."""
        clocks = self.card.model.clocks
        if not self.job.running:
            return clocks.idle_sm
        wanted = clocks.sm * (1 - 0.12 * self.demand**3) * self.factor
        return max(clocks.idle_sm, int(wanted) // 15 * 15)

    @property
    def memory_clock(self) -> int | None:
        """Clock of the memory in MHz."""
        clocks = self.card.model.clocks
        if clocks.idle_memory is None:
            return None
        return clocks.memory if self.job.running else clocks.idle_memory

    @property
    def capped(self) -> bool:
        """Whether the card runs into its power limit by itself."""
        return self.derating is None and self.card.activity.capped(self.job)

    @cached_property
    def processes(self) -> list[tuple[int, int]]:
        """Compute processes with the bytes each holds."""
        held = self.card.job_memory(self.job)
        return [(self.card.job_pid(self.job), held)] if held else []

    @property
    def desktop_processes(self) -> list[tuple[int, int]]:
        """Graphics processes with the bytes each holds."""
        return [(self.card.desktop_pid, _DESKTOP_BYTES)] if self.card.model.desktop else []

    @property
    def memory_used(self) -> int:
        """Bytes in use, without what the driver reserves."""
        held = sum(size for _, size in self.processes + self.desktop_processes)
        return _CONTEXT_BYTES + held
