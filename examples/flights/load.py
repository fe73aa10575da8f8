"""Loading with the Python driver: prepared, concurrent, with progress, across lost connections.

Owns: the connection, which rows were sent and which acknowledged. A row whose answer did not
arrive is sent again until it is acknowledged; the rows have keys, so twice is the same as once.
"""
import pathlib
import sys
import threading
import time

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra import (ConsistencyLevel, InvalidRequest, OperationTimedOut, Unauthorized)
from cassandra.policies import FallthroughRetryPolicy, WhiteListRoundRobinPolicy
from cassandra.protocol import ConfigurationException, SyntaxException
from cassandra.query import UNSET_VALUE, BatchStatement, BatchType

from server import answers

IN_FLIGHT_MAX = 128
BLOCK_ROWS = 4000
# Rows of one partition that travel in one unlogged batch: about half of batch_size_warn_threshold.
BATCH_ROWS_MAX = 24
RECONNECT_SECONDS_MAX = 240
HERE = pathlib.Path(__file__).resolve().parent
# Errors that sending again cannot mend.
FINAL_ERRORS = (InvalidRequest, SyntaxException, ConfigurationException, Unauthorized)


class Interrupted(Exception):
    """The user asked to stop; what is acknowledged stays."""


class Connection:
    """A session that can be made anew after the server was gone."""

    def __init__(self, host, port, keyspace):
        self.host, self.port, self.keyspace = host, port, keyspace
        self.cluster = self.session = None
        self.prepared = {}

    def open(self):
        profile = ExecutionProfile(
            load_balancing_policy=WhiteListRoundRobinPolicy([self.host]),
            retry_policy=FallthroughRetryPolicy(),
            consistency_level=ConsistencyLevel.LOCAL_QUORUM, request_timeout=30)
        self.cluster = Cluster(
            [self.host], port=self.port, compression="lz4", connect_timeout=20,
            control_connection_timeout=20, execution_profiles={EXEC_PROFILE_DEFAULT: profile})
        self.session = self.cluster.connect()
        self.prepared = {}

    def close(self):
        if self.cluster is not None:
            self.cluster.shutdown()
            self.cluster = self.session = None

    def reopen(self, stopped):
        """Waits until the server answers and connects again; `stopped()` raises to end the wait."""
        self.close()
        begin = time.monotonic()
        while True:
            stopped()
            if answers(self.host, self.port):
                try:
                    self.open()
                    self.session.set_keyspace(self.keyspace)
                    return
                except (NoHostAvailable, OperationTimedOut, OSError):
                    self.close()  # gone again between the two
            if time.monotonic() - begin > RECONNECT_SECONDS_MAX:
                raise RuntimeError(f"{self.host}:{self.port} does not answer any more")
            time.sleep(0.05)

    def create_schema(self, fresh):
        if fresh:
            self.session.execute(f"DROP KEYSPACE IF EXISTS {self.keyspace}")
        self.session.execute(
            f"CREATE KEYSPACE IF NOT EXISTS {self.keyspace} WITH replication = "
            "{'class': 'SimpleStrategy', 'replication_factor': 1}")
        self.session.set_keyspace(self.keyspace)
        lines = (HERE / "schema.cql").read_text().splitlines()
        text = "\n".join(line for line in lines if not line.startswith("--"))
        for statement in text.split(";"):
            if statement.strip():
                self.session.execute(statement)

    def prepare(self, cql):
        statement = self.prepared.get(cql)
        if statement is None:
            statement = self.prepared[cql] = self.session.prepare(cql)
        return statement

    def execute(self, cql, values=()):
        return self.session.execute(self.prepare(cql), values)


class Progress:
    """`loading  45 %  612,345 of 1,373,000 rows  8,120 rows/s  1m34s left`, at most twice a second.

    On a terminal one line that is rewritten; elsewhere a new line every 10 seconds.
    """

    def __init__(self, total, before):
        self.total, self.before = total, before
        self.begin = time.monotonic()
        self.terminal = sys.stderr.isatty()
        self.shown = self.begin if not self.terminal else 0.0

    def show(self, done, last=False):
        now = time.monotonic()
        if not last and now - self.shown < (0.5 if self.terminal else 10):
            return
        self.shown = now
        seconds = max(now - self.begin, 1e-6)
        rate = (done - self.before) / seconds
        left = (self.total - done) / rate if rate else 0
        tail = f"in {minutes(seconds)}" if last else f"{minutes(left)} left"
        line = (f"loading {100 * done // self.total:3d} %  {done:,} of {self.total:,} rows  "
                f"{rate:,.0f} rows/s  {tail}")
        if self.terminal:
            sys.stderr.write("\r\x1b[K" + line + ("\n" if last else ""))
        else:
            sys.stderr.write(line + "\n")
        sys.stderr.flush()

    def say(self, text):
        sys.stderr.write(("\r\x1b[K" if self.terminal else "") + text + "\n")
        sys.stderr.flush()


def minutes(seconds):
    seconds = int(seconds)
    return f"{seconds // 60}m{seconds % 60:02d}s" if seconds >= 60 else f"{seconds}s"


class Loader:
    """Writes every row of a data set and knows of each whether it was sent and acknowledged."""

    def __init__(self, connection, data):
        self.connection, self.data = connection, data
        self.total = sum(len(table.rows) for table in data.tables)
        self.sent = {table.source: bytearray(len(table.rows)) for table in data.tables}
        self.acked = {table.source: bytearray(len(table.rows)) for table in data.tables}
        self.acknowledged = 0  # rows; also those that an earlier run had acknowledged
        self.retried = 0  # rows that were sent, not acknowledged, and sent again
        self.interrupted = threading.Event()
        self.chaos = None
        self.batch_rows_max = BATCH_ROWS_MAX

    def run(self, progress_made):
        """Writes all blocks; `progress_made` is called with the rows acknowledged so far.

        Raises Interrupted after the requests in flight are answered.
        """
        for table in self.data.small:
            self._table(table, progress_made)
        # The tables of a flight grow together, as they would in an application.
        longest = max(len(table.rows) for table in self.data.of_flights)
        done = {table.source: self._blocks_done(table) for table in self.data.of_flights}
        for block in range(-(-longest // BLOCK_ROWS)):
            for table in self.data.of_flights:
                self._block(table, block, done[table.source], progress_made)

    def count_earlier(self):
        """Rows in blocks that an earlier run has finished."""
        return sum(self._rows_of(table, block)
                   for table in self.data.tables
                   for block, rows in self._blocks_done(table).items()
                   if rows >= self._rows_of(table, block))

    def _rows_of(self, table, block):
        return max(0, min(BLOCK_ROWS, len(table.rows) - block * BLOCK_ROWS))

    def _blocks_done(self, table):
        rows = self._again(lambda: list(self.connection.execute(
            "SELECT block, rows FROM load_progress WHERE source = ?", (table.source,))))
        return {row.block: row.rows for row in rows}

    def _table(self, table, progress_made):
        done = self._blocks_done(table)
        for block in range(-(-len(table.rows) // BLOCK_ROWS)):
            self._block(table, block, done, progress_made)

    def _block(self, table, block, done, progress_made):
        first, count = block * BLOCK_ROWS, self._rows_of(table, block)
        if count == 0:
            return
        if done.get(block, 0) >= count:
            ones = b"\x01" * count
            self.sent[table.source][first:first + count] = ones
            self.acked[table.source][first:first + count] = ones
            self.acknowledged += count
            return
        left = range(first, first + count)
        while left:
            left = self._send(table, left, progress_made)
            if left:
                self.retried += sum(self.sent[table.source][index] for index in left)
                self.connection.reopen(self._stopped)
        self._again(lambda: self.connection.execute(
            "INSERT INTO load_progress (source, block, rows) VALUES (?, ?, ?)",
            (table.source, block, count)))

    def _requests(self, table, indexes):
        """Cuts the rows into requests: those of one partition share one, up to `batch_rows_max`.

        A batch of one partition is one mutation for the server: cheaper than single rows, and
        written whole or not at all. Batches over several partitions would be neither.
        """
        requests, open_requests = [], {}
        for index in indexes:
            partition = table.rows[index][:table.partition_keys]
            request = open_requests.get(partition)
            if request is None or len(request) == self.batch_rows_max:
                request = open_requests[partition] = []
                requests.append(request)
            request.append(index)
        return requests

    def _statement(self, insert, table, request):
        """The statement of one request and its values, for `execute_async`."""
        rows = [[UNSET_VALUE if value is None else value for value in table.rows[index]]
                for index in request]
        if len(rows) == 1:
            return insert, rows[0]
        batch = BatchStatement(batch_type=BatchType.UNLOGGED)
        for row in rows:
            batch.add(insert, row)
        return batch, None

    def _send(self, table, indexes, progress_made):
        """Sends the rows, up to IN_FLIGHT_MAX requests at a time; returns those without
        acknowledgement."""
        slots = threading.BoundedSemaphore(IN_FLIGHT_MAX)
        broken = threading.Event()
        final = []
        sent, acked = self.sent[table.source], self.acked[table.source]
        session = self.connection.session
        answered = threading.Lock()

        def success(_, request):
            for index in request:
                acked[index] = 1
            with answered:
                self.acknowledged += len(request)
            slots.release()

        def failure(error, request):
            if isinstance(error, FINAL_ERRORS):
                final.append(error)
            broken.set()
            slots.release()

        try:
            insert = self.connection.prepare(table.insert)
        except FINAL_ERRORS:
            raise
        except Exception:  # the connection is gone: nothing was sent
            return list(indexes)
        for request in self._requests(table, indexes):
            slots.acquire()
            if broken.is_set() or self.interrupted.is_set():
                slots.release()
                break
            statement, values = self._statement(insert, table, request)
            for index in request:
                sent[index] = 1
            try:
                future = session.execute_async(statement, values)
            except NoHostAvailable:
                broken.set()
                slots.release()
                break
            future.add_callbacks(
                success, failure, callback_args=(request,), errback_args=(request,))
            progress_made(self.acknowledged)
        for _ in range(IN_FLIGHT_MAX):  # every answer, or error, of what is in flight
            slots.acquire()
        if final:
            raise RuntimeError(f"{table.name}: {final[0]}")
        self._stopped()
        return [index for index in indexes if not acked[index]]

    def _again(self, action):
        """The result of `action`, repeated over lost connections."""
        while True:
            try:
                return action()
            except (*FINAL_ERRORS, Interrupted, RuntimeError):
                raise
            except Exception:  # every kind of lost connection and of time-out
                self.connection.reopen(self._stopped)

    def _stopped(self):
        if self.interrupted.is_set():
            raise Interrupted
        if self.chaos is not None and self.chaos.failure is not None:
            raise RuntimeError(str(self.chaos.failure))
