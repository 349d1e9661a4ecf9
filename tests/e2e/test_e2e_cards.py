# SPDX-License-Identifier: Apache-2.0
"""Cards that vanish, change places or hide, and what is remembered about them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.harness import Exporter, Page, roster_entry, run, scenario, write_roster
from nvml_c import Stub

Serve = Callable[..., Exporter]
ZERO, ONE = (f"GPU-48313030-1111-4222-8333-00000000000{n}" for n in (0, 1))
OLD = "GPU-0ld00000-1111-4222-8333-000000000000"


def _both_up(page: Page) -> bool:
    return page.up().get(ZERO) == page.up().get(ONE) == 1.0


def test_a_lost_card_is_down_and_keeps_its_identity(nvml: Serve, stub: Stub) -> None:
    """GPU_IS_LOST on one card: state lost, no readings, gpu_info stays, the others go on."""
    exporter = nvml()
    exporter.await_page(_both_up)
    stub.lost(1)
    page = exporter.await_page(lambda p: p.states().get(ONE) == "lost")
    assert page.up() == {ZERO: 1.0, ONE: 0.0}
    assert page.value("gpu_info", uuid=ONE) == 1
    assert not page.all("gpu_temperature_celsius", uuid=ONE)
    assert page.source_up() == 1
    stub.release()
    exporter.await_page(_both_up)


def test_a_card_that_is_no_longer_listed_is_lost_until_it_is_back(nvml: Serve, stub: Stub) -> None:
    """A card that was up in this process and vanishes from the list is lost."""
    exporter = nvml()
    exporter.await_page(_both_up)
    stub.set("order", [1])  # the first one is gone, so the other moves to its index
    page = exporter.await_page(lambda p: p.states() == {ZERO: "lost", ONE: "ok"})
    assert page.up() == {ZERO: 0.0, ONE: 1.0}
    assert page.value("gpu_up", uuid=ONE, gpu="0") == 1
    assert page.value("gpu_info", uuid=ZERO) == 1
    assert page.value("gpu_node_listed_gpus") == 1
    assert not page.all("gpu_temperature_celsius", uuid=ZERO)
    stub.set("count", 2)
    exporter.await_page(lambda p: p.states() == {ZERO: "ok", ONE: "ok"})


def test_when_all_cards_vanish_from_the_list_all_are_lost(nvml: Serve, stub: Stub) -> None:
    """A driver that lists nothing where cards were is no healthy node."""
    exporter = nvml()
    exporter.await_page(_both_up)
    stub.set("count", 0)
    page = exporter.await_page(lambda p: p.states() == {ZERO: "lost", ONE: "lost"})
    assert page.value("gpu_node_listed_gpus") == 0
    page = exporter.await_page(lambda p: p.source_up() == 0)
    assert page.errors() == {"not_listed"}


def test_a_card_of_the_state_that_is_absent_is_lost_until_it_is_forgotten(
    nvml: Serve, tmp_path: Path
) -> None:
    """Seen for over ten minutes by an earlier run, absent now: lost, until somebody says why."""
    state = tmp_path / "state"
    now = time.time()
    write_roster(state, {OLD: roster_entry(now - 7200, now - 3600, 5, serial="1650000000009")})
    exporter = nvml()
    page = exporter.await_page(lambda p: p.states().get(OLD) == "lost")
    assert page.up()[OLD] == 0
    assert page.value("gpu_info", uuid=OLD, serial="1650000000009") == 1
    assert _both_up(page)
    assert page.value("gpu_node_first_seen_timestamp_seconds") == 1.0

    forgotten = run("baseline", "forget", OLD, "--state-dir", str(state))
    assert (forgotten.returncode, forgotten.stdout) == (0, f"forgot {OLD}\n")
    page = exporter.await_page(lambda p: OLD not in p.up())
    assert _both_up(page)
    assert exporter.stop() == 0
    assert OLD not in json.loads((state / "cards.json").read_text())["cards"]


def test_a_card_lost_in_this_run_can_be_forgotten_at_once(
    nvml: Serve, stub: Stub, tmp_path: Path
) -> None:
    """A card pulled on purpose just after the start need not stay on the page as lost."""
    exporter = nvml()
    exporter.await_page(_both_up)
    stub.set("order", [0])
    exporter.await_page(lambda p: p.states().get(ONE) == "lost")
    forgotten = run("baseline", "forget", ONE, "--state-dir", str(tmp_path / "state"))
    assert forgotten.returncode == 0, forgotten.stderr
    page = exporter.await_page(lambda p: ONE not in p.up())
    assert page.up() == {ZERO: 1.0}


def test_a_forgotten_card_that_is_here_stays_and_is_noted_anew(nvml: Serve, tmp_path: Path) -> None:
    """Forgetting does not hide a card that answers."""
    state = tmp_path / "state"
    exporter = nvml()
    exporter.await_page(_both_up)
    exporter.wait_for(lambda: ONE in (state / "cards.json").read_text())
    assert run("baseline", "forget", "--all", "--state-dir", str(state)).returncode == 0
    exporter.wait_for(lambda: ONE in (state / "cards.json").read_text())
    assert _both_up(exporter.page())


def test_a_card_that_was_hardly_known_is_not_missed_after_a_restart(
    nvml: Serve, stub: Stub
) -> None:
    """A card seen for less than ten minutes is not lost when it is absent after a restart."""
    first = nvml()
    first.await_page(_both_up)
    assert first.stop() == 0
    stub.set("order", [0])
    exporter = nvml()
    page = exporter.await_page(lambda p: p.up() == {ZERO: 1.0})
    sampled = page.sampled()[ZERO]
    page = exporter.await_page(lambda p: p.sampled().get(ZERO, 0) > sampled + 0.5)
    assert page.up() == {ZERO: 1.0}


def test_a_restart_never_shows_known_cards_as_down(nvml: Serve, tmp_path: Path) -> None:
    """Until the driver was asked, a card of an earlier run is neither up nor down."""
    write_roster(
        tmp_path / "state",
        {ZERO: roster_entry(0, 10_000, 0), ONE: roster_entry(0, 10_000, 1)},
    )
    exporter = nvml()
    downs: list[str] = []

    def up(page: Page) -> bool:
        downs.extend(uuid for uuid, value in page.up().items() if value != 1)
        return _both_up(page)

    exporter.await_page(up)
    assert downs == []


def test_a_broken_state_file_is_set_aside(nvml: Serve, tmp_path: Path) -> None:
    """Rubbish in cards.json is kept under another name, said once, and state works again."""
    state = tmp_path / "state"
    state.mkdir()
    (state / "cards.json").write_text('{"version": 1, "cards": [')
    exporter = nvml()
    page = exporter.await_page(_both_up)
    assert page.source_up("state") == 1
    assert (state / "cards.broken").read_text() == '{"version": 1, "cards": ['
    assert exporter.log().count("was moved to cards.broken") == 1
    assert exporter.stop() == 0
    assert set(json.loads((state / "cards.json").read_text())["cards"]) == {ZERO, ONE}


@pytest.mark.parametrize("backend", ["nvml", "sim"])
@pytest.mark.parametrize("problem", ["below a file", "read only"])
def test_a_state_directory_that_cannot_be_written_is_visible(
    nvml: Serve, serve: Serve, tmp_path: Path, problem: str, backend: str
) -> None:
    """The cards are shown all the same, and the page says that nothing is remembered."""
    start: Serve = nvml if backend == "nvml" else serve
    base = tmp_path / "base"
    if problem == "read only":
        base.mkdir(mode=0o555)
    else:
        base.write_text("")
    flags = scenario(tmp_path) if backend == "sim" else ()
    exporter = start(*flags, "--state-dir", str(base / "state"), as_mere_user=True)
    page = exporter.await_page(lambda p: list(p.up().values()) == [1.0, 1.0])
    assert page.source_up("state") == 0
    assert page.errors("state") == {"not_usable"}
    assert page.source_up() == 1
    assert exporter.log().count("state directory: ") == 1


def test_swapped_indexes_swap_nothing_else(serve: Serve, tmp_path: Path) -> None:
    """Series belong to the card: only the gpu label moves, and no counter jumps."""
    exporter = serve(
        *scenario(
            tmp_path,
            {"fault": "ecc", "gpu": 0, "type": "corrected", "location": "dram", "count": 500},
            {"fault": "swap", "gpus": [0, 1], "at": "4s"},
        )
    )
    errors = "gpu_ecc_errors_total"
    first = exporter.await_page(lambda p: list(p.up().values()) == [1.0, 1.0])
    before = first.by("uuid", errors, type="corrected", location="dram")
    energy = first.by("uuid", "gpu_energy_joules_total")
    index = first.by("gpu", "gpu_up")
    many = max(before, key=lambda uuid: before[uuid])
    assert first.value("gpu_up", uuid=many, gpu="0") == 1
    page = exporter.await_page(
        lambda p: p.value("gpu_up", uuid=many, gpu="1") == 1 and p.by("gpu", "gpu_up") == index
    )
    after = page.by("uuid", errors, type="corrected", location="dram")
    assert after.keys() == before.keys()
    assert all(0 <= after[uuid] - before[uuid] < 10 for uuid in before)
    for uuid, joules in page.by("uuid", "gpu_energy_joules_total").items():
        assert 0 <= joules - energy[uuid] < 100_000
    page = exporter.await_page(lambda p: set(p.states().values()) == {"ok"})
    assert set(page.up()) == set(before)


def test_a_card_behind_a_hole_keeps_its_uuid_if_it_was_known(serve: Serve, tmp_path: Path) -> None:
    """An index that gives no handle is the card last seen there."""
    exporter = serve(*scenario(tmp_path, {"fault": "hole", "gpu": 1, "at": "3s", "for": "4s"}))
    first = exporter.await_page(lambda p: list(p.up().values()) == [1.0, 1.0])
    uuid = next(s.labels["uuid"] for s in first.all("gpu_up", gpu="1"))
    page = exporter.await_page(lambda p: p.states().get(uuid) == "unreadable")
    assert set(page.up()) == set(first.up())
    assert page.value("gpu_info", uuid=uuid) == 1
    page = exporter.await_page(lambda p: p.states().get(uuid) == "ok")
    assert set(page.up()) == set(first.up())


def test_a_card_behind_a_hole_that_was_never_known_is_named_by_its_index(
    serve: Serve, tmp_path: Path
) -> None:
    """It has a name of its own until it tells its UUID; then the made-up name is gone."""
    exporter = serve(*scenario(tmp_path, {"fault": "hole", "gpu": 1, "for": "4s"}))
    page = exporter.await_page(lambda p: p.states().get("index-1") == "unreadable")
    assert page.value("gpu_up", uuid="index-1", gpu="1") == 0
    assert page.value("gpu_info", uuid="index-1") is None
    page = exporter.await_page(lambda p: list(p.up().values()) == [1.0, 1.0])
    assert "index-1" not in page.up()


def test_a_card_without_uuid_is_named_by_its_place_on_the_bus(nvml: Serve, stub: Stub) -> None:
    """Once it tells its UUID, the name made of its address is gone and not lost."""
    stub.error("nvmlDeviceGetUUID", 999, gpu=1)
    exporter = nvml()
    page = exporter.await_page(lambda p: len(p.up()) == 2)
    page = exporter.await_page(lambda p: p.up() == {ZERO: 1.0, "pci-0000:43:00": 1.0})
    stub.release()
    page = exporter.await_page(_both_up)
    sampled = page.sampled()[ONE]
    page = exporter.await_page(lambda p: p.sampled().get(ONE, 0) > sampled + 0.5)
    assert page.up() == {ZERO: 1.0, ONE: 1.0}


def test_errors_are_counted_once_per_sample_and_unsupported_is_none(
    nvml: Serve, stub: Stub
) -> None:
    """A failing reading adds one to its counter at each sample; what a card lacks adds nothing."""
    stub.error("nvmlDeviceGetTemperature", 999, gpu=1)
    stub.error("nvmlDeviceGetTemperatureV", 999, gpu=1)
    stub.error("nvmlDeviceGetUtilizationRates", 3, gpu=1)
    exporter = nvml("--interval", "1h", "--deadline", "10s")
    page = exporter.await_page(_both_up)
    counts = {
        (s.labels["reading"], s.labels["error"]): s.value
        for s in page.all("cardwatch_reading_errors_total", uuid=ONE)
    }
    assert counts == {("temperature", "unknown"): 1}
    assert page.all("cardwatch_reading_errors_total", uuid=ZERO) == []
    assert page.value("cardwatch_readings", uuid=ONE, status="failed") == 1
    assert page.value("gpu_temperature_celsius", uuid=ONE) is None
    assert page.value("gpu_utilization_ratio", uuid=ONE) is None
