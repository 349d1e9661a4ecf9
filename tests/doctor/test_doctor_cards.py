# SPDX-License-Identifier: Apache-2.0
"""Cards one by one: numbers, states with causes, readings, MIG, persistence mode."""

from __future__ import annotations

import pytest
from doctor_harness import Machine

from nvml_c import Stub

NO_PERMISSION = 4


def test_a_healthy_node_has_no_problem(machine: Machine, stub: Stub) -> None:
    """On a healthy machine doctor ends with 0 and says what is well."""
    machine.whole()
    machine.write("procfs/4200/comm", "python3\n")
    machine.use(stub)
    result = machine.run()
    assert (result.status, result.page["problems"], result.page["notes"]) == (0, 0, 0)
    assert "1 on the PCI bus, 1 listed by the driver" in result.ok("counts")
    assert "Card 0 (H100 80GB HBM3)" in result.ok("card")


def test_cards_on_the_bus_that_are_not_listed_are_named(machine: Machine, stub: Stub) -> None:
    """The address of the card that the driver left out is named."""
    machine.whole(2)
    machine.use(stub)
    text = machine.run().problem("counts")
    assert "2 on the PCI bus, 1 listed by the driver" in text
    assert "Not listed: 0000:43:00" in text


def test_a_container_with_fewer_cards_than_the_bus_is_told_why(
    machine: Machine, stub: Stub
) -> None:
    """In a container the first suspect is the list of visible devices."""
    machine.whole(2)
    machine.use(stub)
    given = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "NVIDIA_VISIBLE_DEVICES": "0"}
    assert "NVIDIA_VISIBLE_DEVICES=all (now: 0)" in machine.run(environment=given).problem("counts")


def test_another_number_than_expected_is_a_problem(machine: Machine) -> None:
    """All three numbers are named, and how to correct the expected one."""
    result = machine.run("--backend", "sim", "--expect-gpus", "9")
    text = result.problem("counts")
    assert "8 on the PCI bus, 8 listed by the driver, 9 expected" in text
    assert "--expect-gpus 8" in text
    assert "counts" not in machine.run("--backend", "sim", "--expect-gpus", "8").problems


def test_a_simulated_card_that_is_not_listed_is_counted(machine: Machine) -> None:
    """A card that is on the bus of the simulated node but not in the driver's list."""
    result = machine.run(*machine.scenario("cards: 3\nfaults: [{fault: unlisted, gpu: 1}]"))
    assert "3 on the PCI bus, 2 listed by the driver" in result.problem("counts")


@pytest.mark.parametrize(
    ("fault", "name", "words"),
    [
        ("{fault: lost, gpu: 1}", "card-lost", ["fallen off the bus", "Xid 79"]),
        ("{fault: denied, gpu: 1}", "card-denied", ["may not open", "NVIDIA_VISIBLE_DEVICES=all"]),
        ("{fault: hole, gpu: 1}", "card-unreadable", ["(unknown)", "dmesg"]),
        (
            "{fault: error, gpu: 1, call: DeviceGetHandleByIndex, code: insufficient_power}",
            "card-unreadable",
            ["(insufficient_power)", "power cables"],
        ),
        (
            "{fault: error, gpu: 1, call: DeviceGetHandleByIndex, code: irq_issue}",
            "card-unreadable",
            ["(irq_issue)", "interrupts"],
        ),
        (
            "{fault: error, gpu: 1, call: DeviceGetHandleByIndex, code: corrupted_inforom}",
            "card-unreadable",
            ["(corrupted_inforom)", "infoROM is damaged"],
        ),
        (
            "{fault: error, gpu: 1, call: DeviceGetPowerUsage, code: reset_required}",
            "card-reset-required",
            ["still answers", "nvidia-smi --gpu-reset -i 1"],
        ),
    ],
)
def test_a_card_that_does_not_answer_is_named_with_its_cause(
    machine: Machine, fault: str, name: str, words: list[str]
) -> None:
    """State, cause, what it means and the way out; the other cards are well."""
    result = machine.run(*machine.scenario(f"cards: 3\nfaults: [{fault}]"))
    assert result.status == 1
    text = result.problem(name)
    assert text.startswith("Card 1 is ")
    for each in words:
        assert each in text
    assert "Cards 0, 2" in result.ok("card")


def test_cards_with_the_same_trouble_share_one_finding(machine: Machine) -> None:
    """Eight cards that are refused are one problem, not eight."""
    flags = machine.scenario("""
        cards: 4
        faults:
          - {fault: denied, gpu: 0}
          - {fault: denied, gpu: 1}
          - {fault: denied, gpu: 2}
    """)
    result = machine.run(*flags)
    assert result.problems == ["card-denied"]
    assert "Cards 0-2 are denied" in result.problem("card-denied")


def test_a_hung_card_names_the_call_it_hangs_in(machine: Machine) -> None:
    """The other cards are read; the hung one names the driver call."""
    flags = machine.scenario("cards: 3\nfaults: [{fault: hang, gpu: 2, call: DeviceGetPowerUsage}]")
    result = machine.run(*flags, "--deadline", "2s")
    text = result.problem("card-hung")
    assert "Card 2 is hung" in text
    assert "nvmlDeviceGetPowerUsage has not returned" in text
    assert "Cards 0-1" in result.ok("card")


def test_readings_that_fail_are_named_with_their_error(machine: Machine) -> None:
    """A reading that fails is a problem while the profile exports it."""
    flags = machine.scenario(
        "cards: 2\nfaults: [{fault: error, gpu: 1, call: DeviceGetPowerUsage, code: unknown}]"
    )
    text = machine.run(*flags).problem("readings-failing")
    assert "Card 1: 1 reading fails" in text
    assert "gpu_power_watts (unknown)" in text


def test_readings_that_are_denied_are_named(machine: Machine) -> None:
    """A reading that needs more rights is named with how to give them."""
    flags = machine.scenario(
        "cards: 1\nfaults: [{fault: error, call: DeviceGetSramEccErrorStatus, code: no_permission}]"
    )
    text = machine.run(*flags).problem("readings-denied")
    assert "gpu_ecc_sram_threshold_exceeded" in text
    assert "root" in text


def test_readings_that_the_profile_leaves_out_are_a_note(machine: Machine) -> None:
    """What the chosen profile would not export anyway does not fail the command."""
    flags = machine.scenario(
        "cards: 1\nfaults: [{fault: error, call: DeviceGetComputeMode, code: unknown}]"
    )
    result = machine.run(*flags)
    assert result.status == 0
    assert "leaves them out" in result.note("readings-failing")
    assert "gpu_compute_mode" in machine.run(*flags, "--profile", "full").problem(
        "readings-failing"
    )


# -- MIG --------------------------------------------------------------------------------------


MIG_DENIED = """
    cards: 2
    faults:
      - {fault: mig, gpu: 1, instances: [3g.40gb, 3g.40gb]}
      - {fault: error, gpu: 1, call: DeviceGetMemoryInfo_v2, code: no_permission}
"""


def test_mig_with_denied_memory_names_variable_and_capability(machine: Machine) -> None:
    """Memory of a divided card needs the variable and CAP_SYS_ADMIN, or the monitor device."""
    result = machine.run(*machine.scenario(MIG_DENIED))
    text = result.problem("mig-denied")
    assert "MIG is on for card 1" in text
    assert "gpu_memory_used_bytes" in text
    assert "NVIDIA_MIG_MONITOR_DEVICES is not set" in text
    assert "NVIDIA_MIG_MONITOR_DEVICES=all and CAP_SYS_ADMIN" in text
    assert "nvidia-caps" in text
    assert "readings-denied" not in result.found


def test_mig_with_denied_memory_through_the_driver_library(
    machine: Machine, tmp_path: object
) -> None:
    """The same from a driver library, in a pod, with what the pod was given."""
    machine.whole()
    stub = Stub.a100_mig(gpus=1, directory=machine.folder / "mig")
    machine.use(stub)
    stub.error("nvmlDeviceGetMemoryInfo_v2", NO_PERMISSION, gpu=0)
    machine.write("procfs/self/status", "CapEff:\t0000000000000000\n")
    given = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "NVIDIA_MIG_MONITOR_DEVICES": "all"}
    text = machine.run(environment=given).problem("mig-denied")
    assert "NVIDIA_MIG_MONITOR_DEVICES is all; CAP_SYS_ADMIN is not held" in text
    assert "add: [SYS_ADMIN]" in text


def test_mig_that_can_be_read_is_well(machine: Machine) -> None:
    """Instances are counted."""
    flags = machine.scenario("cards: 2\nfaults: [{fault: mig, gpu: 1, instances: [7g.80gb]}]")
    assert "card 1: 1 instance" in machine.run(*flags).ok("mig")


# -- modes ------------------------------------------------------------------------------------


def test_persistence_mode_that_is_off_is_a_note_with_the_daemon(
    machine: Machine, stub: Stub
) -> None:
    """Why it matters, and nvidia-persistenced."""
    machine.whole()
    machine.use(stub)
    stub.set("nvmlDeviceGetPersistenceMode", 0)
    text = machine.run().note("persistence-off")
    assert "Card 0: persistence mode is off" in text
    assert "shuts it down" in text
    assert "nvidia-persistenced" in text


# -- not real ---------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["sim", "replay"])
def test_cards_that_are_not_real_are_said_loudly(machine: Machine, backend: str) -> None:
    """A simulated or replayed run says so first, and nothing of this machine's driver."""
    flags = ("--backend", "sim")
    if backend == "replay":
        capture = machine.write(
            "capture.jsonl",
            '{"format":"cardwatch-capture","version":1,"cardwatch":"0","time":1,"host":{}}\n'
            '{"pass":0,"answers":[["Init",[],{"ok":null}],["DeviceGetCount",[],{"ok":0}]]}\n',
        )
        flags = ("--backend", "replay", "--capture", str(capture))
    result = machine.run(*flags)
    assert f"SIMULATED CARDS: backend {backend}" in result.note("simulated")
    assert not {"module", "devices", "kmsg", "processes", "container", "machine"} & set(
        result.found
    )
    page = machine.run(*flags, form=()).output.splitlines()
    assert "SIMULATED CARDS" in page[1]
