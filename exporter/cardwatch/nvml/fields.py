# SPDX-License-Identifier: Apache-2.0
"""Field ids of ``nvmlDeviceGetFieldValues`` that we read, and how to decode them.

The numbers are our own table, not the binding's constants: NVIDIA renumbered
some of them (nvml.h of 12.9 and 13.0.0 against 13.0.2 and newer), and an old
binding would name the wrong one. ``since`` gates the three that early
575/580 drivers used for power-smoothing settings.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

ALL_LINKS = 0xFFFFFFFF
"""Scope that asks for the sum over all links. Scope 0 would silently be link 0."""

SCOPE_GPU = 0
SCOPE_MODULE = 1

# nvmlValueType_t
TYPE_DOUBLE, TYPE_UINT, TYPE_ULONG, TYPE_ULONGLONG, TYPE_LONGLONG, TYPE_INT, TYPE_USHORT = range(7)


@dataclass(frozen=True, eq=False)
class Field:
    """One field id. ``bits`` is the width its value has by the header (32 or 64).

    Equal to itself only: a key of many dicts, and each id stands here once.
    """

    id: int
    bits: int = 64
    since: tuple[int, int] | None = None  # (branch, minor) of the first driver that means this


PERF_POLICY_POWER = Field(74)
PERF_POLICY_THERMAL = Field(75)
PERF_POLICY_SYNC_BOOST = Field(76)
PERF_POLICY_BOARD_LIMIT = Field(77)
PERF_POLICY_RELIABILITY = Field(79)
REASON_SW_THERMAL = Field(269, since=(580, 82))
REASON_HW_THERMAL = Field(270, since=(580, 82))
REASON_HW_POWER_BRAKE = Field(271, since=(580, 82))

MEMORY_TEMP = Field(82, bits=32)
NVLINK_LINK_COUNT = Field(91, bits=32)

NVLINK_DATA_TX_KIB, NVLINK_DATA_RX_KIB = Field(138), Field(139)
NVLINK5_TX_BYTES, NVLINK5_RX_BYTES = Field(202), Field(204)
NVLINK_STATE = Field(165, bits=32)

NVLINK_ERRORS: dict[str, tuple[tuple[Field, bool], ...]] = {
    # kind -> candidates, newest generation first; True: the id takes a link as its scope
    "replay": ((Field(161), True), (Field(52), False)),
    "recovery": ((Field(215), True), (Field(162), True), (Field(59), False)),
    "crc_flit": ((Field(163), True), (Field(38), False)),
    "crc_data": ((Field(45), False),),
    "ecc": ((Field(160), False),),
    "symbol": ((Field(221), True),),
    "effective": ((Field(219), True),),
}
"""163 is the one CRC counter of the NVLink 4 data link layer; older generations
split it into flit and data. 161-163 answer "not supported" from Blackwell on."""

POWER_INSTANT = Field(186, bits=32)

PCIE_TX_BYTES, PCIE_RX_BYTES = Field(197), Field(198)
RECOVERY_ACTION = Field(230, bits=32)


def supported_by(field: Field, driver_version: str) -> bool:
    """Say whether this driver gives the id the meaning that we rely on.

    An unreadable version counts as too old: absence beats a wrong counter.
    """
    if field.since is None:
        return True
    parts = driver_version.split(".")
    try:
        version = (int(parts[0]), int(parts[1]))
    except (IndexError, ValueError):
        return False
    return version >= field.since


def decode(field: Field, value_type: int, raw: int) -> int:
    """Turn the 64 raw bits of one answer into an integer.

    The declared width rules where the driver's type is missing or wrong: ECC
    fields leave the type unset, and R545 calls the memory temperature a double.
    """
    if value_type in (TYPE_ULONG, TYPE_ULONGLONG):
        return raw
    if value_type == TYPE_LONGLONG:
        return int(struct.unpack("<q", struct.pack("<Q", raw))[0])
    if value_type == TYPE_INT:
        return int(struct.unpack("<i", struct.pack("<I", raw & 0xFFFFFFFF))[0])
    if value_type == TYPE_USHORT:
        return raw & 0xFFFF
    return raw & 0xFFFFFFFF if field.bits == 32 or value_type == TYPE_UINT else raw
