# SPDX-License-Identifier: Apache-2.0
"""Takes in the scene: one pass over the cards, and a look at the machine, all within limits.

The pass is that of a session: a child with a deadline for every driver call.
The session gets a copy of the roster in a directory of its own, so that cards
that are missing show, and nothing is written where an exporter keeps its state.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cardwatch.doctor import container, loader
from cardwatch.doctor.background import Background
from cardwatch.doctor.scene import Scene
from cardwatch.families.record import Profile
from cardwatch.host import facts
from cardwatch.host.facts import HostFacts, HostPaths
from cardwatch.sample import OpenCall
from cardwatch.settings.load import state_directory
from cardwatch.settings.table import Settings
from cardwatch.supervisor import roster
from cardwatch.supervisor.session import Session
from cardwatch.supervisor.snapshot import Snapshot

_START_S = 5.0
_VERSIONS_S = 1.0
_INTERVAL_S = 5.0  # a short one would only start passes that nobody waits for
_LEAST_LIMIT_S = 1.0
_CANCEL_AGAIN_S = 0.1
_PROCESS_CALLS = (
    "DeviceGetComputeRunningProcesses",
    "DeviceGetGraphicsRunningProcesses",
    "DeviceGetMPSComputeRunningProcesses",
)
_MAX_PIDS = 10_000


@dataclass
class _Pass:
    """What one pass told."""

    snapshot: Snapshot
    host: Mapping[str, Any]
    open_calls: tuple[OpenCall, ...]
    restarts: int
    pids: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))


def limit(settings: Settings) -> float:
    """Return how long a look at files may take: as long as a driver call, but time to start."""
    return max(settings.deadline, _LEAST_LIMIT_S)


def look(settings: Settings, environment: Mapping[str, str]) -> Scene:
    """Return the scene. Takes the deadline and some seconds at most."""
    paths = HostPaths(settings.path_procfs, settings.path_sysfs, settings.path_devfs)
    seconds = limit(settings)
    host = Background(lambda: facts.read(paths))
    kind = Background(lambda: container.kind(environment, settings.path_procfs))
    library = Background(lambda: loader.look(environment, seconds))
    state = Background(lambda: state_directory(settings, environment))
    dxg = Background(lambda: not settings.simulated and os.path.exists(paths.devfs / "dxg"))
    known = Background(lambda: _known_cards(settings, environment))
    known.wait_until(time.monotonic() + seconds)
    seen = _pass(settings, environment, known.value)
    looks: dict[str, Background[Any]] = {
        "the kernel and the PCI bus": host,
        "the container": kind,
        "the driver library": library,
        "the state directory": state,
        "the device nodes": dxg,
    }
    end = time.monotonic() + seconds
    stuck = tuple(name for name, each in looks.items() if not each.wait_until(end))
    return Scene(
        settings=settings,
        environment=environment,
        host=_host(settings, host.value or HostFacts(), seen.host),
        snapshot=seen.snapshot,
        library=library.value,
        container=kind.value or "",
        pids={slot: frozenset(pids) for slot, pids in seen.pids.items()},
        open_calls=seen.open_calls,
        restarts=seen.restarts,
        state_dir=state.value,
        dxg=bool(dxg.value),
        stuck=stuck,
    )


def _host(settings: Settings, real: HostFacts, told: Mapping[str, Any]) -> HostFacts:
    if not settings.simulated:
        return real
    return facts.replaced_by(real, told) if told else HostFacts()


def _known_cards(settings: Settings, environment: Mapping[str, str]) -> bytes | None:
    try:
        return (state_directory(settings, environment) / roster.FILE).read_bytes()
    except OSError:
        return None


@contextmanager
def _copy_of_state(settings: Settings, known: bytes | None) -> Iterator[Path | None]:
    """Make a directory that is a copy of the state; none where nothing can be written."""
    try:
        directory = Path(tempfile.mkdtemp(prefix="cardwatch-doctor-"))
    except OSError:
        yield None
        return
    try:
        if known is not None:
            kept = state_directory(replace(settings, state_dir=directory), {})
            kept.mkdir(parents=True, exist_ok=True)
            (kept / roster.FILE).write_bytes(known)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _pass(settings: Settings, environment: Mapping[str, str], known: bytes | None) -> _Pass:
    with _copy_of_state(settings, known) as directory:
        fitted = replace(
            settings,
            profile=Profile.FULL,
            interval=max(settings.interval, _INTERVAL_S),
            state_dir=directory or settings.state_dir,
        )
        work = _one_pass(fitted, dict(environment), keep_state=directory is not None)
        return asyncio.run(work)


async def _one_pass(settings: Settings, environment: dict[str, str], *, keep_state: bool) -> _Pass:
    """Run a session until every card was read or found not to answer, or the driver is away."""
    answers: list[Any] = []
    calls: tuple[OpenCall, ...] = ()

    def keep(notes: list[Any], _ends: bool) -> None:  # noqa: FBT001 - a callback
        nonlocal calls
        answers.extend(notes)
        # Taken here: when every call hangs the session soon lets go of what was said.
        calls = () if session.source.frame is None else tuple(session.source.frame.open_calls)

    session = Session(
        settings, environment=environment, record=True, on_answers=keep, keep_state=keep_state
    )
    running = asyncio.create_task(session.run())
    try:
        await session.wait_until(lambda: _complete(session), settings.deadline + _START_S)
        if session.source.away is None:
            await session.wait_until(lambda: bool(session.source.node), _VERSIONS_S)
        seen = _Pass(session.snapshot(), dict(session.source.host), calls, session.source.restarts)
    finally:
        await _end(running)
        await session.stop()
    for slot, pid in _processes(answers):
        seen.pids[slot].add(pid)
    return seen


async def _end(task: asyncio.Task[None]) -> None:
    """Cancel until it helps: before Python 3.12 ``wait_for`` may swallow a cancellation."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_CANCEL_AGAIN_S)


def _complete(session: Session) -> bool:
    source, cards = session.source, session.cards
    if source.passes > 0 or source.away is not None or source.restarts > 0:
        return True
    read = bool(cards.listed) and len(cards.slots) == cards.listed
    return read and any(slot.mark == "hung" for slot in cards.slots.values())


def _processes(answers: list[Any]) -> Iterator[tuple[int, int]]:
    """Yield (index of the card, pid) of the process lists among recorded answers."""
    found = 0
    for entry in answers:
        try:
            call, arguments, result = entry
            if call not in _PROCESS_CALLS or not str(arguments[0]).startswith("device/"):
                continue
            slot = int(str(arguments[0]).split("/")[1])
            pids = [int(row[0]) for row in result.get("ok", ())]
        except (TypeError, ValueError, IndexError, AttributeError):
            continue  # the child may write anything
        for pid in pids:
            found += 1
            if found > _MAX_PIDS:
                return
            yield slot, pid
