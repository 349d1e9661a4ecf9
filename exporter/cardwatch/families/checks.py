# SPDX-License-Identifier: Apache-2.0
"""Active checks, which put load on a card to see whether it works as it should."""

from __future__ import annotations

from cardwatch.families.record import Family, Type

FAMILIES: tuple[Family, ...] = (
    Family(
        "gpu_check_status",
        Type.GAUGE,
        "Result of the last completed run of this check on the card; absent when it never ran.",
        labels=("check",),
        planned="checks",
    ),
    Family(
        "gpu_check_last_completed_timestamp_seconds",
        Type.GAUGE,
        "When this check last came to an end on the card, whatever the result.",
        unit="seconds",
        labels=("check",),
        planned="checks",
    ),
    Family(
        "gpu_check_duration_seconds",
        Type.GAUGE,
        "How long the last completed run of this check took.",
        unit="seconds",
        labels=("check",),
        planned="checks",
    ),
)
