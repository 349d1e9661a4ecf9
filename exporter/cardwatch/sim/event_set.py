# SPDX-License-Identifier: Apache-2.0
"""Driver events of the simulated node: Xids of the scenario, as the library would tell them.

Codes 79, 119 and 120 stand in the kernel log only, as on real drivers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cardwatch.nvml.codes import GPU_IS_LOST, TIMEOUT, DriverError
from cardwatch.sim.faults import Fault

XID = 0x8
SUPPORTED = 0x8 | 0x100 | 0x4000 | 0x8000

_KERNEL_LOG_ONLY = frozenset({79, 119, 120})
_TURN_S = 0.02

Told = tuple[int, int, int, None, None]


@dataclass
class EventSet:
    """Cards registered, and how far the scenario was told. Keys are card numbers."""

    since: float
    cards: set[int] = field(default_factory=set)
    told: int = 0

    def wait(
        self,
        faults: Sequence[Fault],
        milliseconds: int,
        now: Callable[[], float],
        sleep: Callable[[float], None],
        lost: Callable[[int], bool],
    ) -> Told:
        """Return the next event; raises the codes of a time-out and of a lost card."""
        due = sorted(
            (f for f in faults if f.kind == "xid" and f.values["code"] not in _KERNEL_LOG_ONLY),
            key=lambda fault: fault.at,
        )
        fresh = [f for f in due if f.at > self.since and (f.gpu or 0) in self.cards]
        end = now() + milliseconds / 1000
        while True:
            if any(lost(card) for card in self.cards):
                raise DriverError(GPU_IS_LOST)
            if self.told < len(fresh) and fresh[self.told].at <= now():
                fault = fresh[self.told]
                self.told += 1
                return fault.gpu or 0, XID, int(fault.values["code"]), None, None
            if now() >= end:
                raise DriverError(TIMEOUT)
            sleep(_TURN_S)
