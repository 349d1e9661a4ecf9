# SPDX-License-Identifier: Apache-2.0
"""Readings of MIG instances, each with the labels of its parent card.

Never add them to the families of whole cards: the parent's numbers include them already.
"""

from __future__ import annotations

from cardwatch.families import ranges
from cardwatch.families.record import Family, Profile, Scope, Type

_MEMORY_INFO = "nvmlDeviceGetMemoryInfo_v2, else nvmlDeviceGetMemoryInfo, on the instance's handle"

FAMILIES: tuple[Family, ...] = (
    Family(
        "gpu_mig_info",
        Type.INFO,
        "One row per MIG instance, for as long as it exists. An instance built anew has a new "
        "mig_uuid even if its numbers are the same.",
        scope=Scope.MIG,
        profile=Profile.STANDARD,
        sources={
            "nvml": "nvmlDeviceGetMaxMigDeviceCount, nvmlDeviceGetMigDeviceHandleByIndex, "
            "nvmlDeviceGetUUID, nvmlDeviceGetGpuInstanceId, nvmlDeviceGetComputeInstanceId, "
            "nvmlDeviceGetAttributes_v2"
        },
    ),
    Family(
        "gpu_mig_memory_total_bytes",
        Type.GAUGE,
        "Memory of the instance. Compute instances of one GPU instance share it, so do not add "
        "those up.",
        scope=Scope.MIG,
        unit="bytes",
        profile=Profile.STANDARD,
        accept=ranges.CAPACITY_BYTES,
        sources={"nvml": _MEMORY_INFO},
    ),
    Family(
        "gpu_mig_memory_used_bytes",
        Type.GAUGE,
        "Memory allocated in the instance at the moment of the sample; shared by the compute "
        "instances of one GPU instance.",
        scope=Scope.MIG,
        unit="bytes",
        profile=Profile.STANDARD,
        accept=ranges.BYTES,
        sources={"nvml": _MEMORY_INFO},
    ),
    Family(
        "gpu_mig_memory_free_bytes",
        Type.GAUGE,
        "Memory that can still be allocated in the instance at the moment of the sample.",
        scope=Scope.MIG,
        unit="bytes",
        profile=Profile.STANDARD,
        accept=ranges.BYTES,
        sources={"nvml": _MEMORY_INFO},
    ),
    Family(
        "gpu_mig_sm_active_ratio",
        Type.GAUGE,
        "Average share of the instance's multiprocessors with work resident, over the sample "
        "interval; of the instance, not of the card.",
        scope=Scope.MIG,
        unit="ratio",
        profile=Profile.STANDARD,
        accept=ranges.RATIO,
        planned="dcgm",
        sources={
            "dcgm": "field 1002 (DCGM_FI_PROF_SM_ACTIVE) of the instance",
            "nvml": "nvmlGpmMigSampleGet, metric 2 (NVML_GPM_METRIC_SM_UTIL)",
        },
    ),
    Family(
        "gpu_mig_process_count",
        Type.GAUGE,
        "Processes with a context on the instance, idle ones included.",
        scope=Scope.MIG,
        profile=Profile.STANDARD,
        sources={
            "nvml": "nvmlDeviceGet{Compute,Graphics,MPSCompute}RunningProcesses of the instance"
        },
    ),
)
