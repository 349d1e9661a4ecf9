# SPDX-License-Identifier: Apache-2.0
"""Nothing holds doctor up: not a driver that hangs, not a file that never opens."""

from __future__ import annotations

import os
import threading
import time

from doctor_harness import Machine

from cardwatch.doctor import checks
from cardwatch.doctor.checks import Check
from cardwatch.doctor.finding import Finding, Level, ok
from cardwatch.doctor.scene import Scene
from cardwatch.settings.table import Settings
from nvml_c import Stub


def test_a_driver_that_hangs_while_it_starts_is_a_problem(machine: Machine) -> None:
    """The call that hangs is named, and doctor ends."""
    flags = machine.scenario("faults: [{fault: hang, call: Init}]")
    text = machine.run(*flags, "--deadline", "500ms").problem("driver-hangs")
    assert "nvmlInit has not returned" in text
    assert "reboot" in text


def test_a_library_that_hangs_is_a_problem(machine: Machine, stub: Stub) -> None:
    """The same with a driver library, beside the files that can be looked at."""
    machine.whole()
    machine.use(stub)
    stub.hang("everything")
    result = machine.run("--deadline", "500ms")
    assert "driver-hangs" in result.problems
    assert "Device nodes" in result.ok("devices")


def test_all_cards_hanging_are_named_as_cards(machine: Machine) -> None:
    """When every card hangs the cards are the trouble, not the driver as a whole."""
    flags = machine.scenario("cards: 2\nfaults: [{fault: hang, call: DeviceGetUUID}]")
    result = machine.run(*flags, "--deadline", "500ms")
    assert "Cards 0-1 are hung" in result.problem("card-hung")
    assert "nvmlDeviceGetUUID" in result.problem("card-hung")


def test_a_file_that_never_opens_is_a_problem_and_holds_nothing_up(
    machine: Machine, stub: Stub
) -> None:
    """A procfs file that blocks its reader: doctor says so, finishes the rest, and ends."""
    machine.whole()
    machine.use(stub)
    version = machine.procfs / "driver/nvidia/version"
    version.unlink()
    os.mkfifo(version)
    result = machine.run("--deadline", "2s")
    assert result.status == 1
    assert "the kernel and the PCI bus did not return" in result.problem("look-hangs")
    assert "The driver answers" in result.ok("driver")
    assert "Card 0" in result.ok("card")


def test_a_state_directory_that_never_answers_holds_nothing_up(machine: Machine) -> None:
    """A roster that blocks its reader is a problem of the state directory only."""
    (machine.state / "sim").mkdir()
    os.mkfifo(machine.state / "sim/cards.json")
    result = machine.run("--backend", "sim", "--deadline", "2s")
    assert "the state directory did not return" in result.problem("look-hangs")
    assert "Cards 0-7" in result.ok("card")


def test_a_check_that_does_not_return_leaves_the_others_alone() -> None:
    """One check waits for ever, the next one's finding is there all the same."""
    never = threading.Event()

    def hangs(_scene: Scene) -> list[Finding]:
        never.wait()
        return []

    listed = (
        Check("a pit", hangs),
        Check("the sky", lambda _scene: [ok("sky", "The sky is blue")]),
    )
    found = checks.run(Scene(Settings(), {}), 0.01, listed)
    never.set()
    assert "Looking at a pit did not return" in found[0].title
    assert [finding.id for finding in found] == ["look-hangs", "sky"]


def test_a_check_that_fails_is_our_mistake_and_not_the_end() -> None:
    """An exception in a check becomes a finding that asks for a report."""

    def fails(_scene: Scene) -> list[Finding]:
        raise KeyError("oops")

    (found,) = checks.run(Scene(Settings(), {}), 10.0, (Check("a riddle", fails),))
    assert found.id == "look-failed"
    assert found.level is Level.PROBLEM
    assert "KeyError" in found.title


def test_looks_that_did_not_return_while_gathering_are_found() -> None:
    """What hung before the checks ran stands among the findings."""
    (found,) = checks.run(Scene(Settings(), {}, stuck=("the moon",)), time.monotonic(), ())
    assert "the moon" in found.title
