# SPDX-License-Identifier: Apache-2.0
"""The driver's management library (NVML) as a list of calls with plain answers.

Everything above this package asks a ``Driver`` and gets numbers, text and
tuples or a ``DriverError``. Three drivers exist: the library itself
(``binding``), a simulated node (``cardwatch.sim``) and the answers of a
capture (``recorded``).
"""
