# SPDX-License-Identifier: Apache-2.0
"""The record that declares one metric family, and the rules it must keep.

A family is declared once, as data, in the topic module of this package where a
reader would look for it. Exposition, documentation, tests, dashboards and
rules all take names, labels and units from here.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field


class Type(str, enum.Enum):
    """Prometheus metric type. INFO is a gauge of value 1 in text 0.0.4."""

    GAUGE = "gauge"
    COUNTER = "counter"
    INFO = "info"


class Profile(enum.IntEnum):
    """How much is exported; each profile includes the ones before it."""

    CORE = 1
    STANDARD = 2
    FULL = 3


class Scope(enum.Enum):
    """What one series of the family speaks of, and the labels this brings."""

    NODE = ("node",)
    GPU = ("node", "gpu", "uuid")
    MIG = ("node", "gpu", "uuid", "mig_uuid", "gpu_instance", "compute_instance", "profile")

    @property
    def labels(self) -> tuple[str, ...]:
        """Label names that every series of this scope carries."""
        names: tuple[str, ...] = self.value
        return names


class Stability(str, enum.Enum):
    """STABLE names are frozen; EXPERIMENTAL ones may change in a minor release."""

    STABLE = "stable"
    EXPERIMENTAL = "experimental"


UNITS = ("bytes", "ratio", "celsius", "watts", "joules", "hertz", "seconds")
"""Base units a name may end in (before ``_total``), after the Prometheus naming rules."""

_NAME = re.compile(r"^[a-z][a-z0-9]*(_[a-z0-9]+)*$")

MAX_LABELS = 12
MAX_INFO_LABELS = 20


@dataclass(frozen=True)
class Family:
    """One metric family.

    name      as on the text page; counters end in ``_total``, infos in ``_info``.
    help      one line for the HELP text: what it is, its window or origin, no unit games.
    labels    labels beyond those of the scope, in the order rows give their values.
    profile   the smallest profile that exports it.
    split     profile per value of the first label, where rows differ; a value that
              is not listed has ``profile``.
    nonzero_profile
              below ``profile``, rows whose value is not 0 are exported from here on.
    sources   backend name -> which driver call, file or computation it comes from.
    accept    inclusive range of plausible values in the exported unit; a reading
              outside is dropped and counted as ``out_of_range``. None: any finite value.
    planned   topic of the work that will export it; None when exported today.
    """

    name: str
    type: Type
    help: str
    scope: Scope = Scope.GPU
    labels: tuple[str, ...] = ()
    unit: str | None = None
    profile: Profile = Profile.CORE
    split: Mapping[str, Profile] = field(default_factory=dict)
    nonzero_profile: Profile | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    accept: tuple[float, float] | None = None
    stability: Stability = Stability.STABLE
    since: str = "0.1.0"
    planned: str | None = None

    @property
    def all_labels(self) -> tuple[str, ...]:
        """Scope labels followed by the family's own."""
        return self.scope.labels + self.labels

    @property
    def base_name(self) -> str:
        """Name of the family in OpenMetrics: without ``_total`` or ``_info``."""
        return self.name.removesuffix("_total").removesuffix("_info")

    @property
    def reading(self) -> str:
        """Name of the reading in error counters: without ``gpu_``, ``_total`` and unit."""
        name = self.base_name.removeprefix("gpu_")
        return name.removesuffix(f"_{self.unit}") if self.unit else name

    def profile_of(self, first_label: str | None = None) -> Profile:
        """Smallest profile that exports the row whose first own label is given."""
        if first_label is None:
            return self.profile
        return self.split.get(first_label, self.profile)

    def problems(self) -> list[str]:
        """Return what is wrong with this record; empty when it keeps all rules."""
        found = []
        if not _NAME.match(self.name):
            found.append("name is not lower snake case")
        if (self.type is Type.COUNTER) != self.name.endswith("_total"):
            found.append("counters, and only counters, end in _total")
        if (self.type is Type.INFO) != self.name.endswith("_info"):
            found.append("infos, and only infos, end in _info")
        if self.unit is not None and self.unit not in UNITS:
            found.append(f"unit {self.unit} is not a base unit")
        if self.unit is not None and not self.base_name.endswith(f"_{self.unit}"):
            found.append(f"name does not end in its unit {self.unit}")
        if self.unit is None and self.base_name.rsplit("_", 1)[-1] in UNITS:
            found.append("name ends in a unit that is not declared")
        limit = MAX_INFO_LABELS if self.type is Type.INFO else MAX_LABELS
        if len(self.all_labels) > limit:
            found.append(f"more than {limit} labels")
        if len(set(self.all_labels)) != len(self.all_labels):
            found.append("a label is declared twice")
        if not self.help.endswith(".") or "\n" in self.help:
            found.append("help is not one line ending in a full stop")
        if self.split and not self.labels:
            found.append("split needs a label")
        if self.planned is None and not self.sources:
            found.append("exported, but no source is named")
        return found
