# SPDX-License-Identifier: Apache-2.0
"""The import layers of the package, and who alone may import what is fragile."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "exporter/cardwatch"

MAY_IMPORT: dict[str, set[str]] = {
    # lowest first; a part may import itself and what is listed
    "text": set(),
    "logs": set(),
    "web": set(),
    "families": set(),
    "sample": set(),
    "host": {"text"},
    "xid": set(),
    "kernlog": {"text", "xid"},
    "kmsg": {"kernlog"},
    "journal": {"kernlog", "kmsg"},
    "healthlog": set(),
    "verdict": {"sample"},
    "events": {"healthlog", "journal", "kernlog", "kmsg", "sample", "xid"},
    "settings": {"families", "text", "verdict", "xid"},
    "nvml": set(),
    "sim": {"nvml", "settings"},
    "readings": {"families", "nvml", "sample", "text"},
    "backends": {"families", "nvml", "readings", "sample", "sim", "text"},
    "probe": {"backends", "families", "nvml", "sample", "text"},
    "exposition": {"families"},
    "supervisor": {"events", "exposition", "families", "healthlog", "host", "journal", "kernlog",
                   "kmsg", "nvml", "sample", "settings", "text", "verdict", "xid"},
    "doctor": {"families", "host", "nvml", "probe", "sample", "settings", "supervisor", "text",
               "web"},
    "commands": {"doctor", "events", "exposition", "families", "host", "journal", "kernlog",
                 "logs", "nvml", "sample", "settings", "sim", "supervisor", "text", "verdict",
                 "web", "xid"},
}  # fmt: skip

ONLY_IMPORTER = {
    "pynvml": {"nvml/binding.py"},
    "uvicorn": {"web/guard.py", "web/server.py"},
    "bcrypt": {"web/auth.py", "web/webconfig.py"},
    "sqlite3": {"journal/store.py"},
}


def _modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def _imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            names.add(node.module or "")
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def _part(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


@pytest.mark.parametrize("path", _modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_module_imports_only_from_layers_below_its_own(path: Path) -> None:
    """No module reaches upwards, so that each layer can be understood without those above."""
    part = _part(path)
    if part in ("__init__", "__main__"):
        return
    assert part in MAY_IMPORT, f"{part} has no place in the table of layers"
    used = {
        name.split(".")[1]
        for name in _imports(path)
        if name.startswith("cardwatch.") and len(name.split(".")) > 1
    } - {"__version__"}
    assert used <= MAY_IMPORT[part] | {part}, f"{part} may not import {used - MAY_IMPORT[part]}"


@pytest.mark.parametrize("library", ONLY_IMPORTER)
def test_a_fragile_library_is_imported_in_one_place_only(library: str) -> None:
    """The driver binding and other fragile libraries sit behind one module each."""
    importers = {
        str(path.relative_to(PACKAGE))
        for path in _modules()
        if any(name == library or name.startswith(f"{library}.") for name in _imports(path))
    }
    assert importers <= ONLY_IMPORTER[library]


@pytest.mark.parametrize("path", _modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_module_is_small_and_states_its_licence(path: Path) -> None:
    """Every module has the licence line, a docstring, and at most 500 lines."""
    text = path.read_text()
    assert text.startswith("# SPDX-License-Identifier: Apache-2.0\n")
    assert ast.get_docstring(ast.parse(text))
    assert len(text.splitlines()) <= 500
