# SPDX-License-Identifier: Apache-2.0
"""Everything the page shows at one moment, as series by family.

Pure: given the book of cards, the source and the host's facts it returns rows.
What is not known gives no row.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cardwatch import __version__
from cardwatch.exposition.text import Series
from cardwatch.families import BY_NAME
from cardwatch.families.record import Profile
from cardwatch.host.facts import HostFacts
from cardwatch.sample import CardSample, Rows
from cardwatch.supervisor.cards import View
from cardwatch.supervisor.gpu import GpuSource

SOURCE = "gpu"

_LABELS = {name: (len(f.scope.labels), len(f.labels)) for name, f in BY_NAME.items()}
"""Number of labels of the scope, and of the family's own."""
_STARTING = "starting"


@dataclass(frozen=True)
class Identity:
    """What does not change while the process lives."""

    node: str
    backend: str
    profile: Profile
    interval: float
    expected_gpus: int | None = None


@dataclass(frozen=True)
class Snapshot:
    """The state shown, for the page, the JSON and the status page alike.

    source_up  None on a node where nothing knows of a card.
    """

    identity: Identity
    time: float
    views: list[View]
    source_up: bool | None
    source_error: str | None
    host: HostFacts
    node: Mapping[str, str]
    listed: int | None
    ready: bool
    reason: str


def take(identity: Identity, source: GpuSource, host: HostFacts) -> Snapshot:
    """Return the snapshot of this moment."""
    now = time.monotonic()
    away = source.away
    views = source.cards.views(now, away)
    listed = None if away is not None else source.listed
    up = _source_up(source, host, identity, views, now)
    error = _source_error(source, views, up)
    ready, reason = _readiness(source, up, error)
    return Snapshot(
        identity, round(time.time(), 3), views, up, error, host, source.node, listed, ready, reason
    )


def _source_up(
    source: GpuSource, host: HostFacts, identity: Identity, views: list[View], now: float
) -> bool | None:
    if source.away is None and source.cards.source_fresh(now):
        return True
    frame = source.frame
    if source.away is None and frame is not None and frame.listed == 0 and not views:
        return True
    knows = bool(views) or bool(host.gpus) or bool(identity.expected_gpus) or bool(source.host)
    return False if knows or not source.started else None


def _source_error(source: GpuSource, views: list[View], up: bool | None) -> str | None:  # noqa: FBT001
    if source.detached_until is not None:
        return "detached"
    if source.away is not None:
        return source.away[1]
    age = source.oldest_call_age
    if age is not None and age >= source.deadline and up is not True:
        return "timeout"
    if up is not False:
        return None
    causes = {view.cause for view in views if view.cause}
    if not source.started:
        return _STARTING
    return causes.pop() if len(causes) == 1 else "unknown_error"


def _readiness(source: GpuSource, up: bool | None, error: str | None) -> tuple[bool, str]:  # noqa: FBT001
    if not source.started and error in (None, _STARTING):
        return False, "the first sample is not done"
    if up is False or source.detached_until is not None:
        return False, f"source gpu is down: {error or 'unknown_error'}"
    return True, "ok"


@dataclass
class SeriesBuilder:
    """Builds the series of a snapshot. One per process: it holds nothing but settings.

    more  puts the series of events and verdicts, where these are watched.
    """

    dropped: Callable[[], Mapping[str, int]]
    more: Callable[[Callable[..., None], Snapshot], None] | None = None
    _rows: dict[str, list[tuple[tuple[str, ...], float]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def build(self, snap: Snapshot, source: GpuSource) -> Series:
        """Return every series of the page."""
        self._rows = defaultdict(list)
        self._node = (snap.identity.node,)
        self._node_facts(snap, source)
        for view in snap.views:
            self._card(view, snap)
        self._expected_links(snap)
        self._itself(snap, source)
        if self.more is not None:
            self.more(self._put, snap)
        return self._rows

    def _put(self, family: str, value: float | None, *labels: str) -> None:
        if value is not None:
            self._rows[family].append((self._node + labels, value))

    # -- node --------------------------------------------------------------------------

    def _node_facts(self, snap: Snapshot, source: GpuSource) -> None:
        host, node = snap.host, snap.node
        driver = node.get("driver_version") or host.module_version
        known = {
            "driver_version": driver,
            "driver_branch": f"R{driver.split('.')[0]}" if driver else "",
            "kernel_module": host.kernel_module,
            "cuda_driver_version": node.get("cuda_driver_version", ""),
            "nvml_version": node.get("nvml_version", ""),
            "kernel_release": host.kernel_release,
            "os": host.os,
        }
        labels = BY_NAME["gpu_node_info"].labels
        self._put("gpu_node_info", 1, *(known.get(label, "") for label in labels))
        self._put("gpu_node_detected_gpus", None if host.gpus is None else len(host.gpus))
        self._put("gpu_node_listed_gpus", snap.listed)
        self._put("gpu_node_expected_gpus", snap.identity.expected_gpus)
        self._put("gpu_node_boot_timestamp_seconds", host.boot_time)
        self._put("gpu_node_first_seen_timestamp_seconds", source.cards.roster.node_first_seen)

    # -- one card ------------------------------------------------------------------------

    def _card(self, view: View, snap: Snapshot) -> None:
        card = view.card
        who = (str(view.index), card.uuid)
        self._put("gpu_up", int(view.up), *who)
        self._put("gpu_state_info", 1, *who, view.state)
        if card.info:
            info = (card.info.get(label, "") for label in BY_NAME["gpu_info"].labels)
            self._put("gpu_info", 1, *who, *info)
        for (reading, error), count in sorted(card.errors.items()):
            self._put("cardwatch_reading_errors_total", count, *who, reading, error)
        if view.sample is not None:
            self._sample(view, view.sample, who, snap.identity.profile)

    def _sample(
        self, view: View, sample: CardSample, who: tuple[str, str], profile: Profile
    ) -> None:
        self._put("cardwatch_gpu_sample_timestamp_seconds", sample.time, *who)
        self._put("cardwatch_gpu_sample_duration_seconds", sample.duration, *who)
        for status, count in view.readings_by_status.items():
            if BY_NAME["cardwatch_readings"].profile_of(status) <= profile:
                self._put("cardwatch_readings", count, *who, status)
        scope = self._node + who
        self._extend(sample.rows, scope)
        self._throttle(view, sample, who, profile)
        for instance in sample.mig:
            labels = (
                instance.uuid,
                instance.gpu_instance,
                instance.compute_instance,
                instance.profile,
            )
            self._put("gpu_mig_info", 1, *who, *labels)
            self._extend(instance.rows, scope + labels)

    def _extend(self, rows: Mapping[str, Rows], scope: tuple[str, ...]) -> None:
        """Add rows of the child; what does not fit the table would break the page: dropped."""
        for family, family_rows in rows.items():
            of_scope, own = _LABELS.get(family, (-1, -1))
            if of_scope == len(scope):
                self._rows[family] += [
                    (scope + labels, value) for labels, value in family_rows if len(labels) == own
                ]

    def _throttle(
        self, view: View, sample: CardSample, who: tuple[str, str], profile: Profile
    ) -> None:
        """Active reasons, and the exporter's own sum for reasons the driver does not count."""
        if sample.reasons is None:
            return
        active, seconds = BY_NAME["gpu_throttle_reason_active"], "gpu_throttle_seconds_total"
        if active.profile <= profile:
            for reason, on in sample.reasons.items():
                self._put(active.name, int(on), *who, reason)
        counted = {labels[0] for labels, _ in sample.rows.get(seconds, ())}
        # A driver counter that failed just now must not be replaced by another count.
        if sample.faults.get(seconds) not in (None, "unsupported"):
            return
        for reason in sample.reasons:
            wanted = BY_NAME[seconds].profile_of(reason) <= profile
            if wanted and reason not in counted and not reason.startswith("bit_"):
                self._put(seconds, view.card.throttle.seconds.get(reason, 0.0), *who, reason)

    def _expected_links(self, snap: Snapshot) -> None:
        """Without a baseline, a card should have as many active links as the best of its kind."""
        active: dict[str, list[tuple[View, float]]] = defaultdict(list)
        for view in snap.views:
            rows = view.sample.rows.get("gpu_nvlink_active_links") if view.sample else None
            model = view.card.info.get("model")
            if rows and model:
                active[model].append((view, rows[0][1]))
        for cards in active.values():
            if len(cards) > 1:
                best = max(links for _, links in cards)
                for view, _ in cards:
                    self._put("gpu_nvlink_expected_links", best, str(view.index), view.card.uuid)

    # -- the exporter itself ----------------------------------------------------------------

    def _itself(self, snap: Snapshot, source: GpuSource) -> None:
        identity = snap.identity
        simulated = "true" if identity.backend in ("sim", "replay") else "false"
        self._put("cardwatch_build_info", 1, __version__, identity.backend, simulated)
        self._put("cardwatch_time_seconds", snap.time)
        if snap.source_up is not None:
            self._put("cardwatch_source_up", int(snap.source_up), SOURCE)
        if snap.source_error is not None:
            self._put("cardwatch_source_error", 1, SOURCE, snap.source_error)
        self._put(
            "cardwatch_source_last_success_timestamp_seconds", source.sample_success_time, SOURCE
        )
        self._put("cardwatch_source_interval_seconds", identity.interval, SOURCE)
        age = source.oldest_call_age
        self._put(
            "cardwatch_oldest_driver_call_start_timestamp_seconds",
            None if age is None else round(snap.time - age, 3),
        )
        self._put("cardwatch_child_restarts_total", source.restarts)
        self._put("cardwatch_children_abandoned", len(source.abandoned))
        problem = source.cards.roster.problem
        if source.cards.roster.directory is not None:
            self._put("cardwatch_source_up", int(problem is None), "state")
        if problem is not None:
            self._put("cardwatch_source_error", 1, "state", "not_usable")
        for family, count in sorted(self.dropped().items()):
            self._put("cardwatch_series_dropped_total", count, family)
        self._processes(source)

    def _processes(self, source: GpuSource) -> None:
        self._put("cardwatch_process_cpu_seconds_total", time.process_time(), "parent")
        self._put("cardwatch_process_resident_memory_bytes", resident_bytes(), "parent")
        if source.frame is not None and source.child is not None:
            self._put("cardwatch_process_cpu_seconds_total", source.frame.cpu, SOURCE)
            self._put("cardwatch_process_resident_memory_bytes", source.frame.resident, SOURCE)


def resident_bytes() -> int | None:
    """Return this process's resident memory, or None where procfs does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
