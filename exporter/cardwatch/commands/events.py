# SPDX-License-Identifier: Apache-2.0
"""Events of GPUs: Xid, SXid, lost cards.

`events decode` finds them in a log of any shape (raw /dev/kmsg, dmesg, journal,
syslog, container logs, bare text, also gzip), and says what each one means and
asks for. It needs neither a GPU nor the machine that the log comes from.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import re
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from cardwatch.commands import flags
from cardwatch.events.resets import CLEARED
from cardwatch.journal.records import Mark, Row
from cardwatch.journal.store import StoreError, add_mark, read_contents, read_events
from cardwatch.kernlog.dates import Calendar
from cardwatch.kernlog.decode import Told, decode, read_lines
from cardwatch.kernlog.event import INIT_FAILED, OFF_BUS, SXID, XID, Event
from cardwatch.kernlog.xidline import recovery_words
from cardwatch.settings.durations import parse_duration
from cardwatch.settings.load import state_directory
from cardwatch.supervisor.roster import on_file
from cardwatch.text import label
from cardwatch.xid import nvlink5
from cardwatch.xid.classify import Classified, classify

_STDIN = "-"
_GZIP = b"\x1f\x8b"
_WIDTHS = (20, 12, 11, 15, 7, 22, 5, 16)
_HEAD = ("TIME", "PCI", "EVENT", "CLASS", "TIER", "ACTION", "COUNT", "PROCESS", "MESSAGE")
_KINDS = {XID: "Xid {}", SXID: "SXid {}", OFF_BUS: "off bus", INIT_FAILED: "init failed"}
_OFFSET = re.compile(r"([+-])(0[0-9]|1[0-4]):([0-5][0-9])")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this command."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_decode(actions)
    _add_list(actions)
    _add_clear(actions)


def run(parsed: argparse.Namespace) -> int:
    """Do what was asked; returns the exit status."""
    return _ACTIONS[parsed.action](parsed)


def _add_decode(actions: Any) -> None:
    parser = actions.add_parser(
        "decode",
        help="find the events in a log file",
        description="Find Xid, SXid and lost-card events in a log of any shape. "
        "Equal events in a row are one with a count.",
    )
    parser.add_argument("file", nargs="?", default=_STDIN, metavar="FILE", help="log; - for stdin")
    parser.add_argument("--format", choices=("table", "json"), default="table",
                        help="table, or one JSON object a line")  # fmt: skip
    parser.add_argument("--utc-offset", type=_offset, default=0.0, metavar="+HH:MM",
                        help="zone of dates that name none (default: UTC)")  # fmt: skip
    parser.add_argument("--any-facility", action="store_true",
                        help="also lines that user space wrote into the kernel log")  # fmt: skip


def _decode(parsed: argparse.Namespace) -> int:
    calendar = Calendar(time.time(), parsed.utc_offset)
    show = _table_row if parsed.format == "table" else _json_row
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    if parsed.format == "table":
        print(_table_line(_HEAD))
    try:
        with _opened(parsed.file) as stream:
            for told in decode(read_lines(stream), calendar, any_facility=parsed.any_facility):
                print(show(told, classify(told.event)))
    except BrokenPipeError:
        raise
    except (OSError, EOFError, zlib.error) as error:
        sys.stdout.flush()
        name = "stdin" if parsed.file == _STDIN else parsed.file
        reason = getattr(error, "strerror", None) or str(error)
        print(f"cardwatch events decode: {name}: {reason}", file=sys.stderr)
        return 2
    return 0


def _add_list(actions: Any) -> None:
    parser = actions.add_parser(
        "list",
        help="list the events of this node from the journal in the state directory",
        description="List the events of this node, newest first.",
    )
    parser.add_argument("--since", default="24h", metavar="DURATION",
                        help="how far back to look (default 24h)")  # fmt: skip
    parser.add_argument("--gpu", metavar="UUID", help="of this card only")
    parser.add_argument("--limit", type=int, default=1000, metavar="N",
                        help="most rows to list (default 1000)")  # fmt: skip
    parser.add_argument("--format", choices=("table", "json"), default="table",
                        help="table, or one JSON object a line")  # fmt: skip
    flags.add(parser, ("backend", "state_dir"))


def _list(parsed: argparse.Namespace) -> int:
    directory = state_directory(flags.settings(parsed), os.environ)
    try:
        since = time.time() - parse_duration(parsed.since)
        rows = read_events(directory, since, parsed.gpu, parsed.limit)
    except ValueError as error:
        return _fail(f"--since: {parsed.since!r} is not allowed here: expected {error}")
    except (StoreError, OSError) as error:
        return _fail(f"{directory}: {error}")
    for entry in rows:
        print(_listed_json(entry) if parsed.format == "json" else _listed_line(entry))
    if not rows and parsed.format == "table":
        print(f"no events in the last {parsed.since} in {directory}")
    return 0


def _listed_line(entry: Row) -> str:
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(entry.time))
    what = _KINDS.get(entry.kind, entry.kind).format(entry.code)
    line = f"{stamp} UTC  {what}  {entry.cls}  {entry.action}  x{entry.count}  {entry.gpu}  "
    return line + label(entry.message)


def _listed_json(entry: Row) -> str:
    return json.dumps(
        {
            "time": entry.time,
            "last_time": entry.last_time,
            "uuid": entry.gpu,
            "kind": entry.kind,
            "xid": entry.code if entry.kind == XID else None,
            "sxid": entry.code if entry.kind == SXID else None,
            "class": entry.cls,
            "action": entry.action,
            "severity": entry.severity or None,
            "source": entry.source,
            "count": entry.count,
            "message": entry.message,
            **entry.detail,
            **entry.extra,
        }
    )


def _add_clear(actions: Any) -> None:
    parser = actions.add_parser(
        "clear",
        help="record by hand that a card was reset",
        description="Record that a card was reset, or that its faults are settled: what happened "
        "before no longer counts against it. A running exporter notices within seconds.",
    )
    parser.add_argument("--gpu", required=True, metavar="UUID", help="the card")
    flags.add(parser, ("backend", "state_dir"))


def _clear(parsed: argparse.Namespace) -> int:
    directory = state_directory(flags.settings(parsed), os.environ)
    try:
        known = set(on_file(directory)) | {key.gpu for key in read_contents(directory).counters}
        if parsed.gpu not in known:
            return _fail(f"--gpu {parsed.gpu}: not a card that {directory} knows")
        add_mark(directory, Mark(parsed.gpu, CLEARED, round(time.time(), 3), "cli"))
    except (StoreError, OSError, ValueError, KeyError, TypeError) as error:
        return _fail(f"{directory}: {error}")
    print(f"recorded: {parsed.gpu} was reset")
    return 0


def _fail(message: str) -> int:
    print(f"cardwatch events: {message}", file=sys.stderr)
    return 2


_ACTIONS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "decode": _decode,
    "list": _list,
    "clear": _clear,
}


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    """Open a log; what begins like gzip is unpacked."""
    if name == _STDIN:
        yield _unpacked(sys.stdin.buffer)
        return
    with open(name, "rb") as file:
        yield _unpacked(file)


def _unpacked(file: BinaryIO) -> BinaryIO:
    reader = file if isinstance(file, io.BufferedReader) else io.BufferedReader(cast(Any, file))
    if reader.peek(2)[:2] == _GZIP:
        return cast(BinaryIO, gzip.GzipFile(fileobj=reader))
    return cast(BinaryIO, reader)


def row(told: Told, classified: Classified) -> dict[str, Any]:
    """Return an event as an object: the fields of the contract, then what else is known."""
    event = told.event
    fields: dict[str, Any] = {
        "time": event.time,
        "pci": event.pci,
        "uuid": event.uuid,
        "xid": event.code if event.kind == XID else None,
        "sxid": event.code if event.kind == SXID else None,
        "class": classified.class_,
        "tier": classified.tier,
        "action": classified.action,
        "pid": event.pid,
        "process": event.process,
        "mig_gi": event.mig_gi,
        "mig_ci": event.mig_ci,
        "severity": event.severity,
        "recovery_to_code": event.recovery_to,
        "root_cause_xid": event.root_cause_xid,
        "count": told.count,
        "message": event.message,
    }
    more = {**_more(told), "meaning": classified.meaning, "runbook": classified.runbook or None}
    return fields | {name: value for name, value in more.items() if value is not None}


def _more(told: Told) -> dict[str, Any]:
    event = told.event
    before, after = recovery_words(event.message) if event.recovery_to is not None else (None, None)
    words = [f"0x{word:08x}" for word in event.status]
    nvlink = event.kind == XID and event.code in nvlink5.CODES and bool(words)
    return {
        "uptime": event.uptime,
        "last_time": told.last_time if told.count > 1 else None,
        "recovery_from": before,
        "recovery_from_code": event.recovery_from,
        "recovery_to": after,
        "reset_required": event.reset_required,
        "drain_required": event.drain_required,
        "injected": event.injected,
        "unit": event.unit,
        "link": event.link,
        "intr_info": words[0] if nvlink else None,
        "error_status": words[1] if nvlink and len(words) > 1 else None,
        "status": words or None,
        **(_nvlink(event) if nvlink else {}),
        "switch": event.switch,
    }


def _nvlink(event: Event) -> dict[str, Any]:
    assert event.code is not None
    reason = nvlink5.link_down_reason(event.status[0]) if event.code == 149 else None
    decoded = nvlink5.decode(event.code, event.unit, event.status)
    if decoded is None:
        return {"reason": reason}
    return {
        "reason": reason,
        "then": decoded.then,
        "blame": decoded.blame or None,
        "packet_loss": decoded.packet_loss or None,
        "companions": list(decoded.companions) or None,
        "promoted": decoded.promoted or None,
        "defers_to_154": decoded.defers_to_154 or None,
    }


def _json_row(told: Told, classified: Classified) -> str:
    return json.dumps(row(told, classified))


def _table_row(told: Told, classified: Classified) -> str:
    event = told.event
    process = event.process or ("-" if event.pid is None else str(event.pid))
    return _table_line(
        (
            _when(event),
            event.pci or "-",
            _KINDS[event.kind].format(event.code),
            classified.class_,
            classified.tier,
            classified.action,
            str(told.count),
            process,
            event.message or classified.meaning,
        )
    )


def _table_line(cells: tuple[str, ...]) -> str:
    """Return cells as one line that is safe for a terminal, whatever the log said."""
    safe = ["".join(c if c.isprintable() else "?" for c in cell) for cell in cells]
    padded = [cell.ljust(width) for cell, width in zip(safe, _WIDTHS, strict=False)]
    return "  ".join([*padded, safe[-1]]).rstrip()


def _when(event: Event) -> str:
    if event.time is not None:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(event.time))
    return "-" if event.uptime is None else f"[{event.uptime:.6f}]"


def _offset(text: str) -> float:
    found = _OFFSET.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError("expected a time east of UTC, such as +02:00 or -05:00")
    seconds = int(found[2]) * 3600 + int(found[3]) * 60
    return float(-seconds if found[1] == "-" else seconds)
