# SPDX-License-Identifier: Apache-2.0
"""NVLink 5 lines (Xid 144 to 150): unit and status words to what they mean.

The first word of such a line (interrupt info) holds the number of the unit, and
for link-down events the reason; the second holds the error status. Drivers before
R575 use one layout and later ones another, and a log does not say which: the
older mask is tried first, then the newer. Nothing here decides a class.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from cardwatch.xid.catalogue import rows, words

CODES = range(144, 151)
# Bit of the first word that says that the error was promoted to a fatal one.
_PROMOTED_V1 = 0x400
_PROMOTED_V2 = 0x80
_REASON_SHIFT = 20
_REASON_BITS = 0x3F


@dataclass(frozen=True)
class Decoded:
    """What a row of NVIDIA's decoding table says about one line.

    ``action`` is what to do at once, ``then`` what to look into afterwards,
    ``blame`` where the cause lies (HW, SW, FW). ``defers_to_154`` means that the
    value of an Xid 154 that follows decides instead. ``packet_loss`` tells whose
    packets were lost: local, remote or both.
    """

    unit: str
    severity: str
    action: str
    then: str
    blame: str
    companions: tuple[int, ...]
    packet_loss: str
    defers_to_154: bool
    promoted: bool
    reason: int | None


@dataclass(frozen=True)
class _Row:
    units: tuple[str, ...]
    layouts: tuple[tuple[int, int], ...]
    reason: int | None
    status: tuple[int, ...]
    severity: str
    action: str
    action_promoted: str
    defers: bool
    then: str
    blame: str
    companions: tuple[int, ...]
    packet_loss: str

    def layout(self, info: int) -> int | None:
        """Return the index of the layout in which the first word fits this row."""
        for index, (mask, value) in enumerate(self.layouts):
            if info & self._mask(index, mask) == value:
                return index
        return None

    def promoted(self, index: int, info: int) -> bool:
        return bool(self.action_promoted) and bool(info & (_PROMOTED_V1, _PROMOTED_V2)[index])

    def _mask(self, index: int, mask: int) -> int:
        # The table asks for a clear promotion bit; a set one is the same error, promoted.
        if not self.action_promoted:
            return mask
        return mask & ~(_PROMOTED_V1, _PROMOTED_V2)[index]


def link_down_reason(info: int) -> int:
    """Return bits 20 to 25 of the first word, which Xid 149 uses for the reason."""
    return info >> _REASON_SHIFT & _REASON_BITS


def decode(code: int, unit: str | None, status: Sequence[int]) -> Decoded | None:
    """Decode a line; None where the table has no row for it.

    ``unit`` is the word in the text, ``status`` the hex words.
    """
    if code not in CODES or not status:
        return None
    info, error = status[0], status[1] if len(status) > 1 else 0
    table = _rows()[code]
    # The name in the text is sure, the number of the unit only known by its layout.
    candidates = [row for row in table if unit in row.units] or table
    for index in (0, 1):
        found = _by_status((row for row in candidates if row.layout(info) == index), error)
        if found is not None:
            return _decoded(found, promoted=found.promoted(index, info))
    found = _by_status((row for row in candidates if not row.layouts and unit in row.units), error)
    return None if found is None else _decoded(found, promoted=False)


def _by_status(candidates: Iterable[_Row], error: int) -> _Row | None:
    """Return the row of this status; of several bits at once, the worst one that is set."""
    listed = list(candidates)
    for row in listed:
        if not row.status or error in row.status:
            return row
    set_bits = [row for row in listed if any(bit & error for bit in row.status)]
    return min(set_bits, key=lambda row: row.severity == "nonfatal", default=None)


def _decoded(row: _Row, *, promoted: bool) -> Decoded:
    return Decoded(
        unit=row.units[0],
        severity="fatal" if promoted or row.severity != "nonfatal" else "nonfatal",
        action=row.action_promoted if promoted else row.action,
        then=row.then,
        blame=row.blame,
        companions=row.companions,
        packet_loss=row.packet_loss,
        defers_to_154=row.defers,
        promoted=promoted,
        reason=row.reason,
    )


@cache
def _rows() -> dict[int, list[_Row]]:
    table: dict[int, list[_Row]] = {code: [] for code in CODES}
    for row in rows("nvlink5.csv"):
        layouts = [
            (int(row[f"{name}_mask"], 16), int(row[f"{name}_value"], 16))
            for name in ("v1", "v2")
            if row[f"{name}_mask"]
        ]
        table[int(row["xid"])].append(
            _Row(
                units=tuple(row["unit"].split("/")),
                layouts=tuple(layouts),
                reason=int(row["reason"]) if row["reason"] else None,
                status=tuple(int(word, 16) for word in words(row["status"])),
                severity=row["severity"],
                action=row["action"],
                action_promoted=row["action_promoted"],
                defers=row["defers_to_154"] == "yes",
                then=row["then"],
                blame=row["blame"],
                companions=tuple(int(word) for word in words(row["companions"])),
                packet_loss=row["packet_loss"],
            )
        )
    return table
