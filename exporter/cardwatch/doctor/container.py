# SPDX-License-Identifier: Apache-2.0
"""Whether this process is in a container, and of what kind."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

KUBERNETES, DOCKER, PODMAN, APPTAINER, OTHER = (
    "Kubernetes", "Docker", "Podman", "Apptainer", "container"
)  # fmt: skip

_IN_CGROUP = (
    ("kubepods", KUBERNETES),
    ("libpod-", PODMAN),
    ("/docker/", DOCKER),
    ("docker-", DOCKER),
    ("/lxc/", "LXC"),
    ("lxc.payload", "LXC"),
    ("cri-containerd-", OTHER),
)
_OVERLAY_ROOT = re.compile(r"^\S+ \S+ \S+ \S+ / .* - overlay ", re.MULTILINE)


def kind(environment: Mapping[str, str], procfs: Path, root: Path = Path("/")) -> str:
    """Return the kind of container this is, empty for none. May block."""
    return (
        _by_environment(environment)
        or (PODMAN if os.path.exists(root / "run/.containerenv") else "")
        or _by_cgroup(_read(procfs / "self/cgroup"))
        or _by_root(procfs, root)
    )


def _by_environment(environment: Mapping[str, str]) -> str:
    if environment.get("KUBERNETES_SERVICE_HOST"):
        return KUBERNETES
    if environment.get("APPTAINER_CONTAINER") or environment.get("SINGULARITY_CONTAINER"):
        return APPTAINER
    told = environment.get("container", "")
    return {"podman": PODMAN, "docker": DOCKER, "lxc": "LXC"}.get(told, OTHER if told else "")


def _by_cgroup(text: str) -> str:
    return next((found for word, found in _IN_CGROUP if word in text), "")


def _by_root(procfs: Path, root: Path) -> str:
    """Judge by the root file system: an overlay, but some hosts boot from one as well."""
    if not _OVERLAY_ROOT.search(_read(procfs / "self/mountinfo")):
        return ""
    if os.path.exists(root / ".dockerenv"):
        return DOCKER
    return "" if _read(procfs / "2/comm").strip() == "kthreadd" else OTHER


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
