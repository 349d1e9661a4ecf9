# SPDX-License-Identifier: Apache-2.0
"""The binding's structures against the official header, and the binding on a compiled library.

The library is the stand-in of tests/nvml_c. The loader looks for it when a process starts, so each
of these tests runs its calls in a child and steers the library from here.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pynvml
import pytest

from nvml_c import BuildError, Stub, build, compile_c, exported_functions

pytestmark = pytest.mark.timeout(60)

FLOOR_SOURCE = Path(__file__).parents[1] / "bench" / "floor.c"

# sizeof, from a C program that includes nvml.h of nvidia-nvml-dev 13.5.37 (x86-64 Linux).
SIZES = {
    "c_nvmlFieldValue_t": 40,
    "c_nvmlValue_t": 8,
    "c_nvmlMemory_t": 24,
    "c_nvmlMemory_v2_t": 40,
    "c_nvmlBAR1Memory_t": 24,
    "c_nvmlUtilization_t": 8,
    "nvmlPciInfo_t": 68,
    "c_nvmlProcessInfo_v2_t": 24,
    "c_nvmlProcessInfo_v3_t": 24,
    "c_nvmlProcessDetail_v1_t": 32,
    "c_nvmlProcessDetailList_v1_t": 24,
    "c_nvmlEventData_t": 32,
    "c_nvmlGpuFabricInfo_t": 28,
    "c_nvmlGpuFabricInfo_v2_t": 36,
    "c_nvmlGpuFabricInfo_v3_t": 40,
    "c_nvmlEccSramErrorStatus_v1_t": 104,
    "c_nvmlRowRemapperHistogramValues": 20,
    "c_nvmlMarginTemperature_v1_t": 8,
    "c_nvmlTemperature_v1_t": 12,
    "c_nvmlRepairStatus_t": 12,
    "c_nvmlDeviceAttributes": 40,
    "c_nvmlConfComputeMemSizeInfo_t": 16,
    "c_nvmlSystemDriverBranchInfo_v1_t": 84,
    "c_nvmlSample_t": 16,
    "c_nvmlPlatformInfo_v2_t": 44,
    "c_nvmlGpmMetric_t": 40,
    "c_nvmlGpmMetricsGet_t": 19104,
}

# offsetof, from the same header and compiler.
OFFSETS = {
    "c_nvmlFieldValue_t": {
        "fieldId": 0,
        "scopeId": 4,
        "timestamp": 8,
        "latencyUsec": 16,
        "valueType": 24,
        "nvmlReturn": 28,
        "value": 32,
    },
    "c_nvmlMemory_v2_t": {"version": 0, "total": 8, "reserved": 16, "free": 24, "used": 32},
    "nvmlPciInfo_t": {"domain": 16, "pciDeviceId": 28, "pciSubSystemId": 32, "busId": 36},
    "c_nvmlProcessInfo_v3_t": {"usedGpuMemory": 8, "gpuInstanceId": 16, "computeInstanceId": 20},
    "c_nvmlProcessDetail_v1_t": {"usedGpuCcProtectedMemory": 24},
    "c_nvmlProcessDetailList_v1_t": {"procArray": 16},
    "c_nvmlEventData_t": {
        "eventType": 8,
        "eventData": 16,
        "gpuInstanceId": 24,
        "computeInstanceId": 28,
    },
    "c_nvmlGpuFabricInfo_v3_t": {
        "clusterUuid": 4,
        "status": 20,
        "cliqueId": 24,
        "state": 28,
        "healthMask": 32,
        "healthSummary": 36,
    },
    "c_nvmlEccSramErrorStatus_v1_t": {
        "aggregateUncParity": 8,
        "volatileCor": 48,
        "bThresholdExceeded": 96,
    },
    "c_nvmlDeviceAttributes": {"memorySizeMB": 32},
}

# The version words: size | number << 24, from the same header.
VERSIONS = {
    "nvmlMemory_v2": 0x2000028,
    "nvmlTemperature_v1": 0x100000C,
    "nvmlMarginTemperature_v1": 0x1000008,
    "nvmlRepairStatus_v1": 0x100000C,
    "nvmlEccSramErrorStatus_v1": 0x1000068,
    "nvmlGpuFabricInfo_v2": 0x2000024,
    "nvmlGpuFabricInfo_v3": 0x3000028,
}


@pytest.mark.parametrize("name", SIZES)
def test_structures_have_the_sizes_of_the_header(name: str) -> None:
    """Every structure of the binding that we may pass is as long as the driver's."""
    structure = getattr(pynvml, name, None)
    if structure is None:
        pytest.skip("this release of the binding lacks it")
    assert ctypes.sizeof(structure) == SIZES[name]


@pytest.mark.parametrize("name", OFFSETS)
def test_members_stand_where_the_header_puts_them(name: str) -> None:
    """The members that we read have the driver's offsets."""
    structure = getattr(pynvml, name, None)
    if structure is None:
        pytest.skip("this release of the binding lacks it")
    found = {member: getattr(structure, member).offset for member in OFFSETS[name]}
    assert found == OFFSETS[name]


@pytest.mark.parametrize("name", VERSIONS)
def test_version_words_are_those_of_the_header(name: str) -> None:
    """A structure's version word is its size and number as the driver compares them."""
    version = getattr(pynvml, name, None)
    if version is None:
        pytest.skip("this release of the binding lacks it")
    assert version == VERSIONS[name]


# ---- running the binding in a child --------------------------------------------------------------

PRELUDE = """
import ctypes, json, os, sys, threading
import pynvml as n

def say(value):
    print(json.dumps(value), flush=True)

def hear():
    return sys.stdin.readline()

def code(call, *args):
    'What a call raised, 0 if nothing.'
    try:
        call(*args)
    except n.NVMLError as error:
        return error.value
    return 0

"""


def start(stub: Stub, body: str) -> subprocess.Popen[str]:
    """Start a child that runs `body` with the stand-in library in its loader path."""
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(body)],
        env=os.environ | stub.env(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def result_of(stub: Stub, body: str) -> object:
    """Run `body` to its end and give what it said last."""
    with start(stub, body) as child:
        out, _ = child.communicate()
    assert child.returncode == 0
    return json.loads(out.splitlines()[-1])


class Talk:
    """A child that answers step by step."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self.child = child

    def answer(self) -> object:
        assert self.child.stdout is not None
        return json.loads(self.child.stdout.readline())

    def go_on(self) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write("\n")
        self.child.stdin.flush()

    def ask(self) -> object:
        self.go_on()
        return self.answer()


@contextmanager
def talk_to(stub: Stub, body: str) -> Iterator[Talk]:
    """Start a child for a conversation; it must end well by itself."""
    with start(stub, body) as child:
        try:
            yield Talk(child)
            child.communicate()
        except BaseException:
            child.kill()
            raise
    assert child.returncode == 0


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """A directory for a stand-in library, where one can be compiled."""
    if shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("no C compiler: the stand-in driver library cannot be built")
    return tmp_path / "stub"


@pytest.fixture
def h100(room: Path) -> Stub:
    """Two healthy H100 cards."""
    return Stub.h100_node(2, room)


# ---- values --------------------------------------------------------------------------------------


def test_identity_arrives(h100: Stub) -> None:
    """Names, identifiers and versions come through the binding unchanged."""
    said = result_of(
        h100,
        """
        n.nvmlInit()
        h = n.nvmlDeviceGetHandleByIndex(1)
        pci = n.nvmlDeviceGetPciInfo(h)
        say([
            n.nvmlSystemGetDriverVersion(), n.nvmlSystemGetCudaDriverVersion_v2(),
            n.nvmlSystemGetDriverBranch().branch, n.nvmlDeviceGetCount(),
            n.nvmlDeviceGetName(h), n.nvmlDeviceGetSerial(h), n.nvmlDeviceGetIndex(h),
            n.nvmlDeviceGetMinorNumber(h), n.nvmlDeviceGetCudaComputeCapability(h),
            pci.busId, pci.busIdLegacy, pci.bus, hex(pci.pciDeviceId), hex(pci.pciSubSystemId),
            n.nvmlDeviceGetGspFirmwareVersion(h).decode(),  # bytes, unlike the others
        ])
        """,
    )
    assert said == [
        *("580.95.05", 13000, "r580_00", 2),
        *("NVIDIA H100 80GB HBM3", "1650423000001", 1, 1, [9, 0]),
        *("00000000:43:00.0", "0000:43:00.0", 0x43, "0x233010de", "0x16c110de"),
        "580.95.05",
    ]


def test_handles_by_bus_and_uuid_are_those_by_index(h100: Stub) -> None:
    """A handle is the same however it was got; what does not exist is NOT_FOUND."""
    said = result_of(
        h100,
        """
        n.nvmlInit()
        at = lambda handle: ctypes.cast(handle, ctypes.c_void_p).value
        h = n.nvmlDeviceGetHandleByIndex(1)
        pci = n.nvmlDeviceGetPciInfo(h).busId
        say([
            at(n.nvmlDeviceGetHandleByPciBusId(pci.encode())) == at(h),
            at(n.nvmlDeviceGetHandleByPciBusId(b"0000:43:00.0")) == at(h),
            at(n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(h).encode())) == at(h),
            code(n.nvmlDeviceGetHandleByUUID, b"GPU-nobody"),
            code(n.nvmlDeviceGetHandleByPciBusId, b"0000:99:00.0"),
            code(n.nvmlDeviceGetHandleByIndex, 2),
            code(n.nvmlDeviceGetName, n.c_nvmlDevice_t()),
        ])
        """,
    )
    assert said == [True, True, True, 6, 6, 2, 2]


def test_structures_arrive_member_by_member(h100: Stub) -> None:
    """Each member of each structure that the driver fills lands in the binding's member."""
    h100.set("nvmlDeviceGetMemoryInfo_v2", (1000, 10, 290, 700))
    h100.set("nvmlDeviceGetUtilizationRates", (87, 41))
    h100.set("nvmlDeviceGetMarginTemperature", -3)
    h100.set("nvmlDeviceGetTemperature 0", 71)
    h100.set("nvmlDeviceGetRowRemapperHistogram", (1, 2, 3, 4, 5))
    h100.set("nvmlDeviceGetRepairStatus", (0, 1))
    h100.set("nvmlDeviceGetSramEccErrorStatus", range(1, 13))
    h100.set("nvmlDeviceGetGpuFabricInfoV", "0102030405060708090a0b0c0d0e0f10 5 6 3 0x1aa 2")
    h100.set("nvmlDeviceGetAttributes_v2", range(1, 10))
    h100.set("nvmlDeviceGetRemappedRows", (4, 3, 1, 0))
    said = result_of(
        h100,
        """
        def members(s):
            return [list(v) if isinstance(v, ctypes.Array) else v
                    for v in (getattr(s, f[0]) for f in s._fields_)]

        def fabric(structure, call):
            call(h, ctypes.byref(structure))
            return members(structure)

        n.nvmlInit()
        h = n.nvmlDeviceGetHandleByIndex(0)
        sram = n.c_nvmlEccSramErrorStatus_v1_t()
        n.nvmlDeviceGetSramEccErrorStatus(h, ctypes.byref(sram))
        say({
            "v2": members(n.nvmlDeviceGetMemoryInfo(h, version=n.nvmlMemory_v2))[1:],
            "v1": members(n.nvmlDeviceGetMemoryInfo(h)),
            "util": members(n.nvmlDeviceGetUtilizationRates(h)),
            "margin": n.nvmlDeviceGetMarginTemperature(h),
            "temperature": [n.nvmlDeviceGetTemperature(h, 0), n.nvmlDeviceGetTemperatureV1(h, 0)],
            "no sensor": code(n.nvmlDeviceGetTemperatureV1, h, 1),
            "rows": members(n.nvmlDeviceGetRowRemapperHistogram(h)),
            "remapped": n.nvmlDeviceGetRemappedRows(h),
            "repair": n.nvmlDeviceGetRepairStatus(h),
            "sram": members(sram)[1:],
            "attributes": members(n.nvmlDeviceGetAttributes_v2(h)),
            "fabric 1": fabric(n.c_nvmlGpuFabricInfo_t(), n.nvmlDeviceGetGpuFabricInfo),
            "fabric 2": fabric(n.c_nvmlGpuFabricInfo_v2_t(), n.nvmlDeviceGetGpuFabricInfoV)[1:],
            "fabric 3": fabric(n.c_nvmlGpuFabricInfo_v3_t(), n.nvmlDeviceGetGpuFabricInfoV)[1:],
        })
        """,
    )
    uuid = list(range(1, 17))
    assert said == {
        "v2": [1000, 10, 290, 700],
        "v1": [1000, 290, 710],  # the old call counts the reserved part as used
        "util": [87, 41],
        "margin": -3,
        "temperature": [71, 71],
        "no sensor": 3,
        "rows": [1, 2, 3, 4, 5],
        "remapped": [4, 3, 1, 0],
        "repair": [0, 1],
        "sram": list(range(1, 13)),
        "attributes": list(range(1, 10)),
        "fabric 1": [uuid, 5, 6, 3],
        "fabric 2": [uuid, 5, 6, 3, 0x1AA],
        "fabric 3": [uuid, 5, 6, 3, 0x1AA, 2],
    }


def test_field_values_keep_type_scope_and_code(h100: Stub) -> None:
    """Each field of one call has its own type, scope and return code."""
    h100.field(82, 55, value_type=1)
    h100.field(308, 61.5, value_type=0)
    h100.field(193, -7, value_type=5)
    h100.field(83, 2**40 + 5, gpu=1)
    h100.field(161, 7, scope=4)
    h100.error("field 82", 999, gpu=1)
    said = result_of(
        h100,
        """
        def read(gpu):
            h = n.nvmlDeviceGetHandleByIndex(gpu)
            a, b, c, d, e, f, g = n.nvmlDeviceGetFieldValues(
                h, [82, 308, 193, 83, (161, 4), (161, 5), (161, 99)])
            return [a.nvmlReturn, b.valueType, b.value.dVal, c.valueType, c.value.siVal,
                    d.valueType, d.value.ullVal, e.value.ullVal, f.value.ullVal, g.nvmlReturn]

        n.nvmlInit()
        say([read(0), read(1)])
        """,
    )
    assert said == [
        [0, 0, 61.5, 5, -7, 3, 981_234_567_890, 7, 0, 3],
        [999, 0, 61.5, 5, -7, 3, 2**40 + 5, 7, 0, 3],
    ]


def test_fields_of_a_card_with_ecc_off_can_be_garbage(h100: Stub) -> None:
    """The trap is as in the driver: success, type 0, latency 0 and a value that means nothing."""
    h100.set("ecc_off_garbage", 1)
    said = result_of(
        h100,
        """
        n.nvmlInit()
        values = n.nvmlDeviceGetFieldValues(n.nvmlDeviceGetHandleByIndex(0), [3, 4, 82])
        say([[v.nvmlReturn, v.valueType, v.latencyUsec, v.value.ullVal > 2**40] for v in values])
        """,
    )
    assert said == [[0, 0, 0, True], [0, 0, 0, True], [0, 1, 1, False]]


def test_bytes_that_are_no_text_reach_the_caller(h100: Stub) -> None:
    """A name that is not UTF-8 comes as it is, and the binding's decoding fails on it."""
    h100.set("nvmlDeviceGetName", bytes.fromhex("f8fd0a"))
    said = result_of(
        h100,
        """
        n.nvmlInit()
        h = n.nvmlDeviceGetHandleByIndex(0)
        buffer = ctypes.create_string_buffer(96)
        n.nvmlLib.nvmlDeviceGetName(h, buffer, 96)
        try:
            n.nvmlDeviceGetName(h)
        except UnicodeDecodeError:
            say([buffer.value.hex(), "not decoded"])
        """,
    )
    assert said == ["f8fd0a", "not decoded"]


def test_processes_arrive_entry_by_entry(h100: Stub) -> None:
    """Process lists of any length keep pid, memory and instances apart; memory may be unknown."""
    unknown = 2**64 - 1
    h100.set("nvmlDeviceGetComputeRunningProcesses_v3", [(11, 100, 1, 0), (12, unknown)], gpu=0)
    h100.set("nvmlDeviceGetGraphicsRunningProcesses_v3", [(13, 7, 2, 3, 9)], gpu=0)
    said = result_of(
        h100,
        """
        def show(processes):
            return [[p.pid, p.usedGpuMemory, p.gpuInstanceId] for p in processes]

        n.nvmlInit()
        h = n.nvmlDeviceGetHandleByIndex(0)
        detail = n.nvmlDeviceGetRunningProcessDetailList(h, 0x1000018, 1)
        say([show(n.nvmlDeviceGetComputeRunningProcesses_v3(h)),
             show(n.nvmlDeviceGetComputeRunningProcesses_v2(h)),
             show(n.nvmlDeviceGetGraphicsRunningProcesses_v3(h)),
             show(n.nvmlDeviceGetMPSComputeRunningProcesses_v3(h)),
             [detail[0].pid, detail[0].usedGpuCcProtectedMemory]])
        """,
    )
    whole = 0xFFFFFFFF
    compute = [[11, 100, 1], [12, None, whole]]
    assert said == [compute, compute, [[13, 7, 2]], [], [13, 9]]


def test_the_r535_entries_shuffle_what_the_binding_reads(room: Path) -> None:
    """Entries of 32 bytes read as 24 give a wrong second process; only the symbols tell."""
    stub = Stub.h100_node(1, room, process_stride=32)
    processes = [(11, 100, 1, 2, 101), (12, 200, 1, 2, 201)]
    stub.set("nvmlDeviceGetComputeRunningProcesses_v3", processes, gpu=0)
    said = result_of(
        stub,
        """
        n.nvmlInit()
        h = n.nvmlDeviceGetHandleByIndex(0)
        n.nvmlDeviceGetConfComputeMemSizeInfo(h)
        say([[[p.pid, p.usedGpuMemory] for p in n.nvmlDeviceGetComputeRunningProcesses_v3(h)],
             code(n.nvmlDeviceGetRunningProcessDetailList, h, 0x1000018, 0)])
        """,
    )
    assert said == [[[11, 100], [101, 12]], 13]


# ---- life of the library -------------------------------------------------------------------------


def test_calls_before_init_and_after_shutdown_are_refused(h100: Stub) -> None:
    """Nothing answers while the library is not initialised; a second Init brings it back."""
    said = result_of(
        h100,
        """
        n.nvmlInit()
        h = n.nvmlDeviceGetHandleByIndex(0)
        n.nvmlShutdown()
        after = [code(n.nvmlDeviceGetName, h), code(n.nvmlDeviceGetCount), code(n.nvmlShutdown)]
        n.nvmlInit()
        say(after + [n.nvmlDeviceGetName(h)])
        """,
    )
    assert said == [1, 1, 1, "NVIDIA H100 80GB HBM3"]


def test_a_forked_child_has_to_initialise_for_itself(h100: Stub) -> None:
    """After fork the library is uninitialised in the child and unharmed in the parent."""
    said = result_of(
        h100,
        """
        n.nvmlInit()
        h = n.nvmlDeviceGetHandleByIndex(0)
        n.nvmlDeviceGetPowerUsage(h)
        n.nvmlDeviceGetName(h)
        reader, writer = os.pipe()
        if os.fork() == 0:
            before = code(n.nvmlDeviceGetPowerUsage, h)
            n.nvmlInit()
            os.write(writer, json.dumps([before, n.nvmlDeviceGetName(h)]).encode())
            os._exit(0)
        os.wait()
        say([json.loads(os.read(reader, 999)), n.nvmlDeviceGetPowerUsage(h)])
        """,
    )
    assert said == [[1, "NVIDIA H100 80GB HBM3"], 612_000]


def test_missing_symbols_are_missing(room: Path) -> None:
    """A function that a driver lacks is FunctionNotFound, and everything else works."""
    stub = Stub.h100_node(1, room, missing=["nvmlDeviceGetTemperatureV"])
    body = """
        n.nvmlInit()
        h = n.nvmlDeviceGetHandleByIndex(0)
        say([code(n.nvmlDeviceGetTemperatureV1, h, 0), n.nvmlDeviceGetTemperature(h, 0),
             code(n.nvmlDeviceGetMemoryInfo, h, n.nvmlMemory_v2)])
        """
    assert result_of(stub, body) == [13, 58, 0]
    stub.missing("nvmlDeviceGetMemoryInfo_v2")
    assert result_of(stub, body) == [13, 58, 13]


def test_all_listed_functions_are_exported(h100: Stub) -> None:
    """The library exports exactly the functions that its header lists."""
    said = result_of(
        h100,
        f"""
        library = ctypes.CDLL("libnvidia-ml.so.1")
        say([name for name in {exported_functions()!r} if not hasattr(library, name)]
            + [name for name in ("enter", "decide", "table") if hasattr(library, name)])
        """,
    )
    assert said == []


def test_no_gpus_fail_init_unless_allowed(room: Path) -> None:
    """A driver without cards is GPU_NOT_FOUND, or fine with the flag for it."""
    said = result_of(
        Stub(room, gpus=0),
        """
        say([code(n.nvmlInit), code(n.nvmlInitWithFlags, 1), n.nvmlDeviceGetCount()])
        """,
    )
    assert said == [28, 0, 0]


# ---- faults at run time --------------------------------------------------------------------------


def test_a_change_is_seen_by_the_next_call(h100: Stub) -> None:
    """A value set while the process runs is what the very next call answers."""
    with talk_to(
        h100,
        """
        n.nvmlInit()
        h = n.nvmlDeviceGetHandleByIndex(0)
        say(n.nvmlDeviceGetTemperature(h, 0))
        for _ in range(20):
            hear()
            say(n.nvmlDeviceGetTemperature(h, 0))
        """,
    ) as child:
        assert child.answer() == 58
        for celsius in range(60, 80):
            h100.set("nvmlDeviceGetTemperature 0", celsius)
            assert child.ask() == celsius


def test_a_lost_card_fails_alone_and_comes_back(h100: Stub) -> None:
    """All calls on a lost card are GPU_IS_LOST, the other card works, and losses can end."""
    with talk_to(
        h100,
        """
        n.nvmlInit()
        handles = [n.nvmlDeviceGetHandleByIndex(i) for i in range(2)]
        while hear():
            say([[code(n.nvmlDeviceGetName, h), code(n.nvmlDeviceGetTemperature, h, 0),
                  code(n.nvmlDeviceGetFieldValues, h, [82])] for h in handles]
                + [code(n.nvmlDeviceGetHandleByIndex, i) for i in range(2)])
        """,
    ) as child:
        fine, lost = [0, 0, 0], [15, 15, 15]
        assert child.ask() == [fine, fine, 0, 0]
        h100.lost(1, handle_code=999)
        assert child.ask() == [fine, lost, 0, 999]
        h100.release(gpu=1)
        assert child.ask() == [fine, fine, 0, 0]
        h100.set("order", [1])
        assert child.ask() == [lost, fine, 0, 2]


def test_everything_fails_but_what_is_exempt(h100: Stub) -> None:
    """An error for everything reaches all functions of a card, or of the driver."""
    h100.error("everything", 16, gpu=1)
    h100.exempt("nvmlDeviceGetName", gpu=1)
    with talk_to(
        h100,
        """
        n.nvmlInit()
        one, two = [n.nvmlDeviceGetHandleByIndex(0), n.c_nvmlDevice_t()]
        ask = [(n.nvmlDeviceGetHandleByIndex, 1), (n.nvmlDeviceGetTemperature, one, 0),
               (n.nvmlDeviceGetCount,), (n.nvmlInit,)]
        while hear():
            say([code(*call) for call in ask])
        """,
    ) as child:
        assert child.ask() == [16, 0, 0, 0]
        h100.exempt("nvmlDeviceGetHandleByIndex_v2", gpu=1)
        assert child.ask() == [0, 0, 0, 0]
        h100.error("everything", 9)
        assert child.ask() == [9, 9, 9, 9]
        h100.release("everything")
        assert child.ask() == [0, 0, 0, 0]


@pytest.mark.parametrize("function", ["nvmlDeviceGetPowerUsage", "everything", "field 82"])
def test_a_hanging_call_stalls_its_thread_alone(h100: Stub, function: str) -> None:
    """A call that hangs has let go of the interpreter, and goes on once it is released."""
    reads_fields = function.startswith("field")
    symbol = "nvmlDeviceGetFieldValues" if reads_fields else "nvmlDeviceGetPowerUsage"
    with talk_to(
        h100,
        f"""
        def read():
            value = {
            "n.nvmlDeviceGetFieldValues(bad, [82])[0].value.uiVal"
            if reads_fields
            else "n.nvmlDeviceGetPowerUsage(bad)"
        }
            said.append(value)

        n.nvmlInit()
        good, bad = [n.nvmlDeviceGetHandleByIndex(i) for i in range(2)]
        said = []
        say("ready")
        hear()
        thread = threading.Thread(target=read)
        thread.start()
        hear()
        say([thread.is_alive(), said, n.nvmlDeviceGetTemperature(good, 0)])
        hear()
        thread.join()
        say(said)
        """,
    ) as child:
        assert child.answer() == "ready"
        h100.hang(function, gpu=1)
        child.go_on()
        h100.wait_hang(symbol)
        assert h100.open_calls()[symbol] == 1
        assert child.ask() == [True, [], 58]
        h100.release(function, gpu=1)
        assert child.ask() == [67 if reads_fields else 612_000]
    assert h100.open_calls()[symbol] == 0


def test_calls_and_threads_are_counted(h100: Stub) -> None:
    """The counters tell how often, from how many threads and for which card calls were made."""
    body = """
        n.nvmlInit()
        handles = [n.nvmlDeviceGetHandleByIndex(i) for i in range(2)]
        barrier = threading.Barrier(4)

        def read(h):
            barrier.wait()
            for _ in range(50):
                n.nvmlDeviceGetPowerUsage(h)

        threads = [threading.Thread(target=read, args=(handles[i % 3 == 0],)) for i in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        say(0)
        """
    result_of(h100, body)
    name = "nvmlDeviceGetPowerUsage"
    assert [h100.calls()[name], h100.threads()[name]] == [200, 4]
    assert [h100.calls(gpu)[name] for gpu in (0, 1)] == [100, 100]
    assert h100.calls()["nvmlDeviceGetHandleByIndex_v2"] == 2
    h100.reset_calls()
    assert not h100.calls()


@pytest.mark.parametrize("mode", ["spin", "sleep"])
def test_latency_does_not_change_answers(h100: Stub, mode: str) -> None:
    """Calls made slow, all of them or one function, answer as before."""
    h100.latency_us(50, mode)
    h100.latency_us(100, mode, function="nvmlDeviceGetPowerUsage")
    h100.set("field_latency_us", 3)
    said = result_of(
        h100,
        """
        n.nvmlInit()
        h = n.nvmlDeviceGetHandleByIndex(0)
        field = n.nvmlDeviceGetFieldValues(h, [82, 83])[0]
        say([n.nvmlDeviceGetPowerUsage(h), field.value.uiVal, field.latencyUsec])
        """,
    )
    assert said == [612_000, 67, 4]


# ---- events --------------------------------------------------------------------------------------


def test_events_reach_the_sets_that_asked(h100: Stub) -> None:
    """An Xid sent after the registration arrives once with its card; others time out."""
    h100.event(1, xid=31)
    with talk_to(
        h100,
        """
        n.nvmlInit()
        handles = [n.nvmlDeviceGetHandleByIndex(i) for i in range(2)]
        names = {ctypes.cast(h, ctypes.c_void_p).value: i for i, h in enumerate(handles)}
        events = n.nvmlEventSetCreate()
        for h in handles:
            n.nvmlDeviceRegisterEvents(h, n.nvmlEventTypeXidCriticalError, events)
        unknown = code(n.nvmlDeviceRegisterEvents, handles[0], 1 << 40, events)
        say([n.nvmlDeviceGetSupportedEventTypes(handles[0]), unknown])

        def wait(ms):
            try:
                data = n.nvmlEventSetWait_v2(events, ms)
            except n.NVMLError as error:
                return error.value
            card = names[ctypes.cast(data.device, ctypes.c_void_p).value]
            return [card, data.eventType, data.eventData, data.gpuInstanceId]

        while (line := hear().strip()) != "end":
            say(wait(int(line or 0)))
        n.nvmlEventSetFree(events)
        say(wait(0))
        """,
    ) as child:
        assert child.answer() == [0x11F, 3]
        assert child.ask() == 10  # the one from before the registration is not delivered
        h100.event(1, xid=79)
        h100.event(0, xid=0, event_type=4)  # nobody asked for P-states
        h100.event(0, xid=94, instance=(3, 0))
        assert child.ask() == [1, 8, 79, 0xFFFFFFFF]
        assert child.ask() == [0, 8, 94, 3]
        assert child.ask() == 10
        assert child.child.stdin is not None
        child.child.stdin.write("60000\n")
        child.child.stdin.flush()
        h100.wait_calls("nvmlEventSetWait_v2", 5)
        h100.event(0, xid=48)
        assert child.answer() == [0, 8, 48, 0xFFFFFFFF]
        h100.lost(1)
        assert [child.ask() for _ in range(3)] == [15, 15, 15]
        h100.release()
        child.child.stdin.write("end\n")
        child.child.stdin.flush()
        assert child.answer() == 2


# ---- presets -------------------------------------------------------------------------------------


def test_mig_devices_are_enumerated(room: Path) -> None:
    """Instances have handles, names and memory of their own; a hole is NOT_FOUND."""
    said = result_of(
        Stub.a100_mig(1, room),
        """
        n.nvmlInit()
        h = n.nvmlDeviceGetHandleByIndex(0)
        first, second = [n.nvmlDeviceGetMigDeviceHandleByIndex(h, i) for i in range(2)]
        parent = n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(second)
        say([n.nvmlDeviceGetMigMode(h), n.nvmlDeviceGetMaxMigDeviceCount(h),
             code(n.nvmlDeviceGetMigDeviceHandleByIndex, h, 2),
             n.nvmlDeviceGetGpuInstanceId(second), n.nvmlDeviceGetUUID(second),
             n.nvmlDeviceGetAttributes(second).memorySizeMB,
             n.nvmlDeviceGetMemoryInfo(first).total >> 20,
             n.nvmlDeviceIsMigDeviceHandle(first).value, n.nvmlDeviceIsMigDeviceHandle(h).value,
             n.nvmlDeviceGetUUID(parent) == n.nvmlDeviceGetUUID(h),
             code(n.nvmlDeviceGetPowerUsage, first), code(n.nvmlDeviceGetUtilizationRates, h),
             [p.gpuInstanceId for p in n.nvmlDeviceGetComputeRunningProcesses_v3(h)]])
        """,
    )
    uuid = "MIG-a100a100-1111-4222-8333-000000000002"
    assert said == [[1, 1], 7, 6, 2, uuid, 40192, 40192, 1, 0, True, 3, 3, [1, 2]]


@pytest.mark.parametrize(
    ("preset", "name", "answers"),
    [
        # memory, ECC, fan, NVLink, remapped rows, retired pages, memory temperature, DL replays
        ("h100_node", "NVIDIA H100 80GB HBM3", [0, 0, 3, 0, 0, 3, 0, 0]),
        ("b200", "NVIDIA B200", [0, 0, 3, 0, 0, 3, 0, 3]),
        ("a100_mig", "NVIDIA A100-SXM4-80GB", [0, 0, 3, 0, 3, 3, 0, 0]),
        ("geforce", "NVIDIA GeForce RTX 4090", [0, 3, 0, 3, 3, 3, 3, 3]),
        ("gb10", "NVIDIA GB10", [3, 3, 3, 3, 3, 3, 3, 3]),
        ("t4", "Tesla T4", [0, 0, 3, 3, 3, 0, 3, 3]),
    ],
)
def test_presets_support_what_their_cards_do(
    room: Path, preset: str, name: str, answers: list[int]
) -> None:
    """Each preset answers what such a card answers, and NOT_SUPPORTED for the rest."""
    said = result_of(
        getattr(Stub, preset)(1, room),
        """
        n.nvmlInit()
        h = n.nvmlDeviceGetHandleByIndex(0)
        fields = n.nvmlDeviceGetFieldValues(h, [82, (161, 0)])
        say([n.nvmlDeviceGetName(h), [
            code(n.nvmlDeviceGetMemoryInfo, h, n.nvmlMemory_v2), code(n.nvmlDeviceGetEccMode, h),
            code(n.nvmlDeviceGetFanSpeed_v2, h, 0), code(n.nvmlDeviceGetNvLinkState, h, 0),
            code(n.nvmlDeviceGetRemappedRows, h), code(n.nvmlDeviceGetRetiredPages_v2, h, 0),
            *[f.nvmlReturn for f in fields]]])
        """,
    )
    assert said == [name, answers]


# ---- tools ---------------------------------------------------------------------------------------


def test_a_missing_compiler_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a C compiler the error names what to install."""
    monkeypatch.setenv("NVML_STUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(BuildError, match="apt-get install gcc"):
        build(tmp_path / "out")


def test_unknown_names_are_refused(h100: Stub) -> None:
    """A misspelt function is an error at once, not a rule that never matches."""
    with pytest.raises(ValueError, match="nvmlDeviceGetTemprature"):
        h100.set("nvmlDeviceGetTemprature 0", 71)
    with pytest.raises(ValueError, match="nvmlNoSuch"):
        h100.missing("nvmlNoSuch")


def test_the_floor_makes_the_calls_it_is_told(h100: Stub, tmp_path: Path) -> None:
    """The C program makes each call once per card and pass, and every one is answered."""
    calls = tmp_path / "calls.txt"
    calls.write_text(
        "# a comment\n"
        "nvmlDeviceGetCount_v2\n"
        "nvmlDeviceGetName\n"
        "nvmlDeviceGetTemperature 0\n"
        "nvmlDeviceGetTemperatureV 0\n"
        "nvmlDeviceGetMemoryInfo_v2\n"
        "nvmlDeviceGetRemappedRows\n"
        "nvmlDeviceGetMemoryErrorCounter 0 0 2\n"
        "nvmlDeviceGetGpuFabricInfoV\n"
        "nvmlDeviceGetComputeRunningProcesses_v3 2\n"
        "nvmlDeviceGetFieldValues 82:0 161:3 138:0xffffffff\n"
    )
    floor = tmp_path / "floor"
    compile_c(("-O2", "-Wall", "-Wextra", "-Werror", FLOOR_SOURCE, "-ldl"), floor)
    run = subprocess.run(
        [floor, "-n", "5", "-w", "0", calls],
        env=os.environ | h100.env(),
        capture_output=True,
        text=True,
        check=True,
    )
    printed = dict(word.split("=") for word in run.stdout.split())
    assert printed["gpus"] == "2"
    assert printed["calls"] == str(1 + 2 * 10)
    assert printed["not_answered"] == "0"
    assert float(printed["min_ms"]) <= float(printed["median_ms"]) <= float(printed["p99_ms"])
    assert h100.calls()["nvmlDeviceGetName"] == 10
    assert h100.calls()["nvmlDeviceGetComputeRunningProcesses_v3"] == 20
