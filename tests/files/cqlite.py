"""Our files, read by CQLite: each version and compressor, two files over one another; see README.md."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HELENUS, READER, WORK = sys.argv[1], sys.argv[2], Path(sys.argv[3])
HOST, PORT, API = os.environ.get("CQLITE_HOST", "127.0.0.1"), "9642", "10642"
VERSIONS = ["nb", "oa", "da"]
COMPRESSION = {
    "plain": "{'enabled': false}",
    "lz4": "{'class': 'LZ4Compressor'}",
    "snappy": "{'class': 'SnappyCompressor'}",
    "deflate": "{'class': 'DeflateCompressor'}",
    "zstd": "{'class': 'ZstdCompressor'}",
}
ROWS = 3000
SCHEMA = [
    "CREATE KEYSPACE cq WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};",
    *(
        f"CREATE TABLE cq.{name} (k int PRIMARY KEY, v text, n bigint) WITH compression = {options};"
        for name, options in COMPRESSION.items()
    ),
    "CREATE TABLE cq.wide (k int, c text, v text, s text static, b boolean, t set<int>, PRIMARY KEY (k, c));",
]
TABLES = [f"cq.{name}" for name in COMPRESSION] + ["cq.wide"]


def run(*words, **options):
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(words)}: {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def cqlsh(text):
    run(HELENUS, "cqlsh", HOST, PORT, "--no-color", "-f", "/dev/stdin", input=text)


def flush():
    run(HELENUS, "nodetool", "-p", API, "flush", "cq")


def write(directory):
    """Two files of each table, and what must be seen of them."""
    cqlsh("\n".join(SCHEMA))
    lines = []
    for number in range(ROWS):
        filler = "x" * (number % 50)
        lines.append(f"{number},value {number} {filler},{number * 1000003}\n")
    (directory / "rows.csv").write_text("".join(lines))
    for name in COMPRESSION:
        cqlsh(f"COPY cq.{name} (k, v, n) FROM '{directory}/rows.csv';")
    cqlsh("\n".join(
        f"INSERT INTO cq.wide (k, c, v, s, b, t) VALUES ({k}, 'c{c:02}', 'text {c}', 'static {k}', "
        f"{str(c % 2 == 0).lower()}, {{{c}, {k}}});"
        for k in range(40) for c in range(30)
    ))
    flush()
    over = []
    for name in COMPRESSION:
        over += [f"INSERT INTO cq.{name} (k, v) VALUES ({k}, 'second {k}');" for k in range(0, 100, 2)]
        over += [f"DELETE FROM cq.{name} WHERE k = {k};" for k in range(1, 100, 2)]
        over += [f"DELETE n FROM cq.{name} WHERE k = {k};" for k in range(100, 110)]
    over += ["DELETE FROM cq.wide WHERE k = 1;", "DELETE FROM cq.wide WHERE k = 2 AND c = 'c03';"]
    over += ["DELETE FROM cq.wide WHERE k = 3 AND c >= 'c10' AND c < 'c20';"]
    over += ["DELETE s FROM cq.wide WHERE k = 4;", "UPDATE cq.wide SET v = 'new' WHERE k = 5 AND c = 'c00';"]
    cqlsh("\n".join(over))
    flush()
    expected = set()
    for name in COMPRESSION:
        for k in range(ROWS):
            if k < 100 and k % 2:
                continue
            value = f"second {k}" if k < 100 else f"value {k} {'x' * (k % 50)}"
            number = "" if 100 <= k < 110 else f"|n={k * 1000003}"
            expected.add(f"cq.{name}|k={k}{number}|v={value}")
    for k in range(40):
        for c in range(30):
            if k == 1 or (k, c) == (2, 3) or (k == 3 and 10 <= c < 20):
                continue
            static = "" if k == 4 else f"|s=static {k}"
            value = "new" if (k, c) == (5, 0) else f"text {c}"
            members = ",".join(str(member) for member in sorted({c, k}))
            flag = str(c % 2 == 0).lower()
            expected.add(f"cq.wide|b={flag}|c=c{c:02}|k={k}{static}|t=[{members}]|v={value}")
    return expected


def check(version):
    directory = WORK / version
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    with open(directory / "log", "w") as log:
        server = subprocess.Popen(
            [HELENUS, "server", "--workdir", str(directory / "node"), "--rpc-address", HOST, "--smp", "1",
             "--memory", "512M", "--native-transport-port", PORT, "--native-shard-aware-transport-port", "0",
             "--api-port", API, "--sstable-version", version],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                cqlsh("SHOW HOST;")
                break
            except AssertionError:
                if time.monotonic() > deadline or server.poll() is not None:
                    raise
                time.sleep(0.1)
        expected = write(directory)
        data = directory / "node" / "data"
        (directory / "schema.cql").write_text("\n".join(SCHEMA))
        # CQLite lays rows of two files over one another, but loses static columns and collections then.
        two = compare(version, "two files", data, TABLES[:-1], expected, 2)
        run(HELENUS, "nodetool", "-p", API, "compact", "cq")
        return two + compare(version, "one file", data, TABLES, expected, 1)
    finally:
        server.terminate()
        server.wait(60)


def compare(version, what, data, tables, expected, count):
    """0 when the reader sees just the expected rows."""
    files = list(data.glob(f"cq/*/{version}-*-Data.db"))
    assert len(files) == count * len(TABLES), files
    expected = {line for line in expected if line.split("|")[0] in tables}
    seen = run(READER, str(data), str(data.parent.parent / "schema.cql"), *tables).splitlines()
    missing, extra = sorted(expected - set(seen)), sorted(set(seen) - expected)
    doubled = len(seen) - len(set(seen))
    if missing or extra or doubled:
        print(f"FAILED {version}, {what}: {len(missing)} rows missing, {len(extra)} others, {doubled} twice")
        for line in missing[:5]:
            print(f"  - {line}")
        for line in extra[:5]:
            print(f"  + {line}")
        return 1
    print(f"ok     {version}, {what}: {len(seen)} rows of {len(tables)} tables")
    return 0


failed = sum(check(version) for version in VERSIONS)
print(f"{2 * len(VERSIONS) - failed} passed, {failed} failed")
sys.exit(1 if failed else 0)
