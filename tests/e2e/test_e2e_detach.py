# SPDX-License-Identifier: Apache-2.0
"""Letting go of the driver on request, so that a card can be reset or a driver upgraded."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from e2e.harness import Exporter, Page, alive, holds
from nvml_c import Stub

Serve = Callable[..., Exporter]
LIBRARY = "libnvidia-ml"


def _both_up(page: Page) -> bool:
    return list(page.up().values()) == [1.0, 1.0]


def _detached(page: Page) -> bool:
    return set(page.states().values()) == {"detached"}


def _let_go_by_signal(exporter: Exporter) -> None:
    exporter.signal(signal.SIGUSR2)


def _let_go_by_request(exporter: Exporter) -> None:
    assert exporter.get("/-/detach?for=2s", "POST").status == 200


@pytest.mark.parametrize("let_go", [_let_go_by_signal, _let_go_by_request])
def test_a_detached_exporter_holds_nothing_of_the_driver(
    nvml: Serve, stub: Stub, let_go: Callable[[Exporter], None]
) -> None:
    """The child is gone, nothing is open or mapped, nvmlShutdown was called, the page says so."""
    exporter = nvml("--detach-endpoint")
    exporter.await_page(_both_up)
    child = exporter.child()
    assert holds(child, LIBRARY)
    let_go(exporter)
    page = exporter.await_page(_detached)
    assert set(page.up().values()) == {0.0}
    assert page.source_up() == 0
    assert page.errors() == {"detached"}
    exporter.wait_for(lambda: not alive(child))
    assert exporter.children() == []
    assert not holds(exporter.pid, LIBRARY)
    assert stub.calls()["nvmlShutdown"] == stub.calls()["nvmlInitWithFlags"] == 1
    answer = exporter.get("/readyz")
    assert (answer.status, answer.body) == (503, "source gpu is down: detached\n")
    assert exporter.get("/healthz").status == 200
    if let_go is _let_go_by_signal:
        exporter.signal(signal.SIGUSR2)
    page = exporter.await_page(_both_up)
    assert page.errors() == set()
    assert page.value("cardwatch_child_restarts_total") == 0
    assert exporter.get("/readyz").status == 200


def test_readings_leave_the_page_while_detached(nvml: Serve) -> None:
    """Old readings are not repeated; what the cards are stays."""
    exporter = nvml("--detach-endpoint")
    exporter.await_page(_both_up)
    assert exporter.get("/-/detach?for=1m", "POST").status == 200
    page = exporter.await_page(lambda p: _detached(p) and not p.all("gpu_temperature_celsius"))
    assert len(page.all("gpu_info")) == 2
    exporter.signal(signal.SIGUSR2)  # the signal also ends what a request began
    exporter.await_page(_both_up)


def test_detaching_again_gives_more_time(nvml: Serve) -> None:
    """The last request counts."""
    exporter = nvml("--detach-endpoint")
    exporter.await_page(_both_up)
    assert exporter.get("/-/detach?for=1h", "POST").status == 200
    exporter.await_page(_detached)
    assert exporter.get("/-/detach?for=1s", "POST").status == 200
    exporter.await_page(_both_up)


def test_an_exporter_can_be_detached_while_the_driver_is_away_and_stopped_then(
    nvml: Serve, stub: Stub
) -> None:
    """Detaching does not depend on a driver that answers, nor does the stop after it."""
    stub.error("everything", 9)
    exporter = nvml("--expect-gpus", "2")
    exporter.await_page(lambda p: p.errors() == {"driver_not_loaded"})
    exporter.signal(signal.SIGUSR2)
    exporter.await_page(lambda p: p.errors() == {"detached"})
    exporter.wait_for(lambda: exporter.children() == [])
    assert exporter.stop() == 0


def test_without_the_flag_there_is_no_endpoint(nvml: Serve) -> None:
    """Letting go over HTTP is off unless asked for."""
    exporter = nvml()
    exporter.await_page(_both_up)
    assert exporter.get("/-/detach?for=2s", "POST").status == 404
    assert exporter.page().errors() == set()
