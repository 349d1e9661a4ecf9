# SPDX-License-Identifier: Apache-2.0
"""One reading child as a process: started by exec, read line by line, ended politely.

Never kills: on some drivers a killed reader freezes the card. A child that does
not end on SIGTERM within five seconds is abandoned, and reaped when it does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from cardwatch.sample import MAX_FRAME, Frame, FrameError, decode_frame

TERM_GRACE_S = 5.0
_READ_BYTES = 1 << 18


class Child:
    """A running child and its pipe.

    on_frame    called with each frame.
    on_garbage  called with a short reason for each line that is none.
    on_end      called once when the pipe ends or breaks.

    ``closed_at`` is when that was. ``call_since`` is when the oldest driver call
    began of which the child said last that it is open.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        on_frame: Callable[[Child, Frame], None],
        on_garbage: Callable[[Child, str], None],
        on_end: Callable[[Child], None],
    ) -> None:
        self.started = time.monotonic()
        self.last_heard = self.started
        self.terminated_at: float | None = None
        self.closed_at: float | None = None
        self.call_since: float | None = None
        self._on_frame, self._on_garbage, self._on_end = on_frame, on_garbage, on_end
        self._buffer = bytearray()
        self._skipping = False
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cardwatch.probe", json.dumps(_for_child(settings))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=_environment(),
        )
        assert self.process.stdout is not None
        self._pipe = self.process.stdout.fileno()
        os.set_blocking(self._pipe, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pipe, self._readable)

    def _readable(self) -> None:
        try:
            data = os.read(self._pipe, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.stop_listening()
            self.closed_at = time.monotonic()
            self._on_end(self)
            return
        self._feed(data)

    def _feed(self, data: bytes) -> None:
        """Split into lines; a line that outgrows the limit is skipped to its end."""
        self._buffer += data
        while (end := self._buffer.find(b"\n")) >= 0:
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            if self._skipping:
                self._skipping = False
            else:
                self._line(line)
        if len(self._buffer) > MAX_FRAME:
            if not self._skipping:
                self._on_garbage(self, f"a line of more than {MAX_FRAME} bytes")
            self._skipping = True
            self._buffer.clear()

    def _line(self, line: bytes) -> None:
        try:
            frame = decode_frame(line)
        except FrameError as error:
            self._on_garbage(self, str(error))
            return
        now = self.last_heard = time.monotonic()
        self.call_since = now - max(c.age for c in frame.open_calls) if frame.open_calls else None
        self._on_frame(self, frame)

    def stop_listening(self) -> None:
        """Close the pipe: nothing this child still says counts."""
        if self.process.stdout is not None and not self.process.stdout.closed:
            self._loop.remove_reader(self._pipe)
            self.process.stdout.close()

    def terminate(self) -> None:
        """Ask the child to end; once."""
        if self.terminated_at is None:
            self.terminated_at = time.monotonic()
            with contextlib.suppress(OSError):
                self.process.send_signal(signal.SIGTERM)

    @property
    def ended(self) -> int | None:
        """Exit status once the process is gone (negative: signal), else None."""
        return self.process.poll()

    @property
    def overdue(self) -> bool:
        """True when it was asked to end and has not within the grace time."""
        return (
            self.terminated_at is not None
            and time.monotonic() - self.terminated_at >= TERM_GRACE_S
            and self.ended is None
        )


def _for_child(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with our pid, by which the child sees that we are gone."""
    return {**settings, "parent": os.getpid()}


def _environment() -> dict[str, str]:
    """Return the child's environment: ours, so that it finds the same packages and library."""
    return dict(os.environ)
