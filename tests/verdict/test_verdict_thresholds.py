# SPDX-License-Identifier: Apache-2.0
"""The operator's numbers: what is accepted, and what is refused with which words."""

from __future__ import annotations

from typing import Any

import pytest

from cardwatch.settings.durations import parse_duration
from cardwatch.verdict import BY_ID, in_force, thresholds


def test_numbers_and_durations_are_taken_in_base_units() -> None:
    """Times need a unit, shares are plain numbers; what is not named stays as it was."""
    overrides = thresholds(
        {
            "thermal_slowdown": {"hardware_share": 0.2, "window": "30m", "hold": "1m"},
            "straggler": {"hotter": 15, "peers": 2},
        },
        parse_duration,
    )
    numbers = in_force(BY_ID["thermal_slowdown"], overrides)
    assert numbers == {
        "hardware_share": 0.2, "software_share": 0.5, "window": 1800.0, "hold": 60.0,
        "release": 1800.0,
    }  # fmt: skip
    assert in_force(BY_ID["straggler"], overrides)["peers"] == 2
    assert in_force(BY_ID["power_brake"], overrides)["share"] == 0.5


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "expected a mapping such as"),
        ("thermal_slowdown", "expected a mapping such as"),
        ({"thermal": {}}, "'thermal' is not a condition; allowed are lost, hung"),
        ({3: {}}, "3 is not a condition"),
        ({"power_brake": 0.5}, "power_brake: expected a mapping of share, window, hold, release"),
        ({"power_brake": {"shares": 1}}, "power_brake.shares is not a threshold; allowed are sh"),
        ({"power_brake": {1: 1}}, "power_brake.1 is not a threshold"),
        ({"power_brake": {"share": 50}}, "power_brake.share: expected a number from 0 to 1"),
        ({"power_brake": {"share": "0.5"}}, "power_brake.share: expected a number"),
        ({"power_brake": {"share": True}}, "power_brake.share: expected a number"),
        ({"power_brake": {"window": 600}}, "power_brake.window: expected a duration such as"),
        ({"power_brake": {"window": "2h"}}, "expected a duration from 300s to 3600s"),
        ({"power_brake": {"window": "1m"}}, "expected a duration from 300s to 3600s"),
        ({"power_brake": {"hold": "soon"}}, "power_brake.hold: expected a duration such as"),
        ({"power_brake": {"hold": "2d"}}, "expected a duration from 0s to 86400s"),
        ({"straggler": {"peers": -1}}, "straggler.peers: expected a number 0 or more"),
        ({"straggler": {"hotter": float("nan")}}, "expected a number 0 or more"),
        ({"straggler": {"hotter": float("inf")}}, "expected a number 0 or more"),
    ],
)
def test_a_wrong_entry_is_refused_with_what_is_allowed(value: Any, words: str) -> None:
    """The message names the entry and what may stand there."""
    with pytest.raises(ValueError, match=words.replace(".", r"\.")):
        thresholds(value, parse_duration)
