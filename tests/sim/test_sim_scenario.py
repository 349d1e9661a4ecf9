# SPDX-License-Identifier: Apache-2.0
"""Scenario files: what is read, and the one line that each mistake gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cardwatch.sim import DEFAULT, ScenarioError, SimDriver, load_scenario
from cardwatch.sim.faults import FOREVER, KINDS
from cardwatch.sim.scenario import packaged_names

Write = Callable[[str], Path]

MISTAKES = {
    # scenario text: (key that the message names, part of what it says is allowed)
    "sead: 7": ("sead", "did you mean seed?"),
    "seed: seven": ("seed", "a whole number from 0"),
    "driver: newest": ("driver", "such as 580.95.05"),
    "cards: many": ("cards", "a list of at most 128"),
    "cards: 500": ("cards", "a whole number from 0 to 128"),
    "cards: [{model: H100, count: 100}, {model: H100, count: 100}]": ("cards", "at most 128"),
    "cards: [{model: V100}]": ("cards[0].model", "H100, H200, A100"),
    "cards: [{model: H100, count: 0}]": ("cards[0].count", "from 1 to 128"),
    "cards: [{model: T4, ecc: maybe}]": ("cards[0].ecc", "true or false"),
    "cards: [{model: RTX4090, ecc: false}]": ("cards[0].ecc", "has no ECC"),
    "cards: [{modle: T4}]": ("cards[0].modle", "did you mean model?"),
    "cards: [T4]": ("cards[0]", "write keys and values"),
    "{driver: 470.57.02, cards: [{model: H100}]}": ("cards[0].model", "driver 525"),
    "- lost": ("", "write keys and values"),
    "faults: lost": ("faults", "a list"),
    "faults: [lost]": ("faults[0]", "write keys and values"),
    "faults: [{gpu: 1}]": ("faults[0].fault", "missing; write one of lost"),
    "faults: [{fault: lots, gpu: 1}]": ("faults[0].fault", "one of lost"),
    "faults: [{fault: lost, gpu: 8}]": ("faults[0].gpu", "from 0 to 7"),
    "faults: [{fault: lost, gpu: first}]": ("faults[0].gpu", "a whole number"),
    "{cards: 0, faults: [{fault: lost, gpu: 0}]}": ("faults[0].gpu", "no cards"),
    "faults: [{fault: lost, at: 60}]": ("faults[0].at", "a duration such as"),
    "faults: [{fault: lost, for: 0s}]": ("faults[0].for", "above 0"),
    "faults: [{fault: crash, for: 5s}]": ("faults[0].for", "allowed: fault, at"),
    "faults: [{fault: crash, gpu: 1}]": ("faults[0].gpu", "unknown key"),
    "faults: [{fault: lost, latancy: 5s}]": ("faults[0].latancy", "unknown key"),
    "faults: [{fault: slow, latency: 50}]": ("faults[0].latency", "a duration"),
    "faults: [{fault: slow}]": ("faults[0].latency", "missing; write a duration"),
    "faults: [{fault: hang, call: DeviceGetPowerUse}]": (
        "faults[0].call",
        "did you mean DeviceGetPowerUsage?",
    ),
    "faults: [{fault: missing}]": ("faults[0].call", "missing"),
    "faults: [{fault: error, call: Init, code: oops}]": ("faults[0].code", "gpu_is_lost"),
    "faults: [{fault: error, code: unknown}]": ("faults[0].call", "either call or field"),
    "faults: [{fault: error, code: 5, call: Init, field: 82}]": ("faults[0].field", "not both"),
    "faults: [{fault: value, call: Init, value: 1}]": ("faults[0].call", "a plain answer"),
    "faults: [{fault: value, call: DeviceGetName, value: {a: 1}}]": ("faults[0].value", "list"),
    "faults: [{fault: value, field: 82, value: hot}]": ("faults[0].value", "a whole number"),
    "faults: [{fault: value, field: 0, value: 1}]": ("faults[0].field", "from 1 to 999"),
    "faults: [{fault: ecc, gpu: 1, type: fatal, location: dram}]": (
        "faults[0].type",
        "corrected, uncorrected",
    ),
    "faults: [{fault: ecc, gpu: 1, type: corrected, location: l1}]": (
        "faults[0].location",
        "H100 has dram, sram",
    ),
    "faults: [{fault: throttle, reason: heat}]": ("faults[0].reason", "sw_power_cap"),
    "faults: [{fault: throttle, reason: hw_slowdown, factor: 2}]": ("faults[0].factor", "0.05"),
    "faults: [{fault: xid, code: 79}]": ("faults[0].gpu", "missing"),
    'faults: [{fault: xid, gpu: 1, code: 79, text: "a\\nb"}]': ("faults[0].text", "one line"),
    "faults: [{fault: recovery_action, action: 9}]": ("faults[0].action", "from 0 to 7"),
    "faults: [{fault: nvlink_down, gpu: 0, links: [18]}]": ("faults[0].links", "0 to 17"),
    "faults: [{fault: nvlink_down, gpu: 0, links: [1, 1]}]": ("faults[0].links", "repeated"),
    "{cards: [{model: T4}], faults: [{fault: nvlink_down, links: [0]}]}": (
        "faults[0].fault",
        "T4 has no NVLink",
    ),
    "{cards: [{model: RTX4090}], faults: [{fault: row_remap}]}": (
        "faults[0].fault",
        "does not repair",
    ),
    "faults: [{fault: mig, gpu: 0, instances: [9g.90gb]}]": ("faults[0].instances", "3g.40gb"),
    "faults: [{fault: mig, gpu: 0, instances: [7g.80gb, 1g.10gb]}]": (
        "faults[0].instances",
        "7 compute and 8 memory",
    ),
    "faults: [{fault: swap, gpus: [0]}]": ("faults[0].gpus", "2 to 2"),
    "faults: [{fault: swap, gpus: [0, 8]}]": ("faults[0].gpus", "0 to 7"),
    "faults: [{fault: memory_leak, mib_per_second: fast}]": (
        "faults[0].mib_per_second",
        "a number",
    ),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_each_mistake_is_one_line_that_names_file_key_and_remedy(text: str, write: Write) -> None:
    """A mistake names the file, the key and what is allowed, on one line."""
    key, allowed = MISTAKES[text]
    path = write(text)
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: {key}")
    assert allowed in message
    assert "\n" not in message


def test_every_kind_of_fault_has_an_example(write: Write) -> None:
    """Each fault kind can be written, with its required keys alone."""
    examples = {
        "ecc": "type: corrected, location: sram",
        "throttle": "reason: reliability",
        "recovery_action": "action: 2",
        "nvlink_down": "links: [0]",
        "nvlink_errors": "kind: replay",
        "memory_leak": "mib_per_second: 5",
        "xid": "gpu: 0, code: 31",
        "mig": "gpu: 0, instances: []",
        "unlisted": "gpu: 0",
        "hole": "gpu: 0",
        "slow": "latency: 1s",
        "error": "call: Init, code: 3",
        "value": "call: DeviceGetName, value: x",
        "missing": "call: DeviceGetName",
        "swap": "gpus: [0, 1]",
        "log": "text: hello",
    }
    rows = [f"  - {{fault: {kind}, {examples.get(kind, 'at: 1s')}}}" for kind in KINDS]
    scenario = load_scenario(write("faults:\n" + "\n".join(rows)))
    assert [fault.kind for fault in scenario.faults] == list(KINDS)


def test_a_scenario_reads_to_plain_records(write: Write) -> None:
    """Seed, driver, cards and faults come out as written."""
    scenario = load_scenario(
        write(
            """
            seed: 7
            driver: 570.124.06
            cards: [{model: A100, count: 2, ecc: false}, {model: H100}]
            faults:
              - {at: 1m, for: 30s, gpu: 2, fault: lost}
              - {fault: hang}
            """
        )
    )
    assert (scenario.seed, scenario.driver) == (7, "570.124.06")
    assert [(card.model.key, card.ecc) for card in scenario.cards] == [
        ("A100", False),
        ("A100", False),
        ("H100", True),
    ]
    first, second = scenario.faults
    assert (first.at, first.until, first.gpu) == (60, 90, 2)
    assert (second.at, second.until, second.gpu) == (0, FOREVER, None)


def test_an_empty_file_is_the_default_node(write: Write) -> None:
    """Nothing written means eight healthy H100."""
    assert load_scenario(write("")).cards == DEFAULT.cards


def test_an_old_driver_alone_brings_cards_that_it_knows(write: Write) -> None:
    """Without cards, a driver older than the H100 gets A100."""
    scenario = load_scenario(write("driver: 470.57.02"))
    assert {card.model.key for card in scenario.cards} == {"A100"}


def test_a_fault_of_every_card_skips_those_that_cannot_have_it(write: Write) -> None:
    """A fault without gpu is fine as long as one card can have it."""
    text = "{cards: [{model: T4}, {model: H100}], faults: [{fault: nvlink_down, links: [1]}]}"
    driver = SimDriver(load_scenario(write(text)), 0.0, clock=lambda: 1.0)
    driver.call("Init")
    handle = driver.call("DeviceGetHandleByIndex", 1)
    assert driver.call("DeviceGetNvLinkState", handle, 1) == 0


@pytest.mark.parametrize("name", packaged_names())
def test_packaged_scenarios_load_by_their_bare_name(name: str) -> None:
    """A bare name means a scenario of the package."""
    assert load_scenario(name).name == name


def test_the_packaged_scenarios_are_there() -> None:
    """The package brings the four scenarios that the documentation names."""
    assert packaged_names() == ["blackout", "healthy", "mixed", "sick"]


def test_the_healthy_scenario_is_the_default() -> None:
    """Running with healthy.yaml and with no scenario is the same."""
    assert load_scenario("healthy").cards == DEFAULT.cards


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("sunny", "allowed: blackout, healthy, mixed, sick"),
        ("./nowhere.yaml", "No such file"),
        ("/", "Is a directory"),
    ],
)
def test_a_scenario_that_is_not_there_says_so(source: str, says: str) -> None:
    """A wrong name lists the names there are; a wrong path says why."""
    with pytest.raises(ScenarioError, match=says):
        load_scenario(source)


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"faults: [", "not valid YAML in line 1"), (b"\xff\xfe\x00x", "UTF-8|YAML")],
)
def test_a_file_that_is_not_yaml_says_where(content: bytes, says: str, tmp_path: Path) -> None:
    """Broken YAML and other bytes give one line as well."""
    path = tmp_path / "broken.yaml"
    path.write_bytes(content)
    with pytest.raises(ScenarioError, match=says):
        load_scenario(path)
