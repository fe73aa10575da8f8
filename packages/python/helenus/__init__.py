"""Starts a Helenus node for a test run.

    import helenus

    with helenus.Node() as node:
        cluster = Cluster([node.host], port=node.port)

A node is a process of its own on free ports of the loopback address. Its data lie in a directory in
memory if there is room, and are removed with it. It ends with the process that started it, however
that one ends.
"""

from __future__ import annotations

from ._node import Node, StartError, StatementError, binary_path

__all__ = ["Node", "StartError", "StatementError", "binary_path"]
__version__ = "@VERSION@"
