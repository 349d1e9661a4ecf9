# SPDX-License-Identifier: Apache-2.0
"""A Markdown list of what a machine shows, to hold against an offer before buying or renting."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence

from cardwatch import __version__
from cardwatch.doctor.finding import Finding, Level, count, plain
from cardwatch.doctor.render import node
from cardwatch.doctor.scene import Scene
from cardwatch.families import ALL
from cardwatch.nvml.codes import Outcome
from cardwatch.sample import WHOLE_CARD, CardSample
from cardwatch.supervisor.cards import View

_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|!~])")
_HIDING = frozenset(
    {
        "capabilities-without-utility", "container", "device-denied-by-cgroup",
        "device-denied-by-mode", "devices-not-asked-for", "devices-restricted", "kmsg-missing",
        "kmsg-unreadable", "machine", "mig-denied", "mps-view", "pci-unreadable",
        "processes-hidden", "processes-hidden-by-mount", "readings-denied", "vfio", "vgpu", "wsl",
    }
)  # fmt: skip
"""Findings about what the platform keeps from us, or what kind of platform it is."""

_ORDER = {family.name: number for number, family in enumerate(ALL)}


def markdown(scene: Scene, findings: Sequence[Finding]) -> str:
    """Return the report."""
    lines = [f"# What cardwatch sees on {_safe(node(scene))}", ""]
    if scene.simulated:
        lines += [
            f"**SIMULATED CARDS: backend {scene.settings.backend}; nothing here is real.**",
            "",
        ]
    lines += [*_node(scene), "", "## What the platform hides", "", *_hidden(findings)]
    told: dict[tuple[str, ...], int] = {}
    for view in scene.views:
        lines += ["", *_card(view, scene), *_readings(view, told)]
    lines += ["", "## What stands in the way", "", *_problems(findings)]
    return "\n".join(lines) + "\n"


def _node(scene: Scene) -> Iterator[str]:
    snap, host = scene.snapshot, scene.host
    told = {} if snap is None else snap.node
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(None if snap is None else snap.time))
    yield f"- Taken: {when} by cardwatch {__version__}, backend {scene.settings.backend}"
    kind = f", {host.kernel_module} kernel module" if host.kernel_module else ""
    yield f"- Driver: {_driver(scene)}{kind}"
    yield f"- CUDA that the driver supports: {_told(told.get('cuda_driver_version'))}"
    yield f"- Kernel: {_told(host.kernel_release)}; system: {_told(host.os)}"
    detected = "not known" if host.gpus is None else len(host.gpus)
    expected = scene.settings.expect_gpus
    yield (
        f"- Cards: {detected} on the PCI bus, "
        f"{'none' if scene.listed is None else scene.listed} listed by the driver"
        + (f", {expected} expected" if expected is not None else "")
    )


def _driver(scene: Scene) -> str:
    if not scene.driver_version:
        return "not known"
    branch = f" (branch R{scene.driver_release[0]})" if scene.driver_release else ""
    return _safe(scene.driver_version) + branch


def _hidden(findings: Sequence[Finding]) -> list[str]:
    about = [finding for finding in findings if finding.id in _HIDING]
    lines = [f"- {_safe(finding.title)}" + (f": {_safe(finding.detail)}" if finding.detail else "")
             for finding in about]  # fmt: skip
    if all(finding.level is Level.OK for finding in about):
        lines.append("- Nothing that we noticed")
    return lines


def _problems(findings: Sequence[Finding]) -> list[str]:
    lines = []
    problems = [finding for finding in findings if finding.level is Level.PROBLEM]
    for number, finding in enumerate(problems, start=1):
        lines.append(f"{number}. {_safe(finding.title)}. {_safe(finding.detail)}")
        lines += [f"   - {_safe(step)}" for step in finding.fix.splitlines()]
    return lines or ["Nothing."]


# -- one card -------------------------------------------------------------------------------


def _card(view: View, scene: Scene) -> Iterator[str]:
    info = view.card.info
    yield f"## Card {view.index}: {_told(info.get('model'))}"
    yield ""
    cause = f" ({_safe(view.cause)})" if view.cause else ""
    yield f"- State: {view.state.replace('_', ' ')}{cause}"
    yield f"- Model: {_told(info.get('model'))}; architecture: {_told(info.get('architecture'))}"
    yield f"- UUID: {_safe(view.card.uuid)}; PCI address: {_told(view.card.pci)}"
    board, vbios = info.get("board_part_number"), info.get("vbios_version")
    yield f"- Board part number: {_told(board)}; VBIOS: {_told(vbios)}"
    yield f"- Driver: {_driver(scene)}"
    if view.sample is None or not view.sample.rows:
        yield "- No reading may be shown in this state"
        return
    yield from _setup(view.sample)


def _setup(sample: CardSample) -> Iterator[str]:
    total = _value(sample, "gpu_memory_total_bytes")
    size = None if total is None else f"{total / 2**30:.1f} GiB"
    yield f"- Memory: {size or _missing(sample, 'gpu_memory_total_bytes')}"
    yield f"- ECC: {_switch(sample, 'gpu_ecc_mode_enabled', 'gpu_ecc_mode_pending_enabled')}"
    profiles = ", ".join(_safe(instance.profile or "not told") for instance in sample.mig)
    held = f", {count(len(sample.mig), 'instance')} ({profiles})" if sample.mig else ""
    yield f"- MIG: {_switch(sample, 'gpu_mig_mode_enabled')}{held}"
    yield f"- Persistence mode: {_switch(sample, 'gpu_persistence_mode_enabled')}"
    yield f"- NVLink: {_links(sample)}"
    yield f"- PCIe: {_pcie(sample)}"
    yield f"- Power limit: {_power(sample)}"


def _links(sample: CardSample) -> str:
    supported = _value(sample, "gpu_nvlink_supported_links")
    active = _value(sample, "gpu_nvlink_active_links")
    if supported is None or active is None:
        return _missing(sample, "gpu_nvlink_active_links")
    return f"{active:.0f} links active of {supported:.0f} supported"


def _pcie(sample: CardSample) -> str:
    words, slow = [], False
    for name, key in (("generation", "gpu_pcie_link_generation"), ("width", "gpu_pcie_link_width")):
        now, most = _value(sample, key), _value(sample, f"{key}_max")
        if now is None or most is None:
            words.append(f"{name} {_missing(sample, key)}")
            continue
        words.append(f"{name} {now:.0f} of {most:.0f}")
        slow = slow or (name == "generation" and now < most)
    return ", ".join(words) + (
        " (an idle card may lower it: look again under load)" if slow else ""
    )


def _power(sample: CardSample) -> str:
    now, usual = (_value(sample, f"gpu_power_limit{word}_watts") for word in ("", "_default"))
    low, high = (_value(sample, f"gpu_power_limit_{word}_watts") for word in ("min", "max"))
    if now is None:
        return _missing(sample, "gpu_power_limit_watts")
    text = f"{now:.0f} W"
    if usual is not None:
        text += f", default {usual:.0f} W" + (" (LOWERED)" if now < usual else "")
    return text + (f", settable {low:.0f} to {high:.0f} W" if low and high else "")


def _readings(view: View, told: dict[tuple[str, ...], int]) -> list[str]:
    """Return which readings a card has; of cards that are alike only the first tells them."""
    if view.sample is None or not view.sample.rows:
        return []
    lines = tuple(_statuses(view.sample))
    first = told.setdefault(lines, view.index)
    return list(lines) if first == view.index else [f"- Readings: as card {first}"]


def _statuses(sample: CardSample) -> Iterator[str]:
    faults = {name: fault for name, fault in sample.faults.items() if name != WHOLE_CARD}
    by_word = {
        "unsupported": Outcome.UNSUPPORTED.value,
        "denied": Outcome.DENIED.value,
    }
    read = {name for name in sample.rows if faults.get(name, by_word["unsupported"])
            == by_word["unsupported"]}  # fmt: skip
    if sample.reasons is not None:
        read.add("gpu_throttle_reason_active")
    yield _list("Readable", read)
    for word, value in by_word.items():
        yield _list(
            word.capitalize(), (n for n, f in faults.items() if f == value and n not in read)
        )
    failing = {name: f for name, f in faults.items() if f not in by_word.values()}
    yield _list("Failing", (f"{name} ({fault})" for name, fault in failing.items()))


def _list(word: str, names: Iterable[str]) -> str:
    known = sorted(names, key=lambda name: (_ORDER.get(name.split(" ")[0], 0), name))
    return f"- {word} ({len(known)}): " + (", ".join(f"`{plain(n)}`" for n in known) or "none")


def _value(sample: CardSample, family: str) -> float | None:
    rows = sample.rows.get(family)
    return rows[0][1] if rows else None


def _missing(sample: CardSample, family: str) -> str:
    fault = sample.faults.get(family)
    if fault == Outcome.UNSUPPORTED.value:
        return "not supported"
    return "not told" if fault is None else f"not read ({_safe(fault)})"


def _switch(sample: CardSample, family: str, pending: str = "") -> str:
    now = _value(sample, family)
    if now is None:
        return _missing(sample, family)
    later = _value(sample, pending) if pending else None
    words = {0.0: "off", 1.0: "on"}
    changes = f", {words.get(later)} after the next reset" if later not in (None, now) else ""
    return f"{words.get(now, f'{now:g}')}{changes}"


def _told(text: str | None) -> str:
    return _safe(text) if text else "not told"


def _safe(text: str) -> str:
    """Return text from outside in which Markdown sees no markup."""
    return _MARKUP.sub(r"\\\1", plain(text))
