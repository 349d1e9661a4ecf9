# SPDX-License-Identifier: Apache-2.0
"""What stands before a kernel message in a log file, and how to take it off.

A prefix is a sequence of known pieces: dates, seconds since boot, facilities, host
and program names, what containers and tools add. They are taken off one by one
until the driver's own words begin. A line of another program, or one that user
space wrote into the kernel log, is none of the driver's. Never raises.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from cardwatch.kernlog.dates import Calendar

# How records of interest begin.
MESSAGE = re.compile(r"NVRM: |nvidia-nvswitch[0-9]{1,4}: |nvidia: probe |nvidia [0-9a-fA-F]{4,8}:")

_PIECES_MAX = 12
_BARE_NAMES = 2
_DATED_NAMES = 4
_CLOCK = r"(?P<clock>[0-9]{2}:[0-9]{2}:[0-9]{2})(?:[.,](?P<fraction>[0-9]{1,9}))?"
_ISO = (
    rf"(?P<year>[0-9]{{4}})-(?P<month>[0-9]{{2}})-(?P<day>[0-9]{{2}})[T ]{_CLOCK}"
    r" ?(?P<zone>Z|UTC|GMT|[+-][0-9]{2}:?[0-9]{2})?"
)
_WEEKDAY = r"(?:[^\W\d_]{2,4}\.? )"
_MONTH = r"(?P<month>[^\W\d_]{3,4})\.?"
_FACILITY = (
    r"(?P<facility>kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local[0-7])"
)
_LEVEL = r"(?:emerg|panic|alert|crit|err|error|warn|warning|notice|info|debug)"
_ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})")


@dataclass
class Prefix:
    """What the prefix of one line told, filled in piece by piece."""

    calendar: Calendar
    any_facility: bool
    time: float | None = None
    uptime: float | None = None
    stamp: str | None = None  # tells this record from any other one, where the clock is fine enough
    replay: bool = False  # a stamp that not even two lines in a row can share
    kernel: bool = True
    dated: bool = False
    names: int = 0
    hosts: int = 0
    complete: bool = False
    pieces: int = 0
    marks: int = 0  # pieces that are no mere names

    @property
    def timed(self) -> bool:
        """Whether any piece was a date or a time since boot."""
        return self.dated or self.uptime is not None

    def strip(self, text: str) -> str | None:
        """Return the text behind the prefix; None where the line is none of the driver's."""
        for _ in range(_PIECES_MAX):
            text = text.lstrip()
            if self.complete or MESSAGE.match(text):
                plain = self.names and not self.timed
                return None if plain or not self.kernel else text
            rest = self._piece(text)
            if rest is None or not self.kernel:
                return None
            text = rest
            self.pieces += 1
        return None

    def _piece(self, text: str) -> str | None:
        for pattern, take in _PIECES:
            found = pattern.match(text)
            if found:
                self.marks += 1
                take(self, found)
                return text[found.end() :]
        return self._name(text)

    def _name(self, text: str) -> str | None:
        """Take off one name: a host, a container, or the program that wrote the line."""
        path = None if self.timed else _PATH.match(text)
        if path:
            return text[path.end() :]
        found = _NAME.match(text)
        if found is None:
            return None
        if found["colon"]:
            return text[found.end() :] if self._speaker(found) else None
        self.names += 1
        allowed = _DATED_NAMES if self.dated else _BARE_NAMES
        return text[found.end() :] if self.names <= allowed else None

    def _speaker(self, found: re.Match[str]) -> bool:
        if found["name"] in ("kernel", "kern"):
            self.dated = self.dated or self.names > 0
            return True
        # Behind a date it is another program. At the start of a line it is the host that
        # pdsh and the like put there.
        self.hosts += 1
        return not self.timed and not found["pid"] and self.hosts == 1 and self.names == 0

    def take_facility(self, number: int) -> None:
        """Take a facility: only 0 is the kernel's, user space cannot write with it."""
        if number != 0 and not self.any_facility:
            self.kernel = False

    def take_uptime(self, seconds: str, stamp: str | None = None) -> None:
        """Take seconds since boot."""
        self.uptime = float(seconds)
        whole, _, fraction = seconds.partition(".")
        if stamp is not None or len(fraction) >= 6:
            self.stamp = stamp or f"{int(whole)}.{fraction}"

    def take_date(self, time: float | None, found: re.Match[str]) -> None:
        """Take a date; the one nearest to the message counts."""
        self.dated = True
        self.time = time if time is not None else self.time
        fraction = found.groupdict().get("fraction")
        if fraction and len(fraction) >= 6:
            self.stamp = found[0].strip()


def unescape(text: str) -> str:
    r"""Undo the kernel's ``\xNN`` for bytes that are not printable."""
    if "\\x" not in text:
        return text
    raw = text.encode("utf-8", "replace")
    return _ESCAPE.sub(lambda m: bytes([int(m[1], 16)]), raw).decode("utf-8", "replace")


def _raw(prefix: Prefix, found: re.Match[str]) -> None:
    prefix.take_facility(int(found["priority"]) >> 3)
    micros = int(found["micros"])
    prefix.take_uptime(f"{micros // 1_000_000}.{micros % 1_000_000:06d}",
                       f"{found['sequence']},{micros}")  # fmt: skip
    prefix.replay = True
    prefix.complete = True


def _priority(prefix: Prefix, found: re.Match[str]) -> None:
    prefix.take_facility(int(found["priority"]) >> 3)


def _facility(prefix: Prefix, found: re.Match[str]) -> None:
    prefix.take_facility(0 if found["facility"] == "kern" else 1)


def _since_boot(prefix: Prefix, found: re.Match[str]) -> None:
    prefix.take_uptime(found["seconds"])


def _iso(prefix: Prefix, found: re.Match[str]) -> None:
    prefix.take_date(prefix.calendar.iso(found), found)


def _named(prefix: Prefix, found: re.Match[str]) -> None:
    prefix.take_date(prefix.calendar.named(found), found)


def _epoch(prefix: Prefix, found: re.Match[str]) -> None:
    prefix.take_date(float(found["seconds"]), found)


def _rfc5424(prefix: Prefix, found: re.Match[str]) -> None:
    prefix.take_date(prefix.calendar.iso(found), found)
    prefix.kernel = prefix.kernel and found["program"] in ("kernel", "kern")


def _nothing(_prefix: Prefix, _found: re.Match[str]) -> None:
    """Take a piece that says nothing of use."""


# A piece and what to do with it; more special ones before more general ones.
_PIECES: tuple[tuple[re.Pattern[str], Callable[[Prefix, re.Match[str]], None]], ...] = (
    # /dev/kmsg: `4,1234,5678901,-,caller=T1;`
    (
        re.compile(
            r"(?P<priority>[0-9]{1,5}),(?P<sequence>[0-9]{1,20}),(?P<micros>[0-9]{1,18}),"
            r"[^;\n]{0,200};"
        ),
        _raw,
    ),
    # dmesg -r, syslog on the wire: `<4>`
    (re.compile(r"<(?P<priority>[0-9]{1,3})>"), _priority),
    # dmesg --decode: `kern  :warn  : `; busybox and rsyslog: `kern.warn `
    (re.compile(rf"{_FACILITY} *: *{_LEVEL} *: *"), _facility),
    (re.compile(rf"{_FACILITY}\.{_LEVEL}:? "), _facility),
    # dmesg: `[12345.678901]`, with `[12.3 <  0.1>]` for the difference
    (
        re.compile(r"\[ *(?P<seconds>[0-9]{1,12}\.[0-9]{1,9})(?: *< *[+0-9. ]{1,20}>)?\] ?"),
        _since_boot,
    ),
    # dmesg -T: `[Fri Aug 30 11:43:09 2024]`
    (
        re.compile(
            rf"\[{_WEEKDAY}{_MONTH} +(?P<day>[0-9]{{1,2}}) {_CLOCK} (?P<year>[0-9]{{4}})\] ?"
        ),
        _named,
    ),
    # dmesg -H: `[Aug30 11:43]`, `[  +0.000012]`, `[<  0.000001>]`
    (re.compile(r"\[[^\W\d_]{3,4} ?[0-9]{1,2} [0-9]{2}:[0-9]{2}\] ?"), _nothing),
    (re.compile(r"\[ *[+<] *[0-9.]{1,20}>?\] ?"), _nothing),
    # caller: `[ T1946]`, `[   C0]`, or a number
    (re.compile(r"\[ *[TC]?[0-9]{1,10}\]:? ?"), _nothing),
    # RFC 5424 behind its priority: `1 2026-02-14T05:03:41Z node kernel - - - `
    (
        re.compile(
            rf"1 {_ISO} \S{{1,255}} (?P<program>\S{{1,48}}) \S{{1,128}} \S{{1,32}}"
            r" (?:-|(?:\[[^\]\n]{0,500}\])+) ?\ufeff?"
        ),
        _rfc5424,
    ),
    # journal, docker, containerd, dmesg --time-format iso
    (re.compile(rf"\[?{_WEEKDAY}?{_ISO}\]?(?: |$)"), _iso),
    # syslog and journal: `Feb 14 05:03:41 `, `Feb 14 2026 05:03:41 `
    (
        re.compile(
            rf"{_WEEKDAY}??{_MONTH} +(?P<day>[0-9]{{1,2}}) (?:(?P<year>[0-9]{{4}}) )?{_CLOCK}:? "
        ),
        _named,
    ),
    # `Fri Aug 30 11:43:09 2024 ` without brackets
    (
        re.compile(rf"{_WEEKDAY}{_MONTH} +(?P<day>[0-9]{{1,2}}) {_CLOCK} (?P<year>[0-9]{{4}}) "),
        _named,
    ),
    # journalctl -o short-unix
    (re.compile(r"(?P<seconds>[0-9]{9,11}\.(?P<fraction>[0-9]{1,9})) "), _epoch),
    # kubectl logs --prefix, docker compose, journalctl -o verbose and export
    (re.compile(r"\[pod/[^\]\s]{1,300}\] ?"), _nothing),
    (re.compile(r"[^\s|\"']{1,200} +\| "), _nothing),
    (re.compile(r"MESSAGE="), _nothing),
)  # fmt: skip
_NAME = re.compile(
    r"(?P<name>[^\s\[\]\"'{}|=:](?:[^\s\[\]\"'{}|=]{0,254}[^\s\[\]\"'{}|=:])?)"
    r"(?P<pid>\[[0-9]{1,10}\])?(?P<colon>:)?(?:[ \t]+|(?<=:)(?=\[))"
)
# `grep` over several files: `kern.log:12:` right before the line.
_PATH = re.compile(r"[\w.+@/-]{1,300}:(?:[0-9]{1,9}:)?(?=\S)")
