# SPDX-License-Identifier: Apache-2.0
"""The driver as a whole: module loaded, of the library's version, answering, new enough."""

from __future__ import annotations

import os
from pathlib import Path

from cardwatch.doctor.finding import Finding, count, note, ok, problem, shown
from cardwatch.doctor.scene import Scene, read_text

FLOOR = (470, 0)
"""First branch that we know anything of."""

FEATURES: tuple[tuple[tuple[int, int], tuple[str, ...]], ...] = (
    # first driver that tells it -> families that older ones leave out
    ((510, 0), ("gpu_memory_reserved_bytes",)),
    ((525, 0), ("gpu_fabric_state", "gpu_fabric_healthy")),
    ((525, 150), ("gpu_power_instant_watts", "gpu_module_power_watts")),
    ((535, 0), ("gpu_jpeg_utilization_ratio", "gpu_ofa_utilization_ratio")),
    ((535, 161), ("gpu_ecc_sram_threshold_exceeded",)),
    ((555, 0), ("gpu_pcie_transmit_bytes_total", "gpu_pcie_receive_bytes_total")),
    ((570, 0), ("gpu_recovery_action", "gpu_temperature_margin_celsius")),
    ((580, 0), ("gpu_repair_pending",)),
)
"""From the header and binding releases compared in facts/nvml.md."""

_OWN_COUNTERS = (580, 82)
_EARLY_535 = ((535, 0), (535, 98))

_RELOAD = (
    "On the host, with nothing using the cards: sudo systemctl stop nvidia-persistenced; "
    "sudo modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia"
)
_REBOOT = "or reboot the host"


def module(scene: Scene) -> list[Finding]:
    """Look whether the kernel module is loaded, and who has the cards if not."""
    host = scene.host
    if scene.wsl:
        return []
    if scene.simulated:
        gone = scene.source_error == "driver_not_loaded"
        return [_not_loaded(scene, [])] if gone else []
    if host.gpus is None:
        return [
            note(
                "pci-unreadable",
                f"The PCI bus cannot be seen below {shown(scene.sysfs)}",
                "So cards that the driver does not list go unnoticed.",
                "Mount the host's /sys, read-only, and name it: --path.sysfs DIR",
            )
        ]
    if scene.without_cards:
        return [
            note(
                "no-cards",
                "No NVIDIA card is on the PCI bus, and none is expected",
                "Nothing is wrong with that: the exporter then shows no card and is ready.",
                "If there should be some: --expect-gpus N makes their absence a problem",
            )
        ]
    if host.module_version:
        kind = f", {host.kernel_module} kernel module" if host.kernel_module else ""
        return [ok("module", f"Kernel module {host.module_version} is loaded{kind}")]
    return _why_not_loaded(scene, host.gpus)


def _why_not_loaded(scene: Scene, gpus: tuple[str, ...]) -> list[Finding]:
    if not gpus:
        return []  # the counts say that cards are missing
    loaded = read_text(scene.sysfs / "module/nvidia/version").strip()
    if loaded:
        return [
            note(
                "module-hidden",
                f"Kernel module {shown(loaded)} is loaded, but "
                f"{shown(scene.procfs / 'driver/nvidia/version')} is not here",
                "So the module's version and kind are not on the page.",
                "Name the host's procfs: --path.procfs DIR",
            )
        ]
    bound = {address: bound_to(scene.sysfs, address) for address in gpus}
    found = [
        _taken(driver, [a for a, d in bound.items() if d == driver])
        for driver in ("nouveau", "vfio-pci")
        if driver in bound.values()
    ]
    free = [address for address, driver in bound.items() if driver not in ("nouveau", "vfio-pci")]
    return [*found, *([_not_loaded(scene, free)] if free else [])]


def _taken(driver: str, cards: list[str]) -> Finding:
    which = ", ".join(cards)
    if driver == "nouveau":
        return problem(
            "nouveau",
            f"The nouveau driver has {count(len(cards), 'card')}: {which}",
            "NVIDIA's module cannot take a card that nouveau has.",
            "printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' | "
            "sudo tee /etc/modprobe.d/nouveau.conf",
            "then `sudo update-initramfs -u` (Debian, Ubuntu) or `sudo dracut --force`, and reboot",
        )
    return note(
        "vfio",
        f"{count(len(cards), 'card')} kept for virtual machines (vfio-pci): {which}",
        "The driver of this host does not see them; run cardwatch inside the virtual machine.",
    )


def _not_loaded(scene: Scene, cards: list[str]) -> Finding:
    gpus = scene.host.gpus or ()
    which = f": {', '.join(cards)}" if cards else ""
    where = "On the host, not in this container: " if scene.container else ""
    return problem(
        "module-not-loaded",
        f"The NVIDIA kernel module is not loaded; the PCI bus shows "
        f"{count(len(gpus), 'NVIDIA card')}{which}",
        f"There is no {shown(scene.procfs / 'driver/nvidia/version')}."
        if not scene.simulated
        else "The driver says that it is not loaded.",
        f"{where}sudo modprobe nvidia",
        "if that fails: `sudo dmesg | grep -i nvrm` says why, `dkms status` whether it was built "
        "for this kernel, `mokutil --sb-state` whether Secure Boot refuses an unsigned module",
    )


def bound_to(sysfs: Path, address: str) -> str:
    """Return the kernel driver that has a card; empty when none has."""
    try:
        link = os.readlink(sysfs / "bus/pci/devices" / f"{address}.0" / "driver")
    except OSError:
        return ""
    return link.rsplit("/", 1)[-1]


def mismatch(scene: Scene) -> list[Finding]:
    """Look whether library and kernel module are of the same version."""
    loaded = scene.host.module_version
    file = scene.library.version if scene.library and not scene.simulated else None
    differ = bool(loaded and file and loaded != file)
    if scene.source_error != "driver_library_mismatch" and not differ:
        return []
    title = (
        f"Kernel module {shown(loaded) or 'of unknown version'} and driver library "
        f"{file or 'of another version'} do not go together"
    )
    if scene.container:
        return [
            problem(
                "driver-library-mismatch",
                title,
                "The library in this container is not that of the host's module.",
                "Start this container anew, so that the toolkit brings the present library",
                f"If it stays so, reload the module. {_RELOAD}",
                _REBOOT,
            )
        ]
    return [
        problem(
            "driver-library-mismatch",
            title,
            "After an upgrade the old module stays loaded, and the driver refuses new processes.",
            _RELOAD,
            _REBOOT,
        )
    ]


_NAMED_ELSEWHERE = ("library_not_found", "driver_library_mismatch", "driver_not_loaded", "detached")
"""Source errors that another check explains."""


def answers(scene: Scene) -> list[Finding]:
    """Look whether the driver answered at all."""
    error = scene.source_error
    if scene.snapshot is None or error is None:
        told = scene.driver_version
        return [ok("driver", f"The driver answers: version {shown(told)}")] if told else []
    if error == "driver_not_loaded" and not scene.simulated and scene.host.module_version:
        return [
            problem(
                "driver-not-initialised",
                "The kernel module is loaded, but the driver says that it is not",
                "It could not take up any card, or its device nodes do not work.",
                "sudo dmesg | grep -i nvrm",
            )
        ]
    if error in _NAMED_ELSEWHERE:
        return []
    if error == "timeout":
        return _hangs(scene)
    if error == "permission_denied":
        return [_refused(scene)]
    if scene.views and any(view.cause for view in scene.views):
        return []  # each card is named with its cause
    return [
        problem(
            "driver-unusable",
            f"The driver cannot be used: {shown(error)}",
            "The reading process ended or gave no answer; what it wrote stands above."
            if error == "starting" or scene.restarts
            else "The driver gave this reason.",
            "sudo dmesg | grep -i -e nvrm -e xid",
            "If that says nothing: `cardwatch capture FILE`, and attach it to a bug report",
        )
    ]


def _hangs(scene: Scene) -> list[Finding]:
    calls = [call for call in scene.open_calls if call.slot is None]
    if scene.open_calls and not calls:
        return []  # each card that hangs is named
    which = f": nvml{shown(calls[0].call)} has not returned" if calls else ""
    return [
        problem(
            "driver-hangs",
            f"The driver does not answer within {scene.settings.deadline:g} s{which}",
            "A process that waits inside the driver cannot be ended; more of them only make it "
            "worse.",
            "sudo dmesg | grep -i -e nvrm -e xid (Xid 119 and 120: the card's own processor)",
            "Drain the node and reboot it; if it comes back, give the card to the vendor",
        )
    ]


def _refused(scene: Scene) -> Finding:
    if scene.container:
        fix = "Start the container anew: its access to the devices was taken away or never given"
    else:
        fix = "Run as root, or as a user who may open /dev/nvidiactl and /dev/nvidia0"
    return problem(
        "driver-refuses",
        "The driver refuses us: permission denied",
        "The findings about device nodes say more, where there are any.",
        fix,
    )


def features(scene: Scene) -> list[Finding]:
    """Say which readings this driver is too old for."""
    release = scene.driver_release
    if release is None:
        return []
    name = f"Driver {shown(scene.driver_version)} (R{release[0]})"
    found = []
    if release < FLOOR:
        found.append(
            problem(
                "driver-too-old",
                f"{name} is older than R{FLOOR[0]}",
                "Nothing was tried with it: readings may be absent or wrong.",
                "Install R580 or newer; where the card is too old for it, R470",
            )
        )
    missing = [family for since, families in FEATURES if release < since for family in families]
    if release < _OWN_COUNTERS:
        missing.append(
            "the driver's own count of thermal and power brake slowdown (ours is coarser)"
        )
    if missing:
        found.append(
            note(
                "driver-features",
                f"{name} is too old for {count(len(missing), 'reading')}",
                f"Missing with it: {', '.join(missing)}.",
                f"Upgrade the driver to {_OWN_COUNTERS[0]}.{_OWN_COUNTERS[1]} or newer",
            )
        )
    else:
        found.append(ok("driver-features", f"{name} is new enough for every reading"))
    if _EARLY_535[0] <= release <= _EARLY_535[1]:
        found.append(
            note(
                "driver-early-535",
                f"{name} lays out its process lists in its own way",
                "cardwatch recognises it; other tools show wrong pids and memory on it.",
                "Upgrade to 535.104 or newer",
            )
        )
    return found
