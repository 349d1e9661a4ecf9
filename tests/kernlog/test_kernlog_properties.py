# SPDX-License-Identifier: Apache-2.0
"""What holds for any text and any event."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from cardwatch.kernlog.event import OFF_BUS, Event
from cardwatch.kernlog.parse import Parser
from cardwatch.kernlog.words import normal_pci
from cardwatch.text import label
from cardwatch.xid.classify import classify

STARTS = st.sampled_from(
    ["", "NVRM: ", "NVRM: Xid (", "NVRM: Xid (PCI:0000:3b:00): ",
     "NVRM: Xid (PCI:0000:3b:00): 79, ", "NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=",
     "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery ",
     "NVRM: Xid (PCI:0000:3b:00): 149, NETIR Fatal XC0 i0 Link ", "NVRM: The NVIDIA GPU ",
     "NVRM: The NVIDIA GPU 0000:3b:00.0", "NVRM: GPU 0000:3b:00.0: ", "nvidia-nvswitch0: SXid (",
     "nvidia-nvswitch0: SXid (PCI:0000:3b:00.0): 20034, ", "nvidia 0000:3b:00.0: probe"]
)  # fmt: skip
# The kernel keeps 15 bytes of a name; the text of messages never starts like these.
NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn", "Zl", "Zp")), min_size=1
).map(lambda s: s.encode()[:15].decode("utf-8", "ignore"))
PLAIN_NAMES = NAMES.filter(
    lambda n: ", " not in n and n.strip() == n and n and "<unknown>" not in n and n[-1] != ","
)
MESSAGES = st.sampled_from(
    ["Ch 00000008", "channel 0x00000002, intr 0", "Timeout after 6s of waiting for RPC response",
     "GPU has fallen off the bus.", "Contained: SM (0x1). RST: No, D-RST: No"]
)  # fmt: skip
PCI = st.tuples(
    st.integers(0, 0xFFFF), st.integers(0, 0xFF), st.integers(0, 0x1F), st.booleans()
).map(lambda p: (f"{p[0]:04x}:{p[1]:02x}:{p[2]:02x}", p[3]))


@given(st.lists(st.tuples(STARTS, st.text(max_size=120)), max_size=6))
@example([("NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=", ", " * 60)])
def test_the_parser_never_raises(texts: list[tuple[str, str]]) -> None:
    """Any text is an event or none, and every event can be judged."""
    parser = Parser()
    found = [event for start, text in texts for event in parser.feed(start + text)]
    for event in found + parser.flush():
        classify(event)
        assert event.message.isprintable()
        assert event.pci is None or normal_pci(event.pci) == event.pci


@given(name=NAMES, code=st.integers(1, 185), message=MESSAGES, pid=st.integers(1, 2**22))
@example(name="x): 79, y", code=31, message="Ch 00000008", pid=1)
@example(name=": 79, GPU has", code=31, message="Ch 00000008", pid=1)
@example(name="'<unknown>', 79", code=31, message="Ch 00000008", pid=1)
def test_no_number_is_taken_out_of_a_process_name(
    name: str, code: int, message: str, pid: int
) -> None:
    """One record is one event with the driver's number, card and pid, whatever the name is."""
    found = Parser().feed(f"NVRM: Xid (PCI:0000:3b:00): {code}, pid={pid}, name={name}, {message}")
    assert [(e.code, e.pci, e.pid) for e in found] == [(code, "0000:3b:00", pid)]
    assert found[0].root_cause_xid is None
    assert found[0].recovery_to is None


@given(
    pci=PCI,
    code=st.integers(1, 99999),
    mig=st.one_of(
        st.none(), st.tuples(st.integers(0, 14), st.one_of(st.none(), st.integers(0, 7)))
    ),
    who=st.one_of(st.none(), st.tuples(st.integers(1, 2**22), st.one_of(st.none(), PLAIN_NAMES))),
    message=MESSAGES,
    old=st.booleans(),
)
def test_mig_and_process_of_a_line_come_out_as_they_went_in(
    pci: tuple[str, bool], code: int, mig: tuple[int, int | None] | None,
    who: tuple[int, str | None] | None, message: str, old: bool,
) -> None:  # fmt: skip
    """A line built from an event is parsed into that event."""
    address = pci[0].upper() if pci[1] else pci[0]
    inside = address if old else f"PCI:{address}"
    if mig is not None:
        inside += f" GPU-I:{mig[0]:02d}" + ("" if mig[1] is None else f" GPU-CI:{mig[1]:02d}")
    whom = "" if who is None else f"pid={who[0]}, "
    if who is not None and who[1] is not None:
        whom += f"name={who[1]}, "
    (event,) = Parser().feed(f"NVRM: Xid ({inside}): {code}, {whom}{message}")
    assert (event.pci, event.code, event.message) == (pci[0], code, message)
    assert (event.mig_gi, event.mig_ci) == (mig or (None, None))
    pid, name = who or (None, None)
    assert (event.pid, event.process) == (pid, label(name) or None if name else None)


@given(
    value=st.integers(0, 2**32 - 1), before=st.integers(0, 7), words=st.booleans(),
    text=st.text(st.characters(exclude_characters="()", exclude_categories=("Cc", "Cs")),
                 max_size=40),
)  # fmt: skip
def test_the_value_of_a_recovery_action_is_its_hex_number(
    value: int, before: int, words: bool, text: str
) -> None:
    """The words changed between drivers, so they are never asked."""
    old, new = (f" ({text})", f" ({text})") if words else ("", "")
    (event,) = Parser().feed(
        "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from "
        f"0x{before:x}{old} to 0x{value:x}{new}"
    )
    assert (event.recovery_from, event.recovery_to) == (before, value)


@given(
    unit=st.sampled_from(["SAW_MVB", "RLW_SRC_TRACK", "MSE Degraded", "TLW_RX/TLW_RX_PIPE0"]),
    word=st.sampled_from(["Fatal", "Nonfatal"]),
    containment=st.integers(0, 1),
    injected=st.integers(0, 1),
    link=st.integers(-1, 17),
    status=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=7),
    space=st.sampled_from([" ", "  ", "   "]),
)  # fmt: skip
def test_an_nvlink_5_line_comes_out_as_it_went_in(
    unit: str, word: str, containment: int, injected: int, link: int, status: list[int], space: str
) -> None:
    """Unit, word, flag, link and all words are read, however many spaces are between them."""
    shown = f"{link:02d}" if link >= 0 else "-1"
    words = " ".join(f"0x{value:08x}" for value in status)
    text = space.join([unit, word, f"XC{containment}", f"i{injected}", "Link", shown, f"({words})"])
    (event,) = Parser().feed(f"NVRM: Xid (PCI:0000:3b:00): 149, {text}")
    assert (event.unit, event.severity, event.link) == (unit, word.lower(), link)
    assert (event.injected, event.status) == (bool(injected), tuple(status))


@given(
    other=st.lists(
        st.sampled_from(["usb 1-1: reset", "NVRM: loading NVIDIA UNIX", "",
                         "nvidia-nvlink: Nvlink Core", "NVRM: GPU 0000:01:00.0: something else"]),
        max_size=8,
    ),
    data=st.data(),
)  # fmt: skip
def test_a_sentence_is_one_event_wherever_other_lines_stand(
    other: list[str], data: st.DataObject
) -> None:
    """Other records between, before and after the three lines change nothing."""
    texts = [
        "NVRM: The NVIDIA GPU 0000:b3:00.0",
        "NVRM: (PCI ID: 10de:26b5) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    ]
    for text in other:
        texts.insert(data.draw(st.integers(0, len(texts))), text)
    parser = Parser()
    found: list[Event] = [event for text in texts for event in parser.feed(text)]
    found += parser.flush()
    assert [(event.kind, event.pci) for event in found] == [(OFF_BUS, "0000:b3:00")]
