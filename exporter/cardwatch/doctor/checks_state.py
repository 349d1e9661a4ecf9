# SPDX-License-Identifier: Apache-2.0
"""The state directory: whether what must survive a restart can be kept in it."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from cardwatch.doctor import container
from cardwatch.doctor.finding import Finding, note, ok, problem, shown
from cardwatch.doctor.scene import Scene, user_name
from cardwatch.supervisor import roster

_WHAT_FOR = "The cards once seen are kept there, so that one lost over a restart is missed."


def state(scene: Scene) -> list[Finding]:
    """Look whether the directory is one, or can be made, and whether files in it can be written."""
    directory = scene.state_dir
    if directory is None:
        return []
    if os.path.lexists(directory):
        return _existing(scene, directory)
    parent = next((p for p in directory.parents if os.path.lexists(p)), Path("/"))
    if not parent.is_dir():
        return [_not_a_directory(directory, parent)]
    if not os.access(parent, os.W_OK | os.X_OK, effective_ids=True):
        return [_unwritable(scene, directory, f"{shown(parent)} is not writable")]
    return [ok("state", f"State directory {shown(directory)} will be made at the first start")]


def _existing(scene: Scene, directory: Path) -> list[Finding]:
    if not directory.is_dir():
        return [_not_a_directory(directory, directory)]
    try:
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as failed:
        return [_unwritable(scene, directory, failed.strerror or str(failed), failed.errno)]
    for name in (roster.FILE, roster.LOCK):
        file = directory / name
        if os.path.exists(file) and not os.access(file, os.R_OK | os.W_OK, effective_ids=True):
            return [_unwritable(scene, directory, f"{name} belongs to uid {file.stat().st_uid}")]
    return _roster(directory)


def _roster(directory: Path) -> list[Finding]:
    try:
        known = roster.on_file(directory)
    except OSError as failed:
        return [
            problem(
                "state-unreadable",
                f"{shown(directory / roster.FILE)}: {failed.strerror}",
                _WHAT_FOR,
                f"Look at it: ls -l {shown(directory)}",
            )
        ]
    except (ValueError, TypeError, KeyError, AttributeError):
        return [
            note(
                "state-broken",
                f"{shown(directory / roster.FILE)} is not a roster of cards",
                "The exporter will set it aside and begin a new one.",
            )
        ]
    held = f"; it knows {len(known)} cards" if known else ""
    return [ok("state", f"State directory {shown(directory)} can be written{held}")]


def _not_a_directory(directory: Path, what: Path) -> Finding:
    return problem(
        "state-not-a-directory",
        f"State directory {shown(directory)}: {shown(what)} is not a directory",
        _WHAT_FOR,
        "Give another: --state-dir DIR",
    )


def _unwritable(scene: Scene, directory: Path, why: str, number: int | None = None) -> Finding:
    place = shown(directory)
    if number == errno.ENOSPC:
        fix = ["Make room: df -h " + place]
    elif scene.container == container.KUBERNETES:
        fix = [
            f"In the pod: a volume (hostPath, so that it outlives the pod) mounted at {place}, "
            "writable for the container's user"
        ]
    elif number == errno.EROFS or scene.container:
        fix = [f"Mount a volume at {place}, or give a directory that is writable: --state-dir DIR"]
    else:
        fix = [
            f"sudo install -d -o {user_name()} {place} && sudo chown -R {user_name()} {place}",
            "In a systemd unit: StateDirectory=cardwatch; else: --state-dir DIR",
        ]
    return problem(
        "state-unwritable",
        f"State directory {place} cannot be written by {user_name()}: {shown(why)}",
        _WHAT_FOR,
        *fix,
    )
