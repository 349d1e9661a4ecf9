# SPDX-License-Identifier: Apache-2.0
"""Who a card is: UUID, PCI address and the static facts of ``gpu_info``."""

from __future__ import annotations

import re
from typing import Any

from cardwatch.nvml.codes import DriverError, Outcome
from cardwatch.readings.card import CardPass
from cardwatch.text import label

_ARCHITECTURES = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada",
    9: "Hopper", 10: "Blackwell", 11: "Orin", 12: "Thor", 13: "Rubin",
}  # fmt: skip
"""nvmlDeviceArchitecture_t; a number that is not here is shown as it is."""

_UNKNOWN_ARCHITECTURE = 0xFFFFFFFF

_BUS_ID = re.compile(r"^([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.[0-7])?$")

_TEXTS = (
    ("serial", "DeviceGetSerial"),
    ("board_part_number", "DeviceGetBoardPartNumber"),
    ("vbios_version", "DeviceGetVbiosVersion"),
    ("inforom_version", "DeviceGetInforomImageVersion"),
)


def read_pci(card: CardPass) -> str | None:
    """Return the card's PCI address, None when it never told one."""
    return pci_address(_text(card, "DeviceGetPciBusId"))


def pci_address(bus_id: str) -> str | None:
    """Return ``0000:3b:00`` for the driver's ``00000000:3B:00.0``; None if it is not one."""
    match = _BUS_ID.match(bus_id.strip())
    if match is None:
        return None
    domain = f"{int(match[1], 16):04x}"
    return f"{domain}:{match[2].lower()}:{match[3].lower()}"


def read_uptime(card: CardPass) -> float | None:
    """Return the seconds since the driver initialised the card; None before R615."""
    try:
        return float(card.ask("DeviceGetGpuUptime"))
    except DriverError:
        return None


def read_info(card: CardPass) -> dict[str, str]:
    """Return the labels of ``gpu_info`` that the card tells; the others are left out."""
    info: dict[str, str] = {}
    name = _text(card, "DeviceGetName")
    if name:
        info["model"] = name.removeprefix("NVIDIA ")
    for key, call in _TEXTS:
        text = _text(card, call)
        if text:
            info[key] = text
    architecture = _architecture(card)
    if architecture:
        info["architecture"] = architecture
    capability = _fact(card, "DeviceGetCudaComputeCapability")
    if capability is not None:
        major, minor = capability
        info["compute_capability"] = f"{major}.{minor}"
    return info


def _fact(card: CardPass, call: str) -> Any:
    """Return a fact of the card; the one known before when it fails to tell it now; else None.

    Each is kept by itself, so that one that failed is asked for again at the next pass.
    """
    try:
        return card.static(call, lambda: card.ask(call))
    except DriverError as error:
        known = card.memo.static.get(call)
        return known[1] if known and error.outcome is not Outcome.UNSUPPORTED else None


def _text(card: CardPass, call: str) -> str:
    return label(str(_fact(card, call) or ""))


def _architecture(card: CardPass) -> str:
    number = _fact(card, "DeviceGetArchitecture")
    if number is None or number == _UNKNOWN_ARCHITECTURE:
        return ""
    return _ARCHITECTURES.get(number, str(number))
