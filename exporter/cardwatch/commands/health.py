# SPDX-License-Identifier: Apache-2.0
"""Verdict per card, worst tier on the first line: for schedulers and health checks.

Asks the exporter that runs on this node, which knows what happened before. With
--local, or where none answers and no --url was given, it reads the cards once
itself, beside the events in the state directory; shares of time are then not judged.

Exit status: 0 ok, 1 a problem at or above --fail-on, 3 unknown (wrong usage included).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from cardwatch.commands import flags
from cardwatch.commands.pages import health
from cardwatch.commands.snapshot import one_pass
from cardwatch.logs import configure
from cardwatch.settings.table import Settings
from cardwatch.supervisor.watch import judge_once

OK, PROBLEM, UNKNOWN = 0, 1, 3
TIERS = ("page", "ticket", "observe")
_OWN = "http://localhost:9836"
_ASK_S = 3.0
_MAX_ANSWER = 16 * 1024 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this command."""
    parser.set_defaults(usage_status=UNKNOWN)
    parser.add_argument(
        "--fail-on", choices=TIERS[:2], default="page",
        help="least tier that makes the exit status 1 (default page)",
    )  # fmt: skip
    parser.add_argument("--format", choices=("text", "json"), default="text", help="form of output")
    parser.add_argument(
        "--url", metavar="URL", help=f"exporter to ask (default {_OWN}, if one answers there)",
    )  # fmt: skip
    parser.add_argument("--local", action="store_true", help="do not ask an exporter")
    flags.add(parser, (*flags.SAMPLING, "health", "xid"))


def run(parsed: argparse.Namespace) -> int:
    """Print the verdict; returns the exit status."""
    try:
        settings = flags.settings(parsed)
    except SystemExit:
        return UNKNOWN
    level = "critical" if settings.log_level == "info" else settings.log_level
    configure(settings.log_format, level)
    document = None if parsed.local else _asked(parsed.url or _OWN)
    if document is None and parsed.url and not parsed.local:
        # It may be another machine: what this one shows would be no answer.
        document = {"gpus": [], "unknown": f"no exporter answers at {parsed.url}"}
    if document is None:
        document = _looked(settings)
    status, first = judged(document, parsed.fail_on)
    if parsed.format == "json":
        sys.stdout.write(json.dumps({**document, "summary": first}, indent=1) + "\n")
    else:
        sys.stdout.write(first + "\n" + "".join(f"{line}\n" for line in _lines(document)))
    return status


def _asked(url: str) -> dict[str, Any] | None:
    """Return what the exporter says, or None when none answers."""
    # Not by a proxy of the environment: it knows nothing of this node.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url.rstrip('/')}/api/v1/health", timeout=_ASK_S) as answer:
            document = json.loads(answer.read(_MAX_ANSWER))
    except (OSError, ValueError, urllib.error.URLError):
        return None
    return document if isinstance(document, dict) and "gpus" in document else None


def _looked(settings: Settings) -> dict[str, Any]:
    session, snap = asyncio.run(one_pass(settings))
    verdicts, node = judge_once(snap, session.state_dir, settings.health)
    document = health(snap, verdicts, node)
    if not snap.ready:
        document["unknown"] = snap.reason
    return document


def judged(document: Mapping[str, Any], fail_on: str) -> tuple[int, str]:
    """Return the exit status and the first line."""
    cards = document["gpus"]
    held = [(condition, card) for card in cards for condition in card["conditions"]]
    held += [(condition, None) for condition in document.get("conditions", [])]
    worst = min((TIERS.index(c["tier"]) for c, _ in held if c["tier"] in TIERS), default=None)
    if worst is not None and worst <= TIERS.index(fail_on):
        return PROBLEM, f"{TIERS[worst].upper()}: {_first(held, TIERS[worst])}"
    unjudged = [card for card in cards if card["state"] is None]
    if "unknown" in document or unjudged or not cards:
        reason = document.get("unknown") or (unjudged[0]["reason"] if unjudged else "no cards")
        return UNKNOWN, f"UNKNOWN: {reason}"
    if worst is None:
        return OK, f"OK: {len(cards)} cards"
    return OK, f"{TIERS[worst].upper()}: {_first(held, TIERS[worst])}"


def _first(held: list[tuple[Any, Any]], tier: str) -> str:
    texts = [
        condition["text"] if card is None else f"gpu {card['gpu']}: {condition['text']}"
        for condition, card in held
        if condition["tier"] == tier
    ]
    more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
    return texts[0] + more


def _lines(document: Mapping[str, Any]) -> list[str]:
    words = {0: "ok", 1: "observe", 2: "degraded", 3: "failed", None: "unknown"}
    lines = []
    for card in document["gpus"]:
        lines.append(f"gpu {card['gpu']} {card['uuid']} {words[card['state']]}")
        for held in card["conditions"]:
            since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(held["since"]))
            lines.append(f"  {held['tier']}: {held['text']} [{held['runbook']}, since {since}]")
    return lines
