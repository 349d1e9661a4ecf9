# SPDX-License-Identifier: Apache-2.0
"""Throttling: names of the bits, the driver's counters, and the ids that were renumbered."""

from __future__ import annotations

import pytest

from cardwatch.families.record import Profile
from cardwatch.nvml.codes import DriverError
from cardwatch.nvml.fields import REASON_SW_THERMAL, supported_by
from cardwatch.readings import throttling
from nvml.stand_in import BROKEN, NO_SYMBOL, UNSUPPORTED, Card, Driver, by_label, read

SECONDS = "gpu_throttle_seconds_total"
RENUMBERED = {(269, 0), (270, 0), (271, 0)}
COUNTERS = {("field", number): number * 10**9 for number in (74, 75, 76, 77, 79, 269, 270, 271)}


@pytest.mark.parametrize(
    "version", ["580.82", "580.82.07", "580.95.05", "581.03", "590.44.01", "595.10", "615.10.02"]
)
def test_drivers_with_the_new_ids_are_asked_for_them(version: str) -> None:
    """From 580.82 on, ids 269 to 271 are the counters of the three reasons, in nanoseconds."""
    card = Card(COUNTERS)
    driver = Driver(card)
    seconds = by_label(read(throttling.read, card, version=version, driver=driver).rows, SECONDS)
    assert driver.asked_fields() >= RENUMBERED
    assert seconds == {
        "sw_power_cap": 74,
        "sw_thermal_slowdown": 269,
        "hw_thermal_slowdown": 270,
        "hw_power_brake_slowdown": 271,
        "sync_boost": 76,
        "board_limit": 77,
        "reliability": 79,
    }


@pytest.mark.parametrize(
    "version",
    ["470.256.02", "535.183.01", "570.172.08", "575.51.03", "575.57.08", "580.65.06",
     "580", "", "unknown", "580.x.1"],
)  # fmt: skip
def test_drivers_that_gave_the_ids_another_meaning_are_not_asked(version: str) -> None:
    """Below 580.82, and where the version is unreadable, the three ids are never asked for.

    Drivers of 575 and 580.65 answer them with power-smoothing settings and success.
    """
    card = Card(COUNTERS)
    driver = Driver(card)
    collected = read(throttling.read, card, version=version, driver=driver)
    assert not driver.asked_fields() & RENUMBERED
    seconds = by_label(collected.rows, SECONDS)
    assert seconds["sw_thermal_slowdown"] == 75  # the policy counter stands in
    assert "hw_thermal_slowdown" not in seconds
    assert "hw_power_brake_slowdown" not in seconds
    assert SECONDS not in collected.faults
    assert not supported_by(REASON_SW_THERMAL, version)


def test_a_new_driver_whose_card_lacks_the_new_id_gives_the_old_counter() -> None:
    """The policy counter stands in when the new id is not supported."""
    card = read(throttling.read, {**COUNTERS, ("field", 269): UNSUPPORTED})
    assert by_label(card.rows, SECONDS)["sw_thermal_slowdown"] == 75


def test_a_counter_that_fails_is_not_replaced_by_another() -> None:
    """A failure of the new id is a fault of the family; its value does not jump to the old one."""
    card = read(throttling.read, {**COUNTERS, ("field", 269): BROKEN})
    seconds = by_label(card.rows, SECONDS)
    assert "sw_thermal_slowdown" not in seconds
    assert seconds["hw_thermal_slowdown"] == 270
    assert card.faults[SECONDS] == "unknown"


def test_a_card_without_any_counter_has_no_fault() -> None:
    """No counter is the card's nature: the exporter adds the bits up itself."""
    card = read(throttling.read, {"DeviceGetCurrentClocksEventReasons": 0})
    assert SECONDS not in card.rows
    assert SECONDS not in card.faults


def test_the_core_profile_asks_for_the_reasons_that_cost_performance() -> None:
    """Below standard, only the counters of the core reasons are read."""
    card = Card(COUNTERS)
    driver = Driver(card)
    collected = read(throttling.read, card, profile=Profile.CORE, driver=driver)
    assert driver.asked_fields() == {(74, 0), (269, 0), (75, 0), (270, 0), (271, 0)}
    assert by_label(collected.rows, SECONDS).keys() == {
        "sw_power_cap", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown",
    }  # fmt: skip


BITS = {
    0: "gpu_idle",
    1: "applications_clocks_setting",
    2: "sw_power_cap",
    3: "hw_slowdown",
    4: "sync_boost",
    5: "sw_thermal_slowdown",
    6: "hw_thermal_slowdown",
    7: "hw_power_brake_slowdown",
    8: "display_clock_setting",
    9: "board_limit",
    10: "reliability",
    11: "bit_11",
    63: "bit_63",
}


@pytest.mark.parametrize("bit", BITS)
def test_each_bit_has_its_name(bit: int) -> None:
    """One bit of the mask is one reason; a bit that nobody knows is named by its number."""
    card = read(throttling.read, {"DeviceGetCurrentClocksEventReasons": 1 << bit})
    assert card.reasons == {BITS[bit]: True}


def test_inactive_reasons_are_those_that_the_card_supports() -> None:
    """A reason that is not active shows as such only if the card can have it."""
    card = read(
        throttling.read,
        {"DeviceGetCurrentClocksEventReasons": 0x4, "DeviceGetSupportedClocksEventReasons": 0x25},
    )
    assert card.reasons == {"gpu_idle": False, "sw_power_cap": True, "sw_thermal_slowdown": False}


@pytest.mark.parametrize("missing", [NO_SYMBOL, UNSUPPORTED])
def test_drivers_before_535_call_the_same_masks_by_another_name(missing: DriverError) -> None:
    """The exported reasons do not depend on the name that the driver has for the call."""
    card = read(
        throttling.read,
        {
            "DeviceGetCurrentClocksEventReasons": missing,
            "DeviceGetSupportedClocksEventReasons": missing,
            "DeviceGetCurrentClocksThrottleReasons": 0x40,
            "DeviceGetSupportedClocksThrottleReasons": 0x44,
        },
    )
    assert card.reasons == {"sw_power_cap": False, "hw_thermal_slowdown": True}


def test_without_the_mask_nothing_is_said_of_reasons() -> None:
    """A mask that does not read leaves every reason absent, not inactive."""
    card = read(throttling.read, {"DeviceGetCurrentClocksEventReasons": BROKEN})
    assert card.reasons is None
    assert card.faults["gpu_throttle_reason_active"] == "unknown"
