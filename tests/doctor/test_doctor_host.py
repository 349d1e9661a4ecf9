# SPDX-License-Identifier: Apache-2.0
"""Container, processes, kernel log and platform."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from doctor_harness import Machine, obey_modes

from cardwatch.doctor import (
    checks_kernel_log,
    checks_mig,
    checks_platform,
    checks_processes,
    container,
)
from cardwatch.doctor.scene import Scene
from cardwatch.settings.table import Settings
from nvml_c import Stub

Refuse = Callable[[str], dict[str, str]]
OVERLAY = "21 20 0:45 / / rw,relatime master:1 - overlay overlay rw,lowerdir=/a\n"


# -- container --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "files", "kind"),
    [
        ({}, {}, ""),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, {}, "Kubernetes"),
        ({"container": "podman"}, {}, "Podman"),
        ({"container": "lxc"}, {}, "LXC"),
        ({"APPTAINER_CONTAINER": "/a.sif"}, {}, "Apptainer"),
        ({}, {"run/.containerenv": ""}, "Podman"),
        ({}, {"proc/self/cgroup": "1:devices:/docker/0f3e\n"}, "Docker"),
        ({}, {"proc/self/cgroup": "0::/kubepods.slice/kubepods-pod1.slice\n"}, "Kubernetes"),
        ({}, {"proc/self/cgroup": "0::/system.slice/docker.service\n"}, ""),
        ({}, {".dockerenv": "", "proc/self/mountinfo": OVERLAY}, "Docker"),
        ({}, {".dockerenv": ""}, ""),
        ({}, {"proc/self/mountinfo": OVERLAY}, "container"),
        ({}, {"proc/self/mountinfo": OVERLAY, "proc/2/comm": "kthreadd\n"}, ""),
    ],
)
def test_the_kind_of_container_is_told(
    tmp_path: Path, environment: dict[str, str], files: dict[str, str], kind: str
) -> None:
    """Containers are told from hosts by what runtimes leave, hosts with an overlay root not."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert container.kind(environment, tmp_path / "proc", tmp_path) == kind


def test_a_container_without_cards_by_its_own_wish_is_a_problem(machine: Machine) -> None:
    """NVIDIA_VISIBLE_DEVICES=void keeps every card out."""
    machine.whole()
    given = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "NVIDIA_VISIBLE_DEVICES": "void"}
    text = machine.run(environment=given).problem("devices-not-asked-for")
    assert "NVIDIA_VISIBLE_DEVICES is void" in text
    assert "NVIDIA_VISIBLE_DEVICES=all" in text


def test_a_container_with_some_of_the_cards_is_a_note(machine: Machine) -> None:
    """A list of cards is a wish that an exporter for the node should not have."""
    machine.whole()
    given = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "NVIDIA_VISIBLE_DEVICES": "0,3"}
    assert "0,3" in machine.run(environment=given).note("devices-restricted")


def test_capabilities_are_shown(machine: Machine) -> None:
    """What a container may do is read from procfs."""
    machine.whole()
    machine.write("procfs/self/status", "Name:\tpython\nCapEff:\t0000000000200000\n")
    result = machine.run(environment={"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert "CAP_SYS_ADMIN held, CAP_SYSLOG not held" in result.ok("container")


# -- kernel log -------------------------------------------------------------------------------


def test_a_readable_kernel_log_is_well(machine: Machine) -> None:
    """A kernel log that opens is fine."""
    machine.whole()
    assert str(machine.devfs / "kmsg") in machine.run().ok("kmsg")


def test_a_missing_kernel_log_is_a_note_that_says_what_it_is_for(machine: Machine) -> None:
    """Without /dev/kmsg nothing else is hidden, so it is a note; Docker can mount it."""
    machine.write("procfs/self/cgroup", "0::/docker/0123abcd\n")
    text = machine.run().note("kmsg-missing")
    assert "Xid" in text
    assert "--device /dev/kmsg" in text


def test_a_kernel_log_restricted_to_a_capability_names_it(machine: Machine, refuse: Refuse) -> None:
    """EPERM with kernel.dmesg_restrict=1 means CAP_SYSLOG."""
    machine.whole()
    machine.write("procfs/sys/kernel/dmesg_restrict", "1\n")
    machine.write("procfs/self/status", "CapEff:\t0000000000000000\n")
    text = machine.run(environment=refuse("kmsg")).note("kmsg-unreadable")
    assert "kernel.dmesg_restrict is 1" in text
    assert "CAP_SYSLOG" in text


def test_a_kernel_log_refused_by_the_cgroup_names_the_device(
    machine: Machine, refuse: Refuse
) -> None:
    """EPERM without the restriction means the device cgroup."""
    machine.whole()
    text = machine.run(environment=refuse("kmsg")).note("kmsg-unreadable")
    assert "DeviceAllow=/dev/kmsg r" in text


def test_a_kernel_log_closed_by_its_mode_says_so(machine: Machine) -> None:
    """EACCES means the file mode."""
    machine.whole()
    (machine.devfs / "kmsg").chmod(0o000)
    assert "Permission denied" in machine.run(before=obey_modes).note("kmsg-unreadable")


@pytest.mark.parametrize(
    ("kind", "words"),
    [("Kubernetes", "hostPath"), ("Docker", "--device /dev/kmsg"), ("", "systemd")],
)
def test_how_to_give_the_kernel_log_depends_on_where_we_are(
    tmp_path: Path, kind: str, words: str
) -> None:
    """Pod, container and unit have ways of their own."""
    scene = Scene(replace(Settings(), path_devfs=tmp_path), {}, container=kind)
    (finding,) = checks_kernel_log.kernel_log(scene)
    assert words in finding.fix


# -- processes --------------------------------------------------------------------------------


def test_processes_of_the_host_are_seen_by_a_kernel_thread(machine: Machine, stub: Stub) -> None:
    """With kthreadd as pid 2 and the card's process in procfs all is well."""
    machine.whole()
    machine.use(stub)
    machine.write("procfs/4200/comm", "python3\n")
    assert "whole host" in machine.run().ok("processes")


def test_a_pid_namespace_is_told_by_pid_1_and_by_what_is_missing(
    machine: Machine, stub: Stub
) -> None:
    """Pid 1 is not init, and the process on the card is not in procfs: hostPID."""
    machine.whole()
    machine.use(stub)
    (machine.procfs / "2/comm").write_text("sh\n")
    machine.write("procfs/1/comm", "cardwatch\n")
    machine.write("procfs/self/status", "Pid:\t1\nNSpid:\t1\n")
    result = machine.run(environment={"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    text = result.note("processes-hidden")
    assert "pid 1 is cardwatch" in text
    assert "1 process on the cards, of which 1 cannot be found (such as pid 4200)" in text
    assert "hostPID: true" in text


def test_a_process_that_is_not_in_the_hosts_procfs_is_a_note(machine: Machine, stub: Stub) -> None:
    """On a host a process that cannot be found has ended, or is another machine's."""
    machine.whole()
    machine.use(stub)
    assert "pid 4200" in machine.run().note("processes-unseen")


@pytest.mark.parametrize(
    ("kind", "words"), [("Docker", "--pid=host"), ("Kubernetes", "hostPID: true"), ("", "/proc")]
)
def test_how_to_share_processes_depends_on_where_we_are(
    tmp_path: Path, kind: str, words: str
) -> None:
    """The fix is in the words of the runtime."""
    scene = Scene(replace(Settings(), path_procfs=tmp_path), {}, container=kind)
    (finding,) = checks_processes.processes(scene)
    assert words in finding.fix


def test_a_mount_that_hides_processes_is_named(tmp_path: Path) -> None:
    """hidepid of the procfs mount hides others' processes without a namespace."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text(
        "22 27 0:21 / /proc rw,relatime - proc proc rw,gid=99,hidepid=invisible\n"
    )
    scene = Scene(replace(Settings(), path_procfs=tmp_path), {})
    (finding,) = checks_processes.processes(scene)
    assert finding.id == "processes-hidden-by-mount"
    assert "hidepid=invisible" in finding.title


# -- platform ---------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["release", "device"])
def test_wsl_is_told_with_what_it_lacks(machine: Machine, by: str) -> None:
    """By kernel release or by /dev/dxg; no module, node or bus is missed there."""
    if by == "release":
        release = "5.15.167.4-microsoft-standard-WSL2\n"
        machine.write("procfs/sys/kernel/osrelease", release)
    else:
        machine.write("devfs/dxg", "")
    result = machine.run()
    assert "MIG, ECC" in result.note("wsl")
    assert "no-cards" not in result.found
    assert set(result.problems) <= {"library-missing"}


@pytest.mark.usefixtures("no_library")
def test_a_missing_library_under_wsl_comes_with_the_windows_driver(machine: Machine) -> None:
    """Under WSL the library is that of the driver in Windows."""
    machine.write("devfs/dxg", "")
    assert "in Windows" in machine.run().problem("library-missing")


def test_a_virtual_gpu_is_told_by_its_name(machine: Machine, stub: Stub) -> None:
    """A vGPU profile in the name means a guest that is not told everything."""
    machine.whole()
    machine.use(stub)
    stub.set("nvmlDeviceGetName", "GRID A100X-40C")
    assert "GRID A100X-40C" in machine.run().note("vgpu")


@pytest.mark.parametrize(
    ("model", "virtual"),
    [
        ("GRID T4-16Q", True),
        ("A40-48Q", True),
        ("H100L-94C", True),
        ("A100-1-5C", True),
        ("GRID V100D-8A", True),
        ("A100-SXM4-80GB", False),
        ("H100 80GB HBM3", False),
        ("Tesla T4", False),
        ("GeForce RTX 4090", False),
        ("", False),
    ],
)
def test_vgpu_profiles_are_told_from_real_cards(model: str, virtual: bool) -> None:
    """Names of real cards do not look like vGPU profiles."""
    assert checks_platform.is_virtual(model) is virtual


def test_the_machine_is_named(machine: Machine) -> None:
    """Vendor and product stand in the findings, and whether it is a virtual machine."""
    machine.whole()
    machine.write("sysfs/class/dmi/id/sys_vendor", "Amazon EC2\n")
    machine.write("sysfs/class/dmi/id/product_name", "p5.48xlarge\n")
    machine.write("procfs/cpuinfo", "processor\t: 0\nflags\t\t: fpu hypervisor sse\n")
    assert "A virtual machine: Amazon EC2 p5.48xlarge" in machine.run().ok("machine")


def test_the_mps_view_in_the_environment_is_named(machine: Machine) -> None:
    """The variable that narrows NVML is shown with its value."""
    result = machine.run(environment={"NVML_MPS_DEVICE_ENUMERATION": "1"})
    assert "unset NVML_MPS_DEVICE_ENUMERATION" in result.note("mps-view")


def test_the_monitor_device_of_mig_is_named_by_its_number(tmp_path: Path) -> None:
    """The capability device to give is the one that procfs names."""
    folder = tmp_path / "driver/nvidia/capabilities/mig"
    folder.mkdir(parents=True)
    (folder / "monitor").write_text("DeviceFileMinor: 2\nDeviceFileMode: 256\n")
    scene = Scene(replace(Settings(), path_procfs=tmp_path), {}, container="Docker")
    assert "/dev/nvidia-caps/nvidia-cap2" in "".join(checks_mig.fixes(scene))
