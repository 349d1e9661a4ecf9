# SPDX-License-Identifier: Apache-2.0
"""Each sign of a reset by itself, and what is no sign of one."""

from __future__ import annotations

from typing import Any

import pytest

from cardwatch.events.resets import CLEARED, ECC_GREW, RESET, Resets
from cardwatch.journal.records import Mark
from cardwatch.sample import CardSample

UUID = "GPU-a"
ECC = "gpu_ecc_errors_total"
ENERGY = "gpu_energy_joules_total"
ACTION = "gpu_recovery_action"


class Watched:
    """One card under watch; times are seconds since the first sample."""

    def __init__(self) -> None:
        self.marks: list[Mark] = []
        self.resets = Resets(self.marks.append)

    def look(self, at: float, **more: Any) -> Watched:
        """Take a sample whose readings are given by short names."""
        rows: dict[str, Any] = {}
        if "energy" in more:
            rows[ENERGY] = [((), more.pop("energy"))]
        if "action" in more:
            rows[ACTION] = [((), more.pop("action"))]
        if "ecc" in more:
            rows[ECC] = [((kind, place), n) for (kind, place), n in more.pop("ecc").items()]
        sample = CardSample(slot=0, uuid=UUID, time=1000.0 + at, monotonic=at, rows=rows, **more)
        self.resets.look(UUID, sample)
        return self

    def seen(self, kind: str = RESET) -> list[tuple[float, str]]:
        """Return when and by what marks of a kind came."""
        return [(mark.time - 1000.0, mark.origin) for mark in self.marks if mark.kind == kind]


def _ecc(uncorrected: float, corrected: float = 0.0) -> dict[tuple[str, str], float]:
    return {("uncorrected", "dram"): uncorrected, ("corrected", "dram"): corrected}


def test_a_steady_card_was_not_reset() -> None:
    """Counters that grow or stay, and a recovery action that stays, are no reset."""
    card = Watched()
    for at in range(5):
        card.look(at, energy=100.0 + at, ecc=_ecc(1, at), action=1.0)
    assert card.marks == []
    assert card.resets.last_reset == {}


def test_energy_that_falls_is_a_reset() -> None:
    """The energy counter starts at driver load."""
    card = Watched().look(0, energy=500.0).look(5, energy=3.0)
    assert card.seen() == [(5.0, "energy_counter")]
    assert card.resets.last_reset[UUID] == 1005.0


def test_ecc_that_falls_is_a_reset() -> None:
    """Volatile ECC counts start at driver load, corrected ones included."""
    card = Watched().look(0, ecc=_ecc(0, 7)).look(5, ecc=_ecc(0, 0))
    assert card.seen() == [(5.0, "ecc_counter")]


def test_a_recovery_action_that_is_taken_back_is_a_reset() -> None:
    """Only back to none counts: another action is another wish."""
    card = Watched().look(0, action=4.0).look(5, action=1.0)
    assert card.seen() == []
    card.look(10, action=0.0)
    assert card.seen() == [(10.0, "recovery_action")]


@pytest.mark.parametrize("state", ["lost", "reset_required"])
def test_a_card_that_answers_again_was_reset(state: str) -> None:
    """After lost or reset-required, the first good sample is after a reset; the next is not."""
    card = Watched().look(0).look(5, state=state, up=state != "lost").look(10).look(15)
    assert card.seen() == [(10.0, "answers_again")]


def test_a_card_that_was_not_listed_was_reset_when_it_is_back() -> None:
    """The supervisor tells of it, for no sample does, also before the first sample."""
    card = Watched()
    card.resets.lost(UUID)
    card.look(5)
    assert card.seen() == [(5.0, "answers_again")]


@pytest.mark.parametrize("state", ["unreadable", "denied", "hung"])
def test_other_trouble_is_no_reset(state: str) -> None:
    """A card that could not be read for other reasons is the same card after that."""
    card = Watched().look(0, energy=5.0).look(5, state=state, up=False).look(10, energy=6.0)
    assert card.seen() == []


def test_a_bad_reading_in_between_hides_nothing() -> None:
    """What one sample lacks is carried on from the one before."""
    card = Watched().look(0, energy=500.0, ecc=_ecc(2), action=1.0).look(5).look(10)
    assert card.seen() == []
    card.look(15, energy=3.0)
    assert card.seen() == [(15.0, "energy_counter")]


def test_a_card_that_flaps_is_reset_each_time() -> None:
    """Lost, back, lost, back: twice; being lost for many samples is once."""
    card = Watched().look(0)
    for at in (5, 10, 15):
        card.look(at, state="lost", up=False)
    card.look(20).look(25).look(30, state="lost", up=False).look(35)
    assert [at for at, _ in card.seen()] == [20.0, 35.0]


def test_ecc_counts_that_did_not_all_read_are_not_compared() -> None:
    """A location that failed for once makes no sum that falls."""
    card = Watched().look(0, ecc=_ecc(3, 3))
    card.look(5, ecc={("corrected", "dram"): 3.0}, faults={ECC: "unknown"})
    card.look(10, ecc=_ecc(3, 3))
    assert card.marks == []


def test_the_uptime_of_the_card_tells_when_it_was_reset() -> None:
    """Its start is the reset; the same start again, or a jitter of it, is no other one."""
    card = Watched().look(0, uptime=100.0).look(5, uptime=105.4).look(10, uptime=109.0)
    assert card.seen() == [(-100.0, "uptime")]
    card.look(20, uptime=4.0)
    assert card.seen() == [(-100.0, "uptime"), (16.0, "uptime")]


def test_an_uncorrected_count_that_grows_has_a_time() -> None:
    """The newest growth counts; corrected errors do not."""
    card = Watched().look(0, ecc=_ecc(0)).look(5, ecc=_ecc(0, 9)).look(10, ecc=_ecc(2, 9))
    assert card.seen(ECC_GREW) == [(10.0, "counter")]
    card.look(15, ecc=_ecc(2, 9)).look(20, ecc=_ecc(3, 9))
    assert card.resets.ecc_grew[UUID] == 1020.0


def test_growth_across_a_bad_reading_is_seen() -> None:
    """An error between two good readings is not hidden by a bad one between them."""
    card = Watched().look(0, ecc=_ecc(0)).look(5).look(10, ecc=_ecc(1))
    assert card.seen(ECC_GREW) == [(10.0, "counter")]


def test_a_count_at_first_sight_is_no_growth() -> None:
    """Nobody knows when old errors came: they must not page as new ones."""
    card = Watched().look(0, ecc=_ecc(5)).look(5, ecc=_ecc(5))
    assert card.marks == []


def test_marks_of_earlier_runs_and_other_processes_count() -> None:
    """The newest of resets and of clearing by hand is the last reset, in whatever order."""
    card = Watched()
    for mark in (
        Mark(UUID, CLEARED, 50.0, "cli"),
        Mark(UUID, RESET, 40.0, "uptime"),
        Mark(UUID, ECC_GREW, 45.0, "counter"),
        Mark(UUID, "of a later version", 99.0, "x"),
    ):
        card.resets.restore(mark)
    assert card.resets.last_reset == {UUID: 50.0}
    assert card.resets.ecc_grew == {UUID: 45.0}
    assert card.marks == []  # they are kept already


def test_a_reset_seen_otherwise_is_kept() -> None:
    """Xid 154 back to 0 and a load of the driver are told from outside."""
    card = Watched()
    card.resets.was_reset(UUID, 1007.0, "xid154")
    assert card.seen() == [(7.0, "xid154")]
    assert card.resets.last_reset == {UUID: 1007.0}
