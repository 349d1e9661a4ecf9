# SPDX-License-Identifier: Apache-2.0
"""What Xid and SXid numbers mean, and what one event of them asks of people.

Tables and pure functions over them: no logs, no devices, no clock.
"""
