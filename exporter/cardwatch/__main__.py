# SPDX-License-Identifier: Apache-2.0
"""Entry point of ``cardwatch`` and ``python -m cardwatch``."""

from cardwatch.commands import main

if __name__ == "__main__":
    raise SystemExit(main())
