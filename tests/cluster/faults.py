"""Four drivers at once against nodes that die, stop, lose each other and are replaced."""

import json
import os
import select
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement

from cluster import ADDRESSES, DATACENTER, PATIENCE, Connection, until

HERE = Path(__file__).parent


class Program:
    """The load of one driver, as a process that is asked over its input."""

    def __init__(self, name, command, log, addresses, **variables):
        self.name = name
        environment = dict(os.environ, LOAD_HOSTS=",".join(addresses), **variables)
        with open(log, "wb") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                env=environment)
        self.buffer = b""

    def line(self, what):
        """Its next line; an end of the program is an error."""
        deadline = time.monotonic() + PATIENCE
        output = self.process.stdout
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([output], [], [], max(0, deadline - time.monotonic()))
            piece = os.read(output.fileno(), 65536) if ready else b""
            if not piece:
                why = "ended" if ready else f"said nothing in {PATIENCE} s"
                raise AssertionError(f"{self.name} {why}; wanted: {what}")
            self.buffer += piece
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.decode()

    def tell(self, text):
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()

    def acknowledged(self):
        self.tell("count")
        return int(self.line("a count"))

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Drivers:
    """The phases; the load runs from `load` to `end`."""

    # By the numbers of the nodes, from 1.
    ADDRESSES = ADDRESSES
    START = ["--smp", "1", "--memory", "192M"]
    REPLICATION = f"'{DATACENTER}': 3"
    # Writes that each driver gets acknowledged.
    LEAST = 500

    def __init__(self, nodes):
        self.nodes = nodes
        self.connection = None
        self.programs = []

    # ------------------------------------------------------------ beginning

    def start(self):
        # A dead node counts as dead sooner than by default: only then can it be replaced.
        self.nodes.cluster("start", "--nodes", str(len(self.ADDRESSES)), *self.START, "--",
                           "--phi-convict-threshold", "5")
        self.connection = Connection(self.ADDRESSES)
        session = self.connection.session
        session.execute(
            "CREATE KEYSPACE faults WITH replication = "
            f"{{'class': 'NetworkTopologyStrategy', {self.REPLICATION}}}"
        )
        session.execute("CREATE TABLE faults.kv (driver text, k int, v text, PRIMARY KEY ((driver, k)))")
        session.execute("CREATE TABLE faults.register (k text PRIMARY KEY, v int)")
        session.execute("INSERT INTO faults.register (k, v) VALUES ('shared', 0) IF NOT EXISTS")

    def load(self, **variables):
        """All four are connected and write."""
        target = self.nodes.directory.parent.parent.parent
        java = target / "drivers/java"
        commands = {
            "python": [sys.executable, "-B", str(HERE / "python/load.py")],
            "go": [str(self.nodes.directory.parent / "load-go")],
            "java": ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                     "-cp", f"{self.nodes.directory.parent / 'java'}:{java / 'lib'}/*", "load.Load"],
            "rust": [str(target / "drivers/rust/debug/cluster-load-rust")],
        }
        for name, command in commands.items():
            log = self.nodes.directory / f"load-{name}.log"
            self.programs.append(Program(name, command, log, self.ADDRESSES, **variables))
        for program in self.programs:
            line = program.line("ready")
            assert line == "ready", f"{program.name}: {line}"
        self.all_go_on("at the beginning")

    def all_go_on(self, when):
        """Each driver gets writes acknowledged, now."""
        before = {p.name: p.acknowledged() for p in self.programs}
        until(
            f"all drivers write {when}",
            lambda: all(p.acknowledged() > before[p.name] + 5 for p in self.programs),
        )

    def numbers(self):
        return range(1, len(self.ADDRESSES) + 1)

    def everybody_up(self):
        for node in self.numbers():
            until(f"node {node} says UN",
                  lambda: self.nodes.letters(node) == {a: "UN" for a in self.ADDRESSES})

    # ------------------------------------------------------------ faults

    def kill(self):
        self.nodes.cluster("kill", "2")
        self.all_go_on("without node 2")
        time.sleep(3)
        self.nodes.cluster("start-node", "2")
        self.everybody_up()

    def pause(self):
        self.nodes.cluster("pause", "3")
        time.sleep(4)
        self.all_go_on("while node 3 is paused")
        self.nodes.cluster("resume", "3")
        self.everybody_up()

    def partition(self):
        """One node alone refuses what needs a quorum; drivers find the others."""
        others = ",".join(str(n) for n in self.numbers() if n != 1)
        self.nodes.cluster("partition", "1", others)
        shown = self.nodes.cluster("status").stdout
        assert f"cut off from each other: 1 | {others}" in shown, shown
        expected = {a: "DN" for a in self.ADDRESSES}
        expected[self.ADDRESSES[0]] = "UN"
        until("node 1 sees nobody", lambda: self.nodes.letters(1) == expected)
        self.refused(1)
        self.all_go_on("while node 1 is cut off")
        self.nodes.cluster("heal")
        self.everybody_up()

    def refused(self, node):
        """Nothing is read at QUORUM through a node that does not reach one."""
        read = SimpleStatement("SELECT v FROM faults.register WHERE k = 'shared'")
        try:
            self.connection.on(node, read, level=ConsistencyLevel.QUORUM)
        except Exception as error:
            assert "Unavailable" in repr(error), error
        else:
            raise AssertionError(f"node {node} answered at QUORUM")

    def rolling_restart(self):
        for node in self.numbers():
            self.nodes.cluster("restart", str(node))
            self.everybody_up()
        self.all_go_on("after the restarts")

    def replace(self):
        address = self.ADDRESSES[2]
        before = self.nodes.status(1)[address]["host"]
        self.nodes.cluster("kill", "3")
        others = [n for n in self.numbers() if n != 3]
        until("node 3 is down for all",
              lambda: all(self.nodes.letters(n)[address] == "DN" for n in others))
        self.nodes.cluster("replace", "3")
        self.everybody_up()
        assert self.nodes.status(1)[address]["host"] != before
        self.all_go_on("after the replacement")

    # ------------------------------------------------------------ end

    def end(self):
        """What was acknowledged is read, each step of a register was taken once."""
        for program in self.programs:
            program.tell("stop")
        shared, wrong, seen = Counter(), [], Counter()
        for program in self.programs:
            report = json.loads(program.line("its report"))
            assert program.process.wait(PATIENCE) == 0, f"{program.name} failed"
            counts = Counter(report["counts"])
            seen.update(report["errors"].keys())
            shared.update({k: n for k, n in counts.items() if k.startswith("shared")})
            print(
                f"       {report['driver']}: {report['acknowledged']} writes acknowledged and read "
                f"again, {counts['reads under faults']} reads and {counts['applied']} conditional "
                f"writes under faults, {counts['unknown']} of unknown outcome "
                f"({counts['found applied']} found applied); {report['errors']}"
            )
            enough = report["acknowledged"] > self.LEAST and counts["applied"] > self.LEAST // 10
            assert enough, report
            wrong += [f"{report['driver']}: {text}" for text in report["wrong"]]
        assert not wrong, f"{len(wrong)} wrong:\n" + "\n".join(wrong[:20])
        assert seen, "no driver met an error: the faults were none"
        # This driver was idle and finds out only now which of its connections the restarts closed.
        row = until("the register is read", lambda: self.connection.session.execute(SimpleStatement(
            "SELECT v FROM faults.register WHERE k = 'shared'",
            consistency_level=ConsistencyLevel.SERIAL)).one())
        least = shared["shared applied"]
        most = least + shared["shared unknown"]
        print(f"       shared register: {row.v}, {least} acknowledged, {most - least} unknown")
        assert least <= row.v <= most, (row.v, shared)

    def lies_are_found(self):
        """Drivers that claim writes that they did not make: the check fails for each."""
        self.programs = []
        self.load(LOAD_LIE="1")
        until("some writes", lambda: all(p.acknowledged() > 50 for p in self.programs))
        for program in self.programs:
            program.tell("stop")
        for program in self.programs:
            wrong = json.loads(program.line("its report"))["wrong"]
            found = [text for text in wrong if "was acknowledged and reads" in text]
            assert found, f"{program.name} did not find its lies"

    def close(self):
        for program in self.programs:
            program.end()

    PHASES = [start, load, kill, pause, partition, rolling_restart, replace, end, lies_are_found]


class Six(Drivers):
    """The same with six nodes in two data centers, which also lose each other: a quorum of all replicas
    needs both."""

    ADDRESSES = [f"127.0.0.{number}" for number in range(1, 7)]
    START = ["--dcs", "2", "--smp", "1", "--memory", "160M"]
    REPLICATION = "'datacenter1': 3, 'datacenter2': 3"

    def cut_data_centers(self):
        """Nobody is acknowledged anything while there is no quorum; then all go on."""
        self.nodes.cluster("partition", "1,3,5", "2,4,6")
        for node in (1, 2):
            until(f"node {node} sees its data center",
                  lambda: sorted(self.nodes.letters(node).values()) == ["DN"] * 3 + ["UN"] * 3)
            self.refused(node)
        # What was on its way is answered by now, so that what follows was not begun before the cut.
        time.sleep(3)
        before = {p.name: p.acknowledged() for p in self.programs}
        time.sleep(3)
        after = {p.name: p.acknowledged() for p in self.programs}
        assert before == after, f"acknowledged without a quorum: {before}, {after}"
        self.nodes.cluster("heal")
        self.everybody_up()
        self.all_go_on("after the data centers met again")

    PHASES = [Drivers.start, Drivers.load, Drivers.kill, Drivers.pause, Drivers.partition,
              cut_data_centers, Drivers.rolling_restart, Drivers.replace, Drivers.end]


class Upgrade(Drivers):
    """Nodes of an earlier build (`HELENUS_OLD`) become nodes of this one, one after the other, while four
    drivers write; in between the schema changes through both."""

    LEAST = 200

    def start(self):
        new = self.nodes.helenus
        self.nodes.helenus = os.path.abspath(os.environ["HELENUS_OLD"])
        super().start()
        for number in range(50):
            self.connection.session.execute(
                f"INSERT INTO faults.kv (driver, k, v) VALUES ('before', {number}, 'old')")
        # Memtables of one node lie in files, those of the others in logs that are replayed.
        self.nodes.nodetool(1, "flush")
        self.nodes.helenus = new

    def one_after_the_other(self):
        for node in self.numbers():
            if node == 2:
                self.nodes.cluster("kill", "2")
                self.nodes.cluster("start-node", "2")
            else:
                self.nodes.cluster("restart", str(node))
            self.everybody_up()
            self.all_go_on(f"when node {node} is new")
            for through in self.numbers():
                name = f"faults.made_{node}_{through}"
                until(f"{name} is made", lambda: self.connection.on(
                    through, f"CREATE TABLE IF NOT EXISTS {name} (k int PRIMARY KEY)") is not None)
                for asked in self.numbers():
                    self.connection.on(asked, f"SELECT k FROM {name}")

    def what_was_written_before(self):
        for node in self.numbers():
            for number in range(50):
                row = self.connection.on(
                    node, f"SELECT v FROM faults.kv WHERE driver = 'before' AND k = {number}",
                    level=ConsistencyLevel.ALL).one()
                assert row is not None and row.v == "old", (node, number, row)

    PHASES = [start, Drivers.load, one_after_the_other, what_was_written_before, Drivers.end]


def lacking_for_upgrade():
    """Why the upgrade cannot run; empty when it can."""
    return "" if os.environ.get("HELENUS_OLD") else "HELENUS_OLD names no earlier build"
