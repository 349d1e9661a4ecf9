# SPDX-License-Identifier: Apache-2.0
"""One GPU event, whoever saw it: the kernel log or the driver library."""

from __future__ import annotations

from dataclasses import dataclass

XID = "xid"
SXID = "sxid"
OFF_BUS = "gpu_off_bus"
INIT_FAILED = "gpu_init_failed"


@dataclass(frozen=True)
class Event:
    """What one event says, before it is classified. None: not told.

    kind           ``xid``, ``sxid``, ``gpu_off_bus`` or ``gpu_init_failed``.
    time           wall clock seconds of the kernel record.
    uptime         seconds since boot of the kernel record.
    pci            ``0000:3b:00``, of the GPU or, for an SXid, of the switch.
    uuid           known to NVML events, and to readers that can map ``pci``.
    code           Xid or SXid number.
    mig_gi, mig_ci GPU and compute instance on a card in MIG mode.
    severity       ``fatal``, ``nonfatal``, ``correctable`` where the text has the word.
    recovery_from, recovery_to  values of Xid 154, by its hex numbers.
    reset_required, drain_required  RST and D-RST flags of Xid 94 and 95.
    injected       the injected flag of an NVLink 5 line.
    unit, link     NVLink 5 unit and link number; -1 is the whole GPU. ``link`` also for SXid, 74.
    status         hex words of an NVLink 5 line: interrupt info, error status, data.
    switch         name of the switch, ``nvidia-nvswitch0``.
    message        the text after code, pid and name.
    """

    kind: str
    time: float | None = None
    pci: str | None = None
    uuid: str | None = None
    code: int | None = None
    pid: int | None = None
    process: str | None = None
    mig_gi: int | None = None
    mig_ci: int | None = None
    severity: str | None = None
    recovery_from: int | None = None
    recovery_to: int | None = None
    root_cause_xid: int | None = None
    reset_required: bool | None = None
    drain_required: bool | None = None
    injected: bool | None = None
    unit: str | None = None
    link: int | None = None
    status: tuple[int, ...] = ()
    switch: str | None = None
    message: str = ""
    uptime: float | None = None
