# SPDX-License-Identifier: Apache-2.0
"""Steers the libnvidia-ml.so.1 that builder.py compiles, while it runs.

A process finds the library when it STARTS with `Stub.env()` in its environment. The library reads
its control file at the first call, and again for the first call after `Stub` has changed it (a
number in a shared page tells), or within about a millisecond when edited by hand.

The control file is text, one statement a line, `#` starts a comment line. A later line beats an
earlier one with the same left side.

    count 8                                how many GPUs the driver lists (default 1, at most 32)
    order 0 1 3                            or: which ones, in this order (2 is not listed: hidden)
    process_stride 32                      _v3 process calls write the entries of early R535 drivers
    ecc_off_garbage 1                      fields 3-28: success, type 0, latency 0, a garbage value
    field_default 3                        the code of a field without a value
    field_latency_us 5                     what each field of a FieldValues call costs on top
    fabric_version 2                       the newest layout that GpuFabricInfoV knows (default 3)
    latency_us 30 spin                     every call burns 30 us of CPU (or: sleep, which the
                                           kernel's timer slack makes some 80 us longer)
    latency_us 20000 sleep FUNCTION        this function instead
    missing FUNCTION                       a remark; the build leaves the symbol out

    SCOPE FUNCTION [ARG...] = VALUE        what it answers; without a value: NOT_SUPPORTED (3)
    SCOPE FUNCTION [ARG...] ! CODE         it returns this code
    SCOPE FUNCTION [ARG...] hang           it does not return until the line is gone
    SCOPE FUNCTION [ARG...] ok             exempt from `everything`
    SCOPE everything ! CODE | hang         all functions of the GPU; `*`: all there are, Init too
    SCOPE lost [CODE]                      all calls on its handles return 15; acquiring one: CODE
    SCOPE latency_us N spin|sleep          all calls on this GPU
    SCOPE field ID [scope N] = NUMBER [type T]     type as in the driver, 0 double ... 6 ushort
    SCOPE field ID [scope N] ! CODE | hang | ok
    event ID gpu N type T data D [gi G ci C]       for sets registered before ID was written

SCOPE is `gpu N`, `gpu N mig M` or `*` (all GPUs, but no MIG device). `gpu` beats `*`, more ARGs
beat fewer. A MIG device exists while it has a value. Precedence: lost, `ok`, everything, the
function's own fault, its value. VALUE is the outputs in the order of the C signature or structure:
numbers, or bytes to the end of the line, or `hex:f8fd0a`. Special ones: MemoryInfo_v2 `total
reserved free used` (the v1 call follows from it), processes `pid:bytes[:gi[:ci[:protected]]] ...`,
retired pages `address:timestamp ...`, PciInfo_v3 `00000000:1B:00.0 0xDEVICE 0xSUBSYSTEM`, fabric
`uuidhex status clique state mask summary`. Older twins (Temperature/TemperatureV, ...Throttle/
...EventReasons, process calls v1-v3, FabricInfo/V) share one value; faults are never shared.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import presets
from .builder import BuildError, build, compile_c, exported_functions

__all__ = ["BuildError", "Stub", "build", "compile_c", "exported_functions"]

XID_EVENT = 0x8

Gpu = int | tuple[int, int] | None
"""A GPU, a (GPU, MIG device) pair, or None for all GPUs."""

OPTIONS = (
    "count",
    "order",
    "process_stride",
    "ecc_off_garbage",
    "field_default",
    "field_latency_us",
    "fabric_version",
)

# The counter file, as control.c lays it out.
_FILE_SIZE = 64 * 1024
_GENERATION_AT = 8
_COUNTERS_AT = 64
_COUNTER = struct.Struct("<64sQQQ4Q32Q")


class Stub:
    """One simulated driver: a library, its control file and its counters, in one directory.

    Every method that changes something is in force for all calls that start after it returned.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        gpus: int = 1,
        missing: Iterable[str] = (),
        process_stride: int = 24,
    ) -> None:
        self._own = tempfile.TemporaryDirectory(prefix="nvml-stub-") if directory is None else None
        self.directory = Path(self._own.name) if self._own else Path(directory or ".")
        self.directory.mkdir(parents=True, exist_ok=True)
        self.control = self.directory / "control"
        self._functions = frozenset(exported_functions())
        self._options: dict[str, str] = {"count": str(gpus)}
        self._values: dict[tuple[str, str], str] = {}
        self._faults: dict[tuple[str, str], str] = {}
        self._lines: dict[str, str] = {}
        self._events: list[str] = []
        self._missing: set[str] = set(missing)
        self._batching = False
        if process_stride != 24:
            self._options["process_stride"] = str(process_stride)
            self._missing.add("nvmlDeviceGetRunningProcessDetailList")
        # A new file each time: a process of an earlier stub here may have the old one mapped.
        counters = self.directory / "control.calls.new"
        counters.write_bytes(b"NVMLSTUB".ljust(_FILE_SIZE, b"\0"))
        with counters.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _FILE_SIZE)
        counters.replace(self.directory / "control.calls")
        self.library = build(self.directory / "lib", self._missing)
        self._write()

    # ---- presets ----------------------------------------------------------------------------

    @classmethod
    def h100_node(cls, gpus: int = 8, directory: Path | None = None, **more: Any) -> Stub:
        """Give healthy "NVIDIA H100 80GB HBM3" cards, 18 NVLinks, one busy process each."""
        return cls._preset(presets.h100, gpus, directory, more)

    @classmethod
    def b200(cls, gpus: int = 8, directory: Path | None = None, **more: Any) -> Stub:
        """Give healthy "NVIDIA B200" cards: NVLink 5 counters, no DL error fields."""
        return cls._preset(presets.b200, gpus, directory, more)

    @classmethod
    def a100_mig(cls, gpus: int = 1, directory: Path | None = None, **more: Any) -> Stub:
        """Give A100 80 GB cards with MIG on and two 3g.40gb instances each."""
        return cls._preset(presets.a100_mig, gpus, directory, more)

    @classmethod
    def geforce(cls, gpus: int = 1, directory: Path | None = None, **more: Any) -> Stub:
        """Give RTX 4090 cards: two fans, no ECC, no serial number, a display process."""
        return cls._preset(presets.geforce, gpus, directory, more)

    @classmethod
    def gb10(cls, gpus: int = 1, directory: Path | None = None, **more: Any) -> Stub:
        """Give a GB10: memory information is NOT_SUPPORTED, per-process memory works."""
        return cls._preset(presets.gb10, gpus, directory, more)

    @classmethod
    def t4(cls, gpus: int = 1, directory: Path | None = None, **more: Any) -> Stub:
        """Give T4 cards: page retirement instead of row remapping, no NVLink, no fan."""
        return cls._preset(presets.t4, gpus, directory, more)

    @classmethod
    def _preset(
        cls,
        preset: Callable[[int], Iterator[presets.Setting]],
        gpus: int,
        directory: Path | None,
        more: dict[str, Any],
    ) -> Stub:
        stub = cls(directory, gpus=gpus, **more)
        with stub.batch():
            for setting in preset(gpus):
                stub.set(*setting)
        return stub

    # ---- what calls answer ------------------------------------------------------------------

    def set(self, key: str, value: object, gpu: Gpu = None, value_type: int | None = None) -> None:
        """Set an option, the value of `Function [arg...]` or that of `field ID [scope N]`."""
        if key in OPTIONS:
            self._options[key] = _text(value)
            if key in ("count", "order"):
                self._options.pop("order" if key == "count" else "count", None)
        else:
            suffix = "" if value_type is None else f" type {value_type}"
            self._values[_scope(gpu), self._checked(key)] = f"= {_text(value)}{suffix}"
        self._write()

    def unset(self, key: str, gpu: Gpu = None) -> None:
        """Take a value away; without another one the call is NOT_SUPPORTED."""
        self._values.pop((_scope(gpu), self._checked(key)), None)
        self._write()

    def field(
        self,
        field_id: int,
        value: object,
        gpu: Gpu = None,
        scope: int | None = None,
        value_type: int | None = None,
    ) -> None:
        """Set a field value; without a scope it answers for all of them."""
        self.set(_field_key(field_id, scope), value, gpu, value_type)

    def value(self, key: str, gpu: Gpu = None) -> str | None:
        """Give the text that `set` stored under this very key and GPU."""
        text = self._values.get((_scope(gpu), key))
        return None if text is None else text.removeprefix("= ").split(" type ")[0]

    # ---- faults -----------------------------------------------------------------------------

    def error(self, function: str, code: int, gpu: Gpu = None) -> None:
        """Let a function, a `field ID` or `everything` return a code."""
        self._fault(function, f"! {code}", gpu)

    def hang(self, function: str, gpu: Gpu = None) -> None:
        """Let calls block, with no lock held, until they are released."""
        self._fault(function, "hang", gpu)

    def exempt(self, function: str, gpu: Gpu = None) -> None:
        """Let a function work although `everything` fails."""
        self._fault(function, "ok", gpu)

    def lost(self, gpu: int, handle_code: int = 15) -> None:
        """Let all calls on the GPU's handles return 15, and acquiring one `handle_code`."""
        self._lines[f"gpu {gpu} lost"] = f"gpu {gpu} lost {handle_code}"
        self._write()

    def release(self, function: str | None = None, gpu: Gpu = None) -> None:
        """End errors, hangs and losses: all, or those of a function, a GPU or both."""
        wanted = None if gpu is None else _scope(gpu)
        self._faults = {
            (scope, key): verb
            for (scope, key), verb in self._faults.items()
            if function not in (None, key) or wanted not in (None, scope)
        }
        if function is None:
            for key in [k for k in self._lines if k.endswith(" lost")]:
                if wanted in (None, key.removesuffix(" lost")):
                    del self._lines[key]
        self._write()

    def latency_us(
        self, n: int, mode: str = "spin", function: str | None = None, gpu: int | None = None
    ) -> None:
        """Make each call take so long: `spin` burns CPU time, `sleep` waits."""
        if mode not in ("spin", "sleep"):
            raise ValueError("mode is spin or sleep")
        if function is not None and gpu is not None:
            raise ValueError("a latency is that of a function or of a GPU")
        if function is not None:
            self._checked(function)
        where = "" if gpu is None else f"gpu {gpu} "
        name = "" if function is None else f" {function}"
        self._lines[f"{where}latency_us{name}"] = f"{where}latency_us {n} {mode}{name}"
        self._write()

    def missing(self, *symbols: str) -> None:
        """Build anew without these symbols; for processes that start from now on."""
        self._missing.update(symbols)
        self.library = build(self.directory / "lib", self._missing)
        self._write()

    def event(
        self,
        gpu: int,
        xid: int = 0,
        event_type: int = XID_EVENT,
        instance: tuple[int, int] | None = None,
    ) -> None:
        """Send an event to every set that has the GPU and the type registered now."""
        where = "" if instance is None else f" gi {instance[0]} ci {instance[1]}"
        number = len(self._events) + 1
        self._events.append(f"event {number} gpu {gpu} type {event_type} data {xid}{where}")
        self._write()

    # ---- running and looking ----------------------------------------------------------------

    def env(self) -> dict[str, str]:
        """Give what a process needs in its environment from the start."""
        inherited = os.environ.get("LD_LIBRARY_PATH")
        path = str(self.library.parent) + (f":{inherited}" if inherited else "")
        return {"LD_LIBRARY_PATH": path, "NVML_STUB_CONTROL": str(self.control)}

    def calls(self, gpu: int | None = None) -> Counter[str]:
        """Count the calls so far by function; with a GPU, those on its handles."""
        return self._count(lambda c: c[0] if gpu is None else c[7 + gpu])

    def threads(self) -> Counter[str]:
        """Count the distinct threads that called each function (exact up to 256 threads)."""
        return self._count(lambda c: sum(mask.bit_count() for mask in c[3:7]))

    def hangs(self) -> Counter[str]:
        """Count the calls that began to hang, by function."""
        return self._count(lambda c: c[1])

    def open_calls(self) -> Counter[str]:
        """Count the calls under way; a process killed inside one leaves it counted."""
        return self._count(lambda c: c[2])

    def reset_calls(self) -> None:
        """Set all counters to 0 (calls under way excepted)."""
        for at, counter in self._raw_counters():
            _COUNTER.pack_into(self._shared, at, counter[0], 0, 0, counter[3], *[0] * 36)

    def wait_until(self, holds: Callable[[], bool], timeout_s: float = 20.0) -> None:
        """Wait for something that the counters show; they cannot wake us, so look often."""
        deadline = time.monotonic() + timeout_s
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {timeout_s} s; calls so far: {self.calls()}")
            time.sleep(0.001)

    def wait_calls(self, function: str, count: int = 1, timeout_s: float = 20.0) -> None:
        """Wait until a function has been called so often."""
        self._checked(function)
        self.wait_until(lambda: self.calls()[function] >= count, timeout_s)

    def wait_hang(self, function: str, count: int = 1, timeout_s: float = 20.0) -> None:
        """Wait until so many calls of a function have begun to hang."""
        self._checked(function)
        self.wait_until(lambda: self.hangs()[function] >= count, timeout_s)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Write the control file once, at the end, so that changes come into force together."""
        self._batching = True
        try:
            yield
        finally:
            self._batching = False
            self._write()

    def close(self) -> None:
        """Remove a directory that the stub made for itself."""
        if self._own:
            self._own.cleanup()

    def __enter__(self) -> Stub:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- inside -----------------------------------------------------------------------------

    def _checked(self, key: str) -> str:
        name = key.split()[0]
        if name not in self._functions and name not in ("field", "everything"):
            raise ValueError(f"the stand-in library has no {name!r}")
        return key

    def _fault(self, key: str, verb: str, gpu: Gpu) -> None:
        if key == "everything" and isinstance(gpu, tuple):
            raise ValueError("`everything` is for whole GPUs; their MIG devices follow them")
        self._faults[_scope(gpu), self._checked(key)] = verb
        self._write()

    def text(self) -> str:
        """Give the control file as it stands."""
        lines = [f"{name} {text}" for name, text in self._options.items()]
        lines += [f"missing {symbol}" for symbol in sorted(self._missing)]
        lines += self._lines.values()
        for (scope, key), verb in (*self._values.items(), *self._faults.items()):
            lines.append(f"{scope} {key} {verb}")
        return "\n".join([*lines, *self._events, ""])

    def _write(self) -> None:
        if self._batching:
            return
        fresh = self.control.with_suffix(".new")
        fresh.write_text(self.text())
        fresh.replace(self.control)
        (generation,) = struct.unpack_from("<Q", self._shared, _GENERATION_AT)
        struct.pack_into("<Q", self._shared, _GENERATION_AT, generation + 1)

    def _raw_counters(self) -> Iterator[tuple[int, tuple[Any, ...]]]:
        for at in range(_COUNTERS_AT, _FILE_SIZE - _COUNTER.size, _COUNTER.size):
            yield at, _COUNTER.unpack_from(self._shared, at)

    def _count(self, number_of: Callable[[list[int]], int]) -> Counter[str]:
        counts: Counter[str] = Counter()
        for _, (name, *numbers) in self._raw_counters():
            if number := number_of(numbers):
                counts[name.rstrip(b"\0").decode()] = number
        return counts


def _scope(gpu: Gpu) -> str:
    if gpu is None:
        return "*"
    if isinstance(gpu, tuple):
        return f"gpu {gpu[0]} mig {gpu[1]}"
    return f"gpu {gpu}"


def _field_key(field_id: int, scope: int | None) -> str:
    return f"field {field_id}" if scope is None else f"field {field_id} scope {scope}"


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return f"hex:{value.hex()}"
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (list, tuple, range)):
        return " ".join(_entry(item) for item in value)
    text = str(value)
    if "\n" in text or text.startswith("hex:") or text != text.strip():
        return f"hex:{text.encode().hex()}"
    return text


def _entry(item: object) -> str:
    return ":".join(map(str, item)) if isinstance(item, (list, tuple)) else str(item)
