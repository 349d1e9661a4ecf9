# SPDX-License-Identifier: Apache-2.0
"""The running kernel, when it booted, its OS, and the NVIDIA module it has loaded."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from cardwatch.text import label

_MODULE_VERSION = re.compile(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b")
_MAX_READ = 65536


@dataclass(frozen=True)
class KernelModule:
    """The loaded NVIDIA kernel module: its version, and ``open`` or ``proprietary``."""

    version: str
    kind: str


def _read(path: Path) -> str:
    try:
        with path.open(errors="replace") as file:
            return file.read(_MAX_READ)
    except OSError:
        return ""


def nvidia_module(procfs: Path) -> KernelModule | None:
    """Return the loaded module by ``/proc/driver/nvidia/version``, or None."""
    text = _read(procfs / "driver/nvidia/version")
    line = next((line for line in text.splitlines() if line.startswith("NVRM version:")), "")
    match = _MODULE_VERSION.search(line)
    if match is None:
        return None
    return KernelModule(match[1], "open" if "Open Kernel Module" in line else "proprietary")


def release(procfs: Path) -> str:
    """Return the kernel release, as ``uname -r`` prints it; empty if unreadable."""
    return label(_read(procfs / "sys/kernel/osrelease"))


def boot_time(procfs: Path) -> float | None:
    """Return the second at which the kernel booted (``btime`` of ``/proc/stat``)."""
    match = re.search(r"^btime (\d+)$", _read(procfs / "stat"), re.MULTILINE)
    return float(match[1]) if match else None


def os_name(root: Path = Path("/")) -> str:
    """Return ``ID VERSION_ID`` of os-release, for example ``ubuntu 24.04``."""
    text = _read(root / "etc/os-release") or _read(root / "usr/lib/os-release")
    values = dict(
        line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#")
    )
    parts = (values.get(key, "").strip().strip("\"'") for key in ("ID", "VERSION_ID"))
    return label(" ".join(part for part in parts if part))
