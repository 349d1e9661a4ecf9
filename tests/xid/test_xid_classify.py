# SPDX-License-Identifier: Apache-2.0
"""One event to class, tier and action."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardwatch.kernlog import event as kernlog_event
from cardwatch.kernlog.event import INIT_FAILED, OFF_BUS, SXID, XID, Event
from cardwatch.xid import catalogue
from cardwatch.xid import classify as rules
from cardwatch.xid.catalogue import ACTIONS
from cardwatch.xid.classify import (
    Override,
    classify,
    classify_sxid,
    overrides,
    sxid_severity,
)

FATAL, NONFATAL = {"severity": "fatal"}, {"severity": "nonfatal"}
YES, NO = {"reset_required": True}, {"reset_required": False, "drain_required": False}
DRAIN = {"reset_required": False, "drain_required": True}

MATRIX: tuple[tuple[int, dict[str, Any], str, str, str], ...] = (
    # number, what the line adds, class, tier, action
    (79, {}, "critical", "page", "REBOOT_NODE"),
    (48, {}, "critical", "page", "RESET_GPU"),
    (63, {}, "hardware", "ticket", "RESET_GPU"),
    (109, {}, "hardware", "ticket", "RESET_GPU"),
    (31, {}, "application", "observe", "RESTART_APP"),
    (13, {}, "application", "observe", "RESTART_APP"),
    (43, {}, "application", "observe", "RESTART_APP"),
    (45, {"root_cause_xid": 149}, "application", "observe", "NONE"),
    (44, {}, "info", "none", "NONE"),
    (14, {}, "info", "none", "NONE"),
    (94, {}, "contained", "ticket", "RESTART_APP"),
    (94, NO, "contained", "ticket", "RESTART_APP"),
    (94, DRAIN, "contained", "ticket", "DRAIN_AND_RESET"),
    (94, YES, "critical", "page", "RESET_GPU"),
    (95, {}, "critical", "page", "RESET_GPU"),
    (95, YES, "critical", "page", "RESET_GPU"),
    (95, DRAIN, "critical", "page", "DRAIN_AND_RESET"),
    (95, NO, "hardware", "ticket", "RESTART_APP"),
    (144, {}, "hardware", "ticket", "RESET_GPU"),
    (144, NONFATAL, "hardware", "ticket", "RESET_GPU"),
    (144, FATAL, "critical", "page", "RESET_GPU"),
    (145, FATAL, "critical", "page", "RESET_GPU"),
    (146, FATAL, "critical", "page", "RESET_GPU"),
    (147, NONFATAL, "info", "none", "NONE"),
    (147, FATAL, "info", "none", "NONE"),
    (148, NONFATAL, "info", "none", "NONE"),
    (149, {}, "critical", "page", "RESET_GPU"),
    (149, FATAL, "critical", "page", "RESET_GPU"),
    (149, NONFATAL, "hardware", "ticket", "RESET_GPU"),
    (150, FATAL, "critical", "page", "RESET_GPU"),
    (150, NONFATAL, "hardware", "ticket", "RESET_GPU"),
    (149, {**FATAL, "injected": True}, "info", "none", "NONE"),
    (144, {**FATAL, "injected": True}, "info", "none", "NONE"),
    (149, {**FATAL, "injected": False}, "critical", "page", "RESET_GPU"),
    (154, {"recovery_to": 0}, "info", "none", "NONE"),
    (154, {"recovery_to": 1}, "critical", "page", "RESET_GPU"),
    (154, {"recovery_to": 2}, "critical", "page", "REBOOT_NODE"),
    (154, {"recovery_to": 3}, "hardware", "ticket", "DRAIN_P2P"),
    (154, {"recovery_to": 4}, "critical", "page", "DRAIN_AND_RESET"),
    (154, {"recovery_to": 5}, "hardware", "ticket", "RECOVER_IMEX"),
    (154, {"recovery_to": 6}, "critical", "page", "RESET_BUS"),
    (154, {"recovery_to": 7}, "critical", "page", "REBOOT_NODE"),
    (154, {"recovery_to": 8}, "unknown", "ticket", "INVESTIGATE"),
    (154, {}, "critical", "page", "INVESTIGATE"),
    (180, {}, "unknown", "ticket", "INVESTIGATE"),
    (999, {}, "unknown", "ticket", "INVESTIGATE"),
    (99999, {}, "unknown", "ticket", "INVESTIGATE"),
    (0, {}, "unknown", "ticket", "INVESTIGATE"),
    (10**17, {}, "unknown", "ticket", "INVESTIGATE"),
)


@pytest.mark.parametrize(("code", "more", "class_", "tier", "action"), MATRIX)
def test_class_tier_and_action_of_an_xid(
    code: int, more: dict[str, Any], class_: str, tier: str, action: str
) -> None:
    """The class follows the number and what the line adds to it."""
    found = classify(Event(XID, code=code, **more))
    assert (found.class_, found.tier, found.action) == (class_, tier, action)


@pytest.mark.parametrize(
    ("code", "unit", "status", "severity", "action"),
    [
        (144, "SAW_MVB", (0x21, 0x1), "nonfatal", "NONE"),
        (144, "SAW_MVB", (0x21, 0x2), "fatal", "RESET_GPU"),
        (144, "SAW_MVB", (0x21, 0x1), "fatal", "RESET_GPU"),
        (145, "RLW_SRC_TRACK", (0x040988E2, 0x8), "nonfatal", "RESTART_APP"),
        (149, "NETIR_BER_EVENT", (0x00086226, 0x1), "nonfatal", "NONE"),
        (149, "NETIR_LINK_EVT", (0x021425C6, 0x0), "fatal", "RESET_GPU"),
        (149, "NETIR_LINK_EVT", (0x026001C6, 0x0), "fatal", "INVESTIGATE"),
        (150, "MSE Degraded", (0x0, 0x0), "fatal", "RESET_GPU"),
    ],
)
def test_the_action_of_an_nvlink_5_line_comes_from_its_words(
    code: int, unit: str, status: tuple[int, ...], severity: str, action: str
) -> None:
    """The decoding table decides, but a page never asks for nothing."""
    event = Event(XID, code=code, unit=unit, status=status, severity=severity)
    assert classify(event).action == action


@pytest.mark.parametrize(
    ("code", "severity", "class_", "label"),
    [
        (20034, "fatal", "critical", "fatal"),
        (20034, "nonfatal", "hardware", "nonfatal"),
        (22013, "nonfatal", "info", "nonfatal"),
        (22013, "fatal", "critical", "fatal"),
        (12028, "nonfatal", "hardware", "nonfatal"),
        (11012, "correctable", "info", "correctable"),
        (11017, "nonfatal", "info", "nonfatal"),
        (19084, "nonfatal", "critical", "fatal"),
        (10003, "nonfatal", "critical", "fatal"),
        (10004, None, "hardware", "nonfatal"),
        (10005, None, "info", "nonfatal"),
        (10006, None, "critical", "fatal"),
        (28003, None, "critical", "fatal"),
        (31001, "fatal", "critical", "fatal"),
        (31001, "nonfatal", "unknown", "nonfatal"),
        (31001, None, "unknown", "nonfatal"),
        (11002, None, "unknown", "nonfatal"),
    ],
)
def test_class_and_label_of_an_sxid(
    code: int, severity: str | None, class_: str, label: str
) -> None:
    """The word of the line decides, save for numbers that are always fatal."""
    assert classify(Event(SXID, code=code, severity=severity)).class_ == class_
    assert sxid_severity(code, severity) == label


@given(code=st.sampled_from([*catalogue.sxids(), 99999]),
       severity=st.sampled_from([None, "fatal", "nonfatal", "correctable"]))  # fmt: skip
def test_the_label_fatal_means_critical(code: int, severity: str | None) -> None:
    """The paging rule reads the label alone, so it must agree with the class."""
    found = classify_sxid(code, severity)
    assert (sxid_severity(code, severity) == "fatal") == (found.class_ == "critical")
    assert (found.action == "NONE") == (found.class_ == "info")


def test_a_lost_card_and_one_that_did_not_start_have_classes_of_their_own() -> None:
    """They are no Xid and must not count as one."""
    lost = classify(Event(OFF_BUS))
    failed = classify(Event(INIT_FAILED))
    assert (lost.class_, lost.tier, lost.runbook) == ("gpu_off_bus", "page", "GPULost")
    assert (failed.class_, failed.tier) == ("gpu_init_failed", "page")


def test_runbook_follows_the_class_of_the_event() -> None:
    """An event that left the default class of its number points to the alert that it fires."""
    assert classify(Event(XID, code=79)).runbook == "GPULost"
    assert classify(Event(XID, code=149, severity="fatal")).runbook == "GPUXidCritical"
    assert classify(Event(XID, code=149, severity="nonfatal")).runbook == "GPUXidHardware"
    assert classify(Event(XID, code=154, recovery_to=1)).runbook == "GPURecoveryActionRequired"
    assert classify(Event(XID, code=154, recovery_to=0)).runbook == ""
    assert classify(Event(XID, code=4711)).runbook == "GPUXidUnknown"


def test_kinds_are_the_words_of_the_kernel_log() -> None:
    """The rules know the kinds of events by the same words as the parser."""
    assert (rules.OFF_BUS, rules.INIT_FAILED) == (kernlog_event.OFF_BUS, kernlog_event.INIT_FAILED)


OPTIONAL_BOOL = st.sampled_from([None, True, False])


@given(
    kind=st.sampled_from([XID, SXID, OFF_BUS, INIT_FAILED]),
    code=st.one_of(st.none(), st.integers(-1, 300), st.integers(0, 10**18)),
    severity=st.sampled_from([None, "fatal", "nonfatal", "correctable", "odd"]),
    recovery_to=st.one_of(st.none(), st.integers(0, 20)),
    reset=OPTIONAL_BOOL,
    drain=OPTIONAL_BOOL,
    injected=OPTIONAL_BOOL,
    unit=st.sampled_from([None, "RLW_RXPIPE", "NETIR_LINK_EVT", "MSE Degraded", "x"]),
    status=st.lists(st.integers(0, 2**32 - 1), max_size=3).map(tuple),
)
def test_any_event_gets_a_legal_class(
    kind: str, code: int | None, severity: str | None, recovery_to: int | None, reset: bool | None,
    drain: bool | None, injected: bool | None, unit: str | None, status: tuple[int, ...],
) -> None:  # fmt: skip
    """Nothing in an event can make the rules fail, and a page always asks for something."""
    found = classify(
        Event(kind, code=code, severity=severity, recovery_to=recovery_to, reset_required=reset,
              drain_required=drain, injected=injected, unit=unit, status=status)
    )  # fmt: skip
    assert found.tier == rules.TIERS[found.class_]
    assert found.action in ACTIONS
    assert found.tier != "page" or found.action != "NONE"
    if kind == XID and injected:
        assert found.tier == "none"


def test_overrides_replace_class_and_action() -> None:
    """The config file has the last word on a number, in part or in whole."""
    wanted = overrides({31: {"class": "hardware", "action": "RUN_DIAG"}, "63": {"action": "NONE"}})
    assert wanted == {31: Override("hardware", "RUN_DIAG"), 63: Override(None, "NONE")}
    found = classify(Event(XID, code=31), wanted)
    assert (found.class_, found.tier, found.action) == ("hardware", "ticket", "RUN_DIAG")
    assert found.runbook == "GPUXidHardware"
    assert classify(Event(XID, code=63), wanted).class_ == "hardware"
    assert classify(Event(XID, code=63), wanted).action == "NONE"


def test_overrides_never_make_a_drill_or_a_cure_page() -> None:
    """An injected error and a cleared recovery action stay harmless."""
    wanted = overrides({145: {"class": "critical"}, 154: {"class": "critical"}})
    assert classify(Event(XID, code=145, injected=True), wanted).tier == "none"
    assert classify(Event(XID, code=154, recovery_to=0), wanted).tier == "none"
    assert classify(Event(XID, code=154, recovery_to=3), wanted).tier == "page"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "expected a mapping"),
        ("79", "expected a mapping"),
        ({"abc": {"class": "info"}}, "abc: expected an Xid number"),
        ({True: {"class": "info"}}, "expected an Xid number"),
        ({-1: {"class": "info"}}, "expected an Xid number"),
        ({79: "info"}, "79: expected class, action or both"),
        ({79: {}}, "79: expected class, action or both"),
        ({79: {"klass": "info"}}, "79: expected class, action or both"),
        ({79: {"class": "fatal"}}, "79: class: expected one of critical, hardware"),
        ({79: {"action": "reboot"}}, "79: action: expected one of NONE, RESTART_APP"),
        ({79: {"class": ["info"]}}, "79: class: expected one of"),
        ({79: {"action": {}}}, "79: action: expected one of"),
    ],
)
def test_a_wrong_override_says_what_is_allowed(value: Any, said: str) -> None:
    """The message names the number and the words that may stand there."""
    with pytest.raises(ValueError, match=said.replace("[", "")):
        overrides(value)
