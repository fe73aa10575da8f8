"""What an application does with the Python driver, against the server under test.

The same file runs with cassandra-driver and with scylla-driver. It uses only what a
single node must offer: no counters, views or roles.
"""
import datetime
import decimal
import ipaddress
import random
import struct
import threading
import uuid
from collections import namedtuple
from importlib.metadata import distributions

import pytest
from cassandra import (
    AlreadyExists,
    ConsistencyLevel,
    FunctionFailure,
    InvalidRequest,
    ProtocolVersion,
    Unavailable,
)
from cassandra.cluster import NoHostAvailable
from cassandra.concurrent import execute_concurrent, execute_concurrent_with_args
from cassandra.protocol import ConfigurationException, SyntaxException
from cassandra.query import (
    BatchStatement,
    BatchType,
    SimpleStatement,
    dict_factory,
    tuple_factory,
)
from cassandra.util import Date, Duration, SortedSet, Time

from conftest import connect


# ---------------------------------------------------------------- connection


def test_connects_and_reads_system_local(session):
    row = session.execute(
        "SELECT cluster_name, release_version, cql_version, partitioner, key FROM system.local"
    ).one()
    assert row.key == "local"
    assert row.release_version == "5.0.9"
    assert row.cql_version == "3.4.7"
    assert row.partitioner == "org.apache.cassandra.dht.Murmur3Partitioner"
    assert row.cluster_name


def test_one_node_has_no_peers(session):
    assert list(session.execute("SELECT * FROM system.peers")) == []
    assert list(session.execute("SELECT * FROM system.peers_v2")) == []


@pytest.mark.parametrize("version", [ProtocolVersion.V3, ProtocolVersion.V4, ProtocolVersion.V5])
def test_every_protocol_version_connects_and_answers(version, keyspace):
    cluster = connect(protocol_version=version)
    try:
        session = cluster.connect(keyspace)
        assert cluster.protocol_version == version
        session.execute("CREATE TABLE IF NOT EXISTS by_version (k int PRIMARY KEY, v text)")
        insert = session.prepare("INSERT INTO by_version (k, v) VALUES (?, ?)")
        session.execute(insert, (version, "v%d" % version))
        row = session.execute("SELECT v FROM by_version WHERE k = %s", (version,)).one()
        assert row.v == "v%d" % version
    finally:
        cluster.shutdown()


@pytest.mark.parametrize("version", [ProtocolVersion.V3, ProtocolVersion.V4, ProtocolVersion.V5])
def test_lz4_compression_carries_small_and_large_messages(version, keyspace):
    cluster = connect(protocol_version=version, compression="lz4")
    try:
        session = cluster.connect(keyspace)
        session.execute("CREATE TABLE IF NOT EXISTS packed (k int PRIMARY KEY, v blob)")
        insert = session.prepare("INSERT INTO packed (k, v) VALUES (?, ?)")
        noise = random.Random(7).randbytes(400_000)
        for key, value in enumerate((b"", b"x" * 100, b"x" * 300_000, noise)):
            session.execute(insert, (key, value))
            read = session.execute("SELECT v FROM packed WHERE k = %s", (key,)).one()
            assert read.v == value
    finally:
        cluster.shutdown()


def test_the_driver_negotiates_the_newest_version(cluster):
    assert cluster.protocol_version >= ProtocolVersion.V5 or cluster.protocol_version == 4


def test_cluster_metadata_names_the_host_and_tokens(cluster, session):
    hosts = cluster.metadata.all_hosts()
    assert len(hosts) == 1
    host = hosts[0]
    assert host.is_up
    assert host.release_version == "5.0.9"
    assert host.host_id is not None
    assert host.datacenter and host.rack
    assert cluster.metadata.partitioner.endswith("Murmur3Partitioner")
    assert len(cluster.metadata.token_map.ring) >= 1


def test_schema_agreement_is_reached(cluster, session):
    session.execute("CREATE TABLE agreement (k int PRIMARY KEY)")
    local = session.execute("SELECT schema_version FROM system.local").one().schema_version
    assert isinstance(local, uuid.UUID)


def test_a_keyspace_that_is_not_there_is_refused_at_connect(cluster):
    with pytest.raises((InvalidRequest, NoHostAvailable)):
        cluster.connect("no_such_keyspace_at_all")


def test_use_changes_the_keyspace_of_the_session(cluster, keyspace):
    session = cluster.connect()
    session.execute(f"USE {keyspace}")
    session.execute("CREATE TABLE used (k int PRIMARY KEY)")
    session.execute("INSERT INTO used (k) VALUES (1)")
    assert session.execute("SELECT k FROM used").one().k == 1
    session.shutdown()


# ----------------------------------------------------------- schema metadata


def test_schema_metadata_of_a_table_is_complete(cluster, session, keyspace):
    session.execute(
        "CREATE TABLE meta (a int, b text, c timestamp, d uuid, s int static, v list<int>, "
        "m map<text, frozen<set<int>>>, PRIMARY KEY ((a, b), c, d)) "
        "WITH CLUSTERING ORDER BY (c DESC, d ASC) AND comment = 'a comment' "
        "AND gc_grace_seconds = 1234 AND default_time_to_live = 77 "
        "AND compression = {'class': 'LZ4Compressor', 'chunk_length_in_kb': 32}"
    )
    cluster.refresh_table_metadata(keyspace, "meta")
    table = cluster.metadata.keyspaces[keyspace].tables["meta"]
    assert [c.name for c in table.partition_key] == ["a", "b"]
    assert [c.name for c in table.clustering_key] == ["c", "d"]
    assert table.columns["s"].is_static
    assert table.columns["c"].is_reversed
    assert not table.columns["d"].is_reversed
    assert {n: c.cql_type for n, c in table.columns.items()} == {
        "a": "int", "b": "text", "c": "timestamp", "d": "uuid", "s": "int",
        "v": "list<int>", "m": "map<text, frozen<set<int>>>",
    }
    assert table.options["comment"] == "a comment"
    assert table.options["gc_grace_seconds"] == 1234
    assert table.options["default_time_to_live"] == 77
    assert table.options["compression"]["chunk_length_in_kb"] == "32"
    assert "LZ4Compressor" in table.options["compression"]["class"]
    assert "CREATE TABLE" in table.export_as_string()


def test_create_statement_of_the_driver_recreates_the_table(cluster, session, keyspace):
    cql = cluster.metadata.keyspaces[keyspace].tables["meta"].export_as_string()
    session.execute("DROP TABLE meta")
    session.execute(cql)
    cluster.refresh_schema_metadata()
    again = cluster.metadata.keyspaces[keyspace].tables["meta"].export_as_string()
    assert again == cql


def test_schema_metadata_of_user_types(cluster, session, keyspace):
    session.execute("CREATE TYPE inner_t (x int, y text)")
    session.execute("CREATE TYPE outer_t (i frozen<inner_t>, l list<frozen<inner_t>>)")
    cluster.refresh_schema_metadata()
    types = cluster.metadata.keyspaces[keyspace].user_types
    assert types["inner_t"].field_names == ["x", "y"]
    assert types["inner_t"].field_types == ["int", "text"]
    assert types["outer_t"].field_types == ["frozen<inner_t>", "list<frozen<inner_t>>"]


def test_schema_metadata_follows_events(cluster, session, keyspace):
    session.execute("CREATE TABLE evolving (k int PRIMARY KEY, a int)")
    tables = cluster.metadata.keyspaces[keyspace].tables
    assert set(tables["evolving"].columns) == {"k", "a"}
    session.execute("ALTER TABLE evolving ADD b text")
    assert set(cluster.metadata.keyspaces[keyspace].tables["evolving"].columns) == {"k", "a", "b"}
    session.execute("ALTER TABLE evolving DROP a")
    assert set(cluster.metadata.keyspaces[keyspace].tables["evolving"].columns) == {"k", "b"}
    session.execute("DROP TABLE evolving")
    assert "evolving" not in cluster.metadata.keyspaces[keyspace].tables


def test_a_second_connection_hears_of_a_new_table(cluster, session, keyspace):
    other = connect(schema_event_refresh_window=0)
    try:
        other.connect()
        session.execute("CREATE TABLE announced (k int PRIMARY KEY)")
        heard = threading.Event()
        for _ in range(200):
            if "announced" in other.metadata.keyspaces[keyspace].tables:
                heard.set()
                break
            heard.wait(0.05)
        assert heard.is_set()
    finally:
        other.shutdown()


def test_keyspace_metadata_shows_replication(cluster, session, keyspace):
    meta = cluster.metadata.keyspaces[keyspace]
    assert meta.durable_writes is True
    assert meta.replication_strategy.name == "SimpleStrategy"
    assert meta.replication_strategy.replication_factor == 1
    assert "system" in cluster.metadata.keyspaces
    assert "system_schema" in cluster.metadata.keyspaces


def test_system_tables_are_in_the_metadata(cluster):
    tables = cluster.metadata.keyspaces["system"].tables
    assert {"local", "peers", "peers_v2", "size_estimates"} <= set(tables)


def test_replicas_of_a_key_are_known(cluster, session, keyspace):
    assert len(cluster.metadata.get_replicas(keyspace, b"\x00\x00\x00\x01")) == 1


def test_token_function_agrees_with_the_driver(cluster, session):
    from cassandra.metadata import Murmur3Token
    session.execute("CREATE TABLE toks (k text PRIMARY KEY)")
    insert = session.prepare("INSERT INTO toks (k) VALUES (?)")
    for i in range(64):
        session.execute(insert, ("key-%d" % (i * i * 7919),))
    for row in session.execute("SELECT k, token(k) AS t FROM toks"):
        assert Murmur3Token.from_key(row.k.encode()).value == row.t


# --------------------------------------------------------------- simple rows


def test_insert_select_update_delete(session):
    session.execute("CREATE TABLE crud (k int, c int, a text, b int, PRIMARY KEY (k, c))")
    session.execute("INSERT INTO crud (k, c, a, b) VALUES (1, 1, 'one', 10)")
    session.execute("INSERT INTO crud (k, c, a) VALUES (1, 2, 'two')")
    session.execute("UPDATE crud SET b = 20 WHERE k = 1 AND c = 2")
    rows = list(session.execute("SELECT * FROM crud WHERE k = 1"))
    assert [(r.k, r.c, r.a, r.b) for r in rows] == [(1, 1, "one", 10), (1, 2, "two", 20)]
    session.execute("DELETE b FROM crud WHERE k = 1 AND c = 1")
    assert session.execute("SELECT b FROM crud WHERE k = 1 AND c = 1").one().b is None
    session.execute("DELETE FROM crud WHERE k = 1 AND c = 1")
    assert session.execute("SELECT * FROM crud WHERE k = 1 AND c = 1").one() is None
    session.execute("DELETE FROM crud WHERE k = 1")
    assert list(session.execute("SELECT * FROM crud")) == []


def test_positional_and_named_values_of_simple_statements(session):
    session.execute("CREATE TABLE named (k int PRIMARY KEY, v text, w list<int>)")
    session.execute("INSERT INTO named (k, v, w) VALUES (%s, %s, %s)", (1, "it's", [1, 2]))
    session.execute(
        "INSERT INTO named (k, v, w) VALUES (%(k)s, %(v)s, %(w)s)", {"k": 2, "v": "b", "w": []}
    )
    rows = {r.k: r for r in session.execute("SELECT * FROM named")}
    assert rows[1].v == "it's" and rows[1].w == [1, 2]
    assert rows[2].v == "b" and rows[2].w is None


def test_row_factories(session):
    session.execute("CREATE TABLE factories (k int PRIMARY KEY, v int)")
    session.execute("INSERT INTO factories (k, v) VALUES (1, 2)")
    profile = session.cluster.profile_manager.default
    profile_dict = session.execution_profile_clone_update(profile, row_factory=dict_factory)
    profile_tuple = session.execution_profile_clone_update(profile, row_factory=tuple_factory)
    query = "SELECT k, v FROM factories"
    assert session.execute(query, execution_profile=profile_dict).one() == {"k": 1, "v": 2}
    assert session.execute(query, execution_profile=profile_tuple).one() == (1, 2)


def test_aliases_functions_and_aggregates(session):
    session.execute("CREATE TABLE agg (k int, c int, v double, PRIMARY KEY (k, c))")
    for i in range(10):
        session.execute("INSERT INTO agg (k, c, v) VALUES (0, %s, %s)", (i, i / 2))
    row = session.execute(
        "SELECT count(*) AS n, min(v) AS lo, max(v) AS hi, sum(c) AS total, avg(v) AS mean FROM agg "
        "WHERE k = 0"
    ).one()
    assert (row.n, row.lo, row.hi, row.total, row.mean) == (10, 0.0, 4.5, 45, 2.25)
    row = session.execute("SELECT writetime(v) AS w, ttl(v) AS t, CAST(c AS text) AS s FROM agg "
                          "WHERE k = 0 AND c = 3").one()
    assert row.w > 1_500_000_000_000_000 and row.t is None and row.s == "3"


def test_client_timestamps_decide_which_write_wins(session):
    session.execute("CREATE TABLE lww (k int PRIMARY KEY, v text)")
    session.execute("INSERT INTO lww (k, v) VALUES (1, 'new') USING TIMESTAMP 2000")
    session.execute("INSERT INTO lww (k, v) VALUES (1, 'old') USING TIMESTAMP 1000")
    row = session.execute("SELECT v, writetime(v) AS w FROM lww WHERE k = 1").one()
    assert (row.v, row.w) == ("new", 2000)


def test_timestamp_of_the_request_is_used(session):
    cluster = connect(timestamp_generator=lambda: 123456789)
    try:
        other = cluster.connect(session.keyspace)
        other.execute("CREATE TABLE IF NOT EXISTS stamped (k int PRIMARY KEY, v int)")
        other.execute("INSERT INTO stamped (k, v) VALUES (1, 1)")
        assert other.execute("SELECT writetime(v) AS w FROM stamped").one().w == 123456789
    finally:
        cluster.shutdown()


def test_ttl_is_reported_and_expires_nothing_early(session):
    session.execute("CREATE TABLE ttls (k int PRIMARY KEY, v int)")
    session.execute("INSERT INTO ttls (k, v) VALUES (1, 1) USING TTL 1000")
    row = session.execute("SELECT v, ttl(v) AS t FROM ttls WHERE k = 1").one()
    assert row.v == 1 and 900 < row.t <= 1000


def test_truncate_empties_the_table(session):
    session.execute("CREATE TABLE emptied (k int PRIMARY KEY)")
    for i in range(20):
        session.execute("INSERT INTO emptied (k) VALUES (%s)", (i,))
    session.execute("TRUNCATE emptied")
    assert list(session.execute("SELECT * FROM emptied")) == []
    session.execute("INSERT INTO emptied (k) VALUES (1)")
    assert len(list(session.execute("SELECT * FROM emptied"))) == 1


def test_static_columns_are_shared_by_the_partition(session):
    session.execute("CREATE TABLE stat (k int, c int, s text static, v int, PRIMARY KEY (k, c))")
    session.execute("INSERT INTO stat (k, s) VALUES (1, 'shared')")
    assert [(r.k, r.c, r.s) for r in session.execute("SELECT * FROM stat")] == [(1, None, "shared")]
    session.execute("INSERT INTO stat (k, c, v) VALUES (1, 1, 1)")
    session.execute("INSERT INTO stat (k, c, v, s) VALUES (1, 2, 2, 'changed')")
    assert [(r.c, r.s) for r in session.execute("SELECT c, s FROM stat WHERE k = 1")] == [
        (1, "changed"), (2, "changed")]
    assert [r.s for r in session.execute("SELECT DISTINCT k, s FROM stat")] == ["changed"]


# ------------------------------------------------------------------ prepared


def test_prepared_statement_knows_its_columns(session, keyspace):
    session.execute("CREATE TABLE prep (k int, c text, v blob, PRIMARY KEY (k, c))")
    insert = session.prepare("INSERT INTO prep (k, c, v) VALUES (?, ?, ?)")
    assert [(c.keyspace_name, c.table_name, c.name) for c in insert.column_metadata] == [
        (keyspace, "prep", "k"), (keyspace, "prep", "c"), (keyspace, "prep", "v")]
    assert [c.type.typename for c in insert.column_metadata] in (
        [["int", "text", "blob"], ["int", "varchar", "blob"]])
    assert insert.routing_key_indexes == [0]
    bound = insert.bind((7, "x", b"y"))
    assert bound.routing_key == b"\x00\x00\x00\x07"


def test_prepared_statements_take_named_values(session):
    insert = session.prepare("INSERT INTO prep (k, c, v) VALUES (:key, :clus, :val)")
    session.execute(insert, {"key": 1, "clus": "named", "val": b"v"})
    select = session.prepare("SELECT v FROM prep WHERE k = ? AND c = ?")
    assert session.execute(select, (1, "named")).one().v == b"v"


def test_unset_values_leave_the_cell_alone_and_null_deletes_it(session):
    from cassandra.query import UNSET_VALUE
    session.execute("CREATE TABLE unset (k int PRIMARY KEY, a int, b int)")
    insert = session.prepare("INSERT INTO unset (k, a, b) VALUES (?, ?, ?)")
    session.execute(insert, (1, 10, 20))
    session.execute(insert, (1, UNSET_VALUE, 30))
    row = session.execute("SELECT * FROM unset WHERE k = 1").one()
    assert (row.a, row.b) == (10, 30)
    session.execute(insert, (1, None, UNSET_VALUE))
    row = session.execute("SELECT * FROM unset WHERE k = 1").one()
    assert (row.a, row.b) == (None, 30)


@pytest.mark.parametrize("version", [ProtocolVersion.V4, ProtocolVersion.V5])
def test_prepared_select_star_survives_alter_table(version, keyspace):
    cluster = connect(protocol_version=version)
    try:
        session = cluster.connect(keyspace)
        table = "altered_v%d" % version
        session.execute(f"CREATE TABLE {table} (k int PRIMARY KEY, a int)")
        session.execute(f"INSERT INTO {table} (k, a) VALUES (1, 2)")
        select = session.prepare(f"SELECT * FROM {table} WHERE k = ?")
        assert session.execute(select, (1,)).one()._asdict() == {"k": 1, "a": 2}
        session.execute(f"ALTER TABLE {table} ADD b text")
        session.execute(f"INSERT INTO {table} (k, a, b) VALUES (1, 3, 'x')")
        row = session.execute(select, (1,)).one()._asdict()
        if version >= ProtocolVersion.V5:
            assert row == {"k": 1, "a": 3, "b": "x"}
        else:  # v4 drivers keep the columns of PREPARE; the values must still be in place
            assert row["k"] == 1 and row["a"] == 3
    finally:
        cluster.shutdown()


def test_a_statement_prepared_again_has_the_same_id(session):
    first = session.prepare("SELECT * FROM prep WHERE k = ?")
    second = session.prepare("SELECT * FROM prep WHERE k = ?")
    assert first.query_id == second.query_id


def test_wrong_count_of_values_is_refused(session):
    insert = session.prepare("INSERT INTO prep (k, c, v) VALUES (?, ?, ?)")
    with pytest.raises(ValueError):
        insert.bind((1, "a", b"b", 4))


def test_in_restriction_takes_a_bound_list(session):
    session.execute("CREATE TABLE inlist (k int PRIMARY KEY, v int)")
    insert = session.prepare("INSERT INTO inlist (k, v) VALUES (?, ?)")
    for i in range(10):
        session.execute(insert, (i, i * i))
    select = session.prepare("SELECT v FROM inlist WHERE k IN ?")
    assert sorted(r.v for r in session.execute(select, ([1, 3, 5],))) == [1, 9, 25]
    assert list(session.execute(select, ([],))) == []


# -------------------------------------------------------------------- paging


def test_paging_returns_every_row_once(session):
    session.execute("CREATE TABLE paged (k int, c int, v text, PRIMARY KEY (k, c))")
    insert = session.prepare("INSERT INTO paged (k, c, v) VALUES (?, ?, ?)")
    args = [(k, c, "v%d-%d" % (k, c)) for k in range(10) for c in range(50)]
    execute_concurrent_with_args(session, insert, args, concurrency=32)
    for fetch_size in (1, 7, 50, 99, 500, 5000):
        query = SimpleStatement("SELECT k, c, v FROM paged", fetch_size=fetch_size)
        rows = [(r.k, r.c, r.v) for r in session.execute(query)]
        assert len(rows) == 500
        assert sorted(rows) == sorted(args)


def test_paging_inside_one_partition_in_both_orders(session):
    for order, expected in (("ASC", list(range(50))), ("DESC", list(range(49, -1, -1)))):
        query = SimpleStatement(
            f"SELECT c FROM paged WHERE k = 3 ORDER BY c {order}", fetch_size=7)
        assert [r.c for r in session.execute(query)] == expected


def test_paging_state_can_be_carried_to_another_session(session, cluster, keyspace):
    query = SimpleStatement("SELECT c FROM paged WHERE k = 4", fetch_size=20)
    first = session.execute(query)
    page = [r.c for r in first.current_rows]
    state = first.paging_state
    assert page == list(range(20)) and state
    other = connect()
    try:
        rest = other.connect(keyspace).execute(query, paging_state=state)
        assert [r.c for r in rest] == list(range(20, 50))
    finally:
        other.shutdown()


def test_limits_hold_across_pages(session):
    query = SimpleStatement("SELECT c FROM paged WHERE k = 5 LIMIT 23", fetch_size=5)
    assert [r.c for r in session.execute(query)] == list(range(23))
    query = SimpleStatement("SELECT k, c FROM paged PER PARTITION LIMIT 2", fetch_size=3)
    rows = [(r.k, r.c) for r in session.execute(query)]
    assert sorted(rows) == [(k, c) for k in range(10) for c in range(2)]


def test_token_ranges_cover_the_table_once(session):
    seen = []
    step = 2**64 // 8
    for i in range(8):
        low, high = -(2**63) + i * step, -(2**63) + (i + 1) * step - 1
        seen += [(r.k, r.c) for r in session.execute(
            "SELECT k, c FROM paged WHERE token(k) >= %s AND token(k) <= %s", (low, high))]
    assert sorted(seen) == [(k, c) for k in range(10) for c in range(50)]


def test_no_paging_state_when_all_rows_fit(session):
    result = session.execute(SimpleStatement("SELECT c FROM paged WHERE k = 1", fetch_size=51))
    assert len(result.current_rows) == 50 and not result.has_more_pages


# --------------------------------------------------------------------- types

SIMPLE_VALUES = {
    "ascii": ["", "plain ascii"],
    "bigint": [0, 2**63 - 1, -(2**63)],
    "blob": [b"", b"\x00\xff", bytes(range(256))],
    "boolean": [True, False],
    "date": [Date(0), Date(datetime.date(2024, 2, 29)), Date(-100000)],
    "decimal": [decimal.Decimal("0"), decimal.Decimal("-123456789012345678901234567890.1234567890"),
                decimal.Decimal("1E+20"), decimal.Decimal("1E-20")],
    "double": [0.0, -0.0, 1.5e300, float("inf"), float("-inf"), 5e-324],
    "duration": [Duration(0, 0, 0), Duration(14, 3, 5_000_000_000), Duration(-1, -2, -3)],
    "float": [0.0, 1.5, -2.25, float("inf")],
    "inet": ["127.0.0.1", "::1", "2001:db8::ff00:42:8329"],
    "int": [0, 2**31 - 1, -(2**31)],
    "smallint": [0, 32767, -32768],
    "text": ["", "Žluťoučký kůň", "\U0001f600 \n\t'\""],
    "time": [Time(0), Time(86_399_999_999_999)],
    "timestamp": [datetime.datetime(1970, 1, 1), datetime.datetime(2026, 7, 1, 12, 30, 45, 678000),
                  datetime.datetime(1900, 1, 1)],
    "timeuuid": [uuid.UUID("d2177dd0-eaa2-11de-a572-001b779c76e3")],
    "tinyint": [0, 127, -128],
    "uuid": [uuid.UUID("00000000-0000-0000-0000-000000000000"),
             uuid.UUID("f79326be-2d7b-4996-b881-f9f0d571ffe0")],
    "varchar": ["varchar is text"],
    "varint": [0, 1, -1, 2**200, -(2**200), 127, 128, -128, -129],
}


@pytest.mark.parametrize("cql_type", sorted(SIMPLE_VALUES))
def test_native_type_round_trips(session, cql_type):
    table = "rt_" + cql_type
    session.execute(f"CREATE TABLE {table} (k int PRIMARY KEY, v {cql_type})")
    insert = session.prepare(f"INSERT INTO {table} (k, v) VALUES (?, ?)")
    select = session.prepare(f"SELECT v FROM {table} WHERE k = ?")
    for key, value in enumerate(SIMPLE_VALUES[cql_type]):
        session.execute(insert, (key, value))
        read = session.execute(select, (key,)).one().v
        assert read == value
        if cql_type == "double":
            assert struct.pack(">d", read) == struct.pack(">d", value)
    session.execute(insert, (99, None))
    assert session.execute(select, (99,)).one().v is None


def test_nan_round_trips(session):
    session.execute("CREATE TABLE nans (k int PRIMARY KEY, d double, f float)")
    insert = session.prepare("INSERT INTO nans (k, d, f) VALUES (1, ?, ?)")
    session.execute(insert, (float("nan"), float("nan")))
    row = session.execute("SELECT * FROM nans").one()
    assert row.d != row.d and row.f != row.f


@pytest.mark.parametrize("cql_type", sorted(set(SIMPLE_VALUES) - {"duration"}))
def test_native_type_works_as_partition_and_clustering_key(session, cql_type):
    table = "key_" + cql_type
    session.execute(
        f"CREATE TABLE {table} (p {cql_type}, c {cql_type}, v int, PRIMARY KEY (p, c))")
    insert = session.prepare(f"INSERT INTO {table} (p, c, v) VALUES (?, ?, ?)")
    select = session.prepare(f"SELECT v FROM {table} WHERE p = ? AND c = ?")
    values = [v for v in SIMPLE_VALUES[cql_type] if v not in ("", b"")]
    for i, part in enumerate(values):
        for j, clus in enumerate(values):
            session.execute(insert, (part, clus, i * 100 + j))
    for i, part in enumerate(values):
        for j, clus in enumerate(values):
            assert session.execute(select, (part, clus)).one().v == i * 100 + j


COLLECTIONS = [
    ("list<int>", [[1, 2, 3, 2], [5]]),
    ("list<text>", [["b", "a", ""]]),
    ("set<int>", [SortedSet([3, 1, 2])]),
    ("set<text>", [SortedSet(["x", "a"])]),
    ("set<uuid>", [SortedSet([uuid.UUID(int=1), uuid.UUID(int=2)])]),
    ("map<text, int>", [{"a": 1, "b": 2}]),
    ("map<int, frozen<list<text>>>", [{1: ["x"], 2: ["y", "z"]}]),
    ("frozen<list<int>>", [[1, 2, 3], []]),
    ("frozen<set<text>>", [SortedSet(["q"]), SortedSet()]),
    ("frozen<map<int, text>>", [{1: "a"}]),
    ("list<frozen<map<text, frozen<set<int>>>>>", [[{"a": SortedSet([1, 2])}]]),
    ("tuple<int, text, boolean>", [(1, "a", True), (1, None, False)]),
    ("frozen<tuple<int, frozen<list<int>>>>", [(1, [1, 2])]),
    ("list<frozen<tuple<int, text>>>", [[(1, "a"), (2, "b")]]),
]


@pytest.mark.parametrize("index", range(len(COLLECTIONS)))
def test_collection_type_round_trips(session, index):
    cql_type, values = COLLECTIONS[index]
    table = "coll_%d" % index
    session.execute(f"CREATE TABLE {table} (k int PRIMARY KEY, v {cql_type})")
    insert = session.prepare(f"INSERT INTO {table} (k, v) VALUES (?, ?)")
    for key, value in enumerate(values):
        session.execute(insert, (key, value))
        read = session.execute(f"SELECT v FROM {table} WHERE k = {key}").one().v
        if isinstance(value, dict):
            assert dict(read) == value
        elif isinstance(value, SortedSet):
            assert set(read) == set(value)
        elif cql_type.startswith("list<frozen<map"):
            assert [{k: set(v) for k, v in m.items()} for m in read] == [
                {k: set(v) for k, v in m.items()} for m in value]
        else:
            assert read == value


def test_empty_non_frozen_collections_read_as_null(session):
    session.execute("CREATE TABLE emptyc (k int PRIMARY KEY, l list<int>, s set<int>, m map<int,int>)")
    insert = session.prepare("INSERT INTO emptyc (k, l, s, m) VALUES (?, ?, ?, ?)")
    session.execute(insert, (1, [], set(), {}))
    row = session.execute("SELECT * FROM emptyc").one()
    assert (row.l, row.s, row.m) == (None, None, None)


def test_collection_updates_add_and_remove_elements(session):
    session.execute("CREATE TABLE upd (k int PRIMARY KEY, l list<int>, s set<int>, m map<text,int>)")
    session.execute("INSERT INTO upd (k, l, s, m) VALUES (1, [1], {1}, {'a': 1})")
    session.execute("UPDATE upd SET l = l + [2, 3], s = s + {2}, m = m + {'b': 2} WHERE k = 1")
    session.execute("UPDATE upd SET l = [0] + l, m['c'] = 3 WHERE k = 1")
    session.execute("UPDATE upd SET l[1] = 11, s = s - {1} WHERE k = 1")
    session.execute("DELETE m['a'], l[0] FROM upd WHERE k = 1")
    row = session.execute("SELECT * FROM upd WHERE k = 1").one()
    assert row.l == [11, 2, 3]
    assert set(row.s) == {2}
    assert dict(row.m) == {"b": 2, "c": 3}


def test_user_type_round_trips_as_registered_class(cluster, session, keyspace):
    session.execute("CREATE TYPE address (street text, zip int, tags frozen<set<text>>)")
    session.execute("CREATE TABLE people (k int PRIMARY KEY, a frozen<address>, b address, "
                    "l list<frozen<address>>)")
    Address = namedtuple("Address", "street zip tags")
    cluster.register_user_type(keyspace, "address", Address)
    home = Address("Main", 12345, SortedSet(["a", "b"]))
    part = Address("Half", None, None)
    insert = session.prepare("INSERT INTO people (k, a, b, l) VALUES (?, ?, ?, ?)")
    session.execute(insert, (1, home, part, [home, part]))
    row = session.execute("SELECT * FROM people WHERE k = 1").one()
    assert row.a == home and row.b == part
    assert row.l == [home, part]
    session.execute("UPDATE people SET b.zip = 7 WHERE k = 1")
    assert session.execute("SELECT b FROM people WHERE k = 1").one().b.zip == 7
    assert session.execute("SELECT a.street AS s FROM people WHERE k = 1").one().s == "Main"
    session.execute("ALTER TYPE address ADD country text")
    cluster.refresh_user_type_metadata(keyspace, "address")
    assert cluster.metadata.keyspaces[keyspace].user_types["address"].field_names == [
        "street", "zip", "tags", "country"]


def test_vector_round_trips(session):
    session.execute("CREATE TABLE vec (k int PRIMARY KEY, v vector<float, 3>)")
    session.execute("INSERT INTO vec (k, v) VALUES (1, [1.5, -2.0, 0.25])")
    assert list(session.execute("SELECT v FROM vec WHERE k = 1").one().v) == [1.5, -2.0, 0.25]
    insert = session.prepare("INSERT INTO vec (k, v) VALUES (?, ?)")
    session.execute(insert, (2, [3.0, 4.0, 5.0]))
    assert list(session.execute("SELECT v FROM vec WHERE k = 2").one().v) == [3.0, 4.0, 5.0]
    with pytest.raises(InvalidRequest):
        session.execute("INSERT INTO vec (k, v) VALUES (3, [1.0, 2.0])")


def test_clustering_orders_sort_by_the_type(session):
    session.execute("CREATE TABLE sorting (k int, c varint, PRIMARY KEY (k, c)) "
                    "WITH CLUSTERING ORDER BY (c DESC)")
    insert = session.prepare("INSERT INTO sorting (k, c) VALUES (1, ?)")
    values = [0, 1, -1, 2**70, -(2**70), 255, 256, -255, -256, 127, 128]
    for value in values:
        session.execute(insert, (value,))
    read = [r.c for r in session.execute("SELECT c FROM sorting WHERE k = 1")]
    assert read == sorted(values, reverse=True)


# ------------------------------------------------------------------- batches


@pytest.mark.parametrize("kind", [BatchType.LOGGED, BatchType.UNLOGGED])
def test_batches_apply_all_statements(session, kind):
    table = "batch_%s" % ("logged" if kind == BatchType.LOGGED else "unlogged")
    session.execute(f"CREATE TABLE {table} (k int, c int, v text, PRIMARY KEY (k, c))")
    insert = session.prepare(f"INSERT INTO {table} (k, c, v) VALUES (?, ?, ?)")
    batch = BatchStatement(batch_type=kind)
    for i in range(20):
        batch.add(insert, (i % 3, i, "p%d" % i))
    batch.add(SimpleStatement(f"INSERT INTO {table} (k, c, v) VALUES (%s, %s, %s)"), (9, 9, "s"))
    batch.add(SimpleStatement(f"DELETE FROM {table} WHERE k = 0 AND c = 0"))
    session.execute(batch)
    rows = {(r.k, r.c): r.v for r in session.execute(f"SELECT * FROM {table}")}
    # the deletion has the batch's own timestamp and wins over the insertion of the same row
    assert (0, 0) not in rows
    assert rows[(9, 9)] == "s" and len(rows) == 20


def test_batch_timestamp_applies_to_every_statement(session):
    session.execute("CREATE TABLE batch_ts (k int PRIMARY KEY, v int)")
    session.execute("BEGIN BATCH USING TIMESTAMP 5555 "
                    "INSERT INTO batch_ts (k, v) VALUES (1, 1); "
                    "INSERT INTO batch_ts (k, v) VALUES (2, 2); APPLY BATCH")
    assert {r.w for r in session.execute("SELECT writetime(v) AS w FROM batch_ts")} == {5555}


def test_a_select_in_a_batch_is_refused(session):
    batch = BatchStatement()
    batch.add(SimpleStatement("SELECT * FROM batch_ts"))
    with pytest.raises(InvalidRequest):
        session.execute(batch)


# -------------------------------------------------------------------- errors


def refused(session, cql, kind=InvalidRequest):
    with pytest.raises(kind) as info:
        session.execute(cql)
    return str(info.value)


def test_syntax_error_names_the_place(session):
    text = refused(session, "SELEKT * FROM nothing", SyntaxException)
    assert "line 1:0" in text


def test_missing_table_is_an_invalid_request(session):
    assert "table nosuch does not exist" in refused(session, "SELECT * FROM nosuch")


def test_missing_keyspace_is_an_invalid_request(session):
    assert "keyspace nokeyspace does not exist" in refused(session, "SELECT * FROM nokeyspace.t")


def test_unknown_column_is_an_invalid_request(session):
    session.execute("CREATE TABLE errs (k int, c int, v int, PRIMARY KEY (k, c))")
    text = refused(session, "SELECT zzz FROM errs")
    assert "Undefined column name zzz in table" in text


def test_filtering_needs_permission(session):
    text = refused(session, "SELECT * FROM errs WHERE v = 1")
    assert "use ALLOW FILTERING" in text
    assert list(session.execute("SELECT * FROM errs WHERE v = 1 ALLOW FILTERING")) == []


def test_wrong_literal_type_is_an_invalid_request(session):
    text = refused(session, "INSERT INTO errs (k, c, v) VALUES ('x', 1, 1)")
    assert "Invalid STRING constant (x) for \"k\" of type int" in text


def test_missing_key_columns_are_an_invalid_request(session):
    assert "Some partition key parts are missing: k" in refused(
        session, "UPDATE errs SET v = 1 WHERE c = 1")
    assert "Some clustering keys are missing: c" in refused(
        session, "INSERT INTO errs (k, v) VALUES (1, 1)")


def test_creating_a_table_twice_is_already_exists(session, keyspace):
    with pytest.raises(AlreadyExists) as info:
        session.execute("CREATE TABLE errs (k int PRIMARY KEY)")
    assert (info.value.keyspace, info.value.table) == (keyspace, "errs")
    with pytest.raises(AlreadyExists) as info:
        session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = "
                        "{'class': 'SimpleStrategy', 'replication_factor': 1}")
    assert info.value.keyspace == keyspace
    session.execute("CREATE TABLE IF NOT EXISTS errs (k int PRIMARY KEY)")


def test_unknown_replication_strategy_is_a_configuration_error(session):
    text = refused(session, "CREATE KEYSPACE badrep WITH replication = {'class': 'NoStrategy'}",
                   ConfigurationException)
    assert "NoStrategy" in text


def test_quorum_of_three_replicas_is_unavailable_on_one_node(cluster):
    session = cluster.connect()
    name = "drv_rf3_" + uuid.uuid4().hex[:8]
    session.execute(f"CREATE KEYSPACE {name} WITH replication = "
                    "{'class': 'SimpleStrategy', 'replication_factor': 3}")
    session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY)")
    query = SimpleStatement(f"INSERT INTO {name}.t (k) VALUES (1)",
                            consistency_level=ConsistencyLevel.QUORUM)
    with pytest.raises((Unavailable, NoHostAvailable)) as info:
        session.execute(query)
    error = info.value
    if isinstance(error, NoHostAvailable):
        error = list(error.errors.values())[0]
    assert isinstance(error, Unavailable)
    assert (error.required_replicas, error.alive_replicas) == (2, 1)
    query.consistency_level = ConsistencyLevel.ONE
    session.execute(query)
    session.execute(f"DROP KEYSPACE {name}")
    session.shutdown()


def test_the_connection_is_usable_after_errors(session):
    for _ in range(50):
        refused(session, "SELECT * FROM nosuch")
    assert session.execute("SELECT key FROM system.local").one().key == "local"


# --------------------------------------------------- tracing, warnings, load


def test_tracing_gives_events(session):
    result = session.execute("SELECT * FROM system.local", trace=True)
    trace = result.get_query_trace(max_wait_sec=10)
    assert trace.request_type
    assert trace.coordinator is not None
    assert len(trace.events) >= 1


def test_concurrent_load_reads_what_it_wrote(session):
    session.execute("CREATE TABLE load (k int PRIMARY KEY, v text, n bigint)")
    insert = session.prepare("INSERT INTO load (k, v, n) VALUES (?, ?, ?)")
    args = [(i, "value-%d" % i, i * i) for i in range(3000)]
    for success, result in execute_concurrent_with_args(session, insert, args, concurrency=128):
        assert success, result
    select = session.prepare("SELECT v, n FROM load WHERE k = ?")
    results = execute_concurrent_with_args(
        session, select, [(i,) for i in range(3000)], concurrency=128)
    for i, (success, result) in enumerate(results):
        assert success, result
        row = result.one()
        assert (row.v, row.n) == ("value-%d" % i, i * i)
    assert session.execute("SELECT count(*) AS n FROM load").one().n == 3000


def test_mixed_statements_run_concurrently(session):
    select = session.prepare("SELECT n FROM load WHERE k = ?")
    statements = []
    for i in range(500):
        statements.append((select, (i,)))
        statements.append((SimpleStatement("SELECT * FROM nosuch"), ()))
    results = execute_concurrent(session, statements, concurrency=64, raise_on_first_error=False)
    for i, (success, result) in enumerate(results):
        if i % 2 == 0:
            assert success and result.one().n == (i // 2) ** 2
        else:
            assert not success and isinstance(result, InvalidRequest)


def test_threads_share_one_session(session):
    failures = []

    def work(seed):
        try:
            insert = session.prepare("INSERT INTO load (k, v, n) VALUES (?, ?, ?)")
            for i in range(50):
                key = 100_000 + seed * 1000 + i
                session.execute(insert, (key, str(key), key))
                row = session.execute("SELECT n FROM load WHERE k = %s", (key,)).one()
                assert row.n == key
        except Exception as error:  # collected: a thread's exception is otherwise lost
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_large_rows_and_large_results(session):
    session.execute("CREATE TABLE large (k int, c int, v blob, PRIMARY KEY (k, c))")
    insert = session.prepare("INSERT INTO large (k, c, v) VALUES (1, ?, ?)")
    blob = random.Random(1).randbytes(1_000_000)
    for i in range(6):
        session.execute(insert, (i, blob))
    rows = list(session.execute("SELECT c, v FROM large WHERE k = 1"))
    assert [r.c for r in rows] == list(range(6))
    assert all(r.v == blob for r in rows)


def test_drop_keyspace_removes_it(cluster):
    session = cluster.connect()
    name = "drv_drop_" + uuid.uuid4().hex[:8]
    session.execute(f"CREATE KEYSPACE {name} WITH replication = "
                    "{'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY)")
    session.execute(f"DROP KEYSPACE {name}")
    assert name not in cluster.metadata.keyspaces
    with pytest.raises(InvalidRequest):
        session.execute(f"SELECT * FROM {name}.t")
    session.shutdown()


# ---------------------------------------------------------------- conditions


def test_if_not_exists_tells_what_was_there(session):
    session.execute("CREATE TABLE lwt (k int, c int, v text, PRIMARY KEY (k, c))")
    insert = "INSERT INTO lwt (k, c, v) VALUES (1, 1, 'a') IF NOT EXISTS"
    first = session.execute(insert)
    assert first.was_applied
    # The fork has ScyllaDB's LWT mark, and gets what was there also when it was applied: nothing.
    is_fork = any(d.metadata["Name"] == "scylla-driver" for d in distributions())
    assert tuple(first.one()) == ((True, None, None, None) if is_fork else (True,))
    second = session.execute(insert)
    assert not second.was_applied
    assert second.column_names == ["[applied]", "k", "c", "v"]
    assert tuple(second.one()) == (False, 1, 1, "a")


def test_prepared_conditions_describe_each_answer(session):
    session.execute("CREATE TABLE lwt_prepared (k int PRIMARY KEY, v int, s set<text>)")
    update = session.prepare("UPDATE lwt_prepared SET v = ?, s = s + ? WHERE k = ? IF v = ?")
    assert session.execute(update, (1, {"a"}, 1, None)).was_applied
    assert session.execute(update, (2, {"b"}, 1, 1)).was_applied
    lost = session.execute(update, (3, {"c"}, 1, 1))
    assert not lost.was_applied
    assert lost.column_names == ["[applied]", "v"]
    assert tuple(lost.one()) == (False, 2)
    among = session.prepare("UPDATE lwt_prepared SET v = 4 WHERE k = 1 IF v IN ? AND s = ?")
    assert session.execute(among, ([1, 2], {"a", "b"})).was_applied
    assert session.execute("SELECT v FROM lwt_prepared WHERE k = 1").one().v == 4


def test_conditional_batches_apply_whole_or_not_at_all(session):
    session.execute("CREATE TABLE lwt_batch (k int, c int, v int, PRIMARY KEY (k, c))")
    insert = session.prepare("INSERT INTO lwt_batch (k, c, v) VALUES (?, ?, ?) IF NOT EXISTS")
    plain = session.prepare("INSERT INTO lwt_batch (k, c, v) VALUES (?, ?, ?)")
    for applied in (True, False):
        batch = BatchStatement(batch_type=BatchType.LOGGED)
        batch.add(insert, (1, 1, 10))
        batch.add(insert, (1, 2, 20))
        batch.add(plain, (1, 3, 30))
        answer = session.execute(batch)
        assert answer.was_applied is applied
    rows = list(answer)
    rows = [tuple(r) for r in rows]
    assert rows[:2] == [(False, 1, 1, 10), (False, 1, 2, 20)]
    # A driver that asks for ScyllaDB's form gets a row for the plain INSERT, too.
    assert rows[2:] in ([], [(False, None, None, None)])
    assert len(list(session.execute("SELECT * FROM lwt_batch"))) == 3


def test_serial_levels(session):
    session.execute("CREATE TABLE lwt_levels (k int PRIMARY KEY, v int)")
    for level in (ConsistencyLevel.SERIAL, ConsistencyLevel.LOCAL_SERIAL):
        query = f"INSERT INTO lwt_levels (k, v) VALUES ({level}, 1) IF NOT EXISTS"
        assert session.execute(SimpleStatement(query, serial_consistency_level=level)).was_applied
        read = SimpleStatement(
            f"SELECT v FROM lwt_levels WHERE k = {level}", consistency_level=level
        )
        assert session.execute(read).one().v == 1
    with pytest.raises(InvalidRequest, match="conditional update commit consistency"):
        session.execute(SimpleStatement(query, consistency_level=ConsistencyLevel.SERIAL))


def test_threads_that_compare_and_set_lose_nothing(session):
    session.execute("CREATE TABLE lwt_count (k int PRIMARY KEY, v int)")
    session.execute("INSERT INTO lwt_count (k, v) VALUES (1, 0) IF NOT EXISTS")
    update = session.prepare("UPDATE lwt_count SET v = ? WHERE k = 1 IF v = ?")

    def add(times):
        current = 0
        while times:
            answer = session.execute(update, (current + 1, current))
            if answer.was_applied:
                times -= 1
                current += 1
            else:
                current = answer.one().v

    threads = [threading.Thread(target=add, args=(25,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert session.execute("SELECT v FROM lwt_count WHERE k = 1").one().v == 100


# User functions in WebAssembly. A stock Cassandra has none, so these are skipped there.

FIB = """(module
    (func $fib (param $n i64) (result i64)
        (if (i64.lt_s (local.get $n) (i64.const 2)) (then (return (local.get $n))))
        (i64.add
            (call $fib (i64.sub (local.get $n) (i64.const 1)))
            (call $fib (i64.sub (local.get $n) (i64.const 2)))))
    (export "fib" (func $fib)))"""

# ASCII letters to upper case: text goes through memory, and comes back from where it was put.
SHOUT = """(module
    (memory (export "memory") 1)
    (global (export "_scylla_abi") i32 (i32.const 1024))
    (data (i32.const 1024) "\\02")
    (global $free (mut i32) (i32.const 2048))
    (func (export "_scylla_malloc") (param $bytes i32) (result i32)
        (global.get $free)
        (global.set $free (i32.add (global.get $free) (local.get $bytes))))
    (func (export "_scylla_free") (param i32))
    (func (export "shout") (param $value i64) (result i64)
        (local $at i32) (local $end i32) (local $byte i32)
        (local.set $at (i32.wrap_i64 (local.get $value)))
        (local.set $end
            (i32.add (local.get $at) (i32.wrap_i64 (i64.shr_u (local.get $value) (i64.const 32)))))
        (block $done
            (loop $next
                (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
                (local.set $byte (i32.load8_u (local.get $at)))
                (if (i32.and
                        (i32.ge_u (local.get $byte) (i32.const 97))
                        (i32.le_u (local.get $byte) (i32.const 122)))
                    (then (i32.store8 (local.get $at) (i32.sub (local.get $byte) (i32.const 32)))))
                (local.set $at (i32.add (local.get $at) (i32.const 1)))
                (br $next)))
        (local.get $value)))"""

PLUS = """(module (func (export "plus") (param i64 i64) (result i64)
    (i64.add (local.get 0) (local.get 1))))"""


@pytest.fixture(scope="session")
def functions(session, keyspace):
    try:
        session.execute(
            "CREATE FUNCTION fib (n bigint) RETURNS NULL ON NULL INPUT RETURNS bigint "
            f"LANGUAGE wasm AS $${FIB}$$"
        )
    except InvalidRequest as error:
        if "Java UDFs" in str(error) or "disabled" in str(error):
            pytest.skip("the server has no functions in WebAssembly")
        raise
    session.execute(
        "CREATE FUNCTION shout (t text) RETURNS NULL ON NULL INPUT RETURNS text "
        f"LANGUAGE wasm AS $${SHOUT}$$"
    )
    session.execute(
        "CREATE FUNCTION plus (a bigint, b bigint) RETURNS NULL ON NULL INPUT RETURNS bigint "
        f"LANGUAGE wasm AS $${PLUS}$$"
    )
    session.execute("CREATE AGGREGATE total (bigint) SFUNC plus STYPE bigint INITCOND 0")
    session.execute("CREATE TABLE fibs (k int, n bigint, w text, PRIMARY KEY (k, n))")
    for i in range(30):
        session.execute("INSERT INTO fibs (k, n, w) VALUES (%s, %s, %s)", (i % 2, i % 15, f"w{i}é"))
    return keyspace


def test_user_functions_compute(session, functions):
    rows = session.execute(f"SELECT n, {functions}.fib(n), shout(w) FROM fibs WHERE k = 0 LIMIT 4")
    assert [tuple(row) for row in rows] == [
        (0, 0, "W0é"), (1, 1, "W16é"), (2, 1, "W2é"), (3, 2, "W18é")
    ]
    prepared = session.prepare("SELECT fib(?) AS f, shout(?) AS s FROM fibs WHERE k = 1 LIMIT 1")
    row = session.execute(prepared, (20, "grüße")).one()
    assert (row.f, row.s) == (6765, "GRüßE")
    assert tuple(session.execute(prepared, (None, None)).one()) == (None, None)
    insert = session.prepare("INSERT INTO fibs (k, n, w) VALUES (2, fib(?), shout(?))")
    session.execute(insert, (10, "x"))
    assert session.execute("SELECT w FROM fibs WHERE k = 2 AND n = fib(10)").one().w == "X"


def test_user_aggregates_go_over_pages_and_groups(session, functions):
    sums = {k: sum(i % 15 for i in range(30) if i % 2 == k) for k in (0, 1)}
    statement = SimpleStatement(
        "SELECT k, total(n) AS t, max(fib(n)) AS f FROM fibs WHERE k IN (0, 1) GROUP BY k",
        fetch_size=1,
    )
    assert {row.k: (row.t, row.f) for row in session.execute(statement)} == {
        k: (total, 377) for k, total in sums.items()
    }
    statement = SimpleStatement("SELECT total(n) AS t FROM fibs WHERE k IN (0, 1)", fetch_size=3)
    assert session.execute(statement).one().t == sum(sums.values())


def test_user_functions_are_in_the_driver_metadata(cluster, session, functions):
    cluster.refresh_schema_metadata()
    metadata = cluster.metadata.keyspaces[functions]
    assert set(metadata.functions) == {"fib(bigint)", "shout(text)", "plus(bigint,bigint)"}
    fib = metadata.functions["fib(bigint)"]
    assert (fib.language, fib.return_type, fib.called_on_null_input) == ("wasm", "bigint", False)
    total = metadata.aggregates["total(bigint)"]
    assert (total.state_func, total.state_type, total.initial_condition) == ("plus", "bigint", "0")
    described = session.execute("DESCRIBE FUNCTION fib").one().create_statement
    session.execute(f"DROP FUNCTION {functions}.fib")
    session.execute(described)
    assert session.execute("SELECT fib(n) AS f FROM fibs WHERE k = 0 AND n = 12").one().f == 144


def test_a_failing_user_function_fails_its_statement_only(session, functions):
    session.execute(
        "CREATE FUNCTION endless (n bigint) RETURNS NULL ON NULL INPUT RETURNS bigint LANGUAGE wasm "
        "AS $$(module (func (export \"endless\") (param i64) (result i64) (loop (br 0)) "
        "(i64.const 1)))$$"
    )
    with pytest.raises(FunctionFailure) as failure:
        session.execute("SELECT endless(n) FROM fibs")
    assert (failure.value.function, failure.value.arg_types) == ("endless", ["bigint"])
    assert session.execute("SELECT fib(n) AS f FROM fibs WHERE k = 0 AND n = 12").one().f == 144
    with pytest.raises(InvalidRequest, match="LANGUAGE wasm"):
        session.execute(
            "CREATE FUNCTION j (n int) RETURNS NULL ON NULL INPUT RETURNS int LANGUAGE java "
            "AS 'return n;'"
        )
