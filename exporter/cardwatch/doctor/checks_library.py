# SPDX-License-Identifier: Apache-2.0
"""The driver library: found by the loader, of the right kind, loadable."""

from __future__ import annotations

from cardwatch.doctor import container
from cardwatch.doctor.finding import Finding, Level, note, ok, problem, shown
from cardwatch.doctor.loader import Library
from cardwatch.doctor.scene import Scene
from cardwatch.nvml.library import SONAME

_PROVIDES = f"'{SONAME}()(64bit)'"
_BY_OS = {
    "debian": "sudo apt-get install libnvidia-ml1",
    "arch": "sudo pacman -S nvidia-utils",
    "sles": f"sudo zypper install {_PROVIDES}",
    "opensuse-leap": f"sudo zypper install {_PROVIDES}",
    **dict.fromkeys(
        ("rhel", "rocky", "almalinux", "centos", "fedora", "ol", "amzn"),
        f"sudo dnf install {_PROVIDES}",
    ),
}
"""Which command brings the library; by package where its name is fixed."""


def library(scene: Scene) -> list[Finding]:
    """Look whether the loader takes the library, and why not."""
    found = scene.library
    if scene.simulated:
        gone = scene.source_error == "library_not_found"
        return [_unusable(scene, Library(None, "not found"))] if gone else []
    if found is None:
        return []
    if found.path is not None:
        version = found.version
        known = f", version {version}" if version else ""
        return [ok("library", f"The driver library loads: {shown(found.path)}{known}")]
    if scene.without_cards:
        return [
            note(
                "library-not-needed",
                f"No {SONAME}, and no card that would need it",
                "Nothing is wrong with that on a machine without cards.",
                *(f"If there should be some: {step}" for step in _how_to_get_it(scene)[:1]),
            )
        ]
    return [_unusable(scene, found)]


def _unusable(scene: Scene, found: Library) -> Finding:
    right = [file for file in found.candidates if not file.problem]
    on_path = [file for file in right if file.searched]
    if on_path:
        again = (
            "Use an image whose C library is that of the host's driver: glibc, not musl "
            "(Alpine), and no older than the driver asks for"
            if scene.container
            else f"Install the driver's libraries again, for this system: {install_command(scene)}"
        )
        return problem(
            "library-unloadable",
            f"The driver library cannot be loaded: {shown(on_path[0].path)}",
            f"The loader says: {shown(found.error)}",
            again,
        )
    if right:
        directory = right[0].path.rsplit("/", 1)[0]
        return problem(
            "library-not-on-path",
            f"The driver library is where the loader does not look: {shown(right[0].path)}",
            f"The loader says: {shown(found.error)}",
            f"LD_LIBRARY_PATH={shown(directory)} cardwatch serve",
            f"or for the whole system: echo {shown(directory)} | "
            "sudo tee /etc/ld.so.conf.d/nvidia.conf && sudo ldconfig",
        )
    if found.candidates:
        wrong = found.candidates[0]
        return problem(
            "library-wrong-kind",
            f"The driver library is not one that can be used: {shown(wrong.path)} {wrong.problem}",
            f"The loader says: {shown(found.error)}",
            *_how_to_get_it(scene),
        )
    return problem(
        "library-missing",
        f"The driver library {SONAME} is not here",
        f"The loader says: {shown(found.error)}",
        *_how_to_get_it(scene),
    )


def _how_to_get_it(scene: Scene) -> list[str]:
    if scene.wsl:
        return ["Install the NVIDIA driver in Windows, which brings it, then `wsl --shutdown`"]
    if scene.container:
        return give_cards(scene)
    loaded = scene.host.module_version
    same = f"Its version must be that of the kernel module: {shown(loaded)}" if loaded else ""
    return [install_command(scene), same]


def give_cards(scene: Scene) -> list[str]:
    """Return how to start this kind of container so that it gets cards and library."""
    wanted = "NVIDIA_DRIVER_CAPABILITIES=utility"
    if scene.container == container.KUBERNETES:
        return [
            "In the pod: runtimeClassName: nvidia, and in the container's env: "
            f"NVIDIA_VISIBLE_DEVICES=all, {wanted}",
            "On the node: nvidia-container-toolkit, and `sudo nvidia-ctk runtime configure "
            "--runtime=containerd` with a restart of containerd",
        ]
    if scene.container == container.PODMAN:
        return [
            f"podman run --device nvidia.com/gpu=all -e {wanted} ... (after `sudo nvidia-ctk cdi "
            "generate --output=/etc/cdi/nvidia.yaml` on the host)"
        ]
    if scene.container == container.APPTAINER:
        return ["apptainer exec --nv ..."]
    return [
        f"docker run --gpus all -e {wanted} ...",
        "On the host: nvidia-container-toolkit, and `sudo nvidia-ctk runtime configure "
        "--runtime=docker` with a restart of docker",
    ]


def install_command(scene: Scene) -> str:
    """Return the command that installs the library on this system."""
    system = scene.host.os.split(" ")[0].lower()
    if system == "ubuntu":
        branch = scene.host.module_version.split(".")[0] or "580"
        return (
            f"sudo apt-get install libnvidia-compute-{branch} "
            f"(or libnvidia-compute-{branch}-server, the one whose driver is installed)"
        )
    return _BY_OS.get(
        system,
        "Install the NVIDIA driver's user-space libraries, in the version of the kernel module",
    )


def capabilities(scene: Scene) -> list[Finding]:
    """Look at what the container toolkit was told to bring into this container."""
    asked = scene.environment.get("NVIDIA_DRIVER_CAPABILITIES")
    if not asked or {"all", "utility"} & set(asked.replace(" ", "").split(",")):
        return []
    missing = scene.library is not None and scene.library.path is None
    return [
        Finding(
            "capabilities-without-utility",
            Level.PROBLEM if missing else Level.NOTE,
            f"NVIDIA_DRIVER_CAPABILITIES is {shown(asked)}, without utility",
            f"The container toolkit brings {SONAME} only where utility is among them.",
            f"Start the container with NVIDIA_DRIVER_CAPABILITIES={shown(asked)},utility",
        )
    ]
