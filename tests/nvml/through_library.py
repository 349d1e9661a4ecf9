# SPDX-License-Identifier: Apache-2.0
"""Reads cards through the real binding and the C stand-in, in a process of their own.

The loader looks for the library when a process starts, so the reading is done
by a child: it makes a pass whenever it is told to, and prints its samples.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from nvml_c import Stub

_CHILD = """
import json, os, sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
exec(sys.argv[2])
from cardwatch.backends import Options, SourceDown
from cardwatch.backends.nvml import NvmlBackend
from cardwatch.families.record import Profile
from cardwatch.nvml import library
from cardwatch.nvml.binding import NvmlDriver
from cardwatch.nvml.codes import DriverError

driver = NvmlDriver()
backend = NvmlBackend(driver, Options("nvml", Profile[sys.argv[1]]))


def read():
    return [asdict(backend.read(slot)) for slot in range(backend.count())]


def read_in_threads(passes):
    slots = range(backend.count())
    with ThreadPoolExecutor(len(slots)) as pool:
        return [[asdict(s) for s in pool.map(backend.read, slots)] for _ in range(passes)]


def call(name, slot, *args):
    handle = driver.call("DeviceGetHandleByIndex", slot)
    return driver.call(name, handle, *(tuplish(arg) for arg in args))


def tuplish(value):
    return tuple(map(tuplish, value)) if isinstance(value, list) else value


def mapped():
    return [library.mapped(), library.replaced()]


def environment(name):
    return os.environ.get(name)


known = {"open": backend.open, "close": backend.close, "versions": backend.versions,
         "read": read, "read_in_threads": read_in_threads, "call": call, "mapped": mapped,
         "environment": environment}
for line in sys.stdin:
    what, *args = json.loads(line)
    try:
        said = {"said": known[what](*args)}
    except SourceDown as down:
        said = {"down": down.error}
    except DriverError as error:
        said = {"error": error.code}
    print(json.dumps(said), flush=True)
"""

Sample = dict[str, Any]


class Reader:
    """A child that reads cards on demand. ``first`` is Python that runs before our package."""

    def __init__(
        self,
        stub: Stub | None,
        profile: str = "FULL",
        first: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        env = {**os.environ, **(stub.env() if stub else {}), **(environment or {})}
        self._child = subprocess.Popen(
            [sys.executable, "-c", _CHILD, profile, first],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def answer(self, what: str, *args: Any) -> dict[str, Any]:
        """Let the child do one thing; return what it said, or how it failed."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps([what, *args]) + "\n")
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        assert line, f"the reading child ended with {self._child.wait()}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, what: str, *args: Any) -> Any:
        """Let the child do one thing, which must work; return what it said."""
        return self.answer(what, *args)["said"]

    def open(self) -> None:
        """Initialise the driver, which must work."""
        self.ask("open")

    def read(self) -> list[Sample]:
        """Make a pass and return one sample per listed card."""
        samples: list[Sample] = self.ask("read")
        return samples

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        self._child.stdout.close()
        status = self._child.wait()
        assert kind is not None or status == 0, f"the reading child ended with {status}"


def read_once(stub: Stub, profile: str = "FULL", first: str = "") -> list[Sample]:
    """Open, make one pass over all cards, and end."""
    with Reader(stub, profile, first) as reader:
        reader.open()
        return reader.read()


def rows(sample: Sample, family: str) -> dict[Any, float]:
    """Return a family's rows by label value, by all of them where several, by () where none."""
    found: dict[Any, float] = {}
    for labels, number in sample["rows"].get(family, ()):
        key = labels[0] if len(labels) == 1 else tuple(labels)
        assert key not in found, f"{family}: {labels} twice"
        found[key] = number
    return found


def value(sample: Sample, family: str) -> float | None:
    """Return the row of a family without labels; None when it is absent."""
    return rows(sample, family).get(())
