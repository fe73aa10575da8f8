"""One directory that both programs own in turns: the roles and the schema of the last owner count."""

import shutil

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import NoHostAvailable

from servers import Cassandra, Helenus, connect

CASSANDRA_AUTH = """\
authenticator: PasswordAuthenticator
authorizer: CassandraAuthorizer
permissions_validity: 0ms
roles_validity: 0ms
credentials_validity: 0ms
"""
HELENUS_AUTH = ["--authenticator", "PasswordAuthenticator", "--authorizer", "CassandraAuthorizer"]
SIMPLE = "{'class': 'SimpleStrategy', 'replication_factor': 1}"


class Owner:
    """The present owner of the directory, as a role sees it."""

    def __init__(self, report, part, server):
        self.report, self.part, self.server = report, part, server
        self.clusters = []

    def login(self, user, timeout=60):
        self.server.check_alive()
        port = self.server.PORT if isinstance(self.server, Helenus) else self.server.files.PORT
        provider = PlainTextAuthProvider(*user)
        cluster, session = connect(port, timeout, provider)
        self.clusters.append(cluster)
        return session

    def refuses(self, user):
        """A wrong password, or no such role."""
        try:
            self.login(user, timeout=0)
            found = "logged in"
        except NoHostAvailable as error:
            found = "" if "AuthenticationFailed" in repr(error.errors) else repr(error.errors)
        self.report.check(f"{self.part}: {user} is refused", found)

    def check(self, session, statement, expected):
        try:
            rows = [tuple(row) for row in session.execute(statement)]
            found = sorted(rows, key=repr)
        except Exception as error:
            found = type(error).__name__
        same = found == expected
        self.report.check(f"{self.part}: {statement}", "" if same else f"{found} instead of {expected}")

    def end(self):
        for cluster in self.clusters:
            cluster.shutdown()
        status = self.server.stop()
        self.report.check(f"{self.part}: drained", "" if status in (0, 143) else f"status {status}")


def turns(report, work):
    """Roles, passwords, permissions and schema of the last owner of a directory count."""
    home = work / "turns"
    shutil.rmtree(home, ignore_errors=True)
    root, old_root = ("cassandra", "changed"), ("cassandra", "cassandra")
    with Helenus(home, settings=HELENUS_AUTH) as server:
        owner = Owner(report, "turn 1, helenus", server)
        session = owner.login(old_root)
        for statement in [
            f"CREATE KEYSPACE ks WITH replication = {SIMPLE}",
            "CREATE TABLE ks.t (k int PRIMARY KEY, v text, gone int)",
            "CREATE TABLE ks.dropped (k int PRIMARY KEY)",
            "INSERT INTO ks.t (k, v, gone) VALUES (1, 'one', 1)",
            "CREATE ROLE readers",
            "CREATE ROLE bob WITH PASSWORD = 'b' AND LOGIN = true",
            "CREATE ROLE ann WITH PASSWORD = 'first' AND LOGIN = true",
            "GRANT readers TO ann",
            "GRANT SELECT ON ks.t TO readers",
            "GRANT MODIFY ON ks.t TO ann",
            "REVOKE MODIFY ON ks.t FROM ann",
            "DROP ROLE bob",
            "ALTER ROLE cassandra WITH PASSWORD = 'changed'",
        ]:
            session.execute(statement)
        owner.end()
    with Cassandra(home, settings=CASSANDRA_AUTH) as server:
        owner = Owner(report, "turn 2, cassandra", server)
        session = owner.login(root, timeout=300)
        owner.refuses(("bob", "b"))
        owner.refuses(old_root)
        owner.check(session, "SELECT role, can_login FROM system_auth.roles",
                    [("ann", True), ("cassandra", True), ("readers", False)])
        ann = owner.login(("ann", "first"))
        owner.check(ann, "SELECT v FROM ks.t", [("one",)])
        owner.check(ann, "INSERT INTO ks.t (k, v) VALUES (2, 'no')", "Unauthorized")
        owner.check(session, "LIST ROLES OF ann", [("ann", False, True, {}, "ALL"), ("readers", False, False, {}, "ALL")])
        for statement in [
            "ALTER ROLE ann WITH PASSWORD = 'second'",
            "CREATE ROLE carl WITH PASSWORD = 'c' AND LOGIN = true",
            "GRANT SELECT ON ks.t TO carl",
            "DROP ROLE readers",
            "ALTER TABLE ks.t ADD w int",
            "ALTER TABLE ks.t DROP gone",
            "DROP TABLE ks.dropped",
            "CREATE TYPE ks.pair (x int, y int)",
            "CREATE TABLE ks.new (k int PRIMARY KEY, p frozen<pair>)",
            f"CREATE KEYSPACE other WITH replication = {SIMPLE}",
            "INSERT INTO ks.t (k, v, w) VALUES (2, 'two', 2)",
            "INSERT INTO ks.new (k, p) VALUES (1, {x: 1, y: 2})",
        ]:
            session.execute(statement)
        server.drain()
        owner.end()
    with Helenus(home, settings=HELENUS_AUTH) as server:
        owner = Owner(report, "turn 3, helenus", server)
        session = owner.login(root)
        owner.refuses(("ann", "first"))
        owner.check(session, "SELECT role FROM system_auth.roles", [("ann",), ("carl",), ("cassandra",)])
        ann, carl = owner.login(("ann", "second")), owner.login(("carl", "c"))
        owner.check(ann, "SELECT v FROM ks.t", "Unauthorized")
        owner.check(carl, "SELECT k, v, w FROM ks.t", [(1, "one", None), (2, "two", 2)])
        owner.check(session, "SELECT gone FROM ks.t", "InvalidRequest")
        owner.check(session, "SELECT k FROM ks.dropped", "InvalidRequest")
        owner.check(session, "SELECT k, p.y FROM ks.new", [(1, 2)])
        for statement in ["DROP ROLE carl", "DROP TABLE ks.new", "ALTER TABLE ks.t ADD z int", "DROP KEYSPACE other",
                          "INSERT INTO ks.t (k, z) VALUES (3, 3)"]:
            session.execute(statement)
        owner.end()
        adopted = "a Cassandra has run on this directory" in server.log.read_text()
        report.check("turn 3: it is said", "" if adopted else "nothing in the log")
    size = server.log.stat().st_size
    with Helenus(home, settings=HELENUS_AUTH) as server:
        owner = Owner(report, "turn 4, helenus again", server)
        owner.check(owner.login(root), "SELECT z FROM ks.t WHERE k = 3", [(3,)])
        owner.end()
        text = server.log.read_text()[size:]
        report.check("turn 4: nothing is taken over", text if "has run on this directory" in text else "")
    with Cassandra(home, settings=CASSANDRA_AUTH) as server:
        owner = Owner(report, "turn 5, cassandra", server)
        session = owner.login(root, timeout=300)
        owner.refuses(("carl", "c"))
        owner.check(session, "SELECT role FROM system_auth.roles", [("ann",), ("cassandra",)])
        owner.check(session, "SELECT k FROM ks.new", "InvalidRequest")
        owner.check(session, "SELECT k, v, w, z FROM ks.t",
                    [(1, "one", None, None), (2, "two", 2, None), (3, None, None, 3)])
        owner.check(session, "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = 'other'", [])
        server.drain()
        owner.end()
