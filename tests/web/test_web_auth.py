# SPDX-License-Identifier: Apache-2.0
"""The memory and the queue of password checks."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator

import bcrypt
import pytest

from cardwatch.web.auth import Authenticator, BusyError, _dummy_hash


def hashed(password: str, cost: int = 4) -> bytes:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost))


def basic(name: str, password: str) -> bytes:
    return b"Basic " + base64.b64encode(f"{name}:{password}".encode())


USERS = {b"marie": hashed("curie"), b"pierre": hashed("polonium")}


@pytest.fixture
def auth() -> Iterator[Authenticator]:
    made = Authenticator(remembered=2)
    yield made
    made.close()


def test_a_right_password_is_remembered(auth: Authenticator) -> None:
    """After one good check the same credentials need no further one."""
    header = basic("marie", "curie")
    assert not auth.known(USERS, header)
    assert asyncio.run(auth.check(USERS, header))
    assert auth.known(USERS, header)
    assert auth.known(USERS, header.replace(b"Basic", b"basic"))
    assert not auth.known(USERS, basic("marie", "curie2"))
    assert not auth.known(USERS, basic("mariec", "urie"))
    assert not auth.known(USERS, basic("pierre", "curie"))


def test_a_wrong_password_is_not_remembered(auth: Authenticator) -> None:
    """Failures leave no trace, so they cannot fill the memory."""
    for name in ("marie", "nobody"):
        assert not asyncio.run(auth.check(USERS, basic(name, "wrong")))
        assert not auth.known(USERS, basic(name, "wrong"))
    assert auth._known == {}


def test_the_memory_is_bounded(auth: Authenticator) -> None:
    """The oldest credentials are forgotten for new ones."""
    users = {b"u%d" % number: hashed("p") for number in range(3)}
    for number in range(3):
        assert asyncio.run(auth.check(users, basic(f"u{number}", "p")))
    known = [auth.known(users, basic(f"u{number}", "p")) for number in range(3)]
    assert known == [False, True, True]


def test_a_reload_forgets_all(auth: Authenticator) -> None:
    """New users start with an empty memory, also where nothing changed."""
    header = basic("marie", "curie")
    assert asyncio.run(auth.check(USERS, header))
    assert not auth.known(dict(USERS), header)


def test_a_check_from_before_a_reload_does_not_count_after_it(auth: Authenticator) -> None:
    """A password that was right when its check began is not let in after its change."""
    header = basic("marie", "curie")
    changed = {b"marie": hashed("radium")}

    async def overtaken() -> None:
        check = asyncio.ensure_future(auth.check(USERS, header))
        await asyncio.sleep(0)
        assert not auth.known(changed, header)
        await check

    asyncio.run(overtaken())
    assert not auth.known(changed, header)


def test_an_unknown_user_costs_what_a_known_one_does() -> None:
    """A name that does not exist is checked against a hash of the same cost, in vain."""
    dummy = _dummy_hash({b"a": hashed("x", 4), b"b": hashed("x", 6)})
    assert dummy.split(b"$")[2] == b"06"
    assert len(dummy) == 60
    assert not bcrypt.checkpw(b"", dummy)


@pytest.mark.parametrize(
    "header",
    [None, b"", b"Basic", b"Basic ", b"Basic =", b"Basic bm9jb2xvbg==", b"Digest a:b", b"\xff\xfe"],
)
def test_a_header_without_credentials_is_no_login(
    auth: Authenticator, header: bytes | None
) -> None:
    """What holds no name and password is refused without a check."""
    assert not auth.known(USERS, header)
    assert not asyncio.run(auth.check(USERS, header))


def test_checks_beyond_the_queue_are_refused() -> None:
    """With one worker and one place to wait, a third check at a time is refused."""
    auth = Authenticator(workers=1, waiting=1)
    header = basic("marie", "curie")

    async def three() -> list[bool | BaseException]:
        checks = [auth.check(USERS, header) for _ in range(3)]
        return await asyncio.gather(*checks, return_exceptions=True)

    try:
        results = asyncio.run(three())
        assert results[:2] == [True, True]
        assert isinstance(results[2], BusyError)
        assert asyncio.run(auth.check(USERS, header))
    finally:
        auth.close()


@pytest.mark.parametrize("password", ["", "a" * 72, "a" * 73, "a" * 500, "pass:word", "zoë"])
def test_unusual_passwords_work(auth: Authenticator, password: str) -> None:
    """Empty, long and non-ASCII passwords are compared as bcrypt does it, up to 72 bytes."""
    users = {b"marie": bcrypt.hashpw(password.encode()[:72], bcrypt.gensalt(4))}
    assert asyncio.run(auth.check(users, basic("marie", password)))
