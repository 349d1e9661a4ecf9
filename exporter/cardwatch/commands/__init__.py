# SPDX-License-Identifier: Apache-2.0
"""The command line. Each command is a module that is imported only when it runs."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from cardwatch import __version__

EXIT_USAGE = 2

COMMANDS: dict[str, str] = {
    "serve": "run the exporter",
    "snapshot": "print one reading of every card",
    "doctor": "say what this machine lets us see, what not, and how to fix it",
    "capture": "write what the driver answers to a file, for a bug report or for replay",
    "baseline": "the cards this node should have",
    "health": "the verdict per card, for health checks of schedulers",
    "events": "GPU events: find them in any log, list this node's, record a reset",
    "xid": "what an Xid code means and asks for",
    "sxid": "what an NVSwitch error code means and asks for",
}


class Parser(argparse.ArgumentParser):
    """Parser whose errors are one line that names the way out.

    Flags are taken in full only: an abbreviation means something else with the next flag.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with 2, or with what the command has set for it."""
        print(f"{self.prog}: {message}; see `{self.prog} --help`", file=sys.stderr)
        raise SystemExit(self.get_default("usage_status") or EXIT_USAGE)


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, max_help_position=32, width=100)


def build_parser(selected: str | None = None) -> Parser:
    """Return the parser of all commands, with the flags of the selected one.

    Only that one is imported: the flags of the others would cost their imports.
    """
    parser = Parser(
        prog="cardwatch",
        description="Per-GPU Prometheus exporter for NVIDIA cards.",
        epilog="`cardwatch COMMAND --help` says more about each.",
        formatter_class=_formatter,
    )
    parser.add_argument("--version", action="version", version=f"cardwatch {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True,
                                     parser_class=Parser)  # fmt: skip
    for name, summary in COMMANDS.items():
        sub = commands.add_parser(
            name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name == selected:
            module = importlib.import_module(f"cardwatch.commands.{name}")
            sub.description = module.__doc__
            module.add_arguments(sub)
            sub.set_defaults(run=module.run, parser=sub)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    selected = next((word for word in words if word in COMMANDS), None)
    parsed: Any
    parsed, unknown = build_parser(selected).parse_known_args(words)
    if unknown:
        parsed.parser.error(f"unknown arguments: {' '.join(unknown)}")
    try:
        return int(parsed.run(parsed))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output went away: nothing left to say
        return 0
