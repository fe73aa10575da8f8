"""The node, its ports, its directory, and its end."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO, Mapping, Sequence, Union

Setting = Union[str, int, float, bool, Sequence[str], Mapping[str, object]]

#: The node logs this once it serves clients; nothing can refuse the start afterwards.
_READY = b"Startup complete"

#: The server's exit code for an address that is in use.
_ADDRESS_IN_USE = 5

#: Attempts with other ports: another process may take a port between its choice and its use.
_ATTEMPTS = 5

#: Free bytes that a directory in memory must have. The node refuses writes below 50 MiB.
_ROOM = 512 << 20

#: The directory in memory of Linux.
_MEMORY_DIRECTORY = "/dev/shm"

#: Lines of the log that an error shows.
_LINES_SHOWN = 20


class StartError(RuntimeError):
    """The node did not start. The message has the last lines of its log."""


class StatementError(RuntimeError):
    """A statement of :meth:`Node.cql` or a command of :meth:`Node.nodetool` failed."""


def binary_path() -> str:
    """Returns the path of the server that this package carries."""
    path = Path(__file__).parent / "bin" / "helenus"
    if not path.is_file():
        raise StartError(f"this package carries no server: {path} is missing")
    if not os.access(path, os.X_OK):
        # An installer that unpacks archives without their modes.
        path.chmod(0o755)
    return str(path)


class Node:
    """A running node.

    Settings are those of the server (``authenticator="PasswordAuthenticator"``, ``smp=2``,
    ``memory="1GiB"``); without them the node has one shard, 256 MiB, and takes no snapshots of
    dropped tables. A setting may be a text, a number, a bool, a list or a dict.

    :param directory: where the data lie. They stay there, for a later node on the same directory.
        Without it they are removed with the node.
    :param binary: the server; without it the one that the package carries.
    :param timeout: seconds until a start that is not complete is an error.
    """

    #: Address of every listener.
    host: str = "127.0.0.1"
    #: Port for CQL clients.
    port: int
    #: Port for shard-aware drivers.
    shard_aware_port: int
    #: Port for nodetool, the HTTP API and ``/metrics``.
    api_port: int
    #: Directory of the data.
    directory: str
    #: File with everything that the node has logged.
    log_path: str

    def __init__(
        self,
        *,
        directory: str | os.PathLike[str] | None = None,
        binary: str | os.PathLike[str] | None = None,
        timeout: float = 30.0,
        **settings: Setting,
    ) -> None:
        self._owner = os.getpid()
        self._binary = os.fspath(binary) if binary is not None else binary_path()
        arguments = _arguments(settings)
        deadline = time.monotonic() + timeout
        for attempt in range(1, _ATTEMPTS + 1):
            self._start(arguments, settings, directory)
            code = self._wait(deadline, timeout)
            if code is None:
                return
            message = self._failure(f"the node ended with exit code {code}")
            self._remove()
            if code != _ADDRESS_IN_USE or attempt == _ATTEMPTS:
                raise StartError(message)

    @property
    def contact_point(self) -> str:
        """``host:port`` for CQL clients."""
        return f"{self.host}:{self.port}"

    @property
    def is_running(self) -> bool:
        """Whether the node has neither been shut down nor ended otherwise."""
        return self._process.poll() is None

    def cql(self, statements: str, *, keyspace: str | None = None, user: str | None = None,
            password: str | None = None) -> str:
        """Runs statements with the package's own ``cqlsh``; returns what it prints.

        For the setup of tests that need no driver for it.
        """
        arguments = [self.host, str(self.port), "-e", statements]
        for option, value in (("-k", keyspace), ("-u", user), ("-p", password)):
            if value is not None:
                arguments += [option, value]
        return self._tool("cqlsh", arguments)

    def nodetool(self, *arguments: str) -> str:
        """Runs a command of nodetool on the node; returns what it prints."""
        return self._tool("nodetool", ["-h", self.host, "-p", str(self.api_port), *arguments])

    def log(self) -> str:
        """Returns what the node has logged so far."""
        return Path(self.log_path).read_text(encoding="utf-8", errors="replace")

    def shutdown(self) -> None:
        """Ends the node and removes its data, unless they lie in a directory of the caller's.

        Further calls have no effect. A node with a directory of the caller's is drained first.
        """
        if os.getpid() != self._owner:
            # A forked process has copies of the objects; the node is its parent's.
            return
        if self._process.stdin is not None and not self._process.stdin.closed:
            _end(self._process.stdin)
        self._process.wait()

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        return f"<helenus.Node {self.contact_point}>"

    def _start(self, arguments: list[str], settings: Mapping[str, Setting],
               directory: str | os.PathLike[str] | None) -> None:
        if directory is None:
            # The log lies beside the data, so that one removal takes both.
            home = tempfile.mkdtemp(prefix="helenus-test-", dir=_base())
            self.directory, removed, signal = os.path.join(home, "data"), home, "KILL"
        else:
            home = os.path.abspath(os.fspath(directory))
            os.makedirs(home, exist_ok=True)
            self.directory, removed, signal = home, "", "TERM"
        self._removed = removed
        self.log_path = os.path.join(home, "node.log")
        Path(self.log_path).write_bytes(b"")
        ports = _free_ports(3)
        named = ["native_transport_port", "native_shard_aware_transport_port", "api_port"]
        ports = [int(str(settings.get(name, port))) for name, port in zip(named, ports)]
        self.port, self.shard_aware_port, self.api_port = ports
        listeners = [_argument(name, port) for name, port in zip(named, ports)]
        self._process = subprocess.Popen(
            ["/bin/sh", str(Path(__file__).parent / "supervise.sh"), signal, removed,
             self.log_path, self._binary, "server", f"--workdir={self.directory}",
             *listeners, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            # Ctrl-C in a terminal is for the tests, which end the node.
            start_new_session=True,
        )

    def _wait(self, deadline: float, timeout: float) -> int | None:
        """Waits for the start; the exit code of a node that has ended instead."""
        with open(self.log_path, "rb") as log:
            seen = b""
            while True:
                code = self._process.poll()
                seen = seen[-len(_READY):] + log.read()
                if _READY in seen:
                    return None
                if code is not None:
                    self._log_at_end = _tail(log)
                    return code
                if time.monotonic() > deadline:
                    self._log_at_end = _tail(log)
                    message = self._failure(f"the node did not start within {timeout:g} s")
                    self.shutdown()
                    raise StartError(message)
                time.sleep(0.001)

    def _failure(self, sentence: str) -> str:
        return f"{sentence}; the end of its log:\n{self._log_at_end}"

    def _remove(self) -> None:
        if self._process.stdin is not None:
            _end(self._process.stdin)
        if self._removed:
            shutil.rmtree(self._removed, ignore_errors=True)

    def _tool(self, tool: str, arguments: list[str]) -> str:
        run = subprocess.run([self._binary, tool, *arguments], stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, env=_environment(), check=False)
        if run.returncode != 0:
            printed = (run.stderr.strip() or run.stdout.strip()) or "it printed nothing"
            raise StatementError(f"{tool} ended with exit code {run.returncode}: {printed}")
        return run.stdout


def _base() -> str:
    """Returns the directory for the data of tests: in memory if there is room."""
    try:
        room = os.statvfs(_MEMORY_DIRECTORY)
        if room.f_bavail * room.f_frsize >= _ROOM and os.access(_MEMORY_DIRECTORY, os.W_OK):
            return _MEMORY_DIRECTORY
    except OSError:
        pass
    return tempfile.gettempdir()


def _free_ports(count: int) -> list[int]:
    """Returns ports that were free a moment ago. All are open together, so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((Node.host, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _arguments(settings: Mapping[str, Setting]) -> list[str]:
    """Returns the command line for settings. Ports are added by the start."""
    taken = {"workdir": "directory=", "rpc_address": None, "api_address": None}
    for name, instead in taken.items():
        if name in settings:
            hint = f"; use {instead}" if instead else ""
            raise ValueError(f"the setting {name} is chosen by helenus.Node{hint}")
    if str(settings.get("log_level", "info")) in ("warn", "error"):
        raise ValueError("log_level: the start is recognised by a line of the level info")
    with_defaults = {"smp": 1, "memory": "256MiB", "auto_snapshot": False, **settings}
    ports = ("native_transport_port", "native_shard_aware_transport_port", "api_port")
    return [_argument(name, value) for name, value in with_defaults.items() if name not in ports]


def _argument(name: str, value: Setting) -> str:
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, Mapping):
        text = json.dumps(value)
    elif isinstance(value, (list, tuple)):
        text = ",".join(str(each) for each in value)
    else:
        text = str(value)
    return f"--{name.replace('_', '-')}={text}"


def _environment() -> dict[str, str]:
    """Returns the environment without the settings of a server that runs here otherwise."""
    return {k: v for k, v in os.environ.items() if not k.startswith("HELENUS_")}


def _end(stdin: IO[bytes]) -> None:
    """Makes the supervisor end the node.

    The end of the pipe alone would not do: a process that was forked meanwhile holds it open.
    """
    try:
        stdin.write(b"\n")
        stdin.close()
    except OSError:
        # The supervisor has ended with the node.
        pass


def _tail(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode("utf-8", errors="replace").splitlines()
    return "\n".join(lines[-_LINES_SHOWN:])
