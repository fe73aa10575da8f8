"""Nearest rows by indexes of vectors through the Python driver: each answer is compared with brute force over a full scan.

Statements are random, from a seed that a failure prints. Tables are small, so that searches are exact.
"""
import os
import random
import struct

import pytest
from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.query import SimpleStatement, UNSET_VALUE

from test_indexes import rows_of

SEED = int(os.environ.get("HELENUS_INDEX_SEED", "1"))
ROUNDS = int(os.environ.get("HELENUS_INDEX_ROUNDS", "6"))
DIMENSIONS = 6
FUNCTIONS = {"cosine": "similarity_cosine", "dot_product": "similarity_dot_product", "euclidean": "similarity_euclidean"}


def as_float(number):
    """The 32-bit float next to a number."""
    return struct.unpack(">f", struct.pack(">f", number))[0]


def vector(rng):
    return [as_float(rng.uniform(-1, 1)) for _ in range(DIMENSIONS)]


def score(similarity, a, b):
    """The score in 64-bit floats; the server's are of 32 bits."""
    dot = sum(x * y for x, y in zip(a, b))
    if similarity == "cosine":
        return (1 + dot / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5) / 2
    if similarity == "dot_product":
        return (1 + dot) / 2
    return 1 / (1 + sum((x - y) ** 2 for x, y in zip(a, b)))


def write(rng, session, table):
    k, c = rng.randrange(8), rng.randrange(12)
    kind = rng.random()
    if kind < 0.06:
        return session.execute(f"DELETE FROM {table} WHERE k = {k} AND c = {c}")
    if kind < 0.08:
        return session.execute(f"DELETE FROM {table} WHERE k = {k} AND c > {c}")
    if kind < 0.12:
        return session.execute(f"DELETE v FROM {table} WHERE k = {k} AND c = {c}")
    if kind < 0.3:
        return session.execute(f"UPDATE {table} SET w = {rng.randrange(4)} WHERE k = {k} AND c = {c}")
    new = vector(rng)
    if kind < 0.45:
        return session.execute(f"UPDATE {table} SET v = {new} WHERE k = {k} AND c = {c}")
    return session.execute(f"INSERT INTO {table} (k, c, v, w) VALUES ({k}, {c}, {new}, {rng.randrange(4)})")


def restrictions(rng):
    """WHERE clauses with the test of a row that they mean."""
    k, c, w = rng.randrange(8), rng.randrange(12), rng.randrange(4)
    yield "", lambda r: True
    yield f"WHERE w = {w}", lambda r: r.w == w
    yield f"WHERE w > {w}", lambda r: r.w is not None and r.w > w
    yield f"WHERE k = {k}", lambda r: r.k == k
    yield f"WHERE k = {k} AND w = {w}", lambda r: r.k == k and r.w == w
    yield f"WHERE k = {k} AND c < {c}", lambda r: r.k == k and r.c < c
    yield "WHERE token(k) > 0", lambda r: r.tok > 0


def check(found, expected, limit, similarity, query, note):
    """The rows found are the best ones, in order, as far as scores of 32 bits tell rows apart."""
    best = sorted((score(similarity, row.v, query) for row in expected), reverse=True)[:limit]
    assert len(found) == len(best), f"{note}: {len(found)} rows, not {len(best)}"
    known = {(row.k, row.c): row for row in expected}
    assert len({(row.k, row.c) for row in found}) == len(found), f"{note}: a row twice"
    for row, wanted in zip(found, best):
        full = known.get((row.k, row.c))
        assert full is not None, f"{note}: row {row.k}, {row.c} does not match"
        assert row == full, f"{note}: {row}, not {full}"
        assert abs(score(similarity, row.v, query) - wanted) < 1e-5, f"{note}: {row} is not at its place"


@pytest.mark.parametrize("similarity", list(FUNCTIONS))
@pytest.mark.parametrize("late", [False, True])
def test_the_nearest_rows_are_those_of_brute_force(session, similarity, late):
    rng = random.Random(f"{SEED} {similarity} {late}")
    table = f"vectors_{similarity}_{int(late)}"
    session.execute(f"DROP TABLE IF EXISTS {table}")
    session.execute(f"CREATE TABLE {table} (k int, c int, v vector<float, {DIMENSIONS}>, w int, PRIMARY KEY (k, c))")
    indexes = [
        f"CREATE CUSTOM INDEX {table}_v ON {table} (v) USING 'StorageAttachedIndex' WITH OPTIONS = {{'similarity_function': '{similarity}'}}",
        f"CREATE INDEX {table}_w ON {table} (w) USING 'sai'",
    ]
    if not late:
        for text in indexes:
            session.execute(text)
    prepared = None
    for round in range(ROUNDS):
        for _ in range(60):
            write(rng, session, table)
        if late and round == 0:
            for text in indexes:
                session.execute(text)
        everything = rows_of(session, f"SELECT k, c, v, w, token(k) AS tok FROM {table}")
        everything = [row for row in everything if row.v is not None]
        for where, matches in restrictions(rng):
            query, limit = vector(rng), rng.choice([1, 3, 10, 100])
            expected = [row for row in everything if matches(row)]
            note = f"seed {SEED}, round {round}: {where} LIMIT {limit}"
            text = f"SELECT k, c, v, w, token(k) AS tok FROM {table} {where} ORDER BY v ANN OF {query} LIMIT {limit}"
            check(rows_of(session, text), expected, limit, similarity, query, note)
        prepared = prepared or session.prepare(
            f"SELECT k, c, v, w, token(k) AS tok FROM {table} WHERE w = ? ORDER BY v ANN OF ? LIMIT ?"
        )
        w, query, limit = rng.randrange(4), vector(rng), rng.choice([2, 20])
        found = list(session.execute(prepared, (w, query, limit)))
        check(found, [row for row in everything if row.w == w], limit, similarity, query, f"round {round}, prepared")
    # The score that SELECT computes is that of the order.
    text = f"SELECT {FUNCTIONS[similarity]}(v, {query}) AS s FROM {table} ORDER BY v ANN OF {query} LIMIT 50"
    scores = [row.s for row in rows_of(session, text)]
    assert all(a >= b - 1e-6 for a, b in zip(scores, scores[1:]))


def test_an_overwritten_vector_counts_only_with_its_new_value(session):
    session.execute("CREATE TABLE nearest_moved (k int PRIMARY KEY, v vector<float, 2>)")
    session.execute("CREATE CUSTOM INDEX ON nearest_moved (v) USING 'sai' WITH OPTIONS = {'similarity_function': 'euclidean', 'source_model': 'ada002'}")
    for k in range(40):
        session.execute(f"INSERT INTO nearest_moved (k, v) VALUES ({k}, [{k}, 0])")
    assert [row.k for row in rows_of(session, "SELECT k FROM nearest_moved ORDER BY v ANN OF [0, 0] LIMIT 3")] == [0, 1, 2]
    for k in range(0, 40, 2):
        session.execute(f"UPDATE nearest_moved SET v = [{k + 1000}, 0] WHERE k = {k}")
    session.execute("DELETE FROM nearest_moved WHERE k = 3")
    assert [row.k for row in rows_of(session, "SELECT k FROM nearest_moved ORDER BY v ANN OF [0, 0] LIMIT 3")] == [1, 5, 7]


def test_what_cassandra_refuses_is_refused_in_its_words(session):
    session.execute("CREATE TABLE nearest_refused (k int, c int, v vector<float, 2>, u vector<float, 2>, w int, o int, PRIMARY KEY (k, c))")
    session.execute("CREATE CUSTOM INDEX ON nearest_refused (v) USING 'StorageAttachedIndex'")
    session.execute("CREATE CUSTOM INDEX ON nearest_refused (w) USING 'StorageAttachedIndex'")
    by_v = "ORDER BY v ANN OF [1, 2]"
    refusals = {
        f"SELECT * FROM nearest_refused {by_v}": "Top-K queries must have a limit specified and the limit must be less than the query page size",
        f"SELECT * FROM nearest_refused {by_v} LIMIT 1001": "Use of ANN OF in an ORDER BY clause requires a LIMIT that is not greater than 1000. LIMIT was 1001",
        f"SELECT * FROM nearest_refused {by_v} PER PARTITION LIMIT 1 LIMIT 5": "Top-K queries do not support per-partition limits",
        f"SELECT count(*) FROM nearest_refused {by_v} LIMIT 5": "Top-K queries can not be run with aggregation",
        f"SELECT * FROM nearest_refused {by_v} DESC LIMIT 5": "Descending ANN ordering is not supported",
        f"SELECT * FROM nearest_refused {by_v}, c ASC LIMIT 5": "ANN ordering does not support any other ordering",
        f"SELECT * FROM nearest_refused WHERE o = 1 {by_v} LIMIT 5": "ANN ordering by vector requires all restricted column(s) to be indexed",
        "SELECT * FROM nearest_refused ORDER BY u ANN OF [1, 2] LIMIT 5": "ANN ordering by vector requires the column to be indexed",
        "SELECT * FROM nearest_refused ORDER BY w ANN OF 1 LIMIT 5": "ANN ordering is only supported on float vector indexes",
        "SELECT * FROM nearest_refused WHERE v = [1, 2]": "Vector indexes only support ANN queries",
        "SELECT * FROM nearest_refused ORDER BY v ANN OF [0, 0] LIMIT 5": "Zero vectors cannot be indexed or queried with cosine similarity",
        "CREATE CUSTOM INDEX ON nearest_refused (u) USING 'sai' WITH OPTIONS = {'similarity_function': 'near'}": "Similarity function NEAR was not recognized for index null. Valid values are: EUCLIDEAN, DOT_PRODUCT, COSINE",
    }
    for text, refusal in refusals.items():
        with pytest.raises(InvalidRequest) as error:
            session.execute(text)
        assert f'"{refusal}"' in str(error.value), text
    for level in ["SERIAL", "LOCAL_SERIAL"]:
        statement = SimpleStatement(f"SELECT * FROM nearest_refused {by_v} LIMIT 5", consistency_level=getattr(ConsistencyLevel, level))
        with pytest.raises(InvalidRequest) as error:
            session.execute(statement)
        assert f"Top-K queries can only be run with consistency level ONE/LOCAL_ONE. Consistency level {level} was used." in str(error.value)
    prepared = session.prepare("SELECT * FROM nearest_refused ORDER BY v ANN OF ? LIMIT ?")
    for values, refusal in [((None, 5), "Unsupported null value for column v"), ((UNSET_VALUE, 5), "Unsupported unset value for column v"), (([1.0, 2.0], None), "Invalid null value of limit")]:
        with pytest.raises(InvalidRequest) as error:
            session.execute(prepared, values)
        assert f'"{refusal}"' in str(error.value)


def test_a_page_below_the_limit_is_one_page_with_a_warning(session):
    session.execute("CREATE TABLE nearest_paged (k int PRIMARY KEY, v vector<float, 2>)")
    session.execute("CREATE CUSTOM INDEX ON nearest_paged (v) USING 'sai'")
    for k in range(9):
        session.execute(f"INSERT INTO nearest_paged (k, v) VALUES ({k}, [{k + 1}, 1])")
    rows_of(session, "SELECT k FROM nearest_paged ORDER BY v ANN OF [1, 1] LIMIT 1")
    for level in [ConsistencyLevel.ONE, ConsistencyLevel.QUORUM, ConsistencyLevel.ALL]:
        statement = SimpleStatement("SELECT k FROM nearest_paged ORDER BY v ANN OF [1, 1] LIMIT 8", fetch_size=3, consistency_level=level)
        result = session.execute(statement)
        assert [row.k for row in result.current_rows] == list(range(8)) and not result.has_more_pages
        assert result.response_future.warnings == [
            "Top-K queries do not support paging and the page size is set to 3, which is less than LIMIT 8. The page size has been set to 8 to match the LIMIT."
        ]
