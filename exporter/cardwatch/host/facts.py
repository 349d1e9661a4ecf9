# SPDX-License-Identifier: Apache-2.0
"""All facts of the host in one record, read off the event loop.

Files below ``/proc`` and ``/sys`` normally answer at once, but the driver's own
entries need not: whoever calls ``read`` does so in a thread with a deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cardwatch.host import kernel, pci


@dataclass(frozen=True)
class HostFacts:
    """What the host shows. None and empty text mean: not known."""

    gpus: tuple[str, ...] | None = None
    nvswitches: tuple[str, ...] = ()
    module_version: str = ""
    kernel_module: str = ""
    kernel_release: str = ""
    os: str = ""
    boot_time: float | None = None


@dataclass(frozen=True)
class HostPaths:
    """Where the host's pseudo file systems are seen from here."""

    procfs: Path = Path("/proc")
    sysfs: Path = Path("/sys")
    devfs: Path = Path("/dev")


def read(paths: HostPaths) -> HostFacts:
    """Read every fact. May block; never raises."""
    module = kernel.nvidia_module(paths.procfs)
    gpus = pci.nvidia_gpus(paths.sysfs)
    return HostFacts(
        gpus=None if gpus is None else tuple(gpus),
        nvswitches=tuple(pci.nvswitches(paths.sysfs) or ()),
        module_version=module.version if module else "",
        kernel_module=module.kind if module else "",
        kernel_release=kernel.release(paths.procfs),
        os=kernel.os_name(),
        boot_time=kernel.boot_time(paths.procfs),
    )


def replaced_by(real: HostFacts, shown: Mapping[str, Any]) -> HostFacts:
    """Return the facts of a simulated or captured host in place of this one's.

    Nothing of the real host may stand beside simulated cards, save its boot time.
    """

    def text(key: str) -> str:
        return str(shown.get(key) or "")

    return HostFacts(
        gpus=tuple(str(address) for address in shown.get("pci") or ()),
        module_version=text("driver_version"),
        kernel_module=text("kernel_module"),
        kernel_release=text("kernel_release"),
        os=text("os"),
        boot_time=real.boot_time,
    )
