"""Fixtures for pytest. Nothing is started until a test asks for it.

``helenus_node``      a node for the whole run; with pytest-xdist one for each worker
``helenus_keyspace``  the name of a new keyspace, dropped after the test
``helenus_session``   a session of the Python driver in that keyspace
``helenus_settings``  settings of the node; override it in ``conftest.py``
"""

from __future__ import annotations

import uuid
from typing import Any, Iterator

import pytest

from ._node import Node


@pytest.fixture(scope="session")
def helenus_settings() -> dict[str, Any]:
    """Arguments for :class:`helenus.Node`."""
    return {}


@pytest.fixture(scope="session")
def helenus_node(helenus_settings: dict[str, Any]) -> Iterator[Node]:
    """A node, shared by all tests of the run."""
    with Node(**helenus_settings) as node:
        yield node


@pytest.fixture(scope="session")
def helenus_login() -> dict[str, str]:
    """``user`` and ``password`` for a node with logins; override it together with the settings."""
    return {}


@pytest.fixture
def helenus_keyspace(helenus_node: Node, helenus_login: dict[str, str]) -> Iterator[str]:
    """The name of a new keyspace, dropped after the test."""
    name = f"test_{uuid.uuid4().hex[:16]}"
    helenus_node.cql(
        f"CREATE KEYSPACE {name} WITH replication ="
        " {'class': 'SimpleStrategy', 'replication_factor': 1}",
        **helenus_login,
    )
    yield name
    helenus_node.cql(f"DROP KEYSPACE IF EXISTS {name}", **helenus_login)


@pytest.fixture(scope="session")
def helenus_cluster(helenus_node: Node, helenus_login: dict[str, str]) -> Iterator[Any]:
    """The driver's ``Cluster`` for the node, shared by all tests of the run."""
    try:
        from cassandra.auth import PlainTextAuthProvider
        from cassandra.cluster import Cluster
    except ImportError as error:
        raise ImportError(
            f"helenus_session needs cassandra-driver or scylla-driver: {error}"
        ) from error
    login = None
    if helenus_login:
        login = PlainTextAuthProvider(helenus_login["user"], helenus_login["password"])
    cluster = Cluster([helenus_node.host], port=helenus_node.port, auth_provider=login)
    yield cluster
    cluster.shutdown()


@pytest.fixture
def helenus_session(helenus_cluster: Any, helenus_keyspace: str) -> Iterator[Any]:
    """A session of the Python driver in the test's keyspace."""
    session = helenus_cluster.connect(helenus_keyspace)
    yield session
    session.shutdown()
