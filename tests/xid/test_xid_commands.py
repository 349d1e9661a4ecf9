# SPDX-License-Identifier: Apache-2.0
"""`cardwatch xid` and `cardwatch sxid`."""

from __future__ import annotations

import json
from types import ModuleType

import pytest

from cardwatch.commands import Parser, sxid, xid


def run(module: ModuleType, *arguments: str) -> int:
    parser = Parser(prog="cardwatch")
    module.add_arguments(parser)
    return int(module.run(parser.parse_args(arguments)))


def test_xid_says_what_it_means_and_asks_for(capsys: pytest.CaptureFixture[str]) -> None:
    """Meaning, class, action, runbook and notes stand in the text."""
    assert run(xid, "79") == 0
    said = capsys.readouterr().out
    for part in ("Xid 79", "no longer answers over PCIe", "critical (tier: page)", "REBOOT_NODE",
                 "GPULost", "notes"):  # fmt: skip
        assert part in said


def test_xid_says_what_else_decides(capsys: pytest.CaptureFixture[str]) -> None:
    """Where the line decides with the number, the text says how; what it follows is named."""
    assert run(xid, "154") == 0
    said = capsys.readouterr().out
    assert "1, 2, 4, 6, 7 critical" in said
    assert "Xid 48" in said


def test_xid_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The same as an object for scripts."""
    assert run(xid, "94", "--format", "json") == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["xid"], row["class"], row["tier"]) == (94, "contained", "ticket")
    assert row["follows"] == [48]
    assert row["known"] is True


@pytest.mark.parametrize("code", ["180", "4711"])
def test_an_unknown_xid_says_so(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A number that no source describes is exit 1, in both forms."""
    assert run(xid, code) == 1
    assert f"Xid {code}: unknown" in capsys.readouterr().out
    assert run(xid, code, "--format", "json") == 1
    row = json.loads(capsys.readouterr().out)
    assert (row["known"], row["class"]) == (False, "unknown")


@pytest.mark.parametrize("module", [xid, sxid])
@pytest.mark.parametrize("code", ["abc", "7x", "", "1.5", "٧٩", "9" * 10])
def test_no_number_is_one_line_and_exit_2(
    module: ModuleType, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A typing error is told in one line."""
    with pytest.raises(SystemExit) as stopped:
        run(module, code)
    assert stopped.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_sxid_says_what_it_means(capsys: pytest.CaptureFixture[str]) -> None:
    """The word in the line is named as what decides."""
    assert run(sxid, "20034") == 0
    said = capsys.readouterr().out
    for part in ("SXid 20034", "active link went down", "GPUNVSwitchFatal", "Non-fatal hardware"):
        assert part in said


def test_sxid_that_is_always_critical_and_one_without_a_word(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Both exceptions from the rule of the word are said."""
    assert run(sxid, "19084") == 0
    assert "critical whatever the line says" in capsys.readouterr().out
    assert run(sxid, "10006") == 0
    assert "printed without Fatal" in capsys.readouterr().out


def test_an_unknown_sxid_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """A number outside the table is exit 1."""
    assert run(sxid, "31001") == 1
    assert "SXid 31001: unknown" in capsys.readouterr().out
