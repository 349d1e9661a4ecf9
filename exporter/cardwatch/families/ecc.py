# SPDX-License-Identifier: Apache-2.0
"""Memory errors that the card's error correction found.

Corrected errors did no harm; uncorrected ones destroyed data of whoever used that memory.
Counts are absent where ECC is off, and all of it where the card has none.
Location is `dram`, `sram`, `l1`, `l2`, `register_file`, `texture`, `shared` or `cbu`, or `all`
where the card only gives a total.
"""

from __future__ import annotations

from cardwatch.families import ranges
from cardwatch.families.record import Family, Profile, Type

FAMILIES: tuple[Family, ...] = (
    Family(
        "gpu_ecc_errors_total",
        Type.COUNTER,
        "ECC errors since the driver was loaded, by the driver's counter: corrected or "
        "uncorrected, by place in the card. Starts again with the driver or a reset.",
        labels=("type", "location"),
        accept=ranges.COUNT,
        sources={
            "nvml": "nvmlDeviceGetMemoryErrorCounter (volatile, each location), "
            "else nvmlDeviceGetTotalEccErrors (volatile) as location all"
        },
    ),
    Family(
        "gpu_ecc_sram_threshold_exceeded",
        Type.GAUGE,
        "1 when uncorrected SRAM errors over the card's life passed the vendor's own limit, "
        "which speaks for a replacement. Absent without root.",
        accept=ranges.FLAG,
        sources={"nvml": "nvmlDeviceGetSramEccErrorStatus (bThresholdExceeded)"},
    ),
    Family(
        "gpu_ecc_uncorrected_last_increase_timestamp_seconds",
        Type.GAUGE,
        "When the uncorrected count was last seen to grow; absent if it never was. Kept in the "
        "state directory.",
        unit="seconds",
        sources={"exporter": "two samples of gpu_ecc_errors_total and the event journal"},
    ),
    Family(
        "gpu_ecc_lifetime_errors_total",
        Type.COUNTER,
        "ECC errors over the life of the card, kept on the card itself; old errors stay in it for "
        "ever, so look at its growth. An administrator can clear it.",
        labels=("type", "location"),
        profile=Profile.STANDARD,
        accept=ranges.COUNT,
        sources={
            "nvml": "nvmlDeviceGetMemoryErrorCounter (aggregate, each location), "
            "else nvmlDeviceGetTotalEccErrors (aggregate) as location all"
        },
    ),
    Family(
        "gpu_ecc_mode_enabled",
        Type.GAUGE,
        "1 while error correction is on; 0 means that memory errors go unnoticed.",
        profile=Profile.STANDARD,
        accept=ranges.FLAG,
        sources={"nvml": "nvmlDeviceGetEccMode (current)"},
    ),
    Family(
        "gpu_ecc_mode_pending_enabled",
        Type.GAUGE,
        "Whether error correction will be on after the next reset or reboot; different from "
        "gpu_ecc_mode_enabled while a change waits.",
        profile=Profile.STANDARD,
        accept=ranges.FLAG,
        sources={"nvml": "nvmlDeviceGetEccMode (pending)"},
    ),
)
