"""A directory of Cassandra's with indexes, and with definitions that Helenus does not have."""

import shutil
import time

from cassandra import ReadFailure

from servers import Cassandra, Helenus, copy

SIMPLE = "{'class': 'SimpleStrategy', 'replication_factor': 1}"

# Java's functions need a setting in Cassandra; views too.
CASSANDRA_MORE = """\
user_defined_functions_enabled: true
materialized_views_enabled: true
"""

MADE = [
    f"CREATE KEYSPACE ks WITH replication = {SIMPLE}",
    "CREATE TABLE ks.t (k int, c int, v text, m map<text, text>, w text, x text, s text, u text, PRIMARY KEY (k, c))",
    "CREATE INDEX by_v ON ks.t (v)",
    "CREATE INDEX by_m ON ks.t (entries(m)) USING 'sai'",
    "CREATE INDEX by_w ON ks.t (w)",
    "CREATE INDEX by_s ON ks.t (s) USING 'sai'",
    "CREATE MATERIALIZED VIEW ks.by_c AS SELECT k, c, v FROM ks.t WHERE c IS NOT NULL AND k IS NOT NULL "
    "PRIMARY KEY (c, k) WITH CLUSTERING ORDER BY (k DESC)",
    "CREATE FUNCTION ks.twice(x int) RETURNS NULL ON NULL INPUT RETURNS int LANGUAGE java AS $$return x * 2;$$",
    "CREATE FUNCTION ks.plus(a int, b int) CALLED ON NULL INPUT RETURNS int LANGUAGE java AS 'return a + b;'",
    "CREATE AGGREGATE ks.total(int) SFUNC plus STYPE int FINALFUNC twice INITCOND 0",
]
# The index by_w has a deletion of 'same' with the timestamp of the row's 'same' in x, where an index of this name is
# created later; for it both must be in one memtable. A column s has 's', which u never has.
ONCE = [
    "INSERT INTO ks.t (k, c, w, x, s, u) VALUES (9, 9, 'same', 'same', 's', 'u') USING TIMESTAMP 1000",
    "UPDATE ks.t USING TIMESTAMP 2000 SET w = 'other' WHERE k = 9 AND c = 9",
]
ANEW = [
    "DROP INDEX ks.by_w",
    "CREATE INDEX by_w ON ks.t (x)",
    "DROP INDEX ks.by_s",
    "CREATE INDEX by_s ON ks.t (u) USING 'sai'",
]
BY_NEW_INDEX = ["SELECT k, c FROM ks.t WHERE x = 'same'", "SELECT k, c FROM ks.t WHERE u = 'u'"]


class Rows:
    """Writes to ks.t, and which rows it has after them: v and m['a'] by key."""

    def __init__(self):
        self.rows = {}
        self.values = set()

    def put(self, session, key, value):
        session.execute("INSERT INTO ks.t (k, c, v, m) VALUES (%s, %s, %s, %s)", (*key, value, {"a": value}))
        self.rows[key] = value
        self.values.add(value)

    def delete(self, session, key):
        session.execute("DELETE FROM ks.t WHERE k = %s AND c = %s", key)
        del self.rows[key]

    def check(self, report, part, session):
        """Every value that any row ever had, by each of both indexes."""
        for column in ("v", "m['a']"):
            for value in sorted(self.values):
                statement = f"SELECT k, c FROM ks.t WHERE {column} = '{value}'"
                expected = sorted(key for key, other in self.rows.items() if other == value)
                check(report, part, session, statement, expected)


def check(report, part, session, statement, expected):
    found = by_index(session, statement)
    report.check(f"{part}: {statement}", "" if found == expected else f"{found} instead of {expected}")


def by_index(session, statement):
    """The keys that a query finds, once its index is built."""
    deadline = time.monotonic() + 120
    while True:
        try:
            return sorted((row.k, row.c) for row in session.execute(statement))
        except ReadFailure as error:
            if time.monotonic() > deadline:
                return repr(error)
            time.sleep(0.5)


def index_files(home):
    """Files that only an index of Cassandra's has."""
    table = home / "data/ks"
    return sorted(str(f.relative_to(home)) for f in [*table.glob("t-*/.*/*"), *table.glob("t-*/*-SAI+*")])


def without(report, work):
    """Functions and views of a directory are refused and left out on request; indexes are taken over, or left out."""
    home = work / "without"
    shutil.rmtree(home, ignore_errors=True)
    rows = Rows()
    with Cassandra(home, settings=CASSANDRA_MORE) as server:
        cluster, session = server.connect()
        for statement in MADE + ONCE:
            session.execute(statement)
        for c in range(12):
            rows.put(session, (c % 3, c), f"v{c % 4}")
        server.flush()
        rows.put(session, (0, 0), "moved")
        rows.delete(session, (1, 1))
        server.drain()
        cluster.shutdown()
        server.stop()
    report.check("without: Cassandra has index files", "" if len(index_files(home)) > 10 else str(index_files(home)))
    refused(report, home)
    taken_over(report, copy(home, work / "indexed"), rows)
    left_out(report, home)


def refused(report, home):
    names = ["materialized view ks.by_c", "function ks.plus", "function ks.twice", "aggregate ks.total",
             "--without views,functions"]
    before = index_files(home)
    with Helenus(home) as server:
        status = server.process.wait(60)
        text = server.log.read_text()
    wrong = [name for name in names if name not in text] + [name for name in ["index ks.t"] if name in text]
    report.check("without: refused with all names", "" if status == 3 and not wrong else f"{status} {wrong}\n{text}")
    left = home / "data/left-out.cql"
    report.check("without: nothing was changed",
                 "there is a file of definitions" if left.exists() else str(index_files(home)) * (index_files(home) != before))


def taken_over(report, home, rows):
    """Both programs answer by index with the rows of both."""
    part = "indexes taken over"
    with Helenus(home, settings=["--without", "functions,views"]) as server:
        cluster, session = server.connect()
        rows.check(report, part, session)
        report.check(f"{part}: no files of Cassandra's indexes", "\n".join(index_files(home)))
        # Those built here. That none counts as built for a Cassandra is seen from its answers below.
        for _ in range(60):
            built = [row.index_name for row in session.execute("SELECT * FROM system.\"IndexInfo\" WHERE table_name = 'ks'")]
            if len(built) == 4:
                break
            time.sleep(0.5)
        report.check(f"{part}: all of them are built", "" if built == ["by_m", "by_s", "by_v", "by_w"] else str(built))
        rows.put(session, (2, 20), "v20")
        rows.put(session, (0, 3), "moved")
        rows.delete(session, (2, 2))
        rows.check(report, f"{part}, written to", session)
        server.flush()
        server.nodetool("compact", "ks")
        rows.check(report, f"{part}, compacted", session)
        for statement in ANEW:
            session.execute(statement)
        for statement in BY_NEW_INDEX:
            check(report, part, session, statement, [(9, 9)])
        cluster.shutdown()
        server.stop()
    with Helenus(home) as server:
        cluster, session = server.connect()
        rows.check(report, f"{part}, restarted", session)
        rows.put(session, (1, 21), "v20")
        rows.delete(session, (2, 5))
        cluster.shutdown()
        server.drain()
        server.stop()
    back = f"{part}, back in Cassandra"
    with Cassandra(home, settings=CASSANDRA_MORE) as server:
        cluster, session = server.connect()
        found = sorted(
            (row.index_name, row.kind, row.options["target"])
            for row in session.execute("SELECT * FROM system_schema.indexes WHERE keyspace_name = 'ks'")
        )
        expected = [("by_m", "CUSTOM", "entries(m)"), ("by_s", "CUSTOM", "u"), ("by_v", "COMPOSITES", "v"),
                    ("by_w", "COMPOSITES", "x")]
        report.check(f"{back}: definitions", "" if found == expected else str(found))
        rows.check(report, back, session)
        for statement in BY_NEW_INDEX:
            check(report, back, session, statement, [(9, 9)])
        rows.put(session, (0, 30), "moved")
        rows.delete(session, (0, 6))
        rows.check(report, f"{back}, written to", session)
        server.drain()
        cluster.shutdown()
        server.stop()
    with Helenus(home) as server:
        cluster, session = server.connect()
        rows.check(report, f"{part}, after Cassandra again", session)
        report.check(f"{part}, again no files of Cassandra's indexes", "\n".join(index_files(home)))
        cluster.shutdown()
        server.stop()


def left_out(report, home):
    """The statements of left-out.cql make all definitions again in Cassandra, with the rows of both programs."""
    left = home / "data/left-out.cql"
    with Helenus(home, settings=["--without", "functions,views,indexes"]) as server:
        cluster, session = server.connect()
        count = session.execute("SELECT count(*) FROM ks.t").one()[0]
        report.check("without: all rows", "" if count == 12 else str(count))
        session.execute("INSERT INTO ks.t (k, c, v, m) VALUES (1, 55, 'v55', {'a': '55'})")
        session.execute("DELETE FROM ks.t WHERE k = 0 AND c = 3")
        server.nodetool("compact", "ks")
        cluster.shutdown()
        server.stop()
    with Helenus(home) as server:
        cluster, session = server.connect()
        count = session.execute("SELECT count(*) FROM ks.t").one()[0]
        report.check("without: the next start needs no option", "" if count == 12 else str(count))
        cluster.shutdown()
        server.stop()
    with Cassandra(home, settings=CASSANDRA_MORE) as server:
        cluster, session = server.connect()
        for kind in ("views", "indexes", "functions", "aggregates"):
            found = list(session.execute(f"SELECT * FROM system_schema.{kind} WHERE keyspace_name = 'ks'"))
            report.check(f"without: Cassandra has no {kind}", str(found) if found else "")
        lines = [line for line in left.read_text().splitlines() if not line.startswith("--")]
        for kind in ("CREATE FUNCTION", "CREATE AGGREGATE", "CREATE"):
            for statement in [s.strip() for s in "\n".join(lines).split(";\n")]:
                is_function = statement.startswith(("CREATE FUNCTION", "CREATE AGGREGATE"))
                if statement and (statement.startswith(kind) if kind != "CREATE" else not is_function):
                    session.execute(statement.rstrip(";"))
        found = session.execute("SELECT ks.total(c) AS n FROM ks.t WHERE k = 0").one().n
        report.check("without: functions are made again", "" if found == 30 else str(found))
        # A view is built in the background.
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            built = list(session.execute("SELECT status FROM system_distributed.view_build_status"))
            if built and all(row.status == "SUCCESS" for row in built):
                break
            time.sleep(0.5)
        server.nodetool("drain")
        cluster.shutdown()
        server.stop()
    with Cassandra(home, settings=CASSANDRA_MORE) as server:
        cluster, session = server.connect()
        for query in ["SELECT k, c FROM ks.by_c WHERE c = 55", "SELECT k, c FROM ks.t WHERE v = 'v55'",
                      "SELECT k, c FROM ks.t WHERE m['a'] = '55'"]:
            check(report, "without", session, query, [(1, 55)])
        for query in ["SELECT k, c FROM ks.by_c WHERE c = 3", "SELECT k, c FROM ks.t WHERE v = 'v3' AND k = 0"]:
            check(report, "without", session, query, [])
        check(report, "without", session, "SELECT k, c FROM ks.t WHERE w = 'other'", [(9, 9)])
        cluster.shutdown()
        server.stop()
