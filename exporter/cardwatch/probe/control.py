# SPDX-License-Identifier: Apache-2.0
"""Whether the driver's control device can be opened.

A container whose device cgroup was rewritten under it (by ``systemctl
daemon-reload`` or ``docker update``) is refused what it once had, and every
driver call answers "unknown". Only a new container cures that.
"""

from __future__ import annotations

import os
from pathlib import Path

NAME = "nvidiactl"


def control_device(devfs: Path) -> str:
    """Return ok, refused or absent."""
    try:
        os.close(os.open(devfs / NAME, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
    except FileNotFoundError:
        return "absent"
    except PermissionError:
        return "refused"
    except OSError:
        return "absent"
    return "ok"
