# SPDX-License-Identifier: Apache-2.0
"""The driver as a whole: module, versions, answers, age."""

from __future__ import annotations

import pytest
from doctor_harness import Machine

from cardwatch.doctor.checks_driver import FEATURES
from cardwatch.families import BY_NAME
from nvml_c import Stub, compile_c

LIB_RM_VERSION_MISMATCH, DRIVER_NOT_LOADED = 18, 9


def test_cards_without_the_kernel_module_are_named(machine: Machine) -> None:
    """Cards on the bus without a module: their number, and how to load it."""
    machine.gpus("0000:1b:00", "0000:43:00", driver=None)
    text = machine.run().problem("module-not-loaded")
    assert "2 NVIDIA cards: 0000:1b:00, 0000:43:00" in text
    assert str(machine.procfs / "driver/nvidia/version") in text
    assert "sudo modprobe nvidia" in text


def test_a_module_missing_in_a_container_is_the_hosts_affair(machine: Machine) -> None:
    """The module is loaded on the host, never in the container."""
    machine.gpus("0000:1b:00", driver=None)
    result = machine.run(environment={"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert "On the host, not in this container" in result.problem("module-not-loaded")


def test_nouveau_on_a_card_is_named_with_its_blacklist(machine: Machine) -> None:
    """A card that nouveau has taken: the fix keeps nouveau away."""
    machine.gpus("0000:1b:00", driver="nouveau")
    result = machine.run()
    text = result.problem("nouveau")
    assert "0000:1b:00" in text
    assert "blacklist nouveau" in text
    assert "module-not-loaded" not in result.found


def test_cards_kept_for_virtual_machines_are_a_note(machine: Machine) -> None:
    """A card bound to vfio-pci is not missed, and where to look is said."""
    machine.gpus("0000:1b:00", driver="vfio-pci")
    result = machine.run()
    assert "inside the virtual machine" in result.note("vfio")
    assert "module-not-loaded" not in result.found
    assert "counts" not in result.problems


def test_a_module_that_only_sysfs_shows_is_a_matter_of_the_path(machine: Machine) -> None:
    """With the module in sysfs, procfs is the wrong one."""
    machine.gpus("0000:1b:00")
    machine.write("sysfs/module/nvidia/version", "580.95.05\n")
    assert "--path.procfs" in machine.run().note("module-hidden")


def test_a_bus_that_cannot_be_seen_is_a_note(machine: Machine) -> None:
    """Without sysfs nothing can tell a card that the driver does not list."""
    result = machine.run("--path.sysfs", str(machine.folder / "elsewhere"))
    assert "--path.sysfs" in result.note("pci-unreadable")


def test_a_mismatch_names_the_versions_of_module_and_library(machine: Machine, stub: Stub) -> None:
    """The library refuses the older module: both versions, and reload or reboot."""
    machine.whole()
    machine.module("570.86.15")
    machine.use(stub, version="580.95.05")
    stub.error("everything", LIB_RM_VERSION_MISMATCH)
    result = machine.run()
    text = result.problem("driver-library-mismatch")
    assert "Kernel module 570.86.15" in text
    assert "driver library 580.95.05" in text
    assert "modprobe -r nvidia_uvm" in text
    assert "reboot" in text
    assert result.problems == ["driver-library-mismatch"]


def test_a_mismatch_in_a_container_asks_for_a_new_container(machine: Machine, stub: Stub) -> None:
    """In a container it is the library that is stale."""
    machine.whole()
    machine.module("590.44.01")
    machine.use(stub, version="580.95.05")
    stub.error("everything", LIB_RM_VERSION_MISMATCH)
    result = machine.run(environment={"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert "Start this container anew" in result.problem("driver-library-mismatch")


def test_a_simulated_mismatch_is_recognised(machine: Machine) -> None:
    """The simulated module's version is the one that is named."""
    flags = machine.scenario("faults: [{fault: mismatch, module: 535.54.03}]")
    assert "Kernel module 535.54.03" in machine.run(*flags).problem("driver-library-mismatch")


def test_a_driver_that_is_gone_is_recognised(machine: Machine) -> None:
    """The driver says that no module is loaded."""
    flags = machine.scenario("faults: [{fault: driver_gone}]")
    text = machine.run(*flags).problem("module-not-loaded")
    assert "8 NVIDIA cards" in text
    assert "modprobe nvidia" in text


def test_a_module_that_took_up_no_card_is_recognised(machine: Machine, stub: Stub) -> None:
    """The module is loaded, but the driver says that it is not."""
    machine.whole()
    machine.use(stub)
    stub.error("everything", DRIVER_NOT_LOADED)
    assert "dmesg" in machine.run().problem("driver-not-initialised")


def test_a_simulated_library_that_is_missing_is_recognised(machine: Machine) -> None:
    """The library of a simulated node can be missing, whatever this machine has."""
    flags = machine.scenario("faults: [{fault: library_missing}]")
    assert "libnvidia-ml.so.1" in machine.run(*flags).problem("library-missing")


def test_a_driver_that_refuses_everything_is_recognised(machine: Machine) -> None:
    """Refused by the driver as a whole."""
    flags = machine.scenario("faults: [{fault: denied}]")
    assert "permission denied" in machine.run(*flags).problem("driver-refuses")


def test_another_error_of_the_driver_is_shown_by_name(machine: Machine) -> None:
    """An error that no check explains still makes a problem, with its name."""
    flags = machine.scenario("faults: [{fault: error, call: Init, code: insufficient_resources}]")
    assert "insufficient_resources" in machine.run(*flags).problem("driver-unusable")


def test_a_reading_process_that_dies_makes_no_healthy_machine(machine: Machine) -> None:
    """When the library takes the reading process down, that is a problem and no wait for more."""
    machine.whole()
    source = machine.write(
        "deadly.c", "#include <unistd.h>\nint nvmlInitWithFlags(void) {_exit(9);}"
    )
    library = machine.folder / "deadly/libnvidia-ml.so.1"
    library.parent.mkdir()
    compile_c(["-shared", "-fPIC", source], library)
    result = machine.run(environment={"LD_LIBRARY_PATH": str(library.parent)})
    assert "The reading process ended" in result.problem("driver-unusable")


@pytest.mark.parametrize(
    ("version", "missing", "present"),
    [
        ("470.256.02", "gpu_memory_reserved_bytes", "\0"),
        ("515.105.01", "gpu_power_instant_watts", "gpu_memory_reserved_bytes"),
        ("535.104.05", "gpu_ecc_sram_threshold_exceeded", "gpu_jpeg_utilization_ratio"),
        ("550.163.01", "gpu_pcie_transmit_bytes_total", "gpu_ecc_sram_threshold_exceeded"),
        ("570.86.15", "gpu_repair_pending", "gpu_recovery_action"),
        ("580.65.06", "thermal and power brake slowdown", "gpu_repair_pending"),
    ],
)
def test_what_an_older_driver_lacks_is_named(
    machine: Machine, version: str, missing: str, present: str
) -> None:
    """Readings that a newer driver would give are named, with the version that gives all."""
    result = machine.run(*machine.scenario(f"driver: '{version}'\ncards: 1"))
    text = result.note("driver-features")
    assert version in text
    assert missing in text
    assert present not in text
    assert "580.82 or newer" in text


def test_a_driver_below_every_floor_is_a_problem(machine: Machine) -> None:
    """Nothing was tried with drivers older than R470."""
    result = machine.run(*machine.scenario("driver: '450.248.02'\ncards: 1"))
    text = result.problem("driver-too-old")
    assert "450.248.02" in text
    assert "R470" in text


def test_an_early_r535_driver_is_recognised(machine: Machine) -> None:
    """Early R535 drivers lay out process lists in their own way; later ones do not."""
    early = machine.run(*machine.scenario("driver: '535.54.03'\ncards: 1"))
    assert "535.104" in early.note("driver-early-535")
    later = machine.run(*machine.scenario("driver: '535.104.05'\ncards: 1"))
    assert "driver-early-535" not in later.found


def test_a_present_driver_is_new_enough(machine: Machine) -> None:
    """Nothing is missing with the driver of the default scenario."""
    assert "new enough" in machine.run("--backend", "sim").ok("driver-features")


def test_every_reading_of_the_feature_table_exists() -> None:
    """The table of driver features names families that are exported, oldest driver first."""
    assert all(BY_NAME[name].planned is None for _, names in FEATURES for name in names)
    assert [since for since, _ in FEATURES] == sorted(since for since, _ in FEATURES)
