"""Secondary indexes through the Python driver: each answer by index is compared with the rows of a full scan, filtered here.

Statements are random, from a seed that a failure prints. The driver's metadata must know the indexes.
"""
import os
import random
import time

import pytest
from cassandra import ReadFailure
from cassandra.query import SimpleStatement

SEED = int(os.environ.get("HELENUS_INDEX_SEED", "1"))
ROUNDS = int(os.environ.get("HELENUS_INDEX_ROUNDS", "6"))

COLUMNS = "v int, w text, s int static, l int, tags set<text>, m map<text, int>, f frozen<list<int>>"
INDEXES = {
    "by_v": "CREATE INDEX {t}_by_v ON {t} (v) USING 'sai'",
    "by_w": "CREATE INDEX {t}_by_w ON {t} (w) USING 'sai'",
    "by_s": "CREATE INDEX {t}_by_s ON {t} (s) USING 'sai'",
    "by_c": "CREATE INDEX {t}_by_c ON {t} (c) USING 'sai'",
    "by_l": "CREATE INDEX {t}_by_l ON {t} (l)",
    "by_tags": "CREATE INDEX {t}_by_tags ON {t} (tags) USING 'sai'",
    "by_m": "CREATE INDEX {t}_by_m ON {t} (entries(m)) USING 'sai'",
    "by_keys": "CREATE CUSTOM INDEX {t}_by_keys ON {t} (keys(m)) USING 'StorageAttachedIndex'",
    "by_f": "CREATE INDEX {t}_by_f ON {t} (full(f))",
}


def value(rng, name):
    """A literal for a column, from few values, so that predicates match."""
    return {
        "v": lambda: str(rng.randrange(6)),
        "w": lambda: f"'{rng.choice('abcd')}'",
        "s": lambda: str(rng.randrange(3)),
        "l": lambda: str(rng.randrange(4)),
        "tags": lambda: "{" + ", ".join(f"'{t}'" for t in rng.sample("xyz", rng.randrange(3))) + "}",
        "m": lambda: "{" + ", ".join(f"'{k}': {rng.randrange(3)}" for k in rng.sample("pqr", rng.randrange(3))) + "}",
        "f": lambda: f"[{rng.randrange(2)}, {rng.randrange(2)}]",
    }[name]()


def write(rng, table):
    k, c = rng.randrange(8), rng.randrange(6)
    kind = rng.random()
    if kind < 0.1:
        target = rng.choice(["", "", "v", "w", "m", "l"])
        where = f"k = {k}" if not target and rng.random() < 0.3 else f"k = {k} AND c = {c}"
        return f"DELETE {target} FROM {table} WHERE {where}"
    if kind < 0.15:
        return f"DELETE s FROM {table} WHERE k = {k}"
    if kind < 0.2:
        return f"DELETE FROM {table} WHERE k = {k} AND c > {c}"
    if kind < 0.3:
        return f"UPDATE {table} SET s = {value(rng, 's')} WHERE k = {k}"
    names = rng.sample(["v", "w", "l", "tags", "m", "f"], rng.randrange(1, 4))
    if kind < 0.6:
        sets = ", ".join(f"{n} = {value(rng, n)}" for n in names)
        return f"UPDATE {table} SET {sets} WHERE k = {k} AND c = {c}"
    if kind < 0.7:
        return f"UPDATE {table} SET tags = tags + {{'{rng.choice('xyz')}'}}, m['p'] = {rng.randrange(3)} WHERE k = {k} AND c = {c}"
    columns, values = ", ".join(["k", "c"] + names), ", ".join([str(k), str(c)] + [value(rng, n) for n in names])
    return f"INSERT INTO {table} ({columns}) VALUES ({values})"


def queries(rng):
    """Predicates with the test of a row that they mean."""
    v, w, s, c, l, t = rng.randrange(6), rng.choice("abcd"), rng.randrange(3), rng.randrange(6), rng.randrange(4), rng.choice("xyz")
    k, p, n = rng.randrange(8), rng.choice("pqr"), rng.randrange(3)
    f = [rng.randrange(2), rng.randrange(2)]
    has = lambda row, column: getattr(row, column) is not None
    yield f"v = {v}", lambda r: r.v == v
    yield f"v > {v}", lambda r: has(r, "v") and r.v > v
    yield f"v >= {v} AND v < {v + 2}", lambda r: has(r, "v") and v <= r.v < v + 2
    yield f"w = '{w}'", lambda r: r.w == w
    yield f"v <= {v} AND w = '{w}'", lambda r: has(r, "v") and r.v <= v and r.w == w
    yield f"s = {s}", lambda r: r.s == s
    yield f"s = {s} AND v = {v}", lambda r: r.s == s and r.v == v
    yield f"c = {c}", lambda r: r.c == c
    yield f"c >= {c} AND w = '{w}'", lambda r: has(r, "c") and r.c >= c and r.w == w
    yield f"l = {l}", lambda r: r.l == l
    yield f"tags CONTAINS '{t}'", lambda r: t in (r.tags or ())
    yield f"m['{p}'] = {n}", lambda r: (r.m or {}).get(p) == n
    yield f"m CONTAINS KEY '{p}'", lambda r: p in (r.m or {})
    yield f"f = {f}", lambda r: r.f == f
    yield f"k = {k} AND v = {v}", lambda r: r.k == k and r.v == v
    yield f"k = {k} AND c < {c} AND v > {v}", lambda r: r.k == k and has(r, "c") and r.c < c and has(r, "v") and r.v > v
    yield f"l = {l} AND v = {v} ALLOW FILTERING", lambda r: r.l == l and r.v == v


def rows_of(session, text, pages=5000):
    """All pages, asked again while an index is being built."""
    for _ in range(300):
        try:
            return list(session.execute(SimpleStatement(text, fetch_size=pages)))
        except ReadFailure as failure:
            if "INDEX_NOT_AVAILABLE" not in str(failure) and 6 not in (failure.error_code_map or {}).values():
                raise
            time.sleep(0.1)
    raise AssertionError(f"no index became available for {text}")


@pytest.mark.parametrize("late", [False, True])
def test_answers_by_index_are_those_of_a_filter(session, late):
    rng = random.Random(f"{SEED} {late}")
    table = f"indexed_{int(late)}"
    session.execute(f"DROP TABLE IF EXISTS {table}")
    session.execute(f"CREATE TABLE {table} (k int, c int, {COLUMNS}, PRIMARY KEY (k, c))")
    if not late:
        for text in INDEXES.values():
            session.execute(text.format(t=table))
    asked = 0
    for round in range(ROUNDS):
        for _ in range(60):
            session.execute(write(rng, table))
        if late and round == 0:
            for text in INDEXES.values():
                session.execute(text.format(t=table))
        everything = rows_of(session, f"SELECT * FROM {table}")
        for predicate, matches in queries(rng):
            expected = [row for row in everything if matches(row)]
            for pages in (5000, 3):
                found = rows_of(session, f"SELECT * FROM {table} WHERE {predicate}", pages)
                assert found == expected, f"seed {SEED}, round {round}, pages of {pages}: WHERE {predicate}"
                asked += 1
            limit = rng.randrange(1, 6)
            text = predicate.replace(" ALLOW FILTERING", f" LIMIT {limit} ALLOW FILTERING")
            text = text if text != predicate else f"{predicate} LIMIT {limit}"
            assert rows_of(session, f"SELECT * FROM {table} WHERE {text}") == expected[:limit], text
            counted = rows_of(session, f"SELECT count(*) FROM {table} WHERE {predicate}")
            assert counted[0].count == len(expected), f"count(*) WHERE {predicate}"
    assert asked > 100


def test_the_driver_knows_the_indexes(cluster, session, keyspace):
    session.execute("CREATE TABLE known (k int PRIMARY KEY, v int, m map<text, int>)")
    session.execute("CREATE INDEX ON known (v)")
    session.execute("CREATE INDEX known_m ON known (entries(m)) USING 'sai' WITH OPTIONS = {}")
    cluster.refresh_table_metadata(keyspace, "known")
    indexes = cluster.metadata.keyspaces[keyspace].tables["known"].indexes
    assert {name: index.kind for name, index in indexes.items()} == {
        "known_v_idx": "COMPOSITES",
        "known_m": "CUSTOM",
    }
    assert indexes["known_m"].index_options["target"] == "entries(m)"
    text = cluster.metadata.keyspaces[keyspace].tables["known"].export_as_string()
    assert "CREATE INDEX known_v_idx" in text and "CREATE CUSTOM INDEX known_m" in text
    session.execute(f"DROP INDEX {keyspace}.known_m")
    cluster.refresh_table_metadata(keyspace, "known")
    assert set(cluster.metadata.keyspaces[keyspace].tables["known"].indexes) == {"known_v_idx"}
