# SPDX-License-Identifier: Apache-2.0
"""What must stay quiet, and what must not: public cases and false positives of other tools."""

from __future__ import annotations

import pytest
from verdict_stage import ECC, START_WALL, THROTTLE, Puppet, Stage

MINUTE, HOUR = 60.0, 3600.0


def _idle(card: Puppet) -> None:
    card.set("gpu_utilization_ratio", 0.0)
    card.set("gpu_clock_hertz", 0.345e9, "sm")
    card.set("gpu_power_watts", 75.0)
    card.set("gpu_temperature_celsius", 34.0)
    card.set("gpu_pcie_link_generation", 1.0)


def _quiet_throughout(stage: Stage, seconds: float) -> bool:
    """Run and say whether nothing ever held, not even for one sample."""
    stages: list[bool] = []
    stage.run(seconds, lambda: stages.append(stage.quiet() if stage.verdicts else True))
    return all(stages) and stage.quiet()


# -- public cases -----------------------------------------------------------------------


def test_b01_a_card_without_memory_readings_is_judged_by_the_others() -> None:
    """GB10 gives no memory and no ECC: that is no fault, and the verdict is ok."""
    stage = Stage(count=1)
    rows = {"gpu_utilization_ratio": 0.0, "gpu_power_watts": 11.17, "gpu_temperature_celsius": 35.0}
    stage.card.rows = {family: {(): value} for family, value in rows.items()}
    stage.card.faults = {"gpu_memory_used_bytes": "unsupported", ECC: "unsupported"}
    assert _quiet_throughout(stage, HOUR)


def test_b11_impossible_values_are_never_healthy() -> None:
    """A card that gives impossible values with success codes has a verdict of at least 1."""
    stage = Stage(count=1)
    stage.card.rows = {"gpu_utilization_ratio": {(): 0.0}, "gpu_power_watts": {(): 0.0}}
    stage.card.faults = {"gpu_temperature_celsius": "out_of_range"}
    stage.run(10)
    assert stage.verdict().state == 1
    assert "gpu_temperature_celsius" in stage.held()["reading_out_of_range"].text


def test_b25_a_card_without_any_sensor_is_not_called_healthy() -> None:
    """A Jetson answers and reads nothing: no alert, and no verdict either."""
    stage = Stage(count=1)
    stage.card.rows = {}
    stage.card.faults = {"gpu_power_watts": "unsupported", "gpu_temperature_celsius": "unsupported"}
    stage.run(HOUR)
    assert stage.verdict().state is None
    assert stage.verdict().conditions == ()
    assert "no reading" in stage.verdict().reason


def test_b26_one_card_of_fifteen_asks_for_a_reset() -> None:
    """The card with ERR! for its fan and recovery action 1 fails at once; the others are quiet."""
    stage = Stage(count=15)
    broken = stage.cards[14]
    broken.set("gpu_recovery_action", 1.0)
    broken.faults = {"gpu_fan_speed_ratio": "unknown"}
    stage.run(10)
    assert stage.verdict(broken).state == 3
    assert stage.held(broken).keys() == {"recovery_reset"}
    assert "a reset of this card" in stage.held(broken)["recovery_reset"].text
    assert all(stage.verdict(card).state == 0 for card in stage.cards[:14])


@pytest.mark.parametrize("margin", [0.0, -5.0])
def test_b29_the_temperature_margin_alone_says_nothing(margin: float) -> None:
    """Some boards report a margin of 0 or -5 at 45 degrees."""
    stage = Stage()
    stage.card.set("gpu_temperature_celsius", 45.0)
    stage.card.set("gpu_temperature_margin_celsius", margin)
    assert _quiet_throughout(stage, HOUR)


def test_b38_one_card_of_eight_has_no_link_from_the_start() -> None:
    """The one without links among seven with 18 is found, and only that one."""
    stage = Stage(count=8)
    stage.cards[2].set("gpu_nvlink_active_links", 0.0)
    stage.run(5 * MINUTE + 10)
    assert {c.index for c in stage.cards if stage.held(c)} == {2}
    held = stage.held(stage.cards[2])["nvlink_inactive"]
    assert (held.value, held.limit) == (0.0, 18.0)


def test_b41_one_good_sensor_does_not_prove_health() -> None:
    """After a crash of its firmware a card shows only temperature and memory, and wants a reset."""
    stage = Stage(count=1)
    stage.card.answers("unreadable", "unknown", shown=True)
    vital = ("gpu_utilization_ratio", "gpu_clock_hertz", "gpu_power_watts")
    stage.card.drop(*vital)
    stage.card.faults = dict.fromkeys(vital, "unknown")
    stage.run(10)
    assert stage.verdict().state is None
    stage.card.set("gpu_recovery_action", 1.0)
    stage.run(6 * MINUTE)
    assert stage.verdict().state == 3
    assert stage.held().keys() == {"recovery_reset", "collection_failing"}


def test_d03_lifetime_counters_from_last_year_are_no_evidence() -> None:
    """Old lifetime errors stay above zero on a repaired card."""
    stage = Stage()
    stage.card.set("gpu_ecc_lifetime_errors_total", 2.0, "uncorrected", "dram")
    stage.card.set("gpu_ecc_lifetime_errors_total", 1200.0, "corrected", "dram")
    assert _quiet_throughout(stage, 2 * HOUR)


def test_d04_a_counter_that_falls_is_no_event() -> None:
    """A driver reload takes the corrected count from 5 to 0, with two minutes of silence."""
    stage = Stage()
    stage.card.set(ECC, 5.0, "corrected", "dram")
    stage.run(10 * MINUTE)
    stage.skip(2 * MINUTE)
    stage.card.set(ECC, 0.0, "corrected", "dram")
    assert _quiet_throughout(stage, HOUR)


def test_d05_a_storm_of_corrected_errors_is_degraded() -> None:
    """17,700 corrected errors per second and none uncorrected: a ticket for that card alone."""
    stage = Stage(interval=60)
    stage.card.rates[ECC, "corrected", "dram"] = 17_700
    stage.run(30 * MINUTE)
    assert stage.held().keys() == {"ecc_corrected_rate"}
    assert stage.held()["ecc_corrected_rate"].tier == "ticket"
    assert stage.verdict(stage.cards[0]).state == 0


@pytest.mark.parametrize(
    "reason", ["gpu_idle", "sw_power_cap", "applications_clocks_setting", "display_clock_setting"]
)
def test_d07_harmless_reasons_for_lower_clocks_are_quiet(reason: str) -> None:
    """Idle, power cap at full load, chosen clocks and the display bit are no evidence."""
    stage = Stage()
    stage.card.shares[reason] = 1.0
    assert _quiet_throughout(stage, 2 * HOUR)


def test_d09_microseconds_of_power_cap_are_quiet() -> None:
    """The power counter grows a little in each interval of normal boost."""
    stage = Stage()
    stage.card.set(THROTTLE, 0.0, "sw_power_cap")
    stage.card.rates[THROTTLE, "sw_power_cap"] = 0.00005 / 60
    assert _quiet_throughout(stage, 2 * HOUR)


def test_d15_a_storm_of_clean_up_events_is_quiet() -> None:
    """1,232 Xid 45 within three hours are jobs that ended."""
    stage = Stage(interval=60)

    def ends() -> None:
        for _ in range(7):
            stage.event(stage.card, 45, "application", origin=("application",))

    stage.run(HOUR, ends)
    assert stage.quiet()


@pytest.mark.parametrize("cls", ["application", "info"])
def test_d25_user_code_never_marks_a_card(cls: str) -> None:
    """One fault of a program neither degrades its card nor stays for days."""
    stage = Stage()
    stage.event(stage.card, 13, cls, tier="observe")
    assert _quiet_throughout(stage, HOUR)


def test_d19_an_exporter_restart_is_no_event() -> None:
    """A new judge, with counts above zero and events settled by a reset, starts quiet."""
    stage = Stage()
    stage.card.set(ECC, 905.0, "corrected", "dram")
    for code, cls in ((79, "critical"), (63, "hardware"), (94, "contained")):
        early = START_WALL - 100_000
        stage.event(stage.card, code, cls, first_time=early, last_time=early)
    assert _quiet_throughout(stage, HOUR)


def test_d20_neither_idle_nor_full_load_at_low_power_is_a_verdict() -> None:
    """Utilization says that some kernel ran, no more."""
    stage = Stage()
    stage.cards[0].set("gpu_power_watts", 120.0)
    _idle(stage.cards[1])
    assert _quiet_throughout(stage, 2 * HOUR)


def test_d21_half_clock_and_half_power_under_the_same_load_is_found() -> None:
    """The slow one of eight is degraded after 30 minutes, also where few show their power."""
    stage = Stage(count=8, interval=60)
    for card in stage.cards:
        card.set("gpu_clock_hertz", 1.98e9, "sm")
        card.set("gpu_utilization_ratio", 1.0)
        card.drop("gpu_power_watts", "gpu_temperature_celsius")
    slow = stage.cards[7]
    slow.set("gpu_clock_hertz", 0.99e9, "sm")
    slow.set("gpu_power_watts", 150.0)
    stage.cards[0].set("gpu_power_watts", 300.0)
    stage.run(30 * MINUTE)
    assert stage.held(slow).keys() == {"straggler"}
    assert all(not stage.held(card) for card in stage.cards[:7])


def test_d23_each_class_has_its_tier() -> None:
    """94 restarts a program, 109 is work to plan, 13 is user code, 119 stops the card."""
    stage = Stage()
    c94, c109, c13, c119, _ = stage.cards
    stage.event(c94, 94, "contained")
    stage.event(c109, 109, "hardware", origin=("application", "driver", "hardware"), count=5)
    stage.event(c13, 13, "application", origin=("application",))
    stage.event(c119, 119, "critical")
    stage.run(10)
    tiers = {c.uuid: [h.tier for h in stage.verdict(c).conditions] for c in stage.cards[:4]}
    assert list(tiers.values()) == [["ticket"], ["ticket"], [], ["page"]]
    assert [stage.verdict(c).state for c in stage.cards[:4]] == [2, 2, 0, 3]


def test_d28_a_driver_mismatch_blames_no_card() -> None:
    """Eight unreadable cards are one condition of the node; no card is called bad or good."""
    stage = Stage(count=8)
    stage.run(MINUTE)
    stage.node = type(stage.node)("driver_library_mismatch", None, 8, False)
    for card in stage.cards:
        card.answers("unreadable", "driver_library_mismatch")
    stage.run(20 * MINUTE)
    assert [held.condition for held in stage.judge.node] == ["driver_away"]
    assert all(v.state is None and not v.conditions for v in stage.verdicts.values())


def test_d30_swings_of_load_are_normal() -> None:
    """A full-load self test for 20 minutes of every hour on an otherwise idle node."""
    stage = Stage(interval=60)
    full = Stage().card

    def load() -> None:
        busy = (stage.now // 60) % 60 < 20
        for card in stage.cards:
            for family in ("gpu_utilization_ratio", "gpu_clock_hertz", "gpu_power_watts",
                           "gpu_temperature_celsius", "gpu_pcie_link_generation"):  # fmt: skip
                card.rows[family] = dict(full.rows[family])
            if not busy:
                _idle(card)

    assert _quiet_with(stage, 4 * HOUR, load)


def _quiet_with(stage: Stage, seconds: float, each: object) -> bool:
    seen: list[bool] = []

    def step() -> None:
        assert callable(each)
        each()
        seen.append(stage.quiet() if stage.verdicts else True)

    stage.run(seconds, step)
    return all(seen) and stage.quiet()


# -- the ledger of false positives -----------------------------------------------------------


def test_f3_brief_hardware_slowdown_on_changes_of_state_is_quiet() -> None:
    """The bit shows for an instant at each change of the performance state."""
    stage = Stage()
    stage.card.shares["hw_slowdown"] = 0.08
    stage.card.rates[THROTTLE, "hw_thermal_slowdown"] = 0.05
    stage.card.rates[THROTTLE, "hw_power_brake_slowdown"] = 0.3
    stage.card.shares["sw_thermal_slowdown"] = 0.4
    assert _quiet_throughout(stage, 2 * HOUR)


def test_f4_a_power_brake_is_its_own_condition_and_not_a_mystery() -> None:
    """A brake held for hours is found and named; the generic bit beside it adds nothing."""
    stage = Stage()
    stage.card.rates[THROTTLE, "hw_power_brake_slowdown"] = 1.0
    stage.card.shares["hw_slowdown"] = 1.0
    stage.run(2 * HOUR)
    assert stage.held().keys() == {"power_brake"}


def test_f5_links_train_after_a_boot() -> None:
    """For 20 minutes after a reset links may be down; after that they must be up."""
    stage = Stage()
    for card in stage.cards:
        card.last_reset = stage.wall
        card.set("gpu_fabric_state", 2.0)
    stage.card.set("gpu_nvlink_active_links", 0.0)
    stage.run(8 * MINUTE)
    for card in stage.cards:
        card.set("gpu_fabric_state", 3.0)
    assert _quiet_throughout(stage, 12 * MINUTE)
    stage.run(6 * MINUTE)
    assert stage.held().keys() == {"nvlink_inactive"}


def test_f5_cards_without_a_bridge_are_wired_so() -> None:
    """Two bridged cards of four make no fault of the other two; nor does one lone pair."""
    stage = Stage(count=4)
    stage.cards[2].set("gpu_nvlink_active_links", 0.0)
    stage.cards[3].set("gpu_nvlink_active_links", 0.0)
    assert _quiet_throughout(stage, HOUR)
    pair = Stage(count=3)
    pair.cards[2].set("gpu_nvlink_active_links", 0.0)
    assert _quiet_throughout(pair, HOUR)


def test_f5_cards_in_mig_mode_are_not_compared() -> None:
    """MIG takes the links away; such a card is neither judged nor a measure for others."""
    stage = Stage()
    stage.card.set("gpu_mig_mode_enabled", 1.0)
    stage.card.set("gpu_nvlink_active_links", 0.0)
    stage.cards[0].mig = True
    stage.cards[0].set("gpu_nvlink_active_links", 0.0)
    assert _quiet_throughout(stage, HOUR)


def test_links_that_a_lost_card_took_along_are_its_fault() -> None:
    """With one card lost, fewer links on its neighbours are not a second fault."""
    stage = Stage()
    stage.run(MINUTE)
    stage.cards[0].answers("lost", "not_listed")
    stage.card.set("gpu_nvlink_active_links", 12.0)
    stage.run(HOUR)
    assert stage.held(stage.cards[0]).keys() == {"lost"}
    assert not stage.held()


def test_a_baseline_says_how_many_links_there_should_be() -> None:
    """With a recorded baseline a card is held against it and needs no peers."""
    stage = Stage(count=1)
    stage.card.expected_links = 18.0
    stage.card.set("gpu_nvlink_active_links", 17.0)
    stage.run(20 * MINUTE)
    assert stage.held().keys() == {"nvlink_inactive"}


def test_f10_an_idle_link_may_be_slow_and_a_busy_one_may_not() -> None:
    """An idle card rests its link; a short burst of work on it proves nothing either."""
    stage = Stage()
    _idle(stage.card)

    def burst() -> None:
        working = (stage.now // stage.interval) % 30 == 0
        stage.card.set("gpu_utilization_ratio", 0.3 if working else 0.0)

    assert _quiet_with(stage, 3 * HOUR, burst)
    stage.card.set("gpu_utilization_ratio", 0.3)
    stage.run(HOUR)
    assert stage.held().keys() == {"pcie_degraded"}


def test_f10_a_link_that_shows_its_full_speed_now_and_then_is_fine() -> None:
    """The highest generation of the window counts, not the moment."""
    stage = Stage()

    def rests() -> None:
        peak = (stage.now // stage.interval) % 60 == 0
        stage.card.set("gpu_pcie_link_generation", 5.0 if peak else 1.0)

    assert _quiet_with(stage, 3 * HOUR, rests)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"gpu_power_watts": 640.0, "gpu_temperature_celsius": 62.0}, "heavier work, same power"),
        ({"gpu_utilization_ratio": 0.6}, "less to do"),
    ],
)
def test_a_low_clock_alone_is_no_straggler(changes: dict[str, float], why: str) -> None:
    """Where power and temperature read, one of them must agree."""
    stage = Stage()
    stage.card.set("gpu_clock_hertz", 1.2e9, "sm")
    stage.card.set("gpu_power_watts", 400.0)
    for family, value in changes.items():
        stage.card.set(family, value)
    assert _quiet_throughout(stage, 2 * HOUR), why


def test_a_straggler_may_show_by_heat() -> None:
    """A card that is slower and hotter at full power is a case of bad cooling."""
    stage = Stage()
    stage.card.set("gpu_clock_hertz", 1.2e9, "sm")
    stage.card.set("gpu_temperature_celsius", 84.0)
    stage.run(HOUR)
    assert stage.held().keys() == {"straggler"}
    assert "84 degrees against 62" in stage.held()["straggler"].text


def test_chosen_clocks_and_other_models_make_no_straggler() -> None:
    """Clocks set by the user are a choice; cards of another model are no measure."""
    stage = Stage(count=10)
    chosen, other = stage.cards[3], stage.cards[9]
    for card in (chosen, other):
        card.set("gpu_clock_hertz", 0.9e9, "sm")
        card.set("gpu_power_watts", 300.0)
    chosen.shares["applications_clocks_setting"] = 1.0
    other.model = "L40S"
    assert _quiet_throughout(stage, 2 * HOUR)


def test_f6_a_short_blip_is_over_within_minutes() -> None:
    """Ninety seconds of trouble must not mark a card for eight days."""
    stage = Stage()
    stage.run(MINUTE)
    stage.card.answers("reset_required")
    stage.run(90)
    assert stage.verdict().state == 3
    stage.card.answers("ok", shown=True)
    stage.run(70)
    assert stage.quiet()


def test_the_first_corrected_errors_are_quiet() -> None:
    """Correcting single errors is what ECC is for."""
    stage = Stage()
    stage.run(MINUTE)
    stage.card.set(ECC, 900.0, "corrected", "dram")
    assert _quiet_throughout(stage, HOUR)


def test_a_small_node_has_no_stragglers() -> None:
    """Three other cards are too few to say what is usual; a card is no peer of itself."""
    stage = Stage(count=4)
    stage.card.set("gpu_clock_hertz", 0.9e9, "sm")
    stage.card.set("gpu_power_watts", 300.0)
    assert _quiet_throughout(stage, HOUR)
