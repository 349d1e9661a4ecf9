# SPDX-License-Identifier: Apache-2.0
"""TLS, client certificates and passwords on a running server, and their reload."""

from __future__ import annotations

import base64
import http.client
import logging
import os
import shutil
import socket
import ssl
from pathlib import Path

import bcrypt
import pytest
from web_harness import (
    CLIENT_TIMEOUT_S,
    TEXT_PAGE,
    Certificates,
    FakePages,
    HeldApp,
    Served,
    read_all,
    read_until,
    serving,
    statuses,
)

from cardwatch.web.guard import Limits

TLS = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"
MUTUAL = TLS + "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n"
LAST = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def users(**passwords: str) -> str:
    lines = [
        f"  {name}: {bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()}\n"
        for name, password in passwords.items()
    ]
    return "basic_auth_users:\n" + "".join(lines)


def login(name: str, password: str) -> dict[str, str]:
    return {
        "Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode("ascii")
    }


def replace(path: Path, content: str) -> None:
    """Write as a careful operator does: aside, then in place at once."""
    aside = path.with_suffix(".new")
    aside.write_text(content)
    os.replace(aside, path)


def install(pair: tuple[Path, Path], directory: Path) -> None:
    for source, name in zip(pair, ("server.pem", "server.key"), strict=True):
        replace(directory / name, source.read_text())


@pytest.fixture
def config(tmp_path: Path, authority: Certificates, server_pair: tuple[Path, Path]) -> Path:
    """Give the path of a web config, next to the files of a TLS server."""
    install(server_pair, tmp_path)
    shutil.copy(authority.ca, tmp_path / "ca.pem")
    return tmp_path / "web.yml"


def certificate_of(served: Served, trusted: ssl.SSLContext) -> bytes | None:
    with trusted.wrap_socket(served.connect(), server_hostname="localhost") as sock:
        return sock.getpeercert(binary_form=True)


def test_tls_serves_and_plain_http_does_not(config: Path, authority: Certificates) -> None:
    """With TLS on, the page comes over TLS and a plain request gets no answer."""
    config.write_text(TLS)
    with serving(config=config) as served:
        answer = served.get("/metrics", tls=authority.trusting())
        assert (answer.status, answer.body) == (200, TEXT_PAGE)
        assert statuses(served.exchange(LAST)) == []


def test_large_pages_and_pipelining_work_over_tls(config: Path, authority: Certificates) -> None:
    """Several requests at once are answered over TLS, also with megabytes each."""
    config.write_text(TLS)
    pages = FakePages(text=b"#" * 3_000_000)
    with serving(config=config, pages=pages) as served:
        trusted = authority.trusting()
        with trusted.wrap_socket(served.connect(), server_hostname="localhost") as sock:
            sock.sendall(LAST.replace(b"Connection: close\r\n", b"") * 3 + LAST)
            answer = read_all(sock)
    assert statuses(answer) == [200] * 4
    assert answer.count(b"#") == 12_000_000


def test_a_tls_reader_that_does_not_read_is_reset(config: Path, authority: Certificates) -> None:
    """The write deadline holds for TLS too, though asyncio hides its buffers there."""
    config.write_text(TLS)
    limits = Limits(write_s=0.3)
    pages = FakePages(text=b"#" * 32_000_000)
    with serving(config=config, pages=pages, limits=limits) as served:
        trusted = authority.trusting()
        with trusted.wrap_socket(served.connect(), server_hostname="localhost") as sock:
            sock.sendall(LAST.replace(b"Connection: close\r\n", b""))
            served.wait_empty()


def test_a_handshake_that_does_not_come_is_ended(config: Path, authority: Certificates) -> None:
    """A silent peer of a TLS port is closed, and counts as a connection until then."""
    config.write_text(TLS)
    with serving(config=config, limits=Limits(handshake_s=0.2)) as served:
        assert served.exchange(b"") == b""
        served.wait_empty()


def test_silent_handshakes_do_not_use_up_the_connections(
    config: Path, authority: Certificates
) -> None:
    """At the limit the oldest handshake gives way to a client that speaks."""
    config.write_text(TLS)
    with serving(config=config, limits=Limits(connections=4, handshake_s=60)) as served:
        silent = [served.connect() for _ in range(4)]
        try:
            assert served.get("/healthz", tls=authority.trusting()).status == 200
            assert read_all(silent[0]) == b""
        finally:
            for sock in silent:
                sock.close()


def test_tls_versions_are_kept_to(config: Path, authority: Certificates) -> None:
    """A client below min_version is refused."""
    config.write_text(TLS + "  min_version: TLS13\n")
    old = authority.trusting()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with serving(config=config) as served:
        with pytest.raises(ssl.SSLError):
            served.get("/metrics", tls=old)
        assert served.get("/metrics", tls=authority.trusting()).status == 200


def test_passwords_are_asked_for(config: Path, authority: Certificates) -> None:
    """Without the right password every route is 401, with it all work."""
    config.write_text(TLS + users(marie="curie", pierre="x" * 72))
    trusted = authority.trusting()
    with serving(config=config) as served:
        for headers in (
            {},
            login("marie", "wrong"),
            login("nobody", "curie"),
            login("", ""),
            {"Authorization": "Basic !!"},
            {"Authorization": "Basic " + base64.b64encode(b"no colon").decode()},
            {"Authorization": "Bearer curie"},
        ):
            for path in ("/metrics", "/healthz", "/readyz", "/", "/api/v1/gpus", "/none"):
                answer = served.get(path, headers, tls=trusted)
                assert answer.status == 401
                assert answer.headers["www-authenticate"] == 'Basic realm="cardwatch"'
        for _ in range(2):
            assert served.get("/metrics", login("marie", "curie"), tls=trusted).status == 200
            assert served.get("/healthz", login("pierre", "x" * 80), tls=trusted).status == 200


def test_trailers_are_no_credentials(config: Path) -> None:
    """An Authorization that comes after the body is not looked at."""
    config.write_text(users(marie="curie"))
    value = login("marie", "curie")["Authorization"].encode()
    request = (
        b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\nAuthorization: " + value + b"\r\n\r\n"
    )
    with serving(config=config) as served:
        assert statuses(served.exchange(request)) == [401]


def test_a_client_certificate_is_asked_for(
    config: Path, authority: Certificates, client_pair: tuple[Path, Path], tmp_path: Path
) -> None:
    """With mutual TLS only a client with a certificate of the CA gets in."""
    config.write_text(MUTUAL)
    stranger = Certificates(tmp_path, "stranger").issue("unknown", "DNS:scraper.example")
    with serving(config=config) as served:
        assert served.get("/metrics", tls=authority.trusting(client_pair)).status == 200
        for refused in (authority.trusting(), authority.trusting(stranger)):
            with pytest.raises((OSError, http.client.HTTPException)):
                served.get("/metrics", tls=refused)


def test_a_certificate_may_be_optional(
    config: Path, authority: Certificates, client_pair: tuple[Path, Path], tmp_path: Path
) -> None:
    """VerifyClientCertIfGiven admits clients without a certificate, but none with a bad one."""
    config.write_text(MUTUAL.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven"))
    stranger = Certificates(tmp_path, "stranger").issue("unknown", "DNS:scraper.example")
    with serving(config=config) as served:
        assert served.get("/metrics", tls=authority.trusting()).status == 200
        assert served.get("/metrics", tls=authority.trusting(client_pair)).status == 200
        with pytest.raises((OSError, http.client.HTTPException)):
            served.get("/metrics", tls=authority.trusting(stranger))


@pytest.mark.parametrize("name", ["scraper.example", "fd00::1"])
def test_a_named_certificate_gets_in(
    config: Path, authority: Certificates, client_pair: tuple[Path, Path], name: str
) -> None:
    """client_allowed_sans admits a certificate with one of the names, whatever its kind."""
    config.write_text(MUTUAL + f"  client_allowed_sans: ['other.example', '{name}']\n")
    with serving(config=config) as served:
        assert served.get("/metrics", tls=authority.trusting(client_pair)).status == 200


def test_a_certificate_with_another_name_does_not_get_in(
    config: Path, authority: Certificates, client_pair: tuple[Path, Path]
) -> None:
    """client_allowed_sans closes the connection of any other certificate, unanswered."""
    config.write_text(MUTUAL + "  client_allowed_sans: [other.example]\n")
    with serving(config=config) as served:
        with pytest.raises((OSError, http.client.HTTPException)):
            served.get("/metrics", tls=authority.trusting(client_pair))
        served.wait_empty()


def test_users_change_while_it_runs(config: Path) -> None:
    """A changed password works at once, and the old one does no longer."""
    config.write_text(users(marie="curie"))
    with serving(config=config) as served:
        assert served.get("/metrics", login("marie", "curie")).status == 200
        replace(config, users(marie="radium", pierre="polonium"))
        assert served.get("/metrics", login("marie", "curie")).status == 401
        assert served.get("/metrics", login("marie", "radium")).status == 200
        assert served.get("/metrics", login("pierre", "polonium")).status == 200
        replace(config, "")
        assert served.get("/metrics").status == 200


def test_headers_change_while_it_runs(config: Path) -> None:
    """A changed header is on the next answer."""
    config.write_text("")
    with serving(config=config) as served:
        assert "x-frame-options" not in served.get("/metrics").headers
        replace(config, "http_server_config: {headers: {X-Frame-Options: deny}}")
        assert served.get("/metrics").headers["x-frame-options"] == "deny"


def test_the_certificate_changes_while_it_runs(
    config: Path, authority: Certificates, server_pair: tuple[Path, Path]
) -> None:
    """A renewed certificate is shown to the next client, without a look at the config file."""
    renewed = authority.issue("renewed", "DNS:localhost")
    config.write_text(TLS)
    trusted = authority.trusting()
    with serving(config=config) as served:
        before = certificate_of(served, trusted)
        install(renewed, config.parent)
        after = certificate_of(served, trusted)
        assert before == ssl.PEM_cert_to_DER_cert(pem_of(server_pair[0]))
        assert after == ssl.PEM_cert_to_DER_cert(pem_of(renewed[0]))
        assert served.live.config_ok


def test_the_client_ca_changes_while_it_runs(
    config: Path, authority: Certificates, client_pair: tuple[Path, Path], tmp_path: Path
) -> None:
    """After a change of the CA old certificates are refused, also on open connections."""
    other = Certificates(tmp_path, "other")
    other_pair = other.issue("other-client", "DNS:scraper.example")
    config.write_text(MUTUAL)
    with serving(config=config) as served:
        old = authority.trusting(client_pair)
        with old.wrap_socket(served.connect(), server_hostname="localhost") as kept:
            kept.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert read_until(kept, b"ok\n").startswith(b"HTTP/1.1 200")
            replace(config.parent / "ca.pem", other.ca.read_text())
            assert served.get("/metrics", tls=authority.trusting(other_pair)).status == 200
            with pytest.raises((OSError, http.client.HTTPException)):
                served.get("/metrics", tls=authority.trusting(client_pair))
            assert kept.recv(4096) == b""


def test_a_request_in_progress_survives_a_change_of_certificate(
    config: Path, authority: Certificates
) -> None:
    """A connection whose request is in progress is answered before it is let go."""
    config.write_text(TLS)
    held = HeldApp()
    with serving(config=config, app=held) as served:
        trusted = authority.trusting()
        with trusted.wrap_socket(served.connect(), server_hostname="localhost") as sock:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert held.entered.acquire(timeout=CLIENT_TIMEOUT_S)
            install(authority.issue("next", "DNS:localhost"), config.parent)
            served.thread.loop.call_soon_threadsafe(served.live.poll)
            held.let_go(served)
            answer = read_all(sock)
        assert statuses(answer) == [200]
        assert b"connection: close" in answer


def test_a_broken_file_keeps_the_old_config(config: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that cannot be used changes nothing, is logged once, and shows in the state."""
    config.write_text(users(marie="curie"))
    with serving(config=config) as served, caplog.at_level(logging.INFO):
        replace(config, "basic_auth_users: {marie: plain}")
        for _ in range(3):
            assert served.get("/metrics", login("marie", "curie")).status == 200
            assert served.get("/metrics").status == 401
            assert served.live.reload() is False
        assert served.live.config_ok is False
        assert "basic_auth_users.marie: not a bcrypt hash" in str(served.live.last_error)
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        replace(config, users(marie="radium"))
        assert served.get("/metrics", login("marie", "radium")).status == 200
        assert served.live.config_ok is True
        assert served.live.last_error is None


def test_a_certificate_that_comes_later_than_its_config_is_taken(
    config: Path, authority: Certificates
) -> None:
    """After a failure the files that it named are watched, not only the config itself."""
    config.write_text(TLS)
    pair = authority.issue("late", "DNS:localhost")
    trusted = authority.trusting()
    with serving(config=config) as served:
        replace(config, TLS.replace("server.", "late."))
        assert served.get("/metrics", tls=trusted).status == 200
        assert "late.pem" in str(served.live.last_error)
        shutil.copy(pair[0], config.parent / "late.pem")
        shutil.copy(pair[1], config.parent / "late.key")
        assert certificate_of(served, trusted) == ssl.PEM_cert_to_DER_cert(pem_of(pair[0]))
        assert served.live.config_ok


@pytest.mark.parametrize(("before", "after", "change"), [(TLS, "", "off"), ("", TLS, "on")])
def test_tls_on_or_off_needs_a_restart(
    config: Path, authority: Certificates, before: str, after: str, change: str
) -> None:
    """Turning TLS on or off is refused with the word restart, and nothing is half taken."""
    config.write_text(before)
    tls = authority.trusting() if before else None
    with serving(config=config) as served:
        replace(config, after + users(marie="curie"))
        assert served.get("/metrics", tls=tls).status == 200
        assert f"turning TLS {change} needs a restart" in str(served.live.last_error)
        replace(config, before)
        assert served.get("/metrics", tls=tls).status == 200
        assert served.live.config_ok


def test_reload_reads_without_a_change_on_disk(config: Path) -> None:
    """SIGHUP's reload says whether the file as it is now is in force."""
    config.write_text(users(marie="curie"))
    with serving(config=config) as served:
        before = served.live.current
        assert served.live.reload() is True
        assert served.live.current is not before
        config.unlink()
        assert served.live.reload() is False
        assert served.get("/metrics", login("marie", "curie")).status == 200


def test_detach_is_open_to_who_logged_in(config: Path) -> None:
    """With users configured, credentials are needed for detach, from loopback too."""
    config.write_text(users(marie="curie"))
    with serving(config=config, detach=True) as served:
        assert served.request("POST", "/-/detach?for=1m").status == 401
        answer = served.request("POST", "/-/detach?for=1m", login("marie", "curie"))
        assert answer.status == 200


def test_unix_sockets_speak_tls_too(config: Path, authority: Certificates) -> None:
    """A web config holds on a Unix socket as on any other."""
    config.write_text(TLS)
    path = config.parent / "s"
    with serving(f"unix:{path}", config=config), socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(path))
        with authority.trusting().wrap_socket(raw, server_hostname="localhost") as sock:
            sock.sendall(LAST)
            assert statuses(read_all(sock)) == [200]


def pem_of(path: Path) -> str:
    """Give the certificate of a file without the text that openssl may write before it."""
    text = path.read_text()
    return text[text.index("-----BEGIN CERTIFICATE") :]
