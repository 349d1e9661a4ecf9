# SPDX-License-Identifier: Apache-2.0
"""ECC: mode, error counters by location, and the SRAM threshold.

With ECC off nothing is counted, so nothing is read: the driver has answered
such reads with success and uninitialised memory. A card that gives no location
gives a total instead (location ``all``), never both.
"""

from __future__ import annotations

from cardwatch.nvml.codes import DriverError, Outcome
from cardwatch.readings.card import CardPass

_TYPES = (("corrected", 0), ("uncorrected", 1))
_LOCATIONS = (
    ("dram", 2),
    ("sram", 7),
    ("l1", 0),
    ("l2", 1),
    ("register_file", 3),
    ("texture", 4),
    ("shared", 5),
    ("cbu", 6),
)
_COUNTERS = (("gpu_ecc_errors_total", 0), ("gpu_ecc_lifetime_errors_total", 1))
_ALL_FAMILIES = ("gpu_ecc_errors_total", "gpu_ecc_lifetime_errors_total",
                 "gpu_ecc_sram_threshold_exceeded")  # fmt: skip


def read(card: CardPass) -> None:
    """Read the ECC mode and, with ECC on, its counters."""
    with card.attempt("gpu_ecc_mode_enabled", "gpu_ecc_mode_pending_enabled", *_ALL_FAMILIES):
        current, pending = card.ask("DeviceGetEccMode")
        card.put("gpu_ecc_mode_enabled", current)
        card.put("gpu_ecc_mode_pending_enabled", pending)
        if current != 1:
            card.absent(*_ALL_FAMILIES)
            return
        _read_counters(card)
        with card.attempt("gpu_ecc_sram_threshold_exceeded"):
            card.put("gpu_ecc_sram_threshold_exceeded", card.ask("DeviceGetSramEccErrorStatus")[0])


def _read_counters(card: CardPass) -> None:
    for family, counter in _COUNTERS:
        if not card.wants(family):
            continue
        for kind, kind_code in _TYPES:
            if not _read_locations(card, family, counter, kind, kind_code):
                with card.attempt(family):
                    total = card.ask("DeviceGetTotalEccErrors", kind_code, counter)
                    card.put(family, total, kind, "all")


def _read_locations(card: CardPass, family: str, counter: int, kind: str, kind_code: int) -> bool:
    """Read every location the card has; False when it has none."""
    any_known = False
    for location, location_code in _LOCATIONS:
        question = ("DeviceGetMemoryErrorCounter", kind_code, counter, location_code)
        if card.lacks(*question):
            continue
        try:
            value = card.ask(*question)
        except DriverError as error:
            if error.outcome is not Outcome.UNSUPPORTED:
                any_known = True
                card.fault(family, error)
            continue
        any_known = True
        card.put(family, value, kind, location)
    return any_known
