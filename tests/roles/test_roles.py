"""Roles through the Python driver: who may log in, and what a limited role may do.

The server asks for logins and permissions; `cassandra` is its superuser.
"""

import itertools
import os
import select
import socket
import struct
import subprocess

import pytest
from cassandra import AuthenticationFailed, InvalidRequest, Unauthorized
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, NoHostAvailable
from cassandra.query import BatchStatement, SimpleStatement

PORT = int(os.environ.get("HELENUS_PORT", "9042"))
RESOURCES = {
    "all": "ALL KEYSPACES",
    "keyspace": "KEYSPACE rt",
    "tables": "ALL TABLES IN KEYSPACE rt",
    "table": "rt.t",
    "other": "rt.u",
}
STATEMENTS = {
    "SELECT": ["SELECT * FROM rt.t WHERE k = 1"],
    "MODIFY": [
        "INSERT INTO rt.t (k, v) VALUES (1, 1)",
        "UPDATE rt.t SET v = 2 WHERE k = 1",
        "DELETE FROM rt.t WHERE k = 1",
        "BEGIN BATCH INSERT INTO rt.t (k, v) VALUES (2, 2); APPLY BATCH",
        "TRUNCATE rt.t",
    ],
    "ALTER": ["ALTER TABLE rt.t WITH comment = 'x'"],
}


def connect(user, password):
    auth = PlainTextAuthProvider(user, password)
    return Cluster(["127.0.0.1"], port=PORT, auth_provider=auth)


@pytest.fixture(scope="module")
def root():
    with connect("cassandra", "cassandra") as cluster:
        session = cluster.connect()
        session.execute("DROP KEYSPACE IF EXISTS rt")
        for role in ["limited", "readers", "nologin", "maker"]:
            session.execute(f"DROP ROLE IF EXISTS {role}")
        session.execute(
            "CREATE KEYSPACE rt WITH replication = "
            "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        for table in ["t", "u"]:
            session.execute(f"CREATE TABLE rt.{table} (k int PRIMARY KEY, v int)")
        session.execute("CREATE ROLE limited WITH PASSWORD = 'pw' AND LOGIN = true")
        session.execute("CREATE ROLE nologin WITH PASSWORD = 'pw'")
        session.execute("CREATE ROLE readers")
        yield session


@pytest.fixture(scope="module")
def limited(root):
    with connect("limited", "pw") as cluster:
        yield cluster.connect()


def is_allowed(session, statement):
    try:
        session.execute(statement)
        return True
    except Unauthorized as error:
        assert "has no" in str(error), error
        return False


@pytest.mark.parametrize(
    "user, password, message",
    [
        ("limited", "wrong", "Provided username limited and/or password are incorrect"),
        ("nobody", "pw", "Provided username nobody and/or password are incorrect"),
        ("nologin", "pw", "nologin is not permitted to log in"),
    ],
)
def test_who_may_not_log_in_is_told_why(root, user, password, message):
    with connect(user, password) as cluster:
        with pytest.raises(NoHostAvailable) as caught:
            cluster.connect()
    errors = list(caught.value.errors.values())
    assert all(isinstance(error, AuthenticationFailed) for error in errors)
    assert message in str(errors[0])


def test_without_a_password_nobody_connects(root):
    with Cluster(["127.0.0.1"], port=PORT) as cluster:
        with pytest.raises(NoHostAvailable) as caught:
            cluster.connect()
    assert all(isinstance(e, AuthenticationFailed) for e in caught.value.errors.values())


def test_a_limited_role_sees_the_schema_and_nothing_else(limited):
    assert "rt" in limited.cluster.metadata.keyspaces
    assert is_allowed(limited, "SELECT * FROM system_schema.tables")
    assert not is_allowed(limited, "SELECT * FROM system_auth.roles")
    assert not is_allowed(limited, "SELECT * FROM system_views.settings")


@pytest.mark.parametrize("permission, resource", itertools.product(STATEMENTS, RESOURCES))
def test_each_permission_allows_its_statements_where_it_holds(root, limited, permission, resource):
    root.execute(f"GRANT {permission} ON {RESOURCES[resource]} TO limited")
    for other, statements in STATEMENTS.items():
        for statement in statements:
            expected = other == permission and resource != "other"
            assert is_allowed(limited, statement) == expected, statement
    root.execute(f"REVOKE {permission} ON {RESOURCES[resource]} FROM limited")
    for statement in itertools.chain(*STATEMENTS.values()):
        assert not is_allowed(limited, statement), statement


def test_conditions_need_both_permissions(root, limited):
    conditional = "INSERT INTO rt.t (k, v) VALUES (7, 7) IF NOT EXISTS"
    root.execute("GRANT MODIFY ON rt.t TO limited")
    assert not is_allowed(limited, conditional)
    root.execute("GRANT SELECT ON rt.t TO limited")
    assert is_allowed(limited, conditional)
    root.execute("REVOKE ALL PERMISSIONS ON rt.t FROM limited")


def test_batches_need_every_table(root, limited):
    batch = BatchStatement()
    batch.add(SimpleStatement("INSERT INTO rt.t (k, v) VALUES (1, 1)"))
    batch.add(SimpleStatement("INSERT INTO rt.u (k, v) VALUES (1, 1)"))
    root.execute("GRANT MODIFY ON rt.t TO limited")
    assert not is_allowed(limited, batch)
    root.execute("GRANT MODIFY ON rt.u TO limited")
    assert is_allowed(limited, batch)
    for table in ["t", "u"]:
        root.execute(f"REVOKE MODIFY ON rt.{table} FROM limited")


def test_prepared_statements_are_checked_at_each_execution(root, limited):
    prepared = limited.prepare("SELECT v FROM rt.t WHERE k = ?").bind([1])
    assert not is_allowed(limited, prepared)
    root.execute("GRANT SELECT ON rt.t TO limited")
    assert is_allowed(limited, prepared)
    root.execute("REVOKE SELECT ON rt.t FROM limited")
    assert not is_allowed(limited, prepared)


def test_permissions_come_through_a_group(root, limited):
    root.execute("GRANT SELECT ON rt.t TO readers")
    assert not is_allowed(limited, STATEMENTS["SELECT"][0])
    root.execute("GRANT readers TO limited")
    assert is_allowed(limited, STATEMENTS["SELECT"][0])
    listed = root.execute("LIST ALL PERMISSIONS OF limited")
    assert ("readers", "readers", "<table rt.t>", "SELECT") in [tuple(row) for row in listed]
    root.execute("REVOKE readers FROM limited")
    assert not is_allowed(limited, STATEMENTS["SELECT"][0])


def test_who_makes_a_keyspace_owns_it(root):
    root.execute("DROP KEYSPACE IF EXISTS rt_made")
    root.execute("CREATE ROLE maker WITH PASSWORD = 'pw' AND LOGIN = true")
    root.execute("GRANT CREATE ON ALL KEYSPACES TO maker")
    with connect("maker", "pw") as cluster:
        session = cluster.connect()
        session.execute(
            "CREATE KEYSPACE rt_made WITH replication = "
            "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        session.execute("CREATE TABLE rt_made.t (k int PRIMARY KEY, v int)")
        session.execute("INSERT INTO rt_made.t (k, v) VALUES (1, 1)")
        session.execute("GRANT SELECT ON KEYSPACE rt_made TO limited")
        with pytest.raises(Unauthorized):
            session.execute("CREATE ROLE other")
        session.execute("DROP KEYSPACE rt_made")
    assert list(root.execute("LIST ALL ON ALL KEYSPACES OF limited")) == []


def test_a_user_changes_its_own_password_only(root, limited):
    limited.execute("ALTER ROLE limited WITH PASSWORD = 'next'")
    with connect("limited", "next") as cluster:
        cluster.connect()
    with pytest.raises(Unauthorized):
        limited.execute("ALTER ROLE nologin WITH PASSWORD = 'next'")
    with pytest.raises(Unauthorized):
        limited.execute("ALTER ROLE limited WITH SUPERUSER = true")
    with pytest.raises(InvalidRequest):
        root.execute("DROP ROLE cassandra")
    root.execute("ALTER ROLE limited WITH PASSWORD = 'pw'")


def nodetool(*words):
    command = [os.environ["HELENUS_BIN"], "nodetool", "-p", os.environ["HELENUS_API_PORT"], *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def test_a_role_kept_to_cidr_groups_does_nothing_from_elsewhere(root):
    assert nodetool("listcidrgroups") == (0, "", "")
    assert nodetool("updatecidrgroup", "office", "10.1.2.3/16", "2001:db8::/32") == (0, "", "")
    assert nodetool("updatecidrgroup", "all", "0.0.0.0/0") == (0, "", "")
    assert nodetool("listcidrgroups") == (0, "CIDR Groups: \nall          \noffice       \n", "")
    assert nodetool("listcidrgroups", "office")[1].split() == [
        "CIDRs:",
        "10.1.0.0/16",
        "2001:db8:0:0:0:0:0:0/32",
    ]
    assert nodetool("getcidrgroupsofip", "10.1.9.9")[1].split() == ["CIDR", "Groups:", "office"]
    assert nodetool("getcidrgroupsofip", "127.0.0.1")[1].split() == ["CIDR", "Groups:", "all"]
    for words, status, text in [
        (["updatecidrgroup", "x", "10.0.0.0"], 2, "10.0.0.0 is not a valid CIDR String"),
        (["updatecidrgroup", "x"], 1, "requires a cidr group name and atleast one CIDR"),
        (["dropcidrgroup", "x"], 2, "CIDR group 'x' doesn't exists"),
        (["getcidrgroupsofip", "x"], 1, "Invalid IP x"),
    ]:
        code, out, error = nodetool(*words)
        assert code == status and text in out + error, (words, out, error)

    root.execute("DROP ROLE IF EXISTS kept")
    root.execute(
        "CREATE ROLE kept WITH PASSWORD = 'pw' AND LOGIN = true AND ACCESS FROM CIDRS {'office'}"
    )
    root.execute("GRANT SELECT ON rt.t TO kept")
    with pytest.raises(NoHostAvailable, match="You do not have access from this IP 127.0.0.1"):
        with connect("kept", "pw") as cluster:
            cluster.connect()
    nodetool("updatecidrgroup", "office", "127.0.0.0/8")
    with connect("kept", "pw") as cluster:
        session = cluster.connect()
        session.execute("SELECT * FROM rt.t")
        nodetool("updatecidrgroup", "office", "10.1.0.0/16")
        with pytest.raises(Unauthorized, match="You do not have access from this IP 127.0.0.1"):
            session.execute("SELECT * FROM rt.t")
        root.execute("ALTER ROLE kept WITH ACCESS FROM ALL CIDRS")
        session.execute("SELECT * FROM rt.t")
    rows = root.execute("SELECT name, value FROM system_views.cidr_filtering_metrics_counts")
    counts = {row.name: row.value for row in rows}
    assert counts["Number of CIDR accesses rejected from CIDR group - all"] > 0, counts
    assert counts["Number of CIDR accesses accepted from CIDR group - office"] > 0, counts
    stats = nodetool("cidrfilteringstats")[1]
    assert "Number of CIDR accesses rejected from CIDR group - all" in stats
    assert "CIDR checks latency (ns)" in stats
    assert nodetool("dropcidrgroup", "office") == (0, "Deleted CIDR group office\n", "")


def test_passwords_that_were_verified_are_shown_and_forgotten(root):
    with connect("limited", "pw") as cluster:
        cluster.connect()
    cached = "SELECT role FROM system_views.credentials_cache_keys"
    assert {"cassandra", "limited"} <= {row.role for row in root.execute(cached)}
    assert nodetool("invalidatecredentialscache", "limited") == (0, "", "")
    assert "limited" not in {row.role for row in root.execute(cached)}
    assert nodetool("invalidatecredentialscache") == (0, "", "")
    assert list(root.execute(cached)) == []


def frame(opcode, body):
    return struct.pack(">BBHBI", 4, 0, 1, opcode, len(body)) + body


def read_frame(connection):
    header = connection.recv(9, socket.MSG_WAITALL)
    return header[4], connection.recv(struct.unpack(">I", header[5:])[0], socket.MSG_WAITALL)


def test_requests_are_answered_while_many_logins_are_verified(root):
    """Each login comes from an address of its own, so that none is slowed because of the others."""
    waiting = []
    for n in range(200):
        connection = socket.socket()
        connection.bind((f"127.0.2.{n + 1}", 0))
        connection.connect(("127.0.0.1", PORT))
        startup = struct.pack(">HH11sH5s", 1, 11, b"CQL_VERSION", 5, b"3.0.0")
        connection.sendall(frame(1, startup))
        assert read_frame(connection)[0] == 3
        waiting.append(connection)
    for n, connection in enumerate(waiting):
        token = b"\0limited\0wrong %d" % n
        connection.sendall(frame(15, struct.pack(">i", len(token)) + token))
    for _ in range(20):
        root.execute("SELECT key FROM system.local")
    answered = select.select(waiting, [], [], 0)[0]
    assert len(answered) < len(waiting)
    for connection in waiting:
        opcode, body = read_frame(connection)
        # Wrong, or OVERLOADED when the threads for passwords could not verify it in time.
        assert (opcode, struct.unpack(">I", body[:4])[0]) in [(0, 0x0100), (0, 0x1001)]
        connection.close()
