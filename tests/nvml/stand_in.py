# SPDX-License-Identifier: Apache-2.0
"""A driver made of answers, for tests of what is read from it.

A card is a mapping from a call to its answer. The key is the call's name, or a
tuple of name and arguments, or ``("field", id)`` or ``("field", id, scope)``.
The answer is what ``cardwatch.nvml.calls`` promises, a ``DriverError``, or a
``Raw`` for a field entry with a type of its own. What is not there is
NOT_SUPPORTED, as on a card that lacks it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cardwatch.families.record import Profile
from cardwatch.nvml.codes import (
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    INVALID_ARGUMENT,
    NO_PERMISSION,
    NOT_FOUND,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    UNKNOWN,
    DriverError,
)
from cardwatch.nvml.fields import ALL_LINKS, TYPE_UINT, TYPE_ULONGLONG
from cardwatch.readings.card import CardPass, Memo
from cardwatch.sample import Rows

Key = str | tuple[Any, ...]
Answers = Mapping[Key, Any]

UNSUPPORTED = DriverError(NOT_SUPPORTED)
NO_SYMBOL = DriverError(FUNCTION_NOT_FOUND)
DENIED = DriverError(NO_PERMISSION)
BROKEN = DriverError(UNKNOWN)
LOST = DriverError(GPU_IS_LOST)
NEEDS_RESET = DriverError(RESET_REQUIRED)
EMPTY = DriverError(NOT_FOUND)

MODERN = "580.95.05"


@dataclass(frozen=True)
class Raw:
    """One field entry as the driver left it."""

    code: int
    value_type: int
    value: int


class Card:
    """A handle and what it answers. ``answers`` may be changed at any time."""

    def __init__(self, answers: Answers) -> None:
        self.answers: dict[Key, Any] = dict(answers)

    def answer(self, name: str, args: tuple[Any, ...]) -> Any:
        """Answer one call, or raise what it fails with."""
        found = self.answers.get((name, *args), self.answers.get(name, UNSUPPORTED))
        if isinstance(found, DriverError):
            raise DriverError(found.code)
        return found

    def field(self, number: int, scope: int) -> tuple[int, int, int, int]:
        """Answer one field: (code, value type, latency, raw bits)."""
        known = self.answers.get(("field", number), UNSUPPORTED)
        found = self.answers.get(("field", number, scope), known)
        if isinstance(found, DriverError):
            return found.code, 0, 1, 0
        if isinstance(found, Raw):
            return found.code, found.value_type, 1, found.value
        return 0, TYPE_UINT if found < 2**32 else TYPE_ULONGLONG, 1, found


class Driver:
    """``cardwatch.nvml.calls.Driver`` over cards. ``made`` notes every call in order."""

    def __init__(self, *cards: Card | Answers, version: str = MODERN) -> None:
        self.cards: list[Card | None] = [c if isinstance(c, Card) else Card(c) for c in cards]
        self.system: dict[str, Any] = {
            "Init": None,
            "Shutdown": None,
            "SystemGetDriverVersion": version,
            "SystemGetNVMLVersion": f"13.{version}",
            "SystemGetCudaDriverVersion": 13000,
        }
        self.made: list[tuple[Any, ...]] = []

    def call(self, name: str, *args: Any) -> Any:
        """Make one call, as the readings do."""
        self.made.append((name, *args))
        if name == "DeviceGetCount":
            return self.system.get(name, len(self.cards))
        if name == "DeviceGetHandleByIndex":
            return self._handle(args[0])
        if name in self.system:
            return _given(self.system[name])
        card, *rest = args
        assert isinstance(card, Card), f"{name} got no handle"
        if name == "DeviceGetFieldValues":
            if name in card.answers:
                card.answer(name, ())  # the call itself fails
            return [card.field(number, scope) for number, scope in rest[0]]
        return card.answer(name, tuple(rest))

    def _handle(self, index: int) -> Card:
        card = self.cards[index] if index < len(self.cards) else None
        if card is None:
            raise DriverError(INVALID_ARGUMENT)
        card.answers.setdefault("handle", card)
        return card.answer("handle", ())  # type: ignore[no-any-return]

    def count(self, name: str) -> int:
        """Return how often a call was made."""
        return sum(made[0] == name for made in self.made)

    def names(self) -> Counter[str]:
        """Count the calls by name."""
        return Counter(made[0] for made in self.made)

    def asked_fields(self) -> set[tuple[int, int]]:
        """Return (id, scope) of every field that was ever asked for."""
        return {
            request
            for made in self.made
            if made[0] == "DeviceGetFieldValues"
            for request in made[2]
        }


def _given(answer: Any) -> Any:
    if isinstance(answer, DriverError):
        raise DriverError(answer.code)
    return answer


class Clock:
    """A clock that stands still until the test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def read(
    reader: Callable[[CardPass], None],
    answers: Answers | Card,
    *,
    profile: Profile = Profile.FULL,
    version: str = MODERN,
    memo: Memo | None = None,
    driver: Driver | None = None,
) -> CardPass:
    """Run one reader over a card and return what it collected."""
    card = answers if isinstance(answers, Card) else Card(answers)
    made = CardPass(driver or Driver(card), card, memo or Memo(Clock()), profile, version)
    reader(made)
    return made


def value(collected: CardPass, family: str) -> float | None:
    """Return the only row of a family without labels; None when it is absent."""
    rows = collected.rows.get(family)
    if rows is None:
        return None
    ((labels, number),) = rows
    assert labels == ()
    return number


def by_label(rows: dict[str, Rows], family: str) -> dict[Any, float]:
    """Return a family's rows by label value, or by all of them where there are several."""
    found: dict[Any, float] = {}
    for labels, number in rows.get(family, ()):
        key = labels[0] if len(labels) == 1 else labels
        assert key not in found, f"{family}: {labels} twice"
        found[key] = number
    return found


MIB = 2**20


def hopper(uuid: str = "GPU-a", **changes: Any) -> dict[Key, Any]:
    """Return the answers of a healthy H100 that supports everything a Hopper card does."""
    links = 18
    answers: dict[Key, Any] = {
        "DeviceGetUUID": uuid,
        "DeviceGetName": "NVIDIA H100 80GB HBM3",
        "DeviceGetSerial": "1650423000000",
        "DeviceGetBoardPartNumber": "692-2G520-0200-000",
        "DeviceGetVbiosVersion": "96.00.74.00.1C",
        "DeviceGetInforomImageVersion": "G520.0200.00.05",
        "DeviceGetPciBusId": "00000000:1B:00.0",
        "DeviceGetArchitecture": 9,
        "DeviceGetCudaComputeCapability": (9, 0),
        "DeviceGetMemoryInfo_v2": (81559 * MIB, 551 * MIB, 10885 * MIB, 70123 * MIB),
        "DeviceGetMemoryInfo": (81559 * MIB, 10885 * MIB, 70674 * MIB),
        "DeviceGetBAR1MemoryInfo": (131072 * MIB, 131069 * MIB, 3 * MIB),
        "DeviceGetUtilizationRates": (97, 61),
        "DeviceGetEncoderUtilization": 3,
        "DeviceGetDecoderUtilization": 4,
        "DeviceGetJpgUtilization": 5,
        "DeviceGetOfaUtilization": 6,
        ("DeviceGetTemperatureV", 0): 58,
        ("DeviceGetTemperatureThreshold", 0): 92,
        ("DeviceGetTemperatureThreshold", 1): 89,
        ("DeviceGetTemperatureThreshold", 2): 95,
        ("DeviceGetTemperatureThreshold", 3): 87,
        "DeviceGetMarginTemperature": 29,
        "DeviceGetPowerUsage": 612_345,
        "DeviceGetEnforcedPowerLimit": 700_000,
        "DeviceGetPowerManagementLimit": 690_000,
        "DeviceGetPowerManagementDefaultLimit": 700_000,
        "DeviceGetPowerManagementLimitConstraints": (200_000, 700_000),
        "DeviceGetTotalEnergyConsumption": 981_234_567_890,
        ("DeviceGetClockInfo", 0): 1980,
        ("DeviceGetClockInfo", 1): 1975,
        ("DeviceGetClockInfo", 2): 2619,
        ("DeviceGetClockInfo", 3): 1545,
        ("DeviceGetMaxClockInfo", 0): 1981,
        ("DeviceGetMaxClockInfo", 1): 1982,
        ("DeviceGetMaxClockInfo", 2): 2620,
        ("DeviceGetMaxClockInfo", 3): 1546,
        "DeviceGetPerformanceState": 0,
        "DeviceGetCurrentClocksEventReasons": 0x4,
        "DeviceGetSupportedClocksEventReasons": 0x1FF,
        "DeviceGetEccMode": (1, 1),
        ("DeviceGetMemoryErrorCounter", 0, 0, 2): 11,
        ("DeviceGetMemoryErrorCounter", 0, 0, 7): 12,
        ("DeviceGetMemoryErrorCounter", 1, 0, 2): 0,
        ("DeviceGetMemoryErrorCounter", 1, 0, 7): 0,
        ("DeviceGetMemoryErrorCounter", 0, 1, 2): 21,
        ("DeviceGetMemoryErrorCounter", 0, 1, 7): 22,
        ("DeviceGetMemoryErrorCounter", 1, 1, 2): 1,
        ("DeviceGetMemoryErrorCounter", 1, 1, 7): 2,
        "DeviceGetSramEccErrorStatus": (0,),
        "DeviceGetRemappedRows": (1, 2, 0, 0),
        "DeviceGetRowRemapperHistogram": (2559, 1, 0, 0, 0),
        "DeviceGetRepairStatus": (0, 0),
        "DeviceGetCurrPcieLinkGeneration": 5,
        "DeviceGetCurrPcieLinkWidth": 16,
        "DeviceGetMaxPcieLinkGeneration": 5,
        "DeviceGetMaxPcieLinkWidth": 16,
        "DeviceGetPcieReplayCounter": 7,
        "DeviceGetGpuFabricInfo": (3, 3, 0, 0x1AA, 1),
        "DeviceGetPersistenceMode": 1,
        "DeviceGetComputeMode": 0,
        "DeviceGetMigMode": (0, 0),
        "DeviceGetComputeRunningProcesses": [(4200, 69540 * MIB, None, None)],
        "DeviceGetGraphicsRunningProcesses": [],
        "DeviceGetMPSComputeRunningProcesses": [],
        ("field", 82): 67,
        ("field", 91): links,
        ("field", 186, 0): 616_000,
        ("field", 197): 5_123_456_789,
        ("field", 198): 6_123_456_789,
        ("field", 230): 0,
        ("field", 138, ALL_LINKS): 7_340_032,
        ("field", 139, ALL_LINKS): 8_340_032,
    }
    for number in (74, 75, 76, 77, 79, 269, 270, 271):
        answers["field", number] = number * 10**9
    for link in range(links):
        answers["field", 165, link] = 1
        for number in (161, 162, 163):
            answers["field", number, link] = 0
    for number in (161, 162, 163):
        answers["field", number, ALL_LINKS] = 0
    answers.update(changes)
    return answers
