# SPDX-License-Identifier: Apache-2.0
"""Settings of the card that an administrator chooses."""

from __future__ import annotations

from cardwatch.families import ranges
from cardwatch.families.record import Family, Profile, Type

FAMILIES: tuple[Family, ...] = (
    Family(
        "gpu_persistence_mode_enabled",
        Type.GAUGE,
        "1 while the driver keeps the card set up without clients. At 0 the first job waits for "
        "it, and counters may restart between jobs.",
        profile=Profile.STANDARD,
        accept=ranges.FLAG,
        sources={"nvml": "nvmlDeviceGetPersistenceMode"},
    ),
    Family(
        "gpu_mig_mode_enabled",
        Type.GAUGE,
        "1 while the card can be split into MIG instances, whether it has any or not. A change "
        "that waits for a reset does not show.",
        profile=Profile.STANDARD,
        accept=ranges.FLAG,
        sources={"nvml": "nvmlDeviceGetMigMode (current)"},
    ),
    Family(
        "gpu_compute_mode",
        Type.GAUGE,
        "Who may open compute contexts: 0 anybody, 1 one thread, 2 nobody, 3 one process. A code, "
        "not an amount.",
        profile=Profile.FULL,
        accept=ranges.COMPUTE_MODE,
        sources={"nvml": "nvmlDeviceGetComputeMode"},
    ),
)
