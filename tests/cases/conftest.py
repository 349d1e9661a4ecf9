# SPDX-License-Identifier: Apache-2.0
"""A node for a case, ended with it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cases.node import Node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node without a card yet."""
    if shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("no C compiler: the stand-in driver library cannot be built (apt: gcc)")
    made = Node(tmp_path / "node")
    yield made
    made.close()
