# SPDX-License-Identifier: Apache-2.0
"""The parent's side: keeps a reading child alive, keeps the book of cards, builds snapshots.

Runs in one event loop; nothing here may block, and nothing here touches the driver.
"""
