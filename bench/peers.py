# SPDX-License-Identifier: Apache-2.0
"""The peer: nvitop-exporter, the one NVML exporter for Prometheus on PyPI.

It is run with its defaults, as its README says.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from machine import HOST, Process, Stub, free_port

PACKAGE = "nvitop-exporter"
SERIES = b"gpu_power_usage_W{"


def version() -> str | None:
    """Return the version installed, or None."""
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return None


@contextmanager
def nvitop(stub: Stub) -> Iterator[Process]:
    """Run it with its defaults: a reading every second."""
    port = free_port()
    command = [Path(sys.executable).with_name(PACKAGE), "--bind-address", HOST, "--port", port]
    with Process(command, stub, port) as process:
        yield process
