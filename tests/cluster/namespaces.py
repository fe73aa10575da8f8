"""The two data centers in network namespaces: real cables that are cut, real latency between them.

Needs the right to make network namespaces (root) and `ip` of iproute2; latency needs `tc` and a kernel
with netem. Nothing is made outside the namespaces, and all of them are removed at the end:

    hlns-n1 … hlns-n6   a node each: 10.77.1.1 to 10.77.1.3 and 10.77.2.1 to 10.77.2.3
    hlns-switch         a bridge for each data center, and the route between them
    hlns-client         this program, with a leg in each data center
"""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import time

from cassandra import ConsistencyLevel

from cluster import PATIENCE, Nodes, until
from datacenters import ROWS, Datacenters
from faults import Six

PREFIX = "hlns-"
SWITCH, CLIENT = PREFIX + "switch", PREFIX + "client"
NUMBERS = range(1, 7)
CLONE_NEWNET = 0x40000000
LATENCY = "5ms"


def run(*words, check=True):
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done


def ip(*words):
    return run("ip", *words)


def missing():
    """Why this cannot run here; empty when it can."""
    if shutil.which("ip") is None:
        return "there is no program \"ip\""
    name = PREFIX + "probe"
    made = run("ip", "netns", "add", name, check=False)
    if made.returncode != 0:
        return f"network namespaces cannot be made: {made.stderr.strip()}"
    linked = run("ip", "-n", name, "link", "add", "probe0", "type", "bridge", check=False)
    run("ip", "netns", "del", name, check=False)
    return "" if linked.returncode == 0 else f"no bridge can be made: {linked.stderr.strip()}"


def enter(name):
    """This thread, and those that it starts, in another namespace; how to come back."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    wanted = os.open(f"/run/netns/{name}", os.O_RDONLY)
    change(wanted)
    os.close(wanted)
    return before


def change(descriptor):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def datacenter(number):
    return 1 + (number - 1) % 2


def address(number):
    return f"10.77.{datacenter(number)}.{(number + 1) // 2}"


class Network:
    """The namespaces, bridges and cables."""

    def make(self):
        self.remove()
        for name in (SWITCH, CLIENT, *(f"{PREFIX}n{n}" for n in NUMBERS)):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        for dc in (1, 2):
            ip("-n", SWITCH, "link", "add", f"dc{dc}", "type", "bridge")
            ip("-n", SWITCH, "addr", "add", f"10.77.{dc}.254/24", "dev", f"dc{dc}")
            ip("-n", SWITCH, "link", "set", f"dc{dc}", "up")
            self.plug(CLIENT, f"eth{dc}", f"client{dc}", dc, f"10.77.{dc}.100")
        for number in NUMBERS:
            name = f"{PREFIX}n{number}"
            self.plug(name, "eth0", f"port{number}", datacenter(number), address(number))
            ip("-n", name, "route", "add", "default", "via", f"10.77.{datacenter(number)}.254")
        self.route(True)

    def plug(self, name, device, port, dc, at):
        ip("-n", SWITCH, "link", "add", port, "type", "veth", "peer", "name", device, "netns", name)
        ip("-n", SWITCH, "link", "set", port, "master", f"dc{dc}", "up")
        ip("-n", name, "addr", "add", f"{at}/24", "dev", device)
        ip("-n", name, "link", "set", device, "up")

    def route(self, is_open):
        """Between the data centers. Closed, packets vanish."""
        run("ip", "netns", "exec", SWITCH, "sh", "-c",
            f"echo {int(is_open)} > /proc/sys/net/ipv4/ip_forward")

    def cable(self, number, is_plugged):
        """Of one node, at the switch: the node does not notice."""
        ip("-n", SWITCH, "link", "set", f"port{number}", "up" if is_plugged else "down")

    def delay(self):
        """Latency between the data centers; why there is none."""
        if shutil.which("tc") is None:
            return "there is no program \"tc\""
        for dc in (1, 2):
            # What the bridge itself sends is what is routed.
            done = run("tc", "-n", SWITCH, "qdisc", "add", "dev", f"dc{dc}", "root", "netem",
                       "delay", LATENCY, check=False)
            if done.returncode != 0:
                return f"the kernel has no netem: {done.stderr.strip()}"
        return ""

    def remove(self):
        for line in run("ip", "netns", "list").stdout.splitlines():
            name = line.split()[0]
            if name.startswith(PREFIX):
                ip("netns", "del", name)


class Servers(Nodes):
    """The six nodes, each in its namespace, under the commands of `helenus cluster`."""

    def __init__(self, helenus, work, name):
        super().__init__(helenus, work, name)
        self.network = Network()
        self.processes = {}
        self.home = None

    def clean(self):
        if self.directory.exists():
            shutil.rmtree(self.directory)
        self.directory.mkdir(parents=True)
        self.network.make()
        self.home = enter(CLIENT)

    def cluster(self, command, *arguments, check=True):
        number = int(arguments[0]) if arguments and arguments[0].isdigit() else 0
        if command == "start":
            for each in NUMBERS:
                (self.directory / f"node{each}").mkdir()
                self.start(each)
            for each in NUMBERS:
                until(f"node {each} serves clients", lambda: self.answers(each))
        elif command == "partition":
            # The two data centers.
            self.network.route(False)
        elif command == "heal":
            self.network.route(True)
        elif command == "kill":
            self.stop(number, signal.SIGKILL)
        elif command == "pause":
            self.processes[number].send_signal(signal.SIGSTOP)
        elif command == "resume":
            self.processes[number].send_signal(signal.SIGCONT)
        elif command == "start-node":
            self.start(number)
        elif command == "restart":
            assert self.stop(number, signal.SIGTERM) == 0, f"node {number}; see its log"
            self.start(number)
        elif command == "replace":
            shutil.rmtree(self.directory / f"node{number}")
            (self.directory / f"node{number}").mkdir()
            self.start(number, "--replace-address-first-boot", address(number))
        else:
            raise AssertionError(f"{command} is not there with namespaces")

    def stop(self, number, how):
        self.processes[number].send_signal(how)
        return self.processes[number].wait(PATIENCE)

    def start(self, number, *more):
        work = self.directory / f"node{number}"
        (work / "cassandra-rackdc.properties").write_text(
            f"dc=datacenter{datacenter(number)}\nrack=rack{(number + 1) // 2}\n")
        at = address(number)
        seed = address(2 if number == 1 and more else 1)
        with open(self.directory / f"node{number}.log", "ab") as log:
            self.processes[number] = subprocess.Popen(
                ["ip", "netns", "exec", f"{PREFIX}n{number}", self.helenus, "server",
                 "--workdir", str(work), "--cluster-name", "namespaces", "--smp", "1",
                 "--memory", "160M", "--listen-address", at, "--rpc-address", at,
                 "--api-address", at, "--api-login", "none", "--seeds", f"{seed}:7000",
                 "--endpoint-snitch", "GossipingPropertyFileSnitch",
                 "--phi-convict-threshold", "5", *more],
                cwd=work, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def answers(self, number):
        assert self.processes[number].poll() is None, f"node {number} ended; see its log"
        try:
            with socket.create_connection((address(number), 9042), 1):
                return True
        except OSError:
            return False

    def nodetool(self, node, *arguments, check=True):
        """Asked on the node's own side, which is there when its cable is not."""
        done = run("ip", "netns", "exec", f"{PREFIX}n{node}", self.helenus, "nodetool", "-h",
                   address(node), *arguments, check=check)
        return done.stdout

    def end(self):
        for process in self.processes.values():
            # `ip netns exec` became the node.
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)
        codes = []
        for process in self.processes.values():
            try:
                codes.append(process.wait(PATIENCE))
            except subprocess.TimeoutExpired:
                process.kill()
                codes.append(process.wait())
        if self.home is not None:
            change(self.home)
            os.close(self.home)
        self.network.remove()
        return all(code == 0 for code in codes)


class Namespaces(Datacenters):
    """The same as with `helenus cluster`, and a cable that is pulled out."""

    FIRST = [address(n) for n in (1, 3, 5)]
    SECOND = [address(n) for n in (2, 4, 6)]
    Nodes = Servers

    def latency(self):
        """From here on there is a way to go between the data centers, where the kernel can do that."""
        why = self.nodes.network.delay()
        if why:
            print(f"       no latency between the data centers: {why}")
            return
        began = time.monotonic()
        self.write(1, range(5000, 5010), "far", ConsistencyLevel.EACH_QUORUM)
        # There and back, ten times.
        assert time.monotonic() - began >= 10 * 2 * 0.005, "no latency"

    def pull_a_cable(self):
        """One node loses its network for a while, with its connections open."""
        self.nodes.network.cable(3, False)
        keys = range(6000, 6000 + ROWS)
        wrote = []
        for key in keys:
            try:
                self.write(1, [key], "pulled", ConsistencyLevel.LOCAL_QUORUM)
                wrote.append(key)
            except Exception as error:
                assert "Timeout" in repr(error) or "Unavailable" in repr(error), error
        assert len(wrote) > ROWS // 2, f"{len(wrote)} of {ROWS} acknowledged with two of three nodes"
        down = self.all("UN", "UN") | {address(3): "DN"}
        until("node 3 is down", lambda: self.nodes.letters(1) == down)
        self.nodes.network.cable(3, True)
        self.everybody_up()
        until("node 3 has what it missed", lambda: self.check(
            3, wrote, "pulled", ConsistencyLevel.ONE) is None)

    PHASES = [*Datacenters.PHASES, latency, pull_a_cable]


class NamespaceDrivers(Six):
    """Four drivers under faults, with real cables and, where the kernel has netem, a way to go."""

    ADDRESSES = [address(number) for number in NUMBERS]
    Nodes = Servers

    def latency(self):
        why = self.nodes.network.delay()
        print(f"       {why or LATENCY + ' between the data centers'}")

    def pull_a_cable(self):
        """Its node is reached by nobody, clients neither, with all connections open."""
        self.nodes.network.cable(1, False)
        expected = {a: "UN" if a == self.ADDRESSES[0] else "DN" for a in self.ADDRESSES}
        until("node 1 sees nobody", lambda: self.nodes.letters(1) == expected)
        self.all_go_on("while the cable of node 1 is out")
        self.nodes.network.cable(1, True)
        self.everybody_up()

    PHASES = [Six.start, latency, Six.load, Six.kill, Six.pause, pull_a_cable, Six.cut_data_centers,
              Six.rolling_restart, Six.replace, Six.end]
