# SPDX-License-Identifier: Apache-2.0
"""Faults of the reading process and of the kernel log, and threads."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sim_node import EPOCH, Build, Clock

from cardwatch.sim import SimDriver, load_scenario
from cardwatch.sim.stage import boot_time

RECORD = re.compile(r"(\d+),(\d+),(\d+),-;(.*)")
POWER = "DeviceGetPowerUsage"


def records(path: Path) -> list[str]:
    return [RECORD.fullmatch(line)[4] for line in path.read_text().splitlines()]  # type: ignore[index]


XIDS = """
faults:
  - {at: 20s, gpu: 4, fault: xid, code: 13}
  - {at: 10s, gpu: 0, fault: xid, code: 79, text: "GPU has fallen off the bus."}
  - {at: 30s, fault: log, text: "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal"}
"""


def test_an_xid_is_one_raw_kernel_record(node: Build, tmp_path: Path) -> None:
    """Priority of the kernel facility, a number, the time since boot, then the text."""
    path = tmp_path / "kmsg"
    sick = node(XIDS, kmsg_path=path, boot=EPOCH - 1000).at(9.99)
    sick.driver.tick()
    assert path.read_text() == ""
    sick.at(10)
    sick.driver.tick()
    match = RECORD.fullmatch(path.read_text().rstrip("\n"))
    assert match is not None
    priority, _, microseconds, text = match.groups()
    assert int(priority) >> 3 == 0
    assert int(microseconds) == 1_010_000_000
    assert text == (
        "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, "
        "GPU has fallen off the bus."
    )


def test_records_come_in_order_of_time(node: Build, tmp_path: Path) -> None:
    """All that is due is written by the next call, whatever order the scenario has."""
    path = tmp_path / "kmsg"
    sick = node(XIDS, kmsg_path=path).at(100)
    sick.system("DeviceGetCount")
    texts = records(path)
    assert [text.split(": ")[0] for text in texts] == ["NVRM", "NVRM", "nvidia-nvswitch3"]
    assert "): 79," in texts[0]
    assert "): 13," in texts[1]


def test_a_restarted_process_does_not_repeat_records(node: Build, tmp_path: Path) -> None:
    """Whoever comes later finds the record in the file and adds only what is new."""
    path = tmp_path / "kmsg"
    node(XIDS, kmsg_path=path).at(15).driver.tick()
    path.write_text(path.read_text() + "6,17,5,-;usb 1-1: new device\n")
    later = Clock()
    later.t = 25
    node(XIDS, clock=later, kmsg_path=path).driver.tick()
    assert len(records(path)) == 3
    node(XIDS, clock=later, kmsg_path=path).driver.tick()
    assert len(records(path)) == 3


def test_another_run_writes_its_own_records(write: Callable[[str], Path], tmp_path: Path) -> None:
    """The numbers of a later epoch are higher, so its records are new."""
    path = tmp_path / "kmsg"
    for epoch in (EPOCH, EPOCH + 60):
        clock = lambda epoch=epoch: epoch + 15.0  # noqa: E731
        SimDriver(load_scenario(write(XIDS)), epoch, clock=clock, kmsg_path=path).tick()
    numbers = [int(line.split(",")[1]) for line in path.read_text().splitlines()]
    assert len(numbers) == 2
    assert numbers == sorted(numbers)


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ("code: 154", "154, pid='<unknown>', name=<unknown>, GPU recovery action changed from 0x0"),
        ("code: 154, action: 2", "to 0x2 (Node Reboot Required)"),
        ("code: 999", "999, pid='<unknown>', name=<unknown>"),
    ],
)
def test_xid_texts(node: Build, tmp_path: Path, row: str, text: str) -> None:
    """A code without a text of its own gets what the driver would say, or nothing."""
    path = tmp_path / "kmsg"
    node(f"faults: [{{gpu: 1, fault: xid, {row}}}]", kmsg_path=path).driver.tick()
    assert text in records(path)[0]


def test_a_log_that_cannot_be_written_fails_at_the_start(node: Build, tmp_path: Path) -> None:
    """A wrong path is an error of whoever gave it, not of a driver call."""
    with pytest.raises(FileNotFoundError):
        node("", kmsg_path=tmp_path / "nowhere" / "kmsg")


def test_the_boot_time_is_in_the_past() -> None:
    """Records count from the boot of the machine that simulates."""
    assert boot_time() > 0


def test_a_crash_comes_once_and_not_to_the_next_process(node: Build) -> None:
    """Only a process that was there before `at` dies of it."""
    deaths: list[str] = []
    text = "faults: [{at: 50s, fault: crash}]"
    sick = node(text, crash=lambda: deaths.append("first"))
    sick.at(49).system("DeviceGetCount")
    assert deaths == []
    sick.at(50).system("DeviceGetCount")
    sick.at(51).system("DeviceGetCount")
    assert deaths == ["first"]
    node(text, clock=sick.clock, crash=lambda: deaths.append("second")).at(60).driver.tick()
    assert deaths == ["first"]


def test_a_crash_is_a_segmentation_fault() -> None:
    """The process really dies, as from a fault in the driver's library."""
    code = (
        "import cardwatch.sim.stage as stage\nstage.crash_now()\nraise SystemExit('still alive')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert done.returncode == -signal.SIGSEGV


def test_garbage_goes_out_while_it_lasts(node: Build) -> None:
    """Junk is written at most every 100 ms, ends with the fault, and is the same each time."""
    text = "faults: [{at: 10s, for: 10s, fault: garbage}]"

    def run() -> list[bytes]:
        out: list[bytes] = []
        sick = node(text, emit_raw=out.append)
        for t in (9.99, 10, 10.05, 10.2, 19.9, 20, 30):
            sick.at(t).system("DeviceGetCount")
        return out

    junk = run()
    assert len(junk) == 3
    assert all(len(each) > 40 for each in junk)
    assert junk == run()


def test_garbage_needs_a_stream(node: Build) -> None:
    """Without a stream to write on there is nothing to do."""
    assert node("faults: [{fault: garbage}]").at(1).system("DeviceGetCount") == 8


def test_a_stubborn_process_listens_again_after(node: Build) -> None:
    """The process is told to ignore SIGTERM at the start of the fault, and to listen after."""
    told: list[bool] = []
    sick = node("faults: [{at: 10s, for: 10s, fault: stubborn}]", deaf=told.append)
    for t in (5, 10, 15, 20, 25):
        sick.at(t).system("DeviceGetCount")
    assert told == [True, False]


def test_a_stubborn_process_survives_sigterm() -> None:
    """From any thread, SIGTERM is ignored and then as it was."""
    code = (
        "import os, signal, threading\n"
        "from cardwatch.sim.stage import ignore_sigterm\n"
        "heard = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: heard.append(1))\n"
        "def turn(on):\n"
        "    thread = threading.Thread(target=ignore_sigterm, args=(on,))\n"
        "    thread.start(); thread.join()\n"
        "turn(True); os.kill(os.getpid(), signal.SIGTERM); print(len(heard))\n"
        "turn(False); os.kill(os.getpid(), signal.SIGTERM); print(len(heard))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["0", "1"]


def test_a_hung_card_does_not_block_the_others(node: Build) -> None:
    """While one thread waits in a hung call, calls about other cards return."""
    waiting = threading.Event()

    def sleep(_seconds: float) -> None:
        waiting.set()
        moved.wait(timeout=0.01)

    moved = threading.Event()
    clock = Clock()
    text = "faults: [{at: 1s, for: 99s, gpu: 0, fault: hang}]"
    scenario_node = node(text, clock=clock)
    sick = scenario_node.driver
    sick._sleep = sleep
    hung, sound = sick.call("DeviceGetHandleByIndex", 0), sick.call("DeviceGetHandleByIndex", 1)
    answers: list[Any] = []
    clock.t = 50
    thread = threading.Thread(target=lambda: answers.append(sick.call(POWER, hung)), daemon=True)
    thread.start()
    assert waiting.wait(timeout=60)
    assert sick.call(POWER, sound) > 0
    assert answers == []
    clock.t = 100
    moved.set()
    thread.join(timeout=60)
    assert len(answers) == 1


def test_many_threads_read_as_one_would(node: Build) -> None:
    """Cards read at once by a thread each give what one thread gives after the other."""
    sound = node("").at(77)
    handles = [sound.handle(gpu) for gpu in range(8)]
    calls = (POWER, "DeviceGetTotalEnergyConsumption", "DeviceGetMemoryInfo_v2")
    alone = [[sound.driver.call(call, handle) for call in calls] for handle in handles]
    together: dict[int, list[Any]] = {}

    def read(gpu: int) -> None:
        for _ in range(50):
            together[gpu] = [sound.driver.call(call, handles[gpu]) for call in calls]

    threads = [threading.Thread(target=read, args=(gpu,)) for gpu in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[gpu] for gpu in range(8)] == alone
