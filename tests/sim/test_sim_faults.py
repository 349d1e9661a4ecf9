# SPDX-License-Identifier: Apache-2.0
"""Faults of cards, calls and listing: each does what it says, when it says."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from sim_node import ALL_LINKS, Build, Clock, Node

from cardwatch.nvml.codes import DriverError
from cardwatch.sim import SimDriver, load_scenario

POWER = "DeviceGetPowerUsage"
CORRECTED, UNCORRECTED = 0, 1
VOLATILE, LIFETIME = 0, 1
DRAM, SRAM = 2, 7


def faults(*rows: str) -> str:
    return "faults:\n" + "\n".join(f"  - {{{row}}}" for row in rows)


def old_handle_answer(node: Node, handle: Any, call: str = POWER) -> Any:
    try:
        return node.driver.call(call, handle)
    except DriverError as error:
        return error.name


# calls


def test_a_lost_card_is_lost_for_its_time(node: Build) -> None:
    """Handle and calls give GPU_IS_LOST from `at` for `for`; other cards go on."""
    sick = node(faults("at: 60s, for: 30s, gpu: 2, fault: lost"))
    handle = sick.handle(2)
    for t, lost in ((59.9, False), (60, True), (89.9, True), (90, False)):
        sick.at(t)
        assert (old_handle_answer(sick, handle) == "gpu_is_lost") is lost
        assert (sick.system("DeviceGetHandleByIndex", 2) == "gpu_is_lost") is lost
        assert isinstance(sick.ask(1, POWER), int)
    assert sick.system("DeviceGetCount") == 8


def test_a_hang_ends_with_its_time(node: Build) -> None:
    """A hung call blocks until the fault is over and then answers."""
    sick = node(faults("at: 10s, for: 30s, gpu: 1, fault: hang, call: DeviceGetTemperatureV"))
    sick.at(20)
    assert sick.ask(1, "DeviceGetTemperatureV", 0) > 20
    assert sick.clock.t == pytest.approx(40, abs=0.1)


@pytest.mark.parametrize(
    ("gpu", "call", "arguments"),
    [(0, "DeviceGetTemperatureV", (0,)), (1, POWER, ())],
)
def test_a_hang_of_one_call_spares_the_rest(
    node: Build, gpu: int, call: str, arguments: tuple[int, ...]
) -> None:
    """Other cards, and other calls of the card, do not wait."""
    sick = node(faults("for: 30s, gpu: 1, fault: hang, call: DeviceGetTemperatureV")).at(5)
    assert sick.ask(gpu, call, *arguments) > 0
    assert sick.clock.slept == []


def test_a_hang_without_call_takes_the_handle_too(node: Build) -> None:
    """Call omitted: every call about the card waits, taking its handle included."""
    sick = node(faults("at: 1s, for: 5s, gpu: 1, fault: hang")).at(2)
    sick.handle(0)
    assert sick.clock.t == 2
    sick.handle(1)
    assert sick.clock.t == pytest.approx(6, abs=0.1)


def test_a_hang_without_gpu_takes_the_whole_driver(node: Build) -> None:
    """Gpu omitted: Init and listing wait as well."""
    sick = node(faults("for: 5s, fault: hang"), init=False)
    sick.driver.call("Init")
    assert sick.clock.t == pytest.approx(5, abs=0.1)


def test_a_card_lost_while_hung_is_lost_after(node: Build) -> None:
    """What a hung call answers is what holds when it comes back."""
    sick = node(
        faults(
            "at: 1s, for: 9s, gpu: 0, fault: hang, call: " + POWER, "at: 5s, gpu: 0, fault: lost"
        )
    )
    handle = sick.handle(0)
    sick.at(2)
    assert old_handle_answer(sick, handle) == "gpu_is_lost"


def test_a_slow_call_takes_its_latency(node: Build) -> None:
    """Each matching call waits once for the latency and then answers."""
    sick = node(faults(f"gpu: 1, fault: slow, latency: 50ms, call: {POWER}"))
    assert sick.ask(1, POWER) > 0
    assert sick.ask(0, POWER) > 0
    assert sick.clock.slept == [0.05]


@pytest.mark.parametrize(("code", "name"), [("unknown", "unknown"), ("15", "gpu_is_lost")])
def test_an_error_is_given_by_name_or_number(node: Build, code: str, name: str) -> None:
    """A call answers the error that the scenario names."""
    sick = node(faults(f"gpu: 2, fault: error, call: {POWER}, code: {code}"))
    assert sick.ask(2, POWER) == name
    assert isinstance(sick.ask(3, POWER), int)


def test_an_error_of_a_field_leaves_the_others(node: Build) -> None:
    """One entry fails, the call and its other entries do not."""
    sick = node(faults("gpu: 2, fault: error, field: 82, code: no_data"))
    codes = [row[0] for row in sick.ask(2, "DeviceGetFieldValues", ((82, 0), (83, 0)))]
    assert codes == [21, 0]


def test_errors_reach_calls_about_the_node(node: Build) -> None:
    """Init and listing can fail as well."""
    sick = node(
        faults(
            "at: 5s, fault: error, call: Init, code: timeout",
            "at: 5s, fault: error, call: DeviceGetCount, code: 999",
            "at: 5s, gpu: 1, fault: error, call: DeviceGetHandleByIndex, code: irq_issue",
        )
    ).at(5)
    assert sick.system("Init") == "timeout"
    assert sick.system("DeviceGetCount") == "unknown"
    assert sick.system("DeviceGetHandleByIndex", 1) == "irq_issue"
    assert sick.ask(0, POWER) > 0


def test_a_value_replaces_the_answer(node: Build) -> None:
    """Calls and fields answer what the scenario writes, tuples as lists."""
    sick = node(
        faults(
            "gpu: 2, fault: value, call: DeviceGetTemperatureV, value: 4294967295",
            "gpu: 2, fault: value, call: DeviceGetUtilizationRates, value: [200, 3]",
            "gpu: 2, fault: value, field: 82, value: 255",
            "gpu: 2, fault: value, field: 83, value: -1",
        )
    )
    assert sick.ask(2, "DeviceGetTemperatureV", 0) == 4294967295
    assert sick.ask(2, "DeviceGetUtilizationRates") == (200, 3)
    assert sick.field(2, 82) == 255
    assert sick.field(2, 83) == (1 << 64) - 1
    assert sick.ask(1, "DeviceGetTemperatureV", 0) < 100


def test_a_missing_symbol_is_not_found(node: Build) -> None:
    """The library lacks the call for every card."""
    sick = node(faults("fault: missing, call: DeviceGetMemoryInfo_v2"))
    assert sick.ask(0, "DeviceGetMemoryInfo_v2") == "function_not_found"
    assert len(sick.ask(0, "DeviceGetMemoryInfo")) == 3


# hardware


def test_ecc_errors_count_up(node: Build) -> None:
    """A count comes at once and again every so often, until the fault is over."""
    sick = node(
        faults(
            "at: 60s, for: 25s, gpu: 1, fault: ecc, type: uncorrected, location: dram, "
            "count: 3, every: 10s"
        )
    )
    counts = []
    for t in (59, 60, 69, 70, 84, 85, 500):
        sick.at(t)
        counts.append(sick.ask(1, "DeviceGetMemoryErrorCounter", UNCORRECTED, VOLATILE, DRAM))
        assert sick.field(1, 12) == sick.field(1, 4) == counts[-1]
        assert sick.ask(1, "DeviceGetTotalEccErrors", UNCORRECTED, LIFETIME) == counts[-1]
    assert counts == [0, 3, 3, 6, 9, 9, 9]
    assert sick.ask(2, "DeviceGetTotalEccErrors", UNCORRECTED, VOLATILE) == 0


def test_an_sram_error_may_pass_the_threshold(node: Build) -> None:
    """`threshold: true` sets the flag beside the count."""
    sick = node(faults("gpu: 1, fault: ecc, type: corrected, location: sram, threshold: true"))
    assert sick.ask(1, "DeviceGetMemoryErrorCounter", CORRECTED, VOLATILE, SRAM) == 1
    assert sick.ask(1, "DeviceGetSramEccErrorStatus") == (1,)
    assert sick.ask(0, "DeviceGetSramEccErrorStatus") == (0,)


def test_heat_throttles(node: Build) -> None:
    """Bit and umbrella bit are set, clocks and power fall, the counter grows, then it ends."""
    sick = node(faults("at: 60s, for: 60s, gpu: 0, fault: throttle, reason: hw_thermal_slowdown"))
    calm = node("")
    for each in (sick, calm):
        each.at(100)
    assert sick.ask(0, "DeviceGetCurrentClocksEventReasons") == 0x48
    assert sick.ask(0, "DeviceGetClockInfo", 1) < 0.6 * calm.ask(0, "DeviceGetClockInfo", 1)
    assert sick.ask(0, POWER) < 0.7 * calm.ask(0, POWER)
    assert sick.ask(0, "DeviceGetTemperatureV", 0) >= 89
    assert sick.field(0, 270) == 40_000_000_000
    energy = "DeviceGetTotalEnergyConsumption"
    assert sick.ask(0, energy) < calm.ask(0, energy)
    sick.at(200)
    assert sick.field(0, 270) == 60_000_000_000
    assert not sick.ask(0, "DeviceGetCurrentClocksEventReasons") & 0x48
    assert sick.ask(0, "DeviceGetTemperatureV", 0) < 80


def test_overlapping_throttling_counts_once(node: Build) -> None:
    """Two faults with one reason never make a counter run faster than the clock."""
    sick = node(
        faults(
            "at: 10s, for: 20s, gpu: 0, fault: throttle, reason: sw_power_cap, factor: 1",
            "at: 20s, for: 20s, gpu: 0, fault: throttle, reason: sw_power_cap",
        )
    )
    before, after = sick.at(5).field(0, 74), sick.at(45).field(0, 74)
    assert 30e9 <= after - before <= 40e9
    values = [sick.at(t / 4).field(0, 74) for t in range(240)]
    assert all(0 <= b - a <= 0.26e9 for a, b in itertools.pairwise(values))


def test_energy_still_fits_power_while_throttled(node: Build) -> None:
    """Energy over a second of throttling is the power shown in it."""
    sick = node(faults("at: 60s, gpu: 0, fault: throttle, reason: hw_power_brake_slowdown")).at(80)
    before = sick.ask(0, "DeviceGetTotalEnergyConsumption")
    sick.at(81)
    assert sick.ask(0, "DeviceGetTotalEnergyConsumption") - before == pytest.approx(
        sick.ask(0, POWER), abs=2
    )


def test_a_row_remap_waits_for_a_reset(node: Build) -> None:
    """Pending ends with a reset, the remapped row and a failure stay."""
    sick = node(
        faults(
            "at: 10s, gpu: 1, fault: row_remap, pending: true, failure: false",
            "at: 10s, gpu: 2, fault: row_remap, failure: true",
            "at: 30s, fault: reset",
        )
    )
    remapped = [sick.at(t).ask(1, "DeviceGetRemappedRows") for t in (9, 10, 30)]
    assert remapped == [(0, 0, 0, 0), (0, 1, 1, 0), (0, 1, 0, 0)]
    assert sick.at(31).ask(2, "DeviceGetRemappedRows") == (0, 1, 0, 1)
    assert sum(sick.ask(2, "DeviceGetRowRemapperHistogram")) == 2560
    assert [sick.field(2, number) for number in (143, 144, 145)] == [1, 0, 1]


def test_an_old_card_retires_pages_instead(node: Build) -> None:
    """The same fault on a T4 is a retired page that is pending."""
    text = "cards: [{model: T4}]\n" + faults("fault: row_remap")
    sick = node(text)
    assert sick.ask(0, "DeviceGetRetiredPages", 1) == 1
    assert sick.ask(0, "DeviceGetRetiredPagesPendingStatus") == 1
    assert sick.field(0, 93) == 1
    assert sick.ask(0, "DeviceGetRemappedRows") == "not_supported"


def test_the_latest_recovery_action_counts(node: Build) -> None:
    """A later action replaces an earlier one, and a reset takes it to none."""
    sick = node(
        faults(
            "at: 10s, gpu: 1, fault: recovery_action, action: 1",
            "at: 20s, gpu: 1, fault: recovery_action, action: 4",
            "at: 30s, gpu: 1, fault: reset",
        )
    )
    assert [sick.at(t).field(1, 230) for t in (5, 15, 25, 35)] == [0, 1, 4, 0]


def test_links_go_down(node: Build) -> None:
    """Named links are inactive, the others not, and the fabric is degraded."""
    sick = node(faults("gpu: 2, fault: nvlink_down, links: [0, 1]"))
    states = [sick.ask(2, "DeviceGetNvLinkState", link) for link in range(18)]
    assert states == [0, 0] + [1] * 16
    assert [sick.field(2, 165, link) for link in (1, 2)] == [0, 1]
    *_, mask, summary = sick.ask(2, "DeviceGetGpuFabricInfo")
    assert (mask & 3, summary) == (1, 2)


def test_link_errors_have_a_kind_and_a_link(node: Build) -> None:
    """Only the counter of this kind and link grows, and the sum over all links."""
    sick = node(
        faults("at: 10s, gpu: 2, fault: nvlink_errors, kind: replay, link: 3, count: 5, every: 10s")
    ).at(25)
    assert [sick.field(2, 161, scope) for scope in (3, 2, ALL_LINKS)] == [10, 0, 10]
    assert sick.field(2, 163, ALL_LINKS) == 0


def test_a_pcie_link_trains_down(node: Build) -> None:
    """Generation, width and replays change; the maximum stays."""
    sick = node(faults("gpu: 1, fault: pcie, generation: 1, width: 8, replays: 7, every: 15s"))
    sick.at(20)
    calls = ("CurrPcieLinkGeneration", "CurrPcieLinkWidth", "MaxPcieLinkWidth", "PcieReplayCounter")
    assert [sick.ask(1, f"DeviceGet{call}") for call in calls] == [1, 8, 16, 14]
    assert sick.field(1, 94) == 14


def test_memory_leaks(node: Build) -> None:
    """A leaking process grows with time until the card is full."""
    sick = node(faults("at: 10s, gpu: 1, fault: memory_leak, mib_per_second: 100"))
    used = [sick.at(t).ask(1, "DeviceGetMemoryInfo_v2")[3] for t in (20, 30)]
    assert used[1] - used[0] == 1000 << 20
    assert sick.at(5000).ask(1, "DeviceGetMemoryInfo_v2")[2] == 0


@pytest.mark.parametrize("code", [48, 94, 95])
def test_memory_xids_show_on_the_card(node: Build, code: int) -> None:
    """These come with an uncorrected error, a pending remap and the wish for a reset."""
    sick = node(faults(f"at: 10s, gpu: 4, fault: xid, code: {code}")).at(11)
    assert sick.ask(4, "DeviceGetTotalEccErrors", UNCORRECTED, VOLATILE) == 1
    assert sick.ask(4, "DeviceGetRemappedRows") == (0, 1, 1, 0)
    assert sick.field(4, 230) == 1


def test_xid_79_loses_the_card_until_a_reset(node: Build) -> None:
    """A card off the bus is lost; a reset brings it back with new counters."""
    sick = node(faults("at: 10s, gpu: 4, fault: xid, code: 79", "at: 50s, gpu: 4, fault: reset"))
    sick.at(11)
    assert sick.system("DeviceGetHandleByIndex", 4) == "gpu_is_lost"
    sick.at(51)
    assert sick.field(4, 230) == 0
    assert sick.ask(4, "DeviceGetTotalEnergyConsumption") < 1000 * 1000


def test_xid_154_carries_the_action(node: Build) -> None:
    """The recovery action is the one that the record speaks of."""
    sick = node(faults("gpu: 4, fault: xid, code: 154, action: 2", "gpu: 5, fault: xid, code: 13"))
    assert (sick.field(4, 230), sick.field(5, 230)) == (2, 0)


def test_mig_takes_a_card_apart(node: Build) -> None:
    """Instances appear with ids and memory; the card no longer tells its utilization."""
    sick = node(faults("at: 10s, for: 60s, gpu: 0, fault: mig, instances: [3g.40gb, 4g.40gb]"))
    assert sick.at(5).ask(0, "DeviceGetMigMode") == (0, 0)
    assert sick.ask(0, "DeviceGetMigDeviceHandleByIndex", 0) == "not_found"
    sick.at(20)
    assert sick.ask(0, "DeviceGetMigMode") == (1, 1)
    assert sick.ask(0, "DeviceGetUtilizationRates") == "not_supported"
    assert sick.ask(0, "DeviceGetRemappedRows") == "not_supported"
    assert sick.field(0, 12) == -3
    handles = [sick.ask(0, "DeviceGetMigDeviceHandleByIndex", index) for index in range(3)]
    assert handles[2] == "not_found"
    first, second = handles[:2]
    ask = sick.driver.call
    assert ask("DeviceGetUUID", first) != ask("DeviceGetUUID", second)
    assert ask("DeviceGetName", first) == "NVIDIA H100 80GB HBM3 MIG 3g.40gb"
    assert [ask("DeviceGetGpuInstanceId", each) for each in (first, second)] == [1, 2]
    slices, compute, memory = ask("DeviceGetAttributes", first)
    assert (slices, compute) == (3, 3)
    total, reserved, free, used = ask("DeviceGetMemoryInfo_v2", first)
    assert total == memory << 20 == reserved + free + used
    (pid, size, gpu_instance, compute_instance) = ask("DeviceGetComputeRunningProcesses", first)[0]
    assert (gpu_instance, compute_instance) == (1, 0)
    assert size == used
    assert pid in [row[0] for row in sick.ask(0, "DeviceGetComputeRunningProcesses")]
    assert old_handle_answer(sick, first, POWER) == "not_supported"
    sick.at(80)
    assert old_handle_answer(sick, first, "DeviceGetUUID") == "invalid_argument"


# listing and the whole driver


def uuids(node: Node) -> list[str]:
    return [node.ask(index, "DeviceGetUUID") for index in range(node.system("DeviceGetCount"))]


def test_a_swap_changes_the_order(node: Build) -> None:
    """Two cards change their index and keep who they are."""
    sick = node(faults("at: 10s, for: 10s, fault: swap, gpus: [0, 1]"))
    before = uuids(sick)
    assert uuids(sick.at(15)) == [before[1], before[0], *before[2:]]
    assert uuids(sick.at(20)) == before


def test_an_unlisted_card_shifts_the_others(node: Build) -> None:
    """The count drops, later indexes move down, the old handle is lost, PCI still has it."""
    sick = node(faults("at: 10s, gpu: 3, fault: unlisted"))
    before, handle = uuids(sick), sick.handle(3)
    assert uuids(sick.at(15)) == before[:3] + before[4:]
    assert old_handle_answer(sick, handle) == "gpu_is_lost"
    assert sick.driver.host_facts()["detected_gpus"] == 8


def test_a_hole_is_unknown(node: Build) -> None:
    """One index no longer gives a handle; the count and the other indexes stay."""
    sick = node(faults("at: 10s, gpu: 3, fault: hole")).at(15)
    assert sick.system("DeviceGetCount") == 8
    assert sick.system("DeviceGetHandleByIndex", 3) == "unknown"
    assert sick.ask(4, POWER) > 0


def test_the_driver_goes_away_and_comes_back(node: Build) -> None:
    """All is refused until a fresh Init after it; volatile counters restart, lifetime ones stay."""
    sick = node(
        faults(
            "at: 30s, for: 30s, fault: driver_gone",
            "at: 5s, gpu: 0, fault: ecc, type: uncorrected, location: dram",
        )
    )
    handle = sick.at(29).handle(0)
    energy = sick.ask(0, "DeviceGetTotalEnergyConsumption")
    sick.at(40)
    assert sick.system("Init") == "driver_not_loaded"
    assert sick.system("DeviceGetCount") == "driver_not_loaded"
    assert old_handle_answer(sick, handle) == "driver_not_loaded"
    assert sick.driver.host_facts()["driver_version"] is None
    sick.at(70)
    assert sick.system("DeviceGetCount") == "uninitialized"
    assert old_handle_answer(sick, handle) == "uninitialized"
    assert sick.system("Init") is None
    assert old_handle_answer(sick, handle) == "invalid_argument"
    assert 0 < sick.ask(0, "DeviceGetTotalEnergyConsumption") < 11 * 700_000 < energy
    assert sick.ask(0, "DeviceGetTotalEccErrors", UNCORRECTED, VOLATILE) == 0
    assert sick.ask(0, "DeviceGetTotalEccErrors", UNCORRECTED, LIFETIME) == 1
    assert sick.driver.host_facts()["driver_version"] == "580.95.05"
    sick.driver.call("Shutdown")
    assert sick.system("DeviceGetCount") == "uninitialized"


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("library_missing", "library_not_found"),
        ("mismatch", "lib_rm_version_mismatch"),
        ("denied", "no_permission"),
        ("driver_gone", "driver_not_loaded"),
    ],
)
def test_init_says_why_there_is_no_driver(node: Build, fault: str, error: str) -> None:
    """Each reason has its code, and goes away with the fault."""
    sick = node(faults(f"for: 10s, fault: {fault}"), init=False)
    assert sick.system("Init") == error
    assert sick.at(10).system("Init") is None


def test_a_mismatch_shows_on_the_host(node: Build) -> None:
    """The loaded module is older than the library."""
    sick = node(faults("fault: mismatch, module: 575.57.08"), init=False)
    assert sick.driver.host_facts()["driver_version"] == "575.57.08"


def test_a_denied_card_leaves_the_others(node: Build) -> None:
    """With gpu only this card is refused; without it everything is."""
    sick = node(faults("gpu: 1, fault: denied", "at: 30s, fault: denied"))
    assert sick.system("DeviceGetHandleByIndex", 1) == "no_permission"
    handle = sick.handle(0)
    assert old_handle_answer(sick.at(31), handle) == "no_permission"
    assert sick.system("DeviceGetCount") == "no_permission"


def test_a_node_without_cards_works(node: Build) -> None:
    """A driver may be there with nothing to list."""
    empty = node("cards: 0")
    assert empty.system("DeviceGetCount") == 0
    assert empty.driver.host_facts()["pci"] == []


def test_all_faults_of_the_packaged_scenario_show() -> None:
    """The `sick` scenario has the trouble on each card that its comments promise."""
    clock = Clock()
    sick = Node(SimDriver(load_scenario("sick"), clock(), clock=clock, sleep=clock.sleep), clock)
    sick.driver.call("Init")
    sick.at(20)
    assert all(sick.ask(gpu, "DeviceGetTemperatureV", 0) < 85 for gpu in range(8))
    sick.at(80)
    assert sick.field(0, 230) == 1
    assert sick.field(1, 11) >= 100
    assert sick.ask(2, "DeviceGetCurrentClocksEventReasons") & 0x40
    assert sick.ask(3, "DeviceGetRemappedRows")[3] == 1
    assert sick.ask(4, "DeviceGetNvLinkState", 3) == 0
    assert sick.ask(5, "DeviceGetCurrPcieLinkWidth") == 8
    assert sick.system("DeviceGetHandleByIndex", 6) == "gpu_is_lost"
    assert sick.ask(7, "DeviceGetTemperatureV", 0) == "unknown"
