# SPDX-License-Identifier: Apache-2.0
"""The source "gpu": one reading child at a time, replaced when it is stuck, silent or dead.

A call past the deadline marks its card only. When every worker hangs, the pipe
is silent or the child is dead, the child is asked to end, abandoned after five
seconds, and replaced after a back-off. With two abandoned children no third is
started: another reader beside a wedged driver would only wedge as well.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cardwatch.sample import Frame
from cardwatch.supervisor.backoff import Backoff
from cardwatch.supervisor.cards import Cards
from cardwatch.supervisor.child import Child

log = logging.getLogger("cardwatch.gpu")

MAX_ABANDONED = 2
SILENCE_S = 2.0
"""Beyond the deadline, so that one slow call is not taken for a dead child."""

REVOKED_EXIT_S = 300.0
_CLOSED_GRACE_S = 1.0
"""From the end of the pipe to the end of the process; then it is asked to end."""

_EXIT_LIBRARY_REPLACED = 3
_GARBAGE_LIMIT = 50


@dataclass
class GpuSource:
    """Keeps the child and tells ``cards`` what it learns.

    settings   sent to the child as they are.
    on_change  called when the page should be rendered anew.
    on_frame   called with each frame, after the cards have taken it in.
    on_answers called with recorded driver answers, and whether they end a pass.
    """

    settings: Mapping[str, Any]
    cards: Cards
    deadline: float
    on_change: Callable[[], None]
    on_answers: Callable[[list[Any], bool], None] | None = None
    revoked_exit: float = REVOKED_EXIT_S
    on_frame: Callable[[Frame], None] | None = None

    child: Child | None = None
    abandoned: list[Child] = field(default_factory=list)
    restarts: int = 0
    frame: Frame | None = None
    node: dict[str, str] = field(default_factory=dict)
    host: dict[str, Any] = field(default_factory=dict)
    detached_until: float | None = None
    away: tuple[str, str] | None = None
    last_success: float | None = None
    sample_success_time: float | None = None
    garbage: int = 0
    passes: int = 0
    _next_start: float = 0.0
    _backoff: Backoff = field(default_factory=Backoff)
    _worked_since: float | None = None
    _control_was_ok: bool = False
    _refused_since: float | None = None
    _said: str | None = None
    _garbage_in_a_row: int = 0
    _garbage_said: bool = False

    # -- life of the child -----------------------------------------------------------

    def tick(self) -> None:
        """Look after the child; called several times a second. Never blocks."""
        now = time.monotonic()
        self.abandoned = [child for child in self.abandoned if child.ended is None]
        if self.detached_until is not None and now >= self.detached_until:
            self.attach()
        if self.child is None:
            self._maybe_start(now)
        elif self.child.terminated_at is not None:
            self._await_end(self.child)
        elif self.child.ended is not None:
            self._died(self.child)
        elif self.child.closed_at is not None:
            if now - self.child.closed_at > _CLOSED_GRACE_S:
                self._replace("closed its pipe")
        elif now - self.child.last_heard > self.deadline + SILENCE_S:
            self._replace("said nothing for longer than the deadline")

    def _maybe_start(self, now: float) -> None:
        if self.detached_until is not None or now < self._next_start:
            return
        if len(self.abandoned) >= MAX_ABANDONED:
            return
        self._garbage_in_a_row = 0
        self._garbage_said = False
        self._worked_since = None
        try:
            self.child = Child(self.settings, self._on_frame, self._on_garbage, self._on_end)
        except OSError as error:  # out of processes, memory or descriptors
            log.error("cannot start a reading child: %s", error)
            self._schedule(now)

    def _await_end(self, child: Child) -> None:
        if child.ended is not None:
            self._gone(child)
        elif child.overdue:
            log.error("reading child %d did not end on SIGTERM; abandoned", child.process.pid)
            child.stop_listening()
            self.abandoned.append(child)
            self._gone(child)

    def _gone(self, child: Child) -> None:
        child.stop_listening()
        self.child = None
        self.frame = None  # what it said last is not what is
        self.on_change()

    def _died(self, child: Child) -> None:
        status = child.ended
        self._gone(child)
        # Only after a child that worked: where the loader finds another file than the
        # kernel names, every child would end so at once.
        if status == _EXIT_LIBRARY_REPLACED and self._worked_since is not None:
            log.warning("the driver library on disk was replaced; starting a new reading child")
            self._next_start = 0.0
        else:
            how = f"signal {-status}" if status is not None and status < 0 else f"status {status}"
            self._schedule(time.monotonic())
            log.error("reading child %d ended with %s", child.process.pid, how)
            if not self.started:
                self._driver_away("unknown_error")  # nothing better will be known
        self.restarts += 1

    def _replace(self, why: str) -> None:
        """End the present child and start another later; its cards count as hung."""
        child = self.child
        if child is None or child.terminated_at is not None:
            return
        log.error("reading child %d %s; replacing it", child.process.pid, why)
        self.restarts += 1
        self.away = ("hung", "timeout")
        self.passes += 1
        self.cards.mark_all("hung", "timeout")
        self._schedule(time.monotonic())
        child.terminate()
        self.on_change()

    def _schedule(self, now: float) -> None:
        worked = 0.0 if self._worked_since is None else now - self._worked_since
        self._next_start = now + self._backoff.after(worked)

    # -- what the child says -----------------------------------------------------------

    def _on_end(self, _child: Child) -> None:
        self.on_change()  # the next tick sees how it ended

    def _on_garbage(self, child: Child, reason: str) -> None:
        self.garbage += 1
        if child is not self.child:
            return
        if not self._garbage_said:
            self._garbage_said = True
            log.error("reading child %d wrote something that is no frame: %s",
                      child.process.pid, reason)  # fmt: skip
        self._garbage_in_a_row += 1
        if self._garbage_in_a_row >= _GARBAGE_LIMIT:
            self._replace("writes no frames but garbage")

    def _on_frame(self, child: Child, frame: Frame) -> None:
        if child is not self.child or child.terminated_at is not None:
            return
        now = time.monotonic()
        self.frame = frame
        self._garbage_in_a_row = 0
        self.node = frame.node or self.node
        self.host = frame.host
        self._watch_control(frame, now)
        if frame.error is not None:
            self._driver_away(frame.error)
        elif frame.listed is not None:
            self._driver_here(frame, now)
        hung = [call for call in frame.open_calls if call.age >= self.deadline]
        for call in hung:
            if call.slot is not None and call.slot < (frame.listed or 0):
                self.cards.mark(call.slot, "hung", "timeout")
        if self._all_hang(frame, {call.slot for call in hung}):
            self._replace("has every driver call past the deadline")
        if self.on_frame is not None:
            self.on_frame(frame)
        if frame.answers is not None and self.on_answers is not None:
            self.on_answers(frame.answers, frame.pass_done)
        if frame.cards or frame.events or hung or frame.pass_done:
            self.on_change()

    def _driver_here(self, frame: Frame, now: float) -> None:
        assert frame.listed is not None
        self.cards.relist(frame.listed)
        self.cards.take([card for card in frame.cards if card.slot < frame.listed])
        self.cards.find_lost()
        if frame.listed == 0 or any(card.up for card in frame.cards):
            self.last_success = now
            self.sample_success_time = round(time.time(), 3)
            self._worked_since = self._worked_since or now
        if frame.cards or frame.listed == 0:
            self.away = None
        if frame.pass_done:
            self.passes += 1
        self._say(None)

    def _driver_away(self, error: str) -> None:
        self.cards.mark_all("unreadable", error)
        self.away = ("unreadable", error)
        self.passes += 1
        self._say(error)
        self.on_change()

    def _all_hang(self, frame: Frame, hung: set[int | None]) -> bool:
        if not frame.listed or frame.error is not None:
            return None in hung  # initialising or listing hangs, and nothing else is there
        return all(slot in hung for slot in range(frame.listed))

    def _say(self, error: str | None) -> None:
        """Log a change of the driver's availability once, not at every pass."""
        if error == self._said:
            return
        if error is None:
            log.info("the driver answers again")
        else:
            log.error("the driver cannot be used: %s; `cardwatch doctor` names the way out", error)
        self._said = error

    def _watch_control(self, frame: Frame, now: float) -> None:
        if frame.control == "ok":
            self._control_was_ok = True
        refused = frame.control == "refused" and self._control_was_ok
        if refused and frame.error is not None:
            self._refused_since = self._refused_since or now
        else:
            self._refused_since = None

    @property
    def revoked(self) -> bool:
        """True when the control device has been refused for long after it was allowed."""
        since = self._refused_since
        return since is not None and time.monotonic() - since >= self.revoked_exit

    # -- detaching -----------------------------------------------------------------------

    def detach(self, seconds: float) -> None:
        """Let go of the driver by ending the child; take it up again after so long."""
        self.detached_until = time.monotonic() + seconds
        self.away = ("detached", "detached")
        if self.child is not None:
            self.child.terminate()
        log.warning("detached from the driver for %.0f s", seconds)
        self.on_change()

    def attach(self) -> None:
        """Take the driver up again."""
        self.detached_until = None
        self.away = ("unreadable", "starting")
        self.cards.mark_all("unreadable", "starting")
        self._next_start = 0.0
        log.warning("attaching to the driver again")
        self.on_change()

    def terminate(self) -> None:
        """Ask the child to end, for good."""
        if self.child is not None:
            self.child.terminate()

    # -- what is shown ---------------------------------------------------------------------

    @property
    def started(self) -> bool:
        """True once a pass was completed or the driver said why it cannot."""
        return self.passes > 0 or self.last_success is not None

    @property
    def listed(self) -> int | None:
        """Number of cards listed; None while the driver does not say, or hangs over it."""
        frame = self.frame
        if frame is None or frame.error is not None:
            return None
        stuck = any(c.slot is None and c.age >= self.deadline for c in frame.open_calls)
        return None if stuck else frame.listed

    @property
    def oldest_call_age(self) -> float | None:
        """Age of the longest open driver call, as of now; None when none is open."""
        children = self.abandoned if self.child is None else [self.child, *self.abandoned]
        since = [child.call_since for child in children if child.call_since is not None]
        return time.monotonic() - min(since) if since else None
