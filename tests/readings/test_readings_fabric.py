# SPDX-License-Identifier: Apache-2.0
"""The fabric's state, and a mask in which 1 is bad in some places and good in another."""

from __future__ import annotations

import pytest

from cardwatch.readings import fabric
from nvml.stand_in import BROKEN, DENIED, read, value

STATE, HEALTHY = "gpu_fabric_state", "gpu_fabric_healthy"
COMPLETED = 3

NOT_TOLD, TRUE, FALSE = 0, 1, 2
GOOD = 0x1AA  # four times false, configuration correct


def health(mask: int | None, summary: int | None, status: int = 0) -> float | None:
    """Return the health of a card that has joined, with such an answer."""
    answer = (3, COMPLETED, status, mask, summary)
    return value(read(fabric.read, {"DeviceGetGpuFabricInfo": answer}), HEALTHY)


@pytest.mark.parametrize("shift", [0, 2, 4, 6])
@pytest.mark.parametrize(("told", "healthy"), [(NOT_TOLD, 1), (TRUE, 0), (FALSE, 1), (3, 1)])
def test_a_two_bit_field_speaks_against_the_card_when_true(
    shift: int, told: int, healthy: int
) -> None:
    """Degraded bandwidth, route recovery, unhealthy route and access timeout are bad when 1."""
    mask = GOOD & ~(3 << shift) | told << shift
    assert health(mask, 0) == healthy
    assert health(mask, None) == healthy


@pytest.mark.parametrize("cause", range(16))
def test_the_configuration_is_right_when_it_is_one(cause: int) -> None:
    """In this place 0 says nothing, 1 is right, and every other number is a cause."""
    assert health(GOOD & ~(0xF << 8) | cause << 8, 0) == (1 if cause in (0, 1) else 0)


@pytest.mark.parametrize("extra", [1 << 12, 2 << 12, 1 << 14, 2 << 14])
def test_partition_and_manager_state_are_no_health(extra: int) -> None:
    """Whether a partition is assigned, and the manager's state, are not the card's health."""
    assert health(GOOD | extra, 0) == 1


@pytest.mark.parametrize(
    ("summary", "healthy"), [(None, 1), (0, 1), (1, 1), (2, 0), (3, 0), (9, 0)]
)
def test_the_summary_can_only_make_it_worse(summary: int | None, healthy: int) -> None:
    """Unhealthy and limited capacity are 0 whatever the mask; healthy does not hide a bad bit."""
    assert health(GOOD, summary) == healthy
    assert health(GOOD & ~3 | TRUE, summary) == 0


def test_an_old_driver_without_a_mask_goes_by_the_status() -> None:
    """Version 1 has neither mask nor summary: joined without error is healthy."""
    assert health(None, None) == 1
    assert health(None, None, status=999) == 0


def test_joined_with_an_error_is_not_healthy() -> None:
    """A status that is not success outweighs a clean mask."""
    assert health(GOOD, 1, status=3) == 0


@pytest.mark.parametrize("state", [1, 2])
def test_health_is_not_told_before_joining_is_completed(state: int) -> None:
    """Until then status and mask mean nothing."""
    card = read(fabric.read, {"DeviceGetGpuFabricInfo": (3, state, 999, 0x155, 2)})
    assert value(card, STATE) == state
    assert HEALTHY not in card.rows


def test_a_card_without_a_fabric_is_absent() -> None:
    """State 0 is "not supported" with success: absent, not 0."""
    card = read(fabric.read, {"DeviceGetGpuFabricInfo": (3, 0, 0, 0, 0)})
    assert card.rows == {}
    assert set(card.faults.values()) == {"unsupported"}


def test_a_state_nobody_knows_is_out_of_range() -> None:
    """A number beyond the known states is dropped and counted."""
    card = read(fabric.read, {"DeviceGetGpuFabricInfo": (3, 7, 0, 0, 0)})
    assert card.rows == {}
    assert card.faults[STATE] == "out_of_range"


def test_a_failing_call_is_a_fault_of_both() -> None:
    """What the call fails with is the fault of state and health."""
    for error, fault in ((BROKEN, "unknown"), (DENIED, "denied")):
        card = read(fabric.read, {"DeviceGetGpuFabricInfo": error})
        assert card.faults == {STATE: fault, HEALTHY: fault}
