# SPDX-License-Identifier: Apache-2.0
"""NVIDIA GPUs on the PCI bus, from sysfs: what is plugged in, whatever the driver says."""

from __future__ import annotations

from pathlib import Path

_VENDOR = "0x10de"
_DISPLAY_CLASS = "0x03"  # VGA 0x0300, 3D controller 0x0302


def nvidia_gpus(sysfs: Path) -> list[str] | None:
    """Return PCI addresses (``0000:3b:00``) of NVIDIA GPUs, sorted.

    None when the bus cannot be read. Virtual functions are not cards and are left out.
    """
    try:
        devices = sorted((sysfs / "bus/pci/devices").iterdir())
    except OSError:
        return None
    found = (device for device in devices if _is_gpu(device))
    # A GPU's audio and USB functions have other classes; function .0 is the GPU.
    return sorted({device.name.rsplit(".", 1)[0].lower() for device in found})


def _is_gpu(device: Path) -> bool:
    if _attribute(device / "vendor") != _VENDOR:
        return False
    if not _attribute(device / "class").startswith(_DISPLAY_CLASS):
        return False
    return not (device / "physfn").exists()


def _attribute(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip().lower()
    except OSError:
        return ""
