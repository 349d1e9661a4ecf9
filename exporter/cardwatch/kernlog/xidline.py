# SPDX-License-Identifier: Apache-2.0
"""One Xid line of the kernel log to an event.

The text after ``name=`` up to the message is chosen by whoever runs a program, so
nothing is ever searched for behind it except at the end of the line, where the
driver writes. Never raises; a line of another form gives None.
"""

from __future__ import annotations

import re
from typing import Any

from cardwatch.kernlog.event import XID, Event
from cardwatch.kernlog.words import PCI, clean, hex_words, normal_pci
from cardwatch.text import label
from cardwatch.xid.nvlink5 import CODES as NVLINK5

# `NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:00): 79, `; old drivers print no `PCI:`.
_HEAD = re.compile(
    rf"NVRM: Xid ?\((?:PCI:)?(?P<pci>{PCI})(?P<attribution>[^)\n]{{0,80}})\): ?"
    r"(?P<code>[0-9]{1,18})(?:$|,[ \t]*|(?=\s))"
)
_MIG = re.compile(r"GPU-I:(?P<gi>[0-9]{1,4})(?: GPU-CI:(?P<ci>[0-9]{1,4}))?")
_PID = re.compile(r"pid=(?:(?P<pid>[0-9]{1,10})|'?<unknown>'?)(?:,[ \t]*|$)")
_NO_NAME = re.compile(r"name='?<unknown>'?(?:,[ \t]*|$)")
_NAME = "name="
# The kernel cuts process names at 15 bytes: a comma behind them is the driver's.
_NAME_BYTES = 15
_CUT = ", "
# How messages begin; only asked where a name with a comma leaves two places to cut.
_MESSAGE = re.compile(
    r"(?:Ch |[Cc]hannel |Timeout |GPU |Graphics |Contained: |Uncontained: |Row Remapper|NVLink"
    r"|An uncorrectable |GSP |MMU |BAD_TSG|errorString |engmask |[A-Z][A-Za-z0-9_/ ]{1,40} +"
    r"(?:Fatal|Nonfatal) )"
)
_ROOT = re.compile(r"caused by previous Xid ([0-9]{1,9})\s*$")
_RECOVERY = re.compile(
    r"changed from 0x([0-9a-fA-F]{1,8})(?: ?\(([^()]{0,80})\))?"
    r" to 0x([0-9a-fA-F]{1,8})(?: ?\(([^()]{0,80})\))?\.?\s*$"
)
_FLAGS = re.compile(r"\bRST: ?(Yes|No), ?D-RST[L:]* ?(Yes|No)\.?\s*$")
_NVLINK5 = re.compile(
    r"(?:^|, )(?P<unit>[A-Z][A-Za-z0-9_/]{0,40}(?: [A-Z][A-Za-z0-9_]{0,40})?)\s+"
    r"(?P<word>Fatal|Nonfatal)\s+XC[0-9]{1,4}\s+i(?P<injected>[0-9]{1,4})\s+Link\s+(?P<link>-?[0-9]{1,4})"
    r"\s*(?:\((?P<words>[^()]{0,400})\)?)?\s*$"
)
_LINK = re.compile(r"\blink (?P<link>[0-9]{1,4}) ?\((?P<words>[^()]{0,400})\)?", re.IGNORECASE)
_LINK_CODES = (74, 136)


def parse_xid(text: str, time: float | None = None, uptime: float | None = None) -> Event | None:
    """Return the event of an Xid line; None where it is not one."""
    head = _HEAD.match(text)
    if head is None:
        return None
    code = int(head["code"])
    pid, process, message = _who(text[head.end() :])
    mig = _MIG.search(head["attribution"])
    return Event(
        XID,
        time,
        normal_pci(head["pci"]),
        code=code,
        pid=pid,
        process=process,
        mig_gi=int(mig["gi"]) if mig else None,
        mig_ci=int(mig["ci"]) if mig and mig["ci"] else None,
        message=clean(message),
        uptime=uptime,
        **_details(code, message),
    )


def recovery_words(message: str) -> tuple[str | None, str | None]:
    """Return the driver's words for the old and the new action of an Xid 154."""
    found = _RECOVERY.search(message)
    return (found[2], found[4]) if found else (None, None)


def _who(body: str) -> tuple[int | None, str | None, str]:
    """Split the text behind the code into pid, process name and message."""
    body = body.lstrip()
    found = _PID.match(body)
    if found is None:
        return None, None, body
    pid = int(found["pid"] or 0) or None
    body = body[found.end() :]
    if not body.startswith(_NAME):
        return pid, None, body
    unknown = _NO_NAME.match(body)
    if unknown:
        return pid, None, body[unknown.end() :]
    name, message = _split_name(body[len(_NAME) :])
    return pid, label(name) or None, message


def _split_name(body: str) -> tuple[str, str]:
    first = body.find(_CUT)
    if first < 0:
        return body.rstrip(","), ""
    at = first
    while at >= 0 and len(body[:at].encode("utf-8", "replace")) <= _NAME_BYTES:
        rest = body[at + len(_CUT) :]
        if _MESSAGE.match(rest):
            return body[:at], rest
        at = body.find(_CUT, at + 1)
    return body[:first], body[first + len(_CUT) :]


def _details(code: int, message: str) -> dict[str, Any]:
    """Return the fields of an event that the message of this code tells."""
    if code == 45:
        root = _ROOT.search(message)
        return {"root_cause_xid": int(root[1])} if root else {}
    if code in (94, 95):
        flags = _FLAGS.search(message)
        if flags is None:
            return {}
        return {"reset_required": flags[1] == "Yes", "drain_required": flags[2] == "Yes"}
    if code == 154:
        change = _RECOVERY.search(message)
        if change is None:
            return {}
        return {"recovery_from": int(change[1], 16), "recovery_to": int(change[3], 16)}
    if code in NVLINK5:
        return _nvlink5(message)
    if code in _LINK_CODES:
        link = _LINK.search(message)
        if link:
            return {"link": int(link["link"]), "status": hex_words(link["words"])}
    return {}


def _nvlink5(message: str) -> dict[str, Any]:
    found = _NVLINK5.search(message)
    if found is None:
        return {}
    return {
        "severity": found["word"].lower(),
        "injected": int(found["injected"]) != 0,
        "unit": found["unit"],
        "link": int(found["link"]),
        "status": hex_words(found["words"] or ""),
    }
