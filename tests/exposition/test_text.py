# SPDX-License-Identifier: Apache-2.0
"""The page: equal to the client library's own output, and safe against any text."""

from __future__ import annotations

import gzip
import math

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, exposition
from prometheus_client.core import Metric
from prometheus_client.openmetrics import exposition as openmetrics_exposition
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_om
from prometheus_client.parser import text_string_to_metric_families as parse_text

from cardwatch.exposition import text as exposition_text
from cardwatch.exposition.text import Renderer
from cardwatch.families import ALL, BY_NAME
from cardwatch.families.record import Family, Type
from cardwatch.text import label

Rows = dict[str, list[tuple[tuple[str, ...], float]]]

_values = st.text(max_size=12) | st.sampled_from(
    ['a"b', "back\\slash", "new\nline", "c,d=e{f}", "", "très-long-😀", "trailing\\", "\x00\x1b[0m"]
)
_numbers = st.floats(allow_nan=False) | st.integers(-(2**63), 2**63).map(float)


@st.composite
def _series(draw: st.DrawFn) -> Rows:
    families = draw(st.lists(st.sampled_from(ALL), unique_by=lambda f: f.name, max_size=6))
    series: Rows = {}
    for family in families:
        labels = st.tuples(*(_values for _ in family.all_labels))
        keys = draw(st.lists(labels, unique=True, min_size=1, max_size=4))
        series[family.name] = [(key, draw(_numbers)) for key in keys]
    return series


class _AsMetrics:
    """The same series for the client library."""

    def __init__(self, series: Rows) -> None:
        self._series = series

    def collect(self) -> list[Metric]:
        return [_metric(f, self._series[f.name]) for f in ALL if f.name in self._series]


def _metric(family: Family, rows: list[tuple[tuple[str, ...], float]]) -> Metric:
    kind = "info" if family.type is Type.INFO else family.type.value
    metric = Metric(family.base_name, family.help, kind, family.unit or "")
    for values, number in rows:
        labels = {k: v for k, v in zip(family.all_labels, values, strict=True) if v}
        metric.add_sample(family.name, labels, number)
    return metric


@settings(max_examples=200, deadline=None)
@given(_series())
def test_both_formats_equal_what_the_client_library_writes(series: Rows) -> None:
    """Whatever the families, labels and numbers, our bytes are those of prometheus_client."""
    registry = CollectorRegistry()
    registry.register(_AsMetrics(series))
    page = Renderer().render(series)
    assert page.text == exposition.generate_latest(registry)
    assert page.openmetrics == openmetrics_exposition.generate_latest(registry)
    assert gzip.decompress(page.text_gzip) == page.text
    assert gzip.decompress(page.openmetrics_gzip) == page.openmetrics


@given(st.lists(_values.map(label), unique=True, min_size=1, max_size=8))
def test_label_values_survive_the_round_trip_through_both_parsers(values: list[str]) -> None:
    """Untrusted text comes back from the parsers as it went in, one series for each."""
    rows = [(("n", "0", "GPU-0", "running" + value), 1.0) for value in values]
    page = Renderer().render({"gpu_state_info": rows})
    for parse, text in ((parse_text, page.text), (parse_om, page.openmetrics)):
        (family,) = parse(text.decode())
        assert [s.labels["state"] for s in family.samples] == ["running" + v for v in values]


def test_hostile_process_names_each_give_one_series() -> None:
    """Quotes, backslashes, line feeds, braces, emoji and nothing at all cannot break the page."""
    names = ['a"b', "back\\slash", "new\nline", "c,d=e{f}", "", "très-long-😀", "trailing\\"]
    series = {"gpu_process_memory_bytes": [(("n", "0", "GPU-0", name, "", ""), 1.0)
                                           for name in names]}  # fmt: skip
    (family,) = parse_text(Renderer().render(series).text.decode())
    assert [s.labels.get("process", "") for s in family.samples] == names


def test_a_runaway_family_is_cut_and_counted() -> None:
    """A family beyond its cap loses the rows over it, and the loss is visible."""
    cap = exposition_text.MAX_SERIES_PER_FAMILY
    rows = [(("n", str(i), f"GPU-{i}"), 1.0) for i in range(cap + 5)]
    renderer = Renderer()
    assert renderer.render({"gpu_up": rows}).series == cap
    assert renderer.dropped == {"gpu_up": 5}


def test_site_labels_and_the_node_label_can_be_set() -> None:
    """Labels of the site stand on every series, and the node label can be left out."""
    page = Renderer(node_label=False, constant={"rack": 'r"1'}).render(
        {"gpu_up": [(("n", "0", "GPU-0"), 1.0)], "cardwatch_time_seconds": [(("n",), 1.0)]}
    )
    samples = [s for family in parse_text(page.text.decode()) for s in family.samples]
    assert [s.labels for s in samples] == [
        {"gpu": "0", "uuid": "GPU-0", "rack": 'r"1'},
        {"rack": 'r"1'},
    ]


def test_help_and_type_stand_once_and_samples_together() -> None:
    """A strict parser accepts the page: one HELP and TYPE a family, samples not split."""
    series: Rows = {
        f.name: [(tuple(f"{name}{i}" for name in f.all_labels), float(i)) for i in range(2)]
        for f in ALL
    }
    text = Renderer().render(series).text.decode()
    families = list(parse_text(text))
    assert len(families) == len(ALL)
    assert text.count("# TYPE") == text.count("# HELP") == len(ALL)
    assert all(len(f.samples) == 2 for f in families)


def test_special_numbers_are_written_as_prometheus_reads_them() -> None:
    """Infinity and large numbers keep their value."""
    rows = [(("n", str(i), "u"), v) for i, v in enumerate((math.inf, 2.0**63, 1e-9, 0.0))]
    (family,) = parse_text(Renderer().render({"gpu_up": rows}).text.decode())
    assert [s.value for s in family.samples] == [math.inf, 2.0**63, 1e-9, 0.0]
    assert BY_NAME["gpu_up"].help in Renderer().render({"gpu_up": rows}).text.decode()
