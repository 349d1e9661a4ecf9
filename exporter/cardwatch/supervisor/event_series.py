# SPDX-License-Identifier: Apache-2.0
"""Series of events and verdicts, from the journal's counters and the judge.

Every class is there at 0 for every card as soon as one source of Xids is up, so
that a rule sees the first event; series by code are born with their first event.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Callable, Mapping

from cardwatch.families.record import Profile
from cardwatch.journal.records import Counter, CounterKey
from cardwatch.kernlog.event import OFF_BUS, SXID, XID
from cardwatch.supervisor.cards import View
from cardwatch.supervisor.snapshot import Snapshot
from cardwatch.supervisor.watch import Watch
from cardwatch.xid.catalogue import CLASSES
from cardwatch.xid.classify import SEVERITIES

MAX_CODES = 64
"""Codes by card or switch that get series; what is over is counted as dropped."""

_FELL_OFF = 79
_DAY_S = 86400.0
_KMSG, _DRIVER_EVENTS, _JOURNAL = "kmsg", "nvml_events", "journal"

Put = Callable[..., None]
Counters = Mapping[CounterKey, Counter]


def put_all(put: Put, drop: Callable[[str, int], None], snap: Snapshot, watch: Watch) -> None:
    """Put every series of this topic. ``put`` takes family, value and labels after the node."""
    by_name = watch.counters()
    shown: set[str] = set()
    for view in snap.views:
        names = (view.card.uuid, f"pci-{view.card.pci}")
        shown.update(names)
        counters = {k: c for name in names for k, c in by_name.get(name, {}).items()}
        _put_card(put, drop, (str(view.index), view.card.uuid), counters, watch, snap)
        _put_verdict(put, view, watch)
        _put_times(put, view, watch, snap)
    for name, others in by_name.items():
        # A card that never told its name to us, but fell off the bus in the log.
        if name not in shown and _speaks(name, others, snap.time):
            _put_card(put, drop, ("", name), others, watch, snap)
    _put_switches(put, drop, by_name, has_switch=bool(snap.host.nvswitches))
    _put_sources(put, watch)


def _speaks(name: str, counters: Counters, now: float) -> bool:
    """Say whether the events of a card that is not here still matter: of a known one, for a day."""
    mine = [counter for key, counter in counters.items() if key.kind != SXID]
    if name.startswith("GPU-"):
        return any(counter.last_time > now - _DAY_S for counter in mine)
    return bool(mine)


def _put_card(
    put: Put,
    drop: Callable[[str, int], None],
    who: tuple[str, str],
    counters: Counters,
    watch: Watch,
    snap: Snapshot,
) -> None:
    if not watch.counting:
        return
    classes: Tally[str] = Tally(dict.fromkeys(CLASSES, 0))
    codes: dict[tuple[str, str], list[Counter]] = defaultdict(list)
    off_bus = 0
    for key, counter in counters.items():
        if key.kind == OFF_BUS or (key.kind == XID and key.code == _FELL_OFF):
            off_bus += counter.count
        if key.kind == XID:
            classes[key.cls] += counter.count
            codes[_code(key), key.cls].append(counter)
    for class_, count in classes.items():
        put("gpu_xid_class_errors_total", count, *who, class_)
    kept = sorted(codes.items(), key=lambda item: -max(c.last_time for c in item[1]))
    if len(kept) > MAX_CODES:
        drop("gpu_xid_errors_total", len(kept) - MAX_CODES)
    for labels, found in sorted(kept[:MAX_CODES]):
        put("gpu_xid_errors_total", sum(c.count for c in found), *who, *labels)
        newest = max(c.last_time for c in found)
        put("gpu_xid_last_timestamp_seconds", round(newest, 3), *who, *labels)
    if snap.identity.profile >= Profile.STANDARD:
        put("gpu_off_bus_events_total", off_bus, *who)


def _code(key: CounterKey) -> str:
    return "other" if key.code is None else str(key.code)


def _put_verdict(put: Put, view: View, watch: Watch) -> None:
    verdict = watch.verdicts.get(view.card.uuid)
    if verdict is None:
        return
    who = (str(view.index), view.card.uuid)
    put("gpu_health_state", verdict.state, *who)
    for held in verdict.conditions:
        put("gpu_health_condition", 1, *who, held.condition, held.tier)


def _put_times(put: Put, view: View, watch: Watch, snap: Snapshot) -> None:
    who = (str(view.index), view.card.uuid)
    put(
        "gpu_last_reset_timestamp_seconds",
        watch.last_reset(view, snap.host.boot_time),
        *who,
    )
    put(
        "gpu_ecc_uncorrected_last_increase_timestamp_seconds",
        watch.resets.ecc_grew.get(view.card.uuid),
        *who,
    )


def _put_switches(
    put: Put,
    drop: Callable[[str, int], None],
    by_name: Mapping[str, Counters],
    *,
    has_switch: bool,
) -> None:
    found = {key: c for counters in by_name.values() for key, c in counters.items()
             if key.kind == SXID}  # fmt: skip
    severities: Tally[str] = Tally(dict.fromkeys(SEVERITIES, 0) if has_switch or found else {})
    for key, counter in found.items():
        severities[key.severity or "unknown"] += counter.count
    for severity, count in severities.items():
        put("nvswitch_sxid_severity_errors_total", count, severity)
    kept = sorted(found.items(), key=lambda item: -item[1].last_time)
    if len(kept) > MAX_CODES:
        drop("nvswitch_sxid_errors_total", len(kept) - MAX_CODES)
    for key, counter in sorted(kept[:MAX_CODES], key=lambda item: (item[0].gpu, _code(item[0]))):
        labels = (key.gpu, _code(key), key.severity or "unknown")
        put("nvswitch_sxid_errors_total", counter.count, *labels)
        put("nvswitch_sxid_last_timestamp_seconds", round(counter.last_time, 3), *labels)


def _put_sources(put: Put, watch: Watch) -> None:
    kernel_log = watch.kernel_log
    if kernel_log is not None:
        status = kernel_log.status()
        _source(put, _KMSG, status.up, status.error or "starting", status.last_success)
        put("cardwatch_kmsg_records_lost_total", status.counts.lost)
    watching, error = watch.watching
    if watching is not None:
        _source(put, _DRIVER_EVENTS, watching, error, None)
    journal = watch.journal.status()
    if watch.options.directory is not None:
        problem = None if journal.problem is None else "not_usable"
        _source(put, _JOURNAL, problem is None, problem, journal.written_at)
    put("cardwatch_journal_events_dropped_total", journal.dropped)


def _source(put: Put, name: str, up: bool, error: str | None, success: float | None) -> None:  # noqa: FBT001
    put("cardwatch_source_up", int(up), name)
    if not up:
        put("cardwatch_source_error", 1, name, error or "unknown_error")
    stamp = None if success is None else round(success, 3)
    put("cardwatch_source_last_success_timestamp_seconds", stamp, name)
