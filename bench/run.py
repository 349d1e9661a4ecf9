# SPDX-License-Identifier: Apache-2.0
"""Measure the budgets of the exporter and the same figures of a peer, in one run.

    .venv/bin/python bench/run.py [--quick] [--check] [--json FILE] [--only TOPIC ...]

Everything runs on this machine, over loopback, on a stand-in of the driver
library with eight H100. See bench/README.md for what each figure is.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import hang
import memory
import peers
import sampling
import scrape
import startup
from machine import (
    OURS,
    SPIN_US,
    busy_seconds,
    cardwatch,
    compiled,
    driver,
    machine,
    own_seconds,
    ready,
)
from report import Figure, as_json, missed, table


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    rounds: int
    passes: int
    scrapes: int
    idle_s: float
    starts: int
    memory_s: float
    samples: tuple[int, int]


FULL = Effort(3, 25, 600, 10.0, 7, 95.0, (memory.EARLY, memory.LATE))
QUICK = Effort(1, 12, 150, 5.0, 1, 10.0, (200, 700))


def _sampling(effort: Effort) -> list[Figure]:
    floor = compiled("floor")
    figures = []
    for profile in ("full", "standard"):
        seen = sampling.measure(floor, profile, effort.rounds, effort.passes)
        for function, (ours, theirs) in seen.differing.items():
            print(f"  {profile}: {function} is called {ours:g} times a pass, by the floor "
                  f"{theirs:g} times: the ratio does not count", file=sys.stderr)  # fmt: skip
        ratio = float("nan") if seen.differing else seen.ratio
        name = f"pass, {profile}"
        figures += [
            Figure(f"{name}: wall time / C floor", ratio, budget=1.5),
            Figure(f"{name}: wall time, page included", seen.pass_ms, "ms"),
            Figure(f"{name}: of which reading in the child", seen.read_ms, "ms"),
            Figure(f"{name}: C floor, {seen.calls} calls of {SPIN_US} us", seen.floor_ms, "ms"),
            Figure(f"{name}: CPU of child, calls included", seen.child_cpu_ms, "ms"),
            Figure(f"{name}: CPU of parent", seen.parent_cpu_ms, "ms"),
            Figure(f"{name}: series on the page", seen.series),
        ]
    return figures


def _scrapes(effort: Effort) -> list[Figure]:
    load = compiled("load")
    with driver() as stub:
        ours = scrape.ours(stub, load, effort.scrapes, effort.idle_s)
        calls = scrape.driver_calls(stub, load, effort.scrapes)
        peer = None
        if peers.version() is not None:
            with peers.nvitop(stub) as process:
                ready(process, peers.SERIES)
                peer = scrape.measure(process, load, effort.scrapes, effort.idle_s)

    def figure(
        name: str, read: Callable[[scrape.Scrapes], float], unit: str, budget: float | None = None
    ) -> Figure:
        return Figure(name, read(ours), unit, budget, None if peer is None else read(peer))

    return [
        figure("/metrics alone, gzip: p50", lambda s: s.alone.p50_ms, "ms", 1.0),
        figure("/metrics alone, gzip: p99", lambda s: s.alone.p99_ms, "ms", 2.0),
        figure("/metrics, 16 scrapers at once: p99", lambda s: s.together.p99_ms, "ms", 25.0),
        figure("/metrics: scrapes that failed", lambda s: s.alone.failed + s.together.failed, "",
               0.0),
        Figure("driver calls during scrapes", calls, budget=0.0),
        figure("CPU per scrape, net of idle", lambda s: s.cpu_ms, "ms", 1.0),
        figure("CPU with nobody scraping, of one core", lambda s: s.idle_cpu_percent, "%"),
        figure("memory while scraped, sum of PSS", lambda s: s.pss_mib, "MiB", 64.0),
        figure("series on the page", lambda s: s.series, ""),
        figure("bytes of the page, plain", lambda s: s.plain_bytes, "B"),
        figure("bytes of the page, gzip", lambda s: s.alone.bytes, "B"),
    ]  # fmt: skip


def _startup(effort: Effort) -> list[Figure]:
    with driver() as stub:
        ours = startup.measure(lambda: cardwatch(stub), OURS, effort.starts)
        peer = None
        if peers.version() is not None:
            peer = startup.measure(lambda: peers.nvitop(stub), peers.SERIES, effort.starts)
    return [
        Figure("start to first answer", ours.answer_s, "s", 0.5, peer and peer.answer_s),
        Figure("start to first GPU series", ours.series_s, "s", 1.0, peer and peer.series_s),
    ]


def _hang(effort: Effort) -> list[Figure]:
    with driver() as stub:
        seen = hang.measure(stub, compiled("load"), min(effort.scrapes, 300))
    return [
        Figure("one call hangs: /metrics p99", seen.p99_ms, "ms", 10.0),
        Figure("one call hangs: scrapes that failed", seen.failed, budget=0.0),
        Figure(f"one call hangs: until gpu_up 0 (deadline {hang.DEADLINE_S:g} s)", seen.shown_s,
               "s", hang.DEADLINE_S + 2.0),
        Figure(f"one call hangs: age of the other cards' samples (interval {hang.INTERVAL_S:g} s)",
               seen.oldest_other_s, "s", 2 * hang.INTERVAL_S),
        Figure("one call hangs: other cards not up", hang.GPUS - 1 - seen.others_up, budget=0.0),
    ]  # fmt: skip


def _memory(effort: Effort) -> list[Figure]:
    seen = memory.measure(effort.memory_s, *effort.samples)
    return [
        Figure(f"memory after {seen.samples:,} samples, sum of PSS", seen.pss_mib, "MiB", 64.0),
        Figure(f"memory, growth since sample {seen.early_samples:,}", seen.growth_mib, "MiB", 1.0),
    ]


_DISTURBED = 0.1

TOPICS: dict[str, Callable[[Effort], list[Figure]]] = {
    "scrape": _scrapes,
    "sampling": _sampling,
    "startup": _startup,
    "hang": _hang,
    "memory": _memory,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="within a minute, less exact")
    parser.add_argument("--check", action="store_true", help="exit 1 when a budget is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--only", choices=TOPICS, nargs="+", default=list(TOPICS), metavar="TOPIC",
                        help=f"some of {', '.join(TOPICS)}")  # fmt: skip
    options = parser.parse_args()
    began, busy, own = time.monotonic(), busy_seconds(), own_seconds()
    figures: list[Figure] = []
    for topic in options.only:
        print(f"measuring: {topic} ...", file=sys.stderr, flush=True)
        figures += TOPICS[topic](QUICK if options.quick else FULL)
    seconds = time.monotonic() - began
    others = (busy_seconds() - busy - (own_seconds() - own)) / seconds
    peer = f"{peers.PACKAGE} {peers.version() or 'not installed'}"
    print(f"\n{machine()}; {seconds:.0f} s. Peer: {peer}.\n\n{table(figures)}\n")
    if others > _DISTURBED:
        print(f"Other processes kept {others:.2g} processors busy meanwhile: "
              "times are those of a disturbed machine.\n")  # fmt: skip
    late = missed(figures)
    for figure in late:
        print(f"MISSED: {figure.name}")
    if options.json:
        document = as_json(
            figures, machine=machine(), peer=peer, quick=options.quick, others_busy=others
        )
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 1 if late and options.check else 0


if __name__ == "__main__":
    raise SystemExit(main())
