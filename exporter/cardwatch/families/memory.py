# SPDX-License-Identifier: Apache-2.0
"""How much memory the card has and how much of it is taken.

Where the driver knows reserved memory, `used` excludes it and
total = used + free + reserved. Cards that share the host's memory have no such numbers, and
the host's are never put in their place.
"""

from __future__ import annotations

from cardwatch.families import ranges
from cardwatch.families.record import Family, Profile, Type

_MEMORY_INFO = "nvmlDeviceGetMemoryInfo_v2, else nvmlDeviceGetMemoryInfo"

FAMILIES: tuple[Family, ...] = (
    Family(
        "gpu_memory_total_bytes",
        Type.GAUGE,
        "Memory of the card that the driver manages; with ECC on, some cards show less.",
        unit="bytes",
        accept=ranges.CAPACITY_BYTES,
        sources={"nvml": _MEMORY_INFO},
    ),
    Family(
        "gpu_memory_used_bytes",
        Type.GAUGE,
        "Memory allocated at the moment of the sample, without what the driver reserves unless "
        "gpu_memory_used_includes_reserved is 1. Frameworks hold memory they do not use.",
        unit="bytes",
        accept=ranges.BYTES,
        sources={
            "nvml": "nvmlDeviceGetMemoryInfo_v2 (used excludes reserved), "
            "else nvmlDeviceGetMemoryInfo (used includes it)"
        },
    ),
    Family(
        "gpu_memory_free_bytes",
        Type.GAUGE,
        "Memory that can still be allocated at the moment of the sample; may be in pieces.",
        unit="bytes",
        profile=Profile.STANDARD,
        accept=ranges.BYTES,
        sources={"nvml": _MEMORY_INFO},
    ),
    Family(
        "gpu_memory_reserved_bytes",
        Type.GAUGE,
        "Memory that driver and firmware keep for themselves; no process owns it. Absent where "
        "the driver cannot tell it from used memory.",
        unit="bytes",
        profile=Profile.STANDARD,
        accept=ranges.BYTES,
        sources={"nvml": "nvmlDeviceGetMemoryInfo_v2"},
    ),
    Family(
        "gpu_memory_unattributed_bytes",
        Type.GAUGE,
        "Used memory that no visible process accounts for. Means something only where all "
        "processes are visible.",
        unit="bytes",
        profile=Profile.STANDARD,
        accept=ranges.BYTES,
        planned="ledger",
    ),
    Family(
        "gpu_memory_used_includes_reserved",
        Type.GAUGE,
        "1 where this driver is too old to tell reserved memory from used memory, so that "
        "gpu_memory_used_bytes counts both; absent elsewhere.",
        profile=Profile.STANDARD,
        sources={"exporter": "set when only nvmlDeviceGetMemoryInfo answers"},
    ),
    Family(
        "gpu_bar1_memory_total_bytes",
        Type.GAUGE,
        "Size of the window through which host and peers reach the card's memory (BAR1). It is "
        "address space, not extra memory.",
        unit="bytes",
        profile=Profile.FULL,
        accept=ranges.CAPACITY_BYTES,
        sources={"nvml": "nvmlDeviceGetBAR1MemoryInfo"},
    ),
    Family(
        "gpu_bar1_memory_used_bytes",
        Type.GAUGE,
        "Part of the BAR1 window that is mapped at the moment of the sample.",
        unit="bytes",
        profile=Profile.FULL,
        accept=ranges.BYTES,
        sources={"nvml": "nvmlDeviceGetBAR1MemoryInfo"},
    ),
)
