# SPDX-License-Identifier: Apache-2.0
"""Many connections, few descriptors, and the end of it all."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send
from web_harness import (
    CLIENT_TIMEOUT_S,
    FakePages,
    HeldApp,
    LoopThread,
    read_all,
    read_until,
    serving,
    statuses,
)

from cardwatch.web.guard import Limits
from cardwatch.web.listen import open_sockets
from cardwatch.web.reload import LiveConfig
from cardwatch.web.server import HttpServer

HEALTHZ = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
SHORT_OF_FILES = """
    import asyncio, os, resource, sys
    from cardwatch.web.app import make_app
    from cardwatch.web.auth import Authenticator
    from cardwatch.web.listen import open_sockets
    from cardwatch.web.reload import LiveConfig
    from cardwatch.web.server import HttpServer
    sys.path.insert(0, sys.argv[1])
    from web_harness import FakePages

    async def main():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        live = LiveConfig()
        app = make_app(FakePages(), live, Authenticator())
        server = HttpServer(app, open_sockets("127.0.0.1:0"), live)
        await server.start()
        taken = []
        print(server.addresses[0].rpartition(":")[2], flush=True)
        loop = asyncio.get_running_loop()
        while command := await loop.run_in_executor(None, sys.stdin.readline):
            if command == "take\\n":
                await server.empty()
                try:
                    while True:
                        taken.append(os.dup(0))
                except OSError:
                    pass
            else:
                while taken:
                    os.close(taken.pop())
            print("done", flush=True)
        await server.stop(5)

    asyncio.run(main())
"""


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_flood_of_slow_peers_does_not_stop_the_page() -> None:
    """500 silent and slow peers: a request is answered, and all of them end without a leak."""
    limits = Limits(header_s=2.0, body_s=2.0)
    with serving(limits=limits) as served:
        served.get("/healthz")
        served.wait_empty()
        files, tasks = open_files(), served.thread.tasks()
        slow = [served.connect() for _ in range(500)]
        try:
            for number, sock in enumerate(slow):
                if number % 2:
                    sock.sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: ")
            assert served.get("/metrics").status == 200
            answers = [statuses(read_all(sock)) for sock in slow]
        finally:
            for sock in slow:
                sock.close()
        assert answers == [[], [408]] * 250
        served.wait_empty()
        assert served.thread.tasks() == tasks
        assert open_files() == files


def test_the_longest_idle_connection_gives_way() -> None:
    """At the limit a new connection replaces the one idle longest, not the one just used."""
    with serving(limits=Limits(connections=3)) as served:
        idle = [served.connect() for _ in range(3)]
        try:
            for sock in (idle[1], idle[2], idle[0]):
                sock.sendall(HEALTHZ)
                assert statuses(read_until(sock, b"ok\n")) == [200]
            assert served.get("/healthz").status == 200
            assert read_all(idle[1]) == b""
            idle[0].sendall(HEALTHZ)
            assert statuses(read_until(idle[0], b"ok\n")) == [200]
        finally:
            for sock in idle:
                sock.close()


def test_a_connection_in_use_does_not_give_way(caplog: pytest.LogCaptureFixture) -> None:
    """When all connections have a request in progress it is the new one that is closed."""
    held = HeldApp()
    with serving(app=held, limits=Limits(connections=2)) as served:
        busy = [served.connect() for _ in range(2)]
        try:
            for sock in busy:
                sock.sendall(HEALTHZ)
                assert held.entered.acquire(timeout=CLIENT_TIMEOUT_S)
            for _ in range(5):
                assert served.exchange(b"") == b""
            held.let_go(served)
            for sock in busy:
                assert statuses(read_until(sock, b"held\n")) == [200]
        finally:
            for sock in busy:
                sock.close()
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_stop_answers_what_is_in_progress(tmp_path: Path) -> None:
    """Stop closes idle connections at once and lets a request in progress finish."""
    held = HeldApp()
    path = tmp_path / "s"
    with (
        serving(f"unix:{path}", app=held) as served,
        socket.socket(socket.AF_UNIX) as idle,
        socket.socket(socket.AF_UNIX) as busy,
    ):
        for sock in (idle, busy):
            sock.settimeout(CLIENT_TIMEOUT_S)
            sock.connect(str(path))
        busy.sendall(HEALTHZ)
        assert held.entered.acquire(timeout=CLIENT_TIMEOUT_S)
        stopping = served.thread.submit(served.server.stop(30.0))
        assert read_all(idle) == b""
        assert not path.exists()
        held.let_go(served)
        assert statuses(read_all(busy)) == [200]
        stopping.result(CLIENT_TIMEOUT_S)


def test_stop_does_not_wait_for_ever() -> None:
    """After the grace time connections and tasks that are still there are ended."""
    held = HeldApp()
    pages = FakePages(text=b"#" * 32_000_000)
    with serving(app=held) as served, served.connect() as sock:
        sock.sendall(HEALTHZ)
        assert held.entered.acquire(timeout=CLIENT_TIMEOUT_S)
        served.thread.run(served.server.stop(0.3))
        assert statuses(read_all(sock)) == []
        assert served.thread.tasks() == 0
    with serving(pages=pages) as served, served.connect() as sock:
        sock.sendall(HEALTHZ.replace(b"healthz", b"metrics"))
        assert sock.recv(1)
        served.thread.run(served.server.stop(0.3))
        assert served.server.connections == 0


def test_a_server_that_never_started_can_be_stopped() -> None:
    """The sockets are closed also when start was not reached."""
    thread = LoopThread()

    async def never() -> list[str]:
        async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
            raise AssertionError

        server = HttpServer(app, open_sockets("127.0.0.1:0"), LiveConfig())
        await server.stop(1.0)
        return server.addresses

    try:
        port = int(thread.run(never())[0].rpartition(":")[2])
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=CLIENT_TIMEOUT_S)
    finally:
        thread.close()


def test_the_soft_limit_on_files_is_raised() -> None:
    """At start the soft limit goes up to 4096, or to the hard limit where that is lower."""
    script = """
        import resource, sys
        from cardwatch.web.server import raise_file_limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
        print(raise_file_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = 4096 if hard == resource.RLIM_INFINITY else min(hard, 4096)
    for soft, ceiling, expected in ((128, 512, 512), (128, hard, most), (400, 400, 400)):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script), str(soft), str(ceiling)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert done.stdout.split() == [str(expected), str(expected), str(ceiling)]


def test_it_recovers_from_a_lack_of_descriptors() -> None:
    """Few descriptors mean fewer connections; none at all is survived, with few words."""
    here = str(Path(__file__).parent)
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SHORT_OF_FILES), here],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        port = int(child.stdout.readline())

        def ask() -> list[int]:
            with socket.create_connection(("127.0.0.1", port), CLIENT_TIMEOUT_S) as sock:
                sock.sendall(HEALTHZ.replace(b"Host", b"Connection: close\r\nHost"))
                return statuses(read_all(sock))

        crowd = [
            socket.create_connection(("127.0.0.1", port), CLIENT_TIMEOUT_S) for _ in range(100)
        ]
        assert ask() == [200]
        for sock in crowd:
            sock.close()
        child.stdin.write("take\n")
        child.stdin.flush()
        assert child.stdout.readline() == "done\n"
        with socket.create_connection(("127.0.0.1", port), CLIENT_TIMEOUT_S) as waiting:
            waiting.sendall(HEALTHZ.replace(b"Host", b"Connection: close\r\nHost"))
            assert "cannot accept connections for now" in next(
                line for line in child.stderr if "cannot" in line
            )
            child.stdin.write("free\n")
            child.stdin.flush()
            assert statuses(read_all(waiting)) == [200]
        child.stdin.close()
        assert "Traceback" not in child.stderr.read()
        assert child.wait(CLIENT_TIMEOUT_S) == 0


def test_no_timer_runs_while_nobody_asks() -> None:
    """With no connection open the loop has nothing scheduled: an idle exporter sleeps."""
    with serving() as served:
        served.get("/metrics")
        served.wait_empty()

        async def scheduled() -> int:
            await asyncio.sleep(0)
            handles = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
            return sum(not handle.cancelled() for handle in handles)

        assert served.thread.run(scheduled()) == 0


def test_aborted_requests_leave_no_noise(caplog: pytest.LogCaptureFixture) -> None:
    """Peers that reset in the middle of an answer cause no warning and no error."""
    pages = FakePages(text=b"#" * 8_000_000)
    with caplog.at_level(logging.INFO), serving(pages=pages) as served:
        for _ in range(20):
            with served.connect() as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                sock.sendall(HEALTHZ.replace(b"healthz", b"metrics") * 3)
                sock.recv(1000)
        served.wait_empty()
    assert caplog.records == []
