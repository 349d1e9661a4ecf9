# SPDX-License-Identifier: Apache-2.0
"""What an exporter does with its kernel log: read, parse, keep. Run by test_journal_restart."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path

from cardwatch.journal.journal import Journal
from cardwatch.journal.records import Entry
from cardwatch.kernlog.event import Event
from cardwatch.kmsg.batch import Batch
from cardwatch.kmsg.reader import KernelLog

_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-f:]+)\): (\d+), (.*)")


def _parse(text: str, time: float, uptime: float) -> list[Event]:
    found = _XID.match(text)
    return [Event("xid", time, found[1], code=int(found[2]), message=found[3])] if found else []


def main() -> None:
    """Print the sum of the counters whenever it changes, until killed or stdin ends."""
    log, state = sys.argv[1:3]
    journal = Journal(Path(state))
    assert journal.open(20)

    def keep(batch: Batch) -> None:
        entries = [
            Entry("GPU-1", event, "critical", count=record.count, last_time=record.last_time)
            for record in batch.records
            for event in record.events
        ]
        journal.commit(entries, batch.position)
        print(sum(counter.count for counter in journal.counters().values()), flush=True)

    reader = KernelLog(log, _parse, keep, position=journal.position(log), boot_id="boot")
    reader.start()
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    ended.wait()
    assert reader.stop(20)
    assert journal.close(20)


if __name__ == "__main__":
    main()
