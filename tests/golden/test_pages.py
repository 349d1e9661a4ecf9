# SPDX-License-Identifier: Apache-2.0
"""Golden pages: the whole exposition of a captured node, byte for byte, and what promtool says.

Families that tell the time, or how long something took, are left out by name.
`make golden` writes the files anew; the diff is the review.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from golden_files import GoldenFiles

CAPTURES = Path(__file__).parents[1] / "captures"

WALL_CLOCK = (
    "cardwatch_time_seconds",
    "cardwatch_gpu_sample_timestamp_seconds",
    "cardwatch_gpu_sample_duration_seconds",
    "cardwatch_source_last_success_timestamp_seconds",
    "cardwatch_oldest_driver_call_start_timestamp_seconds",
    "cardwatch_process_cpu_seconds_total",
    "cardwatch_process_resident_memory_bytes",
    "gpu_node_boot_timestamp_seconds",
    "gpu_node_first_seen_timestamp_seconds",
)

LINT_WE_ACCEPT = {
    # The contract names these two, and a rename would break its users.
    'gpu_process_count non-histogram and non-summary metrics should not have "_count" suffix',
    'gpu_mig_process_count non-histogram and non-summary metrics should not have "_count" suffix',
}

PAGES = [
    *((path.stem, "standard", "prometheus") for path in sorted(CAPTURES.glob("*.jsonl"))),
    ("sim-h100", "core", "prometheus"),
    ("sim-h100", "full", "prometheus"),
    ("sim-h100", "standard", "openmetrics"),
    ("sim-a100-mig", "full", "openmetrics"),
]


def _page(capture: str, profile: str, form: str, state: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "cardwatch", "snapshot", "--backend", "replay",
         "--capture", str(CAPTURES / f"{capture}.jsonl"), "--profile", profile, "--format", form,
         "--node-name", "golden", "--state-dir", str(state)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def _timeless(page: str) -> str:
    """Drop the samples of families that tell the time, and the version of the exporter."""
    names = "|".join(WALL_CLOCK)
    kept = [line for line in page.splitlines(keepends=True)
            if not re.match(rf"(?:{names})[{{ ]", line)]  # fmt: skip
    return re.sub(r'(cardwatch_build_info\{.*version=")[^"]*', r"\1X", "".join(kept))


@pytest.mark.parametrize(("capture", "profile", "form"), PAGES)
def test_a_captured_node_gives_the_same_page(
    capture: str, profile: str, form: str, tmp_path: Path, golden: GoldenFiles
) -> None:
    """What a capture exports does not change by accident: names, labels, values, help, order."""
    page = _page(capture, profile, form, tmp_path)
    ending = "om" if form == "openmetrics" else "prom"
    golden.check(f"{capture}.{profile}.{ending}", _timeless(page))


@pytest.mark.parametrize(("capture", "profile", "form"),
                         [page for page in PAGES if page[2] == "prometheus"])  # fmt: skip
def test_promtool_accepts_the_page(
    capture: str, profile: str, form: str, tmp_path: Path, promtool: str
) -> None:
    """promtool parses the page and has nothing to say of names and help, but two known names."""
    page = _page(capture, profile, form, tmp_path)
    done = subprocess.run(
        [promtool, "check", "metrics"], input=page, capture_output=True, text=True, timeout=30,
        check=False,
    )  # fmt: skip
    said = {line for line in (done.stdout + done.stderr).splitlines() if line.strip()}
    assert said <= LINT_WE_ACCEPT


@pytest.mark.parametrize(("profile", "budget"), [("core", 50), ("standard", 120)])
@pytest.mark.parametrize("capture", ["sim-h100", "sim-b200"])
def test_a_healthy_card_stays_within_its_series_budget(
    capture: str, profile: str, budget: int, tmp_path: Path
) -> None:
    """A healthy card costs at most 50 series in core and 120 in standard."""
    page = _page(capture, profile, "prometheus", tmp_path)
    of_card = [line for line in page.splitlines() if 'gpu="0"' in line and line[0] != "#"]
    assert 20 < len(of_card) <= budget
