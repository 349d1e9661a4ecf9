# SPDX-License-Identifier: Apache-2.0
"""The tables of the journal, version by version. The last one is what the code reads and writes.

A step is never changed once it was released; a change is a new step.
"""

from __future__ import annotations

STEPS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE events (
            id INTEGER PRIMARY KEY,
            time REAL NOT NULL,
            last_time REAL NOT NULL,
            gpu TEXT NOT NULL,
            kind TEXT NOT NULL,
            code INTEGER,
            class TEXT NOT NULL,
            severity TEXT NOT NULL,
            action TEXT NOT NULL,
            source TEXT NOT NULL,
            old INTEGER NOT NULL,
            count INTEGER NOT NULL,
            message TEXT NOT NULL,
            detail TEXT NOT NULL,
            extra TEXT NOT NULL
        )""",
        "CREATE INDEX events_time ON events (last_time)",
        """CREATE TABLE counters (
            gpu TEXT NOT NULL,
            kind TEXT NOT NULL,
            code INTEGER NOT NULL,
            class TEXT NOT NULL,
            severity TEXT NOT NULL,
            count INTEGER NOT NULL,
            first_time REAL NOT NULL,
            last_time REAL NOT NULL,
            PRIMARY KEY (gpu, kind, code, class, severity)
        ) WITHOUT ROWID""",
        """CREATE TABLE positions (
            source TEXT PRIMARY KEY,
            boot_id TEXT NOT NULL,
            seq INTEGER NOT NULL,
            detail TEXT NOT NULL
        ) WITHOUT ROWID""",
        """CREATE TABLE marks (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            gpu TEXT NOT NULL,
            kind TEXT NOT NULL,
            time REAL NOT NULL,
            origin TEXT NOT NULL
        )""",
    ),
)

VERSION = len(STEPS)
