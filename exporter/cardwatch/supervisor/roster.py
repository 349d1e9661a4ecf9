# SPDX-License-Identifier: Apache-2.0
"""The roster: cards this node has had, kept across restarts in the state directory.

A card that was here for more than ten minutes and is gone must show as lost
after a restart too. ``cardwatch baseline forget`` takes one off, also while an
exporter runs: it notices that the file is not the one it wrote.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import math
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

log = logging.getLogger("cardwatch.state")

FILE = "cards.json"
LOCK = "cards.lock"
VERSION = 1

ESTABLISHED_S = 600.0
"""Seen for longer than this, a card is expected to stay."""

SAVE_EVERY_S = 60.0
_MAX_CARDS = 256
_MAX_BYTES = 4 * 1024 * 1024


@dataclass
class Entry:
    """One card: when it was first and last seen (wall clock), its last index and facts."""

    first_seen: float
    last_seen: float
    index: int
    pci: str = ""
    info: dict[str, str] = field(default_factory=dict)

    @property
    def established(self) -> bool:
        """True once the card was here long enough to be missed."""
        return self.last_seen - self.first_seen > ESTABLISHED_S


@dataclass
class Roster:
    """Cards by UUID, and when this node was first seen at all.

    ``problem`` says why the state directory cannot be used; the roster then
    lives in memory only.
    """

    directory: Path | None
    cards: dict[str, Entry] = field(default_factory=dict)
    node_first_seen: float | None = None
    problem: str | None = None
    _written: tuple[int, int] | None = None
    _saved_at: float = float("-inf")

    def load(self) -> None:
        """Read the file. A missing one is an empty roster, a broken one is set aside."""
        if self.directory is None:
            return
        path = self.directory / FILE
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self.cards, self.node_first_seen = _parse(path.read_bytes()[:_MAX_BYTES])
        except FileNotFoundError:
            pass
        except OSError as error:
            self._fail(f"{path}: {error.strerror or error}")
        except ValueError:
            self._set_aside(path)
        self._written = _identity(path)

    def _set_aside(self, path: Path) -> None:
        aside = path.with_suffix(".broken")
        with contextlib.suppress(OSError):
            path.replace(aside)
        self._fail(f"{path}: was not readable as a roster and was moved to {aside.name}")

    def _fail(self, problem: str) -> None:
        """Note what is wrong, and log it once while it lasts."""
        if problem != self.problem:
            log.error("state directory: %s", problem)
        self.problem = problem

    def saw(self, uuid: str, now: float, index: int, pci: str, info: dict[str, str]) -> bool:
        """Note a card that answered. True when it was not on the roster before."""
        entry = self.cards.get(uuid)
        if entry is None:
            if len(self.cards) >= _MAX_CARDS:
                return False
            self.cards[uuid] = Entry(now, now, index, pci, dict(info))
            self._saved_at = float("-inf")  # so that it can be forgotten from now on
            return True
        if now < entry.first_seen:  # the clock was set back
            entry.first_seen = now
        entry.last_seen, entry.index, entry.pci, entry.info = now, index, pci, dict(info)
        return False

    def save(self, now: float, *, force: bool = False) -> None:
        """Write the file, at most once a minute unless forced. Failure is noted, not raised."""
        if self.directory is None or (not force and now - self._saved_at < SAVE_EVERY_S):
            return
        self._saved_at = now
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with _locked(self.directory):
                if not force and _identity(self.directory / FILE) not in (None, self._written):
                    raise BlockingIOError  # not ours any more: to be read first
                self._written = _write(self.directory, self.cards, self.node_first_seen)
            self.problem = None
        except BlockingIOError:
            self._saved_at = float("-inf")
        except OSError as error:
            self._fail(f"{self.directory / FILE}: {error.strerror or error}")

    def forgotten(self) -> list[str]:
        """Return cards that somebody took off the file since we wrote it, and drop them."""
        if self.directory is None:
            return []
        path = self.directory / FILE
        found = _identity(path)
        if found is None or found == self._written:
            return []
        try:
            on_file, _ = _parse(path.read_bytes()[:_MAX_BYTES])
        except (OSError, ValueError):
            return []
        self._written = found
        gone = [uuid for uuid in self.cards if uuid not in on_file]
        for uuid in gone:
            del self.cards[uuid]
        return gone


def forget(directory: Path, uuids: list[str]) -> list[str]:
    """Take cards off the file of a state directory; return those that were on it.

    Raises ``OSError`` when the file cannot be read or written, ``ValueError``
    when it is not a roster.
    """
    with _locked(directory):
        cards, first_seen = _parse((directory / FILE).read_bytes()[:_MAX_BYTES])
        gone = [uuid for uuid in uuids if cards.pop(uuid, None) is not None]
        if gone:
            _write(directory, cards, first_seen)
        return gone


def on_file(directory: Path) -> dict[str, Entry]:
    """Return the cards on file; empty when there is none. Raises as ``forget`` does."""
    try:
        return _parse((directory / FILE).read_bytes()[:_MAX_BYTES])[0]
    except FileNotFoundError:
        return {}


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the lock file, without waiting: the other side holds it for a moment only."""
    # Opened for reading: it may be of another user, who looked at the cards before.
    descriptor = os.open(directory / LOCK, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _parse(data: bytes) -> tuple[dict[str, Entry], float | None]:
    """Return what the file says. Raises ``ValueError``, whatever is wrong with it."""
    try:
        raw = json.loads(data)
        if raw["version"] != VERSION:
            raise ValueError(f"version {raw['version']!r} is not {VERSION}")
        cards = {str(uuid): _entry(entry) for uuid, entry in raw["cards"].items()}
        first_seen = raw.get("node_first_seen")
        return cards, None if first_seen is None else _second(first_seen)
    except (TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"not a roster: {type(error).__name__}") from None


def _second(raw: Any) -> float:
    second = float(raw)
    if not math.isfinite(second):
        raise ValueError(f"{raw!r} is not a time")
    return second


def _entry(raw: dict[str, Any]) -> Entry:
    return Entry(
        first_seen=_second(raw["first_seen"]),
        last_seen=_second(raw["last_seen"]),
        index=int(raw["index"]),
        pci=str(raw["pci"]),
        info={str(key): str(value) for key, value in raw["info"].items()},
    )


def _write(
    directory: Path, cards: dict[str, Entry], first_seen: float | None
) -> tuple[int, int] | None:
    content = {
        "version": VERSION,
        "node_first_seen": first_seen,
        "cards": {uuid: asdict(entry) for uuid, entry in cards.items()},
    }
    fresh = directory / f"{FILE}.new"
    with fresh.open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(directory / FILE)
    return _identity(directory / FILE)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
