# SPDX-License-Identifier: Apache-2.0
"""Which cards the node has, whether they answer, and the facts that do not change.

Static facts stand on `gpu_info` and `gpu_node_info` only; join them to readings on `uuid`
and `node`.
"""

from __future__ import annotations

from cardwatch.families.record import Family, Profile, Scope, Type

FAMILIES: tuple[Family, ...] = (
    Family(
        "gpu_up",
        Type.GAUGE,
        "1 while the card answers; 0 when it is lost, hung or refused, or when utilization, clocks "
        "and power all fail although the card has one of them. Not a verdict on its health.",
        sources={"exporter": "outcome of the last sample of this card"},
    ),
    Family(
        "gpu_state_info",
        Type.INFO,
        "Current state of the card, one row: ok, lost, hung, reset_required, denied, unreadable or "
        "detached. A card in reset_required may still answer, with gpu_up 1.",
        labels=("state",),
        sources={"exporter": "error codes of the last sample, its deadline and the driver's list"},
    ),
    Family(
        "gpu_info",
        Type.INFO,
        "Facts of the card that stay the same while the driver runs; join on uuid. Kept when the "
        "card stops answering. model is the driver's name without the vendor.",
        labels=(
            "model",
            "architecture",
            "pci_bus_id",
            "serial",
            "board_part_number",
            "vbios_version",
            "inforom_version",
            "compute_capability",
        ),
        sources={
            "nvml": "nvmlDeviceGetName, nvmlDeviceGetArchitecture, nvmlDeviceGetPciInfo_v3, "
            "nvmlDeviceGetSerial, nvmlDeviceGetBoardPartNumber, nvmlDeviceGetVbiosVersion, "
            "nvmlDeviceGetInforomImageVersion, nvmlDeviceGetCudaComputeCapability"
        },
    ),
    Family(
        "gpu_last_reset_timestamp_seconds",
        Type.GAUGE,
        "Newest of boot, driver load and reset of this card, as far as known. Events before it are "
        "settled; a reset nobody recorded may be missing.",
        unit="seconds",
        sources={"exporter": "boot time, driver load and the event journal"},
    ),
    Family(
        "gpu_node_info",
        Type.INFO,
        "Driver and system of the node. cuda_driver_version is what the driver supports, not an "
        "installed toolkit. image_id and image_version are empty in this release.",
        scope=Scope.NODE,
        labels=(
            "driver_version",
            "driver_branch",
            "kernel_module",
            "cuda_driver_version",
            "nvml_version",
            "kernel_release",
            "os",
            "image_id",
            "image_version",
        ),
        sources={
            "nvml": "nvmlSystemGetDriverVersion, nvmlSystemGetDriverBranch (else by version), "
            "nvmlSystemGetCudaDriverVersion_v2, nvmlSystemGetNVMLVersion",
            "procfs": "driver/nvidia/version, sys/kernel/osrelease",
            "exporter": "/etc/os-release",
        },
    ),
    Family(
        "gpu_node_detected_gpus",
        Type.GAUGE,
        "GPUs that the kernel sees on the PCI bus, counted without the driver. More than "
        "gpu_node_listed_gpus means a card the driver does not serve.",
        scope=Scope.NODE,
        sources={"sysfs": "bus/pci/devices: vendor 0x10de, class 0x03xx"},
    ),
    Family(
        "gpu_node_listed_gpus",
        Type.GAUGE,
        "GPUs that the driver lists, those we may not open included. Absent while the driver "
        "does not answer.",
        scope=Scope.NODE,
        sources={"nvml": "nvmlDeviceGetCount_v2"},
    ),
    Family(
        "gpu_node_expected_gpus",
        Type.GAUGE,
        "GPUs that this node should have, as told by --expect-gpus. Absent where nobody said; "
        "never guessed from what is there.",
        scope=Scope.NODE,
        sources={"exporter": "--expect-gpus"},
    ),
    Family(
        "gpu_node_boot_timestamp_seconds",
        Type.GAUGE,
        "When the host booted, as its kernel says.",
        scope=Scope.NODE,
        unit="seconds",
        sources={"procfs": "stat, line btime"},
    ),
    Family(
        "gpu_node_first_seen_timestamp_seconds",
        Type.GAUGE,
        "When cardwatch first ran on this node, from the state directory. Starts anew where that "
        "directory does not outlive the process.",
        scope=Scope.NODE,
        unit="seconds",
        sources={"exporter": "state directory"},
    ),
    Family(
        "gpu_node_driver_mismatch",
        Type.GAUGE,
        "1 while the loaded kernel module and the driver library on disk are of different "
        "versions: running jobs go on, new ones fail until the module is reloaded.",
        scope=Scope.NODE,
        planned="ledger",
    ),
    Family(
        "gpu_node_software_info",
        Type.INFO,
        "Version of a piece of the node's GPU software: driver_module, driver_library, "
        "driver_package, gsp, container_toolkit, fabric_manager.",
        scope=Scope.NODE,
        labels=("component", "version"),
        profile=Profile.STANDARD,
        planned="ledger",
    ),
)
