"""Three nodes on one machine, through a driver and nodetool; see README.md."""

import re
import shutil
import subprocess
import threading
import time
from pathlib import Path

from cassandra import ConsistencyLevel, OperationTimedOut, Timeout, Unavailable
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.policies import (
    ConstantReconnectionPolicy,
    FallthroughRetryPolicy,
    RoundRobinPolicy,
    TokenAwarePolicy,
    WhiteListRoundRobinPolicy,
)
from cassandra.pool import NoConnectionsAvailable
from cassandra.query import BatchStatement, BatchType, SimpleStatement

ADDRESSES = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
RACKS = ["a", "b", "c"]
DATACENTER = "datacenter1"
# Only to give up: no test expects something to be faster.
PATIENCE = 120
ROWS = 300


class Nodes:
    """The cluster as `helenus cluster` and `helenus nodetool` show it."""

    def __init__(self, helenus, work, name):
        self.helenus = str(Path(helenus).resolve())
        self.directory = Path(work) / name

    def clean(self):
        """Nothing is left of an earlier run."""
        if self.directory.exists():
            self.cluster("stop", check=False)
            shutil.rmtree(self.directory)

    def end(self):
        """Ends everything, also what a failed phase left paused; whether it went well."""
        if not (self.directory / "cluster.json").exists():
            return True
        done = self.cluster("stop", check=False)
        print(done.stderr, end="")
        return done.returncode == 0

    def run(self, *arguments, check=True):
        done = subprocess.run(
            [self.helenus, *arguments], capture_output=True, text=True, timeout=2 * PATIENCE
        )
        if check and done.returncode != 0:
            raise AssertionError(
                f"{' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done

    def cluster(self, *arguments, check=True):
        command, *rest = arguments
        return self.run("cluster", command, "--dir", str(self.directory), *rest, check=check)

    def nodetool(self, node, *arguments, check=True):
        return self.run("nodetool", "-h", f"127.0.0.{node}", *arguments, check=check).stdout

    def status(self, asked, *arguments):
        """Letters, share, rack and tokens by address, as one node shows them."""
        found = {}
        text = self.nodetool(asked, "status", *arguments)
        for line in text.splitlines():
            cells = re.fullmatch(
                r"([UD?][NLJM])  (\S+) +(\?|[\d.]+ \S+) +(\d+) +(\?|[\d.]+%) +([0-9a-f-]{36})  (\S+) *",
                line,
            )
            if cells:
                letters, address, load, tokens, owns, host, rack = cells.groups()
                found[address] = {
                    "letters": letters,
                    "load": load,
                    "tokens": int(tokens),
                    "owns": owns,
                    "host": host,
                    "rack": rack,
                }
        assert found, f"no node in:\n{text}"
        return found

    def letters(self, asked):
        return {address: row["letters"] for address, row in self.status(asked).items()}


def until(what, condition):
    """Waits until the condition holds; its last answer."""
    deadline = time.monotonic() + PATIENCE
    last = None
    while time.monotonic() < deadline:
        try:
            last = condition()
            if last:
                return last
        except (AssertionError, NoHostAvailable, Unavailable, Timeout, OperationTimedOut) as error:
            last = error
        time.sleep(0.1)
    raise AssertionError(f"not in {PATIENCE} s: {what}; last: {last!r}")


def profile(policy, level, timeout=10):
    return ExecutionProfile(
        load_balancing_policy=policy,
        consistency_level=level,
        request_timeout=timeout,
        # What a node refuses is what is looked at; nothing is tried elsewhere unseen.
        retry_policy=FallthroughRetryPolicy(),
    )


class Connection:
    """A driver that knows all nodes, with a profile for each one alone."""

    def __init__(self, addresses=ADDRESSES):
        profiles = {
            EXEC_PROFILE_DEFAULT: profile(
                TokenAwarePolicy(RoundRobinPolicy()), ConsistencyLevel.QUORUM
            )
        }
        for number, address in enumerate(addresses, 1):
            only = WhiteListRoundRobinPolicy([address])
            profiles[number] = profile(only, ConsistencyLevel.ONE)
        self.cluster = Cluster(
            addresses,
            execution_profiles=profiles,
            protocol_version=5,
            reconnection_policy=ConstantReconnectionPolicy(0.5, None),
            connect_timeout=10,
            control_connection_timeout=10,
        )
        self.session = self.cluster.connect()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.cluster.shutdown()

    def on(self, node, statement, values=None, level=None):
        """Executes with one node as the coordinator; waits until the driver is connected to it."""
        if isinstance(statement, str):
            statement = SimpleStatement(statement)
        if level is not None:
            statement.consistency_level = level
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self.session.execute(statement, values, execution_profile=node)
            except NoHostAvailable as error:
                # No answer: the driver has no connection to that node yet, or lost it.
                answered = not all(is_connection(e) for e in error.errors.values())
                if answered or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


def is_connection(error):
    return isinstance(error, (ConnectionException, NoConnectionsAvailable, OSError))


class Test:
    def __init__(self, nodes):
        self.nodes = nodes
        self.connection = None
        self.statements = {}

    # ------------------------------------------------------------ phase 1

    def start(self):
        done = self.nodes.cluster(
            "start", "--nodes", "3", "--racks", ",".join(RACKS), "--smp", "2", "--memory", "256M"
        )
        assert "127.0.0.1,127.0.0.2,127.0.0.3 port 9042" in done.stdout, done.stdout
        shown = self.nodes.cluster("status").stdout
        assert shown.count("serving") == 3, shown
        self.connection = Connection()

    def driver_sees_the_cluster(self):
        metadata = self.connection.cluster.metadata
        until("three hosts that are up", lambda: sum(bool(h.is_up) for h in metadata.all_hosts()) == 3)
        hosts = sorted(metadata.all_hosts(), key=lambda h: h.address)
        assert [h.address for h in hosts] == ADDRESSES
        assert [h.rack for h in hosts] == RACKS
        assert {h.datacenter for h in hosts} == {DATACENTER}
        assert {h.release_version for h in hosts} == {"5.0.9"}
        assert len({h.host_id for h in hosts}) == 3
        tokens = metadata.token_map.token_to_host_owner
        by_host = [sum(owner == h for owner in tokens.values()) for h in hosts]
        assert by_host == [16, 16, 16], by_host
        self.connection.cluster.control_connection.wait_for_schema_agreement()
        versions = set()
        for node in (1, 2, 3):
            versions.add(self.connection.on(node, "SELECT schema_version FROM system.local").one()[0])
            peers = self.connection.on(node, "SELECT peer, tokens, rack FROM system.peers_v2")
            found = {row.peer: (len(row.tokens), row.rack) for row in peers}
            others = {a: (16, r) for a, r in zip(ADDRESSES, RACKS) if a != ADDRESSES[node - 1]}
            assert found == others, found
        assert len(versions) == 1, versions

    def nodetool_sees_the_cluster(self):
        everything_up = {a: "UN" for a in ADDRESSES}
        for node in (1, 2, 3):
            until(f"all up for {node}", lambda: self.nodes.letters(node) == everything_up)
            until(
                f"loads known to {node}",
                lambda: all(r["load"] != "?" for r in self.nodes.status(node).values()),
            )
            status = self.nodes.status(node)
            assert [status[a]["rack"] for a in ADDRESSES] == RACKS, status
            assert all(row["tokens"] == 16 for row in status.values()), status
        hosts = {h.address: str(h.host_id) for h in self.connection.cluster.metadata.all_hosts()}
        assert {a: row["host"] for a, row in self.nodes.status(1).items()} == hosts
        ring = self.nodes.nodetool(2, "ring")
        assert len(re.findall(r"^127\.0\.0\.[123] .* Up +Normal ", ring, re.M)) == 48, ring
        until("one version of the schema", lambda: self.one_schema_version())
        info = self.nodes.nodetool(3, "info")
        assert f"ID                     : {hosts['127.0.0.3']}" in info, info
        assert "Rack                   : c" in info, info

    def one_schema_version(self):
        text = self.nodes.nodetool(1, "describecluster")
        assert "\tLive: 3\n" in text and "\tUnreachable: 0\n" in text, text
        listed = re.findall(r"^\t\t(\S+): \[(.*)\]$", text, re.M)
        return len(listed) == 1 and listed[0][1] == ", ".join(ADDRESSES)

    def gossip_knows_everybody(self):
        for node in (1, 2, 3):
            text = self.nodes.nodetool(node, "gossipinfo")
            assert re.findall(r"^/(127\.0\.0\.[123])$", text, re.M) == ADDRESSES, text
            assert text.count("STATUS_WITH_PORT:") == 3 and text.count("NORMAL,") == 3, text
            assert self.nodes.nodetool(node, "statusgossip") == "running\n"
            detector = self.nodes.nodetool(node, "failuredetector")
            assert detector.startswith("  Endpoint,             Phi\n"), detector

    # ------------------------------------------------------------ phase 2

    def schema(self):
        session = self.connection.session
        session.execute(
            "CREATE KEYSPACE ks WITH replication = "
            f"{{'class': 'NetworkTopologyStrategy', '{DATACENTER}': 3}}"
        )
        session.execute("CREATE TABLE ks.t (k int PRIMARY KEY, v text)")
        self.connection.on(2, "CREATE TABLE ks.wide (k int, c int, v text, PRIMARY KEY (k, c))")
        self.connection.on(3, "ALTER TABLE ks.wide ADD extra text")
        for node in (1, 2, 3):
            assert list(self.connection.on(node, "SELECT extra FROM ks.wide")) == []
        shares = {row["owns"] for row in self.nodes.status(1, "ks").values()}
        assert shares == {"100.0%"}, shares
        until("one version of the schema", lambda: self.one_schema_version())

    def endpoints(self):
        for node in (1, 2):
            found = self.nodes.nodetool(node, "getendpoints", "ks", "t", "1").split()
            assert sorted(found) == ADDRESSES, found
        first = self.nodes.nodetool(1, "getendpoints", "ks", "t", "7").split()[0]
        metadata = self.connection.cluster.metadata
        replicas = metadata.get_replicas("ks", (7).to_bytes(4, "big"))
        assert first == replicas[0].address, (first, replicas)
        ring = self.nodes.nodetool(3, "describering", "ks")
        assert ring.count("\tTokenRange(start_token:") == 48, ring
        assert ring.count("EndpointDetails(") == 3 * 48, ring

    def prepared(self, text, level):
        """Prepared once, while all nodes run: the driver asks any of them, also one that is paused."""
        if (text, level) not in self.statements:
            statement = self.connection.session.prepare(text)
            statement.consistency_level = level
            self.statements[text, level] = statement
        return self.statements[text, level]

    def insert(self, keys, value, level):
        insert = self.prepared("INSERT INTO ks.t (k, v) VALUES (?, ?)", level)
        for key in keys:
            self.connection.session.execute(insert, (key, value))

    def check_rows(self, node, keys, value, level=ConsistencyLevel.ONE):
        select = self.prepared("SELECT v FROM ks.t WHERE k = ?", level)
        for key in keys:
            row = self.connection.on(node, select, (key,)).one()
            assert row is not None and row.v == value, f"key {key} on node {node}: {row}"

    def write_and_read(self):
        quorum, every = range(ROWS), range(ROWS, 2 * ROWS)
        self.insert(quorum, "quorum", ConsistencyLevel.QUORUM)
        self.insert(every, "all", ConsistencyLevel.ALL)
        for node in (1, 2, 3):
            # ALL was acknowledged by each; QUORUM is read from two.
            self.check_rows(node, every, "all")
            self.check_rows(node, quorum, "quorum", ConsistencyLevel.QUORUM)
        until(
            "what was written at QUORUM is on all nodes",
            lambda: all(self.check_rows(n, quorum, "quorum") is None for n in (1, 2, 3)),
        )

    def batches_and_scans(self):
        batch = BatchStatement(BatchType.LOGGED, consistency_level=ConsistencyLevel.QUORUM)
        insert = self.connection.session.prepare("INSERT INTO ks.wide (k, c, v) VALUES (?, ?, ?)")
        for key in range(20):
            for cell in range(5):
                batch.add(insert, (key, cell, "batch"))
        self.connection.session.execute(batch)
        for node in (1, 2, 3):
            scan = SimpleStatement("SELECT k, c FROM ks.wide", fetch_size=7)
            rows = list(self.connection.on(node, scan, level=ConsistencyLevel.QUORUM))
            assert sorted(rows) == [(k, c) for k in range(20) for c in range(5)], len(rows)
        self.connection.session.execute("DELETE FROM ks.wide WHERE k = 3")
        for node in (1, 2, 3):
            scan = "SELECT count(*) FROM ks.wide"
            assert self.connection.on(node, scan, level=ConsistencyLevel.QUORUM).one()[0] == 95

    # ------------------------------------------------------------ phase 3

    def kill(self):
        self.nodes.cluster("kill", "3")
        expected = {"127.0.0.1": "UN", "127.0.0.2": "UN", "127.0.0.3": "DN"}
        for node in (1, 2):
            until(f"node {node} says DN", lambda: self.nodes.letters(node) == expected)
        shown = self.nodes.cluster("status", check=False)
        assert shown.returncode == 1 and "stopped" in shown.stdout, shown.stdout
        text = self.nodes.nodetool(1, "describecluster")
        assert "\tUnreachable: 1\n" in text and "UNREACHABLE: [127.0.0.3]" in text, text
        assert "Metadata voters:\n\t127.0.0.1, 127.0.0.2, 127.0.0.3 (down)\n" in text, text
        host = next(h for h in self.connection.cluster.metadata.all_hosts() if h.address == "127.0.0.3")
        until("the driver says down", lambda: not host.is_up)

    def quorum_goes_on(self):
        for node in (1, 2):
            for key in range(2 * ROWS, 3 * ROWS):
                text = f"INSERT INTO ks.t (k, v) VALUES ({key}, 'without')"
                self.connection.on(node, text, level=ConsistencyLevel.QUORUM)
            self.check_rows(node, range(2 * ROWS, 3 * ROWS), "without", ConsistencyLevel.QUORUM)
            self.check_rows(node, range(ROWS, 2 * ROWS), "all")
        try:
            text = "INSERT INTO ks.t (k, v) VALUES (-1, 'no')"
            self.connection.on(1, text, level=ConsistencyLevel.ALL)
        except Unavailable as error:
            assert (error.required_replicas, error.alive_replicas) == (3, 2), error
        except NoHostAvailable as error:
            refused = [e for e in error.errors.values() if isinstance(e, Unavailable)]
            assert refused, error.errors
        else:
            raise AssertionError("ALL was acknowledged without node 3")
        # The schema changes with two of three.
        self.connection.session.execute("CREATE TABLE ks.later (k int PRIMARY KEY, v int)")
        self.connection.session.execute("INSERT INTO ks.later (k, v) VALUES (1, 1)")

    # ------------------------------------------------------------ phase 4

    def everybody_up(self):
        for node in (1, 2, 3):
            expected = {a: "UN" for a in ADDRESSES}
            until(f"node {node} says UN", lambda: self.nodes.letters(node) == expected)

    def start_again(self):
        self.nodes.cluster("start-node", "3")
        self.everybody_up()
        hints = lambda node: self.nodes.nodetool(node, "listpendinghints")
        for node in (1, 2):
            until(
                f"hints of node {node} are delivered",
                lambda: hints(node) == "This node does not have any pending hints\n",
            )
        self.check_rows(3, range(2 * ROWS, 3 * ROWS), "without", ConsistencyLevel.QUORUM)
        until(
            "hints brought what node 3 missed",
            lambda: self.check_rows(3, range(2 * ROWS, 3 * ROWS), "without") is None,
        )
        self.check_rows(3, range(ROWS, 2 * ROWS), "all")
        assert self.connection.on(3, "SELECT v FROM ks.later WHERE k = 1").one()[0] == 1
        until("one version of the schema", lambda: self.one_schema_version())

    # ------------------------------------------------------------ phase 5

    def pause(self):
        self.nodes.cluster("pause", "2")
        expected = {"127.0.0.1": "UN", "127.0.0.2": "DN", "127.0.0.3": "UN"}
        # Already while the others still count on it: what is read is right, or nothing is.
        wrote = 0
        for key in range(3 * ROWS, 4 * ROWS):
            text = f"INSERT INTO ks.t (k, v) VALUES ({key}, 'paused')"
            try:
                self.connection.on(1, text, level=ConsistencyLevel.QUORUM)
                wrote += 1
            except (Timeout, OperationTimedOut):
                until("the write succeeds later", lambda: self.connection.on(
                    1, text, level=ConsistencyLevel.QUORUM
                ) is not None)
        for node in (1, 3):
            until(f"node {node} says DN", lambda: self.nodes.letters(node) == expected)
            self.check_rows(node, range(3 * ROWS, 4 * ROWS), "paused", ConsistencyLevel.QUORUM)
        assert "paused" in self.nodes.cluster("status", check=False).stdout
        self.nodes.cluster("resume", "2")
        self.everybody_up()
        until(
            "node 2 has what it missed",
            lambda: self.check_rows(2, range(3 * ROWS, 4 * ROWS), "paused") is None,
        )

    # ------------------------------------------------------------ phase 6

    def rolling_restart(self):
        acknowledged, stop, failures = [], threading.Event(), []

        def load():
            insert = self.connection.session.prepare("INSERT INTO ks.t (k, v) VALUES (?, 'rolling')")
            key = 10 * ROWS
            while not stop.is_set():
                try:
                    self.connection.session.execute(insert, (key,))
                    acknowledged.append(key)
                except (
                    NoHostAvailable, Unavailable, Timeout, OperationTimedOut, ConnectionException
                ):
                    pass  # Not acknowledged: it may be there or not.
                except Exception as error:  # Anything else is a failure of the server.
                    failures.append(error)
                key += 1

        thread = threading.Thread(target=load)
        thread.start()
        try:
            for node in (1, 2, 3):
                before = len(acknowledged)
                self.nodes.cluster("restart", str(node))
                self.everybody_up()
                until("writes go on", lambda: len(acknowledged) > before)
        finally:
            stop.set()
            thread.join()
        assert not failures, failures[:3]
        assert acknowledged
        for node in (1, 2, 3):
            self.check_rows(node, acknowledged[:: max(1, len(acknowledged) // 500)], "rolling",
                            ConsistencyLevel.QUORUM)
        self.check_rows(1, range(ROWS, 2 * ROWS), "all", ConsistencyLevel.QUORUM)
        until("one version of the schema", lambda: self.one_schema_version())

    def netstats(self):
        for node in (1, 2, 3):
            text = self.nodes.nodetool(node, "netstats")
            assert text.startswith("Mode: NORMAL\nNot sending any streams.\n"), text
            row = re.search(r"^Small messages +n/a +(\d+) +(\d+) +(\d+)$", text, re.M)
            assert row and int(row.group(2)) > 0, text
            pools = self.nodes.nodetool(node, "tpstats")
            assert pools.startswith("Pool Name "), pools

    PHASES = [
        start,
        driver_sees_the_cluster,
        nodetool_sees_the_cluster,
        gossip_knows_everybody,
        schema,
        endpoints,
        write_and_read,
        batches_and_scans,
        kill,
        quorum_goes_on,
        start_again,
        pause,
        rolling_restart,
        netstats,
    ]


class Leaving(Test):
    """Four nodes become two; every row stays readable at ALL."""

    def start_four(self):
        self.nodes.cluster("start", "--nodes", "4", "--racks", "a", "--smp", "1", "--memory", "128M")
        self.connection = Connection()
        session = self.connection.session
        session.execute(
            "CREATE KEYSPACE ks WITH replication = "
            f"{{'class': 'NetworkTopologyStrategy', '{DATACENTER}': 2}}"
        )
        session.execute("CREATE TABLE ks.t (k int PRIMARY KEY, v text)")
        self.insert(range(ROWS), "before", ConsistencyLevel.ALL)

    def check_all(self, addresses):
        """Who is there, what each owns, and every row at ALL through each."""
        for node in (int(address[-1]) for address in addresses):
            until(
                f"node {node} knows {addresses}",
                lambda: self.nodes.letters(node) == {a: "UN" for a in addresses},
            )
            shares = [float(row["owns"][:-1]) for row in self.nodes.status(node, "ks").values()]
            assert abs(sum(shares) - 200) < 0.3, shares
            self.check_rows(node, range(ROWS), "before", ConsistencyLevel.ALL)
        hosts = self.connection.cluster.metadata.all_hosts
        until("the driver knows the same", lambda: {h.address for h in hosts()} == set(addresses))

    def decommission(self):
        self.nodes.nodetool(4, "decommission")
        self.check_all(ADDRESSES)
        refused = self.nodes.run("nodetool", "-h", ADDRESSES[2], "decommission", check=False)
        assert refused.returncode == 1, refused
        text = "Not enough live nodes to maintain replication factor in keyspace system_distributed"
        assert text in refused.stdout, refused

    def removenode(self):
        host = self.nodes.status(1)[ADDRESSES[2]]["host"]
        alive = self.nodes.run("nodetool", "removenode", host, check=False)
        assert alive.returncode == 2 and "is alive and owns this ID" in alive.stderr, alive
        self.nodes.cluster("kill", "3")
        until("node 3 is down", lambda: self.nodes.letters(1)[ADDRESSES[2]] == "DN")
        self.nodes.nodetool(1, "removenode", host)
        self.check_all(ADDRESSES[:2])
        status = self.nodes.nodetool(1, "removenode", "status")
        assert status == "RemovalStatus: No token removals in process.\n", status

    PHASES = [start_four, decommission, removenode]
