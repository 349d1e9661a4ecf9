# SPDX-License-Identifier: Apache-2.0
"""What the dynamic loader makes of the driver library, and which files of it there are.

The loader is asked in a process of its own, which loads the library and ends:
nothing is called in it. The files are only looked at, to tell why.
"""

from __future__ import annotations

import json
import os
import platform
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cardwatch.nvml.library import SONAME, version_of

_TRIAL = """
import ctypes, json, sys
path, error = None, ""
try:
    ctypes.CDLL(sys.argv[1])
    with open("/proc/self/maps", errors="replace") as maps:
        path = next((l.split(None, 5)[5].strip() for l in maps if "/libnvidia-ml.so" in l), None)
except OSError as refused:
    error = str(refused) or "refused without a reason"
print(json.dumps([path, error]))
"""

_MACHINES = {3: "i386", 21: "ppc64le", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
"""``e_machine`` of ELF."""

_DEFAULT_DIRS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")

_OTHER_DIRS = (
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/run/nvidia/driver/usr/lib64",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "/run/nvidia/driver/usr/lib/aarch64-linux-gnu",
    "/home/kubernetes/bin/nvidia/lib64",
    "/opt/nvidia/lib64",
    "/usr/lib/nvidia",
    "/usr/lib64/nvidia",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/run/opengl-driver/lib",
    "/host/usr/lib64",
    "/host/usr/lib/x86_64-linux-gnu",
    "/host/usr/lib/aarch64-linux-gnu",
)
"""Where drivers are put that the loader does not search: operators, GKE, WSL, NixOS."""


@dataclass(frozen=True)
class Candidate:
    """A file of the library: why it could never load, and whether the loader looks there."""

    path: str
    problem: str
    searched: bool


@dataclass(frozen=True)
class Library:
    """The library file that the loader took, or its words, and the files that were found."""

    path: str | None
    error: str = ""
    candidates: tuple[Candidate, ...] = ()

    @property
    def version(self) -> str | None:
        """Version in the name of the file, or None."""
        return None if self.path is None else version_of(self.path)


def look(environment: Mapping[str, str], timeout: float, root: Path = Path("/")) -> Library:
    """Try to load the library elsewhere, and look for its files. May block."""
    path, error = _try_to_load(environment, timeout)
    return Library(path, error, tuple(_candidates(environment, root)))


def _try_to_load(environment: Mapping[str, str], timeout: float) -> tuple[str | None, str]:
    try:
        done = subprocess.run(
            [sys.executable, "-c", _TRIAL, SONAME],
            env=dict(environment),
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, f"loading it took more than {timeout:g} s"
    except OSError as refused:
        return None, f"a process to load it in could not be started: {refused.strerror}"
    try:
        path, error = json.loads(done.stdout)
    except ValueError:
        return None, f"the process that loaded it ended with status {done.returncode}"
    return path, str(error)


def _candidates(environment: Mapping[str, str], root: Path) -> Iterator[Candidate]:
    """Yield files of the library, those on the loader's path first, each file once."""
    triplet = f"{platform.machine()}-linux-gnu"
    asked = [Path(d) for d in environment.get("LD_LIBRARY_PATH", "").split(":") if d]
    usual = (*_DEFAULT_DIRS, f"/lib/{triplet}", f"/usr/lib/{triplet}")
    places = [(place, True) for place in (*asked, *(root / d.lstrip("/") for d in usual))]
    places += [(root / d.lstrip("/"), False) for d in _OTHER_DIRS]
    seen: set[str] = set()
    for directory, searched in places:
        path = _file_in(directory)
        if path is not None and os.path.realpath(path) not in seen:
            seen.add(os.path.realpath(path))
            named = path.name == SONAME
            yield Candidate(str(path), elf_problem(path), searched=searched and named)


def _file_in(directory: Path) -> Path | None:
    """Return the library in a directory: by the name that is asked for, else a versioned one."""
    try:
        names = sorted(name for name in os.listdir(directory) if name.startswith(SONAME[:-1]))
    except OSError:
        return None
    if SONAME in names:
        return directory / SONAME
    return directory / names[-1] if names else None


def elf_problem(path: Path) -> str:
    """Return why this process could never load a file; empty when its kind is right."""
    head = _head(path)
    if head is None:
        return "cannot be read"
    if len(head) < 20 or head[:4] != b"\x7fELF":
        return "is not a library: it has no ELF header"
    ours = _head(Path(sys.executable))
    if (
        ours is None
        or len(ours) < 20
        or (_bits(head), _machine(head)) == (_bits(ours), _machine(ours))
    ):
        return ""
    return f"is for {_kind(head)}; this process is {_kind(ours)}"


def _head(path: Path) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return os.read(descriptor, 64) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _bits(head: bytes) -> int:
    return {1: 32, 2: 64}.get(head[4], 0)


def _machine(head: bytes) -> int:
    return int.from_bytes(head[18:20], "little" if head[5] == 1 else "big")


def _kind(head: bytes) -> str:
    machine = _machine(head)
    return f"{_MACHINES.get(machine, f'machine {machine}')} ({_bits(head)} bit)"
