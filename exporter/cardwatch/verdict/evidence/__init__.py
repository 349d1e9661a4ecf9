# SPDX-License-Identifier: Apache-2.0
"""The predicates, by topic: each looks at a case and says what it found, or None.

Pure functions. They never raise on a reading that is not there: what is not
known is no evidence.
"""
