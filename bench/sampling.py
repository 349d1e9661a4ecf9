# SPDX-License-Identifier: Apache-2.0
"""One sampling pass over eight cards, from the first driver call to the page, against the floor.

Measured is the real path of `cardwatch serve`: the child reads the cards in its
threads and sends a frame, the parent takes it in, judges the cards and renders
the page in the form that Prometheus scrapes. A pass begins when the first card's
reading begins and ends when the page is ready to be served; both moments are of
the one monotonic clock of the machine. Rounds of our passes and of the C program
take turns, and the ratio is taken within each round, so that a busy moment weighs
on both. Between its passes the exporter sleeps, and comes back to cold caches; the
C program does not, and burns its time whatever the caches hold.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import floor
from machine import HERE, HOST, Stub, cardwatch, driver, ready, settled

INTERVAL_S = 0.1  # the least that the exporter takes
_BETWEEN_S = 0.05  # nothing is called for so long: we are between two passes
_WARM_UP_S, _COUNTED_S = 1.0, 2.0


@dataclass(frozen=True)
class Sampling:
    """Medians over rounds. ``differing`` names functions that were not called equally often."""

    profile: str
    series: int
    calls: int
    pass_ms: float
    read_ms: float
    floor_ms: float
    ratio: float
    child_cpu_ms: float
    parent_cpu_ms: float
    differing: dict[str, tuple[float, float]]


def measure(program: Path, profile: str, rounds: int, passes: int) -> Sampling:
    """Let our passes and those of the C program take turns."""
    with driver() as stub:
        lines = floor.recorded(stub, profile)
        ours: list[dict[str, float]] = []
        floors: list[floor.Floor] = []
        for _ in range(rounds):
            floors.append(floor.run(program, stub, lines, passes))
            ours.append(_passes(stub, profile, passes))
        counted = _counted(stub, profile)
    return Sampling(
        profile=profile,
        series=int(ours[0]["series"]),
        calls=round(sum(counted.values())),
        pass_ms=_median(ours, "shown_ms"),
        read_ms=_median(ours, "read_ms"),
        floor_ms=statistics.median(f.median_ms for f in floors),
        ratio=statistics.median(
            o["shown_ms"] / f.median_ms for o, f in zip(ours, floors, strict=True)
        ),
        child_cpu_ms=_median(ours, "child_cpu_ms"),
        parent_cpu_ms=_median(ours, "parent_cpu_ms"),
        differing=_differing(counted, floors[0].counted),
    )


def _median(rounds: list[dict[str, float]], key: str) -> float:
    return statistics.median(round_[key] for round_ in rounds)


def _passes(stub: Stub, profile: str, number: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="cardwatch-bench-") as state:
        output = subprocess.run(
            [sys.executable, HERE / "inside.py", "passes", str(number), str(INTERVAL_S), "serve",
             "--listen", f"{HOST}:0", "--state-dir", state, "--profile", profile,
             "--log-level", "error"],
            env={**os.environ, **stub.env()}, check=True, stdout=subprocess.PIPE, text=True,
        ).stdout  # fmt: skip
    told = json.loads(output)
    return {key: statistics.median(value) if isinstance(value, list) else value
            for key, value in told.items()}  # fmt: skip


def _counted(stub: Stub, profile: str) -> Counter[str]:
    """Count what the exporter itself calls in a pass, by the library's own counters."""
    with cardwatch(stub, "--interval", f"{INTERVAL_S * 1000:.0f}ms", "--profile", profile) as run:
        ready(run)
        time.sleep(_WARM_UP_S)
        before = settled(stub, _BETWEEN_S)
        time.sleep(_COUNTED_S)
        made = settled(stub, _BETWEEN_S) - before
    passes = made["nvmlDeviceGetCount_v2"]
    return Counter({name: count / passes for name, count in made.items()})


def _differing(ours: Counter[str], theirs: Counter[str]) -> dict[str, tuple[float, float]]:
    return {
        name: (ours[name], theirs[name])
        for name in sorted({*ours, *theirs})
        if ours[name] != theirs[name]
    }
