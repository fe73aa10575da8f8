"""What the clients know, and the checker that compares it with what the accounts say.

Owns: counts, and which transfers move money. All clients are threads of this process, so what they
know together is the truth about which transfers were decided.
"""
import collections
import threading
import time
from decimal import Decimal


class Ledger:
    def __init__(self):
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.open = {}       # began, not finished
        self.moves = {}      # by id: of which it is known that the money moves
        self.times = []      # seconds from begin to finish, of transfers finished by who began them

    def count(self, what):
        with self.lock:
            self.counts[what] += 1

    def began(self, transfer):
        with self.lock:
            self.counts["begun"] += 1
            self.open[transfer.id] = time.monotonic()

    def will_move(self, transfer):
        with self.lock:
            self.moves[transfer.id] = transfer

    def finished(self, transfer):
        with self.lock:
            began = self.open.pop(transfer.id, None)
            if began is None:
                return  # By two clients: the one of them that was late found nothing to do.
            self.counts["finished"] += 1
            self.times.append(time.monotonic() - began)

    def gone(self, ids):
        """Of these is no row left: somebody finished them and got no answer to the last step."""
        with self.lock:
            for transfer_id in ids:
                if self.open.pop(transfer_id, None) is not None:
                    self.counts["finished"] += 1

    def summary(self):
        with self.lock:
            counts, times = self.counts.copy(), sorted(self.times)
            moved = len(self.moves)
        text = (f"{counts['begun']} transfers begun, {counts['finished']} finished: {moved} moved "
                f"money, {counts['overdraft']} overdrafts refused, {counts['not found']} not found, "
                f"{counts['busy']} given up as busy; "
                f"{counts['retries']} retries, {counts['waits']} waits, {counts['crashes']} clients "
                f"died, {counts['recoveries']} recoveries, {counts['fenced']} fenced, "
                f"{counts['stale locks']} stale locks")
        if times:
            at = lambda share: times[min(len(times) - 1, int(len(times) * share))] * 1000
            text += (f"; ms per transfer: p50 {at(0.5):.0f}, p95 {at(0.95):.0f}, "
                     f"p99 {at(0.99):.0f}, max {times[-1] * 1000:.0f}")
        return text


def check(accounts, transfers, opening, ledger):
    """Everything that is wrong, as sentences.

    `accounts`: rows by (bic, ban) after everything is finished; `transfers`: the ids that are left;
    `opening`: balances by (bic, ban) before the first transfer.
    """
    wrong = []
    for transfer_id in transfers:
        wrong.append(f"transfer {transfer_id} was never finished")
    for transfer_id in ledger.open:
        wrong.append(f"transfer {transfer_id} was begun and not finished")
    if set(accounts) != set(opening):
        wrong.append(f"{len(accounts)} accounts where {len(opening)} were opened")
    expected = {account: Decimal(balance) for account, balance in opening.items()}
    for transfer in ledger.moves.values():
        for account, amount in transfer.sides():
            expected[account] += amount
    for account, row in accounts.items():
        name = "/".join(account)
        if row.balance is None or row.balance < 0:
            wrong.append(f"{name} is overdrawn: {row.balance}")
        if row.pending_transfer is not None or row.pending_amount != 0:
            wrong.append(f"{name} is still locked by {row.pending_transfer}")
        if row.balance != expected.get(account):
            wrong.append(f"{name} has {row.balance}, its transfers make {expected.get(account)}")
    total, was = sum(row.balance or 0 for row in accounts.values()), sum(opening.values())
    if total != was:
        wrong.append(f"{total} in all accounts together, {was} when they were opened")
    return wrong
