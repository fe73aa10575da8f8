"""A table whose indexes Helenus made: Cassandra reads its files beside the components that it does not know."""

import shutil

from dumps import dumps
from servers import Cassandra, CassandraFiles, Helenus, copy
from without import by_index

SIMPLE = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
MADE = [
    f"CREATE KEYSPACE made WITH replication = {SIMPLE}",
    "CREATE TABLE made.t (k int, c int, s text static, v text, n int, t text, m map<text, int>, l list<int>, "
    "PRIMARY KEY (k, c))",
    "CREATE INDEX legacy_v ON made.t (v)",
    "CREATE INDEX legacy_c ON made.t (c)",
    "CREATE INDEX legacy_s ON made.t (s)",
    "CREATE INDEX legacy_m ON made.t (keys(m))",
    "CREATE INDEX \"sai_N\" ON made.t (n) USING 'sai'",
    "CREATE INDEX sai_t ON made.t (t) USING 'sai' WITH OPTIONS = {'case_sensitive': 'false'}",
    "CREATE INDEX sai_m ON made.t (entries(m)) USING 'sai'",
    "CREATE INDEX sai_l ON made.t (values(l)) USING 'sai'",
    # ScyllaDB's form, which a Cassandra could not start with; the first is a second index of its column.
    "CREATE INDEX local_v ON made.t ((k), v)",
    "CREATE TABLE made.u (p int, q int, c int, v int, m map<text, int>, PRIMARY KEY ((p, q), c))",
    "CREATE INDEX local_u ON made.u ((p, q), v)",
    "CREATE INDEX local_m ON made.u ((p, q), keys(m))",
]
QUERIES = [
    *[f"v = 'v{n}'" for n in range(4)],
    "c = 3",
    "s = 'first'", "s = 'second'",
    "m CONTAINS KEY 'b'",
    "n >= 20 AND n < 60", "n = 41",
    "t = 'WORD1'", "t = 'word1'",
    "m['a'] = 5",
    "l CONTAINS 7",
    "n > 10 AND t = 'Word2'",
]


LOCAL = {
    "local_v": '{"pk":["k"],"ck":["v"]}',
    "local_u": '{"pk":["p","q"],"ck":["v"]}',
    "local_m": '{"pk":["p","q"],"ck":["keys(m)"]}',
}
PLAIN = {"local_v": "v", "local_u": "v", "local_m": "keys(m)"}


def targets(report, part, session, expected):
    """Targets of the local indexes; the legacy index beside one of them stays."""
    rows = session.execute("SELECT * FROM system_schema.indexes WHERE keyspace_name = 'made'")
    found = {row.index_name: row.options["target"] for row in rows}
    expected = {**expected, "legacy_v": "v"}
    wrong = {name: found.get(name) for name in expected if found.get(name) != expected[name]}
    report.check(f"{part}: targets of local indexes", str(wrong) if wrong else "")


def write(session, run):
    for k in range(3):
        session.execute(f"INSERT INTO made.t (k, s) VALUES ({k}, '{'second' if k == run else 'first'}')")
        for c in range(run, run + 8):
            session.execute(
                f"INSERT INTO made.t (k, c, v, n, t, m, l) VALUES ({k}, {c}, 'v{(c + run) % 4}', {10 * c + run}, "
                f"'Word{c % 3}', {{'a': {c}, '{'b' if c % 2 else 'c'}': 1}}, [{c}, {k}])"
            )
    session.execute(f"DELETE FROM made.t WHERE k = 1 AND c = {run + 2}")
    session.execute(f"DELETE n, m FROM made.t WHERE k = 2 AND c = {run + 3}")
    session.execute("DELETE FROM made.t WHERE k = 0 AND c > 8")


def answers(session):
    return {where: by_index(session, f"SELECT k, c FROM made.t WHERE {where}") for where in QUERIES}


def compare(report, part, expected, session):
    for where, found in answers(session).items():
        same = found == expected[where]
        report.check(f"{part}: WHERE {where}", "" if same else f"{found} instead of {expected[where]}")


def indexed(report, work):
    """Cassandra's tools read the files of a table with indexes of ours, and Cassandra answers by its own."""
    home = work / "indexed-here"
    shutil.rmtree(home, ignore_errors=True)
    with Helenus(home) as server:
        cluster, session = server.connect()
        for statement in MADE:
            session.execute(statement)
        write(session, 0)
        server.flush()
        write(session, 1)
        for c in range(4):
            session.execute(f"INSERT INTO made.u (p, q, c, v, m) VALUES (1, 2, {c}, {c % 2}, {{'a': 1}})")
        targets(report, "indexed", session, LOCAL)
        expected = answers(session)
        empty = [where for where, keys in expected.items() if not keys or isinstance(keys, str)]
        report.check("indexed: queries have answers", "\n".join(empty))
        cluster.shutdown()
        server.drain()
        server.stop()
    components = sorted(home.glob("data/made/t-*/*-Index+*.db"))
    report.check("indexed: there are components", "" if len(components) >= 9 else str(components))
    tools = copy(home, work / "indexed-tools")
    dumps(report, tools, ["made"], "indexed")
    cassandra = CassandraFiles(tools)
    out, status, errors = cassandra.tool("StandaloneVerifier", "-f", "-e", "made", "t")
    bad = status != 0 or "rror" in out + errors
    report.check("indexed: sstableverify", out + errors if bad else "")
    cassandra.end_tools()
    with Cassandra(home) as server:
        cluster, session = server.connect()
        compare(report, "indexed, there", expected, session)
        targets(report, "indexed, there", session, PLAIN)
        session.execute("ALTER TABLE made.u RENAME q TO r")
        session.execute("DROP INDEX made.local_m")
        session.execute("CREATE INDEX local_m ON made.u (c)")
        write(session, 2)
        server.nodetool("compact", "made")
        expected = answers(session)
        server.drain()
        cluster.shutdown()
        server.stop()
    left = sorted(f.name for f in home.glob("data/made/t-*/*-Index+*.db"))
    report.check("indexed, there: a compaction removes components of ours", ", ".join(left))
    with Helenus(home) as server:
        cluster, session = server.connect()
        compare(report, "indexed, back", expected, session)
        renamed = {**LOCAL, "local_u": LOCAL["local_u"].replace("q", "r"), "local_m": "c"}
        targets(report, "indexed, back", session, renamed)
        found = sorted(row.c for row in session.execute("SELECT c FROM made.u WHERE p = 1 AND r = 2 AND v = 1"))
        report.check("indexed, back: a local index", "" if found == [1, 3] else str(found))
        cluster.shutdown()
        server.stop()
