# SPDX-License-Identifier: Apache-2.0
"""NVLink over its generations: which ids count what, in which unit, over which links."""

from __future__ import annotations

from typing import Any

import pytest

from cardwatch.families.record import Profile
from cardwatch.nvml.codes import DriverError
from cardwatch.nvml.fields import ALL_LINKS
from cardwatch.readings import nvlink
from cardwatch.readings.card import Memo
from nvml.stand_in import BROKEN, UNSUPPORTED, Card, Clock, Driver, Key, by_label, read, value

ERRORS, LINK_ERRORS = "gpu_nvlink_errors_total", "gpu_nvlink_link_errors_total"
ACTIVE, UP = "gpu_nvlink_active_links", "gpu_nvlink_up"
TRAFFIC = ("gpu_nvlink_transmit_bytes_total", "gpu_nvlink_receive_bytes_total")


def linked(links: int, **more: Any) -> dict[Key, Any]:
    """Return a card whose links are all active, and nothing else."""
    states: dict[Key, Any] = {("field", 165, link): 1 for link in range(links)}
    return {("field", 91): links, **states, **more}


def ampere() -> dict[Key, Any]:
    """Totals by id, KiB by scope; none of the newer ids."""
    return linked(12) | {
        ("field", 52): 1, ("field", 59): 2, ("field", 38): 3, ("field", 45): 4, ("field", 160): 5,
        ("field", 138, ALL_LINKS): 1000, ("field", 139, ALL_LINKS): 2000,
        ("field", 138, 0): 7, ("field", 139, 0): 8,
    }  # fmt: skip


def hopper(*, with_sums: bool) -> dict[Key, Any]:
    """Data link layer counters by link, with or without a sum in the driver."""
    answers = linked(18) | {("field", 138, ALL_LINKS): 1000, ("field", 139, ALL_LINKS): 2000}
    for number in (161, 162, 163):
        for link in range(18):
            answers["field", number, link] = number + link
        if with_sums:
            answers["field", number, ALL_LINKS] = sum(number + link for link in range(18))
    return answers


def blackwell() -> dict[Key, Any]:
    """Counters of NVLink 5, in bytes; the data link layer ids are gone."""
    answers = linked(18)
    for number in (202, 204, 215, 219, 221):
        for link in range(18):
            answers["field", number, link] = 10
        answers["field", number, ALL_LINKS] = 180
    return answers


def test_ampere_gives_totals_of_five_kinds() -> None:
    """Up to NVLink 3 each kind is a total of its own id."""
    card = read(nvlink.read, ampere())
    assert by_label(card.rows, ERRORS) == {
        "replay": 1, "recovery": 2, "crc_flit": 3, "crc_data": 4, "ecc": 5,
    }  # fmt: skip
    assert ERRORS not in card.faults
    assert LINK_ERRORS not in card.rows


@pytest.mark.parametrize("with_sums", [True, False])
def test_hopper_gives_the_sum_over_links(with_sums: bool) -> None:
    """NVLink 4 counters are summed over all links, by the driver or else by us."""
    card = read(nvlink.read, hopper(with_sums=with_sums))
    assert by_label(card.rows, ERRORS) == {
        "replay": 161 * 18 + 153, "recovery": 162 * 18 + 153, "crc_flit": 163 * 18 + 153,
    }  # fmt: skip
    links = by_label(card.rows, LINK_ERRORS)
    assert len(links) == 54
    assert links["4", "replay"] == 165
    assert links["17", "crc_flit"] == 180
    assert {ERRORS, LINK_ERRORS}.isdisjoint(card.faults)


def test_hopper_without_sums_reads_each_counter_once() -> None:
    """Adding links up costs no second reading of the same counter, once it is known what exists."""
    card = Card(hopper(with_sums=False))
    memo = Memo(Clock())
    read(nvlink.read, card, memo=memo, driver=Driver(card))
    driver = Driver(card)
    read(nvlink.read, card, memo=memo, driver=driver)
    asked = [
        request for made in driver.made if made[0] == "DeviceGetFieldValues" for request in made[2]
    ]
    assert len(asked) == len(set(asked))
    assert (161, 3) in asked
    assert (161, ALL_LINKS) not in asked


def test_a_link_that_fails_does_not_lower_the_sum() -> None:
    """A sum with a link missing would look like a counter that went back: it is a fault."""
    card = read(nvlink.read, {**hopper(with_sums=False), ("field", 161, 7): BROKEN})
    assert by_label(card.rows, ERRORS).keys() == {"recovery", "crc_flit"}
    assert card.faults[ERRORS] == "unknown"
    assert ("6", "replay") in by_label(card.rows, LINK_ERRORS)
    assert ("7", "replay") not in by_label(card.rows, LINK_ERRORS)


def test_links_that_are_not_wired_are_left_out_of_the_sum() -> None:
    """A link without counters is none to add up, and no fault."""
    answers = hopper(with_sums=False)
    for number in (161, 162, 163):
        answers["field", number, 17] = UNSUPPORTED
    card = read(nvlink.read, answers)
    assert by_label(card.rows, ERRORS)["replay"] == 161 * 17 + 136
    assert len(by_label(card.rows, LINK_ERRORS)) == 51
    assert ERRORS not in card.faults


def test_blackwell_counts_recovery_symbol_and_effective_errors() -> None:
    """NVLink 5 kinds come from its own ids over all links; those it lost are absent."""
    card = read(nvlink.read, blackwell())
    assert by_label(card.rows, ERRORS) == {"recovery": 180, "symbol": 180, "effective": 180}
    assert by_label(card.rows, LINK_ERRORS)["3", "symbol"] == 10


@pytest.mark.parametrize(
    ("answers", "transmit", "receive"),
    [
        (ampere(), 1000 * 1024, 2000 * 1024),
        (hopper(with_sums=True), 1000 * 1024, 2000 * 1024),
        (blackwell(), 180, 180),
    ],
    ids=["ampere", "hopper", "blackwell"],
)
def test_traffic_is_in_bytes_over_all_links(
    answers: dict[Key, Any], transmit: int, receive: int
) -> None:
    """Older counters are KiB and newer ones bytes; both come out as bytes of all links."""
    card = Card(answers)
    driver = Driver(card)
    collected = read(nvlink.read, card, driver=driver)
    assert tuple(value(collected, family) for family in TRAFFIC) == (transmit, receive)
    assert {s for f, s in driver.asked_fields() if f in (138, 139, 202, 204)} == {ALL_LINKS}


def test_the_scope_of_all_links_is_never_link_zero() -> None:
    """What is exported for the whole card is asked for with the scope 0xFFFFFFFF."""
    card = Card(blackwell() | {("field", n, 0): 999 for n in (202, 204, 215, 219, 221)})
    collected = read(nvlink.read, card, profile=Profile.CORE)
    assert by_label(collected.rows, ERRORS) == {"recovery": 180, "symbol": 180, "effective": 180}


def test_a_counter_that_fails_does_not_change_its_source() -> None:
    """A failing newer counter is a fault of its kind; the older id is not put in its place."""
    card = read(nvlink.read, {**blackwell(), ("field", 215, ALL_LINKS): BROKEN, ("field", 59): 5})
    assert by_label(card.rows, ERRORS) == {"symbol": 180, "effective": 180}
    assert card.faults[ERRORS] == "unknown"


@pytest.mark.parametrize(
    ("states", "active"),
    [([1, 1, 1, 1], 4), ([1, 0, 2, 3], 3), ([0, 0, 0, 0], 0), ([1, None, 1, None], 2)],
)
def test_links_that_carry_or_sleep_are_active(states: list[int | None], active: int) -> None:
    """Active, asleep and active without traffic are up; inactive and not wired are not."""
    answers: dict[Key, Any] = {("field", 91): 4}
    for link, state in enumerate(states):
        answers["field", 165, link] = UNSUPPORTED if state is None else state
    card = read(nvlink.read, answers)
    assert value(card, ACTIVE) == active
    assert value(card, "gpu_nvlink_supported_links") == 4
    assert sum(by_label(card.rows, UP).values()) == active
    assert len(by_label(card.rows, UP)) == 4


def test_the_older_call_gives_the_state_where_the_field_is_unknown() -> None:
    """Without the state field each link is asked by the call of its own."""
    answers: dict[Key, Any] = {("field", 91): 3}
    answers |= {("DeviceGetNvLinkState", 0): 1, ("DeviceGetNvLinkState", 1): 0}
    card = read(nvlink.read, answers)
    assert value(card, ACTIVE) == 1
    assert by_label(card.rows, UP) == {"0": 1, "1": 0, "2": 0}


def test_a_link_whose_state_fails_is_not_a_link_that_is_down() -> None:
    """One state that does not read leaves the number absent: it must not look like a lost link."""
    card = read(nvlink.read, linked(4) | {("field", 165, 2): BROKEN})
    assert ACTIVE not in card.rows
    assert card.faults[ACTIVE] == "unknown"
    assert by_label(card.rows, UP) == {"0": 1, "1": 1, "3": 1}


@pytest.mark.parametrize("count", [UNSUPPORTED, 0, 65, 2**32 - 1])
def test_a_card_without_links_has_none_of_it(count: DriverError | int) -> None:
    """No links, or a number that cannot be, and every NVLink family is absent without a failure."""
    card = read(nvlink.read, {("field", 91): count, ("field", 38): 9})
    assert card.rows == {}
    assert set(card.faults.values()) == {"unsupported"}


def test_when_no_field_reads_any_more_each_family_says_so() -> None:
    """A driver that stops answering fields later costs the families, not the pass."""
    card = Card(hopper(with_sums=True))
    memo = Memo(Clock())
    read(nvlink.read, card, memo=memo)
    card.answers["DeviceGetFieldValues"] = BROKEN
    collected = read(nvlink.read, card, memo=memo)
    assert value(collected, "gpu_nvlink_supported_links") == 18  # a fact, known from before
    for family in (ACTIVE, ERRORS, LINK_ERRORS, *TRAFFIC):
        assert collected.faults[family] == "unknown"
        assert family not in collected.rows


def test_below_full_only_links_with_errors_have_rows() -> None:
    """In standard a healthy link gives no row; one with errors does, and in core none does."""
    answers = hopper(with_sums=True)
    for number in (161, 162, 163):
        for link in range(18):
            answers["field", number, link] = 0
    answers["field", 163, 5] = 12
    standard = read(nvlink.read, answers, profile=Profile.STANDARD)
    assert by_label(standard.rows, LINK_ERRORS) == {("5", "crc_flit"): 12}
    assert UP not in standard.rows
    core = read(nvlink.read, answers, profile=Profile.CORE)
    assert core.rows.keys() == {ACTIVE, ERRORS}
