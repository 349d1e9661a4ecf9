# SPDX-License-Identifier: Apache-2.0
"""From the text of ``--listen`` to listening sockets.

Owns the grammar of a listen address and the binding of its sockets. It must
never accept a connection, and never remove a socket file that a live process
still answers on.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import socket
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Place = tuple[Any, ...]

BACKLOG = 1024
SOCKET_FILE_MODE = 0o660

_ALLOWED = "use :PORT, HOST:PORT, [IPV6]:PORT or unix:PATH, with a PORT from 0 to 65535"
_TCP = re.compile(
    r"(?:\[(?P<bracketed>[^\[\]\s]+)\]|(?P<host>[A-Za-z0-9._-]*)):(?P<port>[0-9]{1,5})", re.ASCII
)
_UNIX_PATH_BYTES = 107  # sun_path holds 108 with its closing NUL
_FAMILY_MISSING = frozenset(
    {errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.EADDRNOTAVAIL, errno.ENOPROTOOPT}
)
_PORT_0_TRIES = 16


class ListenError(ValueError):
    """A listen address that cannot be used; the text is one line for the operator."""


@dataclass(frozen=True)
class TcpAddress:
    """A TCP port, on every address of the machine where host is empty."""

    host: str
    port: int


@dataclass(frozen=True)
class UnixAddress:
    """The path of a Unix socket file."""

    path: str


def parse_listen(value: str) -> TcpAddress | UnixAddress:
    """Read a listen address, without a look at the machine."""
    if value.startswith("unix:"):
        return _parse_unix(value)
    match = _TCP.fullmatch(value)
    if match is None:
        raise _error(value, "not a listen address")
    port = int(match["port"])
    if port > 65535:
        raise _error(value, f"port {port} does not exist")
    bracketed: str | None = match["bracketed"]
    if bracketed is None:
        return TcpAddress(match["host"], port)
    try:
        ipaddress.IPv6Address(bracketed)
    except ValueError:
        raise _error(value, "no IPv6 address between the brackets") from None
    return TcpAddress(bracketed, port)


def open_sockets(value: str, backlog: int = BACKLOG) -> list[socket.socket]:
    """Bind and listen; each socket is non-blocking and not inherited by children."""
    address = parse_listen(value)
    try:
        if isinstance(address, UnixAddress):
            return [_open_unix(value, address.path, backlog)]
        if address.host in ("", "::"):
            return [_open_everywhere(address, backlog)]
        return _open_host(address, backlog)
    except OSError as exc:
        raise _bind_error(value, address, exc) from exc


def close_sockets(sockets: Iterable[socket.socket]) -> None:
    """Close listening sockets, and remove the file of a Unix one."""
    for sock in sockets:
        if sock.family == socket.AF_UNIX and sock.fileno() >= 0:
            # Before the close: while we still listen, no other process could
            # have taken the path over, so the file is surely ours.
            _unlink(sock.getsockname())
        sock.close()


def printable(sock: socket.socket) -> str:
    """Give the address of a bound socket in the form that ``--listen`` takes."""
    name = sock.getsockname()
    if sock.family == socket.AF_UNIX:
        return f"unix:{name}"
    host, port = name[0], name[1]
    return f"[{host}]:{port}" if sock.family == socket.AF_INET6 else f"{host}:{port}"


def _error(value: str, problem: str) -> ListenError:
    return ListenError(f"--listen {value!r}: {problem}; {_ALLOWED}")


def _parse_unix(value: str) -> UnixAddress:
    path = value.removeprefix("unix:")
    if not path or "\0" in path:
        raise _error(value, "no path after unix:")
    if len(os.fsencode(path)) > _UNIX_PATH_BYTES:
        raise _error(value, f"the path is longer than {_UNIX_PATH_BYTES} bytes")
    return UnixAddress(path)


def _bind_error(value: str, address: TcpAddress | UnixAddress, exc: OSError) -> ListenError:
    start = f"--listen {value!r}:"
    if isinstance(address, UnixAddress):
        return ListenError(f"{start} cannot make the socket file: {exc.strerror or exc}")
    port = address.port
    if isinstance(exc, socket.gaierror):
        return ListenError(f"{start} host {address.host!r} does not resolve: {exc.strerror}")
    if exc.errno == errno.EADDRINUSE:
        return ListenError(
            f"{start} port {port} is already in use; stop the process that holds it "
            f"(ss -ltnp 'sport = :{port}' shows it) or give another port"
        )
    if exc.errno == errno.EACCES:
        return ListenError(
            f"{start} no permission for port {port}; give a port above 1023 "
            "or the capability CAP_NET_BIND_SERVICE"
        )
    if exc.errno == errno.EADDRNOTAVAIL:
        return ListenError(
            f"{start} this machine has no address {address.host!r}; "
            "give one that it has, or :PORT for all of them"
        )
    return ListenError(f"{start} cannot listen: {exc.strerror or exc}")


def _open_everywhere(address: TcpAddress, backlog: int) -> socket.socket:
    try:
        return _listen(socket.AF_INET6, ("::", address.port), backlog, v6only=False)
    except OSError as exc:
        # [::] asks for IPv6 by name; only the empty host may do without it.
        if address.host or exc.errno not in _FAMILY_MISSING:
            raise
    return _listen(socket.AF_INET, ("0.0.0.0", address.port), backlog)  # noqa: S104 - as asked


def _open_host(
    address: TcpAddress, backlog: int, tries: int = _PORT_0_TRIES
) -> list[socket.socket]:
    found = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    places = dict.fromkeys((info[0], info[4]) for info in found)
    try:
        return _listen_all(list(places), backlog)
    except OSError as exc:
        # The free port of the first address may be taken on the second.
        if address.port or exc.errno != errno.EADDRINUSE or tries == 0:
            raise
    return _open_host(address, backlog, tries - 1)


def _listen_all(places: list[tuple[int, Place]], backlog: int) -> list[socket.socket]:
    opened: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, place in places:
            port = opened[0].getsockname()[1] if opened else place[1]
            try:
                opened.append(_listen(family, (place[0], port, *place[2:]), backlog))
            except OSError as exc:
                # localhost names ::1 also on a machine without IPv6.
                if exc.errno not in _FAMILY_MISSING:
                    raise
                missing = exc
        if missing is not None and not opened:
            raise missing
    except OSError:
        close_sockets(opened)
        raise
    return opened


def _listen(family: int, place: Place, backlog: int, *, v6only: bool = True) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(v6only))
        sock.bind(place)
        sock.listen(backlog)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def _open_unix(value: str, path: str, backlog: int) -> socket.socket:
    _remove_stale(value, path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Before bind it limits the mode the file is born with, so that there is
        # no moment at which others may connect; the chmod undoes the umask.
        os.fchmod(sock.fileno(), SOCKET_FILE_MODE)
        sock.bind(path)
        os.chmod(path, SOCKET_FILE_MODE)
        sock.listen(backlog)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def _remove_stale(value: str, path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ListenError(
            f"--listen {value!r}: the path exists and is not a socket; "
            "remove it or give another path"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            _unlink(path)
            return
        except FileNotFoundError:
            return
        except OSError:
            pass  # a full backlog or no permission: somebody is there
    raise ListenError(
        f"--listen {value!r}: another process listens on this socket; stop it or give another path"
    )


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
