# SPDX-License-Identifier: Apache-2.0
"""Routes, methods, and who may use what."""

from __future__ import annotations

import asyncio
import email.utils
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message, Scope
from web_harness import FakePages, Served, serving

from cardwatch.web.app import from_this_machine, make_app
from cardwatch.web.auth import Authenticator
from cardwatch.web.reload import LiveConfig

LOOPBACK = ("127.0.0.1", 40000)
FAR = ("192.0.2.7", 40000)


def call(
    pages: FakePages,
    method: str,
    path: str,
    *,
    client: tuple[str, int] | None,
    query: bytes = b"",
    headers: list[tuple[bytes, bytes]] | None = None,
    server: tuple[str, int | None] = ("192.0.2.1", 9836),
    **options: Any,
) -> tuple[int, bytes]:
    """Call the app as a server would for a peer with this address."""
    sent: list[Message] = []
    scope: Scope = {
        "type": "http",
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query,
        "headers": headers or [],
        "client": client,
        "server": server,
    }

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    auth = Authenticator()
    try:
        asyncio.run(make_app(pages, LiveConfig(), auth, **options)(scope, receive, send))
    finally:
        auth.close()
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


@pytest.mark.parametrize(
    "path",
    [
        "/none",
        "/metrics/",
        "/Metrics",
        "/metrics/../metrics",
        "//metrics",
        "/api",
        "/api/v1/",
        "/api/v1/secrets",
        "/api/v2/gpus",
        "/-/detach",
        "/-/reload",
        "/%2e%2e/etc/passwd",
        "/metrics%00",
        "/?page",
    ],
)
def test_a_path_that_is_no_route_is_404(served: Served, path: str) -> None:
    """Whatever is not a route is answered 404 with one short line."""
    answer = served.get(path)
    if path == "/?page":
        assert answer.status == 200
        return
    assert answer.status == 404
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.body.count(b"\n") == 1


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
@pytest.mark.parametrize("path", ["/", "/metrics", "/healthz", "/readyz", "/api/v1/gpus"])
def test_other_methods_are_405_with_allow(served: Served, method: str, path: str) -> None:
    """Routes answer GET and HEAD only, and say so."""
    answer = served.request(method, path)
    assert answer.status == 405
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}


def test_probes_tell_the_state() -> None:
    """healthz and readyz are 200 when all is well, else 503 with the reason."""
    pages = FakePages()
    with serving(pages=pages) as served:
        assert (served.get("/healthz").status, served.get("/healthz").body) == (200, b"ok\n")
        assert served.get("/readyz").status == 200
        pages.is_alive = False
        pages.not_ready = "no first\nreading of GPU 3 yet"
        assert served.get("/healthz").status == 503
        answer = served.get("/readyz")
        assert (answer.status, answer.body) == (503, b"no first reading of GPU 3 yet\n")


def test_documents_are_json_where_they_exist(served: Served) -> None:
    """A document of the API is JSON, one that this version lacks is 404 by name."""
    answer = served.get("/api/v1/gpus")
    assert (answer.status, answer.body) == (200, b'{"gpus":[]}')
    assert answer.headers["content-type"] == "application/json"
    answer = served.get("/api/v1/ledger")
    assert (answer.status, answer.body) == (404, b"this version has no ledger document\n")


def test_the_status_page_is_locked_down(served: Served) -> None:
    """The HTML page carries the headers that keep foreign content out."""
    headers = served.get("/").headers
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["content-security-policy"].startswith("default-src 'none'; ")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


def test_configured_headers_are_on_every_answer_once(tmp_path: Path) -> None:
    """Headers of the web config are on all answers and replace our own of that name."""
    config = tmp_path / "web.yml"
    config.write_text(
        "http_server_config:\n  headers:\n"
        "    Content-Security-Policy: default-src 'self'\n    X-Frame-Options: deny\n"
    )
    with serving(config=config) as served:
        raw = served.exchange(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert raw.lower().count(b"content-security-policy:") == 1
        assert served.get("/").headers["content-security-policy"] == "default-src 'self'"
        assert served.get("/none").headers["x-frame-options"] == "deny"
        assert b"x-frame-options: deny" in served.exchange(b"nonsense\r\n\r\n")


def test_answers_have_a_date_and_no_server_name(served: Served) -> None:
    """Each answer carries a Date that can be read, and tells nothing of the software."""
    headers = served.get("/metrics").headers
    assert email.utils.parsedate_to_datetime(headers["date"]).tzinfo is not None
    assert "server" not in headers


def test_a_page_that_fails_is_500_and_the_next_one_works() -> None:
    """An exception of a page ends in a 500, and the server goes on."""

    class Broken(FakePages):
        def status_html(self) -> bytes:
            raise RuntimeError("no page today")

    with serving(pages=Broken()) as served:
        assert served.get("/").status == 500
        assert served.get("/metrics").status == 200


@pytest.mark.parametrize(
    ("client", "server", "expected"),
    [
        (("127.0.0.1", 1), ("127.0.0.1", 9836), True),
        (("127.8.9.10", 1), ("127.0.0.1", 9836), True),
        (("::1", 1), ("::1", 9836), True),
        (("::ffff:127.0.0.1", 1), ("::ffff:127.0.0.1", 9836), True),
        (None, ("/run/cardwatch.sock", None), True),
        (("192.0.2.7", 1), ("192.0.2.1", 9836), False),
        (("::ffff:192.0.2.7", 1), ("::ffff:192.0.2.1", 9836), False),
        (("fe80::1%eth0", 1), ("fe80::2", 9836), False),
        (None, ("192.0.2.1", 9836), False),
        (None, None, False),
        (("", 1), ("192.0.2.1", 9836), False),
    ],
)
def test_who_counts_as_this_machine(client: object, server: object, expected: bool) -> None:
    """Loopback and Unix peers are local; a TCP peer that is gone already is not."""
    assert from_this_machine({"client": client, "server": server}) is expected


def test_the_api_can_be_kept_to_this_machine() -> None:
    """With api=loopback a far peer gets 403 for the API, and the rest as before."""
    pages = FakePages()
    status, body = call(pages, "GET", "/api/v1/gpus", client=FAR, api="loopback")
    assert status == 403
    assert b"this machine only" in body
    assert call(pages, "GET", "/api/v1/gpus", client=LOOPBACK, api="loopback")[0] == 200
    assert call(pages, "GET", "/metrics", client=FAR, api="loopback")[0] == 200
    assert call(pages, "GET", "/api/v1/gpus", client=FAR, api="all")[0] == 200
    with serving(api="loopback") as served:
        assert served.get("/api/v1/gpus").status == 200


def test_detach_is_there_only_when_enabled() -> None:
    """POST /-/detach is 404 unless it is enabled, and then it takes a time."""
    pages = FakePages()
    with serving(pages=pages) as served:
        assert served.request("POST", "/-/detach?for=15m").status == 404
    with serving(pages=pages, detach=True) as served:
        answer = served.request("POST", "/-/detach?for=15m")
        assert (answer.status, answer.body) == (200, b"detached for 900 s\n")
        answer = served.get("/-/detach?for=15m")
        assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert pages.detached == [900.0]


@pytest.mark.parametrize("query", ["", "for=", "for=0s", "for=15", "for=-1m", "for=1d", "for=9h"])
def test_detach_refuses_a_time_it_cannot_take(query: str) -> None:
    """A missing, unreadable or unaccepted time is 400, and nothing is detached."""
    pages = FakePages()
    status, body = call(
        pages, "POST", "/-/detach", client=LOOPBACK, query=query.encode(), detach=True
    )
    assert status == 400
    assert body.count(b"\n") == 1
    assert pages.detached == []


def test_detach_is_for_this_machine_and_not_for_web_pages() -> None:
    """A far peer without credentials, or a web page in a local browser, gets 403."""
    pages = FakePages()
    query = b"for=1m"
    assert call(pages, "POST", "/-/detach", client=FAR, query=query, detach=True)[0] == 403
    assert call(pages, "POST", "/-/detach", client=None, query=query, detach=True)[0] == 403
    origin = [(b"origin", b"http://evil.example")]
    status, _ = call(
        pages, "POST", "/-/detach", client=LOOPBACK, query=query, headers=origin, detach=True
    )
    assert status == 403
    assert pages.detached == []
