# SPDX-License-Identifier: Apache-2.0
"""One HTTP connection, with an end to everything that a peer can draw out.

Owns the limits on size and time of a connection, and the answers that are given
before a request reaches the application (400, 408, 413, 414, 429, 431, 505). It must
never log what a peer sent: a request line or header may carry a credential.

It extends uvicorn's protocol, which parses with httptools. That parser has no
limit of its own on the size of a head, and uvicorn has no deadline for one.
"""

from __future__ import annotations

import asyncio
import enum
import fcntl
import logging
import socket
import struct
import termios
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from typing import NoReturn

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from cardwatch.web.roster import Roster

logger = logging.getLogger(__name__)

Headers = Sequence[tuple[bytes, bytes]]

_PIPELINED = 64
_HEADER_FRAME = 4  # colon, space and line end of a header line
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Limits:
    """What one peer may use; times are in seconds."""

    connections: int = 1024
    handshake_s: float = 5.0
    header_s: float = 5.0
    header_bytes: int = 16 * 1024
    url_bytes: int = 4 * 1024
    body_s: float = 10.0
    body_bytes: int = 64 * 1024
    write_s: float = 10.0
    keep_alive_s: int = 75
    linger_s: float = 1.0


class SharedState(ServerState):
    """What all connections share: the headers of every answer."""

    def __init__(self, extra: Callable[[], Headers]) -> None:
        super().__init__()
        self._extra = extra
        self._seen: Headers | None = None
        self._second = 0

    def refresh(self) -> None:
        """Renew the Date header; done per request, so that an idle server sleeps."""
        second, extra = int(time.time()), self._extra()
        if second != self._second or extra is not self._seen:
            self._second, self._seen = second, extra
            date = formatdate(second, usegmt=True).encode("ascii")
            self.default_headers = [(b"date", date), *extra]


class _Phase(enum.Enum):
    """What the next byte of the peer belongs to."""

    QUIET = "nothing begun"
    HEAD = "a request head"
    BODY = "a request body"


class _RejectedError(Exception):
    """Stops the parser; the reason is kept by the connection."""


class Guard(HttpToolsProtocol):
    """A connection that ends by itself, whatever its peer does or leaves undone."""

    def __init__(
        self,
        config: uvicorn.Config,
        state: SharedState,
        *,
        roster: Roster,
        limits: Limits,
        admits: Callable[[asyncio.Transport], bool],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(config, state, {}, loop)
        self.opening: asyncio.Task[None] | None = None
        self._shared = state
        self._roster = roster
        self._limits = limits
        self._admits = admits
        self._tls = False
        self._heard = False
        self._peer_done = False
        # The clock of the first head starts with the connection.
        self._phase = _Phase.HEAD
        self._moved = False
        self._raw_bytes = 0
        self._head_bytes = 0
        self._reason: tuple[int, str] | None = None
        self._refused = False
        self._refusal: tuple[int, str] | None = None
        self._deadline: float | None = None
        self._read_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._exit_timer: asyncio.TimerHandle | None = None

    # The life of a connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock of the first request."""
        super().connection_made(transport)
        self._tls = transport.get_extra_info("ssl_object") is not None
        if not self._admits(transport):
            self._refused = True
            transport.abort()
            return
        # Told of any unsent byte, we know a slow reader from a long answer. Not
        # 0: TLS transports compare with >= and would report themselves full.
        transport.set_write_buffer_limits(high=1, low=0)
        self._give(self._limits.header_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all clocks and leave the roster."""
        for timer in (self._read_timer, self._write_timer, self._exit_timer):
            if timer is not None:
                timer.cancel()
        self._read_timer = self._write_timer = self._exit_timer = None
        self._deadline = None
        self._unset_keepalive_if_required()
        self.pipeline.clear()
        self._roster.leave(self)
        super().connection_lost(exc)
        # uvicorn leaves it open after an error, and Python 3.10 then complains.
        self.transport.close()

    def never_opened(self) -> None:
        """Leave the roster after a TLS handshake that failed."""
        self._roster.leave(self)

    def evict(self) -> None:
        """Close at once, also in the middle of a TLS handshake."""
        if self.transport is not None:
            self.transport.abort()
        elif self.opening is not None:
            self.opening.cancel()

    def shutdown(self) -> None:
        """Close when nothing is owed to the peer any more."""
        if self.transport is None:
            self.evict()
            return
        super().shutdown()
        if self.transport.is_closing():
            self._ensure_gone()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Answer what was asked before the peer stopped sending."""
        if self._tls or self._exit_timer is not None or not self._owes():
            return None
        self._peer_done = True
        return True

    # Reading

    def data_received(self, data: bytes) -> None:
        """Parse in pieces no larger than a head may be, then set the clock."""
        if self._refused:
            return
        self._heard = True
        self._moved = False
        self._unset_keepalive_if_required()
        if self._tls and self._write_timer is not None and not self.flow.write_paused:
            self._write_timer.cancel()  # who asks again has read the last answer
            self._write_timer = None
        if self._phase is _Phase.QUIET:
            self._enter(_Phase.HEAD)
        try:
            self._parse(data)
        except httptools.HttpParserUpgrade:
            self._decline_upgrade()
        except httptools.HttpParserError:
            self._refuse(*(self._reason or (400, "this is not an HTTP/1.1 request")))
        self._set_clock()

    def _parse(self, data: bytes) -> None:
        piece = self._limits.header_bytes
        if len(data) <= piece:
            self._feed(data)
            return
        view = memoryview(data)
        for start in range(0, len(data), piece):
            if not self._refused:
                self._feed(view[start : start + piece])

    def _feed(self, piece: bytes | memoryview) -> None:
        moved, self._moved = self._moved, False
        self.parser.feed_data(piece)
        if self._moved:
            self._raw_bytes = 0
        else:
            # The parser says nothing of a header line, a chunk frame or a trailer
            # before its end: what it holds of them is counted here.
            self._raw_bytes += len(piece)
            self._check_raw()
        self._moved |= moved

    def _check_raw(self) -> None:
        if self._phase is _Phase.BODY:
            # Twice, since small chunks have frames larger than themselves.
            if self._raw_bytes > 2 * self._limits.body_bytes:
                self._refuse(413, self._too_large())
        elif self._raw_bytes > self._limits.header_bytes:
            self._refuse(431, self._head_too_large())

    def _enter(self, phase: _Phase) -> None:
        self._phase = phase
        self._moved = True

    def _head_too_large(self) -> str:
        return f"the request head is larger than {self._limits.header_bytes} bytes"

    def _too_large(self) -> str:
        return f"the request body is larger than {self._limits.body_bytes} bytes"

    def _reject(self, status: int, reason: str) -> NoReturn:
        self._reason = (status, reason)
        raise _RejectedError

    # Parser callbacks

    def on_message_begin(self) -> None:
        """Start to count a head."""
        super().on_message_begin()
        self._head_bytes = 0
        self._enter(_Phase.HEAD)

    def on_url(self, url: bytes) -> None:
        """Collect the URL up to its limit."""
        super().on_url(url)
        if len(self.url) > self._limits.url_bytes:
            self._reject(414, f"the URL is longer than {self._limits.url_bytes} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header up to the limit of them all; a trailer only counts."""
        if self._phase is _Phase.HEAD:
            # uvicorn would add trailers to the headers of the running request.
            super().on_header(name, value)
        self._head_bytes += len(name) + len(value) + _HEADER_FRAME
        if self._head_bytes + len(self.url) > self._limits.header_bytes:
            self._reject(431, self._head_too_large())
        if name.lower() == b"content-length" and int(value) > self._limits.body_bytes:
            self._reject(413, self._too_large())

    def on_headers_complete(self) -> None:
        """Hand the request to the application, unless too many wait already."""
        if self.parser.get_http_version() not in ("1.1", "1.0"):
            self._reject(505, "only HTTP/1.1 and HTTP/1.0 are spoken here")
        if len(self.pipeline) >= _PIPELINED:
            self._reject(429, f"more than {_PIPELINED} requests sent ahead of their answers")
        self._shared.refresh()
        super().on_headers_complete()
        self._roster.busy(self)
        self._enter(_Phase.BODY)

    def on_body(self, body: bytes) -> None:
        """Collect the body up to its limit, also of a request answered early."""
        super().on_body(body)
        self._head_bytes = 0
        if len(self.cycle.body) > self._limits.body_bytes:
            self._reject(413, self._too_large())

    def on_message_complete(self) -> None:
        """Wait for the next request."""
        super().on_message_complete()
        self._enter(_Phase.QUIET)

    def on_response_complete(self) -> None:
        """Go on to what is owed next, or start the clock of an idle connection."""
        super().on_response_complete()
        if self._owes():
            return
        self._roster.idle(self)
        if self.transport.is_closing():
            self._ensure_gone()
        elif self._refusal is not None:
            self._say_refusal(*self._refusal)
        elif self._refused or self._peer_done:
            self._hang_up()
        elif self._tls:
            self._watch_tls_reader()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that was idle for long."""
        self._hang_up()

    # Refusals

    def _owes(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse(self, status: int, reason: str) -> None:
        """Read no more, and say why once all earlier requests are answered."""
        logger.debug("refused %s: %d, %s", self.client or "a local peer", status, reason)
        self._refused = True
        if self._phase is _Phase.BODY:
            self._refuse_begun(status, reason)
        elif self._owes():
            self._refusal = (status, reason)
        else:
            self._say_refusal(status, reason)

    def _refuse_begun(self, status: int, reason: str) -> None:
        """Refuse a request that the application has already: answer it but once."""
        if self.cycle.response_complete:
            self._linger()
        elif self.pipeline or self.cycle.response_started:
            self.cycle.keep_alive = False
        else:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self._say_refusal(status, reason)

    def _say_refusal(self, status: int, reason: str) -> None:
        body = f"{reason}\n".encode("ascii")
        self._shared.refresh()
        headers = [
            *self._shared.default_headers,
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        lines = [name + b": " + value + b"\r\n" for name, value in headers]
        self.transport.write(b"".join([STATUS_LINE[status], *lines, b"\r\n", body]))
        self._linger()

    def _linger(self) -> None:
        """Close so that the answer arrives: unread input would reset it away."""
        self._refused = True
        if self.transport.is_closing():
            return
        if self._tls or self._peer_done or not self.transport.can_write_eof():
            self._hang_up()
            return
        self.flow.resume_reading()
        self.transport.write_eof()
        if self._exit_timer is None:
            self._exit_timer = self.loop.call_later(self._limits.linger_s, self.transport.abort)

    def _decline_upgrade(self) -> None:
        """Answer an upgrade request as a plain one, the last of its connection."""
        self._refused = True
        if self._owes():
            self.cycle.keep_alive = False
        else:
            self._hang_up()

    # Clocks

    def _give(self, seconds: float) -> None:
        self._deadline = self.loop.time() + seconds
        if self._read_timer is not None and self._read_timer.when() > self._deadline:
            self._read_timer.cancel()
            self._read_timer = None
        if self._read_timer is None:
            self._read_timer = self.loop.call_at(self._deadline, self._on_read_timer)

    def _set_clock(self) -> None:
        if self._phase is _Phase.QUIET or self._refused:
            # The timer stays and finds nothing to do: cheaper than a new one
            # per request.
            self._deadline = None
        elif self._moved:
            in_head = self._phase is _Phase.HEAD
            self._give(self._limits.header_s if in_head else self._limits.body_s)

    def _on_read_timer(self) -> None:
        self._read_timer = None
        if self._deadline is None:
            return
        if self.loop.time() < self._deadline:
            self._read_timer = self.loop.call_at(self._deadline, self._on_read_timer)
        elif self._owes():
            # We may have stopped reading until an answer is out, so this lateness
            # is not the peer's; its time runs anew.
            self._give(self._limits.header_s)
        elif self._heard and self._phase is _Phase.HEAD:
            self._refuse(408, f"no whole request head within {self._limits.header_s:g} s")
        else:
            self._hang_up()

    def _hang_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
        self._ensure_gone()

    def _ensure_gone(self) -> None:
        """Bound the time for the last bytes, and for the goodbye of TLS."""
        if self._exit_timer is None:
            self._exit_timer = self.loop.call_later(self._limits.write_s, self._drop)

    # Writing

    def pause_writing(self) -> None:
        """Start the clock of a reader that leaves bytes with us."""
        super().pause_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
        self._write_timer = self.loop.call_later(self._limits.write_s, self._drop)

    def resume_writing(self) -> None:
        """Stop the clock: all is sent."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _watch_tls_reader(self) -> None:
        """Look again later: a TLS transport does not report what lies below it."""
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self._limits.write_s, self._check_tls_reader)

    def _check_tls_reader(self) -> None:
        self._write_timer = None
        sock = self.transport.get_extra_info("socket")
        unsent = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)))[0]
        if unsent:
            self._drop()

    def _drop(self) -> None:
        """Reset the connection, so that the kernel lets go of unsent bytes too."""
        sock = self.transport.get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.transport.abort()
