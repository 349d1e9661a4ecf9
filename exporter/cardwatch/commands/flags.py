# SPDX-License-Identifier: Apache-2.0
"""Flags made from the table of settings, and settings made from flags."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cardwatch.families.record import Profile
from cardwatch.settings.load import SettingsError, load
from cardwatch.settings.table import CONFIG_ONLY, Settings, declared, flag_of, variable_of

SAMPLING = (
    "backend", "scenario", "capture", "interval", "deadline", "profile", "state_dir", "node_name",
    "no_node_label", "expect_gpus", "path_procfs", "path_sysfs", "path_devfs", "log_level",
    "log_format",
)  # fmt: skip
"""Settings of commands that sample the cards once."""


def add(parser: argparse.ArgumentParser, names: Iterable[str] | None = None) -> None:
    """Add ``--config`` and the flags of the named settings, or of all."""
    group = parser.add_argument_group("settings (also as CARDWATCH_* in the environment)")
    group.add_argument(
        "--config", type=Path, metavar="FILE", help="read settings from this YAML file first"
    )
    for name, item in declared().items():
        if name in CONFIG_ONLY or (names is not None and name not in names):
            continue
        flag = flag_of(item)
        text = f"{item.metadata['help']}{_shown_default(item.default)} [{variable_of(item)}]"
        if isinstance(item.default, bool):
            group.add_argument(
                flag, dest=name, action="store_const", const="true", default=None,
                help=text.replace("%", "%%"),
            )  # fmt: skip
        else:
            group.add_argument(
                flag, dest=name, default=None, metavar=_metavar(name), help=text.replace("%", "%%")
            )


def _metavar(name: str) -> str:
    kinds = {"interval": "DURATION", "deadline": "DURATION", "revoked_exit": "DURATION",
             "state_dir": "DIR", "web_config_file": "FILE", "capture": "FILE"}  # fmt: skip
    if name.startswith("path_"):
        return "DIR"
    return kinds.get(name, name.rsplit("_", 1)[-1].upper())


def _shown_default(default: Any) -> str:
    if default is None or default is False:
        return ""
    if isinstance(default, Profile):
        return f" (default {default.name.lower()})"
    if isinstance(default, float):
        return f" (default {default:g}s)"
    return f" (default {default})"


def _check_files(found: Settings) -> None:
    """Read what the child will read: it could tell nobody what is wrong with it.

    Imported here, for a node with real cards pays for neither.
    """
    if found.scenario is not None:
        from cardwatch.sim import ScenarioError, load_scenario

        try:
            load_scenario(found.scenario)
        except ScenarioError as error:
            raise SettingsError(str(error)) from None
    if found.capture is not None:
        from cardwatch.nvml.recorded import CaptureError, RecordedDriver

        try:
            RecordedDriver(found.capture)
        except CaptureError as error:
            raise SettingsError(str(error)) from None


def settings(parsed: argparse.Namespace) -> Settings:
    """Return the settings of a parsed command line; exits with 2 and one line if they are wrong."""
    try:
        found = load(vars(parsed), parsed.config, os.environ)
        _check_files(found)
        return found
    except SettingsError as error:
        print(f"cardwatch {parsed.command}: {error}", file=sys.stderr)
        raise SystemExit(2) from None
