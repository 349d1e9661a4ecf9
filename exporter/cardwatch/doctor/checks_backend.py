# SPDX-License-Identifier: Apache-2.0
"""Whether the cards shown are real at all."""

from __future__ import annotations

from cardwatch.doctor.finding import Finding, note, shown
from cardwatch.doctor.scene import Scene


def backend(scene: Scene) -> list[Finding]:
    """Say loudly that nothing here is about this machine's cards, when that is so."""
    if not scene.simulated:
        return []
    chosen = scene.settings.scenario or scene.settings.capture or "eight healthy cards"
    return [
        note(
            "simulated",
            f"SIMULATED CARDS: backend {scene.settings.backend} ({shown(chosen)})",
            "Nothing below about driver and cards is true of this machine; its driver library, "
            "device nodes, kernel log and processes were not looked at.",
            "To examine this machine: cardwatch doctor --backend nvml",
        )
    ]
