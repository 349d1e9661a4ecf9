# SPDX-License-Identifier: Apache-2.0
"""Log lines on stderr, as logfmt or JSON: one event a line, no credentials ever."""

from __future__ import annotations

import json
import logging
import sys
import time


class LineFormatter(logging.Formatter):
    """Formats a record as one line of logfmt or JSON."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self._json = form == "json"

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; line breaks inside a message are escaped."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        message = record.getMessage()
        if record.exc_info:
            message += "\n" + self.formatException(record.exc_info)
        fields = {
            "ts": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": message,
        }
        if self._json:
            return json.dumps(fields)
        return " ".join(f"{key}={_quoted(value)}" for key, value in fields.items())


def _quoted(value: str) -> str:
    plain = value.isprintable() and value and not any(c in value for c in ' "=\\')
    return value if plain else json.dumps(value, ensure_ascii=False)


def configure(form: str, level: str) -> None:
    """Send all logging of this process to stderr in one form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(form))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for noisy in ("asyncio", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
