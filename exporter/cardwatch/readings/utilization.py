# SPDX-License-Identifier: Apache-2.0
"""Utilization: shares of the driver's own sampling window, as ratios."""

from __future__ import annotations

from cardwatch.readings.card import CardPass

_ENGINES = (
    ("gpu_encoder_utilization_ratio", "DeviceGetEncoderUtilization"),
    ("gpu_decoder_utilization_ratio", "DeviceGetDecoderUtilization"),
    ("gpu_jpeg_utilization_ratio", "DeviceGetJpgUtilization"),
    ("gpu_ofa_utilization_ratio", "DeviceGetOfaUtilization"),
)


def read(card: CardPass) -> None:
    """Read the busy share of the card, its memory controller and its media engines."""
    with card.attempt("gpu_utilization_ratio", "gpu_memory_controller_utilization_ratio"):
        gpu, memory = card.ask("DeviceGetUtilizationRates")
        card.put("gpu_utilization_ratio", gpu, per=100)
        card.put("gpu_memory_controller_utilization_ratio", memory, per=100)
    for family, call in _ENGINES:
        card.read(family, call, per=100)
