# SPDX-License-Identifier: Apache-2.0
"""A child's stream read line by line, whatever it writes, and how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cardwatch.sample import MAX_FRAME, Frame, encode_frame
from cardwatch.supervisor.child import Child

FRAME = encode_frame(Frame(pid=1, listed=0))


class Heard:
    """What a child was heard to say."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.garbage: list[str] = []
        self.ends = 0
        self.ended = asyncio.Event()

    def end(self, _child: Child) -> None:
        self.ends += 1
        self.ended.set()


def _listen(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> tuple[Child, Heard]:
    """Start a child that runs a script in the place of the reader."""
    package = directory / "cardwatch_stand_in"
    package.mkdir()
    (package / "python").write_text(f"#!/bin/sh\nexec {sys.executable} {package}/script.py\n")
    (package / "python").chmod(0o755)
    (package / "script.py").write_text(script)
    monkeypatch.setattr(sys, "executable", str(package / "python"))
    heard = Heard()
    child = Child(
        {},
        lambda _child, frame: heard.frames.append(frame),
        lambda _child, reason: heard.garbage.append(reason),
        heard.end,
    )
    return child, heard


def _run(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    meanwhile: Callable[[Child, Heard], None] | None = None,
) -> tuple[Child, Heard]:
    """Run a child to the end of its pipe and of its process."""

    async def go() -> tuple[Child, Heard]:
        child, heard = _listen(directory, monkeypatch, script)
        if meanwhile is not None:
            meanwhile(child, heard)
        await asyncio.wait_for(heard.ended.wait(), 30)
        await asyncio.to_thread(child.process.wait, 30)
        return child, heard

    return asyncio.run(go())


def _writes(data: bytes) -> str:
    return f"import os\ndata = {data!r}\nwhile data: data = data[os.write(1, data):]\n"


def test_frames_arrive_in_order_and_the_end_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several frames in one write are several frames."""
    child, heard = _run(tmp_path, monkeypatch, _writes(FRAME * 3))
    assert len(heard.frames) == 3
    assert heard.garbage == []
    assert (heard.ends, child.ended) == (1, 0)
    assert child.closed_at is not None


def test_a_frame_in_pieces_is_a_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the pipe cuts does not matter."""
    script = (
        "import os, time\n"
        f"for byte in {FRAME!r}:\n"
        "    os.write(1, bytes([byte]))\n"
        "    if byte == 44: time.sleep(0.001)\n"
    )
    _, heard = _run(tmp_path, monkeypatch, script)
    assert len(heard.frames) == 1
    assert heard.garbage == []


@pytest.mark.parametrize(
    "junk",
    [b"\n", b"Segfault\n", b"\x00\xff\xfe\n", b"{}\n", b"[1]\n", b"null\n", b"[" * 5000 + b"\n"],
)
def test_a_line_that_is_no_frame_is_reported_and_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, junk: bytes
) -> None:
    """Frames before and after it count."""
    _, heard = _run(tmp_path, monkeypatch, _writes(FRAME + junk + FRAME))
    assert len(heard.frames) == 2
    assert len(heard.garbage) == 1


def test_a_line_without_end_is_reported_once_and_does_not_fill_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows its end, if it comes, is read again."""
    script = (
        "import os\n"
        f"for _ in range({3 * MAX_FRAME // 65536}): os.write(1, b'x' * 65536)\n"
        f"os.write(1, b'\\n')\nos.write(1, {FRAME!r})\n"
    )
    _, heard = _run(tmp_path, monkeypatch, script)
    assert heard.garbage == [f"a line of more than {MAX_FRAME} bytes"]
    assert len(heard.frames) == 1


def test_a_frame_cut_off_by_the_end_is_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a frame is not an error of the stream."""
    _, heard = _run(tmp_path, monkeypatch, _writes(FRAME + FRAME[:-5]))
    assert len(heard.frames) == 1
    assert heard.garbage == []


def test_a_child_asked_to_end_ends_by_sigterm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked once, however often that is wanted, and not overdue once it is gone."""

    def ask(child: Child, _heard: Heard) -> None:
        child.terminate()
        first = child.terminated_at
        child.terminate()
        assert child.terminated_at == first

    child, _ = _run(tmp_path, monkeypatch, "import time\ntime.sleep(60)\n", ask)
    assert child.ended == -signal.SIGTERM
    assert not child.overdue


def test_a_child_that_ignores_sigterm_is_overdue_and_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the grace time it is given up; no other signal is sent."""
    script = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"os.write(1, {FRAME!r})\n"
        "time.sleep(60)\n"
    )

    async def go() -> None:
        child, heard = _listen(tmp_path, monkeypatch, script)
        while not heard.frames:
            await asyncio.sleep(0.01)
        child.terminate()
        assert not child.overdue
        child.terminated_at = time.monotonic() - 5
        assert child.overdue
        child.stop_listening()
        child.stop_listening()
        assert child.ended is None
        os.kill(child.process.pid, signal.SIGKILL)
        await asyncio.to_thread(child.process.wait, 30)
        assert not child.overdue
        assert heard.ends == 0

    asyncio.run(go())
