# SPDX-License-Identifier: Apache-2.0
"""The cards this node should have.

`baseline forget` takes cards off the roster in the state directory: a card that
was removed on purpose then no longer shows as lost. A running exporter notices
within one interval.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from cardwatch.commands import flags
from cardwatch.settings.load import state_directory
from cardwatch.supervisor import roster

_SETTINGS = ("backend", "state_dir")
_TRIES = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this command."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    forget = actions.add_parser(
        "forget",
        help="take cards off the roster, so that they are not missed",
        description="Take cards off the roster in the state directory. "
        "Without arguments the roster is listed.",
    )
    forget.add_argument("uuid", nargs="*", metavar="UUID", help="cards to forget")
    forget.add_argument("--all", action="store_true", help="forget every card on the roster")
    flags.add(forget, _SETTINGS)


def run(parsed: argparse.Namespace) -> int:
    """Forget cards; returns the exit status."""
    directory = state_directory(flags.settings(parsed), os.environ)
    try:
        known = roster.on_file(directory)
        if not parsed.uuid and not parsed.all:
            return _list(directory, known)
        wanted = list(known) if parsed.all else parsed.uuid
        unknown = [uuid for uuid in wanted if uuid not in known]
        if unknown:
            return _fail(
                f"{', '.join(unknown)}: not on the roster in {directory / roster.FILE}; "
                "`cardwatch baseline forget` without arguments lists it"
            )
        gone = _forget(directory, wanted)
    except OSError as error:
        return _fail(f"{error.filename or directory}: {error.strerror or error}")
    except ValueError:
        return _fail(f"{directory / roster.FILE}: is not a roster")
    for uuid in gone:
        print(f"forgot {uuid}")
    return 0


def _forget(directory: Path, wanted: list[str]) -> list[str]:
    for _attempt in range(_TRIES):
        try:
            return roster.forget(directory, wanted)
        except BlockingIOError:  # the exporter is writing: a matter of milliseconds
            time.sleep(0.02)
    return roster.forget(directory, wanted)


def _list(directory: Path, known: dict[str, roster.Entry]) -> int:
    if not known:
        print(f"no cards on the roster in {directory / roster.FILE}")
    for uuid, entry in sorted(known.items(), key=lambda item: item[1].index):
        seen = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(entry.last_seen))
        print(f"{entry.index}\t{uuid}\t{entry.info.get('model', '-')}\tlast seen {seen}")
    return 0


def _fail(message: str) -> int:
    print(f"cardwatch baseline: {message}", file=sys.stderr)
    return 2
