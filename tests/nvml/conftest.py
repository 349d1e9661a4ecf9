# SPDX-License-Identifier: Apache-2.0
"""Where the C stand-in for the driver library is built."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def compiler() -> str:
    """The C compiler, or a skip that names what to install."""
    found = shutil.which(os.environ.get("CC", "cc"))
    if found is None:
        pytest.skip("no C compiler: the stand-in driver library cannot be built (apt: gcc)")
    return found


@pytest.fixture
def room(compiler: str, tmp_path: Path) -> Path:
    """A directory for a stand-in library."""
    return tmp_path / "stub"
