# SPDX-License-Identifier: Apache-2.0
"""Events for a journal, and ways to look at what it wrote."""

from __future__ import annotations

import contextlib
import resource
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cardwatch.journal.journal import Journal
from cardwatch.journal.records import Entry
from cardwatch.kernlog.event import Event

GPU = "GPU-aaaaaaaa-0000-4000-8000-000000000001"
OTHER = "GPU-aaaaaaaa-0000-4000-8000-000000000002"
NOW = 1_800_000_000.0
PATIENCE_S = 20.0


def entry(
    code: int | None = 79, at: float = NOW, *, gpu: str = GPU, text: str = "text", **more: Any
) -> Entry:
    """Make an entry for an Xid."""
    cls = more.pop("cls", "critical")
    return Entry(gpu, Event("xid", at, "0000:3b:00", code=code, message=text), cls, **more)


def eventually(condition: Callable[[], Any]) -> None:
    """Wait for what nobody tells about."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        threading.Event().wait(0.01)


@contextlib.contextmanager
def opened(directory: Path | None, **more: Any) -> Iterator[Journal]:
    """Run a journal that must have loaded, and that must end when asked."""
    more.setdefault("clock", lambda: NOW)
    journal = Journal(directory, **more)
    assert journal.open(PATIENCE_S)
    try:
        yield journal
    finally:
        assert journal.close(PATIENCE_S)


def counts(journal: Journal) -> dict[tuple[str, int | None], int]:
    """Return the counters without what is of no interest."""
    return {(key.gpu, key.code): value.count for key, value in journal.counters().items()}


class Disk:
    """A directory on a disk that can be full or read-only."""

    def __init__(self, directory: Path, *, mounted: bool) -> None:
        self.directory, self.mounted = directory, mounted
        self._ballast = directory / "ballast"
        self._limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(self) -> None:
        """Leave no room at all."""
        if not self.mounted:
            # Where nothing can be mounted: no file may grow beyond a page.
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, self._limits[1]))
            return
        with contextlib.suppress(OSError), self._ballast.open("ab", buffering=0) as out:
            for size in (65536, 4096, 1):
                with contextlib.suppress(OSError):
                    while out.write(b"x" * size) == size:
                        pass

    def free(self) -> None:
        """Make room again."""
        resource.setrlimit(resource.RLIMIT_FSIZE, self._limits)
        self._ballast.unlink(missing_ok=True)

    def read_only(self, on: bool) -> None:
        """Refuse all writing, or allow it again."""
        mode = "ro" if on else "rw"
        subprocess.run(["mount", "-o", f"remount,{mode}", str(self.directory)], check=True)


@contextlib.contextmanager
def small_disk(directory: Path, size: str = "2m") -> Iterator[Disk]:
    """Mount a small file system of its own where that is possible."""
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "cardwatch-test", str(directory)]
    mounted = shutil.which("mount") is not None and (
        subprocess.run(command, check=False, capture_output=True).returncode == 0
    )
    disk = Disk(directory, mounted=mounted)
    try:
        yield disk
    finally:
        disk.free() if not mounted else None
        if mounted:
            subprocess.run(["umount", "-l", str(directory)], check=True)
