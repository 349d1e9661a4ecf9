# SPDX-License-Identifier: Apache-2.0
"""How far a log has been read, in a form that can be kept across restarts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Position:
    """The last record that was read of a source.

    source   the path as it was configured.
    boot_id  the boot in which the record was read; sequence numbers begin anew with each.
    seq      its sequence number.
    detail   what files and FIFOs need beside the number; only their reader understands it.
    """

    source: str
    boot_id: str
    seq: int
    detail: str = ""
