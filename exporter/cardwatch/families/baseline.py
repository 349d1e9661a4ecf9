# SPDX-License-Identifier: Apache-2.0
"""What was recorded as right for this node, and where it differs now.

Aspects are `driver`, `cuda`, `vbios`, `inforom`, `serial`, `model`, `memory`, `power_limit`,
`ecc`, `mig`, `persistence`, `nvlink`, `pcie`, `image` and others. All absent without a baseline.
"""

from __future__ import annotations

from cardwatch.families.record import Family, Scope, Type

FAMILIES: tuple[Family, ...] = (
    Family(
        "gpu_baseline_match",
        Type.GAUGE,
        "0 while this aspect of the card differs from the baseline; there are no rows for aspects "
        "that agree.",
        labels=("aspect",),
        planned="ledger",
        sources={"exporter": "baseline register"},
    ),
    Family(
        "gpu_baseline_mismatches",
        Type.GAUGE,
        "Aspects of the card that differ from the baseline now; 0 when all agree, absent when "
        "nothing was recorded for it.",
        planned="ledger",
        sources={"exporter": "baseline register"},
    ),
    Family(
        "gpu_baseline_recorded_timestamp_seconds",
        Type.GAUGE,
        "When the baseline of this node was last recorded.",
        scope=Scope.NODE,
        unit="seconds",
        planned="ledger",
        sources={"exporter": "baseline register"},
    ),
)
