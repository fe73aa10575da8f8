"""Helenus and a real Cassandra as processes on directories of their own."""

import os
import re
import shutil
import signal
import struct
import subprocess
import time
from pathlib import Path

from cassandra.cluster import Cluster, ExecutionProfile, EXEC_PROFILE_DEFAULT, NoHostAvailable
from cassandra.policies import WhiteListRoundRobinPolicy

ADDRESS = os.environ.get("FILES_ADDRESS", "127.0.0.1")
# Cassandra listens for nodetool on this one, whatever its other addresses are.
JMX_ADDRESS = "127.0.0.1"
CLUSTER_NAME = "files"

EXPORTS = """java.base/jdk.internal.misc java.management.rmi/com.sun.jmx.remote.internal.rmi
    java.rmi/sun.rmi.registry java.rmi/sun.rmi.server java.sql/java.sql java.base/java.lang.ref
    jdk.unsupported/sun.misc jdk.compiler/com.sun.tools.javac.file jdk.attach/sun.tools.attach""".split()
OPENS = """java.base/jdk.internal.misc java.base/jdk.internal.loader java.base/jdk.internal.ref
    java.base/jdk.internal.reflect java.base/jdk.internal.math java.base/jdk.internal.module
    java.base/jdk.internal.util.jar jdk.management/com.sun.management.internal
    java.base/sun.nio.ch java.base/java.io java.base/java.lang.reflect jdk.compiler/com.sun.tools.javac
    java.base/java.lang java.base/java.util java.base/java.nio java.rmi/sun.rmi.transport.tcp""".split()


def connect(port, timeout=60, user=None):
    """A session with the server on that port, once it answers, and its cluster object."""
    deadline = time.monotonic() + timeout
    profile = ExecutionProfile(
        load_balancing_policy=WhiteListRoundRobinPolicy([ADDRESS]), request_timeout=60
    )
    while True:
        cluster = Cluster(
            [ADDRESS],
            port=port,
            protocol_version=5,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            schema_metadata_enabled=False,
            token_metadata_enabled=False,
            auth_provider=user,
        )
        try:
            return cluster, cluster.connect()
        except (NoHostAvailable, OSError):
            cluster.shutdown()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


class Process:
    """A server process with its log; used in a `with` statement it never outlives it."""

    def __init__(self, command, log, environment=None):
        self.log = Path(log)
        with open(self.log, "ab") as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, env=environment
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def check_alive(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"ended with {self.process.returncode}:\n{self.tail()}")

    def tail(self, lines=30):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self, timeout=120):
        """SIGTERM, which both programs answer with a drain; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)


class Helenus(Process):
    PORT = 19610
    API_PORT = 19611

    def __init__(self, directory, smp=2, cluster_name=CLUSTER_NAME, settings=()):
        self.binary = os.environ["HELENUS_BIN"]
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [
            self.binary, "server", "--workdir", str(self.directory),
            "--cluster-name", cluster_name, "--smp", str(smp), "--memory", "512M", "--flush-compression", "table",
            "--listen-address", ADDRESS, "--rpc-address", ADDRESS,
            "--native-transport-port", str(self.PORT),
            "--native-shard-aware-transport-port", "0",
            "--api-address", ADDRESS, "--api-port", str(self.API_PORT), *settings,
        ]
        # The server would take the variable for a setting.
        environment = {k: v for k, v in os.environ.items() if k != "HELENUS_BIN"}
        super().__init__(command, f"{self.directory}.log", environment)

    def connect(self):
        deadline = time.monotonic() + 60
        while True:
            self.check_alive()
            try:
                return connect(self.PORT, timeout=2)
            except (NoHostAvailable, OSError):
                if time.monotonic() > deadline:
                    raise

    def nodetool(self, *arguments):
        command = [self.binary, "nodetool", "-h", ADDRESS, "-p", str(self.API_PORT), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    flush = lambda self: self.nodetool("flush")
    drain = lambda self: self.nodetool("drain")


def sstable_tool(*arguments):
    """Output and exit status of `helenus sstable …`."""
    command = [os.environ["HELENUS_BIN"], "sstable", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout, done.returncode, done.stderr


class Tools:
    """A Java machine that runs tools of Cassandra one after the other: java/Tools.java. Its start takes longer
    than most of what they do."""

    def __init__(self, command):
        work = Path(__file__).resolve().parents[2] / "target/tests/files"
        self.log = work / "tools.log"
        at = command.index("-cp")
        classes = f"{work}/classes:{command[at + 1]}"
        command = [command[0], "-Djava.security.manager=allow", *command[1:at], "-cp", classes, *command[at + 2:]]
        with open(self.log, "ab") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )

    def run(self, main, *arguments):
        """Output, exit status and errors of one."""
        lines = [main, str(len(arguments)), *arguments]
        if any("\n" in line for line in lines):
            raise ValueError(f"an argument of several lines: {lines}")
        self.process.stdin.write("".join(f"{line}\n" for line in lines).encode())
        self.process.stdin.flush()
        (status,) = struct.unpack(">i", self.read(4))
        out, errors = (self.read(*struct.unpack(">i", self.read(4))).decode() for _ in range(2))
        return out, status, errors

    def read(self, length):
        got = self.process.stdout.read(length)
        if len(got) < length:
            raise RuntimeError(f"the tools ended with {self.process.wait()}; see {self.log}")
        return got

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


class CassandraFiles:
    """Configuration and tools of Cassandra for a directory."""

    PORT = 19620
    STORAGE_PORT = 19621
    JMX_PORT = 19622

    # Tools that keep nothing in their Java machine from which a later run could differ. Those in the first set
    # ask the configuration for versions and forms, not for directories: one machine is enough for each pair.
    ANYWHERE = {"SSTableExport", "SSTableMetadataViewer"}
    # Of these each has a machine for itself and its directory.
    REPEATED = {"SSTablePartitions", "StandaloneVerifier", "NodeTool"}
    shared = {}

    def __init__(self, directory, compatibility="CASSANDRA_4", form="big", settings=""):
        self.own = {}
        self.written = (compatibility, form)
        self.directory = Path(directory).resolve()
        self.lib = Path(os.environ["CASSANDRA_LIB"]).resolve()
        self.java = Path(os.environ["JAVA17_HOME"]) / "bin/java"
        self.conf = Path(f"{self.directory}-conf")
        self.conf.mkdir(parents=True, exist_ok=True)
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.conf / "cassandra.yaml").write_text(f"""\
cluster_name: {CLUSTER_NAME}
num_tokens: 16
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
data_file_directories: [{self.directory}/data]
commitlog_directory: {self.directory}/commitlog
hints_directory: {self.directory}/hints
saved_caches_directory: {self.directory}/saved_caches
cdc_raw_directory: {self.directory}/cdc_raw
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{{seeds: "{ADDRESS}:{self.STORAGE_PORT}"}}]
listen_address: {ADDRESS}
rpc_address: {ADDRESS}
storage_port: {self.STORAGE_PORT}
native_transport_port: {self.PORT}
endpoint_snitch: SimpleSnitch
commitlog_sync: periodic
commitlog_sync_period: 10000ms
commitlog_segment_size: 16MiB
auto_snapshot: false
flush_compression: table
storage_compatibility_mode: {compatibility}
sstable:
  selected_format: {form}
{settings}""")
        for name, stream in [("logback.xml", "System.out"), ("logback-tools.xml", "System.err")]:
            level = "INFO" if stream == "System.out" else "ERROR"
            (self.conf / name).write_text(
                '<configuration><appender name="O" class="ch.qos.logback.core.ConsoleAppender">'
                f"<target>{stream}</target><encoder><pattern>%-5level %date{{ISO8601}} %msg%n"
                f'</pattern></encoder></appender><root level="{level}"><appender-ref ref="O"/>'
                "</root></configuration>"
            )

    def command(self, main, heap, *arguments, tool=True):
        jamm = next(self.lib.glob("jamm-*.jar"))
        flags = [f"--add-exports={m}=ALL-UNNAMED" for m in EXPORTS]
        flags += [f"--add-opens={m}=ALL-UNNAMED" for m in OPENS]
        flags += [
            "-Djdk.attach.allowAttachSelf=true",
            f"-Xmx{heap}",
            f"-Dcassandra.config=file://{self.conf}/cassandra.yaml",
            f"-Dcassandra.storagedir={self.directory}",
            f"-Dcassandra.logdir={self.directory}",
            "-Duser.timezone=UTC",
            "-Djava.net.preferIPv4Stack=true",
            "-Dio.netty.tryReflectionSetAccessible=true",
        ]
        if tool:
            flags += ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                      f"-Dlogback.configurationFile={self.conf}/logback-tools.xml"]
        else:
            flags += [
                f"-javaagent:{jamm}",
                f"-Xms{heap}", "-Xss512k", "-XX:+UseG1GC",
                f"-Dlogback.configurationFile={self.conf}/logback.xml",
                "-Dcassandra.ring_delay_ms=100",
                "-Dcassandra.skip_wait_for_gossip_to_settle=0",
                f"-Dcassandra.jmx.local.port={self.JMX_PORT}",
                "-Dcassandra-foreground=yes",
            ]
        return [str(self.java), *flags, "-cp", f"{self.conf}:{self.lib}/*", main, *arguments]

    def tool(self, name, *arguments):
        """Output, exit status and errors of a class of org.apache.cassandra.tools."""
        main = f"org.apache.cassandra.tools.{name}"
        if name in self.ANYWHERE | self.REPEATED:
            machines, key = (self.shared, self.written) if name in self.ANYWHERE else (self.own, name)
            machine = machines.pop(key, None) or Tools(self.command("Tools", "512M"))
            result = machine.run(main, *arguments)
            # One that broke is not used again.
            machines[key] = machine
            return result
        command = self.command(main, "512M", *arguments)
        done = subprocess.run(command, capture_output=True, text=True)
        return done.stdout, done.returncode, done.stderr

    def end_tools(self):
        """Ends the Java machines of tools of this directory."""
        while self.own:
            self.own.popitem()[1].end()


class Cassandra(Process):
    def __init__(self, directory, compatibility="CASSANDRA_4", form="big", settings=""):
        self.files = CassandraFiles(directory, compatibility, form, settings)
        command = self.files.command(
            "org.apache.cassandra.service.CassandraDaemon", "1G", tool=False
        )
        super().__init__(command, f"{self.files.directory}.log")

    def __exit__(self, *_):
        self.files.end_tools()
        super().__exit__()

    def connect(self):
        deadline = time.monotonic() + 300
        while True:
            self.check_alive()
            try:
                return connect(self.files.PORT, timeout=2)
            except (NoHostAvailable, OSError):
                if time.monotonic() > deadline:
                    raise

    def nodetool(self, *arguments):
        out, status, errors = self.files.tool(
            "NodeTool", "-h", JMX_ADDRESS, "-p", str(self.files.JMX_PORT), *arguments
        )
        if status != 0:
            raise RuntimeError(f"nodetool {arguments}: {out}{errors}")
        return out

    flush = lambda self: self.nodetool("flush")
    drain = lambda self: self.nodetool("drain")


def copy(source, target):
    """A copy of a data directory, without the lock of a process that has it open."""
    target = Path(target)
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(".lock"))
    return target


def sstables(directory, keyspace):
    """Table name and Data file of each SSTable of a keyspace."""
    found = []
    for file in sorted(Path(directory, "data", keyspace).glob("*/*-Data.db")):
        table = re.fullmatch(r"(.*)-[0-9a-f]{32}", file.parent.name).group(1)
        found.append((table, file))
    return found
