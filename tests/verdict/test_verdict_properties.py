# SPDX-License-Identifier: Apache-2.0
"""Laws of the verdict under any facts: it never raises, always lets go, and knows no order."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from verdict_stage import HEALTHY, MODEL, START, START_WALL, Puppet, Stage

from cardwatch.families import BY_NAME
from cardwatch.sample import STATES, Rows
from cardwatch.verdict import CardFacts, Judge, NodeFacts, SeenEvent

FAMILIES = sorted({*HEALTHY, "gpu_retired_pages_pending", "gpu_info"})
LABELS = ["corrected", "uncorrected", "dram", "sm", "hw_slowdown", "hw_thermal_slowdown", ""]
CLASSES = ["critical", "hardware", "contained", "application", "info", "unknown", "gpu_off_bus"]

numbers = st.one_of(
    st.sampled_from([0.0, 1.0, 2.0, 3.0, 1e9]), st.floats(allow_nan=False, allow_infinity=False)
)
times = st.floats(START_WALL - 200_000, START_WALL + 10_000)
rows: st.SearchStrategy[Rows] = st.lists(
    st.tuples(st.lists(st.sampled_from(LABELS), max_size=3).map(tuple), numbers), max_size=4
)
events = st.builds(
    SeenEvent,
    kind=st.sampled_from(["xid", "sxid", "gpu_off_bus", "gpu_init_failed"]),
    code=st.none() | st.integers(0, 999),
    cls=st.sampled_from(CLASSES),
    tier=st.sampled_from(["page", "ticket", "observe", "ignore"]),
    action=st.sampled_from(["", "RESET_GPU"]),
    first_time=times,
    last_time=times,
    count=st.integers(1, 10_000),
    recovery_to=st.none() | st.integers(0, 9),
    origin=st.lists(st.sampled_from(["hardware", "application", "driver"]), max_size=2).map(tuple),
)
faults = st.dictionaries(
    st.sampled_from(FAMILIES),
    st.sampled_from(["unsupported", "denied", "out_of_range", "unknown"]),
    max_size=3,
)
cards = st.builds(
    CardFacts,
    uuid=st.sampled_from(["GPU-a", "GPU-b", "GPU-c"]),
    model=st.sampled_from(["", MODEL]),
    state=st.sampled_from(STATES),
    up=st.booleans(),
    cause=st.none() | st.just("timeout"),
    rows=st.none() | st.dictionaries(st.sampled_from(FAMILIES), rows, max_size=12),
    faults=faults,
    sampled_at=st.none() | st.floats(START - 1000, START + 1000) | st.just(float("-inf")),
    throttled=st.dictionaries(st.sampled_from(LABELS), numbers, max_size=3),
    events=st.lists(events, max_size=4).map(tuple),
    last_reset=st.none() | times,
    uncorrected_increased=st.none() | times,
    expected_links=st.none() | numbers,
    mig=st.booleans(),
)
nodes = st.builds(
    NodeFacts,
    driver_error=st.none() | st.sampled_from(["detached", "timeout", "driver_not_loaded"]),
    listed=st.none() | st.integers(0, 8),
    detected=st.none() | st.integers(0, 8),
    source_up=st.none() | st.booleans(),
)
moments = st.lists(
    st.tuples(st.lists(cards, max_size=3, unique_by=lambda card: card.uuid), nodes,
              st.floats(0, 2000)),
    min_size=1, max_size=6,
)  # fmt: skip


@given(moments, st.booleans())
@settings(max_examples=150, deadline=None)
def test_any_facts_give_a_verdict_for_every_card(
    story: list[tuple[list[CardFacts], NodeFacts, float]], patient: bool
) -> None:
    """Whatever is missing or odd, each card has one verdict, sorted, with state and sentences."""
    judge, now = Judge(patient=patient), 0.0
    for facts, node, step in story:
        now += step
        verdicts = judge.observe(facts, node, START + now, START_WALL + now, 5.0)
        assert verdicts.keys() == {card.uuid for card in facts}
        for verdict in verdicts.values():
            levels = [held.level for held in verdict.conditions]
            assert levels == sorted(levels, reverse=True)
            assert verdict.state == (levels[0] if levels else verdict.state)
            assert (verdict.state is None) == bool(verdict.reason)
            assert all(held.text.endswith(".") for held in verdict.conditions)


@given(moments, st.randoms(use_true_random=False))
@settings(max_examples=75, deadline=None)
def test_no_verdict_depends_on_the_order_of_cards_or_events(
    story: list[tuple[list[CardFacts], NodeFacts, float]], chance: random.Random
) -> None:
    """Two judges, one of which gets everything shuffled, agree at every moment."""
    straight, shuffled, now = Judge(), Judge(), 0.0
    for facts, node, step in story:
        now += step
        mixed = [
            replace(card, events=tuple(chance.sample(card.events, len(card.events))))
            for card in chance.sample(facts, len(facts))
        ]
        at = (node, START + now, START_WALL + now, 5.0)
        assert straight.observe(facts, *at) == shuffled.observe(mixed, *at)


def _spoil(card: Puppet, family: str, value: float) -> None:
    for labels in card.rows.get(family, {}):
        card.set(family, value, *labels)


trouble: st.SearchStrategy[Any] = st.lists(
    st.one_of(
        st.tuples(st.just("row"), st.sampled_from(sorted(HEALTHY)), numbers),
        st.tuples(st.just("state"), st.sampled_from(STATES), st.booleans()),
        st.tuples(st.just("event"), st.sampled_from(CLASSES), st.integers(1, 200)),
        st.tuples(st.just("fault"), st.sampled_from(sorted(HEALTHY)), st.just("unknown")),
        st.tuples(st.just("drop"), st.sampled_from(sorted(HEALTHY)), st.none()),
    ),
    min_size=1,
    max_size=6,
)


def _trouble(stage: Stage, card: Puppet, what: str, name: str, value: Any) -> None:
    if what == "row":
        _spoil(card, name, value)
    elif what == "state":
        card.answers(name, name, shown=value)
    elif what == "event":
        stage.event(card, value, name)
    elif what == "fault":
        card.faults[name] = value
    else:
        card.drop(name)


def _heal(card: Puppet, wall: float) -> None:
    """Everything healthy again; counters start from nothing, as after a reset."""
    fresh = Puppet(card.uuid, card.index)
    card.rows, card.rates, card.faults, card.shares = fresh.rows, {}, {}, {}
    card.answers("ok", shown=True)
    card.last_reset = wall


@given(trouble, trouble, st.sampled_from([10.0, 300.0, 3000.0]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_no_latch_survives_health_after_a_reset(
    first: list[Any], second: list[Any], length: float, driver_went_too: bool
) -> None:
    """After any trouble, reset and healthy facts for long enough make every card ok."""
    stage = Stage(interval=60.0)
    stage.run(300)
    for things in (first, second):
        for number, (what, name, value) in enumerate(things):
            _trouble(stage, stage.cards[number % 3], what, name, value)
        stage.run(length)
    if driver_went_too:
        stage.node = NodeFacts("driver_not_loaded", None, 5, False)
        stage.run(600)
    stage.node = NodeFacts(None, 5, 5, True)
    stage.skip(1)
    for card in stage.cards:
        _heal(card, stage.wall)
    stage.run(180)
    assert stage.quiet()


@given(trouble, st.sampled_from([10.0, 3000.0]))
@settings(max_examples=40, deadline=None)
def test_without_a_reset_only_events_and_counts_stay(things: list[Any], length: float) -> None:
    """Healthy readings alone, long enough, end all but what only a reset may end."""
    stage = Stage(interval=60.0)
    stage.run(300)
    for what, name, value in things:
        _trouble(stage, stage.card, what, name, value)
    stage.run(length)
    reset = stage.card.last_reset
    assert reset is not None
    _heal(stage.card, reset)
    stage.run(3 * 3600)
    assert stage.held().keys() <= {"xid_critical"}


def test_the_families_of_the_puppets_exist() -> None:
    """The healthy card of these tests is made of families that are exported."""
    assert HEALTHY.keys() <= BY_NAME.keys()
