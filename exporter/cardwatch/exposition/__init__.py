# SPDX-License-Identifier: Apache-2.0
"""From series to bytes: the Prometheus text format 0.0.4 and OpenMetrics 1.0.0."""
