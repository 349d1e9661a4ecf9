# SPDX-License-Identifier: Apache-2.0
"""Why the clocks are held back: reasons active now, and the driver's time counters.

Bits: nvmlClocksEventReasons in nvml.h. Counters are nanoseconds since the
driver loaded. Reasons without a counter are integrated by the parent from the
active bits, because that sum must outlive this process.
"""

from __future__ import annotations

from cardwatch.nvml import fields as f
from cardwatch.nvml.codes import DriverError, Outcome
from cardwatch.nvml.fields import SCOPE_GPU, Field
from cardwatch.readings.card import CardPass

REASONS = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clock_setting",
    "board_limit",
    "reliability",
)
"""Name of bit 0, 1, 2, ..."""

COUNTERS: tuple[tuple[str, tuple[Field, ...]], ...] = (
    ("sw_power_cap", (f.PERF_POLICY_POWER,)),
    # The header maps the thermal policy counter to the software slowdown, so it
    # stands in where the newer id is unknown or gated.
    ("sw_thermal_slowdown", (f.REASON_SW_THERMAL, f.PERF_POLICY_THERMAL)),
    ("hw_thermal_slowdown", (f.REASON_HW_THERMAL,)),
    ("hw_power_brake_slowdown", (f.REASON_HW_POWER_BRAKE,)),
    ("sync_boost", (f.PERF_POLICY_SYNC_BOOST,)),
    ("board_limit", (f.PERF_POLICY_BOARD_LIMIT,)),
    ("reliability", (f.PERF_POLICY_RELIABILITY,)),
)

_NANO = 1_000_000_000


def reason_name(bit: int) -> str:
    """Return the label of a bit; ``bit_N`` for one that is not known yet."""
    return REASONS[bit] if bit < len(REASONS) else f"bit_{bit}"


def read(card: CardPass) -> None:
    """Read the active reasons and the driver's counters."""
    with card.attempt("gpu_throttle_reason_active"):
        mask = int(
            card.ask_first(
                ("DeviceGetCurrentClocksEventReasons",), ("DeviceGetCurrentClocksThrottleReasons",)
            )
        )
        supported = _supported(card)
        card.reasons = {
            reason_name(bit): bool(mask >> bit & 1)
            for bit in range(64)
            if (mask | supported) >> bit & 1
        }
    _read_counters(card)


def _supported(card: CardPass) -> int:
    """Return the mask of reasons this card can have; 0 where it is not told (vGPU guests)."""
    try:
        return int(
            card.static(
                "supported reasons",
                lambda: card.ask_first(
                    ("DeviceGetSupportedClocksEventReasons",),
                    ("DeviceGetSupportedClocksThrottleReasons",),
                ),
            )
        )
    except DriverError:
        return 0


def _read_counters(card: CardPass) -> None:
    wanted = [c for c in COUNTERS if card.wants("gpu_throttle_seconds_total", c[0])]
    with card.attempt("gpu_throttle_seconds_total"):
        requests = [(field, SCOPE_GPU) for _, candidates in wanted for field in candidates]
        answers = dict(zip(requests, card.fields(requests), strict=True))
        for reason, candidates in wanted:
            _put_counter(card, reason, [answers[field, SCOPE_GPU] for field in candidates])


def _put_counter(card: CardPass, reason: str, answers: list[int | DriverError]) -> None:
    for answer in answers:
        if not isinstance(answer, DriverError):
            card.put("gpu_throttle_seconds_total", answer, reason, per=_NANO)
            return
        if answer.outcome is not Outcome.UNSUPPORTED:
            card.fault("gpu_throttle_seconds_total", answer)
            return
