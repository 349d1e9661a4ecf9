# SPDX-License-Identifier: Apache-2.0
"""Who uses a card: processes, and the pods, jobs and containers they belong to.

A workload is named `namespace/pod`, `slurm:<job>`, container, unit or process, whichever is known
first. Process ids appear in the `full` profile only.
"""

from __future__ import annotations

from cardwatch.families import ranges
from cardwatch.families.record import Family, Profile, Type

_PROCESSES = (
    "nvmlDeviceGetComputeRunningProcesses_v3, nvmlDeviceGetGraphicsRunningProcesses_v3, "
    "nvmlDeviceGetMPSComputeRunningProcesses_v3, else their _v2"
)

FAMILIES: tuple[Family, ...] = (
    Family(
        "gpu_process_count",
        Type.GAUGE,
        "Processes with a context on the card, each counted once, idle ones included. From inside "
        "a container the driver may hide the others.",
        sources={"nvml": _PROCESSES},
    ),
    Family(
        "gpu_oldest_process_start_time_seconds",
        Type.GAUGE,
        "When the oldest process on the card started; absent when there is none or it cannot be "
        "seen.",
        unit="seconds",
        planned="ledger",
        sources={"procfs": "<pid>/stat, field starttime"},
    ),
    Family(
        "gpu_workload_info",
        Type.INFO,
        "A workload that holds a context on the card. Two rows for one card mean that it is "
        "shared, so a join by uuid needs an aggregation first.",
        labels=(
            "workload",
            "kind",
            "namespace",
            "pod",
            "container",
            "service",
            "image",
            "image_digest",
            "job_id",
            "user",
        ),
        planned="ledger",
    ),
    Family(
        "gpu_workload_memory_bytes",
        Type.GAUGE,
        "Memory of the card that the processes of a workload hold, together. Their sum is below "
        "gpu_memory_used_bytes: contexts cost memory of their own.",
        unit="bytes",
        labels=("workload", "kind", "namespace", "pod", "container", "service"),
        profile=Profile.STANDARD,
        accept=ranges.BYTES,
        planned="ledger",
        sources={"nvml": _PROCESSES},
    ),
    Family(
        "gpu_process_memory_bytes",
        Type.GAUGE,
        "Memory of the card that processes of this name hold; equal names of a workload are added "
        "up. pid is empty below the full profile, which has one row per process.",
        unit="bytes",
        labels=("process", "workload", "pid"),
        profile=Profile.STANDARD,
        accept=ranges.BYTES,
        planned="ledger",
        sources={"nvml": _PROCESSES, "procfs": "<pid>/comm"},
    ),
    Family(
        "gpu_workload_software_info",
        Type.INFO,
        "Version of a library that a process of the workload has loaded (cuda_runtime, nccl, "
        "torch, vllm and others).",
        labels=("workload", "component", "version"),
        profile=Profile.STANDARD,
        planned="ledger",
    ),
)
