# SPDX-License-Identifier: Apache-2.0
"""Everything the checks look at: settings, environment, one pass over the cards, the machine.

A check reads small files by ``read_text`` and the properties here; it never
changes anything.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cardwatch.doctor.loader import Library
from cardwatch.host.facts import HostFacts
from cardwatch.sample import OpenCall
from cardwatch.settings.table import Settings
from cardwatch.supervisor.cards import View
from cardwatch.supervisor.snapshot import Snapshot

CAP_SYS_ADMIN, CAP_SYSLOG = 21, 34

_RELEASE = re.compile(r"(\d{3,4})\.(\d+)")
_MAX_READ = 1 << 20


@dataclass(frozen=True)
class Scene:
    """What the checks know.

    host        facts of this machine, or of the simulated or captured one.
    snapshot    of one pass in the full profile; None when there was none.
    library     what the loader makes of the driver library; None when not looked at.
    container   what kind of container we are in; empty on a host.
    pids        processes on the cards by index, as the driver lists them.
    open_calls  driver calls that had not returned when the pass ended.
    restarts    how often the reading process ended or had to be replaced.
    state_dir   where state is kept; None when that was not found out.
    dxg         whether there is the graphics device of the Windows Subsystem for Linux.
    stuck       looks at the machine that did not return in time.
    root        for tests: where os-release and the like are.
    """

    settings: Settings
    environment: Mapping[str, str]
    host: HostFacts = field(default_factory=HostFacts)
    snapshot: Snapshot | None = None
    library: Library | None = None
    container: str = ""
    pids: Mapping[int, frozenset[int]] = field(default_factory=dict)
    open_calls: tuple[OpenCall, ...] = ()
    restarts: int = 0
    state_dir: Path | None = None
    dxg: bool = False
    stuck: tuple[str, ...] = ()
    root: Path = Path("/")

    @property
    def procfs(self) -> Path:
        """Where procfs is seen from here."""
        return self.settings.path_procfs

    @property
    def sysfs(self) -> Path:
        """Where sysfs is seen from here."""
        return self.settings.path_sysfs

    @property
    def devfs(self) -> Path:
        """Where the device nodes are seen from here."""
        return self.settings.path_devfs

    @property
    def simulated(self) -> bool:
        """True when the cards are not this machine's."""
        return self.settings.simulated

    @property
    def views(self) -> list[View]:
        """The cards as the pass showed them."""
        return [] if self.snapshot is None else self.snapshot.views

    @property
    def source_error(self) -> str | None:
        """Why the driver as a whole could not be used."""
        return None if self.snapshot is None else self.snapshot.source_error

    @property
    def listed(self) -> int | None:
        """How many cards the driver lists."""
        return None if self.snapshot is None else self.snapshot.listed

    @property
    def driver_version(self) -> str:
        """Version of the driver: as it tells itself, else that of the loaded module."""
        told = "" if self.snapshot is None else self.snapshot.node.get("driver_version", "")
        return told or self.host.module_version

    @property
    def driver_release(self) -> tuple[int, int] | None:
        """Branch and minor number of the driver."""
        match = _RELEASE.match(self.driver_version)
        return (int(match[1]), int(match[2])) if match else None

    @property
    def wsl(self) -> bool:
        """True under the Windows Subsystem for Linux."""
        return self.dxg or "microsoft" in self.host.kernel_release.lower()

    @property
    def without_cards(self) -> bool:
        """True on a machine where nothing knows of a card, and none is expected."""
        return not (
            self.host.gpus != ()
            or self.settings.expect_gpus
            or self.host.module_version
            or self.views
            or self.listed
            or self.wsl
        )

    def capability(self, number: int) -> bool | None:
        """Say whether we hold a capability; None when procfs does not tell."""
        match = re.search(r"^CapEff:\s*([0-9a-f]+)$", read_text(self.procfs / "self/status"), re.M)
        return None if match is None else bool(int(match[1], 16) >> number & 1)


def read_text(path: Path) -> str:
    """Return a small file's text, empty when it cannot be read."""
    try:
        with path.open(errors="replace") as file:
            return file.read(_MAX_READ)
    except (OSError, ValueError):
        return ""


def user_name() -> str:
    """Return the user we are, for messages."""
    number = os.geteuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"uid {number}"
