# SPDX-License-Identifier: Apache-2.0
"""MIG: mode of the card, and its instances with their own memory and processes.

Handles of instances die and are used again when instances are rebuilt, so they
are taken anew at every pass and the instance is known by its UUID.
"""

from __future__ import annotations

import math
import re

from cardwatch.nvml.codes import GPU_IS_LOST, NOT_FOUND, DriverError, Outcome
from cardwatch.readings.card import CardLost, CardPass, Memo
from cardwatch.readings.processes import count
from cardwatch.sample import MigSample
from cardwatch.text import label

_PROFILE = re.compile(r"MIG (\S+)\s*$")
_FAMILIES = ("gpu_mig_memory_total_bytes", "gpu_mig_memory_used_bytes", "gpu_mig_memory_free_bytes")
_MAX_INSTANCES = 64


def read(card: CardPass) -> None:
    """Read the MIG mode and, where it is on, every instance."""
    if not card.wants("gpu_mig_mode_enabled"):
        return
    with card.attempt("gpu_mig_mode_enabled"):
        current, _pending = card.ask("DeviceGetMigMode")
        card.put("gpu_mig_mode_enabled", current)
        if current == 1:
            _read_instances(card)


def _read_instances(card: CardPass) -> None:
    slots = 0
    with card.attempt("gpu_mig_info"):
        slots = int(card.ask("DeviceGetMaxMigDeviceCount"))
    for index in range(min(slots, _MAX_INSTANCES)):
        with card.attempt("gpu_mig_info"):  # one that fails must not hide those after it
            _read_instance(card, index)


def _read_instance(card: CardPass, index: int) -> None:
    try:
        handle = card.driver.call("DeviceGetMigDeviceHandleByIndex", card.handle, index)
    except DriverError as error:
        if error.code == NOT_FOUND:  # a hole: instances keep their index
            return
        if error.code == GPU_IS_LOST:
            raise CardLost from None
        raise
    instance = CardPass(card.driver, handle, Memo(card.memo.clock), card.profile)
    sample = MigSample(
        uuid=label(str(instance.ask("DeviceGetUUID"))),
        gpu_instance=_number(instance, "DeviceGetGpuInstanceId"),
        compute_instance=_number(instance, "DeviceGetComputeInstanceId"),
        profile=_profile(instance, card),
        rows=instance.rows,
    )
    _read_memory(instance)
    count(instance, "gpu_mig_process_count")
    for family, fault in instance.faults.items():
        card.faults.setdefault(family, fault)
    card.mig.append(sample)


def _number(instance: CardPass, call: str) -> str:
    try:
        return str(int(instance.ask(call)))
    except DriverError:
        return ""


def _profile(instance: CardPass, card: CardPass) -> str:
    """Return the profile, ``3g.40gb``, from the instance's name or else its attributes."""
    try:
        match = _PROFILE.search(str(instance.ask("DeviceGetName")))
        if match:
            return label(match[1])
        gpu_slices, compute_slices, megabytes = instance.ask("DeviceGetAttributes")
    except DriverError:
        return ""
    shape = f"{gpu_slices}g.{_gigabytes(megabytes, card)}gb"
    return shape if compute_slices == gpu_slices else f"{compute_slices}c.{shape}"


def _gigabytes(megabytes: int, card: CardPass) -> int:
    """Return the memory in a profile's name: eighths of the card's, as NVIDIA's tools count.

    An instance has a little less than its name says: 40192 MB of 81920 are "40gb".
    """
    total = card.rows.get("gpu_memory_total_bytes")
    if total is None:
        return math.ceil(megabytes / 1024)
    eighths = math.ceil(8 * megabytes * 2**20 / total[0][1])
    return int(eighths / 8 * math.ceil(total[0][1] / 2**30) + 0.5)


def _read_memory(instance: CardPass) -> None:
    with instance.attempt(*_FAMILIES):
        try:
            total, _reserved, free, used = instance.ask("DeviceGetMemoryInfo_v2")
        except DriverError as error:
            if error.outcome is not Outcome.UNSUPPORTED:
                raise
            total, free, used = instance.ask("DeviceGetMemoryInfo")
        for family, value in zip(_FAMILIES, (total, used, free), strict=True):
            instance.put(family, value)
