# SPDX-License-Identifier: Apache-2.0
"""Say what an SXid, an error of an NVSwitch, means: class, action, runbook, notes.

Exit status: 0, 1 for a number that nothing describes, 2 for no number.
"""

from __future__ import annotations

import argparse

from cardwatch.commands.xid import add_code, show
from cardwatch.xid import catalogue
from cardwatch.xid.catalogue import CRITICAL, SwitchEntry


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this command."""
    add_code(parser)


def run(parsed: argparse.Namespace) -> int:
    """Print the entry; returns the exit status."""
    entry = catalogue.sxid(parsed.code)
    depends = _depends(entry) if entry else None
    print(show("SXid", parsed.code, entry, parsed.format, depends))
    return 0 if entry else 1


def _depends(entry: SwitchEntry) -> str:
    if not entry.worded:
        return "printed without Fatal or Non-fatal"
    if entry.class_nonfatal == CRITICAL:
        return "critical whatever the line says"
    return f"Fatal in the line makes it critical, Non-fatal {entry.class_nonfatal}"
