"""Command lines, variables, cqlshrc and prompts through cqlsh of Cassandra and `helenus cqlsh`; every difference is
an error. What is refused here or is an error of Python there stands in docs/user/cqlsh.md, not here."""
import difflib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

HOST = os.environ.get("HELENUS_HOST", "127.0.0.1")
PORT = os.environ.get("HELENUS_PORT", "9042")
THEIRS = shlex.split(os.environ["CQLSH"])
OURS = shlex.split(os.environ["HELENUS_CQLSH"])
SHOW = ["-e", "SHOW VERSION"]
SELECT = "SELECT key FROM system.local;"
TIMES = ("SELECT (timestamp)1700000000123 AS ts, (float)0.123456789 AS f, (double)1234.56789 AS d, "
         "(date)'2024-02-29' AS da, (time)'01:02:03' AS ti FROM system.local;")
FILES = {
    "one.cql": b"SELECT key FROM system.local;\nSHOW HOST\n",
    "bare.cql": b"SELECT key FROM system.local",
    "open.cql": b"SELECT key FROM system.local WHERE key = 'x",
    "empty.cql": b"",
    "mark.cql": b"\xef\xbb\xbfSELECT key FROM system.local;\n",
    "wide.cql": "\ufeffSELECT (text)'é' AS x FROM system.local;\n".encode("utf-16-le"),
    "dos.cql": b"SELECT key\r\nFROM system.local;\r\nSHOW HOST\r\n-- x\r\nnonsense;\r\n",
    "source.cql": b"SHOW HOST\nSOURCE 'errors.cql'\nCONSISTENCY\nSOURCE 'one.cql'; SHOW HOST\n",
    "errors.cql": b"CONSISTENCY ALL\nEXPAND ON\nnonsense;\nSELECT key FROM system.local;\nUSE system\n;EXIT\nSHOW HOST\n",
    "capture.cql": b"CAPTURE 'out.txt'\nCAPTURE\nCAPTURE 'other.txt'\nSELECT key FROM system.local;\nSHOW HOST\n"
                   b"nonsense;\nDESCRIBE TABLE system.local\nSOURCE 'one.cql'\nEXPAND ON\nSELECT key FROM system.local;\n",
}


def command_lines():
    """Arguments, behind host and port."""
    yield from ([option] for option in ("--version", "-v", "-e", "--execute", "-k", "-f", "--cqlshrc", "--request-timeout"))
    yield from (
        ["--connect-timeout", "x"], ["--request-timeout=x"], ["--request-timeout="], ["--connect-timeout", "1.5"],
        ["--protocol-version", "x"], ["--protocol-version", "3", *SHOW], ["--protocol-version=4", *SHOW],
        ["--protocol-version", "5", *SHOW], ["--cqlversion", "2"], ["--cqlversion", "2.9.9"],
        ["--cqlversion", "3.4.7", *SHOW], ["--cqlversion", "3.9", *SHOW], ["--c"], ["--pass"], ["--ssl=1"], ["--tty=x"],
        ["-Cx"], ["-tC"], ["-Ct", "-e", SELECT], ["-Ce", SELECT], ["-C", "--no-color", "-e", SELECT],
        ["--no-color", "--color", "-e", SELECT], ["-e" + SELECT], ["-e=" + SELECT], ["--exec", SELECT], ["--exec=" + SELECT],
        ["-k=system", "-e", "SELECT key FROM local"], ["-ksystem", "-e", "SELECT key FROM local"],
        ["-k", "System", *SHOW], ["-k", '"system"', *SHOW], ["-k", "no such", *SHOW],
        ["-e", "-x"], ["-e", "-- a comment"], ["-e", "--"], ["-e", "-5"], ["-e", "/* a comment */"], ["-e", ";"],
        ["-e", SELECT, "-e", "SHOW HOST"], ["-e", "SHOW HOST; " + SELECT + " nonsense; SHOW HOST"],
        ["-e", "SHOW HOST\nSHOW HOST"], ["-e", SELECT + "\n" + SELECT], ["-e", "SELECT #"],
        ["-e", "nonsense; nonsense"], ["-e", "CONSISTENCY ALL; CONSISTENCY"], ["-e", "LOGIN"],
        ["-e", "EXPAND ON; " + SELECT], ["-e", "PAGING 1; SELECT keyspace_name FROM system_schema.keyspaces LIMIT 3"],
        ["-e", "USE system; SELECT key FROM local; DESC TABLE local"], ["-e", "CAPTURE 'x'; " + SELECT + " CAPTURE"],
        ["-f", "one.cql"], ["-f", "bare.cql"], ["-f", "open.cql"], ["-f", "empty.cql"], ["-f", "mark.cql"], ["-f", "wide.cql"],
        ["-f", "dos.cql"], ["-f", "source.cql"], ["-f", "capture.cql"], ["-f", "no.cql"], ["-f", "."], ["-f", "~/one.cql"],
        ["-f", "one.cql", "-C"], ["-f", "errors.cql", "-e", "SHOW HOST"], ["-f", "errors.cql", "-e", "nonsense"],
        ["-f", "one.cql", "-k", "system"], ["-e", "SOURCE '~/one.cql'"], ["--file=one.cql", "--tty"],
        ["-u", "x", "-p", "y", "--insecure-password-without-warning", *SHOW], ["-u", "x", "--password=y", *SHOW],
        ["--credentials", "no.such.file", *SHOW], ["--cqlshrc", "no.such.file", *SHOW], ["--encoding", "utf8", *SHOW],
        ["--disable-history", *SHOW],
    )


def inputs():
    """Arguments, standard input."""
    for text in ("", "\n", ";\n", SELECT, SELECT + "\n", "SELECT key\nFROM\n\nsystem.local\n;\n", "SHOW HOST", "nonsense\n",
                 "SELECT '\n", "EXIT\nSHOW HOST\n", "QUIT", "BEGIN BATCH\nINSERT\n", "/* open\n", "PAGING 1\n" + SELECT + "\n",
                 "PAGING 2\nSELECT keyspace_name FROM system_schema.keyspaces LIMIT 3;\n\n\nSHOW HOST\n",
                 "EXPAND ON\nSELECT key FROM system.local WHERE key = 'x';\n", "USE system\n;\nSELECT\n\n\n\n\nkey FROM local;\n"):
        yield ["--no-color"], text
        yield ["--no-color", "--tty"], text
    yield ["-t", "-C"], "USE system;\nSELECT #;\nSELECT key FROM local;\nnonsense;\n"
    yield ["-k", "system", "--tty"], SELECT + "\n"


def settings():
    """Variables, cqlshrc, arguments."""
    yield {"CQLSH_HOST": HOST, "CQLSH_PORT": PORT}, None, SHOW
    yield {"CQLSH_HOST": "127.0.0.1", "CQLSH_PORT": "x"}, None, SHOW
    yield {"CQLSH_PORT": "1"}, None, [HOST, PORT, *SHOW]
    yield {}, f"[connection]\nhostname = {HOST}\nport = {PORT}\n", SHOW
    yield {"CQLSH_PORT": PORT}, f"[connection]\nhostname = {HOST}\nport = 1\n", SHOW
    yield {}, "[connection]\nport = x\n", SHOW
    behind = [HOST, PORT]
    yield {"CQLSH_DEFAULT_TIMESTAMP_FORMAT": "%d.%m.%Y"}, None, [*behind, "-e", TIMES]
    yield {"TZ": "Europe/Berlin"}, None, [*behind, "-e", TIMES]
    yield {"TZ": "Nowhere/Land"}, None, [*behind, "-e", TIMES]
    yield {"CQLSH_PROMPT": "here"}, None, [*behind, "--tty"]
    for ui in (
        "float_precision = 2\ndouble_precision = 9", "float_precision = 0", "double_precision = 1", "float_precision = 20",
        "time_format = %Y-%m-%d %H:%M:%S\ntimezone = UTC", "time_format = %d/%m/%y %I:%M:%S.%f %p %z %%\ntimezone = Asia/Kolkata",
        "timezone = America/New_York", "timezone = nonsense", "date_format = %d\nnanotime_format = %H", "color = on", "color = yes",
        "color = off", "encoding = utf-8", "completekey = tab", "tty = off", "tty = on", "nonsense = 1",
    ):
        yield {}, f"; a comment\n[ui]\n{ui}\n# another\n", [*behind, "-e", TIMES]
    yield {}, "[ui]\ncolor = on\n", [*behind, "--no-color", "-e", SELECT]
    yield {}, "[ui]\ncolor = on\n", [*behind, "-f", "one.cql"]
    yield {}, "[authentication]\nkeyspace = system\n", [*behind, "-e", "SELECT key FROM local"]
    yield {}, "[authentication]\nkeyspace = system\n", [*behind, "-k", "system_schema", "-e", "SELECT key FROM local"]
    yield {}, "[authentication]\nusername = x\npassword = y%z\n", [*behind, *SHOW]
    yield {}, "[authentication]\nusername = x\npassword = y\n", [*behind, "--tty"]
    yield {}, "[authentication]\ncredentials = ~/creds\n", [*behind, *SHOW]
    yield {}, "[authentication]\ncredentials = ~/open\n", [*behind, *SHOW]
    yield {}, "[cql]\nversion = 3.4.7\n", [*behind, *SHOW]
    yield {}, "[cql]\nversion = 3.1\n", [*behind, *SHOW]
    yield {}, "[protocol]\nversion = 4\n", [*behind, *SHOW]
    yield {}, "[protocol]\nversion = 4\n", [*behind, "--protocol-version", "3", *SHOW]
    yield {}, "[connection]\ntimeout = 20\nrequest_timeout = 20\nclient_timeout = 3\nssl = false\n", [*behind, *SHOW]
    yield {}, "[tracing]\nmax_trace_wait = 1.5\n[csv]\nfield_size_limit = 1000\n[history]\ndisabled = true\n[nonsense]\n", [*behind, *SHOW]
    yield {}, "[copy]\nheader = true\n[copy-to]\nnull = N\n[copy-from]\nmaxrows = 1\n[copy:system.local]\ndelimiter = ;\n", \
        [*behind, "-e", "COPY system.local (key, bootstrapped) TO STDOUT"]


def cases():
    for arguments in command_lines():
        yield f"arguments {arguments}", [HOST, PORT, *arguments], None, {}, None
    for arguments, text in inputs():
        yield f"{arguments} input {text!r}", [HOST, PORT, *arguments], text.encode(), {}, None
    for variables, cqlshrc, arguments in settings():
        yield f"{variables} cqlshrc {cqlshrc!r} {arguments}", arguments, SELECT.encode(), variables, cqlshrc
    for arguments in (["127.0.0.1", "1"], ["127.0.0.1", "x"], ["127.0.0.1", ""], ["a", "b"]):
        yield f"{arguments}", [*arguments, *SHOW], None, {}, None


def differs_on_purpose():
    """Arguments, status and error of `helenus cqlsh` where docs/user/cqlsh.md says that it does otherwise."""
    unfinished = "<stdin>:1:Incomplete statement: it ends inside a comment, a quote or a batch\n"
    yield ["-e", "SELECT '"], 2, unfinished
    yield ["-e", "BEGIN BATCH"], 2, unfinished
    yield ["-e", " "], 0, ""
    yield ["-e", SELECT + " "], 0, ""


def run(shell, arguments, stdin, variables, cqlshrc):
    with tempfile.TemporaryDirectory() as home:
        for name, text in FILES.items():
            with open(os.path.join(home, name), "wb") as file:
                file.write(text)
        for name, mode in (("creds", 0o600), ("open", 0o644)):
            with open(os.path.join(home, name), "w") as file:
                file.write("[plain_text_auth]\nusername = x\npassword = y\n")
            os.chmod(os.path.join(home, name), mode)
        if cqlshrc is not None:
            os.mkdir(os.path.join(home, ".cassandra"))
            with open(os.path.join(home, ".cassandra", "cqlshrc"), "w") as file:
                file.write(cqlshrc)
        environment = dict(os.environ, HOME=home, TERM="dumb", CQL_HISTORY="/dev/null", LANG="C.UTF-8", COLUMNS="80")
        for name in ("TZ", "CQLSH_HOST", "CQLSH_PORT", "CQLSH_PROMPT", "CQLSH_DEFAULT_TIMESTAMP_FORMAT"):
            environment.pop(name, None)
        environment.update(variables)
        done = subprocess.run(
            [*shell, *arguments], input=stdin, stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True, timeout=120, env=environment, cwd=home, start_new_session=True,
        )
        captured = {}
        for name in ("out.txt", "x"):
            path = os.path.join(home, name)
            if os.path.exists(path):
                with open(path) as file:
                    captured[name] = file.read()
        return done.returncode, clean(done.stdout, home), clean(done.stderr, home), captured


def clean(output, home):
    """Without what differs between any two runs or is said about versions."""
    text = output.decode().replace(home, "~")
    text = re.sub(r"(?m)^WARNING: cqlsh was built against .*\n", "", text)
    text = re.sub(r"in \d+\.\d+ seconds", "in T seconds", re.sub(r"Processed: .*?\r\r", "", text))
    # Without tzlocal cqlsh says that it is not there.
    text = re.sub(r"Warning: custom timestamp format specified in cqlshrc, but [\s\S]*?cqlshrc\.\n\n", "", text)
    return re.sub(r"cqlsh 6\.2\.\d", "cqlsh 6.2", text)


def compare(case):
    name, *what = case
    theirs, ours = run(THEIRS, *what), run(OURS, *what)
    if theirs == ours:
        return None
    lines = [f"--- {name}: status {theirs[0]} and {ours[0]}"]
    for stream, their, our in (("stdout", theirs[1], ours[1]), ("stderr", theirs[2], ours[2]),
                               ("files", repr(theirs[3]), repr(ours[3]))):
        difference = difflib.unified_diff(
            their.splitlines(), our.splitlines(), f"cqlsh {stream}", f"helenus {stream}", lineterm="")
        lines += [f"    {line!r}" if "\x1b" in line else f"    {line}" for line in difference]
    return "\n".join(lines)


def main():
    # Nothing here writes to the server, and most of the time is the start of Python.
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(compare, cases()))
    for arguments, status, error in differs_on_purpose():
        ours = run(OURS, [HOST, PORT, *arguments], None, {}, None)
        found = (ours[0], ours[2])
        results.append(None if found == (status, error) else f"--- arguments {arguments}: {found}")
    different = [result for result in results if result]
    for result in different:
        print(result)
    print(f"options: {len(results) - len(different)} passed, {len(different)} failed")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
