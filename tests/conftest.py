# SPDX-License-Identifier: Apache-2.0
"""What holds for all tests: no skips in CI, golden files, tools that may be missing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator

import pytest

from golden_files import GoldenFiles

CI = os.environ.get("CI") == "true"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write golden files anew instead of comparing"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a skipped test is a failed one: a green run must mean that everything ran."""
    report = yield
    if CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: skipped, which CI does not allow: {report.longrepr}"
    return report


@pytest.fixture
def promtool() -> str:
    """Path of promtool, or a skip that names its package."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    return found


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> GoldenFiles:
    """Compare text with a file below tests/golden, or write it with --update-golden."""
    return GoldenFiles(update=request.config.getoption("--update-golden"))
