"""Shared fixtures: the server under test comes from HELENUS_HOST and HELENUS_PORT."""
import os
import uuid

import pytest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import WhiteListRoundRobinPolicy

HOST = os.environ.get("HELENUS_HOST", "127.0.0.1")
PORT = int(os.environ.get("HELENUS_PORT", "9042"))


def connect(protocol_version=None, **options):
    """A cluster object for the server under test; the caller shuts it down."""
    if protocol_version is not None:
        options["protocol_version"] = protocol_version
    profiles = {
        EXEC_PROFILE_DEFAULT: ExecutionProfile(
            load_balancing_policy=WhiteListRoundRobinPolicy([HOST]), request_timeout=30
        )
    }
    options.setdefault("execution_profiles", profiles)
    return Cluster([HOST], port=PORT, connect_timeout=20, control_connection_timeout=20, **options)


@pytest.fixture(scope="session")
def cluster():
    cluster = connect()
    yield cluster
    cluster.shutdown()


@pytest.fixture(scope="session")
def keyspace(cluster):
    name = "drv_py_" + uuid.uuid4().hex[:8]
    session = cluster.connect()
    session.execute(
        f"CREATE KEYSPACE {name} WITH replication = "
        "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    yield name
    session.execute(f"DROP KEYSPACE {name}")
    session.shutdown()


@pytest.fixture(scope="session")
def session(cluster, keyspace):
    session = cluster.connect(keyspace)
    yield session
    session.shutdown()


def pytest_terminal_summary(terminalreporter):
    """The line that the caller of run.sh looks for."""
    stats = terminalreporter.stats
    passed = len(stats.get("passed", []))
    failed = len(stats.get("failed", [])) + len(stats.get("error", []))
    terminalreporter.write_line(f"{passed} passed, {failed} failed")
