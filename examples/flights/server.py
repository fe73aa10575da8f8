"""The server under the example: found, started, killed at random moments, started again.

Owns: its own child process. Never: signals a process that it did not start.
"""
import pathlib
import random
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time

START_SECONDS_MAX = 180


def answers(host, port):
    """True when an OPTIONS frame is answered by SUPPORTED."""
    try:
        with socket.create_connection((host, port), 1) as connection:
            connection.settimeout(2)
            connection.sendall(struct.pack(">BBHBI", 4, 0, 0, 5, 0))
            head = connection.recv(9)
            return len(head) == 9 and head[4] == 6
    except OSError:
        return False


# Below the range from which the kernel takes ports for outgoing connections: one of those could
# occupy the port between a kill and the restart.
PORTS = iter(range(19400, 19500))


def free_port(host="127.0.0.1"):
    for port in PORTS:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
                return port
            except OSError:
                continue
    raise RuntimeError("no free port from 19400 to 19499")


def helenus_command(binary, workdir, host, port):
    """Command line of a node of its own, on ports that nobody else uses."""
    return [str(binary), "server", "--workdir", str(workdir), "--listen-address", host,
            "--rpc-address", host, "--native-transport-port", str(port),
            "--native-shard-aware-transport-port", str(free_port(host)),
            "--storage-port", str(free_port(host)),
            # A host of another address is a machine of the example's own network.
            "--api-address", host, "--api-login", "none", "--api-port", str(free_port(host))]


class Server:
    """One server process, our own child."""

    def __init__(self, command, host, port, log):
        self.command = shlex.split(command) if isinstance(command, str) else list(command)
        if shutil.which(self.command[0]) is None:
            raise RuntimeError(f"there is no program \"{self.command[0]}\"")
        self.host, self.port = host, port
        self.log = pathlib.Path(log)
        self.child = None
        self.kills = 0

    def start(self):
        if answers(self.host, self.port):
            raise RuntimeError(f"{self.host}:{self.port} is answered by another server")
        with self.log.open("ab") as log:
            self.child = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True)

    def wait_ready(self):
        """Seconds until the server answers."""
        begin = time.monotonic()
        while not answers(self.host, self.port):
            if self.child.poll() is not None:
                raise RuntimeError(
                    f"the server ended with status {self.child.returncode}; see {self.log}")
            if time.monotonic() - begin > START_SECONDS_MAX:
                raise RuntimeError(f"no answer after {START_SECONDS_MAX} s; see {self.log}")
            time.sleep(0.02)
        return time.monotonic() - begin

    def kill(self):
        """SIGKILL. A server that ended by itself before that is an error: it crashed."""
        if self.child.poll() is not None:
            raise RuntimeError(
                f"the server ended by itself with status {self.child.returncode}; see {self.log}")
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()
        self.kills += 1

    def stop(self):
        if self.child is None or self.child.poll() is not None:
            return
        self.child.terminate()
        try:
            self.child.wait(60)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


class Chaos(threading.Thread):
    """Kills the server when the load has reached random points, and starts it again.

    The points are counts of acknowledged rows plus a random delay, so the same seed kills at about
    the same places on a fast and on a slow machine. One restart in three is killed as well, at a
    random moment of its start.
    """

    def __init__(self, server, seed, kills, total, acknowledged, say):
        super().__init__(name="chaos", daemon=True)
        self.server = server
        self.acknowledged = acknowledged
        self.say = say
        self.failure = None
        self.finished = threading.Event()
        self.random = random.Random(seed)
        self.points = sorted(self.random.randrange(total) for _ in range(kills))

    def run(self):
        try:
            for point in self.points:
                while self.acknowledged() < point and not self.finished.is_set():
                    time.sleep(0.002)
                self.strike()
        except Exception as error:  # handed to the loader, which ends the run with it
            self.failure = error

    def strike(self):
        """One kill and restart; returns when the server answers again."""
        time.sleep(self.random.uniform(0, 0.15))
        at = self.acknowledged()
        self.server.kill()
        if self.random.randrange(3) == 0:
            self.server.start()
            time.sleep(self.random.uniform(0, 0.3))
            self.server.kill()
        self.server.start()
        seconds = self.server.wait_ready()
        self.say(f"kill {self.server.kills}: SIGKILL after {at:,} acknowledged rows, "
                 f"answers again after {seconds:.2f} s")
