# SPDX-License-Identifier: Apache-2.0
"""Main loop of the reading child: start passes, gather results, write frames.

A frame is written when a pass is complete, early when some cards are late, and
at least every heartbeat, so that the parent can tell a slow driver from a dead
child. Started by exec, never by fork: NVML does not survive one.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

from cardwatch.backends import Options, SourceDown, make
from cardwatch.families.record import Profile
from cardwatch.nvml import library
from cardwatch.nvml.recorded import noted
from cardwatch.probe.control import control_device
from cardwatch.probe.event_watch import EventWatch
from cardwatch.probe.worker import Result, WatchedDriver, Worker
from cardwatch.sample import WHOLE_CARD, CardSample, Frame, OpenCall, encode_frame

EXIT_LIBRARY_REPLACED = 3
"""The driver library on disk is not the mapped one: start a new child at once."""

_EARLY_FRAME_S = 0.2
_LEAVE_S = 0.7  # a wait for events takes half a second at most
_SHUTDOWN_S = 1.0
_REOPEN_AFTER_S = 60.0
_PR_SET_PDEATHSIG = 1


class Stop(Exception):
    """SIGTERM arrived, or the parent is gone."""


class Probe:
    """State of the child. ``write`` takes the bytes of a frame."""

    def __init__(self, settings: dict[str, Any], write: Any) -> None:
        self._write = write
        self._interval = float(settings["interval"])
        self._retry = max(self._interval, float(settings["retry"]))
        self._heartbeat = float(settings["heartbeat"])
        self._devfs = Path(settings["devfs"])
        self._recording = bool(settings["record"])
        self._parent = int(settings["parent"])  # not "no longer 1": in a container it is 1
        self._real = settings["backend"] == "nvml"
        self._results: queue.SimpleQueue[Result] = queue.SimpleQueue()
        self._watched: WatchedDriver | None = None
        self._backend = make(self._options(settings))
        self._node = Worker(None, self._node_pass, self._results)
        self._slots: dict[int, Worker] = {}
        self._opened = False
        self._open_error: str | None = None
        self._tried_open = float("-inf")
        self._failing_since: float | None = None
        self._versions_asked = False
        self._frame = Frame(pid=os.getpid(), host=self._backend.host_facts())
        self._deadline = float(settings["deadline"])
        self._lost: set[str] = set()
        driver = self._backend.event_driver()
        self._watch = EventWatch(driver, self._watchable, lambda: self._lost) if driver else None

    def _options(self, settings: dict[str, Any]) -> Options:
        def watch(driver: Any) -> WatchedDriver:
            self._watched = WatchedDriver(driver)
            return self._watched

        return Options(
            backend=settings["backend"],
            profile=Profile(settings["profile"]),
            scenario=settings["scenario"],
            capture=Path(settings["capture"]) if settings["capture"] else None,
            epoch=float(settings["epoch"]),
            seed=settings["seed"],
            kmsg=Path(settings["kmsg"]) if settings["kmsg"] else None,
            record=bool(settings["record"]),
            emit_raw=self._write,
            watch=watch,
        )

    def _watchable(self) -> int | None:
        """Return how many cards events can be waited for on; None while the driver is away."""
        return self._frame.listed if self._opened and self._frame.error is None else None

    # -- work that runs in the node thread ---------------------------------------

    def _node_pass(self) -> Result:
        """Open the driver if need be, then count cards; versions once, after the count."""
        try:
            if not self._opened:
                self._backend.open()
                self._opened = True
            elif self._count_known() and not self._versions_asked:
                self._versions_asked = True
                self._results.put(("versions", None, self._backend.versions()))
            return ("count", None, self._backend.count())
        except SourceDown as down:
            return ("down", None, down.error)

    def _count_known(self) -> bool:
        return self._frame.listed is not None and self._frame.error is None

    def _card_pass(self, slot: int) -> Result:
        try:
            return ("card", slot, self._backend.read(slot))
        except SourceDown as down:
            return ("down", slot, down.error)

    # -- main thread --------------------------------------------------------------

    def run(self) -> None:
        """Serve for ever; ends by ``Stop`` or by leaving the process."""
        self._node.start()
        if self._watch is not None:
            self._watch.start()
        next_pass = started = time.monotonic()
        last_frame = 0.0
        while True:
            now = time.monotonic()
            if now >= next_pass:
                # Passes keep to the grid: a late one must not shift those after it.
                next_pass += self._interval * max(1, -(-(now - next_pass) // self._interval))
                started = now
                self._begin_pass(now)
            self._gather(min(next_pass, last_frame + self._heartbeat, now + _EARLY_FRAME_S))
            now = time.monotonic()
            if self._frame_due(now, started, last_frame):
                self._send()
                last_frame = now
            self._check_surroundings()

    def _begin_pass(self, now: float) -> None:
        self._frame.pass_done = False
        failing = self._frame.error is not None and not self._opened
        if failing and now - self._tried_open < self._retry:
            return
        self._tried_open = now
        self._node.begin()
        if self._opened:
            for slot in range(self._frame.listed or 0):
                self._begin_slot(slot)

    def _begin_slot(self, slot: int) -> None:
        worker = self._slots.get(slot)
        if worker is None:
            worker = Worker(slot, lambda: self._card_pass(slot), self._results)
            self._slots[slot] = worker
            worker.start()
        worker.begin()

    def _gather(self, until: float) -> None:
        """Take results until a pass is complete or the time is up."""
        while True:
            timeout = until - time.monotonic()
            try:
                result = self._results.get(timeout=max(timeout, 0.0))
            except queue.Empty:
                return
            self._take(result)
            if self._all_idle() and self._results.empty():
                self._frame.pass_done = True
                return

    def _all_idle(self) -> bool:
        return not self._node.busy and not any(w.busy for w in self._slots.values())

    def _take(self, result: Result) -> None:
        kind, slot, value = result
        if kind == "card":
            self._frame.cards.append(value)
            self._note_lost(value)
        elif kind == "count":
            self._counted(int(value))
        elif kind == "versions":
            self._frame.node = value
        elif kind == "down":
            self._down(value)
        elif slot is not None:
            print(f"cardwatch: reading card {slot}: {value}", file=sys.stderr, flush=True)
            broken = CardSample(slot=slot, state="unreadable", up=False, error="internal")
            broken.faults = {WHOLE_CARD: "internal"}
            broken.time, broken.monotonic = time.time(), time.monotonic()
            self._frame.cards.append(broken)
        else:
            print(f"cardwatch: reading the node: {value}", file=sys.stderr, flush=True)
            self._down("internal")

    def _note_lost(self, card: CardSample) -> None:
        """Keep the cards that do not answer out of the event set, and take others in again."""
        if card.uuid is None or (card.state == "ok") != (card.uuid in self._lost):
            return
        self._lost ^= {card.uuid}
        if self._watch is not None:
            self._watch.renew()

    def _counted(self, count: int) -> None:
        self._frame.error = None
        self._failing_since = None
        known = self._frame.listed or 0
        self._frame.listed = count
        if self._watch is not None and count != known:
            self._watch.renew()
        self._frame.control = self._control() if self._frame.control != "ok" else "ok"
        first = not self._slots
        for slot in range(0 if first else known, count):
            self._begin_slot(slot)
        if first and not self._versions_asked:
            self._node.begin()  # the versions, while the cards are read for the first time

    def _down(self, error: str) -> None:
        now = time.monotonic()
        self._frame.error = error
        self._frame.control = self._control()
        if self._failing_since is None:
            self._failing_since = now
        gone = error in ("driver_not_loaded", "driver_library_mismatch")
        if self._opened and (gone or now - self._failing_since > _REOPEN_AFTER_S):
            self._failing_since = now
            self._opened = False
            self._versions_asked = False
            threading.Thread(target=self._let_go, daemon=True).start()

    def _let_go(self) -> None:
        """Shut the driver down, after nobody waits for events in it any more."""
        if self._watch is not None:
            self._watch.leave(_LEAVE_S)
        self._backend.close()
        if self._watch is not None:
            self._watch.come_back()

    def _control(self) -> str:
        return control_device(self._devfs) if self._real else "absent"

    def _frame_due(self, now: float, started: float, last_frame: float) -> bool:
        if now - last_frame >= self._heartbeat:
            return True
        if not self._frame.cards and not self._frame.pass_done:
            return False
        return self._all_idle() or now - started >= _EARLY_FRAME_S

    def _send(self) -> None:
        frame = self._frame
        frame.open_calls = self._open_calls()
        frame.resident, frame.cpu = _resident_bytes(), time.process_time()
        if frame.pass_done:
            frame.host = self._backend.host_facts()
        frame.answers = self._backend.take_answers()
        if self._watch is not None:
            frame.events = self._watch.take()
            frame.watching, frame.watch_error = self._watch.state(self._deadline)
        self._write(encode_frame(frame))
        frame.cards, frame.events, frame.answers, frame.pass_done = [], [], None, False

    def _open_calls(self) -> list[OpenCall]:
        if self._watched is None:
            return []
        now = time.monotonic()
        slots = {w.ident: w.slot for w in (self._node, *self._slots.values())}
        return [
            OpenCall(slots[thread], call, now - since, noted(args) if self._recording else [])
            for thread, (call, args, since) in list(self._watched.open.items())
            if thread in slots
        ]

    def _check_surroundings(self) -> None:
        self._backend.tick()
        if os.getppid() != self._parent:
            raise Stop
        if self._real and self._frame.error is not None and library.replaced():
            self._send()
            os._exit(EXIT_LIBRARY_REPLACED)

    def shut_down(self) -> None:
        """Try to let go of the driver for a second, then end whatever still hangs."""
        closing = threading.Thread(target=self._let_go, daemon=True)
        closing.start()
        closing.join(_LEAVE_S + _SHUTDOWN_S)


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _private_stream() -> int:
    """Keep the pipe for frames to ourselves: whatever the library prints goes to stderr."""
    stream = os.dup(1)
    os.dup2(2, 1)
    return stream


def _write_all(stream: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(stream, view) :]


def _on_signal(_number: int, _frame: FrameType | None) -> None:
    raise Stop


def main() -> None:
    """Run the child. Its one argument is a JSON object of settings."""
    signal.signal(signal.SIGTERM, _on_signal)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C goes to the group; the parent decides
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    stream = _private_stream()
    lock = threading.Lock()

    def write(data: bytes) -> None:
        with lock:
            _write_all(stream, data)
        gc.collect()  # now, between two passes, instead of within one

    gc.disable()
    probe = None
    try:
        probe = Probe(json.loads(sys.argv[1]), write)
        gc.freeze()  # what was imported stays, and need not be looked through
        probe.run()
    except (Stop, BrokenPipeError):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if probe is not None:
            probe.shut_down()
    os._exit(0)  # threads inside hung calls must not hold the exit back
