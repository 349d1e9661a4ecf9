# SPDX-License-Identifier: Apache-2.0
"""The web config in force, renewed when its files change.

Owns the decision when to read again and whether to take the result. It must never
replace a working config by a broken one, and never take half of a new one.

There is no timer: ``poll`` is called per request and connection and looks at the
files at most once a second, so that an idle exporter stays asleep.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from cardwatch.web.webconfig import Stamps, WebConfig, WebConfigError, load, stamp

logger = logging.getLogger(__name__)

Listener = Callable[[WebConfig, WebConfig], None]


class LiveConfig:
    """The web config of a file, or an open one where there is no file.

    The first load raises ``WebConfigError``; later ones keep what was there.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        interval_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._interval_s = interval_s
        self._clock = clock
        self._current = WebConfig() if path is None else load(path)
        self._stamps: Stamps = self._current.stamps
        self._next_look = clock() + interval_s
        self._last_error: str | None = None
        self._listeners: list[Listener] = []

    @property
    def current(self) -> WebConfig:
        """The config in force."""
        return self._current

    @property
    def config_ok(self) -> bool:
        """Tell whether the files, as they are now, are in force."""
        return self._last_error is None

    @property
    def last_error(self) -> str | None:
        """Why the files, as they are now, are not in force; one line."""
        return self._last_error

    def subscribe(self, listener: Listener) -> None:
        """Call the listener with the old and the new config after each change."""
        self._listeners.append(listener)

    def poll(self) -> None:
        """Read again if a file changed; cheap, for each request."""
        if self._path is None:
            return
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + self._interval_s
        if any(stamp(path) != seen for path, seen in self._stamps.items()):
            self._renew(self._path)

    def reload(self) -> bool:
        """Read again in any case, as SIGHUP asks; tell whether it is in force."""
        if self._path is not None:
            self._renew(self._path)
        return self.config_ok

    def _renew(self, path: Path) -> None:
        old = self._current
        try:
            new = load(path)
            self._demand_same_tls(path, new)
        except WebConfigError as exc:
            self._stamps = exc.stamps
            if str(exc) != self._last_error:
                logger.error("web config not reloaded, the old one stays in force: %s", exc)
            self._last_error = str(exc)
            return
        self._current, self._stamps, self._last_error = new, new.stamps, None
        logger.info("web config reloaded from %s", path)
        for listener in self._listeners:
            listener(old, new)

    def _demand_same_tls(self, path: Path, new: WebConfig) -> None:
        if (new.tls is None) != (self._current.tls is None):
            change = "off" if new.tls is None else "on"
            raise WebConfigError(
                f"{path}: tls_server_config: turning TLS {change} needs a restart of cardwatch",
                new.stamps,
            )
