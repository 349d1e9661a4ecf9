# SPDX-License-Identifier: Apache-2.0
"""From the start of the process to its first answer, and to its first page with a GPU series."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from machine import Process, fetch, wait_for

_PATIENCE_S = 20.0


@dataclass(frozen=True)
class Startup:
    """Medians, in seconds."""

    answer_s: float
    series_s: float


def measure(
    start: Callable[[], AbstractContextManager[Process]], series: bytes, times: int
) -> Startup:
    """Start it several times; ask again every 2 ms."""
    answers, pages = [], []
    for _ in range(times):
        with start() as process:
            answered = wait_for(lambda: fetch(process.port) is not None, _PATIENCE_S)
            shown = wait_for(lambda: series in (fetch(process.port) or b""), _PATIENCE_S)
            answers.append(answered - process.started)
            pages.append(shown - process.started)
    return Startup(statistics.median(answers), statistics.median(pages))
