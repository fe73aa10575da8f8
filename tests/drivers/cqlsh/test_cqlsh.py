"""What a person does with cqlsh 6.2.2 from PyPI, against the server under test."""
import csv
import os
import re
import subprocess
import uuid

import pytest

HOST = os.environ.get("HELENUS_HOST", "127.0.0.1")
PORT = os.environ.get("HELENUS_PORT", "9042")
CQLSH = os.environ.get("CQLSH", "cqlsh")


def cqlsh(*arguments, stdin=None, status=0, cwd=None):
    """Runs cqlsh and returns (stdout, stderr) after checking its exit status."""
    home = os.environ.get("CQLSH_TEST_HOME")
    environment = dict(os.environ, TERM="dumb", COLUMNS="200", LINES="50", CQL_HISTORY="/dev/null")
    if home:
        environment["HOME"] = home
    done = subprocess.run(
        [CQLSH, HOST, PORT, "--no-color", "--connect-timeout=30", "--request-timeout=60",
         *arguments],
        input=stdin, capture_output=True, text=True, timeout=240, env=environment, cwd=cwd,
        stdin=subprocess.DEVNULL if stdin is None else None,
    )
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    # cqlsh 6.2.2 warns of every server that is not exactly 5.0.0
    return re.sub(r"\AWARNING: cqlsh was built against .*\n", "", done.stdout), done.stderr


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory):
    """An empty home, so that no cqlshrc of the user changes the output."""
    path = tmp_path_factory.mktemp("home")
    os.environ["CQLSH_TEST_HOME"] = str(path)
    return path


@pytest.fixture(scope="session")
def keyspace():
    name = "drv_cqlsh_" + uuid.uuid4().hex[:8]
    cqlsh("-e", f"CREATE KEYSPACE {name} WITH replication = "
                "{'class': 'SimpleStrategy', 'replication_factor': 1}")
    yield name
    cqlsh("-e", f"DROP KEYSPACE {name}")


@pytest.fixture(scope="session")
def table(keyspace):
    cqlsh("-k", keyspace, stdin="""
        CREATE TYPE point (x int, y int);
        CREATE TABLE things (
            k int, c text, i int, b blob, d double, l list<int>, m map<text, int>,
            p frozen<point>, s set<text>, st text STATIC, t timestamp, u uuid,
            PRIMARY KEY (k, c)
        ) WITH CLUSTERING ORDER BY (c DESC) AND comment = 'it''s a table';
        INSERT INTO things (k, c, i, b, d, l, m, p, s, st, t, u) VALUES (
            1, 'a', 10, 0xcafe, 1.5, [1, 2], {'one': 1}, {x: 3, y: 4}, {'x', 'y'}, 'static',
            '2024-01-02 03:04:05.678+0000', f79326be-2d7b-4996-b881-f9f0d571ffe0);
        INSERT INTO things (k, c, i) VALUES (1, 'b', 20);
        INSERT INTO things (k, c, i) VALUES (2, 'a,"quoted"', 30);
    """)
    return "things"


def rows_of(output):
    """The cells of a printed table, without header and rule."""
    lines = output.splitlines()
    start = next(i for i, line in enumerate(lines) if re.fullmatch(r"[-+]+", line))
    cells = []
    for line in lines[start + 1:]:
        if not line.strip() or line.startswith("("):
            break
        cells.append([cell.strip() for cell in line.split("|")])
    return cells


# ---------------------------------------------------------- starting, -e, -f


def test_show_version_and_host():
    out, _ = cqlsh("-e", "SHOW VERSION; SHOW HOST")
    assert "[cqlsh 6.2.2 | Cassandra 5.0.9 | CQL spec 3.4.7 | Native protocol v5]" in out
    assert f"at {HOST}:{PORT}" in out


def test_execute_option_prints_a_table(keyspace, table):
    out, _ = cqlsh("-k", keyspace, "-e", "SELECT k, c, i FROM things WHERE k = 1")
    assert rows_of(out) == [["1", "b", "20"], ["1", "a", "10"]]
    assert "(2 rows)" in out


def test_every_type_is_formatted(keyspace, table):
    out, _ = cqlsh("-k", keyspace, "-e", "SELECT * FROM things WHERE k = 1 AND c = 'a'")
    header = [h.strip() for h in out.strip().splitlines()[0].split("|")]
    assert header == ["k", "c", "st", "b", "d", "i", "l", "m", "p", "s", "t", "u"]
    assert rows_of(out) == [[
        "1", "a", "static", "0xcafe", "1.5", "10", "[1, 2]", "{'one': 1}", "{x: 3, y: 4}",
        "{'x', 'y'}", "2024-01-02 03:04:05.678000+0000", "f79326be-2d7b-4996-b881-f9f0d571ffe0"]]


def test_file_option_runs_every_statement(keyspace, tmp_path):
    script = tmp_path / "script.cql"
    script.write_text(
        f"-- a comment\nUSE {keyspace};\n"
        "CREATE TABLE from_file (k int PRIMARY KEY, v text); // another\n"
        "INSERT INTO from_file (k, v)\n  VALUES (1, 'semi;colon');\n"
        "/* block\n comment */\nSELECT * FROM from_file;\n"
        "BEGIN BATCH INSERT INTO from_file (k, v) VALUES (2, 'b'); "
        "INSERT INTO from_file (k, v) VALUES (3, 'c'); APPLY BATCH;\n"
        "SELECT count(*) FROM from_file;\n")
    out, _ = cqlsh("-f", str(script))
    assert "semi;colon" in out
    assert re.search(r"count\s*-+\s*3\s", out)


def test_statements_from_standard_input(keyspace, table):
    out, _ = cqlsh("-k", keyspace, stdin="SELECT i FROM things WHERE k = 2;\n")
    assert "30" in out


def test_source_command_runs_a_file(keyspace, tmp_path):
    (tmp_path / "inner.cql").write_text("SELECT key FROM system.local;\n")
    out, _ = cqlsh("-k", keyspace, "-e", f"SOURCE '{tmp_path}/inner.cql'")
    assert "local" in out


def test_capture_writes_the_output_to_a_file(keyspace, table, tmp_path):
    target = tmp_path / "captured.txt"
    cqlsh("-k", keyspace, stdin=f"CAPTURE '{target}'\nSELECT i FROM things WHERE k = 2;\nCAPTURE OFF\n")
    assert "30" in target.read_text()


def test_an_error_is_printed_and_the_exit_status_is_2(keyspace):
    _, err = cqlsh("-k", keyspace, "-e", "SELECT * FROM nosuch", status=2)
    assert "InvalidRequest: Error from server: code=2200 [Invalid query]" in err
    assert 'message="table nosuch does not exist"' in err


def test_a_syntax_error_is_printed(keyspace):
    _, err = cqlsh("-k", keyspace, "-e", "SELEKT 1", status=2)
    assert "SyntaxException" in err and "line 1:0" in err


def test_a_keyspace_that_is_not_there_is_an_error():
    _, err = cqlsh("-k", "no_such_keyspace", "-e", "SHOW HOST", status=1)
    assert "Unable to connect to any servers using keyspace 'no_such_keyspace'" in err


def test_expand_and_json(keyspace, table):
    out, _ = cqlsh("-k", keyspace, "-e", "EXPAND ON; SELECT k, c FROM things WHERE k = 2")
    assert "@ Row 1" in out and '"quoted"' in out


def test_consistency_is_set_and_checked(keyspace, table):
    out, _ = cqlsh("-k", keyspace, "-e",
                   "CONSISTENCY QUORUM; CONSISTENCY; SELECT i FROM things WHERE k = 2")
    assert "Consistency level set to QUORUM." in out
    assert "Current consistency level is QUORUM." in out
    assert "30" in out


# ------------------------------------------------------------------ DESCRIBE


def test_describe_cluster():
    out, _ = cqlsh("-e", "DESCRIBE CLUSTER")
    assert re.search(r"^Cluster: \S", out, re.M)
    assert "Partitioner: Murmur3Partitioner" in out
    assert re.search(r"^Snitch: \S", out, re.M)


def test_describe_keyspaces_and_tables(keyspace, table):
    out, _ = cqlsh("-e", "DESCRIBE KEYSPACES")
    assert {"system", "system_schema", "system_views", "system_virtual_schema", keyspace} <= set(out.split())
    out, _ = cqlsh("-k", keyspace, "-e", "DESCRIBE TABLES")
    assert "things" in out.split()
    out, _ = cqlsh("-k", keyspace, "-e", "DESCRIBE TYPES")
    assert out.split() == ["point"]


EXPECTED_TABLE = """CREATE TABLE {keyspace}.things (
    k int,
    c text,
    st text static,
    b blob,
    d double,
    i int,
    p frozen<point>,
    t timestamp,
    u uuid,
    l list<int>,
    m map<text, int>,
    s set<text>,
    PRIMARY KEY (k, c)
) WITH CLUSTERING ORDER BY (c DESC)
    AND additional_write_policy = '99p'
    AND allow_auto_snapshot = true
    AND bloom_filter_fp_chance = 0.01
    AND caching = {{'keys': 'ALL', 'rows_per_partition': 'NONE'}}
    AND cdc = false
    AND comment = 'it''s a table'
    AND compaction = {{'class': 'org.apache.cassandra.db.compaction.SizeTieredCompactionStrategy', 'max_threshold': '32', 'min_threshold': '4'}}
    AND compression = {{'chunk_length_in_kb': '16', 'class': 'org.apache.cassandra.io.compress.LZ4Compressor'}}
    AND memtable = 'default'
    AND crc_check_chance = 1.0
    AND default_time_to_live = 0
    AND extensions = {{}}
    AND gc_grace_seconds = 864000
    AND incremental_backups = true
    AND max_index_interval = 2048
    AND memtable_flush_period_in_ms = 0
    AND min_index_interval = 128
    AND read_repair = 'BLOCKING'
    AND speculative_retry = '99p';"""


def test_describe_table_is_the_exact_text(keyspace, table):
    out, _ = cqlsh("-k", keyspace, "-e", "DESCRIBE TABLE things")
    assert out.strip() == EXPECTED_TABLE.format(keyspace=keyspace)


def test_describe_type_is_the_exact_text(keyspace, table):
    out, _ = cqlsh("-k", keyspace, "-e", "DESCRIBE TYPE point")
    assert out.strip() == f"CREATE TYPE {keyspace}.point (\n    x int,\n    y int\n);"


def test_describe_keyspace_recreates_it(keyspace, table):
    out, _ = cqlsh("-e", f"DESCRIBE KEYSPACE {keyspace}")
    assert (f"CREATE KEYSPACE {keyspace} WITH replication = "
            "{'class': 'SimpleStrategy', 'replication_factor': '1'}  AND durable_writes = true;") in out
    assert EXPECTED_TABLE.format(keyspace=keyspace) in out
    copy = keyspace + "_copy"
    cqlsh(stdin=out.replace(keyspace, copy))
    again, _ = cqlsh("-e", f"DESCRIBE KEYSPACE {copy}")
    cqlsh("-e", f"DROP KEYSPACE {copy}")
    assert again.replace(copy, keyspace) == out


def test_describe_full_schema_names_everything(keyspace, table):
    out, _ = cqlsh("-e", "DESCRIBE FULL SCHEMA")
    assert "CREATE KEYSPACE system_schema" in out and f"CREATE TABLE {keyspace}.things" in out
    out, _ = cqlsh("-e", "DESCRIBE SCHEMA")
    assert "CREATE KEYSPACE system " not in out and f"CREATE TABLE {keyspace}.things" in out


def test_describe_of_a_missing_table_is_an_error(keyspace):
    _, err = cqlsh("-k", keyspace, "-e", "DESCRIBE TABLE nosuch", status=2)
    assert "'nosuch' not found in keyspace" in err


def test_describe_system_table():
    out, _ = cqlsh("-e", "DESCRIBE TABLE system.local")
    assert "CREATE TABLE system.local (" in out and "PRIMARY KEY" in out


# ------------------------------------------------------------ paging, tracing


def test_paging_prints_all_rows(keyspace):
    cqlsh("-k", keyspace, "-e", "CREATE TABLE pages (k int, c int, PRIMARY KEY (k, c)); " + " ".join(
        f"INSERT INTO pages (k, c) VALUES (1, {i});" for i in range(25)))
    out, _ = cqlsh("-k", keyspace, "-e", "PAGING 10; SELECT c FROM pages WHERE k = 1")
    assert "Page size: 10" in out
    assert [int(n) for n in re.findall(r"^\s+(\d+)\s*$", out, re.M)] == list(range(25))
    assert "(25 rows)" in out
    out, _ = cqlsh("-k", keyspace, "-e", "PAGING OFF; SELECT c FROM pages WHERE k = 1")
    assert "PAGING set to OFF" in out and "(25 rows)" in out


def test_tracing_prints_the_session(keyspace, table):
    out, _ = cqlsh("-k", keyspace, "-e", "TRACING ON; SELECT i FROM things WHERE k = 2")
    assert "TRACING set to ON" in out
    assert "30" in out
    session = re.search(r"Tracing session: ([0-9a-f-]{36})", out)
    assert session and uuid.UUID(session.group(1)).version == 1
    assert re.search(r"activity\s*\|\s*timestamp\s*\|\s*source\s*\|\s*source_elapsed\s*\|\s*client", out)
    assert "Request complete" in out


# ---------------------------------------------------------------------- COPY

COPY_COLUMNS = "id, a, b, c, d, e, f, g, h"


def test_copy_to_and_from_round_trip_every_row(keyspace, tmp_path):
    definition = ("CREATE TABLE {} (id int PRIMARY KEY, a text, b double, c timestamp, d uuid, "
                  "e list<int>, f map<text, int>, g blob, h boolean)")
    source = tmp_path / "source.csv"
    with source.open("w", newline="") as handle:
        writer = csv.writer(handle, doublequote=False, escapechar="\\")
        for i in range(2500):
            writer.writerow([
                i, f"text, with \"quotes\" {i}", i / 8, "2024-05-06 07:08:09.012+0000",
                str(uuid.UUID(int=i)), f"[{i}, {i + 1}]", f"{{'k{i}': {i}}}", "0x%04x" % i,
                "True" if i % 2 else "False"])
    cqlsh("-k", keyspace, "-e", definition.format("copied"))
    cqlsh("-k", keyspace, "-e", definition.format("copied2"))
    out, _ = cqlsh("-k", keyspace, "-e", f"COPY copied ({COPY_COLUMNS}) FROM '{source}'")
    assert "2500 rows imported from 1 files" in out
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    out, _ = cqlsh("-k", keyspace, "-e", f"COPY copied ({COPY_COLUMNS}) TO '{first}' WITH HEADER = true")
    assert "2500 rows exported to 1 files" in out
    cqlsh("-k", keyspace, "-e", f"COPY copied2 ({COPY_COLUMNS}) FROM '{first}' WITH HEADER = true")
    cqlsh("-k", keyspace, "-e", f"COPY copied2 ({COPY_COLUMNS}) TO '{second}' WITH HEADER = true")
    one, two = (sorted(path.read_text().splitlines()) for path in (first, second))
    assert one == two and len(one) == 2501
    with first.open(newline="") as handle:
        by_id = {row["id"]: row for row in csv.DictReader(
            handle, doublequote=False, escapechar="\\")}
    assert by_id["7"]["a"] == 'text, with "quotes" 7'
    assert by_id["7"]["b"] == "0.875"
    assert by_id["7"]["g"] == "0x0007"


def test_copy_from_reports_rows_that_do_not_parse(keyspace, tmp_path):
    cqlsh("-k", keyspace, "-e", "CREATE TABLE strict (k int PRIMARY KEY, v int)")
    source = tmp_path / "bad.csv"
    source.write_text("1,1\n2,notanumber\n3,3\n")
    _, err = cqlsh("-k", keyspace, "-e", f"COPY strict (k, v) FROM '{source}' "
                   f"WITH ERRFILE = '{tmp_path}/errors'", status=2)
    assert "Failed to import 1 rows" in err or "Failed to process 1 rows" in err
    out, _ = cqlsh("-k", keyspace, "-e", "SELECT k FROM strict")
    assert "(2 rows)" in out
