# SPDX-License-Identifier: Apache-2.0
"""The book of cards: who is listed where, who answers, who is lost, and since when.

A card is known by its UUID. An index that gives none is mapped to the card
last seen there, unless that card shows up elsewhere. Readings of a card that
answers with an error are dropped at once; those of a card that does not answer
at all are kept for three intervals at most.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from cardwatch.families import BY_NAME
from cardwatch.nvml.codes import Outcome
from cardwatch.sample import WHOLE_CARD, CardSample
from cardwatch.supervisor.roster import Roster
from cardwatch.supervisor.throttle import ThrottleClock

FRESH_INTERVALS = 3

_NOT_ERRORS = (Outcome.UNSUPPORTED.value, Outcome.DENIED.value)


@dataclass
class Slot:
    """What is at one index of the driver's list.

    ``mark`` overrides the sample's state until the next sample: hung, unreadable.
    """

    sample: CardSample
    mark: str | None = None
    cause: str | None = None


@dataclass
class Card:
    """Everything remembered about one card for as long as this process lives."""

    uuid: str
    index: int
    pci: str = ""
    info: dict[str, str] = field(default_factory=dict)
    answered: float = -math.inf
    seen: float = -math.inf
    sample: CardSample | None = None
    once_up: bool = False
    throttle: ThrottleClock = field(default_factory=ThrottleClock)
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)


@dataclass(frozen=True)
class View:
    """One card as it is shown now. ``sample`` is None when no reading may be shown."""

    card: Card
    index: int
    state: str
    up: bool
    cause: str | None
    sample: CardSample | None

    @property
    def readings_by_status(self) -> dict[str, int]:
        """Count readings by ok, unsupported, denied, failed; empty without a sample."""
        if self.sample is None:
            return {}
        faults = self.sample.faults
        counts = dict.fromkeys((outcome.value for outcome in Outcome), 0)
        counts["ok"] = sum(1 for family in self.sample.rows if family not in faults)
        for family, fault in faults.items():
            if fault == Outcome.UNSUPPORTED.value and family in self.sample.rows:
                counts["ok"] += 1  # some rows of it read, the others the card lacks
            else:
                counts[fault if fault in _NOT_ERRORS else "failed"] += 1
        return counts


class Cards:
    """The book. Times are monotonic seconds unless said otherwise."""

    def __init__(self, roster: Roster, interval: float) -> None:
        self.roster = roster
        self.interval = interval
        self.known: dict[str, Card] = {}
        self.slots: dict[int, Slot] = {}
        self.listed: int | None = None
        self.answered = -math.inf
        self._at_slot: dict[int, str] = {}
        self._absent: set[str] = set()
        for uuid, entry in roster.cards.items():
            if entry.established:
                self._card(uuid, entry.index)

    def _card(self, uuid: str, index: int) -> Card:
        """Return the card of this name; a new one begins with what the roster knows of it."""
        card = self.known.get(uuid)
        if card is None:
            entry = self.roster.cards.get(uuid)
            card = Card(uuid, index)
            if entry is not None:
                card.pci, card.info = entry.pci, dict(entry.info)
            self.known[uuid] = card
        return card

    # -- taking in ------------------------------------------------------------------

    def take(self, samples: list[CardSample]) -> None:
        """Take in new samples, one per slot at most."""
        for sample in samples:
            self.slots[sample.slot] = Slot(sample)
        owners = self._owners()
        for sample in samples:
            self._take(owners[sample.slot], sample)

    def _take(self, uuid: str, sample: CardSample) -> None:
        card = self._card(uuid, sample.slot)
        card.index, card.seen = sample.slot, sample.monotonic
        card.sample = sample
        if sample.pci:
            card.pci = sample.pci
        if sample.info:
            card.info = dict(sample.info)
        self._drop_made_up(uuid, sample)
        if sample.uuid is not None:
            self._at_slot[sample.slot] = uuid
        if sample.up:
            card.answered = self.answered = sample.monotonic
            card.once_up = True
            if not _is_pseudo(uuid):
                self.roster.saw(uuid, sample.time, card.index, card.pci, card.info)
        card.throttle.add(sample.reasons, sample.monotonic, self.interval)
        for family, fault in sample.faults.items():
            if fault not in _NOT_ERRORS:
                card.errors[reading_name(family), fault] += 1

    def _drop_made_up(self, uuid: str, sample: CardSample) -> None:
        """Drop names that we made up for this card while it told less about itself."""
        for name in (f"pci-{sample.pci}", f"index-{sample.slot}"):
            if name != uuid and self.known.pop(name, None) is not None:
                self._absent.discard(name)

    def _owners(self) -> dict[int, str]:
        """Return who is at each slot: told by the driver, else remembered, else made up."""
        owners = {i: s.sample.uuid for i, s in self.slots.items() if s.sample.uuid is not None}
        claimed = set(owners.values())
        for index, slot in sorted(self.slots.items()):
            if index not in owners:
                uuid = self._remembered(index, claimed) or _pseudo(slot.sample)
                claimed.add(uuid)
                owners[index] = uuid
        return owners

    def _remembered(self, index: int, claimed: set[str]) -> str | None:
        """Return the card last seen at an index, if no other index shows it now."""
        last = self._at_slot.get(index)
        if last is not None and last not in claimed:
            return last
        here = [
            (entry.last_seen, uuid)
            for uuid, entry in self.roster.cards.items()
            if entry.index == index and uuid not in claimed
        ]
        return max(here)[1] if here else None

    def relist(self, listed: int) -> None:
        """Take in the number of cards listed; slots beyond it are no more."""
        self.listed = listed
        for index in [i for i in self.slots if i >= listed]:
            del self.slots[index]

    def mark(self, index: int, state: str, cause: str) -> None:
        """Show the card at an index as hung or unreadable until its next sample."""
        slot = self.slots.get(index)
        if slot is None:
            # It hung before it ever answered: all we know is its place.
            slot = self.slots[index] = Slot(CardSample(slot=index, up=False, state="unreadable"))
            slot.sample.monotonic = -math.inf
            self._card(self._owners()[index], index)
        elif slot.mark == state:
            return
        if state == "hung":
            self.known[self._owners()[index]].errors[WHOLE_CARD, "timeout"] += 1
        slot.mark, slot.cause = state, cause

    def mark_all(self, state: str, cause: str) -> None:
        """Show every card so, as when the whole driver is away."""
        for index in list(self.slots):
            if self.slots[index].mark != "hung":
                self.mark(index, state, cause)

    def find_lost(self) -> None:
        """Decide which known cards the driver no longer lists.

        A card is missing when every index that is not hung was read after the
        card was last seen, and no index, hung ones included, is its place.
        """
        if self.listed is None or len(self.slots) < self.listed:
            return
        here = set(self._owners().values())
        read = [s.sample.monotonic for s in self.slots.values() if s.mark != "hung"]
        oldest = min(read, default=math.inf)
        for uuid, card in list(self.known.items()):
            if uuid in here:
                self._absent.discard(uuid)
            elif card.seen < oldest:
                self._missing(uuid, card)

    def _missing(self, uuid: str, card: Card) -> None:
        """Miss a card that was once up here or is established; drop one we hardly knew."""
        entry = self.roster.cards.get(uuid)
        if uuid.startswith("index-") or not (card.once_up or (entry and entry.established)):
            del self.known[uuid]
        else:
            self._absent.add(uuid)

    def forget(self, uuids: list[str]) -> None:
        """Drop cards that somebody took off the roster, unless they are here."""
        here = set(self._owners().values())
        for uuid in uuids:
            if uuid not in here:
                self.known.pop(uuid, None)
                self._absent.discard(uuid)

    # -- showing --------------------------------------------------------------------

    def views(self, now: float, away: tuple[str, str] | None) -> list[View]:
        """Return every known card as shown now, in the order of the list.

        ``away``: state and cause for all of them, when the driver is away altogether.
        A card of the roster that nobody has looked for yet is neither up nor down.
        """
        owners = {uuid: index for index, uuid in self._owners().items()}
        views = [
            self._view(card, owners.get(uuid), now, away)
            for uuid, card in self.known.items()
            if away is not None or uuid in owners or uuid in self._absent or card.seen > -math.inf
        ]
        return sorted(views, key=lambda view: (view.index, view.card.uuid))

    def _view(
        self, card: Card, index: int | None, now: float, away: tuple[str, str] | None
    ) -> View:
        fresh = now - card.seen <= FRESH_INTERVALS * self.interval
        slot = None if index is None else self.slots[index]
        if card.uuid in self._absent and away is None:
            return View(card, card.index, "lost", False, "not_listed", None)
        if away is not None:
            hung = slot is not None and slot.mark == "hung" and away[0] == "unreadable"
            state, cause = ("hung", "timeout") if hung else away
        elif slot is not None and slot.mark is not None:
            state, cause = slot.mark, slot.cause or "unknown_error"
        elif not fresh or card.sample is None:
            state, cause = "unreadable", "timeout"
        else:
            sample = card.sample
            return View(card, sample.slot, sample.state, sample.up, sample.error, sample)
        shown = card.sample if fresh and state in ("hung", "detached") else None
        return View(card, card.index, state, False, cause, shown)

    def source_fresh(self, now: float) -> bool:
        """Say whether one card answered within three intervals."""
        return now - self.answered <= FRESH_INTERVALS * self.interval


def reading_name(family: str) -> str:
    """Return the name of a reading in error counters."""
    record = BY_NAME.get(family)
    return family if record is None else record.reading


def _pseudo(sample: CardSample) -> str:
    return f"pci-{sample.pci}" if sample.pci else f"index-{sample.slot}"


def _is_pseudo(uuid: str) -> bool:
    return uuid.startswith(("pci-", "index-"))
