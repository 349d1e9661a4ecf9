# SPDX-License-Identifier: Apache-2.0
"""Events of this node as the running exporter keeps them: seen twice, counted once.

Brings together what the kernel log and the driver library tell, the journal
that outlives the process, and what resets settle. Judging is for ``verdict``.
"""
