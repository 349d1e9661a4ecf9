# SPDX-License-Identifier: Apache-2.0
"""The family table against the contract, its own rules and the generated page."""

from __future__ import annotations

import importlib.util
import re
from collections import defaultdict
from pathlib import Path
from types import ModuleType

import pytest

from cardwatch import families
from cardwatch.families import Family, Profile, Scope
from cardwatch.families.record import MAX_INFO_LABELS, MAX_LABELS, Type

ROOT = Path(__file__).resolve().parents[1]

# Section 5 of the contract, by hand: topic, then `name{own labels} scope profile`.
# Scope: N node, G GPU, M MIG. Profile: C core, S standard, F full; `sm=C` where rows differ
# by first label, `nonzero=S` where rows that are not 0 come earlier. A deeper line continues.
# Where the contract names no profile (checks, change log, itself), it is core.
CONTRACT = """
inventory
  gpu_up G C
  gpu_state_info{state} G C
  gpu_info{model,architecture,pci_bus_id,serial,board_part_number,
      vbios_version,inforom_version,compute_capability} G C
  gpu_last_reset_timestamp_seconds G C
  gpu_node_info{driver_version,driver_branch,kernel_module,cuda_driver_version,
      nvml_version,kernel_release,os,image_id,image_version} N C
  gpu_node_detected_gpus N C
  gpu_node_listed_gpus N C
  gpu_node_expected_gpus N C
  gpu_node_boot_timestamp_seconds N C
  gpu_node_first_seen_timestamp_seconds N C
  gpu_node_driver_mismatch N C
  gpu_node_software_info{component,version} N S
memory
  gpu_memory_total_bytes G C
  gpu_memory_used_bytes G C
  gpu_memory_free_bytes G S
  gpu_memory_reserved_bytes G S
  gpu_memory_unattributed_bytes G S
  gpu_memory_used_includes_reserved G S
  gpu_bar1_memory_total_bytes G F
  gpu_bar1_memory_used_bytes G F
utilization
  gpu_utilization_ratio G C
  gpu_memory_controller_utilization_ratio G S
  gpu_encoder_utilization_ratio G S
  gpu_decoder_utilization_ratio G S
  gpu_sm_active_ratio G S
  gpu_sm_occupancy_ratio G S
  gpu_tensor_active_ratio G S
  gpu_dram_active_ratio G S
  gpu_jpeg_utilization_ratio G F
  gpu_ofa_utilization_ratio G F
  gpu_graphics_engine_active_ratio G F
  gpu_fp64_active_ratio G F
  gpu_fp32_active_ratio G F
  gpu_fp16_active_ratio G F
temperature
  gpu_temperature_celsius G C
  gpu_memory_temperature_celsius G S
  gpu_temperature_threshold_celsius{threshold} G S
  gpu_fan_speed_ratio{fan} G S
  gpu_temperature_margin_celsius G F
power
  gpu_power_watts G C
  gpu_power_limit_watts G C
  gpu_power_instant_watts G S
  gpu_power_limit_default_watts G S
  gpu_energy_joules_total G S
  gpu_power_limit_requested_watts G F
  gpu_power_limit_min_watts G F
  gpu_power_limit_max_watts G F
  gpu_module_power_watts G F
clocks
  gpu_clock_hertz{clock} G F sm=C memory=S
  gpu_clock_max_hertz{clock} G F sm=C memory=S
  gpu_performance_state G S
throttling
  gpu_throttle_seconds_total{reason} G S sw_power_cap=C sw_thermal_slowdown=C
      hw_thermal_slowdown=C hw_power_brake_slowdown=C hw_slowdown=C
  gpu_throttle_reason_active{reason} G S
ecc
  gpu_ecc_errors_total{type,location} G C
  gpu_ecc_sram_threshold_exceeded G C
  gpu_ecc_uncorrected_last_increase_timestamp_seconds G C
  gpu_ecc_lifetime_errors_total{type,location} G S
  gpu_ecc_mode_enabled G S
  gpu_ecc_mode_pending_enabled G S
repair
  gpu_row_remap_pending G C
  gpu_row_remap_failure G C
  gpu_retired_pages_pending G C
  gpu_remapped_rows_total{cause} G S
  gpu_retired_pages_total{cause} G S
  gpu_repair_pending{unit} G S
  gpu_row_remap_banks{availability} G F
  gpu_recovery_action G C
events
  gpu_xid_class_errors_total{class} G C
  gpu_xid_errors_total{xid,class} G C
  gpu_xid_last_timestamp_seconds{xid,class} G C
  nvswitch_sxid_severity_errors_total{severity} N C
  nvswitch_sxid_errors_total{nvswitch,sxid,severity} N C
  nvswitch_sxid_last_timestamp_seconds{nvswitch,sxid,severity} N C
  gpu_off_bus_events_total G S
pcie
  gpu_pcie_link_generation G C
  gpu_pcie_link_width G C
  gpu_pcie_link_generation_max G C
  gpu_pcie_link_width_max G C
  gpu_pcie_replays_total G C
  gpu_pcie_transmit_bytes_total G S
  gpu_pcie_receive_bytes_total G S
nvlink
  gpu_nvlink_active_links G C
  gpu_nvlink_expected_links G C
  gpu_nvlink_errors_total{kind} G C
  gpu_nvlink_supported_links G S
  gpu_nvlink_transmit_bytes_total G S
  gpu_nvlink_receive_bytes_total G S
  gpu_nvlink_up{link} G F
  gpu_nvlink_link_errors_total{link,kind} G F nonzero=S
fabric
  gpu_fabric_state G C
  gpu_fabric_healthy G S
modes
  gpu_persistence_mode_enabled G S
  gpu_mig_mode_enabled G S
  gpu_compute_mode G F
mig
  gpu_mig_info M S
  gpu_mig_memory_total_bytes M S
  gpu_mig_memory_used_bytes M S
  gpu_mig_memory_free_bytes M S
  gpu_mig_sm_active_ratio M S
  gpu_mig_process_count M S
workloads
  gpu_process_count G C
  gpu_oldest_process_start_time_seconds G C
  gpu_workload_info{workload,kind,namespace,pod,container,service,
      image,image_digest,job_id,user} G C
  gpu_workload_memory_bytes{workload,kind,namespace,pod,container,service} G S
  gpu_process_memory_bytes{process,workload,pid} G S
  gpu_workload_software_info{workload,component,version} G S
baseline
  gpu_baseline_match{aspect} G C
  gpu_baseline_mismatches G C
  gpu_baseline_recorded_timestamp_seconds N C
verdict
  gpu_health_state G C
  gpu_health_condition{condition,tier} G C
checks
  gpu_check_status{check} G C
  gpu_check_last_completed_timestamp_seconds{check} G C
  gpu_check_duration_seconds{check} G C
changelog
  gpu_change_events_total{kind} N C
  gpu_change_last_timestamp_seconds{kind} N C
  gpu_change_in_progress{kind} N C
  gpu_change_unrecorded_total N C
  gpu_node_maintenance{change_id} N C
  gpu_node_maintenance_end_timestamp_seconds{change_id} N C
  gpu_node_in_service N C
  gpu_node_drains_total N C
  gpu_node_inventory N C
  gpu_cluster_spare_gpus N C
  cardwatch_annotations_pending{sink} N C
  cardwatch_annotation_oldest_pending_timestamp_seconds{sink} N C
  cardwatch_annotations_delivered_total{sink} N C
  cardwatch_annotation_failures_total{sink} N C
itself
  cardwatch_build_info{version,backend,simulated} N C
  cardwatch_time_seconds N C
  cardwatch_source_up{source} N C
  cardwatch_source_error{source,error} N C
  cardwatch_source_last_success_timestamp_seconds{source} N C
  cardwatch_source_interval_seconds{source} N C
  cardwatch_gpu_sample_timestamp_seconds G C
  cardwatch_gpu_sample_duration_seconds G C
  cardwatch_oldest_driver_call_start_timestamp_seconds N C
  cardwatch_readings{status} G C unsupported=S denied=S
  cardwatch_reading_errors_total{reading,error} G C
  cardwatch_child_restarts_total N C
  cardwatch_children_abandoned N C
  cardwatch_kmsg_records_lost_total N C
  cardwatch_journal_events_dropped_total N C
  cardwatch_process_visibility N C
  cardwatch_series_dropped_total{family} N C
  cardwatch_process_cpu_seconds_total{process} N C
  cardwatch_process_resident_memory_bytes{process} N C
"""

PLANNED = {
    "ledger": """
        gpu_memory_unattributed_bytes gpu_node_software_info gpu_node_driver_mismatch
        gpu_oldest_process_start_time_seconds gpu_workload_info gpu_workload_memory_bytes
        gpu_process_memory_bytes gpu_workload_software_info
        gpu_baseline_match gpu_baseline_mismatches gpu_baseline_recorded_timestamp_seconds
        cardwatch_process_visibility
    """,
    "dcgm": """
        gpu_sm_active_ratio gpu_sm_occupancy_ratio gpu_tensor_active_ratio gpu_dram_active_ratio
        gpu_graphics_engine_active_ratio gpu_fp64_active_ratio gpu_fp32_active_ratio
        gpu_fp16_active_ratio gpu_mig_sm_active_ratio
    """,
    "checks": """
        gpu_check_status gpu_check_last_completed_timestamp_seconds gpu_check_duration_seconds
    """,
    "changelog": """
        gpu_change_events_total gpu_change_last_timestamp_seconds gpu_change_in_progress
        gpu_change_unrecorded_total gpu_node_maintenance
        gpu_node_maintenance_end_timestamp_seconds gpu_node_in_service gpu_node_drains_total
        gpu_node_inventory gpu_cluster_spare_gpus cardwatch_annotations_pending
        cardwatch_annotation_oldest_pending_timestamp_seconds
        cardwatch_annotations_delivered_total cardwatch_annotation_failures_total
    """,
}

REASONS = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clock_setting",
    "board_limit",
    "reliability",
)

# Rows of a healthy H100 SXM without MIG: first own label -> number of rows with it.
# A family not named here has one row.
H100_ROWS: dict[str, dict[str, int]] = {
    "gpu_temperature_threshold_celsius": dict.fromkeys(
        ("slowdown", "shutdown", "gpu_max", "memory_max"), 1
    ),
    "gpu_clock_hertz": dict.fromkeys(("sm", "memory", "graphics", "video"), 1),
    "gpu_clock_max_hertz": dict.fromkeys(("sm", "memory", "graphics", "video"), 1),
    "gpu_throttle_seconds_total": dict.fromkeys(REASONS, 1),
    "gpu_throttle_reason_active": dict.fromkeys(REASONS, 1),
    "gpu_ecc_errors_total": {"corrected": 2, "uncorrected": 2},
    "gpu_ecc_lifetime_errors_total": {"corrected": 2, "uncorrected": 2},
    "gpu_remapped_rows_total": {"corrected": 1, "uncorrected": 1},
    "gpu_repair_pending": {"channel": 1, "tpc": 1},
    "gpu_row_remap_banks": dict.fromkeys(("max", "high", "partial", "low", "none"), 1),
    "gpu_nvlink_errors_total": {"replay": 1, "recovery": 1, "crc_flit": 1},
    "gpu_nvlink_up": {str(link): 1 for link in range(18)},
    "gpu_nvlink_link_errors_total": {str(link): 3 for link in range(18)},
    "cardwatch_readings": dict.fromkeys(("ok", "unsupported", "denied", "failed"), 1),
    "gpu_xid_class_errors_total": dict.fromkeys(
        ("critical", "hardware", "contained", "application", "info", "unknown"), 1
    ),
    # Lacking on this card, or born with a fault.
    "gpu_xid_errors_total": {},
    "gpu_xid_last_timestamp_seconds": {},
    "gpu_ecc_uncorrected_last_increase_timestamp_seconds": {},
    "gpu_health_condition": {},
    "gpu_memory_used_includes_reserved": {},
    "gpu_fan_speed_ratio": {},
    "gpu_module_power_watts": {},
    "gpu_retired_pages_pending": {},
    "gpu_retired_pages_total": {},
    "cardwatch_reading_errors_total": {},
}

LETTERS = {"C": Profile.CORE, "S": Profile.STANDARD, "F": Profile.FULL}
SCOPES = {"N": Scope.NODE, "G": Scope.GPU, "M": Scope.MIG}


def load_tool() -> ModuleType:
    """Import tools/metrics_doc.py, which is no package."""
    path = ROOT / "tools" / "metrics_doc.py"
    spec = importlib.util.spec_from_file_location("metrics_doc", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def parse_contract() -> dict[str, tuple[str, object]]:
    """Return name -> (topic, what the record must say) from the table above."""
    found: dict[str, tuple[str, object]] = {}
    topic = ""
    unfolded = re.sub(r"\n {6}", " ", CONTRACT).replace(", ", ",")
    for line in unfolded.strip().splitlines():
        if not line.startswith(" "):
            topic = line
            continue
        first, scope, letter, *rest = line.split()
        match = re.fullmatch(r"([a-z0-9_]+)(?:\{([a-z_,]+)\})?", first)
        assert match is not None, line
        split = {key: LETTERS[value] for key, value in (item.split("=") for item in rest)}
        nonzero = split.pop("nonzero", None)
        labels = tuple(match[2].split(",")) if match[2] else ()
        assert match[1] not in found, f"{match[1]} is twice in the test's own table"
        found[match[1]] = (topic, (labels, SCOPES[scope], LETTERS[letter], split, nonzero))
    return found


def rows(family: Family, profile: Profile) -> int:
    """Return how many rows of the family a healthy H100 has in this profile."""
    if family.name not in H100_ROWS:
        return int(family.profile <= profile)
    return sum(
        number
        for value, number in H100_ROWS[family.name].items()
        if family.profile_of(value) <= profile
    )


def test_table_keeps_its_rules() -> None:
    """No record has a problem, and names, OpenMetrics names and readings are unique."""
    assert families.check() == []


def test_check_finds_a_broken_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A doubled name and a record that breaks a rule are both named by the self-check."""
    bad = Family("gpu_up", Type.COUNTER, "no full stop", accept=(1, 0), sources={"nvml": "x"})
    monkeypatch.setattr(families, "ALL", (*families.ALL, bad))
    found = families.check()
    assert "gpu_up: counters, and only counters, end in _total" in found
    assert "gpu_up: accept is not a range" in found
    assert "name gpu_up is declared 2 times" in found


def test_table_is_the_contract() -> None:
    """Names, labels, scopes, profiles and topics are those of the contract, no more, no less."""
    found = {
        family.name: (
            topic.__name__.rsplit(".", 1)[-1],
            (
                family.labels,
                family.scope,
                family.profile,
                dict(family.split),
                family.nonzero_profile,
            ),
        )
        for topic in families.TOPICS
        for family in topic.FAMILIES
    }
    assert found == parse_contract()


def test_page_order_is_the_contracts() -> None:
    """Topics follow each other as in the contract, and the index holds every family."""
    topics = [line for line in CONTRACT.split("\n") if line and not line.startswith(" ")]
    assert [topic.__name__.rsplit(".", 1)[-1] for topic in families.TOPICS] == topics
    assert list(families.BY_NAME) == [family.name for family in families.ALL]


def test_planned_families() -> None:
    """Exactly the families of later work are marked as planned, under its topic."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for family in families.planned():
        assert family.planned is not None
        found[family.planned].add(family.name)
    assert found == {topic: set(names.split()) for topic, names in PLANNED.items()}
    assert len(families.exported()) + len(families.planned()) == len(families.ALL)


def test_scopes_share_out_the_table() -> None:
    """Every family has one scope, and the change log speaks of nodes."""
    parts = families.by_scope()
    assert sum(len(part) for part in parts.values()) == len(families.ALL)
    assert all(family in parts[Scope.NODE] for family in families.changelog.FAMILIES)


def test_label_limits() -> None:
    """A family keeps the limits of the contract and does not repeat a label of its scope."""
    for family in families.ALL:
        limit = MAX_INFO_LABELS if family.type is Type.INFO else MAX_LABELS
        assert len(family.all_labels) <= limit, family.name
        assert not set(family.labels) & set(family.scope.labels), family.name


def test_help_fits_a_line() -> None:
    """Help is short plain text that needs no escaping on the page."""
    for family in families.ALL:
        assert len(family.help) <= 240, family.name
        assert family.help.isascii(), family.name
        assert not set("\\\n") & set(family.help), family.name


def test_a_pid_only_in_full() -> None:
    """Only process memory may name a pid, and its help says when."""
    with_pid = [family for family in families.ALL if "pid" in family.all_labels]
    assert [family.name for family in with_pid] == ["gpu_process_memory_bytes"]
    assert "below the full profile" in with_pid[0].help


def test_readings_of_the_driver_have_a_range() -> None:
    """A number that comes from the driver has a range, so that no sentinel reaches the page."""
    counted = {"gpu_node_listed_gpus", "gpu_process_count", "gpu_mig_process_count"}
    without = {
        family.name
        for family in families.exported()
        if "nvml" in family.sources and family.type is not Type.INFO and family.accept is None
    }
    assert without == counted


# Largest 32-bit and 64-bit numbers, and the blanks of DCGM just below 2^31 and 2^63.
BLANKS_32 = (2**31 - 16, 2**31 - 15, 2**31 - 14, 2**31 - 13, 2**32 - 1)
BLANKS_64 = (2**63 - 16, 2**63 - 15, 2**63 - 14, 2**63 - 13, 2**64 - 1)


@pytest.mark.parametrize(
    ("name", "blanks", "factor"),
    [
        ("gpu_ecc_errors_total", BLANKS_64, 1),
        ("gpu_memory_used_bytes", BLANKS_64, 1),
        ("gpu_energy_joules_total", BLANKS_64, 1e-3),
        ("gpu_throttle_seconds_total", BLANKS_64, 1e-9),
        ("gpu_nvlink_transmit_bytes_total", BLANKS_64, 1024),
        ("gpu_pcie_replays_total", BLANKS_32, 1),
        ("gpu_remapped_rows_total", BLANKS_32, 1),
        ("gpu_power_watts", BLANKS_32, 1e-3),
        ("gpu_clock_hertz", BLANKS_32, 1e6),
        ("gpu_temperature_celsius", BLANKS_32, 1),
        ("gpu_memory_temperature_celsius", (0,), 1),
        ("gpu_utilization_ratio", BLANKS_32, 1e-2),
        ("gpu_performance_state", (32,), 1),
        ("gpu_pcie_link_width", (0,), 1),
        ("gpu_fabric_state", (0,), 1),
    ],
)
def test_blanks_are_out_of_range(name: str, blanks: tuple[int, ...], factor: float) -> None:
    """What a driver writes when it has no number is outside, after conversion to our unit."""
    accept = families.BY_NAME[name].accept
    assert accept is not None
    for blank in blanks:
        assert not accept[0] <= blank * factor <= accept[1]


@pytest.mark.parametrize(
    ("profile", "today", "budget"),
    [(Profile.CORE, 48, 50), (Profile.STANDARD, 102, 120), (Profile.FULL, 192, None)],
)
def test_series_of_a_healthy_card(profile: Profile, today: int, budget: int | None) -> None:
    """A healthy H100 stays within the budget of per-GPU series; a change here is a decision."""
    count = sum(
        rows(family, profile) for family in families.exported() if family.scope is Scope.GPU
    )
    assert count == today
    assert budget is None or count <= budget


def test_page_is_up_to_date() -> None:
    """docs/metrics.md is what tools/metrics_doc.py writes now."""
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert page == load_tool().render(), "run tools/metrics_doc.py"


def test_page_names_what_is_exported() -> None:
    """The page has a row for every exported family and none for a planned one."""
    page = load_tool().render()
    names = re.findall(r"^\| `([a-z0-9_]+)` \|", page, flags=re.MULTILINE)
    assert names == [family.name for family in families.exported()]


def test_check_prints_how_the_page_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """--check exits 1 with a diff for a page that is missing or old, 0 after writing it."""
    tool = load_tool()
    monkeypatch.setattr(tool, "PAGE", tmp_path / "metrics.md")
    assert tool.main(["--check"]) == 1
    assert "+# Metrics" in capsys.readouterr().out
    assert tool.main([]) == 0
    assert tool.main(["--check"]) == 0
    assert capsys.readouterr().out == ""
