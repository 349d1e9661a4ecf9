# SPDX-License-Identifier: Apache-2.0
"""The real driver library through NVIDIA's ``nvidia-ml-py``. The only importer of ``pynvml``.

Runs in the child process only: any call may block for ever. Strings are taken
as bytes and decoded with replacement, because the driver has given names that
are not UTF-8 and the binding would raise. Where the binding is wrong or slow
(process lists, fabric, field values) the call is made here on raw buffers, by
the layouts of nvml.h 13.5.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Callable, Sequence
from ctypes import byref, c_uint, create_string_buffer
from typing import Any

import pynvml

from cardwatch.nvml.codes import FUNCTION_NOT_FOUND, DriverError

_INSUFFICIENT_SIZE = 7
_FIELD = struct.Struct(
    "<IIqqiiQ"
)  # fieldId scopeId timestamp latencyUsec valueType nvmlReturn value
_FIELDS_PER_CALL = 100  # DCGM refuses more than NVML_FI_MAX; stay well below
_UNKNOWN_MEMORY = 0xFFFFFFFFFFFFFFFF
_NO_INSTANCE = 0xFFFFFFFF

_PROCESS = {  # bytes per entry -> layout; pid, used memory, GPU instance, compute instance
    16: struct.Struct("<I4xQ"),
    24: struct.Struct("<I4xQII"),
    32: struct.Struct("<I4xQII8x"),  # early R535 put a fifth field into the same _v3 symbol
}

_SRAM_TAG, _SRAM_SIZE, _SRAM_EXCEEDED_AT = 0x01000068, 104, 96

_FABRIC_V = ((3, 0x03000028, 40), (2, 0x02000024, 36))  # (struct version, tag, size)


def _raw(symbol: str) -> Any:
    return pynvml._nvmlGetFunctionPointer(symbol)  # noqa: SLF001 - the binding has no public way


def _check(code: int) -> None:
    if code != 0:
        raise DriverError(code)


def _has(symbol: str) -> bool:
    try:
        _raw(symbol)
    except pynvml.NVMLError:
        return False
    return True


def _text(answer: bytes | str) -> str:
    return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer


def _string(name: str) -> Callable[..., str]:
    """Wrap a string getter so that undecodable bytes do not raise."""
    function = getattr(pynvml, f"nvml{name}")
    undecoded = getattr(function, "__wrapped__", function)
    return lambda *args: _text(undecoded(*args))


def _plain(name: str) -> Callable[..., Any]:
    return getattr(pynvml, f"nvml{name}")  # type: ignore[no-any-return]


def _members(name: str, *members: str, **kwargs: Any) -> Callable[..., tuple[int, ...]]:
    function = getattr(pynvml, f"nvml{name}")

    def read(*args: Any) -> tuple[int, ...]:
        answer = function(*args, **kwargs)
        return tuple(int(getattr(answer, member)) for member in members)

    return read


def _memory_v2() -> Callable[..., tuple[int, ...]]:
    version = pynvml.nvmlMemory_v2

    def read(handle: Any) -> tuple[int, ...]:
        info = pynvml.nvmlDeviceGetMemoryInfo(handle, version=version)
        return info.total, info.reserved, info.free, info.used

    return read


def _pci_bus_id(handle: Any) -> str:
    return _text(pynvml.nvmlDeviceGetPciInfo_v3(handle).busId)


def _init() -> None:
    # A driver without cards answers, like any other; by default it refuses.
    pynvml.nvmlInitWithFlags(pynvml.NVML_INIT_FLAG_NO_GPUS)


def _driver_branch() -> str:
    return _text(pynvml.nvmlSystemGetDriverBranch().branch)


def _cuda_driver_version() -> int:
    try:
        return int(pynvml.nvmlSystemGetCudaDriverVersion_v2())
    except pynvml.NVMLError as error:
        if error.value != FUNCTION_NOT_FOUND:
            raise
        return int(pynvml.nvmlSystemGetCudaDriverVersion())


def _retired_pages(handle: Any, cause: int) -> int:
    return len(pynvml.nvmlDeviceGetRetiredPages(handle, cause))


def _sram_status(handle: Any) -> tuple[int]:
    # On a raw buffer: the oldest binding that we accept does not know the structure.
    buffer = create_string_buffer(_SRAM_SIZE)
    struct.pack_into("<I", buffer, 0, _SRAM_TAG)
    _check(_raw("nvmlDeviceGetSramEccErrorStatus")(handle, buffer))
    return (int.from_bytes(buffer.raw[_SRAM_EXCEEDED_AT : _SRAM_EXCEEDED_AT + 4], "little"),)


def _gpu_uptime(handle: Any) -> int:
    buffer = create_string_buffer(4)
    _check(_raw("nvmlDeviceGetGpuUptime_v1")(handle, buffer))
    return int.from_bytes(buffer.raw, "little")


def _fabric(handle: Any) -> tuple[int, int, int, int | None, int | None]:
    """Return (struct version, state, status, health mask, health summary), newest that answers."""
    for version, tag, size in _FABRIC_V:
        buffer = create_string_buffer(size)
        struct.pack_into("<I", buffer, 0, tag)
        try:
            code = _raw("nvmlDeviceGetGpuFabricInfoV")(handle, buffer)
        except pynvml.NVMLError:
            break
        if code == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
            continue
        _check(code)
        status, _clique, state, mask = struct.unpack_from("<IIB3xI", buffer, 20)
        return version, state, status, mask, buffer.raw[36] if version == 3 else None
    buffer = create_string_buffer(28)
    _check(_raw("nvmlDeviceGetGpuFabricInfo")(handle, buffer))
    status, _clique, state = struct.unpack_from("<IIB", buffer, 16)
    return 1, state, status, None, None


def _process_stride() -> int:
    """Entry size of the ``_v3`` lists: 32 bytes in early R535, 24 before and after.

    That driver has ConfComputeMemSizeInfo but not yet RunningProcessDetailList,
    which came together with the return to 24 bytes.
    """
    early = _has("nvmlDeviceGetConfComputeMemSizeInfo") and not _has(
        "nvmlDeviceGetRunningProcessDetailList"
    )
    return 32 if early else 24


def _process_list(
    kind: str,
) -> Callable[[Any], list[tuple[int, int | None, int | None, int | None]]]:
    base = f"nvmlDeviceGet{kind}RunningProcesses"

    def read(handle: Any) -> list[tuple[int, int | None, int | None, int | None]]:
        for symbol, stride in ((f"{base}_v3", _process_stride()), (f"{base}_v2", 24), (base, 16)):
            if _has(symbol):
                return _read_processes(_raw(symbol), handle, stride)
        raise DriverError(FUNCTION_NOT_FOUND)

    return read


def _read_processes(
    function: Any, handle: Any, stride: int
) -> list[tuple[int, int | None, int | None, int | None]]:
    count = c_uint(0)
    code = function(handle, byref(count), None)
    for _attempt in range(4):  # the list may grow between the two calls
        if code == 0:
            break
        if code != _INSUFFICIENT_SIZE:
            raise DriverError(code)
        count.value = count.value * 2 + 5
        buffer = create_string_buffer(stride * count.value)
        code = function(handle, byref(count), buffer)
    _check(code)
    if count.value == 0:
        return []
    layout = _PROCESS[stride]
    return [_process(layout.unpack_from(buffer, i * stride)) for i in range(count.value)]


def _process(entry: tuple[int, ...]) -> tuple[int, int | None, int | None, int | None]:
    pid, used = entry[0], entry[1]
    instances = entry[2:4] if len(entry) > 2 else (_NO_INSTANCE, _NO_INSTANCE)
    gpu_instance, compute_instance = (None if i == _NO_INSTANCE else i for i in instances)
    return pid, None if used == _UNKNOWN_MEMORY else used, gpu_instance, compute_instance


def _register_events(handle: Any, types: int, event_set: Any) -> int:
    """Register, and return the handle's address: a lost card's handle says no more who it is."""
    pynvml.nvmlDeviceRegisterEvents(handle, types, event_set)
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _wait_event(event_set: Any, milliseconds: int) -> tuple[int, int, int, int | None, int | None]:
    event = pynvml.nvmlEventSetWait_v2(event_set, milliseconds)
    key = ctypes.cast(event.device, ctypes.c_void_p).value or 0
    gpu_instance, compute_instance = (
        None if i == _NO_INSTANCE else int(i)
        for i in (event.gpuInstanceId, event.computeInstanceId)
    )
    return key, int(event.eventType), int(event.eventData), gpu_instance, compute_instance


class _FieldReader:
    """Reads field values into buffers that are made once per thread and request.

    The binding refills a new array at every call, which costs more than the
    driver does. The template also clears old values, so that an entry the
    driver leaves untouched cannot show the previous answer.
    """

    def __init__(self) -> None:
        self._local = threading.local()

    def __call__(
        self, handle: Any, wanted: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int, int, int]]:
        answers: list[tuple[int, int, int, int]] = []
        for start in range(0, len(wanted), _FIELDS_PER_CALL):
            answers += self._chunk(handle, tuple(wanted[start : start + _FIELDS_PER_CALL]))
        return answers

    def _chunk(
        self, handle: Any, wanted: tuple[tuple[int, int], ...]
    ) -> list[tuple[int, int, int, int]]:
        buffer, template = self._buffer(wanted)
        ctypes.memmove(buffer, template, len(template))
        _check(_raw("nvmlDeviceGetFieldValues")(handle, ctypes.c_int(len(wanted)), buffer))
        return [
            (code, kind, latency, value)
            for _id, _scope, _stamp, latency, kind, code, value in _FIELD.iter_unpack(buffer)
        ]

    def _buffer(self, wanted: tuple[tuple[int, int], ...]) -> tuple[Any, bytes]:
        cache = self._local.__dict__.setdefault("buffers", {})
        if wanted not in cache:
            # A field that the driver does not even look at must not read as success.
            template = b"".join(
                _FIELD.pack(f, s, 0, 0, 0, pynvml.NVML_ERROR_NO_DATA, 0) for f, s in wanted
            )
            if len(cache) > 16:
                cache.clear()
            cache[wanted] = ((ctypes.c_char * len(template))(), template)
        return cache[wanted]  # type: ignore[no-any-return]


_BUILDERS: dict[str, Callable[[], Callable[..., Any]]] = {
    "Init": lambda: _init,
    "SystemGetDriverVersion": lambda: _string("SystemGetDriverVersion"),
    "SystemGetNVMLVersion": lambda: _string("SystemGetNVMLVersion"),
    "SystemGetCudaDriverVersion": lambda: _cuda_driver_version,
    "SystemGetDriverBranch": lambda: _driver_branch,
    "DeviceGetUUID": lambda: _string("DeviceGetUUID"),
    "DeviceGetName": lambda: _string("DeviceGetName"),
    "DeviceGetSerial": lambda: _string("DeviceGetSerial"),
    "DeviceGetBoardPartNumber": lambda: _string("DeviceGetBoardPartNumber"),
    "DeviceGetVbiosVersion": lambda: _string("DeviceGetVbiosVersion"),
    "DeviceGetInforomImageVersion": lambda: _string("DeviceGetInforomImageVersion"),
    "DeviceGetPciBusId": lambda: _pci_bus_id,
    "DeviceGetGpuUptime": lambda: _gpu_uptime,
    "DeviceGetMemoryInfo_v2": _memory_v2,
    "DeviceGetMemoryInfo": lambda: _members("DeviceGetMemoryInfo", "total", "free", "used"),
    "DeviceGetBAR1MemoryInfo": lambda: _members(
        "DeviceGetBAR1MemoryInfo", "bar1Total", "bar1Free", "bar1Used"
    ),
    "DeviceGetUtilizationRates": lambda: _members("DeviceGetUtilizationRates", "gpu", "memory"),
    "DeviceGetSramEccErrorStatus": lambda: _sram_status,
    "DeviceGetRowRemapperHistogram": lambda: _members(
        "DeviceGetRowRemapperHistogram", "max", "high", "partial", "low", "none"
    ),
    "DeviceGetRetiredPages": lambda: _retired_pages,
    "DeviceGetGpuFabricInfo": lambda: _fabric,
    "DeviceGetAttributes": lambda: _members(
        "DeviceGetAttributes_v2",
        "gpuInstanceSliceCount",
        "computeInstanceSliceCount",
        "memorySizeMB",
    ),
    "DeviceGetComputeRunningProcesses": lambda: _process_list("Compute"),
    "DeviceGetGraphicsRunningProcesses": lambda: _process_list("Graphics"),
    "DeviceGetMPSComputeRunningProcesses": lambda: _process_list("MPSCompute"),
    "DeviceRegisterEvents": lambda: _register_events,
    "EventSetWait": lambda: _wait_event,
    "DeviceGetFieldValues": _FieldReader,
}

_FIRST_OF_TWO = frozenset(
    {"DeviceGetEncoderUtilization", "DeviceGetDecoderUtilization", "DeviceGetJpgUtilization",
     "DeviceGetOfaUtilization"}
)  # fmt: skip
"""Getters that answer (value, sampling period); the period is not used."""


class NvmlDriver:
    """``Driver`` over the installed library."""

    def __init__(self) -> None:
        # This variable switches NVML to a view in which most calls are not supported.
        os.environ.pop("NVML_MPS_DEVICE_ENUMERATION", None)
        self._functions: dict[str, Callable[..., Any]] = {}

    def call(self, name: str, *args: Any) -> Any:
        """Make one call; see ``cardwatch.nvml.calls``. Raises ``DriverError``."""
        try:
            function = self._functions.get(name) or self._bind(name)
            return function(*args)
        except pynvml.NVMLError as error:
            raise DriverError(int(error.value)) from None

    def _bind(self, name: str) -> Callable[..., Any]:
        try:
            function = self._build(name)
        except AttributeError:  # an older binding than the one we know
            raise DriverError(FUNCTION_NOT_FOUND) from None
        self._functions[name] = function
        return function

    @staticmethod
    def _build(name: str) -> Callable[..., Any]:
        if name in _BUILDERS:
            return _BUILDERS[name]()
        function = _plain(name)
        if name in _FIRST_OF_TWO:
            return lambda handle: int(function(handle)[0])
        return function
