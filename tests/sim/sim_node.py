# SPDX-License-Identifier: Apache-2.0
"""A simulated node under a clock that only the test moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cardwatch.nvml.codes import DriverError
from cardwatch.sim import SimDriver

EPOCH = 1_800_000_000.0
ALL_LINKS = 0xFFFFFFFF


class Clock:
    """Wall clock of a simulated node; waiting moves it."""

    def __init__(self) -> None:
        self.t = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return EPOCH + self.t

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.t += seconds


class Node:
    """A driver with its clock, initialised, and short ways to ask it."""

    def __init__(self, driver: SimDriver, clock: Clock) -> None:
        self.driver, self.clock = driver, clock

    def at(self, t: float) -> Node:
        self.clock.t = t
        return self

    def handle(self, index: int) -> Any:
        return self.driver.call("DeviceGetHandleByIndex", index)

    def ask(self, gpu: int, call: str, *args: Any) -> Any:
        """Answer of one call, or the name of its error."""
        try:
            return self.driver.call(call, self.handle(gpu), *args)
        except DriverError as error:
            return error.name

    def system(self, call: str, *args: Any) -> Any:
        try:
            return self.driver.call(call, *args)
        except DriverError as error:
            return error.name

    def field(self, gpu: int, number: int, scope: int = 0) -> Any:
        """Value of one field, or minus the entry's code."""
        code, _, _, raw = self.ask(gpu, "DeviceGetFieldValues", ((number, scope),))[0]
        return -code if code else raw


Build = Callable[..., Node]
