# SPDX-License-Identifier: Apache-2.0
"""Whether the kernel log can be read: it is where the driver writes Xid errors."""

from __future__ import annotations

import errno
import os

from cardwatch.doctor import container
from cardwatch.doctor.finding import Finding, note, ok, shown
from cardwatch.doctor.scene import CAP_SYSLOG, Scene, read_text, user_name

_WHAT_FOR = "The kernel log is where the driver reports a card's errors (Xid)."


def kernel_log(scene: Scene) -> list[Finding]:
    """Open the kernel log for reading, without reading from it."""
    path = scene.devfs / "kmsg"
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    except FileNotFoundError:
        return [note("kmsg-missing", f"There is no {shown(path)}", _WHAT_FOR, *_give(scene))]
    except OSError as refused:
        restricted = read_text(scene.procfs / "sys/kernel/dmesg_restrict").strip() == "1"
        return [
            note(
                "kmsg-unreadable",
                f"{shown(path)} may not be read by {user_name()} ({refused.strerror}"
                f"{', kernel.dmesg_restrict is 1' if restricted else ''})",
                _WHAT_FOR,
                *_permit(scene, refused, restricted=restricted),
            )
        ]
    where = "" if not scene.container else "; it is that of the whole host"
    return [ok("kmsg", f"The kernel log can be read: {shown(path)}{where}")]


def _give(scene: Scene) -> list[str]:
    if scene.container == container.KUBERNETES:
        return [
            "In the pod: a hostPath volume of /dev/kmsg (type CharDevice), mounted read-only at "
            "/dev/kmsg, and privileged: true so that it may be opened"
        ]
    if scene.container:
        return [
            f"{scene.container.lower()} run --device /dev/kmsg:/dev/kmsg:r --cap-add SYSLOG ..."
        ]
    return [
        "Name the host's devices: --path.devfs DIR",
        "In a systemd unit: not PrivateDevices=yes and not ProtectKernelLogs=yes",
    ]


def _permit(scene: Scene, refused: OSError, *, restricted: bool) -> list[str]:
    if restricted and not scene.capability(CAP_SYSLOG):
        if scene.container == container.KUBERNETES:
            return ["In the container's securityContext: capabilities: {add: [SYSLOG]}"]
        if scene.container:
            return [f"{scene.container.lower()} run --cap-add SYSLOG ..."]
        return ["In the systemd unit: AmbientCapabilities=CAP_SYSLOG; by hand: run as root"]
    if refused.errno == errno.EACCES:
        return ["Run as root, or: sudo setfacl -m u:USER:r /dev/kmsg"]
    if scene.container:
        return _give(scene)
    return ["In the systemd unit: DeviceAllow=/dev/kmsg r, and not ProtectKernelLogs=yes"]
