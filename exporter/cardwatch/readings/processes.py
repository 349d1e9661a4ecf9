# SPDX-License-Identifier: Apache-2.0
"""Processes on a card, as the driver lists them: compute, graphics and MPS."""

from __future__ import annotations

from cardwatch.nvml.codes import DriverError, Outcome
from cardwatch.readings.card import CardPass

_LISTS = (
    "DeviceGetComputeRunningProcesses",
    "DeviceGetGraphicsRunningProcesses",
    "DeviceGetMPSComputeRunningProcesses",
)


def read(card: CardPass) -> None:
    """Count the processes that have a context on the card."""
    count(card, "gpu_process_count")


def count(card: CardPass, family: str) -> None:
    """Count distinct pids over all lists that this card has; one pid may be in two."""
    with card.attempt(family):
        pids: set[int] = set()
        supported = 0
        for call in _LISTS:
            try:
                pids.update(entry[0] for entry in card.ask(call))
                supported += 1
            except DriverError as error:
                if error.outcome is not Outcome.UNSUPPORTED:
                    raise
                last = error
        if not supported:
            raise last
        card.put(family, len(pids))
