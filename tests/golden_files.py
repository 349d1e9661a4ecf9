# SPDX-License-Identifier: Apache-2.0
"""Golden files: text that must not change by accident."""

from __future__ import annotations

from pathlib import Path


class GoldenFiles:
    """Golden files by name."""

    def __init__(self, *, update: bool) -> None:
        self._update = update
        self._folder = Path(__file__).parent / "golden"

    def check(self, name: str, text: str) -> Path:
        """Fail with a diff when the text differs from the file; return the file."""
        path = self._folder / name
        if self._update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing; write it with `make golden`"
        assert text.splitlines() == path.read_text().splitlines(), (
            f"{path} differs; if the change is meant, `make golden` and review the diff"
        )
        assert text == path.read_text()
        return path
