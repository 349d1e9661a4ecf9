# SPDX-License-Identifier: Apache-2.0
"""Write what the driver answers to a file, for a bug report or for replay.

The file holds every driver call with its answer. `cardwatch serve --backend
replay --capture FILE` serves it again on any machine. UUIDs and serial numbers
are replaced by aliases that stay the same on this node, unless --raw is given.
A call that does not return within the deadline is written as one that hangs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from cardwatch import __version__
from cardwatch.commands import flags
from cardwatch.families.record import Profile
from cardwatch.host.facts import HostFacts
from cardwatch.logs import configure
from cardwatch.nvml.recorded import Note, aliased, header
from cardwatch.settings.table import Settings
from cardwatch.supervisor.session import Session

_KEY_FILE = "alias.key"
_KEY_BYTES = 32
_START_S = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this command."""
    parser.add_argument("file", metavar="FILE", help="file to write, - for standard output")
    parser.add_argument(
        "--passes", type=int, default=2, metavar="N", help="passes to record (default 2)"
    )
    parser.add_argument("--raw", action="store_true", help="keep UUIDs and serial numbers")
    flags.add(parser, flags.SAMPLING)


def run(parsed: argparse.Namespace) -> int:
    """Record some passes; returns the exit status."""
    if not 1 <= parsed.passes <= 10_000:
        print("cardwatch capture: --passes must be from 1 to 10000", file=sys.stderr)
        return 2
    # Everything that can be read is worth having in a capture.
    settings = replace(flags.settings(parsed), profile=Profile.FULL)
    configure(settings.log_format, "error" if settings.log_level == "info" else settings.log_level)
    session, passes, incomplete = asyncio.run(_record(settings, parsed.passes))
    if not passes:
        print(f"cardwatch capture: the driver answered nothing: {incomplete}", file=sys.stderr)
        return 1
    if not parsed.raw:
        key = _alias_key(session.state_dir)
        passes = [aliased(notes, key) for notes in passes]
    lines = [header(_host(session.host), round(time.time(), 3), __version__)]
    lines += [{"pass": number, "answers": notes} for number, notes in enumerate(passes)]
    return _write(parsed.file, lines, incomplete)


async def _record(settings: Settings, wanted: int) -> tuple[Session, list[list[Note]], str]:
    """Return the session, the notes of each pass, and why there are not all; empty if there are."""
    passes: list[list[Note]] = [[]]

    def keep(notes: list[Any], ends_pass: bool) -> None:  # noqa: FBT001 - a callback
        passes[-1].extend(notes)
        if ends_pass:
            passes.append([])

    session = Session(settings, environment=dict(os.environ), record=True, on_answers=keep)
    running = asyncio.create_task(session.run())
    try:
        limit = _START_S + settings.deadline + wanted * settings.interval
        await session.wait_until(lambda: _finished(session, passes, wanted), limit)
        incomplete = ""
        if len(passes) <= wanted:
            hanging = _hanging(session)
            passes[-1].extend(hanging)
            incomplete = _why(session, hanging)
        return session, [notes for notes in passes[:wanted] if notes], incomplete
    finally:
        running.cancel()
        await session.stop()


def _finished(session: Session, passes: list[list[Note]], wanted: int) -> bool:
    if len(passes) > wanted or session.source.away is not None:
        return True
    return any(slot.mark == "hung" for slot in session.cards.slots.values())


def _why(session: Session, hanging: list[Note]) -> str:
    if hanging:
        return "some calls did not return and are noted as hanging"
    error = session.snapshot().source_error or "passes took too long"
    return f"{error}; `cardwatch doctor` names the way out"


def _hanging(session: Session) -> list[Note]:
    """Return the calls past the deadline, as calls that hang; others were only under way."""
    frame = session.source.frame
    notes: list[Note] = []
    for open_call in frame.open_calls if frame else ():
        if open_call.age < session.settings.deadline:
            continue
        name, args = open_call.call, open_call.args
        # Field values are noted one by one; the call may hang because of any of them.
        each = [[args[0], f] for f in args[1]] if name == "DeviceGetFieldValues" else [args]
        notes += [(name, one, {"hang": True}) for one in each]
    return notes


def _host(host: HostFacts) -> dict[str, Any]:
    return {
        "pci": list(host.gpus or ()),
        "driver_version": host.module_version,
        "kernel_module": host.kernel_module,
        "kernel_release": host.kernel_release,
        "os": host.os,
    }


def _alias_key(state_dir: Path | None) -> bytes:
    """Return this node's key for aliases; one for this run only where none can be kept."""
    if state_dir is None:
        return secrets.token_bytes(_KEY_BYTES)
    path = state_dir / _KEY_FILE
    try:
        known = path.read_bytes()
        if len(known) == _KEY_BYTES:
            return known
    except OSError:
        pass
    key = secrets.token_bytes(_KEY_BYTES)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(key)
    except OSError as error:
        print(f"cardwatch capture: {path}: {error.strerror}; aliases are for this file only",
              file=sys.stderr)  # fmt: skip
    return key


def _write(target: str, lines: list[dict[str, Any]], incomplete: str) -> int:
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    if target == "-":
        sys.stdout.write(text)
        return 1 if incomplete else 0
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"cardwatch capture: {target}: {error.strerror}", file=sys.stderr)
        return 2
    calls = sum(len(line["answers"]) for line in lines[1:])
    note = f"; {incomplete}" if incomplete else ""
    print(f"{target}: {len(lines) - 1} passes, {calls} answers{note}", file=sys.stderr)
    return 1 if incomplete else 0
