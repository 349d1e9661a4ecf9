# SPDX-License-Identifier: Apache-2.0
"""What this machine lets us see, what not, why, and the way out.

``look`` takes in the scene: one pass over the cards by a session, and a look at
the machine's files. Each check turns the scene into findings. Nothing here
writes anywhere, calls the driver in this process, or can be held up for ever.
"""
