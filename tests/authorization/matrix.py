"""The authorization matrix against a running server: the same statements, grants and format as the golden file.

    matrix.py HOST PORT            prints the matrix of the server
    matrix.py HOST PORT GOLDEN     compares it with a golden file; differences.txt names the known ones
    matrix.py --files MADE GOLDEN  compares two files

The server asks for passwords and has the superuser cassandra/cassandra; its caches of roles and permissions are off.
"""

import difflib
import os
import re
import sys

if sys.argv[1:2] != ["--files"]:
    from cassandra import AlreadyExists, InvalidRequest, Unauthorized
    from cassandra.auth import PlainTextAuthProvider
    from cassandra.cluster import Cluster
    from cassandra.protocol import ErrorMessage, SyntaxException

HERE = os.path.dirname(os.path.abspath(__file__))


def lines(name):
    with open(os.path.join(HERE, name)) as file:
        return [line.rstrip("\n") for line in file if line.strip() and not line.startswith("#")]


def cases():
    found = []
    for line in lines("statements.txt"):
        if not line.startswith("  "):
            found.append({"text": line, "with": [], "then": None})
            continue
        key, value = line.strip().split(": ", 1)
        found[-1][key] = value.split("; ") if key == "with" else value
    return found


def grants():
    found = []
    for line in lines("grants.txt"):
        resource, permissions = line.split(": ", 1)
        found += [f"{permission} ON {resource}" for permission in permissions.split(" ")]
    return found


def taken_back(statements):
    return [s.replace("GRANT ", "REVOKE ").replace(" TO ", " FROM ") for s in reversed(statements)]


def outcome(session, statement):
    try:
        session.execute(statement, timeout=60)
        return "ok"
    except Unauthorized as error:
        text = re.search(r'message="(.*)"$', str(error), re.S)
        return "Unauthorized: " + (text.group(1) if text else str(error))
    except AlreadyExists:
        return "AlreadyExists"
    except InvalidRequest:
        return "Invalid"
    except SyntaxException:
        return "Syntax"
    except ErrorMessage as error:
        return type(error).__name__
    except Exception as error:  # a server error of Cassandra reaches the driver as one of several classes
        return type(error).__name__


class Runner:
    def __init__(self, host, port):
        def session(user, password):
            auth = PlainTextAuthProvider(user, password)
            cluster = Cluster([host], port=port, auth_provider=auth, protocol_version=4)
            return cluster.connect()

        self.root = session("cassandra", "cassandra")
        self.everything(lines("setup.txt"))
        self.member = session("m", "secret")
        self.superuser = session("su", "secret")
        self.cases = cases()
        self.outcomes = {}

    def everything(self, statements):
        for statement in statements:
            outcome(self.root, statement)

    def run(self, way, grant, give):
        self.everything(give)
        for at, case in enumerate(self.cases):
            base = [f"GRANT {w} TO m" for w in case["with"]]
            self.everything(base)
            got = outcome(self.superuser if way == "superuser" else self.member, case["text"])
            by_outcome = self.outcomes.setdefault(way, {}).setdefault(at, {})
            by_outcome.setdefault(got, []).append(grant)
            self.everything(taken_back(base))
            then = case["then"] if got == "ok" else None
            if then == "setup":
                self.everything(lines("setup.txt"))
            elif then:
                self.everything([then])
            if then or base:
                self.everything(give)
        self.everything(taken_back(give))

    def run_all(self, ways):
        self.run("nothing", "nothing", [])
        self.run("superuser", "superuser", [])
        self.run("superuser by role", "superuser", ["GRANT su TO m"])
        for grant in grants():
            self.run("direct", grant, [f"GRANT {grant} TO m"])
            if "inherited" in ways:
                self.run("inherited", grant, [f"GRANT {grant} TO g1", "GRANT g1 TO m"])
                self.run("chain", grant, [f"GRANT {grant} TO g2", "GRANT g2 TO g1", "GRANT g1 TO m"])
            print(grant, file=sys.stderr, flush=True)

    def render(self):
        out = []
        for at, case in enumerate(self.cases):
            out.append(case["text"])
            out += [f"  with {w}" for w in case["with"]]
            nothing = next(iter(self.outcomes["nothing"][at]))
            for way in ["nothing", "superuser", "superuser by role"]:
                out.append(f"  {way}: {next(iter(self.outcomes[way][at]))}")
            direct = self.outcomes["direct"][at]
            for way in ["direct", "inherited", "chain"]:
                of_way = self.outcomes.get(way, {}).get(at, direct)
                if way != "direct" and of_way == direct:
                    continue
                for got in sorted(of_way):
                    if got != nothing:
                        out.append(f"  {way}: {got}: {', '.join(of_way[got])}")
                if way != "direct":
                    out.append(f"  {way}: differs from direct")
        return out


def blocks(text_lines):
    """Statement with its permissions -> its lines. A result that is no refusal is "allowed" for the comparison."""
    found, key = {}, None
    for line in text_lines:
        if line.startswith("#"):
            break
        if not line.startswith("  "):
            key = line
            found[key] = []
        elif line.startswith("  with "):
            del found[key]
            key += line.strip().join([" (", ")"])
            found[key] = []
        elif line.strip():
            way, rest = line.strip().split(": ", 1)
            if not rest.startswith("Unauthorized"):
                rest = re.sub(r"^(ok|NoHostAvailable|Invalid|AlreadyExists|Syntax\w*|ServerError|ConfigError|Config\w*|\w*Exception)", "allowed", rest)
            found[key].append(f"{way}: {rest}")
    return {key: sorted(set(value)) for key, value in found.items()}


def compare(made, golden):
    with open(golden) as file:
        golden = blocks(file.read().split("\n"))
    theirs = blocks(made)
    known = {line.split(" | ")[0] for line in lines("differences.txt")}
    unknown = 0
    for key in theirs:
        if (golden.get(key) != theirs[key]) == (key in known):
            continue
        unknown += 1
        if key in known:
            print(f"no difference any more: {key}")
            continue
        print(key)
        for line in difflib.ndiff(golden.get(key, []), theirs[key]):
            if line[0] in "+-":
                print("   ", line)
    print(f"{len(theirs)} statements, {len(known)} known differences, {unknown} unknown")
    return 1 if unknown else 0


def main():
    if sys.argv[1] == "--files":
        with open(sys.argv[2]) as file:
            return compare(file.read().split("\n"), sys.argv[3])
    runner = Runner(sys.argv[1], int(sys.argv[2]))
    runner.run_all(os.environ.get("MATRIX_WAYS", "direct inherited"))
    made = runner.render()
    if len(sys.argv) < 4:
        print("\n".join(made))
        return 0
    return compare(made, sys.argv[3])


if __name__ == "__main__":
    sys.exit(main())
