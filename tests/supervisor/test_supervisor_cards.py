# SPDX-License-Identifier: Apache-2.0
"""The book of cards: who is where, who is lost, whose readings may be shown."""

from __future__ import annotations

import pytest

from cardwatch.supervisor.cards import Cards
from supervisor.samples import (
    INTERVAL,
    book,
    card,
    established,
    states,
    unreadable,
)


def _seen(cards: Cards, at: float, *uuids: str | None) -> None:
    """Take in a pass in which these cards answered, in the order of the list."""
    cards.relist(len(uuids))
    cards.take([card(slot, uuid, at) for slot, uuid in enumerate(uuids)])
    cards.find_lost()


def test_cards_are_shown_in_the_order_of_the_list() -> None:
    """Index first, then UUID."""
    cards = book()
    _seen(cards, 0, "GPU-b", "GPU-a")
    assert [(v.index, v.card.uuid) for v in cards.views(0, None)] == [(0, "GPU-b"), (1, "GPU-a")]


def test_readings_older_than_three_intervals_are_not_shown() -> None:
    """At three intervals they are still there, a moment later they are not."""
    cards = book()
    _seen(cards, 100, "GPU-a")
    (view,) = cards.views(100 + 3 * INTERVAL, None)
    assert (view.up, view.state, view.sample is not None) == (True, "ok", True)
    (view,) = cards.views(100 + 3 * INTERVAL + 0.1, None)
    assert (view.up, view.state, view.sample) == (False, "unreadable", None)


def test_a_hung_card_keeps_its_readings_for_three_intervals() -> None:
    """It is down at once, and its last readings go when they are too old."""
    cards = book()
    _seen(cards, 100, "GPU-a", "GPU-b")
    cards.mark(1, "hung", "timeout")
    view = cards.views(110, None)[1]
    assert (view.up, view.state, view.cause, view.sample is not None) == (
        False, "hung", "timeout", True,
    )  # fmt: skip
    assert cards.views(116, None)[1].sample is None


def test_a_card_that_answers_with_an_error_loses_its_readings_at_once() -> None:
    """An error is an answer: what was read before it is not true any more."""
    cards = book()
    _seen(cards, 0, "GPU-a")
    cards.take([unreadable(0, 5)])
    (view,) = cards.views(5, None)
    assert (view.card.uuid, view.state, view.up) == ("GPU-a", "unreadable", False)
    assert view.sample is not None
    assert view.sample.rows == {}


def test_an_unreadable_mark_hides_readings_at_once() -> None:
    """When the driver is away, nothing that it said is shown."""
    cards = book()
    _seen(cards, 0, "GPU-a")
    cards.mark_all("unreadable", "driver_not_loaded")
    (view,) = cards.views(0, None)
    assert (view.state, view.cause, view.sample) == ("unreadable", "driver_not_loaded", None)


def test_a_hang_is_counted_once_however_often_it_is_reported() -> None:
    """One hang is one timeout; the next one, after an answer, is another."""
    cards = book()
    _seen(cards, 0, "GPU-a")
    for _ in range(5):
        cards.mark(0, "hung", "timeout")
    assert cards.known["GPU-a"].errors == {("card", "timeout"): 1}
    _seen(cards, 20, "GPU-a")
    assert states(cards, 20) == {"GPU-a": "ok"}
    cards.mark(0, "hung", "timeout")
    assert cards.known["GPU-a"].errors == {("card", "timeout"): 2}


def test_a_hang_outweighs_that_the_driver_is_away() -> None:
    """A card that hangs does not become unreadable, but it is detached with all others."""
    cards = book()
    _seen(cards, 0, "GPU-a", "GPU-b")
    cards.mark(0, "hung", "timeout")
    cards.mark_all("unreadable", "driver_not_loaded")
    away = ("unreadable", "driver_not_loaded")
    assert states(cards, 1, away) == {"GPU-a": "hung", "GPU-b": "unreadable"}
    assert set(states(cards, 1, ("detached", "detached")).values()) == {"detached"}


def test_a_card_that_hangs_before_it_ever_answered_has_a_place_only() -> None:
    """It is shown by its index, or as the card of the roster that was there."""
    cards = book()
    cards.mark(3, "hung", "timeout")
    assert states(cards, 0) == {"index-3": "hung"}
    cards = book(GPU_x=established(3))
    cards.mark(3, "hung", "timeout")
    (view,) = cards.views(0, None)
    assert (view.card.uuid, view.card.info["model"], view.card.pci) == (
        "GPU-x", "H100", "0000:b1:00",
    )  # fmt: skip


def test_of_two_cards_of_the_roster_at_one_index_the_later_one_is_meant() -> None:
    """A replaced card does not get the place of its successor."""
    cards = book(GPU_old=established(0, 20_000.0), GPU_new=established(0, 30_000.0))
    cards.relist(1)
    cards.take([unreadable(0, 0)])
    cards.find_lost()
    assert states(cards, 0) == {"GPU-new": "unreadable", "GPU-old": "lost"}


# -- lost --------------------------------------------------------------------------------------


def test_a_card_that_was_up_and_is_not_listed_is_lost_until_it_is_back() -> None:
    """Whoever moves into its place."""
    cards = book()
    _seen(cards, 0, "GPU-a", "GPU-b", "GPU-c")
    _seen(cards, 5, "GPU-a", "GPU-c")
    assert states(cards, 5) == {"GPU-a": "ok", "GPU-b": "lost", "GPU-c": "ok"}
    lost = next(view for view in cards.views(5, None) if view.state == "lost")
    assert (lost.up, lost.index, lost.cause, lost.sample) == (False, 1, "not_listed", None)
    _seen(cards, 10, "GPU-a", "GPU-b", "GPU-c")
    assert set(states(cards, 10).values()) == {"ok"}


def test_a_card_that_was_never_up_and_vanishes_is_dropped() -> None:
    """Nobody misses what never worked here and was not here for ten minutes."""
    cards = book()
    cards.relist(2)
    cards.take([card(0, "GPU-a", 0), card(1, "GPU-b", 0, up=False, state="denied")])
    _seen(cards, 5, "GPU-a")
    assert states(cards, 5) == {"GPU-a": "ok"}


def test_an_established_card_that_is_absent_is_lost_once_all_were_read() -> None:
    """Not before every index has told who is there."""
    cards = book(GPU_x=established(1))
    assert states(cards, 0) == {}
    cards.relist(2)
    cards.take([card(0, "GPU-a", 0)])
    cards.find_lost()
    assert states(cards, 0) == {"GPU-a": "ok"}
    cards.take([card(1, "GPU-b", 0.1)])
    cards.find_lost()
    assert states(cards, 0.1) == {"GPU-a": "ok", "GPU-b": "ok", "GPU-x": "lost"}


def test_a_card_of_the_roster_that_was_hardly_known_is_not_missed() -> None:
    """Ten minutes make a card that should be here."""
    entry = established(1)
    entry.last_seen = entry.first_seen + 600
    cards = book(GPU_x=entry)
    _seen(cards, 0, "GPU-a")
    assert states(cards, 0) == {"GPU-a": "ok"}


def test_while_the_driver_is_away_the_roster_is_shown() -> None:
    """Cards that should be here are down when no driver can say otherwise."""
    cards = book(GPU_x=established(1))
    assert states(cards, 0, ("unreadable", "library_not_found")) == {"GPU-x": "unreadable"}


def test_a_hung_index_may_be_the_card_that_is_missed() -> None:
    """A card is not lost while an index hangs that was its place; a card of another place is."""
    cards = book()
    _seen(cards, 0, "GPU-a", "GPU-b", "GPU-c")
    cards.mark(1, "hung", "timeout")
    cards.relist(2)
    cards.take([card(0, "GPU-a", 5)])
    cards.find_lost()
    assert states(cards, 5) == {"GPU-a": "ok", "GPU-b": "hung", "GPU-c": "lost"}


def test_a_late_index_delays_the_verdict() -> None:
    """As long as one index was not read after the card was seen, the card may be there."""
    cards = book()
    _seen(cards, 0, "GPU-a", "GPU-b")
    cards.relist(2)
    cards.take([card(0, "GPU-c", 5)])
    cards.find_lost()
    assert "lost" not in states(cards, 5).values()
    cards.take([card(1, "GPU-b", 6)])
    cards.find_lost()
    assert states(cards, 6) == {"GPU-a": "lost", "GPU-b": "ok", "GPU-c": "ok"}


def test_a_forgotten_card_is_gone_unless_it_is_here() -> None:
    """Forgetting takes lost cards off the page, and no others."""
    cards = book()
    _seen(cards, 0, "GPU-a", "GPU-b")
    _seen(cards, 5, "GPU-a")
    cards.forget(["GPU-a", "GPU-b"])
    assert states(cards, 5) == {"GPU-a": "ok"}


# -- places and names ------------------------------------------------------------------------


def test_a_swap_moves_cards_and_leaves_what_is_known_of_them() -> None:
    """Counters of the parent stay with the UUID."""
    cards = book()
    _seen(cards, 0, "GPU-a", "GPU-b")
    cards.known["GPU-a"].errors["temperature", "unknown"] = 7
    _seen(cards, 5, "GPU-b", "GPU-a")
    views = {view.card.uuid: view for view in cards.views(5, None)}
    assert views["GPU-a"].index == 1
    assert views["GPU-a"].card.errors["temperature", "unknown"] == 7
    assert views["GPU-b"].card.errors == {}
    assert set(states(cards, 5).values()) == {"ok"}


def test_an_index_without_a_name_is_the_card_last_seen_there() -> None:
    """Unless that card shows up elsewhere."""
    cards = book()
    _seen(cards, 0, "GPU-a", "GPU-b")
    cards.take([card(0, "GPU-a", 5), unreadable(1, 5)])
    assert states(cards, 5) == {"GPU-a": "ok", "GPU-b": "unreadable"}
    cards.take([card(0, "GPU-b", 10), unreadable(1, 10)])
    cards.find_lost()
    assert states(cards, 10) == {"GPU-a": "lost", "GPU-b": "ok", "index-1": "unreadable"}


@pytest.mark.parametrize("pci", [None, "0000:3b:00"])
def test_a_made_up_name_is_dropped_when_the_card_tells_its_own(pci: str | None) -> None:
    """It is no second card, and not lost, even though it was up under that name."""
    cards = book()
    cards.relist(1)
    cards.take([card(0, None, 0, pci=pci)])
    made_up = "index-0" if pci is None else "pci-0000:3b:00"
    assert states(cards, 0) == {made_up: "ok"}
    cards.take([card(0, "GPU-a", 5, pci="0000:3b:00")])
    cards.find_lost()
    assert states(cards, 5) == {"GPU-a": "ok"}


def test_a_better_made_up_name_replaces_the_one_by_index() -> None:
    """The address on the bus says more than a place in a list."""
    cards = book()
    cards.relist(1)
    cards.take([unreadable(0, 0)])
    assert states(cards, 0) == {"index-0": "unreadable"}
    cards.take([card(0, None, 5, pci="0000:3b:00")])
    cards.find_lost()
    assert states(cards, 5) == {"pci-0000:3b:00": "ok"}


def test_made_up_names_do_not_reach_the_roster() -> None:
    """Only a card with a UUID can be missed later."""
    cards = book()
    cards.relist(2)
    cards.take([card(0, None, 0, pci="0000:3b:00"), card(1, "GPU-a", 0)])
    assert set(cards.roster.cards) == {"GPU-a"}


# -- errors and throttling ---------------------------------------------------------------------


def test_failed_readings_are_counted_once_per_sample_and_by_name() -> None:
    """Unsupported and denied are not errors; the name is that of the reading."""
    cards = book()
    for at in (0.0, 5.0):
        sample = card(0, "GPU-a", at)
        sample.faults = {
            "gpu_power_watts": "unknown",
            "gpu_energy_joules_total": "out_of_range",
            "gpu_fan_speed_ratio": "unsupported",
            "gpu_mig_mode_enabled": "denied",
        }
        cards.take([sample])
    assert cards.known["GPU-a"].errors == {("power", "unknown"): 2, ("energy", "out_of_range"): 2}


def test_readings_are_counted_by_how_they_went() -> None:
    """A family of which some rows read and others are unsupported counts as ok."""
    cards = book()
    rows = {"gpu_temperature_celsius": [((), 1.0)], "gpu_clock_hertz": [(("sm",), 1.0)]}
    sample = card(0, "GPU-a", 0, rows=rows)
    sample.faults = {
        "gpu_clock_hertz": "unsupported",
        "gpu_fan_speed_ratio": "unsupported",
        "gpu_mig_mode_enabled": "denied",
        "gpu_power_watts": "unknown",
    }
    cards.take([sample])
    (view,) = cards.views(0, None)
    assert view.readings_by_status == {"ok": 2, "unsupported": 1, "denied": 1, "failed": 1}


def test_throttle_time_is_the_cards_wherever_it_is_listed() -> None:
    """The time between samples is added while the bit is set, through a change of index."""
    cards = book()
    on = {"hw_slowdown": True}
    cards.take([card(0, "GPU-a", 0, reasons=on), card(1, "GPU-b", 0, reasons={})])
    cards.take([card(1, "GPU-a", 5, reasons=on), card(0, "GPU-b", 5, reasons={})])
    cards.take([card(1, "GPU-a", 9, reasons=on), card(0, "GPU-b", 9, reasons={})])
    assert cards.known["GPU-a"].throttle.seconds == {"hw_slowdown": 9.0}
    assert cards.known["GPU-b"].throttle.seconds == {}


def test_a_gap_adds_no_throttle_time() -> None:
    """After more than three intervals nobody knows; an error breaks the chain as well."""
    cards = book()
    on = {"hw_slowdown": True}
    for at in (0.0, 15.0, 31.0, 36.0):
        cards.take([card(0, "GPU-a", at, reasons=on)])
    assert cards.known["GPU-a"].throttle.seconds == {"hw_slowdown": 20.0}
    cards.take([unreadable(0, 41)])
    cards.take([card(0, "GPU-a", 46, reasons=on)])
    assert cards.known["GPU-a"].throttle.seconds == {"hw_slowdown": 20.0}


def test_the_source_is_fresh_while_one_card_answered_within_three_intervals() -> None:
    """One is enough; cards that answer with errors do not count."""
    cards = book()
    assert not cards.source_fresh(0)
    cards.take([card(0, "GPU-a", 0), card(1, "GPU-b", 0)])
    cards.take([unreadable(0, 10), card(1, "GPU-b", 10)])
    assert cards.source_fresh(25)
    assert not cards.source_fresh(25.1)
