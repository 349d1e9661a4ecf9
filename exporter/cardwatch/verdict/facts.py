# SPDX-License-Identifier: Apache-2.0
"""What the judgement looks at, handed in at one moment: facts of each card and of the node.

Owns the input records and how a row is found in them. Never reads anything
itself and holds nothing from one moment to the next.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cardwatch.sample import Rows

NOT_FAILURES = frozenset({"unsupported", "denied"})
NOT_CREDIBLE = frozenset({"out_of_range"})

FUTURE_S = 60.0
"""An event stamped later than this from now tells of a wrong clock and is left out."""


@dataclass(frozen=True)
class SeenEvent:
    """One event of a card, repeats merged. Times are wall clock seconds of the kernel record.

    kind      ``xid``, ``gpu_off_bus`` or ``gpu_init_failed``.
    cls       class of the event: critical, hardware, contained, application, info, unknown.
    tier      page, ticket, observe or ignore, as the catalogue says.
    action    the catalogue's word for what to do.
    origin    what may cause it: hardware, link, firmware, driver, application. Empty: not told.
    """

    kind: str
    code: int | None
    cls: str
    tier: str
    action: str
    first_time: float
    last_time: float
    count: int = 1
    severity: str | None = None
    recovery_to: int | None = None
    origin: tuple[str, ...] = ()


@dataclass(frozen=True)
class CardFacts:
    """One card as it is shown now.

    state       one of ``sample.STATES``; ``cause`` is the error behind one that is not ok.
    rows, faults  of the sample that may be shown; ``rows`` is None when none may.
    sampled_at  monotonic time of that sample, unchanged until the next one; None without.
    throttled   seconds per throttle reason that the exporter itself has added up.
    events      events of this card, in any order; those before the last reset may be among them.
    last_reset  wall clock of the newest boot, driver load, reset, or clearing by hand
                (`cardwatch events clear`); None: unknown, which settles nothing.
    uncorrected_increased  wall clock of the last growth of the uncorrected ECC count, as kept in
                the state directory; None when it never grew or nobody keeps it.
    expected_links  NVLink links by the baseline; None leaves it to the peers.
    mig         the card is split into MIG instances.
    """

    uuid: str
    index: int = 0
    model: str = ""
    state: str = "ok"
    up: bool = True
    cause: str | None = None
    rows: Mapping[str, Rows] | None = None
    faults: Mapping[str, str] = field(default_factory=dict)
    sampled_at: float | None = None
    throttled: Mapping[str, float] = field(default_factory=dict)
    events: Sequence[SeenEvent] = ()
    last_reset: float | None = None
    uncorrected_increased: float | None = None
    expected_links: float | None = None
    mig: bool = False

    def one(self, family: str, *labels: str) -> float | None:
        """Return the value of one row, or None."""
        for row_labels, value in self.family(family):
            if row_labels == labels:
                return value
        return None

    def family(self, family: str) -> Rows:
        """Return the rows of a family; empty when there are none."""
        return [] if self.rows is None else self.rows.get(family, [])

    def total(self, family: str, first_label: str) -> float | None:
        """Return the sum of the rows with this first label, or None when there is none."""
        values = [v for labels, v in self.family(family) if labels[:1] == (first_label,)]
        return math.fsum(values) if values else None

    def faulty(self, kinds: frozenset[str]) -> list[str]:
        """Return the families whose fault is one of these, by name."""
        return sorted(name for name, fault in self.faults.items() if fault in kinds)

    def failing(self) -> list[str]:
        """Return the families that should read and do not, by name."""
        benign = NOT_FAILURES | NOT_CREDIBLE
        return sorted(name for name, fault in self.faults.items() if fault not in benign)

    def since_reset(self, wall: float) -> tuple[SeenEvent, ...]:
        """Return the events that no reset has settled, oldest first.

        A missing reset time settles nothing: better a warning too many than one too few.
        """
        reset = -math.inf if self.last_reset is None else self.last_reset
        found = [e for e in self.events if reset <= e.last_time <= wall + FUTURE_S]
        return tuple(sorted(found, key=_age))


def _age(event: SeenEvent) -> tuple[float, float, str]:
    """Order events by age; of equal ones always the same comes last, in whatever order given."""
    return event.last_time, event.first_time, repr(event)


@dataclass(frozen=True)
class NodeFacts:
    """The node as it is shown now.

    driver_error  why the driver cannot be used, as in ``cardwatch_source_error``; None if it can.
    listed        cards the driver lists; ``detected`` those on the PCI bus. None: not told.
    source_up     as in ``cardwatch_source_up``; None on a node without cards.
    """

    driver_error: str | None = None
    listed: int | None = None
    detected: int | None = None
    source_up: bool | None = True
