# SPDX-License-Identifier: Apache-2.0
"""Clocks in hertz (the driver speaks megahertz) and the performance state."""

from __future__ import annotations

from cardwatch.readings.card import CardPass

_CLOCKS = (("sm", 1), ("memory", 2), ("graphics", 0), ("video", 3))
_MEGA = 1_000_000


def read(card: CardPass) -> None:
    """Read current and highest clocks, and the performance state."""
    for name, kind in _CLOCKS:
        if card.wants("gpu_clock_hertz", name):
            with card.attempt("gpu_clock_hertz"):
                card.put("gpu_clock_hertz", card.ask("DeviceGetClockInfo", kind), name, scale=_MEGA)
        if card.wants("gpu_clock_max_hertz", name):
            with card.attempt("gpu_clock_max_hertz"):
                highest = card.static(
                    f"max clock {kind}",
                    lambda kind=kind: card.ask("DeviceGetMaxClockInfo", kind),  # type: ignore[misc]
                )
                card.put("gpu_clock_max_hertz", highest, name, scale=_MEGA)
    card.read("gpu_performance_state", "DeviceGetPerformanceState", not_told=32)
