# SPDX-License-Identifier: Apache-2.0
"""Ranges of plausible values, in exported units, for readings a driver may get wrong.

A bound is there to catch blanks and sentinels that arrive as success, not to
judge a card: every value a working card can show lies inside.
"""

from __future__ import annotations

Range = tuple[float, float]

FLAG: Range = (0, 1)
RATIO: Range = (0, 1)
FAN_RATIO: Range = (0, 1.5)
"""The driver documents fan speeds above 100 %."""

DIE_CELSIUS: Range = (-50, 250)
SENSOR_CELSIUS: Range = (1, 250)
"""Boards without the sensor or the threshold report 0."""
MARGIN_CELSIUS: Range = (-100, 200)

WATTS: Range = (0, 20_000)
HERTZ: Range = (0, 50e9)
BYTES: Range = (0, 2**52)
CAPACITY_BYTES: Range = (1, 2**52)
"""A capacity of 0 is a card that did not say."""

COUNT: Range = (0, 2**62)
"""Below 2^64-1 and below DCGM's 64-bit blanks (from 2^63 - 16)."""
COUNT_32: Range = (0, 2**31 - 17)
"""For counters of 32 bits: below 2^32-1 and below DCGM's 32-bit blanks (from 2^31 - 16)."""
JOULES: Range = (0, 1e15)
"""The 64-bit blanks are millijoules, so they show as 9.2e15 and more."""
SECONDS: Range = (0, 4e9)
"""The 64-bit blanks are nanoseconds, so they show as 9.2e9 and more."""

LINKS: Range = (0, 255)
PCIE_GENERATION: Range = (1, 10)
PCIE_WIDTH: Range = (1, 64)
PERFORMANCE_STATE: Range = (0, 15)
"""The driver says 32 for unknown."""
RECOVERY_ACTION: Range = (0, 7)
FABRIC_STATE: Range = (1, 3)
COMPUTE_MODE: Range = (0, 3)
