# SPDX-License-Identifier: Apache-2.0
"""Each condition of the table: it does not hold yet, it holds, it un-latches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from verdict_stage import ECC, THROTTLE, Stage

from cardwatch.verdict import BY_ID, CARD_CONDITIONS, CONDITIONS

MINUTE, HOUR = 60.0, 3600.0
_WARM = 10 * MINUTE


@dataclass(frozen=True)
class Scene:
    """``not_yet``: seconds after the cause at which it must not hold; ``by``: at which it must.

    ``gone``: seconds after the cure at which it must be over without any reset; None: only a
    reset ends it.
    """

    cause: Callable[[Stage], None]
    cure: Callable[[Stage], None]
    not_yet: float | None
    by: float
    gone: float | None


def _flag(
    family: str,
    bad: float,
    good: float,
    *,
    not_yet: float | None = None,
    by: float = 10,
    gone: float = 70,
) -> Scene:
    return Scene(
        lambda s: s.card.set(family, bad),
        lambda s: s.card.set(family, good),
        not_yet,
        by,
        gone,
    )


def _state(state: str, by: float = 10) -> Scene:
    return Scene(
        lambda s: s.card.answers(state, state),
        lambda s: s.card.answers("ok", shown=True),
        by - 10 if by > 10 else None,
        by,
        70,
    )


def _event(code: int, cls: str, gone: float | None, times: int = 1) -> Scene:
    def cause(stage: Stage) -> None:
        for _ in range(times):
            stage.event(stage.card, code, cls)

    return Scene(cause, lambda s: None, None, 10, gone)


def _repeated() -> Scene:
    """Two within the hour are not yet three; the third comes 20 minutes after the first."""

    def cause(stage: Stage) -> None:
        stage.event(stage.card, 63, "hardware")
        stage.event(stage.card, 92, "hardware", first_time=stage.wall + 1200,
                    last_time=stage.wall + 1200)  # fmt: skip
        stage.event(stage.card, 63, "hardware", first_time=stage.wall + 1240,
                    last_time=stage.wall + 1240)  # fmt: skip

    return Scene(cause, lambda s: None, 1170, 1250, HOUR + 31 * MINUTE)


def _uncorrected(contained: bool) -> Scene:
    def cause(stage: Stage) -> None:
        stage.card.set(ECC, 1.0, "uncorrected", "dram")
        if contained:
            stage.event(stage.card, 94, "contained")

    return Scene(cause, lambda s: s.card.set(ECC, 0.0, "uncorrected", "dram"), None, 10, HOUR + 10)


def _earlier() -> Scene:
    """A card that joins late, with a count from before anybody looked."""

    def cause(stage: Stage) -> None:
        stage.card.uuid = "GPU-late"
        stage.card.set(ECC, 2.0, "uncorrected", "sram")

    return Scene(cause, lambda s: s.card.set(ECC, 0.0, "uncorrected", "sram"), None, 10, 70)


def _rate(*key: str, per_second: float, not_yet: float, by: float, gone: float) -> Scene:
    return Scene(
        lambda s: s.card.rates.update({key: per_second}),
        lambda s: s.card.rates.clear(),
        not_yet,
        by,
        gone,
    )


def _share(reason: str, share: float, not_yet: float, by: float, gone: float) -> Scene:
    return Scene(
        lambda s: s.card.shares.update({reason: share}),
        lambda s: s.card.shares.clear(),
        not_yet,
        by,
        gone,
    )


def _slow() -> Scene:
    def cause(stage: Stage) -> None:
        stage.card.set("gpu_clock_hertz", 0.9e9, "sm")
        stage.card.set("gpu_power_watts", 310.0)

    def cure(stage: Stage) -> None:
        stage.card.set("gpu_clock_hertz", 1.755e9, "sm")
        stage.card.set("gpu_power_watts", 640.0)

    return Scene(cause, cure, 15 * MINUTE, 30 * MINUTE, 41 * MINUTE)


def _unreadable() -> Scene:
    """The picture after a crash of the card's firmware: some readings still come."""
    vital = ("gpu_utilization_ratio", "gpu_clock_hertz", "gpu_power_watts")

    def cause(stage: Stage) -> None:
        stage.card.answers("unreadable", "unknown", shown=True)
        stage.card.faults.update(dict.fromkeys(vital, "unknown"))
        stage.card.drop(*vital)

    def cure(stage: Stage) -> None:
        fresh = Stage().card
        stage.card.answers("ok", shown=True)
        stage.card.faults.clear()
        stage.card.rows.update({family: fresh.rows[family] for family in vital})

    return Scene(cause, cure, 5 * MINUTE, 5 * MINUTE + 10, 70)


def _fault(fault: str, not_yet: float | None, by: float, gone: float) -> Scene:
    return Scene(
        lambda s: s.card.faults.update({"gpu_fan_speed_ratio": fault}),
        lambda s: s.card.faults.clear(),
        not_yet,
        by,
        gone,
    )


def _driver(stage: Stage) -> None:
    stage.node = replace(stage.node, source_up=False, driver_error="driver_library_mismatch")
    for card in stage.cards:
        card.answers("unreadable", "driver_library_mismatch")


def _driver_back(stage: Stage) -> None:
    stage.node = replace(stage.node, source_up=True, driver_error=None)
    for card in stage.cards:
        card.answers("ok", shown=True)


SCENES: dict[str, Scene] = {
    "lost": _state("lost"),
    "hung": _state("hung", by=70),
    "reset_required": _state("reset_required"),
    "recovery_reset": _flag("gpu_recovery_action", 1, 0),
    "recovery_reboot": _flag("gpu_recovery_action", 2, 0),
    "recovery_drain_and_reset": _flag("gpu_recovery_action", 4, 0),
    "recovery_drain_p2p": _flag("gpu_recovery_action", 3, 0),
    "recovery_imex": _flag("gpu_recovery_action", 5, 0),
    "reset_pending": _flag("gpu_retired_pages_pending", 1, 0),
    "xid_critical": _event(79, "critical", gone=None),
    "xid_repeated": _repeated(),
    "xid_hardware": _event(63, "hardware", gone=HOUR + 10),
    "xid_contained": _event(94, "contained", gone=HOUR + 10),
    "xid_unknown": _event(999, "unknown", gone=HOUR + 10),
    "ecc_uncorrected": _uncorrected(contained=False),
    "ecc_uncorrected_contained": _uncorrected(contained=True),
    "ecc_uncorrected_earlier": _earlier(),
    "ecc_corrected_rate": _rate(
        ECC, "corrected", "dram", per_second=17_700,
        not_yet=15 * MINUTE, by=15 * MINUTE + 20, gone=91 * MINUTE,
    ),
    "ecc_sram_threshold": _flag("gpu_ecc_sram_threshold_exceeded", 1, 0),
    "row_remap_failure": _flag("gpu_row_remap_failure", 1, 0),
    "row_remap_pending": _flag("gpu_row_remap_pending", 1, 0),
    "fabric_not_ready": _flag(
        "gpu_fabric_state", 2, 3, not_yet=10 * MINUTE, by=10 * MINUTE + 10
    ),
    "fabric_unhealthy": _flag(
        "gpu_fabric_healthy", 0, 1, not_yet=10 * MINUTE, by=10 * MINUTE + 10, gone=16 * MINUTE
    ),
    "nvlink_inactive": _flag(
        "gpu_nvlink_active_links", 0, 18, not_yet=14 * MINUTE, by=16 * MINUTE, gone=16 * MINUTE
    ),
    "pcie_degraded": _flag(
        "gpu_pcie_link_generation", 2, 5, not_yet=44 * MINUTE, by=46 * MINUTE, gone=61 * MINUTE
    ),
    "thermal_slowdown": _rate(
        THROTTLE, "hw_thermal_slowdown", per_second=0.9,
        not_yet=10 * MINUTE, by=13 * MINUTE, gone=46 * MINUTE,
    ),
    "power_brake": _rate(
        THROTTLE, "hw_power_brake_slowdown", per_second=1.0,
        not_yet=9 * MINUTE, by=11 * MINUTE, gone=21 * MINUTE,
    ),
    "hardware_slowdown": _share(
        "hw_slowdown", 1.0, not_yet=15 * MINUTE, by=18 * MINUTE, gone=46 * MINUTE
    ),
    "straggler": _slow(),
    "collection_failing": _unreadable(),
    "reading_failing": _fault("unknown", 10 * MINUTE, 10 * MINUTE + 10, 5 * MINUTE + 10),
    "reading_out_of_range": _fault("out_of_range", None, 10, 70),
    "denied": _state("denied"),
    "driver_away": Scene(_driver, _driver_back, 2 * MINUTE, 2 * MINUTE + 10, 70),
}  # fmt: skip


def _holds(stage: Stage, condition: str) -> bool:
    node = {held.condition for held in stage.judge.node}
    return condition in node or condition in stage.held()


def _warm() -> Stage:
    stage = Stage()
    stage.run(_WARM)
    assert stage.quiet(), "the healthy node is quiet before anything happens"
    return stage


def test_every_condition_has_a_scene() -> None:
    """No condition is added without a scene that makes it hold and lets it go."""
    assert SCENES.keys() == BY_ID.keys()
    assert len(BY_ID) == len(CONDITIONS)


@pytest.mark.parametrize("condition", SCENES)
def test_a_condition_holds_after_its_time_and_not_before(condition: str) -> None:
    """Evidence counts once it has lasted, and then tells tier, level, page and a sentence."""
    scene, stage = SCENES[condition], _warm()
    scene.cause(stage)
    if scene.not_yet is not None:
        stage.run(scene.not_yet)
        assert not _holds(stage, condition)
    stage.run(scene.by - (scene.not_yet or 0))
    assert _holds(stage, condition)
    row = BY_ID[condition]
    held = {h.condition: h for h in (*stage.verdict().conditions, *stage.judge.node)}[condition]
    assert (held.tier, held.level, held.action, held.runbook) == (
        row.tier, row.level, row.action, row.runbook,
    )  # fmt: skip
    assert held.text.endswith(".")
    assert len(held.text) > 40
    assert START_OF_TROUBLE - 1 <= held.since <= stage.wall
    if row in CARD_CONDITIONS:
        assert stage.verdict().state is not None
        assert stage.verdict().state >= row.level
    others = [card for card in stage.cards if card is not stage.card]
    assert all(not stage.held(card) for card in others), "no other card is blamed"


START_OF_TROUBLE = Stage().wall + _WARM


@pytest.mark.parametrize("condition", [c for c, s in SCENES.items() if s.gone is not None])
def test_a_condition_ends_when_its_cause_is_gone(condition: str) -> None:
    """No condition outlives its cause by more than its window and release time."""
    scene, stage = SCENES[condition], _warm()
    assert scene.gone is not None
    scene.cause(stage)
    stage.run(scene.by)
    assert _holds(stage, condition)
    scene.cure(stage)
    stage.run(scene.gone)
    assert not _holds(stage, condition)
    stage.interval = MINUTE
    stage.run(HOUR)
    assert stage.quiet(), "nothing that came with it stays either"


@pytest.mark.parametrize("condition", [c.id for c in CARD_CONDITIONS])
def test_a_reset_after_the_cause_ends_a_condition_at_once(condition: str) -> None:
    """A reset later than the evidence un-latches everything, without waiting for a release time."""
    scene, stage = SCENES[condition], _warm()
    scene.cause(stage)
    stage.run(scene.by)
    assert _holds(stage, condition)
    scene.cure(stage)
    stage.skip(1)
    stage.reset(stage.card)
    stage.run(2 * stage.interval)
    assert stage.verdict().state == 0
    stage.interval = MINUTE
    stage.run(HOUR)
    assert stage.quiet()


@pytest.mark.parametrize(
    "condition", [c for c in SCENES if c not in ("driver_away", "lost", "denied")]
)
def test_a_condition_that_is_not_cured_stays_for_hours(condition: str) -> None:
    """Time alone cures nothing that still shows; an alert on change would have ended by then."""
    windowed = {"xid_repeated", "xid_hardware", "xid_contained", "xid_unknown"}
    scene, stage = SCENES[condition], _warm()
    scene.cause(stage)
    stage.run(scene.by)
    stage.interval = MINUTE
    stage.run(30 * MINUTE if condition in windowed else 5 * HOUR)
    assert _holds(stage, condition)
