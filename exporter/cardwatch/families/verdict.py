# SPDX-License-Identifier: Apache-2.0
"""What cardwatch makes of a card's readings and events."""

from __future__ import annotations

from cardwatch.families.record import Family, Type

FAMILIES: tuple[Family, ...] = (
    Family(
        "gpu_health_state",
        Type.GAUGE,
        "Verdict on the card: 0 ok, 1 observe, 2 degraded, 3 failed; absent when it cannot be "
        "judged. At least 1 while a reading is out of its accepted range.",
        sources={"exporter": "worst of the conditions that hold"},
    ),
    Family(
        "gpu_health_condition",
        Type.GAUGE,
        "1 while this condition holds, absent otherwise; tier says who should know (page, ticket, "
        "observe).",
        labels=("condition", "tier"),
        sources={"exporter": "readings, events and the state of the card"},
    ),
)
