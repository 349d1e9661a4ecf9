# SPDX-License-Identifier: Apache-2.0
"""What goes into the journal and comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cardwatch.kernlog.event import Event

MAX_TEXT = 2000
MAX_CODE = 2**62
"""Larger codes are kept as this one; a store has 64 bits, and no driver goes so far."""


@dataclass(frozen=True)
class Entry:
    """One event, or ``count`` equal ones, to be noted.

    gpu        UUID, or what stands for it; for an SXid the name of the switch.
    cls        class of the event.
    last_time  wall clock of the last of several; the first is ``event.time``.
    source     ``kmsg`` or ``nvml``.
    old        it was in the log before the first start on this node.
    count      0 notes a text for an event that was counted already.
    extra      workload, container, job: what else is known.
    """

    gpu: str
    event: Event
    cls: str
    count: int = 1
    last_time: float | None = None
    source: str = "kmsg"
    old: bool = False
    action: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)


class CounterKey(NamedTuple):
    """What is counted apart: ``code`` is None for events without one."""

    gpu: str
    kind: str
    code: int | None
    cls: str
    severity: str = ""


@dataclass(frozen=True)
class Counter:
    """How often, and when first and last (wall clock), since the journal began."""

    count: int
    first_time: float
    last_time: float


@dataclass(frozen=True)
class Row:
    """A row of the journal: equal events of ten seconds.

    ``id`` is None for one that was not written yet. ``detail`` is the first
    event as a mapping, without what it does not tell.
    """

    id: int | None
    time: float
    last_time: float
    gpu: str
    kind: str
    code: int | None
    cls: str
    severity: str
    action: str
    source: str
    old: bool
    count: int
    message: str
    detail: Mapping[str, Any]
    extra: Mapping[str, str]


@dataclass(frozen=True)
class Mark:
    """Something done to a card: a reset, or a fault that a person declared over.

    ``origin`` says who noted it: ``cli``, ``xid154``, and so on.
    """

    gpu: str
    kind: str
    time: float
    origin: str


@dataclass(frozen=True)
class Status:
    """How the journal fares.

    problem     why nothing reaches the disk, or None; for people.
    loaded      what an earlier run left was read, or could not be.
    restored    counters go on from what is on disk, if there was anything.
    set_aside   name that a file which could not be read was given, if there was one.
    dropped     rows given up because memory holds no more of them.
    pending     rows that wait for the disk.
    written_at  wall clock of the last write that succeeded.
    """

    problem: str | None
    loaded: bool
    restored: bool
    set_aside: str | None
    dropped: int
    pending: int
    written_at: float | None
