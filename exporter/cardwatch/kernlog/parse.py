# SPDX-License-Identifier: Apache-2.0
"""Kernel log records of the GPU and switch drivers to events.

Takes the text of one record at a time, without time stamps or other prefixes, and
remembers what spans records: sentences of several lines, which line tells what an
Xid told already, and the UUID that the driver prints once for a card. Never raises,
whatever the text; never takes a number out of a process name. Counting, storing
and judging events is the business of others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from cardwatch.kernlog.event import SXID, Event
from cardwatch.kernlog.lost import LostCards, Moment
from cardwatch.kernlog.sxidline import parse_sxid
from cardwatch.kernlog.words import PCI, normal_pci
from cardwatch.kernlog.xidline import parse_xid

# Longer records are cut: the kernel's are at most a few KiB.
MAX_RECORD = 8192
_CARDS = 1024
_UUID = re.compile(
    rf"NVRM: GPU at PCI:(?P<pci>{PCI}): (?P<uuid>GPU-[0-9a-fA-F]{{8}}(?:-[0-9a-fA-F]{{4}}){{3}}"
    r"-[0-9a-fA-F]{12})"
)
_GPU_BUT_GONE = 79
# Lines without a severity word that follow each other like this are one incident.
_WORDLESS_S = 2.0
_WORDLESS_RECORDS = 8


def may_matter(record: bytes) -> bool:
    """Say cheaply whether a raw record can be of interest to a `Parser`."""
    return b"NVRM: " in record or b"nvidia" in record


class Parser:
    """Records in, events out; one for each log.

    ``uuids`` maps PCI addresses, in any form, to UUIDs that are known beforehand:
    the inventory at start also names a card that no longer answers. What the log
    itself says later wins. ``ordered`` returns events in the order of their records,
    which may keep one back for a moment: for reading a file, not for paging.
    """

    def __init__(self, uuids: Mapping[str, str] | None = None, *, ordered: bool = False) -> None:
        self._ordered = ordered
        self._waiting: list[tuple[int, Event]] = []
        self._uuids: dict[str, str] = {}
        self._lost = LostCards()
        self._records = 0
        self._switch: dict[tuple[str | None, int | None], Moment] = {}
        for pci, uuid in (uuids or {}).items():
            self.learn(pci, uuid)

    def learn(self, pci: str, uuid: str) -> None:
        """Take the UUID of the card at an address."""
        known = normal_pci(pci)
        if known is not None and (known in self._uuids or len(self._uuids) < _CARDS):
            self._uuids[known] = uuid

    def feed(
        self, text: str, time: float | None = None, uptime: float | None = None
    ) -> list[Event]:
        """Take the text of one record and return the events that are complete now.

        ``time`` is the wall clock of the record, ``uptime`` its seconds since boot.
        How far records lie apart is told by ``uptime``, else by ``time``, else by
        their order.
        """
        text = text.lstrip()
        if not text.startswith(("NVRM: ", "nvidia")):
            if not self._lost.holds:
                return []
            return self._out(self._lost.due(Moment(self._records, time, uptime)))
        self._records += 1
        at = Moment(self._records, time, uptime)
        events = self._lost.due(at) if self._lost.holds else []
        events += [(at.record, event) for event in self._driver_record(text[:MAX_RECORD], at)]
        return self._out(events)

    def flush(self) -> list[Event]:
        """Return events that were held back; call at the end of a log, and when it is quiet."""
        return self._out(self._lost.due(None))

    def _out(self, events: list[tuple[int, Event]]) -> list[Event]:
        if self._ordered:
            self._waiting += events
            if self._lost.holds:
                return []
            events, self._waiting = sorted(self._waiting, key=lambda e: e[0]), []
        return [self._with_uuid(event) for _record, event in events]

    def _driver_record(self, text: str, at: Moment) -> list[Event]:
        if text.startswith("NVRM: Xid"):
            # Further lines of this record are part of a process name or of the message.
            event = parse_xid(text.replace("\n", " "), at.time, at.uptime)
            if event is None:
                return []
            if event.code == _GPU_BUT_GONE:
                self._lost.xid_79(event.pci, at)
            return [event]
        if text.startswith("nvidia-nvswitch"):
            return self._switch_record(text.replace("\n", " "), at)
        events: list[Event] = []
        for line in text.split("\n"):
            events += self._line(line.lstrip(), at)
        return events

    def _switch_record(self, text: str, at: Moment) -> list[Event]:
        event = parse_sxid(text, at.time, at.uptime)
        if event is None:
            return []
        key = (event.switch, event.code)
        before = self._switch.get(key)
        if event.severity is None and before is not None:
            if before.near(at, _WORDLESS_S, _WORDLESS_RECORDS):
                return []
        elif len(self._switch) >= _CARDS:
            self._switch.clear()
        self._switch[key] = at
        return [event]

    def _line(self, line: str, at: Moment) -> list[Event]:
        named = _UUID.match(line)
        if named:
            self.learn(named["pci"], named["uuid"])
            return []
        return self._lost.line(line, at)

    def _with_uuid(self, event: Event) -> Event:
        if event.kind == SXID or event.pci is None or event.uuid is not None:
            return event
        uuid = self._uuids.get(event.pci)
        return event if uuid is None else replace(event, uuid=uuid)
