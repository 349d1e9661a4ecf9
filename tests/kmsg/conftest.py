# SPDX-License-Identifier: Apache-2.0
"""Fixtures for readers of kernel logs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kmsg_harness import Delivered, FakeKernel


@pytest.fixture
def delivered() -> Delivered:
    """What a reader delivers."""
    return Delivered()


@pytest.fixture
def kernel() -> Iterator[FakeKernel]:
    """A pretended kernel log."""
    kernel = FakeKernel()
    yield kernel
    kernel.close()
