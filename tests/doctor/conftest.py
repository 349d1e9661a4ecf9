# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of ``cardwatch doctor``."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import pytest
from doctor_harness import Machine, refusing_open

from nvml_c import BuildError, Stub


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """An empty machine: no cards, no driver."""
    return Machine(tmp_path / "machine")


@pytest.fixture
def no_library() -> None:
    """Skip where this machine has a driver library that cannot be hidden from the loader."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return
    pytest.skip("this machine has libnvidia-ml.so.1; that it is missing cannot be tried here")


@pytest.fixture
def stub(tmp_path: Path) -> Stub:
    """One healthy H100 behind a compiled driver library."""
    try:
        return Stub.h100_node(gpus=1, directory=tmp_path / "stub")
    except BuildError as error:
        pytest.skip(str(error))


@pytest.fixture
def refuse(tmp_path: Path):  # type: ignore[no-untyped-def]
    """Make the kernel seem to refuse to open files of one name, as a device cgroup does."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (Debian: gcc libc6-dev)")
    return lambda name: refusing_open(tmp_path, name)
