# SPDX-License-Identifier: Apache-2.0
"""Temperatures, their thresholds, and fans."""

from __future__ import annotations

from cardwatch.nvml.codes import NOT_SUPPORTED, DriverError, Outcome
from cardwatch.nvml.fields import MEMORY_TEMP, SCOPE_GPU
from cardwatch.readings.card import CardPass

_ALL_BITS = 0xFFFFFFFF
_THRESHOLDS = (("shutdown", 0), ("slowdown", 1), ("memory_max", 2), ("gpu_max", 3))


def read(card: CardPass) -> None:
    """Read die and memory temperature, thresholds, margin and fans."""
    with card.attempt("gpu_temperature_celsius"):
        value = card.ask_first(("DeviceGetTemperatureV", 0), ("DeviceGetTemperature", 0))
        # All bits set means "no value"; the signed call would pass it off as one degree of frost.
        card.put("gpu_temperature_celsius", _ALL_BITS if value == -1 else value)
    if card.wants("gpu_memory_temperature_celsius"):
        with card.attempt("gpu_memory_temperature_celsius"):
            _read_memory(card)
        _read_thresholds(card)
        _read_fans(card)
    card.read("gpu_temperature_margin_celsius", "DeviceGetMarginTemperature")


def _read_memory(card: CardPass) -> None:
    (value,) = card.fields([(MEMORY_TEMP, SCOPE_GPU)])
    if value == 0:
        # Boards without the sensor answer 0 with success.
        card.absent("gpu_memory_temperature_celsius")
    else:
        card.put("gpu_memory_temperature_celsius", value)


def _read_thresholds(card: CardPass) -> None:
    family = "gpu_temperature_threshold_celsius"
    for name, kind in _THRESHOLDS:
        with card.attempt(family):
            limit = card.static(
                f"threshold {kind}",
                lambda kind=kind: card.ask("DeviceGetTemperatureThreshold", kind),  # type: ignore[misc]
            )
            # Boards without this threshold answer 0 with success.
            card.put(family, limit or DriverError(NOT_SUPPORTED), name)


def _read_fans(card: CardPass) -> None:
    family = "gpu_fan_speed_ratio"
    fans = 0  # stays so when neither call answers
    with card.attempt(family):
        try:
            fans = int(card.static("fans", lambda: card.ask("DeviceGetNumFans")))
        except DriverError as error:
            if error.outcome is not Outcome.UNSUPPORTED:
                raise
            card.put(family, card.ask("DeviceGetFanSpeed"), "0", per=100)
            return
        if fans == 0:
            card.absent(family)
    for fan in range(min(fans, 16)):
        with card.attempt(family):
            card.put(family, card.ask("DeviceGetFanSpeed_v2", fan), str(fan), per=100)
