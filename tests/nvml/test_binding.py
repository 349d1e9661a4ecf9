# SPDX-License-Identifier: Apache-2.0
"""From the library to the sample: the real binding over the C stand-in, in a process of its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from cardwatch.families import BY_NAME, events
from nvml.through_library import Reader, Sample, read_once, rows, value
from nvml_c import Stub, compile_c

pytestmark = pytest.mark.timeout(60)

MIB = 2**20
MHZ = 10**6
ALL_LINKS = 0xFFFFFFFF
UNKNOWN_MEMORY = 2**64 - 1

# ---- every family of a healthy H100 --------------------------------------------------------------

LINKS = {str(link): 1 for link in range(18)}

# What the stub is told beyond its preset, so that no two numbers of a kind are alike.
# (key, value, type of a field); the types are those of the driver.
SETTINGS: list[tuple[str, Any, int | None]] = [
    ("nvmlDeviceGetUtilizationRates", (97, 61), None),
    ("nvmlDeviceGetEncoderUtilization", (11, 167_000), None),
    ("nvmlDeviceGetDecoderUtilization", (12, 167_000), None),
    ("nvmlDeviceGetJpgUtilization", (13, 167_000), None),
    ("nvmlDeviceGetOfaUtilization", (14, 167_000), None),
    *((f"nvmlDeviceGetClockInfo {kind}", 1000 + kind, None) for kind in range(4)),
    *((f"nvmlDeviceGetMaxClockInfo {kind}", 2000 + kind, None) for kind in range(4)),
    ("nvmlDeviceGetPerformanceState", 2, None),
    ("nvmlDeviceGetPowerUsage", 612_345, None),
    ("nvmlDeviceGetEnforcedPowerLimit", 650_000, None),
    ("nvmlDeviceGetPowerManagementLimit", 690_500, None),
    ("nvmlDeviceGetPowerManagementDefaultLimit", 700_000, None),
    ("nvmlDeviceGetPowerManagementLimitConstraints", (200_000, 710_000), None),
    ("nvmlDeviceGetTotalEnergyConsumption", 981_234_567_890_123, None),
    ("field 186 scope 0", 615_001, 1),
    ("field 186 scope 1", 915_002, 1),
    ("nvmlDeviceGetTemperature 0", 58, None),
    ("field 82", 67, 1),
    *((f"nvmlDeviceGetTemperatureThreshold {kind}", 90 + kind, None) for kind in range(4)),
    ("nvmlDeviceGetMarginTemperature", -3, None),
    ("nvmlDeviceGetNumFans", 2, None),
    ("nvmlDeviceGetFanSpeed_v2 0", 44, None),
    ("nvmlDeviceGetFanSpeed_v2 1", 45, None),
    ("nvmlDeviceGetMemoryInfo_v2", (81559 * MIB, 551 * MIB, 10885 * MIB, 70123 * MIB), None),
    ("nvmlDeviceGetBAR1MemoryInfo", (131072 * MIB, 131000 * MIB, 72 * MIB), None),
    *((f"field {number}", number * 10**9, 3) for number in (74, 75, 76, 77, 79, 269, 270, 271)),
    ("nvmlDeviceGetCurrPcieLinkGeneration", 4, None),
    ("nvmlDeviceGetCurrPcieLinkWidth", 8, None),
    ("nvmlDeviceGetMaxPcieLinkGeneration", 5, None),
    ("nvmlDeviceGetMaxPcieLinkWidth", 16, None),
    ("nvmlDeviceGetPcieReplayCounter", 17, None),
    ("field 197", 2**40 + 1, 3),
    ("field 198", 2**41 + 1, 3),
    ("nvmlDeviceGetEccMode", (1, 0), None),
    *(
        (f"nvmlDeviceGetMemoryErrorCounter {kind} {counter} {place}",
         1000 * kind + 100 * counter + place, None)
        for kind in (0, 1) for counter in (0, 1) for place in (2, 7)
    ),
    ("nvmlDeviceGetSramEccErrorStatus", [0] * 11 + [1], None),
    ("nvmlDeviceGetRemappedRows", (4, 3, 1, 0), None),
    ("nvmlDeviceGetRowRemapperHistogram", (2556, 3, 2, 1, 5), None),
    ("nvmlDeviceGetRepairStatus", (0, 1), None),
    ("field 230", 2, 1),
    ("nvmlDeviceGetPersistenceMode", 1, None),
    ("nvmlDeviceGetComputeMode", 3, None),
    ("nvmlDeviceGetMigMode", (0, 1), None),
    ("nvmlDeviceGetGpuFabricInfoV", f"{'0' * 32} 0 0 3 0x1aa 1", None),
    (f"field 138 scope {ALL_LINKS}", 2**33, 3),
    (f"field 139 scope {ALL_LINKS}", 2**34, 3),
    *((f"field {number} scope {ALL_LINKS}", number, 3) for number in (161, 162, 163)),
    ("field 161 scope 4", 161, 3),
    ("field 162 scope 5", 162, 3),
    ("field 163 scope 6", 163, 3),
    ("nvmlDeviceGetComputeRunningProcesses_v3", [(4200, 5), (4201, UNKNOWN_MEMORY)], None),
    ("nvmlDeviceGetGraphicsRunningProcesses_v3", [(4200, 1), (4202, 1)], None),
    ("nvmlDeviceGetMPSComputeRunningProcesses_v3", [(4203, 1)], None),
]  # fmt: skip

EXPECTED: dict[str, Any] = {
    "gpu_memory_total_bytes": 81559 * MIB,
    "gpu_memory_used_bytes": 70123 * MIB,
    "gpu_memory_free_bytes": 10885 * MIB,
    "gpu_memory_reserved_bytes": 551 * MIB,
    "gpu_bar1_memory_total_bytes": 131072 * MIB,
    "gpu_bar1_memory_used_bytes": 72 * MIB,
    "gpu_utilization_ratio": 0.97,
    "gpu_memory_controller_utilization_ratio": 0.61,
    "gpu_encoder_utilization_ratio": 0.11,
    "gpu_decoder_utilization_ratio": 0.12,
    "gpu_jpeg_utilization_ratio": 0.13,
    "gpu_ofa_utilization_ratio": 0.14,
    "gpu_temperature_celsius": 58,
    "gpu_memory_temperature_celsius": 67,
    "gpu_temperature_threshold_celsius": {
        "shutdown": 90, "slowdown": 91, "memory_max": 92, "gpu_max": 93,
    },
    "gpu_fan_speed_ratio": {"0": 0.44, "1": 0.45},
    "gpu_temperature_margin_celsius": -3,
    "gpu_power_watts": 612.345,
    "gpu_power_limit_watts": 650,
    "gpu_power_instant_watts": 615.001,
    "gpu_power_limit_default_watts": 700,
    "gpu_energy_joules_total": 981_234_567_890.123,
    "gpu_power_limit_requested_watts": 690.5,
    "gpu_power_limit_min_watts": 200,
    "gpu_power_limit_max_watts": 710,
    "gpu_module_power_watts": 915.002,
    "gpu_clock_hertz": {
        "graphics": 1000 * MHZ, "sm": 1001 * MHZ, "memory": 1002 * MHZ, "video": 1003 * MHZ,
    },
    "gpu_clock_max_hertz": {
        "graphics": 2000 * MHZ, "sm": 2001 * MHZ, "memory": 2002 * MHZ, "video": 2003 * MHZ,
    },
    "gpu_performance_state": 2,
    "gpu_throttle_seconds_total": {
        "sw_power_cap": 74, "sw_thermal_slowdown": 269, "hw_thermal_slowdown": 270,
        "hw_power_brake_slowdown": 271, "sync_boost": 76, "board_limit": 77, "reliability": 79,
    },
    "gpu_ecc_errors_total": {
        ("corrected", "dram"): 2, ("corrected", "sram"): 7,
        ("uncorrected", "dram"): 1002, ("uncorrected", "sram"): 1007,
    },
    "gpu_ecc_lifetime_errors_total": {
        ("corrected", "dram"): 102, ("corrected", "sram"): 107,
        ("uncorrected", "dram"): 1102, ("uncorrected", "sram"): 1107,
    },
    "gpu_ecc_sram_threshold_exceeded": 1,
    "gpu_ecc_mode_enabled": 1,
    "gpu_ecc_mode_pending_enabled": 0,
    "gpu_row_remap_pending": 1,
    "gpu_row_remap_failure": 0,
    "gpu_remapped_rows_total": {"corrected": 4, "uncorrected": 3},
    "gpu_repair_pending": {"channel": 0, "tpc": 1},
    "gpu_row_remap_banks": {"max": 2556, "high": 3, "partial": 2, "low": 1, "none": 5},
    "gpu_recovery_action": 2,
    "gpu_pcie_link_generation": 4,
    "gpu_pcie_link_width": 8,
    "gpu_pcie_link_generation_max": 5,
    "gpu_pcie_link_width_max": 16,
    "gpu_pcie_replays_total": 17,
    "gpu_pcie_transmit_bytes_total": 2**40 + 1,
    "gpu_pcie_receive_bytes_total": 2**41 + 1,
    "gpu_nvlink_active_links": 18,
    "gpu_nvlink_supported_links": 18,
    "gpu_nvlink_errors_total": {"replay": 161, "recovery": 162, "crc_flit": 163},
    "gpu_nvlink_transmit_bytes_total": 2**43,
    "gpu_nvlink_receive_bytes_total": 2**44,
    "gpu_nvlink_up": LINKS,
    "gpu_nvlink_link_errors_total": {
        (link, kind): {("4", "replay"): 161, ("5", "recovery"): 162, ("6", "crc_flit"): 163}.get(
            (link, kind), 0)
        for link in LINKS for kind in ("replay", "recovery", "crc_flit")
    },
    "gpu_fabric_state": 3,
    "gpu_fabric_healthy": 1,
    "gpu_persistence_mode_enabled": 1,
    "gpu_mig_mode_enabled": 0,
    "gpu_compute_mode": 3,
    "gpu_process_count": 4,
}  # fmt: skip

NOT_OF_THIS_CARD = {
    # put together by the parent, or of older cards only
    "gpu_info", "gpu_throttle_reason_active",
    "gpu_retired_pages_pending", "gpu_retired_pages_total",
}  # fmt: skip


@pytest.fixture(scope="module")
def full(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """The full sample of the second of two H100, set to the numbers above."""
    stub = Stub.h100_node(2, tmp_path_factory.mktemp("h100"))
    with stub.batch():
        for key, setting, kind in SETTINGS:
            stub.set(key, setting, gpu=1, value_type=kind)
    return read_once(stub)[1]


@pytest.mark.parametrize("family", EXPECTED)
def test_a_family_holds_what_the_driver_was_told(full: Sample, family: str) -> None:
    """Each number comes through library, binding and readings in the unit of its family."""
    expected = EXPECTED[family]
    assert rows(full, family) == (expected if isinstance(expected, dict) else {(): expected})


def test_every_family_of_a_card_is_in_the_table() -> None:
    """No family that is read from a card goes untested."""
    exported = {
        family.name for family in BY_NAME.values()
        if family.planned is None and family.scope.name == "GPU"
        and "nvml" in family.sources and family not in events.FAMILIES
    }  # fmt: skip
    assert exported == EXPECTED.keys() | NOT_OF_THIS_CARD


def test_nothing_else_is_in_the_sample(full: Sample) -> None:
    """The card gives exactly these families, and what it lacks is known as unsupported."""
    assert full["rows"].keys() == EXPECTED.keys()
    assert full["faults"] == {
        "gpu_retired_pages_pending": "unsupported", "gpu_retired_pages_total": "unsupported",
    }  # fmt: skip
    assert (full["up"], full["state"], full["error"]) == (True, "ok", None)


def test_who_the_card_is(full: Sample) -> None:
    """Identity, facts and active reasons come with the readings."""
    assert full["uuid"] == "GPU-48313030-1111-4222-8333-000000000001"
    assert full["pci"] == "0000:43:00"
    assert full["info"] == {
        "model": "H100 80GB HBM3",
        "serial": "1650423000001",
        "board_part_number": "692-2G520-0200-000",
        "vbios_version": "96.00.74.00.1C",
        "inforom_version": "G520.0200.00.05",
        "architecture": "Hopper",
        "compute_capability": "9.0",
        "pci_bus_id": "0000:43:00",
    }
    assert [reason for reason, active in full["reasons"].items() if active] == ["sw_power_cap"]
    assert len(full["reasons"]) == 9


# ---- every kind of card --------------------------------------------------------------------------

BLACKWELL_GONE = {"gpu_fan_speed_ratio", "gpu_module_power_watts", "gpu_retired_pages_pending",
                  "gpu_retired_pages_total"}  # fmt: skip
NO_ECC = {"gpu_ecc_errors_total", "gpu_ecc_lifetime_errors_total", "gpu_ecc_mode_enabled",
          "gpu_ecc_mode_pending_enabled", "gpu_ecc_sram_threshold_exceeded"}  # fmt: skip
NO_REMAPPING = {"gpu_row_remap_pending", "gpu_row_remap_failure", "gpu_remapped_rows_total",
                "gpu_row_remap_banks"}  # fmt: skip
NO_NVLINK = {"gpu_nvlink_active_links", "gpu_nvlink_supported_links", "gpu_nvlink_errors_total",
             "gpu_nvlink_transmit_bytes_total", "gpu_nvlink_receive_bytes_total", "gpu_nvlink_up",
             "gpu_nvlink_link_errors_total"}  # fmt: skip
NO_FABRIC = {"gpu_fabric_state", "gpu_fabric_healthy"}
NO_UTILIZATION = {f"gpu_{unit}utilization_ratio" for unit in
                  ("", "memory_controller_", "encoder_", "decoder_", "jpeg_", "ofa_")}  # fmt: skip
OLDER = NO_NVLINK | NO_FABRIC | {"gpu_mig_mode_enabled", "gpu_recovery_action",
                                 "gpu_repair_pending", "gpu_module_power_watts",
                                 "gpu_temperature_margin_celsius"}  # fmt: skip

PRESETS: dict[str, tuple[set[str], dict[str, Any]]] = {
    # preset: (families that its cards lack, some of those they have)
    "h100_node": (
        BLACKWELL_GONE,
        {"gpu_power_watts": 612, "gpu_memory_used_bytes": 70123 * MIB,
         "gpu_energy_joules_total": 981_234_567.89, "gpu_nvlink_active_links": 18,
         "gpu_nvlink_transmit_bytes_total": 7_340_032 * 18 * 1024},
    ),
    "b200": (
        BLACKWELL_GONE,
        {"gpu_power_watts": 871, "gpu_memory_temperature_celsius": 66,
         "gpu_nvlink_transmit_bytes_total": 91_234_567 * 18,
         "gpu_nvlink_errors_total": {"recovery": 0, "symbol": 0, "effective": 0}},
    ),
    "a100_mig": (
        NO_UTILIZATION | NO_REMAPPING | NO_FABRIC | BLACKWELL_GONE
        | {"gpu_temperature_margin_celsius"},
        {"gpu_power_watts": 248, "gpu_temperature_celsius": 47, "gpu_process_count": 2,
         "gpu_nvlink_active_links": 12, "gpu_mig_mode_enabled": 1},
    ),
    "geforce": (
        OLDER | NO_ECC | NO_REMAPPING
        | {"gpu_memory_temperature_celsius", "gpu_retired_pages_pending",
           "gpu_retired_pages_total"},
        {"gpu_power_watts": 371, "gpu_process_count": 2, "gpu_fan_speed_ratio":
         {"0": 0.44, "1": 0.45}, "gpu_temperature_threshold_celsius":
         {"shutdown": 95, "slowdown": 92, "gpu_max": 84}},
    ),
    "gb10": (
        OLDER | NO_ECC | NO_REMAPPING
        | {"gpu_memory_total_bytes", "gpu_memory_used_bytes", "gpu_memory_free_bytes",
           "gpu_memory_reserved_bytes", "gpu_bar1_memory_total_bytes",
           "gpu_bar1_memory_used_bytes", "gpu_fan_speed_ratio", "gpu_energy_joules_total",
           "gpu_power_limit_watts", "gpu_power_limit_default_watts", "gpu_power_limit_min_watts",
           "gpu_power_limit_max_watts", "gpu_power_limit_requested_watts",
           "gpu_power_instant_watts", "gpu_memory_temperature_celsius",
           "gpu_temperature_threshold_celsius", "gpu_retired_pages_pending",
           "gpu_retired_pages_total"},
        {"gpu_power_watts": 38.4, "gpu_utilization_ratio": 0.95, "gpu_process_count": 1,
         "gpu_clock_hertz": {"sm": 2418 * MHZ, "graphics": 2418 * MHZ}},
    ),
    "t4": (
        OLDER | NO_REMAPPING
        | {"gpu_memory_temperature_celsius", "gpu_fan_speed_ratio",
           "gpu_ecc_sram_threshold_exceeded"},
        {"gpu_power_watts": 66, "gpu_retired_pages_pending": 0,
         "gpu_retired_pages_total": {"single_bit": 0, "double_bit": 0}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("preset", PRESETS)
def test_each_kind_of_card_gives_what_it_has(room: Path, preset: str) -> None:
    """A card shows all families it can, lacks the others without a failure, and is up."""
    lacking, some = PRESETS[preset]
    (sample,) = read_once(getattr(Stub, preset)(1, room))
    assert sample["rows"].keys() == EXPECTED.keys() - lacking | (
        {"gpu_retired_pages_pending", "gpu_retired_pages_total"} if preset == "t4" else set()
    )
    assert {f for f, fault in sample["faults"].items() if fault == "unsupported"} >= lacking
    for family, expected in some.items():
        assert rows(sample, family) == (expected if isinstance(expected, dict) else {(): expected})
    assert (sample["up"], sample["state"]) == (True, "ok")


@pytest.mark.parametrize("preset", PRESETS)
def test_no_reading_of_a_healthy_card_fails(room: Path, preset: str) -> None:
    """What a healthy card of any kind answers is in range: its only faults are things it lacks."""
    (sample,) = read_once(getattr(Stub, preset)(1, room))
    assert set(sample["faults"].values()) <= {"unsupported"}


def test_mig_instances_come_with_their_card(room: Path) -> None:
    """Two instances with their own memory and processes; the card's readings stand once."""
    (sample,) = read_once(Stub.a100_mig(1, room))
    assert [(m["uuid"], m["gpu_instance"], m["compute_instance"], m["profile"])
            for m in sample["mig"]] == [
        ("MIG-a100a100-1111-4222-8333-000000000001", "1", "0", "3g.40gb"),
        ("MIG-a100a100-1111-4222-8333-000000000002", "2", "0", "3g.40gb"),
    ]  # fmt: skip
    for instance in sample["mig"]:
        assert {family: entries[0][1] for family, entries in instance["rows"].items()} == {
            "gpu_mig_memory_total_bytes": 40_192 * MIB,
            "gpu_mig_memory_used_bytes": 15_000 * MIB,
            "gpu_mig_memory_free_bytes": 24_892 * MIB,
            "gpu_mig_process_count": 1,
        }


def test_a_mig_profile_is_told_by_attributes_too(room: Path) -> None:
    """An instance whose name says no profile has it from its slices and memory."""
    stub = Stub.a100_mig(1, room)
    stub.set("nvmlDeviceGetName", "NVIDIA A100-SXM4-80GB", gpu=(0, 0))
    (sample,) = read_once(stub)
    assert [m["profile"] for m in sample["mig"]] == ["3g.40gb", "3g.40gb"]


# ---- traps of the binding and of old drivers -----------------------------------------------------


def pids(reader: Reader, kind: str = "Compute") -> list[list[Any]]:
    """Return the rows of a process list of the first card."""
    listed: list[list[Any]] = reader.ask("call", f"DeviceGet{kind}RunningProcesses", 0)
    return listed


def test_early_r535_entries_are_read_at_their_own_length(room: Path) -> None:
    """The 32-byte entries of early R535 give every pid and every size, not a shuffle of them."""
    stub = Stub.h100_node(1, room, process_stride=32)
    stub.set(
        "nvmlDeviceGetComputeRunningProcesses_v3",
        [(11, 100, 1, 2, 901), (12, 200, 3, 4, 902), (13, UNKNOWN_MEMORY)],
        gpu=0,
    )
    with Reader(stub) as reader:
        reader.open()
        assert pids(reader) == [[11, 100, 1, 2], [12, 200, 3, 4], [13, None, None, None]]
        (sample,) = reader.read()
    assert value(sample, "gpu_process_count") == 3


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ((), [[11, 100, 1, 2], [12, None, None, None]]),
        (("nvmlDeviceGetConfComputeMemSizeInfo",), [[11, 100, 1, 2], [12, None, None, None]]),
        (("nvmlDeviceGetConfComputeMemSizeInfo", "nvmlDeviceGetRunningProcessDetailList"),
         [[11, 100, 1, 2], [12, None, None, None]]),
        (("nvmlDeviceGetComputeRunningProcesses_v3",), [[11, 100, 1, 2], [12, None, None, None]]),
        (("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"),
         [[11, 100, None, None], [12, None, None, None]]),
    ],
    ids=["R550", "no CC", "R530", "R470", "R450"],
)  # fmt: skip
def test_process_lists_of_every_version(
    room: Path, missing: tuple[str, ...], expected: list[list[Any]]
) -> None:
    """Each layout of the list gives the same pids, and what it knows of memory and instance."""
    stub = Stub.h100_node(1, room, missing=missing)
    stub.set(
        "nvmlDeviceGetComputeRunningProcesses_v3", [(11, 100, 1, 2), (12, UNKNOWN_MEMORY)], gpu=0
    )
    with Reader(stub) as reader:
        reader.open()
        assert pids(reader) == expected


def test_a_long_process_list_comes_whole(room: Path) -> None:
    """A list of any length is read, and an empty one is empty."""
    stub = Stub.h100_node(1, room)
    many = [(1000 + n, n) for n in range(300)]
    stub.set("nvmlDeviceGetComputeRunningProcesses_v3", many, gpu=0)
    with Reader(stub) as reader:
        reader.open()
        assert [entry[:2] for entry in pids(reader)] == [list(entry) for entry in many]
        assert pids(reader, "Graphics") == []
        stub.set("nvmlDeviceGetComputeRunningProcesses_v3", "", gpu=0)
        assert pids(reader) == []


def test_a_name_that_is_not_utf_8_costs_nothing(room: Path) -> None:
    """Undecodable bytes in any text are replaced, and every reading is there."""
    stub = Stub.h100_node(1, room)
    for text in ("Name", "Serial", "BoardPartNumber", "VbiosVersion", "InforomImageVersion"):
        stub.set(f"nvmlDeviceGet{text}", bytes.fromhex("f8fd0a4e5649444941ff"), gpu=0)
    stub.set("nvmlSystemGetNVMLVersion", b"\xff\xfe13")
    with Reader(stub) as reader:
        reader.open()
        (sample,) = reader.read()
        versions = reader.ask("versions")
    assert sample["info"]["model"] == sample["info"]["serial"] == "\ufffd\ufffdNVIDIA\ufffd"
    assert versions["nvml_version"] == "\ufffd\ufffd13"
    assert value(sample, "gpu_power_watts") == 612


def test_errors_of_the_driver_are_not_formatted_by_it(room: Path) -> None:
    """Whatever code a call returns, the library is not called to put it into words."""
    stub = Stub.h100_node(1, room)
    for number, function in enumerate(
        ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetEccMode", "nvmlDeviceGetRemappedRows",
         "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetPersistenceMode", "nvmlDeviceGetMigMode",
         "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetComputeMode", "nvmlDeviceGetName",
         "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetPcieReplayCounter"),
        start=19,
    ):  # fmt: skip
        stub.error(function, number)
    (sample,) = read_once(stub)
    assert sample["faults"]["gpu_power_watts"] == "in_use"
    assert sample["faults"]["gpu_pcie_replays_total"] == "invalid_state"
    assert stub.calls()["nvmlErrorString"] == 0


OLD_DRIVER = (  # what R450 does not export
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetMarginTemperature",
    "nvmlDeviceGetNumFans",
    "nvmlDeviceGetJpgUtilization",
    "nvmlDeviceGetOfaUtilization",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetSupportedClocksEventReasons",
    "nvmlDeviceGetSramEccErrorStatus",
    "nvmlDeviceGetRepairStatus",
    "nvmlDeviceGetRowRemapperHistogram",
    "nvmlDeviceGetGpuFabricInfo",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetComputeRunningProcesses_v2",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetConfComputeMemSizeInfo",
    "nvmlDeviceGetRunningProcessDetailList",
    "nvmlSystemGetDriverBranch",
)


def test_an_old_driver_gives_the_same_families_where_it_can(room: Path) -> None:
    """Older calls stand in for missing symbols; what has no older call is absent, nothing fails."""
    stub = Stub.h100_node(1, room, missing=OLD_DRIVER)
    stub.set("nvmlSystemGetDriverVersion", "450.36.06")
    stub.set("nvmlDeviceGetFanSpeed", 30)
    (sample,) = read_once(stub)
    assert EXPECTED.keys() - sample["rows"].keys() == {
        "gpu_memory_reserved_bytes", "gpu_temperature_margin_celsius", "gpu_jpeg_utilization_ratio",
        "gpu_ofa_utilization_ratio", "gpu_ecc_sram_threshold_exceeded", "gpu_repair_pending",
        "gpu_row_remap_banks", "gpu_fabric_state", "gpu_fabric_healthy", "gpu_module_power_watts",
    }  # fmt: skip
    assert set(sample["faults"].values()) == {"unsupported"}
    assert value(sample, "gpu_memory_used_bytes") == (70123 + 551) * MIB
    assert value(sample, "gpu_memory_used_includes_reserved") == 1
    assert value(sample, "gpu_temperature_celsius") == 58
    assert rows(sample, "gpu_fan_speed_ratio") == {"0": 0.3}
    assert value(sample, "gpu_process_count") == 1
    assert sample["reasons"]["sw_power_cap"] is True
    assert rows(sample, "gpu_throttle_seconds_total").keys() == {
        "sw_power_cap", "sw_thermal_slowdown", "sync_boost", "board_limit", "reliability",
    }  # fmt: skip


OLD_BINDING = """
import pynvml  # of which 12.535.108, the oldest that we accept, lacks these
for name in ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetMarginTemperature",
             "nvmlDeviceGetRepairStatus", "nvmlDeviceGetSramEccErrorStatus",
             "c_nvmlEccSramErrorStatus_v1_t", "nvmlSystemGetDriverBranch"):
    delattr(pynvml, name)
"""


def test_an_old_binding_gives_all_but_the_newest_calls(room: Path) -> None:
    """With the oldest accepted release of the binding two families are absent, and none fails."""
    stub = Stub.h100_node(1, room)
    (sample,) = read_once(stub, first=OLD_BINDING)
    (newest,) = read_once(stub)
    assert newest["rows"].keys() - sample["rows"].keys() == {
        "gpu_temperature_margin_celsius", "gpu_repair_pending",
    }  # fmt: skip
    assert set(sample["faults"].values()) == {"unsupported"}
    assert value(sample, "gpu_temperature_celsius") == 58
    assert value(sample, "gpu_ecc_sram_threshold_exceeded") == 0


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize(
    ("info", "state", "healthy"),
    [
        ("0 0 3 0x1aa 1", 3, {1: 1, 2: 1, 3: 1}),
        ("0 0 3 0x1a9 2", 3, {1: 1, 2: 0, 3: 0}),  # degraded bandwidth; version 1 has no mask
        ("0 0 3 0 3", 3, {1: 1, 2: 1, 3: 0}),  # only the summary of version 3 tells
        ("999 0 3 0x1aa 1", 3, {1: 0, 2: 0, 3: 0}),
        ("0 0 2 0x1a9 2", 2, {1: None, 2: None, 3: None}),
    ],
)
def test_every_version_of_the_fabric_layout(
    room: Path, version: int, info: str, state: int, healthy: dict[int, int | None]
) -> None:
    """State, status, mask and summary come from their places, as far as the version has them."""
    stub = Stub.h100_node(1, room)
    stub.set("fabric_version", version)
    stub.set("nvmlDeviceGetGpuFabricInfoV", f"{'ab' * 16} {info}")
    (sample,) = read_once(stub)
    assert value(sample, "gpu_fabric_state") == state
    assert value(sample, "gpu_fabric_healthy") == healthy[version]


def test_fabric_of_a_driver_that_knows_only_the_first_call(room: Path) -> None:
    """Without the versioned symbol the first layout is read through its own call."""
    stub = Stub.h100_node(1, room, missing=["nvmlDeviceGetGpuFabricInfoV"])
    (sample,) = read_once(stub)
    assert value(sample, "gpu_fabric_state") == 3
    assert value(sample, "gpu_fabric_healthy") == 1


def test_with_ecc_off_the_drivers_garbage_is_not_read(room: Path) -> None:
    """A driver that gives uninitialised memory for ECC counters shows no ECC error at all."""
    stub = Stub.h100_node(1, room)
    stub.set("ecc_off_garbage", 1)
    stub.set("nvmlDeviceGetEccMode", (0, 0))
    (sample,) = read_once(stub)
    assert value(sample, "gpu_ecc_mode_enabled") == 0
    assert not sample["rows"].keys() & {"gpu_ecc_errors_total", "gpu_ecc_lifetime_errors_total",
                                        "gpu_ecc_sram_threshold_exceeded"}  # fmt: skip
    assert stub.calls()["nvmlDeviceGetMemoryErrorCounter"] == 0
    assert stub.calls()["nvmlDeviceGetTotalEccErrors"] == 0


def test_retired_pages_are_counted_by_cause(room: Path) -> None:
    """The number of pages of each cause, not their addresses."""
    stub = Stub.t4(1, room)
    stub.set("nvmlDeviceGetRetiredPages_v2 0", [(0xABC000, 1), (0xABD000, 2), (0xABE000, 3)])
    stub.set("nvmlDeviceGetRetiredPages_v2 1", [(0xABF000, 4)])
    stub.set("nvmlDeviceGetRetiredPagesPendingStatus", 1)
    (sample,) = read_once(stub)
    assert rows(sample, "gpu_retired_pages_total") == {"single_bit": 3, "double_bit": 1}
    assert value(sample, "gpu_retired_pages_pending") == 1


def test_a_double_that_comes_as_a_double_is_not_taken_for_degrees(room: Path) -> None:
    """The bits of a real double give no temperature: absent rather than wrong."""
    stub = Stub.h100_node(1, room)
    stub.field(82, 55.0, value_type=0)
    (sample,) = read_once(stub)
    assert "gpu_memory_temperature_celsius" not in sample["rows"]


UNTOUCHED = r"""
#include <stdint.h>
#include <string.h>
typedef struct { unsigned id, scope; int64_t time, latency; int type, code; uint64_t value; } Field;
static int card, calls;
int nvmlInitWithFlags(unsigned flags) { (void)flags; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned n, void **out) { (void)n; *out = &card; return 0; }
int nvmlDeviceGetFieldValues(void *d, int count, Field *f)
{
    (void)d;
    for (int i = 0; i < count; i++) {
        if (f[i].id == 82 && calls > 0)
            continue;                       /* this one is not looked at any more */
        if (f[i].id == 83)
            continue;                       /* and this one never was */
        f[i].code = 0;
        f[i].type = 1;
        memcpy(&f[i].value, &(unsigned){55}, 4); /* the upper half stays as it was */
    }
    calls++;
    return 0;
}
"""


def test_entries_that_the_driver_leaves_untouched_are_no_answers(
    compiler: str, tmp_path: Path
) -> None:
    """An entry that the driver did not write says "no data", never the value of the call before."""
    (tmp_path / "untouched.c").write_text(UNTOUCHED)
    (tmp_path / "lib").mkdir()
    compile_c(
        ("-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", tmp_path / "untouched.c"),
        tmp_path / "lib" / "libnvidia-ml.so.1",
    )
    path = {"LD_LIBRARY_PATH": str(tmp_path / "lib")}
    wanted = [[82, 0], [83, 0], [230, 0]]
    with Reader(None, environment=path) as reader:
        reader.ask("open")
        assert reader.ask("call", "DeviceGetFieldValues", 0, wanted) == [
            [0, 1, 0, 55], [21, 0, 0, 0], [0, 1, 0, 55],
        ]  # fmt: skip
        assert reader.ask("call", "DeviceGetFieldValues", 0, wanted) == [
            [21, 0, 0, 0], [21, 0, 0, 0], [0, 1, 0, 55],
        ]  # fmt: skip


def test_more_fields_than_one_call_takes_come_back_in_order(room: Path) -> None:
    """A long request is cut into calls, and the answers stand in the order of the request."""
    stub = Stub.h100_node(1, room)
    wanted = [[165, link] for link in range(18)] * 12
    stub.field(165, 0, scope=7, value_type=1)
    with Reader(stub) as reader:
        reader.open()
        answers = reader.ask("call", "DeviceGetFieldValues", 0, wanted)
    assert [raw for _, _, _, raw in answers] == [int(link != 7) for _, link in wanted]


def test_cards_read_in_parallel_do_not_mix(room: Path) -> None:
    """Each thread has buffers of its own: a card never shows a neighbour's value."""
    stub = Stub.h100_node(4, room)
    for gpu in range(4):
        stub.field(82, 50 + gpu, gpu=gpu, value_type=1)
        stub.field(230, gpu, gpu=gpu, value_type=1)
        stub.set("nvmlDeviceGetPowerUsage", 100_000 * (gpu + 1), gpu=gpu)
    with Reader(stub) as reader:
        reader.open()
        for samples in reader.ask("read_in_threads", 25):
            assert [
                (value(s, "gpu_memory_temperature_celsius"), value(s, "gpu_recovery_action"),
                 value(s, "gpu_power_watts")) for s in samples
            ] == [(50 + gpu, gpu, 100 * (gpu + 1)) for gpu in range(4)]  # fmt: skip


# ---- life of the library -------------------------------------------------------------------------


def test_versions_come_from_the_library(room: Path) -> None:
    """Driver, NVML and CUDA version as the library tells them; the older CUDA call stands in."""
    expected = {"driver_version": "580.95.05", "nvml_version": "13.580.95.05",
                "cuda_driver_version": "13.0"}  # fmt: skip
    stub = Stub.h100_node(1, room)
    with Reader(stub) as reader:
        reader.open()
        assert reader.ask("versions") == expected
    stub.missing("nvmlSystemGetCudaDriverVersion_v2")
    with Reader(stub) as reader:
        reader.open()
        assert reader.ask("versions") == expected


def test_a_library_that_is_not_there_can_come_later(room: Path) -> None:
    """Without the library the source is down by that name; once installed, it can be opened."""
    stub = Stub.h100_node(2, room)
    away = stub.library.with_suffix(".away")
    os.replace(stub.library, away)
    with Reader(stub) as reader:
        assert reader.answer("open") == {"down": "library_not_found"}
        assert reader.ask("mapped") == [None, False]
        os.replace(away, stub.library)
        reader.open()
        assert len(reader.read()) == 2


@pytest.mark.parametrize(
    ("code", "error"), [(18, "driver_library_mismatch"), (9, "driver_not_loaded"),
                        (999, "unknown_error"), (28, "gpu_not_found")]
)  # fmt: skip
def test_a_driver_that_does_not_start_is_tried_again(room: Path, code: int, error: str) -> None:
    """A failing Init names its reason, and the next try works without a new process."""
    stub = Stub.h100_node(1, room)
    stub.error("nvmlInitWithFlags", code)
    with Reader(stub) as reader:
        assert reader.answer("open") == {"down": error}
        stub.release()
        reader.open()
        assert len(reader.read()) == 1
        reader.ask("close")
        assert reader.answer("read") == {"down": "driver_not_loaded"}
    assert stub.calls()["nvmlShutdown"] == 1


def test_a_replaced_library_is_noticed(room: Path) -> None:
    """The process sees which library it has mapped, and when another one lies on disk."""
    stub = Stub.h100_node(1, room)
    with Reader(stub) as reader:
        reader.open()
        (path, inode, deleted), replaced = reader.ask("mapped")
        assert path == str(stub.library)
        assert inode == stub.library.stat().st_ino
        assert (deleted, replaced) == (False, False)
        stub.missing("nvmlDeviceGetGspFirmwareVersion")  # an upgrade: another file by that name
        (_, _, deleted), replaced = reader.ask("mapped")
        assert (deleted, replaced) == (True, True)
        assert len(reader.read()) == 1  # what is mapped goes on working


def test_a_removed_library_is_noticed(room: Path) -> None:
    """A library that is only gone from disk counts as replaced as well."""
    stub = Stub.h100_node(1, room)
    with Reader(stub) as reader:
        reader.open()
        stub.library.unlink()
        assert reader.ask("mapped")[1] is True


def test_the_view_for_mps_is_never_used(room: Path) -> None:
    """The variable that makes NVML hide most answers is taken out of our environment."""
    stub = Stub.h100_node(1, room)
    with Reader(stub, environment={"NVML_MPS_DEVICE_ENUMERATION": "1"}) as reader:
        assert reader.ask("environment", "NVML_MPS_DEVICE_ENUMERATION") is None
