# SPDX-License-Identifier: Apache-2.0
"""What the source makes of a child's frames, and what the page then says."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from cardwatch.families.record import Profile
from cardwatch.host.facts import HostFacts
from cardwatch.sample import Frame
from cardwatch.supervisor.cards import Cards
from cardwatch.supervisor.child import Child
from cardwatch.supervisor.gpu import GpuSource
from cardwatch.supervisor.snapshot import Identity, SeriesBuilder, Snapshot, take
from supervisor.samples import book, card, frame, open_call, states, unreadable

DEADLINE = 5.0


@dataclass
class FakeProcess:
    pid: int = 4711


@dataclass
class FakeChild:
    """A child that ends when it is asked to, unless it is stubborn."""

    process: FakeProcess = field(default_factory=FakeProcess)
    terminated_at: float | None = None
    closed_at: float | None = None
    call_since: float | None = None
    last_heard: float = field(default_factory=time.monotonic)
    ended: int | None = None
    overdue: bool = False
    listening: bool = True

    def terminate(self) -> None:
        self.terminated_at = time.monotonic()

    def stop_listening(self) -> None:
        self.listening = False


class Rig:
    """A source with a child that the test speaks for."""

    def __init__(self, cards: Cards | None = None) -> None:
        self.cards = cards or book()
        self.changes = 0
        self.source = GpuSource({}, self.cards, DEADLINE, self._changed)
        self.child = FakeChild()
        self.source.child = cast(Child, self.child)

    def _changed(self) -> None:
        self.changes += 1

    def say(self, said: Frame) -> None:
        self.source._on_frame(cast(Child, self.child), said)

    def junk(self, lines: int) -> None:
        for _ in range(lines):
            self.source._on_garbage(cast(Child, self.child), "not a frame")

    def all_well(self, count: int = 2) -> None:
        now = time.monotonic()
        self.say(frame(*(card(slot, f"GPU-{slot}", now) for slot in range(count))))

    def snapshot(self, host: HostFacts | None = None) -> Snapshot:
        identity = Identity("node-1", "nvml", Profile.FULL, self.cards.interval)
        return take(identity, self.source, host or HostFacts())

    def series(self) -> dict[str, dict[tuple[str, ...], float]]:
        """Return the rows of each family by the labels after the node."""
        rows = SeriesBuilder(dict).build(self.snapshot(), self.source)
        return {
            name: {labels[1:]: value for labels, value in family} for name, family in rows.items()
        }

    def states(self) -> dict[str, str]:
        return states(self.cards, time.monotonic(), self.source.away)


def test_before_the_first_frame_the_source_is_starting() -> None:
    """Not ready, and no card is judged."""
    snap = Rig().snapshot()
    assert (snap.ready, snap.reason) == (False, "the first sample is not done")
    assert (snap.source_up, snap.source_error) == (False, "starting")


def test_a_first_pass_makes_the_source_up_and_ready() -> None:
    """One card that answers is enough."""
    rig = Rig()
    rig.say(frame(card(0, "GPU-0", time.monotonic()), unreadable(1, time.monotonic())))
    snap = rig.snapshot()
    assert (snap.ready, snap.source_up, snap.source_error, snap.listed) == (True, True, None, 2)


def test_a_call_past_the_deadline_marks_its_card_only() -> None:
    """The other cards answer, so nothing is replaced."""
    rig = Rig()
    rig.all_well()
    rig.say(frame(card(0, "GPU-0", time.monotonic()), listed=2, open_calls=[open_call(1, 5.0)]))
    assert rig.states() == {"GPU-0": "ok", "GPU-1": "hung"}
    assert rig.child.terminated_at is None
    assert rig.source.restarts == 0


def test_a_call_before_the_deadline_marks_nothing() -> None:
    """Slow is not hung."""
    rig = Rig()
    rig.all_well()
    rig.say(frame(listed=2, open_calls=[open_call(slot, 4.9) for slot in range(2)]))
    assert rig.states() == {"GPU-0": "ok", "GPU-1": "ok"}


def test_when_all_calls_are_past_the_deadline_the_child_is_asked_to_end() -> None:
    """Once, with the cards hung and the source down with timeout."""
    rig = Rig()
    rig.all_well()
    for _ in range(3):
        rig.say(frame(listed=2, open_calls=[open_call(slot, 6.0) for slot in range(2)]))
    assert rig.child.terminated_at is not None
    assert rig.source.restarts == 1
    assert set(rig.states().values()) == {"hung"}
    snap = rig.snapshot()
    assert (snap.source_up, snap.source_error, snap.ready) == (False, "timeout", False)


@pytest.mark.parametrize("error", [None, "driver_not_loaded"])
def test_a_hanging_initialisation_is_all_there_is(error: str | None) -> None:
    """Before the first list, and while the driver is away, only the node's thread works."""
    rig = Rig()
    if error is not None:
        rig.all_well()
    listed = None if error is None else 2
    said = Frame(pid=1, error=error, listed=listed, open_calls=[open_call(None, 5.0)])
    rig.say(said)
    assert rig.child.terminated_at is not None
    snap = rig.snapshot(HostFacts(gpus=("0000:3b:00",)))
    assert (snap.source_error, snap.ready) == ("timeout", False)
    assert snap.reason == "source gpu is down: timeout"


def test_a_hanging_count_is_no_reason_while_cards_answer() -> None:
    """The list is not known then, the readings are."""
    rig = Rig()
    rig.all_well()
    now = time.monotonic()
    rig.say(frame(*(card(n, f"GPU-{n}", now) for n in range(2)), open_calls=[open_call(None, 60)]))
    assert rig.child.terminated_at is None
    snap = rig.snapshot()
    assert (snap.source_up, snap.listed) == (True, None)


def test_a_hung_call_about_an_index_beyond_the_list_marks_nothing() -> None:
    """Its card is lost; it must not come and go with each frame."""
    rig = Rig()
    rig.all_well()
    for _ in range(3):
        said = card(0, "GPU-0", time.monotonic())
        rig.say(frame(said, listed=1, open_calls=[open_call(1, 9.0)]))
    assert rig.states() == {"GPU-0": "ok", "GPU-1": "lost"}
    assert rig.cards.known["GPU-1"].errors == {}


def test_frames_of_a_child_that_was_asked_to_end_do_not_count() -> None:
    """What it still says may come from a wedged driver."""
    rig = Rig()
    rig.all_well()
    rig.source._replace("is tested")
    rig.all_well()
    assert set(rig.states().values()) == {"hung"}


def test_an_error_of_the_driver_is_logged_once_and_its_end_as_well(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not at every pass; another error is another line."""
    rig = Rig()
    with caplog.at_level(logging.INFO):
        for error in ("library_not_found",) * 3 + ("driver_not_loaded",) * 3:
            rig.say(Frame(pid=1, error=error))
        rig.all_well()
        rig.all_well()
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        "the driver cannot be used: library_not_found",
        "the driver cannot be used: driver_not_loaded",
        "the driver answers again",
    ]


def test_garbage_among_frames_is_logged_once_and_costs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Only a child that writes nothing else is replaced."""
    rig = Rig()
    for _ in range(20):
        rig.junk(10)
        rig.all_well()
    assert rig.source.garbage == 200
    assert rig.child.terminated_at is None
    assert len(caplog.records) == 1
    rig.junk(50)
    assert rig.child.terminated_at is not None


def test_a_dead_child_is_counted_and_the_next_one_waits(caplog: pytest.LogCaptureFixture) -> None:
    """How it ended is in the log; its last words are not the present any more."""
    rig = Rig()
    rig.all_well()
    rig.child.ended = -11
    rig.source.tick()
    assert rig.source.child is None
    assert rig.source.restarts == 1
    assert "ended with signal 11" in caplog.text
    assert rig.snapshot().listed is None
    rig.source.tick()
    assert rig.source.child is None


def test_a_child_that_dies_before_it_said_anything_is_an_unknown_error() -> None:
    """Nobody waits for ever for a first sample that cannot come."""
    rig = Rig()
    rig.child.ended = 1
    rig.source.tick()
    snap = rig.snapshot(HostFacts(gpus=("0000:3b:00",)))
    assert (snap.source_up, snap.source_error, snap.ready) == (False, "unknown_error", False)


@pytest.mark.parametrize(("worked", "waits"), [(True, False), (False, True)])
def test_a_replaced_library_is_loaded_at_once_but_not_in_a_loop(worked: bool, waits: bool) -> None:
    """A child that never worked waits like any other that died."""
    rig = Rig()
    if worked:
        rig.all_well()
    rig.child.ended = 3
    rig.source.tick()
    assert (rig.source._next_start > time.monotonic()) is waits


def test_a_pipe_that_closed_gives_the_process_a_moment_to_end() -> None:
    """Then it is asked to."""
    rig = Rig()
    rig.all_well()
    rig.child.closed_at = time.monotonic()
    rig.source.tick()
    assert rig.child.terminated_at is None
    rig.child.closed_at -= 2
    rig.source.tick()
    assert rig.child.terminated_at is not None
    assert rig.source.restarts == 1


def test_a_silent_child_is_replaced() -> None:
    """Silence beyond the deadline, though its process is there."""
    rig = Rig()
    rig.all_well()
    rig.child.last_heard -= DEADLINE + 2.1
    rig.source.tick()
    assert rig.child.terminated_at is not None
    assert rig.snapshot().source_error == "timeout"


def test_the_oldest_call_of_an_abandoned_child_stays_open() -> None:
    """A new child that works does not make the old one's call return."""
    rig = Rig()
    rig.all_well()
    rig.child.call_since = time.monotonic() - 60
    rig.source._replace("is tested")
    rig.child.overdue = True
    rig.source.tick()
    assert len(rig.source.abandoned) == 1
    assert not rig.child.listening
    newer = FakeChild(call_since=time.monotonic() - 1)
    rig.source.child = cast(Child, newer)
    assert rig.source.oldest_call_age == pytest.approx(60, abs=1)
    rig.child.ended = 0
    rig.source.tick()
    assert rig.source.abandoned == []
    assert rig.source.oldest_call_age == pytest.approx(1, abs=1)


def test_no_third_child_beside_two_abandoned_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another reader would only wedge as well."""
    started: list[Any] = []

    def start(*_args: Any) -> FakeChild:
        started.append(FakeChild())
        return started[-1]  # type: ignore[no-any-return]

    monkeypatch.setattr("cardwatch.supervisor.gpu.Child", start)
    rig = Rig()
    rig.source.child = None
    rig.source.abandoned = [cast(Child, FakeChild()), cast(Child, FakeChild())]
    rig.source.tick()
    assert started == []
    cast(FakeChild, rig.source.abandoned[0]).ended = 0
    rig.source.tick()
    assert len(started) == 1


def test_a_child_that_cannot_be_started_is_tried_again_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Out of processes is no reason to end."""

    def refuse(*_args: Any) -> FakeChild:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("cardwatch.supervisor.gpu.Child", refuse)
    rig = Rig()
    rig.source.child = None
    rig.source.tick()
    rig.source.tick()
    assert caplog.text.count("cannot start a reading child") == 1


def test_detached_outweighs_everything_until_attached_again() -> None:
    """Errors of the child that is on its way out do not show."""
    rig = Rig()
    rig.all_well()
    rig.source.detach(900)
    rig.say(Frame(pid=1, error="driver_not_loaded"))
    assert set(rig.states().values()) == {"detached"}
    snap = rig.snapshot()
    assert (snap.source_up, snap.source_error, snap.ready) == (False, "detached", False)
    rig.source.attach()
    assert rig.snapshot().source_error == "starting"
    assert set(rig.states().values()) == {"unreadable"}


def test_detaching_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the time is over a new child is started."""
    monkeypatch.setattr("cardwatch.supervisor.gpu.Child", lambda *_args: FakeChild())
    rig = Rig()
    rig.all_well()
    rig.source.detach(0.0)
    rig.child.ended = 0
    rig.source.tick()
    assert rig.source.detached_until is None
    rig.source.tick()
    assert rig.source.child is not None
    assert cast(FakeChild, rig.source.child) is not rig.child


@pytest.mark.parametrize(
    ("controls", "revoked"),
    [
        (["ok", "refused", "refused"], True),
        (["refused", "refused"], False),
        (["absent", "refused"], False),
        (["ok", "absent"], False),
        (["ok", "refused", "ok"], False),
    ],
)
def test_only_a_device_that_was_allowed_can_be_revoked(controls: list[str], revoked: bool) -> None:
    """And only as long as the driver gives an error."""
    rig = Rig()
    rig.source.revoked_exit = 0.0
    for control in controls:
        error = None if control == "ok" else "unknown_error"
        rig.say(Frame(pid=1, error=error, listed=0, control=control))
    assert rig.source.revoked is revoked


def test_a_revoked_device_is_no_concern_while_the_driver_answers() -> None:
    """Open descriptors go on working; the process must not end over it."""
    rig = Rig()
    rig.source.revoked_exit = 0.0
    rig.say(Frame(pid=1, listed=0, control="ok"))
    rig.say(Frame(pid=1, listed=0, control="refused"))
    assert not rig.source.revoked


# -- the page ----------------------------------------------------------------------------------


def test_the_exporters_sum_stands_in_where_the_driver_does_not_count() -> None:
    """The driver's counter wins where it has one, also for a moment in which it fails."""
    rig = Rig()
    on = {"hw_slowdown": True, "sw_power_cap": True}
    counted = {"gpu_throttle_seconds_total": [(("sw_power_cap",), 77.0)]}
    start = time.monotonic() - 4
    rig.say(frame(card(0, "GPU-0", start, reasons=on, rows=counted)))
    rig.say(frame(card(0, "GPU-0", start + 4, reasons=on, rows=counted)))
    rows = rig.series()["gpu_throttle_seconds_total"]
    assert rows == {
        ("0", "GPU-0", "sw_power_cap"): 77.0,
        ("0", "GPU-0", "hw_slowdown"): pytest.approx(4.0),
    }
    failing = card(0, "GPU-0", start + 5, reasons=on, rows={})
    failing.faults = {"gpu_throttle_seconds_total": "unknown"}
    rig.say(frame(failing))
    assert "gpu_throttle_seconds_total" not in rig.series()


def test_expected_links_are_those_of_the_best_card_of_the_model() -> None:
    """A lone card of its model has no expectation."""
    rig = Rig()
    now = time.monotonic()

    def linked(slot: int, model: str, links: float) -> Any:
        rows = {"gpu_nvlink_active_links": [((), links)]}
        return card(slot, f"GPU-{slot}", now, rows=rows, info={"model": model})

    rig.say(frame(linked(0, "H100", 18), linked(1, "H100", 16), linked(2, "A100", 11)))
    assert rig.series()["gpu_nvlink_expected_links"] == {
        ("0", "GPU-0"): 18.0,
        ("1", "GPU-1"): 18.0,
    }


def test_only_the_present_state_is_exported() -> None:
    """One row of gpu_state_info per card."""
    rig = Rig()
    rig.all_well()
    rig.cards.mark(1, "hung", "timeout")
    rows = rig.series()
    assert rows["gpu_state_info"] == {("0", "GPU-0", "ok"): 1, ("1", "GPU-1", "hung"): 1}
    assert rows["gpu_up"] == {("0", "GPU-0"): 1, ("1", "GPU-1"): 0}


def test_a_card_that_needs_a_reset_but_answers_is_up() -> None:
    """The state says what to do, gpu_up that it still works."""
    rig = Rig()
    rig.say(frame(card(0, "GPU-0", time.monotonic(), state="reset_required", up=True)))
    rows = rig.series()
    assert rows["gpu_up"] == {("0", "GPU-0"): 1}
    assert rows["gpu_state_info"] == {("0", "GPU-0", "reset_required"): 1}


def test_a_source_error_of_several_causes_is_unknown() -> None:
    """One cause is named; several are not boiled down to one of them."""
    rig = Rig()
    now = time.monotonic()
    rig.say(frame(unreadable(0, now, "gpu_is_lost", "lost"), unreadable(1, now, "gpu_is_lost")))
    assert rig.snapshot().source_error == "gpu_is_lost"
    rig.say(frame(unreadable(0, now, "gpu_is_lost", "lost"), unreadable(1, now, "unknown")))
    assert rig.snapshot().source_error == "unknown_error"
