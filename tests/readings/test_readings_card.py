# SPDX-License-Identifier: Apache-2.0
"""The pass over a card: what is remembered and for how long, and how faults are weighed."""

from __future__ import annotations

import pytest

from cardwatch.families.record import Profile
from cardwatch.nvml.codes import NAMES, UNSUPPORTED, DriverError, Outcome
from cardwatch.nvml.fields import MEMORY_TEMP, PCIE_TX_BYTES, RECOVERY_ACTION
from cardwatch.readings.card import RETRY_UNSUPPORTED_S, STATIC_S, CardLost, CardPass, Memo
from nvml.stand_in import BROKEN, DENIED, LOST, NEEDS_RESET, Card, Clock, Driver

POWER = "gpu_power_watts"


def start(card: Card, memo: Memo, profile: Profile = Profile.FULL) -> tuple[CardPass, Driver]:
    """Begin a pass over a card."""
    driver = Driver(card)
    return CardPass(driver, card, memo, profile, "580.95.05"), driver


def asks(card: Card, memo: Memo) -> int:
    """Read the power in a pass of its own; return how many calls that cost."""
    memo.expire()
    made, driver = start(card, memo)
    made.read(POWER, "DeviceGetPowerUsage", per=1000)
    assert POWER in made.rows or POWER in made.faults
    return len(driver.made)


def test_what_a_card_lacks_is_asked_again_after_a_minute() -> None:
    """ "Not supported" saves calls for a minute, and then the card may have changed its mode."""
    assert RETRY_UNSUPPORTED_S == 60
    clock = Clock()
    card, memo = Card({}), Memo(clock)
    assert asks(card, memo) == 1
    clock.now += RETRY_UNSUPPORTED_S - 1
    assert asks(card, memo) == 0
    card.answers["DeviceGetPowerUsage"] = 38_000
    assert asks(card, memo) == 0
    clock.now += 1
    assert asks(card, memo) == 1
    made, _ = start(card, memo)
    made.read(POWER, "DeviceGetPowerUsage", per=1000)
    assert made.rows == {POWER: [((), 38.0)]}


def test_a_field_that_a_card_lacks_is_asked_again_after_a_minute() -> None:
    """A field is remembered by id and scope, as a call is by name and arguments."""
    clock = Clock()
    card, memo = Card({("field", 230): 0}), Memo(clock)

    def asked() -> set[tuple[int, int]]:
        memo.expire()
        made, driver = start(card, memo)
        made.fields([(MEMORY_TEMP, 0), (RECOVERY_ACTION, 0)])
        return driver.asked_fields()

    assert asked() == {(82, 0), (230, 0)}
    assert asked() == {(230, 0)}
    clock.now += RETRY_UNSUPPORTED_S
    assert asked() == {(82, 0), (230, 0)}


@pytest.mark.parametrize("code", sorted(set(NAMES) - {0, 15}))
def test_only_what_cannot_change_soon_is_remembered(code: int) -> None:
    """A failure, a denial, and "nothing there now" are asked for again at the next pass."""
    lasting = code in UNSUPPORTED and code not in (6, 21)
    card, memo = Card({"DeviceGetPowerUsage": DriverError(code)}), Memo(Clock())
    assert asks(card, memo) == 1
    assert asks(card, memo) == (0 if lasting else 1)


def test_fields_known_to_answer_are_read_in_one_call() -> None:
    """From the second pass on, all fields of a pass cost one driver call together."""
    card = Card({("field", 82): 60, ("field", 230): 0, ("field", 197): 1000})
    memo = Memo(Clock())
    for calls in (3, 1, 1):
        made, driver = start(card, memo)
        answers = [
            made.fields([(field, 0)]) for field in (MEMORY_TEMP, RECOVERY_ACTION, PCIE_TX_BYTES)
        ]
        assert answers == [[60], [0], [1000]]
        assert driver.count("DeviceGetFieldValues") == calls


def test_a_field_call_that_fails_is_the_fault_of_each_that_wanted_one() -> None:
    """When the call as a whole fails, every family that needed a field has that fault."""
    card = Card({("field", 82): 60, ("field", 230): 0})
    memo = Memo(Clock())
    start(card, memo)[0].fields([(MEMORY_TEMP, 0), (RECOVERY_ACTION, 0)])
    card.answers["DeviceGetFieldValues"] = BROKEN
    made, _ = start(card, memo)
    for family, field in (("gpu_memory_temperature_celsius", MEMORY_TEMP),
                          ("gpu_recovery_action", RECOVERY_ACTION)):  # fmt: skip
        with made.attempt(family):
            made.fields([(field, 0)])
    assert made.faults == {
        "gpu_memory_temperature_celsius": "unknown", "gpu_recovery_action": "unknown",
    }  # fmt: skip


def test_a_value_is_never_that_of_an_earlier_pass() -> None:
    """Nothing that was read is kept: a field that fails now is absent now."""
    card, memo = Card({("field", 82): 60}), Memo(Clock())
    assert start(card, memo)[0].fields([(MEMORY_TEMP, 0)]) == [60]
    card.answers["field", 82] = BROKEN
    (answer,) = start(card, memo)[0].fields([(MEMORY_TEMP, 0)])
    assert isinstance(answer, DriverError)
    assert answer.code == 999


def test_a_static_fact_is_read_again_after_five_minutes() -> None:
    """A limit by design costs a call in five minutes; a failure is not kept as a fact."""
    assert STATIC_S == 300
    clock = Clock()
    card, memo = Card({"DeviceGetMaxPcieLinkWidth": BROKEN}), Memo(clock)

    def width() -> int:
        made, driver = start(card, memo)
        with made.attempt("gpu_pcie_link_width_max"):
            made.static("width", lambda: made.ask("DeviceGetMaxPcieLinkWidth"))
        return len(driver.made)

    assert [width(), width()] == [1, 1]
    card.answers["DeviceGetMaxPcieLinkWidth"] = 16
    assert [width(), width()] == [1, 0]
    clock.now += STATIC_S
    assert width() == 1


@pytest.mark.parametrize("where", ["call", "field"])
def test_a_lost_card_ends_the_pass(where: str) -> None:
    """GPU_IS_LOST is no fault of one family: nothing more may be asked of the handle."""
    made, _ = start(Card({"DeviceGetPowerUsage": LOST, ("field", 82): LOST}), Memo(Clock()))

    def ask() -> None:
        with made.attempt(POWER):
            if where == "call":
                made.ask("DeviceGetPowerUsage")
            else:
                made.fields([(MEMORY_TEMP, 0)])

    with pytest.raises(CardLost):
        ask()


@pytest.mark.parametrize("where", ["call", "field"])
def test_a_card_that_needs_a_reset_says_so_from_any_reading(where: str) -> None:
    """One answer RESET_REQUIRED marks the card; the reading is a failure like others."""
    answers = {"DeviceGetPowerUsage": NEEDS_RESET, ("field", 82): NEEDS_RESET}
    made, _ = start(Card(answers), Memo(Clock()))
    if where == "call":
        made.read(POWER, "DeviceGetPowerUsage")
        assert made.faults == {POWER: "reset_required"}
    else:
        made.fields([(MEMORY_TEMP, 0)])
    assert made.reset_required


def test_the_worst_fault_of_a_family_is_shown() -> None:
    """A failure outweighs a denial, which outweighs "not supported", in any order."""
    for errors in ((DriverError(3), DENIED, BROKEN), (BROKEN, DENIED, DriverError(3))):
        made, _ = start(Card({}), Memo(Clock()))
        for error in errors:
            made.fault("gpu_clock_hertz", error)
        assert made.faults == {"gpu_clock_hertz": "unknown"}
    made, _ = start(Card({}), Memo(Clock()))
    made.absent("gpu_clock_hertz")
    made.fault("gpu_clock_hertz", DENIED)
    assert made.faults == {"gpu_clock_hertz": "denied"}


@pytest.mark.parametrize(
    "answer", ["12", None, True, [12], "Requested functionality is deprecated"]
)
def test_what_is_no_number_is_no_reading(answer: object) -> None:
    """An answer of the wrong kind is dropped with its reason; the page stays parsable."""
    made, _ = start(Card({}), Memo(Clock()))
    made.put(POWER, answer)
    assert made.rows == {}
    assert made.faults == {POWER: "out_of_range"}


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_out_of_range(number: float) -> None:
    """NaN and infinity never reach the page."""
    made, _ = start(Card({}), Memo(Clock()))
    made.put(POWER, number)
    assert made.faults == {POWER: "out_of_range"}


def test_a_family_beyond_the_profile_is_neither_kept_nor_a_fault() -> None:
    """What the profile does not export does not count among the readings either."""
    made, _ = start(Card({}), Memo(Clock()), Profile.CORE)
    made.put("gpu_memory_free_bytes", 5)
    made.fault("gpu_memory_free_bytes", BROKEN)
    assert made.rows == {}
    assert made.faults == {}


@pytest.mark.parametrize("code", sorted({*NAMES, 31, 1234}))
def test_every_code_has_a_name_and_an_outcome(code: int) -> None:
    """A code that this release does not know is a failure named by its number."""
    error = DriverError(code)
    assert error.name == NAMES.get(code, f"code_{code}")
    assert error.outcome in Outcome
    if code not in NAMES:
        assert error.outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("outcome", "codes"),
    [
        (Outcome.UNSUPPORTED, {2, 3, 6, 13, 21, 22, 24, 25, 26}),
        (Outcome.DENIED, {4, 17}),
        (Outcome.FAILED, {1, 7, 8, 9, 10, 11, 14, 15, 16, 18, 19, 20, 23, 27, 28, 29, 999}),
    ],
)
def test_each_code_has_its_outcome(outcome: Outcome, codes: set[int]) -> None:
    """What an older driver answers to something it does not know is no failure; trouble is one."""
    assert {code for code in codes if DriverError(code).outcome is outcome} == codes
