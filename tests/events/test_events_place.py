# SPDX-License-Identifier: Apache-2.0
"""Which card an event of the kernel log belongs to, and when counting begins."""

from __future__ import annotations

import time

from cardwatch.kernlog.event import XID, Event
from cardwatch.kmsg.batch import Batch, Record
from cardwatch.kmsg.position import Position
from cardwatch.sample import DriverEvent, Frame
from cardwatch.supervisor.cards import Cards
from cardwatch.supervisor.watch import Watch, WatchOptions
from supervisor.samples import book, card, established

PCI = "0000:b1:00"


def _watch(cards: Cards) -> Watch:
    return Watch(WatchOptions(None, "off"), cards, lambda: None)


def _tell(watch: Watch, pci: str = PCI) -> set[str]:
    """Tell of an Xid at an address and return the names that have counters."""
    now = time.time()
    record = Record(1, now, now, "text", (Event(XID, code=79, pci=pci),))
    watch.book.take_batch(Batch((record,), Position("log", "boot", 1)))
    return set(watch.counters())


def test_a_card_is_found_by_its_place() -> None:
    """By what it told, by what the roster remembers, else by the place itself."""
    cards = book()
    cards.relist(1)
    cards.take([card(0, "GPU-a", 1.0, pci=PCI)])
    assert _tell(_watch(cards)) == {"GPU-a"}
    assert _tell(_watch(book(GPU_b=established(0)))) == {"GPU-b"}
    assert _tell(_watch(book())) == {f"pci-{PCI}"}


def test_after_a_card_was_exchanged_the_new_one_is_meant() -> None:
    """The old card stays known as lost, at the same address."""
    cards = book(GPU_old=established(0))
    cards.relist(1)
    cards.take([card(0, "GPU-new", 1.0, pci=PCI)])
    assert {c.pci for c in cards.known.values()} == {PCI}
    assert _tell(_watch(cards)) == {"GPU-new"}


def test_of_two_cards_that_the_roster_remembers_the_newer_is_meant() -> None:
    """Neither answers, and both were once at this address."""
    known = {"GPU_z": established(0, 5_000.0), "GPU_a": established(0, 9_000.0)}
    assert _tell(_watch(book(**known))) == {"GPU-a"}


def test_counting_begins_with_the_first_source() -> None:
    """A driver that waits for events is one; that it stops later changes nothing."""
    watch = _watch(book())
    assert not watch.counting
    watch.take_frame(Frame(pid=1, watching=False, watch_error="no_cards"))
    assert not watch.counting
    watch.take_frame(Frame(pid=1, watching=True))
    assert watch.counting
    watch.take_frame(Frame(pid=1, watching=False, watch_error="timeout"))
    assert watch.counting


def test_without_a_kernel_log_the_driver_counts_at_once() -> None:
    """There is no line to wait for."""
    watch = _watch(book())
    told = DriverEvent("GPU-a", 0x8, 31, time.time())
    watch.take_frame(Frame(pid=1, watching=True, events=[told]))
    assert {key.code for key in watch.counters()["GPU-a"]} == {31}
