# SPDX-License-Identifier: Apache-2.0
"""``python -m cardwatch.probe SETTINGS``: started by the supervisor only."""

from cardwatch.probe.main import main

main()
