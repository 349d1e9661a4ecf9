# SPDX-License-Identifier: Apache-2.0
"""The links between cards.

Error kinds differ by generation; a kind that the card does not count is absent. Lifetime totals
of healthy links are seldom 0, so judge growth. Links train for some minutes after boot.
"""

from __future__ import annotations

from cardwatch.families import ranges
from cardwatch.families.record import Family, Profile, Type

_STATE = "field 165 (NVML_FI_DEV_NVLINK_GET_STATE) of each link, else nvmlDeviceGetNvLinkState"

FAMILIES: tuple[Family, ...] = (
    Family(
        "gpu_nvlink_active_links",
        Type.GAUGE,
        "NVLink links up at the moment of the sample, sleeping ones included.",
        accept=ranges.LINKS,
        sources={"nvml": _STATE},
    ),
    Family(
        "gpu_nvlink_expected_links",
        Type.GAUGE,
        "Links that should be up: the most active links of any card of this model on this node. "
        "Absent for a card alone of its model.",
        accept=ranges.LINKS,
        sources={"exporter": "highest gpu_nvlink_active_links of cards with the same model"},
    ),
    Family(
        "gpu_nvlink_errors_total",
        Type.COUNTER,
        "NVLink errors over all links of the card, by the driver's counter, by kind: replay, "
        "recovery, crc_flit, crc_data, ecc, symbol, effective. Starts again when driver or card "
        "does.",
        labels=("kind",),
        accept=ranges.COUNT,
        sources={
            "nvml": "to NVLink 3 fields 52 replay, 59 recovery, 38 crc_flit, 45 crc_data, 160 ecc; "
            "NVLink 4 sum over links of 161 replay, 162 recovery, 163 crc_flit; "
            "from NVLink 5 scope 0xFFFFFFFF of 215 recovery, 221 symbol, 219 effective"
        },
    ),
    Family(
        "gpu_nvlink_supported_links",
        Type.GAUGE,
        "Links the card has by design, wired up or not.",
        profile=Profile.STANDARD,
        accept=ranges.LINKS,
        sources={"nvml": "field 91 (NVML_FI_DEV_NVLINK_LINK_COUNT)"},
    ),
    Family(
        "gpu_nvlink_transmit_bytes_total",
        Type.COUNTER,
        "Payload bytes the card sent over all its links, by the driver's counter.",
        unit="bytes",
        profile=Profile.STANDARD,
        accept=ranges.COUNT,
        sources={
            "nvml": "field 138 (NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, KiB), "
            "else 202 (NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES), scope 0xFFFFFFFF"
        },
    ),
    Family(
        "gpu_nvlink_receive_bytes_total",
        Type.COUNTER,
        "Payload bytes the card received over all its links, by the driver's counter.",
        unit="bytes",
        profile=Profile.STANDARD,
        accept=ranges.COUNT,
        sources={
            "nvml": "field 139 (NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, KiB), "
            "else 204 (NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES), scope 0xFFFFFFFF"
        },
    ),
    Family(
        "gpu_nvlink_up",
        Type.GAUGE,
        "1 while this link is up, sleeping included; 0 for a link without a partner as well.",
        labels=("link",),
        profile=Profile.FULL,
        accept=ranges.FLAG,
        sources={"nvml": _STATE},
    ),
    Family(
        "gpu_nvlink_link_errors_total",
        Type.COUNTER,
        "NVLink errors of one link, by the driver's counter. Below the full profile a row is born "
        "with its first error, so increase() misses that one.",
        labels=("link", "kind"),
        profile=Profile.FULL,
        nonzero_profile=Profile.STANDARD,
        accept=ranges.COUNT,
        sources={
            "nvml": "NVLink 4 fields 161-163, from NVLink 5 215, 219, 221, with the link as scope"
        },
    ),
)
