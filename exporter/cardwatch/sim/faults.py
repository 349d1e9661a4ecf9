# SPDX-License-Identifier: Apache-2.0
"""The faults that a scenario can ask for: their keys, and what they imply.

Owns the table of fault kinds and the record of one fault. What a fault does to
the answers is in ``plan`` and ``driver``; what it does to the process and the
kernel log is in ``stage``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from cardwatch.sim import checks
from cardwatch.sim.checks import Check
from cardwatch.sim.models import REASON_BITS, Model

FOREVER = math.inf

NONE, OPTIONAL, REQUIRED = range(3)
"""Whether a fault is of the node, of any card(s), or of one named card."""

ECC_LOCATIONS = ("l1", "l2", "dram", "register_file", "texture", "shared", "cbu", "sram")
"""In the order of ``nvmlMemoryLocation_t``."""

NVLINK_KINDS = ("replay", "recovery", "crc_flit", "crc_data", "ecc", "symbol", "effective")
RECOVERY_ACTIONS = (
    "None",
    "GPU Reset Required",
    "Node Reboot Required",
    "Drain P2P",
    "Drain and Reset",
    "Recover IMEX",
    "Bus Reset",
    "System Reboot",
)


@dataclass(frozen=True)
class Fault:
    """One fault of a scenario. ``gpu`` None means every card, or the node.

    Times are seconds since the node's epoch; ``until`` is infinite without
    ``for``. ``values`` holds the checked values of the kind's own keys.
    """

    kind: str
    at: float
    until: float = FOREVER
    gpu: int | None = None
    values: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def active(self, t: float) -> bool:
        """Say whether the fault holds at ``t``."""
        return self.at <= t < self.until

    def hits(self, card: int) -> bool:
        """Say whether the fault is one of this card."""
        return self.gpu is None or self.gpu == card

    def count(self, t: float) -> int:
        """Count what an error counter has gained from this fault by ``t``."""
        if t < self.at:
            return 0
        once: int = self.values.get("count", 1)
        every: float | None = self.values.get("every")
        if every is None:
            return once
        last = min(t, math.nextafter(self.until, 0.0)) - self.at
        return once * (1 + int(last / every))


@dataclass(frozen=True)
class Kind:
    """What a fault kind may and must say. ``one_of``: exactly one of these keys."""

    gpu: int
    required: Mapping[str, Check] = field(default_factory=dict)
    optional: Mapping[str, Check] = field(default_factory=dict)
    one_of: tuple[str, ...] = ()
    lasts: bool = True  # may have ``for``


_CALL: Mapping[str, Check] = {"call": checks.call_name}
_FIELD: Mapping[str, Check] = {"field": checks.whole(1, 999)}
_COUNT: Mapping[str, Check] = {
    "count": checks.whole(1, 1_000_000),
    "every": checks.positive_duration,
}

KINDS: dict[str, Kind] = {
    # a card, or all of them
    "lost": Kind(OPTIONAL),
    "denied": Kind(OPTIONAL),
    "reset": Kind(OPTIONAL, lasts=False),
    "ecc": Kind(
        OPTIONAL,
        {
            "type": checks.choice("corrected", "uncorrected"),
            "location": checks.choice(*ECC_LOCATIONS),
        },
        {**_COUNT, "threshold": checks.boolean},
    ),
    "throttle": Kind(
        OPTIONAL, {"reason": checks.choice(*REASON_BITS)}, {"factor": checks.number(0.05, 1)}
    ),
    "row_remap": Kind(OPTIONAL, optional={"pending": checks.boolean, "failure": checks.boolean}),
    "recovery_action": Kind(OPTIONAL, {"action": checks.whole(0, len(RECOVERY_ACTIONS) - 1)}),
    "nvlink_down": Kind(OPTIONAL, {"links": checks.different(checks.whole(0, 35), 1, 36)}),
    "nvlink_errors": Kind(
        OPTIONAL,
        {"kind": checks.choice(*NVLINK_KINDS)},
        {**_COUNT, "link": checks.whole(0, 35)},
    ),
    "pcie": Kind(
        OPTIONAL,
        optional={
            "generation": checks.whole(1, 7),
            "width": checks.whole(1, 16),
            "replays": checks.whole(1, 1_000_000),
            "every": checks.positive_duration,
        },
    ),
    "memory_leak": Kind(OPTIONAL, {"mib_per_second": checks.number(0.001, 100_000)}),
    "xid": Kind(
        REQUIRED,
        {"code": checks.whole(1, 999)},
        {"text": checks.text, "action": checks.whole(0, len(RECOVERY_ACTIONS) - 1)},
    ),
    "mig": Kind(REQUIRED, {"instances": checks.several(checks.text, 0, 7)}),
    "unlisted": Kind(REQUIRED),
    "hole": Kind(REQUIRED),
    # calls
    "hang": Kind(OPTIONAL, optional=_CALL),
    "slow": Kind(OPTIONAL, {"latency": checks.positive_duration}, _CALL),
    "error": Kind(
        OPTIONAL, {"code": checks.return_code}, {**_CALL, **_FIELD}, one_of=("call", "field")
    ),
    "value": Kind(
        OPTIONAL,
        {"value": checks.answer},
        {"call": checks.plain_call, **_FIELD},
        one_of=("call", "field"),
    ),
    "missing": Kind(OPTIONAL, _CALL),
    # the node
    "swap": Kind(NONE, {"gpus": checks.different(checks.whole(0, 127), 2, 2)}),
    "driver_gone": Kind(NONE),
    "library_missing": Kind(NONE),
    "mismatch": Kind(NONE, optional={"module": checks.text}),
    "log": Kind(NONE, {"text": checks.text}, lasts=False),
    # the process that reads
    "crash": Kind(NONE, lasts=False),
    "garbage": Kind(NONE),
    "stubborn": Kind(NONE),
}

_UNCORRECTED = {"type": "uncorrected", "location": "dram"}
_REMAP = ("row_remap", {"pending": True})
_RESET = ("recovery_action", {"action": 1})
_REBOOT = ("recovery_action", {"action": 2})

XID_EFFECTS: dict[int, tuple[tuple[str, Mapping[str, Any]], ...]] = {
    # what the card shows beside the line in the kernel log (facts/xid.csv)
    48: (("ecc", _UNCORRECTED), _REMAP, _RESET),
    63: (_REMAP,),
    64: (("row_remap", {"failure": True}), _RESET),
    74: (("nvlink_errors", {"kind": "recovery"}), _RESET),
    79: (("lost", {}), _REBOOT),
    94: (("ecc", _UNCORRECTED), _REMAP, _RESET),
    95: (("ecc", _UNCORRECTED), _REMAP, _RESET),
    120: (_RESET,),
    140: (("ecc", _UNCORRECTED), _RESET),
}

XID_TEXTS: dict[int, str] = {
    13: "Graphics SM Warp Exception on (GPC 7, TPC 7, SM 0): Out Of Range Address",
    31: "Ch 00000010, intr 00000000. MMU Fault: ENGINE CE2 HUBCLIENT_CE0 faulted @ "
    "0x7f29_5b8c9000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
    43: "Ch 00000008",
    45: "Ch 00000001",
    48: "An uncorrectable double bit error (DBE) has been detected on GPU in the "
    "framebuffer at partition 4, subpartition 1.",
    62: "2023b230 20238a3a 20236bea 00000000 00000000 00000000 00000000 00000000",
    63: "Row Remapper: New row marked for remapping, reset gpu to activate.",
    64: "Row Remapper: Failed to record remapping.",
    74: "NVLink: fatal error detected on link 0(0x100000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    79: "GPU has fallen off the bus.",
    94: "Contained: SM (0x1). RST: No, D-RST: No",
    95: "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No",
    109: "Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005",
    119: "Timeout after 6s of waiting for RPC response from GPU GSP! Expected function "
    "103 (GSP_RM_ALLOC) (0x2081 0x4).",
    120: "GSP Error: Task 1 raised error code 0x5 for reason 0x0 at 0x63f01ac "
    "(0 more errors skipped)",
}


def xid_text(fault: Fault) -> str:
    """Give what follows the code in the kernel's line; empty where we know no text."""
    if "text" in fault.values:
        return str(fault.values["text"])
    code: int = fault.values["code"]
    if code == 154:
        action: int = fault.values.get("action", 1)
        return (
            f"GPU recovery action changed from 0x0 (None) to 0x{action:x} "
            f"({RECOVERY_ACTIONS[action]})"
        )
    return XID_TEXTS.get(code, "")


def with_effects(fault: Fault) -> Iterator[Fault]:
    """Give the fault and, for an Xid, what the card shows because of it.

    ``action`` replaces the recovery action that the code would bring by itself.
    """
    yield fault
    if fault.kind != "xid":
        return
    action: int | None = fault.values.get("action", 1 if fault.values["code"] == 154 else None)
    for kind, values in XID_EFFECTS.get(fault.values["code"], ()):
        if kind != "recovery_action" or action is None:
            yield dataclasses.replace(fault, kind=kind, values=MappingProxyType(dict(values)))
    if action is not None:
        values = MappingProxyType({"action": action})
        yield dataclasses.replace(fault, kind="recovery_action", values=values)


def misfit(fault: Fault, model: Model) -> tuple[str, str] | None:
    """Say which key asks of this model what it does not have, and what it does have."""
    if fault.kind == "ecc" and fault.values["location"] not in model.ecc:
        return "location", f"{model.key} has " + (", ".join(model.ecc) or "no ECC")
    if fault.kind == "row_remap" and not (model.remap_banks or model.retired_pages):
        return "fault", f"{model.key} does not repair its memory"
    if fault.kind == "mig":
        return _mig_misfit(fault.values["instances"], model)
    if fault.kind in ("nvlink_down", "nvlink_errors"):
        links = model.nvlink.links if model.nvlink else 0
        if not links:
            return "fault", f"{model.key} has no NVLink"
        asked = fault.values.get("links", (fault.values.get("link", 0),))
        if max(asked) >= links:
            key = "links" if fault.kind == "nvlink_down" else "link"
            return key, f"{model.key} has links 0 to {links - 1}"
    return None


def _mig_misfit(instances: tuple[str, ...], model: Model) -> tuple[str, str] | None:
    known = {profile.name: profile for profile in model.mig}
    if not known or any(name not in known for name in instances):
        return "instances", f"{model.key} has " + (", ".join(known) or "no MIG")
    chosen = [known[name] for name in instances]
    if sum(each.slices for each in chosen) > 7 or sum(each.memory_slices for each in chosen) > 8:
        return "instances", "profiles that fit in 7 compute and 8 memory slices together"
    return None
