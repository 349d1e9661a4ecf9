# SPDX-License-Identifier: Apache-2.0
"""Basic authentication against bcrypt hashes, off the event loop.

Owns the check of credentials and the memory of those that were right. It must
never log or keep a password, never block the event loop, and never tell by its
timing whether a user exists.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import secrets
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import bcrypt

Users = Mapping[bytes, bytes]

_BCRYPT_BYTES = 72  # bcrypt reads no more, and the library refuses longer input
_NOBODY = b"." * 31  # the digest part of a hash that no password is known for


class BusyError(Exception):
    """More checks are waiting than may wait."""


class Authenticator:
    """Checks Authorization headers; at most ``workers`` at once, few more waiting."""

    def __init__(self, *, workers: int = 2, waiting: int = 16, remembered: int = 256) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="cardwatch-bcrypt")
        self._most_pending = workers + waiting
        self._pending = 0
        self._key = secrets.token_bytes(32)
        self._known: dict[bytes, None] = {}
        self._most_known = remembered
        self._users: Users = {}
        self._dummy = b""

    def known(self, users: Users, authorization: bytes | None) -> bool:
        """Tell whether these credentials were found right before; takes no time."""
        self._use(users)
        credentials = _credentials(authorization)
        return credentials is not None and self._mark(users, credentials) in self._known

    async def check(self, users: Users, authorization: bytes | None) -> bool:
        """Check in a thread; raises ``BusyError`` when too many checks wait."""
        self._use(users)
        credentials = _credentials(authorization)
        if credentials is None:
            return False
        if self._pending >= self._most_pending:
            raise BusyError
        name, password = credentials
        mark = self._mark(users, credentials)
        right = await self._verify(users.get(name, self._dummy), password)
        if not right or name not in users:
            return False
        # The mark covers the hash, so that one made before a reload is not found
        # after a change of this user.
        self._remember(mark)
        return True

    def close(self) -> None:
        """Take no more checks; one under way ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _use(self, users: Users) -> None:
        if users is not self._users:
            self._users = users
            self._known.clear()
            self._dummy = _dummy_hash(users)

    async def _verify(self, hashed: bytes, password: bytes) -> bool:
        self._pending += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._pool, _matches, password, hashed)
        finally:
            self._pending -= 1

    def _mark(self, users: Users, credentials: tuple[bytes, bytes]) -> bytes:
        name, password = credentials
        message = b"%d:%s%d:%s" % (len(name), name, len(password), password)
        return hmac.digest(self._key, message + users.get(name, b""), "sha256")

    def _remember(self, mark: bytes) -> None:
        if len(self._known) >= self._most_known:
            del self._known[next(iter(self._known))]
        self._known[mark] = None


def _credentials(authorization: bytes | None) -> tuple[bytes, bytes] | None:
    if authorization is None:
        return None
    scheme, _, encoded = authorization.partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return (name, password) if colon else None


def _matches(password: bytes, hashed: bytes) -> bool:
    try:
        return bcrypt.checkpw(password[:_BCRYPT_BYTES], hashed)
    except ValueError:
        return False


def _dummy_hash(users: Users) -> bytes:
    """Make a hash that costs an unknown user as much as the dearest known one."""
    if not users:
        return b""
    cost = max(int(hashed.split(b"$")[2]) for hashed in users.values())
    return bcrypt.gensalt(cost) + _NOBODY
