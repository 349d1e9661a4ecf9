# SPDX-License-Identifier: Apache-2.0
"""Process cases of the shared list of public reports, each under its id."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from e2e.harness import Exporter, Page, alive, children_of, holds, pci_device, threads_of
from nvml_c import Stub
from nvml_c.presets import MIB

Serve = Callable[..., Exporter]


def _both_up(page: Page) -> bool:
    return list(page.up().values()) == [1.0, 1.0]


def _one_bus(directory: Path) -> list[str]:
    sysfs = directory / "bus"
    pci_device(sysfs, "0000:1b:00.0")
    return ["--path.sysfs", str(sysfs)]


def test_c01_a_blocked_driver_call_does_not_block_the_page(
    nvml: Serve, stub: Stub, tmp_path: Path
) -> None:
    """Each scrape is answered, no thread is left by it, old readings are gone, the hang shows."""
    exporter = nvml(*_one_bus(tmp_path))
    exporter.await_page(_both_up)
    stub.hang("everything")
    page = exporter.await_page(lambda p: not p.all("gpu_temperature_celsius"))
    before = threads_of(exporter.pid)
    for _ in range(50):
        started = time.monotonic()
        page = exporter.page()
        assert time.monotonic() - started < 5
    assert threads_of(exporter.pid) <= before
    assert not page.all("gpu_power_watts")
    assert page.value("cardwatch_source_last_success_timestamp_seconds", source="gpu") is not None
    assert page.value("cardwatch_oldest_driver_call_start_timestamp_seconds") is not None
    assert page.source_up() == 0
    assert page.all("cardwatch_process_cpu_seconds_total", process="parent")


def test_c03_values_of_a_backend_that_is_gone_are_not_repeated(nvml: Serve, stub: Stub) -> None:
    """No temperature, the age of the last success grows, and the exporter is not ready."""
    stub.set("nvmlDeviceGetTemperature 0", 60)
    exporter = nvml()
    page = exporter.await_page(_both_up)
    assert set(page.by("uuid", "gpu_temperature_celsius").values()) == {60.0}
    stub.error("everything", 9)

    def age(page: Page) -> float:
        success = page.value("cardwatch_source_last_success_timestamp_seconds", source="gpu") or 0
        return (page.value("cardwatch_time_seconds") or 0) - success

    page = exporter.await_page(lambda p: age(p) > 1.5)
    assert not page.all("gpu_temperature_celsius")
    assert page.source_up() == 0
    assert exporter.get("/readyz").status == 503
    assert exporter.get("/healthz").status == 200


def test_c19_memory_does_not_grow_with_samples_and_processes(nvml: Serve, stub: Stub) -> None:
    """After many samples with new processes each time, parent and child are as large as before."""
    exporter = nvml("--interval", "100ms", "--profile", "full")
    exporter.await_page(_both_up)
    pids = iter(range(5000, 1_000_000))

    def after(samples: int) -> dict[str, float]:
        """Return the memory of each process after so many samples with other processes."""
        for _ in range(samples):
            with stub.batch():
                for gpu in range(2):
                    rows = [(next(pids), MIB) for _ in range(20)]
                    stub.set("nvmlDeviceGetComputeRunningProcesses_v3", rows, gpu)
            seen = stub.calls()["nvmlDeviceGetCount_v2"]
            stub.wait_calls("nvmlDeviceGetCount_v2", seen + 1)
            exporter.page()
        return exporter.page().by("process", "cardwatch_process_resident_memory_bytes")

    warm = after(40)
    later = after(80)
    assert set(later) == {"parent", "gpu"}
    for process, size in later.items():
        assert size - warm[process] < 2 * MIB, process
    assert sum(later.values()) < 150 * MIB


def test_c21_a_stop_ends_in_time_while_a_call_blocks(nvml: Serve, stub: Stub) -> None:
    """SIGTERM during a blocked call: status 0, nvmlShutdown tried, nothing left, no SIGKILL."""
    exporter = nvml("--deadline", "1m")
    exporter.await_page(_both_up)
    stub.hang("nvmlDeviceGetTemperature", gpu=1)
    stub.hang("nvmlDeviceGetTemperatureV", gpu=1)
    stub.wait_until(lambda: stub.hangs().total() > 0)
    child = exporter.child()
    assert exporter.stop() == 0
    assert stub.calls()["nvmlShutdown"] == 1
    assert not alive(child)


def test_c22_static_facts_are_read_once_and_a_scrape_starts_no_process(
    nvml: Serve, stub: Stub
) -> None:
    """Sixty scrapes and many passes: what a card is was asked at most twice."""
    exporter = nvml()
    exporter.await_page(_both_up)
    child = exporter.child()
    stub.wait_calls("nvmlDeviceGetCount_v2", stub.calls()["nvmlDeviceGetCount_v2"] + 10)
    for _ in range(60):
        exporter.page()
    calls = stub.calls(gpu=0)
    for fact in ("Name", "Serial", "BoardPartNumber", "VbiosVersion", "InforomImageVersion",
                 "Architecture", "CudaComputeCapability", "PciInfo_v3"):  # fmt: skip
        assert 1 <= calls[f"nvmlDeviceGet{fact}"] <= 2, fact
    assert stub.calls()["nvmlSystemGetDriverVersion"] <= 2
    assert stub.calls()["nvmlInitWithFlags"] == 1
    assert exporter.children() == [child]
    assert children_of(child) == []


def test_c23_the_number_of_driver_calls_does_not_depend_on_scrapes(nvml: Serve, stub: Stub) -> None:
    """Six scrapers at once cause not one call; how old the data is stands on the page."""
    exporter = nvml("--interval", "1h", "--deadline", "10s")
    exporter.await_page(_both_up)
    exporter.await_page(lambda p: p.all("gpu_node_info", nvml_version="13.580.95.05"))
    exporter.await_page(lambda p: p.source_up("nvml_events") == 1)

    def without_waiting(counts: Counter[str]) -> Counter[str]:
        counts.pop("nvmlEventSetWait_v2", None)  # waits in turns, whoever scrapes
        return counts

    stub.wait_until(lambda: without_waiting(stub.open_calls()).total() == 0)
    before = without_waiting(stub.calls())
    pages: list[Page] = []

    def scrape() -> None:
        pages.extend(exporter.page() for _ in range(20))

    scrapers = [threading.Thread(target=scrape) for _ in range(6)]
    for scraper in scrapers:
        scraper.start()
    for scraper in scrapers:
        scraper.join()
    assert len(pages) == 120
    assert without_waiting(stub.calls()) == before
    for uuid, when in pages[-1].sampled().items():
        assert (pages[-1].value("cardwatch_time_seconds") or 0) >= when - 1, uuid


def test_c24_an_exporter_that_is_not_ready_says_why(
    nvml: Serve, stub: Stub, tmp_path: Path
) -> None:
    """Readiness 503 with the reason, liveness 200, and the same reason on the page."""
    stub.error("nvmlInitWithFlags", 9)
    exporter = nvml(*_one_bus(tmp_path))
    page = exporter.await_page(lambda p: p.source_up() == 0 and p.errors() != {"starting"})
    assert page.errors() == {"driver_not_loaded"}
    ready = exporter.get("/readyz")
    assert ready.status == 503
    assert "driver_not_loaded" in ready.body
    assert exporter.get("/healthz").status == 200


def test_b28_the_driver_can_be_released_while_the_exporter_stays(nvml: Serve, stub: Stub) -> None:
    """After the signal nothing of the driver is held, scrapes work, and it resumes by itself."""
    exporter = nvml("--detach-endpoint")
    exporter.await_page(_both_up)
    child = exporter.child()
    exporter.signal(signal.SIGUSR2)
    page = exporter.await_page(lambda p: set(p.states().values()) == {"detached"})
    assert page.errors() == {"detached"}
    exporter.wait_for(lambda: not alive(child))
    assert not holds(exporter.pid, "nvidia")
    assert children_of(exporter.pid) == []
    assert stub.calls()["nvmlShutdown"] == 1
    assert exporter.get("/metrics").status == 200
    assert exporter.get("/-/detach?for=1s", "POST").status == 200  # shortens the 15 minutes
    exporter.await_page(_both_up)
