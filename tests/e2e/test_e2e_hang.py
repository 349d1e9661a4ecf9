# SPDX-License-Identifier: Apache-2.0
"""Driver calls that do not return, for one card, for all, and a child that cannot be ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from e2e.harness import Exporter, Page, alive, scenario
from nvml_c import Stub

Serve = Callable[..., Exporter]
ZERO, ONE = (f"GPU-48313030-1111-4222-8333-00000000000{n}" for n in (0, 1))
READING = "gpu_temperature_celsius"


def _both_up(page: Page) -> bool:
    return page.up() == {ZERO: 1.0, ONE: 1.0}


def test_a_hung_call_costs_one_card_only(nvml: Serve, stub: Stub) -> None:
    """Its card is hung and loses its readings, the others go on, and it comes back by itself."""
    exporter = nvml()
    before = exporter.await_page(_both_up)
    child = exporter.child()
    assert before.value("cardwatch_oldest_driver_call_start_timestamp_seconds") is None

    stub.hang("everything", gpu=1)
    page = exporter.await_page(lambda p: p.states().get(ONE) == "hung")
    assert page.up()[ONE] == 0
    started = page.value("cardwatch_oldest_driver_call_start_timestamp_seconds")
    assert started is not None
    assert before.value("cardwatch_time_seconds") <= started + 1  # type: ignore[operator]
    assert started <= (page.value("cardwatch_time_seconds") or 0)

    page = exporter.await_page(lambda p: not p.all(READING, uuid=ONE))
    assert page.value("gpu_info", uuid=ONE) == 1
    assert page.value("gpu_state_info", uuid=ONE, state="hung") == 1
    assert ONE not in page.sampled()
    first = page.sampled()[ZERO]
    page = exporter.await_page(lambda p: p.sampled().get(ZERO, 0) > first + 0.5)
    assert page.up() == {ZERO: 1.0, ONE: 0.0}
    assert page.source_up() == 1
    assert page.all(READING, uuid=ZERO)
    assert page.value("cardwatch_reading_errors_total", uuid=ONE, error="timeout") == 1
    assert exporter.get("/readyz").status == 200

    stub.release()
    page = exporter.await_page(_both_up)
    assert page.states() == {ZERO: "ok", ONE: "ok"}
    assert page.value("cardwatch_oldest_driver_call_start_timestamp_seconds") is None
    assert page.value("cardwatch_child_restarts_total") == 0
    assert exporter.child() == child


def test_a_card_that_hangs_from_the_start_has_its_uuid_from_the_state(
    nvml: Serve, stub: Stub
) -> None:
    """After a restart a hung card is known by the place it had, its facts included."""
    first = nvml()
    first.await_page(_both_up)
    assert first.stop() == 0
    stub.hang("everything", gpu=1)
    exporter = nvml()
    page = exporter.await_page(lambda p: p.states() == {ZERO: "ok", ONE: "hung"})
    assert page.value("gpu_info", uuid=ONE, model="H100 80GB HBM3") == 1


def test_a_hung_call_about_an_index_that_is_gone_is_not_counted_again_and_again(
    nvml: Serve, stub: Stub
) -> None:
    """When the driver no longer lists the index of a hung card, the card is lost."""
    exporter = nvml()
    exporter.await_page(_both_up)
    stub.hang("everything", gpu=1)
    exporter.await_page(lambda p: p.states().get(ONE) == "hung")
    stub.set("order", [0])
    page = exporter.await_page(lambda p: p.states().get(ONE) == "lost")
    at = page.sampled()[ZERO]
    page = exporter.await_page(lambda p: p.sampled().get(ZERO, 0) > at + 1)
    assert page.states() == {ZERO: "ok", ONE: "lost"}
    assert page.value("cardwatch_reading_errors_total", uuid=ONE, error="timeout") == 1


def test_when_every_call_hangs_the_child_is_ended_and_replaced(nvml: Serve, stub: Stub) -> None:
    """The source is down with timeout until a new child, after a wait, gets answers."""
    exporter = nvml()
    exporter.await_page(_both_up)
    old = exporter.child()
    stub.hang("everything")
    page = exporter.await_page(lambda p: p.states() == {ZERO: "hung", ONE: "hung"})
    assert page.source_up() == 0
    assert page.errors() == {"timeout"}
    assert page.value("cardwatch_child_restarts_total") == 1
    assert exporter.get("/readyz").body == "source gpu is down: timeout\n"
    exporter.wait_for(lambda: not alive(old))
    assert exporter.children() == []  # the next one waits
    stub.release()
    page = exporter.await_page(_both_up)
    assert page.source_up() == 1
    assert page.errors() == set()
    assert page.value("cardwatch_children_abandoned") == 0
    assert exporter.child() != old


def test_when_initialising_hangs_after_an_outage_the_child_is_replaced(
    nvml: Serve, stub: Stub
) -> None:
    """A driver that went away and then hangs in nvmlInit is a timeout, not the old error."""
    exporter = nvml()
    exporter.await_page(_both_up)
    stub.error("everything", 9)
    exporter.await_page(lambda p: p.errors() == {"driver_not_loaded"})
    with stub.batch():
        stub.release()
        stub.hang("everything")
    page = exporter.await_page(lambda p: p.errors() == {"timeout"})
    assert page.value("cardwatch_child_restarts_total") == 1
    assert page.up() == {ZERO: 0.0, ONE: 0.0}
    stub.release()
    exporter.await_page(_both_up)


def test_a_driver_that_hangs_from_the_start_is_a_timeout(nvml: Serve, stub: Stub) -> None:
    """The first answer does not wait for the driver, and says soon that it hangs."""
    stub.hang("everything")
    exporter = nvml("--expect-gpus", "2")
    assert exporter.get("/readyz").body == "the first sample is not done\n"
    page = exporter.await_page(lambda p: p.errors() == {"timeout"})
    assert page.source_up() == 0
    answer = exporter.get("/readyz")
    assert (answer.status, answer.body) == (503, "source gpu is down: timeout\n")


def test_a_child_that_ignores_sigterm_is_abandoned_and_never_killed(
    serve: Serve, tmp_path: Path
) -> None:
    """Five seconds after the polite signal it is given up, and a new child takes its place."""
    exporter = serve(
        *scenario(
            tmp_path,
            {"fault": "stubborn", "for": "12s"},
            {"fault": "hang", "at": "3s", "for": "5s"},
        )
    )
    exporter.await_page(lambda p: set(p.up().values()) == {1.0})
    old = exporter.child()
    exporter.await_page(lambda p: p.errors() == {"timeout"})
    assert alive(old)
    exporter.await_page(lambda p: p.value("cardwatch_children_abandoned") == 1)
    exporter.wait_log(f"reading child {old} did not end on SIGTERM; abandoned")
    # Simulated deafness ends with the pipe: an abandoned child that can end does, by itself.
    page = exporter.await_page(
        lambda p: set(p.up().values()) == {1.0} and not p.value("cardwatch_children_abandoned")
    )
    assert page.source_up() == 1
    assert not alive(old)


def test_a_silent_child_is_replaced_and_at_most_two_are_abandoned(nvml: Serve, stub: Stub) -> None:
    """Children that nothing can end stay alive, no third is started, and we still stop in time."""
    exporter = nvml("--deadline", "200ms")
    exporter.may_leave_children = True
    exporter.await_page(_both_up)
    stopped: list[int] = []
    for number in (1, 2):
        exporter.wait_for(lambda: set(exporter.children()) - set(stopped))
        exporter.await_page(_both_up)
        (pid,) = set(exporter.children()) - set(stopped)
        os.kill(pid, signal.SIGSTOP)
        stopped.append(pid)
        page = exporter.await_page(lambda p: p.states() == {ZERO: "hung", ONE: "hung"})
        assert page.source_up() == 0
        assert page.errors() == {"timeout"}
        page = exporter.await_page(
            lambda p, n=number: p.value("cardwatch_children_abandoned") == n  # type: ignore[misc]
        )
        assert page.value("cardwatch_child_restarts_total") == number
    # A third child would come after the second wait, which ended or is about to end.
    since = time.monotonic()
    exporter.await_page(lambda p: time.monotonic() > since + 6)
    assert sorted(exporter.children()) == sorted(stopped)
    assert all(alive(pid) for pid in stopped)  # no SIGKILL: it would have ended them
    assert exporter.get("/metrics").status == 200
    assert exporter.stop() == 0
    assert all(alive(pid) for pid in stopped)


def test_an_abandoned_child_that_ends_makes_room(nvml: Serve) -> None:
    """The count of abandoned children goes down when the driver lets one of them go."""
    exporter = nvml("--deadline", "200ms")
    exporter.await_page(_both_up)
    pid = exporter.child()
    os.kill(pid, signal.SIGSTOP)
    exporter.await_page(lambda p: p.value("cardwatch_children_abandoned") == 1)
    os.kill(pid, signal.SIGCONT)
    exporter.await_page(lambda p: p.value("cardwatch_children_abandoned") == 0)
    exporter.await_page(_both_up)
    assert not alive(pid)
