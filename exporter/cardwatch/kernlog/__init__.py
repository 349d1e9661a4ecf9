# SPDX-License-Identifier: Apache-2.0
"""GPU events out of kernel log text: Xid, SXid, cards off the bus, failed probes.

Pure text to records: no files, no devices, no clock.
"""
