# SPDX-License-Identifier: Apache-2.0
"""Field values from 64 raw bits, for every type a driver may name, and every version string."""

from __future__ import annotations

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cardwatch.nvml import fields
from cardwatch.nvml.fields import Field, decode, supported_by

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
RAW = st.integers(0, 2**64 - 1)
NARROW, WIDE = Field(82, bits=32), Field(83)
ANY_FIELD = st.sampled_from([NARROW, WIDE])
KNOWN_TYPES = range(7)


@PATIENT
@given(ANY_FIELD, st.integers(-(2**31), 2**31 - 1), RAW)
def test_every_answer_decodes_to_an_integer(field: Field, value_type: int, raw: int) -> None:
    """Whatever type and bits a driver gives, the result is a number of at most 64 bits."""
    assert -(2**63) <= decode(field, value_type, raw) < 2**64


@PATIENT
@given(ANY_FIELD, RAW)
def test_64_bit_types_keep_all_bits(field: Field, raw: int) -> None:
    """An unsigned 64-bit value is what it is; a signed one is its two's complement."""
    for value_type in (fields.TYPE_ULONG, fields.TYPE_ULONGLONG):
        assert decode(field, value_type, raw) == raw
    signed = decode(field, fields.TYPE_LONGLONG, raw)
    assert struct.pack("<q", signed) == struct.pack("<Q", raw)


@PATIENT
@given(ANY_FIELD, RAW)
def test_narrow_types_ignore_the_upper_bits(field: Field, raw: int) -> None:
    """What lies beyond the type's width is whatever was there before the call."""
    assert decode(field, fields.TYPE_UINT, raw) == raw % 2**32
    assert decode(field, fields.TYPE_USHORT, raw) == raw % 2**16
    signed = decode(field, fields.TYPE_INT, raw)
    assert struct.pack("<i", signed) == struct.pack("<I", raw % 2**32)


@PATIENT
@given(st.integers(-(2**31), 2**31 - 1).filter(lambda n: n not in KNOWN_TYPES or n == 0), RAW)
def test_without_a_type_the_declared_width_rules(value_type: int, raw: int) -> None:
    """Type 0 is what an unset type and a wrong "double" look like: the header's width counts."""
    assert decode(NARROW, value_type, raw) == raw % 2**32
    assert decode(WIDE, value_type, raw) == raw


@PATIENT
@given(st.text())
def test_no_version_string_breaks_the_gate(version: str) -> None:
    """Any text is a yes or a no for a gated id, and a yes for the others."""
    assert supported_by(fields.REASON_SW_THERMAL, version) in (True, False)
    assert supported_by(fields.PERF_POLICY_THERMAL, version) is True


@PATIENT
@given(st.integers(300, 999), st.integers(0, 299), st.integers(0, 99))
def test_the_gate_opens_at_580_82(branch: int, minor: int, patch: int) -> None:
    """Versions are compared as numbers, branch first."""
    known = supported_by(fields.REASON_HW_THERMAL, f"{branch}.{minor:02d}.{patch:02d}")
    assert known == ((branch, minor) >= (580, 82))


@pytest.mark.parametrize("field", [fields.REASON_SW_THERMAL, fields.REASON_HW_THERMAL,
                                   fields.REASON_HW_POWER_BRAKE])  # fmt: skip
def test_all_three_renumbered_ids_are_gated(field: Field) -> None:
    """Each of 269, 270 and 271 meant something else on early drivers of 575 and 580."""
    assert field.id in (269, 270, 271)
    assert field.since == (580, 82)
