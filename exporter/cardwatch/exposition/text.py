# SPDX-License-Identifier: Apache-2.0
"""Renders one page an interval, in the formats, plain or compressed, that are wanted.

Sample lines are the same in both formats, so each is made once; the part
before the value is kept from page to page. The output equals that of
prometheus_client for the same families, which a property test holds; the
client library itself takes ten times as long (docs/decisions/0002).
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TypeAlias

from cardwatch.families import ALL
from cardwatch.families.record import Family, Type

Series: TypeAlias = "Mapping[str, list[tuple[tuple[str, ...], float]]]"
"""Family name -> (values of ``Family.all_labels``, number). An empty label value is left out."""

_Lines: TypeAlias = "dict[tuple[str, ...], tuple[str, float, str]]"
"""Label values -> the part before the value, the value, and the line."""

MAX_SERIES_PER_FAMILY = 8192
"""No family of a healthy node of 16 cards comes near; a runaway one must not blind the node."""

_EOF = "# EOF\n"
_GZIP_LEVEL = 1  # level 9 saves a sixth of the bytes for twenty times the time


class Page:
    """One rendered page. Each form of it is put together once, when it is first wanted."""

    def __init__(self, text: list[str], openmetrics: list[str], series: int) -> None:
        self._text, self._openmetrics = text, openmetrics
        self.series = series

    def form(self, *, openmetrics: bool, gzip: bool) -> bytes:
        """Return the bytes of one form."""
        if openmetrics:
            return self.openmetrics_gzip if gzip else self.openmetrics
        return self.text_gzip if gzip else self.text

    @cached_property
    def text(self) -> bytes:
        """Text format 0.0.4."""
        return "".join(self._text).encode()

    @cached_property
    def openmetrics(self) -> bytes:
        """OpenMetrics 1.0.0."""
        return "".join(self._openmetrics).encode()

    @cached_property
    def text_gzip(self) -> bytes:
        """Text format 0.0.4, compressed."""
        return _compress(self.text)

    @cached_property
    def openmetrics_gzip(self) -> bytes:
        """OpenMetrics 1.0.0, compressed."""
        return _compress(self.openmetrics)


def escape(value: str) -> str:
    """Escape a label value: backslash, line feed and double quote."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def spelled(value: float) -> str:
    """Spell a number as Go does, and with it every Prometheus tool."""
    if -1e6 < value < 1e6:
        return repr(float(value))
    number = float(value)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    digits = repr(number)
    point = digits.find(".")
    if number < 0 or point <= 6:  # Python has put it in exponents itself
        return digits
    mantissa = f"{digits[0]}.{digits[1:point]}{digits[point + 1 :]}".rstrip("0.")
    return f"{mantissa}e+{point - 1:02d}"


class Renderer:
    """Renders pages.

    node_label  False leaves the node label to the scrape config.
    constant    labels of the site (cluster, pool, ...) that every series gets.
    """

    def __init__(
        self,
        *,
        node_label: bool = True,
        constant: Mapping[str, str] | None = None,
        families: Iterable[Family] = ALL,
    ) -> None:
        self._families = tuple(families)
        self._node_label = node_label
        self._constant = tuple((constant or {}).items())
        self._headers = {family.name: _headers(family) for family in self._families}
        self._known: dict[str, _Lines] = {}
        self.dropped: Counter[str] = Counter()

    def render(self, series: Series) -> Page:
        """Return the page; families in table order, rows in the order given."""
        kept: dict[str, _Lines] = {}
        text: list[str] = []
        openmetrics: list[str] = []
        count = 0
        for family in self._families:
            rows = series.get(family.name)
            if not rows:
                continue
            if len(rows) > MAX_SERIES_PER_FAMILY:
                self.dropped[family.name] += len(rows) - MAX_SERIES_PER_FAMILY
                rows = rows[:MAX_SERIES_PER_FAMILY]
            body, kept[family.name] = self._body(family, rows)
            header, openmetrics_header = self._headers[family.name]
            text += (header, body)
            openmetrics += (openmetrics_header, body)
            count += len(rows)
        self._known = kept  # what was kept of series that are gone goes with them
        openmetrics.append(_EOF)
        return Page(text, openmetrics, count)

    def _body(
        self, family: Family, rows: list[tuple[tuple[str, ...], float]]
    ) -> tuple[str, _Lines]:
        """Return the sample lines, and what is kept of them for the next page."""
        known = self._known.get(family.name, {})
        kept: _Lines = {}
        lines: list[str] = []
        for values, number in rows:
            last = known.get(values)
            if last is None:
                prefix = self._prefix(family, values)
            elif last[1] is number:  # small integers are: most flags and error counters
                kept[values] = last
                lines.append(last[2])
                continue
            else:
                prefix = last[0]
            line = f"{prefix}{spelled(number)}\n"
            kept[values] = (prefix, number, line)
            lines.append(line)
        return "".join(lines), kept

    def _prefix(self, family: Family, values: tuple[str, ...]) -> str:
        pairs = sorted(
            (label, value)
            for label, value in zip(family.all_labels, values, strict=True)
            if value and (self._node_label or label != "node")
        )
        pairs = sorted((*pairs, *self._constant)) if self._constant else pairs
        if not pairs:
            return f"{family.name} "
        labels = ",".join(f'{label}="{escape(value)}"' for label, value in pairs)
        return f"{family.name}{{{labels}}} "


def _headers(family: Family) -> tuple[str, str]:
    """Return HELP and TYPE lines for text 0.0.4 and for OpenMetrics."""
    base = family.base_name
    kind = "gauge" if family.type is Type.INFO else family.type.value
    help_text = family.help.replace("\\", "\\\\").replace("\n", "\\n")
    om_help = help_text.replace('"', '\\"')
    text = f"# HELP {family.name} {help_text}\n# TYPE {family.name} {kind}\n"
    openmetrics = f"# HELP {base} {om_help}\n# TYPE {base} {family.type.value}\n"
    if family.unit:
        openmetrics += f"# UNIT {base} {family.unit}\n"
    return text, openmetrics


def _compress(data: bytes) -> bytes:
    packer = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()
