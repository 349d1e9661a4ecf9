# SPDX-License-Identifier: Apache-2.0
"""Processes under measurement: started here, looked at from outside, ended by pid."""

from __future__ import annotations

import http.client
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "tests"))

from nvml_c import Stub, compile_c  # noqa: E402 - lives with the tests

GPUS = 8
SPIN_US = 30
HOST = "127.0.0.1"
_STOP_S = 10.0

__all__ = ["GPUS", "HERE", "HOST", "OURS", "SPIN_US", "Process", "Stub", "busy_seconds",
           "calls", "cardwatch", "compiled", "driver", "fetch", "free_port", "machine",
           "own_seconds", "ready", "settled", "wait_for"]  # fmt: skip


@contextmanager
def driver(spin_us: int = SPIN_US) -> Iterator[Stub]:
    """Give a healthy node of eight H100, each call taking so long."""
    with Stub.h100_node(GPUS) as stub:
        if spin_us:
            stub.latency_us(spin_us, "spin")
        yield stub


def compiled(name: str) -> Path:
    """Compile a C program of this directory; return it."""
    program = Path(tempfile.mkdtemp(prefix="cardwatch-bench-")) / name
    compile_c(["-O2", "-Wall", "-Wextra", "-pthread", HERE / f"{name}.c", "-ldl"], program)
    return program


class Process:
    """A server and its children. ``with`` ends them all, by pid."""

    def __init__(self, command: Sequence[str], stub: Stub, port: int = 0, **more: str) -> None:
        self.port = port
        self.started = time.monotonic()
        self._popen = subprocess.Popen(
            [str(word) for word in command],
            env={**os.environ, **stub.env(), **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        pids = self.pids()
        self._popen.send_signal(signal.SIGTERM)
        try:
            self._popen.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        for pid in pids[1:]:
            _end(pid)

    def pids(self) -> list[int]:
        """Return the pids of the process and all below it."""
        found = [self._popen.pid]
        for pid in found:
            found += _children(pid)
        return found

    def cpu_seconds(self) -> float:
        """Return the processor time of all of them, to the nanosecond."""
        return sum(_cpu_seconds(pid) for pid in self.pids())

    def pss_mib(self) -> float:
        """Return the proportional set size of all of them: shared pages count once in all."""
        return sum(_rollup_kib(pid, "Pss") for pid in self.pids()) / 1024

    def own_mib(self) -> float:
        """Return the part of it that no file backs: no other process makes it move."""
        return sum(_rollup_kib(pid, "Pss_Anon") for pid in self.pids()) / 1024

    @property
    def running(self) -> bool:
        """Say whether the process is there."""
        return self._popen.poll() is None


def _children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(word) for task in tasks for word in (task / "children").read_text().split()]
    except OSError:
        return []


def _cpu_seconds(pid: int) -> float:
    try:
        return time.clock_gettime((~pid << 3) | 2)  # the clock of another process, see clock(3)
    except OSError:
        return 0.0


def _rollup_kib(pid: int, key: str) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1])
    return 0


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def calls(stub: Stub) -> Counter[str]:
    """Count the driver calls so far, but for the wait for events: a thread always sits in it."""
    counted = stub.calls()
    return Counter({name: n for name, n in counted.items() if not name.startswith("nvmlEventSet")})


def settled(stub: Stub, still_s: float) -> Counter[str]:
    """Wait until nothing was called for so long; return the counters."""
    while True:
        first = calls(stub)
        time.sleep(still_s)
        if first == calls(stub):
            return first


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        return int(sock.getsockname()[1])


@contextmanager
def cardwatch(
    stub: Stub, *flags: str, command: Sequence[str] = ("-m", "cardwatch")
) -> Iterator[Process]:
    """Run the exporter as a user would, in the full profile: the one with over 800 series."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="cardwatch-bench-") as state:
        words = [sys.executable, *command, "serve", "--listen", f"{HOST}:{port}",
                 "--state-dir", state, "--profile", "full", *flags]  # fmt: skip
        with Process(words, stub, port) as process:
            yield process


def fetch(port: int, *, gzip: bool = False) -> bytes | None:
    """Return the metrics page as sent, or None when nobody answers yet."""
    connection = http.client.HTTPConnection(HOST, port, timeout=10)
    try:
        connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"} if gzip else {})
        answer = connection.getresponse()
        return answer.read() if answer.status == 200 else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def wait_for(condition: Callable[[], bool], seconds: float, pause_s: float = 0.002) -> float:
    """Wait until it holds; return the moment (monotonic)."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds:g} s")
        time.sleep(pause_s)
    return time.monotonic()


OURS = b"gpu_power_watts{"
"""A series that comes with the first reading of a card."""


def ready(process: Process, series: bytes = OURS, seconds: float = 20.0) -> float:
    """Wait for a page with this series of every card; return the moment."""

    def complete() -> bool:
        page = fetch(process.port)
        return page is not None and page.count(b"\n" + series) >= GPUS

    return wait_for(complete, seconds, 0.05)


def busy_seconds() -> float:
    """Return how long the processors were busy since the machine started, all added up."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _wait, irq, softirq = map(int, words[:7])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """Return the processor time of this process and of all that it started and awaited."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def machine() -> str:
    """Describe this machine in a line."""
    model = next(
        (line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
         if line.startswith("model name")), platform.machine(),
    )  # fmt: skip
    system = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    cores = len(os.sched_getaffinity(0))
    return (f"{cores} cores of {model}, {system}, Linux {platform.release()}, "
            f"Python {platform.python_version()}")  # fmt: skip
