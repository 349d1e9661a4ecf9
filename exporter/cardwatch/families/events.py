# SPDX-License-Identifier: Apache-2.0
"""Faults that driver and switches report: Xid, SXid, and cards that left the bus.

Counts by class and severity are there at 0 before anything happens, so a rule sees the first
event. Classes are `critical`, `hardware`, `contained`, `application`, `info` and `unknown`.
"""

from __future__ import annotations

from cardwatch.families.record import Family, Profile, Scope, Type

_XID = {"exporter": "kernel log, else NVML events (nvmlEventSetWait_v2, Xid)"}
_SXID = {"exporter": "kernel log, lines of the NVSwitch driver"}

FAMILIES: tuple[Family, ...] = (
    Family(
        "gpu_xid_class_errors_total",
        Type.COUNTER,
        "Xid errors of this card by class, repeats included, since the journal began. Absent "
        "while neither kernel log nor driver events could ever be read.",
        labels=("class",),
        sources=_XID,
    ),
    Family(
        "gpu_xid_errors_total",
        Type.COUNTER,
        "Xid errors of this card by code, born with the first event, so increase() misses that "
        "one: alert on the class counter or the timestamp.",
        labels=("xid", "class"),
        sources=_XID,
    ),
    Family(
        "gpu_xid_last_timestamp_seconds",
        Type.GAUGE,
        "When this Xid last occurred, by the time of the kernel record. Stays after a repair: "
        "hold it against gpu_last_reset_timestamp_seconds.",
        unit="seconds",
        labels=("xid", "class"),
        sources=_XID,
    ),
    Family(
        "nvswitch_sxid_severity_errors_total",
        Type.COUNTER,
        "SXid errors of the node's NVSwitches by severity, since the journal "
        "began; 0 from the start where there is a switch.",
        scope=Scope.NODE,
        labels=("severity",),
        sources=_SXID,
    ),
    Family(
        "nvswitch_sxid_errors_total",
        Type.COUNTER,
        "SXid errors by switch and code, born with the first event, so increase() misses that "
        "one. Detail lines of one error are not counted.",
        scope=Scope.NODE,
        labels=("nvswitch", "sxid", "severity"),
        sources=_SXID,
    ),
    Family(
        "nvswitch_sxid_last_timestamp_seconds",
        Type.GAUGE,
        "When this SXid last occurred on this switch, by the time of the kernel record.",
        scope=Scope.NODE,
        unit="seconds",
        labels=("nvswitch", "sxid", "severity"),
        sources=_SXID,
    ),
    Family(
        "gpu_off_bus_events_total",
        Type.COUNTER,
        "Times the kernel log said that this card has fallen off the bus, with or without an Xid, "
        "since the journal began.",
        profile=Profile.STANDARD,
        sources={"exporter": "kernel log"},
    ),
)
