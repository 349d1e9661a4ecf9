# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of cardwatch.web."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from web_harness import Certificates, Served, serving


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as running:
        yield running


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def server_pair(authority: Certificates) -> tuple[Path, Path]:
    return authority.issue("server", "DNS:localhost,IP:127.0.0.1")


@pytest.fixture(scope="session")
def client_pair(authority: Certificates) -> tuple[Path, Path]:
    return authority.issue("client", "DNS:scraper.example,IP:fd00::1")
