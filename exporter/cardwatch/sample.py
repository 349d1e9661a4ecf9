# SPDX-License-Identifier: Apache-2.0
"""What one pass over the node gives: the messages from the reading child to the parent.

A message is one JSON line. The parent treats it as untrusted: a child beside a
dying driver may write anything, so ``decode_frame`` checks shape, types and
sizes and raises ``FrameError`` instead of passing rubbish on.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

MAX_FRAME = 8 * 1024 * 1024
"""Bytes of one line; 16 cards in the full profile need under 400 KB."""

MAX_SLOTS = 1024

_MOST = 2**64
"""Beyond the driver's largest integer."""

Row: TypeAlias = "tuple[tuple[str, ...], float]"
Rows: TypeAlias = "list[Row]"
"""Rows of one family: values of its own labels, and the number."""

WHOLE_CARD = "card"
"""Key in ``faults`` of an error that is not about one family: handle, hang, bug."""

STATES = ("ok", "lost", "hung", "reset_required", "denied", "unreadable", "detached")


class FrameError(ValueError):
    """A line from the child that is not a frame."""


@dataclass
class MigSample:
    """One MIG instance: its labels and rows by family name."""

    uuid: str
    gpu_instance: str
    compute_instance: str
    profile: str
    rows: dict[str, Rows] = field(default_factory=dict)


@dataclass
class CardSample:
    """One pass over one card.

    slot      index under which the driver lists it now.
    uuid      as the driver tells it; None when it did not.
    state     one of ``STATES``; ``ok`` when it answers.
    up        False when it does not answer, or nothing that matters on it reads.
    error     NVML's name of the error behind a state that is not ``ok``.
    time, monotonic, duration  seconds: wall clock and monotonic clock at the end, and length.
    info      static facts, labels of ``gpu_info``.
    rows      family name -> rows that read well.
    faults    family name -> ``unsupported``, ``denied`` or an error's name.
    reasons   throttle reason -> active now; None when the driver does not tell.
    uptime    seconds since the driver initialised the card; None when it does not tell.
    """

    slot: int
    uuid: str | None = None
    pci: str | None = None
    state: str = "ok"
    up: bool = True
    error: str | None = None
    time: float = 0.0
    monotonic: float = 0.0
    duration: float = 0.0
    info: dict[str, str] = field(default_factory=dict)
    rows: dict[str, Rows] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, bool] | None = None
    mig: list[MigSample] = field(default_factory=list)
    uptime: float | None = None


@dataclass
class OpenCall:
    """A driver call that has not returned. ``slot`` is None for a call about the node.

    ``args`` are given while answers are recorded only, handles as tokens.
    """

    slot: int | None
    call: str
    age: float
    args: list[Any] = field(default_factory=list)


@dataclass
class DriverEvent:
    """One event of the driver library. ``time`` is when it arrived: the library tells none.

    type  bit of nvmlEventType: 0x8 Xid, 0x100 MIG change, 0x4000 unavailable, 0x8000 recovery.
    data  the Xid for an Xid event.
    """

    uuid: str
    type: int
    data: int
    time: float
    gpu_instance: int | None = None
    compute_instance: int | None = None


@dataclass
class Frame:
    """What the child knows at one moment; cards hold only samples new since the last frame.

    error     why the driver cannot be used at all, else None.
    listed    number of cards the driver lists; None before it ever said.
    node      driver, NVML and CUDA versions as far as told.
    host      facts of a simulated or captured host, replacing those of this one.
    control   whether the driver's control device opens: ok, refused, absent.
    pass_done True when every card that is not hung was read.
    resident, cpu  the child's own memory in bytes and CPU seconds.
    events         driver events since the last frame.
    watching       whether driver events are waited for: None where there are none to wait for.
    watch_error    why not, when ``watching`` is False.
    """

    pid: int
    error: str | None = None
    listed: int | None = None
    node: dict[str, str] = field(default_factory=dict)
    host: dict[str, Any] = field(default_factory=dict)
    control: str = "absent"
    pass_done: bool = False
    cards: list[CardSample] = field(default_factory=list)
    open_calls: list[OpenCall] = field(default_factory=list)
    answers: list[Any] | None = None
    resident: int = 0
    cpu: float = 0.0
    events: list[DriverEvent] = field(default_factory=list)
    watching: bool | None = None
    watch_error: str | None = None


def encode_frame(frame: Frame) -> bytes:
    """Return the frame as one line."""
    # `vars` gives the fields of one record; `asdict` would copy every row first.
    text = json.dumps(frame, default=vars, separators=(",", ":"), allow_nan=False)
    return text.encode() + b"\n"


def decode_frame(line: bytes) -> Frame:
    """Return the frame of one line. Raises ``FrameError`` on anything else."""
    try:
        raw = json.loads(line)
        return _frame(raw)
    except FrameError:
        raise
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise FrameError(f"not a frame: {type(error).__name__}: {error}"[:200]) from None


def _frame(raw: Any) -> Frame:
    cards = [_card(c) for c in _list(raw["cards"])]
    calls = [OpenCall(_slot_or_none(c["slot"]), _text(c["call"]), _number(c["age"]),
                      _list(c["args"])) for c in _list(raw["open_calls"])]  # fmt: skip
    listed = raw["listed"]
    return Frame(
        pid=int(raw["pid"]),
        error=None if raw["error"] is None else _text(raw["error"]),
        listed=None if listed is None else _slot(listed),
        node=_texts(raw["node"]),
        host=dict(raw["host"]),
        control=_text(raw["control"]),
        pass_done=raw["pass_done"] is True,
        cards=cards,
        open_calls=calls,
        answers=raw["answers"],
        resident=int(raw["resident"]),
        cpu=_number(raw["cpu"]),
        events=[_event(e) for e in _list(raw["events"])],
        watching=None if raw["watching"] is None else raw["watching"] is True,
        watch_error=None if raw["watch_error"] is None else _text(raw["watch_error"]),
    )


def _card(raw: Any) -> CardSample:
    if raw["state"] not in STATES:
        raise FrameError(f"unknown state {raw['state']!r:.40}")
    reasons = raw["reasons"]
    return CardSample(
        slot=_slot(raw["slot"]),
        uuid=None if raw["uuid"] is None else _text(raw["uuid"]),
        pci=None if raw["pci"] is None else _text(raw["pci"]),
        state=raw["state"],
        up=raw["up"] is True,
        error=None if raw["error"] is None else _text(raw["error"]),
        time=_number(raw["time"]),
        monotonic=_number(raw["monotonic"]),
        duration=_number(raw["duration"]),
        info=_texts(raw["info"]),
        rows=_rows(raw["rows"]),
        faults=_texts(raw["faults"]),
        reasons=None if reasons is None else {_text(k): v is True for k, v in reasons.items()},
        mig=[_mig(m) for m in _list(raw["mig"])],
        uptime=None if raw["uptime"] is None else _number(raw["uptime"]),
    )


def _mig(raw: Any) -> MigSample:
    return MigSample(
        _text(raw["uuid"]),
        _text(raw["gpu_instance"]),
        _text(raw["compute_instance"]),
        _text(raw["profile"]),
        _rows(raw["rows"]),
    )


def _event(raw: Any) -> DriverEvent:
    return DriverEvent(
        uuid=_text(raw["uuid"]),
        type=int(_number(raw["type"])),
        data=int(_number(raw["data"])),
        time=_number(raw["time"]),
        gpu_instance=_slot_or_none(raw["gpu_instance"]),
        compute_instance=_slot_or_none(raw["compute_instance"]),
    )


_LARGEST = sys.float_info.max  # infinity, NaN and larger integers fail the comparison


def _rows(raw: Mapping[str, Any]) -> dict[str, Rows]:
    return {_text(family): [_row(row) for row in rows] for family, rows in raw.items()}


def _row(raw: Any) -> Row:
    labels, value = raw
    kind = type(value)  # a bool is an int to `isinstance`
    if (kind is not int and kind is not float) or not -_LARGEST <= value <= _LARGEST:
        raise FrameError(f"{value!r:.40} is not a number")
    for label in labels:
        if type(label) is not str or not label.isascii():
            _text(label)
    return tuple(labels), value


def _texts(raw: Mapping[str, Any]) -> dict[str, str]:
    return {_text(key): _text(value) for key, value in raw.items()}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise FrameError(f"{value!r:.40} is not text")
    if not value.isascii():
        value.encode()  # half a surrogate pair raises: no page could be written with it
    return value


def _number(value: Any) -> float:
    if type(value) is int and -_MOST <= value <= _MOST:
        return value  # by far most are
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise FrameError(f"{value!r:.40} is not a number")
    return value


def _slot(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_SLOTS:
        raise FrameError(f"{value!r:.40} is not a card's index")
    return value


def _slot_or_none(value: Any) -> int | None:
    return None if value is None else _slot(value)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > MAX_SLOTS:
        raise FrameError("a list is missing or too long")
    return value
