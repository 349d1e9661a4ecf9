# SPDX-License-Identifier: Apache-2.0
"""Captures: what a driver answered, written down and served again.

``Recorder`` sits before a driver and notes every call with its answer.
``RecordedDriver`` serves the notes of a capture file. A capture is JSON lines:
a header, then one line per pass. Answers are those of ``calls.CALLS``, so a
capture exercises everything above the driver.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cardwatch.nvml.calls import CALLS, Driver
from cardwatch.nvml.codes import NO_DATA, NO_PERMISSION, UNINITIALIZED, DriverError

FORMAT = "cardwatch-capture"
VERSION = 1

_MAX_LINE = 64 * 1024 * 1024

Result = dict[str, Any]
"""{"ok": answer} | {"error": code} | {"hang": true}."""

Note = tuple[str, list[Any], Result]
"""(call, arguments with handles as tokens, result)."""


class CaptureError(ValueError):
    """A capture file that cannot be used; the message names file and line."""


@dataclass(frozen=True)
class Token:
    """A handle as the recorder gives it out: its name in the capture and the real one."""

    name: str
    real: Any


def noted(args: Iterable[Any]) -> list[Any]:
    """Return the arguments of a call as they stand in a note."""
    return [a.name if isinstance(a, Token) else a for a in args]


def _token_name(call: str, args: list[Any]) -> str | None:
    if call == "DeviceGetHandleByIndex":
        return f"device/{args[0]}"
    if call == "DeviceGetMigDeviceHandleByIndex":
        return f"{args[0]}/mig/{args[1]}"
    return None


class Recorder:
    """``Driver`` that passes calls on to another and keeps notes of the answers."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        self._notes: list[Note] = []

    def call(self, name: str, *args: Any) -> Any:
        """Make the call on the recorded driver and note its answer."""
        real = [a.real if isinstance(a, Token) else a for a in args]
        shown = noted(args)
        try:
            answer = self._driver.call(name, *real)
        except DriverError as error:
            self._note(name, shown, {"error": error.code})
            raise
        if name == "DeviceGetFieldValues":
            # One note per field: a replay may ask for another selection.
            for request, entry in zip(shown[1], answer, strict=True):
                self._note(name, [shown[0], list(request)], {"ok": list(entry)})
            return answer
        token = _token_name(name, shown)
        self._note(name, shown, {"ok": token or answer})
        return Token(token, answer) if token else answer

    def _note(self, name: str, args: list[Any], result: dict[str, Any]) -> None:
        with self._lock:
            self._notes.append((name, args, result))

    def take(self) -> list[Note]:
        """Return the notes since the last call and forget them."""
        with self._lock:
            notes, self._notes = self._notes, []
        return notes


def header(host: dict[str, Any], when: float, version: str) -> dict[str, Any]:
    """Return the first line of a capture file."""
    return {"format": FORMAT, "version": VERSION, "cardwatch": version, "time": when, "host": host}


_IDENTITIES = ("DeviceGetUUID", "DeviceGetSerial")
_UUID_LIKE = re.compile(r"^(GPU|MIG)-")


def aliased(notes: Iterable[Note], key: bytes) -> list[Note]:
    """Replace UUIDs and serial numbers by aliases that only ``key`` makes predictable."""
    return [
        (name, args, {"ok": _alias(str(result["ok"]), key)})
        if name in _IDENTITIES and "ok" in result
        else (name, args, result)
        for name, args, result in notes
    ]


def _alias(identity: str, key: bytes) -> str:
    digest = hmac.new(key, identity.encode(), hashlib.sha256).hexdigest()
    prefix = _UUID_LIKE.match(identity)
    if prefix is None:
        return str(int(digest[:12], 16)).zfill(13)[:13]
    d = digest
    return f"{prefix[0]}{d[:8]}-{d[8:12]}-4{d[13:16]}-8{d[17:20]}-{d[20:32]}"


class RecordedDriver:
    """``Driver`` that answers from a capture, pass by pass; the last pass repeats.

    A pass begins with ``DeviceGetCount``. A call that the capture does not hold
    answers "no permission to know": it is absent, and counted as denied.
    """

    def __init__(self, path: Path, wait: Callable[[], None] | None = None) -> None:
        self.header, self._passes = _load(path)
        self._wait = wait or threading.Event().wait
        self._index = -1
        self._ready = False
        self._lock = threading.Lock()

    def host_facts(self) -> dict[str, Any]:
        """Return what the captured host showed besides the driver."""
        host = self.header.get("host")
        return dict(host) if isinstance(host, dict) else {}

    def call(self, name: str, *args: Any) -> Any:
        """Serve the recorded answer; hangs where the driver hung."""
        if name == "Init":
            self._ready = True
        elif name == "Shutdown":
            self._ready = False
            return None
        elif not self._ready:
            raise DriverError(UNINITIALIZED)
        if name == "DeviceGetCount":
            with self._lock:
                self._index = min(self._index + 1, len(self._passes) - 1)
        if name == "DeviceGetFieldValues":
            return [self._field(args[0], request) for request in args[1]]
        result = self._lookup(_key(name, list(args)))
        if result is None:
            if name == "Init":
                return None
            raise DriverError(NO_PERMISSION)
        if "hang" in result:
            self._wait()  # for ever, as the driver did
        if "error" in result:
            raise DriverError(int(result["error"]))
        return result.get("ok")

    def _field(self, handle: Any, request: tuple[int, int]) -> tuple[int, ...]:
        result = self._lookup(_key("DeviceGetFieldValues", [handle, list(request)]))
        if result is not None and "hang" in result:
            self._wait()
        return (NO_DATA, 0, 0, 0) if result is None else tuple(result["ok"])

    def _lookup(self, key: str) -> Result | None:
        # Facts that are read once stand only in an earlier pass.
        for answers in reversed(self._passes[: max(self._index, 0) + 1]):
            if key in answers:
                return answers[key]
        return None


def _key(name: str, args: list[Any]) -> str:
    return json.dumps([name, args], separators=(",", ":"))


def _load(path: Path) -> tuple[dict[str, Any], list[dict[str, Result]]]:
    try:
        with path.open(encoding="utf-8") as file:
            lines = [line for line in iter(lambda: file.readline(_MAX_LINE), "") if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise CaptureError(f"{path}: cannot be read: {error}") from None
    if not lines:
        raise CaptureError(f"{path}: is empty; expected a file written by `cardwatch capture`")
    head = _object(path, 1, lines[0])
    if head.get("format") != FORMAT or head.get("version") != VERSION:
        raise CaptureError(
            f"{path}: line 1 is not the header of a capture of version {VERSION}; "
            "expected a file written by `cardwatch capture`"
        )
    passes = [_pass(path, number, line) for number, line in enumerate(lines[1:], start=2)]
    if not passes:
        raise CaptureError(f"{path}: holds a header but no pass")
    return head, passes


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise CaptureError(
            f"{path}: line {number} is not JSON: {error}; "
            "expected a file written by `cardwatch capture`"
        ) from None
    if not isinstance(value, dict):
        raise CaptureError(f"{path}: line {number} is not an object")
    return value


def _pass(path: Path, number: int, line: str) -> dict[str, Result]:
    answers: dict[str, Result] = {}
    for note in _object(path, number, line).get("answers", ()):
        try:
            name, args, result = note
        except (TypeError, ValueError):
            raise CaptureError(f"{path}: line {number}: {note!r:.80} is not a call") from None
        if name not in CALLS or not isinstance(args, list) or not isinstance(result, dict):
            raise CaptureError(f"{path}: line {number}: {name!r:.80} is not a call that we know")
        # Within a pass a call may be made twice (a retry); its last answer stands.
        answers[_key(name, args)] = result
    return answers
