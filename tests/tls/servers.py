"""The servers under test: Helenus, or a real Cassandra with the same lines of cassandra.yaml."""
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request

HOST = "127.0.0.1"
WAIT = 120


def until(what, condition, seconds=WAIT):
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise RuntimeError(f"not within {seconds} s: {what}")
        time.sleep(0.05)
    return value


def is_open(port):
    try:
        socket.create_connection((HOST, port), timeout=5).close()
        return True
    except OSError:
        return False


class Helenus:
    name = "helenus"
    datacenter = "datacenter1"
    has = {"api", "shard-aware", "subject", "file-change", "optional-certificates", "new-encryption", "early-logins"}

    def __init__(self, binary, work, base):
        self.binary, self.work = binary, work
        self.port, self.shard_port, self.tls_port, self.shard_tls_port = base, base + 1, base + 2, base + 3
        self.api_port, self.storage_port = base + 4, base + 5
        self.process = None
        self.data = work / "data"
        # Flags of nodetool: how the API of the running configuration is reached.
        self.api_flags = []

    def wipe(self):
        shutil.rmtree(self.data, ignore_errors=True)

    def command(self, options, *flags):
        self.data.mkdir(parents=True, exist_ok=True)
        config = self.work / "cassandra.yaml"
        config.write_text(options)
        return [
            self.binary, "server", "--workdir", self.data, "--config", config, "--memory", "512MiB", "--smp", "2",
            "--native-transport-port", str(self.port), "--native-shard-aware-transport-port", str(self.shard_port),
            "--api-port", str(self.api_port), "--storage-port", str(self.storage_port), *flags,
        ]

    def start(self, options, *flags):
        self.log = open(self.work / "server.log", "w+")
        self.process = subprocess.Popen(self.command(options, *flags), stdout=self.log, stderr=subprocess.STDOUT)

        def ready():
            if self.process.poll() is not None:
                raise RuntimeError(f"the server has ended:\n{self.logged()}")
            return is_open(self.port)

        until("the server listens", ready)

    def logged(self):
        return (self.work / "server.log").read_text()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(WAIT)
        self.log.close()
        if status != 0:
            raise RuntimeError(f"the server ended with {status}:\n{self.logged()}")

    def refusal(self, options):
        """Why a start is refused; nothing if it is not."""
        done = subprocess.run(self.command(options), capture_output=True, text=True, timeout=WAIT)
        return done.stdout + done.stderr if done.returncode > 0 else ""

    def fetch(self, path):
        with urllib.request.urlopen(f"http://{HOST}:{self.api_port}{path}", timeout=WAIT) as answer:
            return answer.read().decode()

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def nodetool(self, *arguments):
        return subprocess.run([self.binary, "nodetool", "-p", str(self.api_port), *self.api_flags, *arguments],
                              capture_output=True, text=True, timeout=WAIT, env=os.environ | {"NO_COLOR": "1"})


class Cassandra:
    """By a script that starts and stops one: CASSANDRA_PEER."""

    name = "cassandra"
    datacenter = "datacenter1"
    has = set()

    def __init__(self, script, work, base):
        self.script, self.work = script, work
        self.port, self.tls_port = base + 10, base + 12
        self.environment = os.environ | {
            "PEER_PORT": str(self.port), "PEER_STORAGE_PORT": str(base + 11), "PEER_JMX_PORT": str(base + 13),
            "PEER_YAML": str(work / "lines.yaml"), "PEER_DRAIN": "0", "PEER_INSTANCE": "tlsout", "PEER_HEAP": "1G",
        }

    def peer(self, *arguments):
        return subprocess.run([self.script, *arguments], capture_output=True, text=True, env=self.environment)

    def wipe(self):
        self.peer("wipe")

    def start(self, options, *_flags):
        (self.work / "lines.yaml").write_text(options)
        starting = subprocess.Popen([self.script, "start"], env=self.environment, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True)

        def ready():
            if starting.poll() not in (None, 0):
                raise RuntimeError(f"Cassandra does not start: {starting.stdout.read()}")
            return is_open(self.port)

        # The script itself waits for an answer in the clear.
        until("Cassandra listens", ready, 300)
        starting.terminate()
        starting.wait()

    def logged(self):
        return ""

    def stop(self):
        self.peer("stop")

    kill = stop

    def nodetool(self, *arguments):
        return self.peer("nodetool", *arguments)
