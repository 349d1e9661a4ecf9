# SPDX-License-Identifier: Apache-2.0
"""Reads a backend in a process of its own and prints what it gave, as JSON.

Run as a script: the real driver library can be found only by a process that
started with it on its path, and no test process may keep it loaded.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cardwatch.backends import Options, make
from cardwatch.families.record import Profile


def main() -> None:
    wanted: dict[str, Any] = json.loads(sys.argv[1])
    backend = make(
        Options(
            backend=wanted["backend"],
            profile=Profile[wanted["profile"]],
            scenario=wanted.get("scenario"),
            capture=Path(wanted["capture"]) if "capture" in wanted else None,
            epoch=time.time() - 100,
        )
    )
    backend.open()
    count = backend.count()
    passes = [[asdict(backend.read(slot)) for slot in range(count)] for _ in range(2)]
    beyond = asdict(backend.read(count + 3))
    versions = backend.versions()
    backend.close()
    json.dump(
        {"count": count, "passes": passes, "beyond": beyond, "versions": versions}, sys.stdout
    )


if __name__ == "__main__":
    main()
