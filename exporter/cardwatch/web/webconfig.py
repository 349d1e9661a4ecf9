# SPDX-License-Identifier: Apache-2.0
"""The web config file, in the format of the Prometheus exporter-toolkit.

Owns the reading and checking of that file. It must never accept a key that would
have no effect here, and never put a hash or file content into a message: an
operator who believes that a protection is on must be right.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from cardwatch.web import tls
from cardwatch.web.tls import TlsError, TlsSettings

Stamp = tuple[int, int, int, int, int] | None
Stamps = Mapping[Path, Stamp]

MAX_BCRYPT_COST = 16
_MAX_BYTES = 1024 * 1024
_BCRYPT = re.compile(r"\$2[abxy]\$(?P<cost>[0-9]{2})\$[./A-Za-z0-9]{53}", re.ASCII)
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")

# None where every printable value is good.
_HEADERS: Mapping[str, tuple[str, ...] | None] = {
    "Content-Security-Policy": None,
    "Strict-Transport-Security": None,
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": None,
}
_SECTIONS = ("tls_server_config", "basic_auth_users", "http_server_config")
_TLS_KEYS = (
    "cert_file",
    "key_file",
    "client_auth_type",
    "client_ca_file",
    "client_allowed_sans",
    "min_version",
    "max_version",
)
_FILE_KEYS = ("cert_file", "key_file", "client_ca_file")
# Keys of the exporter-toolkit that cannot be honoured here, and why.
_WITHOUT_MEANING = {
    "cert": "PEM text in this file is not supported; use cert_file",
    "key": "PEM text in this file is not supported; use key_file",
    "client_ca": "PEM text in this file is not supported; use client_ca_file",
    "cipher_suites": "not supported, OpenSSL chooses; use min_version and max_version",
    "prefer_server_cipher_suites": "not supported, OpenSSL chooses; remove it",
    "curve_preferences": "not supported, OpenSSL chooses; remove it",
    "http2": "not supported, cardwatch speaks HTTP/1.1; remove it",
    "rate_limit": "not supported, the limits on connections are built in; remove it",
}


class WebConfigError(ValueError):
    """A web config that cannot be used; the text is one line for the operator.

    ``stamps`` holds the state of the files that took part, to see when a new try
    makes sense.
    """

    def __init__(self, message: str, stamps: Stamps | None = None) -> None:
        super().__init__(message)
        self.stamps: Stamps = stamps or {}


@dataclass(frozen=True)
class WebConfig:
    """All that the web config file decides, checked and loaded."""

    tls: TlsSettings | None = None
    users: Mapping[bytes, bytes] = field(default_factory=dict, repr=False)
    headers: tuple[tuple[bytes, bytes], ...] = ()
    context: ssl.SSLContext | None = field(default=None, repr=False, compare=False)
    stamps: Stamps = field(default_factory=dict, repr=False)

    @property
    def tls_state(self) -> Hashable:
        """Differs when TLS works differently: other settings or other file content."""
        if self.tls is None:
            return None
        return self.tls, tuple(self.stamps.get(path) for path in self.tls.files)


def stamp(path: Path) -> Stamp:
    """Give what changes when the content or the access rights of a file do."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (
        found.st_dev,
        found.st_ino,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
    )


def load(path: Path) -> WebConfig:
    """Read and check the file and all files that it names."""
    path = path.absolute()
    # Stamps are taken before the reading, so that a change in between shows.
    stamps = {path: stamp(path)}
    try:
        document = _Node(path, "", _parse(path)).mapping(_SECTIONS)
        tls_node = document.get("tls_server_config")
        if tls_node is not None:
            stamps.update((named, stamp(named)) for named in _named_files(tls_node))
        settings = None if tls_node is None else _tls(tls_node)
        return WebConfig(
            tls=settings,
            users=_users(document.get("basic_auth_users")),
            headers=_headers(document.get("http_server_config")),
            context=None if settings is None else _context(path, settings),
            stamps=stamps,
        )
    except WebConfigError as exc:
        raise WebConfigError(str(exc), stamps) from None


@dataclass(frozen=True)
class _Node:
    """A value of the file with its place, so that each error can name it."""

    path: Path
    key: str
    value: Any = field(repr=False)

    def error(self, problem: str) -> WebConfigError:
        return WebConfigError(
            ": ".join(part for part in (str(self.path), self.key, problem) if part)
        )

    def child(self, name: object, value: object) -> _Node:
        return _Node(self.path, f"{self.key}.{name}" if self.key else str(name), value)

    def mapping(self, known: tuple[str, ...] | None = None) -> dict[str, _Node]:
        if self.value is None:
            return {}
        if not isinstance(self.value, dict):
            raise self.error("must be a mapping of keys to values")
        found: dict[str, _Node] = {}
        for name, value in self.value.items():
            child = self.child(name, value)
            if not isinstance(name, str):
                raise child.error("this key must be in quotes to be text")
            if known is not None and name not in known:
                why = _WITHOUT_MEANING.get(name, "unknown key")
                raise child.error(f"{why} (allowed here: {', '.join(known)})")
            found[name] = child
        return found

    def text(self) -> str:
        if not isinstance(self.value, str) or not self.value:
            raise self.error("must be text")
        return self.value

    def one_of(self, allowed: Mapping[str, object]) -> str:
        if not isinstance(self.value, str) or self.value not in allowed:
            raise self.error(f"allowed are {', '.join(allowed)}")
        return self.value

    def file(self) -> Path:
        return self.path.parent / self.text()


class _Loader(yaml.SafeLoader):
    """The safe loader, which also refuses a key given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - the signature of PyYAML
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key.value!r} is there twice", problem_mark=key.start_mark
                )
            if isinstance(key, yaml.ScalarNode):
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _parse(path: Path) -> object:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as exc:
        raise WebConfigError(f"{path}: cannot read the web config: {exc.strerror or exc}") from None
    if len(content) > _MAX_BYTES:
        raise WebConfigError(f"{path}: larger than {_MAX_BYTES} bytes")
    try:
        return yaml.load(content.decode("utf-8"), _Loader)  # noqa: S506 - a SafeLoader
    except UnicodeDecodeError:
        raise WebConfigError(f"{path}: not UTF-8 text") from None
    except yaml.MarkedYAMLError as exc:
        # Not str(exc): that would quote the line, which may hold a hash.
        line = "" if exc.problem_mark is None else f" line {exc.problem_mark.line + 1}:"
        raise WebConfigError(f"{path}:{line} not valid YAML: {exc.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise WebConfigError(f"{path}: not valid YAML") from None


def _named_files(section: _Node) -> list[Path]:
    if not isinstance(section.value, dict):
        return []
    names = (section.value.get(key) for key in _FILE_KEYS)
    return [section.path.parent / name for name in names if isinstance(name, str) and name]


def _tls(section: _Node) -> TlsSettings:
    nodes = section.mapping(_TLS_KEYS)
    for key in ("cert_file", "key_file"):
        if key not in nodes:
            raise section.child(key, None).error(
                "missing; give it, or remove tls_server_config to serve without TLS"
            )
    settings = TlsSettings(
        cert_file=nodes["cert_file"].file(),
        key_file=nodes["key_file"].file(),
        client_auth_type=_client_auth(nodes.get("client_auth_type")),
        client_ca_file=_optional(nodes.get("client_ca_file"), _Node.file),
        client_allowed_sans=_sans(nodes.get("client_allowed_sans")),
        min_version=_version(nodes.get("min_version"), "TLS12"),
        max_version=_version(nodes.get("max_version"), "TLS13"),
    )
    _check_combination(section, settings)
    return settings


def _optional(node: _Node | None, read: Callable[[_Node], Path]) -> Path | None:
    return None if node is None else read(node)


def _version(node: _Node | None, default: str) -> str:
    return default if node is None else node.one_of(tls.VERSIONS)


def _client_auth(node: _Node | None) -> str:
    if node is None or node.value == "":
        return tls.NO_CLIENT_CERT
    if node.value in ("RequestClientCert", "RequireAnyClientCert", "RequireClientCert"):
        raise node.error(
            f"{node.value} is not supported, a client certificate is verified or not asked for; "
            f"allowed are {', '.join(tls.CLIENT_AUTH)}"
        )
    return node.one_of(tls.CLIENT_AUTH)


def _sans(node: _Node | None) -> frozenset[str]:
    if node is None:
        return frozenset()
    if not isinstance(node.value, list) or not node.value:
        raise node.error("must be a list of one name or more")
    return frozenset(node.child(index, name).text() for index, name in enumerate(node.value))


def _check_combination(section: _Node, settings: TlsSettings) -> None:
    verifies = settings.client_auth_type != tls.NO_CLIENT_CERT
    if verifies and settings.client_ca_file is None:
        raise section.child("client_ca_file", None).error(
            f"missing; client_auth_type {settings.client_auth_type} needs it"
        )
    if settings.client_ca_file is not None and not verifies:
        raise section.child("client_ca_file", None).error(
            f"has no effect without client_auth_type {tls.REQUIRE_AND_VERIFY} "
            f"or {tls.VERIFY_IF_GIVEN}"
        )
    if settings.client_allowed_sans and settings.client_auth_type != tls.REQUIRE_AND_VERIFY:
        raise section.child("client_allowed_sans", None).error(
            f"has no effect without client_auth_type {tls.REQUIRE_AND_VERIFY}"
        )
    if tls.VERSIONS[settings.min_version] > tls.VERSIONS[settings.max_version]:
        raise section.child("min_version", None).error(
            f"{settings.min_version} is above max_version {settings.max_version}"
        )


def _context(path: Path, settings: TlsSettings) -> ssl.SSLContext:
    try:
        return tls.server_context(settings)
    except TlsError as exc:
        raise WebConfigError(f"{path}: tls_server_config.{exc}") from None


def _users(section: _Node | None) -> Mapping[bytes, bytes]:
    if section is None:
        return {}
    users: dict[bytes, bytes] = {}
    for name, node in section.mapping().items():
        if not name or ":" in name:
            raise node.error("a user name must not be empty or hold a colon")
        users[name.encode("utf-8")] = _bcrypt_hash(node)
    return users


def _bcrypt_hash(node: _Node) -> bytes:
    match = _BCRYPT.fullmatch(node.value) if isinstance(node.value, str) else None
    if match is None or int(match["cost"]) < 4:
        raise node.error("not a bcrypt hash; make one with: htpasswd -nBC 10 USER")
    if int(match["cost"]) > MAX_BCRYPT_COST:
        raise node.error(
            f"the bcrypt cost {match['cost']} would take many seconds for each check; "
            f"allowed is up to {MAX_BCRYPT_COST}, 10 is usual"
        )
    return match[0].encode("ascii")


def _headers(section: _Node | None) -> tuple[tuple[bytes, bytes], ...]:
    if section is None:
        return ()
    headers = section.mapping(("headers",)).get("headers")
    nodes = {} if headers is None else headers.mapping(tuple(_HEADERS))
    found = [(name, _header_value(node, _HEADERS[name])) for name, node in nodes.items()]
    # A blank value unsets, as in the exporter-toolkit.
    return tuple((name.lower().encode(), value.encode()) for name, value in found if value)


def _header_value(node: _Node, allowed: tuple[str, ...] | None) -> str:
    value = node.value
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # X-XSS-Protection: 0, without quotes
    if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
        raise node.error("must be one line of printable ASCII text")
    value = value.strip()
    if value and allowed is not None and value not in allowed:
        raise node.error(f"allowed are {', '.join(allowed)}")
    return value
