# SPDX-License-Identifier: Apache-2.0
"""Memory of a card: the two calls that count reserved memory differently, and cards without any."""

from __future__ import annotations

import pytest

from cardwatch.families.record import Profile
from cardwatch.nvml.codes import DriverError
from cardwatch.readings import memory
from nvml.stand_in import BROKEN, DENIED, Card, Driver, read, value

V2 = (80_000, 500, 9_500, 70_000)
V1 = (80_000, 9_500, 70_500)


def test_the_second_version_keeps_reserved_memory_apart() -> None:
    """With the v2 call, used excludes reserved, and nothing says that it is included."""
    card = read(memory.read, {"DeviceGetMemoryInfo_v2": V2, "DeviceGetMemoryInfo": V1})
    assert {name: value(card, f"gpu_memory_{name}_bytes") for name in
            ("total", "used", "free", "reserved")} == {
        "total": 80_000, "used": 70_000, "free": 9_500, "reserved": 500,
    }  # fmt: skip
    assert "gpu_memory_used_includes_reserved" not in card.rows
    assert card.faults.keys() == {"gpu_bar1_memory_total_bytes", "gpu_bar1_memory_used_bytes"}


@pytest.mark.parametrize("code", [13, 3, 25], ids=["no symbol", "not supported", "version"])
def test_an_older_driver_says_that_used_includes_reserved(code: int) -> None:
    """Where only the v1 call answers, its numbers stand with the mark that says so."""
    card = read(
        memory.read, {"DeviceGetMemoryInfo_v2": DriverError(code), "DeviceGetMemoryInfo": V1}
    )
    assert value(card, "gpu_memory_used_bytes") == 70_500
    assert value(card, "gpu_memory_free_bytes") == 9_500
    assert value(card, "gpu_memory_used_includes_reserved") == 1
    assert "gpu_memory_reserved_bytes" not in card.rows
    assert card.faults["gpu_memory_reserved_bytes"] == "unsupported"


@pytest.mark.parametrize(("error", "fault"), [(BROKEN, "unknown"), (DENIED, "denied")])
def test_a_failing_second_version_is_not_replaced_by_the_first(
    error: DriverError, fault: str
) -> None:
    """A failure of the v2 call is a fault: one series never mixes the two meanings of used."""
    card = Card({"DeviceGetMemoryInfo_v2": error, "DeviceGetMemoryInfo": V1})
    driver = Driver(card)
    collected = read(memory.read, card, driver=driver)
    assert collected.rows == {}
    assert collected.faults["gpu_memory_used_bytes"] == fault
    assert driver.count("DeviceGetMemoryInfo") == 0


def test_a_card_that_shares_the_hosts_memory_has_no_memory_numbers() -> None:
    """A GB10 supports neither call: all memory is absent, nothing is 0, and nothing failed."""
    card = read(memory.read, {})
    assert card.rows == {}
    assert set(card.faults.values()) == {"unsupported"}


def test_a_capacity_of_nothing_is_not_a_capacity() -> None:
    """A total of 0 is a card that did not say, not one without memory."""
    card = read(memory.read, {"DeviceGetMemoryInfo_v2": (0, 0, 0, 0)})
    assert "gpu_memory_total_bytes" not in card.rows
    assert card.faults["gpu_memory_total_bytes"] == "out_of_range"
    assert value(card, "gpu_memory_used_bytes") == 0


def test_the_bar1_window_is_read_in_the_full_profile_only() -> None:
    """BAR1 memory stands in the full profile; below it is not even asked for."""
    card = Card({"DeviceGetMemoryInfo_v2": V2, "DeviceGetBAR1MemoryInfo": (1000, 997, 3)})
    full = read(memory.read, card)
    assert value(full, "gpu_bar1_memory_total_bytes") == 1000
    assert value(full, "gpu_bar1_memory_used_bytes") == 3
    driver = Driver(card)
    read(memory.read, card, profile=Profile.STANDARD, driver=driver)
    assert driver.count("DeviceGetBAR1MemoryInfo") == 0
