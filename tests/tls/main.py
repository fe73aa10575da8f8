"""TLS from outside: see README.md.   main.py BINARY WORK DRIVERS [PHASE]..."""
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import probes
import scan
from keys import PASSWORD, Keys
from servers import HOST, Cassandra, Helenus, is_open, until

HERE = Path(__file__).resolve().parent
BASE = 21600
NOT_AUTHORIZED = "not authorized"


class Run:
    def __init__(self, binary, work, drivers):
        self.work, self.drivers, self.binary = work, drivers, binary
        self.results = open(work / "results.txt", "w")
        self.log = open(work / "probes.log", "w")
        self.passed, self.failed = 0, 0
        self.phase = ""
        self.keys = Keys(work / "keys").make()
        self.probes = probes.start(HERE, drivers, self.log)
        script = os.environ.get("CASSANDRA_PEER")
        self.server = Cassandra(script, work, BASE) if script else Helenus(binary, work, BASE)
        self.live = work / "live.keystore"

    # What was expected, and what came.

    def check(self, case, is_right, text=""):
        name = f"{self.phase}: {case}"
        self.passed += bool(is_right)
        self.failed += not is_right
        self.results.write(f"{'ok' if is_right else 'FAILED'}\t{name}\t{text}\n")
        if not is_right:
            print(f"FAILED {name}: {text}", flush=True)

    def equal(self, case, found, expected):
        self.check(case, found == expected, f"{found!r}" if found == expected else f"{found!r}, not {expected!r}")

    def fields(self, client=None, tls="yes", ca="ca", port=None, name=None, user=None, password=None):
        keys = self.keys
        own = {"cert": keys.path(f"{client}.pem"), "key": keys.path(f"{client}.key"), "p12": keys.path(f"{client}.p12")}
        return {
            "host": HOST, "port": port or self.server.port, "dc": self.server.datacenter, "tls": tls, "name": name,
            "ca": keys.path(f"{ca}.pem"), "user": user, "password": password, **(own if client else {}),
        }

    def drivers_can(self, case, *only, expected=True, said="", **fields):
        """Each driver connects and reads a row; or with `expected` false none can, and the error says `said`."""
        chosen = [p for p in self.probes if not only or p.name in only]
        for probe in chosen:
            probe.send("try", self.fields(**fields))
        for probe in chosen:
            succeeded, text = probe.receive()
            right = text == "local" if expected else not succeeded and said in text
            self.check(f"{case}: {probe.name}", right, text)

    def drivers_cannot(self, case, *only, said="", **fields):
        self.drivers_can(case, *only, expected=False, said=said, **fields)

    # Shells.

    def shell(self, command, statement, client=None, tls="yes", ca="ca", port=None, user=None, password=None):
        keys = self.keys
        lines = ["[ssl]", f"certfile = {keys.path(ca)}.pem"]
        if client:
            lines += [f"userkey = {keys.path(client)}.key", f"usercert = {keys.path(client)}.pem"]
        config = self.work / "cqlshrc"
        config.write_text("\n".join(lines) + "\n")
        login = ["-u", user, "-p", password] if user else []
        done = subprocess.run(
            [*map(str, command), HOST, str(port or self.server.port), "--no-color", "--cqlshrc", config,
             *(["--ssl"] if tls == "yes" else []), *login, "--connect-timeout=30", "--request-timeout=30",
             "-e", statement],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
            env=os.environ | {"HOME": str(self.work), "TERM": "dumb", "CQL_HISTORY": "/dev/null"},
        )
        return done.returncode, done.stdout + done.stderr

    def shells(self, case, *only, expected=True, **how):
        """cqlsh and helenus cqlsh read a row, or fail."""
        for name, command in [("cqlsh", [self.drivers / "cqlsh/bin/cqlsh"]), ("helenus cqlsh", [self.binary, "cqlsh"])]:
            if only and name not in only:
                continue
            status, text = self.shell(command, "SELECT key FROM system.local;", **how)
            self.check(f"{case}: {name}", ("local" in text) if expected else status != 0, text.strip()[-300:])

    def cql(self, statement, **how):
        status, text = self.shell([self.binary, "cqlsh"], statement, **how)
        if status != 0:
            raise RuntimeError(f"{statement}: {text}")
        return text

    # Keys of the running server.

    def place(self, store):
        new = self.live.with_suffix(".new")
        shutil.copy(self.keys.path(store), new)
        new.rename(self.live)

    def use(self, store):
        self.place(store)
        done = self.server.nodetool("reloadssl")
        if done.returncode != 0:
            raise RuntimeError(f"{store}: {done.stdout}{done.stderr}")

    def address(self, port=None):
        return f"{HOST}:{port or self.server.port}"

    def shown(self, **how):
        return scan.subject(self.address(), "-CAfile", str(self.keys.path("ca.pem")), **how)

    def options(self, **client):
        """client_encryption_options with the live key store."""
        own = {"enabled": "true", "optional": "false", "keystore": self.live, "keystore_password": PASSWORD}
        return section("client_encryption_options", own | client)

    def trusting(self, **client):
        trust = {"truststore": self.keys.path("trust.JKS"), "truststore_password": PASSWORD}
        return self.options(**trust | client)

    def metric(self, name):
        text = self.server.fetch("/metrics")
        found = [float(line.split()[-1]) for line in text.splitlines() if line.startswith(name)]
        return sum(found)

    def close(self):
        for probe in self.probes:
            probe.close()


def section(name, options):
    return "\n".join([f"{name}:", *(f"  {key}: {value}" for key, value in options.items()), ""])


# Phases: each starts a server of its own.

def server(run):
    """The server's certificate: key stores, refusals of clients, reloads, the offer."""
    run.place("server-ec.PKCS12")
    run.server.start(run.options())
    run.drivers_can("EC key of keytool, PKCS12; name compared", name="check")
    run.shells("EC key of keytool, PKCS12")
    run.drivers_cannot("another authority", ca="other")
    # cqlsh itself verifies no authority, with the drivers of today.
    run.shells("another authority", "helenus cqlsh", expected=False, ca="other")
    run.drivers_cannot("plain text", tls="no")
    # The drivers for Python (cqlsh has it, too) and Node wait for their time-out: only once.
    run.shells("plain text", "helenus cqlsh", expected=False, tls="no")
    every, found = scan.offer(run.address())
    run.check("the scan has tried old suites", every > 50, every)
    run.equal("offer, EC key", found, OFFER_13 + offer_12("ECDSA"))
    output = scan.connect(run.address(), "-tls1_2")
    run.check("no compression", "Compression: NONE" in output, output[-300:])
    session = str(run.work / "session.pem")
    scan.connect(run.address(), "-tls1_2", "-sess_out", session)
    output = scan.connect(run.address(), "-tls1_2", "-sess_in", session)
    run.check("a session is resumed", "Reused, TLSv1.2" in output, output[-1000:])
    run.equal("renegotiation", scan.renegotiation(run.address()), "refused")
    for store in ["server-ec.JKS", "server-rsa.JKS", "server-rsa.PKCS12", "server-legacy.PKCS12", "server-modern.PKCS12"]:
        run.use(store)
        run.equal(f"{store} is shown", run.shown(), store.split(".")[0].removesuffix("-legacy").removesuffix("-modern"))
        run.drivers_can(store, name="check")
        if store == "server-rsa.JKS":
            run.equal("offer, RSA key", scan.offer(run.address())[1], OFFER_13 + offer_12("RSA"))
    run.use("elsewhere.p12")
    run.drivers_cannot("certificate of another host", name="check")
    run.drivers_can("certificate of another host, name ignored", *(p.name for p in run.probes if p.ignores_names))
    for store, what in [("server-other.p12", "other authority"), ("server-self.p12", "self-signed")]:
        run.use(store)
        run.drivers_cannot(f"server certificate: {what}")
    run.use("server-ec.PKCS12")
    run.drivers_can("the first key store again", name="check")
    # Cassandra loads both.
    if run.server.name != "cassandra":
        for store, what, said in [("early", "that is not valid yet", "is not valid"), ("expired", "that has expired", "expired")]:
            run.place(f"server-{store}.p12")
            refused = run.server.nodetool("reloadssl")
            output = refused.stdout + refused.stderr
            run.check(f"a certificate {what} is not loaded", refused.returncode != 0 and said in output, output)
            run.drivers_can(f"a certificate {what}: the key store in use stays", name="check")
    run.place("server-expired.p12")
    clients_are_shown(run)
    run.server.stop()
    # A start has none that is better.
    run.server.start(run.options())
    run.drivers_cannot("server certificate: expired")
    run.server.stop()


OFFER_13 = ["TLSv1.3 TLS_AES_256_GCM_SHA384", "TLSv1.3 TLS_CHACHA20_POLY1305_SHA256", "TLSv1.3 TLS_AES_128_GCM_SHA256"]


def offer_12(kind):
    """Default suites of TLS 1.2, in openssl's order."""
    suites = ["AES_256_GCM_SHA384", "CHACHA20_POLY1305_SHA256", "AES_128_GCM_SHA256"]
    return [f"TLSv1.2 TLS_ECDHE_{kind}_WITH_{suite}" for suite in suites]


def clients_are_shown(run):
    """system_views.clients and clientstats: protocol and suite of each connection."""
    python = next(p for p in run.probes if p.name == "python")
    succeeded, text = python.ask("open", run.fields())
    assert succeeded, text
    rows = run.cql("SELECT driver_name, ssl_enabled, ssl_protocol, ssl_cipher_suite FROM system_views.clients;")
    python_rows = [line.split("|") for line in rows.splitlines() if "Python" in line]
    shown = {tuple(field.strip() for field in row[1:]) for row in python_rows}
    run.equal("system_views.clients", shown, {("True", "TLSv1.3", "TLS_AES_256_GCM_SHA384")})
    stats = run.server.nodetool("clientstats", "--all").stdout
    lines = [line for line in stats.splitlines() if "Python" in line]
    run.check("clientstats --all", lines and all("TLSv1.3" in line and "TLS_AES_256_GCM_SHA384" in line for line in lines),
              stats)
    python.ask("close", {})


def reload(run):
    """Keys change under load: no request fails, half a file changes nothing."""
    run.place("server-ec.PKCS12")
    run.server.start(run.options())
    for probe in run.probes:
        probe.ask("load", run.fields(name="check"))
    for _ in range(3):
        for store in ["server-rsa.PKCS12", "server-ec.PKCS12"]:
            run.use(store)
            run.equal("shown after reloadssl", run.shown(), store.split(".")[0])
    half = run.keys.path("server-rsa.PKCS12").read_bytes()[:1000]
    run.live.write_bytes(half)
    done = run.server.nodetool("reloadssl")
    text = done.stdout + done.stderr
    run.equal("shown after half a file", run.shown(), "server-ec")
    if "file-change" in run.server.has:
        run.check("reloadssl of half a file fails", done.returncode != 0, text)
        run.check("reloadssl names the setting and the file", "keystore" in text and str(run.live) in text, text)
        run.place("server-rsa.PKCS12")
        until("the changed file is used", lambda: run.shown() == "server-rsa")
        failures = run.metric("helenus_tls_reload_failures_total")
        run.live.write_bytes(half)
        until("the failure is counted", lambda: run.metric("helenus_tls_reload_failures_total") > failures)
        run.equal("shown after half a file was found", run.shown(), "server-rsa")
        run.place("server-ending.p12")
        until("the changed file is used", lambda: run.shown() == "server-ending")
        gauge = run.metric('helenus_tls_certificate_expiry_seconds{settings="client_encryption_options"')
        end = run.keys.openssl("x509", "-in", "server-ending.pem", "-noout", "-enddate").strip().partition("=")[2]
        end = run.keys.run("date", "-u", "-d", end, "+%s").strip()
        run.equal("expiry gauge", int(gauge), int(end))
        until("the log warns of the expiry", lambda: re.search(r"WARN.*(expire|expiry)", run.server.logged()))
    for probe in run.probes:
        probe.send("stop", {})
    for probe in run.probes:
        succeeded, text = probe.receive()
        done, failures, *first = text.split(" ", 2)
        run.check(f"load of {probe.name}", succeeded and int(done) > 0 and failures == "0", text)
    run.server.stop()


def mutual(run):
    """Clients must show a certificate of the authority."""
    run.place("server-ec.JKS")
    run.server.start(run.trusting(require_client_auth="true"))
    run.drivers_can("a certificate of the authority", client="app", name="check")
    run.shells("a certificate of the authority", client="app")
    refused = {None: "no certificate", "stranger": "another authority", "expired": "expired", "self": "self-signed"}
    for client, what in refused.items():
        run.drivers_cannot(what, client=client)
    run.shells("no certificate", expected=False)
    run.shells("another authority", expected=False, client="stranger")
    run.server.stop()
    # The same with the authority in the other kind of store.
    trust = {"truststore": run.keys.path("trust.PKCS12"), "truststore_password": PASSWORD, "store_type": "PKCS12"}
    run.place("server-ec.PKCS12")
    run.server.start(run.options(require_client_auth="true", **trust))
    run.drivers_can("trust store PKCS12: a certificate of the authority", client="app")
    run.drivers_cannot("trust store PKCS12: another authority", client="stranger")
    run.server.stop()
    # Addresses of clients.
    run.server.start(run.options(require_client_auth="true", require_endpoint_verification="true", **trust))
    run.drivers_can("a certificate with the address of the client", client="local", name="check")
    run.drivers_cannot("a certificate without the address of the client", client="app")
    run.server.stop()


SPIFFE = "\n".join([
    "authenticator:",
    "  class_name: org.apache.cassandra.auth.{name}",
    "  parameters:",
    "    validator_class_name: org.apache.cassandra.auth.SpiffeCertificateValidator",
    "authorizer: CassandraAuthorizer",
    "",
])


def logins(run):
    """Logins by password, by certificate with a password as the fallback, by certificate alone."""
    run.place("server-ec.PKCS12")
    run.server.wipe()
    admin = {"user": "cassandra", "password": "cassandra"}
    run.server.start("authenticator: PasswordAuthenticator\nauthorizer: CassandraAuthorizer\n" + run.options() + api(run))
    # A Cassandra creates the first role a while after its start.
    until("the first role can log in", lambda: run.shell([run.binary, "cqlsh"], "LIST ROLES;", **admin)[0] == 0)
    run.cql("CREATE ROLE app WITH LOGIN = true; GRANT SELECT ON KEYSPACE system TO app;"
            "ADD IDENTITY 'spiffe://test/app' TO ROLE 'app';"
            "CREATE ROLE operator WITH LOGIN = true AND SUPERUSER = true;"
            "ADD IDENTITY 'spiffe://test/operator' TO ROLE 'operator';", **admin)
    run.drivers_can("password", **admin)
    run.drivers_cannot("wrong password", user="cassandra", password="wrong", said="incorrect")
    run.shells("password", **admin)
    if "api" in run.server.has:
        nodetool(run)
    run.server.stop()
    run.server.api_flags = []
    if "optional-certificates" in run.server.has:
        fallback(run, admin)
    alone = SPIFFE.replace("{name}", "MutualTlsAuthenticator")
    run.server.start(alone + run.trusting(require_client_auth="true"))
    # Cassandra 5.0 asks for credentials and does not read them; later versions and Helenus do not ask.
    if "early-logins" in run.server.has:
        run.drivers_can("certificate alone", client="app")
    unread = {"user": "any", "password": "any"}
    run.drivers_can("certificate with credentials", client="app", **unread)
    run.drivers_cannot("certificate: identity without a role", client="unknown", said=NOT_AUTHORIZED, **unread)
    run.drivers_cannot("certificate: without an identity", client="nameless", said="Unable to extract", **unread)
    run.drivers_cannot("password without certificate", **admin)
    run.shells("certificate", client="operator", **unread)
    run.cql("DROP IDENTITY 'spiffe://test/app';", client="operator", **unread)
    # A Cassandra remembers identities for a while.
    if run.server.name == "helenus":
        run.drivers_cannot("certificate: identity dropped", client="app", said=NOT_AUTHORIZED, **unread)
    run.server.stop()
    run.server.wipe()


def fallback(run, admin):
    lines = SPIFFE.replace("{name}", "MutualTlsWithPasswordFallbackAuthenticator")
    run.server.start(lines + run.trusting(require_client_auth="optional"))
    run.drivers_can("fallback: password", **admin)
    run.drivers_can("fallback: certificate", client="app")
    run.drivers_cannot("fallback: neither")
    run.drivers_cannot("fallback: wrong password", user="cassandra", password="wrong", said="incorrect")
    run.drivers_cannot("fallback: identity without a role", client="unknown", said=NOT_AUTHORIZED)
    run.drivers_cannot("fallback: certificate without an identity", client="nameless", said="Unable to extract")
    # The other drivers do not send a certificate whose authority the server did not name.
    run.drivers_cannot("fallback: expired certificate", "python", "node", "rust", client="expired")
    run.drivers_cannot("fallback: certificate of another authority, with a password", "python", "node", "rust",
                       client="stranger", **admin)
    run.shells("fallback: certificate", client="app")
    run.shells("fallback: password", **admin)
    run.server.stop()


def api(run):
    """Lines for the API of Helenus; a Cassandra has none."""
    if "api" not in run.server.has:
        return ""
    run.server.api_flags = ["--ssl", "--ssl-ca", str(run.keys.path("ca.pem")), "-u", "cassandra", "-pw", "cassandra"]
    options = {"enabled": "true", "keystore": run.live, "keystore_password": PASSWORD, "require_client_auth": "optional",
               "truststore": run.keys.path("trust.JKS"), "truststore_password": PASSWORD}
    return "api_login: required\n" + section("api_encryption_options", options)


def nodetool(run):
    """nodetool at the API: TLS and logins."""
    keys, secret = run.keys, run.work / "passwords"
    secret.write_text("cassandra cassandra\n")
    secret.chmod(0o600)
    ca, login = ["--ssl", "--ssl-ca", keys.path("ca.pem")], ["-u", "cassandra", "-pw", "cassandra"]
    java = ["--ssl", f"-Djavax.net.ssl.trustStore={keys.path('trust.JKS')}",
            f"-Djavax.net.ssl.trustStorePassword={PASSWORD}"]

    def own(name):
        return ["--ssl-cert", keys.path(f"{name}.pem"), "--ssl-key", keys.path(f"{name}.key")]

    cases = [
        ("user and password", True, [*ca, *login]),
        ("user and password file", True, [*ca, "-u", "cassandra", "-pwf", secret]),
        ("Java's properties", True, [*java, *login]),
        ("client certificate", True, [*ca, *own("operator")]),
        ("host name compared", True, [*ca, *login, "--ssl-verify-host"]),
        ("no login", False, ca),
        ("wrong password", False, [*ca, "-u", "cassandra", "-pw", "wrong"]),
        ("plain text", False, login),
        ("another authority", False, ["--ssl", "--ssl-ca", keys.path("other.pem"), *login]),
        ("certificate without a role", False, [*ca, *own("unknown")]),
        ("certificate of a role without permission", False, [*ca, *own("app")]),
        ("certificate of another authority", False, [*ca, *own("stranger")]),
        ("expired certificate", False, [*ca, *own("expired")]),
    ]
    kept = run.server.api_flags
    for case, expected, flags in cases:
        run.server.api_flags = [str(flag) for flag in flags]
        done = run.server.nodetool("info")
        text = done.stdout + done.stderr
        run.check(f"nodetool: {case}", (done.returncode == 0 and "Native Transport active" in text) is expected
                  and (done.returncode == 0) is expected, text[-300:])
    run.server.api_flags = kept
    run.use("elsewhere.p12")
    run.server.api_flags = [*kept, "--ssl-verify-host"]
    done = run.server.nodetool("info")
    run.check("nodetool: certificate of another host", done.returncode != 0, done.stdout + done.stderr)
    run.server.api_flags = kept
    run.use("server-ec.PKCS12")


def names(run):
    """CertificateAuthenticator: the role is taken from the subject, or from an alternative name."""
    if "subject" not in run.server.has:
        return
    run.place("server-ec.PKCS12")
    run.server.wipe()
    lines = [
        "authenticator: com.scylladb.auth.CertificateAuthenticator", "authorizer: CassandraAuthorizer",
        "auth_superuser_name: operator", "auth_certificate_role_queries:",
        "  - source: ALTNAME", "    query: ^URI=role:(.+)$", "  - source: SUBJECT", "    query: CN=([^,\\s]+)", "",
    ]
    run.server.start("\n".join(lines) + run.trusting(require_client_auth="true"))
    run.drivers_can("role of the subject", client="operator")
    run.drivers_cannot("no such role", client="app")
    run.cql("CREATE ROLE app WITH LOGIN = true; CREATE ROLE nameless WITH LOGIN = false;", client="operator")
    run.drivers_can("role of an alternative name", client="app")
    run.drivers_cannot("role without LOGIN", client="nameless", said="not permitted to log in")
    run.drivers_cannot("no certificate")
    run.server.stop()
    run.server.wipe()


def ports(run):
    """TLS and plain text on one port, a port of its own for TLS, the port for shard-aware drivers."""
    run.place("server-ec.PKCS12")
    run.server.start(run.options(optional="true"))
    run.drivers_can("optional: TLS", name="check")
    run.drivers_can("optional: plain text", tls="no")
    run.shells("optional: TLS")
    run.shells("optional: plain text", tls="no")
    run.drivers_cannot("optional: another authority", ca="other")
    run.server.stop()
    lines = f"native_transport_port_ssl: {run.server.tls_port}\n"
    if "shard-aware" in run.server.has:
        lines += f"native_shard_aware_transport_port_ssl: {run.server.shard_tls_port}\n"
    run.server.start(lines + run.options())
    until("the port of TLS is open", lambda: is_open(run.server.tls_port))
    run.drivers_can("port of TLS", port=run.server.tls_port, name="check")
    run.drivers_can("port of plain text", tls="no")
    run.drivers_cannot("plain text at the port of TLS", port=run.server.tls_port, tls="no")
    run.drivers_cannot("TLS at the port of plain text")
    if "shard-aware" in run.server.has:
        shard_aware(run)
    run.server.stop()


def shard_aware(run):
    """ScyllaDB's drivers find the port for shard-aware connections with TLS in SUPPORTED, and use it."""
    python = probes.Probe("python (scylla)", [run.drivers / "python-scylla/bin/python", "-B", HERE / "python/probe.py"],
                          run.log)
    rust = next(p for p in run.probes if p.name == "rust")
    for probe in (rust, python):
        for tls, port, shard_port in [("yes", run.server.tls_port, run.server.shard_tls_port),
                                      ("no", run.server.port, run.server.shard_port)]:
            opened, text = probe.ask("open", run.fields(port=port, tls=tls))
            run.check(f"{probe.name} opens, TLS {tls}", opened, text)
            # The driver opens these connections in the background.
            until("a connection at the shard-aware port", lambda: connections(shard_port), 30)
            run.check(f"{probe.name} uses the shard-aware port, TLS {tls}", True)
            probe.ask("close", {})
            until("the connections are closed", lambda: not connections(shard_port), 30)
    python.close()


def connections(port):
    """Established connections of the server at a port."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return [f for f in fields if f[3] == "01" and int(f[1].rpartition(":")[2], 16) == port]


def offers(run):
    """accepted_protocols and cipher_suites."""
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    run.place("server-ec.PKCS12")
    run.server.start(run.options(accepted_protocols="[TLSv1.2]", cipher_suites=f"[{suite}]"))
    run.equal("one protocol, one suite", scan.offer(run.address())[1], [f"TLSv1.2 {suite}"])
    run.drivers_can("one protocol, one suite", name="check")
    run.shells("one protocol, one suite")
    run.server.stop()
    run.server.start(run.options(accepted_protocols="[TLSv1.3]",
                                 cipher_suites="[TLS_AES_128_GCM_SHA256, TLS_RSA_WITH_AES_128_CBC_SHA]"))
    run.equal("TLS 1.3 alone", scan.offer(run.address())[1], ["TLSv1.3 TLS_AES_128_GCM_SHA256"])
    run.drivers_can("TLS 1.3 alone", name="check")
    run.server.stop()


def pem(run):
    """PEMBasedSslContextFactory: an encrypted key with its chain in a file, authorities in another."""
    keys = run.keys
    run.place("server-pbes1.chain")
    lines = section("client_encryption_options", {
        "enabled": "true", "optional": "false", "ssl_context_factory": "",
        "  class_name": "org.apache.cassandra.security.PEMBasedSslContextFactory",
        "keystore": run.live, "keystore_password": PASSWORD, "require_client_auth": "true",
        "truststore": keys.path("ca.pem"),
    })
    run.server.start(lines)
    run.drivers_can("encrypted PKCS#8", client="app", name="check")
    run.drivers_cannot("another authority", client="stranger")
    if "new-encryption" in run.server.has:
        run.use("server-pbes2.chain")
        run.drivers_can("encrypted PKCS#8, PBES2", client="app", name="check")
    run.server.stop()
    chain = run.keys.path("server-pbes1.chain").read_text().replace("\n", "\n        ")
    roots = keys.path("ca.pem").read_text().replace("\n", "\n        ")
    lines = "\n".join([
        "client_encryption_options:", "  enabled: true", "  optional: false", "  require_client_auth: true",
        "  ssl_context_factory:", "    class_name: org.apache.cassandra.security.PEMBasedSslContextFactory",
        "    parameters:", "      private_key: |", "        " + chain, f"      private_key_password: {PASSWORD}",
        "      trusted_certificates: |", "        " + roots, "",
    ])
    run.server.start(lines)
    run.drivers_can("encrypted PKCS#8 inline", client="app", name="check")
    run.drivers_cannot("inline: another authority", client="stranger")
    run.server.stop()


def stock(run):
    """Both sections with every key of the cassandra.yaml that Cassandra 5.0 comes with."""
    keys = run.keys
    own = {
        "keystore": keys.path("server-rsa.JKS"), "keystore_password": PASSWORD, "require_client_auth": "true",
        "truststore": keys.path("trust.JKS"), "truststore_password": PASSWORD, "protocol": "TLS", "store_type": "JKS",
        "algorithm": "SunX509",
        "cipher_suites": "[TLS_RSA_WITH_AES_128_CBC_SHA, TLS_RSA_WITH_AES_256_CBC_SHA, TLS_DHE_RSA_WITH_AES_128_CBC_SHA, "
                         "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, "
                         "TLS_AES_256_GCM_SHA384]",
        "accepted_protocols": "[TLSv1.1, TLSv1.2, TLSv1.3]",
    }
    between = {"internode_encryption": "all", "legacy_ssl_storage_port_enabled": "false", "optional": "false",
               "outbound_keystore": keys.path("server-ec.JKS"), "outbound_keystore_password": PASSWORD,
               "require_endpoint_verification": "false"}
    run.server.start(section("server_encryption_options", between | own)
                     + section("client_encryption_options", {"enabled": "true", "optional": "false"} | own))
    run.drivers_can("a client of the authority", client="app", name="check")
    run.drivers_cannot("a client without certificate")
    run.drivers_cannot("a client of another authority", client="stranger")
    run.shells("a client of the authority", client="app")
    if run.server.name == "helenus":
        found = scan.offer(run.address(), "-cert", str(keys.path("app.pem")), "-key", str(keys.path("app.key")))[1]
        run.equal("offer", found, ["TLSv1.3 TLS_AES_256_GCM_SHA384", "TLSv1.2 TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"])
    run.server.stop()


def refusals(run):
    """Starts that a wrong setting stops, with the setting and the reason."""
    if run.server.name != "helenus":
        return
    run.place("server-ec.PKCS12")
    for case, options, said in [
        ("wrong password", {"keystore_password": "wrong"}, "password is wrong"),
        ("no such file", {"keystore": run.work / "none"}, str(run.work / "none")),
        ("no key", {"keystore": run.keys.path("trust.JKS")}, "has no private key"),
        ("unknown suite", {"cipher_suites": "[TLS_NONSENSE]"}, "TLS_NONSENSE"),
        ("old protocol alone", {"accepted_protocols": "[TLSv1.1]"}, "accepted_protocols"),
        ("certificates without authority", {"require_client_auth": "true"}, "truststore"),
        ("key of another certificate", {"certificate": run.keys.path("app.pem"), "keyfile": run.keys.path("server.key"),
                                        "keystore": None, "keystore_password": None}, "no certificate matches"),
    ]:
        own = {"enabled": "true", "keystore": run.live, "keystore_password": PASSWORD} | options
        own = {key: value for key, value in own.items() if value is not None}
        text = run.server.refusal(section("client_encryption_options", own))
        run.check(case, said in text and "client_encryption_options" in text, text[-400:])


PHASES = [server, reload, mutual, logins, names, ports, offers, pem, stock, refusals]


def main():
    binary, work, drivers, *chosen = sys.argv[1:]
    work = Path(work)
    work.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    run = Run(Path(binary), work, Path(drivers))
    run.server.wipe()
    try:
        for phase in PHASES:
            if chosen and phase.__name__ not in chosen:
                continue
            run.phase = phase.__name__
            phase_started = time.monotonic()
            try:
                phase(run)
            except Exception as error:
                run.check("the phase", False, f"{type(error).__name__}: {error}")
                run.server.kill()
            print(f"{run.phase}: {time.monotonic() - phase_started:.0f} s", flush=True)
    finally:
        run.close()
    print(f"{run.passed} passed, {run.failed} failed in {time.monotonic() - started:.0f} s")
    return 1 if run.failed or not run.passed else 0


if __name__ == "__main__":
    sys.exit(main())
