# SPDX-License-Identifier: Apache-2.0
"""Healthy cards: what each model has, and values that hang together over time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_node import ALL_LINKS, EPOCH, Build, Clock, Node

from cardwatch.nvml.calls import CALLS
from cardwatch.nvml.codes import DriverError
from cardwatch.nvml.fields import TYPE_DOUBLE
from cardwatch.sim import DEFAULT, Scenario, SimDriver, releases
from cardwatch.sim.activity import Activity
from cardwatch.sim.answers import CARD_CALLS, INSTANCE_CALLS
from cardwatch.sim.card import FIRST_PID, Card
from cardwatch.sim.models import MODELS, REASON_BITS
from cardwatch.sim.scenario import CardSpec

EVERY_MODEL = Scenario(cards=tuple(CardSpec(model) for model in MODELS.values()))
MODEL_NAMES = list(MODELS)

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "DeviceGetTemperatureV": (0,),
    "DeviceGetTemperature": (0,),
    "DeviceGetTemperatureThreshold": (1,),
    "DeviceGetFanSpeed_v2": (0,),
    "DeviceGetClockInfo": (1,),
    "DeviceGetMaxClockInfo": (1,),
    "DeviceGetTotalEccErrors": (0, 0),
    "DeviceGetMemoryErrorCounter": (0, 0, 2),
    "DeviceGetRetiredPages": (1,),
    "DeviceGetNvLinkState": (0,),
    "DeviceGetMigDeviceHandleByIndex": (0,),
    "DeviceGetFieldValues": (((82, 0), (83, 0), (230, 0)),),
}
OF_INSTANCES = ("DeviceGetGpuInstanceId", "DeviceGetComputeInstanceId", "DeviceGetAttributes")
CARD_NAMES = [name for name in CALLS if name in CARD_CALLS and name not in OF_INSTANCES]

COUNTERS = {
    # counter -> field id and scope
    "energy": (83, 0),
    "power cap": (74, 0),
    "pcie sent": (197, 0),
    "pcie received": (198, 0),
    "nvlink sent": (138, ALL_LINKS),
    "nvlink received": (139, ALL_LINKS),
    "corrected": (3, 0),
    "lifetime corrected": (5, 0),
}


def driver_at(t: float, seed: int = 1, scenario: Scenario = DEFAULT) -> Node:
    """A process that started at ``t`` of the node."""
    clock = Clock()
    clock.t = t
    driver = SimDriver(scenario, EPOCH, seed, clock=clock)
    driver.call("Init")
    return Node(driver, clock)


def everything(node: Node, gpu: int) -> dict[str, Any]:
    """Each call of a card with its answer or error."""
    return {name: node.ask(gpu, name, *ARGUMENTS.get(name, ())) for name in CARD_NAMES}


def test_every_call_of_the_interface_is_answered() -> None:
    """No call of CALLS is left out, and none is made up."""
    node = driver_at(1.0)
    of_the_node = set(node.driver._node_calls) | set(node.driver._event_calls)
    assert of_the_node | set(CARD_CALLS) | {"DeviceGetMigDeviceHandleByIndex"} == set(CALLS)
    assert set(INSTANCE_CALLS) <= set(CARD_CALLS)


@pytest.mark.parametrize("model", MODEL_NAMES)
def test_a_card_only_ever_answers_or_says_not_supported(model: str) -> None:
    """On a healthy card of a new driver no call fails in any other way."""
    node = driver_at(12.0, scenario=EVERY_MODEL)
    answers = everything(node, MODEL_NAMES.index(model))
    newer = releases.missing_symbols(node.driver.scenario.driver_release)
    errors = {a for name, a in answers.items() if isinstance(a, str) and name not in newer}
    texts = {answers[f"DeviceGet{name}"] for name in ("UUID", "Name", "PciBusId", "VbiosVersion")}
    assert "not_supported" in errors
    assert not errors & {"invalid_argument", "function_not_found", "unknown"}
    assert "not_supported" not in texts


@pytest.mark.parametrize(
    ("model", "call", "arguments"),
    [
        ("RTX4090", "DeviceGetEccMode", ()),
        ("RTX4090", "DeviceGetTotalEccErrors", (0, 0)),
        ("RTX4090", "DeviceGetSerial", ()),
        ("RTX4090", "DeviceGetRemappedRows", ()),
        ("T4", "DeviceGetRemappedRows", ()),
        ("T4", "DeviceGetJpgUtilization", ()),
        ("T4", "DeviceGetSramEccErrorStatus", ()),
        ("A100", "DeviceGetRetiredPages", (1,)),
        ("A100", "DeviceGetGpuFabricInfo", ()),
        ("H100", "DeviceGetFanSpeed_v2", (0,)),
        ("H100", "DeviceGetMemoryErrorCounter", (0, 0, 0)),
        ("L40S", "DeviceGetMigMode", ()),
        ("L40S", "DeviceGetNvLinkState", (0,)),
        ("GB10", "DeviceGetMemoryInfo", ()),
        ("GB10", "DeviceGetMemoryInfo_v2", ()),
        ("GB10", "DeviceGetEnforcedPowerLimit", ()),
        ("GB10", "DeviceGetClockInfo", (2,)),
    ],
)
def test_what_a_model_lacks_is_not_supported(
    model: str, call: str, arguments: tuple[int, ...]
) -> None:
    """A card refuses what its model does not have."""
    node = driver_at(5.0, scenario=EVERY_MODEL)
    assert node.ask(MODEL_NAMES.index(model), call, *arguments) == "not_supported"


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("DeviceGetTemperature", (1,)),
        ("DeviceGetTemperatureThreshold", (9,)),
        ("DeviceGetClockInfo", (4,)),
        ("DeviceGetTotalEccErrors", (2, 0)),
        ("DeviceGetMemoryErrorCounter", (0, 0, 8)),
        ("DeviceGetNvLinkState", (18,)),
        ("DeviceGetMigDeviceHandleByIndex", (7,)),
        ("DeviceGetGpuInstanceId", ()),
    ],
)
def test_wrong_arguments_are_refused(call: str, arguments: tuple[int, ...]) -> None:
    """Sensors, types and links that do not exist are invalid arguments."""
    assert driver_at(5.0).ask(0, call, *arguments) == "invalid_argument"


def test_the_unified_memory_chip_looks_as_it_does() -> None:
    """GB10 tells no memory, but its processes do, and its PCI domain is 000f."""
    node = driver_at(0.0, scenario=Scenario(cards=(CardSpec(MODELS["GB10"]),)))
    assert node.ask(0, "DeviceGetPciBusId") == "0000000F:01:00.0"
    assert node.ask(0, "DeviceGetComputeRunningProcesses")[0][1] > 1 << 30
    assert node.ask(0, "DeviceGetUtilizationRates")[1] == 0


def test_both_versions_of_memory_info_agree() -> None:
    """The old call counts the reserved memory as used, the new one does not."""
    node = driver_at(3.0)
    total, reserved, free, used = node.ask(0, "DeviceGetMemoryInfo_v2")
    assert node.ask(0, "DeviceGetMemoryInfo") == (total, free, used + reserved)
    assert total == reserved + free + used


def test_simulated_processes_are_none_of_this_machine() -> None:
    """Process ids lie above the highest that a kernel gives, and hosts know them."""
    node = driver_at(3.0, scenario=EVERY_MODEL)
    known = node.driver.host_facts()["processes"]
    for gpu in range(len(MODELS)):
        for call in ("DeviceGetComputeRunningProcesses", "DeviceGetGraphicsRunningProcesses"):
            for pid, size, *instance in node.ask(gpu, call):
                assert pid >= FIRST_PID
                assert size > 0
                assert instance == [None, None]
                assert known[pid]["started"] <= EPOCH + 3.0


def test_host_facts_do_not_need_the_driver() -> None:
    """PCI devices and kernel module show as sysfs and procfs have them."""
    facts = driver_at(1.0).driver.host_facts()
    assert facts["detected_gpus"] == 8
    assert facts["pci"][0] == "0000:1b:00.0"
    assert len(set(facts["pci"])) == 8
    assert (facts["driver_version"], facts["kernel_module"]) == ("580.95.05", "open")


# determinism and counters


def test_the_same_seed_is_the_same_node() -> None:
    """Two processes at the same moment tell the same, another seed something else."""
    one, other = driver_at(123.4, seed=7), driver_at(123.4, seed=7)
    assert everything(one, 3) == everything(other, 3)
    assert everything(one, 3) != everything(driver_at(123.4, seed=8), 3)


def test_the_seed_is_the_callers_or_the_scenarios(node: Build) -> None:
    """A seed that is given rules; else the scenario's, 0 included; else always the same."""
    assert node("seed: 0").driver.seed == 0
    assert node("seed: 7").driver.seed == 7
    assert node("seed: 7", seed=3).driver.seed == 3
    assert node("").driver.seed == node("").driver.seed


def test_identity_does_not_depend_on_time() -> None:
    """UUID, serial and PCI address survive a restart, and no two cards share one."""
    calls = ("DeviceGetUUID", "DeviceGetSerial", "DeviceGetPciBusId")
    early, late = driver_at(0.0), driver_at(86_400.0)
    for call in calls:
        told = [early.ask(gpu, call) for gpu in range(8)]
        assert told == [late.ask(gpu, call) for gpu in range(8)]
        assert len(set(told)) == 8


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=6), st.integers(0, 1000))
def test_counters_never_fall_across_restarts(times: list[float], seed: int) -> None:
    """A process started later continues every counter where the last one was."""
    last = dict.fromkeys(COUNTERS, 0)
    for t in sorted(times):
        node = driver_at(t, seed)
        for name, (number, scope) in COUNTERS.items():
            value = node.field(1, number, scope)
            assert value >= last[name], name
            last[name] = value


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.floats(0, 1e6), st.sampled_from(MODEL_NAMES))
def test_energy_is_the_integral_of_power(seed: int, t: float, model: str) -> None:
    """Over a short time, energy grows by the power shown times that time."""
    card = Card(seed, 0, MODELS[model])
    step = 0.02
    powers = [card.power_w(x, card.activity.value(card.activity.job(x))) for x in (t, t + step)]
    gained = (card.energy_j(t + step) - card.energy_j(t)) / step
    slack = 0.02 * card.model.busy_w  # what a ramp may change within the step
    assert min(powers) - slack <= gained <= max(powers) + slack


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.floats(0, 1e6))
def test_work_is_the_integral_of_the_load(seed: int, t: float) -> None:
    """Summed in small steps, the load gives the area that is given at once."""
    activity = Activity(seed, 0)
    step, count = 0.05, 400
    middles = (t + step * (number + 0.5) for number in range(count))
    summed = step * sum(activity.value(activity.job(x)) for x in middles)
    assert activity.area(t + step * count) - activity.area(t) == pytest.approx(summed, abs=0.02)


@pytest.mark.parametrize("seed", range(12))
def test_every_card_is_at_work_when_the_node_starts(seed: int) -> None:
    """A demonstration does not begin with idle cards, whatever the seed."""
    node = driver_at(0.0, seed)
    assert all(node.ask(gpu, "DeviceGetUtilizationRates")[0] > 50 for gpu in range(8))


def test_a_card_works_and_rests() -> None:
    """Within an hour a card is busy and warm, then idle, cool and without processes."""
    node = driver_at(0.0, scenario=EVERY_MODEL)
    seen: dict[bool, set[str]] = {True: set(), False: set()}
    for t in range(0, 3600, 20):
        node.at(float(t))
        busy = node.ask(5, "DeviceGetUtilizationRates")[0] > 0
        state = node.ask(5, "DeviceGetPerformanceState")
        idle_bit = node.ask(5, "DeviceGetCurrentClocksEventReasons") == REASON_BITS["gpu_idle"]
        held = bool(node.ask(5, "DeviceGetComputeRunningProcesses"))
        seen[busy].add(f"P{state} idle={idle_bit} held={held}")
    assert seen[False] == {"P8 idle=True held=False"}
    assert "P0 idle=False held=True" in seen[True]


def test_temperature_follows_power_with_a_lag() -> None:
    """Ten seconds after a job ends the card is cooler than in it and warmer than at rest."""
    card = Card(1, 0, MODELS["H100"])
    end = next(float(t) for t in range(2000) if not card.activity.job(float(t)).running)
    during, soon, later = (card.temperature_c(end + after) for after in (-20, 10, 100))
    assert during > soon + 3
    assert soon > later + 3


@settings(max_examples=150, deadline=None)
@given(st.floats(0, 1e6), st.integers(0, 100), st.sampled_from(MODEL_NAMES))
def test_values_are_plausible_at_any_time(t: float, seed: int, name: str) -> None:
    """Whenever one looks, a healthy card shows what such a card can show."""
    node, gpu = driver_at(t, seed, EVERY_MODEL), MODEL_NAMES.index(name)
    model = MODELS[name]
    busy, controller = node.ask(gpu, "DeviceGetUtilizationRates")
    assert 0 <= busy <= 100
    assert 0 <= controller <= 100
    limit = model.limits.default if model.limits else 1000 * model.busy_w
    assert 0.9 * 1000 * model.idle_w <= node.ask(gpu, "DeviceGetPowerUsage") <= limit
    assert 25 <= node.ask(gpu, "DeviceGetTemperatureV", 0) < model.thresholds.gpu_max
    assert model.clocks.idle_sm <= node.ask(gpu, "DeviceGetClockInfo", 1) <= model.clocks.sm
    assert node.ask(gpu, "DeviceGetMarginTemperature") in (
        "not_supported",
        model.thresholds.slowdown - node.ask(gpu, "DeviceGetTemperatureV", 0),
    )
    if model.memory_mib:
        total, reserved, free, used = node.ask(gpu, "DeviceGetMemoryInfo_v2")
        assert min(reserved, free, used) >= 0
        assert total == reserved + free + used
    if model.memory_temperature:
        assert 25 <= node.field(gpu, 82) < (model.thresholds.memory_max or 0)
    if model.fans:
        assert 0 <= node.ask(gpu, "DeviceGetFanSpeed_v2", 0) <= 100
    assert node.ask(gpu, "DeviceGetCurrentClocksEventReasons") & ~model.reasons == 0
    if model.ecc:
        assert node.ask(gpu, "DeviceGetTotalEccErrors", 1, 1) == 0


# life cycle and releases


def test_nothing_is_answered_before_init_and_after_shutdown() -> None:
    """Calls need Init; as many Shutdowns as Inits end it."""
    clock = Clock()
    node = Node(SimDriver(DEFAULT, EPOCH, clock=clock), clock)
    assert node.system("DeviceGetCount") == "uninitialized"
    node.driver.call("Init")
    node.driver.call("Init")
    node.driver.call("Shutdown")
    assert node.system("DeviceGetCount") == 8
    node.driver.call("Shutdown")
    assert node.system("DeviceGetCount") == "uninitialized"
    assert node.system("Shutdown") == "uninitialized"


@pytest.mark.parametrize("index", [-1, 8, None, "0"])
def test_a_bad_index_is_an_invalid_argument(index: Any) -> None:
    """Only indexes below the count give a handle."""
    assert driver_at(0.0).system("DeviceGetHandleByIndex", index) == "invalid_argument"


def test_a_handle_that_is_none_is_an_invalid_argument() -> None:
    """Something else in the place of a handle is refused."""
    with pytest.raises(DriverError, match="invalid_argument"):
        driver_at(0.0).driver.call("DeviceGetUUID", "GPU-0")


def test_an_unknown_call_is_a_missing_symbol() -> None:
    """A call that no library has is not found."""
    assert driver_at(0.0).system("DeviceGetMagic") == "function_not_found"


def test_an_old_driver_lacks_the_new_calls(node: Build) -> None:
    """R470 has no versioned memory call, event reasons or new temperature; the old ones work."""
    old = node("driver: 470.57.02")
    for call, arguments in (
        ("DeviceGetMemoryInfo_v2", ()),
        ("DeviceGetTemperatureV", (0,)),
        ("DeviceGetCurrentClocksEventReasons", ()),
        ("DeviceGetRepairStatus", ()),
        ("DeviceGetGpuFabricInfo", ()),
    ):
        assert old.ask(0, call, *arguments) == "function_not_found"
    assert old.system("SystemGetDriverBranch") == "function_not_found"
    assert old.system("SystemGetCudaDriverVersion") == 11040
    assert old.system("SystemGetNVMLVersion") == "11.470.57.02"
    assert len(old.ask(0, "DeviceGetMemoryInfo")) == 3
    assert old.ask(0, "DeviceGetTemperature", 0) > 20
    assert old.ask(0, "DeviceGetCurrentClocksThrottleReasons") >= 0


def test_versions_of_a_new_driver() -> None:
    """Driver, library and CUDA versions belong together."""
    node = driver_at(0.0)
    names = ("DriverVersion", "NVMLVersion", "CudaDriverVersion", "DriverBranch")
    told = [node.system(f"SystemGet{name}") for name in names]
    assert told == ["580.95.05", "13.580.95.05", 13000, "r580_00"]


@pytest.mark.parametrize(
    ("driver", "info"),
    [
        ("535.183.01", (1, 3, 0, None, None)),
        ("550.90.07", (2, 3, 0, 0x51AA, None)),
        ("580.95.05", (3, 3, 0, 0x51AA, 1)),
    ],
)
def test_fabric_info_grows_with_the_driver(node: Build, driver: str, info: Any) -> None:
    """Health mask and summary came with later versions of the call."""
    assert node(f"driver: {driver}").ask(0, "DeviceGetGpuFabricInfo") == info


# fields


def test_an_early_580_driver_has_settings_where_later_ones_count(node: Build) -> None:
    """On 580.65 the ids 269-271 succeed with power smoothing settings of a B200."""
    fault = "{fault: throttle, reason: hw_thermal_slowdown}"
    text = "{{driver: {}, cards: [{{model: B200}}], faults: [{}]}}"
    early = node(text.format("580.65.06", fault)).at(20)
    late = node(text.format("580.95.05", fault)).at(20)
    assert (early.field(0, 270), early.field(0, 252)) == (100, 20_000_000_000)
    assert (late.field(0, 270), late.field(0, 252)) == (20_000_000_000, 0)


@pytest.mark.parametrize(
    ("driver", "number", "answer"),
    [
        ("470.57.02", 185, -2),  # newer than all that R470 knows
        ("535.183.01", 197, -2),
        ("550.90.07", 270, -2),
        ("580.95.05", 999, -2),
        ("580.95.05", 78, -3),  # known, but no card has it
    ],
)
def test_fields_that_a_driver_does_not_know_are_invalid(
    node: Build, driver: str, number: int, answer: int
) -> None:
    """A field beyond the driver's list is an invalid argument, others not supported."""
    assert node(f"driver: {driver}").field(0, number) == answer


def test_ecc_fields_lie_when_ecc_is_off(node: Build) -> None:
    """With ECC off a field succeeds with type 0, latency 0 and rubbish; the call refuses."""
    off = node("cards: [{model: A100, ecc: false}]")
    code, kind, latency, raw = off.ask(0, "DeviceGetFieldValues", ((4, 0),))[0]
    assert (code, kind, latency) == (0, TYPE_DOUBLE, 0)
    assert raw > 1 << 60
    assert off.ask(0, "DeviceGetEccMode") == (0, 0)
    assert off.ask(0, "DeviceGetTotalEccErrors", 1, 0) == "not_supported"


def test_ecc_fields_leave_their_type_unset() -> None:
    """With ECC on the value is a whole number although the type says double."""
    answer = driver_at(0.0).ask(0, "DeviceGetFieldValues", ((4, 0),))[0]
    assert answer[:2] == (0, TYPE_DOUBLE)
    assert answer[2] > 0
    assert answer[3] == 0


def test_r545_calls_the_memory_temperature_a_double(node: Build) -> None:
    """The type of field 82 is wrong on that branch alone."""
    for driver, wrong in (("545.23.08", True), ("550.90.07", False)):
        answer = node(f"driver: {driver}").ask(0, "DeviceGetFieldValues", ((82, 0),))[0]
        assert (answer[1] == TYPE_DOUBLE) is wrong
        assert 20 < answer[3] < 100


def test_link_counters_take_a_link_or_all() -> None:
    """The scope is a link, or all of them; another link is refused."""
    node = driver_at(50.0)
    one, every = node.field(0, 138, 0), node.field(0, 138, ALL_LINKS)
    assert every == pytest.approx(18 * one, rel=1e-6)
    assert node.field(0, 138, 18) == -2


def test_blackwell_moved_its_link_counters() -> None:
    """B200 answers the byte and symbol counters and none of the older ids."""
    node, gpu = driver_at(50.0, scenario=EVERY_MODEL), MODEL_NAMES.index("B200")
    assert node.field(gpu, 202, ALL_LINKS) > 0
    assert node.field(gpu, 221, ALL_LINKS) == 0
    assert [node.field(gpu, number, ALL_LINKS) for number in (138, 161, 52)] == [-3, -3, -3]


def test_the_average_is_not_told_by_the_older_chips() -> None:
    """A100 has the instant power field and no average."""
    node, gpu = driver_at(50.0, scenario=EVERY_MODEL), MODEL_NAMES.index("A100")
    assert node.field(gpu, 185) == -3
    assert node.field(gpu, 186) == pytest.approx(node.ask(gpu, "DeviceGetPowerUsage"), abs=1)
    assert node.field(gpu, 186, 1) == -3


@pytest.mark.parametrize("seed", range(8))
def test_counters_stand_still_over_idle_moments(seed: int) -> None:
    """From one cycle of work to the next no rounding lets a counter fall, not by one byte."""
    card = Card(seed, 0, MODELS["H100"])
    activity = card.activity
    for number in range(1, 1500):
        border = activity._origin + number * activity._cycle
        around = [border - 0.02, border - 0.01, border + 0.01, border + 0.02]
        for integral in (card.work, card.capped_seconds, card.energy_j):
            values = [integral(t) for t in around]
            assert values == sorted(values)


@pytest.mark.parametrize("reason", ["sw_power_cap", "hw_thermal_slowdown"])
def test_counters_do_not_fall_while_throttled(node: Build, reason: str) -> None:
    """Before, within and after throttling, in the finest steps, counters only grow."""
    sick = node(
        f"faults: [{{at: 5s, for: 5s, gpu: 1, fault: throttle, reason: {reason}}},"
        " {at: 8s, for: 4s, gpu: 1, fault: throttle, reason: sync_boost}]"
    )
    last = dict.fromkeys(COUNTERS, 0)
    for step in range(1500):
        sick.at(step / 100)
        for name, (number, scope) in COUNTERS.items():
            value = sick.field(1, number, scope)
            assert value >= last[name], (name, step)
            last[name] = value
