"""Probe of the Python drivers: see ../README.md for its requests and answers."""
import logging
import ssl
import sys
import threading
import time

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import RoundRobinPolicy

logging.disable(logging.CRITICAL)


def connect(request):
    options = {}
    if request["tls"] == "yes":
        context = ssl.create_default_context(cafile=request["ca"])
        context.check_hostname = request.get("name") == "check"
        if "cert" in request:
            context.load_cert_chain(request["cert"], request["key"])
        options["ssl_context"] = context
        if context.check_hostname:
            options["ssl_options"] = {"server_hostname": request["host"]}
    if "user" in request:
        options["auth_provider"] = PlainTextAuthProvider(request["user"], request["password"])
    profiles = {EXEC_PROFILE_DEFAULT: ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), request_timeout=30)}
    cluster = Cluster([request["host"]], port=int(request["port"]), protocol_version=5, connect_timeout=10,
                      execution_profiles=profiles, **options)
    try:
        return cluster, cluster.connect()
    except NoHostAvailable as error:
        cluster.shutdown()
        reasons = [str(reason) for reason in error.errors.values()] if error.errors else []
        raise RuntimeError("; ".join(reasons) or str(error)) from error
    except Exception:
        cluster.shutdown()
        raise


def query(session):
    return session.execute("SELECT key FROM system.local").one()[0]


class Load:
    def __init__(self, request):
        self.stopped, self.done, self.failures = False, 0, []
        self.thread = threading.Thread(target=self.run, args=(request,), daemon=True)
        self.thread.start()

    def run(self, request):
        while not self.stopped:
            try:
                cluster, session = connect(request)
                for _ in range(20):
                    query(session)
                    self.done += 1
                cluster.shutdown()
            except Exception as error:
                self.failures.append(str(error))

    def stop(self):
        self.stopped = True
        self.thread.join()
        return f"{self.done} {len(self.failures)} {''.join(self.failures[:1])}"


def all_shards(cluster):
    """Waits until scylla-driver, in the background, has a connection to each shard."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        stats = cluster.shard_aware_stats()
        if stats and all(host["connected"] == host["shards_count"] for host in stats.values()):
            return
        time.sleep(0.05)
    raise RuntimeError(f"shards without connection: {cluster.shard_aware_stats()}")


KEPT = {}


def answer(verb, request):
    if verb == "try":
        cluster, session = connect(request)
        try:
            return query(session)
        finally:
            cluster.shutdown()
    if verb == "open":
        # The session, too: the cluster has only a weak reference.
        KEPT["open"] = connect(request)
        if hasattr(KEPT["open"][0], "shard_aware_stats"):
            all_shards(KEPT["open"][0])
        return ""
    if verb == "close":
        KEPT.pop("open")[0].shutdown()
        return ""
    if verb == "load":
        KEPT["load"] = Load(request)
        return ""
    if verb == "stop":
        return KEPT.pop("load").stop()
    raise ValueError(f"no request {verb}")


def main():
    for line in sys.stdin:
        verb, *fields = line.rstrip("\n").split("\t")
        request = dict(field.split("=", 1) for field in fields)
        try:
            text = "ok " + answer(verb, request)
        except Exception as error:
            text = f"error {error}"
        print(text.replace("\n", " "), flush=True)


main()
