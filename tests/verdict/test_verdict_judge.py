# SPDX-License-Identifier: Apache-2.0
"""States, order, forgetting, latches over time, and what the sentences say."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from verdict_stage import ECC, START, START_WALL, Stage

from cardwatch.verdict import CardFacts, Judge, NodeFacts, SeenEvent

MINUTE, HOUR = 60.0, 3600.0


def test_a_healthy_node_is_ok() -> None:
    """State 0 and no condition, from the first sample on."""
    stage = Stage()
    stage.run(10)
    assert {v.state for v in stage.verdicts.values()} == {0}


def test_the_worst_condition_comes_first_and_makes_the_state() -> None:
    """A failed card is failed whatever else is wrong with it."""
    stage = Stage()
    stage.card.set("gpu_row_remap_pending", 1.0)
    stage.card.set("gpu_row_remap_failure", 1.0)
    stage.card.faults = {"gpu_temperature_celsius": "out_of_range"}
    stage.event(stage.card, 79, "critical")
    stage.run(10)
    levels = [held.level for held in stage.verdict().conditions]
    assert levels == [3, 2, 1, 1]
    assert stage.verdict().state == 3
    assert stage.verdict().conditions[0].condition == "xid_critical"
    assert stage.verdict().conditions[2].tier == "ticket"


@pytest.mark.parametrize(
    ("state", "cause", "node", "word"),
    [
        ("detached", "detached", NodeFacts("detached", None, 5, False), "let go"),
        ("unreadable", "starting", NodeFacts("starting", None, 5, False), "starting"),
        ("unreadable", "timeout", NodeFacts(None, 5, 5, True), "does not answer"),
    ],
)
def test_without_readings_there_is_no_verdict(
    state: str, cause: str, node: NodeFacts, word: str
) -> None:
    """What cannot be judged is None, with the reason, never ok."""
    stage = Stage()
    stage.node = node
    for card in stage.cards:
        card.answers(state, cause)
    stage.run(MINUTE)
    assert stage.verdict().state is None
    assert word in stage.verdict().reason
    assert not stage.judge.node


def test_an_event_counts_even_when_nothing_can_be_read() -> None:
    """A critical event on a card that has since gone silent is still a failed card."""
    stage = Stage()
    stage.event(stage.card, 119, "critical")
    stage.card.answers("detached")
    stage.run(10)
    assert stage.verdict().state == 3


def test_a_lost_card_is_failed_also_when_it_was_the_only_one() -> None:
    """The driver that speaks of a lost card is not away."""
    stage = Stage(count=1)
    stage.run(MINUTE)
    stage.node = NodeFacts("gpu_is_lost", 1, 1, False)
    stage.card.answers("lost", "gpu_is_lost")
    stage.run(10 * MINUTE)
    assert stage.verdict().state == 3
    assert stage.held().keys() == {"lost"}
    assert not stage.judge.node


def test_what_was_wrong_before_a_card_went_silent_is_believed_for_a_while() -> None:
    """A failed remap does not vanish because the card hangs, and does not stay for ever either."""
    stage = Stage()
    stage.card.set("gpu_row_remap_failure", 1.0)
    stage.run(MINUTE)
    stage.card.answers("hung", "timeout")
    stage.run(10 * MINUTE)
    assert stage.held().keys() == {"hung", "row_remap_failure"}
    assert "Last seen at 2027-" in stage.held()["row_remap_failure"].text
    stage.run(6 * MINUTE)
    assert stage.held().keys() == {"hung"}


def test_a_forgotten_card_takes_its_conditions_along() -> None:
    """A card that is no longer known has no verdict, and starts anew if it comes back."""
    stage = Stage()
    stage.card.set("gpu_pcie_link_generation", 1.0)
    stage.run(2 * HOUR)
    assert stage.held().keys() == {"pcie_degraded"}
    gone = stage.cards.pop(3)
    stage.run(10)
    assert gone.uuid not in stage.verdicts
    stage.cards.append(gone)
    stage.run(10)
    assert stage.verdict(gone).state == 0


def test_a_flag_that_flaps_makes_no_flapping_verdict() -> None:
    """A condition that comes and goes with every sample is held without a break."""
    stage = Stage()
    held: list[bool] = []

    def flap() -> None:
        if stage.verdicts:
            held.append("recovery_reset" in stage.held())
        stage.card.set("gpu_recovery_action", float(stage.now // 10 % 2))

    stage.run(20)
    stage.run(10 * MINUTE, flap)
    assert Counter(held)[True] >= len(held) - 2
    assert held[3:] == [True] * len(held[3:])


def test_evidence_that_flaps_still_counts_after_its_hold_time() -> None:
    """A card that fails every other sample for long is failing for long."""
    stage = Stage()

    def flap() -> None:
        stage.card.set("gpu_fabric_state", 2.0 if stage.now // 10 % 2 else 3.0)

    stage.run(11 * MINUTE, flap)
    assert "fabric_not_ready" in stage.held()


def test_single_blips_never_add_up() -> None:
    """One bad sample every few minutes starts the hold time anew each time."""
    stage = Stage()

    def blip() -> None:
        stage.card.set("gpu_fabric_state", 2.0 if stage.now // 10 % 12 == 0 else 3.0)
        assert not stage.verdicts or stage.quiet()

    stage.run(HOUR, blip)


def test_a_command_that_looks_once_does_not_wait() -> None:
    """Without patience, what shows at the first look counts; rates need time all the same."""
    stage = Stage(patient=False)
    stage.card.answers("hung", "timeout")
    stage.cards[1].set("gpu_fabric_state", 1.0)
    stage.cards[2].set("gpu_nvlink_active_links", 0.0)
    stage.cards[4].rates["gpu_throttle_seconds_total", "hw_thermal_slowdown"] = 1.0
    stage.run(20)
    found = {card.index: sorted(stage.held(card)) for card in stage.cards}
    assert found == {
        0: [], 1: ["fabric_not_ready"], 2: ["nvlink_inactive"], 3: ["hung"], 4: [],
    }  # fmt: skip


def test_a_critical_event_outlasts_days_and_ends_with_a_reset_or_clearing() -> None:
    """Time does not heal; a reset later than the event does, an equal or earlier one does not."""
    stage = Stage(interval=600)
    event = stage.event(stage.card, 79, "critical")
    stage.run(3 * 24 * HOUR)
    assert stage.held()["xid_critical"].since == event.first_time
    stage.card.last_reset = event.last_time
    stage.look()
    assert stage.verdict().state == 3
    stage.card.last_reset = event.last_time + 1
    stage.look()
    assert stage.verdict().state == 0


def test_without_a_known_reset_an_event_counts() -> None:
    """A missing helper must make a condition show, never vanish."""
    stage = Stage()
    stage.card.last_reset = None
    stage.event(stage.card, 48, "critical", first_time=1.0, last_time=1.0)
    stage.run(10)
    assert stage.verdict().state == 3


def test_an_event_from_the_future_is_left_out() -> None:
    """A stamp of a wrong clock could never be settled by a reset."""
    stage = Stage()
    late = stage.wall + HOUR
    stage.event(stage.card, 79, "critical", first_time=late, last_time=late)
    stage.run(10)
    assert stage.verdict().state == 0


@pytest.mark.parametrize("kind", ["gpu_off_bus", "gpu_init_failed"])
def test_a_lost_card_without_an_xid_is_critical(kind: str) -> None:
    """Newer drivers may print only the plain line."""
    stage = Stage()
    stage.event(stage.card, None, kind, kind=kind, tier="page")
    stage.run(10)
    assert stage.held().keys() == {"xid_critical"}


@pytest.mark.parametrize(
    ("first", "last", "count", "holds"),
    [
        (0.0, 0.0, 2, False),
        (0.0, 0.0, 3, True),
        (36_000.0, 0.0, 3, False),
        (36_000.0, 0.0, 50, True),
        (3_700.0, 3_601.0, 50, False),
    ],
)
def test_repeats_are_counted_within_the_window(
    first: float, last: float, count: int, holds: bool
) -> None:
    """A merged event that began hours ago counts for its share of the last hour."""
    stage = Stage()
    stage.event(
        stage.card, 63, "hardware", first_time=stage.wall - first, last_time=stage.wall - last,
        count=count,
    )  # fmt: skip
    stage.look()
    assert ("xid_repeated" in stage.held()) is holds


def test_a_contained_error_is_told_apart_from_one_that_is_not() -> None:
    """Only a contained event near the count makes it contained; a critical one undoes that."""
    stage = Stage()
    stage.run(MINUTE)
    stage.card.set(ECC, 1.0, "uncorrected", "dram")
    stage.event(stage.card, 94, "contained")
    stage.event(stage.card, 154, "critical", recovery_to=4)
    stage.run(10)
    assert "ecc_uncorrected_contained" in stage.held()
    assert "no new work on this card" in stage.held()["xid_critical"].text
    stage.event(stage.card, 95, "critical")
    stage.run(10)
    assert "ecc_uncorrected" in stage.held()


def test_growth_kept_by_the_journal_counts_after_a_restart() -> None:
    """An uncorrected error from before the exporter's restart pages until it is cleared."""
    stage = Stage()
    stage.card.set(ECC, 1.0, "uncorrected", "dram")
    stage.card.uncorrected_increased = START_WALL - 60
    stage.run(MINUTE)
    assert stage.held().keys() == {"ecc_uncorrected"}
    stage.skip(1)
    stage.reset(stage.card)
    stage.run(10)
    assert stage.verdict().state == 0, "cleared by hand: the count itself stays until a reset"


def test_errors_after_a_reset_that_nobody_saw_grow_are_not_lost() -> None:
    """A count that falls from 5 to 3 is a reset and three new errors."""
    stage = Stage()
    stage.card.set(ECC, 5.0, "uncorrected", "dram")
    stage.run(MINUTE)
    stage.card.set(ECC, 3.0, "uncorrected", "dram")
    stage.card.last_reset = stage.wall + 10
    stage.run(10 * MINUTE)
    assert stage.held().keys() == {"ecc_uncorrected_earlier"}
    assert stage.held()["ecc_uncorrected_earlier"].value == 3.0


def test_an_uncorrected_error_during_a_gap_counts() -> None:
    """That nobody watched does not undo the error."""
    stage = Stage()
    stage.run(MINUTE)
    stage.skip(10 * MINUTE)
    stage.card.set(ECC, 1.0, "uncorrected", "sram")
    stage.run(10)
    assert "ecc_uncorrected" in stage.held()


def test_the_verdict_does_not_depend_on_the_order_of_cards() -> None:
    """Peers and identities are found by name."""
    straight, turned = Stage(), Stage()
    turned.arrange = reversed
    for stage in (straight, turned):
        stage.card.set("gpu_clock_hertz", 0.9e9, "sm")
        stage.card.set("gpu_power_watts", 300.0)
        stage.cards[1].set("gpu_nvlink_active_links", 3.0)
        stage.run(HOUR)
    assert straight.verdicts == turned.verdicts
    assert straight.held().keys() == {"straggler"}


def test_the_same_sample_seen_again_adds_nothing() -> None:
    """The page is rendered several times per sample; time is counted once."""
    stage = Stage()
    stage.card.rates["gpu_throttle_seconds_total", "hw_thermal_slowdown"] = 0.06

    def again() -> None:
        for _ in range(5):
            stage.look()

    stage.run(HOUR, again)
    assert stage.quiet()


def test_other_thresholds_take_effect_at_once() -> None:
    """Numbers can be changed while running, without forgetting what was seen."""
    stage = Stage()
    stage.card.rates["gpu_throttle_seconds_total", "hw_thermal_slowdown"] = 0.06
    stage.run(HOUR)
    stage.judge.apply({"thermal_slowdown": {"hardware_share": 0.05, "hold": 0.0}})
    stage.run(10)
    assert stage.held()["thermal_slowdown"].limit == 0.05
    stage.judge.apply({})
    stage.run(HOUR)
    assert stage.quiet()


def test_sentences_name_value_limit_and_time() -> None:
    """The engineer on call reads what is wrong, by how much, and since when."""
    stage = Stage()
    stage.run(MINUTE)
    stage.card.set("gpu_temperature_celsius", 88.0)
    stage.card.rates["gpu_throttle_seconds_total", "hw_thermal_slowdown"] = 0.6
    stage.event(stage.card, 79, "critical", action="REBOOT_NODE")
    stage.run(30 * MINUTE)
    texts = {name: held.text for name, held in stage.held().items()}
    assert texts["thermal_slowdown"] == (
        "The hardware held the clocks down for heat during 60 % of the last 15 min, limit 10 %. "
        "The die is at 88 degrees, the card slows down at 87."
    )
    assert texts["xid_critical"] == (
        "Xid 79 (critical, advice REBOOT_NODE) at 2027-01-15 08:01:00 UTC. "
        "No reset since; do not trust this card until it had one."
    )


def test_a_lost_card_tells_the_counts_of_driver_and_bus() -> None:
    """Whether the bus still shows the card tells a driver fault from a dead slot."""
    stage = Stage()
    stage.node = replace(stage.node, listed=4, detected=5)
    stage.card.answers("lost", "not_listed")
    stage.run(10)
    assert "lists 4 cards, the PCI bus shows 5" in stage.held()["lost"].text


def test_facts_without_anything_make_no_verdict() -> None:
    """A card of which only the name is known is neither good nor bad."""
    verdicts = Judge().observe([CardFacts("GPU-x")], NodeFacts(), START, START_WALL, 5.0)
    assert verdicts["GPU-x"].state is None


def test_events_are_told_newest_first_with_the_others_beside() -> None:
    """Several codes of one class are one condition that names them all."""
    stage = Stage()
    for code in (74, 48, 79):
        stage.event(stage.card, code, "critical", last_time=stage.wall + code / 100)
    stage.run(10)
    text = stage.held()["xid_critical"].text
    assert text.startswith("Xid 79 ")
    assert "the last of 3 events. Also Xid 48, Xid 74." in text


def test_an_event_needs_no_more_than_its_time_and_class() -> None:
    """Times that no calendar knows do not break the sentence."""
    event = SeenEvent("xid", 79, "critical", "page", "", -1e300, -1e300)
    card = CardFacts("GPU-x", events=(event,))
    verdict = Judge().observe([card], NodeFacts(), START, START_WALL, 5.0)["GPU-x"]
    assert verdict.state == 3
    assert "an unknown time" in verdict.conditions[0].text


def test_repeats_of_a_count_that_is_days_old_are_dated_as_they_come() -> None:
    """The journal counts for ever; three events within an hour must not drown in ten quiet days."""
    stage = Stage()
    old = stage.wall - 10 * 24 * HOUR
    stage.card.last_reset = old - HOUR
    first = stage.event(stage.card, 63, "hardware", first_time=old, last_time=old)
    stage.run(MINUTE)
    for count in (2, 3):
        stage.card.events = [replace(first, count=count, last_time=stage.wall)]
        stage.run(10 * MINUTE)
    assert stage.held().keys() == {"xid_hardware"}
    stage.card.events = [replace(first, count=4, last_time=stage.wall)]
    stage.run(10)
    assert stage.held()["xid_repeated"].value == 3.0
    assert stage.held()["xid_repeated"].since >= stage.wall - HOUR
    stage.interval = MINUTE
    stage.run(2 * HOUR)
    assert stage.verdict().state == 0, "and it is over when the hour is"


def test_repeats_from_before_a_reset_do_not_count() -> None:
    """Two events, a reset, one event: that is one."""
    stage = Stage()
    stage.run(MINUTE)
    event = stage.event(stage.card, 63, "hardware")
    stage.run(MINUTE)
    stage.card.events = [replace(event, count=2, last_time=stage.wall)]
    stage.run(MINUTE)
    stage.reset(stage.card)
    stage.run(MINUTE)
    stage.card.events = [replace(event, count=3, last_time=stage.wall)]
    stage.run(MINUTE)
    assert stage.held().keys() == {"xid_hardware"}
    assert stage.held()["xid_hardware"].since == stage.card.last_reset


def test_among_pages_the_failed_one_makes_the_state() -> None:
    """A card that may still finish its jobs by one condition has failed by another."""
    stage = Stage()
    stage.card.set("gpu_recovery_action", 4.0)
    stage.run(10)
    assert stage.verdict().state == 2
    stage.event(stage.card, 119, "critical")
    stage.run(10)
    assert stage.verdict().state == 3
