# SPDX-License-Identifier: Apache-2.0
"""Device nodes: missing, closed by mode, closed by the device cgroup."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from doctor_harness import Machine, obey_modes

Refuse = Callable[[str], dict[str, str]]
IN_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


def test_a_missing_control_device_is_a_problem(machine: Machine) -> None:
    """Without nvidiactl the library finds no driver; on a host nvidia-modprobe makes it."""
    machine.whole()
    (machine.devfs / "nvidiactl").unlink()
    text = machine.run().problem("device-missing")
    assert str(machine.devfs / "nvidiactl") in text
    assert "nvidia-modprobe" in text


def test_missing_devices_in_a_container_are_a_matter_of_how_it_was_started(
    machine: Machine,
) -> None:
    """In a container the fix is how it gets its devices."""
    machine.whole()
    (machine.devfs / "nvidiactl").unlink()
    assert "runtimeClassName" in machine.run(environment=IN_POD).problem("device-missing")
    chosen = machine.run(environment={**IN_POD, "NVIDIA_VISIBLE_DEVICES": "void"})
    assert "NVIDIA_VISIBLE_DEVICES=all; it has void" in chosen.problem("device-missing")


def test_missing_nodes_of_cards_are_counted(machine: Machine) -> None:
    """Two cards, one node: both numbers are named."""
    machine.whole(2)
    (machine.devfs / "nvidia1").unlink()
    text = machine.run().problem("card-devices-missing")
    assert "1 card node (0) for 2 cards" in text


def test_missing_nodes_of_cards_are_named_by_their_minor_number(machine: Machine) -> None:
    """Where the module tells minor numbers, the node that is missing is named."""
    machine.whole(2)
    for number, address in enumerate(("0000:1b:00.0", "0000:43:00.0")):
        machine.write(f"procfs/driver/nvidia/gpus/{address}/information",
                      f"Model: \t\t H100\nDevice Minor: \t {number + 3}\n")  # fmt: skip
    (machine.devfs / "nvidia3").write_text("")
    assert str(machine.devfs / "nvidia4") in machine.run().problem("card-devices-missing")


def test_a_control_device_closed_by_its_mode_shows_the_mode(machine: Machine) -> None:
    """EACCES with a mode that explains it: the mode, and the module option that opens it."""
    machine.whole()
    (machine.devfs / "nvidiactl").chmod(0o000)
    text = machine.run(before=obey_modes).problem("device-denied-by-mode")
    assert "----------" in text
    assert "NVreg_DeviceFileMode=0666" in text


def test_a_node_of_a_card_closed_by_its_mode_is_named(machine: Machine) -> None:
    """The nodes of cards are looked at too, without opening them."""
    machine.whole(2)
    (machine.devfs / "nvidia1").chmod(0o000)
    text = machine.run(before=obey_modes).problem("device-denied-by-mode")
    assert str(machine.devfs / "nvidia1") in text


def test_a_control_device_closed_by_the_cgroup_names_the_unit_settings(
    machine: Machine, refuse: Refuse
) -> None:
    """EPERM on a host: the device cgroup of a systemd unit."""
    machine.whole()
    text = machine.run(environment=refuse("nvidiactl")).problem("device-denied-by-cgroup")
    assert "EPERM" in text
    assert "DeviceAllow=/dev/nvidiactl rw" in text


def test_a_control_device_closed_to_a_container_asks_for_a_new_one(
    machine: Machine, refuse: Refuse
) -> None:
    """EPERM in a container: only a new container cures that."""
    machine.whole()
    text = machine.run(environment={**IN_POD, **refuse("nvidiactl")}).problem(
        "device-denied-by-cgroup"
    )
    assert "Start the container anew" in text
    assert "daemon-reload" in text


def test_a_node_that_is_no_device_is_a_problem(machine: Machine) -> None:
    """A node that does not open for another reason is shown with it."""
    machine.whole()
    (machine.devfs / "nvidiactl").unlink()
    (machine.devfs / "nvidiactl").mkdir()
    assert "nvidia-modprobe" in machine.run().problem("device-broken")


@pytest.mark.parametrize("fault", ["module", "cards"])
def test_nodes_are_not_missed_where_there_is_nothing_behind_them(
    machine: Machine, fault: str
) -> None:
    """Without a module or without cards there are no nodes to miss."""
    if fault == "module":
        machine.gpus("0000:1b:00", driver=None)
    assert not [name for name in machine.run().found if "device" in name]
