"""Runs the same input through cqlsh of Cassandra and `helenus cqlsh`; every difference is an error."""
import difflib
import os
import re
import shlex
import subprocess
import sys
import tempfile

HOST = os.environ.get("HELENUS_HOST", "127.0.0.1")
PORT = os.environ.get("HELENUS_PORT", "9042")
THEIRS = shlex.split(os.environ["CQLSH"])
OURS = shlex.split(os.environ["HELENUS_CQLSH"])
HERE = os.path.dirname(os.path.abspath(__file__))


COPY = [
    "COPY cmp_copy.t TO STDOUT;",
    "COPY cmp_copy.t (c, k) TO STDOUT WITH HEADER = true AND DELIMITER = '|' AND NULL = 'N';",
    "COPY cmp_copy.t TO STDOUT WITH QUOTE = '\"' AND ESCAPE = '\"';",
    "COPY cmp_copy.t (k, c, d, f, vi, de, bo, ts) TO STDOUT WITH DECIMALSEP = ',' AND THOUSANDSSEP = '.' "
    "AND BOOLSTYLE = 'yes,no' AND DATETIMEFORMAT = '%d/%m/%Y %H:%M' AND DOUBLEPRECISION = 3;",
    "COPY cmp_copy.t (k, c) TO STDOUT WITH BEGINTOKEN = '-3000000000000000000' AND ENDTOKEN = "
    "'5000000000000000000';",
    "COPY cmp_copy.t TO 'out.csv' WITH HEADER = true; COPY cmp_copy.copied FROM 'out.csv' WITH HEADER = "
    "true; SELECT * FROM cmp_copy.copied;",
    "COPY cmp_copy.i FROM 'in.csv'; SELECT * FROM cmp_copy.i;",
    "COPY cmp_copy.i FROM 'in.csv' WITH SKIPROWS = 1 AND MAXROWS = 2; SELECT * FROM cmp_copy.i;",
    "COPY cmp_copy.i (a, b) FROM 'in.csv, *.more' WITH MAXBATCHSIZE = 1; SELECT * FROM cmp_copy.i;",
    "COPY cmp_copy.i (b, a) FROM 'in.csv' WITH HEADER = true; SELECT * FROM cmp_copy.i;",
    "COPY cmp_copy.i (a, b) FROM 'three.more' WITH SKIPCOLS = 'b'; SELECT * FROM cmp_copy.i;",
    "COPY cmp_copy.i FROM 'bad.csv'; SELECT * FROM cmp_copy.i;",
    "COPY cmp_copy.n FROM 'in.csv'; SELECT * FROM cmp_copy.n;",
    "COPY cmp_copy.i FROM 'in.csv' WITH TTL = 1000; SELECT a, b FROM cmp_copy.i;",
    "COPY cmp_copy.i FROM 'in.csv' WITH TTL = 1000 AND PREPAREDSTATEMENTS = false; SELECT a, b FROM cmp_copy.i;",
    "COPY cmp_copy.t TO 'out.csv' WITH NULL = 'N'; COPY cmp_copy.copied FROM 'out.csv' WITH NULL = 'N' AND "
    "PREPAREDSTATEMENTS = false; SELECT * FROM cmp_copy.copied;",
    "COPY cmp_copy.i FROM 'odd.csv' WITH PREPAREDSTATEMENTS = false AND MAXATTEMPTS = 1; SELECT * FROM cmp_copy.i;",
    "COPY cmp_copy.n FROM 'in.csv' WITH PREPAREDSTATEMENTS = false; SELECT * FROM cmp_copy.n;",
    "COPY cmp_copy.i (a) FROM 'in.csv' WITH NONSENSE = 1;",
    "COPY cmp_copy.i (b) FROM 'in.csv';",
    "COPY cmp_copy.i (a, x) FROM 'in.csv';",
    "COPY cmp_copy.x FROM 'in.csv';",
    "COPY cmp_x.x FROM 'in.csv';",
    "COPY i TO STDOUT;",
    "COPY cmp_copy.i TO 'no/such/place.csv';",
    "COPY cmp_copy.i FROM STDIN;\n1,2\n3,4\n.\nSELECT * FROM cmp_copy.i;",
    "COPY cmp_copy.i TO STDOUT WITH BOOLSTYLE = 'a,a';",
    "COPY cmp_copy.i;",
]
# Files of the corpus that are run without colours only, from the file.
ONCE = ["describe.cql", "forms.cql"]
FILES = {
    "in.csv": "1,2\n2,3\n4,5\n",
    "three.more": "7,8\r\n9,\n",
    "odd.csv": "1,2\n2,x y\n3,4\n,5\n",
    "bad.csv": "1,2\nx,3\n4\n5,6,7\n,8\n9,9\n",
}


def run(shell, arguments, stdin, home):
    """Status, standard output and standard error of a shell in a directory of its own."""
    for name, text in FILES.items():
        with open(os.path.join(home, name), "w", newline="") as file:
            file.write(text)
    environment = dict(os.environ, HOME=home, TERM="dumb", CQL_HISTORY="/dev/null", LANG="C.UTF-8")
    environment.pop("TZ", None)
    done = subprocess.run(
        [*shell, HOST, PORT, "--connect-timeout=30", "--request-timeout=60", *arguments],
        input=stdin, stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True, timeout=240, env=environment, cwd=home,
    )
    return done.returncode, clean(done.stdout.decode()), clean(done.stderr.decode())


def clean(text):
    """Without what differs between any two runs or is said about versions."""
    text = re.sub(r"(?m)^WARNING: cqlsh was built against .*\n", "", text)
    # Python's warning about years that it cannot hold has its path and line
    text = re.sub(r"(?m)^.*DateOverFlowWarning.*\n", "", text)
    text = re.sub(r"in (?:\d+ \w+, )*(?:and )?\d+\.\d+ seconds", "in T seconds", text)
    text = re.sub(r"Processed: .*?\r\r", "", text)
    return re.sub(r"cqlsh 6\.2\.\d", "cqlsh 6.2", text)


def traces(text):
    """Traces without ids, times, shards and widths."""
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "ID", text)
    # newer drivers print an offset behind the times of events
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?(\+00:00)?", "TIME", text)
    text = re.sub(r"\[[^]\n]*\]", "[THREAD]", text)
    text = re.sub(r"\| +\d+ \|", "| N |", text)
    return re.sub(r"-+", "-", re.sub(r" +", " ", text))


def sort(text):
    return "\n".join(sorted(text.splitlines()))


def cases():
    corpus = os.path.join(HERE, "corpus")
    for name in sorted(os.listdir(corpus)):
        path = os.path.join(corpus, name)
        with open(path, "rb") as file:
            text = file.read()
        yield f"{name} -f", ["--no-color", "-f", path], None
        if name in ONCE:
            continue
        yield f"{name} in colour", ["-C", "-f", path], None
        yield f"{name} on stdin", ["--no-color"], text
    for statement in [
        "SELECT key FROM system.local", "SELECT key FROM system.local;", "SELECT nonsense",
        "SHOW VERSION", "SHOW HOST", "DESCRIBE KEYSPACES; SHOW HOST", "HELP nonsense",
        "SELECT keyspace_name, table_name FROM system_schema.tables", "EXIT", "",
    ]:
        yield f"-e {statement!r}", ["--no-color", "-e", statement], None
    statement = "TRACING ON; SELECT key FROM system.local"
    yield statement, ["--no-color", "-e", statement], None
    yield "SHOW REPLICAS", ["-k", "system_schema", "-e", "SHOW REPLICAS 5; DESCRIBE CLUSTER"], None
    yield "-k", ["-k", "system", "-e", "SELECT key FROM local"], None
    yield "-k without the keyspace", ["-k", "nonsense", "-e", "SELECT key FROM local"], None
    yield "-f without the file", ["-f", "nonsense.cql"], None
    yield "--version", ["--version"], None
    yield "-p on the command line", ["-u", "x", "-p", "y", "-e", "SHOW HOST"], None


    with open(os.path.join(HERE, "copy", "seed.cql"), "rb") as file:
        seed = file.read()
    for statement in COPY:
        yield f"{statement!r}", ["--no-color"], seed + statement.encode() + b"\n"


def main():
    passed = failed = 0
    for name, arguments, stdin in cases():
        with tempfile.TemporaryDirectory() as home:
            theirs = run(THEIRS, arguments, stdin, home)
        with tempfile.TemporaryDirectory() as home:
            ours = run(OURS, arguments, stdin, home)
        if "COPY" in name:
            # workers and ranges finish in any order
            theirs, ours = [(s, sort(out), sort(err)) for s, out, err in (theirs, ours)]
        if "TRACING" in name:
            theirs, ours = [(s, traces(out), err) for s, out, err in (theirs, ours)]
        if theirs == ours:
            passed += 1
            continue
        failed += 1
        print(f"--- {name}: status {theirs[0]} and {ours[0]}")
        for what, their, our in [("stdout", theirs[1], ours[1]), ("stderr", theirs[2], ours[2])]:
            lines = difflib.unified_diff(
                their.splitlines(), our.splitlines(), f"cqlsh {what}", f"helenus {what}", lineterm="")
            for line in lines:
                print(f"    {line!r}" if "\x1b" in line else f"    {line}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
