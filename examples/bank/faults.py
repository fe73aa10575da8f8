"""The cluster under the bank, and what is done to it meanwhile, through `helenus cluster`.

Owns: a cluster that it starts in a directory of its own and stops at the end.
"""
import random
import shutil
import subprocess
import threading
import time
from pathlib import Path

FAULTS = ("kill", "pause", "cut", "restart", "replace")
COMMAND_SECONDS_MAX = 240


class LocalCluster:
    def __init__(self, helenus, directory, nodes, datacenters):
        self.helenus = str(Path(helenus).resolve())
        self.directory = Path(directory)
        self.nodes = nodes
        self.datacenters = datacenters

    def run(self, command, *arguments, check=True):
        done = subprocess.run(
            [self.helenus, "cluster", command, "--dir", str(self.directory), *map(str, arguments)],
            capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, check=False)
        if check and done.returncode != 0:
            raise RuntimeError(f"helenus cluster {command}: {done.stdout}{done.stderr}")
        return done

    def start(self):
        if self.directory.exists():
            self.run("stop", check=False)
            shutil.rmtree(self.directory)
        # A dead node counts as dead sooner than by default: only then can it be replaced.
        self.run("start", "--nodes", self.nodes, "--dcs", self.datacenters, "--smp", 1,
                 "--memory", "192M", "--", "--phi-convict-threshold", "5")

    def stop(self):
        self.run("stop")

    def addresses(self, datacenter=None):
        """Of all nodes, or of one data center; nodes are given to them in turn."""
        wanted = [n for n in range(1, self.nodes + 1)
                  if datacenter is None or (n - 1) % self.datacenters == datacenter]
        return [f"127.0.0.{n}" for n in wanted]


class Faults(threading.Thread):
    """One fault after the other until told to stop; then everything is whole again.

    The seed decides which nodes and how long. With two data centers, links are cut between them:
    the clients work in the first one, at LOCAL levels.
    """

    def __init__(self, cluster, kinds, seed, say):
        super().__init__(name="faults", daemon=True)
        self.cluster = cluster
        self.kinds = list(kinds)
        self.random = random.Random(seed)
        self.say = say
        self.done = threading.Event()
        self.failure = None
        self.counts = dict.fromkeys(self.kinds, 0)

    def run(self):
        try:
            while not self.done.is_set():
                # Each kind once, in a new order, before any comes again.
                for kind in self.random.sample(self.kinds, len(self.kinds)):
                    if self.done.wait(self.random.uniform(0.5, 2)):
                        return
                    began = time.monotonic()
                    text = getattr(self, kind)()
                    self.counts[kind] += 1
                    self.say(f"fault: {text} ({time.monotonic() - began:.1f} s)")
        except Exception as error:  # told by who waits for this thread
            self.failure = error

    def all_seen(self):
        return all(self.counts.values())

    def node(self):
        return self.random.randint(1, self.cluster.nodes)

    def hold(self, least, most):
        """While a fault lasts. It is ended also when the run is."""
        self.done.wait(self.random.uniform(least, most))

    def kill(self):
        node = self.node()
        self.cluster.run("kill", node)
        self.hold(0.5, 4)
        self.cluster.run("start-node", node)
        return f"node {node} killed and started again"

    def pause(self):
        node = self.node()
        # Shorter than two statements: see "Late clients and late statements" in README.md.
        self.cluster.run("pause", node)
        self.hold(0.5, 6)
        self.cluster.run("resume", node)
        return f"node {node} paused"

    def cut(self):
        if self.cluster.datacenters > 1:
            cut = ",".join(str(n) for n in range(1, self.cluster.nodes + 1, self.cluster.datacenters))
            text = "links between the data centers cut"
        else:
            cut = self.node()
            text = f"node {cut} cut off"
        self.cluster.run("partition", cut)
        self.hold(2, 9)
        self.cluster.run("heal")
        return text

    def restart(self):
        for node in range(1, self.cluster.nodes + 1):
            self.cluster.run("restart", node)
        return "rolling restart"

    def replace(self):
        node = self.node()
        self.cluster.run("kill", node)
        self.hold(1, 2)
        # Refused while the others take the dead one for alive.
        deadline = time.monotonic() + COMMAND_SECONDS_MAX
        while True:
            done = self.cluster.run("replace", node, check=False)
            if done.returncode == 0:
                return f"node {node} killed and replaced"
            if time.monotonic() > deadline:
                raise RuntimeError(f"node {node} was not replaced: {done.stderr}")
            time.sleep(1)

    def finish(self):
        """Ends the faults; raises what went wrong with one."""
        self.done.set()
        self.join()
        if self.failure is not None:
            raise self.failure
