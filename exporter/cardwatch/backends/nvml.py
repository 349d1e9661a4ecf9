# SPDX-License-Identifier: Apache-2.0
"""Readings through driver calls of NVML, whoever answers them: library, simulation, capture.

Initialises once. Takes every handle anew at each pass, because indexes move
and handles of lost cards go stale; what is remembered about a card is keyed by
who it is, not by its index.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from cardwatch.backends import Options, SourceDown
from cardwatch.nvml.calls import Driver, Handle
from cardwatch.nvml.codes import (
    DENIED,
    DRIVER_NOT_LOADED,
    GPU_IS_LOST,
    GPU_NOT_FOUND,
    LIB_RM_VERSION_MISMATCH,
    RESET_REQUIRED,
    UNINITIALIZED,
    DriverError,
)
from cardwatch.nvml.recorded import Recorder
from cardwatch.readings import READERS
from cardwatch.readings.card import CardLost, CardPass, Memo
from cardwatch.readings.identity import read_info, read_pci, read_uptime
from cardwatch.sample import WHOLE_CARD, CardSample
from cardwatch.text import label

_SOURCE_IS_DOWN = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH})

_VITAL = ("gpu_utilization_ratio", "gpu_clock_hertz", "gpu_power_watts")
"""A card of which none of these reads, though it has one, does not count as up."""

_MAX_MEMOS = 64


class NvmlBackend:
    """``Backend`` over a ``Driver``."""

    def __init__(self, driver: Driver, options: Options) -> None:
        self._host: Callable[[], dict[str, Any]] = getattr(driver, "host_facts", dict)
        self._tick: Callable[[], None] = getattr(driver, "tick", lambda: None)
        self._event_driver = None if options.backend == "replay" else driver
        self._recorder = Recorder(driver) if options.record else None
        self._driver: Driver = options.watch(self._recorder or driver)
        self._profile = options.profile
        self._driver_version = ""
        self._memos: dict[str, Memo] = {}
        self._open = False

    def open(self) -> None:
        """Initialise the library and learn the driver's version."""
        try:
            self._driver.call("Init")
            self._open = True
        except DriverError as error:
            raise SourceDown(error.source_error) from None
        self._driver_version = self._version("SystemGetDriverVersion")
        self._memos.clear()

    def close(self) -> None:
        """Shut the library down, if it was initialised."""
        if self._open:
            self._open = False
            try:
                self._driver.call("Shutdown")
            except DriverError:
                pass  # nothing is left to let go of

    def count(self) -> int:
        """Return the number of cards listed, those we may not open included."""
        try:
            return int(self._driver.call("DeviceGetCount"))
        except DriverError as error:
            if error.code == GPU_NOT_FOUND:
                return 0
            raise SourceDown(error.source_error) from None

    def versions(self) -> dict[str, str]:
        """Return the versions the driver tells. Slow on an idle machine: ask once."""
        known = {
            "driver_version": self._driver_version,
            "nvml_version": self._version("SystemGetNVMLVersion"),
            "cuda_driver_version": self._cuda(),
        }
        return {key: text for key, text in known.items() if text}

    def host_facts(self) -> dict[str, Any]:
        """Return what the simulated or captured host shows besides the driver."""
        return self._host()

    def event_driver(self) -> Driver | None:
        """Return the driver itself: waiting is no open call, and is not recorded."""
        return self._event_driver

    def tick(self) -> None:
        """Let a simulated driver act by its clock; makes no driver call."""
        self._tick()

    def take_answers(self) -> list[Any] | None:
        """Return what was recorded since the last call."""
        return None if self._recorder is None else list(self._recorder.take())

    def _version(self, call: str) -> str:
        try:
            return label(str(self._driver.call(call)))
        except DriverError:
            return ""

    def _cuda(self) -> str:
        try:
            number = int(self._driver.call("SystemGetCudaDriverVersion"))
        except DriverError:
            return ""
        return f"{number // 1000}.{number % 1000 // 10}" if number > 0 else ""

    # -- one card ---------------------------------------------------------------

    def read(self, slot: int) -> CardSample:
        """Read everything about the card at an index that the profile wants."""
        started = time.monotonic()
        sample = CardSample(slot=slot)
        try:
            self._read_into(sample)
        except CardLost:
            _not_answering(sample, DriverError(GPU_IS_LOST))
        except DriverError as error:
            if error.code in _SOURCE_IS_DOWN:
                raise SourceDown(error.source_error) from None
            _not_answering(sample, error)
        sample.time = round(time.time(), 3)
        sample.monotonic = time.monotonic()
        sample.duration = round(sample.monotonic - started, 6)
        return sample

    def _read_into(self, sample: CardSample) -> None:
        handle = self._driver.call("DeviceGetHandleByIndex", sample.slot)
        sample.uuid = self._identity(handle, "DeviceGetUUID")
        known = self._memo(sample.uuid or f"slot {sample.slot}")
        card = CardPass(self._driver, handle, known, self._profile, self._driver_version)
        card.ask_again()
        sample.pci = read_pci(card)
        sample.info = read_info(card)
        if sample.pci:
            sample.info["pci_bus_id"] = sample.pci
        sample.uptime = read_uptime(card)
        for reader in READERS:
            reader(card)
        sample.rows, sample.faults = card.rows, card.faults
        sample.reasons, sample.mig = card.reasons, card.mig
        _judge(sample, reset_required=card.reset_required)

    def _identity(self, handle: Handle, call: str) -> str | None:
        try:
            return label(str(self._driver.call(call, handle))) or None
        except DriverError as error:
            if error.code in (GPU_IS_LOST, *_SOURCE_IS_DOWN):
                raise
            return None

    def _memo(self, who: str) -> Memo:
        if who not in self._memos:
            if len(self._memos) >= _MAX_MEMOS:
                self._memos.clear()
            self._memos[who] = Memo()
        memo = self._memos[who]
        memo.expire()
        return memo


def _not_answering(sample: CardSample, error: DriverError) -> None:
    """Mark a card whose handle or pass failed: down, with the reason, without readings."""
    sample.up = False
    sample.state = _state(error.code)
    sample.error = error.name
    sample.rows, sample.faults, sample.mig, sample.reasons = {}, {WHOLE_CARD: error.name}, [], None


def _state(code: int) -> str:
    if code == GPU_IS_LOST:
        return "lost"
    if code == RESET_REQUIRED:
        return "reset_required"
    return "denied" if code in DENIED else "unreadable"


def _judge(sample: CardSample, *, reset_required: bool) -> None:
    """Decide whether a card that answered counts as up, and its state."""
    supported = [f for f in _VITAL if f in sample.rows or sample.faults.get(f) != "unsupported"]
    if supported and not any(family in sample.rows for family in supported):
        faults = {sample.faults.get(family, "") for family in supported}
        sample.up = False
        sample.state = "denied" if faults == {"denied"} else "unreadable"
        sample.error = min(faults)
    if reset_required:
        sample.state, sample.error = "reset_required", "reset_required"
