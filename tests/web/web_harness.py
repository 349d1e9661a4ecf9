# SPDX-License-Identifier: Apache-2.0
"""What the tests of cardwatch.web share: a served app, clients and certificates.

The server runs in an event loop of a thread of its own, the clients use blocking
sockets, as real peers would.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip as gzip_module
import http.client
import re
import socket
import ssl
import subprocess
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

from cardwatch.web.app import ApiAccess, make_app
from cardwatch.web.auth import Authenticator
from cardwatch.web.guard import Limits
from cardwatch.web.listen import open_sockets
from cardwatch.web.reload import LiveConfig
from cardwatch.web.server import HttpServer

T = TypeVar("T")
TEXT_PAGE = b'# TYPE card_up gauge\ncard_up{gpu="0"} 1\n'
OPENMETRICS_PAGE = TEXT_PAGE + b"# EOF\n"
CLIENT_TIMEOUT_S = 30


@dataclass
class FakePages:
    """Pages whose content a test sets."""

    text: bytes = TEXT_PAGE
    openmetrics_text: bytes = OPENMETRICS_PAGE
    not_ready: str | None = None
    is_alive: bool = True
    documents: dict[str, bytes] = field(default_factory=lambda: {"gpus": b'{"gpus":[]}'})
    html: bytes = b"<!doctype html><title>cardwatch</title>"
    detached: list[float] = field(default_factory=list)

    def metrics(self, *, openmetrics: bool, gzip: bool) -> bytes:
        page = self.openmetrics_text if openmetrics else self.text
        return gzip_module.compress(page) if gzip else page

    def ready(self) -> str | None:
        return self.not_ready

    def alive(self) -> bool:
        return self.is_alive

    def json(self, name: str) -> bytes | None:
        return self.documents.get(name)

    def status_html(self) -> bytes:
        return self.html

    def detach(self, seconds: float) -> str:
        if seconds > 3600:
            raise ValueError("at most 1h")
        self.detached.append(seconds)
        return f"detached for {seconds:g} s"


class LoopThread:
    """An event loop that runs in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.errors: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _loop, context: self.errors.append(context))
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.submit(coroutine).result(60)

    def tasks(self) -> int:
        """Count the tasks of the loop, without the one that counts."""

        async def count() -> int:
            return len(asyncio.all_tasks()) - 1

        return self.run(count())

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(30)
        self.loop.close()


@dataclass
class Served:
    """A running server and ways to talk to it."""

    thread: LoopThread
    server: HttpServer
    live: LiveConfig
    pages: FakePages

    @property
    def port(self) -> int:
        return int(self.server.addresses[0].rpartition(":")[2])

    def connect(self, host: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection((host, self.port), timeout=CLIENT_TIMEOUT_S)

    def exchange(self, request: bytes, host: str = "127.0.0.1") -> bytes:
        """Send bytes, and read until the server closes."""
        with self.connect(host) as sock:
            sock.sendall(request)
            return read_all(sock)

    def request(
        self,
        method: str,
        path: str,
        headers: dict[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        host: str = "localhost",
    ) -> Answer:
        connection = (
            http.client.HTTPConnection(host, self.port, timeout=CLIENT_TIMEOUT_S)
            if tls is None
            else http.client.HTTPSConnection(host, self.port, timeout=CLIENT_TIMEOUT_S, context=tls)
        )
        with contextlib.closing(connection):
            connection.request(method, path, headers=headers or {})
            response = connection.getresponse()
            return Answer(
                response.status,
                {name.lower(): value for name, value in response.getheaders()},
                response.read(),
            )

    def get(
        self,
        path: str,
        headers: dict[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> Answer:
        return self.request("GET", path, headers, tls)

    def wait_empty(self) -> None:
        """Return once the server sees no connection any more."""
        self.thread.run(asyncio.wait_for(self.server.empty(), 60))


class HeldApp:
    """An app that answers only once the test lets it."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self._open = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.entered.release()
        await self._open.wait()
        headers = [(b"content-length", b"5")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"held\n"})

    def let_go(self, served: Served) -> None:
        served.thread.loop.call_soon_threadsafe(self._open.set)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


@contextlib.contextmanager
def serving(
    listen: str = ":0",
    *,
    pages: FakePages | None = None,
    config: Path | None = None,
    limits: Limits | None = None,
    api: ApiAccess = "all",
    detach: bool = False,
    app: ASGIApp | None = None,
) -> Iterator[Served]:
    """Serve for the length of a with block; afterwards nothing may be left."""
    shown = pages or FakePages()
    live = LiveConfig(config, interval_s=0.0)
    auth = Authenticator()
    app = app or make_app(shown, live, auth, api=api, detach=detach)
    thread = LoopThread()

    async def start() -> HttpServer:
        server = HttpServer(app, open_sockets(listen), live, limits)
        await server.start()
        return server

    try:
        server = thread.run(start())
        try:
            yield Served(thread, server, live, shown)
        finally:
            thread.run(server.stop(5.0))
            assert server.connections == 0
            assert thread.tasks() == 0
        assert thread.errors == []
    finally:
        auth.close()
        thread.close()


def read_all(sock: socket.socket) -> bytes:
    received = bytearray()
    while True:
        try:
            data = sock.recv(65536)
        except ConnectionResetError:
            return bytes(received)
        if not data:
            return bytes(received)
        received += data


def read_until(sock: socket.socket, end: bytes) -> bytes:
    """Read on an open connection up to these bytes."""
    received = b""
    while end not in received:
        data = sock.recv(65536)
        assert data, received
        received += data
    return received


def statuses(stream: bytes) -> list[int]:
    """Find the status lines in a stream of answers."""
    return [int(code) for code in re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", stream)]


class Certificates:
    """Keys and certificates, made with the openssl command."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self.directory = directory
        self.ca = directory / f"{name}.pem"
        self.ca_key = directory / f"{name}.key"
        self._openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-days", "2", "-subj", f"/CN=test {name}"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
            *("-keyout", str(self.ca_key), "-out", str(self.ca)),
        )

    def issue(self, name: str, sans: str) -> tuple[Path, Path]:
        """Make a certificate for the subject alternative names, and its key."""
        cert, key = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        request, extensions = self.directory / f"{name}.csr", self.directory / f"{name}.ext"
        # The identifiers are what Python 3.13 asks of a certificate by default.
        extensions.write_text(
            f"subjectAltName={sans}\nauthorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n"
        )
        self._openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", f"/CN={name}", "-keyout", str(key), "-out", str(request)),
        )
        self._openssl(
            *("x509", "-req", "-days", "2", "-in", str(request), "-out", str(cert)),
            *("-CA", str(self.ca), "-CAkey", str(self.ca_key), "-CAcreateserial"),
            *("-extfile", str(extensions)),
        )
        return cert, key

    def trusting(self, client: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """Give a client context that trusts this CA, with a certificate to show."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if client is not None:
            context.load_cert_chain(*client)
        return context

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)
