# SPDX-License-Identifier: Apache-2.0
"""A simulated node: a ``Driver`` whose cards live, work and fail by a scenario.

Used by ``make run`` on a machine without a GPU, by demonstrations, drills and
tests. Deterministic: answers follow from seed, scenario and time alone.
"""

from cardwatch.sim.driver import SimDriver
from cardwatch.sim.scenario import DEFAULT, Scenario, ScenarioError, load_scenario

__all__ = ["DEFAULT", "Scenario", "ScenarioError", "SimDriver", "load_scenario"]
