# SPDX-License-Identifier: Apache-2.0
"""Fixtures that make a simulated node of the text of a scenario file."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sim_node import EPOCH, Build, Clock, Node

from cardwatch.sim import SimDriver, load_scenario


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Write a scenario file."""

    def write(text: str) -> Path:
        path = tmp_path / "scenario.yaml"
        path.write_text(textwrap.dedent(text))
        return path

    return write


@pytest.fixture
def node(write: Callable[[str], Path]) -> Build:
    """Build an initialised node from the text of a scenario file."""

    def build(text: str = "", clock: Clock | None = None, init: bool = True, **more: Any) -> Node:
        clock = clock or Clock()
        scenario = load_scenario(write(text))
        driver = SimDriver(scenario, EPOCH, clock=clock, sleep=clock.sleep, **more)
        if init:
            driver.call("Init")
        return Node(driver, clock)

    return build
