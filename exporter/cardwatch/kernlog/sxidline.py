# SPDX-License-Identifier: Apache-2.0
"""One line of the NVSwitch driver to an event.

An error is printed as one line with the word Fatal, Non-fatal or Correctable and
two or more detail lines with the same number: only the first is an event. Some
numbers, thermal ones among them, are printed without a word; the table of SXids
knows which. Never raises; a line of another form gives None.
"""

from __future__ import annotations

import re

from cardwatch.kernlog.event import SXID, Event
from cardwatch.kernlog.words import PCI, clean, normal_pci
from cardwatch.xid import catalogue

_HEAD = re.compile(
    rf"(?P<switch>nvidia-nvswitch[0-9]{{1,4}}): SXid ?\((?:PCI:)?(?P<pci>{PCI})\): ?"
    r"(?P<code>[0-9]{1,9}),\s*(?P<text>\S.*)",
    re.DOTALL,
)
_WORD = re.compile(r"(?P<word>Fatal|Non-?fatal|Correctable)(?:,\s*|$)", re.IGNORECASE)
_DETAIL = re.compile(r"Severity [0-9]|Data ?\{|Engine instance")
_LINK = re.compile(r"Link (-?[0-9]{1,4})\b")


def parse_sxid(text: str, time: float | None = None, uptime: float | None = None) -> Event | None:
    """Return the event of an SXid line; None for detail lines and anything else.

    Events without a severity come from lines without a word: several of them in
    a row can belong to one incident.
    """
    head = _HEAD.match(text)
    if head is None:
        return None
    code, message = int(head["code"]), head["text"]
    word = _WORD.match(message)
    if word:
        message = message[word.end() :]
    elif _DETAIL.match(message) or not _printed_without_word(code):
        return None
    link = _LINK.match(message)
    return Event(
        SXID,
        time,
        normal_pci(head["pci"]),
        code=code,
        severity=word["word"].lower().replace("-", "") if word else None,
        link=int(link[1]) if link else None,
        switch=head["switch"],
        message=clean(message),
        uptime=uptime,
    )


def _printed_without_word(code: int) -> bool:
    entry = catalogue.sxid(code)
    return entry is None or not entry.worded
