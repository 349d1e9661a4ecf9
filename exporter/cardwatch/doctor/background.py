# SPDX-License-Identifier: Apache-2.0
"""Work that may be held up for ever, in a thread that nobody has to wait for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """Runs ``work`` at once in a daemon thread; what it gives is in ``value`` when it is done."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.value: T | None = None
        self.error: Exception | None = None
        self._work = work
        self._done = threading.Event()
        threading.Thread(target=self._run, name="doctor", daemon=True).start()

    def _run(self) -> None:
        try:
            self.value = self._work()
        except Exception as error:  # whoever waits decides what it means
            self.error = error
        self._done.set()

    def wait_until(self, end: float) -> bool:
        """Wait until a moment of the monotonic clock; say whether the work is done."""
        return self._done.wait(max(0.0, end - time.monotonic()))
