"""Ctrl-C at a terminal, while the server answers nothing: back to the prompt, and the shell goes on."""
import os
import pty
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HOST = os.environ.get("HELENUS_HOST", "127.0.0.1")
PORT = int(os.environ.get("HELENUS_PORT", "9042"))
OURS = shlex.split(os.environ["HELENUS_CQLSH"])


class Proxy:
    """Passes bytes on to the server and back, unless it is told to hold the answers."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.flows = threading.Event()
        self.flows.set()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection((HOST, PORT))
            threading.Thread(target=self.copy, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self.copy, args=(server, client, True), daemon=True).start()

    def copy(self, source, target, held):
        try:
            while data := source.recv(65536):
                if held:
                    self.flows.wait()
                target.sendall(data)
        except OSError:
            pass
        target.close()


class Terminal:
    def __init__(self, port, home):
        environment = dict(os.environ, HOME=home, TERM="dumb", CQL_HISTORY="/dev/null")
        self.side, theirs = pty.openpty()
        self.process = subprocess.Popen(
            OURS + ["127.0.0.1", str(port), "--request-timeout", "120"],
            stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=home,
            # A session of its own with this terminal: Ctrl-C is for the shell.
            preexec_fn=lambda: (os.setsid(), __import__("fcntl").ioctl(0, 0x540E, 0)),
        )
        os.close(theirs)
        self.seen = ""

    def until(self, text, seconds=30):
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.side], [], [], left)[0]:
                raise AssertionError(f"{text!r} did not come; seen: {self.seen!r}")
            self.seen += os.read(self.side, 65536).decode("utf-8", "replace")
        before, _, self.seen = self.seen.partition(text)
        return before

    def type(self, text):
        os.write(self.side, text.encode())


def comes_back(terminal, proxy, statement):
    """Back at the prompt after Ctrl-C, with the next statement answered by its own answer."""
    proxy.flows.clear()
    terminal.type(statement + "\n")
    time.sleep(1)
    assert terminal.process.poll() is None, "the shell waits"
    began = time.monotonic()
    terminal.type("\x03")
    terminal.until("cqlsh> ", 10)
    assert time.monotonic() - began < 10
    proxy.flows.set()
    terminal.type("SELECT key FROM system.local;\n")
    shown = terminal.until("(1 rows)")
    assert "local" in shown and "cluster_name" not in shown, shown
    terminal.until("cqlsh> ")


def main():
    failed = 0
    cases = ["SELECT cluster_name FROM system.local;", "SELECT cluster_name FROM system.local; SHOW HOST"]
    with tempfile.TemporaryDirectory() as home:
        proxy = Proxy()
        terminal = Terminal(proxy.port, home)
        terminal.until("cqlsh> ")
        for case in cases:
            try:
                comes_back(terminal, proxy, case)
            except AssertionError as error:
                failed += 1
                print(f"FAILED {case}: {error}")
        terminal.type("EXIT\n")
        try:
            status = terminal.process.wait(30)
        except subprocess.TimeoutExpired:
            os.kill(terminal.process.pid, signal.SIGKILL)
            status = "none"
        if status != 0:
            failed += 1
            print(f"FAILED: EXIT ended the shell with {status}")
    passed = len(cases) + 1 - failed
    print(f"interrupts: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
