# SPDX-License-Identifier: Apache-2.0
"""One card as the driver sees it at one moment, in the driver's own terms.

Owns what both the getters (``answers``) and the field values (``fields``) tell:
counters since the driver was loaded, masks, states. Raises ``DriverError``
where a card or driver does not have something.
"""

from __future__ import annotations

from typing import Any

from cardwatch.nvml.codes import INVALID_ARGUMENT, NOT_SUPPORTED, DriverError
from cardwatch.sim.card import mig_uuid
from cardwatch.sim.faults import ECC_LOCATIONS
from cardwatch.sim.models import MIB, REASON_BITS, MigProfile, NvLink
from cardwatch.sim.plan import CardFacts, CardPlan

ECC_TYPES = ("corrected", "uncorrected")
_PCIE_LANE = 0.123e9  # bytes per second and lane, doubled by each generation
_INSTANCE_IDS = {7: (0,), 4: (1, 2), 3: (1, 2), 2: (3, 4, 5, 6), 1: (7, 8, 9, 10, 11, 12, 13)}
_MEMORY_SLICES = 8

# nvmlGpuFabricInfo health mask: 2-bit fields, of which 2 is "false" and 1 "true"
_FABRIC_HEALTHY = 2 | 2 << 2 | 2 << 4 | 2 << 6 | 1 << 8 | 1 << 12 | 1 << 14
_FABRIC_DEGRADED = _FABRIC_HEALTHY - 1

ProcessRow = tuple[int, "int | None", "int | None", "int | None"]


class View:
    """What holds for one card now. Cheap to make; calls of one pass share it."""

    def __init__(
        self, plan: CardPlan, facts: CardFacts, release: tuple[int, int], t: float
    ) -> None:
        self.plan, self.facts, self.release, self.t = plan, facts, release, t
        self.spec = plan.spec
        self.model = plan.spec.model
        self.card = plan.card
        self.physics = plan.physics(t)

    # power and temperature

    @property
    def power_mw(self) -> int:
        """Power as ``nvidia-smi`` tells it: a mean where the card takes one."""
        physics = self.physics
        return round(1000 * (physics.mean_power_w if self.model.average_power else physics.power_w))

    @property
    def energy_mj(self) -> int:
        """Energy since the driver was loaded."""
        energy = self.card.energy_j
        return int(1000 * (energy(self.t) - energy(self.facts.loaded)))

    @property
    def temperature(self) -> int:
        """Temperature of the chip."""
        return round(self.physics.temperature_c)

    # clocks

    @property
    def reasons(self) -> int:
        """Mask of the clock event reasons that hold."""
        mask = self.facts.reasons
        if self.physics.capped:
            mask |= REASON_BITS["sw_power_cap"]
        elif not self.physics.job.running and not mask:
            mask = REASON_BITS["gpu_idle"]
        return mask & self.model.reasons

    def reason_ns(self, reason: str) -> int:
        """Nanoseconds since the driver was loaded in which a reason held."""
        if not self.model.policies:
            raise DriverError(NOT_SUPPORTED)
        seconds = self.plan.reason_seconds
        return int(1e9 * (seconds(reason, self.t) - seconds(reason, self.facts.loaded)))

    # errors

    def ecc(self, kind: str, location: str, *, lifetime: bool) -> int:
        """Count ECC errors at one location, since the driver was loaded or ever."""
        hidden = self.facts.mig is not None and not lifetime
        if not self.spec.ecc or location not in self.model.ecc or hidden:
            raise DriverError(NOT_SUPPORTED)
        return self._ecc(kind, location, lifetime=lifetime)

    def _ecc(self, kind: str, location: str, *, lifetime: bool) -> int:
        count = self.plan.ecc(kind, location, self.t)
        return count if lifetime else count - self.plan.ecc(kind, location, self.facts.loaded)

    def ecc_total(self, kind: str, *, lifetime: bool) -> int:
        """Count ECC errors of the whole card."""
        if not self.spec.ecc or not self.model.ecc:
            raise DriverError(NOT_SUPPORTED)
        return sum(self._ecc(kind, location, lifetime=lifetime) for location in self.model.ecc)

    @property
    def replays(self) -> int:
        """PCIe replays since the driver was loaded."""
        return self.plan.replays(self.t) - self.plan.replays(self.facts.loaded)

    @property
    def row_remaps(self) -> CardFacts:
        """Facts of a card that remaps rows; not told while MIG instances exist."""
        if not self.model.remap_banks or self.facts.mig:
            raise DriverError(NOT_SUPPORTED)
        return self.facts

    @property
    def retired_pages(self) -> CardFacts:
        """Facts of a card that retires pages, the way before Ampere."""
        if not self.model.retired_pages:
            raise DriverError(NOT_SUPPORTED)
        return self.facts

    # memory

    @property
    def memory(self) -> tuple[int, int, int]:
        """Total, reserved and used bytes."""
        if self.model.memory_mib is None:
            raise DriverError(NOT_SUPPORTED)
        total, reserved = self.model.memory_mib * MIB, self.model.reserved_mib * MIB
        used = self.physics.memory_used + self.plan.leaked(self.t)
        if self.facts.mig is not None:
            used = sum(size or 0 for _, size, *_ in self.processes())
        return total, reserved, min(used, total - reserved)

    def processes(self, *, graphics: bool = False) -> list[ProcessRow]:
        """Give the running processes; with MIG one for each instance."""
        if graphics:
            return [(pid, size, None, None) for pid, size in self.physics.desktop_processes]
        leaked = self.plan.leaked(self.t)
        if self.facts.mig is None:
            rows = self.physics.processes
            room = (self.model.memory_mib or self.model.process_mib) * MIB
            return [(pid, min(size + leaked, room), None, None) for pid, size in rows]
        return [row for instance in self.instances() for row in instance.processes()]

    # NVLink

    @property
    def nvlink(self) -> NvLink:
        """The card's NVLink."""
        if self.model.nvlink is None:
            raise DriverError(NOT_SUPPORTED)
        return self.model.nvlink

    def link_up(self, link: int) -> bool:
        """Say whether a link is active."""
        if not 0 <= link < self.nvlink.links:
            raise DriverError(INVALID_ARGUMENT)
        return link not in self.facts.links_down

    def nvlink_bytes(self, *, received: bool) -> int:
        """Bytes over all links since the driver was loaded."""
        work = self.card.work
        per_second = 0.31 * self.nvlink.speed * self.nvlink.links * 1e6
        seconds = work(self.t) - work(self.facts.loaded)
        return int(per_second * (0.99 if received else 1.0) * seconds)

    def nvlink_errors(self, kind: str, link: int | None) -> int:
        """Errors of one link or of all since the driver was loaded."""
        if link is not None:
            self.link_up(link)
        count = self.plan.nvlink_errors
        return count(kind, link, self.t) - count(kind, link, self.facts.loaded)

    def fabric(self) -> tuple[int, int, int, int | None, int | None]:
        """Version, state, status, health mask and summary, as old drivers cut it."""
        if not self.model.fabric:
            raise DriverError(NOT_SUPPORTED)
        degraded = bool(self.facts.links_down)
        mask = _FABRIC_DEGRADED if degraded else _FABRIC_HEALTHY
        branch = self.release[0]
        if branch < 550:
            return 1, 3, 0, None, None
        return (2, 3, 0, mask, None) if branch < 580 else (3, 3, 0, mask, 2 if degraded else 1)

    # PCIe

    @property
    def pcie_generation(self) -> int:
        """Generation of the link now; some cards slow it down when idle."""
        generation = self.facts.pcie[0]
        if self.model.idle_generation is not None and not self.physics.job.running:
            return min(generation, self.model.idle_generation)
        return generation

    def pcie_bytes(self, *, received: bool) -> int:
        """Bytes over PCIe since the driver was loaded."""
        generation, width = self.model.pcie
        full = _PCIE_LANE * 2**generation * width
        work = self.card.work
        busy = (0.11 if received else 0.07) * full * (work(self.t) - work(self.facts.loaded))
        idle = 12_000.0 * (self.t - self.facts.loaded)
        return int(busy + idle)

    # MIG

    def instances(self) -> list[Instance]:
        """Give the MIG instances, each with the ids that the driver would choose."""
        rows: list[Instance] = []
        taken: set[int] = set()
        for position, profile in enumerate(self.facts.mig or ()):
            number = next(each for each in _INSTANCE_IDS[profile.slices] if each not in taken)
            taken.add(number)
            rows.append(Instance(self, position, profile, number))
        return rows


class Instance:
    """One MIG instance of a card; ``number`` is its GPU instance id."""

    def __init__(self, view: View, position: int, profile: MigProfile, number: int) -> None:
        self.view, self.position, self.profile, self.number = view, position, profile, number

    @property
    def uuid(self) -> str:
        """UUID of the instance."""
        card = self.view.card
        return mig_uuid(card.seed, card.number, self.position, self.profile.name)

    @property
    def memory_total(self) -> int:
        """Bytes that the instance has."""
        total, reserved, _ = self.view.memory
        return (total - reserved) * self.profile.memory_slices // _MEMORY_SLICES // MIB * MIB

    def processes(self) -> list[ProcessRow]:
        """Give the instance's one process, while the job of the card runs."""
        card, job = self.view.card, self.view.physics.job
        held = card.job_memory(job) * self.profile.memory_slices // _MEMORY_SLICES
        pid = card.job_pid(job, self.position + 1)
        return [(pid, held, self.number, 0)] if held else []

    @property
    def memory(self) -> tuple[int, int, int]:
        """Total, reserved and used bytes."""
        used = sum(row[1] or 0 for row in self.processes())
        return self.memory_total, 0, min(used, self.memory_total)


def location_name(number: Any) -> str:
    """Give the name of an ``nvmlMemoryLocation_t``."""
    if not isinstance(number, int) or not 0 <= number < len(ECC_LOCATIONS):
        raise DriverError(INVALID_ARGUMENT)
    return ECC_LOCATIONS[number]
