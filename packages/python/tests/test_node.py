"""The wheel as it is installed: nodes, their end, errors, the fixtures under pytest and pytest-xdist."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import helenus
import pytest
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, NoHostAvailable
from helenus import _node

EXAMPLE = os.environ["EXAMPLE"]
KEYSPACE = "CREATE KEYSPACE {} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"


def first_answer(node, login=None):
    with Cluster([node.host], port=node.port, auth_provider=login) as cluster:
        return cluster.connect().execute("SELECT cluster_name FROM system.local").one()[0]


def is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def processes_with(text):
    """Returns the ids of processes whose command line has a text."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                if text.encode() in file.read():
                    found.append(int(entry))
        except OSError:
            pass
    return found


def until(condition):
    """Waits for a condition; a minute is for a machine that has stalled."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited for a minute"
        time.sleep(0.005)


def test_a_driver_connects_while_the_node_runs_and_not_after():
    with helenus.Node() as node:
        assert node.contact_point == f"127.0.0.1:{node.port}"
        assert first_answer(node) == "Test Cluster"
        assert node.is_running and is_open(node.api_port)
    assert not node.is_running
    with pytest.raises(NoHostAvailable):
        first_answer(node)


def test_the_end_removes_the_data_and_the_processes():
    node = helenus.Node()
    home = os.path.dirname(node.directory)
    assert os.path.isdir(node.directory) and len(processes_with(home)) >= 2
    node.shutdown()
    node.shutdown()
    assert not os.path.exists(home)
    assert processes_with(home) == []


def test_data_are_in_memory_where_there_is_room(monkeypatch, tmp_path):
    room = os.statvfs("/dev/shm")
    if room.f_bavail * room.f_frsize >= _node._ROOM:
        assert _node._base() == "/dev/shm"
    monkeypatch.setattr(_node, "_ROOM", 1 << 62)
    monkeypatch.setattr(_node.tempfile, "tempdir", str(tmp_path))
    with helenus.Node() as node:
        assert node.directory.startswith(str(tmp_path))
        assert first_answer(node) == "Test Cluster"


def test_two_nodes_at_once_are_apart():
    with helenus.Node() as one, helenus.Node() as other:
        assert len({one.port, one.api_port, other.port, other.api_port}) == 4
        one.cql(KEYSPACE.format("only_here"))
        assert "only_here" in one.cql("DESCRIBE KEYSPACES")
        assert "only_here" not in other.cql("DESCRIBE KEYSPACES")


@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_node_ends_with_its_parent(way):
    program = (
        "import helenus, time\n"
        "node = helenus.Node()\n"
        "print(node.directory, node.port, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)
    directory, port = parent.stdout.readline().split()
    home = os.path.dirname(directory)
    assert is_open(int(port)) and processes_with(home)
    parent.send_signal(way)
    parent.communicate()
    until(lambda: not processes_with(home) and not os.path.exists(home))
    assert not is_open(int(port))


def test_a_forked_process_does_not_end_the_node_of_its_parent_nor_hold_it():
    with helenus.Node() as node:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(write)
            node.shutdown()
            os.read(read, 1)
            os._exit(0)
        os.close(read)
        assert first_answer(node) == "Test Cluster"
        # The child lives and has the pipe to the node open.
        node.shutdown()
        assert not node.is_running
        os.close(write)
        os.waitpid(child, 0)


def test_an_error_of_the_start_shows_the_log(tmp_path):
    with pytest.raises(helenus.StartError) as refused:
        helenus.Node(no_such_setting=1)
    assert "exit code 2" in str(refused.value)
    assert "unknown option --no-such-setting" in str(refused.value)
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\necho still reading\nexec tail -f /dev/null\n", encoding="utf-8")
    silent.chmod(0o755)
    with pytest.raises(helenus.StartError, match="did not start within 0.5 s.*\nstill reading"):
        helenus.Node(binary=silent, timeout=0.5)
    assert processes_with(str(silent)) == []


def test_settings_reach_the_server(tmp_path):
    with helenus.Node(authenticator="PasswordAuthenticator", cluster_name="Of Tests",
                      table_properties_disallowed=["comment", "gc_grace_seconds"]) as node:
        with pytest.raises(NoHostAvailable):
            first_answer(node)
        assert first_answer(node, PlainTextAuthProvider("cassandra", "cassandra")) == "Of Tests"
        with pytest.raises(helenus.StatementError, match="exit code 1"):
            node.cql("SELECT * FROM system.local")
        assert "Of Tests" in node.cql("SELECT cluster_name FROM system.local", user="cassandra",
                                      password="cassandra")
    disks = [str(tmp_path / "one"), str(tmp_path / "two")]
    with helenus.Node(data_file_directories=disks, auto_snapshot=True,
                      commitlog_compression={"class_name": "LZ4Compressor"}) as node:
        settings = node.cql("SELECT name, value FROM system_views.settings")
        assert re.search(r"commitlog_compression \| +LZ4Compressor\n", settings)
        assert re.search(rf"data_file_directories \| +{', '.join(disks)}\n", settings)
        assert re.search(r"auto_snapshot \| +true\n", settings)
        assert re.search(r"memory \| +256MiB\n", settings), settings
        with pytest.raises(helenus.StatementError, match="exit code 2: .*SyntaxException"):
            node.cql("SELECT nothing")
    for setting in ({"workdir": "/tmp/x"}, {"rpc_address": "::1"}, {"log_level": "error"}):
        with pytest.raises(ValueError, match=next(iter(setting))):
            helenus.Node(**setting)


def test_another_program_on_the_port_leads_to_other_ports(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        choices = [[taken.getsockname()[1], *_node._free_ports(2)]]
        choose = _node._free_ports
        monkeypatch.setattr(_node, "_free_ports",
                            lambda count: choices.pop() if choices else choose(count))
        with helenus.Node() as node:
            assert choices == []
            assert node.port != taken.getsockname()[1]
            assert first_answer(node) == "Test Cluster"
        with pytest.raises(helenus.StartError, match="exit code 5"):
            helenus.Node(native_transport_port=taken.getsockname()[1])


def test_a_directory_of_the_caller_keeps_the_data(tmp_path):
    with helenus.Node(directory=tmp_path) as node:
        node.cql(f"{KEYSPACE.format('k')}; CREATE TABLE k.t (k int PRIMARY KEY);"
                 " INSERT INTO k.t (k) VALUES (42)")
    assert "draining and stopping" in node.log()
    with helenus.Node(directory=tmp_path) as node:
        assert "42" in node.cql("SELECT * FROM k.t")


def test_settings_of_the_environment_do_not_reach_the_node(monkeypatch):
    monkeypatch.setenv("HELENUS_CLUSTER_NAME", "Production")
    with helenus.Node() as node:
        assert first_answer(node) == "Test Cluster"
        assert "Test Cluster" in node.nodetool("describecluster")


def run_example(*arguments, example=EXAMPLE):
    run = subprocess.run(
        [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, example],
        capture_output=True, text=True, check=False,
    )
    return run.returncode, run.stdout


def test_the_example_passes():
    code, printed = run_example()
    assert code == 0 and "2 passed" in printed, printed


def test_the_example_passes_in_parallel_with_a_node_for_each_worker():
    code, printed = run_example("-n", "2")
    assert code == 0 and "2 passed" in printed, printed


def test_the_example_fails_without_a_node(tmp_path):
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    (tmp_path / "conftest.py").write_text(
        "import helenus, pytest\n"
        "@pytest.fixture(scope='session')\n"
        "def helenus_node():\n"
        "    with helenus.Node() as node:\n"
        "        node.shutdown()\n"
        "        yield node\n",
        encoding="utf-8",
    )
    code, printed = run_example(example=str(tmp_path))
    assert code == 1 and "2 errors" in printed and "StatementError" in printed, printed


def test_the_settings_of_a_run_are_a_fixture(tmp_path):
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    (tmp_path / "conftest.py").write_text(
        "import pytest\n"
        "@pytest.fixture(scope='session')\n"
        "def helenus_settings():\n"
        "    return {'authenticator': 'PasswordAuthenticator'}\n"
        "@pytest.fixture(scope='session')\n"
        "def helenus_login():\n"
        "    return {'user': 'cassandra', 'password': 'cassandra'}\n",
        encoding="utf-8",
    )
    code, printed = run_example(example=str(tmp_path))
    assert code == 0 and "2 passed" in printed, printed


def test_the_program_is_on_the_path_of_the_environment():
    program = os.path.join(os.path.dirname(sys.executable), "helenus")
    printed = subprocess.run([program, "version"], capture_output=True, text=True, check=True).stdout
    assert re.match(rf"helenus {re.escape(helenus.__version__)} ", printed)
