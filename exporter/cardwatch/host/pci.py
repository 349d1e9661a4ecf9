# SPDX-License-Identifier: Apache-2.0
"""NVIDIA GPUs on the PCI bus, from sysfs: what is plugged in, whatever the driver says."""

from __future__ import annotations

from pathlib import Path

_VENDOR = "0x10de"
_SWITCH_CLASS = "0x0680"  # "other bridge", as which an NVSwitch shows itself
_DISPLAY_CLASS = "0x03"  # VGA 0x0300, 3D controller 0x0302


def nvidia_gpus(sysfs: Path) -> list[str] | None:
    """Return PCI addresses (``0000:3b:00``) of NVIDIA GPUs, sorted.

    None when the bus cannot be read. Virtual functions are not cards and are left out.
    """
    return _addresses(sysfs, _DISPLAY_CLASS)


def nvswitches(sysfs: Path) -> list[str] | None:
    """Return PCI addresses of NVSwitches, sorted; None when the bus cannot be read."""
    return _addresses(sysfs, _SWITCH_CLASS)


def _addresses(sysfs: Path, kind: str) -> list[str] | None:
    try:
        devices = sorted((sysfs / "bus/pci/devices").iterdir())
    except OSError:
        return None
    found = (device for device in devices if _is(device, kind))
    # A GPU's audio and USB functions have other classes; function .0 is the GPU.
    return sorted({device.name.rsplit(".", 1)[0].lower() for device in found})


def _is(device: Path, kind: str) -> bool:
    if _attribute(device / "vendor") != _VENDOR:
        return False
    if not _attribute(device / "class").startswith(kind):
        return False
    return not (device / "physfn").exists()


def _attribute(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip().lower()
    except OSError:
        return ""
