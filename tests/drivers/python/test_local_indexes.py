"""ScyllaDB's local indexes, `CREATE INDEX ON t ((pk), v)`, through the Python drivers: what their metadata knows, and rows by index
against a filter of all rows.
"""
import json
import os
import random

import pytest
from cassandra import InvalidRequest
from cassandra.query import SimpleStatement

from test_indexes import rows_of

SEED = int(os.environ.get("HELENUS_INDEX_SEED", "1"))


def indexes_of(cluster, keyspace, table):
    cluster.refresh_table_metadata(keyspace, table)
    return cluster.metadata.keyspaces[keyspace].tables[table].indexes


def described(session, name):
    return session.execute(f"DESCRIBE INDEX {name}").one().create_statement


def test_the_driver_knows_local_indexes_and_can_create_them_again(cluster, session, keyspace):
    session.execute('CREATE TABLE menus (a int, "B" text, c int, v int, "Dish" text, m map<text, int>, PRIMARY KEY ((a, "B"), c))')
    made = {
        "menus_v_idx": ('(a, "B"), v', {"pk": ["a", "B"], "ck": ["v"]}),
        "menus_Dish_idx": ('(a, "B"), "Dish"', {"pk": ["a", "B"], "ck": ["Dish"]}),
        "menus_c_idx": ('(a, "B"), c', {"pk": ["a", "B"], "ck": ["c"]}),
        "menus_m_idx": ('(a, "B"), keys(m)', {"pk": ["a", "B"], "ck": ["keys(m)"]}),
    }
    for target, _ in made.values():
        session.execute(f"CREATE INDEX ON menus ({target})")
    # On the same column as a local one: the next name.
    session.execute("CREATE INDEX ON menus (v)")
    indexes = indexes_of(cluster, keyspace, "menus")
    assert set(indexes) == set(made) | {"menus_v_idx_1"}
    assert {index.kind for index in indexes.values()} == {"COMPOSITES"}
    assert indexes["menus_v_idx_1"].index_options == {"target": "v"}
    for name, (target, expected) in made.items():
        options = indexes[name].index_options
        assert set(options) == {"target"} and json.loads(options["target"]) == expected
        quoted = name if name.islower() else f'"{name}"'
        statement = f"CREATE INDEX {quoted} ON {keyspace}.menus ({target});"
        assert described(session, f"{keyspace}.{quoted}") == statement
        # Both statements create it again: the server's, and the driver's.
        for again in (statement, indexes[name].as_cql_query()):
            session.execute(f"DROP INDEX {keyspace}.{quoted}")
            session.execute(again)
            assert indexes_of(cluster, keyspace, "menus")[name].index_options == options, again
    assert indexes["menus_v_idx"].as_cql_query().endswith('.menus ({"pk":["a","B"],"ck":["v"]})')


def test_the_rows_of_system_schema_can_be_selected_as_those_of_any_table(session, keyspace):
    session.execute("CREATE TABLE shown (p int PRIMARY KEY, v int, w int)")
    for name in ("i1", "i2", "i3"):
        column = "w" if name == "i2" else "v"
        target = column if name == "i3" else f"(p), {column}"
        session.execute(f"CREATE INDEX {name} ON shown ({target})")
    select = f"SELECT * FROM system_schema.indexes WHERE keyspace_name = '{keyspace}' AND table_name = 'shown'"
    rows = list(session.execute(SimpleStatement(select, fetch_size=1)))
    assert [(row.index_name, row.options["target"]) for row in rows] == [
        ("i1", '{"pk":["p"],"ck":["v"]}'),
        ("i2", '{"pk":["p"],"ck":["w"]}'),
        ("i3", "v"),
    ]
    one = session.execute(f"{select} AND index_name = 'i2'").one()
    assert (one.kind, one.options["target"]) == ("COMPOSITES", '{"pk":["p"],"ck":["w"]}')
    backwards = session.execute(f"{select} ORDER BY table_name DESC, index_name DESC LIMIT 2")
    assert [row.index_name for row in backwards] == ["i3", "i2"]
    every = [row for row in session.execute("SELECT * FROM system_schema.indexes") if row.keyspace_name == keyspace and row.table_name == "shown"]
    assert every == rows
    counted = session.execute(f"SELECT count(*), max(writetime(kind)) AS at {select[8:]}").one()
    assert counted.count == 3 and counted.at > 0
    with pytest.raises(Exception, match="not user-modifiable|cannot modify"):
        session.execute(f"DELETE FROM system_schema.indexes WHERE keyspace_name = '{keyspace}'")
    session.execute("DROP TABLE shown")
    assert not list(session.execute(select))


def test_what_is_no_local_index_is_refused(session):
    session.execute("CREATE TABLE refused (a int, b int, c int, v int, PRIMARY KEY ((a, b), c))")
    for target, error in {
        "(a), v": r"full partition key, in its order: \(a, b\)",
        "(b, a), v": r"full partition key, in its order: \(a, b\)",
        "(a, b, c), v": "full partition key only. Redundant column: c",
        "(a, b), b": "partition key column b",
        "(a, b), v, c": "Only CUSTOM indexes support multiple columns",
    }.items():
        with pytest.raises(InvalidRequest, match=error):
            session.execute(f"CREATE INDEX ON refused ({target})")
    session.execute("CREATE INDEX held ON refused ((a, b), v)")
    with pytest.raises(InvalidRequest, match=r"dependent secondary indexes \(held\)"):
        session.execute("ALTER TABLE refused RENAME a TO d")


@pytest.mark.parametrize("late", [False, True])
def test_answers_by_local_index_are_those_of_a_filter(session, late):
    rng = random.Random(f"local {SEED} {late}")
    table = f"local_{int(late)}"
    session.execute(
        f"CREATE TABLE {table} (p int, q int, c int, v int, s int static, tags set<text>, PRIMARY KEY ((p, q), c))"
    )
    targets = ["v", "c", "s", "tags"]

    def create():
        for column in targets:
            session.execute(f"CREATE INDEX ON {table} ((p, q), {column})")

    if not late:
        create()
    asked = 0
    for round in range(4):
        for _ in range(80):
            p, q, c, v = (rng.randrange(n) for n in (3, 3, 8, 4))
            tags = "{" + ", ".join(f"'{tag}'" for tag in rng.sample("xyz", rng.randrange(3))) + "}"
            key = f"p = {p} AND q = {q}"
            session.execute(rng.choice([
                f"INSERT INTO {table} (p, q, c, v, tags) VALUES ({p}, {q}, {c}, {v}, {tags})",
                f"UPDATE {table} SET v = {v} WHERE {key} AND c = {c}",
                f"UPDATE {table} SET s = {v} WHERE {key}",
                f"DELETE v FROM {table} WHERE {key} AND c = {c}",
                f"DELETE FROM {table} WHERE {key} AND c = {c}",
            ]))
        if late and round == 0:
            create()
        everything = rows_of(session, f"SELECT * FROM {table}")
        for p in range(3):
            q, c, v, tag = rng.randrange(3), rng.randrange(8), rng.randrange(4), rng.choice("xyz")
            key = f"p = {p} AND q = {q} AND "
            for predicate, matches in [
                (f"v = {v}", lambda row: row.v == v),
                (f"c = {c}", lambda row: row.c == c),
                (f"s = {v}", lambda row: row.s == v),
                (f"tags CONTAINS '{tag}'", lambda row: tag in (row.tags or ())),
            ]:
                inside = [row for row in everything if (row.p, row.q) == (p, q) and matches(row)]
                outside = [row for row in everything if matches(row)]
                for where, expected in ((key + predicate, inside), (predicate, outside)):
                    for pages in (5000, 2):
                        found = rows_of(session, f"SELECT * FROM {table} WHERE {where}", pages)
                        assert found == expected, f"seed {SEED}, round {round}: WHERE {where}"
                        asked += bool(expected)
    assert asked > 100
