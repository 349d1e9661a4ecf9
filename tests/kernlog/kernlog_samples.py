# SPDX-License-Identifier: Apache-2.0
"""Ways a tool prints a kernel message, and how to run a log through the decoder."""

from __future__ import annotations

from calendar import timegm
from collections.abc import Callable, Iterable

from cardwatch.kernlog.dates import Calendar
from cardwatch.kernlog.decode import Told, decode
from cardwatch.kernlog.event import Event

# 2026-11-29 12:00:00 UTC
NOW = float(timegm((2026, 11, 29, 12, 0, 0)))
# 2026-02-14 05:03:41 UTC
THEN = float(timegm((2026, 2, 14, 5, 3, 41)))

# Each takes a message and a number and returns the line of a tool: all are of the same
# second, in a microsecond of their own where the tool prints one.
Wrap = Callable[[str, int], str]
PREFIXES: dict[str, Wrap] = {
    "bare": lambda text, n: text,
    "raw kmsg": lambda text, n: f"4,{n},{5678901 + n},-;{text}",
    "raw kmsg with caller": lambda text, n: f"3,{n},{5678901 + n},-,caller=T1946;{text}",
    "dmesg": lambda text, n: f"[{5 + n:5d}.678901] {text}",
    "dmesg with caller": lambda text, n: f"[{5 + n:5d}.678901] [ T1946] {text}",
    "dmesg delta": lambda text, n: f"[{5 + n:5d}.678901 <    0.000012>] {text}",
    "dmesg -T": lambda text, n: f"[Sat Feb 14 05:03:41 2026] {text}",
    "dmesg -T with caller": lambda text, n: f"[Sat Feb 14 05:03:41 2026] [   T99] {text}",
    "dmesg -r": lambda text, n: f"<4>[{5 + n:5d}.678901] {text}",
    "dmesg -H": lambda text, n: f"[Feb14 05:03] {text}",
    "dmesg -e": lambda text, n: f"[  +0.000012] {text}",
    "dmesg --decode": lambda text, n: f"kern  :warn  : [{5 + n:5d}.678901] {text}",
    "dmesg --decode --time-format iso": lambda text, n: (
        f"kern  :err   : 2026-02-14T05:03:41,{n:06d}+00:00 {text}"
    ),
    "journal": lambda text, n: f"Feb 14 05:03:41 node-a kernel: {text}",
    "journal without date and host": lambda text, n: f"kernel: {text}",
    "journal without host": lambda text, n: f"Feb 14 05:03:41 kernel: {text}",
    "journal short-iso": lambda text, n: f"2026-02-14T05:03:41+0000 node-a kernel: {text}",
    "journal short-full": lambda text, n: f"Sat 2026-02-14 05:03:41 UTC node-a kernel: {text}",
    "journal short-precise": lambda text, n: f"Feb 14 05:03:41.{n:06d} node-a kernel: {text}",
    "journal short-unix": lambda text, n: f"1771045421.{n:06d} node-a kernel: {text}",
    "journal short-monotonic": lambda text, n: f"[{5 + n:5d}.678901] node-a kernel: {text}",
    "journal verbose": lambda text, n: f"    MESSAGE={text}",
    "syslog": lambda text, n: f"Feb 14 05:03:41 node-a kernel: [{5 + n:5d}.678901] {text}",
    "syslog with year": lambda text, n: f"Feb 14 2026 05:03:41 node-a kernel: {text}",
    "syslog without ident": lambda text, n: f"2026-02-14 05:03:41.000 node-a [12345] {text}",
    "busybox syslog": lambda text, n: f"Feb 14 05:03:41 node-a kern.err kernel: {text}",
    "rsyslog": lambda text, n: f"2026-02-14T05:03:41.{n:06d}+00:00 node-a kernel: {text}",
    "RFC 5424": lambda text, n: f"<4>1 2026-02-14T05:03:41.{n:06d}Z node-a kernel - - - {text}",
    "pdsh": lambda text, n: f"node-a: [{5 + n:5d}.678901] {text}",
    "kubectl --prefix": lambda text, n: f"[pod/dmesg-x7k/main] [{5 + n:5d}.678901] {text}",
    "kubectl --timestamps": lambda text, n: f"2026-02-14T05:03:41.{n:09d}Z {text}",
    "CRI": lambda text, n: f"2026-02-14T05:03:41.{n:09d}Z stdout F {text}",
    "CRI of a journal": lambda text, n: (
        f"2026-02-14T09:00:00.{n:09d}Z stdout F Feb 14 05:03:41 node-a kernel: {text}"
    ),
    "compose": lambda text, n: f"watch-1  | [{5 + n:5d}.678901] {text}",
    "grep": lambda text, n: f"/var/log/kern.log:Feb 14 05:03:41 node-a kernel: {text}",
    "grep -n": lambda text, n: f"dmesg.txt:{n}:[{5 + n:5d}.678901] {text}",
}


def decoded(*lines: str | bytes, calendar: Calendar | None = None) -> list[Told]:
    """Decode lines as a log; text is written as UTF-8 with a line end."""
    raw: Iterable[bytes] = (
        line if isinstance(line, bytes) else line.encode("utf-8", "surrogateescape") + b"\n"
        for line in lines
    )
    return list(decode(raw, calendar or Calendar(NOW)))


def events(*lines: str | bytes) -> list[Event]:
    """Return the events of a log, one for each, whatever their counts."""
    return [told.event for told in decoded(*lines) for _ in range(told.count)]
