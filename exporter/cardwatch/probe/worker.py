# SPDX-License-Identifier: Apache-2.0
"""Threads that make driver calls, and the record of which call each has open."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from cardwatch.nvml.calls import Driver

Result = tuple[str, int | None, Any]
"""(kind, slot, value): kind is card, count, versions, or down."""


class WatchedDriver:
    """``Driver`` that remembers the call each thread is in.

    The entry is set before the driver is entered and removed after, so that
    another thread can see how long a call has been open while it hangs.
    """

    def __init__(self, driver: Driver) -> None:
        self._call = driver.call
        self.open: dict[int, tuple[str, tuple[Any, ...], float]] = {}

    def call(self, name: str, *args: Any) -> Any:
        """Pass the call on."""
        me = threading.get_ident()
        self.open[me] = (name, args, time.monotonic())
        try:
            return self._call(name, *args)
        finally:
            del self.open[me]


class Worker(threading.Thread):
    """Runs one piece of work each time it is started; refuses while it is still in one.

    ``slot`` is the card it reads, None for the node. A hung worker stays busy;
    it takes up work again when its call returns.
    """

    def __init__(
        self,
        slot: int | None,
        work: Callable[[], Result],
        results: queue.SimpleQueue[Result],
    ) -> None:
        name = "node" if slot is None else f"gpu-{slot}"
        super().__init__(name=name, daemon=True)
        self.slot = slot
        self.busy = False
        self._work = work
        self._results = results
        self._go = threading.Semaphore(0)

    def begin(self) -> bool:
        """Start one pass; False when the last one has not ended."""
        if self.busy:
            return False
        self.busy = True
        self._go.release()
        return True

    def run(self) -> None:
        """Serve passes for ever. The thread is a daemon: a hung call cannot be ended."""
        while True:
            self._go.acquire()
            try:
                result = self._work()
            except Exception as error:
                # A bug here must show as a failing card, not as a silent thread.
                result = ("bug", self.slot, f"{type(error).__name__}: {error}")
            self.busy = False
            self._results.put(result)
