# SPDX-License-Identifier: Apache-2.0
"""MIG instances: found anew at each pass, known by UUID, kept apart from their card."""

from __future__ import annotations

from typing import Any

import pytest

from cardwatch.families.record import Profile
from cardwatch.nvml.codes import DriverError
from cardwatch.readings import memory, mig
from cardwatch.readings.card import CardLost, CardPass, Memo
from nvml.stand_in import (
    BROKEN,
    DENIED,
    EMPTY,
    LOST,
    MIB,
    NO_SYMBOL,
    UNSUPPORTED,
    Card,
    Clock,
    Driver,
    Key,
    read,
    value,
)


def instance(number: int, **changes: Any) -> Card:
    """Return the handle of a 3g.40gb instance."""
    return Card(
        {
            "DeviceGetUUID": f"MIG-{number}",
            "DeviceGetName": "NVIDIA A100-SXM4-80GB MIG 3g.40gb",
            "DeviceGetGpuInstanceId": number,
            "DeviceGetComputeInstanceId": 0,
            "DeviceGetAttributes": (3, 3, 40_192),
            "DeviceGetMemoryInfo_v2": (40_192 * MIB, 300 * MIB, 38_892 * MIB, 1000 * MIB),
            "DeviceGetComputeRunningProcesses": [(4000 + number, 900 * MIB, number, 0)],
            **changes,
        }
    )


def parent(*instances: Card | DriverError) -> dict[Key, Any]:
    """Return a card in MIG mode with instances, or errors, at its indexes."""
    answers: dict[Key, Any] = {"DeviceGetMigMode": (1, 1), "DeviceGetMaxMigDeviceCount": 7}
    answers |= {("DeviceGetMigDeviceHandleByIndex", n): EMPTY for n in range(7)}
    answers |= {("DeviceGetMigDeviceHandleByIndex", n): i for n, i in enumerate(instances)}
    return answers


def test_each_instance_has_its_own_labels_and_readings() -> None:
    """Memory and processes of an instance are its own, beside who it is."""
    card = read(mig.read, parent(instance(1), instance(2)))
    assert [(m.uuid, m.gpu_instance, m.compute_instance, m.profile) for m in card.mig] == [
        ("MIG-1", "1", "0", "3g.40gb"), ("MIG-2", "2", "0", "3g.40gb"),
    ]  # fmt: skip
    assert card.mig[1].rows == {
        "gpu_mig_memory_total_bytes": [((), 40_192 * MIB)],
        "gpu_mig_memory_used_bytes": [((), 1000 * MIB)],
        "gpu_mig_memory_free_bytes": [((), 38_892 * MIB)],
        "gpu_mig_process_count": [((), 1)],
    }
    assert card.rows == {"gpu_mig_mode_enabled": [((), 1)]}
    assert card.faults == {}


def test_a_hole_in_the_indexes_hides_nothing() -> None:
    """Instances keep their index when another goes: the ones after a hole are found."""
    card = read(mig.read, parent(EMPTY, instance(1), EMPTY, EMPTY, instance(5)))
    assert [m.uuid for m in card.mig] == ["MIG-1", "MIG-5"]
    assert card.faults == {}


def test_an_instance_built_later_shows_at_the_next_pass() -> None:
    """A hole is asked for again at every pass, for it may be filled at any time."""
    card = Card(parent(instance(1)))
    memo = Memo(Clock())
    assert len(read(mig.read, card, memo=memo).mig) == 1
    card.answers["DeviceGetMigDeviceHandleByIndex", 1] = instance(2)
    assert [m.uuid for m in read(mig.read, card, memo=memo).mig] == ["MIG-1", "MIG-2"]


def test_a_handle_used_again_for_another_instance_is_that_instance() -> None:
    """Nothing is remembered about an instance by its handle or index."""
    handle = instance(1)
    card = Card(parent(handle))
    memo = Memo(Clock())
    read(mig.read, card, memo=memo)
    handle.answers |= {"DeviceGetUUID": "MIG-new", "DeviceGetName": "X MIG 1g.10gb",
                       "DeviceGetGpuInstanceId": 9}  # fmt: skip
    (found,) = read(mig.read, card, memo=memo).mig
    assert (found.uuid, found.gpu_instance, found.profile) == ("MIG-new", "9", "1g.10gb")


@pytest.mark.parametrize("broken", [BROKEN, instance(0, DeviceGetUUID=BROKEN)])
def test_one_broken_instance_does_not_hide_the_others(broken: Card | DriverError) -> None:
    """An instance that does not answer is a fault; those after it are read."""
    card = read(mig.read, parent(broken, instance(1)))
    assert [m.uuid for m in card.mig] == ["MIG-1"]
    assert card.faults["gpu_mig_info"] == "unknown"


def test_an_instance_keeps_what_reads_of_it() -> None:
    """Memory that is denied costs the memory of that instance alone."""
    card = read(mig.read, parent(instance(1, DeviceGetMemoryInfo_v2=DENIED), instance(2)))
    assert card.mig[0].rows.keys() == {"gpu_mig_process_count"}
    assert len(card.mig[1].rows) == 4
    assert card.faults["gpu_mig_memory_used_bytes"] == "denied"


def test_the_older_memory_call_stands_in() -> None:
    """An instance of an old driver has its memory from the first call."""
    old = instance(1, DeviceGetMemoryInfo_v2=NO_SYMBOL, DeviceGetMemoryInfo=(40, 30, 10))
    (found,) = read(mig.read, parent(old)).mig
    assert found.rows["gpu_mig_memory_used_bytes"] == [((), 10)]


@pytest.mark.parametrize(
    ("card_mib", "attributes", "profile"),
    [
        (81_920, (3, 3, 40_192), "3g.40gb"),
        (81_559, (1, 1, 9_856), "1g.10gb"),
        (81_559, (1, 1, 20_096), "1g.20gb"),
        (40_960, (1, 1, 4_864), "1g.5gb"),
        (143_771, (3, 3, 71_424), "3g.71gb"),
        (143_771, (7, 7, 142_848), "7g.141gb"),
        (81_920, (3, 1, 40_192), "1c.3g.40gb"),
        (None, (3, 3, 40_192), "3g.40gb"),
        (None, (1, 1, 4_864), "1g.5gb"),
    ],
)
def test_the_profile_without_a_name_is_what_nvidia_calls_it(
    card_mib: int | None, attributes: tuple[int, int, int], profile: str
) -> None:
    """Where the instance's name does not tell, slices and memory give the same profile."""

    def with_memory(card: CardPass) -> None:
        memory.read(card)
        mig.read(card)

    handle = instance(1, DeviceGetName="NVIDIA A100", DeviceGetAttributes=attributes)
    answers = parent(handle)
    if card_mib is not None:
        answers["DeviceGetMemoryInfo_v2"] = (card_mib * MIB, 0, 0, card_mib * MIB)
    (found,) = read(with_memory, answers).mig
    assert found.profile == profile


def test_with_mig_off_no_instance_is_looked_for() -> None:
    """A card that could be split but is not costs one call."""
    card = Card({"DeviceGetMigMode": (0, 1), "DeviceGetMaxMigDeviceCount": 7})
    driver = Driver(card)
    collected = read(mig.read, card, driver=driver)
    assert value(collected, "gpu_mig_mode_enabled") == 0
    assert driver.names() == {"DeviceGetMigMode": 1}


def test_a_card_that_cannot_be_split_has_no_mode() -> None:
    """Not supported is absent, not 0."""
    card = read(mig.read, {"DeviceGetMigMode": UNSUPPORTED})
    assert card.rows == {}
    assert card.faults == {"gpu_mig_mode_enabled": "unsupported"}


def test_core_has_no_instances() -> None:
    """The core profile makes no call about MIG."""
    card = Card(parent(instance(1)))
    driver = Driver(card)
    assert read(mig.read, card, profile=Profile.CORE, driver=driver).mig == []
    assert driver.made == []


@pytest.mark.parametrize("place", [LOST, instance(1, DeviceGetUUID=LOST),
                                   instance(1, DeviceGetName=LOST)])  # fmt: skip
def test_a_card_lost_among_its_instances_is_a_lost_card(place: Card | DriverError) -> None:
    """The loss shows at whichever call meets it, and no instance after it is asked for."""
    card = Card(parent(place, instance(2)))
    driver = Driver(card)
    with pytest.raises(CardLost):
        read(mig.read, card, driver=driver)
    assert ("DeviceGetMigDeviceHandleByIndex", card, 1) not in driver.made
