# SPDX-License-Identifier: Apache-2.0
"""The simulated driver: takes calls, applies the faults of the scenario, answers.

Owns the life cycle (initialised or not), handles, and the order in which
faults come before an answer. It may be called from many threads at once: what
they share is immutable or follows from the time.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from cardwatch.nvml import codes
from cardwatch.nvml.calls import CALLS
from cardwatch.nvml.codes import DriverError
from cardwatch.sim import releases
from cardwatch.sim.answers import CARD_CALLS, INSTANCE_CALLS
from cardwatch.sim.event_set import SUPPORTED, EventSet, Told
from cardwatch.sim.faults import Fault
from cardwatch.sim.plan import CardFacts, CardPlan, NodeFacts, NodePlan
from cardwatch.sim.scenario import Scenario
from cardwatch.sim.stage import KernelLog, Stage, boot_time, crash_now, ignore_sigterm, kernel_lines
from cardwatch.sim.view import View

_POLL_S = 0.05  # how often a hung call looks whether its fault is over
_STEPS_PER_S = 100  # calls within one step of time see the same card
_SEED = 1
_OTHER_MODULE = "535.54.03"
_MAX_INSTANCES = 7


class Handle(NamedTuple):
    """What stands for a card, or one MIG instance of it, in calls."""

    card: int
    instance: int | None
    outages: int  # a handle dies with the driver that gave it


class SimDriver:
    """A ``Driver`` over a scenario.

    ``seed`` None takes the scenario's, else a fixed one. The keyword arguments after
    ``kmsg_path`` are for tests: how to wait, what a crash does, how a process
    goes deaf, and when the machine booted.
    """

    def __init__(
        self,
        scenario: Scenario,
        epoch: float,
        seed: int | None = None,
        *,
        clock: Callable[[], float] = time.time,
        emit_raw: Callable[[bytes], None] | None = None,
        kmsg_path: Path | None = None,
        sleep: Callable[[float], None] = time.sleep,
        crash: Callable[[], None] = crash_now,
        deaf: Callable[[bool], None] = ignore_sigterm,
        boot: float | None = None,
    ) -> None:
        self.scenario, self.epoch = scenario, epoch
        chosen = (seed, scenario.seed, _SEED)
        self.seed = next(each for each in chosen if each is not None)
        self._clock, self._sleep = clock, sleep
        self._release = scenario.driver_release
        self._missing = releases.missing_symbols(self._release)
        self._node = NodePlan(scenario)
        self._cards = [
            CardPlan(self.seed, number, spec, scenario.faults)
            for number, spec in enumerate(scenario.cards)
        ]
        self._views: list[View | None] = [None] * len(self._cards)
        self._node_calls: dict[str, Callable[..., Any]] = {
            "Init": self._init,
            "Shutdown": self._shutdown,
            "SystemGetDriverVersion": lambda _: scenario.driver,
            "SystemGetNVMLVersion": lambda _: releases.nvml_version(scenario.driver),
            "SystemGetCudaDriverVersion": lambda _: releases.cuda_version(self._release),
            "SystemGetDriverBranch": lambda _: f"r{self._release[0]}_00",
            "DeviceGetCount": lambda facts: len(facts.listing),
            "DeviceGetHandleByIndex": self._handle,
        }
        self._event_calls: dict[str, Callable[..., Any]] = {
            "EventSetCreate": lambda: EventSet(self.now()),
            "DeviceGetSupportedEventTypes": self._event_types,
            "DeviceRegisterEvents": self._register_events,
            "EventSetWait": self._wait_event,
            "EventSetFree": lambda event_set: event_set.cards.clear(),
        }
        self._lock = threading.Lock()
        self._users = 0  # Init and Shutdown are counted
        self._outages = 0  # as of the last Init
        log = None
        if kmsg_path is not None:
            lines = kernel_lines(scenario, self.seed)
            log = KernelLog(kmsg_path, lines, epoch, boot_time() if boot is None else boot)
        self._stage = Stage(
            scenario,
            self.seed,
            self.now(),
            log=log,
            emit_raw=emit_raw,
            crash=crash,
            ignore_sigterm=deaf,
        )

    def now(self) -> float:
        """Seconds since the epoch, in steps of 10 ms."""
        # The small addition keeps 0.29 s, which a clock near 2e9 cannot express, at step 29.
        elapsed = self._clock() - self.epoch
        return math.floor(elapsed * _STEPS_PER_S + 0.001) / _STEPS_PER_S

    def tick(self) -> None:
        """Do what is due outside of calls: kernel log lines, crash, junk, deafness."""
        self._stage.tick(self.now())

    def call(self, name: str, *args: Any) -> Any:
        """Make one call; see ``cardwatch.nvml.calls.Driver``."""
        t = self.now()
        self._stage.tick(t)
        if name not in CALLS:
            raise DriverError(codes.FUNCTION_NOT_FOUND)
        if name in self._event_calls:
            self._require_driver(self._node.timeline.at(t), name)
            return self._event_calls[name](*args)
        if name in self._node_calls:
            return self._node_call(name, args, t)
        return self._card_call(name, args[0], args[1:], t)

    # calls about the node

    def _node_call(self, name: str, args: tuple[Any, ...], t: float) -> Any:
        facts = self._node.timeline.at(t)
        if facts.obstacles:
            self._pass(facts.obstacles, name)
            facts = self._node.timeline.at(self.now())
        if name == "Init":
            return self._init(facts)
        self._require_driver(facts, name)
        if facts.denied and name != "Shutdown":
            raise DriverError(codes.NO_PERMISSION)
        for fault in facts.overrides:
            if fault.values["call"] == name:
                return _override(fault)
        return self._node_calls[name](facts, *args)

    def _init(self, facts: NodeFacts) -> None:
        if facts.library_missing:
            raise DriverError(codes.LIBRARY_NOT_FOUND)
        for fault in facts.overrides:
            if fault.values["call"] == "Init":
                _override(fault)
        if facts.gone:
            raise DriverError(codes.DRIVER_NOT_LOADED)
        if facts.mismatch is not None:
            raise DriverError(codes.LIB_RM_VERSION_MISMATCH)
        if facts.denied:
            raise DriverError(codes.NO_PERMISSION)
        with self._lock:
            if facts.outages != self._outages:
                self._users = 0  # the driver that they had is no more
            self._outages = facts.outages
            self._users += 1

    def _require_driver(self, facts: NodeFacts, name: str) -> None:
        """Raise unless the driver is initialised and its library has the call."""
        if not self._users:
            raise DriverError(codes.UNINITIALIZED)
        if name in self._missing:
            raise DriverError(codes.FUNCTION_NOT_FOUND)
        if facts.outages != self._outages:
            raise DriverError(codes.DRIVER_NOT_LOADED if facts.gone else codes.UNINITIALIZED)

    def _shutdown(self, _facts: NodeFacts) -> None:
        with self._lock:
            self._users = max(0, self._users - 1)

    def _handle(self, facts: NodeFacts, index: object) -> Handle:
        if not isinstance(index, int) or not 0 <= index < len(facts.listing):
            raise DriverError(codes.INVALID_ARGUMENT)
        number = facts.listing[index]
        if number is None:
            raise DriverError(codes.UNKNOWN)
        card = self._reach(self._cards[number], "DeviceGetHandleByIndex", self.now())
        for fault in card.overrides:
            if fault.values["call"] == "DeviceGetHandleByIndex":
                _override(fault)
        return Handle(number, None, self._outages)

    # calls about a card

    def _card_call(self, name: str, handle: object, args: tuple[Any, ...], t: float) -> Any:
        self._require_driver(self._node.timeline.at(t), name)
        if not isinstance(handle, Handle) or handle.outages != self._outages:
            raise DriverError(codes.INVALID_ARGUMENT)
        plan = self._cards[handle.card]
        facts = self._reach(plan, name, t)
        for fault in facts.overrides:
            if fault.values["call"] == name:
                return _override(fault)
        view = self._view(plan)
        if handle.instance is not None:
            return self._instance_call(name, view, handle.instance, args)
        if name == "DeviceGetMigDeviceHandleByIndex":
            return self._mig_handle(view, handle, *args)
        return CARD_CALLS[name](view, *args)

    def _reach(self, plan: CardPlan, name: str, t: float) -> CardFacts:
        """Wait as long as the card keeps the call, then give its facts if it answers."""
        facts = plan.timeline.at(t)
        if facts.obstacles:
            self._pass(facts.obstacles, name)
            now = self.now()
            self._require_driver(self._node.timeline.at(now), name)
            facts = plan.timeline.at(now)
        if facts.gone:
            raise DriverError(codes.GPU_IS_LOST)
        if facts.denied:
            raise DriverError(codes.NO_PERMISSION)
        return facts

    def _view(self, plan: CardPlan) -> View:
        t = self.now()
        facts = plan.timeline.at(t)
        view = self._views[plan.number]
        if view is None or view.t != t or view.facts is not facts:
            view = View(plan, facts, self._release, t)
            self._views[plan.number] = view
        return view

    def _instance_call(self, name: str, view: View, position: int, args: tuple[Any, ...]) -> Any:
        instances = view.instances()
        if position >= len(instances):
            raise DriverError(codes.INVALID_ARGUMENT)  # taken apart since the handle was given
        if name not in INSTANCE_CALLS:
            raise DriverError(codes.NOT_SUPPORTED)
        return INSTANCE_CALLS[name](instances[position], *args)

    def _mig_handle(self, view: View, handle: Handle, index: object) -> Handle:
        if not view.model.mig:
            raise DriverError(codes.NOT_SUPPORTED)
        if not isinstance(index, int) or not 0 <= index < _MAX_INSTANCES:
            raise DriverError(codes.INVALID_ARGUMENT)
        if index >= len(view.facts.mig or ()):
            raise DriverError(codes.NOT_FOUND)
        return handle._replace(instance=index)

    def _pass(self, obstacles: tuple[Fault, ...], name: str) -> None:
        """Sit out the faults that hold up this call."""
        for fault in obstacles:
            if fault.values.get("call", name) != name:
                continue
            if fault.kind == "slow":
                self._sleep(fault.values["latency"])
            while fault.kind == "hang" and fault.active(self.now()):
                self._sleep(_POLL_S)
                self.tick()

    # events

    def _event_types(self, handle: Handle) -> int:
        self._reach(self._cards[handle.card], "DeviceGetSupportedEventTypes", self.now())
        return SUPPORTED

    def _register_events(self, handle: Handle, _types: int, event_set: EventSet) -> int:
        self._reach(self._cards[handle.card], "DeviceRegisterEvents", self.now())
        event_set.cards.add(handle.card)
        return handle.card

    def _wait_event(self, event_set: EventSet, milliseconds: int) -> Told:
        def lost(card: int) -> bool:
            return self._cards[card].timeline.at(self.now()).gone

        return event_set.wait(self.scenario.faults, milliseconds, self.now, self._sleep, lost)

    # what the host shows beside the driver

    def host_facts(self) -> dict[str, Any]:
        """Give what sysfs and procfs of the simulated machine would show now.

        ``detected_gpus`` and ``pci`` do not depend on the driver. Versions are
        None while the kernel module is away. ``processes`` tells name and start
        (wall clock) of the simulated processes by pid.
        """
        t = self.now()
        facts = self._node.timeline.at(t)
        module = None if facts.gone else self.scenario.driver
        if facts.mismatch is not None:
            module = facts.mismatch.values.get("module", _OTHER_MODULE)
        return {
            "detected_gpus": len(self._cards),
            "pci": [plan.card.identity.pci.sysfs for plan in self._cards],
            "driver_version": module,
            "kernel_module": _module_kind(self._release) if module else None,
            "os": "Ubuntu 22.04.5 LTS",
            "kernel_release": "5.15.0-144-generic",
            "processes": self._processes(t),
        }

    def _processes(self, t: float) -> dict[int, dict[str, Any]]:
        rows: dict[int, dict[str, Any]] = {}
        for plan in self._cards:
            view = self._view(plan)
            job = view.physics.job
            for pid, *_ in view.processes():
                started = round(self.epoch + t - job.age, 2)  # the same from any moment
                rows[pid] = {"name": "python3", "started": started}
            for pid, *_ in view.processes(graphics=True):
                rows[pid] = {"name": "Xorg", "started": self.epoch}
        return rows


def _override(fault: Fault) -> Any:
    """Give what a fault puts in the place of an answer."""
    if fault.kind == "missing":
        raise DriverError(codes.FUNCTION_NOT_FOUND)
    if fault.kind == "error":
        raise DriverError(fault.values["code"])
    return fault.values["value"]


def _module_kind(release: tuple[int, int]) -> str:
    """Name the kernel module: the open one became the usual one with R560."""
    return "open" if release[0] >= 560 else "proprietary"
