# SPDX-License-Identifier: Apache-2.0
"""The TLS side of a web config: a context for new connections, and who may enter.

Owns the way from certificate files to an ``ssl.SSLContext``. It must never ask
on a terminal (for the pass phrase of a key), and never quote a file's content.
"""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NO_CLIENT_CERT = "NoClientCert"
VERIFY_IF_GIVEN = "VerifyClientCertIfGiven"
REQUIRE_AND_VERIFY = "RequireAndVerifyClientCert"

CLIENT_AUTH = {
    NO_CLIENT_CERT: ssl.CERT_NONE,
    VERIFY_IF_GIVEN: ssl.CERT_OPTIONAL,
    REQUIRE_AND_VERIFY: ssl.CERT_REQUIRED,
}
VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}


class TlsError(ValueError):
    """Files or settings that make no context; ``key`` names the setting at fault."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key
        self.problem = problem


@dataclass(frozen=True)
class TlsSettings:
    """The ``tls_server_config`` section, with absolute paths."""

    cert_file: Path
    key_file: Path
    client_auth_type: str = NO_CLIENT_CERT
    client_ca_file: Path | None = None
    client_allowed_sans: frozenset[str] = frozenset()
    min_version: str = "TLS12"
    max_version: str = "TLS13"

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that the settings name."""
        ca = () if self.client_ca_file is None else (self.client_ca_file,)
        return (self.cert_file, self.key_file, *ca)


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Load the files into a context of their own, so that a CA can be revoked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[settings.min_version]
    context.maximum_version = VERSIONS[settings.max_version]
    context.set_alpn_protocols(["http/1.1"])
    _load_pair(context, settings)
    if settings.client_ca_file is not None:
        _load_ca(context, settings.client_ca_file)
    context.verify_mode = CLIENT_AUTH[settings.client_auth_type]
    return context


def entry_allowed(peer: Any, allowed: frozenset[str]) -> bool:
    """Tell whether a verified client certificate carries one of the names.

    ``peer`` is what ``ssl.SSLSocket.getpeercert()`` gives.
    """
    if not allowed:
        return True
    names = (peer or {}).get("subjectAltName", ())
    return any(_san(kind, value) in allowed for kind, value in names)


def _san(kind: str, value: str) -> str:
    if kind != "IP Address":
        return value
    try:
        # OpenSSL writes IPv6 addresses without the usual shortening.
        return str(ipaddress.ip_address(value))
    except ValueError:
        return value


def _load_pair(context: ssl.SSLContext, settings: TlsSettings) -> None:
    cert, key = settings.cert_file, settings.key_file
    _demand(cert, "cert_file", b"-----BEGIN CERTIFICATE-----", "a PEM certificate")
    _demand(key, "key_file", b"PRIVATE KEY-----", "a PEM private key")
    try:
        context.load_cert_chain(cert, key, password=_no_pass_phrase)
    except _PassPhraseError:
        raise TlsError("key_file", f"{key} has a pass phrase; give a key without one") from None
    except (ssl.SSLError, OSError) as exc:
        if getattr(exc, "reason", None) == "KEY_VALUES_MISMATCH":
            problem = f"{key} is not the private key of the certificate in cert_file {cert}"
            raise TlsError("key_file", problem) from None
        problem = f"{cert} with key_file {key} cannot be loaded: {_reason(exc)}"
        raise TlsError("cert_file", problem) from None


def _load_ca(context: ssl.SSLContext, path: Path) -> None:
    _demand(path, "client_ca_file", b"-----BEGIN CERTIFICATE-----", "a PEM certificate")
    try:
        context.load_verify_locations(cafile=path)
    except (ssl.SSLError, OSError) as exc:
        raise TlsError("client_ca_file", f"{path} cannot be loaded: {_reason(exc)}") from None


def _demand(path: Path, key: str, mark: bytes, what: str) -> None:
    try:
        content = path.read_bytes()
    except OSError as exc:
        raise TlsError(key, f"cannot read {path}: {exc.strerror or exc}") from None
    if mark not in content:
        raise TlsError(key, f"{path} holds no {what.removeprefix('a ')}; give {what}")


def _reason(exc: OSError) -> str:
    return str(getattr(exc, "reason", None) or exc.strerror or "unknown reason")


class _PassPhraseError(Exception):
    """OpenSSL asked for a pass phrase."""


def _no_pass_phrase() -> str:
    # Without this OpenSSL would wait for somebody to type one.
    raise _PassPhraseError
