# SPDX-License-Identifier: Apache-2.0
"""Topics whose readings are one call each: units, names, and what a card may lack."""

from __future__ import annotations

from typing import Any

import pytest

from cardwatch.nvml.codes import DriverError
from cardwatch.readings import clocks, modes, pcie, power, processes, repair, utilization
from nvml.stand_in import BROKEN, DENIED, NO_SYMBOL, UNSUPPORTED, Key, Raw, by_label, read, value

# ---- utilization ---------------------------------------------------------------------------------


def test_percent_come_out_as_ratios() -> None:
    """All utilization is a share from 0 to 1."""
    card = read(
        utilization.read,
        {
            "DeviceGetUtilizationRates": (97, 61),
            "DeviceGetEncoderUtilization": 3,
            "DeviceGetDecoderUtilization": 4,
            "DeviceGetJpgUtilization": 5,
            "DeviceGetOfaUtilization": 100,
        },
    )
    assert {family: rows[0][1] for family, rows in card.rows.items()} == {
        "gpu_utilization_ratio": 0.97,
        "gpu_memory_controller_utilization_ratio": 0.61,
        "gpu_encoder_utilization_ratio": 0.03,
        "gpu_decoder_utilization_ratio": 0.04,
        "gpu_jpeg_utilization_ratio": 0.05,
        "gpu_ofa_utilization_ratio": 1.0,
    }


@pytest.mark.parametrize("percent", [101, 2619, 0xFFFFFFFF, -1])
def test_what_is_no_percentage_is_dropped(percent: int) -> None:
    """A value outside 0 to 100 is dropped and counted; its neighbour in the answer stays."""
    card = read(utilization.read, {"DeviceGetUtilizationRates": (percent, 61)})
    assert card.rows.keys() == {"gpu_memory_controller_utilization_ratio"}
    assert card.faults["gpu_utilization_ratio"] == "out_of_range"


# ---- clocks --------------------------------------------------------------------------------------


def test_clocks_are_in_hertz_under_their_names() -> None:
    """Graphics is type 0, SM 1, memory 2 and video 3; megahertz come out as hertz."""
    answers: dict[Key, Any] = {("DeviceGetClockInfo", kind): 1000 + kind for kind in range(4)}
    answers |= {("DeviceGetMaxClockInfo", kind): 2000 + kind for kind in range(4)}
    card = read(clocks.read, answers)
    for family, base in (("gpu_clock_hertz", 1000), ("gpu_clock_max_hertz", 2000)):
        assert by_label(card.rows, family) == {
            "graphics": base * 1e6, "sm": (base + 1) * 1e6,
            "memory": (base + 2) * 1e6, "video": (base + 3) * 1e6,
        }  # fmt: skip


@pytest.mark.parametrize(("state", "shown"), [(0, 0), (15, 15), (32, None)])
def test_an_unknown_performance_state_is_absent(state: int, shown: int | None) -> None:
    """32 is the driver's word for unknown: absent, and no failure."""
    card = read(clocks.read, {"DeviceGetPerformanceState": state})
    assert value(card, "gpu_performance_state") == shown
    assert card.faults.get("gpu_performance_state") == (
        None if shown is not None else "unsupported"
    )


def test_one_clock_that_fails_leaves_the_others() -> None:
    """The family keeps the rows that read, beside its fault."""
    card = read(clocks.read, {("DeviceGetClockInfo", 1): BROKEN, ("DeviceGetClockInfo", 2): 2619})
    assert by_label(card.rows, "gpu_clock_hertz") == {"memory": 2_619_000_000}
    assert card.faults["gpu_clock_hertz"] == "unknown"


# ---- power ---------------------------------------------------------------------------------------

POWER: dict[Key, Any] = {
    "DeviceGetPowerUsage": 667_161,
    "DeviceGetEnforcedPowerLimit": 650_000,
    "DeviceGetPowerManagementLimit": 690_500,
    "DeviceGetPowerManagementDefaultLimit": 700_000,
    "DeviceGetPowerManagementLimitConstraints": (200_000, 710_000),
    "DeviceGetTotalEnergyConsumption": 981_234_567_890,
    ("field", 186, 0): 690_001,
    ("field", 186, 1): 981_001,
    ("field", 185, 1): 5,  # the average of the module is another thing than the help promises
}


def test_milliwatts_come_out_as_exact_watts() -> None:
    """Each power has its own source, and three digits of milliwatts survive the division."""
    card = read(power.read, POWER)
    assert {family: rows[0][1] for family, rows in card.rows.items()} == {
        "gpu_power_watts": 667.161,
        "gpu_power_limit_watts": 650.0,
        "gpu_power_limit_requested_watts": 690.5,
        "gpu_power_limit_default_watts": 700.0,
        "gpu_power_limit_min_watts": 200.0,
        "gpu_power_limit_max_watts": 710.0,
        "gpu_energy_joules_total": 981_234_567.89,
        "gpu_power_instant_watts": 690.001,
        "gpu_module_power_watts": 981.001,
    }


def test_a_card_without_a_module_has_no_module_power() -> None:
    """Module power is absent on a card that stands alone; the card's own stays."""
    card = read(power.read, {**POWER, ("field", 186, 1): UNSUPPORTED})
    assert "gpu_module_power_watts" not in card.rows
    assert card.faults == {"gpu_module_power_watts": "unsupported"}


def test_energy_that_the_card_lacks_is_not_zero() -> None:
    """Before Volta there is no energy counter: absent."""
    card = read(power.read, {**POWER, "DeviceGetTotalEnergyConsumption": UNSUPPORTED})
    assert "gpu_energy_joules_total" not in card.rows


# ---- PCIe ----------------------------------------------------------------------------------------

LINK: dict[Key, Any] = {
    "DeviceGetCurrPcieLinkGeneration": 1,
    "DeviceGetCurrPcieLinkWidth": 8,
    "DeviceGetMaxPcieLinkGeneration": 5,
    "DeviceGetMaxPcieLinkWidth": 16,
    "DeviceGetPcieReplayCounter": 7,
    ("field", 197): 2**40,
    ("field", 198): 2**41,
}


def test_the_link_as_it_is_and_as_it_could_be() -> None:
    """Current and highest generation and width are four readings of four calls."""
    card = read(pcie.read, LINK)
    assert {family: rows[0][1] for family, rows in card.rows.items()} == {
        "gpu_pcie_link_generation": 1,
        "gpu_pcie_link_width": 8,
        "gpu_pcie_link_generation_max": 5,
        "gpu_pcie_link_width_max": 16,
        "gpu_pcie_replays_total": 7,
        "gpu_pcie_transmit_bytes_total": 2**40,
        "gpu_pcie_receive_bytes_total": 2**41,
    }


@pytest.mark.parametrize("call", ["CurrPcieLinkGeneration", "CurrPcieLinkWidth",
                                  "MaxPcieLinkGeneration", "MaxPcieLinkWidth"])  # fmt: skip
def test_a_card_without_a_pcie_link_answers_zero(call: str) -> None:
    """0 lanes or generation 0 is no link: absent, and no failure."""
    card = read(pcie.read, {**LINK, f"DeviceGet{call}": 0})
    assert len(card.rows) == 6
    assert set(card.faults.values()) == {"unsupported"}


def test_the_throughput_call_that_sleeps_is_never_made() -> None:
    """The bytes come from counters alone; where there are none they are absent."""
    card = read(pcie.read, {**LINK, ("field", 197): UNSUPPORTED, ("field", 198): UNSUPPORTED,
                            "DeviceGetPcieThroughput": 412_000})  # fmt: skip
    assert "gpu_pcie_transmit_bytes_total" not in card.rows
    assert card.faults["gpu_pcie_transmit_bytes_total"] == "unsupported"


# ---- repair --------------------------------------------------------------------------------------


def test_rows_are_remapped_on_newer_cards() -> None:
    """Counts, flags and banks of row remapping go by their places in the answer."""
    card = read(
        repair.read,
        {
            "DeviceGetRemappedRows": (4, 3, 1, 0),
            "DeviceGetRowRemapperHistogram": (2556, 3, 2, 1, 5),
            "DeviceGetRepairStatus": (0, 1),
            ("field", 230): 2,
        },
    )
    assert by_label(card.rows, "gpu_remapped_rows_total") == {"corrected": 4, "uncorrected": 3}
    assert value(card, "gpu_row_remap_pending") == 1
    assert value(card, "gpu_row_remap_failure") == 0
    assert by_label(card.rows, "gpu_row_remap_banks") == {
        "max": 2556, "high": 3, "partial": 2, "low": 1, "none": 5,
    }  # fmt: skip
    assert by_label(card.rows, "gpu_repair_pending") == {"channel": 0, "tpc": 1}
    assert value(card, "gpu_recovery_action") == 2
    assert "gpu_retired_pages_total" not in card.rows


def test_pages_are_retired_on_older_cards() -> None:
    """Pages are counted by cause, and addresses never leave the driver."""
    card = read(
        repair.read,
        {
            ("DeviceGetRetiredPages", 0): 5,
            ("DeviceGetRetiredPages", 1): 2,
            "DeviceGetRetiredPagesPendingStatus": 1,
        },
    )
    assert by_label(card.rows, "gpu_retired_pages_total") == {"single_bit": 5, "double_bit": 2}
    assert value(card, "gpu_retired_pages_pending") == 1
    assert "gpu_row_remap_pending" not in card.rows


@pytest.mark.parametrize("action", range(8))
def test_every_recovery_action_has_its_number(action: int) -> None:
    """The driver's number is exported as it is."""
    assert value(read(repair.read, {("field", 230): action}), "gpu_recovery_action") == action


@pytest.mark.parametrize("entry", [8, Raw(0, 1, 0xFFFFFFFF), Raw(0, 0, 0x7F3A_00000063)])
def test_an_action_nobody_knows_is_dropped(entry: Any) -> None:
    """A number beyond the known actions is out of range rather than a wrong advice."""
    card = read(repair.read, {("field", 230): entry})
    assert "gpu_recovery_action" not in card.rows
    assert card.faults["gpu_recovery_action"] == "out_of_range"


def test_an_action_that_the_driver_never_looked_at_is_not_none() -> None:
    """An untouched entry is absent: 0 would say that nothing need be done."""
    card = read(repair.read, {("field", 230): Raw(21, 0, 0)})
    assert "gpu_recovery_action" not in card.rows
    assert card.faults["gpu_recovery_action"] == "unsupported"


# ---- modes ---------------------------------------------------------------------------------------


def test_modes_are_flags_and_codes() -> None:
    """Persistence is 0 or 1, the compute mode the driver's code."""
    card = read(modes.read, {"DeviceGetPersistenceMode": 0, "DeviceGetComputeMode": 3})
    assert value(card, "gpu_persistence_mode_enabled") == 0
    assert value(card, "gpu_compute_mode") == 3


# ---- processes -----------------------------------------------------------------------------------

COMPUTE, GRAPHICS, MPS = (f"DeviceGet{kind}RunningProcesses"
                          for kind in ("Compute", "Graphics", "MPSCompute"))  # fmt: skip


@pytest.mark.parametrize(
    ("lists", "count"),
    [
        ({COMPUTE: [], GRAPHICS: [], MPS: []}, 0),
        ({COMPUTE: [(11, 5, None, None), (12, None, None, None)], GRAPHICS: [], MPS: []}, 2),
        ({COMPUTE: [(11, 5, None, None)], GRAPHICS: [(11, 5, None, None), (13, 1, None, None)]}, 2),
        ({COMPUTE: [(11, 5, 1, 0), (11, 6, 2, 0)], GRAPHICS: NO_SYMBOL, MPS: UNSUPPORTED}, 1),
        ({COMPUTE: UNSUPPORTED, GRAPHICS: [], MPS: UNSUPPORTED}, 0),
    ],
)
def test_a_process_counts_once(lists: dict[Key, Any], count: int) -> None:
    """A pid in two lists, or twice in one, is one process; lists that a card lacks are none."""
    assert value(read(processes.read, lists), "gpu_process_count") == count


@pytest.mark.parametrize(
    ("error", "fault"), [(BROKEN, "unknown"), (DENIED, "denied"), (UNSUPPORTED, "unsupported")]
)
def test_a_list_that_does_not_read_leaves_no_count(error: DriverError, fault: str) -> None:
    """Part of the processes is not a count: it is absent with the reason."""
    lists = {COMPUTE: [(11, 5, None, None)], GRAPHICS: error, MPS: []}
    if error is UNSUPPORTED:
        lists = {COMPUTE: error, GRAPHICS: error, MPS: error}
    card = read(processes.read, lists)
    assert card.rows == {}
    assert card.faults == {"gpu_process_count": fault}
