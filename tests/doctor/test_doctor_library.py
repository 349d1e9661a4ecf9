# SPDX-License-Identifier: Apache-2.0
"""The driver library: missing, of the wrong kind, unloadable, out of the loader's way."""

from __future__ import annotations

import struct
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from doctor_harness import Machine

from cardwatch.doctor import checks_library, loader
from cardwatch.doctor.loader import Candidate, Library
from cardwatch.doctor.scene import Scene
from cardwatch.host.facts import HostFacts
from cardwatch.settings.table import Settings
from nvml_c import Stub

OURS = Path(sys.executable).resolve()


def library_file(folder: Path, content: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "libnvidia-ml.so.1"
    file.write_bytes(content)
    return file


def for_machine(number: int) -> bytes:
    """Head of an ELF file for another machine, long enough to be taken for a library."""
    head = bytearray(OURS.read_bytes()[:4096])
    struct.pack_into("<H", head, 18, number)
    return bytes(head)


@pytest.mark.usefixtures("no_library")
def test_a_missing_library_on_a_host_names_the_package(machine: Machine) -> None:
    """Without the library the fix is a command of this system's package manager."""
    machine.whole(2)
    result = machine.run("--backend", "nvml")
    assert result.status == 1
    text = result.problem("library-missing")
    assert "libnvidia-ml.so.1" in text
    assert "install" in text
    assert "must be that of the kernel module: 580.95.05" in text


@pytest.mark.usefixtures("no_library")
def test_a_missing_library_in_a_pod_asks_for_the_runtime_class(machine: Machine) -> None:
    """In Kubernetes the library comes by the runtime class and the capability utility."""
    machine.whole()
    result = machine.run(environment={"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    text = result.problem("library-missing")
    assert "runtimeClassName: nvidia" in text
    assert "NVIDIA_DRIVER_CAPABILITIES=utility" in text


@pytest.mark.usefixtures("no_library")
def test_a_missing_library_in_docker_asks_for_gpus(machine: Machine) -> None:
    """In Docker the library comes by --gpus all."""
    machine.whole()
    machine.write("procfs/self/cgroup", "0::/docker/0123abcd\n")
    text = machine.run().problem("library-missing")
    assert "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=utility" in text


@pytest.mark.usefixtures("no_library")
def test_driver_capabilities_without_utility_are_a_problem_while_the_library_is_missing(
    machine: Machine,
) -> None:
    """The toolkit leaves the library out when utility is not asked for."""
    machine.whole()
    result = machine.run(environment={"NVIDIA_DRIVER_CAPABILITIES": "compute,video"})
    text = result.problem("capabilities-without-utility")
    assert "compute,video" in text
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,video,utility" in text


def test_driver_capabilities_with_utility_are_fine(machine: Machine, stub: Stub) -> None:
    """Nothing is said about capabilities that bring the library."""
    machine.whole()
    machine.use(stub)
    for given in ("all", "compute,utility", ""):
        result = machine.run(environment={"NVIDIA_DRIVER_CAPABILITIES": given})
        assert "capabilities-without-utility" not in result.found


@pytest.mark.usefixtures("no_library")
def test_a_machine_without_cards_needs_no_library(machine: Machine) -> None:
    """A CPU node is healthy: its exporter shows no card and is ready."""
    result = machine.run()
    assert result.status == 0
    assert "no card that would need it" in result.note("library-not-needed")
    assert "no-cards" in result.found


@pytest.mark.usefixtures("no_library")
def test_a_machine_without_cards_where_some_are_expected_is_a_problem(machine: Machine) -> None:
    """With cards expected, the missing library and the number are problems."""
    result = machine.run("--expect-gpus", "4")
    assert result.status == 1
    assert "library-missing" in result.problems
    assert "4 expected" in result.problem("counts")


@pytest.mark.usefixtures("no_library")
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (for_machine(183), "is for aarch64 (64 bit)"),
        (b"\x7fELF\x01" + for_machine(3)[5:], "is for i386 (32 bit)"),
        (b"#!/bin/sh\n", "is not a library: it has no ELF header"),
    ],
    ids=["aarch64", "32 bit", "script"],
)
def test_a_library_of_the_wrong_kind_is_named_with_its_kind(
    machine: Machine, content: bytes, words: str
) -> None:
    """A file that this process could never load is named, with what it is."""
    if content[18:20] == OURS.read_bytes()[18:20]:
        pytest.skip("this machine is an aarch64 one")
    machine.whole()
    file = library_file(machine.folder / "lib", content)
    result = machine.run(environment={"LD_LIBRARY_PATH": str(file.parent)})
    text = result.problem("library-wrong-kind")
    assert str(file) in text
    assert words in text


@pytest.mark.usefixtures("no_library")
def test_a_library_that_does_not_load_gives_the_words_of_the_loader(machine: Machine) -> None:
    """A cut-off file of the right kind is unloadable, for the reason that the loader gives."""
    machine.whole()
    file = library_file(machine.folder / "lib", OURS.read_bytes()[:64])
    result = machine.run(environment={"LD_LIBRARY_PATH": str(file.parent)})
    text = result.problem("library-unloadable")
    assert str(file) in text
    assert f"The loader says: {file}: " in text


def test_a_library_that_loads_is_named_with_its_version(machine: Machine, stub: Stub) -> None:
    """The file that the loader took is shown, with the version in its name."""
    machine.whole()
    machine.use(stub)
    result = machine.run()
    assert result.status == 0
    assert "libnvidia-ml.so.580.95.05, version 580.95.05" in result.ok("library")


def test_a_library_out_of_the_loaders_way_is_found(tmp_path: Path) -> None:
    """A library where operators put it is found, and the fix is the loader's path."""
    file = library_file(tmp_path / "run/nvidia/driver/usr/lib64", for_machine(_our_machine()))
    seen = loader.look({}, 10.0, root=tmp_path)
    assert [c for c in seen.candidates if c.path == str(file)] == [
        Candidate(str(file), "", searched=False)
    ]
    scene = scene_with(Library(None, "not found", seen.candidates))
    (finding,) = checks_library.library(scene)
    assert finding.id == "library-not-on-path"
    assert f"LD_LIBRARY_PATH={file.parent}" in finding.fix


def test_a_versioned_file_without_its_short_name_is_not_on_the_path(tmp_path: Path) -> None:
    """The loader asks for the short name only, so that a missing link hides the library."""
    folder = tmp_path / "usr/lib64"
    folder.mkdir(parents=True)
    (folder / "libnvidia-ml.so.580.95.05").write_bytes(for_machine(_our_machine()))
    (candidate,) = loader.look({}, 10.0, root=tmp_path).candidates
    assert not candidate.searched


@pytest.mark.parametrize(
    ("system", "command"),
    [
        ("ubuntu 24.04", "apt-get install libnvidia-compute-580"),
        ("debian 13", "apt-get install libnvidia-ml1"),
        ("rocky 9.6", "dnf install 'libnvidia-ml.so.1()(64bit)'"),
        ("sles 15.6", "zypper install 'libnvidia-ml.so.1()(64bit)'"),
        ("arch", "pacman -S nvidia-utils"),
        ("talos 1.9", "user-space libraries"),
    ],
)
def test_the_command_that_installs_the_library_fits_the_system(system: str, command: str) -> None:
    """Each system has a command of its own."""
    scene = scene_with(Library(None, "not found"))
    scene = replace(scene, host=replace(scene.host, os=system))
    (finding,) = checks_library.library(scene)
    assert command in finding.fix


@pytest.mark.parametrize(
    ("container", "words"),
    [
        ("Podman", "--device nvidia.com/gpu=all"),
        ("Apptainer", "--nv"),
        ("Docker", "--gpus all"),
        ("Kubernetes", "runtimeClassName: nvidia"),
    ],
)
def test_each_kind_of_container_has_its_own_way_to_cards(container: str, words: str) -> None:
    """The fix is in the words of the runtime."""
    scene = replace(scene_with(Library(None, "not found")), container=container)
    (finding,) = checks_library.library(scene)
    assert words in finding.fix


def scene_with(library: Library) -> Scene:
    host = HostFacts(gpus=("0000:1b:00",), module_version="580.95.05", os="debian 13")
    return Scene(Settings(), {}, host=host, library=library)


def _our_machine() -> int:
    return int.from_bytes(OURS.read_bytes()[18:20], "little")
