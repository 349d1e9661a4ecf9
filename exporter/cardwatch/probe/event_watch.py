# SPDX-License-Identifier: Apache-2.0
"""Waits for driver events (Xid and the like) in a thread of its own.

Registers every listed card, waits in short turns, and registers anew with
pauses after an error: a lost card makes the wait fail at once, again and again,
and a loop without a pause would burn a core. Which card an event speaks of is
known from its registration, because the handle of a lost card tells nothing.

Xid 79, 119 and 120 are not dependable here (NVIDIA/DCGM#162), which is why the
kernel log is read as well; and an event is lost that comes before registration.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from cardwatch.nvml.calls import Driver
from cardwatch.nvml.codes import GPU_IS_LOST, NAMES, TIMEOUT, DriverError, Outcome
from cardwatch.sample import DriverEvent
from cardwatch.text import label

XID, MIG_CHANGE, UNAVAILABLE, RECOVERY = 0x8, 0x100, 0x4000, 0x8000
"""nvmlEventType bits of nvml.h. Clock and P-state events are left out: they flood."""

WANTED = XID | MIG_CHANGE | UNAVAILABLE | RECOVERY

_WAIT_MS = 500
_FIRST_PAUSE_S, _LAST_PAUSE_S = 1.0, 30.0
_MOST_WAITING = 1000


class EventWatch(threading.Thread):
    """The thread.

    listed  says how many cards there are now, None while the driver is away.
    lost    says which cards do not answer, by UUID: one of them in the set would
            end every wait for all.
    """

    def __init__(
        self,
        driver: Driver,
        listed: Callable[[], int | None],
        lost: Callable[[], set[str]] = set,
    ) -> None:
        super().__init__(name="driver-events", daemon=True)
        self._driver = driver
        self._listed = listed
        self._lost = lost
        self._lock = threading.Lock()
        self._events: list[DriverEvent] = []
        self._renew = threading.Event()
        self._idle = threading.Event()
        self._stopped = False
        self._beat = time.monotonic()
        self._error: str | None = "starting"
        self._supported: bool | None = None
        self._pause = _FIRST_PAUSE_S
        self._worked = False

    def take(self) -> list[DriverEvent]:
        """Return the events since the last call; never blocks on the driver."""
        with self._lock:
            events, self._events = self._events, []
        return events

    def renew(self) -> None:
        """Register anew soon, because the list of cards has changed."""
        self._renew.set()

    def leave(self, timeout: float) -> None:
        """Stay out of the driver from now on, so that it can be shut down; waits for that."""
        self._stopped = True
        self._renew.set()
        self._idle.wait(timeout)

    def come_back(self) -> None:
        """Watch again after ``leave``."""
        self._stopped = False

    def state(self, deadline: float) -> tuple[bool | None, str | None]:
        """Return whether events are waited for (None: no card has any) and why not."""
        busy = not self._idle.is_set()
        if busy and time.monotonic() - self._beat > deadline + _WAIT_MS / 1000:
            return False, "timeout"
        if self._supported is False:
            return None, None
        return self._error is None, self._error

    def run(self) -> None:
        """Watch for ever."""
        while True:
            pause = self._turn()
            if self._stopped:
                time.sleep(pause)
            else:
                self._renew.wait(pause)  # each turn takes the flag back, so this is no busy loop

    def _turn(self) -> float:
        """Watch until an error or a new list of cards; return how long to pause after that."""
        self._beat = time.monotonic()
        self._idle.clear()
        self._worked = False
        failed = False
        try:
            if not self._stopped:
                self._watch()
        except DriverError as error:
            self._error, failed = error.name, True
        except Exception:  # whatever it is, the thread must not end
            self._error, failed = "internal_error", True
        self._idle.set()
        if self._worked or not failed:
            self._pause = _FIRST_PAUSE_S
            return _FIRST_PAUSE_S
        pause, self._pause = self._pause, min(self._pause * 2, _LAST_PAUSE_S)
        return pause

    def _watch(self) -> None:
        """Register the cards and wait until an error or a new list."""
        self._renew.clear()
        listed = self._listed()
        if not listed:
            self._error = "no_cards"
            return
        event_set, cards = self._register(listed)
        try:
            while cards and not self._renew.is_set():
                self._wait_once(event_set, cards)
        finally:
            self._free(event_set)
        if not cards:
            self._idle.set()  # nothing to wait for until the list changes
            while not self._renew.is_set() and self._listed() == listed:
                self._renew.wait(_FIRST_PAUSE_S)

    def _register(self, listed: int) -> tuple[Any, dict[Any, str]]:
        """Return an event set and, by the key that events carry, the UUID of each card in it.

        A card that fails to register leaves the set undefined: it is made anew
        without that card, so that one broken card does not hide the others.
        Raises the last card's error where no card could be registered because of errors.
        """
        broken: set[int] = set()
        problem: DriverError | None = None
        while True:
            event_set = self._driver.call("EventSetCreate")
            cards: dict[Any, str] = {}
            for index in sorted(set(range(listed)) - broken):
                self._beat = time.monotonic()
                try:
                    self._register_card(index, event_set, cards)
                except DriverError as error:
                    problem = problem if error.outcome is Outcome.UNSUPPORTED else error
                    if error.outcome is Outcome.FAILED:
                        broken.add(index)
                        break
            else:
                if problem is not None and not cards:
                    self._free(event_set)
                    raise problem
                self._note_support(cards)
                return event_set, cards
            self._free(event_set)

    def _note_support(self, cards: dict[Any, str]) -> None:
        """Note whether cards have events; those that are lost do not count as having none."""
        if cards:
            self._supported = True
        elif self._lost():
            self._error = NAMES[GPU_IS_LOST]
        else:
            self._supported = False

    def _register_card(self, index: int, event_set: Any, cards: dict[Any, str]) -> None:
        handle = self._driver.call("DeviceGetHandleByIndex", index)
        uuid = label(str(self._driver.call("DeviceGetUUID", handle)))
        if uuid in self._lost():
            return
        types = int(self._driver.call("DeviceGetSupportedEventTypes", handle)) & WANTED
        if types:
            key = self._driver.call("DeviceRegisterEvents", handle, types, event_set)
            cards[key] = uuid

    def _wait_once(self, event_set: Any, cards: dict[Any, str]) -> None:
        self._beat = time.monotonic()
        try:
            key, kind, data, gpu_instance, compute_instance = self._driver.call(
                "EventSetWait", event_set, _WAIT_MS
            )
        except DriverError as error:
            if error.code != TIMEOUT:
                raise
            self._error, self._worked = None, True
            return
        self._error, self._worked = None, True
        uuid = cards.get(key)
        if uuid is None or not kind & WANTED:
            return
        event = DriverEvent(uuid, kind, data, round(time.time(), 3), gpu_instance, compute_instance)
        with self._lock:
            if len(self._events) < _MOST_WAITING:
                self._events.append(event)

    def _free(self, event_set: Any) -> None:
        try:
            self._driver.call("EventSetFree", event_set)
        except DriverError:
            pass  # nothing is left to free
