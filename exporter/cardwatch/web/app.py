# SPDX-License-Identifier: Apache-2.0
"""The routes, and who may use them.

Owns the mapping from a request to ready content. It must never build content, and
never do anything that takes time on the path of ``/metrics``.

Where the web config names users, every route needs credentials, ``/healthz`` and
``/readyz`` too: that is what the exporter-toolkit does, so one file means the same
for all exporters of a node. A liveness probe then sends an Authorization header.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Literal, Protocol

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from cardwatch.web import tls
from cardwatch.web.auth import Authenticator, BusyError
from cardwatch.web.negotiate import OPENMETRICS, TEXT, wants_gzip, wants_openmetrics
from cardwatch.web.reload import LiveConfig

ApiAccess = Literal["all", "loopback"]
API_PAGES = ("gpus", "events", "health", "ledger")

_DURATION = re.compile(r"(?P<count>[0-9]{1,9})(?P<unit>s|m|h)", re.ASCII)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_HTML_HEADERS = (
    (
        "content-security-policy",
        "default-src 'none'; style-src 'unsafe-inline' 'self'; script-src 'self'; "
        "img-src 'self' data:",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
)
_METRICS_HEADERS = {
    (openmetrics, gzip): [
        (b"content-type", (OPENMETRICS if openmetrics else TEXT).encode("ascii")),
        (b"vary", b"Accept, Accept-Encoding"),
        *([(b"content-encoding", b"gzip")] if gzip else []),
    ]
    for openmetrics in (False, True)
    for gzip in (False, True)
}


class Pages(Protocol):
    """Where content comes from; each call returns at once with what is ready."""

    def metrics(self, *, openmetrics: bool, gzip: bool) -> bytes:
        """Give the exposition in this format, compressed already if gzip is set."""

    def ready(self) -> str | None:
        """Give None when ready, else the reason in one line."""

    def alive(self) -> bool:
        """Tell whether the exporter itself works."""

    def json(self, name: str) -> bytes | None:
        """Give the document of ``/api/v1/<name>``, None where this version has none."""

    def status_html(self) -> bytes:
        """Give the status page."""

    def detach(self, seconds: float) -> str:
        """Let go of the GPUs for a time; gives a line to answer with.

        A ``ValueError`` is a time that is not accepted; its text is the answer.
        """


def make_app(
    pages: Pages,
    live: LiveConfig,
    auth: Authenticator,
    *,
    api: ApiAccess = "all",
    detach: bool = False,
) -> ASGIApp:
    """Build the application; ``detach`` switches ``POST /-/detach`` on."""
    metrics = _Metrics(pages)
    probes = _Probes(pages)
    routes = [
        Route("/metrics", metrics, methods=["GET"]),
        Route("/", _StatusPage(pages, live).get, methods=["GET"]),
        Route("/healthz", probes.healthz, methods=["GET"]),
        Route("/readyz", probes.readyz, methods=["GET"]),
    ]
    for name in API_PAGES:
        document = _Document(pages, name, api)
        routes.append(Route(f"/api/v1/{name}", document.get, methods=["GET"]))
    if detach:
        routes.append(Route("/-/detach", _Detach(pages, live).post, methods=["POST"]))
    router = Router(routes, redirect_slashes=False, default=_not_found)
    return _Gate(live, auth, metrics, router)


class _Gate:
    """Lets a request in, and answers ``/metrics`` without further ado."""

    def __init__(
        self, live: LiveConfig, auth: Authenticator, metrics: _Metrics, inner: ASGIApp
    ) -> None:
        self._live = live
        self._auth = auth
        self._metrics = metrics
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._live.poll()
        if self._live.current.users:
            refusal = await self._refusal(scope)
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        if scope["path"] == "/metrics" and scope["method"] in ("GET", "HEAD"):
            await self._metrics(scope, receive, send)
        else:
            await self._inner(scope, receive, send)

    async def _refusal(self, scope: Scope) -> Response | None:
        users, authorization = self._live.current.users, _header(scope, b"authorization")
        if self._auth.known(users, authorization):
            return None
        try:
            if await self._auth.check(users, authorization):
                return None
        except BusyError:
            return _line(503, "too many logins at once, try again", {"retry-after": "1"})
        challenge = {"www-authenticate": 'Basic realm="cardwatch"'}
        return _line(401, "user name and password needed", challenge)


class _Metrics:
    """The one page that has to be fast, without a starlette request or response."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        openmetrics = wants_openmetrics(_header(scope, b"accept") or b"")
        gzip = wants_gzip(_header(scope, b"accept-encoding") or b"")
        page = self._pages.metrics(openmetrics=openmetrics, gzip=gzip)
        length = (b"content-length", b"%d" % len(page))
        headers = [*_METRICS_HEADERS[openmetrics, gzip], length]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": page})


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    await _line(404, "no such page; / lists what there is")(scope, receive, send)


class _StatusPage:
    def __init__(self, pages: Pages, live: LiveConfig) -> None:
        self._pages = pages
        self._live = live

    async def get(self, _request: Request) -> Response:
        # What the operator configured is on every answer already, and wins.
        configured = {name.decode("ascii") for name, _ in self._live.current.headers}
        headers = {name: value for name, value in _HTML_HEADERS if name not in configured}
        return Response(self._pages.status_html(), headers=headers, media_type="text/html")


class _Probes:
    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    async def healthz(self, _request: Request) -> Response:
        return _line(200, "ok") if self._pages.alive() else _line(503, "not alive")

    async def readyz(self, _request: Request) -> Response:
        reason = self._pages.ready()
        return _line(200, "ready") if reason is None else _line(503, reason)


class _Document:
    def __init__(self, pages: Pages, name: str, api: ApiAccess) -> None:
        self._pages = pages
        self._name = name
        self._api = api

    async def get(self, request: Request) -> Response:
        if self._api == "loopback" and not from_this_machine(request.scope):
            return _line(403, "the API is open to this machine only (web.api=loopback)")
        content = self._pages.json(self._name)
        if content is None:
            return _line(404, f"this version has no {self._name} document")
        return Response(content, media_type="application/json")


class _Detach:
    def __init__(self, pages: Pages, live: LiveConfig) -> None:
        self._pages = pages
        self._live = live

    async def post(self, request: Request) -> Response:
        if not (from_this_machine(request.scope) or self._authenticated()):
            return _line(403, "detach is for this machine or authenticated clients only")
        if "origin" in request.headers:
            # Any web page open in a browser here could post to loopback.
            return _line(403, "detach is not for web pages")
        match = _DURATION.fullmatch(request.query_params.get("for", ""))
        if match is None or int(match["count"]) == 0:
            return _line(400, "give the time, for example POST /-/detach?for=15m")
        try:
            answer = self._pages.detach(int(match["count"]) * _SECONDS[match["unit"]])
        except ValueError as exc:
            return _line(400, str(exc))
        return _line(200, answer)

    def _authenticated(self) -> bool:
        """Tell whether whoever came this far has proven who they are."""
        config = self._live.current
        by_certificate = (
            config.tls is not None and config.tls.client_auth_type == tls.REQUIRE_AND_VERIFY
        )
        return bool(config.users) or by_certificate


def from_this_machine(scope: Scope) -> bool:
    """Tell whether the peer came over loopback or a Unix socket."""
    server: Sequence[object] | None = scope.get("server")
    if server is not None and server[1] is None:
        return True
    # The peer is unknown also when it reset a TCP connection, so a missing
    # address alone must not count as a Unix socket.
    client = scope.get("client")
    if not client:
        return False
    try:
        address = ipaddress.ip_address(client[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _header(scope: Scope, name: bytes) -> bytes | None:
    """Give a request header; several of one name are one list, as in RFC 9110."""
    found = [value for key, value in scope["headers"] if key == name]
    if len(found) > 1:
        return b", ".join(found)
    return found[0] if found else None


def _line(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    """Answer with one line of plain text."""
    one_line = " ".join(text.split())
    return PlainTextResponse(f"{one_line}\n", status_code=status, headers=headers)
