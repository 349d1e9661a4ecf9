# SPDX-License-Identifier: Apache-2.0
"""Healthy cards as settings for `Stub.set`: (key, value, gpu or None for all, field type)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

MIB = 1024 * 1024
UINT, ULONGLONG, INT = 1, 3, 5
ALL_LINKS = 0xFFFFFFFF

Setting = tuple[str, object, int | tuple[int, int] | None, int | None]

_BUSES = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)
_SYSTEM: dict[str, object] = {
    "nvmlSystemGetDriverVersion": "580.95.05",
    "nvmlSystemGetNVMLVersion": "13.580.95.05",
    "nvmlSystemGetCudaDriverVersion_v2": 13000,
    "nvmlSystemGetDriverBranch": "r580_00",
}
_SERVER: dict[str, object] = {
    "nvmlDeviceGetVirtualizationMode": 0,
    "nvmlDeviceGetPersistenceMode": 1,
    "nvmlDeviceGetComputeMode": 0,
    "nvmlDeviceGetPerformanceState": 0,
    "nvmlDeviceGetCurrentClocksEventReasons": 0x4,
    "nvmlDeviceGetSupportedClocksEventReasons": 0x1FF,
    "nvmlDeviceGetPcieReplayCounter": 0,
    "nvmlDeviceGetPcieThroughput 0": 412_000,
    "nvmlDeviceGetPcieThroughput 1": 97_000,
    "nvmlDeviceGetGspFirmwareVersion": "580.95.05",
    "nvmlDeviceGetSupportedEventTypes": 0x11F,
    "nvmlDeviceGetGraphicsRunningProcesses_v3": "",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": "",
}


def h100(gpus: int) -> Iterator[Setting]:
    """Describe an NVSwitch node of H100 SXM cards under load."""
    yield from _everywhere(_SYSTEM | _SERVER)
    yield from _everywhere(
        {
            "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
            "nvmlDeviceGetBrand": 14,
            "nvmlDeviceGetArchitecture": 9,
            "nvmlDeviceGetCudaComputeCapability": (9, 0),
            "nvmlDeviceGetBoardPartNumber": "692-2G520-0200-000",
            "nvmlDeviceGetVbiosVersion": "96.00.74.00.1C",
            "nvmlDeviceGetInforomImageVersion": "G520.0200.00.05",
            "nvmlDeviceGetMigMode": (0, 0),
            "nvmlDeviceGetMaxMigDeviceCount": 7,
        }
    )
    yield from _memory(81559, 551, 70123, 131072)
    yield from _load(graphics=1980, memory=2619, video=1545, gpu=97, controller=61)
    yield from _power(usage=612_000, limit=700_000, lowest=200_000)
    yield from _temperature(gpu=58, memory=67, margin=29, thresholds=(92, 89, 95, 87))
    yield from _tlimits(shutdown=-8, slowdown=-2, gpu_max=0)
    yield from _pcie(generation=5, width=16)
    yield from _ecc()
    yield from _repair(banks=2560)
    yield from _recovery()
    yield from _nvlink4(links=18, version=6, speed=26562)
    yield "nvmlDeviceGetGpuFabricInfoV", f"{'0' * 32} 0 0 3 0x1aa 1", None, None
    yield from _each(gpus, "H100", 0x233010DE, 0x16C110DE, serial=1650423000000, busy_mib=69540)


def b200(gpus: int) -> Iterator[Setting]:
    """Describe a node of B200 cards: fifth NVLink generation, a fabric with a cluster."""
    yield from _everywhere(_SYSTEM | _SERVER)
    yield from _everywhere(
        {
            "nvmlDeviceGetName": "NVIDIA B200",
            "nvmlDeviceGetBrand": 14,
            "nvmlDeviceGetArchitecture": 10,
            "nvmlDeviceGetCudaComputeCapability": (10, 0),
            "nvmlDeviceGetBoardPartNumber": "699-2G525-0220-000",
            "nvmlDeviceGetVbiosVersion": "97.00.88.00.0F",
            "nvmlDeviceGetInforomImageVersion": "G525.0220.00.03",
            "nvmlDeviceGetMigMode": (0, 0),
            "nvmlDeviceGetMaxMigDeviceCount": 7,
        }
    )
    yield from _memory(183359, 644, 160220, 262144)
    yield from _load(graphics=1965, memory=3996, video=1785, gpu=99, controller=55)
    yield from _power(usage=871_000, limit=1_000_000, lowest=200_000)
    yield from _temperature(gpu=61, memory=66, margin=26, thresholds=(92, 89, 95, 87))
    yield from _tlimits(shutdown=-5, slowdown=-2, gpu_max=0)
    yield from _pcie(generation=5, width=16)
    yield from _ecc()
    yield from _repair(banks=4096)
    yield from _recovery()
    yield from _nvlink5(links=18)
    yield "nvmlDeviceGetGpuFabricInfoV", f"{'c0ffee' * 5}42 0 4 3 0x1aa 1", None, None
    yield from _each(gpus, "B200", 0x290110DE, 0x199910DE, serial=1650225000000, busy_mib=159600)


def a100_mig(gpus: int) -> Iterator[Setting]:
    """Describe A100 cards cut in two instances: no utilization, no remapped rows."""
    yield from _everywhere(_SYSTEM | _SERVER)
    yield from _everywhere(
        {
            "nvmlDeviceGetName": "NVIDIA A100-SXM4-80GB",
            "nvmlDeviceGetBrand": 14,
            "nvmlDeviceGetArchitecture": 7,
            "nvmlDeviceGetCudaComputeCapability": (8, 0),
            "nvmlDeviceGetBoardPartNumber": "692-2G506-0210-002",
            "nvmlDeviceGetVbiosVersion": "92.00.45.00.03",
            "nvmlDeviceGetInforomImageVersion": "G506.0210.00.04",
            "nvmlDeviceGetMigMode": (1, 1),
            "nvmlDeviceGetMaxMigDeviceCount": 7,
        }
    )
    yield from _memory(81920, 644, 30400, 131072)
    yield from _clocks(graphics=1410, memory=1593, video=1275)
    yield from _power(usage=248_000, limit=400_000, lowest=100_000)
    yield from _temperature(gpu=47, memory=55, margin=None, thresholds=(92, 89, 95, 85))
    yield from _pcie(generation=4, width=16)
    yield from _ecc()
    yield from _recovery()
    yield from _nvlink4(links=12, version=5, speed=25781)
    yield from _each(gpus, "A100", 0x20B210DE, 0x146310DE, serial=1563221000000, busy_mib=0)
    for gpu in range(gpus):
        yield from _mig_devices(gpu)


def geforce(gpus: int) -> Iterator[Setting]:
    """Describe RTX 4090 cards in a workstation."""
    yield from _everywhere(_SYSTEM | _SERVER)
    yield from _everywhere(
        {
            "nvmlDeviceGetName": "NVIDIA GeForce RTX 4090",
            "nvmlDeviceGetBrand": 5,
            "nvmlDeviceGetArchitecture": 8,
            "nvmlDeviceGetCudaComputeCapability": (8, 9),
            "nvmlDeviceGetVbiosVersion": "95.02.18.80.89",
            "nvmlDeviceGetInforomImageVersion": "G002.0000.00.03",
            "nvmlDeviceGetPersistenceMode": 0,
            "nvmlDeviceGetPerformanceState": 2,
            "nvmlDeviceGetNumFans": 2,
            "nvmlDeviceGetFanSpeed": 44,
            "nvmlDeviceGetFanSpeed_v2 0": 44,
            "nvmlDeviceGetFanSpeed_v2 1": 45,
            "nvmlDeviceGetSupportedEventTypes": 0x1C,
        }
    )
    yield from _memory(24564, 451, 18230, 32768)
    yield from _load(graphics=2520, memory=10501, video=1980, gpu=88, controller=43)
    yield from _power(usage=371_000, limit=450_000, lowest=150_000)
    yield from _temperature(gpu=66, memory=None, margin=None, thresholds=(95, 92, None, 84))
    yield from _pcie(generation=4, width=16)
    yield from _each(gpus, "4090", 0x268410DE, 0x40E51458, serial=None, busy_mib=17600)
    for gpu in range(gpus):
        yield "nvmlDeviceGetGraphicsRunningProcesses_v3", [(2100 + gpu, 310 * MIB)], gpu, None


def gb10(gpus: int) -> Iterator[Setting]:
    """Describe the GPU of a GB10 desktop: it shares the memory of the processor."""
    yield from _everywhere(_SYSTEM | _SERVER)
    yield from _everywhere(
        {
            "nvmlDeviceGetName": "NVIDIA GB10",
            "nvmlDeviceGetBrand": 5,
            "nvmlDeviceGetArchitecture": 10,
            "nvmlDeviceGetCudaComputeCapability": (12, 1),
            "nvmlDeviceGetVbiosVersion": "9A.0B.11.00.00",
            "nvmlDeviceGetPowerUsage": 38_400,
            "nvmlDeviceGetSupportedEventTypes": 0x1C,
        }
    )
    yield from _load(graphics=2418, memory=None, video=None, gpu=95, controller=0)
    yield from _temperature(gpu=63, memory=None, margin=None, thresholds=(None, None, None, None))
    yield from _pcie(generation=1, width=1)
    yield from _each(gpus, "GB10", 0x2E1210DE, 0x000010DE, serial=None, busy_mib=41200)
    for gpu in range(gpus):
        pci = f"0000000F:{gpu + 1:02X}:00.0 0x2E1210DE 0x000010DE"
        yield "nvmlDeviceGetPciInfo_v3", pci, gpu, None


def t4(gpus: int) -> Iterator[Setting]:
    """Describe T4 cards, the oldest kind: pages are retired, rows not remapped."""
    yield from _everywhere(_SYSTEM | _SERVER)
    yield from _everywhere(
        {
            "nvmlDeviceGetName": "Tesla T4",
            "nvmlDeviceGetBrand": 2,
            "nvmlDeviceGetArchitecture": 6,
            "nvmlDeviceGetCudaComputeCapability": (7, 5),
            "nvmlDeviceGetBoardPartNumber": "900-2G183-0000-001",
            "nvmlDeviceGetVbiosVersion": "90.04.96.00.9F",
            "nvmlDeviceGetInforomImageVersion": "G183.0200.00.02",
            "nvmlDeviceGetRetiredPages_v2 0": "",
            "nvmlDeviceGetRetiredPages_v2 1": "",
            "nvmlDeviceGetRetiredPagesPendingStatus": 0,
            "nvmlDeviceGetSupportedEventTypes": 0x1F,
        }
    )
    yield from _memory(15360, 448, 9120, 256)
    yield from _load(graphics=1590, memory=5000, video=1470, gpu=72, controller=38)
    yield from _power(usage=66_000, limit=70_000, lowest=60_000)
    yield from _temperature(gpu=61, memory=None, margin=None, thresholds=(96, 93, None, 85))
    yield from _pcie(generation=3, width=16)
    yield from _ecc(sram_status=False)
    yield from _fields((29, 30, 31, 92, 93), 0, ULONGLONG)
    yield from _each(gpus, "T4", 0x1EB810DE, 0x12A210DE, serial=1562920000000, busy_mib=8600)


# ---- building blocks ----------------------------------------------------------------------------


def _everywhere(values: dict[str, object]) -> Iterator[Setting]:
    for key, value in values.items():
        yield key, value, None, None


def _fields(ids: Iterable[int], value: int, value_type: int) -> Iterator[Setting]:
    for field_id in ids:
        yield f"field {field_id}", value, None, value_type


def _memory(total_mib: int, reserved_mib: int, used_mib: int, bar1_mib: int) -> Iterator[Setting]:
    free_mib = total_mib - reserved_mib - used_mib
    values = (total_mib, reserved_mib, free_mib, used_mib)
    yield "nvmlDeviceGetMemoryInfo_v2", [v * MIB for v in values], None, None
    bar1 = (bar1_mib, bar1_mib - 3, 3)
    yield "nvmlDeviceGetBAR1MemoryInfo", [v * MIB for v in bar1], None, None
    yield "nvmlDeviceGetConfComputeMemSizeInfo", (0, total_mib * 1024), None, None


def _load(
    graphics: int, memory: int | None, video: int | None, gpu: int, controller: int
) -> Iterator[Setting]:
    yield from _clocks(graphics, memory, video)
    yield "nvmlDeviceGetUtilizationRates", (gpu, controller), None, None
    for engine in ("Encoder", "Decoder", "Jpg", "Ofa"):
        yield f"nvmlDeviceGet{engine}Utilization", (0, 167_000), None, None


def _clocks(graphics: int, memory: int | None, video: int | None) -> Iterator[Setting]:
    for kind, mhz in enumerate((graphics, graphics, memory, video)):
        if mhz is not None:
            yield f"nvmlDeviceGetClockInfo {kind}", mhz, None, None
            yield f"nvmlDeviceGetMaxClockInfo {kind}", mhz, None, None
    yield from _fields((74, 75, 76, 77, 78, 79, 81, 269, 270, 271), 0, ULONGLONG)


def _power(usage: int, limit: int, lowest: int) -> Iterator[Setting]:
    yield from _everywhere(
        {
            "nvmlDeviceGetPowerUsage": usage,
            "nvmlDeviceGetEnforcedPowerLimit": limit,
            "nvmlDeviceGetPowerManagementLimit": limit,
            "nvmlDeviceGetPowerManagementDefaultLimit": limit,
            "nvmlDeviceGetPowerManagementLimitConstraints": (lowest, limit),
            "nvmlDeviceGetTotalEnergyConsumption": 981_234_567_890,
        }
    )
    # Scope 0 is the card; 1 would be the module of a Grace system, which none of these is.
    milliwatts = {185: usage, 186: usage + 4_000, 187: lowest, 188: limit, 189: limit, 190: limit}
    for field_id, value in (milliwatts | {192: limit}).items():
        yield f"field {field_id} scope 0", value, None, UINT
    yield "field 191 scope 0", 981_234_567_890, None, ULONGLONG
    yield "field 83", 981_234_567_890, None, ULONGLONG


def _temperature(
    gpu: int,
    memory: int | None,
    margin: int | None,
    thresholds: tuple[int | None, int | None, int | None, int | None],
) -> Iterator[Setting]:
    yield "nvmlDeviceGetTemperature 0", gpu, None, None
    if memory is not None:
        yield "field 82", memory, None, UINT
    if margin is not None:
        yield "nvmlDeviceGetMarginTemperature", margin, None, None
    for kind, celsius in enumerate(thresholds):
        if celsius is not None:
            yield f"nvmlDeviceGetTemperatureThreshold {kind}", celsius, None, None


def _tlimits(shutdown: int, slowdown: int, gpu_max: int) -> Iterator[Setting]:
    for field_id, value in ((193, shutdown), (194, slowdown), (195, gpu_max), (196, gpu_max)):
        yield f"field {field_id}", value, None, INT


def _pcie(generation: int, width: int) -> Iterator[Setting]:
    for name, value in (
        ("CurrPcieLinkGeneration", generation),
        ("MaxPcieLinkGeneration", generation),
        ("GpuMaxPcieLinkGeneration", generation),
        ("CurrPcieLinkWidth", width),
        ("MaxPcieLinkWidth", width),
    ):
        yield f"nvmlDeviceGet{name}", value, None, None
    yield from _fields((94, 95, 169, *range(173, 184)), 0, UINT)
    yield from _fields((197, 198), 5_123_456_789, ULONGLONG)


def _ecc(*, sram_status: bool = True) -> Iterator[Setting]:
    """ECC on, nothing ever counted; only the locations of Turing and later: DRAM and SRAM."""
    yield "nvmlDeviceGetEccMode", (1, 1), None, None
    for kind in (0, 1):
        for counter in (0, 1):
            yield f"nvmlDeviceGetTotalEccErrors {kind} {counter}", 0, None, None
            for location in (2, 7):
                key = f"nvmlDeviceGetMemoryErrorCounter {kind} {counter} {location}"
                yield key, 0, None, None
    yield from _fields((1, 2), 1, UINT)
    yield from _fields((3, 4, 5, 6, 11, 12, 22, 23), 0, ULONGLONG)
    if sram_status:
        yield "nvmlDeviceGetSramEccErrorStatus", [0] * 12, None, None


def _repair(banks: int) -> Iterator[Setting]:
    yield "nvmlDeviceGetRemappedRows", (0, 0, 0, 0), None, None
    yield "nvmlDeviceGetRowRemapperHistogram", (banks, 0, 0, 0, 0), None, None
    yield from _fields((142, 143, 144, 145), 0, UINT)


def _recovery() -> Iterator[Setting]:
    yield "nvmlDeviceGetRepairStatus", (0, 0), None, None
    yield "nvmlDeviceGetUnrepairableMemoryFlag_v1", 0, None, None
    yield from _fields((230,), 0, UINT)


def _nvlink4(links: int, version: int, speed: int) -> Iterator[Setting]:
    """Give links with DL error counters and data counters in KiB."""
    yield from _link_basics(links, version, speed)
    yield from _per_link((138, 139, 140, 141), links, 7_340_032)
    yield from _per_link((161, 162, 163), links, 0)
    for link in range(links):
        for kind in range(5):
            yield f"nvmlDeviceGetNvLinkErrorCounter {link} {kind}", 0, None, None


def _nvlink5(links: int) -> Iterator[Setting]:
    """Give links with packet and byte counters, bit error rates and FEC bins."""
    yield from _link_basics(links, version=7, speed=53_125)
    yield from _per_link((201, 202, 203, 204), links, 91_234_567)
    yield from _per_link((*range(206, 216), 219, 221), links, 0)
    yield from _per_link((220, 222), links, 0xF01)
    yield from _per_link(range(235, 251), links, 0)


def _link_basics(links: int, version: int, speed: int) -> Iterator[Setting]:
    yield from _fields((91, 147), links, UINT)
    yield from _fields((90,), speed, UINT)
    for link in range(links):
        yield f"nvmlDeviceGetNvLinkState {link}", 1, None, None
        for field_id, value in ((164, speed), (165, 1), (166, version)):
            yield f"field {field_id} scope {link}", value, None, UINT


def _per_link(ids: Iterable[int], links: int, value: int) -> Iterator[Setting]:
    for field_id in ids:
        for link in range(links):
            yield f"field {field_id} scope {link}", value, None, ULONGLONG
        yield f"field {field_id} scope {ALL_LINKS}", value * links, None, ULONGLONG


def _each(
    gpus: int, mark: str, device: int, subsystem: int, *, serial: int | None, busy_mib: int
) -> Iterator[Setting]:
    """Tell the cards apart; each runs process 4200 + its number unless it holds no memory."""
    for gpu in range(gpus):
        bus = _BUSES[gpu] if gpu < len(_BUSES) else 0x20 + gpu
        pci = f"00000000:{bus:02X}:00.0 {device:#010x} {subsystem:#010x}"
        tag = mark.encode().hex()[:8].ljust(8, "0")
        yield "nvmlDeviceGetUUID", f"GPU-{tag}-1111-4222-8333-{gpu:012x}", gpu, None
        yield "nvmlDeviceGetPciInfo_v3", pci, gpu, None
        yield "nvmlDeviceGetModuleId", gpu + 1, gpu, None
        if serial is not None:
            yield "nvmlDeviceGetSerial", str(serial + gpu), gpu, None
        processes = [(4200 + gpu, busy_mib * MIB)] if busy_mib else ""
        yield "nvmlDeviceGetComputeRunningProcesses_v3", processes, gpu, None


def _mig_devices(gpu: int) -> Iterator[Setting]:
    """Give two 3g.40gb instances; the list of the card holds the processes of both."""
    both = []
    for mig, instance in enumerate((1, 2)):
        process = (4200 + 10 * gpu + mig, 14_900 * MIB, instance, 0)
        both.append(process)
        for key, value in (
            ("nvmlDeviceGetUUID", f"MIG-{'a100' * 2}-1111-4222-8333-{gpu:06x}{instance:06x}"),
            ("nvmlDeviceGetName", "NVIDIA A100-SXM4-80GB MIG 3g.40gb"),
            ("nvmlDeviceGetGpuInstanceId", instance),
            ("nvmlDeviceGetComputeInstanceId", 0),
            ("nvmlDeviceGetAttributes_v2", (42, 3, 2, 0, 0, 0, 3, 3, 40_192)),
            (
                "nvmlDeviceGetMemoryInfo_v2",
                [v * MIB for v in (40_192, 300, 40_192 - 300 - 15_000, 15_000)],
            ),
            ("nvmlDeviceGetBAR1MemoryInfo", [v * MIB for v in (65_536, 65_535, 1)]),
            ("nvmlDeviceGetComputeRunningProcesses_v3", [process]),
        ):
            yield key, value, (gpu, mig), None
    yield "nvmlDeviceGetComputeRunningProcesses_v3", both, gpu, None
