# SPDX-License-Identifier: Apache-2.0
"""The cards one by one: how many there are, which do not answer and why, what does not read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from cardwatch.doctor.checks_driver import bound_to
from cardwatch.doctor.checks_mig import guarded
from cardwatch.doctor.finding import Finding, count, note, numbers, ok, problem, shown
from cardwatch.doctor.scene import Scene
from cardwatch.families import BY_NAME
from cardwatch.nvml.codes import Outcome
from cardwatch.sample import WHOLE_CARD
from cardwatch.supervisor.cards import View

_LOG = "sudo dmesg | grep -i -e xid -e nvrm"
_RESET = "Drain it, stop what uses it, then: sudo nvidia-smi --gpu-reset -i {card}"

_STATES: dict[str, tuple[str, tuple[str, ...]]] = {
    # state -> what it means, what to do
    "hung": (
        "A driver call has not returned; the other cards are read all the same.",
        (_LOG, "Drain the node; a card that does not come back needs a reboot of the node"),
    ),
    "lost": (
        "It has fallen off the bus, or the driver no longer lists it.",
        (
            f"lspci -s {{pci}}; {_LOG} (Xid 79)",
            "Reboot or power-cycle the node; if it stays away, "
            "seat it anew or give it to the vendor",
            "If it was taken out on purpose: cardwatch baseline forget {uuid}",
        ),
    ),
    "reset_required": (
        "The driver asks for a reset.",
        (_RESET, "or reboot the node"),
    ),
    "denied": (
        "The driver lists it, but we may not open it.",
        (
            "Give access to its node /dev/nvidiaN: in a container NVIDIA_VISIBLE_DEVICES=all; in a "
            "systemd unit DeviceAllow=; else run as root",
        ),
    ),
    "unreadable": ("It gives nothing that can be read.", (_LOG, "Reboot the node if it stays so")),
}

_CAUSES: dict[str, tuple[str, tuple[str, ...]]] = {
    # causes that say more than the state
    "insufficient_power": (
        "The driver says that its power cables are not plugged in rightly.",
        ("Look at the card's power cables; power-cycle the node",),
    ),
    "irq_issue": (
        "The driver gets no interrupts from it.",
        (_LOG, "Look for pci=nomsi on the kernel's command line (cat /proc/cmdline)"),
    ),
    "corrupted_inforom": (
        "Its infoROM is damaged.",
        ("nvidia-smi -q -i {card} | grep -i inforom", "Give it to the vendor"),
    ),
    "in_use": ("Another process holds it.", ("sudo fuser -v /dev/nvidia*",)),
    "memory": ("This machine has no memory left for the driver.", ("free -h",)),
}


def counts(scene: Scene) -> list[Finding]:
    """Compare the cards on the bus, those listed and those expected."""
    detected = _detected(scene)
    listed, expected = scene.listed, scene.settings.expect_gpus
    known = [
        (number, word)
        for number, word in (
            (detected, "on the PCI bus"),
            (listed, "listed by the driver"),
            (expected, "expected"),
        )
        if number is not None
    ]
    if not any(number for number, _ in known):
        return []
    told = ", ".join(f"{number} {word}" for number, word in known)
    bus = detected is not None and listed is not None and detected > listed
    short = expected is not None and any(number != expected for number, _ in known)
    if not bus and not short:
        return [ok("counts", f"Cards: {told}")] if len(known) > 1 else []
    return [
        problem(
            "counts",
            f"The numbers of cards differ: {told}",
            _unlisted(scene),
            *_find_cards(scene, bus=bus, short=short),
        )
    ]


def _detected(scene: Scene) -> int | None:
    """Count the cards on the bus, less those handed to virtual machines."""
    gpus = scene.host.gpus
    if gpus is None or scene.simulated:
        return None if gpus is None else len(gpus)
    return sum(bound_to(scene.sysfs, address) != "vfio-pci" for address in gpus)


def _unlisted(scene: Scene) -> str:
    """Name the cards that are on the bus but not listed, and who has them."""
    listed = {view.card.pci for view in scene.views if view.state != "lost" and view.card.pci}
    if scene.listed is None or not listed:
        return ""
    rest = [address for address in scene.host.gpus or () if address not in listed]
    held = ((a, "" if scene.simulated else bound_to(scene.sysfs, a)) for a in rest[:16])
    words = [a if driver in ("", "nvidia") else f"{a} ({shown(driver)})" for a, driver in held]
    return f"Not listed: {', '.join(words)}." if words else ""


def _find_cards(scene: Scene, *, bus: bool, short: bool) -> list[str]:
    steps = []
    given = scene.environment.get("NVIDIA_VISIBLE_DEVICES")
    if bus and scene.container and given != "all":
        steps.append(
            f"Start the container with NVIDIA_VISIBLE_DEVICES=all (now: "
            f"{'not set' if given is None else shown(given)})"
        )
    if bus:
        steps.append(f"{_LOG} says why the driver did not take a card up")
    if short and not bus:
        steps.append(
            "lspci -d 10de: shows what is plugged in; a card that is missing there is a "
            "matter of slot, power or firmware"
        )
        steps.append(f"or correct the number expected: --expect-gpus {scene.listed or 0}")
    return steps


def cards(scene: Scene) -> list[Finding]:
    """Look at the state of every card."""
    away = scene.snapshot is not None and scene.listed is None and scene.source_error is not None
    if away and scene.source_error != "timeout":
        return []  # the driver is away altogether; that was said
    found = _ill(scene)
    well = [view for view in scene.views if view.state == "ok"]
    for (model, readings), views in _grouped(well):
        found.append(ok("card", f"{_named(views)} ({shown(model)}): {readings}"))
    return found


def _grouped(views: Iterable[View]) -> list[tuple[tuple[str, str], list[View]]]:
    groups: dict[tuple[str, str], list[View]] = defaultdict(list)
    for view in views:
        status = view.readings_by_status
        told = ", ".join(f"{number} {word}" for word, number in status.items() if number)
        groups[view.card.info.get("model", "model not told"), f"readings: {told}"].append(view)
    return list(groups.items())


def _ill(scene: Scene) -> list[Finding]:
    """Return one finding for each state and cause, over all cards that share them."""
    groups: dict[tuple[str, str, bool, str], list[View]] = defaultdict(list)
    for view in scene.views:
        if view.state != "ok":
            meaning = _meaning(view, scene)
            groups[view.state, view.cause or "", view.up, meaning].append(view)
    return [_state(views, meaning) for (*_, meaning), views in groups.items()]


def _by_cause(view: View) -> bool:
    return view.state in ("denied", "unreadable") and view.cause in _CAUSES


def _meaning(view: View, scene: Scene) -> str:
    if _by_cause(view):
        return _CAUSES[view.cause or ""][0]
    calls = [call for call in scene.open_calls if call.slot == view.index]
    if view.state == "hung" and calls:
        return f"nvml{shown(calls[0].call)} has not returned; other cards are read all the same."
    return _STATES.get(view.state, _STATES["unreadable"])[0]


def _state(views: Sequence[View], meaning: str) -> Finding:
    view = views[0]
    table = _CAUSES[view.cause or ""] if _by_cause(view) else _STATES.get(view.state)
    fix = (table or _STATES["unreadable"])[1]
    places = {
        "card": ",".join(str(each.index) for each in views),
        "pci": view.card.pci or "ADDRESS",
        "uuid": shown(" ".join(each.card.uuid for each in views)),
    }
    verb = "is" if len(views) == 1 else "are"
    still = f" and still answer{'s' if len(views) == 1 else ''}" if view.up else ""
    cause = f" ({shown(view.cause)})" if view.cause and view.cause != view.state else ""
    return problem(
        f"card-{view.state.replace('_', '-')}",
        f"{_named(views)} {verb} {view.state.replace('_', ' ')}{cause}{still}: {_who(views)}",
        meaning,
        *(step.format(**places) for step in fix),
    )


def _who(views: Sequence[View]) -> str:
    if len(views) == 1:
        card = views[0].card
        parts = (card.info.get("model", "model not told"), card.pci, card.uuid)
        return shown(", ".join(part for part in parts if part))
    return shown(", ".join(view.card.pci or view.card.uuid for view in views))


def readings(scene: Scene) -> list[Finding]:
    """Name the readings that are denied or fail, cards with the same ones together."""
    found = []
    for kind in (Outcome.DENIED, Outcome.FAILED):
        groups: dict[tuple[str, ...], list[View]] = defaultdict(list)
        for view in scene.views:
            names = _faulty(view, kind)
            if names and view.state == "ok":
                groups[names].append(view)
        found += [_readings(scene, kind, names, views) for names, views in groups.items()]
    return found


def _faulty(view: View, kind: Outcome) -> tuple[str, ...]:
    if view.sample is None:
        return ()
    skipped = {*guarded(view), WHOLE_CARD}
    denied = kind is Outcome.DENIED
    return tuple(
        family if denied else f"{family} ({shown(fault)})"
        for family, fault in sorted(view.sample.faults.items())
        if family not in skipped
        and fault != Outcome.UNSUPPORTED.value
        and (fault == Outcome.DENIED.value) == denied
    )


def _readings(scene: Scene, kind: Outcome, names: Sequence[str], views: Sequence[View]) -> Finding:
    exported = any(_exported(scene, name.split(" ")[0]) for name in names)
    verb = "are denied" if kind is Outcome.DENIED else "fail"
    if len(names) == 1:
        verb = "is denied" if kind is Outcome.DENIED else "fails"
    title = f"{_named(views)}: {count(len(names), 'reading')} {verb}"
    detail = f"{', '.join(names)}." + ("" if exported else " The profile leaves them out anyway.")
    fix = (
        [
            "Run as root, or in a container with --cap-add SYS_ADMIN"
            if scene.settings.backend != "replay"
            else "Capture it anew as root"
        ]
        if kind is Outcome.DENIED
        else [_LOG, "`cardwatch capture FILE` keeps what the driver answers, for a bug report"]
    )
    name = f"readings-{'denied' if kind is Outcome.DENIED else 'failing'}"
    return problem(name, title, detail, *fix) if exported else note(name, title, detail, *fix)


def _exported(scene: Scene, family: str) -> bool:
    record = BY_NAME.get(family)
    if record is None:
        return True
    lowest = min([record.profile, *record.split.values()])
    return min(lowest, record.nonzero_profile or lowest) <= scene.settings.profile


def _named(views: Sequence[View]) -> str:
    word = "Card" if len(views) == 1 else "Cards"
    return f"{word} {numbers(view.index for view in views)}"


def persistence(scene: Scene) -> list[Finding]:
    """Look for cards whose persistence mode is off."""
    off = [view for view in scene.views if _row(view, "gpu_persistence_mode_enabled") == 0]
    if not off or scene.wsl:
        return []
    where = "On the host: " if scene.container else ""
    return [
        note(
            "persistence-off",
            f"{_named(off)}: persistence mode is off",
            "While nothing uses a card the driver shuts it down: counters since driver load may "
            "begin anew, and the next start takes seconds.",
            f"{where}sudo systemctl enable --now nvidia-persistenced",
            "or until the next boot: sudo nvidia-smi -pm 1",
        )
    ]


def _row(view: View, family: str) -> float | None:
    rows = None if view.sample is None else view.sample.rows.get(family)
    return rows[0][1] if rows else None
