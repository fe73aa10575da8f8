"""Loads the flights of New York in 2013 into a server, asks questions and draws a picture.

Reading order: schema.cql, data.py, load.py, queries.py; server.py and verify.py for --chaos.
The last line is `N passed, N failed`. Exit status: 0 nothing failed, 1 something failed, 2 wrong
arguments, 130 interrupted.
"""
import argparse
import logging
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import plot
import queries
from data import FLIGHTS, DataSet
from load import Connection, Interrupted, Loader, Progress
from server import Chaos, Server, free_port, helenus_command
from verify import verify


class Checks:
    """Counts what was right and what was not."""

    def __init__(self):
        self.passed = self.failed = 0

    def check(self, name, right, differences=()):
        if right:
            self.passed += 1
        else:
            self.failed += 1
        print(f"{'ok    ' if right else 'FAILED'} {name}")
        for difference in differences:
            print(f"       {difference}")
        sys.stdout.flush()


def arguments():
    parser = argparse.ArgumentParser(
        prog="run.sh", description="Load 336,776 real flights with the Python driver, query them, "
        "plot a result. Without FLIGHTS_HOST, FLIGHTS_PORT and --server, a node of its own is "
        "started from the program FLIGHTS_HELENUS (default: the release build of this tree).")
    parser.add_argument("--rows", type=positive, default=FLIGHTS, metavar="N",
                        help="load only the first N flights")
    parser.add_argument("--keyspace", default="flights", metavar="NAME",
                        help="default: flights")
    parser.add_argument("--fresh", action="store_true",
                        help="drop the keyspace first, instead of going on with an earlier load")
    parser.add_argument("--verify", action="store_true",
                        help="read everything back and compare it value for value")
    parser.add_argument("--plot", default=None, metavar="FILE",
                        help="where the picture goes; default: delays.png in the work directory")
    parser.add_argument("--server", metavar="COMMAND",
                        help="start this command (a server in the foreground that listens on "
                        "FLIGHTS_HOST:FLIGHTS_PORT) instead of helenus, stop it at the end")
    parser.add_argument("--chaos", type=int, metavar="SEED",
                        help="kill the server with SIGKILL at random moments of the load, start it "
                        "again, and verify at the end that every acknowledged row is there; "
                        "implies --fresh and --verify")
    parser.add_argument("--kills", type=positive, default=5, metavar="N",
                        help="kills during the load, with --chaos; default: 5")
    options = parser.parse_args()
    if not options.keyspace.isidentifier():
        parser.error("--keyspace: not a name")
    given = "FLIGHTS_HOST" in os.environ or "FLIGHTS_PORT" in os.environ
    if options.chaos is not None:
        options.fresh = options.verify = True
        if given and options.server is None:
            parser.error("--chaos kills only a server that it started: give --server, or unset "
                         "FLIGHTS_HOST and FLIGHTS_PORT")
    options.host = os.environ.get("FLIGHTS_HOST", "127.0.0.1")
    options.own = not given and options.server is None
    if options.own:
        options.port = free_port(options.host)
    else:
        options.port = int(os.environ.get("FLIGHTS_PORT", "9042"))
    options.work = pathlib.Path(os.environ["FLIGHTS_WORK"])
    return options


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


def helenus_binary():
    """FLIGHTS_HELENUS, or the release build of this tree, made or renewed first."""
    if os.environ.get("FLIGHTS_HELENUS"):
        return pathlib.Path(os.environ["FLIGHTS_HELENUS"])
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or root / "target")
    print("building helenus, where it is not up to date", flush=True)
    built = subprocess.run(
        ["cargo", "build", "--quiet", "--release", "--bin", "helenus"], cwd=root)
    if built.returncode != 0:
        raise RuntimeError("helenus does not build; FLIGHTS_HELENUS can name a program")
    return target / "release" / "helenus"


def own_server(options):
    """The server that this run starts, or None where one is there already."""
    if options.own:
        binary = helenus_binary()
        workdir = options.work / ("data" if options.chaos is None else "data-chaos")
        if options.chaos is not None and workdir.exists():
            shutil.rmtree(workdir)
        command = helenus_command(binary, workdir, options.host, options.port)
    elif options.server is not None:
        command = options.server
    else:
        return None
    return Server(command, options.host, options.port, options.work / "server.log")


def run(options, checks):
    begin = time.monotonic()
    data = DataSet(options.rows)
    print(f"{data.flights:,} flights, {len(data.weather.rows):,} hours of weather, "
          f"{len(data.planes.rows):,} planes, {len(data.airports.rows):,} airports, "
          f"{len(data.airlines.rows)} airlines read in {time.monotonic() - begin:.1f} s")
    server = own_server(options)
    connection = Connection(options.host, options.port, options.keyspace)
    try:
        if server is not None:
            server.start()
            seconds = server.wait_ready()
            print(f"server on {options.host}:{options.port} answers after {seconds:.2f} s, "
                  f"log: {server.log}")
        sys.stdout.flush()
        connection.open()
        connection.create_schema(options.fresh)
        loader = Loader(connection, data)
        try:
            load(options, loader, server, checks)
        except Interrupted:
            sys.stderr.write("interrupted; the same command goes on from here\n")
            if options.chaos is None:
                raise
        if options.verify:
            verify(connection, loader, checks)
        if loader.acknowledged == loader.total:
            means, day = queries.run_all(connection, data, checks)
            path = pathlib.Path(options.plot or options.work / "delays.png")
            plot.draw(means, day, path)
            checks.check(f"plot: {path}", path.stat().st_size > 10_000)
    finally:
        connection.close()
        if server is not None:
            server.stop()


def load(options, loader, server, checks):
    earlier = loader.count_earlier()
    if earlier:
        print(f"{earlier:,} of {loader.total:,} rows are there from an earlier load")
    progress = Progress(loader.total, earlier)
    signal.signal(signal.SIGINT, lambda *_: loader.interrupted.set())
    if options.chaos is not None:
        loader.batch_rows_max = 1  # the finest grain for kills: each row is acknowledged by itself
        loader.chaos = Chaos(server, options.chaos, options.kills, loader.total,
                             lambda: loader.acknowledged, progress.say)
        loader.chaos.start()
    try:
        loader.run(progress.show)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if loader.chaos is not None:
            loader.chaos.finished.set()
            loader.chaos.join()
    progress.show(loader.acknowledged, last=True)
    checks.check(f"every row is acknowledged: {loader.acknowledged:,}",
                 loader.acknowledged == loader.total)
    if loader.chaos is not None:
        if loader.chaos.failure is not None:
            raise RuntimeError(str(loader.chaos.failure))
        # The last acknowledgements are the youngest: they must survive as well.
        loader.chaos.strike()
        loader.connection.reopen(lambda: None)
        print(f"seed {options.chaos}: {server.kills} kills, {loader.retried:,} rows were sent "
              "again because their answer was lost")
        checks.check("the server was killed during the load", server.kills > options.kills)


def main():
    # The driver logs every lost connection; here they are expected.
    logging.getLogger("cassandra").setLevel(logging.CRITICAL)
    options = arguments()
    checks = Checks()
    status = 0
    try:
        run(options, checks)
    except (Interrupted, KeyboardInterrupt):
        status = 130
    except Exception as error:
        sys.stdout.flush()
        checks.check(f"{type(error).__name__}: {error}", False)
        if os.environ.get("FLIGHTS_TRACE"):
            raise
    print(f"\n{checks.passed} passed, {checks.failed} failed")
    return status or (1 if checks.failed else 0)


if __name__ == "__main__":
    sys.exit(main())
