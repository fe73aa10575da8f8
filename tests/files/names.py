"""Columns whose names begin with letters beyond ASCII: files name cells by the order of columns."""

import shutil

from dumps import dumps
from servers import Cassandra, Helenus, copy

SIMPLE = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
STATICS = ["ß", "z", "sé", "sa"]
REGULARS = ["é", "a", "Z", "日本", "aé", "az", "🦀", "ö", "am", "l"]
SETS = {"sé", "sa", "ö", "am", "l"}
# Rows with a part of more than 63 columns name them in another form.
WIDE = [f"c{n:02}" for n in range(64)] + ["é", "Ω", "ab"]


def made(keyspace):
    columns = [f'"{name}" {kind(name)} static' for name in STATICS] + [f'"{name}" {kind(name)}' for name in REGULARS]
    wide = ", ".join(f'"{name}" int' for name in WIDE)
    return [
        f"CREATE KEYSPACE {keyspace} WITH replication = {SIMPLE}",
        f"CREATE TABLE {keyspace}.t (k int, c int, {', '.join(columns)}, PRIMARY KEY (k, c))",
        f"CREATE TABLE {keyspace}.wide (k int, c int, {wide}, PRIMARY KEY (k, c))",
    ]


def kind(name):
    return "set<int>" if name in SETS else "int"


class Rows:
    """What two tables of a keyspace hold: column by column, by key."""

    def __init__(self, keyspace):
        self.keyspace = keyspace
        self.statics = {}
        # The run that wrote last.
        self.last = None
        self.rows = {}
        self.columns = {"t": list(REGULARS), "wide": list(WIDE)}

    def write(self, session, run):
        """Rows that have all columns, one of them, or some; of each run others."""
        for table, names in self.columns.items():
            parts = [names, names[::2], names[1::3], *[[name] for name in names[:12]], names[-1:]]
            for c, part in enumerate(parts):
                key = (table, run, c)
                self.put(session, key, part, self.rows.setdefault(key, {}), 100 * run + c)
            # A row that the run before wrote gets another value in some columns.
            if self.last is not None:
                key = (table, self.last, 0)
                self.put(session, key, names[1::2], self.rows[key], 7000 + run)
        self.last = run
        values = {name: self.value(name, n + 50 * run) for n, name in enumerate(STATICS[run % 2:])}
        listed = ", ".join(f'"{name}"' for name in values)
        texts = ", ".join(str(value) for value in values.values())
        session.execute(f"INSERT INTO {self.keyspace}.t (k, {listed}) VALUES ({run}, {texts})")
        self.statics[run] = values

    def put(self, session, key, names, row, seed):
        values = {name: self.value(name, seed + 10000 * n) for n, name in enumerate(names)}
        row.update(values)
        table, k, c = key
        listed = ", ".join(f'"{name}"' for name in values)
        texts = ", ".join(str(value) for value in values.values())
        session.execute(f"INSERT INTO {self.keyspace}.{table} (k, c, {listed}) VALUES ({k}, {c}, {texts})")

    @staticmethod
    def value(name, number):
        return {number, number + 1} if name in SETS else number

    def add(self, session, name):
        session.execute(f'ALTER TABLE {self.keyspace}.t ADD "{name}" int')
        self.columns["t"].append(name)

    def check(self, report, part, session):
        for table in self.columns:
            found = {}
            result = session.execute(f"SELECT * FROM {self.keyspace}.{table}")
            for values in result:
                row = dict(zip(result.column_names, values))
                key = (table, row.pop("k"), row.pop("c"))
                found[key] = {n: set(v) if n in SETS else v for n, v in row.items() if v is not None}
            expected = {key: row for key, row in self.rows.items() if key[0] == table}
            if table == "t":
                expected = {key: {**row, **self.statics[key[1]]} for key, row in expected.items()}
            wrong = [f"{key}: {found.get(key)} instead of {row}" for key, row in expected.items() if found.get(key) != row]
            extra = [str(key) for key in found if key not in expected]
            report.check(f"{part}: rows of {self.keyspace}.{table}", "\n".join(wrong + extra))

    def described(self, session):
        """Names as SELECT * has them, and DESCRIBE's statement."""
        out = []
        for table in self.columns:
            out.append(session.execute(f"SELECT * FROM {self.keyspace}.{table} LIMIT 1").column_names)
            out.append(session.execute(f"DESCRIBE TABLE {self.keyspace}.{table}").one().create_statement)
        return out


def names(report, work):
    """Columns with names beyond ASCII have the same cells in both programs, whoever wrote them."""
    home = work / "names"
    shutil.rmtree(home, ignore_errors=True)
    ours, theirs = Rows("ours"), Rows("theirs")
    with Helenus(home) as server:
        cluster, session = server.connect()
        for statement in made("ours"):
            session.execute(statement)
        ours.write(session, 0)
        server.flush()
        ours.add(session, "ü")
        ours.write(session, 1)
        ours.check(report, "names, helenus", session)
        shapes = ours.described(session)
        cluster.shutdown()
        server.drain()
        server.stop()
    dumps(report, copy(home, work / "names-tools"), ["ours"], "names, helenus")
    with Cassandra(home) as server:
        cluster, session = server.connect()
        ours.check(report, "names, there", session)
        found = ours.described(session)
        report.check("names, there: order of columns", "" if found == shapes else f"{found}\ninstead of\n{shapes}")
        ours.write(session, 2)
        for statement in made("theirs"):
            session.execute(statement)
        theirs.write(session, 0)
        server.flush()
        theirs.add(session, "ä")
        theirs.write(session, 1)
        theirs.check(report, "names, cassandra", session)
        shapes = theirs.described(session)
        server.drain()
        cluster.shutdown()
        server.stop()
    with Helenus(home) as server:
        cluster, session = server.connect()
        for rows in (ours, theirs):
            rows.check(report, "names, back", session)
        found = theirs.described(session)
        report.check("names, back: order of columns", "" if found == shapes else f"{found}\ninstead of\n{shapes}")
        for rows in (ours, theirs):
            rows.write(session, 3)
        server.flush()
        server.nodetool("compact")
        for rows in (ours, theirs):
            rows.check(report, "names, compacted", session)
        cluster.shutdown()
        server.drain()
        server.stop()
    dumps(report, copy(home, work / "names-tools"), ["ours", "theirs"], "names, compacted")
    with Cassandra(home) as server:
        cluster, session = server.connect()
        for rows in (ours, theirs):
            rows.check(report, "names, there again", session)
        cluster.shutdown()
        server.stop()
