# SPDX-License-Identifier: Apache-2.0
"""Compiles the C files beside this one into libnvidia-ml.so.1."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = ("nvml_stub.c", "lists.c", "control.c")
LIBRARY = "libnvidia-ml.so.1"
FLAGS = ("-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread")


class BuildError(RuntimeError):
    """The library could not be compiled; the text says why and what to do."""


def exported_functions() -> tuple[str, ...]:
    """Name every function that the library can export."""
    header = (HERE / "nvml_stub.h").read_text()
    return tuple(re.findall(r"^    X\((\w+),", header, re.MULTILINE))


def compile_c(arguments: Sequence[str | Path], output: Path) -> None:
    """Run the C compiler ($CC or cc); a BuildError tells what is wrong."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise BuildError(
            "no C compiler found: install one (Debian: `apt-get install gcc libc6-dev`) "
            "or name it in $CC; the stand-in driver library has to be compiled"
        )
    run = subprocess.run(
        [compiler, *map(str, arguments), "-o", str(output)],
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise BuildError(f"{compiler} failed with {run.returncode}:\n{run.stderr}")


def build(out_dir: Path, missing: Iterable[str] = ()) -> Path:
    """Put the library into `out_dir`, without the `missing` symbols, and return its path.

    Compiled once per content of the sources and set of symbols; later calls copy from a cache in
    the temporary directory (or $NVML_STUB_CACHE).
    """
    absent = sorted(set(missing))
    if unknown := set(absent) - set(exported_functions()):
        raise ValueError(f"not exported anyway: {', '.join(sorted(unknown))}")
    digest = hashlib.sha256(repr((FLAGS, absent, os.environ.get("CC"))).encode())
    for name in (*SOURCES, "nvml_stub.h"):
        digest.update((HERE / name).read_bytes())
    cached = _cache_dir() / digest.hexdigest()[:24] / LIBRARY
    if not cached.exists():
        cached.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cached.parent) as work:
            script = Path(work, "symbols.map")
            script.write_text(
                "{ global: nvml*; local: " + "".join(f"{s}; " for s in absent) + "*; };"
            )
            linker = (f"-Wl,-soname,{LIBRARY}", f"-Wl,--version-script={script}")
            compile_c((*FLAGS, *linker, *(HERE / s for s in SOURCES)), Path(work, LIBRARY))
            Path(work, LIBRARY).replace(cached)
    out_dir.mkdir(parents=True, exist_ok=True)
    library = out_dir / LIBRARY
    with tempfile.TemporaryDirectory(dir=out_dir) as work:
        shutil.copy(cached, Path(work, LIBRARY))
        Path(work, LIBRARY).replace(library)
    return library


def _cache_dir() -> Path:
    if chosen := os.environ.get("NVML_STUB_CACHE"):
        return Path(chosen)
    path = Path(tempfile.gettempdir(), f"nvml-stub-{os.getuid()}")
    path.mkdir(mode=0o700, exist_ok=True)
    if path.stat().st_uid != os.getuid():
        raise BuildError(f"{path} belongs to someone else: set $NVML_STUB_CACHE")
    return path
