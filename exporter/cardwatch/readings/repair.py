# SPDX-License-Identifier: Apache-2.0
"""Repair of memory: row remapping, retired pages, pending repairs; and the recovery action."""

from __future__ import annotations

from cardwatch.nvml.fields import RECOVERY_ACTION, SCOPE_GPU
from cardwatch.readings.card import CardPass

_BANKS = ("max", "high", "partial", "low", "none")


def read(card: CardPass) -> None:
    """Read what the card has repaired, has yet to repair, or asks for."""
    _read_rows(card)
    _read_pages(card)
    if card.wants("gpu_repair_pending"):
        with card.attempt("gpu_repair_pending"):
            for unit, pending in zip(
                ("channel", "tpc"), card.ask("DeviceGetRepairStatus"), strict=True
            ):
                card.put("gpu_repair_pending", pending, unit)
    if card.wants("gpu_row_remap_banks"):
        with card.attempt("gpu_row_remap_banks"):
            for availability, banks in zip(
                _BANKS, card.ask("DeviceGetRowRemapperHistogram"), strict=True
            ):
                card.put("gpu_row_remap_banks", banks, availability)
    with card.attempt("gpu_recovery_action"):
        (action,) = card.fields([(RECOVERY_ACTION, SCOPE_GPU)])
        card.put("gpu_recovery_action", action)


def _read_rows(card: CardPass) -> None:
    families = ("gpu_row_remap_pending", "gpu_row_remap_failure", "gpu_remapped_rows_total")
    with card.attempt(*families):
        correctable, uncorrectable, pending, failure = card.ask("DeviceGetRemappedRows")
        card.put("gpu_row_remap_pending", pending)
        card.put("gpu_row_remap_failure", failure)
        card.put("gpu_remapped_rows_total", correctable, "corrected")
        card.put("gpu_remapped_rows_total", uncorrectable, "uncorrected")


def _read_pages(card: CardPass) -> None:
    card.read("gpu_retired_pages_pending", "DeviceGetRetiredPagesPendingStatus")
    if card.wants("gpu_retired_pages_total"):
        for cause, code in (("single_bit", 0), ("double_bit", 1)):
            with card.attempt("gpu_retired_pages_total"):
                pages = card.ask("DeviceGetRetiredPages", code)
                card.put("gpu_retired_pages_total", pages, cause)
