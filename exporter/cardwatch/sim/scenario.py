# SPDX-License-Identifier: Apache-2.0
"""Reads a scenario file: the cards of a simulated node and what befalls them.

The shape, all of it optional (see also ``scenarios/*.yaml``)::

    seed: 7
    driver: 580.95.05
    cards: [{model: H100, count: 4}, {model: A100, ecc: false}]   # or a number
    faults:
      - {at: 60s, for: 30s, gpu: 2, fault: lost}

``at`` counts from the node's epoch and is 0 when left out, without ``for`` a
fault stays, without ``gpu`` it is of every card. Kinds and their keys:
``faults.KINDS``. ``gpu`` is the card's place in ``cards``, whatever the driver lists.

Everything is checked here, so that the rest of the package can trust a
``Scenario``. An error is one line that names file, key, value and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cardwatch.sim import checks, faults
from cardwatch.sim.checks import Check, did_you_mean
from cardwatch.sim.faults import FOREVER, KINDS, Fault, Kind
from cardwatch.sim.models import A100, H100, MODELS, Model

PACKAGED = Path(__file__).parent / "scenarios"

_DRIVER = "580.95.05"
_CARDS = 8
_MAX_CARDS = 128
_MAX_FAULTS = 1000
_VERSION = re.compile(r"[0-9]{3}\.[0-9]{1,3}(\.[0-9]{1,3})?")
_KEYS = ("seed", "driver", "cards", "faults")
_CARD_KEYS = ("model", "count", "ecc")
_FAULT_KEYS = ("fault", "at", "for", "gpu")

_seed = checks.whole(0, 2**32)
_count = checks.whole(1, _MAX_CARDS)
_raw = checks.whole(-(2**63), 2**64 - 1)
_MISSING = object()


class ScenarioError(Exception):
    """A scenario file that cannot be used; the text is one line for the user."""


@dataclass(frozen=True)
class CardSpec:
    """One card of the node."""

    model: Model
    ecc: bool = True


@dataclass(frozen=True)
class Scenario:
    """A simulated node. ``seed`` None leaves the choice to whoever runs it."""

    cards: tuple[CardSpec, ...]
    driver: str = _DRIVER
    seed: int | None = None
    faults: tuple[Fault, ...] = ()
    name: str = "default"

    @property
    def driver_release(self) -> tuple[int, int]:
        """Branch and minor number of the driver."""
        branch, minor = self.driver.split(".")[:2]
        return int(branch), int(minor)


DEFAULT = Scenario(cards=(CardSpec(H100),) * _CARDS)
"""Eight healthy H100."""


def packaged_names() -> list[str]:
    """Names of the scenarios that the package brings."""
    return sorted(path.stem for path in PACKAGED.glob("*.yaml"))


def load_scenario(source: str | Path) -> Scenario:
    """Read a scenario from a file, or a packaged one by its bare name.

    A string without a slash and without ``.yaml`` or ``.yml`` is a bare name.
    """
    text = str(source)
    if "/" in text or text.endswith((".yaml", ".yml")):
        return _parse(text, _read(Path(text)))
    if text not in packaged_names():
        allowed = ", ".join(packaged_names())
        raise ScenarioError(f"scenario {text!r} is not known; allowed: {allowed}, or a file path")
    return _parse(text, _read(PACKAGED / f"{text}.yaml"))


def _read(path: Path) -> object:
    # Imported here: the default scenario must not pay for a YAML parser.
    import yaml

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ScenarioError(f"{path}: not a text file in UTF-8") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        raise ScenarioError(f"{path}: not valid YAML{where}") from None


@dataclass(frozen=True)
class _Reader:
    """Takes values out of one mapping of the file and words the errors."""

    file: str
    path: str
    mapping: Mapping[Any, Any]

    @classmethod
    def of(cls, file: str, path: str, value: object) -> _Reader:
        if not isinstance(value, dict):
            where = f"{path}: " if path else ""
            raise ScenarioError(f"{file}: {where}{value!r} is not allowed; write keys and values")
        return cls(file, path, value)

    def key(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def error(self, key: str, allowed: str) -> ScenarioError:
        value = self.mapping.get(key)
        return ScenarioError(
            f"{self.file}: {self.key(key)}: {value!r} is not allowed; write {allowed}"
        )

    def only(self, allowed: Iterable[str]) -> None:
        known = list(allowed)
        for key in self.mapping:
            if key not in known:
                raise ScenarioError(
                    f"{self.file}: {self.key(str(key))}: unknown key with value "
                    f"{self.mapping[key]!r}; allowed: {', '.join(known)}" + did_you_mean(key, known)
                )

    def take(self, key: str, check: Check, default: object = _MISSING) -> Any:
        if key not in self.mapping:
            if default is _MISSING:
                raise ScenarioError(f"{self.file}: {self.key(key)}: missing; {_wanted(check)}")
            return default
        try:
            return check(self.mapping[key])
        except ValueError as error:
            raise self.error(key, str(error)) from None

    def rows(self, key: str, most: int) -> list[_Reader]:
        value = self.mapping.get(key)
        if value is None:
            return []
        if not isinstance(value, list) or len(value) > most:
            raise self.error(key, f"a list of at most {most} entries")
        return [
            _Reader.of(self.file, f"{self.key(key)}[{number}]", row)
            for number, row in enumerate(value)
        ]


def _wanted(check: Check) -> str:
    """Say what a check allows by giving it what nothing allows."""
    try:
        check(_MISSING)
    except ValueError as error:
        return f"write {error}"
    return "write a value"


def _parse(file: str, content: object) -> Scenario:
    top = _Reader.of(file, "", {} if content is None else content)
    top.only(_KEYS)
    driver = top.take("driver", _driver, _DRIVER)
    cards = _cards(top, int(driver.split(".")[0]))
    return Scenario(
        cards=cards,
        driver=driver,
        seed=top.take("seed", _seed, None),
        faults=tuple(_fault(row, cards) for row in top.rows("faults", _MAX_FAULTS)),
        name=Path(file).stem,
    )


def _driver(value: object) -> str:
    # YAML reads 580.95 as a number; written without quotes it means the same.
    text = str(value) if isinstance(value, (str, float)) else ""
    if not _VERSION.fullmatch(text):
        raise ValueError("a driver version such as 580.95.05")
    return text


def _cards(top: _Reader, branch: int) -> tuple[CardSpec, ...]:
    usual = CardSpec(_usual(branch))
    value = top.mapping.get("cards")
    if value is None:
        return (usual,) * _CARDS
    if isinstance(value, int):
        count: int = top.take("cards", checks.whole(0, _MAX_CARDS))
        return (usual,) * count
    cards: list[CardSpec] = []
    for row in top.rows("cards", _MAX_CARDS):
        cards += _card_row(row, branch)
    if len(cards) > _MAX_CARDS:
        raise top.error("cards", f"at most {_MAX_CARDS} cards")
    return tuple(cards)


def _card_row(row: _Reader, branch: int) -> list[CardSpec]:
    row.only(_CARD_KEYS)
    model = MODELS[row.take("model", checks.choice(*MODELS), _usual(branch).key)]
    if model.driver > branch:
        raise row.error("model", f"a model that driver {branch} knows, or driver {model.driver}")
    ecc = row.take("ecc", checks.boolean, default=True)
    if "ecc" in row.mapping and not model.ecc:
        raise row.error("ecc", f"nothing: {model.key} has no ECC")
    count: int = row.take("count", _count, 1)
    return [CardSpec(model, ecc)] * count


def _usual(branch: int) -> Model:
    """Give the model of cards that do not say theirs, one that this driver knows."""
    return H100 if branch >= H100.driver else A100


def _fault(row: _Reader, cards: tuple[CardSpec, ...]) -> Fault:
    name = row.take("fault", checks.choice(*KINDS))
    kind = KINDS[name]
    row.only(_fault_keys(kind))
    at: float = row.take("at", checks.duration, 0.0)
    lasts: float = row.take("for", checks.positive_duration, FOREVER)
    values = {key: row.take(key, check) for key, check in kind.required.items()}
    values |= {
        key: row.take(key, check) for key, check in kind.optional.items() if key in row.mapping
    }
    _exactly_one(row, kind)
    if name == "value" and "field" in values:
        row.take("value", _raw)
    fault = Fault(name, at, at + lasts, _gpu(row, kind, len(cards)), MappingProxyType(values))
    _fits(row, fault, cards)
    return fault


def _fault_keys(kind: Kind) -> list[str]:
    absent = {"gpu"} if kind.gpu == faults.NONE else set()
    absent |= set() if kind.lasts else {"for"}
    return [key for key in _FAULT_KEYS if key not in absent] + [*kind.required, *kind.optional]


def _exactly_one(row: _Reader, kind: Kind) -> None:
    given = [key for key in kind.one_of if key in row.mapping]
    if kind.one_of and len(given) != 1:
        wanted = " or ".join(kind.one_of)
        raise row.error(given[1] if given else kind.one_of[0], f"either {wanted}, and not both")


def _gpu(row: _Reader, kind: Kind, count: int) -> int | None:
    if kind.gpu == faults.NONE:
        return None
    check = checks.whole(0, count - 1) if count else _no_cards
    if kind.gpu == faults.REQUIRED:
        return int(row.take("gpu", check))
    number: int | None = row.take("gpu", check, None)
    return number


def _no_cards(_value: object) -> int:
    raise ValueError("no gpu, for this node has no cards")


def _fits(row: _Reader, fault: Fault, cards: tuple[CardSpec, ...]) -> None:
    """Refuse what the named card, or each of all cards, does not have."""
    if fault.kind == "swap" and max(fault.values["gpus"]) >= len(cards):
        raise row.error("gpus", f"two different cards from 0 to {len(cards) - 1}")
    concerned = cards if fault.gpu is None else (cards[fault.gpu],)
    problems = [faults.misfit(fault, card.model) for card in concerned]
    if concerned and all(problems):
        key, allowed = problems[0] or ("fault", "another fault")
        raise row.error(key, f"what the card can do: {allowed}")
