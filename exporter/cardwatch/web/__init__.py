# SPDX-License-Identifier: Apache-2.0
"""The HTTP side of the exporter: sockets, connections, access and routes.

It owns everything between the network and a page of ready bytes. It must never
read a GPU, build a page, or import any other part of cardwatch: what it serves
comes through the ``Pages`` protocol of ``cardwatch.web.app``.
"""
