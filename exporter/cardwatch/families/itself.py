# SPDX-License-Identifier: Apache-2.0
"""How the exporter itself is doing: whether what the page shows is fresh and complete.

Ages are `cardwatch_time_seconds` minus a timestamp of this page, never minus the clock of the
Prometheus server. Counters start again with the process.
"""

from __future__ import annotations

from collections.abc import Mapping

from cardwatch.families.record import Family, Profile, Scope, Type


def _node(
    name: str,
    metric_type: Type,
    help_text: str,
    source: Mapping[str, str],
    labels: tuple[str, ...] = (),
    unit: str | None = None,
    planned: str | None = None,
) -> Family:
    """Return a family about the exporter as a whole."""
    return Family(
        name,
        metric_type,
        help_text,
        scope=Scope.NODE,
        labels=labels,
        unit=unit,
        planned=planned,
        sources=source,
    )


def _gpu(
    name: str,
    metric_type: Type,
    help_text: str,
    source: str,
    labels: tuple[str, ...] = (),
    unit: str | None = None,
    split: Mapping[str, Profile] | None = None,
) -> Family:
    """Return a family about the sampling of one card."""
    return Family(
        name,
        metric_type,
        help_text,
        labels=labels,
        unit=unit,
        split=split or {},
        sources={"exporter": source},
    )


FAMILIES: tuple[Family, ...] = (
    _node(
        "cardwatch_build_info",
        Type.INFO,
        "Version of the exporter and the backend it reads from. simulated is true when the cards "
        "on this page are not real.",
        {"exporter": "package version and settings"},
        labels=("version", "backend", "simulated"),
    ),
    _node(
        "cardwatch_time_seconds",
        Type.GAUGE,
        "This host's clock when the page was rendered, which is every interval even without a "
        "new sample. Subtract timestamps of this page from it.",
        {"exporter": "clock at render"},
        unit="seconds",
    ),
    _node(
        "cardwatch_source_up",
        Type.GAUGE,
        "1 while this source (gpu, workload, kmsg, journal and others) delivers. gpu stands for "
        "the driver: one card that answers is enough. Absent for gpu on a node without cards.",
        {"exporter": "age of the source's last success"},
        labels=("source",),
    ),
    _node(
        "cardwatch_source_error",
        Type.GAUGE,
        "1 while this error keeps the source from delivering, absent otherwise; unknown_error if "
        "nothing better is known.",
        {"exporter": "last failure of the source"},
        labels=("source", "error"),
    ),
    _node(
        "cardwatch_source_last_success_timestamp_seconds",
        Type.GAUGE,
        "When the source last delivered; absent if it never did.",
        {"exporter": "clock at the end of the sample"},
        labels=("source",),
        unit="seconds",
    ),
    _node(
        "cardwatch_source_interval_seconds",
        Type.GAUGE,
        "Time between two readings of the source as set; judge its age in multiples of this.",
        {"exporter": "settings"},
        labels=("source",),
        unit="seconds",
    ),
    _gpu(
        "cardwatch_gpu_sample_timestamp_seconds",
        Type.GAUGE,
        "When the readings of this card on the page were taken. Stands still while the card does "
        "not answer.",
        "clock at the end of the card's sample",
        unit="seconds",
    ),
    _gpu(
        "cardwatch_gpu_sample_duration_seconds",
        Type.GAUGE,
        "How long the last complete sample of this card took, driver calls included.",
        "clock around the card's sample",
        unit="seconds",
    ),
    _node(
        "cardwatch_oldest_driver_call_start_timestamp_seconds",
        Type.GAUGE,
        "When the oldest driver call still open was made; absent when none is open. Its age tells "
        "how long the driver has been silent.",
        {"exporter": "call log of the sampling processes, read by the parent"},
        unit="seconds",
    ),
    _gpu(
        "cardwatch_readings",
        Type.GAUGE,
        "Readings of this card in the last sample, by status: ok, unsupported, denied or failed. "
        "unsupported is the card's nature, not an error.",
        "count over the last sample",
        labels=("status",),
        split={"unsupported": Profile.STANDARD, "denied": Profile.STANDARD},
    ),
    _gpu(
        "cardwatch_reading_errors_total",
        Type.COUNTER,
        "Readings of this card that failed, by reading and error: the driver's code in lower "
        "case, timeout, out_of_range or not_text. Born with the first error.",
        "count over all samples",
        labels=("reading", "error"),
    ),
    _node(
        "cardwatch_child_restarts_total",
        Type.COUNTER,
        "Sampling processes started anew after the first; each one ended, hung or was replaced.",
        {"exporter": "supervisor"},
    ),
    _node(
        "cardwatch_children_abandoned",
        Type.GAUGE,
        "Sampling processes that hang in the driver and could not be ended. Only the driver or a "
        "reboot frees them.",
        {"exporter": "supervisor"},
    ),
    _node(
        "cardwatch_kmsg_records_lost_total",
        Type.COUNTER,
        "Kernel log records that were overwritten before we read them; an event may have been "
        "among them.",
        {"exporter": "gaps in the sequence numbers of the kernel log"},
    ),
    _node(
        "cardwatch_journal_events_dropped_total",
        Type.COUNTER,
        "Events that the journal could not keep; they were counted, but will not be listed or "
        "outlive a restart.",
        {"exporter": "queue of the event journal"},
    ),
    _node(
        "cardwatch_process_visibility",
        Type.GAUGE,
        "1 while we see the host's processes, so that memory without a process means something; "
        "0 inside a process namespace of our own.",
        {"procfs": "<pid> of processes that the driver lists"},
        planned="ledger",
    ),
    _node(
        "cardwatch_series_dropped_total",
        Type.COUNTER,
        "Rows left out because their family had reached its cap, each time the page was rendered. "
        "Above 0 the family is incomplete.",
        {"exporter": "caps applied at render"},
        labels=("family",),
    ),
    _node(
        "cardwatch_process_cpu_seconds_total",
        Type.COUNTER,
        "Processor time of the exporter's own processes, user and system: parent, gpu, workload. "
        "Drops when a child is replaced.",
        {"procfs": "<pid>/stat"},
        labels=("process",),
        unit="seconds",
    ),
    _node(
        "cardwatch_process_resident_memory_bytes",
        Type.GAUGE,
        "Resident memory of the exporter's own processes. Pages they share count in each, so the "
        "sum is too high.",
        {"procfs": "<pid>/stat"},
        labels=("process",),
        unit="bytes",
    ),
)
