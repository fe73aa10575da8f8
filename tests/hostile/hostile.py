"""Clients that ask for more than a node has: a light client beside each of them has to be served, and the node's
memory has to stay bounded. Standard library only; see README.md."""

import argparse
import multiprocessing
import os
import socket
import struct
import subprocess
import sys
import threading
import time

QUERY, PREPARE, STARTUP = 7, 9, 1
RESULT, ERROR, READY = 8, 0, 2
OVERLOADED = 0x1001


class Connection:
    """Protocol v4, one request at a time or many without reading."""

    def __init__(self, address, receive_buffer=None):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(180)
        self.socket.connect(address)
        options = b"\x00\x01" + short("CQL_VERSION") + short("3.4.7")
        self.send(STARTUP, options)
        opcode, _ = self.receive()
        assert opcode == READY, opcode

    def send(self, opcode, body, stream=0):
        self.socket.sendall(struct.pack(">BBhBI", 4, 0, stream, opcode, len(body)) + body)

    def exactly(self, count):
        parts = []
        while count:
            part = self.socket.recv(min(count, 1 << 20))
            if not part:
                raise ConnectionError("closed by the server")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def receive(self):
        _, _, _, opcode, length = struct.unpack(">BBhBI", self.exactly(9))
        return opcode, self.exactly(length)

    def query(self, text, page_size=None, stream=0):
        self.send(QUERY, query_body(text, page_size), stream)
        return self.receive()

    def must(self, text):
        opcode, body = self.query(text)
        if opcode == ERROR:
            raise RuntimeError(error_of(body))


def short(text):
    return struct.pack(">H", len(text)) + text.encode()


def query_body(text, page_size=None):
    text = text.encode()
    flags = b"\x00" if page_size is None else b"\x04" + struct.pack(">i", page_size)
    return struct.pack(">I", len(text)) + text + b"\x00\x01" + flags


def error_of(body):
    code, length = struct.unpack(">IH", body[:6])
    return code, body[6:6 + length].decode(errors="replace")[:300]


def show(answer):
    opcode, body = answer
    return "rows" if opcode == RESULT else f"error 0x%04x: %s" % error_of(body)


def rss(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("VmRSS"):
                return int(line.split()[1]) << 10
    return 0


def light(address, stop, out):
    """Small reads, one after the other; times in seconds."""
    times, failures = [], []
    connection = Connection(address)
    key = 0
    while not stop.is_set():
        key = (key + 1) % 100
        began = time.monotonic()
        opcode, body = connection.query(f"SELECT v FROM ks.light WHERE k = {key}")
        times.append(time.monotonic() - began)
        if opcode == ERROR:
            failures.append(error_of(body))
        time.sleep(0.002)
    out.put((times, failures[:3], len(failures)))


class Watch:
    """Runs the light client and samples memory while the body of a scenario runs."""

    def __init__(self, address, pid, name, limits):
        self.address, self.pid, self.name, self.limits = address, pid, name, limits
        self.largest = 0

    def sample(self):
        while not self.done.is_set():
            self.largest = max(self.largest, rss(self.pid))
            time.sleep(0.02)

    def __enter__(self):
        self.done = threading.Event()
        self.stop, self.out = multiprocessing.Event(), multiprocessing.Queue()
        self.client = multiprocessing.Process(target=light, args=(self.address, self.stop, self.out))
        self.client.start()
        self.sampler = threading.Thread(target=self.sample)
        self.sampler.start()
        time.sleep(0.3)
        self.began = time.monotonic()
        return self

    def __exit__(self, kind, *_):
        took = time.monotonic() - self.began
        self.stop.set()
        times, failures, count = self.out.get(timeout=120)
        self.client.join()
        self.done.set()
        self.sampler.join()
        times.sort()
        p99 = times[int(len(times) * 0.99)] * 1000
        mib = self.largest / (1 << 20)
        most_ms, most_mib = self.limits
        problems = []
        if p99 > most_ms:
            problems.append(f"p99 over {most_ms} ms")
        if mib > most_mib:
            problems.append(f"RSS over {most_mib} MiB")
        if count:
            problems.append(f"{count} errors: {failures}")
        self.passed = kind is None and not problems
        print(f"{'ok  ' if self.passed else 'FAIL'} {self.name}: {took:.1f} s, RSS up to {mib:.0f} MiB, light p99 "
              f"{p99:.1f} ms, max {times[-1] * 1000:.1f} ms of {len(times)} {'; '.join(problems)}", flush=True)
        return False


def prepare_tables(address):
    connection = Connection(address)
    connection.must("CREATE KEYSPACE IF NOT EXISTS ks WITH replication = "
                    "{'class': 'SimpleStrategy', 'replication_factor': 1}")
    for table in ["light (k int PRIMARY KEY, v int)", "big (k int, c int, v blob, PRIMARY KEY (k, c))",
                  "wide (k int PRIMARY KEY, v blob)", "product (p int, c int, v int, PRIMARY KEY (p, c))",
                  "numbers (k int PRIMARY KEY, n varint, d decimal)"]:
        connection.must(f"CREATE TABLE IF NOT EXISTS ks.{table}")
    for key in range(100):
        connection.must(f"INSERT INTO ks.light (k, v) VALUES ({key}, {key})")
    # Partitions of 1 MB.
    blob = "0x" + "ab" * 10_000
    for key in range(4):
        for c in range(100):
            connection.must(f"INSERT INTO ks.big (k, c, v) VALUES ({key}, {c}, {blob})")
    return connection


def unread(address, count, seconds):
    """Connections that pipeline reads of 1 MB and read nothing."""
    connections = [Connection(address, receive_buffer=8192) for _ in range(count)]
    for connection in connections:
        connection.socket.settimeout(0.05)
    until = time.monotonic() + seconds
    stream = 0
    alive = set(connections)
    while time.monotonic() < until:
        for connection in list(alive):
            stream = (stream + 1) % 30_000
            try:
                connection.send(QUERY, query_body(f"SELECT * FROM ks.big WHERE k = {stream % 4}"), stream)
            except (TimeoutError, BlockingIOError):
                alive.discard(connection)
            except OSError:
                alive.discard(connection)
        time.sleep(0.001)
    for connection in connections:
        connection.socket.close()


def in_parallel(jobs):
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def product_select(address, each):
    connection = Connection(address)
    values = ",".join(map(str, range(each)))
    print("    ", show(connection.query(f"SELECT * FROM ks.product WHERE p IN ({values}) AND c IN ({values})")))


def product_delete(address, keys, rows):
    connection = Connection(address)
    p, c = ",".join(map(str, range(keys))), ",".join(map(str, range(rows)))
    print("    ", show(connection.query(f"DELETE FROM ks.product WHERE p IN ({p}) AND c IN ({c})")))


def numbers(address, digits):
    connection = Connection(address)
    number = "7" * digits
    for text in [f"INSERT INTO ks.numbers (k, n) VALUES (1, {number})",
                 f"INSERT INTO ks.numbers (k, d) VALUES (1, {number}.5)",
                 f"INSERT INTO ks.numbers JSON '{{\"k\": 1, \"n\": {number}}}'",
                 f"INSERT INTO ks.numbers (k, n) VALUES (1, blobasvarint(0x{number[:digits // 2 * 2]}))",
                 "SELECT cast(n AS text), n * n, n + 1 FROM ks.numbers WHERE k = 1",
                 "SELECT JSON n FROM ks.numbers WHERE k = 1"]:
        began = time.monotonic()
        answer = show(connection.query(text))
        print(f"      {text[:46]}…: {time.monotonic() - began:.2f} s, {answer[:110]}")


def prepared(address, statements, markers):
    connection = Connection(address)
    answer = None
    for number in range(statements):
        marks = ",".join("?" * markers)
        text = f"SELECT v{' ' * (number + 1)}FROM ks.light WHERE k IN ({marks})".encode()
        connection.send(PREPARE, struct.pack(">I", len(text)) + text)
        answer = connection.receive()
    print("    ", "prepared" if answer[0] == RESULT else show(answer)[:160])


def scans(address, connections, each, page_size):
    def one():
        connection = Connection(address)
        for stream in range(each):
            connection.send(QUERY, query_body("SELECT * FROM ks.wide", page_size), stream)
        for _ in range(each):
            answers.append(show(connection.receive())[:90])
    answers = []
    in_parallel([one] * connections)
    for answer in sorted(set(answers)):
        print(f"      {answers.count(answer)} x {answer}")


def slow_input(address, connections):
    """Frames of 15 MB that never end."""
    open_connections = [Connection(address) for _ in range(connections)]
    for connection in open_connections:
        connection.socket.settimeout(2)
    piece = b"x" * (1 << 20)
    for connection in open_connections:
        try:
            connection.socket.sendall(struct.pack(">BBhBI", 4, 0, 0, QUERY, 15 << 20) + piece * 14)
        except OSError:
            pass
    time.sleep(1)
    for connection in open_connections:
        connection.socket.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--address", default="127.0.5.1")
    parser.add_argument("--port", type=int, default=19500)
    parser.add_argument("--only", default="", help="names of scenarios, by commas")
    parser.add_argument("--p99-ms", type=float, default=50)
    options = parser.parse_args()
    address = (options.address, options.port)
    memory = 512
    command = [options.server, "server", "--workdir", options.workdir, "--native-transport-port",
               str(options.port), "--native-shard-aware-transport-port", str(options.port + 1), "--api-port",
               str(options.port + 2), "--rpc-address", options.address, "--storage-port", str(options.port + 3),
               "--memory", f"{memory}M", "--smp", "2"]
    with open(os.path.join(options.workdir, "server.log"), "wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    failed = False
    try:
        for _ in range(200):
            try:
                Connection(address)
                break
            except OSError:
                time.sleep(0.1)
        connection = prepare_tables(address)
        limits = (options.p99_ms, memory * 1.25)
        blob = "0x" + "cd" * 3_000_000

        def fill(rows):
            for key in range(rows):
                for _ in range(100):
                    opcode, body = connection.query(f"INSERT INTO ks.wide (k, v) VALUES ({key}, {blob})")
                    if opcode == RESULT:
                        break
                    time.sleep(0.1)

        scenarios = [
            ("unread-1", lambda: unread(address, 1, 12)),
            ("unread-12", lambda: unread(address, 12, 15)),
            ("unread-40", lambda: unread(address, 40, 20)),
            ("slow-input", lambda: slow_input(address, 40)),
            ("product-select-3000", lambda: product_select(address, 3000)),
            ("product-select-10000", lambda: product_select(address, 10_000)),
            ("product-delete", lambda: product_delete(address, 10_000, 1000)),
            ("numbers-1M", lambda: numbers(address, 1_000_000)),
            ("numbers-7M", lambda: numbers(address, 7_000_000)),
            ("prepared", lambda: prepared(address, 16, 60_000)),
            ("prepared-6000", lambda: prepared(address, 300, 6000)),
            ("scans-3MB", lambda: (fill(10), scans(address, 40, 5, 5))),
            ("unpaged", lambda: (fill(95), scans(address, 2, 2, None))),
        ]
        wanted = [name for name in options.only.split(",") if name]
        for name, run in scenarios:
            if wanted and name not in wanted:
                continue
            watch = Watch(address, server.pid, name, limits)
            try:
                with watch:
                    run()
            except OSError as error:
                print(f"     {name}: {error}")
            failed |= not watch.passed
            if server.poll() is not None:
                print(f"FAIL the server ended with {server.returncode}")
                return 1
            time.sleep(2)
    finally:
        server.terminate()
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
