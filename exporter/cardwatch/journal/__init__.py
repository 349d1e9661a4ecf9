# SPDX-License-Identifier: Apache-2.0
"""The journal of GPU events: what happened, how often, and how far the kernel log was read.

Owns ``events.db`` in the state directory. Never blocks whoever tells it
something, and never ends the process: without a disk it lives in memory and says so.
"""
