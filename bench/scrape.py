# SPDX-License-Identifier: Apache-2.0
"""Scrapes: latency alone and sixteen at once, processor time, and driver calls (none)."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from machine import Process, Stub, calls, cardwatch, fetch, ready, settled

SCRAPERS = 16
_PAUSE_US = 10_000


@dataclass(frozen=True)
class Load:
    """What the C client saw. ``failed`` scrapes have no latency."""

    scrapes: int
    failed: int
    bytes: int
    p50_ms: float
    p99_ms: float
    seconds: float


@dataclass(frozen=True)
class Scrapes:
    """One exporter under scrapes, gzip asked for, a new connection each."""

    series: int
    plain_bytes: int
    alone: Load
    together: Load
    cpu_ms: float
    idle_cpu_percent: float
    pss_mib: float


def load(program: Path, port: int, scrapers: int, scrapes: int, pause_us: int = 0) -> Load:
    """Run the C client."""
    output = subprocess.run(
        [program, str(port), str(scrapers), str(scrapes), str(pause_us)],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    told = dict(word.split("=") for word in output.split())
    return Load(int(told["scrapes"]), int(told["failed"]), int(told["bytes"]),
                float(told["p50_ms"]), float(told["p99_ms"]), float(told["seconds"]))  # fmt: skip


def measure(process: Process, program: Path, scrapes: int, idle_s: float) -> Scrapes:
    """Scrape a running exporter; its own sampling goes on meanwhile.

    Processor time is that of all its processes while it is scraped 100 times a
    second, less what it uses in the same time when nobody scrapes.
    """
    page = fetch(process.port) or b""
    series = sum(1 for line in page.splitlines() if line and not line.startswith(b"#"))
    load(program, process.port, 1, 20, _PAUSE_US)
    idle_per_s = _idle(process, idle_s)
    before = process.cpu_seconds()
    alone = load(program, process.port, 1, scrapes, _PAUSE_US)
    used = process.cpu_seconds() - before
    together = load(program, process.port, SCRAPERS, max(12, scrapes // SCRAPERS))
    return Scrapes(
        series=series,
        plain_bytes=len(page),
        alone=alone,
        together=together,
        cpu_ms=1e3 * (used - idle_per_s * alone.seconds) / alone.scrapes,
        idle_cpu_percent=100 * idle_per_s,
        pss_mib=process.pss_mib(),
    )


def _idle(process: Process, seconds: float) -> float:
    before, began = process.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    return (process.cpu_seconds() - before) / (time.monotonic() - began)


def ours(stub: Stub, program: Path, scrapes: int, idle_s: float) -> Scrapes:
    """Scrape our exporter as it is by default: a sample every 5 s."""
    with cardwatch(stub) as process:
        ready(process)
        return measure(process, program, scrapes, idle_s)


def driver_calls(stub: Stub, program: Path, scrapes: int) -> int:
    """Count the driver calls while scrapes go on between two samples an hour apart."""
    with cardwatch(stub, "--interval", "1h") as process:
        ready(process)
        before = settled(stub, 1.0)
        load(program, process.port, 1, scrapes)
        return sum((calls(stub) - before).values())
