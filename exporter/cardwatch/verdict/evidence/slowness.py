# SPDX-License-Identifier: Apache-2.0
"""A card that is slow: held down by heat, power or hardware, or slower than its neighbours.

Judged by the share of time, never by a moment. A software power cap at full
load, idling and chosen application clocks are how cards work, and no evidence;
nor is the temperature margin, which some boards report wrongly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from cardwatch.verdict.case import Case, Finding
from cardwatch.verdict.history import History
from cardwatch.verdict.wording import percent, span

Means = Mapping[str, float]

_SOFTWARE, _HARDWARE = "sw_thermal_slowdown", "hw_thermal_slowdown"
_BRAKE, _SLOWDOWN = "hw_power_brake_slowdown", "hw_slowdown"
_CHOSEN_CLOCKS = "applications_clocks_setting"


def thermal(case: Case) -> Finding | None:
    """Find heat that holds the clocks down, by hardware for some or by software for most time."""
    window = case.limits["window"]
    for reason, name, by in (
        (_HARDWARE, "hardware_share", "hardware"),
        (_SOFTWARE, "software_share", "driver"),
    ):
        share, limit = case.history.share(reason, window, case.now), case.limits[name]
        if share > limit:
            return Finding(
                f"The {by} held the clocks down for heat during {percent(share)} of the last "
                f"{span(window)}, limit {percent(limit)}.{_temperature(case)}",
                value=share,
                limit=limit,
            )
    return None


def _temperature(case: Case) -> str:
    now = case.card.one("gpu_temperature_celsius")
    limit = case.card.one("gpu_temperature_threshold_celsius", "slowdown")
    if now is None:
        return ""
    beside = "" if limit is None else f", the card slows down at {limit:.0f}"
    return f" The die is at {now:.0f} degrees{beside}."


def power_brake(case: Case) -> Finding | None:
    """Find that something outside holds the card down: a power supply or a rack controller."""
    window, limit = case.limits["window"], case.limits["share"]
    share = case.history.share(_BRAKE, window, case.now)
    if share <= limit:
        return None
    return Finding(
        f"The power brake was asserted during {percent(share)} of the last {span(window)}, limit "
        f"{percent(limit)}: power supply, rack power or cable. A reset does not help.",
        value=share,
        limit=limit,
    )


def hardware_slowdown(case: Case) -> Finding | None:
    """Find hardware that holds the clocks down when neither heat nor power brake explains it."""
    window, limit = case.limits["window"], case.limits["share"]
    explained = sum(case.history.share(reason, window, case.now) for reason in (_HARDWARE, _BRAKE))
    share = case.history.share(_SLOWDOWN, window, case.now) - explained
    if share <= limit:
        return None
    return Finding(
        f"The hardware held the clocks down during {percent(share)} of the last {span(window)} "
        f"without naming heat or power brake, limit {percent(limit)}.",
        value=share,
        limit=limit,
    )


def straggler(case: Case) -> Finding | None:
    """Find a card slower than the busy ones of its model, by clock and by what goes with it."""
    mine = _busy(case.history, case)
    if mine is None or _clocks_were_chosen(case):
        return None
    peers = [p for p in (_busy(peer.history, case) for peer in case.peers) if p is not None]
    if len(peers) < case.limits["peers"]:
        return None
    usual = median(peer["clock"] for peer in peers)
    limit = case.limits["clock_ratio"]
    if mine["clock"] >= limit * usual or _does_less(case, mine, peers):
        return None
    second = _second_sign(case, mine, peers)
    if second is None:
        return None
    ratio = mine["clock"] / usual
    return Finding(
        f"Busy, yet its SM clock averaged {mine['clock'] / 1e6:.0f} MHz over "
        f"{span(case.limits['window'])}, {percent(ratio)} of the {usual / 1e6:.0f} MHz of "
        f"{len(peers)} other busy cards of its model, limit {percent(limit)}{second}.",
        value=ratio,
        limit=limit,
    )


def _busy(history: History, case: Case) -> Mapping[str, float] | None:
    """Return the means of a card's busy time; None unless it was busy for half of the window."""
    means = history.busy_means(case.limits["window"], case.now)
    return means if means is not None and {"clock", "utilization"} <= means.keys() else None


def _clocks_were_chosen(case: Case) -> bool:
    return case.history.share(_CHOSEN_CLOCKS, case.limits["window"], case.now) > 0.5


def _does_less(case: Case, mine: Means, peers: Sequence[Means]) -> bool:
    """Say whether it simply has less to do than the others."""
    usual = median(peer["utilization"] for peer in peers)
    return mine["utilization"] < case.limits["utilization_ratio"] * usual


def _second_sign(case: Case, mine: Means, peers: Sequence[Means]) -> str | None:
    """Return what else sets the card apart; empty where nothing else is read, None if nothing does.

    A low clock at the usual power is heavier work within the same power limit.
    """
    power = [peer["power"] for peer in peers if "power" in peer]
    heat = [peer["temperature"] for peer in peers if "temperature" in peer]
    asked = False
    if power and "power" in mine:
        asked, usual = True, median(power)
        if mine["power"] < case.limits["power_ratio"] * usual:
            return f"; it draws {mine['power']:.0f} W against {usual:.0f} W"
    if heat and "temperature" in mine:
        asked, usual = True, median(heat)
        if mine["temperature"] > usual + case.limits["hotter"]:
            return f"; it is at {mine['temperature']:.0f} degrees against {usual:.0f}"
    return None if asked else ""
