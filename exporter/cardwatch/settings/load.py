# SPDX-License-Identifier: Apache-2.0
"""Brings the four origins of settings together, or says in one line what is wrong."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import Field
from pathlib import Path
from typing import Any

from cardwatch.settings.table import CONFIG_ONLY, Settings, declared, flag_of, variable_of

CONFIG_VARIABLE = "CARDWATCH_CONFIG"
_MAX_CONFIG_BYTES = 1024 * 1024


class SettingsError(Exception):
    """A setting that cannot be used; the message names where it stands and what is allowed."""


def load(flags: Mapping[str, Any], config: Path | None, environment: Mapping[str, str]) -> Settings:
    """Return the settings. ``flags`` holds those given on the command line, as text."""
    if config is None and environment.get(CONFIG_VARIABLE):
        config = Path(environment[CONFIG_VARIABLE])
    from_file = {} if config is None else read_config(config)
    values: dict[str, Any] = {}
    for name, item in declared().items():
        given = _given(item, flags, environment, from_file, config)
        if given is not None:
            where, raw = given
            values[name] = _parse(item, raw, where)
    settings = Settings(**values)
    _check_together(settings)
    return settings


def _given(
    item: Field[Any],
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    from_file: Mapping[str, Any],
    config: Path | None,
) -> tuple[str, Any] | None:
    """Return where a setting stands and its raw value, from the strongest origin."""
    if flags.get(item.name) is not None:
        return flag_of(item), flags[item.name]
    variable = variable_of(item)
    if item.name not in CONFIG_ONLY and environment.get(variable):
        return variable, environment[variable]
    if item.name in from_file:
        return f"{config}: {item.name}", from_file[item.name]
    return None


def _parse(item: Field[Any], raw: Any, where: str) -> Any:
    try:
        return item.metadata["parse"](raw)
    except ValueError as error:
        raise SettingsError(f"{where}: {str(raw)[:80]!r} is not allowed here: {error}") from None


def read_config(path: Path) -> dict[str, Any]:
    """Return the keys of a config file. Raises ``SettingsError`` naming file and key."""
    import yaml

    try:
        with path.open("rb") as file:
            data = yaml.safe_load(file.read(_MAX_CONFIG_BYTES))
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        line = " ".join(str(error).split())
        raise SettingsError(f"{path}: is not YAML: {line}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise SettingsError(f"{path}: expected a mapping of settings")
    allowed = declared()
    for key in data:
        if key not in allowed:
            raise SettingsError(
                f"{path}: {str(key)[:80]!r} is not a setting; allowed are {', '.join(allowed)}"
            )
    return data


def _check_together(settings: Settings) -> None:
    """Refuse settings that make no sense beside each other."""
    for name, backend in (("scenario", "sim"), ("capture", "replay")):
        if getattr(settings, name) is not None and settings.backend != backend:
            raise SettingsError(
                f"--{name} has a meaning with --backend {backend} only, "
                f"not with --backend {settings.backend}"
            )
    if settings.backend == "replay" and settings.capture is None:
        raise SettingsError("--backend replay needs --capture FILE, written by `cardwatch capture`")


def state_directory(settings: Settings, environment: Mapping[str, str] | None = None) -> Path:
    """Return where state is kept; runs that are not real keep theirs apart, under ``sim``."""
    environment = os.environ if environment is None else environment
    base = settings.state_dir or _default_state_directory(environment)
    return base / "sim" if settings.simulated else base


def _default_state_directory(environment: Mapping[str, str]) -> Path:
    # Only looked at here: who asks where state is kept must not make a directory.
    system = Path("/var/lib/cardwatch")
    writable = system if system.exists() else system.parent
    if os.access(writable, os.W_OK | os.X_OK):
        return system
    home = environment.get("XDG_STATE_HOME") or str(Path("~/.local/state").expanduser())
    return Path(home) / "cardwatch"
