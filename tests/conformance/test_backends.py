# SPDX-License-Identifier: Apache-2.0
"""What holds for every backend: the driver library, the simulation and a capture."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from cardwatch.families import BY_NAME
from cardwatch.families.record import Profile, Scope, Type
from cardwatch.sample import STATES, WHOLE_CARD, CardSample, Frame, decode_frame, encode_frame
from nvml_c import BuildError, Stub

COLLECT = Path(__file__).with_name("collect.py")
CAPTURES = Path(__file__).parents[1] / "captures"

BACKENDS = (
    "nvml h100_node",
    "nvml a100_mig",
    "nvml geforce",
    "nvml gb10",
    "nvml t4",
    "nvml b200",
    "sim healthy",
    "sim mixed",
    *(f"replay {path.stem}" for path in sorted(CAPTURES.glob("*.jsonl"))),
)


@pytest.fixture(scope="module", params=BACKENDS)
def source(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=[p.name for p in Profile])
def profile(request: pytest.FixtureRequest) -> Profile:
    return Profile[request.param]


@pytest.fixture(scope="module")
def collected(source: str, profile: Profile) -> dict[str, Any]:
    backend, what = source.split(" ", 1)
    wanted: dict[str, Any] = {"backend": backend, "profile": profile.name}
    environment = dict(os.environ)
    if backend == "sim":
        wanted["scenario"] = what
    if backend == "replay":
        wanted["capture"] = str(CAPTURES / f"{what}.jsonl")
    if backend != "nvml":
        return _run(wanted, environment)
    try:
        stub = getattr(Stub, what)()
    except BuildError as error:
        pytest.skip(str(error))
    with stub:
        return _run(wanted, {**environment, **stub.env()})


def _run(wanted: dict[str, Any], environment: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(COLLECT), json.dumps(wanted)],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def cards(collected: dict[str, Any]) -> list[CardSample]:
    """The samples of the second pass, as the parent would see them."""
    raw = {**asdict(Frame(pid=1)), "cards": collected["passes"][1]}
    return decode_frame(json.dumps(raw).encode()).cards


def _rows(card: CardSample) -> list[tuple[str, Any]]:
    rows = list(card.rows.items())
    for instance in card.mig:
        rows += list(instance.rows.items())
    return rows


def test_every_listed_card_is_read_and_known_by_its_uuid(
    collected: dict[str, Any], cards: list[CardSample]
) -> None:
    """Each index that the driver lists gives one card that answers, with a UUID of its own."""
    assert len(cards) == collected["count"] > 0
    assert all(card.up and card.state == "ok" for card in cards)
    assert len({card.uuid for card in cards}) == len(cards)
    assert [card.slot for card in cards] == list(range(len(cards)))


def test_rows_belong_to_the_table(cards: list[CardSample], profile: Profile) -> None:
    """Every row is of an exported family of the profile, with its labels, in its range."""
    for card in cards:
        for name, rows in _rows(card):
            family = BY_NAME[name]
            assert family.planned is None, name
            for labels, value in rows:
                assert len(labels) == len(family.labels), name
                assert all(labels), f"{name} has an empty label"
                low, high = family.accept or (float("-inf"), float("inf"))
                assert low <= value <= high, f"{name} = {value}"
                nonzero = family.nonzero_profile is not None and value != 0
                if not nonzero:
                    assert family.profile_of(labels[0] if labels else None) <= profile, name
            assert len({labels for labels, _ in rows}) == len(rows), f"{name} twice"


def test_nothing_is_lost_silently(cards: list[CardSample], profile: Profile) -> None:
    """Each family that a driver should give either has rows or says why not."""
    wanted = [
        family.name
        for family in BY_NAME.values()
        if family.planned is None
        and family.scope is Scope.GPU
        and "nvml" in family.sources
        and family.profile_of() <= profile
        and family.type is not Type.INFO
        # the parent makes these of what the child tells it
        and family.name not in ("gpu_up", "gpu_throttle_reason_active", "gpu_state_info",
                                "gpu_nvlink_expected_links", "gpu_memory_used_includes_reserved",
                                "gpu_throttle_seconds_total")
    ]  # fmt: skip
    for card in cards:
        silent = [name for name in wanted if name not in card.rows and name not in card.faults]
        assert silent == [], f"card {card.slot} {card.info.get('model')}"


def test_faults_name_families_and_known_reasons(cards: list[CardSample]) -> None:
    """A fault is of a family in the table, with a reason in lower case."""
    for card in cards:
        for family, fault in card.faults.items():
            assert family == WHOLE_CARD or family in BY_NAME
            assert fault == fault.lower()
            assert fault


def test_mig_and_whole_card_families_are_never_mixed(cards: list[CardSample]) -> None:
    """Instances have families of their own; the card's are read once, not per instance."""
    for card in cards:
        assert all(BY_NAME[name].scope is Scope.GPU for name in card.rows)
        for instance in card.mig:
            assert instance.uuid.startswith("MIG-")
            assert instance.profile
            assert all(BY_NAME[name].scope is Scope.MIG for name in instance.rows)


def test_counters_do_not_fall_from_pass_to_pass(collected: dict[str, Any]) -> None:
    """What is declared as a counter only grows while nothing is reset."""
    first, second = collected["passes"]
    for before, after in zip(first, second, strict=True):
        for name, rows in before["rows"].items():
            if BY_NAME[name].type is Type.COUNTER:
                later = {tuple(labels): value for labels, value in after["rows"].get(name, [])}
                for labels, value in rows:
                    assert later.get(tuple(labels), value) >= value, name


def test_an_index_beyond_the_list_is_a_card_that_does_not_answer(
    collected: dict[str, Any],
) -> None:
    """Reading an index that the driver does not know gives a card that is down, no exception."""
    assert collected["beyond"]["up"] is False
    assert collected["beyond"]["state"] in STATES
    assert collected["beyond"]["rows"] == {}


def test_versions_are_told(collected: dict[str, Any]) -> None:
    """The driver's version is known whatever the backend."""
    assert collected["versions"]["driver_version"][0].isdigit()


def test_a_sample_survives_the_pipe(cards: list[CardSample]) -> None:
    """Encoding and decoding a frame gives the same samples."""
    frame = Frame(pid=1, listed=len(cards), cards=cards)
    assert decode_frame(encode_frame(frame)) == frame
