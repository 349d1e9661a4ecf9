# SPDX-License-Identifier: Apache-2.0
"""The reading child: the only process that talks to the driver.

One thread per card and one for the node make driver calls; the main thread
never does, so signals are always served. Frames go to the parent over a pipe.
It keeps no files, opens no sockets, and ends when its parent does.
"""
