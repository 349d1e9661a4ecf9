# SPDX-License-Identifier: Apache-2.0
"""MIG: whether memory and processes of a divided card may be read."""

from __future__ import annotations

import re

from cardwatch.doctor import container
from cardwatch.doctor.finding import Finding, count, numbers, ok, problem, shown
from cardwatch.doctor.scene import CAP_SYS_ADMIN, Scene, read_text
from cardwatch.nvml.codes import Outcome
from cardwatch.supervisor.cards import View

_GUARDED = (
    "gpu_memory_total_bytes",
    "gpu_memory_used_bytes",
    "gpu_memory_free_bytes",
    "gpu_memory_reserved_bytes",
    "gpu_bar1_memory_total_bytes",
    "gpu_bar1_memory_used_bytes",
    "gpu_process_count",
    "gpu_mig_info",
    "gpu_mig_memory_total_bytes",
    "gpu_mig_memory_used_bytes",
    "gpu_mig_memory_free_bytes",
    "gpu_mig_process_count",
)
"""Readings of a divided card that need the privilege to watch all instances."""

_VARIABLE = "NVIDIA_MIG_MONITOR_DEVICES"


def divided(view: View) -> bool:
    """Say whether a card is known to have MIG on."""
    rows = None if view.sample is None else view.sample.rows.get("gpu_mig_mode_enabled")
    return rows is not None and rows[0][1] == 1


def guarded(view: View) -> tuple[str, ...]:
    """Return the readings that MIG's privilege keeps from us on a card."""
    if view.sample is None or not divided(view):
        return ()
    denied = Outcome.DENIED.value
    return tuple(family for family in _GUARDED if view.sample.faults.get(family) == denied)


def mig(scene: Scene) -> list[Finding]:
    """Look whether divided cards show memory and processes."""
    cards = [view for view in scene.views if divided(view)]
    if not cards:
        return []
    shut = [view for view in cards if guarded(view)]
    if not shut:
        instances = sum(len(view.sample.mig) for view in cards if view.sample)
        return [
            ok(
                "mig",
                f"MIG is on for card {numbers(view.index for view in cards)}: "
                f"{count(instances, 'instance')}, memory and processes can be read",
            )
        ]
    names = sorted({family for view in shut for family in guarded(view)})
    return [
        problem(
            "mig-denied",
            f"MIG is on for card {numbers(view.index for view in shut)}, "
            "and memory or processes are denied",
            f"Denied: {', '.join(names)}. {_standing(scene)}",
            *fixes(scene),
        )
    ]


def _standing(scene: Scene) -> str:
    given = scene.environment.get(_VARIABLE)
    held = scene.capability(CAP_SYS_ADMIN)
    words = [f"{_VARIABLE} is {'not set' if given is None else shown(given)}"]
    if held is not None:
        words.append(f"CAP_SYS_ADMIN is {'held' if held else 'not held'}")
    return "; ".join(words) + "."


def fixes(scene: Scene) -> list[str]:
    """Return what opens memory and processes of a divided card to us."""
    device = _monitor_device(scene)
    if scene.container == container.KUBERNETES:
        return [
            f"In the container: env {_VARIABLE}=all and securityContext: capabilities: {{add: "
            "[SYS_ADMIN]}; the one does not work without the other",
            f"or mount {device} into it (privileged: true, or a device plugin that allows it)",
        ]
    if scene.container:
        run = f"{scene.container.lower()} run"
        return [
            f"{run} -e {_VARIABLE}=all --cap-add SYS_ADMIN ...; the one does not work without "
            "the other",
            f"or {run} --device {device} ...",
        ]
    return [
        "Run cardwatch as root, or in its systemd unit: AmbientCapabilities=CAP_SYS_ADMIN",
        f"or let its user read the capability device mig/monitor: {device}",
        f"In a container: {_VARIABLE}=all and CAP_SYS_ADMIN",
    ]


def _monitor_device(scene: Scene) -> str:
    text = read_text(scene.procfs / "driver/nvidia/capabilities/mig/monitor")
    match = re.search(r"^DeviceFileMinor:\s*(\d+)$", text, re.MULTILINE)
    if match is None:
        return "/dev/nvidia-caps/nvidia-capN, N from /proc/driver/nvidia/capabilities/mig/monitor"
    return f"/dev/nvidia-caps/nvidia-cap{match[1]}"
