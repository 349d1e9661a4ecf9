# SPDX-License-Identifier: Apache-2.0
"""Small pieces that the lines of the GPU and the switch driver share."""

from __future__ import annotations

import re

# Domain, bus and device as the driver prints them, with or without the function.
PCI = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?"
MAX_MESSAGE = 1024

_PARTS = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.[0-9a-fA-F])?")
_HEX = re.compile(r"0x([0-9a-fA-F]{1,16})(?![0-9a-fA-F])")
_WORDS = 32


def normal_pci(text: str) -> str | None:
    """Return ``0000:3b:00`` for any way to write that address; None if it is none."""
    found = _PARTS.fullmatch(text)
    if found is None:
        return None
    return f"{int(found[1], 16):04x}:{found[2].lower()}:{found[3].lower()}"


def hex_words(text: str) -> tuple[int, ...]:
    """Return the hex numbers of a list such as ``0x1, 0x2`` or ``0x1 0x2``."""
    return tuple(int(word, 16) for word in _HEX.findall(text)[:_WORDS])


def clean(text: str) -> str:
    """Return a message as one line of printable text, bounded."""
    cut = text[:MAX_MESSAGE]
    if not cut.isprintable():
        cut = "".join(c if c.isprintable() else " " for c in cut)
    return cut.strip()
