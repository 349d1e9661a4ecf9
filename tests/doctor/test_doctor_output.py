# SPDX-License-Identifier: Apache-2.0
"""The page: order, numbers, colour, JSON, the report, and text that cannot do harm."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import unicodedata

import pytest
from doctor_harness import Machine

from cardwatch.doctor import render
from cardwatch.doctor.finding import Level, count, note, numbers, ok, plain, problem, shown
from cardwatch.doctor.scene import Scene
from cardwatch.settings.table import Settings
from nvml_c import Stub

EVIL = b"NVIDIA \x1b[31mE\xe2\x80\xaevil\n# |x| <b>*_`"
"""A name with a colour code, a right-to-left override, a line break and markup."""

SICK = """
    cards: 3
    faults:
      - {fault: lost, gpu: 0}
      - {fault: error, gpu: 1, call: DeviceGetPowerUsage, code: unknown}
      - {fault: error, call: DeviceGetComputeMode, code: unknown}
"""


def test_problems_come_first_with_numbers_then_notes_then_what_is_well(machine: Machine) -> None:
    """Order of the page, numbered fixes, and a summary in the last line."""
    result = machine.run(*machine.scenario(SICK), form=())
    lines = result.output.splitlines()
    heads = [line for line in lines if re.match(r"(\d+\. PROBLEM|NOTE|ok)  ", line)]
    kinds = [re.sub(r"\d+\. ", "", head).split(" ")[0] for head in heads]
    assert kinds == sorted(kinds, key=["PROBLEM", "NOTE", "ok"].index)
    assert [head.split(".")[0] for head in heads if "PROBLEM" in head] == ["1", "2"]
    assert sum("Fix: " in line for line in lines) >= 2
    assert re.fullmatch(r"2 problems, \d+ notes, \d+ ok\. .*", lines[-1])
    assert result.status == 1


def test_without_problems_the_last_line_says_so(machine: Machine) -> None:
    """The summary of a machine without problems, and exit status 0."""
    result = machine.run("--backend", "sim", form=())
    assert result.output.splitlines()[-1].startswith("No problem found, ")
    assert result.status == 0
    assert result.errors == ""


def test_every_problem_names_a_fix(machine: Machine) -> None:
    """A problem without a way out is of no use to anybody."""
    machine.gpus("0000:1b:00", driver=None)
    for flags in (machine.scenario(SICK), ("--expect-gpus", "3", "--listen=nonsense")):
        for finding in machine.run(*flags).page["findings"]:
            assert finding["fix"] or finding["level"] != "problem", finding


def test_json_holds_every_finding(machine: Machine) -> None:
    """Programs get ids, levels, texts and the fixes as a list."""
    page = machine.run(*machine.scenario(SICK)).page
    assert (page["node"], page["backend"], page["simulated"]) == ("box", "sim", True)
    assert page["problems"] == sum(f["level"] == "problem" for f in page["findings"])
    assert page["notes"] == sum(f["level"] == "note" for f in page["findings"])
    assert {"id", "level", "title", "detail", "fix"} == set(page["findings"][0])


def test_colour_is_for_terminals_only(machine: Machine) -> None:
    """Escape codes on a terminal, none in a pipe, none with NO_COLOR."""
    assert "\x1b" not in machine.run("--backend", "sim", form=()).output
    assert "\x1b[" in _on_a_terminal(machine, {"TERM": "xterm"})
    assert "\x1b" not in _on_a_terminal(machine, {"TERM": "xterm", "NO_COLOR": "1"})
    assert "\x1b" not in _on_a_terminal(machine, {"TERM": "dumb"})


def _on_a_terminal(machine: Machine, environment: dict[str, str]) -> str:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        machine.command("--backend", "sim"),
        env={**machine.variables(), **environment},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
    ):
        os.close(theirs)
        parts = []
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other side has closed
                break
            if not part:
                break
            parts.append(part)
    os.close(ours)
    return b"".join(parts).decode()


def test_a_name_from_the_driver_cannot_paint_or_break_lines(machine: Machine, stub: Stub) -> None:
    """Control characters and direction overrides in a card's name are shown, not obeyed."""
    machine.whole()
    machine.use(stub)
    stub.set("nvmlDeviceGetName", EVIL)
    output = machine.run(form=()).output
    assert "vil" in output
    bad = {c for c in output if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c != "\n"}
    assert not bad


def test_a_name_from_the_driver_is_no_markup_in_the_report(machine: Machine, stub: Stub) -> None:
    """Markdown sees plain text in a card's name."""
    machine.whole()
    machine.use(stub)
    stub.set("nvmlDeviceGetName", EVIL)
    report = machine.run(form=("--report", "md")).output
    line = next(line for line in report.splitlines() if line.startswith("## Card 0"))
    assert r"\# \|x\| \<b\>\*\_\`" in line
    assert "\u202e" not in report


def test_values_from_the_environment_cannot_break_lines(machine: Machine) -> None:
    """A variable with a line break stays within its line."""
    machine.whole()
    given = {
        "KUBERNETES_SERVICE_HOST": "1",
        "NVIDIA_VISIBLE_DEVICES": "0\n9. PROBLEM  forged\x1b[0m",
    }
    output = machine.run(form=(), environment=given).output
    assert "\n9. PROBLEM" not in output
    assert "\x1b" not in output


def test_a_terminal_without_utf_8_gets_ascii(machine: Machine) -> None:
    """What the encoding lacks is escaped."""
    given = {"PYTHONIOENCODING": "ascii", "NVML_MPS_DEVICE_ENUMERATION": "ü"}
    result = machine.run("--backend", "sim", form=(), environment=given)
    assert "\\xfc" in result.output
    assert result.status == 0


def test_settings_that_cannot_be_used_end_with_2(machine: Machine) -> None:
    """A wrong setting is one line on stderr."""
    result = machine.run("--interval", "soon", form=())
    assert result.status == 2
    assert result.errors.count("\n") == 1
    assert "--interval" in result.errors


def test_report_and_format_exclude_each_other(machine: Machine) -> None:
    """The report has one form."""
    assert machine.run(form=("--report", "md", "--format", "json")).status == 2


def test_help_says_what_is_needed() -> None:
    """Exit status, order and report are explained by --help."""
    machine_help = subprocess.run(
        [sys.executable, "-m", "cardwatch", "doctor", "--help"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for words in ("Exit status: 0", "--report md", "same user", "--path.procfs", "--listen"):
        assert words in machine_help


# -- report -----------------------------------------------------------------------------------


def test_the_report_of_a_card_holds_what_an_offer_claims(machine: Machine, stub: Stub) -> None:
    """Model, branch, memory, ECC, MIG, persistence, NVLink, PCIe, power limit, readings."""
    machine.whole()
    machine.use(stub)
    machine.write("sysfs/class/dmi/id/product_name", "DGXH100\n")
    stub.set("nvmlDeviceGetCurrPcieLinkGeneration", 1)
    stub.set("nvmlDeviceGetEnforcedPowerLimit", 500_000)
    stub.error("nvmlDeviceGetSramEccErrorStatus", 4)
    stub.error("nvmlDeviceGetPerformanceState", 999)
    result = machine.run("--expect-gpus", "1", form=("--report", "md"))
    for line in (
        "# What cardwatch sees on box",
        "- Driver: 580.95.05 (branch R580), open kernel module",
        "- Cards: 1 on the PCI bus, 1 listed by the driver, 1 expected",
        "- Machine: DGXH100",
        "## Card 0: H100 80GB HBM3",
        "- State: ok",
        "- Driver: 580.95.05 (branch R580)",
        "- Memory: 79.6 GiB",
        "- ECC: on",
        "- MIG: off",
        "- Persistence mode: on",
        "- NVLink: 18 links active of 18 supported",
        "- PCIe: generation 1 of 5, width 16 of 16 (an idle card may lower it: look again under "
        "load)",
        "- Power limit: 500 W, default 700 W (LOWERED), settable 200 to 700 W",
        "- Denied (1): `gpu_ecc_sram_threshold_exceeded`",
        "- Failing (1): `gpu_performance_state (unknown)`",
    ):
        assert line in result.output.splitlines()
    assert re.search(r"^- Readable \(\d+\): `gpu_memory_total_bytes`", result.output, re.MULTILINE)
    assert re.search(
        r"^- Unsupported \(\d+\): .*`gpu_fan_speed_ratio`", result.output, re.MULTILINE
    )
    assert result.status == 1


def test_the_report_says_what_the_platform_hides(machine: Machine, stub: Stub) -> None:
    """Restrictions of the container stand in a section of their own."""
    machine.whole()
    machine.use(stub)
    (machine.devfs / "kmsg").unlink()
    given = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "NVIDIA_VISIBLE_DEVICES": "0"}
    report = machine.run(form=("--report", "md"), environment=given).output
    section = report.split("## What the platform hides")[1].split("\n## ")[0]
    assert "In a container (Kubernetes)" in section
    assert "NVIDIA\\_VISIBLE\\_DEVICES is 0" in section
    assert "kmsg" in section


def test_cards_that_are_alike_tell_their_readings_once(machine: Machine) -> None:
    """Eight equal cards do not repeat eight times the same list; MIG is told per card."""
    flags = machine.scenario("""
        cards: 3
        faults: [{fault: mig, gpu: 2, instances: [3g.40gb, 1g.10gb]}]
    """)
    report = machine.run(*flags, form=("--report", "md")).output
    assert report.count("- Readable") == 2
    assert "- Readings: as card 0" in report
    assert "- MIG: on, 2 instances (3g.40gb, 1g.10gb)" in report
    assert "SIMULATED CARDS" in report
    assert report.rstrip().endswith("Nothing.")


def test_a_card_without_readings_is_in_the_report(machine: Machine) -> None:
    """A lost card keeps its place, and what stands in the way is listed."""
    flags = machine.scenario("cards: 2\nfaults: [{fault: lost, gpu: 1}]")
    report = machine.run(*flags, form=("--report", "md")).output
    assert "- State: lost (gpu\\_is\\_lost)" in report
    assert "1. Card 1 is lost" in report


def test_cards_without_a_feature_say_not_supported(machine: Machine) -> None:
    """A GeForce card has no ECC, MIG or NVLink, and none of them is shown as off."""
    report = machine.run(
        *machine.scenario("cards: [{model: RTX4090}, {model: GB10}]"), form=("--report", "md")
    ).output
    for line in ("- ECC: not supported", "- MIG: not supported", "- NVLink: not supported",
                 "- Memory: not supported"):  # fmt: skip
        assert line in report


# -- the small things -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("plain ü", "plain ü"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\r", "a\\x0ab\\x0d"),
        ("\u202eabc", "\\u202eabc"),
        ("\ud800", "\\ud800"),
        ("\U000e0001", "\\U000e0001"),
    ],
)
def test_text_is_made_plain(text: str, safe: str) -> None:
    """Whatever is not printable is escaped."""
    assert plain(text) == safe


def test_long_values_are_cut() -> None:
    """A value from outside cannot fill the page."""
    assert len(shown("x" * 100_000)) < 400


@pytest.mark.parametrize(
    ("values", "text"), [([], ""), ([3], "3"), ([0, 1, 2, 3, 5], "0-3, 5"), ([2, 0, 2], "0, 2")]
)
def test_numbers_are_written_the_short_way(values: list[int], text: str) -> None:
    """Runs of numbers are joined."""
    assert numbers(values) == text


def test_nouns_agree_with_their_number() -> None:
    """One card, two cards."""
    assert (count(1, "card"), count(2, "card"), count(0, "box", "boxes")) == (
        "1 card", "2 cards", "0 boxes"
    )  # fmt: skip


def test_a_page_of_no_pass_can_be_rendered() -> None:
    """Text and JSON do not need a snapshot."""
    scene = Scene(Settings(), {})
    found = [problem("a", "A", "why", "do"), note("b", "B"), ok("c", "C", "more")]
    text = render.text(scene, found, colour=True)
    assert "\x1b[1;31m1. PROBLEM\x1b[0m  A" in text
    assert "ok\x1b[0m  C (more)" in text
    assert json.loads(render.as_json(scene, found))["findings"][2]["level"] == Level.OK.value
