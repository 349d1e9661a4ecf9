# SPDX-License-Identifier: Apache-2.0
"""The catalogue of Xid and SXid numbers, read from the tables beside this module.

Owns the tables' form and the words they may use. A table is read at its first
use and kept. Where sources disagree, the row's notes say so; the class of one
event is the business of `classify`, never of this table alone.
"""

from __future__ import annotations

import csv
import io
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

CRITICAL = "critical"
HARDWARE = "hardware"
CONTAINED = "contained"
APPLICATION = "application"
INFO = "info"
UNKNOWN = "unknown"
CLASSES = (CRITICAL, HARDWARE, CONTAINED, APPLICATION, INFO, UNKNOWN)

# What a person or a machine is asked to do, from the mildest to the hardest.
ACTIONS: Mapping[str, str] = {
    "NONE": "nothing to do",
    "RESTART_APP": "restart the program that was hit; the card goes on",
    "DRAIN_P2P": "end the processes that use peer-to-peer traffic, then look again",
    "RECOVER_IMEX": "recover the IMEX domain: fabric memory cannot be allocated",
    "DRAIN_AND_RESET": "give the card no new work, let jobs end, then reset it",
    "RESET_GPU": "end all work on the card and reset it",
    "RESET_BUS": "reset the PCIe bus of the card",
    "REBOOT_NODE": "drain the node and reboot it, by power cycle if the card stays away",
    "CHECK_POWER_OR_COOLING": "check power cables, fans and air flow",
    "UPDATE_SOFTWARE": "update driver or firmware",
    "RUN_DIAG": "drain the node and run the vendor's diagnosis",
    "CONTACT_VENDOR": "hand the evidence to the vendor",
    "INVESTIGATE": "no source says what to do: read the log around it",
}


@dataclass(frozen=True)
class Entry:
    """One number of the Xid table.

    ``class_`` and ``action`` hold unless the event says more. ``runbook`` is the
    name of the alert whose page to read, ``follows`` are codes it comes after.
    """

    code: int
    mnemonic: str
    meaning: str
    origin: tuple[str, ...]
    class_: str
    action: str
    runbook: str
    follows: tuple[int, ...]
    notes: str
    sources: tuple[str, ...]

    @property
    def known(self) -> bool:
        """Whether any source describes this number."""
        return bool(self.mnemonic)


@dataclass(frozen=True)
class SwitchEntry(Entry):
    """One number of the SXid table.

    ``class_`` holds for lines that say Fatal or nothing, ``class_nonfatal`` for
    Non-fatal; it is ``critical`` for numbers that are always fatal. ``worded``
    is false where the driver prints the line without Fatal, Non-fatal or
    Correctable.
    """

    class_nonfatal: str
    worded: bool


@cache
def xids() -> Mapping[int, Entry]:
    """Return the Xid table: each number from 1 to 185."""
    return {entry.code: entry for entry in map(_entry, rows("xid.csv"))}


@cache
def sxids() -> Mapping[int, SwitchEntry]:
    """Return the SXid table."""
    return {entry.code: entry for entry in map(_switch_entry, rows("sxid.csv"))}


def xid(code: int) -> Entry | None:
    """Return the entry of an Xid; None where the number is not in the table."""
    return xids().get(code)


def sxid(code: int) -> SwitchEntry | None:
    """Return the entry of an SXid; None where the number is not in the table."""
    return sxids().get(code)


def rows(name: str) -> Iterator[dict[str, str]]:
    """Return the rows of a table that lies beside this module."""
    data = pkgutil.get_data(__package__, name)
    assert data is not None, f"{name} is missing from the package"
    yield from csv.DictReader(io.StringIO(data.decode("utf-8")))


def words(cell: str) -> tuple[str, ...]:
    """Return the words of a cell; they are separated by ``|``."""
    return tuple(cell.split("|")) if cell else ()


def _entry(row: Mapping[str, str]) -> Entry:
    return Entry(
        code=int(row["code"]),
        mnemonic=row["mnemonic"],
        meaning=row["meaning"],
        origin=words(row["origin"]),
        class_=row["class"],
        action=row["action"],
        runbook=row["runbook"],
        follows=tuple(int(code) for code in words(row["follows"])),
        notes=row["notes"],
        sources=words(row["sources"]),
    )


def _switch_entry(row: Mapping[str, str]) -> SwitchEntry:
    return SwitchEntry(
        **vars(_entry(row)),
        class_nonfatal=row["class_nonfatal"],
        worded=row["word"] == "yes",
    )
