# SPDX-License-Identifier: Apache-2.0
"""Cases of kind nvml from the shared list of public reports, each under its id.

Each goes through the command, the reading child, the real binding and the C
stand-in. What a case expects of alerts, events or verdicts is tested where
those are.
"""

from __future__ import annotations

import re
import stat
from typing import Any

import pytest

from cardwatch.families import BY_NAME, events, ranges
from cardwatch.families.record import Family
from cases.node import UUID, Node
from e2e.harness import Page
from nvml.through_library import Reader, rows, value

pytestmark = pytest.mark.timeout(90)

FIRST, SECOND = UUID.format(1), UUID.format(2)
MIB = 2**20


EVENT_BORN = {family.name for family in events.FAMILIES}


def readings(page: Page, uuid: str) -> set[str]:
    """Return the families of a card's readings on the page: what calls told at the last pass."""
    return {
        name for name, samples in page.samples.items()
        if name in BY_NAME and "nvml" in BY_NAME[name].sources
        and name not in EVENT_BORN | {"gpu_info"}
        and any(s.labels.get("uuid") == uuid for s in samples)
    }  # fmt: skip


def error_counts(page: Page) -> dict[tuple[str, str], float]:
    """Return counted reading errors by reading and error."""
    return {
        (s.labels["reading"], s.labels["error"]): s.value
        for s in page.all("cardwatch_reading_errors_total")
    }


def test_b01_a_card_without_memory_of_its_own(node: Node) -> None:
    """GB10: both memory calls are NOT_SUPPORTED, everything else works, and memory is not 0."""
    stub = node.cards(like="gb10", count=1)
    stub.set("nvmlSystemGetDriverVersion", "580.173.02")
    stub.set("nvmlDeviceGetPciInfo_v3", "0000000F:01:00.0 0x2E1210DE 0x0", gpu=0)
    stub.set("nvmlDeviceGetUtilizationRates", (0, 0))
    stub.set("nvmlDeviceGetPowerUsage", 11170)
    stub.set("nvmlDeviceGetTemperature 0", 35)
    page = node.page("--profile", "full")
    assert page.up() == {FIRST: 1}
    assert page.value("gpu_utilization_ratio") == 0
    assert page.value("gpu_power_watts") == 11.17
    assert page.value("gpu_temperature_celsius") == 35
    assert not [name for name in page.samples if name.startswith("gpu_memory_") and "bytes" in name]
    assert page.by("pci_bus_id", "gpu_info") == {"000f:01:00": 1}
    assert error_counts(page) == {}


def test_b03_what_a_card_lacks_is_no_error(node: Node) -> None:
    """A fan or ECC that a card does not have costs nothing else, no error count and no log line."""
    stub = node.cards(like="geforce", count=2)
    for key in ("nvmlDeviceGetNumFans", "nvmlDeviceGetFanSpeed",
                "nvmlDeviceGetFanSpeed_v2 0", "nvmlDeviceGetFanSpeed_v2 1"):  # fmt: skip
        stub.unset(key)
    for gpu, name, celsius, milliwatts in (
        (0, "Tesla K80", 37, 27000), (1, "NVIDIA GeForce RTX 3090", 28, 31000),
    ):  # fmt: skip
        stub.set("nvmlDeviceGetName", name, gpu=gpu)
        stub.set("nvmlDeviceGetTemperature 0", celsius, gpu=gpu)
        stub.set("nvmlDeviceGetPowerUsage", milliwatts, gpu=gpu)
    stub.set("nvmlDeviceGetEccMode", (0, 0), gpu=0)
    stub.set("nvmlDeviceGetFanSpeed", 30, gpu=1)
    page = node.page()
    assert page.up() == {FIRST: 1, SECOND: 1}
    assert page.by("uuid", "gpu_temperature_celsius") == {FIRST: 37, SECOND: 28}
    assert page.by("uuid", "gpu_power_watts") == {FIRST: 27, SECOND: 31}
    assert page.by("uuid", "gpu_fan_speed_ratio") == {SECOND: 0.3}
    assert page.by("uuid", "gpu_ecc_mode_enabled") == {FIRST: 0}
    assert not {n for n in readings(page, SECOND) if "ecc" in n or "remap" in n or "retired" in n}
    assert page.by("status", "cardwatch_readings", uuid=SECOND)["failed"] == 0
    assert error_counts(page) == {}
    assert node.log == ""


def test_b04_one_handle_of_four_is_refused(node: Node) -> None:
    """The card with the unknown error is down under its UUID; its neighbours are complete."""
    stub = node.cards(like="h100_node", count=4)
    whole = node.page()
    stub.error("nvmlDeviceGetHandleByIndex_v2", 999, gpu=2)
    page = node.page()
    third = UUID.format(3)
    assert page.up() == {UUID.format(n): int(n != 3) for n in (1, 2, 3, 4)}
    assert page.states()[third] == "unreadable"
    assert page.all("gpu_up", gpu="2", uuid=third)
    assert page.all("gpu_info", uuid=third, model="H100 80GB HBM3")
    assert error_counts(page) == {("card", "unknown"): 1}
    assert readings(page, third) == set()
    for number in (1, 2, 4):
        assert readings(page, UUID.format(number)) == readings(whole, UUID.format(number))


def test_b06_the_library_was_upgraded_under_the_module(node: Node) -> None:
    """A mismatch of library and module is the source's error; no card is called broken by it."""
    stub = node.cards(like="h100_node", count=2)
    driver = node.directory / "proc/driver/nvidia"
    driver.mkdir(parents=True)
    (driver / "version").write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  460.56  Tue Feb 23 23:31:47 UTC 2021\n"
        "GCC version:  gcc version 9.3.0\n"
    )
    stub.error("everything", 18)
    page = node.page(status=1)
    assert page.source_up() == 0
    assert page.errors() == {"driver_library_mismatch"}
    assert page.by("driver_version", "gpu_node_info") == {"460.56": 1}
    assert page.all("gpu_up") == []
    assert page.value("gpu_node_detected_gpus") == 2
    assert "driver_library_mismatch" in node.log


def test_b08_the_container_lost_its_devices(node: Node) -> None:
    """Every call answers "unknown": readings go at once, the source says why, nothing is stale."""
    stub = node.cards(like="h100_node", count=2)
    exporter = node.serve()
    before = exporter.await_page(lambda p: p.source_up() == 1 and len(p.up()) == 2)
    assert readings(before, FIRST)
    stub.error("everything", 999)
    page = exporter.await_page(lambda p: p.source_up() == 0)
    assert page.errors() == {"unknown_error"}
    assert page.up() == {FIRST: 0, SECOND: 0}
    assert set(page.states().values()) == {"unreadable"}
    assert readings(page, FIRST) == readings(page, SECOND) == set()
    assert len(page.all("gpu_info")) == 2

    def age(page: Page) -> float:
        last = page.value("cardwatch_source_last_success_timestamp_seconds", source="gpu")
        now = page.value("cardwatch_time_seconds")
        assert last is not None
        assert now is not None
        return now - last

    since = age(page)
    exporter.await_page(lambda p: age(p) > since)
    assert exporter.get("/healthz").status == 200
    assert exporter.get("/readyz").status == 503
    stub.release()
    back = exporter.await_page(lambda p: p.source_up() == 1)
    assert back.errors() == set()


def test_b10_the_driver_is_installed_later(node: Node) -> None:
    """Without the library the exporter says so once, and needs no restart when it comes."""
    stub = node.cards(like="h100_node", count=2)
    away = stub.library.with_suffix(".away")
    stub.library.replace(away)
    exporter = node.serve()
    page = exporter.await_page(lambda p: p.errors() == {"library_not_found"})
    assert page.source_up() == 0
    assert page.all("gpu_up") == []
    away.replace(stub.library)
    page = exporter.await_page(lambda p: p.up() == {FIRST: 1, SECOND: 1})
    assert page.source_up() == 1
    assert page.errors() == set()
    assert exporter.log().count("library_not_found") == 1


def test_b11_an_impossible_temperature_with_success(node: Node) -> None:
    """All bits set is no temperature: not exported, counted, and the zeros beside it stand."""
    stub = node.cards(like="h100_node", count=1)
    stub.set("nvmlDeviceGetTemperature 0", 0xFFFFFFFF)
    stub.set("nvmlDeviceGetUtilizationRates", (0, 0))
    stub.set("nvmlDeviceGetPowerUsage", 0)
    page = node.page()
    assert page.all("gpu_temperature_celsius") == []
    assert error_counts(page) == {("temperature", "out_of_range"): 1}
    assert page.value("gpu_power_watts") == 0
    assert page.value("cardwatch_readings", status="failed") == 1
    stub.missing("nvmlDeviceGetTemperatureV")  # the older call is unsigned
    page = node.page()
    assert page.all("gpu_temperature_celsius") == []
    assert error_counts(page) == {("temperature", "out_of_range"): 1}


def test_b12_a_spike_among_percentages(node: Node) -> None:
    """Of six samples the four percentages are exported, and the two spikes are invalid readings."""
    stub = node.cards(like="h100_node", count=1)
    exported: list[float | None] = []
    invalid = 0
    with Reader(stub) as reader:
        reader.open()
        for percent in (97, 98, 4294967295, 97, 2619, 98):
            stub.set("nvmlDeviceGetUtilizationRates", (percent, 50))
            (sample,) = reader.read()
            exported.append(value(sample, "gpu_utilization_ratio"))
            invalid += sample["faults"].get("gpu_utilization_ratio") == "out_of_range"
            assert sample["up"]
    assert exported == [0.97, 0.98, None, 0.97, None, 0.98]
    assert invalid == 2


BLANKS = {  # a value of each kind as DCGM leaves it blank, in the unit of the family
    "gpu_nvlink_transmit_bytes_total": 9223372036854775792,
    "gpu_pcie_receive_bytes_total": 9223372036854775794,
    "gpu_pcie_replays_total": 2147483632,
    "gpu_sm_active_ratio": 140737488355328.0,
    "gpu_tensor_active_ratio": 140737488355328.0,
    "gpu_power_watts": 140737488355328.0,
    "gpu_temperature_celsius": 2147483632,
    "gpu_ecc_errors_total": 9223372036854775792,
    "gpu_memory_used_bytes": 9223372036854775792,
    "gpu_energy_joules_total": 9223372036854775792 / 1000,
    "gpu_throttle_seconds_total": 9223372036854775792 / 1e9,
}


@pytest.mark.parametrize("name", BLANKS)
@pytest.mark.parametrize("step", range(4))  # blank, not found, not supported, not permitted
def test_b13_a_blank_of_dcgm_is_outside_the_accepted_range(name: str, step: int) -> None:
    """No kind of blank lies in the range of its family; a real 0 does."""
    low, high = accepted(BY_NAME[name])
    assert not low <= BLANKS[name] + step <= high
    if name == "gpu_memory_used_bytes":
        assert low <= 0 <= high


def accepted(family: Family) -> ranges.Range:
    """Return the range of a family, which it must have."""
    assert family.accept is not None
    return family.accept


def test_b14_a_card_in_slices(node: Node) -> None:
    """With MIG on utilization is absent, the card's readings stand once, instances have memory."""
    stub = node.cards(like="a100_mig", count=1)
    stub.set("nvmlDeviceGetName", "NVIDIA A800-SXM4-80GB")
    stub.set("nvmlDeviceGetPowerUsage", 87000)
    stub.set("nvmlDeviceGetTemperature 0", 33)
    for key in ("UUID", "Name", "GpuInstanceId", "ComputeInstanceId", "Attributes_v2",
                "MemoryInfo_v2", "BAR1MemoryInfo", "ComputeRunningProcesses_v3"):  # fmt: skip
        stub.unset(f"nvmlDeviceGet{key}", gpu=(0, 1))
    instance = "MIG-bbbbbbbb-0000-4000-8000-000000000001"
    stub.set("nvmlDeviceGetUUID", instance, gpu=(0, 0))
    stub.set("nvmlDeviceGetMemoryInfo_v2", (40192 * MIB, 0, 40191 * MIB, 1048576), gpu=(0, 0))
    page = node.page("--profile", "full")
    assert not [name for name in page.samples if "utilization" in name]
    assert [s.value for s in page.all("gpu_temperature_celsius")] == [33]
    assert [s.value for s in page.all("gpu_power_watts")] == [87]
    assert page.up() == {FIRST: 1}
    (used,) = page.all("gpu_mig_memory_used_bytes")
    assert used.value == 1048576
    assert used.labels.items() >= {
        "uuid": FIRST, "mig_uuid": instance, "gpu_instance": "1", "compute_instance": "0",
        "profile": "3g.40gb",
    }.items()  # fmt: skip
    assert len(page.all("gpu_mig_info")) == 1


def test_b16_indexes_swap_over_a_reboot(node: Node) -> None:
    """Series go by UUID: the lifetime errors of each card stay its own when indexes swap."""
    stub = node.cards(like="h100_node", count=2)
    key = "nvmlDeviceGetMemoryErrorCounter 1 1 2"
    stub.set(key, 7, gpu=1)

    def lifetime(page: Page) -> dict[str, float]:
        return page.by("uuid", "gpu_ecc_lifetime_errors_total", type="uncorrected", location="dram")

    before = node.page()
    stub.set("order", (1, 0))
    after = node.page()
    assert lifetime(before) == lifetime(after) == {FIRST: 0, SECOND: 7}
    assert {s.labels["uuid"]: s.labels["gpu"] for s in before.all("gpu_up")} == {
        FIRST: "0", SECOND: "1",
    }  # fmt: skip
    assert {s.labels["uuid"]: s.labels["gpu"] for s in after.all("gpu_up")} == {
        FIRST: "1", SECOND: "0",
    }  # fmt: skip


def test_b18_an_old_driver_lacks_symbols(node: Node) -> None:
    """Missing symbols cost their own series at most; older calls stand in where there are any."""
    stub = node.cards(like="h100_node", count=1)
    whole = readings(node.page("--profile", "full"), FIRST)
    stub.set("nvmlSystemGetDriverVersion", "450.36.06")
    stub.missing("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMemoryInfo_v2",
                 "nvmlDeviceGetMarginTemperature")  # fmt: skip
    page = node.page("--profile", "full")
    assert whole - readings(page, FIRST) == {
        "gpu_memory_reserved_bytes", "gpu_temperature_margin_celsius",
    }  # fmt: skip
    assert page.value("gpu_process_count") == 1
    assert page.value("gpu_memory_used_includes_reserved") == 1
    assert page.up() == {FIRST: 1}
    assert error_counts(page) == {}


def test_b20_a_name_that_is_no_text(node: Node) -> None:
    """A device name that is not UTF-8 gives a valid page with replacement characters."""
    stub = node.cards(like="geforce", count=1)
    stub.set("nvmlSystemGetDriverVersion", "555.85")
    stub.set("nvmlDeviceGetName", bytes.fromhex("f8fd0a4e564944494120"))
    page = node.page()
    assert page.by("model", "gpu_info") == {"\ufffd\ufffdNVIDIA": 1}
    assert page.value("gpu_power_watts") == 371
    assert page.by("driver_version", "gpu_node_info") == {"555.85": 1}


def test_b25_a_card_of_which_nothing_reads(node: Node) -> None:
    """A Jetson is up, exports no zeros, and says that no reading is readable."""
    stub = node.cards(like="gb10", count=1)
    with stub.batch():
        for line in stub.text().splitlines():
            name = re.match(r"\* (nvmlDevice\w+(?: \d+)*|field \d+(?: scope \d+)?) =", line)
            if name:
                stub.unset(name[1])
        for kind in ("Compute", "Graphics", "MPSCompute"):
            stub.unset(f"nvmlDeviceGet{kind}RunningProcesses_v3", gpu=0)
        stub.set("nvmlDeviceGetName", "Orin (nvgpu)")
    page = node.page("--profile", "full")
    assert page.up() == {FIRST: 1}
    assert page.states() == {FIRST: "ok"}
    assert readings(page, FIRST) == set()
    counts = page.by("status", "cardwatch_readings", uuid=FIRST)
    assert (counts["ok"], counts["failed"], counts["denied"]) == (0, 0, 0)
    assert counts["unsupported"] > 40
    assert error_counts(page) == {}


def test_b26_the_driver_asks_for_a_reset_of_the_last_of_fifteen(node: Node) -> None:
    """All fifteen cards are exported, and the recovery action singles out the one."""
    stub = node.cards(like="geforce", count=15)
    stub.field(230, 0, value_type=1)
    stub.field(230, 1, gpu=14, value_type=1)
    stub.set("nvmlDeviceGetFanSpeed_v2 0", 30, gpu=13)
    stub.set("nvmlDeviceGetTemperature 0", 33, gpu=13)
    stub.error("nvmlDeviceGetFanSpeed_v2", 999, gpu=14)
    stub.set("nvmlDeviceGetTemperature 0", 68, gpu=14)
    stub.set("nvmlDeviceGetUtilizationRates", (93, 40), gpu=14)
    stub.set("nvmlDeviceGetPowerUsage", 99_000, gpu=14)
    page = node.page()
    assert page.up() == {UUID.format(n + 1): 1 for n in range(15)}
    actions = {s.labels["gpu"]: s.value for s in page.all("gpu_recovery_action")}
    assert actions == {str(n): int(n == 14) for n in range(15)}
    last = UUID.format(15)
    assert page.all("gpu_recovery_action", gpu="14", uuid=last)
    assert page.value("gpu_temperature_celsius", uuid=last) == 68
    assert page.value("gpu_utilization_ratio", uuid=last) == 0.93
    assert page.value("gpu_power_watts", uuid=last) == 99
    assert page.all("gpu_fan_speed_ratio", uuid=last) == []
    assert page.value("gpu_fan_speed_ratio", uuid=UUID.format(14), fan="0") == 0.3
    fans = page.all("cardwatch_reading_errors_total", uuid=last, reading="fan_speed")
    assert [s.labels["error"] for s in fans] == ["unknown"]


def test_b29_a_negative_margin_is_only_a_number(node: Node) -> None:
    """The margin is exported as it is, in full only, and nothing else changes because of it."""
    stub = node.cards(like="h100_node", count=1)
    stub.set("nvmlDeviceGetTemperature 0", 45)
    stub.set("nvmlDeviceGetMarginTemperature", -5)
    stub.set("nvmlDeviceGetTemperatureThreshold 1", 87)
    stub.set("nvmlDeviceGetCurrentClocksEventReasons", 0)
    page = node.page("--profile", "full")
    assert page.value("gpu_temperature_margin_celsius") == -5
    assert page.value("gpu_temperature_celsius") == 45
    assert page.value("gpu_temperature_threshold_celsius", threshold="slowdown") == 87
    assert set(page.by("reason", "gpu_throttle_reason_active").values()) == {0}
    assert page.states() == {FIRST: "ok"}
    assert error_counts(page) == {}
    assert node.page().all("gpu_temperature_margin_celsius") == []


def test_b30_average_and_instant_power_have_two_names(node: Node) -> None:
    """Both powers are exported under their own names, and the help says which is which."""
    stub = node.cards(like="a100_mig", count=1)
    stub.set("nvmlDeviceGetPowerUsage", 310_000)
    stub.field(185, 310_000, scope=0, value_type=1)
    stub.field(186, 402_000, scope=0, value_type=1)
    page = node.page()
    assert page.value("gpu_power_watts") == 310
    assert page.value("gpu_power_instant_watts") == 402
    assert page.value("gpu_energy_joules_total") is not None
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", page.text, re.MULTILINE))
    assert "average" in helps["gpu_power_watts"]
    assert "not averaged" in helps["gpu_power_instant_watts"]


def test_b38_one_card_of_eight_has_lost_its_links(node: Node) -> None:
    """The card without active links shows 0 beside the 18 that its peers have."""
    stub = node.cards(like="b200", count=8)
    with stub.batch():
        for link in range(18):
            stub.field(165, 0, gpu=2, scope=link, value_type=1)
            stub.set(f"nvmlDeviceGetNvLinkState {link}", 0, gpu=2)
    page = node.page("--profile", "core")
    active = {s.labels["gpu"]: s.value for s in page.all("gpu_nvlink_active_links")}
    expected = {s.labels["gpu"]: s.value for s in page.all("gpu_nvlink_expected_links")}
    assert active == {str(n): 0 if n == 2 else 18 for n in range(8)}
    assert expected == {str(n): 18 for n in range(8)}


def test_b39_nvidia_smi_is_never_run(node: Node) -> None:
    """The CUDA version comes from a call; a tool whose text changes has no part in it."""
    stub = node.cards(like="h100_node", count=1)
    tools = node.directory / "bin"
    tools.mkdir()
    tool = tools / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ntouch {node.directory}/was-run\necho garbage\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    for driver, cuda, shown in (("560.35.03", 12060, "12.6"), ("610.43.03", 13020, "13.2")):
        stub.set("nvmlSystemGetDriverVersion", driver)
        stub.set("nvmlSystemGetCudaDriverVersion_v2", cuda)
        page = Page(node.snapshot("prometheus", path=str(tools)))
        assert page.by("cuda_driver_version", "gpu_node_info") == {shown: 1}
        assert page.by("driver_version", "gpu_node_info") == {driver: 1}
    assert not (node.directory / "was-run").exists()


def test_b41_one_good_sensor_does_not_prove_a_card(node: Node) -> None:
    """After a crash of the card's firmware it is down, and what still reads stays on the page."""
    stub = node.cards(like="h100_node", count=1)
    for function in ("UtilizationRates", "ClockInfo", "PowerUsage"):
        stub.error(f"nvmlDeviceGet{function}", 999)
    stub.error("field 186", 999)
    stub.set("nvmlDeviceGetTemperature 0", 44)
    stub.set("nvmlDeviceGetMemoryInfo_v2", (81559 * MIB, 551 * MIB, 67_000_000_000, 14_000_000_000))
    stub.set("nvmlDeviceGetComputeRunningProcesses_v3", "", gpu=0)
    stub.field(230, 1, value_type=1)
    page = node.page(status=1)
    assert page.up() == {FIRST: 0}
    assert page.states() == {FIRST: "unreadable"}
    assert page.value("gpu_temperature_celsius") == 44
    assert page.value("gpu_memory_used_bytes") == 14_000_000_000
    assert page.value("gpu_process_count") == 0
    assert page.value("gpu_recovery_action") == 1
    for family in ("gpu_utilization_ratio", "gpu_clock_hertz", "gpu_power_watts",
                   "gpu_power_instant_watts"):  # fmt: skip
        assert page.all(family) == []
    assert error_counts(page)["utilization", "unknown"] == 1


def test_b41_when_no_field_reads_any_more_either(node: Node) -> None:
    """A card read before that then answers almost nothing still gives its sample at each pass."""
    stub = node.cards(like="h100_node", count=1)
    with Reader(stub) as reader:
        reader.open()
        assert reader.read()[0]["up"]
        stub.error("everything", 999, gpu=0)
        for function in ("HandleByIndex_v2", "UUID", "Temperature", "TemperatureV"):
            stub.exempt(f"nvmlDeviceGet{function}", gpu=0)
        (sample,) = reader.read()
    assert (sample["up"], sample["state"]) == (False, "unreadable")
    assert value(sample, "gpu_temperature_celsius") == 58
    assert sample["info"]["model"] == "H100 80GB HBM3"
    dynamic = {name for name in sample["rows"] if name != "gpu_temperature_celsius"}
    assert all(_is_fact(name) for name in dynamic), dynamic
    assert rows(sample, "gpu_throttle_seconds_total") == {}


def _is_fact(family: str) -> bool:
    """Say whether a family is a limit by design, known from an earlier pass."""
    words = ("_max", "_min_", "_default_", "_threshold_", "_supported_")
    return any(word in family for word in words)


# ---- processes -----------------------------------------------------------------------------------


def test_b21_names_of_processes_are_not_taken_from_the_driver(node: Node) -> None:
    """The page is valid UTF-8 and counts the process whose name the driver garbles."""
    stub = node.cards(like="geforce", count=1)
    stub.set("nvmlDeviceGetComputeRunningProcesses_v3", [(4242, 5 * MIB)], gpu=0)
    stub.set("nvmlDeviceGetGraphicsRunningProcesses_v3", "", gpu=0)
    page = node.page("--profile", "full")
    assert page.value("gpu_process_count") == 1
    assert "nvmlSystemGetProcessName" not in stub.calls()


def test_b22_processes_that_do_not_exist_here_count_all_the_same(node: Node) -> None:
    """Pids of the host that this namespace lacks, or that just ended, are counted; all is well."""
    stub = node.cards(like="h100_node", count=1)
    processes: list[tuple[Any, ...]] = [(2**22 + 1, 1061158912), (2**22 + 2, 1048576)]
    stub.set("nvmlDeviceGetComputeRunningProcesses_v3", processes, gpu=0)
    page = node.page("--profile", "full")
    assert page.value("gpu_process_count") == 2
    assert page.up() == {FIRST: 1}
    assert page.states() == {FIRST: "ok"}
    assert error_counts(page) == {}
    assert node.log == ""
