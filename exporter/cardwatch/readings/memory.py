# SPDX-License-Identifier: Apache-2.0
"""Memory: framebuffer and BAR1.

The v2 call's "used" leaves out what the driver reserves, v1's includes it. The
two are never mixed silently: ``gpu_memory_used_includes_reserved`` says which.
"""

from __future__ import annotations

from cardwatch.nvml.codes import DriverError, Outcome
from cardwatch.readings.card import CardPass

_V2 = ("gpu_memory_total_bytes", "gpu_memory_used_bytes", "gpu_memory_free_bytes",
       "gpu_memory_reserved_bytes")  # fmt: skip


def read(card: CardPass) -> None:
    """Read framebuffer memory, and BAR1 memory in the full profile."""
    with card.attempt(*_V2):
        try:
            total, reserved, free, used = card.ask("DeviceGetMemoryInfo_v2")
        except DriverError as error:
            if error.outcome is not Outcome.UNSUPPORTED:
                raise
            _read_v1(card)
        else:
            card.put("gpu_memory_total_bytes", total)
            card.put("gpu_memory_used_bytes", used)
            card.put("gpu_memory_free_bytes", free)
            card.put("gpu_memory_reserved_bytes", reserved)
    if card.wants("gpu_bar1_memory_total_bytes"):
        with card.attempt("gpu_bar1_memory_total_bytes", "gpu_bar1_memory_used_bytes"):
            total, _free, used = card.ask("DeviceGetBAR1MemoryInfo")
            card.put("gpu_bar1_memory_total_bytes", total)
            card.put("gpu_bar1_memory_used_bytes", used)


def _read_v1(card: CardPass) -> None:
    total, free, used = card.ask("DeviceGetMemoryInfo")
    card.put("gpu_memory_total_bytes", total)
    card.put("gpu_memory_used_bytes", used)
    card.put("gpu_memory_free_bytes", free)
    card.put("gpu_memory_used_includes_reserved", 1)
    card.absent("gpu_memory_reserved_bytes")
