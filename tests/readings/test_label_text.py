# SPDX-License-Identifier: Apache-2.0
"""Text from outside as a label value, for any text at all."""

from __future__ import annotations

import unicodedata

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cardwatch.text import MAX_BYTES, label

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
ANY_TEXT = st.one_of(
    st.text(),
    st.text(st.characters(), min_size=60),
    st.text(st.characters(categories=["Cc", "Cs", "Cn", "Zl", "Zp", "Zs", "Lu"])),
    st.text(st.sampled_from(" \t\x00é😀\ud800a"), min_size=100, max_size=200),
)


@PATIENT
@given(ANY_TEXT)
def test_a_label_is_valid_utf_8_of_bounded_length(text: str) -> None:
    """The result encodes as UTF-8 and has at most 128 bytes of it."""
    assert len(label(text).encode("utf-8")) <= MAX_BYTES == 128


@PATIENT
@given(ANY_TEXT)
def test_a_label_has_no_control_characters(text: str) -> None:
    """Controls, surrogates, unassigned characters and line ends are gone."""
    assert not {unicodedata.category(c) for c in label(text)} & {"Cc", "Cs", "Cn", "Zl", "Zp"}


@PATIENT
@given(ANY_TEXT)
@example("x" * 127 + " y")
def test_a_label_of_a_label_is_the_same(text: str) -> None:
    """Text made fit once is fit: the same card never has two spellings."""
    assert label(label(text)) == label(text)


@PATIENT
@given(st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=30))
def test_fit_text_is_left_alone(text: str) -> None:
    """What is fit for a label is not changed."""
    assert label(text) == text


@PATIENT
@given(ANY_TEXT)
def test_a_label_holds_nothing_that_was_not_there(text: str) -> None:
    """Characters are only ever removed, and their order is kept."""
    remaining = iter(text)
    assert all(character in remaining for character in label(text))
