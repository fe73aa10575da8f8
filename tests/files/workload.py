"""The tables, what is written to them and what is asked: the same for both programs."""

import datetime
import decimal
import ipaddress
import uuid

from cassandra.util import Date, Duration, SortedSet, Time

KEYSPACE = "files"
# Tables whose files are written anew in the versions of Cassandra 5.
UPGRADED = ("all_types", "clustered", "wide_static")

SCHEMA = f"""
CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}};
CREATE TYPE {KEYSPACE}.address (street text, zip int, tags frozen<set<text>>);
CREATE TYPE {KEYSPACE}."Pair" ("Left" int, "right side" frozen<address>);
CREATE TABLE {KEYSPACE}.all_types (k int PRIMARY KEY, a ascii, b bigint, bl blob, bo boolean, d date,
  de decimal, db double, du duration, f float, ine inet, i int, s smallint, t text, ti time, ts timestamp,
  tu timeuuid, tin tinyint, u uuid, vi varint, l list<int>, st set<text>, m map<text, int>,
  fl frozen<list<text>>, fs frozen<set<int>>, fm frozen<map<int, text>>, tup tuple<int, text>, ud address,
  fud frozen<address>, pa frozen<"Pair">, v vector<float, 3>, vt vector<text, 2>,
  nest map<int, frozen<list<text>>>);
CREATE TABLE {KEYSPACE}.clustered (p text, q int, c1 text, c2 int, c3 timeuuid, s1 text static,
  s2 set<int> static, v int, w text, mm map<text, text>, PRIMARY KEY ((p, q), c1, c2, c3))
  WITH CLUSTERING ORDER BY (c1 ASC, c2 DESC, c3 ASC);
CREATE TABLE {KEYSPACE}.odd_order (k blob, c1 decimal, c2 boolean, c3 inet, c4 frozen<list<int>>, v text,
  PRIMARY KEY (k, c1, c2, c3, c4)) WITH CLUSTERING ORDER BY (c1 DESC, c2 ASC, c3 DESC, c4 ASC);
CREATE TABLE {KEYSPACE}.wide (k int, c int, v text, PRIMARY KEY (k, c));
CREATE TABLE {KEYSPACE}.wide_static (k int, c1 text, c2 int, s text static, v text,
  PRIMARY KEY (k, c1, c2)) WITH CLUSTERING ORDER BY (c1 DESC, c2 ASC)
  AND compression = {{'class': 'LZ4Compressor', 'lz4_compressor_type': 'high'}};
CREATE TABLE {KEYSPACE}.plain (k int, c text, v int, w text, PRIMARY KEY (k, c))
  WITH compression = {{'enabled': 'false'}};
CREATE TABLE {KEYSPACE}.chunks (k int PRIMARY KEY, v text, n blob)
  WITH compression = {{'class': 'LZ4Compressor', 'chunk_length_in_kb': 4}} AND bloom_filter_fp_chance = 0.1;
CREATE TABLE {KEYSPACE}.deletions (k int, c int, d int, s text static, v text, l list<int>, m map<int, text>,
  u address, PRIMARY KEY (k, c, d));
CREATE TABLE {KEYSPACE}.expiring (k int, c int, v text, m map<int, text>, PRIMARY KEY (k, c))
  WITH default_time_to_live = 86400 AND gc_grace_seconds = 3600;
CREATE TABLE {KEYSPACE}.altered (k int PRIMARY KEY, a int, b text, z set<int>);
CREATE TABLE {KEYSPACE}."Mixed_Case" ("Key" int, "Cl" text, "Va lue" text, "select" int,
  PRIMARY KEY ("Key", "Cl")) WITH comment = 'it''s here';
CREATE TABLE {KEYSPACE}.counts (k int, c int, s counter static, a counter, b counter, PRIMARY KEY (k, c));
CREATE TABLE {KEYSPACE}.never_written (k int PRIMARY KEY, v text);
"""

# Tables that Cassandra alone writes: algorithms that Helenus reads.
CODECS = {
    "snappy": "{'class': 'SnappyCompressor', 'chunk_length_in_kb': 4}",
    "deflate": "{'class': 'DeflateCompressor', 'chunk_length_in_kb': 8}",
    "zstd": "{'class': 'ZstdCompressor', 'compression_level': 5}",
    "noop": "{'class': 'NoopCompressor'}",
    "lz4_high": "{'class': 'LZ4Compressor', 'lz4_compressor_type': 'high', 'min_compress_ratio': 1.5}",
}

# Timestamps and ids are fixed, so that a difference between two runs is a difference of programs.
T0 = 1_700_000_000_000_000


def create(session):
    for statement in SCHEMA.split(";\n"):
        if statement.strip():
            session.execute(statement)


def create_codecs(session):
    for name, compression in CODECS.items():
        session.execute(
            f"CREATE TABLE {KEYSPACE}.codec_{name} (k int, c int, v text, b blob, PRIMARY KEY (k, c))"
            f" WITH compression = {compression}"
        )


def fill_codecs(session):
    run = Writer(session)
    for name in CODECS:
        for k in range(20):
            for c in range(10):
                # Text that compresses and bytes that do not.
                noise = b"".join(uuid.uuid5(uuid.NAMESPACE_OID, f"{k} {c} {i}").bytes for i in range(20))
                run(f"INSERT INTO {{ks}}.codec_{name} (k, c, v, b) VALUES (?, ?, ?, ?) USING {{at}}",
                    k, c, f"{name} {k} {c} " * 40, noise)


def codec_queries():
    for name in CODECS:
        yield f"SELECT * FROM {KEYSPACE}.codec_{name}", 5000
        yield f"SELECT * FROM {KEYSPACE}.codec_{name}", 9
        yield f"SELECT c, v FROM {KEYSPACE}.codec_{name} WHERE k = 7 AND c > 3", 5000


def timeuuid(n):
    return uuid.UUID(int=(0x5F1F1AE0_E56D_11F1_8000_000000000000 + n) | (n << 96) & (0xFFFF << 96))


class Writer:
    """Prepared writes with timestamps that only grow."""

    def __init__(self, session):
        self.session = session
        self.prepared = {}
        self.at = T0

    def __call__(self, statement, *values):
        """Runs a statement in which `{at}` stands for `USING TIMESTAMP` with the next one."""
        self.at += 1000
        statement = statement.replace("{ks}", KEYSPACE)
        marks = "{at}" in statement
        text = statement.replace("{at}", "TIMESTAMP ?")
        if text not in self.prepared:
            self.prepared[text] = self.session.prepare(text)
        if not marks:
            return self.session.execute(self.prepared[text], values)
        before = statement[: statement.index("{at}")].count("?")
        values = values[:before] + (self.at,) + values[before:]
        return self.session.execute(self.prepared[text], values)


ALL_COLUMNS = """k a b bl bo d de db du f ine i s t ti ts tu tin u vi l st m fl fs fm tup ud fud pa v vt
    nest""".split()


def all_types_rows():
    """Ordinary values, extremes, empty values where there are such, and nulls."""
    # A set inside a user type is kept in the order in which the driver sent it, here and in Cassandra:
    # Python's own set would send another order in every run.
    address = ("Main St", 12345, SortedSet(["a", "b"]))
    ordinary = dict(
        a="ascii", b=1 << 40, bl=bytes(range(256)), bo=True, d=Date("2024-02-29"),
        de=decimal.Decimal("-12345678901234567890.0123456789"), db=3.141592653589793,
        du=Duration(14, 3, 5_000_000_001), f=1.5,
        ine=ipaddress.ip_address("192.168.7.9"), i=-7, s=-300, t="grüße, 東京 \"q\" 'x' \\ \n\t",
        ti=Time("13:14:15.123456789"), ts=datetime.datetime(2024, 2, 29, 12, 30, 45, 678000),
        tu=timeuuid(1), tin=-8, u=uuid.UUID(int=77), vi=-(1 << 100), l=[3, 1, 2, 1], st={"y", "x", ""},
        m={"one": 1, "two": 2}, fl=["b", "a", ""], fs={5, -5, 0}, fm={2: "b", 1: "a"}, tup=(1, "x"),
        ud=address, fud=address, pa=(4, address), v=[0.5, -1.25, 3e30], vt=["first", ""],
        nest={1: ["a", "b"], 2: []},
    )
    yield 1, ordinary
    yield 2, dict(
        a="", b=-(1 << 63), bl=b"", bo=False, d=Date(-719528), de=decimal.Decimal(0), db=float("-inf"),
        du=Duration(-1, -2, -3), f=float("inf"), ine=ipaddress.ip_address("::1"), i=(1 << 31) - 1,
        s=32767, t="", ti=Time(0), ts=datetime.datetime(1969, 12, 31, 23, 59, 59, 999000),
        tu=timeuuid(2), tin=127, u=uuid.UUID(int=(1 << 128) - 1), vi=0, l=[-1], st={"z"}, m={"": 0},
        fl=[], fs=set(), fm={}, tup=(None, None), ud=("s", None, None), fud=(None, None, None),
        pa=(None, None), v=[0.0, -0.0, 1.0], vt=["", ""], nest={-1: ["x" * 300]},
    )
    yield 3, dict(db=0.1, f=0.1, de=decimal.Decimal("1E+30"), vi=1 << 64, tup=(5, None), i=0)
    yield 4, {}
    yield 5, dict(ordinary, t="x" * 100_000, bl=b"\0" * 70_000)
    for k in range(10, 60):
        yield k, dict(i=k, t=f"row {k}", b=k * k, u=uuid.UUID(int=k), l=list(range(k % 5)))


def fill_first(session):
    """Before the first flush."""
    run = Writer(session)
    columns = ", ".join(ALL_COLUMNS)
    marks = ", ".join("?" * len(ALL_COLUMNS))
    for k, row in all_types_rows():
        values = [k] + [row.get(c) for c in ALL_COLUMNS[1:]]
        if k == 4:
            run("INSERT INTO {ks}.all_types (k) VALUES (?) USING {at}", k)
        else:
            run(f"INSERT INTO {{ks}}.all_types ({columns}) VALUES ({marks}) USING {{at}}", *values)
    for p in range(4):
        for n in range(40):
            run("INSERT INTO {ks}.clustered (p, q, c1, c2, c3, v, w, mm) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
                " USING {at}", f"p{p}", p, f"c{n % 5}", n % 7, timeuuid(n), n, f"w{n}", {"n": str(n)})
        run("UPDATE {ks}.clustered USING {at} SET s1 = ?, s2 = s2 + ? WHERE p = ? AND q = ?",
            f"static {p}", {p, 100}, f"p{p}", p)
    # A partition with nothing but static columns.
    run("UPDATE {ks}.clustered USING {at} SET s1 = ? WHERE p = ? AND q = ?", "alone", "only", 1)
    for n, c1 in enumerate(["1", "-1.5", "1E+10", "0", "1.0000001"]):
        for ine in ["10.0.0.1", "::1", "9.9.9.9"]:
            run("INSERT INTO {ks}.odd_order (k, c1, c2, c3, c4, v) VALUES (?, ?, ?, ?, ?, ?) USING {at}",
                bytes([n % 2, 255]), decimal.Decimal(c1), n % 2 == 0, ipaddress.ip_address(ine),
                list(range(n)), f"{c1} {ine}")
    for c in range(3000):
        run("INSERT INTO {ks}.wide (k, c, v) VALUES (?, ?, ?) USING {at}", 1, c, f"{c:06}" * 30)
    for c in range(10):
        run("INSERT INTO {ks}.wide (k, c, v) VALUES (?, ?, ?) USING {at}", 2, c, str(c))
    run("DELETE FROM {ks}.wide USING {at} WHERE k = ? AND c >= ? AND c < ?", 1, 500, 900)
    run("DELETE FROM {ks}.wide USING {at} WHERE k = ? AND c > ?", 1, 2990)
    for c in range(1500):
        run("INSERT INTO {ks}.wide_static (k, c1, c2, v) VALUES (?, ?, ?, ?) USING {at}",
            1, f"k{c % 30:03}", c, f"{c:05}" * 20)
    run("UPDATE {ks}.wide_static USING {at} SET s = ? WHERE k = ?", "the static of a wide partition", 1)
    for k in range(50):
        for c in range(20):
            run("INSERT INTO {ks}.plain (k, c, v, w) VALUES (?, ?, ?, ?) USING {at}",
                k, f"c{c:02}", k * c, "w" * (k + c))
        run("INSERT INTO {ks}.chunks (k, v, n) VALUES (?, ?, ?) USING {at}", k, f"value {k}" * 50,
            bytes((k * 7 + i * i) % 256 for i in range(2000)))
    fill_deletions(run)
    for k in range(5):
        run("INSERT INTO {ks}.expiring (k, c, v) VALUES (?, ?, ?)", k, 0, "by the table's default")
        run("INSERT INTO {ks}.expiring (k, c, v) VALUES (?, ?, ?) USING TTL 1000000", k, 1, "longer")
        run("INSERT INTO {ks}.expiring (k, c, v) VALUES (?, ?, ?) USING TTL 1", k, 2, "gone at once")
        run("INSERT INTO {ks}.expiring (k, c, v) VALUES (?, ?, ?) USING TTL 0", k, 3, "for ever")
        run("UPDATE {ks}.expiring USING TTL 1 SET v = ? WHERE k = ? AND c = ?", "gone", k, 4)
        run("UPDATE {ks}.expiring USING TTL 500000 SET m = m + ? WHERE k = ? AND c = ?", {1: "a"}, k, 5)
        run("UPDATE {ks}.expiring USING TTL 1 SET m = m + ? WHERE k = ? AND c = ?", {2: "b"}, k, 5)
    fill_counts(run, 1)
    run("DELETE a FROM {ks}.counts WHERE k = ? AND c = ?", 1, 1)
    run("DELETE FROM {ks}.counts WHERE k = ?", 2)
    for k in range(20):
        run("INSERT INTO {ks}.altered (k, a, b, z) VALUES (?, ?, ?, ?) USING {at}", k, k, f"b{k}", {k, 1})
        run('INSERT INTO {ks}."Mixed_Case" ("Key", "Cl", "Va lue", "select") VALUES (?, ?, ?, ?) USING {at}',
            k % 3, f"C{k}", f"V{k}", k)
    return run.at


def fill_counts(run, factor):
    """Counters, of statics too; what is deleted between two calls is not counted again."""
    for k in (0, 1, 3):
        for c in range(4):
            run("UPDATE {ks}.counts SET a = a + ?, b = b - ? WHERE k = ? AND c = ?", factor * (k + c), c, k, c)
        run("UPDATE {ks}.counts SET s = s + ? WHERE k = ?", factor * 1000, k)
    run("UPDATE {ks}.counts SET a = a + ? WHERE k = ? AND c = ?", factor * ((1 << 60) - 1), 4, 4)


def fill_deletions(run):
    """Each kind of deletion, over data and over nothing."""
    for k in range(12):
        for c in range(6):
            for d in range(3):
                run("INSERT INTO {ks}.deletions (k, c, d, v, l, m, u) VALUES (?, ?, ?, ?, ?, ?, ?)"
                    " USING {at}", k, c, d, f"{k} {c} {d}", [c, d], {c: "c", d + 10: "d"}, ("s", d, {"t"}))
        run("UPDATE {ks}.deletions USING {at} SET s = ? WHERE k = ?", f"s{k}", k)
    at = "DELETE {} FROM {ks}.deletions USING {at} WHERE "
    delete = lambda what, where, *v: run(at.replace("{}", what) + where, *v)
    delete("", "k = ?", 0)
    run("INSERT INTO {ks}.deletions (k, c, d, v) VALUES (?, ?, ?, ?) USING {at}", 0, 9, 9, "after the deletion")
    delete("", "k = ? AND c = ? AND d = ?", 1, 2, 1)
    delete("", "k = ? AND c = ?", 1, 3)
    delete("v", "k = ? AND c = ? AND d = ?", 2, 0, 0)
    delete("l", "k = ? AND c = ? AND d = ?", 2, 1, 1)
    run("UPDATE {ks}.deletions USING {at} SET l = ? + l WHERE k = ? AND c = ? AND d = ?", [5, 6], 2, 1, 1)
    delete("m[2]", "k = ? AND c = ? AND d = ?", 2, 2, 2)
    delete("u", "k = ? AND c = ? AND d = ?", 2, 3, 0)
    delete("u.zip", "k = ? AND c = ? AND d = ?", 2, 3, 1)
    delete("l, m", "k = ? AND c = ? AND d = ?", 2, 4, 0)
    delete("s", "k = ?", 3)
    delete("", "k = ? AND c > ? AND c <= ?", 4, 1, 4)
    delete("", "k = ? AND c >= ?", 5, 3)
    delete("", "k = ? AND c < ?", 6, 2)
    delete("", "k = ? AND c = ? AND d > ?", 7, 2, 0)
    delete("", "k = ? AND c >= ? AND c <= ?", 8, 0, 2)
    delete("", "k = ? AND c >= ? AND c <= ?", 8, 2, 4)
    delete("", "k = ? AND (c, d) > (?, ?) AND (c, d) < (?, ?)", 9, 1, 1, 3, 0)
    run("UPDATE {ks}.deletions USING {at} SET l = ?, m = ? WHERE k = ? AND c = ? AND d = ?",
        [7, 8], {}, 10, 0, 0)
    run("UPDATE {ks}.deletions USING {at} SET v = null WHERE k = ? AND c = ? AND d = ?", 10, 1, 1)
    delete("", "k = ?", 1000)
    delete("", "k = ? AND c = ?", 1001, 1)


def fill_second(session, at):
    """Between the first flush and the second: overwrites, deletions of flushed data, ALTER."""
    for statement in [
        "ALTER TABLE {ks}.altered DROP b",
        "ALTER TABLE {ks}.altered DROP z",
        "ALTER TABLE {ks}.altered ADD c timestamp",
        "ALTER TABLE {ks}.altered ADD z set<int>",
        "ALTER TABLE {ks}.chunks WITH compression = {'enabled': 'false'} AND comment = 'now plain'",
        "ALTER TYPE {ks}.address ADD country text",
    ]:
        session.execute(statement.replace("{ks}", KEYSPACE))
    run = Writer(session)
    run.at = at
    for k in range(10, 20):
        run("UPDATE {ks}.all_types USING {at} SET t = ?, l = l + ?, st = st + ?, m['new'] = ?, i = null"
            " WHERE k = ?", f"second {k}", [k], {f"s{k}"}, k, k)
        run("INSERT INTO {ks}.altered (k, a, c, z) VALUES (?, ?, ?, ?)", k, k * 10,
            datetime.datetime(2025, 1, 1, 0, 0, k), {k + 100})
        run("INSERT INTO {ks}.chunks (k, v) VALUES (?, ?) USING {at}", k, f"second {k}")
        run("DELETE FROM {ks}.plain USING {at} WHERE k = ? AND c >= ? AND c < ?", k, "c05", "c10")
    # Older than what is there: must stay invisible.
    session.execute(f"INSERT INTO {KEYSPACE}.chunks (k, v) VALUES (1, 'too old') USING TIMESTAMP 1")
    session.execute(f"INSERT INTO {KEYSPACE}.chunks (k, v) VALUES (2000, 'negative') USING TIMESTAMP -5")
    run("DELETE FROM {ks}.clustered USING {at} WHERE p = ? AND q = ? AND c1 = ?", "p1", 1, "c3")
    run("UPDATE {ks}.clustered USING {at} SET s2 = s2 - ? WHERE p = ? AND q = ?", {100}, "p2", 2)
    run("DELETE FROM {ks}.wide USING {at} WHERE k = ? AND c >= ? AND c <= ?", 1, 800, 1200)
    for c in range(850, 860):
        run("INSERT INTO {ks}.wide (k, c, v) VALUES (?, ?, ?) USING {at}", 1, c, f"again {c}")
    for c in range(600, 700):
        run("INSERT INTO {ks}.wide_static (k, c1, c2, v) VALUES (?, ?, ?, ?) USING {at}",
            1, f"k{c % 30:03}", c, "second")
    run("DELETE FROM {ks}.deletions USING {at} WHERE k = ? AND c >= ?", 11, 2)
    run("DELETE FROM {ks}.deletions USING {at} WHERE k = ?", 10)
    fill_counts(run, -3)
    run("DELETE FROM {ks}.counts WHERE k = ? AND c = ?", 3, 0)
    run("UPDATE {ks}.all_types USING {at} SET ud = ? WHERE k = ?", ("new", 1, None, "fr"), 1)
    return run.at


def queries():
    """(statement, fetch size) pairs; every answer is the same whoever reads the files."""
    ks = KEYSPACE
    tables = [
        "all_types", "clustered", "odd_order", "wide", "wide_static", "plain", "chunks", "deletions",
        "expiring", "altered", '"Mixed_Case"', "counts", "never_written",
    ]
    for table in tables:
        yield f"SELECT * FROM {ks}.{table}", 5000
        yield f"SELECT count(*) FROM {ks}.{table}", 5000
    for fetch in (7, 100):
        yield f"SELECT k, c, v FROM {ks}.wide WHERE k = 1 AND c > 400 AND c < 1300", fetch
        yield f"SELECT k, c, v FROM {ks}.wide WHERE k = 1 ORDER BY c DESC LIMIT 1000", fetch
        yield f"SELECT * FROM {ks}.deletions", fetch
        yield f"SELECT * FROM {ks}.clustered", fetch
    yield f"SELECT k, writetime(t), writetime(i), t FROM {ks}.all_types", 5000
    yield f"SELECT k, v, writetime(v) FROM {ks}.chunks", 5000
    for k in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 1000, 1001):
        yield f"SELECT * FROM {ks}.deletions WHERE k = {k}", 5000
        yield f"SELECT * FROM {ks}.deletions WHERE k = {k} ORDER BY c DESC, d DESC", 5000
        yield f"SELECT c, d, v, writetime(v) FROM {ks}.deletions WHERE k = {k} AND c >= 1 AND c < 4", 5000
    for c in (0, 499, 500, 899, 900, 855, 1200, 1201, 2990, 2991, 2999, 3000):
        yield f"SELECT v FROM {ks}.wide WHERE k = 1 AND c = {c}", 5000
    yield f"SELECT c FROM {ks}.wide WHERE k = 1 AND c IN (499, 500, 852, 1201, 2990, 2991)", 5000
    yield f"SELECT c2, v FROM {ks}.wide_static WHERE k = 1 AND c1 = 'k007'", 5000
    yield f"SELECT c1, c2 FROM {ks}.wide_static WHERE k = 1 AND c1 > 'k010' AND c1 <= 'k013'", 5000
    yield f"SELECT c1, c2 FROM {ks}.wide_static WHERE k = 1 ORDER BY c1 ASC LIMIT 200", 33
    yield f"SELECT s FROM {ks}.wide_static WHERE k = 1 LIMIT 1", 5000
    yield f"SELECT DISTINCT p, q, s1, s2 FROM {ks}.clustered", 5000
    yield f"SELECT * FROM {ks}.clustered WHERE p = 'p2' AND q = 2 AND c1 = 'c1' ORDER BY c1 DESC", 5000
    yield f"SELECT * FROM {ks}.clustered WHERE p = 'p2' AND q = 2 AND (c1, c2) >= ('c2', 3)", 5000
    yield f"SELECT * FROM {ks}.odd_order WHERE k = 0x00ff AND c1 < 5", 5000
    yield f"SELECT * FROM {ks}.plain WHERE k IN (9, 10, 19, 20) AND c > 'c03' AND c < 'c12'", 5000
    yield f"SELECT * FROM {ks}.plain WHERE token(k) > 0", 64
    yield f"SELECT * FROM {ks}.plain WHERE v > 300 ALLOW FILTERING", 5000
    yield f"SELECT k, c, v, m FROM {ks}.expiring WHERE k = 3", 5000
    yield f'SELECT "Va lue", "select" FROM {ks}."Mixed_Case" WHERE "Key" = 1 AND "Cl" >= \'C3\'', 5000
    yield f"SELECT min(v), max(v), sum(v), avg(v) FROM {ks}.plain", 5000
    yield f"SELECT sum(a), min(b), max(s), count(a) FROM {ks}.counts", 5000
    yield f"SELECT c, a FROM {ks}.counts WHERE k = 1 ORDER BY c DESC", 2
    yield f"SELECT cluster_name, host_id, data_center, rack, tokens, partitioner FROM system.local", 5000
    for table in ("keyspaces", "types", "columns", "dropped_columns"):
        yield f"SELECT * FROM system_schema.{table} WHERE keyspace_name = '{ks}'", 5000
    yield f"SELECT * FROM system_schema.tables WHERE keyspace_name = '{ks}'", 5000
    yield f"DESCRIBE KEYSPACE {ks}", 5000
