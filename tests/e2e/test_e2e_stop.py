# SPDX-License-Identifier: Apache-2.0
"""How the exporter ends: by signal, in time, and with the status that says why."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

from e2e.harness import Exporter, Page, alive
from nvml_c import Stub

Serve = Callable[..., Exporter]
_REVOKED = 75


def _both_up(page: Page) -> bool:
    return list(page.up().values()) == [1.0, 1.0]


def test_a_stop_lets_go_of_the_driver(nvml: Serve, stub: Stub) -> None:
    """SIGTERM: status 0, nvmlShutdown as often as nvmlInit, no process left."""
    exporter = nvml()
    exporter.await_page(_both_up)
    child = exporter.child()
    assert exporter.stop() == 0
    assert not alive(child)
    assert stub.calls()["nvmlShutdown"] == stub.calls()["nvmlInitWithFlags"] == 1


def test_ctrl_c_is_a_stop_like_any_other(nvml: Serve, stub: Stub) -> None:
    """SIGINT to the exporter ends it with status 0; its child is asked, not cut off."""
    exporter = nvml()
    exporter.await_page(_both_up)
    exporter.signal(signal.SIGINT)
    assert exporter.process.wait(4) == 0
    assert stub.calls()["nvmlShutdown"] == 1


def test_a_stop_before_the_first_sample(nvml: Serve, stub: Stub) -> None:
    """A driver that hangs from the start does not hold back the stop."""
    stub.hang("everything")
    exporter = nvml("--deadline", "1m")
    stub.wait_hang("nvmlInitWithFlags")
    assert exporter.stop() == 0


def test_exit_75_when_the_control_device_is_refused_that_was_allowed(
    nvml: Serve, stub: Stub, tmp_path: Path
) -> None:
    """A revoked device cgroup is the one thing about a GPU that ends the process."""
    devices = tmp_path / "dev"
    devices.mkdir()
    control = devices / "nvidiactl"
    control.write_text("")
    exporter = nvml("--path.devfs", str(devices), "--revoked-exit", "1s", as_mere_user=True)
    exporter.await_page(_both_up)
    control.chmod(0o000)
    page = exporter.await_page(_both_up)  # as long as the driver answers, nothing is wrong
    stub.error("everything", 999)
    page = exporter.await_page(lambda p: p.source_up() == 0)
    assert page.errors() == {"unknown_error"}
    assert exporter.process.wait(30) == _REVOKED
    assert "only a new container cures that" in exporter.log()


def test_no_exit_75_for_a_device_that_was_refused_from_the_start(
    nvml: Serve, stub: Stub, tmp_path: Path
) -> None:
    """What was never allowed is not taken away: another container would not have it either."""
    devices = tmp_path / "dev"
    devices.mkdir()
    control = devices / "nvidiactl"
    control.write_text("")
    control.chmod(0o000)
    stub.error("everything", 4)
    exporter = nvml(
        "--path.devfs", str(devices), "--revoked-exit", "1s", "--expect-gpus", "2",
        as_mere_user=True,
    )  # fmt: skip
    first = exporter.await_page(lambda p: p.errors() == {"permission_denied"})
    since = first.value("cardwatch_time_seconds") or 0
    page = exporter.await_page(lambda p: (p.value("cardwatch_time_seconds") or 0) > since + 3)
    assert page.errors() == {"permission_denied"}
    assert exporter.process.poll() is None
