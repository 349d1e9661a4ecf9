# SPDX-License-Identifier: Apache-2.0
"""A machine made of files, and the real command run on it."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nvml_c import Stub, compile_c

VERSION_LINE = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (dvs-builder)\n"
)
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
_PR_CAPBSET_DROP = 24

_SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
static int kept(const char *path) {
    const char *name = getenv("REFUSE_OPEN"), *last = path ? strrchr(path, '/') : NULL;
    if (!name || !last || strcmp(last + 1, name)) return 0;
    errno = EPERM;
    return 1;
}
#define WRAP(NAME)                                                        \\
    int NAME(const char *path, int flags, ...) {                          \\
        va_list more; va_start(more, flags); int mode = va_arg(more, int); va_end(more); \\
        if (kept(path)) return -1;                                        \\
        return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #NAME))(path, flags, mode); \\
    }
WRAP(open)
WRAP(open64)
"""


@dataclass
class Result:
    """What one run of the command gave."""

    status: int
    output: str
    errors: str

    @property
    def page(self) -> dict[str, Any]:
        return json.loads(self.output)  # type: ignore[no-any-return]

    @property
    def found(self) -> dict[str, dict[str, Any]]:
        """Findings by id; of several with one id the first."""
        known: dict[str, dict[str, Any]] = {}
        for finding in self.page["findings"]:
            known.setdefault(finding["id"], finding)
        return known

    def problem(self, name: str) -> str:
        """Text of a finding that must be there and be a problem."""
        return self._text(name, "problem")

    def note(self, name: str) -> str:
        return self._text(name, "note")

    def ok(self, name: str) -> str:
        return self._text(name, "ok")

    def _text(self, name: str, level: str) -> str:
        assert name in self.found, f"{name} is not among {list(self.found)}"
        finding = self.found[name]
        assert finding["level"] == level, finding
        return "\n".join([finding["title"], finding["detail"], *finding["fix"]])

    @property
    def problems(self) -> list[str]:
        return [f["id"] for f in self.page["findings"] if f["level"] == "problem"]


@dataclass
class Machine:
    """Trees of procfs, sysfs and devfs, and a state directory, below one folder."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("procfs", "sysfs/bus/pci/devices", "devfs", "state", "home"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)

    @property
    def procfs(self) -> Path:
        return self.folder / "procfs"

    @property
    def sysfs(self) -> Path:
        return self.folder / "sysfs"

    @property
    def devfs(self) -> Path:
        return self.folder / "devfs"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def write(self, path: str, text: str) -> Path:
        """Write a file below the folder."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target

    def gpus(self, *addresses: str, driver: str | None = "nvidia") -> None:
        """Plug in cards, bound to a kernel driver."""
        for address in addresses:
            device = self.sysfs / "bus/pci/devices" / f"{address}.0"
            device.mkdir(parents=True)
            (device / "vendor").write_text("0x10de\n")
            (device / "class").write_text("0x030200\n")
            if driver:
                (device / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")

    def module(self, version: str = "580.95.05") -> None:
        """Load the kernel module."""
        self.write("procfs/driver/nvidia/version", VERSION_LINE.format(version))

    def nodes(self, cards: int) -> None:
        """Make device nodes; plain files open as well as devices do."""
        for name in ("nvidiactl", *(f"nvidia{n}" for n in range(cards))):
            self.write(f"devfs/{name}", "")

    def whole(self, cards: int = 1) -> None:
        """Make a host on which nothing is wrong but that a library is missing."""
        buses = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
        self.gpus(*(f"0000:{bus}:00" for bus in buses[:cards]))
        self.module()
        self.nodes(cards)
        self.write("devfs/kmsg", "")
        self.write("procfs/2/comm", "kthreadd\n")
        self.write("procfs/1/comm", "systemd\n")
        self.write("procfs/sys/kernel/osrelease", "6.8.0-45-generic\n")

    def use(self, stub: Stub, version: str | None = "580.95.05") -> None:
        """Install a driver library, under a versioned name as drivers do."""
        self.environment |= stub.env()
        if version is not None:
            file = stub.library.with_name(f"libnvidia-ml.so.{version}")
            stub.library.rename(file)
            stub.library.symlink_to(file.name)

    def scenario(self, text: str) -> tuple[str, ...]:
        """Write a scenario and return the flags that choose it."""
        path = self.write("scenario.yaml", textwrap.dedent(text))
        return ("--backend", "sim", "--scenario", str(path))

    def run(
        self,
        *flags: str,
        form: Sequence[str] = ("--format", "json"),
        environment: Mapping[str, str] | None = None,
        before: Callable[[], None] | None = None,
    ) -> Result:
        """Run the command on this machine."""
        done = subprocess.run(
            self.command(*flags, form=form),
            env={**self.variables(), **(environment or {})},
            preexec_fn=before,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def command(self, *flags: str, form: Sequence[str] = ()) -> list[str]:
        given = {word.split("=")[0] for word in flags}
        usual = {
            "--path.procfs": self.procfs,
            "--path.sysfs": self.sysfs,
            "--path.devfs": self.devfs,
            "--state-dir": self.state,
            "--listen": "127.0.0.1:0",
            "--node-name": "box",
        }
        rest = [word for flag, value in usual.items() if flag not in given
                for word in (flag, str(value))]  # fmt: skip
        return [sys.executable, "-m", "cardwatch", "doctor", *form, *flags, *rest]

    def variables(self) -> dict[str, str]:
        known = {"PATH": os.environ["PATH"], "HOME": str(self.folder / "home"), "LANG": "C.UTF-8"}
        return known | self.environment


def obey_modes() -> None:
    """Give up root's right to open what the file mode forbids; called before the command runs."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None)
        for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
            libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)


def refusing_open(folder: Path, name: str) -> dict[str, str]:
    """Return an environment in which the kernel seems to refuse files of one name (EPERM)."""
    source, library = folder / "refuse.c", folder / "refuse.so"
    source.write_text(_SHIM)
    compile_c(["-shared", "-fPIC", "-O1", source, "-ldl"], library)
    return {"LD_PRELOAD": str(library), "REFUSE_OPEN": name}


def files_below(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder with its content."""
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*")
        if path.is_file()
    }  # fmt: skip
