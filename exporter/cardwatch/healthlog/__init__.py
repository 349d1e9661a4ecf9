# SPDX-License-Identifier: Apache-2.0
"""GPU events as log lines that say ``[gpu-health]``, also beside the logs of the workloads.

Owns the form of the lines, their rate and the files. Never blocks whoever tells it something.
"""
