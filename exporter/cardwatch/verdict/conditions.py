# SPDX-License-Identifier: Apache-2.0
"""The one table of conditions: what is judged, who should know, what to do, from which numbers.

The alert rules take tiers, thresholds and waiting times from here as well. Add
a condition by a row here and a predicate in ``evidence``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cardwatch.verdict.evidence import links, memory, presence, recovery, slowness, xid
from cardwatch.verdict.record import (
    DAY,
    DEGRADED,
    FAILED,
    HOUR,
    MINUTE,
    OBSERVE,
    OBSERVE_TIER,
    PAGE,
    TICKET,
    CardCondition,
    Condition,
    NodeCondition,
    Threshold,
)


def _window(seconds: float) -> Threshold:
    return Threshold(seconds, "seconds", "time looked back over")


def _share(ratio: float, help: str = "share of the window above which it counts") -> Threshold:  # noqa: A002
    return Threshold(ratio, "ratio", help)


def _alert_window(seconds: float) -> Threshold:
    return Threshold(
        seconds, "seconds", "age at which the alert rule ends; the verdict waits for a reset"
    )


_STATE: tuple[CardCondition, ...] = (
    CardCondition(
        id="lost",
        tier=PAGE,
        level=FAILED,
        action="drain",
        runbook="GPULost",
        help="The driver says that the card is gone, or no longer lists it.",
        alert_for=MINUTE,
        predicate=presence.lost,
        by_readings=False,
    ),
    CardCondition(
        id="hung",
        tier=PAGE,
        level=FAILED,
        action="drain",
        runbook="GPUDriverHang",
        help="A driver call about the card does not come back.",
        hold=MINUTE,
        alert_for=2 * MINUTE,
        predicate=presence.hung,
        by_readings=False,
    ),
    CardCondition(
        id="reset_required",
        tier=PAGE,
        level=FAILED,
        action="reset",
        runbook="GPURecoveryActionRequired",
        help="The driver answers that the card needs a reset first.",
        alert_for=2 * MINUTE,
        predicate=presence.reset_required,
        by_readings=False,
    ),
    CardCondition(
        id="recovery_reset",
        tier=PAGE,
        level=FAILED,
        action="reset",
        runbook="GPURecoveryActionRequired",
        help="The driver asks for a reset of the card or of its bus (recovery action 1 or 6).",
        alert_for=2 * MINUTE,
        predicate=recovery.asks_for(1, 6),
    ),
    CardCondition(
        id="recovery_reboot",
        tier=PAGE,
        level=FAILED,
        action="drain",
        runbook="GPURecoveryActionRequired",
        help="The driver asks for a reboot (recovery action 2 or 7).",
        alert_for=2 * MINUTE,
        predicate=recovery.asks_for(2, 7),
    ),
    CardCondition(
        id="recovery_drain_and_reset",
        tier=PAGE,
        level=DEGRADED,
        action="drain",
        runbook="GPURecoveryActionRequired",
        help="The driver asks for no new work and then a reset (recovery action 4).",
        alert_for=2 * MINUTE,
        predicate=recovery.asks_for(4),
    ),
    CardCondition(
        id="recovery_drain_p2p",
        tier=TICKET,
        level=DEGRADED,
        action="none",
        runbook="GPUResetPending",
        help="The driver asks for an end of peer-to-peer traffic (recovery action 3).",
        alert_for=3 * MINUTE,
        alert_keep=15 * MINUTE,
        predicate=recovery.asks_for(3),
    ),
    CardCondition(
        id="recovery_imex",
        tier=TICKET,
        level=DEGRADED,
        action="none",
        runbook="GPUResetPending",
        help="The driver asks for a recovery of the IMEX domain (recovery action 5).",
        alert_for=3 * MINUTE,
        alert_keep=15 * MINUTE,
        predicate=recovery.asks_for(5),
    ),
    CardCondition(
        id="reset_pending",
        tier=TICKET,
        level=OBSERVE,
        action="reset",
        runbook="GPUResetPending",
        help="Retired pages, a repair or a change of ECC take effect at the next reset only.",
        alert_for=3 * MINUTE,
        alert_keep=15 * MINUTE,
        predicate=recovery.reset_pending,
    ),
)

_EVENTS: tuple[CardCondition, ...] = (
    CardCondition(
        id="xid_critical",
        tier=PAGE,
        level=FAILED,
        action="drain",
        runbook="GPUXidCritical",
        help="A critical event since the last reset; only a reset or clearing by hand ends it.",
        release=0.0,
        thresholds={"alert_window": _alert_window(DAY)},
        predicate=xid.critical,
        by_readings=False,
    ),
    CardCondition(
        id="xid_repeated",
        tier=PAGE,
        level=FAILED,
        action="drain",
        runbook="GPUXidPersistent",
        help="Hardware events again and again, those that user code can cause left out.",
        release=30 * MINUTE,
        thresholds={
            "count": Threshold(3, "count", "events within the window from which it counts"),
            "window": _window(HOUR),
        },
        predicate=xid.repeated,
        by_readings=False,
    ),
    CardCondition(
        id="xid_hardware",
        tier=TICKET,
        level=DEGRADED,
        action="none",
        runbook="GPUXidHardware",
        help="A hardware event within the window and since the last reset.",
        release=0.0,
        alert_keep=HOUR,
        thresholds={"window": _window(HOUR)},
        predicate=xid.hardware,
        by_readings=False,
    ),
    CardCondition(
        id="xid_contained",
        tier=TICKET,
        level=DEGRADED,
        action="reset",
        runbook="GPUXidContained",
        help="A contained memory error within the window and since the last reset.",
        release=0.0,
        alert_keep=HOUR,
        thresholds={"window": _window(HOUR)},
        predicate=xid.contained,
        by_readings=False,
    ),
    CardCondition(
        id="xid_unknown",
        tier=TICKET,
        level=OBSERVE,
        action="none",
        runbook="GPUXidUnknown",
        help="An event that is not in the table, within the window and since the last reset.",
        release=0.0,
        alert_keep=HOUR,
        thresholds={"window": _window(HOUR)},
        predicate=xid.unknown,
        by_readings=False,
    ),
)

_MEMORY: tuple[CardCondition, ...] = (
    CardCondition(
        id="ecc_uncorrected",
        tier=PAGE,
        level=FAILED,
        action="drain",
        runbook="GPUUncorrectableECC",
        help="The uncorrected count grew since the last reset, not known to be contained.",
        thresholds={
            "near": Threshold(5 * MINUTE, "seconds", "between a contained Xid and the count"),
            "alert_window": _alert_window(HOUR),
        },
        predicate=memory.uncorrected,
    ),
    CardCondition(
        id="ecc_uncorrected_contained",
        tier=PAGE,
        level=DEGRADED,
        action="drain",
        runbook="GPUUncorrectableECC",
        help="The uncorrected count grew since the last reset, and only a contained Xid came.",
        thresholds={
            "near": Threshold(5 * MINUTE, "seconds", "between a contained Xid and the count"),
            "alert_window": _alert_window(HOUR),
        },
        predicate=memory.uncorrected_contained,
    ),
    CardCondition(
        id="ecc_uncorrected_earlier",
        tier=TICKET,
        level=DEGRADED,
        action="reset",
        runbook="GPUResetPending",
        help="The uncorrected count is above zero from before anybody looked.",
        alert_for=3 * MINUTE,
        alert_keep=15 * MINUTE,
        predicate=memory.uncorrected_earlier,
    ),
    CardCondition(
        id="ecc_corrected_rate",
        tier=TICKET,
        level=DEGRADED,
        action="none",
        runbook="GPUCorrectableECCRateHigh",
        help="A storm of corrected errors; it goes with the load, so it is kept through pauses.",
        hold=15 * MINUTE,
        release=HOUR,
        thresholds={
            "rate": Threshold(1.0, "per_second", "errors per second above which it counts"),
            "window": _window(30 * MINUTE),
        },
        predicate=memory.corrected_rate,
    ),
    CardCondition(
        id="ecc_sram_threshold",
        tier=TICKET,
        level=DEGRADED,
        action="drain",
        runbook="GPUECCSRAMThresholdExceeded",
        help="SRAM errors over the life of the card passed the vendor's own limit.",
        alert_for=2 * MINUTE,
        alert_keep=15 * MINUTE,
        predicate=memory.sram_threshold,
    ),
    CardCondition(
        id="row_remap_failure",
        tier=TICKET,
        level=DEGRADED,
        action="drain",
        runbook="GPURowRemapFailure",
        help="A bad memory row could not be replaced by a spare one.",
        alert_for=2 * MINUTE,
        alert_keep=15 * MINUTE,
        predicate=memory.row_remap_failure,
    ),
    CardCondition(
        id="row_remap_pending",
        tier=TICKET,
        level=OBSERVE,
        action="reset",
        runbook="GPURowRemapPending",
        help="A bad memory row waits for the next reset; work may go on.",
        alert_for=2 * MINUTE,
        alert_keep=15 * MINUTE,
        predicate=memory.row_remap_pending,
    ),
)

_LINKS: tuple[CardCondition, ...] = (
    CardCondition(
        id="fabric_not_ready",
        tier=PAGE,
        level=FAILED,
        action="drain",
        runbook="GPUFabricNotReady",
        help="The card has not joined the NVLink fabric; minutes after a boot that is normal.",
        hold=10 * MINUTE,
        predicate=links.fabric_not_ready,
    ),
    CardCondition(
        id="fabric_unhealthy",
        tier=TICKET,
        level=DEGRADED,
        action="drain",
        runbook="GPUNVLinkDown",
        help="The card joined the NVLink fabric and is reported unhealthy there.",
        hold=10 * MINUTE,
        release=15 * MINUTE,
        predicate=links.fabric_unhealthy,
    ),
    CardCondition(
        id="nvlink_inactive",
        tier=TICKET,
        level=DEGRADED,
        action="drain",
        runbook="GPUNVLinkDown",
        help="Fewer NVLinks up than by the baseline, or than on most cards of the same model.",
        hold=5 * MINUTE,
        release=15 * MINUTE,
        thresholds={
            "window": _window(10 * MINUTE),
            "grace": Threshold(20 * MINUTE, "seconds", "after a reset, while links train"),
            "peers": Threshold(3, "count", "other cards needed to compare with"),
        },
        predicate=links.nvlink_inactive,
    ),
    CardCondition(
        id="pcie_degraded",
        tier=TICKET,
        level=DEGRADED,
        action="none",
        runbook="GPUPCIeLinkDegraded",
        help="PCI Express below what slot and card can do, although the card worked.",
        hold=30 * MINUTE,
        release=HOUR,
        thresholds={
            "window": _window(15 * MINUTE),
            "utilization": _share(0.2, "highest utilization above which the card worked"),
            "working_time": Threshold(MINUTE, "seconds", "at 20 % and more within the window"),
        },
        predicate=links.pcie_degraded,
    ),
)

_SLOWNESS: tuple[CardCondition, ...] = (
    CardCondition(
        id="thermal_slowdown",
        tier=TICKET,
        level=DEGRADED,
        action="none",
        runbook="GPUThermalSlowdown",
        help="Heat holds the clocks down for a share of the time.",
        hold=10 * MINUTE,
        release=30 * MINUTE,
        thresholds={
            "hardware_share": _share(0.1),
            "software_share": _share(0.5),
            "window": _window(15 * MINUTE),
        },
        predicate=slowness.thermal,
    ),
    CardCondition(
        id="power_brake",
        tier=TICKET,
        level=DEGRADED,
        action="none",
        runbook="GPUPowerBrake",
        help="The power brake is asserted for a share of the time.",
        hold=5 * MINUTE,
        release=10 * MINUTE,
        thresholds={"share": _share(0.5), "window": _window(10 * MINUTE)},
        predicate=slowness.power_brake,
    ),
    CardCondition(
        id="hardware_slowdown",
        tier=TICKET,
        level=DEGRADED,
        action="none",
        runbook="GPUHardwareSlowdown",
        help="The hardware holds the clocks down and neither heat nor power brake explains it.",
        hold=15 * MINUTE,
        release=30 * MINUTE,
        thresholds={"share": _share(0.1), "window": _window(15 * MINUTE)},
        predicate=slowness.hardware_slowdown,
    ),
    CardCondition(
        id="straggler",
        tier=TICKET,
        level=DEGRADED,
        action="none",
        runbook="GPUStraggler",
        help="Lower clock, and lower power or higher temperature, than busy cards of its model.",
        hold=15 * MINUTE,
        release=30 * MINUTE,
        thresholds={
            "clock_ratio": _share(0.85, "of the usual clock, below which it counts"),
            "power_ratio": _share(0.85, "of the usual power, below which it confirms"),
            "hotter": Threshold(10, "celsius", "above the usual temperature, which confirms"),
            "utilization_ratio": _share(0.9, "of the usual utilization; below it just does less"),
            "peers": Threshold(4, "count", "other busy cards needed to compare with"),
            "window": _window(10 * MINUTE),
        },
        predicate=slowness.straggler,
    ),
)

_COLLECTION: tuple[CardCondition, ...] = (
    CardCondition(
        id="collection_failing",
        tier=TICKET,
        level=DEGRADED,
        action="none",
        runbook="GPUCollectorStale",
        help="Nothing that matters reads on the card although the driver is there.",
        hold=5 * MINUTE,
        predicate=presence.collection_failing,
        by_readings=False,
    ),
    CardCondition(
        id="reading_failing",
        tier=OBSERVE_TIER,
        level=OBSERVE,
        action="none",
        runbook="GPUCollectorStale",
        help="The card answers, but some reading that it supports fails for long.",
        hold=10 * MINUTE,
        release=5 * MINUTE,
        predicate=presence.reading_failing,
    ),
    CardCondition(
        id="reading_out_of_range",
        tier=OBSERVE_TIER,
        level=OBSERVE,
        action="none",
        runbook="GPUCollectorStale",
        help="The card gives an impossible value with a success code.",
        predicate=presence.reading_out_of_range,
    ),
    CardCondition(
        id="denied",
        tier=OBSERVE_TIER,
        level=OBSERVE,
        action="none",
        runbook="GPUCollectorStale",
        help="We have no permission to read the card; that says nothing about it.",
        predicate=presence.denied,
        by_readings=False,
    ),
)

_NODE: tuple[NodeCondition, ...] = (
    NodeCondition(
        id="driver_away",
        tier=PAGE,
        level=FAILED,
        action="drain",
        runbook="GPUDriverUnavailable",
        help="The driver as a whole cannot be used; no card is to blame.",
        hold=2 * MINUTE,
        predicate=presence.driver_away,
    ),
)

CARD_CONDITIONS: tuple[CardCondition, ...] = (
    *_STATE,
    *_EVENTS,
    *_MEMORY,
    *_LINKS,
    *_SLOWNESS,
    *_COLLECTION,
)
NODE_CONDITIONS: tuple[NodeCondition, ...] = _NODE
CONDITIONS: tuple[Condition, ...] = (*CARD_CONDITIONS, *NODE_CONDITIONS)
BY_ID: Mapping[str, Condition] = MappingProxyType({c.id: c for c in CONDITIONS})
