# SPDX-License-Identifier: Apache-2.0
"""NVML return codes and what each means for a reading.

Numbers and names: ``nvmlReturn_t`` in nvml.h 13.5. We keep our own table
because formatting an error through the binding may call the wedged library.
"""

from __future__ import annotations

import enum

NAMES = {
    0: "success",
    1: "uninitialized",
    2: "invalid_argument",
    3: "not_supported",
    4: "no_permission",
    5: "already_initialized",
    6: "not_found",
    7: "insufficient_size",
    8: "insufficient_power",
    9: "driver_not_loaded",
    10: "timeout",
    11: "irq_issue",
    12: "library_not_found",
    13: "function_not_found",
    14: "corrupted_inforom",
    15: "gpu_is_lost",
    16: "reset_required",
    17: "operating_system",
    18: "lib_rm_version_mismatch",
    19: "in_use",
    20: "memory",
    21: "no_data",
    22: "vgpu_ecc_not_supported",
    23: "insufficient_resources",
    24: "freq_not_supported",
    25: "argument_version_mismatch",
    26: "deprecated",
    27: "not_ready",
    28: "gpu_not_found",
    29: "invalid_state",
    30: "reset_type_not_supported",
    999: "unknown",
}

UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
OPERATING_SYSTEM = 17
LIB_RM_VERSION_MISMATCH = 18
NO_DATA = 21
GPU_NOT_FOUND = 28
UNKNOWN = 999

UNSUPPORTED = frozenset({2, 3, 6, 13, 21, 22, 24, 25, 26})
"""Codes that are a property of the card or of an older driver, not a failure.

INVALID_ARGUMENT is among them because old drivers answer it to a field id,
sensor or link that they do not know; a stale handle gives it as well, and is
noticed where the handle is taken anew at every pass.
"""

DENIED = frozenset({NO_PERMISSION, OPERATING_SYSTEM})

SOURCE_ERRORS = {
    UNINITIALIZED: "driver_not_loaded",
    DRIVER_NOT_LOADED: "driver_not_loaded",
    LIBRARY_NOT_FOUND: "library_not_found",
    LIB_RM_VERSION_MISMATCH: "driver_library_mismatch",
    NO_PERMISSION: "permission_denied",
    OPERATING_SYSTEM: "permission_denied",
    UNKNOWN: "unknown_error",
}
"""Code on initialising or listing -> value of ``cardwatch_source_error{error}``."""


class Outcome(str, enum.Enum):
    """Status of one reading, as counted in ``cardwatch_readings``."""

    OK = "ok"
    UNSUPPORTED = "unsupported"
    DENIED = "denied"
    FAILED = "failed"


class DriverError(Exception):
    """A driver call that did not return success. ``code`` is an NVML return code."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(code)

    @property
    def name(self) -> str:
        """NVML's name of the code in lower case, without ``nvml_error_``."""
        return NAMES.get(self.code, f"code_{self.code}")

    @property
    def outcome(self) -> Outcome:
        """What this error makes of a reading."""
        if self.code in UNSUPPORTED:
            return Outcome.UNSUPPORTED
        return Outcome.DENIED if self.code in DENIED else Outcome.FAILED

    @property
    def source_error(self) -> str:
        """What this error is called when the whole source is down because of it."""
        return SOURCE_ERRORS.get(self.code, self.name)

    def __str__(self) -> str:
        return f"{self.name} ({self.code})"
