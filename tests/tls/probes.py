"""The drivers: a small program for each, which takes requests on its standard input."""
import os
import select
import subprocess

WAIT = 120


class Probe:
    """One driver. What it can: `ignores_names`, unless it always compares the certificate with the address."""

    def __init__(self, name, command, log, ignores_names=True, **environment):
        self.name, self.ignores_names = name, ignores_names
        self.process = subprocess.Popen(
            [*map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            env=os.environ | environment,
        )

    def send(self, verb, fields):
        words = [verb, *(f"{name}={value}" for name, value in fields.items() if value is not None)]
        self.process.stdin.write("\t".join(words) + "\n")
        self.process.stdin.flush()

    def receive(self):
        """Whether it succeeded, and the text of the answer."""
        if not select.select([self.process.stdout], [], [], WAIT)[0]:
            raise RuntimeError(f"{self.name} does not answer")
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} has ended: {self.process.wait()}")
        kind, _, text = line.rstrip("\n").partition(" ")
        return kind == "ok", text

    def ask(self, verb, fields):
        self.send(verb, fields)
        return self.receive()

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start(here, drivers, log):
    """All probes; `drivers` is where run.sh has put them."""
    return [
        Probe("python", [drivers / "python-cassandra/bin/python", "-B", here / "python/probe.py"], log),
        Probe("java", ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp",
                       f"{drivers}/tls-java:{drivers}/java/lib/*", "probe.Probe"], log),
        Probe("go", [drivers / "tls-go"], log),
        Probe("node", ["node", here / "node/probe.js"], log, NODE_PATH=str(drivers / "node/node_modules")),
        Probe("rust", [drivers / "rust/debug/tls-probe-rust"], log, ignores_names=False),
    ]
