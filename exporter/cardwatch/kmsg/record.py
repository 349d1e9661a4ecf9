# SPDX-License-Identifier: Apache-2.0
"""One record as ``/dev/kmsg`` gives it: ``prio,seq,usec,flags[,more];text`` and its escapes.

Pure functions of bytes (Documentation/ABI/testing/dev-kmsg of the kernel). Lines
of properties after the text start with a space and are left out.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})")
_MAX_NUMBER = 2**63 - 1  # what a store can hold; the kernel gets nowhere near
_FACILITY_SHIFT = 3


class Raw(NamedTuple):
    """The parts of a record; ``text`` still has its escapes."""

    priority: int
    seq: int
    usec: int
    text: bytes

    @property
    def of_kernel(self) -> bool:
        """True for facility 0, which no program can give to a record that it writes."""
        return self.priority >> _FACILITY_SHIFT == 0


def split(record: bytes) -> Raw | None:
    """Take a record apart; None when it is none. More prefix fields may come with any kernel."""
    prefix, found, rest = record.partition(b";")
    fields = prefix.split(b",", 3)
    if not found or len(fields) < 3:
        return None
    priority, seq, usec = fields[:3]
    if not (priority.isdigit() and seq.isdigit() and usec.isdigit()):
        return None
    if len(priority) > 9 or len(seq) > 19 or len(usec) > 19:
        return None
    raw = Raw(int(priority), int(seq), int(usec), rest.partition(b"\n")[0])
    return raw if raw.seq <= _MAX_NUMBER and raw.usec <= _MAX_NUMBER else None


def sequence(record: bytes) -> int | None:
    """Return the sequence number alone, for records of which nothing else matters."""
    parts = record.split(b",", 2)
    if len(parts) < 3 or not parts[1].isdigit() or len(parts[1]) > 18:
        return None
    return int(parts[1])


def readable(text: bytes) -> str:
    r"""Undo the ``\xNN`` escapes. Bytes that are not UTF-8 become replacement characters."""
    if b"\\x" in text:
        text = _ESCAPE.sub(lambda match: bytes((int(match[1], 16),)), text)
    return text.decode("utf-8", "replace")
