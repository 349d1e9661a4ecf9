# SPDX-License-Identifier: Apache-2.0
"""Settings: what is refused and how, which origin wins, and what a reload does."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.harness import Exporter, run, scenario

Serve = Callable[..., Exporter]

FILES = {
    "unknown key": "intervall: 5s\n",
    "no unit": "interval: 5\n",
    "unknown unit": "interval: 5 parsecs\n",
    "too short": "interval: 1ms\n",
    "not yaml": "labels: {cluster: [\n",
    "not a mapping": "- interval\n",
    "bad label name": "labels: {my-rack: r12}\n",
    "label of ours": "labels: {gpu: zero}\n",
    "label value": "labels: {rack: [1, 2]}\n",
    "unknown word": "profile: everything\n",
    "not a flag": "detach_endpoint: sometimes\n",
    "not a number": "expect_gpus: eight\n",
}

MISTAKES: list[tuple[str, list[str], dict[str, str], list[str]]] = [
    # name, arguments ({dir} is a directory with the files above), environment, what is said
    ("file: unknown key", ["--config", "{dir}/unknown key"], {},
     ["unknown key: 'intervall' is not a setting", "allowed are", "interval"]),
    ("file: no unit", ["--config", "{dir}/no unit"], {},
     ["no unit: interval: '5'", "a duration such as 500ms, 5s"]),
    ("file: unknown unit", ["--config", "{dir}/unknown unit"], {}, ["interval: '5 parsecs'", "5s"]),
    ("file: too short", ["--config", "{dir}/too short"], {}, ["interval: '1ms'", "from 0.1s"]),
    ("file: not yaml", ["--config", "{dir}/not yaml"], {}, ["not yaml: is not YAML", "line"]),
    ("file: not a mapping", ["--config", "{dir}/not a mapping"], {}, ["expected a mapping"]),
    ("file: bad label name", ["--config", "{dir}/bad label name"], {},
     ["labels", "'my-rack' is not a label name"]),
    ("file: label of ours", ["--config", "{dir}/label of ours"], {}, ["labels", "'gpu' is used"]),
    ("file: label value", ["--config", "{dir}/label value"], {}, ["labels", "'rack' is not text"]),
    ("file: unknown word", ["--config", "{dir}/unknown word"], {},
     ["profile: 'everything'", "core, standard, full"]),
    ("file: not a flag", ["--config", "{dir}/not a flag"], {},
     ["detach_endpoint: 'sometimes'", "true or false"]),
    ("file: not a number", ["--config", "{dir}/not a number"], {},
     ["expect_gpus: 'eight'", "whole number"]),
    ("file: missing", ["--config", "{dir}/none"], {},
     ["{dir}/none: cannot be read", "No such file"]),
    ("file: a directory", ["--config", "{dir}"], {}, ["{dir}: cannot be read", "directory"]),
    ("file by environment", [], {"CARDWATCH_CONFIG": "{dir}/none"}, ["{dir}/none: cannot be read"]),
    ("environment", [], {"CARDWATCH_INTERVAL": "soon"}, ["CARDWATCH_INTERVAL: 'soon'", "5s"]),
    ("flag: value", ["--interval", "5"], {}, ["--interval: '5'", "5s"]),
    ("flag: unknown", ["--intervall", "5s"], {}, ["--intervall", "`cardwatch serve --help`"]),
    ("flag: abbreviated", ["--inter", "5s"], {}, ["--inter", "`cardwatch serve --help`"]),
    ("flag: backend", ["--backend", "cuda"], {}, ["--backend: 'cuda'", "nvml, sim, replay"]),
    ("scenario without sim", ["--backend", "nvml", "--scenario", "sick"], {},
     ["--scenario", "--backend sim only"]),
    ("capture without replay", ["--backend", "sim", "--capture", "x.jsonl"], {},
     ["--capture", "--backend replay only"]),
    ("replay without capture", ["--backend", "replay"], {}, ["--capture FILE"]),
    ("scenario: unknown", ["--backend", "sim", "--scenario", "sik"], {},
     ["'sik'", "allowed: blackout, healthy, mixed, sick"]),
    ("scenario: missing", ["--backend", "sim", "--scenario", "{dir}/none.yaml"], {},
     ["{dir}/none.yaml", "No such file"]),
    ("scenario: broken", ["--backend", "sim", "--scenario", "{dir}/scenario.yaml"], {},
     ["{dir}/scenario.yaml: faults[0].fault: 'hangs' is not allowed", "hang"]),
    ("capture: missing", ["--backend", "replay", "--capture", "{dir}/none"], {},
     ["{dir}/none: cannot be read"]),
    ("capture: another file", ["--backend", "replay", "--capture", "{dir}/no unit"], {},
     ["{dir}/no unit: line 1", "cardwatch capture"]),
    ("listen: nonsense", ["--listen", "everywhere"], {}, ["--listen 'everywhere'", ":PORT"]),
    ("listen: no such host", ["--listen", "192.0.2.1:0"], {}, ["192.0.2.1"]),
    ("web config: missing", ["--web.config.file", "{dir}/none"], {}, ["{dir}/none"]),
    ("web config: unknown key", ["--web.config.file", "{dir}/no unit"], {},
     ["{dir}/no unit", "interval"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "environment", "said"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES]
)
def test_a_wrong_setting_is_one_line_and_status_2(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], said: list[str]
) -> None:
    """The line names where the setting stands, the value, and what is allowed."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "scenario.yaml").write_text("faults: [{fault: hangs}]\n")

    def here(text: str) -> str:
        return text.replace("{dir}", str(tmp_path))

    ended = run(
        "serve", *map(here, arguments),
        env={"CARDWATCH_LISTEN": "127.0.0.1:0", "CARDWATCH_STATE_DIR": str(tmp_path / "state"),
             **{key: here(value) for key, value in environment.items()}},
    )  # fmt: skip
    assert ended.returncode == 2, ended.stderr
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert ended.stderr.startswith("cardwatch serve: ")
    for part in said:
        assert here(part) in ended.stderr


def test_a_port_that_is_taken_is_one_line_and_status_2(tmp_path: Path) -> None:
    """The line names the port and how to find who holds it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run(
            "serve",
            "--listen",
            f"127.0.0.1:{port}",
            "--state-dir",
            str(tmp_path),
            "--backend",
            "sim",
        )
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert f"port {port} is already in use" in ended.stderr


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    """Without permission the error says so, whoever runs it."""
    # /proc/self/mem is there for everybody and readable for nobody at its start.
    ended = run("serve", "--config", "/proc/self/mem", "--state-dir", str(tmp_path))
    assert ended.returncode == 2
    assert ended.stderr.startswith("cardwatch serve: /proc/self/mem: cannot be read: ")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["snapshot", "capture", "baseline"])
def test_other_commands_refuse_wrong_settings_alike(command: str, tmp_path: Path) -> None:
    """One line and status 2 wherever settings are read."""
    words = {
        "snapshot": ["snapshot"], "capture": ["capture", "-"], "baseline": ["baseline", "forget"]
    }[command]  # fmt: skip
    file = tmp_path / "config.yaml"
    file.write_text("backend: cuda\n")
    ended = run(*words, "--config", str(file))
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert ended.stderr.startswith(f"cardwatch {command}: {file}: backend: 'cuda'")


@pytest.mark.parametrize("most", ["default", "file", "environment", "flag"])
def test_the_strongest_origin_of_a_setting_wins(serve: Serve, tmp_path: Path, most: str) -> None:
    """Defaults, config file, environment, flags: each beats those before it."""
    config = tmp_path / "config.yaml"
    config.write_text("expect_gpus: 1\n" if most != "default" else "")
    strength = ["default", "file", "environment", "flag"].index(most)
    env = {"CARDWATCH_EXPECT_GPUS": "2"} if strength >= 2 else {}
    flags = ["--expect-gpus", "3"] if strength >= 3 else []
    exporter = serve(*scenario(tmp_path), "--config", str(config), *flags, env=env)
    expected = [None, 1.0, 2.0, 3.0][strength]
    assert exporter.page().value("gpu_node_expected_gpus") == expected


def test_sighup_reads_the_config_again(serve: Serve, tmp_path: Path) -> None:
    """Labels and profile change on the page; a broken file keeps what was there, and is logged."""
    config = tmp_path / "config.yaml"
    config.write_text("labels: {rack: r1}\nprofile: core\n")
    exporter = serve(*scenario(tmp_path), "--config", str(config))
    page = exporter.await_page(lambda p: list(p.up().values()) == [1.0, 1.0])
    assert not page.all("gpu_memory_free_bytes")

    def reload(text: str) -> None:
        config.write_text(text)
        exporter.signal(signal.SIGHUP)

    reload("labels: {rack: r2}\nprofile: core\n")
    page = exporter.await_page(lambda p: p.all("gpu_up", rack="r2"))
    assert not page.all("cardwatch_time_seconds", rack="r1")
    child = exporter.child()

    reload("labels: {rack: [broken\n")
    exporter.wait_log("settings not reloaded: ")
    page = exporter.await_page(lambda p: p.all("gpu_up", rack="r2"))
    assert exporter.child() == child

    reload("labels: {rack: r2}\nprofile: standard\ndetach_endpoint: true\n")
    exporter.wait_log("a restart is needed for a change of detach_endpoint")
    page = exporter.await_page(lambda p: p.all("gpu_memory_free_bytes", rack="r2"))
    assert exporter.process.poll() is None
    assert exporter.child() != child  # the profile is the child's


def test_a_reload_of_the_interval_shows_on_the_page(serve: Serve, tmp_path: Path) -> None:
    """The new interval is in force and said, without a restart."""
    config = tmp_path / "config.yaml"
    config.write_text("expect_gpus: 2\n")
    exporter = serve(*scenario(tmp_path), "--config", str(config))
    exporter.await_page(lambda p: list(p.up().values()) == [1.0, 1.0])
    config.write_text("expect_gpus: 4\n")
    exporter.signal(signal.SIGHUP)
    exporter.await_page(lambda p: p.value("gpu_node_expected_gpus") == 4)
