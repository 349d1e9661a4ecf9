# SPDX-License-Identifier: Apache-2.0
"""Temperatures, their limits and fans, on cards that answer in odd ways."""

from __future__ import annotations

import pytest

from cardwatch.families.record import Profile
from cardwatch.nvml.codes import DriverError
from cardwatch.nvml.fields import TYPE_DOUBLE, TYPE_INT, TYPE_ULONGLONG, TYPE_USHORT
from cardwatch.readings import temperature
from nvml.stand_in import BROKEN, NO_SYMBOL, UNSUPPORTED, Card, Driver, Raw, by_label, read, value

DIE, MEMORY = "gpu_temperature_celsius", "gpu_memory_temperature_celsius"
LIMITS, FANS = "gpu_temperature_threshold_celsius", "gpu_fan_speed_ratio"


def test_the_newer_call_is_preferred() -> None:
    """Where both calls answer, the die temperature is that of the newer one, asked alone."""
    card = Card({("DeviceGetTemperatureV", 0): 58, ("DeviceGetTemperature", 0): 57})
    driver = Driver(card)
    assert value(read(temperature.read, card, driver=driver), DIE) == 58
    assert driver.count("DeviceGetTemperature") == 0


@pytest.mark.parametrize("missing", [NO_SYMBOL, UNSUPPORTED])
def test_the_older_call_stands_in(missing: DriverError) -> None:
    """A driver before R570 gives the same series through the older call."""
    card = {"DeviceGetTemperatureV": missing, ("DeviceGetTemperature", 0): 57}
    assert value(read(temperature.read, card), DIE) == 57


def test_a_failing_newer_call_is_not_covered_up() -> None:
    """A failure is a fault; the older call is not tried in its place."""
    card = read(
        temperature.read, {"DeviceGetTemperatureV": BROKEN, ("DeviceGetTemperature", 0): 57}
    )
    assert DIE not in card.rows
    assert card.faults[DIE] == "unknown"


@pytest.mark.parametrize("sentinel", [2**64 - 1, 2**32 - 1, -1, 251, -51])
def test_no_value_is_no_temperature(sentinel: int) -> None:
    """All bits set, signed or not, and what no die can have, is dropped as out of range."""
    card = read(temperature.read, {("DeviceGetTemperatureV", 0): sentinel})
    assert DIE not in card.rows
    assert card.faults[DIE] == "out_of_range"


@pytest.mark.parametrize(
    ("value_type", "raw"),
    [
        (TYPE_DOUBLE, 55),  # R545 says double and means unsigned int
        (TYPE_DOUBLE, 0xDEADBEEF_00000037),  # whatever was in the upper half
        (1, 55),
        (1, 0xFFFFFFFF_00000037),
        (TYPE_INT, 55),
        (TYPE_USHORT, 0xFFFF_0037),
        (TYPE_ULONGLONG, 55),
    ],
)
def test_the_memory_temperature_survives_a_wrong_type(value_type: int, raw: int) -> None:
    """The width that the header declares rules where the driver's type is wrong."""
    card = read(temperature.read, {("field", 82): Raw(0, value_type, raw)})
    assert value(card, MEMORY) == 55


def test_a_memory_sensor_that_does_not_exist_answers_zero() -> None:
    """0 degrees from the memory sensor is a board without one: absent, and no failure."""
    card = read(temperature.read, {("field", 82): 0})
    assert MEMORY not in card.rows
    assert card.faults[MEMORY] == "unsupported"


def test_an_entry_that_the_driver_left_untouched_is_absent() -> None:
    """An entry with our own "no data" code in it was never looked at by the driver."""
    card = read(temperature.read, {("field", 82): Raw(21, 0, 0)})
    assert MEMORY not in card.rows
    assert card.faults[MEMORY] == "unsupported"


def test_each_threshold_has_its_name() -> None:
    """The four kinds of threshold keep their own numbers; those a card lacks are absent."""
    answers = {("DeviceGetTemperatureThreshold", kind): 90 + kind for kind in range(4)}
    assert by_label(read(temperature.read, answers).rows, LIMITS) == {
        "shutdown": 90, "slowdown": 91, "memory_max": 92, "gpu_max": 93,
    }  # fmt: skip
    del answers["DeviceGetTemperatureThreshold", 2]
    card = read(temperature.read, answers)
    assert by_label(card.rows, LIMITS).keys() == {"shutdown", "slowdown", "gpu_max"}


def test_a_threshold_of_zero_is_one_that_the_board_lacks() -> None:
    """0 degrees is no limit: absent, and not counted as a broken reading."""
    answers = {("DeviceGetTemperatureThreshold", 0): 92, ("DeviceGetTemperatureThreshold", 2): 0}
    card = read(temperature.read, answers)
    assert by_label(card.rows, LIMITS) == {"shutdown": 92}
    assert card.faults[LIMITS] == "unsupported"


def test_the_margin_may_be_negative() -> None:
    """The margin to slowdown is given as it is, below zero too."""
    assert value(read(temperature.read, {"DeviceGetMarginTemperature": -5}),
                 "gpu_temperature_margin_celsius") == -5  # fmt: skip


def test_every_fan_is_read() -> None:
    """Each fan is a row, a ratio of its full speed; one that fails leaves the other."""
    card = read(
        temperature.read,
        {"DeviceGetNumFans": 2, ("DeviceGetFanSpeed_v2", 0): 44, ("DeviceGetFanSpeed_v2", 1): 105},
    )
    assert by_label(card.rows, FANS) == {"0": 0.44, "1": 1.05}
    half = read(temperature.read, {"DeviceGetNumFans": 2, ("DeviceGetFanSpeed_v2", 0): 44,
                                   ("DeviceGetFanSpeed_v2", 1): BROKEN})  # fmt: skip
    assert by_label(half.rows, FANS) == {"0": 0.44}
    assert half.faults[FANS] == "unknown"


def test_an_old_driver_knows_one_fan() -> None:
    """Without the number of fans the older call gives the speed of fan 0."""
    card = read(temperature.read, {"DeviceGetNumFans": NO_SYMBOL, "DeviceGetFanSpeed": 30})
    assert by_label(card.rows, FANS) == {"0": 0.3}


@pytest.mark.parametrize(
    ("answers", "fault"),
    [
        ({}, "unsupported"),
        ({"DeviceGetNumFans": 0}, "unsupported"),
        ({"DeviceGetNumFans": BROKEN}, "unknown"),
        ({"DeviceGetFanSpeed": BROKEN}, "unknown"),
    ],
)
def test_a_card_cooled_by_the_chassis_has_no_fan_rows(
    answers: dict[str, object], fault: str
) -> None:
    """No fan, or one that does not read, is absent with its reason, and the pass goes on."""
    card = read(temperature.read, {**answers, "DeviceGetMarginTemperature": 20})
    assert FANS not in card.rows
    assert card.faults[FANS] == fault
    assert value(card, "gpu_temperature_margin_celsius") == 20


def test_core_asks_for_the_die_alone() -> None:
    """In the core profile one call is made for all temperatures."""
    card = Card({("DeviceGetTemperatureV", 0): 58, ("field", 82): 60, "DeviceGetNumFans": 1})
    driver = Driver(card)
    assert value(read(temperature.read, card, profile=Profile.CORE, driver=driver), DIE) == 58
    assert driver.names() == {"DeviceGetTemperatureV": 1}
