"""Encryption between nodes is turned on in a running cluster, one node after the other, under load."""

import socket
import ssl
import subprocess
import threading
import urllib.request

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import ConstantReconnectionPolicy, RoundRobinPolicy, TokenAwarePolicy
from cassandra.query import SimpleStatement

from cluster import ADDRESSES, DATACENTER, Connection, Test, until

STORAGE_PORT = 7000


class Encryption(Test):
    """From plain text to required certificates in two rolling restarts; no statement may fail."""

    def __init__(self, nodes):
        super().__init__(nodes)
        self.keys = nodes.directory.parent / "encryption-keys"
        self.settings = self.keys / "cassandra.yaml"
        self.stop = threading.Event()
        self.failures = []
        self.acknowledged = []
        self.thread = None
        self.driver = None

    def openssl(self, *arguments, **options):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=self.keys, **options)

    def make_keys(self):
        self.keys.mkdir(parents=True, exist_ok=True)
        self.openssl("req", "-x509", "-newkey", "ed25519", "-nodes", "-days", "365", "-subj", "/CN=Nodes",
                     "-keyout", "ca.key", "-out", "ca.pem")
        self.make_certificate("first")

    def make_certificate(self, name, days=365):
        """Its key and the certificate in one file, in the place of the earlier one."""
        self.openssl("req", "-newkey", "ed25519", "-nodes", "-subj", f"/CN={name}", "-keyout", "node.key",
                     "-out", "node.csr")
        names = "subjectAltName=" + ",".join(f"IP:{address}" for address in ADDRESSES)
        self.openssl("x509", "-req", "-in", "node.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", str(days),
                     "-extfile", "/dev/stdin", "-out", "node.crt", input=names.encode())
        text = (self.keys / "node.key").read_text() + (self.keys / "node.crt").read_text()
        (self.keys / "node.new").write_text(text)
        (self.keys / "node.new").rename(self.keys / "node.pem")

    def configure(self, **settings):
        keys = {
            "keystore": self.keys / "node.pem",
            "truststore": self.keys / "ca.pem",
            "require_endpoint_verification": "true",
        }
        lines = [f"  {key}: {value}" for key, value in (settings | keys).items()] if settings else []
        self.settings.write_text("\n".join(["server_encryption_options:" if lines else "", *lines, ""]))

    def start(self):
        self.make_keys()
        self.configure()
        self.nodes.cluster("start", "--nodes", "3", "--racks", "a", "--smp", "1", "--memory", "128M", "--",
                           "--config", str(self.settings))
        self.connection = Connection()
        session = self.connection.session
        session.execute(
            "CREATE KEYSPACE ks WITH replication = "
            f"{{'class': 'NetworkTopologyStrategy', '{DATACENTER}': 3}}"
        )
        session.execute("CREATE TABLE ks.t (k int PRIMARY KEY, v text)")
        self.thread = threading.Thread(target=self.load)
        self.thread.start()
        until("statements are executed", lambda: self.acknowledged)

    def load(self):
        """Writes and reads at QUORUM, as an application does: with the driver's usual policies."""
        policy = TokenAwarePolicy(RoundRobinPolicy())
        self.driver = Cluster(
            ADDRESSES,
            execution_profiles={EXEC_PROFILE_DEFAULT: ExecutionProfile(load_balancing_policy=policy)},
            protocol_version=5,
            reconnection_policy=ConstantReconnectionPolicy(0.2, None),
            connect_timeout=10,
        )
        session = self.driver.connect("ks")
        key = 0
        while not self.stop.is_set():
            try:
                insert = SimpleStatement("INSERT INTO t (k, v) VALUES (%s, 'x')", is_idempotent=True,
                                         consistency_level=ConsistencyLevel.QUORUM)
                session.execute(insert, (key,))
                self.acknowledged.append(key)
                select = SimpleStatement("SELECT v FROM t WHERE k = %s", is_idempotent=True,
                                         consistency_level=ConsistencyLevel.QUORUM)
                assert session.execute(select, (key,)).one().v == "x"
            except Exception as error:
                self.failures.append(error)
            key += 1

    def metric(self, node, name):
        with urllib.request.urlopen(f"http://127.0.0.{node}:10000/metrics") as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

    def handshakes(self, node):
        return self.metric(node, "helenus_internode_tls_handshakes_total")

    def restart_all(self):
        for node in (1, 2, 3):
            before = len(self.acknowledged)
            self.nodes.cluster("restart", str(node))
            self.everybody_up()
            # The next one is restarted when the application is connected to this one again.
            until("the driver sees all", lambda: all(h.is_up for h in self.driver.metadata.all_hosts()))
            until("statements go on", lambda: len(self.acknowledged) > before)

    def first_step(self):
        """TLS is used where the peer speaks it; the others go on in the clear."""
        self.configure(internode_encryption="all", optional="true")
        self.restart_all()
        assert self.metric(1, "helenus_internode_clear_fallbacks_total") > 0
        # The last one met only nodes that speak TLS.
        assert self.metric(3, "helenus_internode_clear_fallbacks_total") == 0
        for node in (1, 2, 3):
            until(f"{node} encrypts", lambda: self.handshakes(node) > 0)

    def second_step(self):
        self.configure(internode_encryption="all", optional="false", require_client_auth="true")
        self.restart_all()
        for node in (1, 2, 3):
            assert self.metric(node, "helenus_internode_clear_fallbacks_total") == 0
            assert self.metric(node, "helenus_internode_encryption_refusals_total") == 0
            until(f"{node} encrypts", lambda: self.handshakes(node) > 0)

    def no_statement_failed(self):
        self.stop.set()
        self.thread.join()
        assert not self.failures, (len(self.failures), self.failures[:3])
        assert len(self.acknowledged) > 100, len(self.acknowledged)
        session = self.driver.connect("ks")
        for key in self.acknowledged[:: max(1, len(self.acknowledged) // 100)]:
            select = SimpleStatement("SELECT v FROM t WHERE k = %s", consistency_level=ConsistencyLevel.ALL)
            assert session.execute(select, (key,)).one().v == "x", key

    def shake_hands(self, node, certificate=True):
        """Certificate that a node shows at its port for nodes, to a client with or without one."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.keys / "ca.pem")
        if certificate:
            context.load_cert_chain(self.keys / "node.pem")
        address = f"127.0.0.{node}"
        with socket.create_connection((address, STORAGE_PORT), timeout=10) as plain:
            with context.wrap_socket(plain, server_hostname=address) as conn:
                conn.settimeout(10)
                # Nothing: the node closes what is no HELLO.
                conn.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert conn.recv(100) == b""
                return dict(pair for part in conn.getpeercert()["subject"] for pair in part)["commonName"]

    def strangers_are_refused(self):
        refused = self.metric(2, "helenus_internode_encryption_refusals_total")
        assert self.shake_hands(2) == "first"
        try:
            raise AssertionError(f"without a certificate: {self.shake_hands(2, certificate=False)}")
        except (ssl.SSLError, ConnectionError):
            pass
        until(
            "the refusal is counted",
            lambda: self.metric(2, "helenus_internode_encryption_refusals_total") > refused,
        )

    def certificates_are_renewed(self):
        self.make_certificate("second")
        assert self.nodes.nodetool(2, "reloadssl") == ""
        assert self.shake_hands(2) == "second"
        (self.keys / "node.pem").write_text("half")
        failed = self.nodes.run("nodetool", "-h", "127.0.0.2", "reloadssl", check=False)
        assert failed.returncode != 0 and "server_encryption_options.keystore" in failed.stderr, failed
        # One that has expired is no better than none.
        self.make_certificate("expired", days=-1)
        failed = self.nodes.run("nodetool", "-h", "127.0.0.2", "reloadssl", check=False)
        assert failed.returncode != 0 and "expired" in failed.stderr, failed
        self.make_certificate("third")
        assert self.nodes.nodetool(2, "reloadssl") == ""
        assert self.shake_hands(2) == "third"

    def renewed_certificates_connect(self):
        """A node that starts with the renewed certificate, and the others, which reloaded it or not, make new links."""
        before = self.handshakes(2)
        self.nodes.cluster("restart", "3")
        self.everybody_up()
        assert self.shake_hands(3) == "third"
        for node in (1, 2, 3):
            until(f"{node} encrypts", lambda: self.handshakes(node) > (before if node == 2 else 0))
            assert self.metric(node, "helenus_internode_clear_fallbacks_total") == 0
        insert = SimpleStatement("INSERT INTO ks.t (k, v) VALUES (-1, 'x')", consistency_level=ConsistencyLevel.ALL)
        # The driver reconnects late where the node of its control connection was the first to be restarted.
        self.connection.on(1, insert)

    def close(self):
        self.stop.set()
        if self.thread:
            self.thread.join()
        if self.driver:
            self.driver.shutdown()

    PHASES = [
        start,
        first_step,
        second_step,
        no_statement_failed,
        strangers_are_refused,
        certificates_are_renewed,
        renewed_certificates_connect,
    ]
