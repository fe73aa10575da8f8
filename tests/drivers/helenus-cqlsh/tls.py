"""TLS in front of the server: whom the shell trusts, and that the server sees its certificate."""
import os
import select
import shlex
import socket
import ssl
import subprocess
import sys
import tempfile
import threading

HOST = os.environ.get("HELENUS_HOST", "127.0.0.1")
PORT = int(os.environ.get("HELENUS_PORT", "9042"))
OURS = shlex.split(os.environ["HELENUS_CQLSH"])
THEIRS = shlex.split(os.environ["CQLSH"])
SELECT = "SELECT key FROM system.local;"
COPY = (
    "CREATE KEYSPACE IF NOT EXISTS tls_copy WITH replication = {'class': 'SimpleStrategy', "
    "'replication_factor': 1}; CREATE TABLE IF NOT EXISTS tls_copy.t (k int PRIMARY KEY, v text); "
    "COPY tls_copy.t FROM 'in.csv'; COPY tls_copy.t TO STDOUT;"
)


class Proxy:
    """Ends TLS and passes the bytes on to the server and back."""

    host = "127.0.0.1"

    def __init__(self, certificate, key, clients=None):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        if clients:
            self.context.load_verify_locations(clients)
            self.context.verify_mode = ssl.CERT_REQUIRED
        self.subjects = set()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        try:
            client = self.context.wrap_socket(client, server_side=True)
        except OSError:
            return
        peer = client.getpeercert()
        self.subjects.add(peer["subject"][0][0][1] if peer else None)
        client.setblocking(False)
        server = socket.create_connection((HOST, PORT))
        server.setblocking(False)
        # One thread for both ways: an ssl object is not for two.
        flows = [[client, server, b""], [server, client, b""]]
        while True:
            waiting = [source for source, _, rest in flows if not rest]
            ready = [target for _, target, rest in flows if rest]
            if not client.pending():
                select.select(waiting, ready, [])
            for flow in flows:
                source, target, rest = flow
                try:
                    if not rest:
                        rest = source.recv(65536)
                        if not rest:
                            client.close()
                            server.close()
                            return
                    flow[2] = rest
                    flow[2] = rest[target.send(rest):]
                except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    continue
                except OSError:
                    client.close()
                    server.close()
                    return


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def certificates(place):
    """An authority, a server and a client that it has signed, and a stranger."""
    name = lambda file: os.path.join(place, file)
    new = ["req", "-newkey", "rsa:2048", "-nodes"]
    for who in ("ca", "stranger"):
        openssl(*new, "-x509", "-days", "30", "-subj", f"/CN={who}", "-keyout", name(f"{who}.key"),
                "-out", name(f"{who}.pem"))
    with open(name("v3"), "w") as file:
        file.write("basicConstraints=CA:FALSE\n")
    for who in ("server", "client"):
        openssl(*new, "-subj", f"/CN={who}", "-keyout", name(f"{who}.key"), "-out", name(f"{who}.csr"))
        openssl("x509", "-req", "-in", name(f"{who}.csr"), "-CA", name("ca.pem"), "-CAkey", name("ca.key"),
                "-CAcreateserial", "-days", "30", "-extfile", name("v3"), "-out", name(f"{who}.pem"))
    return name


def run(shell, host, port, statement, cqlshrc, home, flags, variables):
    with open(os.path.join(home, "cqlshrc"), "w") as file:
        file.write(cqlshrc)
    with open(os.path.join(home, "in.csv"), "w") as file:
        file.writelines(f"{number},value {number}\n" for number in range(1000))
    environment = dict(os.environ, HOME=home, TERM="dumb", CQL_HISTORY="/dev/null", **variables)
    done = subprocess.run(
        [*shell, host, str(port), "--no-color", "--cqlshrc", os.path.join(home, "cqlshrc"),
         "--connect-timeout=15", "--request-timeout=30", *flags, "-e", statement],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, env=environment, cwd=home,
    )
    return done.returncode, done.stdout + done.stderr


def cases(name, plain):
    """Name, proxy, cqlshrc, flags, variables, statement, what is said, what the server saw of the client."""
    server = Proxy(name("server.pem"), name("server.key"))
    own = Proxy(name("stranger.pem"), name("stranger.key"))
    asking = Proxy(name("server.pem"), name("server.key"), name("ca.pem"))
    trusting = f"[ssl]\ncertfile = {name('ca.pem')}\n"
    user = f"userkey = {name('client.key')}\nusercert = {name('client.pem')}\n"
    refused = "CERTIFICATE_VERIFY_FAILED"
    ssl_flag = ["--ssl"]
    yield "signed by the given authority", server, trusting, ssl_flag, {}, SELECT, "local", None
    yield "[connection] ssl", server, "[connection]\nssl = true\n" + trusting, [], {}, SELECT, "local", None
    yield "[certfiles]", server, f"[ssl]\ncertfile = {name('stranger.pem')}\n[certfiles]\n127.0.0.1 = " \
        f"{name('ca.pem')}\n", ssl_flag, {}, SELECT, "local", None
    yield "SSL_CERTFILE", server, "", ssl_flag, {"SSL_CERTFILE": name("ca.pem")}, SELECT, "local", None
    yield "the server's own certificate", own, f"[ssl]\ncertfile = {name('stranger.pem')}\n", ssl_flag, {}, \
        SELECT, "local", None
    # cqlsh itself lets this one pass with the drivers of today, which forget to check.
    yield "signed by nobody known, and ours alone is careful", server, f"[ssl]\ncertfile = {name('stranger.pem')}\n", ssl_flag, {}, \
        SELECT, refused, ...
    yield "no file to check with", server, "", ssl_flag, {}, SELECT, "Validation is enabled", ...
    yield "validate = false", server, "[ssl]\nvalidate = false\n", ssl_flag, {}, SELECT, "local", None
    yield "SSL_VALIDATE", server, "", ssl_flag, {"SSL_VALIDATE": "false"}, SELECT, "local", None
    yield "a client with a certificate", asking, trusting + user, ssl_flag, {}, SELECT, "local", "client"
    yield "a client without one", asking, trusting, ssl_flag, {}, SELECT, "Unable to connect", ...
    yield "COPY", server, trusting, ssl_flag, {}, COPY, "999,value 999", None
    yield "version = TLSv1", server, trusting + "version = TLSv1\n", ssl_flag, {}, SELECT, \
        "ignored as the protocol is auto-negotiated", None
    yield "a server without TLS", plain, trusting, ssl_flag, {}, SELECT, "Unable to connect", ...
    yield "[ssl] without --ssl", plain, trusting, [], {}, SELECT, "local", ...


class Plain:
    host = HOST
    port = PORT
    subjects = None


def main():
    passed = failed = 0
    with tempfile.TemporaryDirectory() as place:
        for what, proxy, cqlshrc, flags, variables, statement, said, subject in cases(certificates(place), Plain):
            results = []
            for shell in (THEIRS, OURS):
                if proxy.subjects:
                    proxy.subjects.clear()
                results.append(run(shell, proxy.host, proxy.port, statement, cqlshrc, place, flags, variables))
            (their_status, theirs), (status, ours) = results
            if said == "CERTIFICATE_VERIFY_FAILED":
                their_status, theirs = 1, said
            wrong = []
            if status != their_status:
                wrong.append(f"status {status}, cqlsh {their_status}")
            wrong += [f"{who} does not say {said!r}: {text!r}" for who, text in
                      (("helenus", ours), ("cqlsh", theirs)) if said not in text]
            if subject is not ... and proxy.subjects != {subject}:
                wrong.append(f"the server saw {proxy.subjects}, not {subject!r}")
            passed += not wrong
            failed += bool(wrong)
            if wrong:
                print(f"FAILED {what}: " + "; ".join(wrong))
            if os.environ.get("TLS_SHOW"):
                print(f"{what}\n  cqlsh: {theirs!r}\n  ours:  {ours!r}")
    print(f"TLS: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
