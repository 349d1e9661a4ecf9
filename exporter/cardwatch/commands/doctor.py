# SPDX-License-Identifier: Apache-2.0
"""Say what this machine lets us see, what not and why, each with the way out.

Reads every card once, as the exporter would, and looks at the driver library,
the kernel module, device nodes, container, MIG, processes, kernel log, state
directory and listen address. Changes nothing; a driver that hangs does not
hold it up. Give it the settings and the environment that `cardwatch serve` gets,
and run it as the same user.

Problems come first, each with a numbered fix, then notes, then what is well;
the last line is the summary. Exit status: 0 when there is no problem, 1 when
there is one, 2 when the settings cannot be used.

`--report md` prints a Markdown list of what each card shows (model, driver,
readings, ECC, MIG, NVLink, PCIe, power limit) to hold against an offer before
buying or renting the machine; the exit status is the same.
"""

from __future__ import annotations

import argparse
import os
import sys

from cardwatch.commands import flags
from cardwatch.doctor import checks, render, report
from cardwatch.doctor.finding import Level
from cardwatch.doctor.look import limit, look
from cardwatch.logs import configure


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this command."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--format", choices=("text", "json"), default="text", help="form of the findings"
    )
    form.add_argument(
        "--report", choices=("md",), help="instead: a list of what each card shows, in Markdown"
    )
    flags.add(parser, (*flags.SAMPLING, "listen"))


def run(parsed: argparse.Namespace) -> int:
    """Examine this machine; returns the exit status."""
    settings = flags.settings(parsed)
    # What the session would log is said by the findings.
    level = "critical" if settings.log_level == "info" else settings.log_level
    configure(settings.log_format, level)
    scene = look(settings, dict(os.environ))
    findings = checks.run(scene, limit(settings))
    if parsed.report:
        page = report.markdown(scene, findings)
    elif parsed.format == "json":
        page = render.as_json(scene, findings) + "\n"
    else:
        page = render.text(scene, findings, colour=_wants_colour())
    _print(page)
    return int(any(finding.level is Level.PROBLEM for finding in findings))


def _wants_colour() -> bool:
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


def _print(page: str) -> None:
    # A terminal that is not UTF-8 must not turn a finding into a traceback.
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(page.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()
