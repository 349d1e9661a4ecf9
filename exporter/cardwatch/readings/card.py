# SPDX-License-Identifier: Apache-2.0
"""One pass over one card: asking the driver, keeping rows, noting what did not read.

A topic function asks for values and puts them; a ``DriverError`` inside
``with card.attempt(families)`` becomes the fault of those families and the pass
goes on. Only a lost card ends a pass early.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from types import TracebackType
from typing import Any, TypeVar

from cardwatch.families import BY_NAME
from cardwatch.families.record import Family, Profile
from cardwatch.nvml.calls import Driver, Handle
from cardwatch.nvml.codes import (
    GPU_IS_LOST,
    NO_DATA,
    NOT_FOUND,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    DriverError,
    Outcome,
)
from cardwatch.nvml.fields import Field, decode, supported_by
from cardwatch.sample import Rows

T = TypeVar("T")

RETRY_UNSUPPORTED_S = 60.0
"""A call that a card does not support is asked again this often: modes can change."""

_PASSING = frozenset({NOT_FOUND, NO_DATA})
"""Nothing there at this moment: absent, but asked for again at the next pass."""

STATIC_S = 300.0
"""Facts fixed for a card (thresholds, limits by design) are read again this often."""


class CardLost(Exception):
    """The driver said that the card is gone; nothing more may be asked of this handle."""


class Memo:
    """What is remembered about one card between passes: never a reading, only facts.

    unsupported  code by call and arguments. No exception is kept: one that is
                 raised again and again holds the frames of every time.
    fields       fields that the card answers, by id and scope.
    no_fields    code of those that it does not support.
    calls        calls that the last pass made, with their arguments.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.static: dict[str, tuple[float, Any]] = {}
        self.unsupported: dict[tuple[Any, ...], int] = {}
        self.fields: dict[tuple[int, int], Field] = {}
        self.no_fields: dict[tuple[int, int], int] = {}
        self.calls: dict[tuple[str, tuple[Any, ...]], None] = {}
        self._unsupported_since = clock()

    def expire(self) -> None:
        """Forget what is due to be asked again."""
        if self.clock() - self._unsupported_since >= RETRY_UNSUPPORTED_S:
            self.unsupported.clear()
            self.fields.clear()
            self.no_fields.clear()
            self._unsupported_since = self.clock()


class _Attempt:
    """Context that turns a ``DriverError`` into faults of the named families."""

    __slots__ = ("_card", "_families")

    def __init__(self, card: CardPass, families: tuple[str, ...]) -> None:
        self._card = card
        self._families = families

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(error, DriverError):
            return False
        for family in self._families:
            self._card.fault(family, error)
        return True


class CardPass:
    """Collects rows and faults of one card, or of one MIG instance of it.

    ``profile`` says which families are wanted; ``driver_version`` gates field
    ids. ``lost`` is left to the caller as ``CardLost``.
    """

    def __init__(
        self,
        driver: Driver,
        handle: Handle,
        memo: Memo,
        profile: Profile,
        driver_version: str = "",
    ) -> None:
        self.driver = driver
        self.handle = handle
        self.memo = memo
        self.profile = profile
        self.driver_version = driver_version
        self.rows: dict[str, Rows] = {}
        self.faults: dict[str, str] = {}
        self.reasons: dict[str, bool] | None = None
        self.mig: list[Any] = []
        self.reset_required = False
        self._fields: dict[tuple[int, int], int | DriverError] | None = None
        self._answers: dict[tuple[str, tuple[Any, ...]], Any] = {}
        self._once = False

    # -- asking -----------------------------------------------------------------

    def ask_again(self) -> None:
        """Make the calls of the last pass, one right after the other.

        The topics then find their answers here. While they work out what these
        mean the interpreter is taken; with little of that between two calls, the
        threads of other cards hardly wait for it.
        """
        again, self.memo.calls = self.memo.calls, {}
        for key in again:
            name, args = key
            try:
                self._answers[key] = self.driver.call(name, self.handle, *args)
            except DriverError as error:
                if error.code == GPU_IS_LOST:
                    raise CardLost from None
                self._answers[key] = error

    def ask(self, name: str, *args: Any) -> Any:
        """Make a call on this card's handle, unless this pass has its answer.

        Raises ``DriverError``; raises ``CardLost`` when the card is gone. An
        answer "not supported" is remembered and not asked for again for a while.
        """
        key = (name, args)
        known = self.memo.unsupported.get(key)
        if known is not None:
            raise DriverError(known)
        try:
            if key in self._answers:
                answer = self._answers.pop(key)
                if isinstance(answer, DriverError):
                    raise answer
            else:
                answer = self.driver.call(name, self.handle, *args)
        except DriverError as error:
            if self._lasting(error):
                self.memo.unsupported[key] = error.code
            elif not self._once:
                self.memo.calls[key] = None
            raise
        if not self._once:
            self.memo.calls[key] = None
        return answer

    def lacks(self, name: str, *args: Any) -> bool:
        """Say whether the card is known not to support this call."""
        return (name, args) in self.memo.unsupported

    def ask_first(self, *calls: tuple[Any, ...]) -> Any:
        """Ask in order until one call is supported; raise the last error otherwise."""
        for call in calls[:-1]:
            try:
                return self.ask(*call)
            except DriverError as error:
                if error.outcome is not Outcome.UNSUPPORTED:
                    raise
        return self.ask(*calls[-1])

    def static(self, key: str, read: Callable[[], T]) -> T:
        """Return a fact that does not change for this card, read once in a while."""
        known = self.memo.static.get(key)
        now = self.memo.clock()
        if known is not None and now - known[0] < STATIC_S:
            return known[1]  # type: ignore[no-any-return]
        self._once = True
        try:
            value = read()
        finally:
            self._once = False
        self.memo.static[key] = (now, value)
        return value

    def fields(self, wanted: Sequence[tuple[Field, int]]) -> list[int | DriverError]:
        """Read fields with their scopes; one answer or error per field.

        The first request of a pass reads, in one call, all fields that earlier
        passes asked for: the driver's time goes by calls. A field that is new is
        asked for now and joins them. One that this driver gives another meaning
        is not asked for and answers "not supported".
        """
        if self._fields is None:
            codes = self.memo.no_fields
            errors = {code: DriverError(code) for code in set(codes.values())}
            self._fields = {key: errors[code] for key, code in codes.items()}
            self._read_known_fields(self._fields)
        found = self._fields
        keys = [(field.id, scope) for field, scope in wanted]
        try:
            return [found[key] for key in keys]
        except KeyError:
            fields = dict(zip(keys, (field for field, _ in wanted), strict=True))
            self._read_fresh_fields(
                found, {key: field for key, field in fields.items() if key not in found}
            )
            return [found[key] for key in keys]

    def lacks_field(self, field: Field, links: int) -> bool:
        """Say whether the card is known not to support a field for any of its links."""
        return all((field.id, link) in self.memo.no_fields for link in range(links))

    def _read_fresh_fields(
        self,
        found: dict[tuple[int, int], int | DriverError],
        fresh: dict[tuple[int, int], Field],
    ) -> None:
        asked = {}
        for key, field in fresh.items():
            if supported_by(field, self.driver_version):
                asked[key] = field
            else:
                found[key] = DriverError(NOT_SUPPORTED)
                self.memo.no_fields[key] = NOT_SUPPORTED
        if asked:
            self._read_fields(found, asked)

    def _read_known_fields(self, found: dict[tuple[int, int], int | DriverError]) -> None:
        if self.memo.fields:
            try:
                self._read_fields(found, self.memo.fields.copy())
            except DriverError:
                # Asked for one by one as they are wanted, each with its own fault.
                self.memo.fields.clear()

    def _read_fields(
        self,
        found: dict[tuple[int, int], int | DriverError],
        asked: dict[tuple[int, int], Field],
    ) -> None:
        answers = self.ask("DeviceGetFieldValues", tuple(asked))
        self.memo.fields.update(asked)
        for (key, field), answer in zip(asked.items(), answers, strict=True):
            code, value_type, _latency, raw = answer
            if code == 0:
                found[key] = decode(field, value_type, raw)
                continue
            error = found[key] = DriverError(code)
            if self._lasting(error):
                self.memo.no_fields[key] = code
                del self.memo.fields[key]

    def _lasting(self, error: DriverError) -> bool:
        """Draw from an error what it says of the card; True when it need not be asked again."""
        if error.code == GPU_IS_LOST:
            raise CardLost from None
        if error.code == RESET_REQUIRED:
            self.reset_required = True
        return error.outcome is Outcome.UNSUPPORTED and error.code not in _PASSING

    # -- keeping ----------------------------------------------------------------

    def wants(self, family: str, first_label: str | None = None) -> bool:
        """Say whether the profile exports this family, or this row of it."""
        return wanted(self.profile, family, first_label)

    def attempt(self, *families: str) -> _Attempt:
        """Guard a block of asking and putting: its error is the fault of these families."""
        return _Attempt(self, families)

    def put(self, family: str, value: Any, *labels: str, scale: int = 1, per: int = 1) -> None:
        """Keep one row, value times ``scale`` or divided by ``per``, if it is in range.

        Dividing by 1000 keeps 667161 mW exact where multiplying by 0.001 would not.
        """
        if not wanted(self.profile, family, labels[0] if labels else None):
            return
        kind = type(value)  # a bool is an int to `isinstance`
        if kind is int or kind is float:
            self._keep(BY_NAME[family], labels, value * scale if per == 1 else value / per)
        elif isinstance(value, DriverError):
            self.fault(family, value)
        else:
            self.faults[family] = "out_of_range"

    def _keep(self, record: Family, labels: tuple[str, ...], value: float) -> None:
        accept = record.accept
        if accept is not None and not accept[0] <= value <= accept[1]:
            self.faults[record.name] = "out_of_range"
        elif value or record.nonzero_profile is None or record.profile <= self.profile:
            self.rows.setdefault(record.name, []).append((labels, value))

    def put_all(self, family: str, rows: Iterable[tuple[tuple[str, ...], Any]]) -> None:
        """Keep rows as ``put`` would, less dearly: for families with a row per link."""
        if not wanted(self.profile, family, None):
            return
        record = BY_NAME[family]
        low, high = record.accept or (-math.inf, math.inf)
        if record.nonzero_profile is not None and record.profile > self.profile:
            low = max(low, 1)  # below that only what is not 0 is shown, if it is in range
        kept = []
        for labels, value in rows:
            if type(value) is int and low <= value <= high:
                kept.append((labels, value))
            else:
                self.put(family, value, *labels)
        if kept:
            self.rows.setdefault(family, []).extend(kept)

    def reject(self, *families: str) -> None:
        """Note that the driver answered these readings with something that cannot be."""
        for family in families:
            if wanted(self.profile, family, None):
                self.faults[family] = "out_of_range"

    def absent(self, *families: str) -> None:
        """Note that the card or its present mode does not have these readings."""
        for family in families:
            self.fault(family, DriverError(NOT_SUPPORTED))

    def fault(self, family: str, error: DriverError) -> None:
        """Note that a family, or one row of it, did not read.

        A failure outweighs a denial, which outweighs "not supported": the worst
        is what somebody must know about.
        """
        if not wanted(self.profile, family, None):
            return
        outcome = error.outcome
        fault = error.name if outcome is Outcome.FAILED else outcome.value
        known = self.faults.get(family)
        if known is None or _weight(fault) > _weight(known):
            self.faults[family] = fault

    def read(
        self, family: str, name: str, *args: Any, per: int = 1, not_told: int | None = None
    ) -> None:
        """Make one call and put its answer as the only row of a family.

        ``not_told`` is the driver's word for "I do not know", which is absence and no fault.
        """
        if self.wants(family):
            with self.attempt(family):
                answer = self.ask(name, *args)
                if answer == not_told:
                    self.absent(family)
                else:
                    self.put(family, answer, per=per)


def _weight(fault: str) -> int:
    return {Outcome.UNSUPPORTED.value: 0, Outcome.DENIED.value: 1}.get(fault, 2)


@lru_cache(maxsize=4096)
def wanted(profile: Profile, family: str, first_label: str | None) -> bool:
    """Say whether a profile exports a family at all, or the row with this first label."""
    record = BY_NAME[family]
    if record.nonzero_profile is not None and record.nonzero_profile <= profile:
        return True
    if first_label is None:
        return min([record.profile, *record.split.values()]) <= profile
    return record.profile_of(first_label) <= profile
