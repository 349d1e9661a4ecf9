# SPDX-License-Identifier: Apache-2.0
"""The floor: our own driver calls, made by a C program one after another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from machine import GPUS, HERE, Stub

_VERSIONED = {
    "DeviceGetHandleByIndex": "nvmlDeviceGetHandleByIndex_v2",
    "DeviceGetGpuFabricInfo": "nvmlDeviceGetGpuFabricInfoV",
    "DeviceGetPciBusId": "nvmlDeviceGetPciInfo_v3",
    "DeviceGetComputeRunningProcesses": "nvmlDeviceGetComputeRunningProcesses_v3",
    "DeviceGetGraphicsRunningProcesses": "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "DeviceGetMPSComputeRunningProcesses": "nvmlDeviceGetMPSComputeRunningProcesses_v3",
}
"""Our names of calls -> the functions behind them, where more than a prefix differs."""

_PER_PASS = "nvmlDeviceGetCount_v2"
_OPENING = Counter({"nvmlInit_v2": 1, _PER_PASS: 1, "nvmlDeviceGetHandleByIndex_v2": GPUS})
_WARM_UP = 3
_FIELDS_PER_CALL = 100  # as the exporter's binding splits them; a difference would show in counts


def recorded(stub: Stub, profile: str) -> list[str]:
    """Note what our code asks of a card in a steady pass, as lines for floor.c."""
    output = subprocess.run(
        [sys.executable, HERE / "inside.py", "calls", profile],
        env={**os.environ, **stub.env()}, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    return [_PER_PASS, *(line for name, args in json.loads(output) for line in _lines(name, args))]


def _lines(name: str, args: list[Any]) -> Iterator[str]:
    function = _VERSIONED.get(name, f"nvml{name}")
    if name == "DeviceGetFieldValues":
        for start in range(0, len(args[0]), _FIELDS_PER_CALL):
            part = args[0][start : start + _FIELDS_PER_CALL]
            yield " ".join([function, *(f"{field}:{scope}" for field, scope in part)])
    elif name == "DeviceGetHandleByIndex":
        yield function
    else:
        ask_size_first = ["2"] if "RunningProcesses" in name else []
        yield " ".join([function, *map(str, args), *ask_size_first])


@dataclass(frozen=True)
class Floor:
    """What the C program took, and how often it called each function in a pass."""

    median_ms: float
    counted: Counter[str]


def run(program: Path, stub: Stub, lines: list[str], passes: int) -> Floor:
    """Time the C program."""
    before = stub.calls()
    with tempfile.NamedTemporaryFile("w", suffix=".calls") as file:
        file.write("\n".join([*lines, ""]))
        file.flush()
        output = subprocess.run(
            [program, "-n", str(passes), "-w", str(_WARM_UP), file.name],
            env={**os.environ, **stub.env()}, check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
    told = dict(word.split("=") for word in output.split())
    counted = stub.calls() - before - _OPENING
    per_pass = {name: count / (passes + _WARM_UP) for name, count in counted.items()}
    return Floor(float(told["median_ms"]), Counter(per_pass))
