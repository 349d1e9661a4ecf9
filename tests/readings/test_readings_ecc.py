# SPDX-License-Identifier: Apache-2.0
"""ECC counters by location, totals where there is none, and the cards with ECC off."""

from __future__ import annotations

import pytest

from cardwatch.families.record import Profile
from cardwatch.readings import ecc
from nvml.stand_in import BROKEN, DENIED, UNSUPPORTED, Card, Driver, by_label, read, value

SINCE_LOAD, LIFETIME = "gpu_ecc_errors_total", "gpu_ecc_lifetime_errors_total"
ON = {"DeviceGetEccMode": (1, 1)}
PLACES = {
    0: "l1", 1: "l2", 2: "dram", 3: "register_file", 4: "texture", 5: "shared", 6: "cbu", 7: "sram",
}  # fmt: skip


def test_with_ecc_off_no_counter_is_read() -> None:
    """A card with ECC off is asked for nothing but the mode: its counters would be garbage."""
    card = Card(
        {
            "DeviceGetEccMode": (0, 1),
            "DeviceGetMemoryErrorCounter": 0x7F3AC0DE0000,
            "DeviceGetTotalEccErrors": 0x7F3AC0DE0000,
            "DeviceGetSramEccErrorStatus": (1,),
        }
    )
    driver = Driver(card)
    collected = read(ecc.read, card, driver=driver)
    assert driver.names() == {"DeviceGetEccMode": 1}
    assert value(collected, "gpu_ecc_mode_enabled") == 0
    assert value(collected, "gpu_ecc_mode_pending_enabled") == 1
    assert collected.rows.keys() == {"gpu_ecc_mode_enabled", "gpu_ecc_mode_pending_enabled"}
    assert set(collected.faults.values()) == {"unsupported"}


def test_a_card_without_ecc_has_none_of_it() -> None:
    """No mode means no ECC: everything is absent and nothing failed."""
    collected = read(ecc.read, {"DeviceGetMemoryErrorCounter": 5})
    assert collected.rows == {}
    assert set(collected.faults.values()) == {"unsupported"}
    assert len(collected.faults) == 5


@pytest.mark.parametrize("location", PLACES)
@pytest.mark.parametrize(("kind", "code"), [("corrected", 0), ("uncorrected", 1)])
@pytest.mark.parametrize(("family", "counter"), [(SINCE_LOAD, 0), (LIFETIME, 1)])
def test_each_counter_is_the_one_it_is_called(
    family: str, counter: int, kind: str, code: int, location: int
) -> None:
    """Type, counter and location of a row are those that the driver was asked for."""
    key = ("DeviceGetMemoryErrorCounter", code, counter, location)
    collected = read(ecc.read, {**ON, key: 17})
    assert by_label(collected.rows, family) == {(kind, PLACES[location]): 17}
    other = LIFETIME if family == SINCE_LOAD else SINCE_LOAD
    assert other not in collected.rows


def test_a_card_that_knows_locations_gives_no_total() -> None:
    """Locations and a total never stand beside each other: a sum over rows would count twice."""
    answers = {
        **ON,
        ("DeviceGetMemoryErrorCounter", 0, 0, 2): 3,
        ("DeviceGetMemoryErrorCounter", 1, 0, 2): 4,
        "DeviceGetTotalEccErrors": 99,
    }
    card = Card(answers)
    driver = Driver(card)
    collected = read(ecc.read, card, profile=Profile.CORE, driver=driver)
    assert by_label(collected.rows, SINCE_LOAD) == {
        ("corrected", "dram"): 3, ("uncorrected", "dram"): 4,
    }  # fmt: skip
    assert driver.count("DeviceGetTotalEccErrors") == 0


def test_a_card_without_locations_gives_the_total() -> None:
    """Where no location is known, the total stands as location all."""
    collected = read(
        ecc.read,
        {
            **ON,
            ("DeviceGetTotalEccErrors", 0, 0): 1,
            ("DeviceGetTotalEccErrors", 1, 0): 2,
            ("DeviceGetTotalEccErrors", 0, 1): 3,
            ("DeviceGetTotalEccErrors", 1, 1): 4,
        },
    )
    assert by_label(collected.rows, SINCE_LOAD) == {
        ("corrected", "all"): 1, ("uncorrected", "all"): 2,
    }  # fmt: skip
    assert by_label(collected.rows, LIFETIME) == {
        ("corrected", "all"): 3, ("uncorrected", "all"): 4,
    }  # fmt: skip


def test_a_location_that_fails_does_not_bring_the_total_in() -> None:
    """A location that exists but does not read is a fault, and the total stays away."""
    collected = read(
        ecc.read,
        {
            **ON,
            ("DeviceGetMemoryErrorCounter", 1, 0, 2): BROKEN,
            ("DeviceGetTotalEccErrors", 1, 0): 9,
        },
        profile=Profile.CORE,
    )
    assert SINCE_LOAD not in collected.rows
    assert collected.faults[SINCE_LOAD] == "unknown"


def test_the_sram_status_needs_rights_that_are_often_missing() -> None:
    """Without root the SRAM threshold is denied, which is no failure and costs no counter."""
    answers = {
        **ON,
        ("DeviceGetMemoryErrorCounter", 0, 0, 2): 3,
        "DeviceGetSramEccErrorStatus": DENIED,
    }
    collected = read(ecc.read, answers)
    assert collected.faults["gpu_ecc_sram_threshold_exceeded"] == "denied"
    assert by_label(collected.rows, SINCE_LOAD) == {("corrected", "dram"): 3}
    exceeded = read(ecc.read, {**ON, "DeviceGetSramEccErrorStatus": (1,)})
    assert value(exceeded, "gpu_ecc_sram_threshold_exceeded") == 1


def test_locations_that_a_card_lacks_are_not_asked_for_again() -> None:
    """At the second pass only the locations that exist cost a call."""
    card = Card({**ON, ("DeviceGetMemoryErrorCounter", 0, 0, 2): 3, "DeviceGetTotalEccErrors": 0})
    driver = Driver(card)
    first = read(ecc.read, card, driver=driver)
    made = driver.count("DeviceGetMemoryErrorCounter")
    read(ecc.read, card, driver=driver, memo=first.memo)
    assert made == 32
    assert driver.count("DeviceGetMemoryErrorCounter") == made + 1


def test_lifetime_counters_are_left_out_of_the_core_profile() -> None:
    """In core, only the counters since driver load are asked for."""
    card = Card(
        {**ON, "DeviceGetMemoryErrorCounter": 1, "DeviceGetSramEccErrorStatus": UNSUPPORTED}
    )
    driver = Driver(card)
    collected = read(ecc.read, card, profile=Profile.CORE, driver=driver)
    assert LIFETIME not in collected.rows
    assert {made[3] for made in driver.made if made[0] == "DeviceGetMemoryErrorCounter"} == {0}
