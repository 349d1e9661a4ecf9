# SPDX-License-Identifier: Apache-2.0
"""What is on the page of a node where nothing is wrong, and of nodes without cards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cardwatch.families import BY_NAME, Scope
from e2e.harness import (
    NODE,
    Exporter,
    Page,
    empty_bus,
    pci_device,
    roster_entry,
    scenario,
    write_roster,
)
from nvml_c import Stub

Serve = Callable[..., Exporter]
LABELS = {"cluster": "prod-eu", "rack": "r12"}


def _all_up(count: int) -> Callable[[Page], bool]:
    return lambda page: list(page.up().values()) == [1.0] * count


def test_a_simulated_node_shows_eight_healthy_cards_and_says_that_they_are_not_real(
    serve: Serve,
) -> None:
    """Without a scenario there are eight cards, ready, and nowhere taken for real ones."""
    exporter = serve("--backend", "sim")
    page = exporter.await_page(_all_up(8))
    assert page.value("cardwatch_build_info", backend="sim", simulated="true") == 1
    assert page.value("gpu_node_detected_gpus") == page.value("gpu_node_listed_gpus") == 8
    assert set(page.states().values()) == {"ok"}
    assert page.source_up() == 1
    assert page.errors() == set()
    assert len(page.all("gpu_temperature_celsius")) == 8
    assert page.value("cardwatch_child_restarts_total") == 0
    assert "SIMULATED" in exporter.log()
    assert exporter.get("/readyz").status == 200
    status = exporter.get("/").body
    assert "SIMULATED" in status
    assert all(uuid in status for uuid in page.up())
    assert exporter.stop() == 0


def test_a_real_node_is_not_called_simulated(nvml: Serve) -> None:
    """Cards read through the driver library are real, on the page and in the log."""
    exporter = nvml()
    page = exporter.await_page(_all_up(2))
    assert page.value("cardwatch_build_info", backend="nvml", simulated="false") == 1
    assert "SIMULATED" not in exporter.log()
    assert "SIMULATED" not in exporter.get("/").body


def test_the_time_on_the_page_goes_on_without_a_sample(nvml: Serve, stub: Stub) -> None:
    """The page is rendered every interval although the driver answers nothing."""
    stub.hang("everything")
    exporter = nvml("--deadline", "10m")
    first = exporter.page().value("cardwatch_time_seconds")
    exporter.await_page(lambda p: (p.value("cardwatch_time_seconds") or 0) > (first or 0) + 0.5)
    assert exporter.get("/healthz").status == 200


@pytest.mark.parametrize("with_node", [True, False])
def test_every_series_has_the_labels_it_must_have(
    serve: Serve, tmp_path: Path, with_node: bool
) -> None:
    """Node and site labels are on every series, gpu and uuid on those of a card."""
    config = tmp_path / "config.yaml"
    config.write_text(f"labels: {{cluster: {LABELS['cluster']}, rack: {LABELS['rack']}}}\n")
    mig = {"fault": "mig", "gpu": 0, "instances": ["3g.40gb", "2g.20gb"]}
    flags = [] if with_node else ["--no-node-label"]
    exporter = serve(*scenario(tmp_path, mig), "--config", str(config), *flags)
    page = exporter.await_page(_all_up(2))
    assert page.all("gpu_mig_info")
    for name, samples in page.samples.items():
        for sample in samples:
            assert LABELS.items() <= sample.labels.items(), name
            assert sample.labels.get("node") == (NODE if with_node else None), name
            if BY_NAME[name].scope is not Scope.NODE:
                assert sample.labels["gpu"] in ("0", "1"), name
                assert sample.labels["uuid"].startswith("GPU-"), name


@pytest.mark.parametrize(
    ("flags", "environment", "expected"),
    [
        (["--node-name", "by-flag"], {"NODE_NAME": "by-env"}, "by-flag"),
        ([], {"NODE_NAME": "by-env"}, "by-env"),
        ([], {"NODE_NAME": "b\x01ad\udcff name" + "x" * 200}, "bad name" + "x" * 120),
    ],
)
def test_the_node_label_is_fit_for_a_label(
    serve: Serve, tmp_path: Path, flags: list[str], environment: dict[str, str], expected: str
) -> None:
    """The node is named by flag, else by $NODE_NAME, without what a label may not hold."""
    exporter = serve(*scenario(tmp_path), *flags, env=environment)
    assert exporter.page().value("cardwatch_time_seconds", node=expected) is not None


def test_detected_gpus_are_those_on_the_bus_whatever_the_driver_says(
    nvml: Serve, stub: Stub, tmp_path: Path
) -> None:
    """Only display functions of NVIDIA count: no audio, no virtual function, no other vendor."""
    sysfs = tmp_path / "bus"
    pci_device(sysfs, "0000:1b:00.0")
    pci_device(sysfs, "0000:1b:00.1", device_class="0x040300")  # its audio function
    pci_device(sysfs, "0000:1b:00.2", device_class="0x0c0330")  # its USB controller
    pci_device(sysfs, "0000:43:00.0", device_class="0x030000")
    pci_device(sysfs, "0000:43:00.4", virtual=True)
    pci_device(sysfs, "0000:52:00.0")
    pci_device(sysfs, "0000:05:00.0", device_class="0x068000")  # an NVSwitch
    pci_device(sysfs, "0000:03:00.0", vendor="0x1a03", device_class="0x030000")
    stub.error("everything", 9)
    exporter = nvml("--path.sysfs", str(sysfs))
    page = exporter.await_page(lambda p: p.errors() == {"driver_not_loaded"})
    page = exporter.await_page(lambda p: p.value("gpu_node_detected_gpus") is not None)
    assert page.value("gpu_node_detected_gpus") == 3
    assert page.value("gpu_node_listed_gpus") is None
    assert page.source_up() == 0


def test_a_node_without_any_card_is_ready_and_has_no_source_gpu(
    serve: Serve, tmp_path: Path
) -> None:
    """Where neither bus nor driver nor state knows a card, nothing is down."""
    sysfs, nowhere = tmp_path / "sys", tmp_path / "no-library"
    empty_bus(sysfs)
    nowhere.mkdir()
    exporter = serve(
        "--backend", "nvml", "--path.sysfs", str(sysfs), env={"LD_LIBRARY_PATH": str(nowhere)}
    )
    page = exporter.await_page(lambda p: p.errors() == {"library_not_found"} and not p.source_up())
    assert page.source_up() is None
    assert page.value("gpu_node_detected_gpus") == 0
    assert page.up() == {}
    assert exporter.get("/readyz").status == 200


@pytest.mark.parametrize("knows", ["bus", "expected", "state"])
def test_a_node_that_should_have_cards_is_not_ready_without_the_library(
    serve: Serve, tmp_path: Path, knows: str
) -> None:
    """As soon as anything knows of a card, a missing library means that the source is down."""
    sysfs, nowhere = tmp_path / "sys", tmp_path / "no-library"
    empty_bus(sysfs)
    nowhere.mkdir()
    if knows == "bus":
        pci_device(sysfs, "0000:1b:00.0")
    if knows == "state":
        write_roster(tmp_path / "state", {"GPU-known": roster_entry(0, 10_000, 0)})
    flags = ["--expect-gpus", "8"] if knows == "expected" else []
    exporter = serve(
        *flags,
        "--backend",
        "nvml",
        "--path.sysfs",
        str(sysfs),
        env={"LD_LIBRARY_PATH": str(nowhere)},
    )
    page = exporter.await_page(lambda p: p.errors() == {"library_not_found"} and p.source_up() == 0)
    assert page.up() == ({"GPU-known": 0.0} if knows == "state" else {})
    exporter.wait_for(lambda: "library_not_found" in exporter.get("/readyz").body)
    assert exporter.get("/readyz").status == 503


def test_a_driver_that_lists_no_card_is_up(nvml: Serve, stub: Stub) -> None:
    """A driver without cards answers, so its source is up and the node is ready."""
    stub.set("count", 0)
    exporter = nvml()
    page = exporter.await_page(lambda p: p.value("gpu_node_listed_gpus") == 0)
    assert page.source_up() == 1
    assert page.errors() == set()
    assert exporter.get("/readyz").status == 200
