# SPDX-License-Identifier: Apache-2.0
"""One event to its class, tier and action.

The class is a function of the event: its number, the word Fatal or Nonfatal, the
value of an Xid 154, the reset flags of 94 and 95, and whether it was injected. The
table of numbers is only where nothing in the event says more. Owns these rules and
nothing else; never fails on a number or value that it does not know.

Choices where the sources leave room:

- Xid 95 with ``RST: No, D-RST: No`` is ``hardware``: the driver has killed every
  compute channel of the card itself and asks for no reset. Any Yes, or a line
  without flags, stays ``critical``.
- Xid 94 with ``RST: Yes`` is ``critical``; with ``D-RST: Yes`` it is ``contained``
  with drain and reset (the driver's way in MIG mode; if it wants that at once, an
  Xid 154 with 4 follows, which is ``critical``).
- Xid 154 with 3 or 5 is ``hardware``; with a value nobody knows ``unknown``; without
  a value (driver library events) as the table says.
- ``unknown`` is a ticket: somebody has to find out what it was.
- An override of a number never makes an injected error or a cleared recovery
  action (154 with 0) worse than ``info``: a drill must not page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cardwatch.xid import catalogue, nvlink5
from cardwatch.xid.catalogue import (
    ACTIONS,
    CLASSES,
    CONTAINED,
    CRITICAL,
    HARDWARE,
    INFO,
    UNKNOWN,
)

FATAL = "fatal"
NONFATAL = "nonfatal"
CORRECTABLE = "correctable"
SEVERITIES = (FATAL, NONFATAL, CORRECTABLE)

OFF_BUS = "gpu_off_bus"
INIT_FAILED = "gpu_init_failed"

TIERS: Mapping[str, str] = {
    "critical": "page",
    "hardware": "ticket",
    "contained": "ticket",
    "application": "observe",
    "info": "none",
    "unknown": "ticket",
    OFF_BUS: "page",
    INIT_FAILED: "page",
}
RUNBOOKS: Mapping[str, str] = {
    "critical": "GPUXidCritical",
    "hardware": "GPUXidHardware",
    "contained": "GPUXidContained",
    "application": "GPUXidApplication",
    "unknown": "GPUXidUnknown",
}
# Xid 154: value to class and action.
RECOVERY: Mapping[int, tuple[str, str]] = {
    0: (INFO, "NONE"),
    1: (CRITICAL, "RESET_GPU"),
    2: (CRITICAL, "REBOOT_NODE"),
    3: (HARDWARE, "DRAIN_P2P"),
    4: (CRITICAL, "DRAIN_AND_RESET"),
    5: (HARDWARE, "RECOVER_IMEX"),
    6: (CRITICAL, "RESET_BUS"),
    7: (CRITICAL, "REBOOT_NODE"),
}
_UNKNOWN_MEANING = "No source that we read describes this number"


@dataclass(frozen=True)
class Classified:
    """What one event asks of people.

    ``class_`` is one of the metric classes, or ``gpu_off_bus`` or
    ``gpu_init_failed``; ``tier`` is page, ticket, observe or none; ``runbook`` is
    the name of an alert, empty where none fits.
    """

    class_: str
    tier: str
    action: str
    runbook: str
    meaning: str


@dataclass(frozen=True)
class Override:
    """What the config file sets for one Xid; None leaves the rule in force."""

    class_: str | None = None
    action: str | None = None


class Described(Protocol):
    """The part of an event that decides its class."""

    @property
    def kind(self) -> str: ...  # noqa: D102
    @property
    def code(self) -> int | None: ...  # noqa: D102
    @property
    def severity(self) -> str | None: ...  # noqa: D102
    @property
    def recovery_to(self) -> int | None: ...  # noqa: D102
    @property
    def reset_required(self) -> bool | None: ...  # noqa: D102
    @property
    def drain_required(self) -> bool | None: ...  # noqa: D102
    @property
    def injected(self) -> bool | None: ...  # noqa: D102
    @property
    def unit(self) -> str | None: ...  # noqa: D102
    @property
    def status(self) -> Sequence[int]: ...  # noqa: D102


Overrides = Mapping[int, Override]
NO_OVERRIDES: Overrides = {}


def classify(event: Described, overrides: Overrides = NO_OVERRIDES) -> Classified:
    """Return class, tier and action of an event of any kind."""
    if event.kind == OFF_BUS:
        return _LOST
    if event.kind == INIT_FAILED:
        return _NOT_STARTED
    if event.kind == "sxid":
        return classify_sxid(event.code, event.severity)
    return _classify_xid(event, overrides)


def classify_sxid(code: int | None, severity: str | None) -> Classified:
    """Return class, tier and action of a switch error by number and word."""
    entry = None if code is None else catalogue.sxid(code)
    class_ = _sxid_class(entry, severity)
    if entry is None:
        return _classified(class_, "INVESTIGATE", _sxid_runbook(class_), _UNKNOWN_MEANING)
    action = "NONE" if class_ == INFO else entry.action
    if action == "NONE" and class_ != INFO:  # harmless by the table, but this line says Fatal
        action = "INVESTIGATE"
    return _classified(class_, action, _sxid_runbook(class_), entry.meaning)


def sxid_severity(code: int | None, severity: str | None) -> str:
    """Return the metric label: ``fatal``, ``nonfatal`` or ``correctable``.

    The word of the line, except that numbers whose class is critical whatever the
    line says are ``fatal``: the paging rule reads this label alone.
    """
    if classify_sxid(code, severity).class_ == CRITICAL:
        return FATAL
    return severity if severity == CORRECTABLE else NONFATAL


def overrides(value: Any) -> dict[int, Override]:
    """Parse the config key ``xid``: ``{CODE: {class: ..., action: ...}}``.

    Raises ValueError with what is allowed.
    """
    if not isinstance(value, Mapping):
        raise ValueError("expected a mapping of Xid numbers to class and action")
    return {_code(code): _override(code, fields) for code, fields in value.items()}


def _code(value: Any) -> int:
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise ValueError(f"{text}: expected an Xid number")
    return int(text)


def _override(code: Any, fields: Any) -> Override:
    if not isinstance(fields, Mapping) or not fields or not set(fields) <= {"class", "action"}:
        raise ValueError(f"{code}: expected class, action or both")
    class_, action = fields.get("class"), fields.get("action")
    if class_ is not None and class_ not in CLASSES:
        raise ValueError(f"{code}: class: expected one of {', '.join(CLASSES)}")
    if action is not None and action not in tuple(ACTIONS):
        raise ValueError(f"{code}: action: expected one of {', '.join(ACTIONS)}")
    return Override(class_, action)


def _classify_xid(event: Described, wanted: Overrides) -> Classified:
    entry = None if event.code is None else catalogue.xid(event.code)
    class_, action = _xid_rule(event, entry)
    meaning = entry.meaning if entry else _UNKNOWN_MEANING
    override = None if event.code is None else wanted.get(event.code)
    if override is not None and not _harmless(event):
        class_, action = override.class_ or class_, override.action or action
    by_table = entry is not None and entry.class_ == class_
    runbook = entry.runbook if by_table and entry else RUNBOOKS.get(class_, "")
    return _classified(class_, action, runbook, meaning)


def _xid_rule(event: Described, entry: catalogue.Entry | None) -> tuple[str, str]:
    if event.injected:
        return INFO, "NONE"
    if event.code == 154 and event.recovery_to is not None:
        return RECOVERY.get(event.recovery_to, (UNKNOWN, "INVESTIGATE"))
    if entry is None:
        return UNKNOWN, "INVESTIGATE"
    if event.code in (94, 95):
        return _memory_error(event, entry)
    if event.code in nvlink5.CODES:
        return _nvlink(event, entry)
    return entry.class_, entry.action


def _memory_error(event: Described, entry: catalogue.Entry) -> tuple[str, str]:
    reset, drain = event.reset_required, event.drain_required
    if reset:
        return CRITICAL, "RESET_GPU"
    if drain:
        return (CONTAINED if event.code == 94 else CRITICAL), "DRAIN_AND_RESET"
    if event.code == 95 and reset is False and drain is False:
        return HARDWARE, "RESTART_APP"
    return entry.class_, entry.action


def _nvlink(event: Described, entry: catalogue.Entry) -> tuple[str, str]:
    class_ = entry.class_
    if event.code in (144, 145, 146) and event.severity == FATAL:
        class_ = CRITICAL
    elif event.code in (149, 150) and event.severity == NONFATAL:
        class_ = HARDWARE
    decoded = nvlink5.decode(entry.code, event.unit, event.status)
    action = decoded.action if decoded else entry.action
    if class_ == CRITICAL and decoded and action == "NONE":
        # A page that asks for nothing helps nobody: the line outranks a row that says Nonfatal.
        action = entry.action if decoded.severity == NONFATAL else "INVESTIGATE"
    return class_, action


def _harmless(event: Described) -> bool:
    return bool(event.injected) or (event.code == 154 and event.recovery_to == 0)


def _sxid_class(entry: catalogue.SwitchEntry | None, severity: str | None) -> str:
    if severity == FATAL:
        return CRITICAL
    if entry is None:
        return UNKNOWN
    if severity is None:
        return entry.class_
    if severity == CORRECTABLE and entry.class_nonfatal != CRITICAL:
        return INFO
    return entry.class_nonfatal


def _sxid_runbook(class_: str) -> str:
    return "GPUNVSwitchFatal" if class_ == CRITICAL else ""


def _classified(class_: str, action: str, runbook: str, meaning: str) -> Classified:
    return Classified(class_, TIERS[class_], action, runbook, meaning)


_LOST = _classified(OFF_BUS, "REBOOT_NODE", "GPULost", "The card fell off the PCIe bus")
_NOT_STARTED = _classified(
    INIT_FAILED, "REBOOT_NODE", "GPUCountBelowExpected", "The driver could not start the card"
)
