"""A bank on lightweight transactions, under load and faults, and checked; see README.md."""
import argparse
import itertools
import os
import pathlib
import random
import sys
import threading
import time

from decimal import Decimal

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import (
    ConstantReconnectionPolicy, DCAwareRoundRobinPolicy, FallthroughRetryPolicy, RoundRobinPolicy,
    TokenAwarePolicy,
)
from cassandra.query import SimpleStatement

import bank
import exact
import faults
import ledger as ledgers

HERE = pathlib.Path(__file__).parent
PREFIX = "datacenter"
OPENERS = 2
BANKS = 7
# Of the accounts that a client names, so many in a thousand are not there.
UNKNOWN_PER_MILLE = 20
# Of the transfers, so many in a thousand lose their client in the middle.
CRASHES_PER_MILLE = 10


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split(";")[0])
    parser.add_argument("--seconds", type=float, default=45, 
                        help="how long clients pay, and longer until each fault was there once")
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--accounts", type=int, default=500)
    parser.add_argument("--choice", choices=("uniform", "zipfian", "mixed"), default="uniform",
                        help="all accounts alike, or few of them in most transfers")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--dcs", type=int, default=1,
                        help="data centers; with more than one, clients work in the first")
    parser.add_argument("--faults", default="none", metavar="KIND,...",
                        help=f"all, or some of {','.join(faults.FAULTS)}; default: none")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, which is printed")
    parser.add_argument("--corrupt", choices=sorted(CORRUPT),
                        help="the clients make this mistake; the run must then fail")
    parser.add_argument("--hosts", help="use this running cluster instead of starting one")
    parser.add_argument("--self-test", action="store_true",
                        help="short runs, one for each mistake; passes when each is found")
    options = parser.parse_args()
    if options.hosts and options.faults != "none":
        parser.error("--faults needs a cluster of its own: leave out --hosts")
    kinds = {"none": [], "all": list(faults.FAULTS)}.get(options.faults, options.faults.split(","))
    if not set(kinds) <= set(faults.FAULTS):
        parser.error(f"--faults takes all, none, or some of {','.join(faults.FAULTS)}")
    options.faults = kinds
    if options.seed is None:
        options.seed = random.randrange(10**6)
    return options


class Say:
    def __init__(self):
        self.began = time.monotonic()

    def __call__(self, text):
        print(f"{time.monotonic() - self.began:6.1f} s  {text}", flush=True)


# ---------------------------------------------------------------- mistakes that must be found


class SkipCredit(bank.Client):
    """Debits one account and credits nobody."""

    def move(self, transfer, account):
        if account != transfer.target:
            super().move(transfer, account)


class SkipFunds(bank.Client):
    """Does not look whether the money is there."""

    def may_pay(self, balance, amount):
        return True


class SkipLock(bank.Client):
    """Writes balances of accounts that it has not locked."""

    def lock(self, transfer, account, amount):
        if account == transfer.target:
            super().lock(transfer, account, amount)


class PayTwice(bank.Client):
    """Repeats a step that is not repeatable: adds to what it has added to."""

    def move(self, transfer, account):
        super().move(transfer, account)
        amount = dict(transfer.sides())[account]
        row = self.run("balance", *account)
        self.run("move", row.balance + amount, *account, transfer.id)


CORRUPT = {"credit": SkipCredit, "funds": SkipFunds, "lock": SkipLock, "twice": PayTwice}

# ---------------------------------------------------------------- the run


class Chooser:
    """Accounts: each as likely as any other, or by Zipf's law."""

    def __init__(self, accounts, is_zipfian):
        self.accounts = accounts
        weights = (1 / rank if is_zipfian else 1 for rank in range(1, len(accounts) + 1))
        self.cumulative = list(itertools.accumulate(weights))

    def two(self, rng):
        source, target = rng.choices(self.accounts, cum_weights=self.cumulative, k=2)
        while target == source:
            target = rng.choice(self.accounts)
        if rng.randrange(1000) < UNKNOWN_PER_MILLE:
            target = (target[0], "unknown")
        return source, target


class Run:
    def __init__(self, options, hosts, say):
        self.options = options
        self.say = say
        self.many = options.dcs > 1
        balancing = (DCAwareRoundRobinPolicy(f"{PREFIX}1") if self.many else RoundRobinPolicy())
        profile = ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(balancing),
            consistency_level=ConsistencyLevel.QUORUM,
            request_timeout=bank.STATEMENT_SECONDS,
            # Which statement may be repeated is known to the bank, not to the driver.
            retry_policy=FallthroughRetryPolicy(),
        )
        self.cluster = Cluster(
            hosts, execution_profiles={EXEC_PROFILE_DEFAULT: profile}, protocol_version=5,
            reconnection_policy=ConstantReconnectionPolicy(0.5, None), connect_timeout=5)
        self.session = self.cluster.connect()
        self.ledger = ledgers.Ledger()
        self.stop = threading.Event()
        self.crashes_until = None
        self.failures = []
        self.overdrawn = set()

    def schema(self):
        self.session.execute("DROP KEYSPACE IF EXISTS bank", timeout=60)
        nodes = self.cluster.metadata.all_hosts()
        per = {}
        for host in nodes:
            per[host.datacenter] = per.get(host.datacenter, 0) + 1
        replicas = ", ".join(f"'{dc}': {min(3, count)}" for dc, count in per.items())
        self.session.execute(
            "CREATE KEYSPACE bank WITH replication = "
            f"{{'class': 'NetworkTopologyStrategy', {replicas}}}", timeout=60)
        self.session.set_keyspace("bank")
        text = "\n".join(line for line in (HERE / "schema.cql").read_text().splitlines()
                         if not line.startswith("--"))
        for statement in text.split(";"):
            if statement.strip():
                self.session.execute(statement, timeout=60)
        serial, commit, scan = (
            (ConsistencyLevel.LOCAL_SERIAL, ConsistencyLevel.LOCAL_QUORUM,
             ConsistencyLevel.LOCAL_QUORUM) if self.many else
            (ConsistencyLevel.SERIAL, ConsistencyLevel.QUORUM, ConsistencyLevel.QUORUM))
        self.statements = bank.Statements(self.session, serial, commit)
        self.scan_level = scan

    def open_accounts(self):
        """Several openers with one list: each account is opened once, by one of them."""
        rng = random.Random(self.options.seed)
        self.opening = {}
        while len(self.opening) < self.options.accounts:
            account = (f"BANK{rng.randrange(BANKS):04}", f"{rng.randrange(10**14):014}")
            self.opening[account] = Decimal(rng.randrange(0, 200_000)) / 100
        opened = []

        def opener():
            for account, balance in self.opening.items():
                if self.statements.execute("open", *account, balance).applied:
                    opened.append(account)

        self.threads("opener", OPENERS, opener)
        if sorted(opened) != sorted(self.opening):
            raise AssertionError(
                f"{len(opened)} accounts opened by {OPENERS} openers, not {len(self.opening)}")

    def threads(self, name, count, body):
        failures = []

        def guarded():
            try:
                body()
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=guarded, name=f"{name}-{n}") for n in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def pay(self, number):
        rng = random.Random(f"{self.options.seed}/{number}")
        is_zipfian = {"uniform": False, "zipfian": True}.get(self.options.choice, number % 2 == 1)
        chooser = Chooser(list(self.opening), is_zipfian)
        kind = CORRUPT.get(self.options.corrupt, bank.Client)
        client = None
        while not self.stop.is_set():
            if client is None:
                client = kind(self.statements, self.ledger, self.stop, rng.random())
            source, target = chooser.two(rng)
            amount = Decimal(rng.randrange(1, 60_000)) / 100
            client.steps_left = None
            if rng.randrange(1000) < CRASHES_PER_MILLE and time.monotonic() < self.crashes_until:
                client.steps_left = rng.randrange(1, 14)
            try:
                client.pay(source, target, amount)
            except bank.Crash:
                self.ledger.count("crashes")
                client = None
            except bank.LeaseLost:
                self.ledger.count("fenced")
            except Exception as error:
                self.failures.append(error)
                self.stop.set()

    def rows(self, text):
        """A scan, tried again while nodes are away."""
        statement = SimpleStatement(text, consistency_level=self.scan_level, fetch_size=500)
        deadline = time.monotonic() + 60
        while True:
            try:
                return list(self.session.execute(statement, timeout=20))
            except Exception as error:
                if not bank.is_uncertain(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def look(self):
        for row in self.rows("SELECT bic, ban, balance FROM accounts"):
            if row.balance < 0:
                self.overdrawn.add((row.bic, row.ban))

    def sweep(self, stop, once=False):
        """Finishes transfers that nobody holds and no account leads to; how many rows there are."""
        helper = bank.Client(self.statements, self.ledger, stop)
        abandoned_before = set()
        while True:
            rows = self.rows("SELECT transfer_id, client_id, amount FROM transfers")
            abandoned = {row.transfer_id for row in rows if row.client_id is None}
            # One that was made a moment ago is about to be leased: only what was so before.
            for transfer_id in abandoned if once else abandoned & abandoned_before:
                if stop.is_set():
                    return rows
                try:
                    helper.recover(transfer_id)
                except bank.LeaseLost:
                    self.ledger.count("fenced")
            if once:
                return rows
            abandoned_before = abandoned
            self.look()
            if stop.wait(3):
                return rows

    def finish_all(self):
        """Until no transfer is left: the last leases have to go first."""
        never = threading.Event()
        deadline = time.monotonic() + bank.LEASE_SECONDS + 90
        while True:
            rows = self.sweep(never, once=True)
            locked = [row for row in self.rows("SELECT bic, ban, pending_transfer FROM accounts")
                      if row.pending_transfer is not None]
            helper = bank.Client(self.statements, self.ledger, never)
            for row in locked:
                helper.fence = time.monotonic() + bank.FENCE_SECONDS
                helper.clear(row.pending_transfer, (row.bic, row.ban))
            if not rows and not locked:
                break
            if time.monotonic() > deadline:
                break
            time.sleep(0.5)
        left = {row.transfer_id for row in self.rows("SELECT transfer_id FROM transfers")}
        self.ledger.gone([i for i in list(self.ledger.open) if i not in left])
        return left

    def check(self, left):
        wrong = []
        scanned = {(row.bic, row.ban): row for row in self.rows(
            "SELECT bic, ban, balance, pending_transfer, pending_amount FROM accounts")}
        for account, row in scanned.items():
            serial = self.statements.execute("balance", *account)
            if tuple(serial) != tuple(row)[2:]:
                wrong.append(f"{'/'.join(account)}: a scan reads {row}, SERIAL {serial}")
        wrong += ledgers.check(scanned, left, self.opening, self.ledger)
        wrong += [f"{'/'.join(account)} was overdrawn meanwhile" for account in self.overdrawn]
        return wrong

    def run(self, seconds, faulty=None):
        """Pays; ends the faults; finishes what is open. What is wrong then."""
        # Those that die late would make the end wait for their leases.
        share = 0 if self.options.corrupt else max(seconds / 2, seconds - bank.LEASE_SECONDS)
        self.crashes_until = time.monotonic() + share
        sweeper = threading.Thread(target=self.guarded, args=(self.sweep, self.stop), name="sweeper")
        payers = [threading.Thread(target=self.guarded, args=(self.pay, n), name=f"client-{n}")
                  for n in range(self.options.clients)]
        for thread in [sweeper, *payers]:
            thread.start()
        if faulty:
            faulty.start()
        shown = time.monotonic()
        end = shown + seconds
        while (time.monotonic() < end or faulty and not faulty.all_seen()) and not self.stop.is_set():
            self.stop.wait(0.2)
            if faulty and faulty.failure:
                break
            if time.monotonic() - shown >= 15:
                shown = time.monotonic()
                self.say(self.ledger.summary())
        if faulty:
            # Whole again before the clients stop: what is open then can be finished.
            faulty.done.set()
            faulty.join()
        self.stop.set()
        for thread in [sweeper, *payers]:
            thread.join()
        if faulty:
            faulty.finish()
        if self.failures:
            raise self.failures[0]
        return self.check(self.finish_all())

    def guarded(self, body, *arguments):
        try:
            body(*arguments)
        except Exception as error:
            self.failures.append(error)
            self.stop.set()


def one_run(options, hosts, cluster, say):
    """What is wrong after it."""
    run = Run(options, hosts, say)
    try:
        run.schema()
        wrong = exact.check(run.session, run.statements)
        run.open_accounts()
        say(f"{len(run.opening)} accounts with {sum(run.opening.values())}, each opened once by "
            f"{OPENERS} openers")
        faulty = None
        if options.faults:
            faulty = faults.Faults(cluster, options.faults, options.seed, say)
        wrong += run.run(options.seconds, faulty)
        say(run.ledger.summary())
        if faulty:
            say("faults: " + ", ".join(f"{kind} {n}" for kind, n in faulty.counts.items()))
        if not run.ledger.moves:
            wrong.append("no transfer moved money: nothing was shown")
        return wrong
    finally:
        run.cluster.shutdown()


def report(wrong, say):
    for sentence in wrong[:20]:
        say(f"WRONG: {sentence}")
    if len(wrong) > 20:
        say(f"WRONG: and {len(wrong) - 20} more")
    return not wrong


def self_test(options, hosts, cluster, say):
    """Each mistake must be found; passed and failed."""
    passed = 0
    for name in sorted(CORRUPT):
        options.corrupt, options.seconds, options.accounts, options.faults = name, 3, 100, []
        wrong = one_run(options, hosts, cluster, say)
        passed += bool(wrong)
        say(f"a client that makes the mistake \"{name}\" is " +
            (f"found: {wrong[0]}" if wrong else "NOT FOUND"))
    return passed, len(CORRUPT) - passed


def main():
    options = parse()
    say = Say()
    say(f"seed {options.seed}")
    cluster = None
    hosts = options.hosts.split(",") if options.hosts else None
    if hosts is None:
        work = pathlib.Path(os.environ["BANK_WORK"])
        cluster = faults.LocalCluster(
            os.environ["BANK_HELENUS"], work / "cluster", options.nodes, options.dcs)
        cluster.start()
        say(f"{options.nodes} nodes in {options.dcs} data center(s)")
        hosts = cluster.addresses(0)
    try:
        if options.self_test:
            passed, failed = self_test(options, hosts, cluster, say)
        else:
            passed = int(report(one_run(options, hosts, cluster, say), say))
            failed = 1 - passed
    finally:
        if cluster:
            cluster.stop()
    print(f"{passed} passed, {failed} failed")
    return 0 if failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
