# SPDX-License-Identifier: Apache-2.0
"""The thread that waits for driver events, over a driver that does as it is told."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cardwatch.nvml.codes import (
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    TIMEOUT,
    UNKNOWN,
    DriverError,
)
from cardwatch.probe import event_watch
from cardwatch.probe.event_watch import XID, EventWatch

PATIENCE_S = 20.0


class FakeDriver:
    """Cards by index. Waits end at once while there is an event, an error or nothing to do."""

    def __init__(self, cards: int = 2) -> None:
        self.cards = cards
        self.calls: Counter[str] = Counter()
        self.fail: dict[str, int] = {}
        self.fail_card: dict[tuple[str, int], int] = {}
        self.sets: list[set[int]] = []
        self.events: list[tuple[int, int, int]] = []
        self.changed = threading.Condition()
        self.hang = threading.Event()
        self.hang.set()

    def call(self, name: str, *args: Any) -> Any:
        with self.changed:
            self.calls[name] += 1
            self.changed.notify_all()
        self.hang.wait()
        if name in self.fail:
            raise DriverError(self.fail[name])
        return getattr(self, name)(*args)

    def _check(self, name: str, index: int) -> None:
        if (name, index) in self.fail_card:
            raise DriverError(self.fail_card[name, index])

    def EventSetCreate(self) -> set[int]:
        made: set[int] = set()
        self.sets.append(made)
        return made

    def EventSetFree(self, event_set: set[int]) -> None:
        self.sets = [each for each in self.sets if each is not event_set]

    def DeviceGetHandleByIndex(self, index: int) -> int:
        self._check("DeviceGetHandleByIndex", index)
        return index

    def DeviceGetUUID(self, handle: int) -> str:
        self._check("DeviceGetUUID", handle)
        return f"GPU-{handle}"

    def DeviceGetSupportedEventTypes(self, handle: int) -> int:
        self._check("DeviceGetSupportedEventTypes", handle)
        return 0x1F

    def DeviceRegisterEvents(self, handle: int, types: int, event_set: set[int]) -> int:
        assert types == XID  # of what the card has, only what we want
        self._check("DeviceRegisterEvents", handle)
        event_set.add(handle)
        return 100 + handle

    def EventSetWait(self, event_set: set[int], _milliseconds: int) -> Any:
        for number, (card, kind, data) in enumerate(self.events):
            if card in event_set:
                del self.events[number]
                return 100 + card, kind, data, None, None
        with self.changed:
            self.changed.wait(0.005)
        raise DriverError(TIMEOUT)

    def await_calls(self, name: str, more: int = 1) -> None:
        """Wait until so many more calls of a name have begun."""
        with self.changed:
            wanted = self.calls[name] + more
            assert self.changed.wait_for(lambda: self.calls[name] >= wanted, PATIENCE_S), self.calls


class Scene:
    """A watch that has begun, and what its pauses were."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.driver = FakeDriver()
        self.listed: int | None = 2
        self.lost: set[str] = set()
        monkeypatch.setattr(event_watch, "_FIRST_PAUSE_S", 0.01)
        monkeypatch.setattr(event_watch, "_LAST_PAUSE_S", 0.08)
        self.watch = EventWatch(self.driver, lambda: self.listed, lambda: self.lost)

    def start(self) -> Scene:
        self.watch.start()
        return self

    def await_state(self, wanted: tuple[bool | None, str | None]) -> None:
        """Wait until the watch says so."""
        self._await(lambda: self.watch.state(60.0) == wanted)

    def events(self, number: int) -> list[tuple[str, int]]:
        """Wait for so many events and return card and Xid of each."""
        found: list[tuple[str, int]] = []

        def enough() -> bool:
            found.extend((event.uuid, event.data) for event in self.watch.take())
            return len(found) >= number

        self._await(enough)
        return found

    def _await(self, holds: Callable[[], bool]) -> None:
        with self.driver.changed:
            assert self.driver.changed.wait_for(holds, PATIENCE_S), self.watch.state(60.0)

    def end(self) -> None:
        """Let the thread do nothing but sleep."""
        self.driver.hang.set()
        if self.watch.is_alive():
            self.watch.leave(PATIENCE_S)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    made = Scene(monkeypatch)
    yield made
    made.end()


class _Poll(threading.Condition):
    """A condition that is looked at often, for what no notice tells of."""

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        for _ in range(int((timeout or PATIENCE_S) / 0.005)):
            if predicate():
                return True
            self.wait(0.005)
        return False


@pytest.fixture(autouse=True)
def _look_often(scene: Scene) -> None:
    scene.driver.changed = _Poll()


def test_events_carry_the_card_that_was_registered(scene: Scene) -> None:
    """By the key of the registration, whatever else a handle would tell."""
    scene.start().await_state((True, None))
    scene.driver.events += [(1, XID, 31), (0, XID, 43)]
    assert sorted(scene.events(2)) == [("GPU-0", 43), ("GPU-1", 31)]


def test_an_event_of_a_lost_card_still_has_its_name(scene: Scene) -> None:
    """Its handle answers nothing any more, and nobody asks it."""
    scene.start().await_state((True, None))
    scene.driver.fail_card["DeviceGetUUID", 1] = GPU_IS_LOST
    scene.driver.events.append((1, XID, 79))
    assert scene.events(1) == [("GPU-1", 79)]


def test_events_of_other_kinds_or_cards_are_left_out(scene: Scene) -> None:
    """Clock events would flood, and a key that nobody registered is no card."""
    scene.start().await_state((True, None))
    scene.driver.events += [(0, 0x10, 1), (0, XID, 31)]
    assert scene.events(1) == [("GPU-0", 31)]


def test_after_an_error_it_registers_anew_with_pauses(scene: Scene) -> None:
    """Each failing wait has a set of its own, and the pauses grow."""
    scene.driver.fail["EventSetWait"] = GPU_IS_LOST
    pauses = [scene.watch._turn() for _ in range(6)]
    assert pauses == [0.01, 0.02, 0.04, 0.08, 0.08, 0.08]
    scene.start()
    scene.driver.await_calls("EventSetCreate", 3)
    scene.await_state((False, "gpu_is_lost"))
    del scene.driver.fail["EventSetWait"]
    scene.await_state((True, None))
    assert len(scene.driver.sets) == 1


def test_no_turn_makes_many_calls(scene: Scene) -> None:
    """One turn that fails at once is a handful of calls, then there is a pause."""
    driver = scene.driver
    driver.fail["EventSetWait"] = GPU_IS_LOST
    for turn in range(1, 8):
        assert scene.watch._turn() > 0
        assert driver.calls["EventSetWait"] == turn
        assert driver.calls["EventSetCreate"] == driver.calls["EventSetFree"] == turn


def test_pauses_begin_anew_after_a_wait_that_worked(scene: Scene) -> None:
    """A second error, days later, is not punished for the first."""
    driver = scene.driver
    driver.fail["EventSetWait"] = UNKNOWN
    assert [scene.watch._turn() for _ in range(3)] == [0.01, 0.02, 0.04]
    del driver.fail["EventSetWait"]

    def once(_event_set: set[int], _milliseconds: int) -> Any:
        driver.fail["EventSetWait"] = UNKNOWN
        return 100, XID, 31, None, None

    driver.EventSetWait = once  # type: ignore[method-assign]
    assert scene.watch._turn() == 0.01
    assert [event.data for event in scene.watch.take()] == [31]


def test_while_no_cards_are_listed_the_pause_does_not_grow(scene: Scene) -> None:
    """No driver call is made, and cards may be back any time."""
    scene.listed = None
    assert [scene.watch._turn() for _ in range(8)] == [0.01] * 8
    assert not scene.driver.calls
    assert scene.watch.state(60.0) == (False, "no_cards")


def test_a_lost_card_is_left_out(scene: Scene) -> None:
    """It would end every wait of all others."""
    scene.lost = {"GPU-0"}
    scene.start().await_state((True, None))
    assert scene.driver.sets == [{1}]
    scene.lost = set()
    scene.watch.renew()
    scene.driver.await_calls("DeviceRegisterEvents", 2)
    scene.driver.await_calls("EventSetWait", 2)
    assert scene.driver.sets == [{0, 1}]


def test_when_all_cards_are_lost_the_source_is_down(scene: Scene) -> None:
    """It is not a node whose cards have no events."""
    scene.lost = {"GPU-0", "GPU-1"}
    scene.start().await_state((False, "gpu_is_lost"))
    scene.lost = set()
    scene.watch.renew()
    scene.await_state((True, None))


def test_a_card_that_fails_to_register_makes_a_new_set(scene: Scene) -> None:
    """The old set is undefined after that; the others are registered without that card."""
    scene.driver.fail_card["DeviceRegisterEvents", 0] = UNKNOWN
    scene.start().await_state((True, None))
    assert scene.driver.calls["EventSetCreate"] == 2
    assert scene.driver.calls["EventSetFree"] == 1
    assert scene.driver.sets == [{1}]


@pytest.mark.parametrize(("code", "name"), [(UNKNOWN, "unknown"), (NO_PERMISSION, "no_permission")])
def test_when_no_card_can_be_registered_the_source_is_down(
    scene: Scene, code: int, name: str
) -> None:
    """An error of every card is not a node without events; no set is left behind."""
    scene.driver.fail_card = {("DeviceRegisterEvents", card): code for card in range(2)}
    scene.start().await_state((False, name))
    scene.end()
    assert scene.driver.sets == []


def test_cards_without_events_are_no_source(scene: Scene) -> None:
    """Nothing is waited for, and nothing is asked again and again, until the list changes."""
    scene.driver.fail["DeviceGetSupportedEventTypes"] = NOT_SUPPORTED
    scene.start().await_state((None, None))
    assert scene.driver.calls["EventSetWait"] == 0
    assert scene.driver.sets == []
    del scene.driver.fail["DeviceGetSupportedEventTypes"]
    scene.watch.renew()
    scene.await_state((True, None))


def test_a_new_list_of_cards_is_taken_up_at_once(scene: Scene) -> None:
    """Renewing ends the wait under way and frees its set."""
    scene.start().await_state((True, None))
    scene.driver.cards = scene.listed = 3
    scene.watch.renew()
    scene.driver.await_calls("DeviceRegisterEvents", 3)
    scene.driver.events.append((2, XID, 31))
    assert scene.events(1) == [("GPU-2", 31)]
    assert len(scene.driver.sets) == 1


def test_leaving_keeps_it_out_of_the_driver_until_it_may_come_back(scene: Scene) -> None:
    """After leave there is no call and no set, then everything is as before."""
    scene.start().await_state((True, None))
    scene.watch.leave(PATIENCE_S)
    assert scene.driver.sets == []
    before = scene.driver.calls.copy()
    scene.watch.renew()
    scene.watch.leave(PATIENCE_S)
    assert scene.driver.calls == before
    scene.watch.come_back()
    scene.await_state((True, None))
    scene.driver.events.append((0, XID, 31))
    scene.driver.await_calls("EventSetWait", 3)
    assert scene.events(1) == [("GPU-0", 31)]


@pytest.mark.parametrize("name", ["EventSetCreate", "DeviceRegisterEvents", "EventSetWait"])
def test_a_call_that_hangs_is_a_timeout(scene: Scene, name: str) -> None:
    """Also before any wait has worked; nobody else waits for it."""
    real = scene.driver.call
    gate = threading.Event()

    def call(asked: str, *args: Any) -> Any:
        if asked == name:
            gate.wait(PATIENCE_S)
        return real(asked, *args)

    scene.driver.call = call  # type: ignore[method-assign]
    scene.start()
    scene._await(lambda: scene.watch.state(-0.45) == (False, "timeout"))
    assert scene.watch.take() == []
    gate.set()
    scene.await_state((True, None))


def test_an_error_that_nobody_thought_of_does_not_end_the_thread(scene: Scene) -> None:
    """It is said, and tried again."""
    real = scene.driver.EventSetCreate

    def broken() -> set[int]:
        raise ValueError("no such thing")

    scene.driver.EventSetCreate = broken  # type: ignore[method-assign]
    scene.start().await_state((False, "internal_error"))
    scene.driver.EventSetCreate = real  # type: ignore[method-assign]
    scene.await_state((True, None))
