# SPDX-License-Identifier: Apache-2.0
"""Whether the processes that use the cards can be seen in procfs."""

from __future__ import annotations

import os
import re

from cardwatch.doctor import container
from cardwatch.doctor.finding import Finding, count, note, ok, shown
from cardwatch.doctor.scene import Scene, read_text

_HIDEPID = re.compile(r" - proc \S+ \S*hidepid=(\w+)")


def processes(scene: Scene) -> list[Finding]:
    """Compare the processes on the cards with those in procfs; a kernel thread shows the host."""
    if scene.wsl or scene.without_cards:
        return []
    listed = sorted(set().union(*scene.pids.values()))
    unseen = [pid for pid in listed if not os.path.exists(scene.procfs / str(pid))]
    whole_host = read_text(scene.procfs / "2/comm").strip() == "kthreadd"
    if whole_host and not unseen:
        seen = f", {count(len(listed), 'of them is', 'of them are')} on the cards" if listed else ""
        return [ok("processes", f"Processes of the whole host are seen{seen}")]
    on_cards = (
        f"The driver lists {count(len(listed), 'process', 'processes')} on the cards, "
        f"of which {len(unseen)} cannot be found (such as pid {unseen[0]})."
        if unseen
        else "Processes on the cards are known by their pid on the host."
    )
    if whole_host:
        return [
            note(
                "processes-unseen",
                "Some processes on the cards are not in procfs",
                f"{on_cards} They have ended meanwhile, or belong to another machine.",
            )
        ]
    return [_hidden(scene, on_cards)]


def _hidden(scene: Scene, on_cards: str) -> Finding:
    hidepid = _HIDEPID.search(read_text(scene.procfs / "self/mountinfo"))
    if hidepid and hidepid[1] not in ("0", "off"):
        return note(
            "processes-hidden-by-mount",
            f"{shown(scene.procfs)} hides other users' processes (hidepid={hidepid[1]})",
            on_cards,
            f"Run as root, or add the group of the mount's gid= option: "
            f"`findmnt {shown(scene.procfs)}` shows it",
        )
    first = shown(read_text(scene.procfs / "1/comm").strip())
    seen = f"pid 1 is {first}" if first else "there is no pid 1"
    inner = re.search(r"^NSpid:\s*(.+)$", read_text(scene.procfs / "self/status"), re.MULTILINE)
    ours = f", ours is {shown(' / '.join(inner[1].split()))}" if inner else ""
    return note(
        "processes-hidden",
        f"A PID namespace hides the host's processes: {seen} in {shown(scene.procfs)}{ours}",
        on_cards,
        *_share(scene),
    )


def _share(scene: Scene) -> list[str]:
    if scene.container == container.KUBERNETES:
        return ["In the pod's spec: hostPID: true"]
    if scene.container in (container.DOCKER, container.PODMAN):
        return [f"{scene.container.lower()} run --pid=host ..."]
    return [
        "Share the host's PID namespace (--pid=host, hostPID: true), or mount its /proc and name "
        "it: --path.procfs DIR"
    ]
