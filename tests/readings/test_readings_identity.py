# SPDX-License-Identifier: Apache-2.0
"""Who a card is: facts that are kept, and what is done with text that is not fit for a label."""

from __future__ import annotations

import pytest

from cardwatch.readings.card import STATIC_S, Memo
from cardwatch.readings.identity import pci_address, read_info, read_pci
from nvml.stand_in import BROKEN, DENIED, UNSUPPORTED, Card, Clock, Driver, hopper, read


def facts(card: Card, memo: Memo | None = None, driver: Driver | None = None) -> dict[str, str]:
    """Return the labels that a card tells at one pass."""
    told: dict[str, str] = {}
    read(lambda made: told.update(read_info(made)), card, memo=memo, driver=driver)
    return told


@pytest.mark.parametrize(
    ("bus_id", "address"),
    [
        ("00000000:3B:00.0", "0000:3b:00"),
        ("0000:3b:00.0", "0000:3b:00"),
        ("0000000F:01:00.0", "000f:01:00"),
        ("00010000:C3:1F.0", "10000:c3:1f"),
        ("0000:3B:00", "0000:3b:00"),
        ("", None),
        ("garbage", None),
        ("0000:3B:00.9", None),
        ("0000:3B", None),
    ],
)
def test_a_pci_address_is_written_as_the_kernel_does(bus_id: str, address: str | None) -> None:
    """Domain, bus and device in lower case; what is no address is none."""
    assert pci_address(bus_id) == address


def test_facts_of_a_card_become_labels() -> None:
    """Every static fact has its label, the vendor is left out of the model."""
    assert facts(Card(hopper())) == {
        "model": "H100 80GB HBM3",
        "serial": "1650423000000",
        "board_part_number": "692-2G520-0200-000",
        "vbios_version": "96.00.74.00.1C",
        "inforom_version": "G520.0200.00.05",
        "architecture": "Hopper",
        "compute_capability": "9.0",
    }


def test_what_a_card_does_not_tell_has_no_label() -> None:
    """A fact that is not supported or denied is left out, never an error text."""
    told = facts(Card({"DeviceGetName": "NVIDIA T4", "DeviceGetSerial": DENIED}))
    assert told == {"model": "T4"}


@pytest.mark.parametrize(
    ("number", "name"),
    [(7, "Ampere"), (8, "Ada"), (9, "Hopper"), (10, "Blackwell"), (13, "Rubin"), (77, "77"),
     (0xFFFFFFFF, None)],
)  # fmt: skip
def test_an_architecture_has_a_name_or_shows_its_number(number: int, name: str | None) -> None:
    """An architecture newer than this release is shown by number; unknown is left out."""
    assert facts(Card({"DeviceGetArchitecture": number})).get("architecture") == name


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("\ufffd\ufffd\nNVIDIA ", "\ufffd\ufffdNVIDIA"),
        ("NVIDIA  ", "NVIDIA"),
        ("NVIDIA A100\x00\x01", "A100"),
        ("NVIDIA " + "x" * 300, "x" * 121),
        ("\x00", None),
    ],
)
def test_a_name_is_made_fit_for_a_label(told: str, shown: str | None) -> None:
    """Control characters go, length is bounded, and an empty name is none."""
    assert facts(Card({"DeviceGetName": told})).get("model") == shown


def test_facts_are_asked_for_once_in_a_while() -> None:
    """Within five minutes a fact costs one call; after that it is read again."""
    card, clock = Card(hopper()), Clock()
    memo, driver = Memo(clock), Driver(card)
    for _ in range(3):
        facts(card, memo, driver)
    assert set(driver.names().values()) == {1}
    clock.now += STATIC_S
    card.answers["DeviceGetVbiosVersion"] = "96.00.99.00.01"
    assert facts(card, memo, driver)["vbios_version"] == "96.00.99.00.01"


def test_a_fact_that_failed_is_asked_for_again_at_the_next_pass() -> None:
    """A name that does not read once is not missing for minutes."""
    card, memo = Card(hopper(DeviceGetName=BROKEN)), Memo(Clock())
    assert "model" not in facts(card, memo)
    card.answers["DeviceGetName"] = "NVIDIA H100 80GB HBM3"
    assert facts(card, memo)["model"] == "H100 80GB HBM3"


def test_a_fact_once_known_outlives_a_failing_driver() -> None:
    """While the driver fails, the labels stay what they were; gpu_info must not change."""
    card, clock = Card(hopper()), Clock()
    memo = Memo(clock)
    known = facts(card, memo)
    clock.now += STATIC_S
    memo.expire()
    card.answers.clear()
    for name in ("Name", "Serial", "BoardPartNumber", "VbiosVersion", "InforomImageVersion",
                 "Architecture", "CudaComputeCapability", "PciBusId"):  # fmt: skip
        card.answers[f"DeviceGet{name}"] = BROKEN
    assert facts(card, memo) == known


def test_a_pci_address_that_failed_is_asked_for_again() -> None:
    """The address is taken up as soon as the driver tells it."""
    card, memo = Card(hopper(DeviceGetPciBusId=BROKEN)), Memo(Clock())
    found: list[str | None] = []
    read(lambda made: found.append(read_pci(made)), card, memo=memo)
    card.answers["DeviceGetPciBusId"] = "00000000:1B:00.0"
    read(lambda made: found.append(read_pci(made)), card, memo=memo)
    card.answers["DeviceGetPciBusId"] = UNSUPPORTED
    read(lambda made: found.append(read_pci(made)), card, memo=memo)
    assert found == [None, "0000:1b:00", "0000:1b:00"]
