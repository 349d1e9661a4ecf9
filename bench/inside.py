# SPDX-License-Identifier: Apache-2.0
"""What has to run in a process of its own, because the driver library is found at its start.

    inside.py calls PROFILE                   the driver calls of one pass over one card, as JSON
    inside.py passes N SECONDS serve FLAGS    `cardwatch serve` until N passes were timed, as JSON
    inside.py fast SECONDS serve FLAGS        `cardwatch serve`, but as often as asked for

The product takes no interval below 100 ms; here that bound alone is lifted.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import replace
from typing import Any

from cardwatch.backends import Options
from cardwatch.backends.nvml import NvmlBackend
from cardwatch.commands import flags, main, serve
from cardwatch.families.record import Profile
from cardwatch.nvml.binding import NvmlDriver
from cardwatch.nvml.calls import Driver
from cardwatch.supervisor.session import Session

HEARTBEAT_S = 1.0
WARM_UP = 6


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


class TimedSession(Session):
    """Session of the real `serve` that notes how long each pass took, up to the page."""

    wanted = 0

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        # As with an interval of 5 s: no heartbeat falls into a pass and splits it.
        self.source.settings = {**self.source.settings, "heartbeat": HEARTBEAT_S}
        self._seen_passes = 0
        self._cpu_before = (0.0, 0.0)
        self._read: list[float] = []
        self._shown: list[float] = []

    def _refresh(self) -> None:
        super()._refresh()
        passes = self.source.passes
        if passes == self._seen_passes:
            return
        self._seen_passes = passes
        self.served(openmetrics=True, gzip=True)  # as if scraped: from now on made with the page
        if passes <= WARM_UP:
            self._cpu_before = self._cpu()
            return
        samples = [card.sample for card in self.cards.known.values() if card.sample]
        begin = min(sample.monotonic - sample.duration for sample in samples)
        self._read.append(1e3 * (max(sample.monotonic for sample in samples) - begin))
        self._shown.append(1e3 * (self.rendered_at - begin))
        if len(self._shown) == self.wanted:
            self._tell()

    def _cpu(self) -> tuple[float, float]:
        frame = self.source.frame
        return (0.0 if frame is None else frame.cpu), time.process_time()

    def _tell(self) -> None:
        child, parent = (
            1e3 * (after - before) / self.wanted
            for after, before in zip(self._cpu(), self._cpu_before, strict=True)
        )
        told = {"read_ms": self._read, "shown_ms": self._shown, "child_cpu_ms": child,
                "parent_cpu_ms": parent, "series": self.page.series}  # fmt: skip
        print(json.dumps(told), flush=True)
        os.kill(os.getpid(), signal.SIGTERM)


def passes(wanted: int, interval: float, words: list[str]) -> int:
    """Run the real command until so many passes were timed."""
    TimedSession.wanted = wanted
    serve.Session = TimedSession
    return fast(interval, words)


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
        raise SystemExit(passes(int(rest[0]), float(rest[1]), rest[2:]))
    else:
        raise SystemExit(fast(float(rest[0]), rest[1:]))
