# SPDX-License-Identifier: Apache-2.0
"""The driver's device nodes: there, and open to us.

Only the control device is opened, as the driver library does first. Opening the
node of a card could initialise it, which takes seconds and may hang; of those
only the permissions are looked at.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

from cardwatch.doctor.checks_driver import bound_to
from cardwatch.doctor.checks_library import give_cards
from cardwatch.doctor.finding import Finding, count, numbers, ok, problem, shown
from cardwatch.doctor.scene import Scene, read_text, user_name
from cardwatch.probe.control import NAME

_CARD_NODE = re.compile(r"^nvidia(\d+)$")
_OTHER_DRIVERS = ("vfio-pci", "nouveau")


def devices(scene: Scene) -> list[Finding]:
    """Look at the control device and the nodes of the cards."""
    if scene.wsl or scene.without_cards or not scene.host.module_version:
        return []
    control = scene.devfs / NAME
    found = _control(scene, control)
    if found is not None and found.id == "device-missing":
        return [found]
    nodes = _card_nodes(scene.devfs)
    findings = [] if found is None else [found]
    findings += _missing_nodes(scene, nodes)
    closed = [number for number in nodes if not _may_open(scene.devfs / f"nvidia{number}")]
    if closed and found is None:
        findings.append(_closed(scene.devfs / f"nvidia{closed[0]}", closed))
    return findings or [
        ok(
            "devices",
            f"Device nodes: {shown(control)} opens, "
            f"{count(len(nodes), 'card node')} ({numbers(nodes)})",
        )
    ]


def _control(scene: Scene, path: Path) -> Finding | None:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
    except FileNotFoundError:
        return problem(
            "device-missing",
            f"There is no {shown(path)}",
            "Everything goes through it; without it the driver library finds no driver.",
            *_make_nodes(scene),
        )
    except PermissionError as refused:
        by_mode = refused.errno == errno.EACCES and not _may_open(path)
        return _closed(path, []) if by_mode else _refused(scene, path, refused)
    except OSError as failed:
        return problem(
            "device-broken",
            f"{shown(path)} does not open: {failed.strerror}",
            "The node is there, but no driver is behind its number.",
            "Compare its number (`ls -l`) with that of nvidia in /proc/devices, remove "
            "it, and make it anew: sudo nvidia-modprobe -c 0",
        )
    return None


def _card_nodes(devfs: Path) -> list[int]:
    try:
        names = os.listdir(devfs)
    except OSError:
        return []
    return sorted(int(match[1]) for match in map(_CARD_NODE.match, names) if match)


def _missing_nodes(scene: Scene, nodes: list[int]) -> list[Finding]:
    """Compare the nodes with the minor numbers that the module gave, else with the cards."""
    cards = [a for a in scene.host.gpus or () if bound_to(scene.sysfs, a) not in _OTHER_DRIVERS]
    minors = _minors(scene.procfs)
    missing = [minor for minor in minors if minor not in nodes]
    if not missing and len(nodes) >= len(cards):
        return []
    which = ", ".join(str(scene.devfs / f"nvidia{minor}") for minor in missing[:16])
    return [
        problem(
            "card-devices-missing",
            f"{count(len(nodes), 'card node')} ({numbers(nodes) or 'none'}) for "
            f"{count(max(len(cards), len(minors)), 'card')}",
            f"Missing: {shown(which)}."
            if which
            else "A card without its node is one that the driver library does not show.",
            *_make_nodes(scene),
        )
    ]


def _minors(procfs: Path) -> list[int]:
    try:
        folders = sorted((procfs / "driver/nvidia/gpus").iterdir())
    except OSError:
        return []
    texts = (read_text(folder / "information") for folder in folders)
    found = (re.search(r"^Device Minor:\s*(\d+)$", text, re.MULTILINE) for text in texts)
    return sorted(int(match[1]) for match in found if match)


def _make_nodes(scene: Scene) -> list[str]:
    if not scene.container:
        return [
            "sudo nvidia-modprobe -c 0 (for /dev/nvidia0; -c 1 for the next), or run nvidia-smi "
            "once as root",
            "In a systemd unit: not PrivateDevices=yes",
        ]
    given = scene.environment.get("NVIDIA_VISIBLE_DEVICES")
    if given not in (None, "all"):
        return [f"Start the container with NVIDIA_VISIBLE_DEVICES=all; it has {shown(given)}"]
    return give_cards(scene)


def _may_open(path: Path) -> bool:
    return os.access(path, os.R_OK | os.W_OK, effective_ids=True)


def _closed(path: Path, cards: list[int]) -> Finding:
    """Word a refusal by owner and mode of a node."""
    which = f" and {len(cards) - 1} more" if len(cards) > 1 else ""
    return problem(
        "device-denied-by-mode",
        f"{user_name()} may not open {shown(path)}{which}: {_mode(path)}",
        "The file mode keeps us out.",
        "Run cardwatch as a user or group that may open it (systemd: "
        "SupplementaryGroups=), or as root",
        "or open the nodes to all, as the driver does by itself: `options nvidia "
        "NVreg_DeviceFileMode=0666` in /etc/modprobe.d/nvidia.conf, and reload the "
        "module",
    )


def _mode(path: Path) -> str:
    try:
        status = path.stat()
    except OSError:
        return "mode not known"
    return f"{stat.filemode(status.st_mode)} uid {status.st_uid} gid {status.st_gid}"


def _refused(scene: Scene, path: Path, refused: OSError) -> Finding:
    """Word a refusal that the mode does not explain: device cgroup, nodev, security module."""
    seen = f"{errno.errorcode.get(refused.errno or 0, '')}, mode {_mode(path)}"
    if scene.container:
        return problem(
            "device-denied-by-cgroup",
            f"{shown(path)} is here, but this container may not open it ({seen})",
            "The device cgroup keeps us out: it was never opened, or was closed by "
            "`systemctl daemon-reload` or `docker update`.",
            "Start the container anew",
            *give_cards(scene),
            "To keep it open for good: `sudo nvidia-ctk system create-dev-char-symlinks "
            "--create-all` on the host, or devices by CDI",
        )
    return problem(
        "device-denied-by-cgroup",
        f"{shown(path)} is here, but may not be opened ({seen})",
        "The mode allows it, so the device cgroup, a mount with nodev or a security "
        "module keeps us out.",
        "In a systemd unit: DeviceAllow=/dev/nvidiactl rw and DeviceAllow=/dev/nvidia0 "
        "rw (and so on), or no DevicePolicy= and PrivateDevices=",
        "SELinux: `sudo ausearch -m avc -ts recent`; AppArmor: `sudo dmesg | grep DENIED`",
    )
