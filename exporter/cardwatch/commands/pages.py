# SPDX-License-Identifier: Apache-2.0
"""What the HTTP layer serves, taken from a session: metrics, JSON, the status page."""

from __future__ import annotations

import html
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from cardwatch import __version__
from cardwatch.families import BY_NAME
from cardwatch.supervisor.cards import View, reading_name
from cardwatch.supervisor.session import Session
from cardwatch.supervisor.snapshot import Snapshot
from cardwatch.verdict import CardVerdict, Held

_LOOP_STALE_S = 30.0


class SessionPages:
    """``cardwatch.web.app.Pages`` over a session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._started = time.monotonic()

    def metrics(self, *, openmetrics: bool, gzip: bool) -> bytes:
        """Return ready bytes."""
        return self._session.served(openmetrics=openmetrics, gzip=gzip)

    def ready(self) -> str | None:
        """Return None when ready, else the reason."""
        snap = self._session.snapshot()
        return None if snap.ready else snap.reason

    def alive(self) -> bool:
        """Say whether the sampling loop still turns; a stuck driver does not count."""
        last = self._session.rendered_at
        return time.monotonic() - last < max(_LOOP_STALE_S, 5 * self._session.settings.interval)

    def json(self, name: str) -> bytes | None:
        """Return a JSON document, or None where this version has none."""
        document = self._document(name)
        return None if document is None else json.dumps(document, indent=1).encode() + b"\n"

    def _document(self, name: str) -> dict[str, Any] | None:
        session, watch = self._session, self._session.watch
        if name == "gpus":
            return gpus(session.snapshot())
        if watch is None:
            return None
        if name == "events":
            return {"node": session.identity.node, "events": watch.book.events()}
        if name == "health":
            return health(session.snapshot(), watch.verdicts, watch.judge.node)
        return None

    def status_html(self) -> bytes:
        """Return the status page."""
        return _status(self._session.snapshot()).encode()

    def detach(self, seconds: float) -> str:
        """Let go of the driver."""
        self._session.source.detach(seconds)
        return f"detached for {seconds:.0f} s"


def health(
    snap: Snapshot, verdicts: Mapping[str, CardVerdict], node: Sequence[Held]
) -> dict[str, Any]:
    """Return the verdict of every card, with the conditions that hold, worst first."""
    return {
        "node": snap.identity.node,
        "time": snap.time,
        "conditions": [asdict(held) for held in node],
        "gpus": [
            {
                "gpu": view.index,
                "uuid": view.card.uuid,
                "pci": view.card.pci,
                "model": view.card.info.get("model", ""),
                "state": verdict.state,
                "reason": verdict.reason,
                "conditions": [asdict(held) for held in verdict.conditions],
            }
            for view in snap.views
            if (verdict := verdicts.get(view.card.uuid)) is not None
        ],
    }


def gpus(snap: Snapshot) -> dict[str, Any]:
    """Return every card with its state, facts, readings and what did not read, and why."""
    return {
        "node": snap.identity.node,
        "time": snap.time,
        "backend": snap.identity.backend,
        "source": {"up": snap.source_up, "error": snap.source_error},
        "driver": dict(snap.node),
        "gpus": [_card(view) for view in snap.views],
    }


def _card(view: View) -> dict[str, Any]:
    sample = view.sample
    return {
        "gpu": view.index,
        "uuid": view.card.uuid,
        "pci": view.card.pci,
        "up": view.up,
        "state": view.state,
        "cause": view.cause,
        "info": view.card.info,
        "sample_time": sample.time if sample else None,
        "readings": {name: _rows(name, rows) for name, rows in sample.rows.items()}
        if sample
        else {},
        "missing": {reading_name(name): fault for name, fault in sample.faults.items()}
        if sample
        else {},
        "errors": [
            {"reading": reading, "error": error, "count": count}
            for (reading, error), count in sorted(view.card.errors.items())
        ],
        "mig": [
            {
                "uuid": instance.uuid,
                "gpu_instance": instance.gpu_instance,
                "compute_instance": instance.compute_instance,
                "profile": instance.profile,
                "readings": {name: _rows(name, rows) for name, rows in instance.rows.items()},
            }
            for instance in (sample.mig if sample else ())
        ],
    }


def _rows(name: str, rows: list[tuple[tuple[str, ...], float]]) -> Any:
    labels = BY_NAME[name].labels
    if not labels:
        return rows[0][1]
    return [{**dict(zip(labels, values, strict=True)), "value": value} for values, value in rows]


_COLUMNS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("Temperature", "gpu_temperature_celsius", "{:.0f} °C".format),
    ("Utilization", "gpu_utilization_ratio", "{:.0%}".format),
    ("Power", "gpu_power_watts", "{:.0f} W".format),
    ("Memory used", "gpu_memory_used_bytes", lambda used: f"{used / 2**30:.1f} GiB"),
)


def _status(snap: Snapshot) -> str:
    """Return a plain page: what is wrong first, then every card."""
    escape = html.escape
    simulated = (
        '<p class="loud">SIMULATED CARDS: nothing on this page is real.</p>'
        if snap.identity.backend in ("sim", "replay")
        else ""
    )
    trouble = "" if snap.ready else f'<p class="loud">{escape(snap.reason)}</p>'
    rows = "".join(_status_row(view) for view in snap.views)
    heads = "".join(f"<th>{name}</th>" for name, _, _ in _COLUMNS)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>cardwatch on {escape(snap.identity.node)}</title>
<meta name="viewport" content="width=device-width">
<style>body{{font-family:sans-serif;margin:2em}} td,th{{text-align:left;padding:.2em 1em .2em 0}}
.loud{{background:#b00;color:#fff;padding:.5em}} .bad{{color:#b00;font-weight:bold}}</style></head>
<body><h1>cardwatch {escape(__version__)} on {escape(snap.identity.node)}</h1>
{simulated}{trouble}
<table><tr><th>GPU</th><th>State</th><th>Model</th>{heads}<th>UUID</th></tr>{rows}</table>
<p>Driver {escape(snap.node.get("driver_version", "not known"))},
CUDA {escape(snap.node.get("cuda_driver_version", "not known"))}</p>
<p><a href="/metrics">metrics</a> <a href="/readyz">readyz</a> <a href="/healthz">healthz</a>
<a href="/api/v1/gpus">api/v1/gpus</a> <a href="/api/v1/health">api/v1/health</a>
<a href="/api/v1/events">api/v1/events</a></p></body></html>
"""


def _status_row(view: View) -> str:
    readings = view.sample.rows if view.sample else {}
    cells = [
        shown(readings[family][0][1]) if family in readings else "-"
        for _, family, shown in _COLUMNS
    ]
    state = view.state if view.cause is None else f"{view.state} ({view.cause})"
    mark = "" if view.up and view.state == "ok" else ' class="bad"'
    texts = [str(view.index), state, view.card.info.get("model", "-"), *cells, view.card.uuid]
    inner = "".join(
        f"<td{mark if number == 1 else ''}>{html.escape(text)}</td>"
        for number, text in enumerate(texts)
    )
    return f"<tr>{inner}</tr>"
