# SPDX-License-Identifier: Apache-2.0
"""cardwatch: a per-GPU Prometheus exporter and the bundle around it."""

__version__ = "0.1.0.dev0"
