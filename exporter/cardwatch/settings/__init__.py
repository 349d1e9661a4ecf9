# SPDX-License-Identifier: Apache-2.0
"""Settings: one table, four origins. Defaults < config file < environment < flags."""
