# SPDX-License-Identifier: Apache-2.0
"""The live kernel log: each record that the kernel still holds, once, with its place in the log.

Owns the file descriptor and a thread of its own. Never interprets a line: the
parser is handed in, and what it makes of a line is handed on.
"""
