# SPDX-License-Identifier: Apache-2.0
"""Power in watts, limits and energy. The driver speaks milliwatts and millijoules."""

from __future__ import annotations

from cardwatch.nvml.fields import POWER_INSTANT, SCOPE_GPU, SCOPE_MODULE
from cardwatch.readings.card import CardPass

_MILLI = 1000


def read(card: CardPass) -> None:
    """Read power, limits and energy of a card, and of its module where there is one."""
    card.read("gpu_power_watts", "DeviceGetPowerUsage", per=_MILLI)
    card.read("gpu_power_limit_watts", "DeviceGetEnforcedPowerLimit", per=_MILLI)
    card.read("gpu_energy_joules_total", "DeviceGetTotalEnergyConsumption", per=_MILLI)
    _read_fields(card)
    _read_design_limits(card)
    card.read("gpu_power_limit_requested_watts", "DeviceGetPowerManagementLimit", per=_MILLI)


def _read_fields(card: CardPass) -> None:
    wanted = [("gpu_power_instant_watts", (POWER_INSTANT, SCOPE_GPU)),
              ("gpu_module_power_watts", (POWER_INSTANT, SCOPE_MODULE))]  # fmt: skip
    wanted = [w for w in wanted if card.wants(w[0])]
    if not wanted:
        return
    with card.attempt(*(family for family, _ in wanted)):
        values = card.fields([request for _, request in wanted])
        for (family, _), value in zip(wanted, values, strict=True):
            card.put(family, value, per=_MILLI)


def _read_design_limits(card: CardPass) -> None:
    if card.wants("gpu_power_limit_default_watts"):
        with card.attempt("gpu_power_limit_default_watts"):
            default = card.static(
                "power default", lambda: card.ask("DeviceGetPowerManagementDefaultLimit")
            )
            card.put("gpu_power_limit_default_watts", default, per=_MILLI)
    if card.wants("gpu_power_limit_min_watts"):
        with card.attempt("gpu_power_limit_min_watts", "gpu_power_limit_max_watts"):
            low, high = card.static(
                "power range", lambda: card.ask("DeviceGetPowerManagementLimitConstraints")
            )
            card.put("gpu_power_limit_min_watts", low, per=_MILLI)
            card.put("gpu_power_limit_max_watts", high, per=_MILLI)
