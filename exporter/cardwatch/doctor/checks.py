# SPDX-License-Identifier: Apache-2.0
"""All checks in page order, and how they are run: none can hold up the others or the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from cardwatch.doctor import (
    checks_backend,
    checks_cards,
    checks_container,
    checks_devices,
    checks_driver,
    checks_kernel_log,
    checks_library,
    checks_mig,
    checks_platform,
    checks_port,
    checks_processes,
    checks_state,
)
from cardwatch.doctor.background import Background
from cardwatch.doctor.finding import Finding, Level, problem, shown
from cardwatch.doctor.scene import Scene


@dataclass(frozen=True)
class Check:
    """One check. ``about``: what it looks at; ``machine``: of no use with simulated cards."""

    about: str
    look: Callable[[Scene], list[Finding]]
    machine: bool = False


CHECKS: tuple[Check, ...] = (
    Check("the backend", checks_backend.backend),
    Check("the driver library", checks_library.library),
    Check("what the container toolkit was asked for", checks_library.capabilities, machine=True),
    Check("the kernel module", checks_driver.module),
    Check("the versions of module and library", checks_driver.mismatch),
    Check("the device nodes", checks_devices.devices, machine=True),
    Check("whether the driver answers", checks_driver.answers),
    Check("the age of the driver", checks_driver.features),
    Check("the numbers of cards", checks_cards.counts),
    Check("the cards", checks_cards.cards),
    Check("the readings", checks_cards.readings),
    Check("MIG", checks_mig.mig),
    Check("persistence mode", checks_cards.persistence),
    Check("the container", checks_container.container, machine=True),
    Check("processes", checks_processes.processes, machine=True),
    Check("the kernel log", checks_kernel_log.kernel_log, machine=True),
    Check("the Windows Subsystem for Linux", checks_platform.wsl),
    Check("virtual cards and machine", checks_platform.virtual),
    Check("the MPS view", checks_platform.mps_view),
    Check("the state directory", checks_state.state),
    Check("the listen address", checks_port.port),
)
"""Order of the page: what must work for the next one to, first."""


def run(scene: Scene, seconds: float, checks: tuple[Check, ...] = CHECKS) -> list[Finding]:
    """Run the checks side by side and return what they found, problems first."""
    wanted = [check for check in checks if not (check.machine and scene.simulated)]
    running = [(check, Background(_bound(check, scene))) for check in wanted]
    end = time.monotonic() + seconds
    findings = [_not_returned(about, seconds) for about in scene.stuck]
    for check, work in running:
        if not work.wait_until(end):
            findings.append(_not_returned(check.about, seconds))
        elif work.value is None:
            findings.append(_broken(check, work.error))
        else:
            findings += work.value
    findings += _unexplained(scene, findings)
    return sorted(findings, key=lambda finding: _ORDER[finding.level])


_ORDER = {Level.PROBLEM: 0, Level.NOTE: 1, Level.OK: 2}


def _bound(check: Check, scene: Scene) -> Callable[[], list[Finding]]:
    return lambda: check.look(scene)


def _not_returned(about: str, seconds: float) -> Finding:
    return problem(
        "look-hangs",
        f"Looking at {about} did not return within {seconds:g} s",
        "A file of the kernel or of a network file system keeps whoever opens it; what it would "
        "have shown is missing here.",
        "sudo dmesg | grep -i -e nvrm -e 'blocked for more than'",
        "Look at what hangs: ps -eo pid,stat,wchan:32,args | grep ' D'",
    )


def _broken(check: Check, error: Exception | None) -> Finding:
    return problem(
        "look-failed",
        f"Looking at {check.about} failed: {type(error).__name__}: {shown(error)}",
        "This is a mistake in cardwatch, not in the machine.",
        "Report it with the output of `cardwatch doctor --format json`",
    )


def _unexplained(scene: Scene, findings: list[Finding]) -> list[Finding]:
    """Make sure that a driver which cannot be used never passes for a healthy machine."""
    error = scene.source_error
    known = any(finding.level is Level.PROBLEM for finding in findings)
    if error is None or known or scene.without_cards:
        return []
    return [
        problem(
            "driver-unusable",
            f"The driver cannot be used: {shown(error)}",
            "No other finding explains it.",
            "sudo dmesg | grep -i -e nvrm -e xid",
        )
    ]
