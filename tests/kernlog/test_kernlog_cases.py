# SPDX-License-Identifier: Apache-2.0
"""Kernel log cases from public reports, through the decoder."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from kernlog_samples import decoded

from cardwatch.commands.events import row
from cardwatch.kernlog.decode import Told
from cardwatch.kernlog.event import XID
from cardwatch.kernlog.parse import Parser
from cardwatch.kernlog.words import normal_pci
from cardwatch.xid.classify import classify

CASES: list[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("cases.yaml").read_text(encoding="utf-8")
)
# Cases about reading: sequence numbers across a restart, a flood, the event types of the
# driver library, a device that does not open. Tested where these are read.
OF_THE_READER = {"A35", "A42", "A44"}
TEXT_CASES = [case for case in CASES if case["id"] not in OF_THE_READER]
BY_ID = {case["id"]: case for case in CASES}
# Our name of a neutral field, where it is not the same.
NAMES = {"sub_code_bits_20_25": "reason", "intr_info": "intr_info"}


def lines_of(case: dict[str, Any]) -> list[str]:
    given = case["input"]
    return [line for batch in given.get("batches", [given.get("lines", [])]) for line in batch]


def told_of(case: dict[str, Any]) -> list[Told]:
    inventory = case["input"].get("inventory_at_start")
    if not inventory:
        return decoded(*lines_of(case))
    parser = Parser({card["bus_id"]: card["uuid"] for card in inventory})
    found = [event for line in lines_of(case) for event in parser.feed(line)]
    return [Told(event) for event in found + parser.flush()]


def rows_of(case: dict[str, Any]) -> list[dict[str, Any]]:
    return [row(told, classify(told.event)) for told in told_of(case)]


def matches(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return all(_equal(found, name, value) for name, value in wanted.items())


def _equal(found: dict[str, Any], name: str, value: Any) -> bool:
    if name == "pci":
        return bool(found["pci"] == normal_pci(value))
    if name == "fatal":
        return (found["severity"] == "fatal") == value
    return bool(found.get(NAMES.get(name, name)) == value)


@pytest.mark.parametrize("case", TEXT_CASES, ids=lambda c: c["id"])
def test_a_reported_log_gives_the_events_that_happened(case: dict[str, Any]) -> None:
    """Every event of the case comes out with its fields, and Xids count as often as they should."""
    rows, expect = rows_of(case), case["expect"]
    xids = Counter(
        code for r in rows for code in [str(r["xid"])] * r["count"] if r["xid"] is not None
    )
    for wanted in expect.get("events", []):
        assert any(matches(r, wanted) for r in rows), (wanted, rows)
    if expect.get("events"):
        assert len(rows) == len(expect["events"])
    for code, count in expect.get("counts", {}).items():
        assert xids[str(code)] == count
    if "counts" in expect:
        assert {code for code, n in xids.items() if n} == {str(c) for c in expect["counts"]}
    if "count" in expect:
        assert sum(r["count"] for r in rows) == expect["count"]
    if expect.get("xid_count", expect.get("xid_events_parsed")) == 0:
        assert not any(r["xid"] is not None for r in rows)
    if "sxid_count" in expect:
        assert sum(r["count"] for r in rows if r["sxid"] is not None) == expect["sxid_count"]
    for code in expect.get("must_not_count", []):
        assert str(code) not in xids


def test_optional_expectations_of_the_cases_hold_too() -> None:
    """The link-down reason, and the failed start with the address of its card, are told."""
    assert rows_of(BY_ID["A11"])[0]["reason"] == 33
    started = rows_of(BY_ID["A21"])
    assert [(r["class"], r["pci"], r["count"]) for r in started] == [
        ("gpu_init_failed", "0000:0a:00", 1)
    ]


def test_lines_of_the_driver_that_are_no_event_give_none() -> None:
    """Bags of other lines, malformed ones and other software's xid are silent."""
    for case in ("A22", "A31", "A38"):
        assert rows_of(BY_ID[case]) == []


def test_cases_about_pages() -> None:
    """A drill does not page, nor a harmless switch error; a recovery action does."""
    assert [r["tier"] for r in rows_of(BY_ID["A14"])] == ["none"]
    assert [r["tier"] for r in rows_of(BY_ID["A46"])] == ["page"]
    assert [r["tier"] for r in rows_of(BY_ID["A15"])] == ["none"]
    assert [r["tier"] for r in rows_of(BY_ID["A17"])] == ["page"]


def test_unknown_numbers_are_counted_as_unknown() -> None:
    """A30: neither number is in any table, both are events."""
    found = rows_of(BY_ID["A30"])
    assert [(r["xid"], r["class"]) for r in found] == [(99999, "unknown"), (999, "unknown")]


def test_processes_and_pids_of_the_cases() -> None:
    """A19, A24 and A37: numbers in the message are no pid, and the name is whoever asked."""
    assert {r["pid"] for r in rows_of(BY_ID["A19"])} == {None}
    assert {r["process"] for r in rows_of(BY_ID["A24"])} == {"nvidia-smi", "cache_mgr_main"}
    last = rows_of(BY_ID["A37"])[-1]
    assert (last["pid"], last["process"]) == (1797, "pt_main_thread")


def test_a_flood_of_few_texts_is_few_lines() -> None:
    """A35: what repeats in a row is one row with a count; counting the flood is the reader's."""
    case = BY_ID["A35"]["input"]
    texts = [case["template"].replace("7062", str(7000 + n)) for n in range(case["distinct_texts"])]
    each = 1000
    found = decoded(*(text for text in texts for _ in range(each)))
    assert [told.count for told in found] == [each] * len(texts)
    assert {told.event.code for told in found if told.event.kind == XID} == {95}
