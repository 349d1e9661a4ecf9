# SPDX-License-Identifier: Apache-2.0
"""The web config file: what it gives, and one test per mistake."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import bcrypt
import pytest
from web_harness import Certificates

from cardwatch.web.webconfig import WebConfigError, load

HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
TLS = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"
VERIFIED = TLS + "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n"
HEADERS = "http_server_config:\n  headers:\n"

# What is written, and what the message must hold; the file name is always in it.
MISTAKES = {
    "not-yaml": ("basic_auth_users: [", "not valid YAML"),
    "tab": (f"basic_auth_users:\n\tmarie: {HASH}", "line 2: not valid YAML"),
    "not-a-mapping": ("- cert_file", "must be a mapping"),
    "not-utf8": (b"\xff\xfe", "not UTF-8"),
    "unsafe-tag": ("!!python/object/apply:os.system ['true']", "not valid YAML"),
    "unknown-section": ("tls_config: {}", "tls_config: unknown key (allowed here: tls_server"),
    "rate-limit": ("rate_limit: {burst: 3}", "rate_limit: not supported"),
    "key-twice": (f"basic_auth_users:\n  m: {HASH}\n  m: {HASH}", "the key 'm' is there twice"),
    "tls-empty": ("tls_server_config: {}", "tls_server_config.cert_file: missing"),
    "tls-null": ("tls_server_config:", "tls_server_config.cert_file: missing"),
    "tls-text": ("tls_server_config: yes please", "tls_server_config: must be a mapping"),
    "tls-unknown": (TLS + "  cert: x", "tls_server_config.cert: PEM text in this file"),
    "tls-ciphers": (TLS + "  cipher_suites: [A]", "tls_server_config.cipher_suites: not supp"),
    "tls-curves": (TLS + "  curve_preferences: [A]", "tls_server_config.curve_preferences: not"),
    "tls-prefer": (TLS + "  prefer_server_cipher_suites: true", "prefer_server_cipher_suites: not"),
    "tls-typo": (TLS + "  min_versoin: TLS13", "min_versoin: unknown key (allowed here: cert_fi"),
    "key-missing": ("tls_server_config: {cert_file: a}", "tls_server_config.key_file: missing"),
    "cert-number": ("tls_server_config: {cert_file: 1, key_file: a}", "cert_file: must be text"),
    "cert-not-there": (TLS.replace("server.pem", "none.pem"), "cert_file: cannot read"),
    "key-not-there": (TLS.replace("server.key", "none.key"), "key_file: cannot read"),
    "cert-is-a-directory": (TLS.replace("server.pem", "."), "cert_file: cannot read"),
    "cert-is-no-cert": (TLS.replace("server.pem", "web.yml"), "holds no PEM certificate"),
    "key-is-no-key": (TLS.replace("server.key", "server.pem"), "holds no PEM private key"),
    "key-of-another": (TLS.replace("server.key", "client.key"), "is not the private key of"),
    "key-with-pass-phrase": (TLS.replace("server.key", "locked.key"), "has a pass phrase"),
    "cert-damaged": (TLS.replace("server.pem", "damaged.pem"), "cert_file: "),
    "version-old": (TLS + "  min_version: TLS10", "min_version: allowed are TLS12, TLS13"),
    "version-number": (TLS + "  max_version: 1.3", "max_version: allowed are TLS12, TLS13"),
    "versions-crossed": (
        TLS + "  min_version: TLS13\n  max_version: TLS12",
        "min_version: TLS13 is above max_version TLS12",
    ),
    "auth-type": (TLS + "  client_auth_type: Maybe", "client_auth_type: allowed are NoClientCert"),
    "auth-request": (TLS + "  client_auth_type: RequestClientCert", "RequestClientCert is not sup"),
    "auth-any": (TLS + "  client_auth_type: RequireAnyClientCert", "allowed are NoClientCert"),
    "ca-missing": (
        TLS + "  client_auth_type: VerifyClientCertIfGiven",
        "client_ca_file: missing; client_auth_type VerifyClientCertIfGiven needs it",
    ),
    "ca-without-type": (TLS + "  client_ca_file: ca.pem", "client_ca_file: has no effect"),
    "ca-not-there": (VERIFIED.replace("ca.pem", "none.pem"), "client_ca_file: cannot read"),
    "ca-no-cert": (VERIFIED.replace("ca.pem", "web.yml"), "client_ca_file: "),
    "ca-damaged": (VERIFIED.replace("ca.pem", "damaged.pem"), "client_ca_file: "),
    "sans-without-verify": (TLS + "  client_allowed_sans: [a]", "client_allowed_sans: has no eff"),
    "sans-text": (VERIFIED + "  client_allowed_sans: a", "client_allowed_sans: must be a list"),
    "sans-empty": (VERIFIED + "  client_allowed_sans: []", "client_allowed_sans: must be a list"),
    "sans-number": (VERIFIED + "  client_allowed_sans: [1]", "client_allowed_sans.0: must be text"),
    "users-list": ("basic_auth_users: [marie]", "basic_auth_users: must be a mapping"),
    "user-number": (f"basic_auth_users: {{1: {HASH}}}", "basic_auth_users.1: this key must be in"),
    "user-colon": (f'basic_auth_users: {{"a:b": {HASH}}}', "basic_auth_users.a:b: a user name"),
    "plain-password": ("basic_auth_users: {marie: secret}", "users.marie: not a bcrypt hash"),
    "short-hash": (f"basic_auth_users: {{m: {HASH[:-1]}}}", "users.m: not a bcrypt hash"),
    "other-hash": ("basic_auth_users: {m: $apr1$abc$def}", "users.m: not a bcrypt hash"),
    "hash-null": ("basic_auth_users: {marie: }", "users.marie: not a bcrypt hash"),
    "cost-low": (f"basic_auth_users: {{m: {HASH.replace('$04$', '$03$')}}}", "users.m: not a bcr"),
    "cost-high": (f"basic_auth_users: {{m: {HASH.replace('$04$', '$20$')}}}", "users.m: the bcry"),
    "http2": ("http_server_config: {http2: true}", "http_server_config.http2: not supported"),
    "http-unknown": ("http_server_config: {port: 1}", "http_server_config.port: unknown key"),
    "header-unknown": (HEADERS + "    X-Other: a", "headers.X-Other: unknown key (allowed here: C"),
    "header-case": (HEADERS + "    x-frame-options: deny", "headers.x-frame-options: unknown key"),
    "header-value": (
        HEADERS + "    X-Frame-Options: allow",
        "X-Frame-Options: allowed are deny, s",
    ),
    "header-nosniff": (HEADERS + "    X-Content-Type-Options: a", "Options: allowed are nosniff"),
    "header-lines": (HEADERS + '    X-XSS-Protection: "a\\nSet-Cookie: b"', "must be one line"),
    "header-bool": (HEADERS + "    X-XSS-Protection: true", "X-XSS-Protection: must be one line"),
    "header-list": (HEADERS + "    X-XSS-Protection: [a]", "X-XSS-Protection: must be one line"),
}


@pytest.fixture(scope="module")
def files(
    authority: Certificates,
    server_pair: tuple[Path, Path],
    client_pair: tuple[Path, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Make a directory with good files, and some that only look good."""
    directory = tmp_path_factory.mktemp("webconfig")
    for path in (*server_pair, *client_pair, authority.ca):
        shutil.copy(path, directory)
    locked = ["openssl", "ec", "-in", "server.key", "-out", "locked.key", "-aes128"]
    subprocess.run(
        [*locked, "-passout", "pass:secret"], cwd=directory, check=True, capture_output=True
    )
    lines = (directory / "server.pem").read_text().splitlines()
    lines[1] = lines[1][::-1]
    (directory / "damaged.pem").write_text("\n".join(lines))
    return directory


def written(directory: Path, content: str | bytes) -> Path:
    path = directory / "web.yml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(("content", "expected"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named(files: Path, content: str | bytes, expected: str) -> None:
    """Each mistake is one line with the file, the key and what is allowed, and no secret."""
    path = written(files, content)
    with pytest.raises(WebConfigError) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:")
    assert expected in message
    assert "\n" not in message
    assert HASH not in message
    assert path in caught.value.stamps


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A web config that is not there, or too large to be one, is named."""
    with pytest.raises(WebConfigError, match=r"none\.yml: cannot read the web config: No such"):
        load(tmp_path / "none.yml")
    with pytest.raises(WebConfigError, match="larger than"):
        load(written(tmp_path, "#" * 2_000_000))


@pytest.mark.parametrize(
    "content", ["", "# nothing\n", "basic_auth_users:\n", "basic_auth_users: {}\n", HEADERS]
)
def test_an_empty_file_protects_nothing(tmp_path: Path, content: str) -> None:
    """A file without users and TLS serves openly, as with the exporter-toolkit."""
    config = load(written(tmp_path, content))
    assert (config.tls, config.users, config.headers) == (None, {}, ())


def test_all_that_is_set_is_given(files: Path) -> None:
    """Every supported key arrives, with paths relative to the file."""
    config = load(
        written(
            files,
            VERIFIED
            + "  client_allowed_sans: [scraper.example]\n  min_version: TLS13\n"
            + f"basic_auth_users:\n  marie: {HASH}\n  jürgen: {HASH.replace('$2b$', '$2y$')}\n"
            + HEADERS
            + "    Strict-Transport-Security: max-age=31536000\n    X-XSS-Protection: 0\n"
            + '    X-Frame-Options: ""\n',
        )
    )
    assert config.tls is not None
    assert config.tls.cert_file == files / "server.pem"
    assert config.tls.client_allowed_sans == {"scraper.example"}
    assert config.context is not None
    assert config.context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert config.context.verify_mode is ssl.CERT_REQUIRED
    assert set(config.users) == {b"marie", "jürgen".encode()}
    assert config.headers == (
        (b"strict-transport-security", b"max-age=31536000"),
        (b"x-xss-protection", b"0"),
    )
    assert {path.name for path in config.stamps} == {
        "web.yml",
        "server.pem",
        "server.key",
        "ca.pem",
    }
    assert HASH not in repr(config)


def test_tls_1_2_is_the_least_by_default(files: Path) -> None:
    """Without min_version nothing older than TLS 1.2 is spoken."""
    context = load(written(files, TLS)).context
    assert context is not None
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.verify_mode is ssl.CERT_NONE


def test_a_key_that_cannot_be_read_is_named(files: Path, tmp_path: Path) -> None:
    """A key that cannot be read is named with the reason, for root as for everybody."""
    shutil.copy(files / "server.pem", tmp_path)
    (tmp_path / "server.key").mkdir()
    with pytest.raises(WebConfigError, match=r"key_file: cannot read .*: Is a directory"):
        load(written(tmp_path, TLS))
