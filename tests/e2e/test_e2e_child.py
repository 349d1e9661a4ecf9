# SPDX-License-Identifier: Apache-2.0
"""The reading child dies, talks rubbish, loses its parent, or must load another library."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.harness import Exporter, Page, alive, pci_device, scenario
from nvml_c import Stub, build, compile_c

Serve = Callable[..., Exporter]
_CLONE_NEWPID = 0x20000000


def _all_up(page: Page) -> bool:
    return set(page.up().values()) == {1.0}


def test_a_crash_of_the_library_costs_one_restart(nvml: Serve) -> None:
    """After SIGSEGV in the child the page stays, cards grow old, and a new child takes over."""
    exporter = nvml()
    exporter.await_page(_all_up)
    old = exporter.child()
    os.kill(old, signal.SIGSEGV)
    page = exporter.await_page(lambda p: p.value("cardwatch_child_restarts_total") == 1)
    exporter.wait_log(f"reading child {old} ended with signal {signal.SIGSEGV.value}")
    page = exporter.await_page(lambda p: p.source_up() == 0)
    assert set(page.up().values()) == {0.0}
    assert not page.all("gpu_temperature_celsius")
    assert len(page.all("gpu_info")) == 2
    assert exporter.get("/healthz").status == 200
    page = exporter.await_page(_all_up)
    assert page.source_up() == 1
    assert page.value("cardwatch_child_restarts_total") == 1
    assert exporter.child() != old
    assert exporter.log().count("level=error") == 1


def test_a_library_that_crashes_at_the_start_is_an_unknown_error(
    serve: Serve, tmp_path: Path
) -> None:
    """Not one child ever answers; the page and readiness do not say for ever that we start."""
    source, sysfs = tmp_path / "crash.c", tmp_path / "sys"
    source.write_text("int nvmlInitWithFlags(unsigned flags) { (void)flags; __builtin_trap(); }\n")
    library = tmp_path / "lib"
    library.mkdir()
    compile_c(["-shared", "-fPIC", source], library / "libnvidia-ml.so.1")
    pci_device(sysfs, "0000:1b:00.0")
    exporter = serve(
        "--backend", "nvml", "--path.sysfs", str(sysfs), env={"LD_LIBRARY_PATH": str(library)}
    )
    page = exporter.await_page(lambda p: p.errors() == {"unknown_error"})
    assert page.source_up() == 0
    assert exporter.get("/readyz").body == "source gpu is down: unknown_error\n"


def test_the_crash_of_a_scenario_is_a_crash(serve: Serve, tmp_path: Path) -> None:
    """The simulated fault ends the child by SIGSEGV, once."""
    exporter = serve(*scenario(tmp_path, {"fault": "crash", "at": "2s"}))
    exporter.await_page(lambda p: p.value("cardwatch_child_restarts_total") == 1)
    exporter.wait_log("ended with signal 11")
    page = exporter.await_page(_all_up)
    assert page.value("cardwatch_child_restarts_total") == 1


def test_garbage_on_the_stream_is_skipped_and_logged_once(serve: Serve, tmp_path: Path) -> None:
    """Junk between frames costs nothing: the cards stay fresh and no child is replaced."""
    exporter = serve(*scenario(tmp_path, {"fault": "garbage", "at": "1s", "for": "6s"}))
    exporter.wait_log("wrote something that is no frame")
    child = exporter.child()
    sampled = exporter.await_page(_all_up).sampled()
    page = exporter.await_page(
        lambda p: p.sampled() and min(p.sampled().values()) > max(sampled.values()) + 6
    )
    assert _all_up(page)
    assert page.value("cardwatch_child_restarts_total") == 0
    assert exporter.child() == child
    assert exporter.log().count("no frame") == 1


def test_the_child_ends_when_its_parent_was_killed(nvml: Serve) -> None:
    """SIGKILL to the exporter leaves no reader on the driver."""
    exporter = nvml()
    exporter.await_page(_all_up)
    child = exporter.child()
    exporter.signal(signal.SIGKILL)
    exporter.process.wait()
    exporter.wait_for(lambda: not alive(child), timeout=10)


def test_the_child_ends_when_its_parent_was_killed_while_a_call_hangs(
    nvml: Serve, stub: Stub
) -> None:
    """A call that never returns does not keep an orphan alive."""
    exporter = nvml("--deadline", "1m")
    exporter.await_page(_all_up)
    stub.hang("everything")
    stub.wait_until(lambda: stub.open_calls().total() > 0)
    child = exporter.child()
    exporter.signal(signal.SIGKILL)
    exporter.process.wait()
    exporter.wait_for(lambda: not alive(child), timeout=10)


def _can_make_pid_namespaces() -> bool:
    pid = os.fork()
    if pid == 0:
        os._exit(0 if ctypes.CDLL(None).unshare(_CLONE_NEWPID) == 0 else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_the_exporter_works_as_process_1_of_a_container(serve: Serve, tmp_path: Path) -> None:
    """Being the child of process 1 does not mean that the parent is gone."""
    if not _can_make_pid_namespaces():
        pytest.skip("this user may not make a pid namespace (unshare, util-linux)")
    exporter = serve(
        *scenario(tmp_path), prefix=("unshare", "--pid", "--fork", "--kill-child=SIGTERM")
    )
    page = exporter.await_page(_all_up)
    sampled = min(page.sampled().values())
    page = exporter.await_page(lambda p: p.sampled() and min(p.sampled().values()) > sampled + 1)
    assert page.value("cardwatch_child_restarts_total") == 0
    # unshare itself has no handler; its end is that of its child.
    exporter.signal(signal.SIGKILL)
    exporter.process.wait()


def test_a_replaced_library_is_loaded_at_once(nvml: Serve, stub: Stub) -> None:
    """After a driver upgrade a new child takes the new library, without a wait."""
    exporter = nvml()
    exporter.await_page(_all_up)
    old = exporter.child()
    stub.error("everything", 18)
    exporter.await_page(lambda p: p.errors() == {"driver_library_mismatch"})
    stub.release()
    build(stub.library.parent)  # another file under the same name
    exporter.wait_log("the driver library on disk was replaced")
    page = exporter.await_page(_all_up)
    assert page.value("cardwatch_child_restarts_total") == 1
    assert exporter.child() != old
