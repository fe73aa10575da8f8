"""The bank: accounts, and transfers between them made of conditional statements.

A lightweight transaction changes one partition. A transfer changes two accounts, so it is a chain of
them, each one conditional on what the one before it left, so that each can be repeated as often as
one likes and any client can go on where another one stopped:

    1. INSERT the transfer, state 'new'
    2. lease it: client_id with a TTL of 30 seconds
    3. lock both accounts, in the order of their names, so that two transfers never wait for each other
    4. state 'locked', unless the money is not there: then 'complete' at once
    5. write both balances
    6. state 'complete'
    7. unlock both accounts
    8. DELETE the transfer

A client that dies leaves a transfer behind. Its lease goes after 30 seconds; who then meets one of its
accounts, or its row, takes the lease and finishes it.

Owns: the statements and their order. Never: decides who pays whom, or when to give up a client.
"""
import dataclasses
import random
import time
import uuid
from decimal import Decimal

from cassandra import (
    ConsistencyLevel, OperationTimedOut, ReadFailure, ReadTimeout, Unavailable, WriteFailure,
    WriteTimeout,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.pool import NoConnectionsAvailable
from cassandra.protocol import ErrorMessage

LEASE_SECONDS = 30
# Longest time for one statement, at the driver; the server's own limits are below it.
STATEMENT_SECONDS = 5
# The fence. A client sends no statement of a transfer later than this after it asked for the lease,
# so the last one has ended when the lease goes, with some seconds left for clocks that differ.
FENCE_SECONDS = LEASE_SECONDS - STATEMENT_SECONDS - 5
# An account that others work on for longer makes a transfer be refused.
BUSY_SECONDS = 3

# What a statement ends with while nodes die, stop and lose each other. It may have been applied.
UNCERTAIN = (WriteTimeout, ReadTimeout, Unavailable, OperationTimedOut, ConnectionException,
             NoConnectionsAvailable, ReadFailure, WriteFailure)
# OVERLOADED, IS_BOOTSTRAPPING and CAS_WRITE_UNKNOWN, for which this driver has no classes.
UNCERTAIN_CODES = (0x1001, 0x1002, 0x1700)

STATEMENTS = {
    "open": "INSERT INTO accounts (bic, ban, balance, pending_amount) VALUES (?, ?, ?, 0) "
            "IF NOT EXISTS",
    "balance": "SELECT balance, pending_transfer, pending_amount FROM accounts "
               "WHERE bic = ? AND ban = ?",
    "find": "SELECT src_bic, src_ban, dst_bic, dst_ban, amount, state, client_id FROM transfers "
            "WHERE transfer_id = ?",
    "begin": "INSERT INTO transfers (transfer_id, src_bic, src_ban, dst_bic, dst_ban, amount, state) "
             "VALUES (?, ?, ?, ?, ?, ?, 'new') IF NOT EXISTS",
    "lease": f"UPDATE transfers USING TTL {LEASE_SECONDS} SET client_id = ? WHERE transfer_id = ? "
             "IF amount != NULL AND client_id = NULL",
    "lock": "UPDATE accounts SET pending_transfer = ?, pending_amount = ? WHERE bic = ? AND ban = ? "
            "IF balance != NULL AND pending_amount != NULL AND pending_transfer = NULL",
    "locked": "UPDATE transfers SET state = 'locked' WHERE transfer_id = ? "
              "IF amount != NULL AND client_id = ?",
    "move": "UPDATE accounts SET pending_amount = 0, balance = ? WHERE bic = ? AND ban = ? "
            "IF balance != NULL AND pending_transfer = ?",
    "complete": "UPDATE transfers SET state = 'complete' WHERE transfer_id = ? "
                "IF amount != NULL AND client_id = ?",
    "unlock": "UPDATE accounts SET pending_transfer = NULL, pending_amount = 0 "
              "WHERE bic = ? AND ban = ? IF balance != NULL AND pending_transfer = ?",
    "delete": "DELETE FROM transfers WHERE transfer_id = ? IF client_id = ?",
}


@dataclasses.dataclass(frozen=True)
class Transfer:
    id: uuid.UUID
    source: tuple  # (bic, ban)
    target: tuple
    amount: Decimal

    def sides(self):
        """Both accounts with what each gets, in the order in which they are locked."""
        return sorted([(self.source, -self.amount), (self.target, self.amount)])


class LeaseLost(Exception):
    """Somebody else carries the transfer out now, or will: the fence was reached."""


class Busy(Exception):
    """A living client works on an account: to be tried again later."""


class Missing(Exception):
    """There is no such account."""


class Crash(Exception):
    """This client is to die here, in the middle of a transfer."""


class Statements:
    """The prepared statements. Shared by all clients: a driver's session is."""

    def __init__(self, session, serial=ConsistencyLevel.SERIAL, commit=ConsistencyLevel.QUORUM):
        self.session = session
        self.prepared = {}
        for name, text in STATEMENTS.items():
            statement = session.prepare(text)
            is_read = text.startswith("SELECT")
            # A read at SERIAL sees every decided transaction, also one whose client got no answer.
            statement.consistency_level = serial if is_read else commit
            statement.serial_consistency_level = serial
            self.prepared[name] = statement

    def execute(self, name, *values):
        return self.session.execute(self.prepared[name], values, timeout=STATEMENT_SECONDS).one()


def is_uncertain(error):
    if isinstance(error, NoHostAvailable):
        tried = error.errors.values() if isinstance(error.errors, dict) else []
        return all(isinstance(e, OSError) or is_uncertain(e) for e in tried)
    return isinstance(error, UNCERTAIN) or (
        isinstance(error, ErrorMessage) and error.code in UNCERTAIN_CODES)


class Client:
    """One client: makes transfers and finishes those that others left behind."""

    def __init__(self, statements, ledger, stop, seed=None):
        self.statements = statements
        self.ledger = ledger
        self.stop = stop
        self.random = random.Random(seed)
        self.id = uuid.UUID(int=self.random.getrandbits(128), version=4)
        self.fence = None
        # Statements until this client dies; None: it does not.
        self.steps_left = None

    def is_fenced(self):
        return time.monotonic() > self.fence

    def run(self, name, *values):
        """One statement of a transfer, repeated until its outcome is known or the fence reached."""
        while True:
            if self.is_fenced():
                raise LeaseLost
            if self.steps_left is not None:
                if self.steps_left == 0:
                    raise Crash
                self.steps_left -= 1
            try:
                return self.statements.execute(name, *values)
            except Exception as error:
                if not is_uncertain(error):
                    raise
                self.ledger.count("retries")
                if self.stop.is_set():
                    raise LeaseLost from error
                self.pause(0.2)

    def pause(self, seconds):
        time.sleep(seconds * self.random.uniform(0.5, 1.5))

    # ------------------------------------------------------------ a transfer from its beginning

    def pay(self, source, target, amount):
        transfer = Transfer(
            uuid.UUID(int=self.random.getrandbits(128), version=4), source, target, amount)
        self.fence = time.monotonic() + FENCE_SECONDS
        self.ledger.began(transfer)
        # Not applied: this very transfer, by an attempt that got no answer.
        self.run("begin", transfer.id, *source, *target, amount)
        if self.take_lease(transfer):
            self.carry_out(transfer, "new")

    def take_lease(self, transfer):
        """Whether this client may go on with it now."""
        self.fence = time.monotonic() + FENCE_SECONDS
        row = self.run("lease", self.id, transfer.id)
        # Not applied, and the lease is ours: an earlier attempt was, and its 30 seconds began no
        # earlier than the fence was set.
        return row.applied or getattr(row, "client_id", None) == self.id

    # ------------------------------------------------------------ the steps

    def carry_out(self, transfer, state):
        if state == "new":
            state = self.lock_and_judge(transfer)
        if state == "locked":
            for account, _ in transfer.sides():
                self.move(transfer, account)
            self.set_state("complete", transfer)
        for account, _ in transfer.sides():
            self.run("unlock", *account, transfer.id)
        # Not applied: it is gone already.
        self.run("delete", transfer.id, self.id)
        self.ledger.finished(transfer)

    def lock_and_judge(self, transfer):
        """Locks both accounts; 'locked' when the money can be moved, else 'complete'."""
        patience = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                for account, amount in transfer.sides():
                    self.lock(transfer, account, amount)
                break
            except Missing:
                return self.refuse(transfer, "not found")
            except Busy:
                # What is locked already would hold up others meanwhile.
                for account, _ in transfer.sides():
                    self.run("unlock", *account, transfer.id)
                if time.monotonic() > patience:
                    return self.refuse(transfer, "busy")
                self.ledger.count("waits")
                self.pause(0.05)
        source = self.run("balance", *transfer.source)
        if not self.may_pay(source.balance, transfer.amount):
            return self.refuse(transfer, "overdraft")
        self.set_state("locked", transfer)
        # From here on the money moves, whoever moves it.
        self.ledger.will_move(transfer)
        return "locked"

    def may_pay(self, balance, amount):
        return balance >= amount

    def refuse(self, transfer, why):
        self.set_state("complete", transfer)
        self.ledger.count(why)
        return "complete"

    def lock(self, transfer, account, amount):
        row = self.run("lock", transfer.id, amount, *account)
        if row.applied:
            return
        if getattr(row, "balance", None) is None:
            raise Missing
        holder = row.pending_transfer
        if holder == transfer.id:
            return  # An earlier attempt, or the client whose transfer this was.
        if holder is not None:
            self.clear(holder, account)
        raise Busy

    def move(self, transfer, account):
        """Adds what is pending, and makes it nothing: done twice, it is done once."""
        row = self.run("balance", *account)
        if row.pending_transfer == transfer.id:
            self.run("move", row.balance + row.pending_amount, *account, transfer.id)

    def set_state(self, state, transfer):
        if not self.run(state, transfer.id, self.id).applied:
            raise LeaseLost

    # ------------------------------------------------------------ what others left

    def clear(self, holder, account):
        """Another transfer has the account: finishes it when its client is gone."""
        row = self.run("find", holder)
        if row is None:
            # Its client was so late that others had finished and deleted it before it locked: no
            # money moved with this lock, and none will, for 'locked' needs the row.
            self.run("unlock", *account, holder)
            self.ledger.count("stale locks")
        elif row.client_id is None:
            self.other().recover(holder)

    def other(self):
        """A client of its own for another's transfer: that lease has its own time."""
        client = Client(self.statements, self.ledger, self.stop, self.random.random())
        client.steps_left = self.steps_left
        return client

    def recover(self, transfer_id):
        """Finishes a transfer that has no lease; whether it did."""
        self.fence = time.monotonic() + FENCE_SECONDS
        row = self.run("find", transfer_id)
        if row is None or row.client_id is not None or row.amount is None:
            return False
        transfer = Transfer(transfer_id, (row.src_bic, row.src_ban), (row.dst_bic, row.dst_ban),
                            row.amount)
        if not self.take_lease(transfer):
            return False
        # As it is under the lease: it may have gone on since it was looked at.
        row = self.run("find", transfer_id)
        if row is None or row.client_id != self.id:
            return False
        self.ledger.count("recoveries")
        if row.state == "locked":
            self.ledger.will_move(transfer)
        self.carry_out(transfer, row.state)
        return True
