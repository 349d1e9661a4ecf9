# SPDX-License-Identifier: Apache-2.0
"""Messages from the reading child: what it means comes through, what it mangles is refused."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cardwatch.sample import (
    MAX_SLOTS,
    STATES,
    CardSample,
    Frame,
    FrameError,
    MigSample,
    OpenCall,
    decode_frame,
    encode_frame,
)

PATIENT = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
MAYBE = st.none() | TEXT
NUMBER = st.floats(allow_nan=False, allow_infinity=False) | st.integers(0, 2**64)
SECONDS = st.floats(0, 1e9)
ROWS = st.dictionaries(
    TEXT, st.lists(st.tuples(st.lists(TEXT, max_size=2).map(tuple), NUMBER), max_size=3), max_size=3
)
SLOT = st.integers(0, MAX_SLOTS)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
MIG = st.builds(MigSample, TEXT, TEXT, TEXT, TEXT, ROWS)
CARD = st.builds(
    CardSample,
    slot=SLOT, uuid=MAYBE, pci=MAYBE, state=st.sampled_from(STATES), up=st.booleans(), error=MAYBE,
    time=SECONDS, monotonic=SECONDS, duration=SECONDS,
    info=st.dictionaries(TEXT, TEXT, max_size=2), rows=ROWS,
    faults=st.dictionaries(TEXT, TEXT, max_size=2),
    reasons=st.none() | st.dictionaries(TEXT, st.booleans(), max_size=2),
    mig=st.lists(MIG, max_size=2),
)  # fmt: skip
FRAME = st.builds(
    Frame,
    pid=st.integers(1, 2**22), error=MAYBE, listed=st.none() | SLOT,
    node=st.dictionaries(TEXT, TEXT, max_size=2), host=st.dictionaries(TEXT, JSON, max_size=2),
    control=TEXT, pass_done=st.booleans(), cards=st.lists(CARD, max_size=2),
    open_calls=st.lists(st.builds(OpenCall, st.none() | SLOT, TEXT, SECONDS), max_size=2),
    answers=st.none() | st.lists(JSON, max_size=2), resident=st.integers(0, 2**40), cpu=SECONDS,
)  # fmt: skip


def decodes_or_refuses(line: bytes) -> None:
    """Decode a line; it must be a frame or a FrameError, never anything else."""
    try:
        frame = decode_frame(line)
    except FrameError:
        return
    assert isinstance(frame, Frame)


@PATIENT
@given(FRAME)
def test_a_frame_comes_through_whole(frame: Frame) -> None:
    """What the child means is what the parent gets, as one line."""
    line = encode_frame(frame)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode_frame(line) == frame


@PATIENT
@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused(line: bytes) -> None:
    """Bytes that are no frame are refused as such, and never bring the parent down."""
    decodes_or_refuses(line)


@PATIENT
@given(JSON)
def test_other_json_is_refused(value: Any) -> None:
    """JSON that is no frame is refused as such."""
    with pytest.raises(FrameError):
        decode_frame(json.dumps(value).encode())


@PATIENT
@given(FRAME, st.data())
def test_a_line_with_a_few_bytes_changed(frame: Frame, data: st.DataObject) -> None:
    """Bytes replaced, cut out or put in give a frame or a refusal."""
    line = bytearray(encode_frame(frame))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(line) - 1))
        cut = data.draw(st.integers(0, 3))
        line[at : at + cut] = data.draw(st.binary(max_size=3))
    decodes_or_refuses(bytes(line))


# One member of a frame, and of what it holds, as a path.
PATHS = [
    *((name,) for name in asdict(Frame(pid=1))),
    *(("cards", 0, name) for name in asdict(CardSample(slot=0))),
    *(("cards", 0, "rows", "gpu_power_watts", *more) for more in ((), (0,), (0, 0), (0, 1))),
    *(("cards", 0, "mig", 0, name) for name in asdict(MigSample("", "", "", ""))),
    *(("open_calls", 0, name) for name in asdict(OpenCall(0, "", 0.0))),
]
VALID = Frame(
    pid=1,
    listed=1,
    cards=[
        CardSample(
            slot=0, uuid="GPU-a", rows={"gpu_power_watts": [((), 1.5)]}, reasons={"gpu_idle": True},
            mig=[MigSample("MIG-a", "1", "0", "1g.10gb")],
        )
    ],
    open_calls=[OpenCall(0, "DeviceGetName", 0.1)],
)  # fmt: skip


def with_member(path: tuple[str | int, ...], value: Any) -> bytes:
    """Return the line of a valid frame with one member replaced."""
    whole: Any = json.loads(encode_frame(VALID))
    inner = whole
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return json.dumps(whole).encode()


@PATIENT
@given(st.sampled_from(PATHS), JSON | st.sampled_from([float("inf"), float("nan"), 10**400]))
@example(("pid",), float("inf"))
@example(("resident",), float("-inf"))
@example(("cpu",), 10**400)
@example(("cards", 0, "rows", "gpu_power_watts", 0, 1), 10**400)
def test_a_member_of_another_kind(path: tuple[str | int, ...], value: Any) -> None:
    """Any one member replaced by anything gives a frame or a refusal."""
    decodes_or_refuses(with_member(path, value))


@pytest.mark.parametrize("path", PATHS, ids=str)
def test_a_member_that_is_missing(path: tuple[str | int, ...]) -> None:
    """A frame without one of its members is refused, except for rows that may be absent."""
    whole: Any = json.loads(encode_frame(VALID))
    inner = whole
    for step in path[:-1]:
        inner = inner[step]
    del inner[path[-1]]
    if "gpu_power_watts" in path and path[-1] in ("gpu_power_watts", 0) and len(path) < 6:
        assert isinstance(decode_frame(json.dumps(whole).encode()), Frame)
    else:
        with pytest.raises(FrameError):
            decode_frame(json.dumps(whole).encode())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("cards", 0, "slot"), -1),
        (("cards", 0, "slot"), MAX_SLOTS + 1),
        (("cards", 0, "slot"), True),
        (("cards", 0, "state"), "fine"),
        (("cards", 0, "uuid"), 7),
        (("cards", 0, "info"), {"model": 7}),
        (("cards", 0, "rows", "gpu_power_watts", 0, 1), "612"),
        (("cards", 0, "rows", "gpu_power_watts", 0, 1), float("nan")),
        (("cards", 0, "rows", "gpu_power_watts", 0, 1), float("inf")),
        (("cards", 0, "rows", "gpu_power_watts", 0, 1), True),
        (("cards", 0, "rows", "gpu_power_watts", 0, 0), [7]),
        (("listed",), -1),
        (("listed",), 10**6),
        (("cards",), [None]),
        (("cards",), [{}] * (MAX_SLOTS + 1)),
        (("open_calls",), {}),
        (("cpu",), float("nan")),
    ],
    ids=str,
)
def test_rubbish_in_a_place_is_refused(path: tuple[str | int, ...], value: Any) -> None:
    """Wrong types, indexes out of bounds, unknown states and what is not finite are refused."""
    with pytest.raises(FrameError):
        decode_frame(with_member(path, value))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_frame_with_what_is_not_finite_is_not_written(value: float) -> None:
    """NaN and infinity are no JSON: such a frame fails where it is made."""
    with pytest.raises(ValueError, match="JSON"):
        encode_frame(Frame(pid=1, cpu=value))


@pytest.mark.parametrize(
    "path", [("cards", 0, "uuid"), ("cards", 0, "mig", 0, "uuid"), ("error",)], ids=str
)
def test_text_that_is_not_utf_8_is_refused(path: tuple[str | int, ...]) -> None:
    """Half a surrogate pair is no text: the page could not be written with it."""
    with pytest.raises(FrameError):
        decode_frame(with_member(path, "GPU-\ud800"))
