# SPDX-License-Identifier: Apache-2.0
"""Logs of any shape: what stands before a message is found and taken off."""

from __future__ import annotations

import json
from calendar import timegm
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernlog_samples import NOW, PREFIXES, THEN, decoded, events

from cardwatch.kernlog.dates import Calendar
from cardwatch.kernlog.event import INIT_FAILED, OFF_BUS
from cardwatch.kernlog.shapes import MAX_LINE, Shapes

XID = "NVRM: Xid (PCI:0000:3b:00): 43, pid=77, name=python3, Ch 00000008"
SXID = "nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
PROBE = "nvidia 0000:b3:00.0: probe with driver nvidia failed with error -1"
SENTENCE = (
    "NVRM: The NVIDIA GPU 0000:b3:00.0",
    "NVRM: (PCI ID: 10de:26b5) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
)
NO_TIME = {"bare", "journal without date and host", "journal verbose"}
UPTIME = {
    "raw kmsg", "raw kmsg with caller", "dmesg", "dmesg with caller", "dmesg delta", "dmesg -r",
    "dmesg -H", "dmesg -e", "dmesg --decode", "journal short-monotonic", "pdsh",
    "kubectl --prefix", "compose", "grep -n",
}  # fmt: skip

by_shape = pytest.mark.parametrize("shape", PREFIXES)


@by_shape
@pytest.mark.parametrize("text", [XID, SXID, PROBE], ids=["xid", "sxid", "probe"])
def test_a_message_is_found_behind_every_prefix(shape: str, text: str) -> None:
    """Every tool's way to print a record gives the message that the driver wrote."""
    shapes = Shapes(Calendar(NOW))
    (found,) = shapes.feed(PREFIXES[shape](text, 1).encode()) + shapes.flush()
    assert found.text == text


@by_shape
def test_the_time_of_a_prefix_is_understood(shape: str) -> None:
    """A date becomes the wall clock, seconds since boot stay what they are."""
    (event,) = events(PREFIXES[shape](XID, 1))
    if shape in NO_TIME | UPTIME:
        assert event.time is None
    else:
        assert event.time is not None
        assert int(event.time) == THEN
    if shape in UPTIME - {"dmesg -H", "dmesg -e"}:
        assert event.uptime is not None


@by_shape
def test_a_sentence_of_three_lines_is_one_event_in_every_shape(shape: str) -> None:
    """Each line with its prefix, or further lines indented below the first."""
    whole = "\n               ".join(SENTENCE)
    each = events(*(PREFIXES[shape](text, n) for n, text in enumerate(SENTENCE)))
    below = events(*PREFIXES[shape](whole, 1).split("\n"))
    for found in (each, below):
        assert [(event.kind, event.pci) for event in found] == [(OFF_BUS, "0000:b3:00")]


@by_shape
@pytest.mark.parametrize("end", ["\n", "\r\n", " \n", ""], ids=["unix", "windows", "space", "none"])
def test_line_ends_do_not_matter(shape: str, end: str) -> None:
    """Windows line ends and trailing space are not part of a message."""
    (event,) = events((PREFIXES[shape](XID, 1) + end).encode())
    assert event.message == "Ch 00000008"


@by_shape
def test_colours_nuls_and_utf16_do_not_matter(shape: str) -> None:
    """What terminals and Windows put into a file is taken out."""
    line = PREFIXES[shape](XID, 1)
    red = line.replace("NVRM", "\x1b[1;31mNVRM\x1b[0m").encode()
    wide = b"\xff\xfe" + line.encode("utf-16-le")
    for raw in (red, b"\x1b[32m" + line.encode(), line.encode() + b"\0\0", wide):
        assert [event.message for event in events(raw)] == ["Ch 00000008"]


def test_a_file_in_utf_16_is_read() -> None:
    """What PowerShell writes for `kubectl logs > file`."""
    text = f"[  1.000000] {XID}\r\n[  2.000000] {SXID}\r\n"
    raw = b"\xff\xfe" + text.encode("utf-16-le")
    assert [event.code for event in events(*raw.splitlines(keepends=True))] == [43, 20034]


def test_invalid_utf_8_does_not_hide_an_event() -> None:
    """Bytes that are no text are replaced."""
    (event,) = events(XID.replace("python3", "p\udcff\udcfey").encode("utf-8", "surrogateescape"))
    assert (event.code, event.pid) == (43, 77)
    assert event.process == "p\ufffd\ufffdy"


def test_escapes_of_the_kernel_are_undone_only_in_raw_records() -> None:
    r"""``\x0a`` and UTF-8 bytes in a raw record are what they stand for."""
    sentence = r"\x0a".join(SENTENCE)
    assert [event.kind for event in events(f"4,1,1,-;{sentence}")] == [OFF_BUS]
    (raw,) = events("4,1,1,-;" + XID.replace("python3", r"p\xc3\xbcy"))
    (text,) = events("[    1.000000] " + XID.replace("python3", r"p\x41"))
    assert raw.process == "püy"
    assert text.process == r"p\x41"


def test_properties_behind_a_raw_record_are_no_lines_of_their_own() -> None:
    """` SUBSYSTEM=` and ` DEVICE=` belong to the record before them."""
    found = events(
        f"4,1,1000000,-;{XID}", " SUBSYSTEM=pci", " DEVICE=+pci:0000:3b:00.0",
        " NOTE=NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        f"4,2,2000000,-;{SXID}",
    )  # fmt: skip
    assert [event.code for event in found] == [43, 20034]


def test_more_fields_in_front_of_a_raw_record_are_let_pass() -> None:
    """Newer kernels may add fields before the semicolon."""
    assert [event.code for event in events(f"4,1,1000000,-,caller=C1,new=x;{XID}")] == [43]


@pytest.mark.parametrize(
    "prefix",
    ["12,1,1000000,-;", "<12>[    1.000000] ", "user  :notice: [    1.000000] ",
     "daemon:warn  : 2026-02-14T05:03:41,000001+00:00 ", "30,5,77,-,caller=T1;",
     "Feb 14 05:03:41 node-a user.notice kernel: "],
)  # fmt: skip
def test_what_user_space_wrote_into_the_kernel_log_is_no_event(prefix: str) -> None:
    """Only facility 0 is the kernel's; a drill may ask for the others too."""
    assert events(prefix + XID) == []
    shapes = Shapes(Calendar(NOW), any_facility=True)
    assert [line.text for line in shapes.feed((prefix + XID).encode()) + shapes.flush()] == [XID]


@pytest.mark.parametrize(
    "line",
    [
        f"Feb 14 05:03:41 node-a sshd[12]: Invalid user {XID}",
        f"Feb 14 05:03:41 node-a sshd[12]: {XID}",
        f"Feb 14 05:03:41 node-a logger: {XID}",
        f"Feb 14 05:03:41 node-a myapp: kernel: {XID}",
        f"2026-02-14T05:03:41+00:00 node-a containerd[9]: {XID}",
        f"<4>1 2026-02-14T05:03:41Z node-a app 12 - - {XID}",
        f"sshd[12]: {XID}",
        f'10.0.0.1 - - [14/Feb/2026:05:03:41 +0000] "GET / HTTP/1.1" 200 "{XID}"',
        f'time="2026-02-14T05:03:41Z" level=info msg="{XID}"',
        f"see the runbook for {XID}",
        f"# {XID}",
        f"I saw {XID} yesterday",
        json.dumps({"_TRANSPORT": "syslog", "MESSAGE": XID}),
        json.dumps({"SYSLOG_IDENTIFIER": "app", "MESSAGE": XID}),
        json.dumps([XID]),
        json.dumps({"MESSAGE": 79, "other": XID}),
        '{"log": "NVRM: Xid (PCI:0000:3b:00): 79',
        "[" * 500 + "NVRM: ",
    ],
)
def test_a_line_of_another_program_is_no_event(line: str) -> None:
    """Who can write into a log cannot make an event of it by quoting one."""
    assert events(line) == []


@pytest.mark.parametrize(
    ("row", "time"),
    [
        ({"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel", "MESSAGE": XID,
          "__REALTIME_TIMESTAMP": str(int(THEN * 1e6))}, THEN),
        ({"log": f"[    1.000000] {XID}\n", "stream": "stdout", "time": "2026-02-14T05:03:41.5Z"},
         THEN + 0.5),
        ({"message": f"Feb 14 05:03:41 n kernel: {XID}", "time": "2026-02-14T09:00:00Z"}, THEN),
        ({"log": json.dumps({"MESSAGE": XID, "_TRANSPORT": "kernel"})}, None),
        ({"msg": XID, "ts": THEN}, THEN),
        ({"MESSAGE": XID, "__REALTIME_TIMESTAMP": "soon", "time": "yesterday"}, None),
    ],
)  # fmt: skip
def test_lines_of_json_are_read(row: dict[str, object], time: float | None) -> None:
    """Docker's and the journal's JSON hold the message and its time."""
    (event,) = events(json.dumps(row))
    assert (event.code, event.time) == (43, time)


def test_a_line_of_any_length_is_bounded() -> None:
    """The beginning of a line that never ends is read, the rest is not kept."""
    long = (XID + "x" * 100_000).encode()
    (told,) = decoded(long[:MAX_LINE], long[MAX_LINE:])
    assert told.event.code == 43
    assert len(told.event.message) <= 1024


def test_an_indented_line_ends_where_another_record_begins() -> None:
    """Indented records with prefixes of their own are records, not the rest of the one before."""
    found = events(f"    [    1.000000] {XID}", f"    [    2.000000] {SXID}", f"  {XID}")
    assert [event.code for event in found] == [43, 20034, 43]


def test_a_name_with_a_line_end_stays_inside_its_record() -> None:
    """dmesg indents what follows a line end in a record, so a name cannot become a line."""
    (event,) = events(
        "[    1.000000] " + XID.replace("python3", "a"),
        "               NVRM: Xid (PCI:0000:1a:00): 79, GPU has fallen off the bus.",
    )
    assert (event.code, event.pci) == (43, "0000:3b:00")


def test_the_same_record_in_two_files_of_a_bundle_is_one_event() -> None:
    """dmesg and syslog tell it with the same microsecond; a raw record with the same number."""
    burst = [f"[    1.00000{n}] {XID}" for n in range(3)]
    again = [f"Feb 14 05:03:41 node-a kernel: {line}" for line in burst]
    assert sum(told.count for told in decoded(*burst, f"[    2.000000] {SXID}", *again)) == 4
    raw = [f"4,{n},{n},-;{XID}" for n in range(3)]
    assert sum(told.count for told in decoded(*raw, *raw)) == 3


def test_equal_lines_in_a_row_are_counted() -> None:
    """Without a time to tell them apart, or printed twice, two lines are two events."""
    for lines in ([XID] * 3, [f"[    1.000000] {XID}"] * 3,
                  [f"Feb 14 05:03:41 node-a kernel: {XID}"] * 3):  # fmt: skip
        assert [told.count for told in decoded(*lines)] == [3]


def test_equal_events_with_another_between_them_stay_apart() -> None:
    """Only what repeats directly is one; cards, processes and texts are told apart."""
    other = XID.replace("pid=77", "pid=78")
    lines = [XID, XID, other, XID, XID.replace("3b", "3c"), XID.replace("00000008", "00000009")]
    found = decoded(*lines)
    assert [told.count for told in found] == [2, 1, 1, 1, 1]


def test_first_and_last_time_of_a_count() -> None:
    """A merged event has the time of its first line and knows the last."""
    (told,) = decoded(f"Feb 14 05:03:41 n kernel: {XID}", f"Feb 14 05:04:41 n kernel: {XID}")
    assert (told.event.time, told.last_time) == (THEN, THEN + 60)


MESSAGES = [
    XID,
    SXID,
    "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 01 (0x021425c6 0x0)",
    "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 to 0x2 (OS Reboot)",
    "NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:01): 94, Contained: SM (0x1). RST: No, D-RST: No",
    "NVRM: GPU 0000:0a:00.0: RmInitAdapter failed! (0x24:0x72:1568)",
    "NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:9b:00 (printing 1 of every 30).",
    "usb 1-1: new high-speed USB device number 3 using xhci_hcd",
]


@given(
    chosen=st.lists(
        st.tuples(st.sampled_from(MESSAGES), st.sampled_from(sorted(PREFIXES))), max_size=12
    )
)
def test_a_mixture_of_shapes_gives_the_same_events(chosen: list[tuple[str, str]]) -> None:
    """However a bundle mixes the ways to print them, the same messages are the same events."""
    mixed = events(*(PREFIXES[shape](text, n) for n, (text, shape) in enumerate(chosen)))
    bare = events(*(text for text, _shape in chosen))
    assert [(e.kind, e.pci, e.code, e.message) for e in mixed] == [
        (e.kind, e.pci, e.code, e.message) for e in bare
    ]


@given(st.binary(max_size=300))
def test_any_bytes_before_and_after_are_survived(junk: bytes) -> None:
    """Whatever else stands in a file, the event behind it is found."""
    found = events(junk + b"\n", XID.encode(), b"\n" + junk)
    assert 43 in [event.code for event in found]


@given(st.lists(st.binary(max_size=80).map(lambda b: b"NVRM: " + b), max_size=8))
def test_any_lines_of_the_driver_are_survived(lines: list[bytes]) -> None:
    """No line can make the decoder fail."""
    decoded(*(b"[    1.000000] " + line for line in lines), *lines)


def test_order_of_prefix_pieces_is_free() -> None:
    """Tools are stacked on each other in any order."""
    pieces = ("[pod/a/b] ", "2026-02-14T05:03:41.000000001Z ", "node-a: ", "[    1.000000] ")
    for order in permutations(pieces):
        if order.index("node-a: ") == 0 or order[:2] == ("[pod/a/b] ", "node-a: "):
            assert [event.code for event in events("".join(order) + XID)] == [43], order


@pytest.mark.parametrize(
    ("text", "now", "expected"),
    [
        ("Dec  2 11:49:53", (2026, 11, 29, 12, 0, 0), (2025, 12, 2, 11, 49, 53)),
        ("Nov 29 11:59:59", (2026, 11, 29, 12, 0, 0), (2026, 11, 29, 11, 59, 59)),
        ("Nov 29 12:00:00", (2026, 11, 29, 12, 0, 0), (2026, 11, 29, 12, 0, 0)),
        ("Nov 29 12:00:01", (2026, 11, 29, 12, 0, 0), (2025, 11, 29, 12, 0, 1)),
        ("Jan  1 00:00:00", (2026, 1, 1, 0, 0, 0), (2026, 1, 1, 0, 0, 0)),
        ("Dec 31 23:59:59", (2026, 1, 1, 0, 0, 0), (2025, 12, 31, 23, 59, 59)),
        ("Feb 29 01:02:03", (2026, 11, 29, 12, 0, 0), (2024, 2, 29, 1, 2, 3)),
        ("Feb 29 01:02:03", (2103, 1, 1, 0, 0, 0), (2096, 2, 29, 1, 2, 3)),
    ],
)
def test_a_date_without_a_year_is_the_newest_that_is_not_in_the_future(
    text: str, now: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    """Syslog leaves the year out."""
    calendar = Calendar(float(timegm(now)))
    (told,) = decoded(f"{text} node-a kernel: {XID}", calendar=calendar)
    assert told.event.time == timegm(expected)


@pytest.mark.parametrize(
    "text",
    ["Feb 30 01:02:03", "Feb 14 25:02:03", "Feb 14 05:61:03", "Mär 14 05:03:41",
     "Foo 14 05:03:41", "Feb  0 05:03:41"],
)  # fmt: skip
def test_a_date_that_cannot_be_hides_no_event(text: str) -> None:
    """The message counts also where its date is not understood."""
    (event,) = events(f"{text} node-a kernel: {XID}")
    assert (event.code, event.time) == (43, None)


def test_zones_are_heeded_and_the_given_one_is_for_dates_without() -> None:
    """A zone in the line wins; without one the reader's holds, UTC by default."""
    east = Calendar(NOW, 2 * 3600.0)
    for line, wanted in (
        (f"2026-02-14T05:03:41+0000 n kernel: {XID}", THEN),
        (f"2026-02-14T07:03:41+02:00 n kernel: {XID}", THEN),
        (f"2026-02-14T05:03:41Z {XID}", THEN),
        (f"2026-02-14T07:03:41 n kernel: {XID}", THEN),
        (f"[Sat Feb 14 07:03:41 2026] {XID}", THEN),
        (f"Feb 14 07:03:41 n kernel: {XID}", THEN),
    ):
        (told,) = decoded(line, calendar=east)
        assert told.event.time == wanted, line


def test_a_failed_probe_is_found_in_a_journal() -> None:
    """Lines of the driver core carry neither the driver's mark nor an Xid."""
    (event,) = events(f"Feb 14 05:03:41 node-a kernel: {PROBE}")
    assert (event.kind, event.pci) == (INIT_FAILED, "0000:b3:00")
