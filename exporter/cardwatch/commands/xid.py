# SPDX-License-Identifier: Apache-2.0
"""Say what an Xid means: class, action, runbook, what it follows, who says what.

Exit status: 0, 1 for a number that nothing describes, 2 for no number.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from cardwatch.xid import catalogue
from cardwatch.xid.catalogue import ACTIONS, Entry
from cardwatch.xid.classify import TIERS

# Where class or action depend on more than the number.
_DEPENDS = {
    94: "RST: Yes in the line makes it critical; D-RST: Yes asks for drain and reset",
    95: "RST: No with D-RST: No makes it hardware, RESTART_APP",
    **dict.fromkeys((144, 145, 146), "Fatal in the line makes it critical; injected: info"),
    **dict.fromkeys((149, 150), "Nonfatal in the line makes it hardware; injected: info"),
    154: "by the new value: 0 info; 1, 2, 4, 6, 7 critical; 3, 5 hardware",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this command."""
    add_code(parser)


def run(parsed: argparse.Namespace) -> int:
    """Print the entry; returns the exit status."""
    entry = catalogue.xid(parsed.code)
    depends = _DEPENDS.get(parsed.code)
    print(show("Xid", parsed.code, entry, parsed.format, depends))
    return 0 if entry and entry.known else 1


def add_code(parser: argparse.ArgumentParser) -> None:
    """Add the number and the form of the output."""
    parser.add_argument("code", type=_number, metavar="CODE", help="the number in the log line")
    parser.add_argument("--format", choices=("text", "json"), default="text",
                        help="form of the output")  # fmt: skip


def show(kind: str, code: int, entry: Entry | None, form: str, depends: str | None) -> str:
    """Return an entry, or that there is none, as text or JSON."""
    if form == "json":
        return json.dumps(_fields(kind, code, entry, depends), indent=1)
    if entry is None or not entry.known:
        return (
            f"{kind} {code}: unknown: no source that we read describes it.\n"
            "Newer drivers add numbers; the text of the log line says more."
        )
    return "\n".join(_text(kind, entry, depends))


def _text(kind: str, entry: Entry, depends: str | None) -> list[str]:
    tier = TIERS[entry.class_]
    lines = [f"{kind} {entry.code}  {entry.mnemonic}", entry.meaning + ".", ""]
    rows = [
        ("class", f"{entry.class_} (tier: {tier})"),
        ("depends", depends or ""),
        ("action", f"{entry.action}: {ACTIONS[entry.action]}"),
        ("runbook", entry.runbook),
        ("origin", ", ".join(entry.origin)),
        ("follows", ", ".join(f"{kind} {code}" for code in entry.follows)),
        ("sources", ", ".join(entry.sources)),
    ]
    lines += [f"{name:<9}{value}" for name, value in rows if value]
    notes = [f"  - {note}" for note in entry.notes.split("; ") if note]
    return lines + (["notes", *notes] if notes else [])


def _fields(kind: str, code: int, entry: Entry | None, depends: str | None) -> dict[str, Any]:
    fields: dict[str, Any] = {kind.lower(): code, "known": bool(entry and entry.known)}
    if entry is None:
        return fields | {"class": "unknown", "tier": TIERS["unknown"], "action": "INVESTIGATE"}
    return fields | {
        "mnemonic": entry.mnemonic or None,
        "meaning": entry.meaning,
        "class": entry.class_,
        "tier": TIERS[entry.class_],
        "depends": depends,
        "action": entry.action,
        "runbook": entry.runbook or None,
        "origin": list(entry.origin),
        "follows": list(entry.follows),
        "notes": [note for note in entry.notes.split("; ") if note],
        "sources": list(entry.sources),
    }


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return int(text)
