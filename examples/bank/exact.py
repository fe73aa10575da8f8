"""One account looked at closely: what each conditional statement answers the first and the second
time, value for value."""
import uuid
from decimal import Decimal

from cassandra.cluster import Session

from bank import Statements

ACCOUNT = ("DCCDIN51", "30000000000000")
TRANSFER = uuid.UUID("b22cfef0-9078-11ea-bda5-b306a8f6411c")
BALANCE = Decimal(42716)
DEBIT = Decimal("-24.12")


def check(session: Session, statements: Statements):
    """What was answered otherwise, as sentences."""
    wrong = []

    def expect(what, row, **columns):
        found = row._asdict()
        if found != columns:
            wrong.append(f"{what}: {found} instead of {columns}")

    def execute(name, *values):
        return statements.execute(name, *values)

    session.execute("DELETE FROM accounts WHERE bic = %s AND ban = %s", ACCOUNT)
    expect("a first INSERT", execute("open", *ACCOUNT, BALANCE), applied=True)
    # The whole row, the key first, then the other columns by name.
    existing = dict(applied=False, bic=ACCOUNT[0], ban=ACCOUNT[1], balance=BALANCE,
                    pending_amount=Decimal(0), pending_transfer=None)
    second = execute("open", *ACCOUNT, Decimal(1))
    expect("a second INSERT", second, **existing)
    if list(second._fields) != list(existing):
        wrong.append(f"a second INSERT: columns in the order {second._fields}")
    lock = (TRANSFER, DEBIT, *ACCOUNT)
    expect("a first lock", execute("lock", *lock), applied=True)
    expect("a second lock", execute("lock", *lock), applied=False, balance=BALANCE,
           pending_amount=DEBIT, pending_transfer=TRANSFER)
    move = (BALANCE + DEBIT, *ACCOUNT, TRANSFER)
    for time in ("first", "second"):
        # Its condition stays true: it may be repeated because it writes the same.
        expect(f"a {time} move", execute("move", *move), applied=True)
    expect("the account then", execute("balance", *ACCOUNT), balance=BALANCE + DEBIT,
           pending_transfer=TRANSFER, pending_amount=Decimal(0))
    expect("a first unlock", execute("unlock", *ACCOUNT, TRANSFER), applied=True)
    expect("a second unlock", execute("unlock", *ACCOUNT, TRANSFER), applied=False,
           balance=BALANCE + DEBIT, pending_transfer=None)
    expect("a late move", execute("move", *move), applied=False, balance=BALANCE + DEBIT,
           pending_transfer=None)
    # No condition on a row that is not there is true, `!= NULL` least of all: it is not made.
    nobody = ("NOBODY", "0")
    expect("a lock of nothing", execute("lock", TRANSFER, DEBIT, *nobody), applied=False)
    if execute("balance", *nobody) is not None:
        wrong.append("a conditional UPDATE made a row")
    session.execute("DELETE FROM accounts WHERE bic = %s AND ban = %s IF EXISTS", ACCOUNT)
    if execute("balance", *ACCOUNT) is not None:
        wrong.append("a deleted account is there")
    return wrong
