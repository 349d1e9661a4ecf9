# SPDX-License-Identifier: Apache-2.0
"""Where readings come from, behind one narrow interface.

``nvml`` reads the real driver, ``sim`` a simulated node, ``replay`` a capture.
The same conformance suite holds for all of them. A backend for DCGM joins by
one module here and one line in ``OPENERS``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from cardwatch.families.record import Profile
from cardwatch.nvml.calls import Driver
from cardwatch.sample import CardSample


class SourceDown(Exception):
    """The driver as a whole cannot be used; ``error`` as in ``cardwatch_source_error``."""

    def __init__(self, error: str) -> None:
        self.error = error
        super().__init__(error)


@dataclass(frozen=True)
class Options:
    """How a backend is opened.

    profile   which families are read.
    scenario  simulation only: file or packaged name; None is eight healthy cards.
    capture   replay only: file written by ``cardwatch capture``.
    epoch     simulation only: wall clock second at which its time is 0.
    seed      simulation only: overrides the scenario's seed.
    kmsg      simulation only: file that gets the kernel records of scripted events.
    record    note every driver call and its answer.
    emit_raw  simulation only: writes junk into the stream of frames.
    watch     wraps the driver, so that the caller sees which call is open.
    """

    backend: str
    profile: Profile = Profile.STANDARD
    scenario: str | None = None
    capture: Path | None = None
    epoch: float = 0.0
    seed: int | None = None
    kmsg: Path | None = None
    record: bool = False
    emit_raw: Callable[[bytes], None] | None = None
    watch: Callable[[Any], Any] = field(default=lambda driver: driver)


class Backend(Protocol):
    """Reads the cards of one node. ``read`` may run in several threads, one per slot."""

    def open(self) -> None:
        """Initialise the driver once. May block; raises ``SourceDown``."""

    def close(self) -> None:
        """Let go of the driver. May block; raises nothing."""

    def count(self) -> int:
        """Return how many cards the driver lists. May block; raises ``SourceDown``."""
        ...

    def versions(self) -> dict[str, str]:
        """Return driver_version, nvml_version, cuda_driver_version as far as told."""
        ...

    def read(self, slot: int) -> CardSample:
        """Read the card at one index. May block; raises ``SourceDown`` only."""
        ...

    def host_facts(self) -> dict[str, Any]:
        """Return facts of a simulated or captured host; empty for the real one."""
        ...

    def event_driver(self) -> Driver | None:
        """Return what driver events can be waited for on; None where there are none."""
        ...

    def tick(self) -> None:
        """Let what a simulation has scripted happen on time; does nothing elsewhere."""

    def take_answers(self) -> list[Any] | None:
        """Return driver answers noted since the last call; None when not recording."""
        ...


def _nvml(options: Options) -> Backend:
    from cardwatch.backends.nvml import NvmlBackend
    from cardwatch.nvml.binding import NvmlDriver

    return NvmlBackend(NvmlDriver(), options)


def _sim(options: Options) -> Backend:
    from cardwatch.backends.nvml import NvmlBackend
    from cardwatch.sim import DEFAULT, SimDriver, load_scenario

    scenario = DEFAULT if options.scenario is None else load_scenario(options.scenario)
    seed = scenario.seed if options.seed is None else options.seed
    driver = SimDriver(
        scenario, options.epoch, seed, emit_raw=options.emit_raw, kmsg_path=options.kmsg
    )
    return NvmlBackend(driver, options)


def _replay(options: Options) -> Backend:
    from cardwatch.backends.nvml import NvmlBackend
    from cardwatch.nvml.recorded import RecordedDriver

    assert options.capture is not None  # checked with the settings
    return NvmlBackend(RecordedDriver(options.capture), options)


OPENERS: dict[str, Callable[[Options], Backend]] = {"nvml": _nvml, "sim": _sim, "replay": _replay}


def make(options: Options) -> Backend:
    """Return the backend that the options name, not yet opened."""
    return OPENERS[options.backend](options)
