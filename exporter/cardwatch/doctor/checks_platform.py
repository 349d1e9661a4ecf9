# SPDX-License-Identifier: Apache-2.0
"""What kind of machine this is, and what it keeps from us: WSL, virtual machine, vGPU, MPS."""

from __future__ import annotations

import re

from cardwatch.doctor.finding import Finding, note, numbers, ok, shown
from cardwatch.doctor.scene import Scene, read_text

_VGPU_NAME = re.compile(r"^(?:GRID |vGPU )?[A-Z]+[0-9]+\w*(?:-[0-9])?-[0-9]{1,3}[ABCQV]$")
"""Profiles such as GRID T4-16Q, A40-48Q, H100L-94C, A100-1-5C."""

MPS_VARIABLE = "NVML_MPS_DEVICE_ENUMERATION"


def is_virtual(model: str) -> bool:
    """Say whether a card's name is that of a vGPU profile."""
    return _VGPU_NAME.match(model) is not None


def wsl(scene: Scene) -> list[Finding]:
    """Say what the Windows Subsystem for Linux does not have."""
    if not scene.wsl:
        return []
    return [
        note(
            "wsl",
            f"Windows Subsystem for Linux (kernel {shown(scene.host.kernel_release)})",
            "Not available there: MIG, ECC, memory of single processes, events of the driver; the "
            "kernel log is not that of Windows, cards are not on the PCI bus, and older drivers "
            "tell no utilization.",
            "For all readings run on Linux itself; library and driver are those of Windows",
        )
    ]


def virtual(scene: Scene) -> list[Finding]:
    """Say which cards are virtual, by their name, and whether the machine is."""
    shared = [view for view in scene.views if is_virtual(view.card.info.get("model", ""))]
    found = []
    if shared:
        names = sorted({view.card.info["model"] for view in shared})
        found.append(
            note(
                "vgpu",
                f"Card {numbers(view.index for view in shared)}: a virtual GPU by its name "
                f"({shown(', '.join(names))})",
                "A guest is not told power, fans, PCIe, ECC and supported throttle reasons; its "
                "card's health is the host's affair.",
                "For these readings run cardwatch on the hypervisor",
            )
        )
    machine = _machine(scene)
    return [*found, ok("machine", machine)] if machine else found


def _machine(scene: Scene) -> str:
    if scene.simulated:
        return ""
    parts = (
        read_text(scene.sysfs / "class/dmi/id" / name).strip()
        for name in ("sys_vendor", "product_name")
    )
    name = shown(" ".join(part for part in parts if part))
    flags = re.search(r"^flags\s*:(.*)$", read_text(scene.procfs / "cpuinfo"), re.MULTILINE)
    kind = "A virtual machine" if flags and " hypervisor" in flags[1] else "Machine"
    if not name:
        return "A virtual machine" if kind != "Machine" else ""
    return f"{kind}: {name}"


def mps_view(scene: Scene) -> list[Finding]:
    """Say that a variable narrows what NVML shows."""
    given = scene.environment.get(MPS_VARIABLE)
    if given is None:
        return []
    return [
        note(
            "mps-view",
            f"{MPS_VARIABLE} is {shown(given) or 'empty'} in the environment",
            "It switches NVML to a view for MPS in which most readings are not supported. "
            "cardwatch takes it out of its own environment; other tools do not.",
            f"unset {MPS_VARIABLE}",
        )
    ]
