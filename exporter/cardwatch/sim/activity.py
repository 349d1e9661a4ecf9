# SPDX-License-Identifier: Apache-2.0
"""How busy a card is over time, and the exact integral of it.

Owns the shape of simulated work. Both are pure functions of seed, card and
time in constant time, so that a process started later continues the same
counters, and a counter is always the integral of the gauge beside it.

Time is cut into cycles of equal length with one job each. A job starts anywhere
in its cycle but always fits, so whole cycles have one known integral. That is a
multiple of a power of two, so that adding cycles never rounds: a counter that
fell by one byte from one idle moment to the next would look like a restart.
"""

from __future__ import annotations

import math
from typing import NamedTuple

_MASK = (1 << 64) - 1
_TENANT = 4  # this many neighbouring cards run one job together
_RIPPLE = 0.02
_STEP_S = 9.0  # length of one wave of the ripple: a training step and its checkpoint
_HUMP_RAMP_S = 8.0
_GRID = 2.0**-20


def mix(*parts: int) -> int:
    """Hash whole numbers to 64 bits (splitmix64 over each part)."""
    state = 0
    for part in parts:
        state = (state + part + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


def fraction(*parts: int) -> float:
    """Hash whole numbers to [0, 1)."""
    return (mix(*parts) >> 11) / (1 << 53)


def _on_grid(seconds: float) -> float:
    return round(seconds / _GRID) * _GRID


class Job(NamedTuple):
    """The job of one cycle as seen at one moment; ``age`` may be before or after it."""

    number: int
    age: float
    running: bool


def _plateau(x: float, start: float, end: float, ramp: float) -> float:
    """Rise over ``ramp`` from 0 to 1 at ``start``, and fall back before ``end``."""
    inside = min(x - start, end - x)
    if inside <= 0.0:
        return 0.0
    return 1.0 if inside >= ramp else 0.5 - 0.5 * math.cos(math.pi * inside / ramp)


def _plateau_area(x: float, start: float, end: float, ramp: float) -> float:
    """Integrate ``_plateau`` up to ``x``."""
    if x <= start:
        return 0.0
    if x >= end:
        return end - start - ramp
    inside = x - start
    if inside <= ramp:
        return inside / 2 - ramp / (2 * math.pi) * math.sin(math.pi * inside / ramp)
    if end - x >= ramp:
        return inside - ramp / 2
    left = end - x  # symmetric: the whole less what is still to come
    to_come = left / 2 - ramp / (2 * math.pi) * math.sin(math.pi * left / ramp)
    return end - start - ramp - to_come


class Activity:
    """The work of one card: 0 when idle, up to 1."""

    __slots__ = (
        "_capped",
        "_cycle",
        "_hump",
        "_hump_height",
        "_key",
        "_length",
        "_level",
        "_origin",
        "_per_cycle",
        "_ramp",
        "_ripple_period",
    )

    def __init__(self, seed: int, card: int) -> None:
        tenant = card // _TENANT
        self._key = mix(seed, tenant, 1)
        self._cycle = 600 + 480 * fraction(seed, tenant, 2)
        self._length = self._cycle * (0.72 + 0.08 * fraction(seed, tenant, 3))
        self._ramp = 6 + 6 * fraction(seed, tenant, 4)
        # Somewhere in the part of the cycle that every job covers: a demonstration
        # starts with work on all cards, whatever the seed.
        self._origin = -self._cycle * (0.34 + 0.2 * fraction(seed, tenant, 5))
        self._level = 0.78 + 0.08 * fraction(seed, card, 6)
        self._hump_height = 0.97 - self._level
        self._hump = (0.35 * self._length, 0.6 * self._length)
        plateau = self._length - 2 * self._ramp
        self._ripple_period = plateau / round(plateau / _STEP_S)
        self._capped = (
            _on_grid(self._hump[0] + _HUMP_RAMP_S),
            _on_grid(self._hump[1] - _HUMP_RAMP_S),
        )
        self._per_cycle = math.inf
        self._per_cycle = _on_grid(self._job_area(math.nextafter(self._length, 0.0)))

    def job(self, t: float) -> Job:
        """Give the job of the cycle that holds ``t``."""
        number = math.floor((t - self._origin) / self._cycle)
        shift = (self._cycle - self._length) * fraction(self._key, number & _MASK)
        age = t - self._origin - number * self._cycle - shift
        return Job(number, age, 0.0 < age < self._length)

    def value(self, job: Job) -> float:
        """Give the load of the card at one moment."""
        if not job.running:
            return 0.0
        load = self._level * _plateau(job.age, 0.0, self._length, self._ramp)
        load += self._hump_height * _plateau(job.age, *self._hump, _HUMP_RAMP_S)
        if self._ramp < job.age < self._length - self._ramp:
            phase = 2 * math.pi * (job.age - self._ramp) / self._ripple_period
            load += _RIPPLE * math.sin(phase)
        return load

    def area(self, t: float) -> float:
        """Integrate the load up to ``t``, in seconds of full load; never falls."""
        job = self.job(t)
        return job.number * self._per_cycle + self._job_area(job.age)

    def capped(self, job: Job) -> bool:
        """Say whether the job is in the part that runs into the power limit."""
        return self._capped[0] <= job.age < self._capped[1]

    def capped_seconds(self, t: float) -> float:
        """Count the seconds up to ``t`` in which ``capped`` held."""
        job = self.job(t)
        start, end = self._capped
        return job.number * (end - start) + min(max(job.age - start, 0.0), end - start)

    def _job_area(self, age: float) -> float:
        if age <= 0.0:
            return 0.0
        if age >= self._length:
            return self._per_cycle
        area = self._level * _plateau_area(age, 0.0, self._length, self._ramp)
        area += self._hump_height * _plateau_area(age, *self._hump, _HUMP_RAMP_S)
        flat = age - self._ramp
        if 0.0 < flat < self._length - 2 * self._ramp:
            phase = 2 * math.pi * flat / self._ripple_period
            area += _RIPPLE * self._ripple_period / (2 * math.pi) * (1 - math.cos(phase))
        return min(area, self._per_cycle)
