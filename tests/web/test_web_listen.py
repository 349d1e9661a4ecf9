# SPDX-License-Identifier: Apache-2.0
"""Listen addresses: every form, and every mistake."""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from web_harness import serving

from cardwatch.web.listen import (
    ListenError,
    TcpAddress,
    UnixAddress,
    close_sockets,
    open_sockets,
    parse_listen,
    printable,
)

NO_IPV6 = """
    import ctypes, os, struct, sys
    # A seccomp filter as systemd makes it of RestrictAddressFamilies=AF_INET AF_UNIX.
    number = {"x86_64": 41, "aarch64": 198}[os.uname().machine]
    code = [(0x20, 0, 0, 0), (0x15, 0, 3, number), (0x20, 0, 0, 16),
            (0x15, 0, 1, 10), (0x06, 0, 0, 0x00050000 | 97), (0x06, 0, 0, 0x7FFF0000)]
    program = b"".join(struct.pack("HBBI", *step) for step in code)
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(code), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.c_char_p(header), 0, 0) == 0
    from cardwatch.web.listen import ListenError, close_sockets, open_sockets, printable
    sockets = open_sockets(sys.argv[1])
    print(*map(printable, sockets))
    close_sockets(sockets)
"""


@contextlib.contextmanager
def opened(value: str) -> Iterator[list[socket.socket]]:
    sockets = open_sockets(value)
    try:
        yield sockets
    finally:
        close_sockets(sockets)


def answers(host: str, port: int) -> bool:
    with socket.create_connection((host, port), timeout=10):
        return True


@pytest.mark.parametrize(
    ("value", "address"),
    [
        (":9836", TcpAddress("", 9836)),
        ("127.0.0.1:9400", TcpAddress("127.0.0.1", 9400)),
        ("localhost:9400", TcpAddress("localhost", 9400)),
        ("gpu-node_7.example.org:1", TcpAddress("gpu-node_7.example.org", 1)),
        ("[::1]:9400", TcpAddress("::1", 9400)),
        ("[::]:65535", TcpAddress("::", 65535)),
        ("[fe80::1%eth0]:0", TcpAddress("fe80::1%eth0", 0)),
        ("unix:/run/cardwatch.sock", UnixAddress("/run/cardwatch.sock")),
    ],
)
def test_each_form_is_read(value: str, address: TcpAddress | UnixAddress) -> None:
    """Each documented form of --listen gives its address."""
    assert parse_listen(value) == address


@pytest.mark.parametrize(
    "value",
    [
        "",
        "9836",
        ":",
        ":65536",
        ":-1",
        ":http",
        "*:9836",
        "::1:9836",
        "[::1]",
        "[127.0.0.1]:80",
        "[::1]9400",
        "http://localhost:9400",
        "localhost:9400/metrics",
        "a b:80",
        ":9836\n",
        "user@host:80",
        "unix:",
        "unix:/" + "a" * 120,
    ],
)
def test_a_bad_value_is_named_in_one_line(value: str) -> None:
    """A value that is no address is refused in one line with the value and the forms."""
    with pytest.raises(ListenError) as caught:
        open_sockets(value)
    message = str(caught.value)
    assert repr(value) in message
    assert "use :PORT, HOST:PORT, [IPV6]:PORT or unix:PATH" in message
    assert "\n" not in message


def test_an_empty_host_is_dual_stack() -> None:
    """:PORT answers over IPv4 and over IPv6 on one socket."""
    with opened(":0") as sockets:
        assert len(sockets) == 1
        port = sockets[0].getsockname()[1]
        assert answers("127.0.0.1", port)
        assert answers("::1", port)


@pytest.mark.parametrize("value", ["[::1]:0", "127.0.0.1:0"])
def test_one_address_is_one_socket(value: str) -> None:
    """An address is bound as given, and nothing else is."""
    with opened(value) as sockets:
        assert len(sockets) == 1
        assert printable(sockets[0]).rpartition(":")[0] == value.rpartition(":")[0]


def test_ipv6_any_is_dual_stack() -> None:
    """[::]:PORT answers over IPv4 too, as it does for Go programs."""
    with opened("[::]:0") as sockets:
        assert answers("127.0.0.1", sockets[0].getsockname()[1])


def test_a_name_gives_all_its_addresses_on_one_port() -> None:
    """localhost is bound on each address that it resolves to, port 0 on the same port."""
    found = {info[4][0] for info in socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)}
    with opened("localhost:0") as sockets:
        names = [sock.getsockname() for sock in sockets]
        assert {name[0] for name in names} == found
        assert len({name[1] for name in names}) == 1


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="syscall numbers")
@pytest.mark.parametrize("value", [":0", "localhost:0"])
def test_without_ipv6_it_listens_on_ipv4(value: str) -> None:
    """Where the kernel refuses IPv6 sockets, :PORT and localhost fall back to IPv4."""
    done = run_child(NO_IPV6, value)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(("0.0.0.0:", "127.0.0.1:"))


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="syscall numbers")
def test_without_ipv6_an_ipv6_address_is_refused() -> None:
    """Where the kernel refuses IPv6 sockets, an address that asks for IPv6 is an error."""
    done = run_child(NO_IPV6, "[::]:0")
    assert "ListenError: --listen '[::]:0'" in done.stderr


@pytest.mark.parametrize("value", ["127.0.0.1:{}", ":{}", "localhost:{}"])
def test_a_port_in_use_is_named_with_a_way_out(value: str) -> None:
    """A taken port is refused in one line with the port and what to do."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ListenError, match=f"port {port} is already in use; stop the process"):
            open_sockets(value.format(port))


def test_an_address_of_another_machine_is_refused() -> None:
    """An address that this machine does not have is named."""
    with pytest.raises(ListenError, match=r"no address '192\.0\.2\.1'"):
        open_sockets("192.0.2.1:0")


def test_a_name_that_does_not_resolve_is_refused() -> None:
    """A host that cannot be resolved is named."""
    with pytest.raises(ListenError, match=r"host 'no-such\.invalid' does not resolve"):
        open_sockets("no-such.invalid:9836")


def test_a_unix_socket_serves_and_goes_away(tmp_path: Path) -> None:
    """A Unix socket has mode 0660, answers requests, and its file is removed at stop."""
    path = tmp_path / "cardwatch.sock"
    with serving(f"unix:{path}") as served:
        assert served.server.addresses == [f"unix:{path}"]
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(path))
            sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert sock.recv(4096).startswith(b"HTTP/1.1 200")
    assert not path.exists()


def test_the_file_of_a_dead_process_is_replaced(tmp_path: Path) -> None:
    """A socket file that nobody listens on is taken over, with mode 0660."""
    path = tmp_path / "cardwatch.sock"
    script = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", script, str(path)], check=True)
    assert path.is_socket()
    with opened(f"unix:{path}"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660


def test_the_file_of_a_live_process_is_left_alone(tmp_path: Path) -> None:
    """A socket that somebody listens on is refused and still works."""
    path = tmp_path / "cardwatch.sock"
    with opened(f"unix:{path}"):
        with pytest.raises(ListenError, match="another process listens on this socket"):
            open_sockets(f"unix:{path}")
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(path))


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    """A path that is an ordinary file is refused and kept."""
    path = tmp_path / "notes.txt"
    path.write_text("keep me")
    with pytest.raises(ListenError, match="exists and is not a socket"):
        open_sockets(f"unix:{path}")
    assert path.read_text() == "keep me"


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    """A socket path in a directory that is not there gives one line."""
    with pytest.raises(ListenError, match="cannot make the socket file: No such file"):
        open_sockets(f"unix:{tmp_path}/none/cardwatch.sock")


def test_sockets_are_not_inherited_and_do_not_block() -> None:
    """Listening sockets stay out of child processes and never block the loop."""
    with opened("localhost:0") as sockets:
        for sock in sockets:
            assert not os.get_inheritable(sock.fileno())
            assert sock.getblocking() is False


def run_child(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
