# SPDX-License-Identifier: Apache-2.0
"""What a client asked for with Accept and Accept-Encoding.

Owns the choice between the two exposition formats and of gzip. It must never
promise a format or version that cardwatch does not write, whatever the client
prefers.

Unlike ``prometheus_client.exposition.choose_encoder`` it weighs q-values, and it
never echoes a version or an escaping scheme from the request.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_QUALITY = re.compile(r"0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?", re.ASCII)


@functools.lru_cache(maxsize=64)
def wants_openmetrics(accept: bytes) -> bool:
    """Tell whether OpenMetrics 1.0.0 is wanted at least as much as plain text."""
    openmetrics = 0.0
    text: dict[str, float] = {}
    for name, parameters, quality in _elements(accept):
        if name == "application/openmetrics-text":
            if parameters.get("version", "1.0.0") == "1.0.0":
                openmetrics = max(openmetrics, quality)
        elif name in ("text/plain", "text/*", "*/*"):
            text[name] = max(text.get(name, 0.0), quality)
    # A wildcard speaks for text alone, and only where text/plain is not named:
    # clients that know OpenMetrics name it.
    plain = text.get("text/plain", text.get("text/*", text.get("*/*", 0.0)))
    return openmetrics > 0 and openmetrics >= plain


@functools.lru_cache(maxsize=64)
def wants_gzip(accept_encoding: bytes) -> bool:
    """Tell whether gzip is named, or covered by ``*``, with a weight above zero."""
    weights = {name: quality for name, _, quality in _elements(accept_encoding)}
    named = [weights[name] for name in ("gzip", "x-gzip") if name in weights]
    return max(named) > 0 if named else weights.get("*", 0.0) > 0


def _elements(header: bytes) -> Iterator[tuple[str, dict[str, str], float]]:
    for element in header.decode("latin-1").split(","):
        name, *rest = (part.strip() for part in element.split(";"))
        parameters: dict[str, str] = {}
        for part in rest:
            key, _, value = part.partition("=")
            parameters[key.strip().lower()] = value.strip().strip('"')
        quality = parameters.pop("q", "1")
        # An element whose weight cannot be read asks for nothing.
        if _QUALITY.fullmatch(quality):
            yield name.lower(), parameters, float(quality)
