# SPDX-License-Identifier: Apache-2.0
"""Which format and encoding a client gets."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.exposition import choose_encoder
from web_harness import OPENMETRICS_PAGE, TEXT_PAGE, Served

from cardwatch.web.negotiate import OPENMETRICS, TEXT, wants_gzip, wants_openmetrics

PROMETHEUS_2_42 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROMETHEUS_3_TEXT_FIRST = (
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,*/*;q=0.4"
)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        ("", False),
        ("*/*", False),
        (BROWSER, False),
        (PROMETHEUS_2_42, True),
        (PROMETHEUS_3, True),
        (PROMETHEUS_3_TEXT_FIRST, False),
        ("text/plain;version=1.0.0;escaping=allow-utf-8", False),
        ("application/openmetrics-text", True),
        ('application/openmetrics-text; version="1.0.0"; charset=utf-8', True),
        ("Application/OpenMetrics-Text;Version=1.0.0", True),
        ("application/openmetrics-text;version=0.0.1", False),
        ("application/openmetrics-text;version=2.0.0", False),
        ("application/openmetrics-text;version=1.0.0;q=0", False),
        ("application/openmetrics-text;q=0.5,text/plain;version=0.0.4;q=0.6", False),
        ("application/openmetrics-text;q=0.5,text/plain;q=0.1,*/*;q=0.9", True),
        ("application/openmetrics-text;q=0.5,*/*;q=0.9", False),
        ("application/openmetrics-text;q=high,text/plain;q=0.1", False),
        ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily", False),
        (",;,=;q", False),
    ],
)
def test_the_format_that_is_wanted_most_is_served(
    served: Served, accept: str, openmetrics: bool
) -> None:
    """The answer is the preferred one of our two formats, under its true Content-Type."""
    answer = served.get("/metrics", {"Accept": accept})
    assert answer.status == 200
    assert answer.headers["content-type"] == (OPENMETRICS if openmetrics else TEXT)
    assert answer.body == (OPENMETRICS_PAGE if openmetrics else TEXT_PAGE)
    assert answer.headers["content-length"] == str(len(answer.body))
    assert answer.headers["vary"] == "Accept, Accept-Encoding"


@pytest.mark.parametrize(
    ("accept_encoding", "compressed"),
    [
        ("", False),
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("x-gzip", True),
        ("*", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("gzip;q=0, *", False),
        ("*;q=0", False),
        ("identity", False),
        ("br, zstd", False),
        ("gzip;q=often", False),
    ],
)
def test_gzip_is_used_where_it_is_accepted(
    served: Served, accept_encoding: str, compressed: bool
) -> None:
    """A page is compressed only for clients that accept it, a weight of 0 counts as no."""
    answer = served.get("/metrics", {"Accept-Encoding": accept_encoding})
    assert (answer.headers.get("content-encoding") == "gzip") is compressed
    body = gzip.decompress(answer.body) if compressed else answer.body
    assert body == TEXT_PAGE
    assert answer.headers["content-length"] == str(len(answer.body))


def test_head_tells_what_get_would(served: Served) -> None:
    """HEAD gives the headers of GET, length included, and no body."""
    for path in ("/metrics", "/", "/healthz", "/readyz", "/api/v1/gpus", "/none"):
        head, got = served.request("HEAD", path), served.request("GET", path)
        for headers in (head.headers, got.headers):
            headers.pop("date")
        assert head.body == b""
        assert (head.status, head.headers) == (got.status, got.headers)


ELEMENTS = st.sampled_from(
    [
        "application/openmetrics-text",
        "application/openmetrics-text;version=1.0.0",
        "application/openmetrics-text; version=0.0.1",
        "text/plain;version=0.0.4",
        "text/plain",
        "text/html",
        "*/*",
    ]
)


@given(st.lists(ELEMENTS, max_size=6))
def test_without_weights_the_choice_is_that_of_the_python_client(elements: list[str]) -> None:
    """Where no q-values are given, prometheus_client would choose the same format."""
    accept = ", ".join(elements)
    chosen = choose_encoder(accept)[1].startswith("application/openmetrics-text")
    assert wants_openmetrics(accept.encode()) is chosen


@given(st.lists(ELEMENTS, min_size=1, max_size=6, unique=True))
def test_a_falling_list_with_openmetrics_first_is_answered_alike(elements: list[str]) -> None:
    """For lists as Prometheus sends them, best first, prometheus_client would agree."""
    first = sorted(elements, key=lambda element: not element.startswith("application/"))
    weighted = [f"{element};q={0.9 - place / 10:.1f}" for place, element in enumerate(first)]
    accept = ",".join(weighted)
    chosen = choose_encoder(accept)[1].startswith("application/openmetrics-text")
    assert wants_openmetrics(accept.encode()) is chosen


@given(st.binary(max_size=200))
def test_any_header_gives_a_decision(header: bytes) -> None:
    """No content of Accept or Accept-Encoding makes the choice fail."""
    assert wants_openmetrics(header) in (True, False)
    assert wants_gzip(header) in (True, False)
