# SPDX-License-Identifier: Apache-2.0
"""A node made of the stand-in library and a PCI bus of files, for cases from public reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from e2e.harness import Exporter, Page, pci_device, run
from nvml_c import Stub

UUID = "GPU-aaaaaaaa-0000-4000-8000-{:012d}"


class Node:
    """A host with some cards. ``stub`` is its driver; commands of ours see nothing else."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.flags = [
            "--backend", "nvml",
            "--path.sysfs", str(directory / "sys"),
            "--path.procfs", str(directory / "proc"),
            "--state-dir", str(directory / "state"),
        ]  # fmt: skip
        self.log = ""
        self._exporters: list[Exporter] = []
        (directory / "proc").mkdir(parents=True)
        self.stub = Stub(directory / "driver")

    def driver(self, stub: Stub, cards: int) -> Stub:
        """Take a stub as this node's driver, whose cards also stand on the PCI bus."""
        self.stub = stub
        for number in range(cards):
            pci_device(self.directory / "sys", f"0000:{0x10 + number:02x}:00.0")
        return stub

    def cards(self, *, like: str, count: int, **more: Any) -> Stub:
        """Make cards of a preset with the reports' UUIDs, numbered from 1."""
        stub: Stub = getattr(Stub, like)(count, self.directory / "driver", **more)
        with stub.batch():
            for gpu in range(count):
                stub.set("nvmlDeviceGetUUID", UUID.format(gpu + 1), gpu=gpu)
        return self.driver(stub, count)

    def snapshot(self, form: str, *flags: str, status: int = 0, path: str | None = None) -> str:
        """Take one reading with the command; its log lines are kept in ``log``."""
        env = self.stub.env() | ({} if path is None else {"PATH": path})
        done = run("snapshot", "--format", form, *self.flags, *flags, env=env)
        self.log = done.stderr
        assert done.returncode == status, done.stderr
        return done.stdout

    def page(self, *flags: str, status: int = 0) -> Page:
        """Return the page of one reading."""
        return Page(self.snapshot("prometheus", *flags, status=status))

    def gpus(self, *flags: str, status: int = 0) -> list[dict[str, Any]]:
        """Return the cards of one reading, as JSON has them."""
        found: list[dict[str, Any]] = json.loads(self.snapshot("json", *flags, status=status))[
            "gpus"
        ]
        return found

    def serve(self, *flags: str) -> Exporter:
        """Start the exporter; it is ended with the test."""
        place = self.directory / f"serve-{len(self._exporters)}"
        exporter = Exporter(place, *self.flags, *flags, env=self.stub.env())
        self._exporters.append(exporter)
        return exporter.wait_port()

    def close(self) -> None:
        """End what still runs."""
        self.stub.release()
        for exporter in self._exporters:
            exporter.close()
