"""See README.md. `files.py DIR [PART]...`: the parts 1 to 9; all when none is named."""

import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import traceback
from pathlib import Path

from cassandra.query import SimpleStatement

import workload
from indexed import indexed
from names import names
from servers import ADDRESS, CLUSTER_NAME, Cassandra, CassandraFiles, Helenus, copy, sstable_tool, sstables
from turns import turns
from without import without


class Report:
    def __init__(self):
        self.passed = 0
        self.failed = 0

    def check(self, name, difference):
        """Counts one comparison; `difference` is empty when all is well."""
        if difference:
            self.failed += 1
            print(f"FAILED {name}\n{indent(difference)}", flush=True)
        else:
            self.passed += 1

    def part(self, number, function, *arguments):
        print(f"part {number}: {function.__doc__.splitlines()[0]}", flush=True)
        started = time.monotonic()
        try:
            function(self, *arguments)
        except Exception:
            self.check(f"part {number}", traceback.format_exc())
        print(f"part {number} took {time.monotonic() - started:.0f} s", flush=True)


def indent(text, lines=25):
    shown = text.splitlines()
    more = [f"… {len(shown) - lines} more lines"] if len(shown) > lines else []
    return "\n".join("    " + line[:400] for line in shown[:lines] + more)


def difference(expected, found, names):
    """A unified diff of two texts; empty when they are the same."""
    if expected == found:
        return ""
    lines = difflib.unified_diff(expected.splitlines(), found.splitlines(), *names, lineterm="", n=1)
    return "\n".join(lines) or "only the ends of lines differ"


def answer(session, statement, fetch_size):
    """All pages of an answer as text: names, types and rows; an error as its text."""
    try:
        result = session.execute(SimpleStatement(statement, fetch_size=fetch_size))
        names = list(zip(result.column_names, [t.cql_parameterized_type() for t in result.column_types]))
        rows = [show(row) for row in result]
    except Exception as error:  # whatever it is, the other program must say the same
        return f"{type(error).__name__}: {error}"
    return "\n".join([str(names), f"{len(rows)} rows", *rows])


def show(row):
    return repr(tuple(sorted(v) if isinstance(v, (set, frozenset)) else v for v in row))


def answers(session, codecs=False):
    queries = list(workload.queries()) + (list(workload.codec_queries()) if codecs else [])
    return {(s, f): answer(session, s, f) for s, f in queries}


def fill(server, session, flush=True):
    """Creates and fills all tables, with SSTables of two generations."""
    workload.create(session)
    at = workload.fill_first(session)
    server.flush()
    workload.fill_second(session, at)
    if flush:
        server.flush()
    # What was written with a time to live of one second is gone from now on.
    time.sleep(2.5)


def compare_answers(report, part, expected, found, names):
    for query, text in expected.items():
        report.check(f"{part}: {query[0]} (page size {query[1]})", difference(text, found[query], names))


def tools(report, work):
    """Cassandra's tools and ours agree on the files that Helenus wrote."""
    home = work / "helenus"
    shutil.rmtree(home, ignore_errors=True)
    with Helenus(home) as server:
        cluster, session = server.connect()
        fill(server, session)
        expected = answers(session)
        (work / "helenus-answers.json").write_text(
            json.dumps([[s, f, text] for (s, f), text in expected.items()])
        )
        server.drain()
        cluster.shutdown()
        status = server.stop()
    report.check("tools: helenus stops with status 0", "" if status == 0 else f"status {status}")
    copied = copy(home, work / "helenus-tools")
    compare_tools(report, CassandraFiles(copied), copied)
    compare_upgrades(report, work, copied)
    compare_exports(report, work, copied)
    compare_partitions(report, CassandraFiles(copied), copied)
    compare_changes(report, copy(home, work / "changed"))
    load(report, work, copied, expected)


def load(report, work, directory, expected):
    """A new node that all files are loaded into answers as the one that wrote them."""
    home = work / "loaded"
    shutil.rmtree(home, ignore_errors=True)
    with Helenus(home) as server:
        cluster, session = server.connect()
        workload.create(session)
        session.execute(f"ALTER TYPE {workload.KEYSPACE}.address ADD country text")
        nodes = ["-d", f"{ADDRESS}:{server.API_PORT}", "--no-progress"]
        # What a column had before it was dropped only the schema of the node that dropped it tells.
        found = sstables(directory, workload.KEYSPACE)
        tables = sorted({file.parent for table, file in found if table != "altered"})
        left_out = ("altered", "system", "DESCRIBE")
        expected = {q: text for q, text in expected.items() if not any(word in q[0] for word in left_out)}
        for table in tables:
            done(f"load {table.name}", report, "load", *nodes, str(table))
        # What is sent twice changes nothing.
        done(f"load {tables[0].name} again", report, "load", *nodes, str(tables[0]))
        # Into another table: refused by its columns, with nothing sent.
        other = ["--target-table", "never_written", str(tables[0])]
        out, status, errors = sstable_tool("load", *nodes, *other)
        right = status != 0 and "than the table" in errors
        report.check("load into another table is refused", "" if right else f"status {status}\n{out}{errors}")
        compare_answers(report, "loaded", expected, answers(session), ("before", "loaded"))
        cluster.shutdown()
        server.stop()


def compare_upgrades(report, work, directory):
    """Cassandra's tools read what Helenus writes in the versions of Cassandra 5."""
    upgraded = work / "upgraded"
    shutil.rmtree(upgraded, ignore_errors=True)
    cassandra = CassandraFiles(upgraded / "cassandra", compatibility="NONE")
    seen = set()
    for table, file in sstables(directory, workload.KEYSPACE):
        # One file of each of a few tables: a start of the Java machine for each.
        if table in seen or table not in workload.UPGRADED:
            continue
        seen.add(table)
        for version, form in [("oa", "big"), ("da", "bti")]:
            name = f"{table} as {version}"
            to = upgraded / version / workload.KEYSPACE / file.parent.name
            out, status, errors = sstable_tool(
                "upgrade", "--format", version, "--output", str(to), str(file)
            )
            report.check(f"helenus sstable upgrade {name}", "" if status == 0 else out + errors)
            number = file.name.split("-")[1]
            data = str(to / f"{version}-{number}-{form}-Data.db")
            out, status, errors = sstable_tool("verify", data)
            report.check(f"helenus sstable verify {name}", "" if status == 0 else out + errors)
            out, status, errors = cassandra.tool("SSTableExport", data)
            mine = sstable_tool("dump", data)
            report.check(
                f"SSTableExport {name}",
                difference(out.strip(), mine[0].strip(), ("cassandra", "helenus"))
                or errors * (status != 0) or mine[2],
            )
            compare_metadata(report, cassandra, f"SSTableMetadataViewer {name}", data)
    missing = set(workload.UPGRADED) - seen
    report.check("upgrade: every table has a file", f"none of {missing}" if missing else "")


def compare_exports(report, work, directory):
    """What is exported and written again is exported as before, in every version and form."""
    top = work / "exported"
    shutil.rmtree(top, ignore_errors=True)
    top.mkdir()
    schema = top / "schema.cql"
    # Some files have the field that was added later: with a type that has it not they are refused.
    schema.write_text(f"{workload.SCHEMA}\nALTER TYPE {workload.KEYSPACE}.address ADD country text;\n")
    cassandra = CassandraFiles(top / "cassandra", compatibility="NONE")
    homes = {table: file.parent for table, file in sstables(directory, workload.KEYSPACE)}
    for table in ("all_types", "odd_order", "deletions", "Mixed_Case"):
        options = ["--schema", str(schema), "--table", f"{workload.KEYSPACE}.{table}"]
        for version, form in [("me", "json"), ("nb", "csv"), ("oa", "json"), ("da", "csv")]:
            name = f"{table} as {form} to {version}"
            export = ["export", *options, "--format", form]
            before, status, errors = sstable_tool(*export, str(homes[table]))
            report.check(f"helenus sstable export {name}", errors * (status != 0) or "" if before else "empty")
            rows = top / f"{table}-{version}.{form}"
            rows.write_text(before)
            to = top / f"{table}-{version}"
            _, status, errors = sstable_tool("write", *options, "--format", form, "--sstable-version", version,
                                             "--output", str(to), str(rows))
            report.check(f"helenus sstable write {name}", errors * (status != 0))
            written = list(to.glob(f"{workload.KEYSPACE}/*/{version}-*-Data.db"))
            report.check(f"{name}: one file", "" if len(written) == 1 else str(written))
            for data in written:
                after, _, errors = sstable_tool(*export, str(data.parent))
                report.check(f"{name}: the same rows", difference(before, after, ("before", "after")) or errors)
                out, status, errors = cassandra.tool("SSTableExport", str(data))
                ours = sstable_tool("dump", str(data))[0]
                report.check(f"SSTableExport {name}", difference(out.strip(), ours.strip(), ("cassandra", "helenus"))
                             or errors * (status != 0))


def compare_partitions(report, cassandra, directory):
    """Both tools count the same in all partitions of all files. One start of the Java machine for
    all files of each form."""
    files = [str(file) for _, file in sstables(directory, workload.KEYSPACE)]
    for options in [["-t", "0", "-u", "1700000000"], ["-t", "1KiB", "-y"], ["-m", "-w", "1", "-c", "2"]]:
        # Where no time is given, cells die by the clock of each run.
        options = options if "-u" in options else [*options, "-u", "1900000000"]
        name = f"SSTablePartitions {' '.join(options)}"
        out, status, errors = cassandra.tool("SSTablePartitions", *options, *files)
        mine = sstable_tool("partitions", *options, *files)
        report.check(
            name,
            difference(out.strip(), mine[0].strip(), ("cassandra", "helenus"))
            or errors * (status != 0) or mine[2],
        )
    cassandra.end_tools()


def compare_changes(report, directory):
    """Cassandra's tools read files that ours marked, cut and mended."""
    cassandra = CassandraFiles(directory)
    by_table = {}
    for table, file in sstables(directory, workload.KEYSPACE):
        by_table.setdefault(table, []).append(file)
    table, files = max(by_table.items(), key=lambda item: len(item[1]))
    home = files[0].parent
    names = ("cassandra", "helenus")
    out, status, errors = cassandra.tool("SSTableOfflineRelevel", "--dry-run", workload.KEYSPACE, table)
    mine = sstable_tool("levels", "relevel", "--dry-run", str(home))
    report.check(f"SSTableOfflineRelevel {table}",
                 difference(out.strip(), mine[0].strip(), names) or errors * (status != 0) or mine[2])
    done("levels relevel", report, "levels", "relevel", str(home))
    out, status, errors = cassandra.tool("SSTableLevelResetter", "--really-reset", workload.KEYSPACE, table)
    ours = sstable_tool("levels", "reset", "--really-reset", str(home))
    # It comes after: what was put on level 0 is there already.
    changed = re.sub(r"Changing level from \d+ to 0 on (.*)", r"Skipped \1 since it is already on level 0", out)
    lines = ["\n".join(sorted(text.splitlines())) for text in (changed, ours[0])]
    report.check(f"SSTableLevelResetter {table}", difference(*lines, names) or errors * (status != 0) or ours[2])
    done("repairedset", report, "repairedset", "--really-set", "--is-repaired", str(files[0]))
    compare_metadata(report, cassandra, f"SSTableMetadataViewer {table}, repaired", str(files[0]))
    before = dumped(home)
    done("scrub", report, "scrub", "--no-snapshot", str(home))
    report.check(f"scrub {table}: the same rows", difference(before, dumped(home), ("before", "after")))
    out, status, errors = cassandra.tool("StandaloneVerifier", "-f", "-e", workload.KEYSPACE, table)
    bad = status != 0 or "rror" in out + errors
    report.check(f"sstableverify {table}, scrubbed", out + errors if bad else "")
    cassandra.end_tools()


def done(name, report, *arguments):
    out, status, errors = sstable_tool(*arguments)
    report.check(f"helenus sstable {name}", "" if status == 0 else out + errors)


def dumped(directory):
    """All rows of a table's files, in the order of their numbers."""
    files = sorted(directory.glob("nb-*-big-Data.db"), key=lambda f: int(f.name.split("-")[1]))
    return "\n".join(sstable_tool("dump", str(file))[0] for file in files)


DROPPABLE = re.compile(r"^Estimated droppable tombstones: (.*)$", re.MULTILINE)


def compare_metadata(report, cassandra, case, data):
    """Both tools print the same of one file. The share of tombstones that can be dropped goes by
    the clock, so Cassandra's must lie between ours of before and of after."""
    before = sstable_tool("metadata", data)
    out, status, errors = cassandra.tool("SSTableMetadataViewer", data)
    after = sstable_tool("metadata", data)
    shares = [DROPPABLE.findall(text) for text in (before[0], out, after[0])]
    if [len(share) for share in shares] == [1, 1, 1]:
        low, theirs, high = (float(share[0]) for share in shares)
        if low <= theirs <= high:
            out = DROPPABLE.sub(lambda _: f"Estimated droppable tombstones: {shares[2][0]}", out)
    report.check(case, difference(out.strip(), after[0].strip(), ("cassandra", "helenus"))
                 or errors * (status != 0) or after[2])


def compare_tools(report, cassandra, directory, tables=12, third=None):
    """Of all tables; with `third` of every third one from there, unless FILES_ALL is set."""
    names = ("cassandra", "helenus")
    found = sstables(directory, workload.KEYSPACE)
    written = {table for table, _ in found}
    report.check("tools: every table was flushed",
                 "" if len(written) == tables else f"only {sorted(written)}")
    if third is not None and not os.environ.get("FILES_ALL"):
        written = set(sorted(written)[third::3])
        found = [(table, file) for table, file in found if table in written]
    for table, file in found:
        name = f"{table}/{file.name}"
        out, status, errors = cassandra.tool("SSTableExport", str(file))
        ours = sstable_tool("dump", str(file))
        # Cassandra shows the first eight bytes of a counter's context, Helenus the count.
        if table != "counts":
            report.check(f"sstabledump {name}", difference(out.strip(), ours[0].strip(), names)
                     or errors * (status != 0) or ours[2])
        # Cassandra's tool takes a field of a user type for the whole, and may end without memory.
        if not name.startswith("codec") and table != "all_types":
            out, status, errors = cassandra.tool("SSTableExport", "-d", str(file))
            ours = sstable_tool("dump", "-d", str(file))
            report.check(f"sstabledump -d {name}", difference(out.strip(), ours[0].strip(), names)
                         or errors * (status != 0) or ours[2])
        compare_metadata(report, cassandra, f"sstablemetadata {name}", str(file))
        out, status, errors = sstable_tool("verify", str(file))
        report.check(f"helenus sstable verify {name}", "" if status == 0 else out + errors)
    for table in sorted(written):
        out, status, errors = cassandra.tool(
            "StandaloneVerifier", "-f", "-e", workload.KEYSPACE, table
        )
        # It says how many files it verified only one by one.
        count = out.count("Checking computed hash of B")  # BigTableReader, BtiTableReader
        expected = sum(1 for t, _ in found if t == table)
        bad = status != 0 or "rror" in out + errors or count != expected
        report.check(f"sstableverify {table}", f"{count} of {expected} files\n{out}{errors}" if bad else "")
    cassandra.end_tools()


# Twenty years, as long as there may be: behind 2038 until the program is very old.
LATE_TTL = 630_720_000


def late_fill(server, session):
    """Rows that expire after 2038, in two files, one of which hides some of the other."""
    session.execute(
        "CREATE KEYSPACE late WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    session.execute(
        "CREATE TABLE late.t (k int, c int, v text, l list<int>, s text static, PRIMARY KEY (k, c))"
    )
    session.execute(
        "CREATE TABLE late.d (k int PRIMARY KEY, v text)"
        f" WITH default_time_to_live = {LATE_TTL} AND gc_grace_seconds = 3600"
    )
    for k in range(20):
        for c in range(6):
            ttl = LATE_TTL - k if c % 2 else 1_000_000
            session.execute(
                f"INSERT INTO late.t (k, c, v, l) VALUES ({k}, {c}, 'v{c}', [1, {c}]) USING TTL {ttl}"
            )
        session.execute(f"UPDATE late.t USING TTL {LATE_TTL} SET s = 'static {k}' WHERE k = {k}")
        session.execute(f"INSERT INTO late.d (k, v) VALUES ({k}, 'default')")
    server.flush()
    for k in range(0, 20, 2):
        session.execute(f"DELETE FROM late.t WHERE k = {k} AND c = 1")
        session.execute(f"UPDATE late.t USING TTL {LATE_TTL} SET v = 'new' WHERE k = {k} AND c = 3")
        session.execute(f"DELETE FROM late.d WHERE k = {k}")
    server.flush()


def late_rows(session):
    """Rows with when they expire, to some minutes, as the programs answer at different times."""
    rows = []
    for row in session.execute("SELECT k, c, v, l, s, ttl(v), ttl(s), ttl(l) FROM late.t"):
        def end(ttl):
            return ttl if ttl is None else round((time.time() + ttl) / 10_000)
        lists = [end(ttl) for ttl in row[7]] if isinstance(row[7], list) else end(row[7])
        rows.append(repr((*row[:5], end(row[5]), end(row[6]), lists)))
    rows += [repr(tuple(row)) for row in session.execute("SELECT k, v FROM late.d")]
    return "\n".join(sorted(rows))


def late_refused(session):
    try:
        session.execute(f"INSERT INTO late.d (k, v) VALUES (99, 'x') USING TTL {LATE_TTL - 1}")
    except Exception as error:
        return str(error)
    return "accepted"


def late(report, work):
    """Times after 2038: kept by files of Cassandra 5 both ways, refused where files cannot say them."""
    names = ("helenus", "cassandra")
    for version, settings, (mode, form) in FORMATS[:2]:
        part = f"late, {version}"
        home = work / f"late-helenus-{version}"
        shutil.rmtree(home, ignore_errors=True)
        with Helenus(home, settings=settings) as server:
            cluster, session = server.connect()
            late_fill(server, session)
            expected = late_rows(session)
            server.drain()
            cluster.shutdown()
            server.stop()
        report.check(f"{part}: rows", "" if len(expected.splitlines()) == 120 - 10 + 10 else expected)
        copied = copy(home, work / f"late-there-{version}")
        with Cassandra(copied, mode, form) as server:
            cluster, session = server.connect()
            report.check(f"{part}: there", difference(expected, late_rows(session), names))
            server.nodetool("compact", "late")
            report.check(f"{part}: there, compacted", difference(expected, late_rows(session), names))
            server.drain()
            cluster.shutdown()
            server.stop()
        with Helenus(copied) as server:
            try:
                status = server.process.wait(60)
            except subprocess.TimeoutExpired:
                status = "running"
            text = server.tail()
        right = status not in (0, "running") and "after 2038-01-19" in text
        report.check(f"{part}: as nb they are refused", "" if right else f"status {status}\n{text}")
        with Helenus(copied, settings=settings) as server:
            cluster, session = server.connect()
            report.check(f"{part}: back", difference(expected, late_rows(session), names))
            server.nodetool("compact", "late")
            report.check(f"{part}: back, compacted", difference(expected, late_rows(session), names))
            found = {file.name[:2] for _, file in sstables(copied, "late")}
            report.check(f"{part}: version", "" if found == {version} else str(found))
            cluster.shutdown()
            server.stop()
    # The other way: Cassandra wrote all of it.
    home = work / "late-cassandra"
    shutil.rmtree(home, ignore_errors=True)
    with Cassandra(home, "NONE", "big") as server:
        cluster, session = server.connect()
        late_fill(server, session)
        expected = late_rows(session)
        server.drain()
        cluster.shutdown()
        server.stop()
    with Helenus(copy(home, work / "late-back"), settings=FORMATS[0][1]) as server:
        cluster, session = server.connect()
        report.check("late: from cassandra", difference(expected, late_rows(session), names[::-1]))
        cluster.shutdown()
        server.stop()
    # Where files end in 2038, both say so in the same words.
    texts = []
    for server in [Helenus(work / "late-nb"), Cassandra(work / "late-nb-cassandra")]:
        with server:
            cluster, session = server.connect()
            session.execute(
                "CREATE KEYSPACE IF NOT EXISTS late"
                " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
            )
            session.execute("CREATE TABLE IF NOT EXISTS late.d (k int PRIMARY KEY, v text)")
            texts.append(late_refused(session))
            cluster.shutdown()
            server.stop()
    report.check("late: nb", difference(texts[1], texts[0], ("cassandra", "helenus")))
    report.check("late: nb refuses", "" if "2038-01-19T03:14:06" in texts[0] else texts[0])


def there(report, work):
    """A real Cassandra answers the same on a copy of Helenus's directory."""
    saved = json.loads((work / "helenus-answers.json").read_text())
    expected = {(s, f): text for s, f, text in saved}
    copied = copy(work / "helenus", work / "there")
    with Cassandra(copied) as server:
        cluster, session = server.connect()
        found = answers(session)
        compare_answers(report, "there", expected, found, ("helenus", "cassandra"))
        # It can go on with the files: compact them all, write, and answer the same.
        server.nodetool("compact", workload.KEYSPACE)
        again = answers(session)
        compare_answers(report, "there, compacted", expected, again, ("helenus", "cassandra"))
        cluster.shutdown()
        server.stop()


def back(report, work):
    """Helenus answers the same on a copy of the directory of a drained Cassandra."""
    home = work / "cassandra"
    shutil.rmtree(home, ignore_errors=True)
    with Cassandra(home) as server:
        cluster, session = server.connect()
        fill(server, session, flush=False)
        workload.create_codecs(session)
        workload.fill_codecs(session)
        expected = answers(session, codecs=True)
        dirty = copy(home, work / "back-dirty")
        server.drain()
        cluster.shutdown()
        server.stop()
    refused(report, "a commit log with writes", Helenus(dirty), "drain it first")
    copied = copy(home, work / "back")
    other = Helenus(copied, cluster_name="another")
    refused(report, "another cluster name", other, f'cluster "{CLUSTER_NAME}"')
    for smp in (2, 1):
        with Helenus(copied, smp=smp) as server:
            cluster, session = server.connect()
            part = f"back, {smp} shards"
            compare_answers(report, part, expected, answers(session, codecs=True), ("cassandra", "helenus"))
            if smp == 2:
                session.execute(f"INSERT INTO {workload.KEYSPACE}.never_written (k, v) VALUES (1, 'ours')")
                server.nodetool("compact", workload.KEYSPACE)
            else:
                # Written here, there after a restart with another number of shards.
                query = (f"SELECT v FROM {workload.KEYSPACE}.never_written WHERE k = 1", 10)
                text = answer(session, *query)
                report.check(f"{part}: {query[0]}", "" if "'ours'" in text else text)
                session.execute(f"DELETE FROM {workload.KEYSPACE}.never_written WHERE k = 1")
                for query in [f"SELECT {c} FROM {workload.KEYSPACE}.never_written" for c in ("*", "count(*)")]:
                    expected[(query, 5000)] = answer(session, query, 5000)
            for table in ("*", "count(*)"):
                expected.pop((f"SELECT {table} FROM {workload.KEYSPACE}.never_written", 5000), None)
            cluster.shutdown()
            status = server.stop()
        report.check(f"{part}: helenus stops with status 0", "" if status == 0 else f"status {status}")


def refused(report, what, server, words):
    """Checks that the node ends by itself saying so, and leaves no entry in a metadata log."""
    with server:
        try:
            status = server.process.wait(60)
        except subprocess.TimeoutExpired:
            status = "running"
        text = server.tail()
    right = status not in (0, "running") and words in text
    report.check(f"back: {what} is refused", "" if right else f"status {status}\n{text}")
    log = Path(server.directory, "metadata/log")
    left = log.exists() and log.stat().st_size > 64
    report.check(f"back: {what}: the directory is as it was", f"{log} has entries" if left else "")


# Version, settings of Helenus, and of a Cassandra that writes it or a later one.
FORMATS = [
    ("oa", ["--storage-compatibility-mode", "NONE"], ("NONE", "big")),
    ("da", ["--storage-compatibility-mode", "NONE", "--sstable", "{selected_format: bti}"], ("NONE", "bti")),
    ("me", ["--sstable-version", "me"], ("CASSANDRA_4", "big")),
]


def formats(report, work):
    """Files of other versions: Cassandra's tools agree, its server answers the same, and ours again."""
    for third, (version, settings, cassandra) in enumerate(FORMATS):
        home = work / f"helenus-{version}"
        shutil.rmtree(home, ignore_errors=True)
        with Helenus(home, settings=settings) as server:
            cluster, session = server.connect()
            workload.create(session)
            workload.create_codecs(session)
            at = workload.fill_first(session)
            workload.fill_codecs(session)
            server.flush()
            workload.fill_second(session, at)
            server.flush()
            time.sleep(2.5)
            expected = answers(session, codecs=True)
            server.drain()
            cluster.shutdown()
            server.stop()
        wrong = [f.name for _, f in sstables(home, "*") if not f.name.startswith(version)]
        report.check(f"{version}: all files are of it", ", ".join(wrong))
        copied = copy(home, work / f"helenus-{version}-tools")
        compare_tools(report, CassandraFiles(copied, *cassandra), copied, 12 + len(workload.CODECS), third)
        copied = copy(home, work / f"there-{version}")
        with Cassandra(copied, *cassandra) as server:
            cluster, session = server.connect()
            names = ("helenus", "cassandra")
            compare_answers(report, f"there, {version}", expected, answers(session, codecs=True), names)
            server.nodetool("compact", workload.KEYSPACE)
            found = answers(session, codecs=True)
            compare_answers(report, f"there, {version}, compacted", expected, found, names)
            server.drain()
            cluster.shutdown()
            server.stop()
        with Helenus(copied) as server:
            cluster, session = server.connect()
            part = f"back, {version}"
            found = answers(session, codecs=True)
            compare_answers(report, part, expected, found, ("before", "helenus"))
            server.nodetool("upgradesstables", "-a")
            found = answers(session, codecs=True)
            compare_answers(report, f"{part}, upgraded", expected, found, ("before", "helenus"))
            cluster.shutdown()
            server.stop()
        wrong = [f.name for _, f in sstables(copied, workload.KEYSPACE) if not f.name.startswith("nb")]
        report.check(f"back, {version}: all files are upgraded", ", ".join(wrong))


PARTS = {1: tools, 2: there, 3: back, 4: formats, 5: late, 6: turns, 7: without, 8: names, 9: indexed}


def main():
    work = Path(sys.argv[1])
    numbers = [int(a) for a in sys.argv[2:]] or list(PARTS)
    report = Report()
    for number in numbers:
        report.part(number, PARTS[number], work)
    while CassandraFiles.shared:
        CassandraFiles.shared.popitem()[1].end()
    print(f"{report.passed} passed, {report.failed} failed")
    sys.exit(report.failed != 0)


if __name__ == "__main__":
    main()
