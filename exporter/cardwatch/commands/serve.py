# SPDX-License-Identifier: Apache-2.0
"""Run the exporter: sample every card at an interval and serve /metrics.

The page is rendered when a sample comes and at every interval; a scrape sends
ready bytes and never touches the driver. SIGHUP reads the config files again,
SIGUSR2 lets go of the driver for 15 minutes or takes it up again.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace

from cardwatch import __version__
from cardwatch.commands import flags
from cardwatch.commands.pages import SessionPages
from cardwatch.logs import configure
from cardwatch.settings.load import SettingsError, load
from cardwatch.settings.table import Settings
from cardwatch.supervisor.session import Session
from cardwatch.web.app import make_app
from cardwatch.web.auth import Authenticator
from cardwatch.web.listen import ListenError, open_sockets
from cardwatch.web.reload import LiveConfig
from cardwatch.web.server import HttpServer
from cardwatch.web.webconfig import WebConfigError

log = logging.getLogger("cardwatch")

EXIT_REVOKED = 75
DETACH_S = 15 * 60.0
_HTTP_GRACE_S = 1.0
_GC_THRESHOLD = 10_000
"""A page is made of some thousand short-lived rows: no reason to look for cycles each time."""

_FIXED = ("listen", "backend", "web_config_file", "state_dir", "scenario", "capture", "api",
          "detach_endpoint", "log_format", "log_level")  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this command."""
    flags.add(parser)


def run(parsed: argparse.Namespace) -> int:
    """Serve until a signal ends it; returns the exit status."""
    settings = flags.settings(parsed)
    configure(settings.log_format, settings.log_level)
    faulthandler.enable()
    for number in (signal.SIGHUP, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # until the loop serves them: they must not kill us
    try:
        live = LiveConfig(settings.web_config_file)
        sockets = open_sockets(settings.listen)
    except (WebConfigError, ListenError) as error:
        print(f"cardwatch serve: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"cardwatch serve: --listen {settings.listen}: {error}", file=sys.stderr)
        return 2
    exporter = _Exporter(settings, parsed, live)
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    status = asyncio.run(exporter.serve(sockets))
    # A thread may hang in a file of the host; it must not hold the exit back.
    logging.shutdown()
    os._exit(status)


class _Exporter:
    def __init__(self, settings: Settings, parsed: argparse.Namespace, live: LiveConfig) -> None:
        self._settings = settings
        self._parsed = parsed
        self._live = live
        self._stop: asyncio.Event
        self._status = 0

    async def serve(self, sockets: Sequence[socket.socket]) -> int:
        """Run until stopped; everything is gone within four seconds after that."""
        self._stop = asyncio.Event()
        self.session = Session(self._settings, environment=dict(os.environ), watch_events=True)
        pages = SessionPages(self.session)
        app = make_app(
            pages,
            self._live,
            Authenticator(),
            api="all" if self._settings.api == "all" else "loopback",
            detach=self._settings.detach_endpoint,
        )
        server = HttpServer(app, sockets, self._live)
        await server.start()
        self._install_signals()
        self._announce(server.addresses)
        tasks = [asyncio.create_task(self.session.run()), asyncio.create_task(self._watch())]
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait([*tasks, stopped], return_when=asyncio.FIRST_COMPLETED)
        self._look_at(tasks)
        for task in (*tasks, stopped):
            task.cancel()
        await asyncio.gather(server.stop(_HTTP_GRACE_S), self.session.stop())
        return self._status

    def _look_at(self, tasks: list[asyncio.Task[None]]) -> None:
        """Say so when a loop ended by itself: a bug, and the unit shall restart us."""
        for task in tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                log.critical("internal error, ending", exc_info=task.exception())
                self._status = 1

    def _announce(self, addresses: list[str]) -> None:
        log.info("cardwatch %s listens on %s", __version__, ", ".join(addresses))
        if self._settings.simulated:
            log.warning("SIMULATED CARDS: backend %s; nothing on this page is real",
                        self._settings.backend)  # fmt: skip

    def _install_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        loop.add_signal_handler(signal.SIGUSR2, self._toggle_detached)

    def _toggle_detached(self) -> None:
        if self.session.source.detached_until is None:
            self.session.source.detach(DETACH_S)
        else:
            self.session.source.attach()

    def _reload(self) -> None:
        """Read config and web config again; what is broken keeps its old content."""
        self._live.reload()
        try:
            fresh = load(vars(self._parsed), self._parsed.config, os.environ)
        except SettingsError as error:
            log.error("settings not reloaded: %s", error)
            return
        old = self.session.settings
        stuck = [name for name in _FIXED if getattr(fresh, name) != getattr(old, name)]
        if stuck:
            log.warning("a restart is needed for a change of %s", ", ".join(stuck))
        self.session.apply(replace(fresh, **{name: getattr(old, name) for name in _FIXED}))
        log.info("settings reloaded")

    async def _watch(self) -> None:
        """End with 75 when only a new container can give the devices back."""
        while True:
            await asyncio.sleep(1.0)
            if self.session.source.revoked:
                log.critical(
                    "the driver's control device has been refused for %.0f s after it was "
                    "allowed; only a new container cures that, ending with status %d",
                    self._settings.revoked_exit, EXIT_REVOKED,
                )  # fmt: skip
                self._status = EXIT_REVOKED
                self._stop.set()
                return
