# SPDX-License-Identifier: Apache-2.0
"""What has to run in a process of its own, because the driver library is found at its start.

    inside.py calls PROFILE               the driver calls of one pass over one card, as JSON
    inside.py passes N SECONDS PROFILE    N passes through the real child and parent, as JSON
    inside.py fast SECONDS serve FLAGS    `cardwatch serve`, but as often as asked for

The product takes no interval below 100 ms; here that bound alone is lifted.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from cardwatch.backends import Options
from cardwatch.backends.nvml import NvmlBackend
from cardwatch.commands import flags, main
from cardwatch.families.record import Profile
from cardwatch.nvml.binding import NvmlDriver
from cardwatch.nvml.calls import Driver
from cardwatch.settings.table import Settings
from cardwatch.supervisor.session import Session

HEARTBEAT_S = 1.0
WARM_UP = 6
PATIENCE_S = 30.0


class Noting:
    """Notes the calls that go by."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def call(self, name: str, *args: Any) -> Any:
        # The first argument is the handle, except where the handle is made.
        self.calls.append((name, args if name == "DeviceGetHandleByIndex" else args[1:]))
        return self._driver.call(name, *args)


def calls(profile: Profile) -> None:
    """Print what is asked of one card once its facts are known."""
    noting: list[Noting] = []

    def watch(driver: Driver) -> Noting:
        noting.append(Noting(driver))
        return noting[0]

    backend = NvmlBackend(NvmlDriver(), Options("nvml", profile=profile, watch=watch))
    backend.open()
    backend.count()
    for _ in range(WARM_UP):
        noting[0].calls.clear()
        backend.read(0)
    json.dump(noting[0].calls, sys.stdout)
    os._exit(0)


async def passes(wanted: int, interval: float, profile: Profile) -> None:
    """Print the times of passes: from the first call to the end of reading, and to the page."""
    with tempfile.TemporaryDirectory(prefix="cardwatch-bench-") as state:
        settings = replace(Settings(), backend="nvml", interval=interval, profile=profile,
                           state_dir=Path(state))  # fmt: skip
        session = Session(settings, environment=dict(os.environ))
        # As with an interval of 5 s: no heartbeat falls into a pass and splits it.
        session.source.settings = {**session.source.settings, "heartbeat": HEARTBEAT_S}
        running = asyncio.create_task(session.run())
        source = session.source
        await session.wait_until(lambda: source.passes >= WARM_UP, PATIENCE_S)
        cpu = _cpu(session)
        read: list[float] = []
        shown: list[float] = []
        for _ in range(wanted):
            seen = source.passes
            if not await session.wait_until(lambda seen=seen: source.passes > seen, PATIENCE_S):
                raise TimeoutError("no pass")
            samples = [card.sample for card in session.cards.known.values() if card.sample]
            begin = min(sample.monotonic - sample.duration for sample in samples)
            read.append(max(sample.monotonic for sample in samples) - begin)
            shown.append(session.rendered_at - begin)
        child, parent = (after - before for after, before in zip(_cpu(session), cpu, strict=True))
        running.cancel()
        await session.stop()
    json.dump(
        {
            "read_ms": [1e3 * value for value in read],
            "shown_ms": [1e3 * value for value in shown],
            "child_cpu_ms": 1e3 * child / wanted,
            "parent_cpu_ms": 1e3 * parent / wanted,
            "series": session.page.series,
            "median_ms": 1e3 * statistics.median(shown),
        },
        sys.stdout,
    )


def _cpu(session: Session) -> tuple[float, float]:
    frame = session.source.frame
    return (0.0 if frame is None else frame.cpu), time.process_time()


def fast(interval: float, words: list[str]) -> int:
    """Run the real command with an interval that its settings would refuse."""
    load = flags.settings
    flags.settings = lambda parsed: replace(load(parsed), interval=interval)
    return main(words)


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "calls":
        calls(Profile[rest[0].upper()])
    elif what == "passes":
        asyncio.run(passes(int(rest[0]), float(rest[1]), Profile[rest[2].upper()]))
    else:
        raise SystemExit(fast(float(rest[0]), rest[1:]))
