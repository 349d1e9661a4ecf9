# SPDX-License-Identifier: Apache-2.0
"""What the machine says by itself, without the driver library: PCI bus, kernel, boot, module."""
