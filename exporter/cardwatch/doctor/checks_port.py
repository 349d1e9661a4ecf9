# SPDX-License-Identifier: Apache-2.0
"""Whether the exporter could listen where it is told to, and who does if not.

A port is bound for a moment and let go. A socket file is only looked at.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from cardwatch.doctor.finding import Finding, ok, problem, shown
from cardwatch.doctor.scene import Scene, read_text
from cardwatch.web.listen import (
    ListenError,
    UnixAddress,
    close_sockets,
    open_sockets,
    parse_listen,
)

_LISTENS = "0A"
_CONNECT_S = 1.0


def port(scene: Scene) -> list[Finding]:
    """Try the listen address."""
    given = scene.settings.listen
    try:
        address = parse_listen(given)
    except ListenError as wrong:
        return [_refused(str(wrong))]
    if isinstance(address, UnixAddress):
        return [_socket_file(given, Path(address.path))]
    if address.port == 0:
        return [ok("listen", f"--listen {shown(given)}: any free port")]
    try:
        close_sockets(open_sockets(given))
    except ListenError as refused:
        cause = refused.__cause__
        if isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE:
            return [_taken(scene, address.port)]
        return [_refused(str(refused))]
    return [ok("listen", f"--listen {shown(given)}: the port is free")]


def _refused(text: str) -> Finding:
    what, _, fix = text.partition("; ")
    return problem(
        "listen-refused",
        shown(what),
        "The exporter could not serve there.",
        f"{fix[:1].upper()}{fix[1:]}" or "Give another address: --listen :PORT",
    )


def _taken(scene: Scene, number: int) -> Finding:
    holder = _holder(scene.procfs, number)
    if holder is not None and _is_ours(scene.procfs, holder):
        return ok("listen", f"Port {number} is served by cardwatch itself, pid {holder}")
    fixes = [f"or give another port: --listen :{number + 1 if number < 65535 else 9836}"]
    if holder is None:
        ours = next(_serving(scene.procfs), None)
        if ours is not None:
            return ok(
                "listen", f"Port {number} is taken, most likely by cardwatch itself, pid {ours}"
            )
        who, fix = "somebody", f"See who: sudo ss -ltnp 'sport = :{number}'"
    else:
        name = shown(read_text(scene.procfs / str(holder) / "comm").strip()) or "unknown"
        who, fix = f"{name} (pid {holder})", f"Stop {name} (pid {holder})"
    return problem(
        "port-taken",
        f"Port {number} is taken by {who}",
        f"--listen {shown(scene.settings.listen)} cannot be served.",
        fix,
        *fixes,
    )


def _socket_file(given: str, path: Path) -> Finding:
    if not os.path.lexists(path):
        if os.access(path.parent, os.W_OK | os.X_OK, effective_ids=True):
            return ok("listen", f"--listen {shown(given)}: the socket file can be made")
        return problem(
            "listen-refused",
            f"--listen {shown(given)}: {shown(path.parent)} is no directory that we may write",
            "The exporter could not serve there.",
            f"sudo install -d {shown(path.parent)}, or give another path",
        )
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        return problem(
            "listen-refused",
            f"--listen {shown(given)}: {shown(path)} is not a socket",
            "The exporter would not overwrite it.",
            "Remove it or give another path",
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_S)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return ok(
                "listen", f"--listen {shown(given)}: a left-over socket, which will be replaced"
            )
        except OSError:
            pass
    return problem(
        "port-taken",
        f"A process listens on {shown(path)}",
        "Only one can.",
        f"See who: sudo ss -lxp src {shown(path)}; stop it, or give another path",
    )


# -- who ------------------------------------------------------------------------------------


def _holder(procfs: Path, number: int) -> int | None:
    """Return the pid of the process that listens on a port, where procfs lets us see it."""
    wanted = {f"socket:[{inode}]" for inode in _listening(procfs, number)}
    if not wanted:
        return None
    for pid in _pids(procfs):
        folder = procfs / str(pid) / "fd"
        try:
            if any(os.readlink(folder / name) in wanted for name in os.listdir(folder)):
                return pid
        except OSError:
            continue  # ended meanwhile, or not ours to look at
    return None


def _listening(procfs: Path, number: int) -> Iterator[str]:
    for table in ("net/tcp", "net/tcp6"):
        for line in read_text(procfs / table).splitlines()[1:]:
            parts = line.split()
            if len(parts) > 9 and parts[3] == _LISTENS and int(parts[1][-4:], 16) == number:
                yield parts[9]


def _pids(procfs: Path) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(procfs) if re.fullmatch(r"\d{1,9}", name))
    except OSError:
        return []


def _is_ours(procfs: Path, pid: int) -> bool:
    words = read_text(procfs / str(pid) / "cmdline").split("\0")
    named = any(word.rsplit("/", 1)[-1] == "cardwatch" for word in words)
    return "serve" in words and (named or any("cardwatch/__main__" in word for word in words))


def _serving(procfs: Path) -> Iterator[int]:
    return (pid for pid in _pids(procfs) if pid != os.getpid() and _is_ours(procfs, pid))
