# SPDX-License-Identifier: Apache-2.0
"""A snapshot as a table for a terminal."""

from __future__ import annotations

from cardwatch.supervisor.cards import View
from cardwatch.supervisor.snapshot import Snapshot

_HEAD = ("GPU", "STATE", "MODEL", "TEMP", "UTIL", "POWER", "MEMORY", "UUID")


def table(snap: Snapshot) -> str:
    """Return one line per card under a line about the node."""
    driver = snap.node.get("driver_version", "not known")
    cuda = snap.node.get("cuda_driver_version", "not known")
    top = f"{snap.identity.node}: driver {driver}, CUDA {cuda}, backend {snap.identity.backend}\n"
    rows = [_HEAD, *(_row(view) for view in snap.views)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = ("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows)
    return top + "".join(line.rstrip() + "\n" for line in lines)


def _row(view: View) -> tuple[str, ...]:
    def value(family: str) -> float | None:
        rows = view.sample.rows.get(family) if view.sample else None
        return rows[0][1] if rows else None

    used, total = value("gpu_memory_used_bytes"), value("gpu_memory_total_bytes")
    memory = "-" if used is None or total is None else f"{used / 2**30:.1f}/{total / 2**30:.0f} GiB"
    return (
        str(view.index),
        view.state,
        view.card.info.get("model", "-"),
        _shown("{:.0f}C", value("gpu_temperature_celsius")),
        _shown("{:.0%}", value("gpu_utilization_ratio")),
        _shown("{:.0f}W", value("gpu_power_watts")),
        memory,
        view.card.uuid,
    )


def _shown(shape: str, value: float | None) -> str:
    return "-" if value is None else shape.format(value)
