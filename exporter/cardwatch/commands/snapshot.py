# SPDX-License-Identifier: Apache-2.0
"""Print one reading of every card and exit.

Waits until every card was read, or until a card or the driver is found not to
answer within the deadline. Exit status: 0 when the driver answers, 1 when not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from dataclasses import replace

from cardwatch.commands import flags
from cardwatch.commands.pages import gpus
from cardwatch.commands.table import table
from cardwatch.logs import configure
from cardwatch.settings.table import Settings
from cardwatch.supervisor.session import Session
from cardwatch.supervisor.snapshot import Snapshot

_START_S = 5.0
_FORMATS = ("prometheus", "openmetrics", "json", "table")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this command."""
    parser.add_argument(
        "--format", choices=_FORMATS, default="prometheus", help="form of the output"
    )
    flags.add(parser, flags.SAMPLING)


def run(parsed: argparse.Namespace) -> int:
    """Take one reading; returns the exit status."""
    settings = flags.settings(parsed)
    configure(settings.log_format, "error" if settings.log_level == "info" else settings.log_level)
    session, snap = asyncio.run(one_pass(settings))
    sys.stdout.write(_format(parsed.format, session, snap))
    sys.stdout.flush()
    if not snap.ready:
        print(f"cardwatch snapshot: {snap.reason}", file=sys.stderr)
    return 0 if snap.ready else 1


async def one_pass(settings: Settings) -> tuple[Session, Snapshot]:
    """Run a session until every card was read or found not to answer."""
    # A short interval would only start passes that nobody waits for.
    session = Session(replace(settings, interval=max(settings.interval, 5.0)),
                      environment=dict(os.environ))  # fmt: skip
    running = asyncio.create_task(session.run())
    try:
        await session.wait_until(lambda: _complete(session), settings.deadline + _START_S)
        await session.wait_until(lambda: bool(session.source.node), 1.0)
        return session, session.snapshot()
    finally:
        running.cancel()
        await session.stop()


def _complete(session: Session) -> bool:
    source = session.source
    if source.passes > 0:
        return True
    slots = session.cards.slots
    listed = session.cards.listed
    return bool(listed) and len(slots) == listed and any(s.mark == "hung" for s in slots.values())


def _format(form: str, session: Session, snap: Snapshot) -> str:
    if form == "json":
        return json.dumps(gpus(snap), indent=1) + "\n"
    if form == "table":
        return table(snap)
    page = session.page
    return (page.openmetrics if form == "openmetrics" else page.text).decode()
