# SPDX-License-Identifier: Apache-2.0
"""The tables of Xid and SXid numbers are complete and use only words that exist."""

from __future__ import annotations

from cardwatch.xid import catalogue
from cardwatch.xid.catalogue import ACTIONS, CLASSES
from cardwatch.xid.classify import TIERS

ORIGINS = {"application", "driver", "firmware", "hardware", "link", "info"}
# How many SXids each block of the switch driver has; the numbers of a block have no gap.
SXID_BLOCKS = {
    10: 10, 11: 47, 12: 51, 13: 8, 14: 18, 15: 20, 16: 3, 17: 8, 18: 20, 19: 84, 20: 38, 21: 10,
    22: 13, 23: 17, 24: 10, 25: 10, 26: 8, 27: 7, 28: 5, 29: 6, 30: 6,
}  # fmt: skip
ALWAYS_FATAL_BESIDES_THE_GUIDE = {10003, 10006, 19084}
RUNBOOKS = {
    "", "GPULost", "GPUXidCritical", "GPUXidHardware", "GPUXidContained", "GPUXidApplication",
    "GPUXidUnknown", "GPUUncorrectableECC", "GPURowRemapPending", "GPURowRemapFailure",
    "GPURecoveryActionRequired", "GPUCorrectableECCRateHigh", "GPUNVSwitchFatal",
}  # fmt: skip
UNDESCRIBED = set(range(177, 185))
CRITICAL = {
    46, 48, 54, 62, 64, 74, 79, 95, 110, 119, 120, 136, 140, 143, 149, 150, 154, 158, 167, 169,
    173, 175,
}  # fmt: skip
APPLICATION = {8, 11, 13, 25, 31, 43, 45, 66, 67, 68, 69, 93, 108, 137, 141}


def test_every_xid_from_1_to_185_has_a_row() -> None:
    """No number up to the newest known one is missing, and none stands twice."""
    assert list(catalogue.xids()) == list(range(1, 186))
    assert {c for c, entry in catalogue.xids().items() if not entry.known} == UNDESCRIBED


def test_every_sxid_has_a_row() -> None:
    """All 399 numbers of the switch driver are there."""
    wanted = [block * 1000 + n for block, size in SXID_BLOCKS.items() for n in range(1, size + 1)]
    assert len(wanted) == 399
    assert list(catalogue.sxids()) == wanted


def test_xid_rows_use_known_words() -> None:
    """Class, action, origin and runbook are words that the rest of the program knows."""
    for entry in catalogue.xids().values():
        assert entry.class_ in CLASSES, entry
        assert entry.action in ACTIONS, entry
        assert entry.runbook in RUNBOOKS, entry
        assert set(entry.origin) <= ORIGINS, entry
        assert all(code in catalogue.xids() for code in entry.follows), entry
        assert entry.meaning, entry
        if entry.known:
            assert entry.origin, entry
            assert entry.notes, entry
            assert entry.sources, entry


def test_sxid_rows_use_known_words() -> None:
    """Classes, action, origin and runbook are words that the rest of the program knows."""
    for entry in catalogue.sxids().values():
        assert {entry.class_, entry.class_nonfatal} <= set(CLASSES), entry
        assert entry.action in ACTIONS, entry
        assert entry.runbook == ("GPUNVSwitchFatal" if entry.class_ == "critical" else ""), entry
        assert set(entry.origin) <= ORIGINS, entry
        assert entry.mnemonic.startswith("NVSWITCH_ERR_HW_"), entry
        assert entry.meaning, entry
        assert entry.notes, entry
        assert entry.sources, entry


def test_default_classes_follow_the_tiers_of_the_facts() -> None:
    """Page is critical, ticket hardware, 94 contained, user code application, the rest info."""
    by_class: dict[str, set[int]] = {}
    for code, entry in catalogue.xids().items():
        by_class.setdefault(entry.class_, set()).add(code)
    assert by_class["critical"] == CRITICAL
    assert by_class["contained"] == {94}
    assert by_class["application"] == APPLICATION
    assert by_class["unknown"] == UNDESCRIBED
    assert {63, 92, 109, 121, 144, 145, 146, 171, 172} <= by_class["hardware"]
    assert {14, 44, 106, 107, 147, 148} <= by_class["info"]


def test_a_runbook_of_a_class_is_the_alert_of_that_class() -> None:
    """Rows without a special alert point to the one that their class fires."""
    for entry in catalogue.xids().values():
        if entry.class_ == "application":
            assert entry.runbook == "GPUXidApplication"
        if entry.class_ == "info":
            assert entry.runbook == ""


def test_numbers_that_are_always_fatal_are_critical_without_fatal_in_the_line() -> None:
    """The guide's always-fatal numbers and the three that need a reset whatever they say."""
    always = {c for c, entry in catalogue.sxids().items() if entry.class_nonfatal == "critical"}
    guide = {c for c, e in catalogue.sxids().items() if "guide: always fatal" in e.notes}
    assert len(guide) == 20
    assert always == guide | ALWAYS_FATAL_BESIDES_THE_GUIDE
    assert catalogue.sxids()[10006].class_ == "critical"
    assert not catalogue.sxids()[10006].worded


def test_thermal_numbers_are_printed_without_a_word() -> None:
    """10004 to 10006 and the 28000s carry no Fatal or Non-fatal."""
    wordless = {code for code, entry in catalogue.sxids().items() if not entry.worded}
    assert {10004, 10005, 10006, 28001, 28002, 28003, 28004, 28005} <= wordless
    assert 22013 not in wordless
    assert 20034 not in wordless


def test_every_class_has_a_tier() -> None:
    """A class without a tier could not be routed."""
    assert set(CLASSES) <= set(TIERS)
    assert set(TIERS.values()) == {"page", "ticket", "observe", "none"}
