"""The load of one driver while nodes fail: cassandra-driver. See ../README.md, "Drivers under faults"."""
import json
import os
import sys
import threading
import time
from collections import Counter

from cassandra import (
    ConsistencyLevel, OperationTimedOut, ReadFailure, ReadTimeout, Unavailable, WriteFailure,
    WriteTimeout,
)
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.policies import (
    ConstantReconnectionPolicy, FallthroughRetryPolicy, RoundRobinPolicy, TokenAwarePolicy,
)
from cassandra.pool import NoConnectionsAvailable
from cassandra.protocol import ErrorMessage

NAME = "python"
WORKERS = 2
VERIFIERS = 8
PAUSE_SECONDS = 0.01
TIMEOUT_SECONDS = 5
EXPECTED = (WriteTimeout, ReadTimeout, Unavailable, OperationTimedOut, ConnectionException,
            NoConnectionsAvailable, ReadFailure, WriteFailure)
# OVERLOADED, IS_BOOTSTRAPPING and CAS_WRITE_UNKNOWN, for which this driver has no classes.
EXPECTED_CODES = (0x1001, 0x1002, 0x1700)


def is_expected(error):
    if isinstance(error, NoHostAvailable):
        tried = error.errors.values() if isinstance(error.errors, dict) else []
        return all(is_expected(e) or isinstance(e, OSError) for e in tried)
    return isinstance(error, EXPECTED) or (
        isinstance(error, ErrorMessage) and error.code in EXPECTED_CODES)


# To see that it is found: some writes are claimed and not made. Of keys that nobody else uses.
IS_LYING = "LOAD_LIE" in os.environ
FIRST_KEY = 1_000_000 if IS_LYING else 0


class Load:
    def __init__(self, hosts):
        profile = ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(RoundRobinPolicy()),
            consistency_level=ConsistencyLevel.QUORUM, request_timeout=TIMEOUT_SECONDS,
            serial_consistency_level=ConsistencyLevel.SERIAL, retry_policy=FallthroughRetryPolicy())
        self.cluster = Cluster(
            hosts, execution_profiles={EXEC_PROFILE_DEFAULT: profile}, protocol_version=5,
            reconnection_policy=ConstantReconnectionPolicy(0.5, None), connect_timeout=5)
        session = self.session = self.cluster.connect("faults")
        self.insert = session.prepare("INSERT INTO kv (driver, k, v) VALUES (?, ?, ?)")
        self.select = session.prepare("SELECT v FROM kv WHERE driver = ? AND k = ?")
        self.create = session.prepare("INSERT INTO register (k, v) VALUES (?, 0) IF NOT EXISTS")
        self.cas = session.prepare("UPDATE register SET v = ? WHERE k = ? IF v = ?")
        self.serial = session.prepare("SELECT v FROM register WHERE k = ?")
        self.serial.consistency_level = ConsistencyLevel.SERIAL
        self.lock = threading.Lock()
        self.stop = threading.Event()
        self.acknowledged = []
        self.counts = Counter()
        self.errors = Counter()
        self.wrong = []
        self.seen = 0  # of the shared register

    def execute(self, statement, values):
        """The rows, or None when nobody knows what happened."""
        try:
            return self.session.execute(statement, values)
        except Exception as error:
            with self.lock:
                self.errors[type(error).__name__] += 1
                if not is_expected(error):
                    self.wrong.append(f"unexpected: {error!r}")
            return None

    def note(self, text):
        with self.lock:
            self.wrong.append(text)

    def add(self, what):
        with self.lock:
            self.counts[what] += 1

    def write_and_read(self, key, number):
        is_claimed = IS_LYING and key % 20 == 0
        if is_claimed or self.execute(self.insert, (NAME, key, f"{NAME}-{key}")) is not None:
            with self.lock:
                self.acknowledged.append(key)
        with self.lock:
            known = self.acknowledged[(number * 7919) % len(self.acknowledged)] if self.acknowledged else None
        if known is not None:
            self.check(known)

    def check(self, key):
        """Whether what was acknowledged is read; False when nobody answers."""
        rows = self.execute(self.select, (NAME, key))
        if rows is None:
            return False
        self.add("reads")
        row = rows.one()
        if row is None or row.v != f"{NAME}-{key}":
            self.note(f"key {key} was acknowledged and reads {row}")
        return True

    def own_register(self, name, state):
        """A counter that only this worker raises: each step is applied once, or it is not known."""
        value, unknown = state
        rows = self.execute(self.cas, (value + 1, name, value))
        if rows is None:
            self.add("unknown")
            return value, True
        row = rows.one()
        if row.applied:
            self.add("applied")
        elif unknown and row.v == value + 1:
            self.add("found applied")
        else:
            self.note(f"{name}: {value} was there and {getattr(row, 'v', None)} is read")
            return getattr(row, "v", value), False
        return value + 1, False

    def shared_register(self):
        """A counter that everybody raises: it never goes back."""
        with self.lock:
            seen = self.seen
        rows = self.execute(self.serial, ("shared",))
        if rows is None:
            return
        value = rows.one().v
        if value < seen:
            self.note(f"shared: {seen} was there and {value} is read")
        rows = self.execute(self.cas, (value + 1, "shared", value))
        with self.lock:
            self.seen = max(self.seen, value)
            if rows is None:
                self.counts["shared unknown"] += 1
            elif rows.one().applied:
                self.counts["shared applied"] += 1
                self.seen = max(self.seen, value + 1)

    def worker(self, number):
        name, key, round_ = f"{NAME}-{number}", FIRST_KEY + number, 0
        while self.execute(self.create, (name,)) is None:
            pass
        state = (0, False)
        while not self.stop.is_set():
            self.write_and_read(key, round_)
            if round_ % 4 == 0:
                state = self.own_register(name, state)
            if round_ % 8 == 1:
                self.shared_register()
            key += WORKERS
            round_ += 1
            time.sleep(PAUSE_SECONDS)
        while (rows := self.execute(self.serial, (name,))) is None:
            pass
        last, (value, unknown) = rows.one().v, state
        if last != value and not (unknown and last == value + 1):
            self.note(f"{name}: {value} was there and {last} is read at the end")

    def guarded(self, body, *arguments):
        try:
            body(*arguments)
        except Exception as error:
            self.note(f"the program failed: {error!r}")

    def all(self, count, body):
        threads = [threading.Thread(target=self.guarded, args=(body, n)) for n in range(count)]
        for thread in threads:
            thread.start()
        return threads

    def verify(self, number):
        for key in self.acknowledged[number::VERIFIERS]:
            while not self.check(key):
                pass

    def run(self):
        workers = self.all(WORKERS, self.worker)
        print("ready", flush=True)
        # Any other line, or the end of the input, stops the load.
        while sys.stdin.readline() == "count\n":
            print(len(self.acknowledged), flush=True)
        self.stop.set()
        for thread in workers:
            thread.join()
        self.counts["reads under faults"] = self.counts["reads"]
        for thread in self.all(VERIFIERS, self.verify):
            thread.join()
        self.cluster.shutdown()
        print(json.dumps({
            "driver": NAME, "acknowledged": len(self.acknowledged), "counts": self.counts,
            "errors": self.errors, "wrong": self.wrong}), flush=True)


if __name__ == "__main__":
    Load(os.environ["LOAD_HOSTS"].split(",")).run()
