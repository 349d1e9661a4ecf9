# SPDX-License-Identifier: Apache-2.0
"""Text from outside made fit for a label: valid UTF-8, no control characters, bounded."""

from __future__ import annotations

import unicodedata

MAX_BYTES = 128


def label(text: str) -> str:
    """Return ``text`` as a label value.

    Control, surrogate and unassigned characters are removed, surrounding
    space is stripped, and the UTF-8 form is cut at 128 bytes between characters.
    """
    if text.isascii() and text.isprintable():
        clean = text.strip()
    else:
        clean = "".join(c for c in text if unicodedata.category(c) not in _REMOVED).strip()
    encoded = clean.encode("utf-8")
    if len(encoded) <= MAX_BYTES:
        return clean
    return encoded[:MAX_BYTES].decode("utf-8", "ignore").rstrip()


_REMOVED = frozenset({"Cc", "Cs", "Cn", "Zl", "Zp"})
