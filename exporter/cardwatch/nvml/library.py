# SPDX-License-Identifier: Apache-2.0
"""Which NVML library file this process has mapped, and whether it is still the one on disk.

A process keeps the old library after a driver upgrade; only a new process can
load the new one. Reads ``/proc/self/maps``; never calls the library.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

SONAME = "libnvidia-ml.so.1"

_MAPPING = re.compile(r"^\S+ \S+ \S+ (\S+) (\d+)\s+(/.*libnvidia-ml\.so\S*)( \(deleted\))?$")


def mapped(maps: Path = Path("/proc/self/maps")) -> tuple[str, int, bool] | None:
    """Return (path, inode, deleted) of the mapped library, or None."""
    try:
        text = maps.read_text(errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        match = _MAPPING.match(line)
        if match:
            return match[3], int(match[2]), match[4] is not None
    return None


def replaced(maps: Path = Path("/proc/self/maps")) -> bool:
    """Say whether the mapped library was removed from disk or replaced by another file."""
    found = mapped(maps)
    if found is None:
        return False
    path, inode, deleted = found
    if deleted:
        return True
    try:
        return os.stat(path).st_ino != inode
    except OSError:
        return True


def version_of(path: str) -> str | None:
    """Return the version in the file name a library path resolves to, or None."""
    match = re.search(r"\.so\.(\d+\.\d+(?:\.\d+)*)$", os.path.realpath(path))
    return match[1] if match else None
