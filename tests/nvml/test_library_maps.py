# SPDX-License-Identifier: Apache-2.0
"""Which library file a process has mapped, from lines as /proc/self/maps has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cardwatch.nvml.library import mapped, replaced, version_of

OTHERS = """\
55d0c0a00000-55d0c0a2c000 r--p 00000000 fe:01 1180 /usr/bin/python3.11
7f1bc4000000-7f1bc4021000 rw-p 00000000 00:00 0
7ffd2b5f0000-7ffd2b611000 rw-p 00000000 00:00 0                          [stack]
"""
AT = "7f1bce200000-7f1bce5a1000 r-xp 00000000 fe:01 "


def maps(tmp_path: Path, line: str) -> Path:
    """Write a file of mappings with one line more."""
    path = tmp_path / "maps"
    path.write_text(OTHERS + line + "\n" + OTHERS)
    return path


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (AT + "4711 /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05",
         ("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05", 4711, False)),
        (AT + "4711                       /lib/libnvidia-ml.so.1 (deleted)",
         ("/lib/libnvidia-ml.so.1", 4711, True)),
        (AT + "4711 /opt/a dir/libnvidia-ml.so.1", ("/opt/a dir/libnvidia-ml.so.1", 4711, False)),
        (AT + "4711 /usr/lib/libnvidia-ptxjitcompiler.so.1", None),
        ("", None),
    ],
)  # fmt: skip
def test_the_library_is_found_among_other_mappings(
    tmp_path: Path, line: str, expected: tuple[str, int, bool] | None
) -> None:
    """Path, inode and whether it was deleted come from the library's line alone."""
    assert mapped(maps(tmp_path, line)) == expected


def test_without_mappings_nothing_is_known(tmp_path: Path) -> None:
    """No file, or no library in it, is not a replaced library."""
    assert mapped(tmp_path / "absent") is None
    assert replaced(tmp_path / "absent") is False
    assert replaced(maps(tmp_path, "")) is False


def test_a_library_is_replaced_when_its_inode_is_another(tmp_path: Path) -> None:
    """The file at the mapped path tells by its inode whether it is still the mapped one."""
    library = tmp_path / "libnvidia-ml.so.1"
    library.write_bytes(b"")
    inode = library.stat().st_ino
    assert replaced(maps(tmp_path, f"{AT}{inode} {library}")) is False
    assert replaced(maps(tmp_path, f"{AT}{inode + 1} {library}")) is True
    assert replaced(maps(tmp_path, f"{AT}{inode} {library} (deleted)")) is True
    library.unlink()
    assert replaced(maps(tmp_path, f"{AT}{inode} {library}")) is True


def test_the_version_stands_in_the_name_behind_the_link(tmp_path: Path) -> None:
    """The link that is loaded leads to a file named by its version; other names have none."""
    real = tmp_path / "libnvidia-ml.so.580.95.05"
    real.write_bytes(b"")
    link = tmp_path / "libnvidia-ml.so.1"
    link.symlink_to(real)
    assert version_of(str(link)) == "580.95.05"
    assert version_of(str(tmp_path / "libnvidia-ml.so")) is None
