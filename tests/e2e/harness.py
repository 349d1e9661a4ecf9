# SPDX-License-Identifier: Apache-2.0
"""Runs `cardwatch` as a user would, and looks at it from outside: page, log, processes."""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

NODE = "node-1"
STOP_LIMIT_S = 4.0
"""From the contract: everything is gone within four seconds of SIGTERM."""

_POLL_S = 0.03
_DEFAULTS = {"--listen": "127.0.0.1:0", "--interval": "200ms", "--deadline": "1s"}
_LISTENS = re.compile(r"listens on [^\"\s]*:(\d+)")
_PR_CAPBSET_DROP = 24
_CAP_DAC_OVERRIDE = 1
_CAP_DAC_READ_SEARCH = 2
_SHOWN_PAGE = 12_000


class Page:
    """One answer of /metrics, read by the client library's parser."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.samples: dict[str, list[Sample]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self.samples.setdefault(sample.name, []).append(sample)

    def all(self, name: str, **labels: str) -> list[Sample]:
        """Return the samples of a series name whose labels include these."""
        return [s for s in self.samples.get(name, []) if labels.items() <= s.labels.items()]

    def value(self, name: str, **labels: str) -> float | None:
        """Return the one value, None where there is none."""
        found = self.all(name, **labels)
        assert len(found) <= 1, f"{name}{labels}: {len(found)} series"
        return found[0].value if found else None

    def by(self, label: str, name: str, **labels: str) -> dict[str, float]:
        """Return values by one label."""
        return {s.labels.get(label, ""): s.value for s in self.all(name, **labels)}

    def states(self) -> dict[str, str]:
        """Return the state of each card by UUID."""
        return {s.labels["uuid"]: s.labels["state"] for s in self.all("gpu_state_info")}

    def up(self) -> dict[str, float]:
        """Return gpu_up by UUID."""
        return self.by("uuid", "gpu_up")

    def errors(self, source: str = "gpu") -> set[str]:
        """Return why a source is down."""
        return {s.labels["error"] for s in self.all("cardwatch_source_error", source=source)}

    def source_up(self, source: str = "gpu") -> float | None:
        """Return cardwatch_source_up of one source."""
        return self.value("cardwatch_source_up", source=source)

    def sampled(self) -> dict[str, float]:
        """Return when each card was read last, by UUID."""
        return self.by("uuid", "cardwatch_gpu_sample_timestamp_seconds")


@dataclass(frozen=True)
class Answer:
    status: int
    body: str


class Exporter:
    """A running `cardwatch serve`. ``directory`` takes its state and its log."""

    def __init__(
        self,
        directory: Path,
        *flags: str,
        env: Mapping[str, str] | None = None,
        as_mere_user: bool = False,
        prefix: Sequence[str] = (),
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.state_dir = directory / "state"
        self.log_file = directory / "log"
        self.may_leave_children = False
        self._seen: set[int] = set()
        given = {"--state-dir": str(self.state_dir), **_DEFAULTS}
        words = [w for flag, value in given.items() if flag not in flags for w in (flag, value)]
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "cardwatch", "serve", *words, *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(env),
                preexec_fn=_without_root_powers if as_mere_user else None,
            )
        self.port = 0

    @property
    def pid(self) -> int:
        return self.process.pid

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def wait_port(self, timeout: float = 30.0) -> Exporter:
        """Wait until it says where it listens."""

        def found() -> bool:
            match = _LISTENS.search(self.log())
            self.port = int(match[1]) if match else 0
            assert self.process.poll() is None, f"ended early:\n{self.log()}"
            return match is not None

        self.wait_for(found, timeout)
        return self

    # -- looking ------------------------------------------------------------------------

    def get(
        self, path: str, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Make one request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        with contextlib.closing(connection):
            connection.request(method, path, headers=dict(headers or {}))
            response = connection.getresponse()
            return Answer(response.status, response.read().decode())

    def page(self) -> Page:
        answer = self.get("/metrics")
        assert answer.status == 200
        return Page(answer.body)

    def await_page(self, predicate: Callable[[Page], object], timeout: float = 30.0) -> Page:
        """Return the first page for which the predicate holds."""
        deadline = time.monotonic() + timeout
        while True:
            page = self.page()
            if predicate(page):
                return page
            if time.monotonic() > deadline:
                raise AssertionError(f"no such page within {timeout} s\n{self._scene(page)}")
            time.sleep(_POLL_S)

    def wait_for(self, condition: Callable[[], object], timeout: float = 30.0) -> None:
        """Wait for something that is not on the page."""
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {timeout} s; log:\n{self.log()}")
            time.sleep(_POLL_S)

    def wait_log(self, text: str, timeout: float = 30.0) -> None:
        self.wait_for(lambda: text in self.log(), timeout)

    def _scene(self, page: Page) -> str:
        lines = [line for line in page.text.splitlines() if not line.startswith("#")]
        return f"--- log\n{self.log()}\n--- page\n" + "\n".join(lines)[-_SHOWN_PAGE:]

    def children(self) -> list[int]:
        """Return the reading children, those included that are abandoned."""
        found = children_of(self.pid)
        self._seen.update(found)
        return found

    def child(self) -> int:
        """Return the only reading child."""
        (pid,) = self.children()
        return pid

    # -- ending -------------------------------------------------------------------------

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self) -> int:
        """End it by SIGTERM and return the exit status; the contract gives it four seconds."""
        self.children()
        self.signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still there after {STOP_LIMIT_S} s\n{self.log()}") from None

    def close(self) -> None:
        """End everything that is left of it; complain about children that should not be."""
        left: list[int] = []
        try:
            if self.process.poll() is None:
                self.stop()
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            if not self.may_leave_children:
                left = _still_there_after(self._seen, 5.0)
            for pid in filter(is_probe, self._seen):
                end_by_force(pid)
        assert not left, f"children {left} outlived the exporter\n{self.log()}"


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return our environment without settings of ours, and with what is given."""
    mine = {k: v for k, v in os.environ.items() if not k.startswith(("CARDWATCH_", "XDG_"))}
    return {**mine, "NODE_NAME": NODE, **(extra or {})}


def run(
    *words: str, env: Mapping[str, str] | None = None, timeout: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """Run a command of `cardwatch` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "cardwatch", *words],
        env=environment(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


# -- processes ------------------------------------------------------------------------------


def children_of(parent: int) -> list[int]:
    """Return the reading children of a process, oldest first."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and parent_of(int(entry.name)) == parent:
            found.append(int(entry.name))
    return sorted(filter(is_probe, found))


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def parent_of(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def alive(pid: int) -> bool:
    """Say whether a process is there, a zombie not counted."""
    fields = _stat(pid)
    return bool(fields) and fields[0] != "Z"


def is_probe(pid: int) -> bool:
    """Say whether a process is a reading child, so that no reused pid is taken for one."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"cardwatch.probe" in words


def threads_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def holds(pid: int, name: str) -> bool:
    """Say whether a process maps or has open a file of this name."""
    root = Path(f"/proc/{pid}")
    if name in (root / "maps").read_text():
        return True
    for descriptor in (root / "fd").iterdir():
        with contextlib.suppress(OSError):
            if name in os.readlink(descriptor):
                return True
    return False


def end_by_force(pid: int) -> None:
    """End a process for good, a stopped one too."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _still_there_after(pids: Iterable[int], seconds: float) -> list[int]:
    deadline = time.monotonic() + seconds
    while True:
        left = [pid for pid in pids if alive(pid) and is_probe(pid)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(_POLL_S)


def _without_root_powers() -> None:
    """Let file modes count for root too; others have no such power anyway."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None)
        for power in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
            if libc.prctl(_PR_CAPBSET_DROP, power, 0, 0, 0) != 0:
                os._exit(99)


# -- inputs -----------------------------------------------------------------------------------


def scenario(directory: Path, *faults: Mapping[str, Any], cards: Any = 2) -> tuple[str, ...]:
    """Write a scenario and return the flags that use it."""
    file = directory / "scenario.yaml"
    directory.mkdir(parents=True, exist_ok=True)
    file.write_text(
        yaml.safe_dump({"seed": 7, "cards": cards, "faults": [dict(f) for f in faults]})
    )
    return "--backend", "sim", "--scenario", str(file)


def pci_device(
    sysfs: Path,
    address: str,
    *,
    vendor: str = "0x10de",
    device_class: str = "0x030200",
    virtual: bool = False,
) -> None:
    """Put one device on a PCI bus of files."""
    device = sysfs / "bus/pci/devices" / address
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{device_class}\n")
    if virtual:
        (device / "physfn").symlink_to("..")


def empty_bus(sysfs: Path) -> None:
    (sysfs / "bus/pci/devices").mkdir(parents=True, exist_ok=True)


def roster_entry(first_seen: float, last_seen: float, index: int, **info: str) -> dict[str, Any]:
    """Return one card as it stands in cards.json."""
    return {
        "first_seen": first_seen,
        "last_seen": last_seen,
        "index": index,
        "pci": "0000:b1:00",
        "info": {"model": "H100 80GB HBM3", **info},
    }


def write_roster(directory: Path, cards: Mapping[str, Mapping[str, Any]]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    content = {"version": 1, "node_first_seen": 1.0, "cards": cards}
    (directory / "cards.json").write_text(json.dumps(content))
