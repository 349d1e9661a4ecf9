# SPDX-License-Identifier: Apache-2.0
"""Accepting connections and ending them.

Owns the listening sockets from start to stop and the count of what is open. It
must never install a signal handler or start a loop: it runs inside a loop that
belongs to the caller.

Connections are accepted here and not by an ``asyncio.Server``, for two reasons.
The limit on connections has to hold for TLS handshakes too, or silent peers use
up all file descriptors of the exporter. And each connection takes the TLS context
of its moment, so a new certificate, CA or policy needs no tricks with the old one.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import logging
import resource
import socket
import ssl
import sys
import time
from collections.abc import Sequence

import uvicorn
from starlette.types import ASGIApp

from cardwatch.web import tls
from cardwatch.web.guard import Guard, Headers, Limits, SharedState
from cardwatch.web.listen import close_sockets, printable
from cardwatch.web.reload import LiveConfig
from cardwatch.web.roster import Roster
from cardwatch.web.webconfig import WebConfig

logger = logging.getLogger(__name__)

_SOFT_FILES = 4096
_FILES_FOR_OTHERS = 128
_FEWEST_CONNECTIONS = 16
_ACCEPT_BATCH = 64
_ACCEPT_PAUSE_S = 1.0
_WARNING_PERIOD_S = 60.0
_NO_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_SHARE_FOR_GOODBYES = 0.9


class HttpServer:
    """Serves an application on sockets that already listen, and owns these.

    To be made and used inside the running loop that it shall serve in.
    """

    def __init__(
        self,
        app: ASGIApp,
        sockets: Sequence[socket.socket],
        live: LiveConfig,
        limits: Limits | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._sockets = list(sockets)
        self._addresses = [printable(sock) for sock in self._sockets]
        self._loop = asyncio.get_running_loop()
        self._live = live
        self._config = _uvicorn_config(app, self._limits)
        self._shared = SharedState(self._configured_headers)
        self._roster = Roster(self._limits.connections)
        self._opening: set[asyncio.Task[None]] = set()
        self._warned_at: dict[str, float] = {}
        self._stopping = False
        live.subscribe(self._on_config)

    @property
    def addresses(self) -> list[str]:
        """Where it listens, in the form that ``--listen`` takes."""
        return list(self._addresses)

    @property
    def connections(self) -> int:
        """How many connections are open, handshakes included."""
        return len(self._roster)

    async def start(self) -> None:
        """Begin to accept."""
        self._roster = Roster(_affordable(self._limits.connections, raise_file_limit()))
        for sock in self._sockets:
            self._loop.add_reader(sock, self._accept, sock)

    async def stop(self, grace_s: float) -> None:
        """Stop to accept, answer what is in progress, and close all in this time."""
        if not self._stopping:
            self._stopping = True
            for sock in self._sockets:
                self._loop.remove_reader(sock)
            close_sockets(self._sockets)
        for connection in self._roster.all():
            connection.shutdown()
        try:
            await asyncio.wait_for(self._roster.empty(), grace_s * _SHARE_FOR_GOODBYES)
        except asyncio.TimeoutError:
            for connection in self._roster.all():
                connection.evict()
        await self._finish(grace_s * (1 - _SHARE_FOR_GOODBYES))

    async def empty(self) -> None:
        """Return once no connection is open."""
        await self._roster.empty()

    async def _finish(self, seconds: float) -> None:
        tasks = [*self._shared.tasks, *self._opening]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        # Transports close their sockets one turn of the loop after the order.
        await asyncio.sleep(0)

    # Accepting

    def _accept(self, listener: socket.socket) -> None:
        self._live.poll()
        for _ in range(_ACCEPT_BATCH):
            try:
                conn, _address = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as exc:
                if exc.errno in _NO_RESOURCES:
                    self._rest(listener, exc)
                    return
                continue  # this one peer is gone already
            crowded = self._roster.full
            self._admit(conn)
            if crowded:
                return  # an evicted connection keeps its descriptor for this turn

    def _rest(self, listener: socket.socket, exc: OSError) -> None:
        """Leave the socket alone for a while: it would stay readable and spin."""
        self._warn(f"cannot accept connections for now: {exc.strerror}")
        self._roster.evict_one()
        self._loop.remove_reader(listener)
        self._loop.call_later(_ACCEPT_PAUSE_S, self._go_on, listener)

    def _go_on(self, listener: socket.socket) -> None:
        if not self._stopping:
            self._loop.add_reader(listener, self._accept, listener)

    def _admit(self, conn: socket.socket) -> None:
        if not self._roster.make_room():
            self._warn("all connections are busy, a new one was closed")
            conn.close()
            return
        conn.setblocking(False)
        config = self._live.current
        guard = self._guard(config)
        self._roster.join(guard)
        task = self._loop.create_task(self._connect(guard, conn, config.context))
        guard.opening = task
        self._opening.add(task)
        task.add_done_callback(functools.partial(self._opened, guard, conn))

    def _opened(self, guard: Guard, conn: socket.socket, task: asyncio.Task[None]) -> None:
        self._opening.discard(task)
        guard.opening = None
        if task.cancelled() or task.exception() is not None:
            # A task that was cancelled before its first step closed nothing.
            guard.never_opened()
            conn.close()
        if not task.cancelled() and isinstance(task.exception(), Exception):
            logger.debug("a connection did not open: %r", task.exception())

    def _guard(self, config: WebConfig) -> Guard:
        return Guard(
            self._config,
            self._shared,
            roster=self._roster,
            limits=self._limits,
            admits=lambda transport: _admits(config, transport),
            loop=self._loop,
        )

    async def _connect(
        self, guard: Guard, conn: socket.socket, context: ssl.SSLContext | None
    ) -> None:
        loop, limits = self._loop, self._limits
        if context is None:
            await loop.connect_accepted_socket(lambda: guard, conn)
        elif sys.version_info >= (3, 11):
            await loop.connect_accepted_socket(
                lambda: guard,
                conn,
                ssl=context,
                ssl_handshake_timeout=limits.handshake_s,
                ssl_shutdown_timeout=limits.write_s,
            )
        else:
            await loop.connect_accepted_socket(
                lambda: guard, conn, ssl=context, ssl_handshake_timeout=limits.handshake_s
            )

    # What changes while it runs

    def _configured_headers(self) -> Headers:
        return self._live.current.headers

    def _on_config(self, old: WebConfig, new: WebConfig) -> None:
        """Let go of connections that came in under other TLS rules."""
        if old.tls_state != new.tls_state:
            for connection in self._roster.all():
                connection.shutdown()

    def _warn(self, text: str) -> None:
        now = time.monotonic()
        if now - self._warned_at.get(text, -_WARNING_PERIOD_S) >= _WARNING_PERIOD_S:
            self._warned_at[text] = now
            logger.warning("%s (said at most once a minute)", text)


def raise_file_limit() -> int:
    """Raise the soft limit on open files as far as needed, and give it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _SOFT_FILES if hard == resource.RLIM_INFINITY else min(hard, _SOFT_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def _affordable(connections: int, files: int) -> int:
    """Leave files for the rest of the exporter."""
    affordable = max(min(connections, files - _FILES_FOR_OTHERS), _FEWEST_CONNECTIONS)
    if affordable < connections:
        logger.warning("the limit on open files allows %d connections only", affordable)
        return affordable
    return connections


def _admits(config: WebConfig, transport: asyncio.Transport) -> bool:
    if config.tls is None:
        return True
    peer = transport.get_extra_info("peercert")
    if tls.entry_allowed(peer, config.tls.client_allowed_sans):
        return True
    logger.debug("closed a connection: its certificate has no name of client_allowed_sans")
    return False


def _uvicorn_config(app: ASGIApp, limits: Limits) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        http=Guard,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        workers=1,
        timeout_keep_alive=limits.keep_alive_s,
    )
    config.load()
    return config
