# SPDX-License-Identifier: Apache-2.0
"""The form of a record of /dev/kmsg."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardwatch.kmsg.record import readable, sequence, split


def test_a_record_is_taken_apart() -> None:
    """Priority, number, time and text are read; properties on further lines are not text."""
    raw = split(b"4,1234,5678901,-;NVRM: hello\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n")
    assert raw == (4, 1234, 5678901, b"NVRM: hello")


@pytest.mark.parametrize("prefix", ["6,1,2", "6,1,2,-", "6,1,2,-,caller=T1946", "6,1,2,c,a=b,c,d"])
def test_any_number_of_prefix_fields_is_accepted(prefix: str) -> None:
    """Newer kernels add fields before the semicolon, and one more has no meaning for us."""
    raw = split(f"{prefix};text; with, more\n".encode())
    assert raw is not None
    assert (raw.seq, raw.usec, raw.text) == (1, 2, b"text; with, more")


@pytest.mark.parametrize(
    ("priority", "of_kernel"), [(0, True), (4, True), (7, True), (8, False), (12, False)]
)
def test_only_facility_0_is_the_kernels(priority: int, of_kernel: bool) -> None:
    """The facility stands above the three bits of the level."""
    raw = split(b"%d,1,2,-;x" % priority)
    assert raw is not None
    assert raw.of_kernel is of_kernel


@pytest.mark.parametrize(
    "record",
    [b"", b";", b"x", b"4,1;x", b"a,b,c,-;x", b"-4,1,2,-;x", b"4,1_0,2,-;x", b"4, 1,2,-;x",
     b"4,99999999999999999999,2,-;x", b"4,9999999999999999999,2,-;x", b"NVRM: Xid (PCI:0): 1"],
)  # fmt: skip
def test_what_is_no_record_is_none(record: bytes) -> None:
    """Broken lines and numbers that no kernel and no store has are not records."""
    assert split(record) is None


@given(st.binary(max_size=200))
def test_taking_apart_never_raises(record: bytes) -> None:
    """Whatever bytes come, there is an answer, and both ways to the number agree."""
    raw = split(record)
    if raw is not None and raw.seq < 10**18:
        assert sequence(record) == raw.seq


@given(st.text(max_size=100))
def test_escapes_are_undone(text: str) -> None:
    """What the kernel escapes as it does comes back as it was."""
    escaped = b"".join(
        b"\\x%02x" % byte if byte < 32 or byte >= 127 or byte == 0x5C else bytes((byte,))
        for byte in text.encode()
    )
    assert readable(escaped) == text


def test_bytes_that_are_not_text_are_replaced() -> None:
    """Half a character becomes a mark, not an error."""
    assert readable(b"a\\xffb\xc3") == "a\ufffdb\ufffd"
    assert readable(b"\\xzz \\x4") == "\\xzz \\x4"
