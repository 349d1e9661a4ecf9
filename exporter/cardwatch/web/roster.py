# SPDX-License-Identifier: Apache-2.0
"""Who is connected, and who has been idle longest.

Owns the count of open connections and the rule that makes room for a new one.
It must never touch a socket: a connection closes itself when it is told to.
"""

from __future__ import annotations

import asyncio
from typing import Protocol


class Connection(Protocol):
    """One open connection, from its accept on."""

    def evict(self) -> None:
        """Close at once, without an answer."""

    def shutdown(self) -> None:
        """Close when nothing is owed to the peer any more."""


class Roster:
    """The open connections, at most ``limit`` of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: set[Connection] = set()
        # A dict for its order: the connection idle longest comes first.
        self._idle: dict[Connection, None] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        return len(self._open)

    def all(self) -> list[Connection]:
        """Give a copy that stays whole while connections leave."""
        return list(self._open)

    @property
    def full(self) -> bool:
        """Tell whether one more comes at the cost of another."""
        return len(self._open) >= self._limit

    def make_room(self) -> bool:
        """Make sure that one more fits, at the cost of the one idle longest."""
        return not self.full or self.evict_one()

    def evict_one(self) -> bool:
        """Close the connection idle longest; tell whether there was one."""
        oldest = next(iter(self._idle), None)
        if oldest is None:
            return False
        self.leave(oldest)
        oldest.evict()
        return True

    def join(self, connection: Connection) -> None:
        """Count a connection; it is idle until it sent a whole request head."""
        self._open.add(connection)
        self._idle[connection] = None
        self._empty.clear()

    def busy(self, connection: Connection) -> None:
        """Note that the connection has a request in progress."""
        self._idle.pop(connection, None)

    def idle(self, connection: Connection) -> None:
        """Note that the connection has no request in progress any more."""
        if connection in self._open:
            self._idle.pop(connection, None)
            self._idle[connection] = None

    def leave(self, connection: Connection) -> None:
        """Forget a connection; it may have left before."""
        self._open.discard(connection)
        self._idle.pop(connection, None)
        if not self._open:
            self._empty.set()

    async def empty(self) -> None:
        """Return once no connection is open."""
        await self._empty.wait()
