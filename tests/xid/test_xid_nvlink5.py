# SPDX-License-Identifier: Apache-2.0
"""NVLink 5 lines decoded by unit, layout and status."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardwatch.xid import nvlink5
from cardwatch.xid.catalogue import ACTIONS, rows

ROWS = list(rows("nvlink5.csv"))


def words(row: dict[str, str], layout: str) -> tuple[int, int]:
    status = row["status"].split("|")[0]
    return int(row[f"{layout}_value"] or "0", 16), int(status or "0", 16)


@pytest.mark.parametrize("layout", ["v1", "v2"])
def test_every_row_is_found_again_in_both_layouts(layout: str) -> None:
    """A line of either driver generation decodes to its own row, whatever its other bits say."""
    for row in ROWS:
        info, status = words(row, layout)
        if row[f"{layout}_mask"]:  # bits that the row does not ask for are set
            info |= 0xFFFFFFFF & ~(int(row[f"{layout}_mask"], 16) | 0x4FF)
        found = nvlink5.decode(int(row["xid"]), row["unit"].split("/")[0], (info, status))
        assert found is not None, row
        assert (found.action, found.then) == (row["action"], row["then"]), row
        assert (found.severity == "nonfatal") == (row["severity"] == "nonfatal"), row


def test_the_table_asks_only_for_known_actions() -> None:
    """What a row asks for is one of the actions that the program knows."""
    assert len(ROWS) == 95
    for row in ROWS:
        assert row["action"] in ACTIONS, row
        assert row["action_promoted"] in {"", *ACTIONS}, row


@pytest.mark.parametrize(("info", "layout"), [(0xC2 | 0x400, "v1"), (0x6 | 0x80, "v2")])
@pytest.mark.parametrize("status", [1, 2, 4])
def test_a_promoted_error_asks_for_a_reset(info: int, layout: str, status: int) -> None:
    """RLW_RXPIPE with the promotion bit is fatal, in the bit of its layout."""
    found = nvlink5.decode(145, "RLW_RXPIPE", (info, status))
    assert found is not None, layout
    assert (found.action, found.severity, found.promoted) == ("RESET_GPU", "fatal", True)


def test_the_older_layout_is_tried_before_the_newer() -> None:
    """Words that only fit the newer layout are found too, without knowing the driver."""
    old = nvlink5.decode(145, None, (0x00000082, 0x40))
    new = nvlink5.decode(145, None, (0x00000004, 0x40))
    assert old is not None
    assert new is not None
    assert old.unit == new.unit == "RLW_REMAP"


def test_reason_of_a_link_that_went_down() -> None:
    """Bits 20 to 25 tell who is to blame; 33 is the other end of the link."""
    found = nvlink5.decode(149, "NETIR_LINK_EVT", (0x021425C6, 0))
    assert nvlink5.link_down_reason(0x021425C6) == 33
    assert found is not None
    assert (found.reason, found.then) == (33, "check the device at the other end")


def test_of_several_status_bits_the_worst_counts() -> None:
    """A status with a harmless and a fatal bit is fatal."""
    found = nvlink5.decode(145, "RLW_REMAP", (0x82, 0x100 | 0x40))
    assert found is not None
    assert found.severity == "fatal"


@pytest.mark.parametrize(
    ("code", "unit", "status"),
    [(79, None, (0x1, 0x1)), (149, "NETIR_LINK_EVT", ()), (144, "SAW_MVB", (0x3FF, 0x1))],
)
def test_what_the_table_lacks_is_none(code: int, unit: str | None, status: tuple[int, ...]) -> None:
    """No row is no guess."""
    assert nvlink5.decode(code, unit, status) is None


@given(code=st.integers(140, 155), unit=st.text(max_size=20) | st.none(),
       status=st.lists(st.integers(0, 2**64 - 1), max_size=4).map(tuple))  # fmt: skip
def test_any_words_decode_or_do_not(code: int, unit: str | None, status: tuple[int, ...]) -> None:
    """No word makes the decoding fail."""
    found = nvlink5.decode(code, unit, status)
    assert found is None or found.action in ACTIONS
