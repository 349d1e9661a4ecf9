# SPDX-License-Identifier: Apache-2.0
"""Events of real processes: every one once, on the page, in JSON, in the log and in the journal."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.harness import Exporter, Page, pci_device, run, scenario
from nvml_c import Stub

Serve = Callable[..., Exporter]

ZERO, ONE = (f"GPU-48313030-1111-4222-8333-00000000000{n}" for n in (0, 1))
PCI_ZERO, PCI_ONE = "0000:1b:00", "0000:43:00"
CLASSES = {"critical", "hardware", "contained", "application", "info", "unknown"}
CLASS_COUNT, CODE_COUNT = "gpu_xid_class_errors_total", "gpu_xid_errors_total"
LAST_RESET = "gpu_last_reset_timestamp_seconds"
ECC_GREW = "gpu_ecc_uncorrected_last_increase_timestamp_seconds"


class KernelLogFile:
    """A file of raw records, as --kmsg takes it, that goes on where it ended."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "kmsg-file"
        self.path.touch()
        self._written = 0

    def add(self, *texts: str) -> None:
        """Write lines as the kernel would write them now."""
        lines = ""
        for text in texts:
            self._written += 1
            usec = int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1e6)
            lines += f"4,{self._written},{usec},-;{text}\n"
        with self.path.open("a") as file:
            file.write(lines)

    def xid(self, code: int, pci: str = PCI_ZERO, text: str = "pid=77, name=a, Ch 1") -> None:
        """Write the line of an Xid."""
        self.add(f"NVRM: Xid (PCI:{pci}): {code}, {text}")

    def flags(self) -> tuple[str, str]:
        """Return the flags that read it."""
        return "--kmsg", str(self.path)


@pytest.fixture
def kmsg(tmp_path: Path) -> KernelLogFile:
    """Make an empty kernel log."""
    return KernelLogFile(tmp_path)


def _codes(page: Page, uuid: str) -> dict[str, float]:
    return page.by("xid", CODE_COUNT, uuid=uuid)


def _classes(page: Page, uuid: str) -> dict[str, float]:
    return page.by("class", CLASS_COUNT, uuid=uuid)


def _both_up(page: Page) -> bool:
    return list(page.up().values()) == [1.0, 1.0]


def _json(exporter: Exporter, name: str) -> dict[str, object]:
    answer = exporter.get(f"/api/v1/{name}")
    assert answer.status == 200
    document: dict[str, object] = json.loads(answer.body)
    return document


def _events(exporter: Exporter) -> list[dict[str, object]]:
    found = _json(exporter, "events")["events"]
    assert isinstance(found, list)
    return found


def _conditions(page: Page, uuid: str) -> set[str]:
    return set(page.by("condition", "gpu_health_condition", uuid=uuid))


def _kill(exporter: Exporter) -> None:
    """End it at once, and its child with it."""
    exporter.children()
    exporter.signal(signal.SIGKILL)
    exporter.process.wait()


# -- a scripted Xid ---------------------------------------------------------------------------


def test_a_scripted_xid_shows_everywhere_and_outlives_the_process(
    serve: Serve, tmp_path: Path
) -> None:
    """Xid 79 is on the page, in both documents, log and journal, also after kill -9."""
    exporter = serve(*scenario(tmp_path / "1", {"at": "2s", "gpu": 1, "fault": "xid", "code": 79}))
    page = exporter.await_page(_both_up)
    uuid = next(s.labels["uuid"] for s in page.all("gpu_up") if s.labels["gpu"] == "1")
    other = next(s.labels["uuid"] for s in page.all("gpu_up") if s.labels["gpu"] == "0")

    page = exporter.await_page(lambda p: _codes(p, uuid) == {"79": 1.0})
    assert _classes(page, uuid) == {**dict.fromkeys(CLASSES, 0.0), "critical": 1.0}
    assert _classes(page, other) == dict.fromkeys(CLASSES, 0.0)
    seen = page.value("gpu_xid_last_timestamp_seconds", uuid=uuid, xid="79")
    now = page.value("cardwatch_time_seconds")
    assert seen is not None
    assert now is not None
    assert now - 60 < seen <= now + 1
    page = exporter.await_page(lambda p: "xid_critical" in _conditions(p, uuid))
    assert page.value("gpu_health_state", uuid=uuid) == 3

    (event,) = [e for e in _events(exporter) if e["xid"] == 79]
    assert (event["uuid"], event["class"], event["tier"]) == (uuid, "critical", "page")
    (card,) = [
        c
        for c in _json(exporter, "health")["gpus"]  # type: ignore[attr-defined]
        if c["uuid"] == uuid
    ]
    assert card["state"] == 3
    assert {"page"} <= {c["tier"] for c in card["conditions"]}
    (line,) = [text for text in exporter.log().splitlines() if "[gpu-health]" in text]
    assert uuid in line
    assert "79" in line

    _kill(exporter)
    quiet = scenario(tmp_path / "2")
    exporter = serve(*quiet)
    page = exporter.await_page(lambda p: _codes(p, uuid) == {"79": 1.0})
    assert page.value("gpu_xid_last_timestamp_seconds", uuid=uuid, xid="79") == seen
    assert _classes(page, uuid)["critical"] == 1
    assert [e["xid"] for e in _events(exporter)] == [79]
    assert "[gpu-health]" not in exporter.log()
    listed = run("events", "list", "--backend", "sim", "--state-dir", str(tmp_path / "state"))
    assert listed.returncode == 0, listed.stderr
    assert "Xid 79" in listed.stdout
    assert uuid in listed.stdout


def test_the_standard_profile_counts_cards_that_fell_off_the_bus(
    serve: Serve, kmsg: KernelLogFile, tmp_path: Path
) -> None:
    """Xid 79 is one fall off the bus, whatever else is told of it."""
    exporter = serve(*scenario(tmp_path), *kmsg.flags(), "--profile", "standard")
    page = exporter.await_page(_both_up)
    falls = "gpu_off_bus_events_total"
    page = exporter.await_page(lambda p: set(p.by("uuid", falls).values()) == {0.0})
    uuid, pci = next((s.labels["uuid"], s.labels["pci_bus_id"]) for s in page.all("gpu_info"))
    kmsg.xid(79, pci, "GPU has fallen off the bus.")
    exporter.await_page(lambda p: p.value(falls, uuid=uuid) == 1)


def test_records_that_came_while_nobody_read_are_counted_once(
    nvml: Serve, stub: Stub, kmsg: KernelLogFile
) -> None:
    """After kill -9 the log is read on from where it was, and nothing is counted twice."""
    kmsg.xid(79)
    exporter = nvml(*kmsg.flags())
    exporter.await_page(lambda p: _codes(p, ZERO) == {"79": 1.0})
    _kill(exporter)
    kmsg.xid(79)
    kmsg.xid(31, PCI_ONE)
    exporter = nvml(*kmsg.flags())
    page = exporter.await_page(lambda p: _codes(p, ONE) == {"31": 1.0})
    page = exporter.await_page(lambda p: _codes(p, ZERO) == {"79": 2.0})
    assert sum(_classes(page, ZERO).values()) == 2


def test_three_kills_during_a_burst_leave_the_sum_right(nvml: Serve, kmsg: KernelLogFile) -> None:
    """Whenever the process is killed, each line of the burst is counted exactly once."""
    total = 0
    exporter = nvml(*kmsg.flags())
    for _ in range(3):
        for _ in range(10):
            for code in (31, 43, 13):
                kmsg.xid(code, text=f"pid={total}, name=a, Ch {total}")
                total += 1
        exporter.await_page(lambda p: sum(_codes(p, ZERO).values()) > 0)
        for _ in range(10):
            kmsg.xid(45, text=f"pid={total}, name=b, Ch {total}")
            total += 1
        _kill(exporter)
        exporter = nvml(*kmsg.flags())
    page = exporter.await_page(lambda p: sum(_codes(p, ZERO).values()) >= total)
    assert _codes(page, ZERO) == {"31": 30.0, "43": 30.0, "13": 30.0, "45": 30.0}
    assert sum(_classes(page, ZERO).values()) == total


# -- which source tells -----------------------------------------------------------------------


def test_every_class_is_zero_before_anything_happened(nvml: Serve, kmsg: KernelLogFile) -> None:
    """As soon as one source is up each card has all classes, and no series by code."""
    exporter = nvml(*kmsg.flags())
    page = exporter.await_page(lambda p: _both_up(p) and len(p.all(CLASS_COUNT)) == 12)
    assert {s.value for s in page.all(CLASS_COUNT)} == {0.0}
    assert not page.all(CODE_COUNT)
    assert page.source_up("kmsg") == 1


def test_without_a_source_there_is_no_zero(nvml: Serve, stub: Stub) -> None:
    """No kernel log and no driver events: absent, not a zero that nobody watches."""
    stub.error("nvmlDeviceGetSupportedEventTypes", 3)
    exporter = nvml("--kmsg", "off")
    exporter.await_page(_both_up)
    stub.wait_calls("nvmlDeviceGetSupportedEventTypes", 2)
    first = exporter.page().sampled()
    page = exporter.await_page(lambda p: p.sampled().get(ZERO, 0) > first.get(ZERO, 0) + 0.5)
    assert not page.all(CLASS_COUNT)
    assert page.source_up("kmsg") is None
    assert page.source_up("nvml_events") is None


def test_an_event_that_both_sources_tell_counts_once(
    nvml: Serve, stub: Stub, kmsg: KernelLogFile
) -> None:
    """The driver and the kernel log speak of the same Xid, then the driver alone of another."""
    exporter = nvml(*kmsg.flags())
    exporter.await_page(lambda p: p.source_up("nvml_events") == 1 and p.source_up("kmsg") == 1)
    stub.event(0, 31)
    kmsg.xid(31)
    stub.event(1, 43)
    page = exporter.await_page(lambda p: _codes(p, ONE) == {"43": 1.0})
    assert _codes(page, ZERO) == {"31": 1.0}
    (event,) = [e for e in _events(exporter) if e["xid"] == 43]
    assert (event["source"], event["gpu"], event["count"]) == ("nvml", "1", 1)


def test_b40_the_driver_tells_a_part_of_what_the_kernel_log_has(
    nvml: Serve, stub: Stub, kmsg: KernelLogFile
) -> None:
    """The driver tells 45 only, the log 62 and 45: one of each."""
    exporter = nvml(*kmsg.flags())
    exporter.await_page(lambda p: p.source_up("nvml_events") == 1 and p.source_up("kmsg") == 1)
    stub.event(0, 45)
    kmsg.xid(62, text="323f0f30 0000c3d8 00000000 206dae68 206da022 206da190 206d85f6 206d8d86")
    kmsg.xid(45, text="pid=77, name=a, Ch 00000001")
    stub.event(1, 13)
    page = exporter.await_page(lambda p: _codes(p, ONE) == {"13": 1.0})
    assert _codes(page, ZERO) == {"62": 1.0, "45": 1.0}


def test_a_kernel_log_that_is_not_there_is_a_source_that_is_down(
    nvml: Serve, tmp_path: Path
) -> None:
    """The page stays and says so; doctor names the way out."""
    exporter = nvml("--kmsg", str(tmp_path / "nonexistent"))
    page = exporter.await_page(lambda p: _both_up(p) and p.errors("kmsg") == {"not_found"})
    assert page.source_up("kmsg") == 0
    (tmp_path / "dev").mkdir()
    told = run("doctor", "--path.devfs", str(tmp_path / "dev"))
    assert "kmsg" in told.stdout
    assert "There is no" in told.stdout


def test_a_wait_for_events_that_hangs_harms_nothing_else(nvml: Serve, stub: Stub) -> None:
    """The source is down with timeout, readings stay fresh, and the end comes in time."""
    stub.hang("nvmlEventSetWait_v2")
    exporter = nvml("--kmsg", "off")
    page = exporter.await_page(lambda p: p.errors("nvml_events") == {"timeout"})
    assert page.source_up("nvml_events") == 0
    at = page.sampled()[ZERO]
    page = exporter.await_page(lambda p: p.sampled().get(ZERO, 0) > at + 0.5)
    assert page.up() == {ZERO: 1.0, ONE: 1.0}
    assert page.value("cardwatch_child_restarts_total") == 0
    assert exporter.stop() == 0


def test_a_lost_card_makes_no_busy_loop_and_hides_no_other(nvml: Serve, stub: Stub) -> None:
    """The set is made anew without the lost card; events of the others go on coming."""
    exporter = nvml("--kmsg", "off")
    exporter.await_page(lambda p: p.source_up("nvml_events") == 1)
    stub.lost(0)
    exporter.await_page(lambda p: p.states().get(ZERO) == "lost")
    registered = stub.calls(1)["nvmlDeviceRegisterEvents"]
    exporter.await_page(
        lambda p: (
            p.source_up("nvml_events") == 1
            and stub.calls(1)["nvmlDeviceRegisterEvents"] >= registered
        )
    )
    stub.reset_calls()
    at = exporter.page().sampled()[ONE]
    exporter.await_page(lambda p: p.sampled().get(ONE, 0) > at + 2)
    assert stub.calls()["nvmlEventSetWait_v2"] <= 20
    assert stub.calls()["nvmlEventSetCreate"] <= 10
    stub.wait_calls("nvmlEventSetWait_v2", stub.calls()["nvmlEventSetWait_v2"] + 1)
    stub.event(1, 31)
    exporter.await_page(lambda p: _codes(p, ONE) == {"31": 1.0})


def test_a_wait_that_always_fails_at_once_is_not_repeated_without_pause(
    nvml: Serve, stub: Stub
) -> None:
    """An error of every wait costs a few calls, not a processor."""
    stub.error("nvmlEventSetWait_v2", 15)
    exporter = nvml("--kmsg", "off")
    page = exporter.await_page(lambda p: p.errors("nvml_events") == {"gpu_is_lost"})
    at = page.sampled()[ZERO]
    exporter.await_page(lambda p: p.sampled().get(ZERO, 0) > at + 3)
    assert stub.calls()["nvmlEventSetWait_v2"] <= 10
    stub.release()
    exporter.await_page(lambda p: p.source_up("nvml_events") == 1)
    stub.event(1, 31)
    exporter.await_page(lambda p: _codes(p, ONE) == {"31": 1.0})


def test_the_event_source_is_down_while_detached(nvml: Serve, stub: Stub) -> None:
    """Nobody waits for driver events while the driver is let go of."""
    exporter = nvml("--kmsg", "off")
    exporter.await_page(lambda p: p.source_up("nvml_events") == 1)
    exporter.signal(signal.SIGUSR2)
    page = exporter.await_page(lambda p: p.source_up("nvml_events") == 0)
    assert page.errors("nvml_events") == {"detached"}
    exporter.signal(signal.SIGUSR2)
    exporter.await_page(lambda p: p.source_up("nvml_events") == 1)


# -- latches and what opens them ----------------------------------------------------------------


def test_uncorrected_ecc_latches_until_a_reset(serve: Serve, tmp_path: Path) -> None:
    """The growth has its time and pages; a reset seen later ends that."""
    exporter = serve(
        *scenario(
            tmp_path,
            {"at": "2s", "gpu": 0, "fault": "ecc", "type": "uncorrected", "location": "dram"},
            {"at": "7s", "gpu": 0, "fault": "reset"},
            cards=1,
        )
    )
    page = exporter.await_page(lambda p: p.up() and not p.all(ECC_GREW))
    (uuid,) = page.up()
    before = page.value(LAST_RESET, uuid=uuid) or 0
    page = exporter.await_page(lambda p: "ecc_uncorrected" in _conditions(p, uuid))
    grown = page.value(ECC_GREW, uuid=uuid)
    assert grown is not None
    page = exporter.await_page(lambda p: (p.value(LAST_RESET, uuid=uuid) or 0) > before)
    assert (page.value(LAST_RESET, uuid=uuid) or 0) > grown
    exporter.await_page(lambda p: "ecc_uncorrected" not in _conditions(p, uuid))


def test_an_old_uncorrected_count_is_no_growth(serve: Serve, tmp_path: Path) -> None:
    """A count from before anybody looked is a ticket, not a page, and has no time."""
    ecc = {"gpu": 0, "fault": "ecc", "type": "uncorrected", "location": "dram"}
    exporter = serve(*scenario(tmp_path, ecc, cards=1))
    page = exporter.await_page(lambda p: p.all("gpu_health_condition"))
    (uuid,) = page.up()
    assert _conditions(page, uuid) == {"ecc_uncorrected_earlier"}
    assert not page.all(ECC_GREW)


def test_clearing_by_hand_opens_the_latch_of_a_running_exporter(
    nvml: Serve, kmsg: KernelLogFile, tmp_path: Path
) -> None:
    """`events clear` ends xid_critical; an unknown card is refused in one line."""
    exporter = nvml(*kmsg.flags())
    page = exporter.await_page(_both_up)
    before = page.value(LAST_RESET, uuid=ZERO) or 0
    kmsg.xid(79)
    exporter.await_page(lambda p: "xid_critical" in _conditions(p, ZERO))
    state = ("--state-dir", str(tmp_path / "state"))
    wrong = run("events", "clear", "--gpu", "GPU-no-such", *state)
    assert wrong.returncode == 2
    assert wrong.stderr.count("\n") == 1
    assert run("events", "clear", "--gpu", ZERO, *state).returncode == 0
    page = exporter.await_page(lambda p: "xid_critical" not in _conditions(p, ZERO))
    assert (page.value(LAST_RESET, uuid=ZERO) or 0) > before
    assert _codes(page, ZERO) == {"79": 1.0}
    assert exporter.stop() == 0
    exporter = nvml(*kmsg.flags())
    page = exporter.await_page(lambda p: p.value("gpu_health_state", uuid=ZERO) is not None)
    assert "xid_critical" not in _conditions(page, ZERO)


def test_a_new_reading_child_is_no_reset(nvml: Serve, stub: Stub, kmsg: KernelLogFile) -> None:
    """Neither the end of the child nor letting go of the driver settles what happened."""
    exporter = nvml(*kmsg.flags())
    exporter.await_page(_both_up)
    kmsg.xid(79)
    page = exporter.await_page(lambda p: "xid_critical" in _conditions(p, ZERO))
    before = page.by("uuid", LAST_RESET)
    os.kill(exporter.child(), signal.SIGKILL)
    exporter.await_page(lambda p: p.value("cardwatch_child_restarts_total") == 1)
    exporter.await_page(_both_up)
    exporter.signal(signal.SIGUSR2)
    page = exporter.await_page(lambda p: set(p.states().values()) == {"detached"})
    assert "xid_critical" in _conditions(page, ZERO)
    exporter.signal(signal.SIGUSR2)
    page = exporter.await_page(lambda p: _both_up(p) and p.source_up("nvml_events") == 1)
    assert page.by("uuid", LAST_RESET) == before
    assert "xid_critical" in _conditions(page, ZERO)


def test_a_card_that_was_lost_and_answers_again_was_reset(
    nvml: Serve, stub: Stub, kmsg: KernelLogFile
) -> None:
    """Its critical Xid is settled then; that of another card is not."""
    exporter = nvml(*kmsg.flags())
    before = exporter.await_page(_both_up).by("uuid", LAST_RESET)
    kmsg.xid(79)
    kmsg.xid(95, PCI_ONE, "Uncontained: FBHUB. RST: Yes, D-RST: No")
    stub.lost(0)
    exporter.await_page(lambda p: {"lost", "xid_critical"} <= _conditions(p, ZERO))
    stub.release()
    page = exporter.await_page(lambda p: (p.value(LAST_RESET, uuid=ZERO) or 0) > before[ZERO])
    page = exporter.await_page(lambda p: "xid_critical" not in _conditions(p, ZERO))
    assert page.value(LAST_RESET, uuid=ONE) == before[ONE]
    assert "xid_critical" in _conditions(page, ONE)


def test_xid_154_back_to_zero_settles_what_came_before(nvml: Serve, kmsg: KernelLogFile) -> None:
    """The driver itself says in the log that nothing more is to be done."""
    exporter = nvml(*kmsg.flags())
    exporter.await_page(_both_up)
    kmsg.xid(79)
    exporter.await_page(lambda p: "xid_critical" in _conditions(p, ZERO))
    kmsg.xid(154, text="GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
    exporter.await_page(lambda p: "xid_critical" not in _conditions(p, ZERO))


# -- settings -----------------------------------------------------------------------------------


def test_the_config_file_changes_class_and_thresholds(
    nvml: Serve, kmsg: KernelLogFile, tmp_path: Path
) -> None:
    """An override of 31 is on the page; a lower count makes a repeated Xid of two."""
    config = tmp_path / "cardwatch.yaml"
    config.write_text("xid: {31: {class: hardware}}\nhealth: {xid_repeated: {count: 1}}\n")
    exporter = nvml(*kmsg.flags(), "--config", str(config))
    exporter.await_page(_both_up)
    kmsg.xid(31)
    kmsg.xid(48, PCI_ONE)
    page = exporter.await_page(lambda p: _codes(p, ZERO) == {"31": 1.0})
    assert _classes(page, ZERO)["hardware"] == 1
    exporter.await_page(lambda p: _codes(p, ONE) == {"48": 1.0})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("xid: {31: {class: terrible}}", "class"),
        ("xid: {abc: {class: info}}", "abc"),
        ("xid: [31]", "xid"),
        ("health: {no_such: {count: 1}}", "no_such"),
        ("health: {xid_repeated: {hold: 5}}", "hold"),
        ("health: {thermal_slowdown: {hardware_share: 2}}", "hardware_share"),
    ],
)
def test_a_wrong_override_is_one_line(text: str, named: str, tmp_path: Path) -> None:
    """File, key and what is allowed in one line, exit status 2 for serve and 3 for health."""
    config = tmp_path / "cardwatch.yaml"
    config.write_text(text + "\n")
    told = run("serve", "--listen", "127.0.0.1:0", "--config", str(config))
    assert told.returncode == 2
    assert told.stderr.count("\n") == 1, told.stderr
    assert named in told.stderr
    assert str(config) in told.stderr
    assert run("health", "--local", "--config", str(config)).returncode == 3


# -- cardwatch health ---------------------------------------------------------------------------


def test_health_asks_the_running_exporter(nvml: Serve, kmsg: KernelLogFile) -> None:
    """0 while all is well, 0 or 1 for a ticket as --fail-on says, 1 for a page."""
    exporter = nvml(*kmsg.flags())
    exporter.await_page(lambda p: set(p.by("uuid", "gpu_health_state").values()) == {0.0})
    url = ("--url", f"http://127.0.0.1:{exporter.port}")
    well = run("health", *url)
    assert (well.returncode, well.stdout.splitlines()[0]) == (0, "OK: 2 cards")
    kmsg.xid(63, PCI_ONE, "Row Remapper: New row marked for remapping, reset gpu to activate.")
    kmsg.xid(92, PCI_ONE, "High single-bit ECC error rate")
    exporter.await_page(lambda p: p.value("gpu_health_state", uuid=ONE) not in (0, 3, None))
    assert run("health", *url).returncode == 0
    ticket = run("health", *url, "--fail-on", "ticket")
    assert ticket.returncode == 1
    assert ticket.stdout.startswith("TICKET: gpu 1: ")
    kmsg.xid(79)
    exporter.await_page(lambda p: p.value("gpu_health_state", uuid=ZERO) == 3)
    page = run("health", *url)
    assert page.returncode == 1
    assert page.stdout.startswith("PAGE: gpu 0: ")
    document = json.loads(run("health", *url, "--format", "json").stdout)
    assert document["gpus"][0]["state"] == 3


def test_health_can_look_for_itself(serve: Serve, kmsg: KernelLogFile, tmp_path: Path) -> None:
    """Without an exporter it reads the cards and what the journal has kept."""
    sim = scenario(tmp_path)
    state = ("--state-dir", str(tmp_path / "state"))
    well = run("health", "--local", *sim, *state)
    assert well.returncode == 0, well.stdout + well.stderr
    exporter = serve(*sim, *kmsg.flags())
    page = exporter.await_page(_both_up)
    kmsg.xid(79, page.all("gpu_info")[0].labels["pci_bus_id"])
    exporter.await_page(lambda p: p.all(CODE_COUNT, xid="79"))
    assert exporter.stop() == 0
    told = run("health", "--local", *sim, *state)
    assert told.returncode == 1
    assert told.stdout.startswith("PAGE: ")


@pytest.mark.parametrize(
    "words", [("--no-such-flag",), ("--fail-on", "never"), ("--interval", "5"), ("stray",)]
)
def test_wrong_usage_of_health_is_unknown(words: tuple[str, ...]) -> None:
    """A scheduler must not take a typing error for a broken or a healthy node."""
    told = run("health", *words)
    assert told.returncode == 3
    assert told.stderr.count("\n") == 1


def test_health_does_not_answer_for_another_exporter(serve: Serve, tmp_path: Path) -> None:
    """Where the one that was asked for is not there, the answer is unknown, not this machine's."""
    exporter = serve(*scenario(tmp_path))
    url = f"http://127.0.0.1:{exporter.port}"
    assert exporter.stop() == 0
    told = run("health", "--url", url, *scenario(tmp_path))
    assert told.returncode == 3
    assert told.stdout == f"UNKNOWN: no exporter answers at {url}\n"


def test_health_is_unknown_while_the_driver_is_away(stub: Stub, tmp_path: Path) -> None:
    """No answer is neither healthy nor a fault of a card."""
    stub.error("everything", 9)
    told = run(
        "health", "--local", "--backend", "nvml", "--state-dir", str(tmp_path / "s"),
        env=stub.env(),
    )  # fmt: skip
    assert told.returncode == 3
    assert told.stdout.startswith("UNKNOWN: ")


# -- switches, strangers, and what must not happen ------------------------------------------------


def test_switch_errors_have_series_of_their_own(
    nvml: Serve, kmsg: KernelLogFile, tmp_path: Path
) -> None:
    """Severities are 0 from the start where a switch is plugged in, then each error counts."""
    sysfs = tmp_path / "with-switch"
    pci_device(sysfs, "0000:c1:00.0", device_class="0x068000")
    exporter = nvml(*kmsg.flags(), "--path.sysfs", str(sysfs))
    severity = "nvswitch_sxid_severity_errors_total"
    page = exporter.await_page(lambda p: p.all(severity))
    assert page.by("severity", severity) == {"fatal": 0.0, "nonfatal": 0.0, "correctable": 0.0}
    assert not page.all("nvswitch_sxid_errors_total")
    kmsg.add(
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 46 sourcetrack TCEN0 crubmstore ECC DBE",  # noqa: E501
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 24007, Severity 1 Engine instance 46",
    )
    page = exporter.await_page(lambda p: p.all("nvswitch_sxid_errors_total"))
    (sample,) = page.all("nvswitch_sxid_errors_total")
    assert sample.value == 1
    assert sample.labels["nvswitch"] == "nvidia-nvswitch0"
    assert (sample.labels["sxid"], sample.labels["severity"]) == ("24007", "fatal")
    assert page.value("nvswitch_sxid_last_timestamp_seconds", sxid="24007") is not None
    assert page.by("severity", severity)["fatal"] == 1


def test_without_a_switch_there_are_no_switch_series(nvml: Serve, kmsg: KernelLogFile) -> None:
    """A node without switches has none of their zeros."""
    exporter = nvml(*kmsg.flags())
    page = exporter.await_page(lambda p: _both_up(p) and p.source_up("kmsg") == 1)
    assert not page.all("nvswitch_sxid_severity_errors_total")


def test_a_card_that_nobody_knows_has_its_place_for_a_name(
    nvml: Serve, kmsg: KernelLogFile
) -> None:
    """An Xid at an address where no card is listed is counted under that address."""
    exporter = nvml(*kmsg.flags())
    exporter.await_page(_both_up)
    kmsg.xid(79, "0000:aa:00")
    page = exporter.await_page(lambda p: _codes(p, "pci-0000:aa:00") == {"79": 1.0})
    assert _classes(page, "pci-0000:aa:00")["critical"] == 1
    assert _codes(page, ZERO) == {}


def test_the_healthy_page_keeps_to_its_budget(serve: Serve, tmp_path: Path) -> None:
    """At most 50 series for a healthy card in core and 120 in standard."""
    for profile, most in (("core", 50), ("standard", 120)):
        exporter = serve(*scenario(tmp_path, cards=1), "--profile", profile)
        page = exporter.await_page(lambda p: p.all(CLASS_COUNT) and p.all("gpu_health_state"))
        (uuid,) = page.up()
        series = [
            s for found in page.samples.values() for s in found if s.labels.get("uuid") == uuid
        ]
        assert len(series) <= most
        assert exporter.stop() == 0


def test_replay_reads_no_kernel_log(serve: Serve, stub: Stub, tmp_path: Path) -> None:
    """What this machine logs has nothing to do with cards that were captured elsewhere."""
    capture = tmp_path / "capture.json"
    made = run("capture", "--backend", "nvml", "-o", str(capture), env=stub.env())
    if made.returncode == 2:
        made = run("capture", "--backend", "nvml", str(capture), env=stub.env())
    assert made.returncode == 0, made.stderr
    exporter = serve("--backend", "replay", "--capture", str(capture))
    page = exporter.await_page(lambda p: 1.0 in p.up().values())
    assert page.source_up("kmsg") is None


def test_other_commands_leave_the_journal_of_a_running_exporter_alone(
    serve: Serve, tmp_path: Path
) -> None:
    """A snapshot of the same simulated node writes no events into the log that serve reads."""
    sim = scenario(tmp_path, {"at": "10ms", "gpu": 0, "fault": "xid", "code": 79})
    exporter = serve(*sim)
    exporter.await_page(lambda p: p.all(CODE_COUNT, xid="79"))
    state = tmp_path / "state"
    log = next(path for path in state.rglob("kmsg"))
    before = log.read_bytes()
    assert run("snapshot", *sim, "--state-dir", str(state)).returncode == 0
    assert run("health", "--local", *sim, "--state-dir", str(state)).returncode in (0, 1)
    assert log.read_bytes() == before
    at = max(exporter.page().sampled().values(), default=0)
    page = exporter.await_page(lambda p: max(p.sampled().values(), default=0) > at)
    assert page.all(CODE_COUNT, xid="79")[0].value == 1
    assert page.source_up("journal") == 1


def test_a_second_exporter_does_not_write_into_the_journal_of_the_first(
    nvml: Serve, kmsg: KernelLogFile
) -> None:
    """It shows what is there, says that it cannot keep more, and doubles nothing."""
    kmsg.xid(79)
    first = nvml(*kmsg.flags())
    first.await_page(lambda p: _codes(p, ZERO) == {"79": 1.0} and p.source_up("journal") == 1)
    second = nvml(*kmsg.flags())
    page = second.await_page(lambda p: p.source_up("journal") == 0 and _codes(p, ZERO))
    assert _codes(page, ZERO) == {"79": 1.0}
    assert second.stop() == 0
    kmsg.xid(79)
    page = first.await_page(lambda p: _codes(p, ZERO) == {"79": 2.0})
    assert first.stop() == 0
    third = nvml(*kmsg.flags())
    page = third.await_page(lambda p: _codes(p, ZERO))
    assert _codes(page, ZERO) == {"79": 2.0}
