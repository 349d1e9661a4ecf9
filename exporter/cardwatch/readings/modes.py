# SPDX-License-Identifier: Apache-2.0
"""Modes an administrator sets: persistence and compute mode. MIG mode is in ``mig``."""

from __future__ import annotations

from cardwatch.readings.card import CardPass


def read(card: CardPass) -> None:
    """Read persistence mode and compute mode."""
    card.read("gpu_persistence_mode_enabled", "DeviceGetPersistenceMode")
    card.read("gpu_compute_mode", "DeviceGetComputeMode")
