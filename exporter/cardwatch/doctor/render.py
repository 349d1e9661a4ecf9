# SPDX-License-Identifier: Apache-2.0
"""The findings as text for a terminal and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from cardwatch import __version__
from cardwatch.doctor.finding import Finding, Level, count, plain
from cardwatch.doctor.scene import Scene

_RESET = "\x1b[0m"
_COLOURS = {Level.PROBLEM: "\x1b[1;31m", Level.NOTE: "\x1b[33m", Level.OK: "\x1b[32m"}
_LOUD = "\x1b[1;37;41m"


def text(scene: Scene, findings: Sequence[Finding], *, colour: bool) -> str:
    """Return the page: problems with numbered fixes, notes, what is well, one line of summary."""
    lines = [plain(headline(scene))]
    if scene.simulated:
        loud = f" SIMULATED CARDS: backend {scene.settings.backend}, nothing here is real "
        lines.append(_painted(loud, _LOUD, on=colour))
    for number, finding in enumerate(_of(findings, Level.PROBLEM), start=1):
        lines += ["", _head(f"{number}. PROBLEM", finding, colour=colour)]
        lines += _body(finding, " " * (len(str(number)) + 2))
    for finding in _of(findings, Level.NOTE):
        lines += ["", _head("NOTE", finding, colour=colour), *_body(finding, "   ")]
    lines.append("")
    for finding in _of(findings, Level.OK):
        detail = f" ({finding.detail})" if finding.detail else ""
        lines.append(_head("ok", finding, colour=colour) + plain(detail))
    return "\n".join([*lines, "", summary(findings), ""])


def as_json(scene: Scene, findings: Sequence[Finding]) -> str:
    """Return the findings for a program."""
    return json.dumps(
        {
            "cardwatch": __version__,
            "node": node(scene),
            "backend": scene.settings.backend,
            "simulated": scene.simulated,
            "problems": len(_of(findings, Level.PROBLEM)),
            "notes": len(_of(findings, Level.NOTE)),
            "findings": [
                {
                    "id": finding.id,
                    "level": finding.level.value,
                    "title": finding.title,
                    "detail": finding.detail,
                    "fix": finding.fix.splitlines(),
                }
                for finding in findings
            ],
        },
        indent=1,
    )


def headline(scene: Scene) -> str:
    """Return one line about what was examined."""
    driver = f"driver {scene.driver_version}" if scene.driver_version else "driver not known"
    cards = count(len(scene.views), "card")
    return f"cardwatch doctor on {node(scene)}: backend {scene.settings.backend}, {driver}, {cards}"


def node(scene: Scene) -> str:
    """Return the name of the node."""
    return "this machine" if scene.snapshot is None else scene.snapshot.identity.node


def summary(findings: Sequence[Finding]) -> str:
    """Return the last line."""
    problems, notes = len(_of(findings, Level.PROBLEM)), len(_of(findings, Level.NOTE))
    well = len(_of(findings, Level.OK))
    told = f"{count(notes, 'note')}, {well} ok"
    if not problems:
        return f"No problem found, {told}."
    return f"{count(problems, 'problem')}, {told}. Begin with 1: a later one may come of it."


def _of(findings: Sequence[Finding], level: Level) -> list[Finding]:
    return [finding for finding in findings if finding.level is level]


def _head(word: str, finding: Finding, *, colour: bool) -> str:
    return f"{_painted(word, _COLOURS[finding.level], on=colour)}  {plain(finding.title)}"


def _body(finding: Finding, indent: str) -> list[str]:
    lines = [f"{indent}{plain(finding.detail)}"] if finding.detail else []
    for number, step in enumerate(finding.fix.splitlines()):
        lines.append(f"{indent}{'Fix: ' if number == 0 else '     '}{plain(step)}")
    return lines


def _painted(words: str, code: str, *, on: bool) -> str:
    return f"{code}{words}{_RESET}" if on else words
