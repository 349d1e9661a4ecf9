# SPDX-License-Identifier: Apache-2.0
"""The form of a ``[gpu-health]`` line: logfmt or JSON, one line whatever the text holds."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

TAG = "[gpu-health]"
MAX_VALUE = 1000

LEVELS = {
    "critical": "error",
    "hardware": "error",
    "contained": "warning",
    "unknown": "warning",
    "application": "info",
    "info": "info",
}
"""Log level by class of the event."""


@dataclass(frozen=True)
class Notice:
    """One event to be logged, or ``count`` equal ones.

    uuid     the card, or what stands for it; for an SXid the name of the switch.
    gpu      its index, for eyes.
    code     None for events without one.
    meaning, action  from the catalogue.
    extra    workload, container, job and whatever else is known.
    """

    time: float
    kind: str
    uuid: str
    cls: str
    code: int | None = None
    gpu: str = ""
    meaning: str = ""
    action: str = ""
    message: str = ""
    count: int = 1
    extra: Mapping[str, str] = field(default_factory=dict)


def written(notice: Notice, form: str) -> str:
    """Return the line, without its end. ``form`` is ``logfmt`` or ``json``."""
    fields = _fields(notice)
    if form == "json":
        return json.dumps({"tag": TAG, **fields})
    return " ".join([TAG, *(f"{key}={_quoted(str(value))}" for key, value in fields.items())])


def _fields(notice: Notice) -> dict[str, str | int]:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(notice.time))
    fields: dict[str, str | int] = {
        "ts": f"{stamp}.{int(notice.time * 1000) % 1000:03d}Z",
        "level": LEVELS.get(notice.cls, "warning"),
        "uuid": notice.uuid,
        "gpu": notice.gpu,
        "kind": notice.kind,
    }
    if notice.code is not None:
        fields["code"] = notice.code
    fields["class"] = notice.cls
    fields |= {"action": notice.action, "count": notice.count, "meaning": notice.meaning}
    for key, value in notice.extra.items():
        fields.setdefault(_key(key), value)
    fields["message"] = notice.message
    return {
        key: value[:MAX_VALUE] if isinstance(value, str) else value
        for key, value in fields.items()
        if value != ""
    }


def _key(text: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in text)[:64]


def _quoted(value: str) -> str:
    plain = value.isascii() and value.isprintable() and not any(c in value for c in ' "=\\')
    return value if plain else json.dumps(value)
