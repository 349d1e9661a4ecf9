# SPDX-License-Identifier: Apache-2.0
"""The driver as a whole is away: named on the page, logged once, and back by itself."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.harness import Exporter, Page, empty_bus
from nvml_c import Stub

Serve = Callable[..., Exporter]


def _all_up(page: Page) -> bool:
    return list(page.up().values()) == [1.0, 1.0]


def _passes(exporter: Exporter, count: int = 6) -> None:
    """Wait while the page is rendered a few times more."""
    seen = {exporter.page().value("cardwatch_time_seconds")}
    exporter.await_page(
        lambda p: (seen.add(p.value("cardwatch_time_seconds")), len(seen) > count)[1]  # type: ignore[func-returns-value]
    )


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (9, "driver_not_loaded"),
        (18, "driver_library_mismatch"),
        (4, "permission_denied"),
        (999, "unknown_error"),
    ],
)
def test_an_outage_has_a_name_and_ends_by_itself(
    nvml: Serve, stub: Stub, code: int, error: str
) -> None:
    """Cards stay as unreadable without readings, the reason is logged once, then they are back."""
    exporter = nvml()
    before = exporter.await_page(_all_up)
    stub.error("everything", code)
    page = exporter.await_page(lambda p: p.source_up() == 0 and not p.sampled())
    assert page.errors() == {error}
    assert page.up() == dict.fromkeys(before.up(), 0.0)
    assert set(page.states().values()) == {"unreadable"}
    assert len(page.all("gpu_info")) == 2
    assert page.value("gpu_node_listed_gpus") is None
    assert exporter.get("/readyz").body == f"source gpu is down: {error}\n"
    assert exporter.get("/readyz").status == 503
    assert exporter.get("/healthz").status == 200
    _passes(exporter)
    said = f"the driver cannot be used: {error}"
    assert exporter.log().count(said) == 1

    stub.release()
    page = exporter.await_page(_all_up)
    assert page.source_up() == 1
    assert page.errors() == set()
    assert page.value("cardwatch_child_restarts_total") == 0
    assert exporter.get("/readyz").status == 200
    assert exporter.log().count(said) == 1
    assert exporter.log().count("the driver answers again") == 1


def test_an_installed_driver_is_found_without_a_restart(
    serve: Serve, stub: Stub, tmp_path: Path
) -> None:
    """A library that appears while the exporter runs is loaded, and its cards come up."""
    loader_path, sysfs = tmp_path / "lib", tmp_path / "sys"
    loader_path.mkdir()
    empty_bus(sysfs)
    env = {"LD_LIBRARY_PATH": str(loader_path), "NVML_STUB_CONTROL": str(stub.control)}
    exporter = serve("--backend", "nvml", "--path.sysfs", str(sysfs), env=env)
    exporter.await_page(lambda p: p.errors() == {"library_not_found"})
    _passes(exporter)
    assert exporter.log().count("library_not_found") == 1
    shutil.copy(stub.library, loader_path)
    page = exporter.await_page(_all_up)
    assert page.source_up() == 1
    assert page.errors() == set()
    assert exporter.log().count("level=error") == 1


def test_a_driver_that_is_back_with_fewer_cards_shows_the_others_as_lost(
    nvml: Serve, stub: Stub
) -> None:
    """What was up before a reload of the driver and is not listed after it is lost."""
    exporter = nvml()
    first, second = exporter.await_page(_all_up).up()
    stub.error("everything", 9)
    exporter.await_page(lambda p: p.errors() == {"driver_not_loaded"})
    with stub.batch():
        stub.release()
        stub.set("order", [1])
    page = exporter.await_page(lambda p: p.states() == {first: "lost", second: "ok"})
    assert page.up() == {first: 0.0, second: 1.0}


def test_versions_are_asked_again_after_a_reload(nvml: Serve, stub: Stub) -> None:
    """gpu_node_info follows an upgrade of the driver under a running exporter."""
    exporter = nvml()
    exporter.await_page(lambda p: p.value("gpu_node_info", driver_version="580.95.05") == 1)
    stub.error("everything", 9)
    exporter.await_page(lambda p: p.errors() == {"driver_not_loaded"})
    with stub.batch():
        stub.release()
        stub.set("nvmlSystemGetDriverVersion", "590.48.01")
    page = exporter.await_page(lambda p: p.value("gpu_node_info", driver_version="590.48.01") == 1)
    assert page.value("gpu_node_info", driver_branch="R590") == 1
    assert page.value("gpu_node_info", cuda_driver_version="13.0") == 1
