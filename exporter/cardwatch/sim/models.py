# SPDX-License-Identifier: Apache-2.0
"""The card models that a simulated node can hold, as data.

Owns what is fixed per model; what a card does over time is in ``card``.

Figures come from NVIDIA's data sheets, the MIG user guide and ``nvidia-smi -q``
outputs in public issue reports (L40S: isaac-sim/IsaacSim#228; A100:
NVIDIA/DCGM#152; H100 clocks: NVIDIA/DCGM#120; RTX 4090: netdata/netdata#15755;
T4: NVIDIA/nvidia-docker#1628; GB10: Syllo/nvtop#426). Firmware and part numbers
have the right shape but stand for no particular board.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20

TURING, AMPERE, ADA, HOPPER, BLACKWELL = 6, 7, 8, 9, 10
"""``nvmlDeviceArchitecture_t``."""

REASON_BITS = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clock_setting": 0x100,
    "board_limit": 0x200,
    "reliability": 0x400,
}

_REASONS = 0x1FF
_REASONS_NEWER = 0x7FF


@dataclass(frozen=True)
class Clocks:
    """Highest and idle clocks in megahertz."""

    sm: int
    memory: int
    video: int
    idle_sm: int
    idle_memory: int | None  # None: the card does not tell its memory clock


@dataclass(frozen=True)
class Limits:
    """Power limits in milliwatts."""

    default: int
    minimum: int
    maximum: int


@dataclass(frozen=True)
class Thresholds:
    """Temperatures in degrees Celsius at which the card acts."""

    shutdown: int
    slowdown: int
    gpu_max: int
    memory_max: int | None = None


@dataclass(frozen=True)
class NvLink:
    """NVLink of a model; speed in MB/s per link and direction, as NVML tells it."""

    generation: int
    links: int
    speed: int


@dataclass(frozen=True)
class MigProfile:
    """One MIG profile: its name, compute slices (of 7) and memory slices (of 8)."""

    name: str
    slices: int
    memory_slices: int


@dataclass(frozen=True, kw_only=True)
class Model:
    """What every card of one model has in common. None, 0 and () mean: lacks it."""

    key: str
    name: str
    architecture: int
    compute: tuple[int, int]
    driver: int  # first driver branch that knows the card
    memory_mib: int | None
    reserved_mib: int = 0
    bar1_mib: int | None = None
    process_mib: int  # what a job of this card holds at most
    clocks: Clocks
    idle_w: float
    busy_w: float
    limits: Limits | None
    thresholds: Thresholds
    memory_temperature: bool = False
    fans: int = 0
    ecc: tuple[str, ...] = ()
    ecc_off_garbage: bool = False  # field values lie when ECC is off (facts/nvml.md, ECC)
    remap_banks: int = 0
    retired_pages: bool = False
    nvlink: NvLink | None = None
    pcie: tuple[int, int]  # generation, width
    idle_generation: int | None = None  # PCIe generation at idle, where the link rests
    fabric: bool = False
    mig: tuple[MigProfile, ...] = ()
    reasons: int = _REASONS
    policies: bool = True  # has the PERF_POLICY and event reason counters
    average_power: bool = True  # power draw is a 1 s average: not on GA100 and older
    smoothing: bool = False  # power smoothing settings among the fields
    jpeg: bool = True
    ofa: bool = True
    video_load: float = 0.0  # share of the load that reaches encoder and decoder
    idle_state: int = 0
    vbios: str
    inforom: str | None
    board_part: str | None
    serial: str | None  # first digits
    pci_domain: int = 0
    desktop: bool = False  # runs a display server

    @property
    def ampere_or_newer(self) -> bool:
        """Row remapping and its relatives came with Ampere."""
        return self.architecture >= AMPERE


def _profiles(*names: str) -> tuple[MigProfile, ...]:
    """Profiles in the order given; the second ``1g`` has twice the memory."""
    memory = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}
    rows: list[MigProfile] = []
    for name in names:
        slices = int(name[0])
        double = slices == 1 and any(row.slices == 1 for row in rows)
        rows.append(MigProfile(name, slices, memory[slices] * (2 if double else 1)))
    return tuple(rows)


_DATACENTER_ECC = ("dram", "sram")

H100 = Model(
    key="H100",
    name="NVIDIA H100 80GB HBM3",
    architecture=HOPPER,
    compute=(9, 0),
    driver=525,
    memory_mib=81_559,
    reserved_mib=551,
    bar1_mib=131_072,
    process_mib=78_000,
    clocks=Clocks(1980, 2619, 1545, 345, 2619),
    idle_w=72.0,
    busy_w=690.0,
    limits=Limits(700_000, 200_000, 700_000),
    thresholds=Thresholds(92, 89, 87, 95),
    memory_temperature=True,
    ecc=_DATACENTER_ECC,
    ecc_off_garbage=True,
    remap_banks=2560,
    nvlink=NvLink(4, 18, 26_562),
    pcie=(5, 16),
    fabric=True,
    mig=_profiles("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    vbios="96.00.89.00.01",
    inforom="G520.0200.00.05",
    board_part="692-2G520-0200-000",
    serial="165",
)

H200 = Model(
    key="H200",
    name="NVIDIA H200",
    architecture=HOPPER,
    compute=(9, 0),
    driver=550,
    memory_mib=143_771,
    reserved_mib=612,
    bar1_mib=262_144,
    process_mib=138_000,
    clocks=Clocks(1980, 3201, 1545, 345, 3201),
    idle_w=76.0,
    busy_w=690.0,
    limits=Limits(700_000, 200_000, 700_000),
    thresholds=Thresholds(92, 89, 87, 95),
    memory_temperature=True,
    ecc=_DATACENTER_ECC,
    ecc_off_garbage=True,
    remap_banks=3072,
    nvlink=NvLink(4, 18, 26_562),
    pcie=(5, 16),
    fabric=True,
    mig=_profiles("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
    vbios="96.00.A5.00.01",
    inforom="G520.0280.00.04",
    board_part="692-2G520-0280-001",
    serial="165",
)

A100 = Model(
    key="A100",
    name="NVIDIA A100-SXM4-80GB",
    architecture=AMPERE,
    compute=(8, 0),
    driver=450,
    memory_mib=81_920,
    reserved_mib=904,
    bar1_mib=131_072,
    process_mib=77_000,
    clocks=Clocks(1410, 1593, 1290, 210, 1593),
    idle_w=62.0,
    busy_w=394.0,
    limits=Limits(400_000, 100_000, 400_000),
    thresholds=Thresholds(92, 89, 85, 95),
    memory_temperature=True,
    ecc=_DATACENTER_ECC,
    ecc_off_garbage=True,
    remap_banks=640,
    nvlink=NvLink(3, 12, 25_000),
    pcie=(4, 16),
    mig=_profiles("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    average_power=False,
    vbios="92.00.45.00.05",
    inforom="G506.0210.00.04",
    board_part="692-2G506-0212-002",
    serial="156",
)

B200 = Model(
    key="B200",
    name="NVIDIA B200",
    architecture=BLACKWELL,
    compute=(10, 0),
    driver=570,
    memory_mib=183_359,
    reserved_mib=743,
    bar1_mib=262_144,
    process_mib=176_000,
    clocks=Clocks(1965, 3996, 1965, 120, 3996),
    idle_w=142.0,
    busy_w=985.0,
    limits=Limits(1_000_000, 200_000, 1_000_000),
    thresholds=Thresholds(92, 89, 87, 95),
    memory_temperature=True,
    ecc=_DATACENTER_ECC,
    ecc_off_garbage=True,
    remap_banks=4096,
    nvlink=NvLink(5, 18, 53_125),
    pcie=(5, 16),
    fabric=True,
    mig=_profiles("1g.23gb", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"),
    reasons=_REASONS_NEWER,
    smoothing=True,
    vbios="97.00.82.00.24",
    inforom="G548.0201.00.06",
    board_part="692-2G548-0200-001",
    serial="165",
)

L40S = Model(
    key="L40S",
    name="NVIDIA L40S",
    architecture=ADA,
    compute=(8, 9),
    driver=535,
    memory_mib=46_068,
    reserved_mib=593,
    bar1_mib=65_536,
    process_mib=43_000,
    clocks=Clocks(2520, 9001, 1965, 210, 405),
    idle_w=33.0,
    busy_w=344.0,
    limits=Limits(350_000, 100_000, 350_000),
    thresholds=Thresholds(100, 95, 88),
    ecc=_DATACENTER_ECC,
    remap_banks=192,
    pcie=(4, 16),
    idle_generation=1,
    video_load=0.25,
    idle_state=8,
    vbios="95.02.66.00.15",
    inforom="G133.0242.00.03",
    board_part="900-2G133-0080-000",
    serial="165",
)

T4 = Model(
    key="T4",
    name="Tesla T4",
    architecture=TURING,
    compute=(7, 5),
    driver=410,
    memory_mib=15_360,
    reserved_mib=446,
    bar1_mib=256,
    process_mib=13_800,
    clocks=Clocks(1590, 5001, 1470, 300, 405),
    idle_w=10.0,
    busy_w=69.0,
    limits=Limits(70_000, 60_000, 70_000),
    thresholds=Thresholds(96, 93, 85),
    ecc=_DATACENTER_ECC,
    retired_pages=True,
    pcie=(3, 16),
    idle_generation=1,
    average_power=False,
    jpeg=False,
    video_load=0.35,
    idle_state=8,
    vbios="90.04.96.00.9F",
    inforom="G183.0200.00.02",
    board_part="900-2G183-0000-001",
    serial="132",
)

RTX_4090 = Model(
    key="RTX4090",
    name="NVIDIA GeForce RTX 4090",
    architecture=ADA,
    compute=(8, 9),
    driver=525,
    memory_mib=24_564,
    reserved_mib=346,
    bar1_mib=256,
    process_mib=22_400,
    clocks=Clocks(3105, 10_501, 2415, 210, 405),
    idle_w=21.0,
    busy_w=441.0,
    limits=Limits(450_000, 150_000, 600_000),
    thresholds=Thresholds(100, 97, 90),
    fans=2,
    pcie=(4, 16),
    idle_generation=1,
    policies=False,
    video_load=0.15,
    idle_state=8,
    vbios="95.02.3C.00.8C",
    inforom="G002.0000.00.03",
    board_part=None,
    serial=None,
    desktop=True,
)

GB10 = Model(
    key="GB10",
    name="NVIDIA GB10",
    architecture=BLACKWELL,
    compute=(12, 1),
    driver=580,
    memory_mib=None,  # unified memory: NVML answers NOT_SUPPORTED
    process_mib=98_000,
    clocks=Clocks(3003, 0, 2418, 208, None),
    idle_w=4.5,
    busy_w=92.0,
    limits=None,
    thresholds=Thresholds(104, 99, 95),
    pcie=(1, 1),  # what the driver tells of a chip without a slot
    ofa=False,
    idle_state=8,
    vbios="9A.0B.25.00.00",
    inforom=None,
    board_part=None,
    serial=None,
    pci_domain=0xF,
)

MODELS: dict[str, Model] = {
    model.key: model for model in (H100, H200, A100, B200, L40S, T4, RTX_4090, GB10)
}
"""Model by the name that a scenario file gives it."""
