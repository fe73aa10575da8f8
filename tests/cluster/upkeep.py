"""What an operator does and sees: nodetool, the API, repair, another data center, and what is refused."""

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement

from cluster import ADDRESSES, DATACENTER, Connection, Test, until

OTHER = "datacenter2"
FOURTH = "127.0.0.4"


class Upkeep(Test):
    def __init__(self, nodes):
        super().__init__(nodes)
        self.single = []

    def close(self):
        for process in self.single:
            process.kill()
            process.wait()

    def node(self, number, *arguments):
        """A node that `helenus cluster` does not know, as an operator starts it."""
        address, directory = f"127.0.0.{number}", self.nodes.directory / f"single{number}"
        log = open(self.nodes.directory / f"single{number}.log", "a")
        options = {
            "--workdir": directory,
            "--cluster-name": "local",
            "--smp": 1,
            "--memory": "128M",
            "--listen-address": address,
            "--rpc-address": address,
            "--api-address": address,
            "--seeds": ADDRESSES[0],
            "--endpoint-snitch": "GossipingPropertyFileSnitch",
            "--datacenter": OTHER,
            "--rack": "a",
            "--phi-convict-threshold": 5,
        }
        given = dict(argument.split("=", 1) for argument in arguments)
        if "--config" in given:
            del options["--seeds"]
        words = [f"{name}={value}" for name, value in (options | given).items()]
        process = subprocess.Popen([self.nodes.helenus, "server", *words], stdout=log, stderr=log)
        self.single.append(process)
        return process

    def refused(self, number, words, *arguments):
        """It does not start, and says why in the last line of its log."""
        process = self.node(number, *arguments)
        code = process.wait(timeout=60)
        last = (self.nodes.directory / f"single{number}.log").read_text().splitlines()[-1]
        assert code not in (0, 101, 134) and words in last, (code, last)

    def api(self, path, method="GET", node=1):
        request = urllib.request.Request(f"http://127.0.0.{node}:10000{path}", method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read().decode()
        return json.loads(text) if text else None

    def count(self, node, table, level=ConsistencyLevel.ONE):
        return len(list(self.connection.on(node, f"SELECT k FROM ks.{table}", level=level)))

    def files(self, node, table):
        directory = self.nodes.directory / f"node{node}" / "data" / "ks"
        return list(directory.glob(f"{table}-*/nb-*-big-Data.db"))

    # ------------------------------------------------------------ phases

    def start(self):
        self.nodes.cluster("start", "--nodes", "3", "--racks", "a", "--smp", "1", "--memory", "128M",
                           "--", "--phi-convict-threshold", "5", "--auto-repair-enabled", "false",
                           "--hinted-handoff-enabled", "false")
        self.connection = Connection()
        session = self.connection.session
        session.execute("CREATE KEYSPACE ks WITH replication = "
                        f"{{'class': 'NetworkTopologyStrategy', '{DATACENTER}': 3}}")
        session.execute("CREATE TABLE ks.t (k int PRIMARY KEY, v text)")

    def settings(self):
        tool = lambda *words: self.nodes.nodetool(1, *words)
        tool("setcompactionthroughput", "7")
        assert tool("getcompactionthroughput") == "Current compaction throughput: 7 MB/s\n"
        assert re.search(r"^compaction throughput \(MiB/s\) +7\.0 *$", tool("compactionstats"), re.M)
        tool("setstreamthroughput", "-m", "3")
        assert tool("getstreamthroughput", "-m") == "Current stream throughput: 3.0 MiB/s\n"
        assert self.api("/storage_service/stream_throughput") == 3
        tool("setinterdcstreamthroughput", "-m", "2")
        assert tool("getinterdcstreamthroughput", "-m") == (
            "Current inter-datacenter stream throughput: 2.0 MiB/s\n"
        )
        assert tool("getstreamthroughput", "-m") == "Current stream throughput: 3.0 MiB/s\n"
        for verb, state in [("enablebackup", "running\n"), ("disablebackup", "not running\n")]:
            tool(verb)
            assert tool("statusbackup") == state
        tool("setbatchlogreplaythrottle", "500")
        assert tool("getbatchlogreplaythrottle") == "Batchlog replay throttle: 500 KB/s\n"
        assert tool("getseeds") == "Seed node list does not contain any remote node IPs\n"
        assert self.nodes.nodetool(2, "getseeds").endswith("node's IP: /127.0.0.1:7000\n")
        tool("setlogginglevel", "compaction", "DEBUG")
        assert re.search(r"^store +DEBUG$", tool("getlogginglevels"), re.M)
        assert self.api("/system/logger/store") == "debug"
        tool("setlogginglevel")
        assert tool("getlogginglevels").split() == ["Logger", "Name", "Log", "Level", "ROOT", "INFO"]
        traced = "SELECT session_id FROM system_traces.sessions"
        tool("settraceprobability", "1")
        assert tool("gettraceprobability") == "Current trace probability: 1.0\n"
        answer = self.connection.session.execute_async(
            SimpleStatement("SELECT k FROM ks.t"), execution_profile=1)
        answer.result()
        assert not answer._query_traces, "nobody asked for it"
        tool("settraceprobability", "0")
        until("a request was traced", lambda: list(self.connection.on(1, traced)))
        clients = tool("clientstats", "--all")
        assert re.search(r"^/127\.0\.0\.1:\d+ +false .* (DataStax|Apache Cassandra) Python Driver ", clients, re.M), clients
        assert re.search(r"^anonymous +\d+ *$", clients, re.M), clients
        paths = tool("datapaths", "ks.t").split()
        assert paths[:2] == ["Keyspace:", "ks"] and f"{self.nodes.directory}/node1/data/ks/t-" in paths[-1]
        self.samples()
        self.cached_rows()
        assert tool("reloadssl") == "", "without encryption there is nothing to load, and nothing is printed"
        assert tool("scrub", "--no-snapshot", "ks") == ""
        assert tool("relocatesstables", "ks") == ""
        assert tool("forcecompact", "ks", "t", "1") == ""
        assert tool("setcompactionshare", "300") == ""
        until("the share is set", lambda: tool("getcompactionshare") == "Current compaction share: 300 of 1000\n")
        tool("setcompactionshare", "auto")
        joined = self.nodes.run("nodetool", "join", check=False)
        assert "This node has already joined the ring." in joined.stdout, joined

    def samples(self):
        tool = lambda *words: self.nodes.nodetool(1, *words)
        execute = self.connection.session.execute
        execute("CREATE TABLE ks.sampled (k int PRIMARY KEY, v text) WITH allow_auto_snapshot = false")
        sampling = subprocess.Popen(
            [self.nodes.helenus, "nodetool", "-h", ADDRESSES[0], "toppartitions", "ks", "sampled", "3000", "-k", "3",
             "-a", "reads,writes,cas_contentions"], stdout=subprocess.PIPE, text=True)
        time.sleep(0.5)
        for _ in range(20):
            execute(SimpleStatement("INSERT INTO ks.sampled (k, v) VALUES (4711, 'x')", consistency_level=ConsistencyLevel.ALL))
            execute(SimpleStatement("SELECT * FROM ks.sampled WHERE k = 4711", consistency_level=ConsistencyLevel.ALL))
        text = sampling.communicate(timeout=30)[0]
        for title in ["reads", "writes"]:
            assert re.search(f"Frequency of {title} by partition:\n +Table +Partition +Count +[+]/- *\n +ks.sampled +4711 +20 +0 *\n", text), text
        assert text.endswith("Frequency of CAS contention by partition:\n   Nothing recorded during sampling period...\n\n"), text
        assert tool("profileload", "-l") == "KEYSPACE TABLE\n"
        assert tool("profileload", "ks", "*", "200", "-i", "300") == ""
        assert tool("profileload", "ks", "t", "200", "-i", "300").startswith(
            "Unable to schedule sampling for keyspace: ks, table: t due to existing samplings. ")
        assert tool("profileload", "-l") == "KEYSPACE TABLE\n      ks     *\n"
        log = lambda: open(f"{self.nodes.directory}/node1.log").read()
        until("a round is in the log", lambda: "Frequency of reads by partition:" in log())
        assert tool("profileload", "-t", "ks", "*") == ""
        until("the job has ended", lambda: tool("profileload", "-l") == "KEYSPACE TABLE\n")
        assert tool("profileload", "-t", "ks", "t") == (
            "Unable to stop the non-existent scheduled sampling for keyspace: ks, table: t\n")
        for words, what in [(["-k", "0"], "TopK count (-k) option must have positive value"),
                            (["ks", "nosuch"], "ColumnFamilyStore for ks/nosuch not found."),
                            (["-a", "x"], "'x' sampler is not available from: [READS, ")]:
            refused = self.nodes.run("nodetool", "profileload", *words, check=False)
            # Cassandra's looks for the table by itself, and says so on its standard error.
            told = refused.stderr if "nosuch" in words else refused.stdout
            assert refused.returncode == 1 and what in told, refused
        execute("DROP TABLE ks.sampled")

    def cached_rows(self):
        """The row cache, turned on live; a flush leaves what is cached, and what is written is seen."""
        tool = lambda *words: self.nodes.nodetool(1, *words)
        execute = lambda text: list(self.connection.session.execute(
            SimpleStatement(text, consistency_level=ConsistencyLevel.ALL)))
        caches = lambda: {row.name: row for row in self.connection.on(1, "SELECT * FROM system_views.caches")}
        assert (caches()["rows"].capacity_bytes, caches()["rows"].request_count) == (0, 0)
        execute("CREATE TABLE ks.cached (k int, c int, v text, PRIMARY KEY (k, c)) WITH allow_auto_snapshot = false "
                "AND caching = {'keys': 'ALL', 'rows_per_partition': '2'}")
        for wrong, why in [(["1", "0", "0"], "there is no key cache"), (["0", "100000", "0"], "at most"),
                           (["1"], "setcachecapacity requires key-cache-capacity, row-cache-capacity, and ")]:
            refused = self.nodes.run("nodetool", "setcachecapacity", *wrong, check=False)
            assert refused.returncode != 0 and why in refused.stdout + refused.stderr, refused
        assert tool("setcachecapacity", "0", "4", "0") == ""
        until("there is a row cache", lambda: caches()["rows"].capacity_bytes == 4 << 20)
        for c in range(5):
            execute(f"INSERT INTO ks.cached (k, c, v) VALUES (1, {c}, 'a')")
        tool("flush", "ks", "cached")
        for expect in ["a", "b"]:
            for _ in range(5):
                rows = execute("SELECT c, v FROM ks.cached WHERE k = 1")
                assert [tuple(row) for row in rows] == [(c, "a" if c else expect) for c in range(5)], rows
            execute("INSERT INTO ks.cached (k, c, v) VALUES (1, 0, 'b')")
        rows = caches()["rows"]
        assert (rows.request_count, rows.hit_count, rows.entry_count) == (10, 9, 1) and rows.size_bytes > 0, rows
        line = next(line for line in tool("info").splitlines() if line.startswith("Row Cache"))
        assert re.fullmatch(r"Row Cache +: entries 1, size \d+ bytes, capacity 4 MiB, 9 hits, 10 requests, "
                            r"0\.900 recent hit rate, 0 save period in seconds", line), line
        assert self.api("/cache_service/metrics/row/hits") == 9
        assert tool("invalidaterowcache") == ""
        assert self.api("/cache_service/metrics/row/entries") == 0
        assert tool("setcachecapacity", "0", "0", "0") == ""
        execute("DROP TABLE ks.cached")

    def scyllas_api(self):
        hosts = {e["key"]: e["value"] for e in self.api("/storage_service/host_id")}
        status = self.nodes.status(1)
        assert hosts == {address: row["host"] for address, row in status.items()}
        assert self.api("/storage_service/hostid/local") == hosts[ADDRESSES[0]]
        tokens = self.api("/storage_service/tokens_endpoint")
        assert len(tokens) == 48 and {t["value"] for t in tokens} == set(ADDRESSES)
        own = self.api(f"/storage_service/tokens/{ADDRESSES[1]}")
        assert [t["key"] for t in tokens if t["value"] == ADDRESSES[1]] == own
        assert sorted(self.api("/gossiper/endpoint/live")) == ADDRESSES
        assert self.api("/gossiper/endpoint/down") == []
        assert self.api("/failure_detector/simple_states") == [
            {"key": a, "value": "UP"} for a in ADDRESSES]
        states = self.api("/failure_detector/endpoints/")
        assert [(s["addrs"], s["is_alive"]) for s in states] == [(a, True) for a in ADDRESSES]
        assert self.api("/storage_service/keyspaces?type=user") == ["ks"]
        assert {"ks": "ks", "cf": "t", "type": "ColumnFamilies"} in self.api("/column_family/")
        assert "ks:t" in self.api("/column_family/name")
        ends = self.api("/storage_service/natural_endpoints/ks?cf=t&key=1")
        assert ends == self.nodes.nodetool(1, "getendpoints", "ks", "t", "1").split()
        assert self.api("/snitch/datacenter?host=127.0.0.2") == DATACENTER
        assert self.api("/storage_service/operation_mode") == "NORMAL"
        shares = [float(e["value"]) for e in self.api("/storage_service/ownership/")]
        assert abs(sum(shares) - 1) < 1e-6, shares
        repair = self.api("/storage_service/repair_async/ks?incremental=false", "POST")
        assert self.api(f"/storage_service/repair_status?id={repair}") == "SUCCESSFUL"
        assert self.api("/task_manager/list_modules") == ["repair"]
        task = self.api("/task_manager/list_module_tasks/repair?keyspace=ks")[-1]
        assert (task["state"], task["sequence_number"]) == ("done", repair), task
        ended = self.api(f"/task_manager/wait_task/{task['task_id']}")
        assert (ended["state"], ended["progress_completed"]) == ("done", 100.0), ended
        self.api("/storage_service/snapshots?tag=rest&kn=ks", "POST")
        taken = {e["key"]: e["value"] for e in self.api("/storage_service/snapshots")}
        assert [t["cf"] for t in taken["rest"]] == ["t"], taken
        self.api("/storage_service/snapshots?tag=rest", "DELETE")
        assert self.api("/storage_service/snapshots") == []
        try:
            self.api("/storage_service/keyspaces?type=nonsense")
        except urllib.error.HTTPError as error:
            assert error.code == 400
        else:
            raise AssertionError("a type that is not there was taken")

    def dropped(self):
        """A dropped table's snapshot is on every node, listed, and goes with clearsnapshot."""
        self.connection.session.execute("CREATE TABLE ks.gone (k int PRIMARY KEY)")
        insert = SimpleStatement("INSERT INTO ks.gone (k) VALUES (1)",
                                 consistency_level=ConsistencyLevel.ALL)
        self.connection.session.execute(insert)
        self.connection.session.execute("DROP TABLE ks.gone")
        for node in (1, 2, 3):
            listed = lambda: self.nodes.nodetool(node, "listsnapshots")
            # The time is in its description, which is written last.
            whole = r"^dropped-\d+-gone +ks +gone .* \d{4}-\d\d-\d\dT"
            until(f"node {node} lists it", lambda: re.search(whole, listed(), re.M))
            self.nodes.nodetool(node, "clearsnapshot", "--all")
            assert "There are no snapshots" in listed()
            left = (self.nodes.directory / f"node{node}" / "data" / "ks").glob("gone-*/snapshots/*")
            assert list(left) == []

    def repair(self):
        """Node 3 misses writes and deletions for longer than gc_grace_seconds."""
        execute = self.connection.session.execute
        for mode in ("repair", "timeout"):
            execute(f"CREATE TABLE ks.{mode} (k int PRIMARY KEY) WITH gc_grace_seconds = 1 AND "
                    f"tombstone_gc = {{'mode': '{mode}', 'propagation_delay_in_seconds': '0'}} AND "
                    "read_repair = 'NONE'")
            for key in range(20):
                execute(SimpleStatement(f"INSERT INTO ks.{mode} (k) VALUES ({key})",
                                        consistency_level=ConsistencyLevel.ALL))
            self.nodes.nodetool(3, "flush", "ks", mode)
        self.nodes.cluster("kill", "3")
        for key in range(20):
            for text in (f"DELETE FROM ks.repair WHERE k = {key}",
                         f"DELETE FROM ks.timeout WHERE k = {key}",
                         f"INSERT INTO ks.t (k, v) VALUES ({key}, 'missed')"):
                self.connection.on(1 + key % 2, text, level=ConsistencyLevel.QUORUM)

        def purged(*nodes, table):
            for node in nodes:
                self.nodes.nodetool(node, "compact", "ks", table)
            return all(self.files(node, table) == [] for node in nodes)

        until("tombstones went by their age", lambda: purged(1, 2, table="timeout"))
        assert not purged(1, 2, table="repair"), "nothing was repaired, and tombstones went"
        self.nodes.cluster("start-node", "3")
        for node in (1, 2, 3):
            up = {a: "UN" for a in ADDRESSES}
            until(f"node {node} says UN", lambda: self.nodes.letters(node) == up)
        assert self.count(3, "repair") == 20
        assert self.count(1, "repair", ConsistencyLevel.ALL) == 0
        # That is what mode repair is for.
        assert self.count(1, "timeout", ConsistencyLevel.ALL) == 20

        tool = lambda *words: self.nodes.nodetool(1, *words)
        assert self.count(3, "t") == 0
        assert "Total estimated streaming: " in tool("repair", "-prv", "ks", "t")
        assert self.count(3, "t") == 0
        said = tool("repair", "ks", "t")
        assert "incremental: true" in said and "Repair completed successfully" in said, said
        assert self.count(3, "t") == 20
        assert "Previewed data was in sync" in tool("repair", "-prv", "ks", "t")
        again = tool("repair", "ks", "t")
        number = re.search(r"Starting repair command #(\d+) ", again).group(1)
        row = next(r for r in tool("repair_admin", "list").splitlines() if r.startswith(number + " "))
        assert row.split("|")[-1].split()[0] == "0", row

        def summary(part, *words):
            lines = tool("repair_admin", part, *words).splitlines()
            rows = [[cell.strip() for cell in line.split("|")] for line in lines[1:]]
            return {row[1]: row[2:] for row in rows}

        times = summary("summarize-repaired", "ks")
        assert 0 < int(times["t"][0]) <= int(times["t"][1]) and times["repair"] == ["0", "0"], times
        detail = summary("summarize-repaired", "-v", "-st", "-5", "-et", "5", "ks", "t")["t"][2]
        assert re.fullmatch(r"\(-5,5\]=\d+", detail) and not detail.endswith("=0"), detail
        assert summary("summarize-pending", "ks", "t") == {"t": ["0 bytes (0 sstables / 0 sessions)"]}
        for node in (1, 2, 3):
            assert self.files(node, "t")
            for file in self.files(node, "t"):
                shown = self.nodes.run("sstable", "metadata", str(file)).stdout
                assert int(re.search(r"^Repaired at: (\d+)", shown, re.M).group(1)) > 0, shown
        tool("repair", "-full", "-st", "0", "-et", "4000000000000000000", "ks", "t")
        tool("repair", "-pr", "ks", "t")
        tool("repair", "ks", "repair")
        assert self.count(3, "repair") == 0
        until("tombstones go behind the repair", lambda: purged(1, 2, 3, table="repair"))
        assert self.count(1, "repair", ConsistencyLevel.ALL) == 0

    def what_is_refused(self):
        """Strangers, and nodes that must not join: each is told why, and nothing happens to the others."""
        for words in (b"GET / HTTP/1.1\r\n\r\n", b"\xca\x55\x2d\xfa" + b"\xff" * 60, bytes(100)):
            with socket.create_connection((ADDRESSES[0], 7000), 10) as stranger:
                stranger.settimeout(30)
                stranger.sendall(words)
                assert stranger.recv(1) == b""
        self.refused(4, 'this node belongs to the cluster "local", you come from "other"',
                     "--cluster-name=other")
        taken = self.api("/storage_service/tokens_endpoint")[0]["key"]
        self.refused(4, f"token {taken} belongs to node", f"--initial-token={taken}", "--num-tokens=1")
        self.nodes.nodetool(2, "flush")
        shutil.copytree(self.nodes.directory / "node2", self.nodes.directory / "single5")
        self.refused(5, "the data directory was copied", f"--datacenter={DATACENTER}")
        self.seeds_are_read_again()
        self.refused(6, "which only has the same name")
        for node in (1, 2, 3):
            assert self.nodes.letters(node) == {a: "UN" for a in ADDRESSES}
        assert self.count(1, "t", ConsistencyLevel.ALL) == 20

    def seeds_are_read_again(self):
        """Of the configuration file, names in it too; one that cannot be read changes nothing."""
        config = self.nodes.directory / "single6.yaml"
        tool = lambda verb, check=True: self.nodes.run("nodetool", "-h", "127.0.0.6", verb, check=check)

        def configure(seeds):
            config.write_text("seed_provider:\n  - class_name: org.apache.cassandra.locator.SimpleSeedProvider\n"
                              f"    parameters:\n      - seeds: {seeds}\n")

        configure('"127.0.0.6"')
        own = self.node(6, f"--config={config}")
        until("it is a cluster by itself", lambda: self.nodes.letters(6) == {"127.0.0.6": "UN"})
        none = "Seed node list does not contain any remote node IPs\n"
        assert tool("getseeds").stdout == none and tool("reloadseeds").stdout == none
        configure('"127.0.0.6,localhost:7001"')
        others = "excluding the current node's IP: /127.0.0.1:7001\n"
        assert tool("getseeds").stdout == none
        assert tool("reloadseeds").stdout == f"Updated seed node IP list, {others}"
        for seeds, words in [('"127.0.0.6', "single6.yaml"), ('"127.0.0.7,no.such.name.invalid"', "resolve")]:
            configure(seeds)
            failed = tool("reloadseeds", check=False)
            assert failed.returncode == 1 and words in failed.stdout, failed
            assert failed.stdout.startswith("Failed to reload the seed node list. "), failed.stdout
        assert tool("getseeds").stdout == f"Current list of seed node IPs, {others}"
        own.terminate()
        own.wait()

    def another_datacenter(self):
        """It gets data when it is asked to, and the driver knows the members at every step."""
        hosts = lambda: {h.address: h.datacenter for h in self.connection.cluster.metadata.all_hosts()}
        before = {a: DATACENTER for a in ADDRESSES}
        fourth = self.node(4, "--auto-bootstrap=false")
        until("it has joined", lambda: self.nodes.letters(4) == {a: "UN" for a in [*ADDRESSES, FOURTH]})
        until("the driver knows it", lambda: hosts() == before | {FOURTH: OTHER})
        for node in (1, 2, 3):
            rows = self.connection.on(node, "SELECT peer, data_center, tokens FROM system.peers_v2")
            found = {r.peer: (r.data_center, len(r.tokens)) for r in rows}
            assert found[FOURTH] == (OTHER, 16) and len(found) == 3, found
        with Connection([FOURTH]) as there:
            local = lambda: sum(there.on(1, f"SELECT v FROM ks.t WHERE k = {k}",
                                         level=ConsistencyLevel.LOCAL_ONE).one() is not None
                                for k in range(20))
            self.connection.session.execute(
                "ALTER KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', "
                f"'{DATACENTER}': 3, '{OTHER}': 1}}")
            assert local() == 0, "data came before it was asked for"
            self.nodes.nodetool(4, "rebuild", DATACENTER)
            assert local() == 20
        stays = self.nodes.run("nodetool", "-h", FOURTH, "decommission", check=False)
        assert stays.returncode == 1 and "in keyspace ks (RF = 1, N = 1)" in stays.stdout, stays
        self.connection.session.execute("ALTER KEYSPACE ks WITH replication = "
                                        f"{{'class': 'NetworkTopologyStrategy', '{DATACENTER}': 3}}")
        self.nodes.nodetool(4, "decommission")
        until("the driver forgets it", lambda: hosts() == before)
        for node in (1, 2, 3):
            rows = self.connection.on(node, "SELECT peer FROM system.peers_v2")
            assert FOURTH not in {r.peer for r in rows}
        assert self.nodes.nodetool(4, "netstats").startswith("Mode: DECOMMISSIONED\n")
        self.nodes.nodetool(4, "stopdaemon")
        assert fourth.wait(timeout=60) == 0
        self.refused(4, "is no member of the cluster any more")

    PHASES = [start, settings, scyllas_api, dropped, repair, what_is_refused, another_datacenter]
