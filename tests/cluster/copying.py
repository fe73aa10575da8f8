"""COPY of `helenus cqlsh` over three nodes: to the replicas, and with a node that dies."""

import csv
import os
import re
import shlex
import subprocess
import threading
import time
import urllib.request

import cluster

ROWS = 60_000
BATCH = 20


class Copying(cluster.Test):
    def __init__(self, nodes):
        super().__init__(nodes)
        self.shell = shlex.split(os.environ.get("HELENUS_CQLSH", f"{nodes.helenus} cqlsh"))

    def cqlsh(self, statement, meanwhile=None):
        """What it printed; `meanwhile` runs once the copy has begun."""
        environment = dict(os.environ, HOME=str(self.nodes.directory), TERM="dumb")
        process = subprocess.Popen(
            [*self.shell, "127.0.0.1", "9042", "--no-color", "--request-timeout=60", "-e", statement],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            cwd=self.nodes.directory, env=environment,
        )
        text = []
        if meanwhile:
            seen = ""
            while "Processed: " not in seen:
                sign = process.stdout.read(1)
                assert sign, f"no progress: {seen}"
                seen += sign
            text.append(seen)
            thread = threading.Thread(target=meanwhile)
            thread.start()
        text.append(process.stdout.read())
        process.wait(cluster.PATIENCE)
        if meanwhile:
            thread.join()
        return "".join(text)

    def messages(self):
        """Messages that the nodes have sent one another."""
        # What a node shows is a little old.
        time.sleep(3)
        total = 0
        for address in cluster.ADDRESSES:
            with urllib.request.urlopen(f"http://{address}:10000/metrics", timeout=30) as answer:
                text = answer.read().decode()
            total += sum(
                int(float(number))
                for number in re.findall(r"(?m)^helenus_internode_sent_messages_total\{.*\} (\S+)$", text)
            )
        return total

    def path(self, name):
        return self.nodes.directory / name

    def rows_of(self, name):
        if not self.path(name).exists():
            return []
        with open(self.path(name), newline="") as file:
            return sorted(tuple(row) for row in csv.reader(file, escapechar="\\", doublequote=False))

    def tables(self):
        for rf in (1, 3):
            self.cqlsh(
                f"CREATE KEYSPACE ks{rf} WITH replication = {{'class': 'NetworkTopologyStrategy', "
                f"'datacenter1': {rf}}}; CREATE TABLE ks{rf}.t (k int, c text, v text, PRIMARY KEY ((k, c))); "
                f"CREATE TABLE ks{rf}.u (k int, c text, v text, PRIMARY KEY ((k, c)));"
            )
        cluster.until("one version of the schema", lambda: self.one_schema_version())
        # The key of the table in another order than the file has it.
        with open(self.path("in.csv"), "w") as file:
            file.writelines(f"text of {row},c{row % 7},{row}\n" for row in range(ROWS))
        self.rows = sorted((str(row), f"c{row % 7}", f"text of {row}") for row in range(ROWS))

    def to_the_replicas(self):
        before = self.messages()
        said = self.cqlsh("COPY ks1.t (v, c, k) FROM 'in.csv'")
        assert f"\n{ROWS} rows imported from 1 files" in said, said
        between = self.messages()
        # Through any node, two of three batches would go on to others; the nodes also gossip.
        assert between - before < ROWS / BATCH / 3, between - before
        said = self.cqlsh("COPY ks1.t (k, c, v) TO 'out.csv'")
        assert f"\n{ROWS} rows exported" in said, said
        assert self.messages() - between < ROWS / 1000, self.messages() - between
        assert self.rows_of("out.csv") == self.rows

    def a_node_dies_during_copy_from(self):
        said = self.cqlsh(
            "CONSISTENCY QUORUM; COPY ks3.t (v, c, k) FROM 'in.csv' WITH INGESTRATE = 20000 "
            "AND CHUNKSIZE = 500",
            lambda: self.nodes.cluster("kill", "3"),
        )
        assert "will retry later" in said, said
        assert f"\n{ROWS} rows imported from 1 files" in said, said[-2000:]
        assert not self.path("import_ks3_t.err").exists()
        said = self.cqlsh("CONSISTENCY QUORUM; COPY ks3.t (k, c, v) TO 'without.csv'")
        assert f"\n{ROWS} rows exported" in said and "missing" not in said, said
        assert self.rows_of("without.csv") == self.rows

    def rows_of_a_dead_node_are_reported(self):
        said = self.cqlsh("COPY ks1.u (v, c, k) FROM 'in.csv' WITH MAXINSERTERRORS = -1")
        failed = self.rows_of("import_ks1_u.err")
        assert 0 < len(failed) < ROWS, len(failed)
        assert f"Failed to process {len(failed)} rows; failed rows written to" in said, said[-2000:]
        assert f"\n{ROWS - len(failed)} rows imported" in said, said[-2000:]
        said = self.cqlsh("COPY ks1.u (k, c, v) TO 'part.csv'")
        assert "permanently given up after 0 rows and 5 attempts" in said, said[-2000:]
        assert re.search(r"Exported \d+ ranges out of \d+ total ranges, some records might", said), said
        self.nodes.cluster("start-node", "3")
        self.everybody_up()
        said = self.cqlsh("COPY ks1.u (k, c, v) TO 'part.csv'")
        failed = sorted((k, c, v) for v, c, k in failed)
        assert sorted(self.rows_of("part.csv") + failed) == self.rows, "in the table or in the file"

    def a_node_dies_during_copy_to(self):
        said = self.cqlsh(
            "CONSISTENCY QUORUM; COPY ks3.t (k, c, v) TO 'dying.csv' WITH PAGESIZE = 20 AND MAXREQUESTS = 1 "
            "AND REPORTFREQUENCY = 0.01",
            lambda: self.nodes.cluster("kill", "2"),
        )
        assert "will try again later" in said, said
        assert f"\n{ROWS} rows exported" in said and "missing" not in said, said[-2000:]
        assert self.rows_of("dying.csv") == self.rows

    PHASES = [
        cluster.Test.start,
        tables,
        to_the_replicas,
        a_node_dies_during_copy_from,
        rows_of_a_dead_node_are_reported,
        a_node_dies_during_copy_to,
    ]
