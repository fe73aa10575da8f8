"""Six nodes in two data centers that lose each other."""

from cassandra import ConsistencyLevel, Unavailable
from cassandra.cluster import NoHostAvailable
from cassandra.query import SimpleStatement

from cluster import Connection, until

ROWS = 200


class Datacenters:
    """`helenus cluster start --nodes 6 --dcs 2`: nodes are given to the data centers in turn."""

    FIRST = ["127.0.0.1", "127.0.0.3", "127.0.0.5"]
    SECOND = ["127.0.0.2", "127.0.0.4", "127.0.0.6"]

    def __init__(self, nodes):
        self.nodes = nodes
        self.connection = None

    def start(self):
        self.nodes.cluster("start", "--nodes", "6", "--dcs", "2", "--smp", "1", "--memory", "160M",
                           "--", "--phi-convict-threshold", "5")
        # By their numbers.
        pairs = zip(self.FIRST, self.SECOND)
        self.connection = Connection([address for pair in pairs for address in pair])
        session = self.connection.session
        places = {h.address: h.datacenter for h in session.hosts}
        assert places == self.all("datacenter1", "datacenter2"), places
        session.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'NetworkTopologyStrategy', 'datacenter1': 3, 'datacenter2': 3}"
        )
        session.execute("CREATE TABLE ks.t (k int PRIMARY KEY, v text)")

    def all(self, first, second):
        return {a: first for a in self.FIRST} | {a: second for a in self.SECOND}

    def write(self, node, keys, value, level):
        for key in keys:
            self.on(node, f"INSERT INTO ks.t (k, v) VALUES ({key}, '{value}')", level)

    def on(self, node, text, level, serial=None):
        statement = SimpleStatement(text, consistency_level=level, serial_consistency_level=serial)
        return self.connection.on(node, statement)

    def check(self, node, keys, value, level):
        for key in keys:
            row = self.on(node, f"SELECT v FROM ks.t WHERE k = {key}", level).one()
            assert row is not None and row.v == value, f"key {key} on node {node}: {row}"

    def refused(self, node, text, level, serial=None):
        try:
            self.on(node, text, level, serial)
        except (Unavailable, NoHostAvailable) as error:
            assert "Unavailable" in repr(error), error
        else:
            raise AssertionError(f"{text} was acknowledged at {level} on node {node}")

    def whole(self):
        """Each level from each side."""
        self.write(1, range(ROWS), "each", ConsistencyLevel.EACH_QUORUM)
        for node in (1, 2):
            self.check(node, range(ROWS), "each", ConsistencyLevel.LOCAL_QUORUM)
        self.write(2, range(ROWS, ROWS + 20), "local", ConsistencyLevel.LOCAL_QUORUM)
        self.check(2, range(ROWS, ROWS + 20), "local", ConsistencyLevel.LOCAL_QUORUM)

    def cut(self):
        """Each side goes on at LOCAL_QUORUM; what needs both is refused."""
        self.nodes.cluster("partition", "1,3,5", "2,4,6")
        first, second = self.all("UN", "DN"), self.all("DN", "UN")
        # All six: a conditional write is carried out at a replica, which may be any of its side, and one
        # that has not noticed yet answers with failures where the others say Unavailable.
        for node, seen in zip(range(1, 7), [first, second] * 3):
            until(f"node {node} sees its data center", lambda: self.nodes.letters(node) == seen)
        one, two = range(1000, 1000 + ROWS), range(2000, 2000 + ROWS)
        self.write(1, one, "first", ConsistencyLevel.LOCAL_QUORUM)
        self.write(2, two, "second", ConsistencyLevel.LOCAL_QUORUM)
        # The same keys on both sides: the later one wins when they meet.
        self.write(1, range(20), "older", ConsistencyLevel.LOCAL_QUORUM)
        self.write(2, range(20), "newer", ConsistencyLevel.LOCAL_QUORUM)
        self.check(3, one, "first", ConsistencyLevel.LOCAL_QUORUM)
        self.check(4, two, "second", ConsistencyLevel.LOCAL_QUORUM)
        insert = "INSERT INTO ks.t (k, v) VALUES (-1, 'no')"
        for node in (1, 2):
            self.refused(node, insert, ConsistencyLevel.EACH_QUORUM)
            self.refused(node, insert, ConsistencyLevel.QUORUM)
            self.refused(node, insert + " IF NOT EXISTS", ConsistencyLevel.LOCAL_QUORUM,
                         ConsistencyLevel.SERIAL)
        local = self.on(1, "INSERT INTO ks.t (k, v) VALUES (-2, 'cas') IF NOT EXISTS",
                        ConsistencyLevel.LOCAL_QUORUM, ConsistencyLevel.LOCAL_SERIAL)
        assert local.one().applied

    def everybody_up(self):
        for node in range(1, 7):
            until(f"node {node} sees all", lambda: self.nodes.letters(node) == self.all("UN", "UN"))

    def heal(self):
        """Everything that either side took is on both."""
        self.nodes.cluster("heal")
        self.everybody_up()

        def equal():
            for node in (1, 2):
                self.check(node, range(1000, 1000 + ROWS), "first", ConsistencyLevel.LOCAL_QUORUM)
                self.check(node, range(2000, 2000 + ROWS), "second", ConsistencyLevel.LOCAL_QUORUM)
                self.check(node, range(20), "newer", ConsistencyLevel.LOCAL_QUORUM)
                self.check(node, [-2], "cas", ConsistencyLevel.LOCAL_QUORUM)
            return True

        until("hints brought each side what it missed", equal)
        self.write(2, range(3000, 3000 + 20), "each", ConsistencyLevel.EACH_QUORUM)
        self.check(1, range(3000, 3000 + 20), "each", ConsistencyLevel.LOCAL_QUORUM)
        assert self.on(1, "SELECT v FROM ks.t WHERE k = -1", ConsistencyLevel.ALL).one() is None

    PHASES = [start, whole, cut, heal]
