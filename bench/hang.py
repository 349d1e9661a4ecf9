# SPDX-License-Identifier: Apache-2.0
"""One card's call hangs for ever: what /metrics does meanwhile."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from machine import GPUS, Stub, cardwatch, fetch, ready, wait_for
from scrape import load

DEADLINE_S, INTERVAL_S = 2.0, 1.0
GPU, FUNCTION = 2, "nvmlDeviceGetPowerUsage"
_SAMPLE = re.compile(rb'^(\w+)\{gpu="(\d+)"[^}]*\} (\S+)$', re.MULTILINE)
_NOW = re.compile(rb"^cardwatch_time_seconds\{[^}]*\} (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Hang:
    """``shown_s`` counts from the moment the call began to hang."""

    p99_ms: float
    failed: int
    shown_s: float
    oldest_other_s: float
    others_up: int


def measure(stub: Stub, program: Path, scrapes: int) -> Hang:
    """Let one call hang, watch until it shows, then scrape and look at the other cards."""
    flags = ("--deadline", f"{DEADLINE_S:g}s", "--interval", f"{INTERVAL_S:g}s")
    with cardwatch(stub, *flags) as process:
        ready(process)
        stub.hang(FUNCTION, GPU)
        try:
            stub.wait_hang(FUNCTION)
            began = time.monotonic()
            shown = wait_for(
                lambda: _values(fetch(process.port) or b"", "gpu_up").get(GPU) == 0.0, 30, 0.02
            )
            seen = load(program, process.port, 1, scrapes, 10_000)
            page = fetch(process.port) or b""
        finally:
            stub.release()
    others = set(range(GPUS)) - {GPU}
    taken = _values(page, "cardwatch_gpu_sample_timestamp_seconds")
    now = _NOW.search(page)
    return Hang(
        p99_ms=seen.p99_ms,
        failed=seen.failed,
        shown_s=shown - began,
        oldest_other_s=float(now[1] if now else "nan") - min(taken[gpu] for gpu in others),
        others_up=sum(_values(page, "gpu_up")[gpu] == 1 for gpu in others),
    )


def _values(page: bytes, family: str) -> dict[int, float]:
    return {
        int(gpu): float(value)
        for name, gpu, value in _SAMPLE.findall(page)
        if name == family.encode()
    }
