# SPDX-License-Identifier: Apache-2.0
"""What a connection does with peers that are slow, greedy or confused."""

from __future__ import annotations

import logging
import select
import socket
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from web_harness import (
    CLIENT_TIMEOUT_S,
    TEXT_PAGE,
    FakePages,
    HeldApp,
    Served,
    read_all,
    serving,
    statuses,
)

from cardwatch.web.guard import Limits

HURRIED = Limits(header_s=0.2, body_s=0.2, write_s=0.3, linger_s=0.2, keep_alive_s=1)
HEALTHZ = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
POST = b"POST /healthz HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture
def hurried() -> Iterator[Served]:
    """Serve with deadlines that a test can wait for."""
    with serving(limits=HURRIED) as running:
        yield running


def head_of(size: int) -> bytes:
    """Make a request head whose URL and header lines come to this size."""
    start, end = b"GET /healthz HTTP/1.1\r\nX-Fill: ", b"\r\nConnection: close\r\n\r\n"
    counted = len("/healthz") + len("X-Fill: \r\n") + len("Connection: close\r\n")
    return start + b"a" * (size - counted) + end


# Heads


def test_a_silent_connection_is_closed(hurried: Served) -> None:
    """A peer that says nothing is closed without an answer."""
    assert hurried.exchange(b"") == b""


def test_a_head_that_does_not_end_is_closed(hurried: Served) -> None:
    """A peer that starts a head and stops is told 408 and closed."""
    answer = hurried.exchange(b"GET /metrics HTTP/1.1\r\nHost:")
    assert statuses(answer) == [408]


def test_bytes_now_and_then_do_not_hold_a_connection(hurried: Served) -> None:
    """The deadline of a head runs from its start, more bytes do not extend it."""
    with hurried.connect() as sock:
        sock.sendall(b"GET /metrics HTTP/1.1\r\n")
        # Sends a byte each time that the server has not answered in a while.
        while not select.select([sock], [], [], 0.05)[0]:
            sock.sendall(b"X")
        assert statuses(read_all(sock)) == [408]


def test_a_head_after_an_answer_has_its_own_deadline(hurried: Served) -> None:
    """A second request that does not end is closed like a first one."""
    answer = hurried.exchange(HEALTHZ + b"GET /metrics")
    assert statuses(answer) == [200, 408]


def test_an_idle_connection_is_closed_after_a_while(hurried: Served) -> None:
    """After an answer the connection is kept for its keep-alive time, then closed."""
    assert statuses(hurried.exchange(HEALTHZ)) == [200]


@pytest.mark.parametrize(
    ("size", "status"), [(16 * 1024, 200), (16 * 1024 + 1, 431), (100_000, 431)]
)
def test_a_head_has_a_size_limit(served: Served, size: int, status: int) -> None:
    """A head of 16 KiB is served, a larger one is told 431 and closed."""
    assert statuses(served.exchange(head_of(size))) == [status]


@pytest.mark.parametrize(
    "flood",
    [
        b"GET /metrics HTTP/1.1\r\nX-Long: " + b"a" * 1_000_000,
        b"GET /metrics HTTP/1.1\r\n" + b"X" * 1_000_000,
        b"GET /metrics HTTP/1.1\r\n" + b"a: b\r\n" * 100_000,
        b"\r\n" * 500_000,
    ],
    ids=["value", "name", "lines", "empty-lines"],
)
def test_an_endless_head_is_cut_off(served: Served, flood: bytes) -> None:
    """A head without end is told 431 once it passed the limit, in whatever part it grows."""
    with served.connect() as sock:
        try:
            sock.sendall(flood)
        except ConnectionError:
            pass  # closed while we were still sending
        assert statuses(read_all(sock)) in ([431], [])
    assert statuses(served.exchange(flood[:40_000])) == [431]


def test_a_long_url_is_414(served: Served) -> None:
    """A URL above its limit is told 414 and closed."""
    request = b"GET /metrics?" + b"a" * 5000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"
    assert statuses(served.exchange(request)) == [414]


@pytest.mark.parametrize(
    "garbage",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /metr\xffics HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nno colon here\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"CONNECT example.org:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_garbage_is_400_without_noise(
    served: Served, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """What is no request is told 400 and closed, and nobody is bothered with a log line."""
    with caplog.at_level(logging.INFO):
        assert statuses(served.exchange(garbage)) == [400]
    assert caplog.records == []


@pytest.mark.parametrize("line", [b"GET /metrics", b"GET /metrics HTTP/2.0"])
def test_other_versions_of_http_are_505(served: Served, line: bytes) -> None:
    """HTTP/0.9 and HTTP/2 without TLS are told what is spoken here."""
    assert statuses(served.exchange(line + b"\r\nHost: x\r\n\r\n"))[0] == 505


FRAGMENTS = [
    *(b"GET / HTTP/1.1\r\n", b"Host: x\r\n", b"\r\n", b"Content-Length: 3\r\n", b"0\r\n", b"abc"),
    *(b"Transfer-Encoding: chunked\r\n", b"Upgrade: h2c\r\n", b"Connection: upgrade\r\n"),
    *(b"Expect: 100-continue\r\n", b"POST ", b"HTTP/1.0", b"%zz", b"\0"),
]
SENT = st.one_of(
    st.binary(max_size=300),
    st.lists(st.sampled_from(FRAGMENTS), max_size=12).map(b"".join),
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(SENT)
def test_no_bytes_stop_the_server(served: Served, sent: bytes) -> None:
    """Whatever a peer sends, its connection ends and the next peer is served."""
    with served.connect() as sock:
        sock.sendall(sent)
        sock.shutdown(socket.SHUT_WR)
        read_all(sock)
    assert statuses(served.exchange(LAST)) == [200]


def test_credentials_and_paths_stay_out_of_the_log(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """At the most verbose level no part of what a peer sent is logged."""
    with caplog.at_level(logging.DEBUG):
        for end in (b"\r\n\r\n", b"\r\nbroken\r\n\r\n", b"\r\nX: " + b"a" * 20_000 + b"\r\n\r\n"):
            served.exchange(
                b"GET /metrics?token=s3cret HTTP/1.1\r\nConnection: close\r\n"
                b"Authorization: Basic czNjcmV0OnMzY3JldA==" + end
            )
    assert "s3cret" not in caplog.text
    assert "czNjcmV0" not in caplog.text


# Bodies


def test_a_large_body_is_413_by_its_announcement(served: Served) -> None:
    """A Content-Length above the limit is told 413 before the body is sent."""
    request = POST + b"Content-Length: 70000\r\nExpect: 100-continue\r\n\r\n"
    assert statuses(served.exchange(request)) == [413]


def test_a_large_body_in_chunks_is_cut_off(served: Served) -> None:
    """A body without a length is read up to the limit, then the connection ends."""
    request = POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"4000\r\n" + b"a" * 0x4000 + b"\r\n"
    with served.connect() as sock:
        try:
            sock.sendall(request + (b"4000\r\n" + b"a" * 0x4000 + b"\r\n") * 50)
        except ConnectionError:
            pass  # closed while we were still sending
        assert statuses(read_all(sock)) in ([405], [413], [])


def test_a_large_chunked_body_is_413_before_an_answer() -> None:
    """A body that passes the limit while the request is in progress is told 413."""
    held = HeldApp()
    with serving(app=held) as served:
        with served.connect() as sock:
            sock.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n")
            assert held.entered.acquire(timeout=CLIENT_TIMEOUT_S)
            sock.sendall((b"4000\r\n" + b"a" * 0x4000 + b"\r\n") * 5)
            assert statuses(read_all(sock)) == [413]
        held.let_go(served)


def test_a_body_within_the_limit_is_no_problem(served: Served) -> None:
    """A body of 64 KiB is read away, and the connection serves the next request."""
    body = b"Content-Length: 65536\r\n\r\n" + b"a" * 65536
    assert statuses(served.exchange(POST + body + LAST)) == [405, 200]


def test_a_body_that_does_not_come_is_not_awaited(hurried: Served) -> None:
    """A body that stops is given up after its deadline, the answer stays valid."""
    assert statuses(hurried.exchange(POST + b"Content-Length: 100\r\n\r\nhalf")) == [405]


def test_endless_trailers_are_cut_off(served: Served) -> None:
    """Trailers after a chunked body cannot grow without limit either."""
    request = POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 100_000
    with served.connect() as sock:
        try:
            sock.sendall(request)
        except ConnectionError:
            pass  # closed while we were still sending
        assert statuses(read_all(sock)) in ([405], [431], [])


# Order of answers


def test_pipelined_requests_are_answered_in_order(served: Served) -> None:
    """Requests sent at once are answered one after the other, each with its own page."""
    request = HEALTHZ + LAST.replace(b"Connection: close\r\n", b"") + HEALTHZ * 10 + LAST
    answer = served.exchange(request)
    assert statuses(answer) == [200] * 13
    assert answer.count(TEXT_PAGE) == 2
    assert answer.index(b"ok\n") < answer.index(TEXT_PAGE)
    assert answer.endswith(TEXT_PAGE)


def test_requests_in_single_bytes_are_understood(served: Served) -> None:
    """How requests are cut into packets does not matter."""
    with served.connect() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in HEALTHZ + LAST:
            sock.sendall(bytes([byte]))
        assert statuses(read_all(sock)) == [200, 200]


def test_garbage_after_good_requests_does_not_spoil_their_answers(served: Served) -> None:
    """A refusal comes after the answers to the requests before it."""
    assert statuses(served.exchange(HEALTHZ * 3 + b"nonsense\r\n\r\n")) == [200, 200, 200, 400]


def test_a_peer_that_stopped_sending_gets_answers_before_a_refusal(served: Served) -> None:
    """The end of the peer's sending does not cut off what is owed before a refusal."""
    with served.connect() as sock:
        sock.sendall(HEALTHZ * 3 + b"nonsense\r\n\r\n")
        sock.shutdown(socket.SHUT_WR)
        assert statuses(read_all(sock)) == [200, 200, 200, 400]


def test_too_many_requests_ahead_of_answers_are_429(served: Served) -> None:
    """A peer that sends ahead without end gets what was taken, then 429."""
    assert statuses(served.exchange(HEALTHZ * 400)) == [200] * 65 + [429]


def test_pipelined_requests_wait_for_a_slow_answer() -> None:
    """Requests behind one in progress are kept, however late its answer is."""
    held = HeldApp()
    with serving(app=held, limits=HURRIED) as served, served.connect() as sock:
        sock.sendall(HEALTHZ * 2 + b"GET /part")
        assert held.entered.acquire(timeout=CLIENT_TIMEOUT_S)
        # Longer than the deadline of a head, which must not count while we are late.
        assert not select.select([sock], [], [], 3 * HURRIED.header_s)[0]
        held.let_go(served)
        assert statuses(read_all(sock)) == [200, 200, 408]


def test_a_peer_that_stopped_sending_gets_its_answer() -> None:
    """Closing the sending half, as netcat does, does not lose answers in progress."""
    held = HeldApp()
    with serving(app=held) as served, served.connect() as sock:
        sock.sendall(HEALTHZ * 2)
        sock.shutdown(socket.SHUT_WR)
        assert held.entered.acquire(timeout=CLIENT_TIMEOUT_S)
        held.let_go(served)
        assert statuses(read_all(sock)) == [200, 200]


@pytest.mark.parametrize(
    "upgrade",
    [
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\n",
    ],
)
def test_an_upgrade_is_answered_as_a_plain_request(
    served: Served, upgrade: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that offers an upgrade gets its page over HTTP/1.1, without a log line."""
    with caplog.at_level(logging.INFO):
        answer = served.exchange(b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + upgrade + b"\r\n")
    assert statuses(answer) == [200]
    assert b"connection: close" in answer
    assert answer.endswith(TEXT_PAGE)
    assert caplog.records == []


def test_http_1_0_is_answered_and_closed(served: Served) -> None:
    """A request of HTTP/1.0 gets its page and the end of the connection."""
    answer = served.exchange(b"GET /metrics HTTP/1.0\r\n\r\n")
    assert statuses(answer) == [200]
    assert answer.endswith(TEXT_PAGE)


# Writing


@pytest.mark.parametrize("request_", [HEALTHZ, LAST], ids=["keep-alive", "close"])
def test_a_reader_that_does_not_read_is_reset(request_: bytes) -> None:
    """A peer that leaves its answer with us is reset after the write deadline."""
    pages = FakePages(text=b"#" * 32_000_000)
    with serving(pages=pages, limits=HURRIED) as served, served.connect() as sock:
        sock.sendall(request_.replace(b"/healthz", b"/metrics"))
        waiting = select.poll()
        waiting.register(sock, select.POLLERR | select.POLLHUP)
        assert waiting.poll(CLIENT_TIMEOUT_S * 1000)
        served.wait_empty()


def test_a_reader_that_reads_gets_all(served: Served) -> None:
    """A large page reaches a peer that reads it."""
    served.pages.text = b"#" * 16_000_000
    answer = served.exchange(LAST)
    assert len(answer.partition(b"\r\n\r\n")[2]) == 16_000_000
