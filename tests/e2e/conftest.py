# SPDX-License-Identifier: Apache-2.0
"""Starts exporters for a test and sees to it that nothing of them is left."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.harness import Exporter, empty_bus
from nvml_c import Stub

Serve = Callable[..., Exporter]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start `cardwatch serve` with these flags; one after the other share their state."""
    started: list[Exporter] = []
    number = itertools.count()

    def start(*flags: str, **more: Any) -> Exporter:
        flags = (
            *flags,
            *([] if "--state-dir" in flags else ["--state-dir", str(tmp_path / "state")]),
        )
        exporter = Exporter(tmp_path / f"serve-{next(number)}", *flags, **more)
        started.append(exporter)
        return exporter.wait_port()

    yield start
    problems = []
    for exporter in started:
        try:
            exporter.close()
        except AssertionError as error:
            problems.append(str(error))
    assert not problems, "\n".join(problems)


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[Stub]:
    """Two H100 behind a stand-in for the driver library."""
    with Stub.h100_node(gpus=2, directory=tmp_path / "driver") as made:
        yield made
        made.release()


@pytest.fixture
def nvml(serve: Serve, stub: Stub, tmp_path: Path) -> Serve:
    """Start `cardwatch serve` on the stand-in library, with a PCI bus of our own."""
    sysfs = tmp_path / "sys"
    empty_bus(sysfs)

    def start(*flags: str, **more: Any) -> Exporter:
        own = [] if "--path.sysfs" in flags else ["--path.sysfs", str(sysfs)]
        env = {**stub.env(), **more.pop("env", {})}
        return serve("--backend", "nvml", *own, *flags, env=env, **more)

    return start
