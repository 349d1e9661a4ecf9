# SPDX-License-Identifier: Apache-2.0
"""Whole samples: holes and swaps in the list, lost and half-dead cards, sentinels, profiles."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from cardwatch.backends import Options, SourceDown
from cardwatch.backends.nvml import NvmlBackend
from cardwatch.families import BY_NAME
from cardwatch.families.record import Profile
from cardwatch.nvml.codes import NAMES, DriverError
from cardwatch.sample import CardSample
from nvml.stand_in import (
    BROKEN,
    DENIED,
    LOST,
    NEEDS_RESET,
    UNSUPPORTED,
    Answers,
    Card,
    Driver,
    Key,
    Raw,
    by_label,
    hopper,
)

VITAL = ("gpu_utilization_ratio", "gpu_clock_hertz", "gpu_power_watts")


def opened(driver: Driver, profile: Profile = Profile.FULL) -> NvmlBackend:
    """Return an initialised backend over a driver."""
    backend = NvmlBackend(driver, Options("nvml", profile))
    backend.open()
    return backend


def sample_of(answers: Answers | Card, profile: Profile = Profile.FULL) -> CardSample:
    """Read a card once."""
    return opened(Driver(answers), profile).read(0)


def split() -> dict[Key, Any]:
    """Return a Hopper card with two instances, so that every reader has something to do."""
    instance = {"DeviceGetGpuInstanceId": 1, "DeviceGetComputeInstanceId": 0,
                "DeviceGetName": "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
                "DeviceGetMemoryInfo_v2": (4000, 100, 1900, 2000),
                "DeviceGetComputeRunningProcesses": [(7, 1, 1, 0)]}  # fmt: skip
    return hopper(DeviceGetMigMode=(1, 1), DeviceGetMaxMigDeviceCount=2) | {
        ("DeviceGetMigDeviceHandleByIndex", n): Card({**instance, "DeviceGetUUID": f"MIG-{n}"})
        for n in range(2)
    }


# ---- who is at which index -----------------------------------------------------------------------


def test_a_hole_in_the_list_does_not_hide_the_cards_after_it() -> None:
    """An index without a card is unreadable by itself; the others are read as ever."""
    driver = Driver(hopper("GPU-a"), hopper("GPU-b"), hopper("GPU-c"))
    driver.cards[1] = None
    backend = opened(driver)
    assert backend.count() == 3
    samples = [backend.read(slot) for slot in range(3)]
    assert [sample.uuid for sample in samples] == ["GPU-a", None, "GPU-c"]
    assert [sample.state for sample in samples] == ["ok", "unreadable", "ok"]
    assert samples[1].error == "invalid_argument"
    assert samples[1].rows == {}


def test_facts_follow_the_card_when_indexes_swap() -> None:
    """After re-enumeration, what is remembered about a card is still that card's."""
    driver = Driver(
        hopper("GPU-a") | {("DeviceGetMaxClockInfo", 1): 1980, "DeviceGetSerial": "1"},
        hopper("GPU-b") | {("DeviceGetMaxClockInfo", 1): 1410, "DeviceGetSerial": "2",
                           "DeviceGetEccMode": UNSUPPORTED},
    )  # fmt: skip
    backend = opened(driver)
    before = [backend.read(slot) for slot in range(2)]
    asked = driver.count("DeviceGetMaxClockInfo")
    driver.cards.reverse()
    after = [backend.read(slot) for slot in range(2)]
    assert [sample.uuid for sample in after] == ["GPU-b", "GPU-a"]
    for old, new in zip(before, reversed(after), strict=True):
        assert (new.uuid, new.info, new.rows) == (old.uuid, old.info, old.rows)
    assert driver.count("DeviceGetMaxClockInfo") == asked


def test_another_card_at_the_same_index_is_asked_for_everything() -> None:
    """A card put in another's place inherits nothing: neither facts nor what that one lacked."""
    driver = Driver(hopper("GPU-a") | {"DeviceGetEccMode": UNSUPPORTED})
    backend = opened(driver)
    assert "gpu_ecc_mode_enabled" not in backend.read(0).rows
    driver.cards[0] = Card(hopper("GPU-b") | {"DeviceGetSerial": "2"})
    sample = backend.read(0)
    assert sample.info["serial"] == "2"
    assert sample.rows["gpu_ecc_mode_enabled"] == [((), 1)]


def test_the_handle_is_taken_anew_at_every_pass() -> None:
    """A handle goes stale when a card is lost or moves: none is kept."""
    driver = Driver(hopper())
    backend = opened(driver)
    for passes in (1, 2, 3):
        backend.read(0)
        assert driver.count("DeviceGetHandleByIndex") == passes


def test_a_card_that_does_not_tell_its_uuid_is_read_all_the_same() -> None:
    """Without a UUID the readings stand, and the address says which card it is."""
    sample = sample_of(hopper() | {"DeviceGetUUID": BROKEN})
    assert sample.uuid is None
    assert sample.pci == "0000:1b:00"
    assert sample.up
    assert "gpu_power_watts" in sample.rows


# ---- the driver as a whole -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "error"),
    [(12, "library_not_found"), (18, "driver_library_mismatch"), (9, "driver_not_loaded"),
     (4, "permission_denied"), (17, "permission_denied"), (999, "unknown_error"),
     (20, "memory")],
)  # fmt: skip
def test_what_keeps_the_driver_from_starting_has_a_name(code: int, error: str) -> None:
    """A failing Init is the whole source down, by the name that the page shows."""
    driver = Driver(hopper())
    driver.system["Init"] = DriverError(code)
    with pytest.raises(SourceDown) as down:
        opened(driver)
    assert down.value.error == error


@pytest.mark.parametrize("code", [1, 9, 18])
def test_a_driver_that_went_away_is_no_fault_of_a_card(code: int) -> None:
    """Uninitialised, unloaded and mismatched take the source down, not card after card."""
    driver = Driver(hopper() | {"handle": DriverError(code)})
    with pytest.raises(SourceDown):
        opened(driver).read(0)


def test_a_driver_without_cards_is_no_error() -> None:
    """ "GPU not found" on counting is a node with 0 cards."""
    driver = Driver()
    driver.system["DeviceGetCount"] = 0
    assert opened(driver).count() == 0
    driver = Driver()
    driver.call = lambda name, *args: (_ for _ in ()).throw(DriverError(28))  # type: ignore[method-assign]
    backend = NvmlBackend(driver, Options("nvml"))
    assert backend.count() == 0


def test_versions_are_those_that_the_driver_tells() -> None:
    """Driver, library and CUDA versions come from calls; what is not told is left out."""
    driver = Driver(hopper())
    assert opened(driver).versions() == {
        "driver_version": "580.95.05",
        "nvml_version": "13.580.95.05",
        "cuda_driver_version": "13.0",
    }  # fmt: skip
    driver.system |= {"SystemGetCudaDriverVersion": 12_080, "SystemGetNVMLVersion": BROKEN}
    assert opened(driver).versions() == {
        "driver_version": "580.95.05", "cuda_driver_version": "12.8",
    }  # fmt: skip


# ---- cards in trouble ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "state"),
    [(15, "lost"), (16, "reset_required"), (4, "denied"), (17, "denied"), (999, "unreadable"),
     (8, "unreadable"), (2, "unreadable"), (6, "unreadable")],
)  # fmt: skip
def test_a_handle_that_is_refused_says_what_the_card_is(code: int, state: str) -> None:
    """Without a handle the card is down with the state and name of the error, without readings."""
    sample = sample_of(hopper() | {"handle": DriverError(code)})
    assert (sample.up, sample.state, sample.error) == (False, state, NAMES[code])
    assert (sample.rows, sample.reasons, sample.mig) == ({}, None, [])


def distinct_calls() -> list[Key]:
    """Return every call that a full pass makes, in order, as a key of a card's answers."""
    card = Card(split())
    driver = Driver(card)
    opened(driver).read(0)
    found: list[Key] = []
    for name, *args in driver.made:
        if args[:1] == [card]:
            rest = tuple(args[1:])
            keys: list[Key] = (
                [("field", *field) for field in rest[0]] if "Field" in name else ([(name, *rest)])
            )
            found += [key for key in keys if key not in found and not _inner_link(key)]
    return found


def _inner_link(key: Key) -> bool:
    """Say whether a key is the field of a link that is neither the first nor the last."""
    return key[0] == "field" and len(key) == 3 and 0 < key[2] < 17


@pytest.mark.parametrize("key", distinct_calls(), ids=lambda key: "-".join(map(str, key)))
def test_a_card_lost_at_any_call_is_asked_nothing_more(key: tuple[Any, ...]) -> None:
    """Wherever in a pass the loss shows, it ends there: no readings, no further driver call."""
    card = Card(split() | {key: LOST})
    driver = Driver(card)
    sample = opened(driver).read(0)
    assert (sample.up, sample.state, sample.error) == (False, "lost", "gpu_is_lost")
    assert (sample.rows, sample.mig, sample.reasons) == ({}, [], None)
    name, *args = driver.made[-1]
    if key[0] == "field":
        assert name == "DeviceGetFieldValues"
        assert key[1:] in args[1]
    else:
        assert (name, *args[1:]) == key


@pytest.mark.parametrize("key", distinct_calls(), ids=lambda key: "-".join(map(str, key)))
def test_a_card_lost_in_a_later_pass_is_lost(key: tuple[Any, ...]) -> None:
    """A loss after passes that went well ends the pass as it would the first one."""
    card = Card(split())
    driver = Driver(card)
    backend = opened(driver)
    backend.read(0)
    backend.read(0)
    driver.made.clear()
    card.answers[key] = LOST
    sample = backend.read(0)
    call = (key[0], card, *key[1:])
    if call not in driver.made and key[1:] not in driver.asked_fields():
        assert sample.state == "ok"  # a fact that is not asked for at this pass
        return
    assert (sample.up, sample.state, sample.rows) == (False, "lost", {})
    if key[0] != "field":
        assert driver.made[-1] == call


def test_a_lost_card_keeps_its_name_for_the_labels() -> None:
    """A card lost during a pass says who it was, as far as it got."""
    sample = sample_of(hopper() | {"DeviceGetUtilizationRates": LOST})
    assert (sample.uuid, sample.pci) == ("GPU-a", "0000:1b:00")
    assert sample.info["model"] == "H100 80GB HBM3"


def with_vitals(utilization: Any, clock: Any, power: Any) -> dict[Key, Any]:
    """Return a card whose three vital readings answer so."""
    answers = hopper(DeviceGetUtilizationRates=utilization, DeviceGetPowerUsage=power)
    return answers | {("DeviceGetClockInfo", kind): clock for kind in range(4)}


@pytest.mark.parametrize(
    ("vitals", "up", "state"),
    [
        ((BROKEN, BROKEN, BROKEN), False, "unreadable"),
        ((BROKEN, BROKEN, UNSUPPORTED), False, "unreadable"),
        ((DENIED, DENIED, DENIED), False, "denied"),
        ((DENIED, UNSUPPORTED, UNSUPPORTED), False, "denied"),
        ((DENIED, BROKEN, UNSUPPORTED), False, "unreadable"),
        ((BROKEN, 1980, BROKEN), True, "ok"),
        ((UNSUPPORTED, UNSUPPORTED, 87_000), True, "ok"),
        ((UNSUPPORTED, UNSUPPORTED, UNSUPPORTED), True, "ok"),
        (((2**32 - 1, 0), BROKEN, BROKEN), False, "unreadable"),
    ],
)
def test_a_card_is_up_while_one_vital_reading_reads(
    vitals: tuple[Any, Any, Any], up: bool, state: str
) -> None:
    """Utilization, clocks and power: a card that has one of them and reads none is not up."""
    sample = sample_of(with_vitals(*vitals))
    assert (sample.up, sample.state) == (up, state)
    assert "gpu_temperature_celsius" in sample.rows  # what reads stays on the page


def test_a_card_that_needs_a_reset_may_still_answer() -> None:
    """RESET_REQUIRED from a reading marks the card, which stays up while it answers."""
    for key in ("DeviceGetRemappedRows", ("field", 230)):
        sample = sample_of(hopper() | {key: NEEDS_RESET})
        assert (sample.up, sample.state, sample.error) == (True, "reset_required", "reset_required")
        assert "gpu_power_watts" in sample.rows
    dead = sample_of(with_vitals(NEEDS_RESET, NEEDS_RESET, NEEDS_RESET))
    assert (dead.up, dead.state) == (False, "reset_required")


@pytest.mark.parametrize(
    "error", [BROKEN, DENIED, DriverError(19), DriverError(23), DriverError(29)]
)
def test_one_call_that_fails_costs_only_its_own_readings(error: DriverError) -> None:
    """Whichever call fails, the pass goes on, and all readings of other calls are as before."""
    healthy = sample_of(split())
    for key in distinct_calls():
        if key[0] in ("DeviceGetUUID", "DeviceGetMigMode", "DeviceGetMaxMigDeviceCount"):
            continue  # the identity, and what leads to other calls
        sample = sample_of(split() | {key: error})
        assert sample.up, key
        changed = {name for name in healthy.rows if sample.rows.get(name) != healthy.rows[name]}
        assert changed <= sample.faults.keys(), key
        assert len(changed) <= 7, f"{key} took {changed} with it"
        lost_rows = Counter(sample.rows.keys()) - Counter(healthy.rows.keys())
        assert not lost_rows, key


# ---- values that are none ------------------------------------------------------------------------

NO_READINGS = (
    "DeviceGetCurrentClocksEventReasons",  # every bit of a mask may be set
    "DeviceGetSupportedClocksEventReasons",
    "DeviceGetMaxMigDeviceCount",  # how often to ask
    "DeviceGetMemoryInfo",  # what stands in for the ones above
    ("field", 75),
)


def numeric_calls() -> list[Key]:
    """Return the calls of a healthy card that answer numbers."""
    return [
        key
        for key, answer in split().items()
        if key not in NO_READINGS
        and not _inner_link(key)
        and (isinstance(answer, int)
             or (isinstance(answer, tuple) and all(isinstance(n, int) for n in answer)))
    ]  # fmt: skip


@pytest.mark.parametrize("sentinel", [2**64 - 1, 2**64 - 16, 2**63 - 1])
@pytest.mark.parametrize("key", numeric_calls(), ids=str)
def test_all_bits_set_is_never_exported(key: Key, sentinel: int) -> None:
    """Where a 64-bit "no value" comes with success, the reading is absent, at every call."""
    _nothing_odd(key, sentinel)


WIDE = ("Memory", "Energy", "BAR1", "EccErrors")
WIDE_FIELDS = (74, 75, 76, 77, 79, 138, 139, 161, 162, 163, 197, 198, 269, 270, 271)


def narrow_calls() -> list[Key]:
    """Return the calls whose answers are far below 32 bits: no counters and no sizes."""
    return [
        key
        for key in numeric_calls()
        if not any(word in (key if isinstance(key, str) else key[0]) for word in WIDE)
        and not (key[0] == "field" and key[1] in WIDE_FIELDS)
    ]


@pytest.mark.parametrize("key", narrow_calls(), ids=str)
def test_all_bits_of_a_word_set_is_never_exported(key: Key) -> None:
    """The same with 32 bits, but for counters and sizes that may well be as large."""
    _nothing_odd(key, 2**32 - 1)


def _nothing_odd(key: Key, sentinel: int) -> None:
    answers = split()
    good = answers[key]
    if isinstance(good, tuple):
        answers[key] = tuple(sentinel for _ in good)
    elif key[0] == "field":
        answers[key] = Raw(0, 3, sentinel)
    else:
        answers[key] = sentinel
    healthy, odd = sample_of(split()), sample_of(answers)
    for family, rows in odd.rows.items():
        assert set(rows) <= set(healthy.rows[family]), f"{family} shows {rows}"
    for known, seen in zip(healthy.mig, odd.mig, strict=False):
        assert seen.rows.items() <= known.rows.items()
    assert odd.faults != healthy.faults or odd.info != healthy.info


def test_dcgm_blanks_lie_outside_every_accepted_range() -> None:
    """A blank of DCGM, taken for a value of the driver in its unit, is in no family's range."""
    blank_64, blank_32, blank_double = 2**63 - 16, 2**31 - 16, 140_737_488_355_328.0
    per_second = {"joules": 1e3, "seconds": 1e9, "watts": 1e3}
    for family in BY_NAME.values():
        if family.accept is None or "nvml" not in family.sources:
            continue
        low, high = family.accept
        assert low >= -100
        assert high < blank_64 / per_second.get(family.unit or "", 1), family.name
        if family.unit in ("ratio", "celsius", "watts") or family.accept == (0, 1):
            assert high < blank_32, family.name
            assert high < blank_double, family.name


# ---- profiles ------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", list(Profile), ids=lambda profile: profile.name.lower())
def test_a_profile_holds_its_families_and_no_others(profile: Profile) -> None:
    """Every row belongs to the profile, and a healthy card gives all families it can."""
    sample = sample_of(split(), profile)
    full = sample_of(split(), Profile.FULL)
    for family, rows in sample.rows.items():
        record = BY_NAME[family]
        for labels, number in rows:
            wanted = record.profile_of(labels[0] if labels else None) <= profile
            early = record.nonzero_profile is not None and record.nonzero_profile <= profile
            assert wanted or (early and number != 0), (family, labels)
    for family, rows in full.rows.items():
        record = BY_NAME[family]
        kept = [r for r in rows if record.profile_of(r[0][0] if r[0] else None) <= profile]
        assert by_label({family: kept}, family).items() <= by_label(sample.rows, family).items()


def test_each_profile_costs_fewer_calls_than_the_next() -> None:
    """What a profile does not export is not asked for."""
    calls = []
    for profile in Profile:
        driver = Driver(split())
        backend = opened(driver, profile)
        backend.read(0)
        driver.made.clear()
        backend.read(0)
        calls.append(len(driver.made))
    assert calls == sorted(calls)
    assert calls[0] < calls[1] < calls[2]


def test_a_settled_pass_makes_no_call_in_vain() -> None:
    """Once two passes have shown what a card has, every call is one that it answers."""
    card = Card(split())
    driver = Driver(card)
    backend = opened(driver)
    backend.read(0)
    backend.read(0)
    driver.made.clear()
    backend.read(0)
    for name, *args in driver.made:
        if args[:1] == [card] and name != "DeviceGetFieldValues":
            card.answer(name, tuple(args[1:]))  # raises where the card lacks it
        elif args[:1] == [card]:
            assert all(card.field(*field)[0] == 0 for field in args[1])
