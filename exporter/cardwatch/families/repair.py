# SPDX-License-Identifier: Apache-2.0
"""Repairs of the card's memory and units, and what the driver says must be done.

From Ampere on, cards replace bad memory by spare rows; older ones retire pages. A card has one
or the other, never both. Row numbers are absent while MIG instances exist.
"""

from __future__ import annotations

from cardwatch.families import ranges
from cardwatch.families.record import Family, Profile, Type

_REMAPPED = "nvmlDeviceGetRemappedRows"

FAMILIES: tuple[Family, ...] = (
    Family(
        "gpu_row_remap_pending",
        Type.GAUGE,
        "1 while a memory row waits to be replaced by a spare one, which happens at the next "
        "reset of the card.",
        accept=ranges.FLAG,
        sources={"nvml": _REMAPPED},
    ),
    Family(
        "gpu_row_remap_failure",
        Type.GAUGE,
        "1 when a memory row could not be replaced by a spare one: a case for replacement of the "
        "card. A reset does not clear it.",
        accept=ranges.FLAG,
        sources={"nvml": _REMAPPED},
    ),
    Family(
        "gpu_retired_pages_pending",
        Type.GAUGE,
        "1 while memory pages wait to be taken out of use at the next reset. Only cards before "
        "Ampere retire pages.",
        accept=ranges.FLAG,
        sources={"nvml": "nvmlDeviceGetRetiredPagesPendingStatus"},
    ),
    Family(
        "gpu_remapped_rows_total",
        Type.COUNTER,
        "Memory rows replaced by spare ones over the life of the card, by what led to it: "
        "corrected or uncorrected errors. Stored on the card, so no driver load resets it.",
        labels=("cause",),
        profile=Profile.STANDARD,
        accept=ranges.COUNT_32,
        sources={"nvml": _REMAPPED},
    ),
    Family(
        "gpu_retired_pages_total",
        Type.COUNTER,
        "Memory pages taken out of use over the life of the card, by cause: single_bit (repeated "
        "corrected errors) or double_bit (one uncorrected). Stored on the card.",
        labels=("cause",),
        profile=Profile.STANDARD,
        accept=ranges.COUNT_32,
        sources={"nvml": "length of nvmlDeviceGetRetiredPages"},
    ),
    Family(
        "gpu_repair_pending",
        Type.GAUGE,
        "1 while a repair of this unit (channel: memory channel, tpc: compute cluster) waits for "
        "the next reset.",
        labels=("unit",),
        profile=Profile.STANDARD,
        accept=ranges.FLAG,
        sources={"nvml": "nvmlDeviceGetRepairStatus"},
    ),
    Family(
        "gpu_row_remap_banks",
        Type.GAUGE,
        "Memory banks by how many spare rows they have left: max, high, partial, low or none. A "
        "bank at none cannot be repaired again.",
        labels=("availability",),
        profile=Profile.FULL,
        accept=ranges.COUNT_32,
        sources={"nvml": "nvmlDeviceGetRowRemapperHistogram"},
    ),
    Family(
        "gpu_recovery_action",
        Type.GAUGE,
        "What the driver asks for: 0 none, 1 reset, 2 node reboot, 3 drain P2P, 4 drain and "
        "reset, 5 recover IMEX, 6 bus reset, 7 system reboot. A state, not an event; higher is "
        "not worse.",
        accept=ranges.RECOVERY_ACTION,
        sources={"nvml": "field 230 (NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)"},
    ),
)
