# SPDX-License-Identifier: Apache-2.0
"""Following a regular file of raw records."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from kmsg_harness import BOOT, Delivered, line, reading, xid

from cardwatch.kmsg.follow import FileSource
from cardwatch.kmsg.numbering import Line
from cardwatch.kmsg.position import Position


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of records; empty at first."""
    path = tmp_path / "kmsg"
    path.touch()
    return path


def _append(file: Path, text: str) -> None:
    with file.open("a") as out:
        out.write(text)


def _last(delivered: Delivered) -> Position:
    return delivered.batches[-1].position


def test_a_file_is_read_from_its_start_and_followed(file: Path, delivered: Delivered) -> None:
    """What is in it counts, and so does what is added, a line in two parts once."""
    file.write_text(line(1, xid(31)) + " SUBSYSTEM=pci\nnonsense\n" + line(2, xid(43)))
    with reading(file, delivered) as reader:
        delivered.until_code(43)
        whole = line(3, xid(79, "GPU has fallen off the bus."))
        _append(file, whole[:40])
        _append(file, whole[40:])
        delivered.until_code(79)
        assert reader.status().counts.lost == 0
    assert delivered.codes == [31, 43, 79]
    assert delivered.records[2].text.endswith("off the bus.")


def test_only_the_kernels_records_count_in_a_file_too(file: Path, delivered: Delivered) -> None:
    """A capture of a log holds what programs wrote into that log."""
    file.write_text(line(1, xid(79), priority=12) + line(2, xid(31)))
    with reading(file, delivered) as reader:
        delivered.until_code(31)
        assert reader.status().counts.foreign == 1
    assert delivered.codes == [31]


def test_gaps_between_numbers_are_no_loss(file: Path, delivered: Delivered) -> None:
    """A file may hold only some lines of a log, and those of several boots."""
    file.write_text(line(1, xid(31)) + line(900, xid(43)) + line(5, xid(13)))
    with reading(file, delivered) as reader:
        delivered.until_code(13)
        assert reader.status().counts.lost == 0
    assert delivered.codes == [31, 43, 13]


def test_a_line_too_long_is_passed_over(file: Path, delivered: Delivered) -> None:
    """No record is so long; the lines around it are read."""
    file.write_text(line(1, xid(31)) + line(2, xid(79, "x" * 100_000)) + line(3, xid(43)))
    with reading(file, delivered) as reader:
        delivered.until_code(43)
        assert reader.status().counts.too_long == 1
    assert delivered.codes == [31, 43]


@pytest.mark.parametrize("boot", [BOOT, "another boot"])
def test_a_restart_goes_on_where_the_file_was_left(
    file: Path, delivered: Delivered, boot: str
) -> None:
    """A file outlives boots: its lines count once however often we or the machine start."""
    file.write_text(line(1, xid(31)) + line(2, xid(43)))
    with reading(file, delivered):
        delivered.until_code(43)
    _append(file, line(3, xid(79)))
    with reading(file, delivered, position=_last(delivered), boot_id=boot) as reader:
        delivered.until_code(79)
        assert reader.status().counts.read == 1
    assert delivered.codes == [31, 43, 79]


def test_a_file_written_anew_with_the_same_lines_repeats_nothing(
    file: Path, delivered: Delivered
) -> None:
    """A log saved again from its start after a restart holds what was counted (case A33)."""
    file.write_text(line(842, xid(31)))
    with reading(file, delivered):
        delivered.until_code(31)
    file.unlink()
    file.write_text(line(841, "noise") + line(842, xid(31)) + line(843, xid(43)))
    with reading(file, delivered, position=_last(delivered)):
        delivered.until_code(43)
    assert delivered.codes == [31, 43]


def test_a_log_appended_again_repeats_nothing(file: Path, delivered: Delivered) -> None:
    """Whoever saves the log may have been restarted and begun with the oldest record again."""
    first = "".join(line(n, xid(31, f"Ch {n:08x}")) for n in range(100))
    file.write_text(first)
    with reading(file, delivered):
        delivered.until(lambda: len(delivered.codes) == 100)
    _append(file, first + line(100, xid(43)))
    with reading(file, delivered, position=_last(delivered)) as reader:
        delivered.until_code(43)
        assert reader.status().counts.repeated == 100
    assert len(delivered.codes) == 101


def test_another_log_in_the_place_of_the_first_counts(file: Path, delivered: Delivered) -> None:
    """Lower numbers than before are no repetition if the lines are others."""
    file.write_text(line(5000, xid(31)))
    with reading(file, delivered):
        delivered.until_code(31)
    file.unlink()
    file.write_text(line(10, xid(43)))
    with reading(file, delivered, position=_last(delivered)):
        delivered.until_code(43)
    assert delivered.codes == [31, 43]


def test_rotation_is_followed(file: Path, delivered: Delivered) -> None:
    """The rest of the old file and all of the new one count."""
    file.write_text(line(1, xid(31)))
    with reading(file, delivered):
        delivered.until_code(31)
        file.rename(file.with_suffix(".1"))
        _append(file.with_suffix(".1"), line(2, xid(43)).rstrip("\n"))
        file.write_text(line(3, xid(79)))
        delivered.until_code(79)
    assert delivered.codes == [31, 43, 79]


def test_a_file_cut_to_nothing_is_read_from_its_start(file: Path, delivered: Delivered) -> None:
    """Copy-and-truncate rotation loses nothing that is written after it."""
    file.write_text(line(1, xid(31)) + line(2, "noise that makes it longer than what comes"))
    with reading(file, delivered):
        delivered.until_code(31)
        os.truncate(file, 0)
        _append(file, line(3, xid(43)))
        delivered.until_code(43)
    assert delivered.codes == [31, 43]


def test_a_file_written_anew_at_greater_length_is_noticed(file: Path, delivered: Delivered) -> None:
    """It is longer than before, but the text before our place is not what it was."""
    file.write_text(line(1, xid(31)))
    source = FileSource(file)
    assert len(source.read().records) == 1
    assert source.read().caught_up
    file.write_text(line(2, xid(43, "a text that is longer")) + line(3, xid(79)))
    assert [record[:4] for record in source.read().records] == [b"4,2,", b"4,3,"]
    source.close()


def test_a_file_that_goes_away_is_an_error_until_it_is_back(
    file: Path, delivered: Delivered
) -> None:
    """The status says not_found, and the new file is read when it comes."""
    file.write_text(line(1, xid(31)))
    with reading(file, delivered):
        delivered.until_code(31)
        file.unlink()
        delivered.until(lambda: any(s.error == "not_found" for s in delivered.statuses))
        file.write_text(line(2, xid(43)))
        delivered.until_code(43)
    assert delivered.codes == [31, 43]


def test_what_is_no_log_at_all_is_refused(tmp_path: Path, delivered: Delivered) -> None:
    """A directory can be opened, but not read as a log."""
    with reading(tmp_path, delivered):
        delivered.until(lambda: delivered.statuses)
    assert delivered.statuses[0].error == "unsupported_file"


def test_a_position_with_a_broken_detail_is_no_position_in_a_file(
    file: Path, delivered: Delivered
) -> None:
    """The journal may come from another version: then the file is read from its start."""
    file.write_text(line(1, xid(31)))
    with reading(file, delivered, position=Position(str(file), BOOT, 7, '{"mark": "x"}')):
        delivered.until_code(31)


def test_the_last_line_is_found_in_a_large_file(file: Path) -> None:
    """The search for the place of the earlier run goes through the file in parts."""
    text = "".join(line(n, xid(31, "x" * (n % 300))) for n in range(3000))
    file.write_text(text)
    wanted = line(1999, xid(31, "x" * (1999 % 300))).rstrip("\n").encode()
    source = FileSource(file, last=Line.of(1999, 1999000, wanted))
    assert source.continued
    assert source.read().records[0].startswith(b"4,2000,")
    source.close()


def test_stopping_does_not_wait_for_the_next_look(file: Path, delivered: Delivered) -> None:
    """A reader that waits for a file to grow ends as soon as it is asked."""
    file.write_text(line(1, xid(31)))
    with reading(file, delivered):
        delivered.until_code(31)
    assert not any(thread.name == "kmsg" for thread in threading.enumerate())
