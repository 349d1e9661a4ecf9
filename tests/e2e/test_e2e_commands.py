# SPDX-License-Identifier: Apache-2.0
"""Commands that look once: snapshot, capture and its replay, the roster."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from cardwatch.families import BY_NAME, Scope, events, verdict
from e2e.harness import Exporter, Page, empty_bus, roster_entry, run, scenario, write_roster
from nvml_c import Stub

Serve = Callable[..., Exporter]
Look = Callable[..., "subprocess.CompletedProcess[str]"]
ZERO, ONE = (f"GPU-48313030-1111-4222-8333-00000000000{n}" for n in (0, 1))
OF_EVENTS = {family.name for topic in (events, verdict) for family in topic.FAMILIES}
TIMES = {"cardwatch_gpu_sample_timestamp_seconds", "cardwatch_gpu_sample_duration_seconds"}


@pytest.fixture
def look(stub: Stub, tmp_path: Path) -> Look:
    """Run a command of `cardwatch` once on the stand-in library."""
    sysfs = tmp_path / "sys"
    empty_bus(sysfs)

    def once(*words: str) -> subprocess.CompletedProcess[str]:
        own = ["--backend", "nvml", "--path.sysfs", str(sysfs), "--deadline", "1s"]
        state = ["--state-dir", str(tmp_path / "state")]
        return run(*words, *own, *state, env=stub.env())

    return once


# -- snapshot -------------------------------------------------------------------------------


def test_a_snapshot_is_the_page_of_one_reading(look: Look) -> None:
    """The default format is the exposition, complete with cards and versions; status 0."""
    ended = look("snapshot")
    assert (ended.returncode, ended.stderr) == (0, "")
    page = Page(ended.stdout)
    assert page.up() == {ZERO: 1.0, ONE: 1.0}
    assert page.value("gpu_node_info", driver_version="580.95.05", cuda_driver_version="13.0") == 1
    assert page.source_up() == 1


def test_a_snapshot_in_openmetrics_is_openmetrics(look: Look) -> None:
    """The strict parser of the client library takes it."""
    ended = look("snapshot", "--format", "openmetrics")
    assert ended.returncode == 0
    families = {family.name for family in text_string_to_metric_families(ended.stdout)}
    assert {"gpu_up", "gpu", "cardwatch_build"} <= families


def test_a_snapshot_as_json_has_each_card_with_what_it_lacks(look: Look, stub: Stub) -> None:
    """JSON is the document of /api/v1/gpus."""
    stub.error("nvmlDeviceGetUtilizationRates", 999, gpu=1)
    ended = look("snapshot", "--format", "json")
    assert ended.returncode == 0
    document = json.loads(ended.stdout)
    zero, one = document["gpus"]
    assert (zero["uuid"], zero["state"], zero["up"]) == (ZERO, "ok", True)
    assert zero["info"]["model"] == "H100 80GB HBM3"
    assert zero["readings"]["gpu_temperature_celsius"] == 58
    assert one["missing"]["utilization"] == "unknown"
    assert document["source"] == {"up": True, "error": None}


def test_a_snapshot_as_a_table_is_for_people(look: Look) -> None:
    """One line about the node, one head, one line per card."""
    ended = look("snapshot", "--format", "table")
    assert ended.returncode == 0
    node, head, *rows = ended.stdout.splitlines()
    assert "driver 580.95.05, CUDA 13.0" in node
    assert head.split() == ["GPU", "STATE", "MODEL", "TEMP", "UTIL", "POWER", "MEMORY", "UUID"]
    assert [row.split()[-1] for row in rows] == [ZERO, ONE]
    assert "58C" in rows[0]


def test_a_snapshot_without_a_driver_has_status_1_and_says_why(look: Look, stub: Stub) -> None:
    """What is known is printed all the same, the reason stands on stderr."""
    look("snapshot")
    stub.error("everything", 9)
    ended = look("snapshot", "--expect-gpus", "2")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == (
        "cardwatch snapshot: source gpu is down: driver_not_loaded"
    )
    page = Page(ended.stdout)
    assert page.source_up() == 0
    assert page.errors() == {"driver_not_loaded"}


def test_a_snapshot_does_not_wait_for_a_card_that_hangs(look: Look, stub: Stub) -> None:
    """Past the deadline the card is hung, the other is read, and the driver counts as up."""
    stub.hang("everything", gpu=1)
    ended = look("snapshot")
    page = Page(ended.stdout)
    assert ended.returncode == 0
    assert page.states()[ZERO] == "ok"
    assert sorted(page.states().values()) == ["hung", "ok"]


def test_a_snapshot_of_a_driver_that_hangs_altogether_has_status_1(look: Look, stub: Stub) -> None:
    """It ends by itself, without an answer."""
    stub.hang("everything")
    ended = look("snapshot", "--expect-gpus", "2")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "cardwatch snapshot: source gpu is down: timeout"


def test_a_wrong_format_is_status_2(look: Look) -> None:
    """Usage errors are one line that names what is allowed."""
    ended = look("snapshot", "--format", "xml")
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert "openmetrics" in ended.stderr


def test_a_snapshot_beside_an_exporter_makes_it_forget_nothing(
    nvml: Serve, look: Look, stub: Stub, tmp_path: Path
) -> None:
    """Both write the same state; a lost card of the exporter stays lost."""
    exporter = nvml()
    exporter.await_page(lambda p: p.up() == {ZERO: 1.0, ONE: 1.0})
    exporter.wait_for(lambda: ONE in (tmp_path / "state/cards.json").read_text())
    stub.set("order", [0])
    exporter.await_page(lambda p: p.states().get(ONE) == "lost")
    assert look("snapshot").returncode == 0
    sampled = exporter.page().sampled()[ZERO]
    page = exporter.await_page(lambda p: p.sampled().get(ZERO, 0) > sampled + 0.5)
    assert page.states() == {ZERO: "ok", ONE: "lost"}


# -- capture and replay -----------------------------------------------------------------------


def _card_series(text: str) -> list[str]:
    """Return the lines about what cards answered, without those that tell when and how long."""
    return [
        line
        for line in text.splitlines()
        if not line.startswith("#")
        and (name := re.split(r"[{ ]", line)[0]) not in TIMES | OF_EVENTS
        and BY_NAME[name].scope is not Scope.NODE
    ]


@pytest.mark.parametrize("profile", ["core", "full"])
def test_a_capture_shows_the_same_page_again(
    look: Look, serve: Serve, nvml: Serve, tmp_path: Path, profile: str
) -> None:
    """Each series about a card, and about its driver, is equal byte for byte in a replay."""
    file = tmp_path / "capture.jsonl"
    captured = look("capture", str(file), "--raw", "--interval", "200ms")
    assert captured.returncode == 0, captured.stderr
    assert re.fullmatch(rf"{file}: 2 passes, \d+ answers\n", captured.stderr)

    def both_up(page: Page) -> bool:
        facts = page.all("gpu_node_info", driver_version="580.95.05", nvml_version="13.580.95.05")
        return page.up() == {ZERO: 1.0, ONE: 1.0} and bool(facts)

    flags = ["--profile", profile]
    real = nvml(*flags).await_page(both_up)
    replayed = serve("--backend", "replay", "--capture", str(file), *flags).await_page(both_up)
    assert _card_series(replayed.text) == _card_series(real.text)
    assert replayed.value("cardwatch_build_info", backend="replay", simulated="true") == 1
    assert replayed.value("gpu_node_listed_gpus") == 2
    facts = real.all("gpu_node_info")[0].labels
    assert replayed.all("gpu_node_info")[0].labels == facts


def test_a_capture_hides_who_the_cards_are(look: Look, tmp_path: Path) -> None:
    """UUIDs and serial numbers are replaced by aliases that are the same at each capture."""
    first, second = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    for file in (first, second):
        assert look("capture", str(file), "--passes", "1", "--interval", "200ms").returncode == 0
    uuids = []
    for file in (first, second):
        text = file.read_text()
        assert "48313030-1111" not in text
        assert "1650423000000" not in text
        uuids.append(re.findall(r'"DeviceGetUUID",\["device/[0-9]"\],{"ok":"(GPU-[^"]+)"', text))
    assert sorted(uuids[0]) == sorted(uuids[1])
    assert len(set(uuids[0])) == 2


def test_the_key_of_the_aliases_is_for_its_owner_only(look: Look, tmp_path: Path) -> None:
    """Who has the key can tell which card an alias stands for."""
    assert look("capture", "-", "--passes", "1", "--interval", "200ms").returncode == 0
    assert (tmp_path / "state/alias.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("function", "call"),
    [
        ("nvmlDeviceGetHandleByIndex_v2", "DeviceGetHandleByIndex"),
        ("nvmlDeviceGetClockInfo", "DeviceGetClockInfo"),
        ("nvmlDeviceGetFieldValues", "DeviceGetFieldValues"),
    ],
)
def test_a_capture_of_a_call_that_hangs_hangs_again(
    look: Look, serve: Serve, stub: Stub, tmp_path: Path, function: str, call: str
) -> None:
    """The call is noted with its arguments as one that hangs, and the replay shows a hung card."""
    stub.hang(function, gpu=1)
    file = tmp_path / "capture.jsonl"
    captured = look("capture", str(file), "--raw", "--interval", "200ms")
    assert captured.returncode == 1
    assert "1 passes" in captured.stderr
    assert "some calls did not return and are noted as hanging" in captured.stderr
    assert f'["{call}",' in file.read_text()
    exporter = serve("--backend", "replay", "--capture", str(file))
    page = exporter.await_page(lambda p: sorted(p.states().values()) == ["hung", "ok"])
    assert page.up()[ZERO] == 1
    assert page.value("cardwatch_oldest_driver_call_start_timestamp_seconds") is not None


def test_a_capture_without_a_driver_says_what_is_wrong(look: Look, stub: Stub) -> None:
    """Status 1, and the reason is the driver's."""
    stub.error("everything", 18)
    captured = look("capture", "-")
    assert captured.returncode == 1
    assert captured.stdout.count("\n") == 2  # the header, and the call that was refused
    stub.release()


def test_a_capture_names_the_reason_it_ended_early(look: Look, stub: Stub, tmp_path: Path) -> None:
    """A driver that is away is named on stderr."""
    stub.error("everything", 18)
    captured = look("capture", str(tmp_path / "capture.jsonl"))
    assert captured.returncode == 1
    assert "driver_library_mismatch; `cardwatch doctor`" in captured.stderr


def test_a_capture_that_cannot_be_written_is_status_2(look: Look, tmp_path: Path) -> None:
    """The line names the file."""
    captured = look("capture", f"{tmp_path}/none/file", "--passes", "1", "--interval", "200ms")
    assert captured.returncode == 2
    assert (
        captured.stderr == f"cardwatch capture: {tmp_path}/none/file: No such file or directory\n"
    )


def test_a_replay_of_a_simulated_node_is_that_node(serve: Serve, tmp_path: Path) -> None:
    """A simulated node too can be captured, faults included."""
    file = tmp_path / "capture.jsonl"
    flags = scenario(tmp_path, {"fault": "lost", "gpu": 1}, cards=3)
    captured = run(
        "capture", str(file), *flags, "--interval", "200ms", "--state-dir", str(tmp_path / "other")
    )
    assert captured.returncode == 0, captured.stderr
    exporter = serve("--backend", "replay", "--capture", str(file))
    page = exporter.await_page(lambda p: sorted(p.states().values()) == ["lost", "ok", "ok"])
    assert page.value("gpu_node_detected_gpus") == 3


# -- the roster --------------------------------------------------------------------------------


def test_the_roster_can_be_listed_and_only_known_cards_forgotten(tmp_path: Path) -> None:
    """Without arguments `forget` lists; an unknown UUID is refused and nothing is forgotten."""
    state = ["--state-dir", str(tmp_path)]
    assert run("baseline", "forget", *state).stdout.startswith("no cards on the roster in ")
    now = time.time()
    write_roster(tmp_path, {"GPU-b": roster_entry(1, now, 1), "GPU-a": roster_entry(1, now, 0)})
    listed = run("baseline", "forget", *state)
    assert [line.split("\t")[:3] for line in listed.stdout.splitlines()] == [
        ["0", "GPU-a", "H100 80GB HBM3"],
        ["1", "GPU-b", "H100 80GB HBM3"],
    ]
    refused = run("baseline", "forget", "GPU-a", "GPU-c", *state)
    assert refused.returncode == 2
    assert refused.stderr.startswith("cardwatch baseline: GPU-c: not on the roster")
    assert set(json.loads((tmp_path / "cards.json").read_text())["cards"]) == {"GPU-a", "GPU-b"}
    assert run("baseline", "forget", "GPU-a", *state).returncode == 0
    assert set(json.loads((tmp_path / "cards.json").read_text())["cards"]) == {"GPU-b"}


def test_a_broken_roster_is_one_line(tmp_path: Path) -> None:
    """`baseline forget` changes nothing in a file that it cannot read."""
    (tmp_path / "cards.json").write_text("[]")
    ended = run("baseline", "forget", "--all", "--state-dir", str(tmp_path))
    assert ended.returncode == 2
    assert ended.stderr == f"cardwatch baseline: {tmp_path}/cards.json: is not a roster\n"
    assert (tmp_path / "cards.json").read_text() == "[]"
