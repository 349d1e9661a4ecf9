# SPDX-License-Identifier: Apache-2.0
"""Lines that say a card is gone or did not start, without an Xid.

One incident is told in several lines and ways: three lines that are one sentence,
a plain line beside an Xid 79, a failed probe told by the driver core and summed up
by the driver. Owns which of them are one event. Never raises; what it remembers is
bounded.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, replace

from cardwatch.kernlog.event import INIT_FAILED, OFF_BUS, Event
from cardwatch.kernlog.words import MAX_MESSAGE, PCI, clean, normal_pci

# First line of the sentence `The NVIDIA GPU ... has fallen off the bus ...`, which
# only ever says why a card cannot be used.
_HEADER = re.compile(rf"NVRM: The NVIDIA GPU (?P<pci>{PCI})(?P<rest>.*)")
_GONE = "fallen off the bus"
_REFUSED = re.compile(
    r"is not supported|not include the required GPU|requires use of|open nvidia\.ko|ignore this GPU"
)
_MIDDLE = re.compile(r"\(PCI ID: |installed in this")
_PLAIN = re.compile(rf"NVRM: GPU (?:at )?(?:PCI:)?(?P<pci>{PCI}):? (?:GPU )?has fallen off the bus")
_ADAPTER = re.compile(
    rf"NVRM: (?:GPU (?P<pci>{PCI}): )?"
    r"(?P<text>RmInitAdapter failed|rm_init_adapter(?:\([0-9]+\))? failed)"
)
_PROBE = re.compile(
    rf"nvidia(?: (?P<pci>{PCI}): probe with driver nvidia|: probe of (?P<pci_old>{PCI})) failed"
)
_SUMMARY = re.compile(r"NVRM: The NVIDIA probe routine failed for (?P<cards>[0-9]{1,4}) device")

# One lost card is told for that long in further lines; longer, it is a new event.
_SAME_S = 60.0
_SAME_RECORDS = 64
# The Xid 79 of a plain line comes within milliseconds, before or after it.
_HOLD_S = 2.0
_HOLD_RECORDS = 4
_PAIR_S = 5.0
_PAIR_RECORDS = 8
_REMEMBERED = 256


@dataclass(frozen=True)
class Moment:
    """When a record was written: its place among the driver's records, and what clocks it tells."""

    record: int
    time: float | None
    uptime: float | None

    def near(self, other: Moment, seconds: float, records: int) -> bool:
        """Say whether two records belong together; by a clock where both tell it."""
        if self.uptime is not None and other.uptime is not None:
            return abs(self.uptime - other.uptime) <= seconds
        if self.time is not None and other.time is not None:
            return abs(self.time - other.time) <= seconds
        return abs(self.record - other.record) <= records


@dataclass(frozen=True)
class _Waiting:
    pci: str | None
    at: Moment
    message: str


class LostCards:
    """Makes events of cards that are gone or did not start, each once."""

    def __init__(self) -> None:
        self._headers: deque[_Waiting] = deque(maxlen=_REMEMBERED)
        self._held: dict[str | None, tuple[Event, Moment]] = {}
        self._lost: dict[str | None, Moment] = {}
        self._failed: dict[str | None, Moment] = {}
        self._adapter: dict[str | None, Moment] = {}
        self._explained: deque[Moment] = deque(maxlen=_REMEMBERED)

    @property
    def holds(self) -> bool:
        """Whether an event waits for the Xid that would make it superfluous."""
        return bool(self._held)

    def xid_79(self, pci: str | None, at: Moment) -> None:
        """Note that an Xid tells the loss of this card: plain lines about it are no event."""
        self._held.pop(pci, None)
        self._remember(self._lost, pci, at)

    def line(self, text: str, at: Moment) -> list[Event]:
        """Take one line of the driver that is no Xid."""
        header = _HEADER.match(text)
        if header:
            return self._header(header, at)
        plain = _PLAIN.match(text)
        if plain:
            return self._gone(normal_pci(plain["pci"]), at, text)
        adapter = _ADAPTER.match(text)
        if adapter:
            return self._no_adapter(adapter, at, text)
        summary = _SUMMARY.match(text)
        if summary:
            return self._summed_up(int(summary["cards"]), at, text)
        probe = _PROBE.match(text)
        if probe:
            return self._probe(normal_pci(probe["pci"] or probe["pci_old"]), at, text)
        return self._sentence(text, at)

    def due(self, at: Moment | None) -> list[tuple[int, Event]]:
        """Return held events whose Xid did not come, with the number of their record.

        All of them when ``at`` is None.
        """
        ready = [
            pci
            for pci, (_event, since) in self._held.items()
            if at is None
            or not since.near(at, _HOLD_S, _HOLD_RECORDS)
            or at.record - since.record > _SAME_RECORDS
        ]
        taken = [self._held.pop(pci) for pci in ready]
        return [(since.record, event) for event, since in taken]

    def _header(self, header: re.Match[str], at: Moment) -> list[Event]:
        begun = _Waiting(normal_pci(header["pci"]), at, header[0])
        if _ends(header["rest"]):
            return self._told(begun, at, header["rest"], header[0])
        self._headers.append(begun)
        return []

    def _sentence(self, text: str, at: Moment) -> list[Event]:
        """Take a further line of the oldest sentence begun."""
        while self._headers and not self._headers[0].at.near(at, _SAME_S, _SAME_RECORDS):
            self._headers.popleft()
        if not self._headers:
            return []
        begun = self._headers[0]
        whole = f"{begun.message} {text.removeprefix('NVRM: ').strip()}"
        if _ends(text):
            self._headers.popleft()
            return self._told(begun, at, text, whole)
        if _MIDDLE.search(text):
            self._headers[0] = replace(begun, message=whole[:MAX_MESSAGE])
        return []

    def _told(self, begun: _Waiting, at: Moment, end: str, whole: str) -> list[Event]:
        if _GONE in end:
            return self._gone(begun.pci, at, whole)
        return self._did_not_start(begun.pci, at, whole)

    def _gone(self, pci: str | None, at: Moment, text: str) -> list[Event]:
        self._explained.append(at)
        known = self._lost.get(pci)
        if known is not None and known.near(at, _SAME_S, _SAME_RECORDS):
            return []
        self._remember(self._lost, pci, at)
        self._held[pci] = (_event(OFF_BUS, pci, at, text), at)
        return []

    def _no_adapter(self, found: re.Match[str], at: Moment, text: str) -> list[Event]:
        pci = normal_pci(found["pci"]) if found["pci"] else None
        before = self._adapter.get(pci)
        # `RmInitAdapter failed!` and `rm_init_adapter failed` are printed for one attempt.
        if found["text"].startswith("rm_") and before and before.near(at, _PAIR_S, _PAIR_RECORDS):
            return []
        self._remember(self._adapter, pci, at)
        return self._did_not_start(pci, at, text)

    def _probe(self, pci: str | None, at: Moment, text: str) -> list[Event]:
        lost, failed = self._lost.get(pci), self._failed.get(pci)
        if (lost and lost.near(at, _SAME_S, _SAME_RECORDS)) or (
            failed and failed.near(at, _PAIR_S, _PAIR_RECORDS)
        ):
            self._explained.append(at)
            return []
        cut = [begun for begun in self._headers if begun.pci == pci]  # its end did not come
        self._headers = deque((w for w in self._headers if w.pci != pci), maxlen=_REMEMBERED)
        return self._did_not_start(pci, at, cut[-1].message if cut else text)

    def _summed_up(self, cards: int, at: Moment, text: str) -> list[Event]:
        """Take the sum of a round of probes: an event only for cards not told before."""
        events: list[Event] = []
        while self._headers:
            cut = self._headers.popleft()  # the rest of its sentence was lost
            if cut.at.near(at, _SAME_S, _SAME_RECORDS):
                events += self._did_not_start(cut.pci, at, cut.message)
        told = sum(1 for moment in self._explained if moment.near(at, _SAME_S, _SAME_RECORDS))
        self._explained.clear()
        if told < cards and not events:
            events += self._did_not_start(None, at, text)
            self._explained.clear()
        return events

    def _did_not_start(self, pci: str | None, at: Moment, text: str) -> list[Event]:
        self._explained.append(at)
        self._remember(self._failed, pci, at)
        return [_event(INIT_FAILED, pci, at, text)]

    @staticmethod
    def _remember(where: dict[str | None, Moment], pci: str | None, at: Moment) -> None:
        where.pop(pci, None)
        where[pci] = at
        if len(where) > _REMEMBERED:
            del where[next(iter(where))]


def _ends(text: str) -> bool:
    return _GONE in text or _REFUSED.search(text) is not None


def _event(kind: str, pci: str | None, at: Moment, text: str) -> Event:
    message = clean(text.replace("NVRM: ", ""))
    return Event(kind, at.time, pci, message=message, uptime=at.uptime)
