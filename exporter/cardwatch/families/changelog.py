# SPDX-License-Identifier: Apache-2.0
"""What people and machines did to the nodes, from the change-log process on its own port.

The series carry the node they speak of, not the host of the process.
"""

from __future__ import annotations

from collections.abc import Mapping

from cardwatch.families.record import Family, Scope, Type

_CHANGES: Mapping[str, str] = {"exporter": "journal of the change log"}
_INVENTORY: Mapping[str, str] = {"exporter": "inventory of the change log"}
_SINKS: Mapping[str, str] = {"exporter": "delivery queue of the change log"}


def _family(
    name: str,
    metric_type: Type,
    help_text: str,
    labels: tuple[str, ...] = (),
    sources: Mapping[str, str] = _CHANGES,
) -> Family:
    """Return a family of the change log; its unit, if any, is seconds."""
    return Family(
        name,
        metric_type,
        help_text,
        scope=Scope.NODE,
        labels=labels,
        unit="seconds" if name.endswith("_seconds") else None,
        planned="changelog",
        sources=sources,
    )


FAMILIES: tuple[Family, ...] = (
    _family(
        "gpu_change_events_total",
        Type.COUNTER,
        "Changes on the node that were recorded or noticed, by kind.",
        ("kind",),
    ),
    _family(
        "gpu_change_last_timestamp_seconds",
        Type.GAUGE,
        "When a change of this kind last happened on the node, not when it was recorded.",
        ("kind",),
    ),
    _family(
        "gpu_change_in_progress",
        Type.GAUGE,
        "1 while a change of this kind has begun on the node and has not ended.",
        ("kind",),
    ),
    _family(
        "gpu_change_unrecorded_total",
        Type.COUNTER,
        "Changes noticed on the node for which nobody left a record within the time allowed.",
    ),
    _family(
        "gpu_node_maintenance",
        Type.GAUGE,
        "1 while this maintenance window of the node is open; it ends by itself at its planned "
        "end.",
        ("change_id",),
    ),
    _family(
        "gpu_node_maintenance_end_timestamp_seconds",
        Type.GAUGE,
        "Planned end of this maintenance window of the node.",
        ("change_id",),
    ),
    _family(
        "gpu_node_in_service",
        Type.GAUGE,
        "1 while the node is meant to take work, 0 while it is drained or in maintenance. Says "
        "nothing about whether it could.",
    ),
    _family(
        "gpu_node_drains_total",
        Type.COUNTER,
        "Times the node was drained because of a fault; planned drains are not counted.",
    ),
    _family(
        "gpu_node_inventory",
        Type.GAUGE,
        "1 for every node that should exist, whether it answers or not.",
        sources=_INVENTORY,
    ),
    _family(
        "gpu_cluster_spare_gpus",
        Type.GAUGE,
        "GPUs that are kept as spares in the cluster, as the inventory says.",
        sources=_INVENTORY,
    ),
    _family(
        "cardwatch_annotations_pending",
        Type.GAUGE,
        "Annotations not yet delivered to this sink.",
        ("sink",),
        _SINKS,
    ),
    _family(
        "cardwatch_annotation_oldest_pending_timestamp_seconds",
        Type.GAUGE,
        "When the oldest annotation not yet delivered to this sink was made; absent when none "
        "waits.",
        ("sink",),
        _SINKS,
    ),
    _family(
        "cardwatch_annotations_delivered_total",
        Type.COUNTER,
        "Annotations that this sink accepted, since the process started.",
        ("sink",),
        _SINKS,
    ),
    _family(
        "cardwatch_annotation_failures_total",
        Type.COUNTER,
        "Attempts to deliver an annotation to this sink that failed, since the process started; "
        "each will be tried again.",
        ("sink",),
        _SINKS,
    ),
)
