# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the NVIDIA driver library, compiled on the fly; for tests and benches only."""

from .builder import BuildError, build, compile_c, exported_functions
from .stub import Stub

__all__ = ["BuildError", "Stub", "build", "compile_c", "exported_functions"]
