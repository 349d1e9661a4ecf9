# SPDX-License-Identifier: Apache-2.0
"""The container, if this is one: what it was given of the cards."""

from __future__ import annotations

from cardwatch.doctor.finding import Finding, note, ok, problem, shown
from cardwatch.doctor.scene import CAP_SYS_ADMIN, CAP_SYSLOG, Scene

_NOTHING = ("", "void", "none")


def container(scene: Scene) -> list[Finding]:
    """Say what kind of container this is and which cards it was told to have."""
    if not scene.container:
        return [ok("container", "Not in a container")]
    found = [ok("container", f"In a container ({scene.container})", _held(scene))]
    given = scene.environment.get("NVIDIA_VISIBLE_DEVICES")
    if given is None or given == "all":
        return found
    if given.strip() in _NOTHING:
        nothing = (
            f"NVIDIA_VISIBLE_DEVICES is {shown(given) or 'empty'}: this container gets no card"
        )
        fix = "Start it with NVIDIA_VISIBLE_DEVICES=all"
        if scene.listed:
            return [
                *found,
                note("devices-not-asked-for", nothing, "It has some all the same.", fix),
            ]
        return [
            *found,
            problem(
                "devices-not-asked-for", nothing, "The container toolkit leaves it alone.", fix
            ),
        ]
    return [
        *found,
        note(
            "devices-restricted",
            f"NVIDIA_VISIBLE_DEVICES is {shown(given)}",
            "Only these cards are seen; an exporter for the node should have all.",
            "Start the container with NVIDIA_VISIBLE_DEVICES=all",
        ),
    ]


def _held(scene: Scene) -> str:
    known = (("CAP_SYS_ADMIN", CAP_SYS_ADMIN), ("CAP_SYSLOG", CAP_SYSLOG))
    words = [
        f"{name} {'held' if held else 'not held'}"
        for name, number in known
        if (held := scene.capability(number)) is not None
    ]
    return ", ".join(words)
