# SPDX-License-Identifier: Apache-2.0
"""Where the exporter writes and listens: state directory and port."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from doctor_harness import Machine, files_below, obey_modes

DAY = 86_400.0


def test_a_file_in_place_of_the_state_directory_is_a_problem(machine: Machine) -> None:
    """The path is named, and the flag that gives another."""
    path = machine.write("occupied", "")
    text = machine.run("--state-dir", str(path)).problem("state-not-a-directory")
    assert str(path) in text
    assert "--state-dir" in text


def test_a_file_above_the_state_directory_is_a_problem(machine: Machine) -> None:
    """A directory that could never be made is a problem now, not at the first start."""
    path = machine.write("occupied", "")
    result = machine.run("--state-dir", str(path / "state"))
    assert f"{path} is not a directory" in result.problem("state-not-a-directory")


def test_a_directory_that_may_not_be_written_is_a_problem(machine: Machine) -> None:
    """The user and the way to own it are named."""
    machine.state.chmod(0o555)
    text = machine.run(before=obey_modes).problem("state-unwritable")
    assert str(machine.state) in text
    assert "chown" in text


def test_a_directory_that_may_not_be_made_is_a_problem(machine: Machine) -> None:
    """The directory above it is named."""
    machine.state.chmod(0o555)
    result = machine.run("--state-dir", str(machine.state / "deep/er"), before=obey_modes)
    assert f"{machine.state} is not writable" in result.problem("state-unwritable")


def test_a_lock_file_of_another_user_is_a_problem(machine: Machine) -> None:
    """A file that root left behind keeps the exporter's user from writing."""
    lock = machine.write("state/cards.lock", "")
    lock.chmod(0o000)
    assert "cards.lock" in machine.run(before=obey_modes).problem("state-unwritable")


def test_a_directory_that_does_not_exist_yet_is_well_and_is_not_made(machine: Machine) -> None:
    """Doctor makes nothing: the exporter does at its first start."""
    path = machine.state / "new"
    assert "will be made" in machine.run("--state-dir", str(path)).ok("state")
    assert not path.exists()


def test_a_broken_roster_is_a_note_and_stays_as_it_is(machine: Machine) -> None:
    """The exporter sets a broken file aside; doctor only says so."""
    machine.write("state/cards.json", "{broken")
    result = machine.run()
    assert "not a roster" in result.note("state-broken")
    assert files_below(machine.state) == {"cards.json": b"{broken"}


def test_a_known_card_that_is_not_listed_is_lost_and_nothing_is_written(machine: Machine) -> None:
    """The roster is read, so that a lost card shows, and not one byte of the state changes."""
    entry = {"first_seen": 1e9, "last_seen": 1e9 + DAY, "index": 1, "pci": "0000:43:00",
             "info": {"model": "H100 80GB HBM3"}}  # fmt: skip
    content = {"version": 1, "node_first_seen": 1e9, "cards": {"GPU-once-here": entry}}
    machine.write("state/sim/cards.json", json.dumps(content))
    before = files_below(machine.state)
    result = machine.run(*machine.scenario("cards: 1"))
    text = result.problem("card-lost")
    assert "GPU-once-here" in text
    assert "cardwatch baseline forget GPU-once-here" in text
    assert files_below(machine.state) == before


def test_without_a_place_for_a_copy_of_the_state_the_cards_are_read_all_the_same(
    machine: Machine,
) -> None:
    """On a read-only system doctor goes without the roster."""
    nowhere = {"TMPDIR": str(machine.folder / "nowhere")}
    machine.folder.chmod(0o555)
    try:
        result = machine.run("--backend", "sim", environment=nowhere, before=obey_modes)
    finally:
        machine.folder.chmod(0o755)
    assert "Cards 0-7" in result.ok("card")


# -- port -------------------------------------------------------------------------------------


def test_a_taken_port_names_its_holder(machine: Machine) -> None:
    """Port, process and pid are named."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        result = machine.run(f"--listen=127.0.0.1:{port}", "--path.procfs", "/proc")
    text = result.problem("port-taken")
    comm = Path("/proc/self/comm").read_text().strip()
    assert f"Port {port} is taken by {comm} (pid {os.getpid()})" in text
    assert f"--listen :{port + 1}" in text


def test_a_taken_port_without_procfs_says_how_to_find_the_holder(machine: Machine) -> None:
    """Where the holder cannot be seen, the command that shows it is given."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        text = machine.run(f"--listen=127.0.0.1:{port}").problem("port-taken")
    assert f"ss -ltnp 'sport = :{port}'" in text


def test_a_port_that_the_exporter_itself_holds_is_well(machine: Machine) -> None:
    """Beside a running exporter doctor must not call its port a problem."""
    code = ("import socket, sys; s = socket.create_server(('127.0.0.1', 0)); "
            "print(s.getsockname()[1], flush=True); sys.stdin.read()")  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-c", code, "cardwatch", "serve"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        port = running.stdout.readline().strip()
        result = machine.run(f"--listen=127.0.0.1:{port}", "--path.procfs", "/proc")
        running.communicate()
    assert f"cardwatch itself, pid {running.pid}" in result.ok("listen")


@pytest.mark.parametrize("given", ["nonsense", ":70000", "[::zz]:1", "unix:"])
def test_a_listen_address_that_is_none_is_a_problem(machine: Machine, given: str) -> None:
    """The grammar is that of serve, and so are the words."""
    text = machine.run(f"--listen={given}").problem("listen-refused")
    assert given in text
    assert "unix:PATH" in text


def test_an_address_of_another_machine_is_a_problem(machine: Machine) -> None:
    """An address that this machine does not have cannot be listened on."""
    assert "192.0.2.1" in machine.run("--listen=192.0.2.1:9836").problem("listen-refused")


def test_a_free_port_is_well(machine: Machine) -> None:
    """The port is bound and let go."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert "free" in machine.run(f"--listen=127.0.0.1:{port}").ok("listen")


def test_socket_files_are_only_looked_at(machine: Machine, tmp_path: Path) -> None:
    """A live socket is a problem, a stale one stays where it is, a missing one can be made."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        assert str(path) in machine.run(f"--listen=unix:{path}").problem("port-taken")
    assert "left-over" in machine.run(f"--listen=unix:{path}").ok("listen")
    assert path.exists()
    path.unlink()
    assert "can be made" in machine.run(f"--listen=unix:{path}").ok("listen")
    path.write_text("")
    assert "not a socket" in machine.run(f"--listen=unix:{path}").problem("listen-refused")
    beyond = machine.run(f"--listen=unix:{tmp_path}/no/where")
    assert "install -d" in beyond.problem("listen-refused")
