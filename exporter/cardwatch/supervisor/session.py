# SPDX-License-Identifier: Apache-2.0
"""One run over the cards of this node: host facts, roster, source and the page, kept current.

``serve`` keeps a session for ever; ``snapshot``, ``capture`` and ``doctor``
hold one until they have seen a pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from cardwatch.exposition.text import Page, Renderer
from cardwatch.host.facts import HostFacts, HostPaths, read, replaced_by
from cardwatch.kmsg.reader import OFF
from cardwatch.settings.load import state_directory
from cardwatch.settings.table import Settings
from cardwatch.supervisor.cards import Cards
from cardwatch.supervisor.event_series import put_all
from cardwatch.supervisor.gpu import GpuSource
from cardwatch.supervisor.roster import Roster
from cardwatch.supervisor.snapshot import Identity, SeriesBuilder, Snapshot, take
from cardwatch.supervisor.watch import Watch, WatchOptions
from cardwatch.text import label

log = logging.getLogger("cardwatch.session")

TICK_S = 0.2
HOST_FACTS_S = 60.0
RETRY_S = 5.0
_MIN_RENDER_GAP_S = 0.05
_STOP_S = 2.5
_SCRAPED_LATELY_S = 600.0
_CLOSE_S = 1.0


class Session:
    """Owns the source and renders a page whenever something changed, and every interval."""

    def __init__(
        self,
        settings: Settings,
        *,
        environment: dict[str, str] | None = None,
        record: bool = False,
        on_answers: Callable[[list[Any], bool], None] | None = None,
        keep_state: bool = True,
        watch_events: bool = False,
    ) -> None:
        self.settings = settings
        self._watch_events = watch_events
        self._environment = environment or {}
        self.state_dir = state_directory(settings, self._environment) if keep_state else None
        self.roster = Roster(self.state_dir)
        self.roster.load()
        self._note_node(time.time())
        self.cards = Cards(self.roster, settings.interval)
        self.source = GpuSource(
            settings=self._child_settings(record=record),
            cards=self.cards,
            deadline=settings.deadline,
            on_change=self._changed,
            on_answers=on_answers,
            revoked_exit=settings.revoked_exit,
        )
        self.host = HostFacts()
        self._real_host = HostFacts()
        self._host_reading: threading.Thread | None = None
        self._dirty = False
        self._wake = asyncio.Event()
        self._seen: list[asyncio.Event] = []
        self._scraped: dict[tuple[bool, bool], float] = {}
        self.watch = (
            Watch(self._watch_options(), self.cards, self._changed_elsewhere)
            if watch_events
            else None
        )
        self.apply(settings)
        self.page = self._render()
        self.rendered_at = time.monotonic()

    def apply(self, settings: Settings) -> None:
        """Take on what can change while running: identity, labels, profile, intervals."""
        self.settings = settings
        self.identity = Identity(
            node=node_name(settings, self._environment),
            backend="nvml" if settings.backend == "auto" else settings.backend,
            profile=settings.profile,
            interval=settings.interval,
            expected_gpus=settings.expect_gpus,
        )
        self.renderer = Renderer(
            node_label=not settings.no_node_label, constant=dict(settings.labels)
        )
        self._builder = SeriesBuilder(lambda: self.renderer.dropped, self._put_events)
        if self.watch is not None:
            self.watch.book.overrides = settings.xid
            self.watch.judge.apply(settings.health)
        self.cards.interval = settings.interval
        self.source.deadline = settings.deadline
        fresh = self._child_settings(record=bool(self.source.settings["record"]))
        if fresh != self.source.settings:
            self.source.settings = fresh
            self.source.terminate()  # the next child starts with the new settings

    def _child_settings(self, *, record: bool) -> dict[str, Any]:
        s = self.settings
        earlier = getattr(self, "source", None)
        return {
            "backend": "nvml" if s.backend == "auto" else s.backend,
            "profile": int(s.profile),
            "interval": s.interval,
            "retry": RETRY_S,
            "deadline": s.deadline,
            "heartbeat": min(1.0, s.interval, s.deadline / 2),
            "devfs": str(s.path_devfs),
            "scenario": s.scenario,
            "capture": str(s.capture) if s.capture else None,
            "epoch": earlier.settings["epoch"] if earlier else time.time(),
            "seed": None,
            "kmsg": earlier.settings["kmsg"] if earlier else self._simulated_log(),
            "record": record,
        }

    def _simulated_log(self) -> str | None:
        """Return the file for the kernel records of a simulated node, if it can be written.

        Only ``serve`` has one: what another command wrote there, a running one would count.
        """
        if self.settings.backend != "sim" or self.state_dir is None or not self._watch_events:
            return None
        path = self.state_dir / "kmsg"
        try:
            path.open("ab").close()
        except OSError:
            return None
        return str(path)

    def _watch_options(self) -> WatchOptions:
        s = self.settings
        own = {"sim": self.source.settings["kmsg"] or OFF, "replay": OFF}
        return WatchOptions(
            directory=self.state_dir,
            kmsg=s.kmsg or own.get(s.backend, str(s.path_devfs / "kmsg")),
            any_facility=s.kmsg_any_facility,
            procfs=s.path_procfs,
            log_format=s.log_format,
            workload_logs=s.workload_logs,
            overrides=s.xid,
        )

    def _put_events(self, put: Callable[..., None], snap: Snapshot) -> None:
        if self.watch is not None:
            put_all(put, self._drop, snap, self.watch)

    def _drop(self, family: str, number: int) -> None:
        self.renderer.dropped[family] += number

    def _note_node(self, now: float) -> None:
        if self.roster.node_first_seen is None:
            self.roster.node_first_seen = now
            self.roster.save(now, force=True)

    # -- running ---------------------------------------------------------------------------

    async def run(self) -> None:
        """Look after the source and render, until cancelled."""
        last_render = last_host = float("-inf")
        self._loop = asyncio.get_running_loop()
        if self.watch is not None:
            self.watch.open()
            self.source.on_frame = self.watch.take_frame
        while True:
            self.source.tick()
            now = time.monotonic()
            if now - last_host >= HOST_FACTS_S and self._host_reading_done():
                last_host = now
                self._start_host_reading()
            due = now - last_render >= self.settings.interval
            if due or (self._dirty and now - last_render >= _MIN_RENDER_GAP_S):
                self._dirty = False
                last_render = now
                self._refresh()
            await self._next_turn(last_render)

    async def _next_turn(self, last_render: float) -> None:
        """Sleep until something changed or the next tick is due.

        Not by ``wait_for``: before Python 3.12 it can swallow the cancellation
        that ends this loop.
        """
        if self._dirty:
            # Several frames may come at once: one page for all of them.
            await asyncio.sleep(max(0.0, last_render + _MIN_RENDER_GAP_S - time.monotonic()))
            return
        timer = asyncio.get_running_loop().call_later(TICK_S, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
            self._wake.clear()

    def _changed_elsewhere(self) -> None:
        """Note a change from another thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody renders any more
            self._loop.call_soon_threadsafe(self._changed)

    def _changed(self) -> None:
        self._dirty = True
        self._wake.set()

    def _host_reading_done(self) -> bool:
        return self._host_reading is None or not self._host_reading.is_alive()

    def _start_host_reading(self) -> None:
        """Read host facts in a thread of their own.

        One that hangs is not started again and its facts stay absent. It is a
        daemon, not of the loop's pool, so that it cannot hold back the exit.
        """
        paths = HostPaths(
            self.settings.path_procfs, self.settings.path_sysfs, self.settings.path_devfs
        )
        loop = asyncio.get_running_loop()

        def work() -> None:
            facts = read(paths)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(self._host_read, facts)

        self._host_reading = threading.Thread(target=work, name="host-facts", daemon=True)
        self._host_reading.start()

    def _host_read(self, facts: HostFacts) -> None:
        self._real_host = facts
        self._changed()

    def _refresh(self) -> None:
        if self.settings.simulated:
            self.host = replaced_by(self._real_host, self.source.host)
        else:
            self.host = self._real_host
        now = time.time()
        self.cards.forget(self.roster.forgotten())
        self.roster.save(now)
        if self.watch is not None:
            self.watch.refresh(self.snapshot(), started=self.source.started,
                               child=self.source.frame is not None)  # fmt: skip
        self.page = self._render()
        self.rendered_at = time.monotonic()
        for event in self._seen:
            event.set()

    def _render(self) -> Page:
        """Render the page, and have the forms ready that were scraped of late."""
        page = self.renderer.render(self._builder.build(self.snapshot(), self.source))
        oldest = time.monotonic() - _SCRAPED_LATELY_S
        for (openmetrics, gzip), last in self._scraped.items():
            if last >= oldest:
                page.form(openmetrics=openmetrics, gzip=gzip)
        return page

    def served(self, *, openmetrics: bool, gzip: bool) -> bytes:
        """Return the bytes of the page for a scrape."""
        self._scraped[openmetrics, gzip] = time.monotonic()
        return self.page.form(openmetrics=openmetrics, gzip=gzip)

    def snapshot(self) -> Snapshot:
        """Return what is known at this moment."""
        return take(self.identity, self.source, self.host)

    async def wait_until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until a condition holds after a refresh; False when the time ran out."""
        event = asyncio.Event()
        self._seen.append(event)
        end = time.monotonic() + timeout
        try:
            while not condition():
                event.clear()
                left = end - time.monotonic()
                if left <= 0:
                    return False
                try:
                    await asyncio.wait_for(event.wait(), left)
                except (asyncio.TimeoutError, TimeoutError):
                    return condition()
            return True
        finally:
            self._seen.remove(event)

    async def stop(self) -> None:
        """End the child, waiting no longer than the stop budget allows, and keep the roster."""
        self.source.detached_until = float("inf")  # no new child from here on
        self.source.terminate()
        end = time.monotonic() + _STOP_S
        while time.monotonic() < end:
            self.source.tick()
            if self.source.child is None:
                break
            await asyncio.sleep(0.02)
        if self.watch is not None:
            closing = threading.Thread(target=self.watch.close, daemon=True)
            closing.start()
            while closing.is_alive() and time.monotonic() < end + _CLOSE_S:
                await asyncio.sleep(0.02)
        self.roster.forgotten()
        self.roster.save(time.time(), force=True)


def node_name(settings: Settings, environment: dict[str, str]) -> str:
    """Return the value of the node label: setting, then $NODE_NAME, then the host name."""
    return label(settings.node_name or environment.get("NODE_NAME") or socket.gethostname())
