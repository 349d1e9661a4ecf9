# SPDX-License-Identifier: Apache-2.0
"""PCIe link, replays and byte counters.

The driver's throughput call is not used: it sleeps 20 ms per direction and card.
"""

from __future__ import annotations

from cardwatch.nvml.codes import NOT_SUPPORTED, DriverError
from cardwatch.nvml.fields import PCIE_RX_BYTES, PCIE_TX_BYTES, SCOPE_GPU
from cardwatch.readings.card import CardPass


def read(card: CardPass) -> None:
    """Read the link as it is and as it could be, replays, and traffic counters."""
    card.read("gpu_pcie_link_generation", "DeviceGetCurrPcieLinkGeneration", not_told=0)
    card.read("gpu_pcie_link_width", "DeviceGetCurrPcieLinkWidth", not_told=0)
    for family, call in (
        ("gpu_pcie_link_generation_max", "DeviceGetMaxPcieLinkGeneration"),
        ("gpu_pcie_link_width_max", "DeviceGetMaxPcieLinkWidth"),
    ):
        with card.attempt(family):
            highest = card.static(call, lambda call=call: card.ask(call))  # type: ignore[misc]
            card.put(family, highest or DriverError(NOT_SUPPORTED))  # 0: not told, as above
    card.read("gpu_pcie_replays_total", "DeviceGetPcieReplayCounter")
    families = ("gpu_pcie_transmit_bytes_total", "gpu_pcie_receive_bytes_total")
    if card.wants(families[0]):
        with card.attempt(*families):
            values = card.fields([(PCIE_TX_BYTES, SCOPE_GPU), (PCIE_RX_BYTES, SCOPE_GPU)])
            for family, value in zip(families, values, strict=True):
                card.put(family, value)
