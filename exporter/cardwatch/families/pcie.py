# SPDX-License-Identifier: Apache-2.0
"""The card's link to the host.

Cards lower generation and sometimes width when idle to save power: compare the highest value
under load with the maximum, never a single moment.
"""

from __future__ import annotations

from cardwatch.families import ranges
from cardwatch.families.record import Family, Profile, Type

FAMILIES: tuple[Family, ...] = (
    Family(
        "gpu_pcie_link_generation",
        Type.GAUGE,
        "PCI Express generation of the link at the moment of the sample; drops on an idle card, "
        "which is no fault.",
        accept=ranges.PCIE_GENERATION,
        sources={"nvml": "nvmlDeviceGetCurrPcieLinkGeneration"},
    ),
    Family(
        "gpu_pcie_link_width",
        Type.GAUGE,
        "Lanes of the link in use at the moment of the sample.",
        accept=ranges.PCIE_WIDTH,
        sources={"nvml": "nvmlDeviceGetCurrPcieLinkWidth"},
    ),
    Family(
        "gpu_pcie_link_generation_max",
        Type.GAUGE,
        "Highest PCI Express generation that slot and card can both do.",
        accept=ranges.PCIE_GENERATION,
        sources={"nvml": "nvmlDeviceGetMaxPcieLinkGeneration"},
    ),
    Family(
        "gpu_pcie_link_width_max",
        Type.GAUGE,
        "Most lanes that slot and card can both use.",
        accept=ranges.PCIE_WIDTH,
        sources={"nvml": "nvmlDeviceGetMaxPcieLinkWidth"},
    ),
    Family(
        "gpu_pcie_replays_total",
        Type.COUNTER,
        "Packets sent again on the PCI Express link after a transfer error, by the driver's "
        "counter. Single ones are harmless; a steady rate points at slot, riser or card.",
        accept=ranges.COUNT_32,
        sources={"nvml": "nvmlDeviceGetPcieReplayCounter"},
    ),
    Family(
        "gpu_pcie_transmit_bytes_total",
        Type.COUNTER,
        "Bytes the card sent over PCI Express, by the driver's counter; it may wrap, which looks "
        "like a reset.",
        unit="bytes",
        profile=Profile.STANDARD,
        accept=ranges.COUNT,
        sources={"nvml": "field 197 (NVML_FI_DEV_PCIE_COUNT_TX_BYTES)"},
    ),
    Family(
        "gpu_pcie_receive_bytes_total",
        Type.COUNTER,
        "Bytes the card received over PCI Express, by the driver's counter; it may wrap, which "
        "looks like a reset.",
        unit="bytes",
        profile=Profile.STANDARD,
        accept=ranges.COUNT,
        sources={"nvml": "field 198 (NVML_FI_DEV_PCIE_COUNT_RX_BYTES)"},
    ),
)
