"""LIKE by SASI and by storage-attached indexes: each answer is compared with the rows of a full scan, filtered here.

The model of analyzers and patterns is in this file. Run against Cassandra it checks SASI there too; LIKE by
storage-attached indexes exists in Helenus only. SASI is skipped where `sasi_indexes_enabled` is off. With
HELENUS_FLUSH, a shell command, the table is flushed between the rounds.
"""
import os
import random
import re
import subprocess
import time
import unicodedata

import pytest
from cassandra import InvalidRequest, ReadFailure
from cassandra.query import SimpleStatement

SEED = int(os.environ.get("HELENUS_INDEX_SEED", "1"))
ROUNDS = int(os.environ.get("HELENUS_INDEX_ROUNDS", "5"))
FLUSH = os.environ.get("HELENUS_FLUSH")

SASI = "org.apache.cassandra.index.sasi.SASIIndex"
ANALYZERS = "org.apache.cassandra.index.sasi.analyzer."
WORDS = ["Ada", "ada", "ADAM", "bob", "Bo", "\u00c9a", "\u00e9a", "e\u0301a", "zoe", "o%e", "b"]
GLUE = [" ", ", ", ",", ",,", " - "]


def nfc(text):
    return unicodedata.normalize("NFC", text)


def words(text):
    """The words of these texts: letters with their combining marks."""
    return [nfc(word.lower()) for word in re.findall(r"[^\W\d_][^\W\d_\u0301]*(?:\u0301[^\W\d_]*)*", text)]


# Column: options of its index, the terms of a value, the forms of patterns that it answers, `=` or not.
PREFIX, EVERY = ("m", "p"), ("m", "p", "s", "c")
SASI_COLUMNS = {
    "x": ({}, lambda v: [v], PREFIX, True),
    "a": ({"mode": "CONTAINS"}, lambda v: [v], EVERY, True),
    "y": (
        {"mode": "CONTAINS", "analyzer_class": ANALYZERS + "NonTokenizingAnalyzer", "case_sensitive": "false"},
        lambda v: [nfc(v.lower())],
        EVERY,
        True,
    ),
    "u": (
        {"analyzer_class": ANALYZERS + "NonTokenizingAnalyzer", "normalize_uppercase": "true"},
        lambda v: [nfc(v.upper())],
        PREFIX,
        True,
    ),
    "w": (
        {"analyzer_class": ANALYZERS + "StandardAnalyzer", "tokenization_normalize_lowercase": "true"},
        words,
        PREFIX,
        False,
    ),
    "wc": (
        {"mode": "CONTAINS", "analyzed": "true", "tokenization_normalize_lowercase": "true"},
        words,
        ("m", "s", "c"),
        False,
    ),
    "z": (
        {"mode": "CONTAINS", "analyzer_class": ANALYZERS + "DelimiterAnalyzer", "delimiter": ","},
        lambda v: [part for part in v.split(",") if part],
        ("m", "s", "c"),
        False,
    ),
}
SAI_COLUMNS = {
    "x": ({}, lambda v: [v], EVERY, True),
    "y": ({"case_sensitive": "false", "normalize": "true"}, lambda v: [nfc(v.lower())], EVERY, True),
    "a": ({"ascii": "true"}, lambda v: [v.replace("\u00e9", "e").replace("\u00c9", "E")], EVERY, True),
}


def value(rng):
    text = rng.choice(WORDS)
    for _ in range(rng.randrange(3)):
        text += rng.choice(GLUE) + rng.choice(WORDS)
    return text


def fits(kind, term, text):
    return {
        "m": term == text,
        "p": term.startswith(text),
        "s": term.endswith(text),
        "c": text in term,
    }[kind]


def pattern(rng, kinds, several):
    """A form and the text of a pattern: a part of a value."""
    text = value(rng) if several else rng.choice([word for word in WORDS if "%" not in word])
    kind = rng.choice(kinds)
    if kind != "m" and rng.random() < 0.7:
        start = 0 if kind == "p" else rng.randrange(len(text))
        end = len(text) if kind == "s" else rng.randrange(start, len(text)) + 1
        text = text[start:end]
    # Ends of the text that would be wildcards, or join with what a value has beside them.
    if text.startswith("%") or text.endswith("%") or text.startswith("\u0301") or not text.strip():
        return kind, "a"
    return kind, text


def shown(kind, text):
    return {"m": text, "p": text + "%", "s": "%" + text, "c": "%" + text + "%"}[kind]


def like(terms, kind, text):
    """The test of a value for a pattern."""
    parts = terms(text)
    return lambda v: v is not None and bool(parts) and all(any(fits(kind, t, p) for t in terms(v)) for p in parts)


def rows_of(session, text, values=(), pages=5000):
    for _ in range(300):
        try:
            return list(session.execute(SimpleStatement(text, fetch_size=pages), values))
        except ReadFailure as failure:
            if "INDEX_NOT_AVAILABLE" not in str(failure) and 6 not in (failure.error_code_map or {}).values():
                raise
            time.sleep(0.1)
    raise AssertionError(f"no index became available for {text}")


def create(session, table, column, options, using):
    options = ", ".join(f"'{key}': '{text}'" for key, text in options.items())
    options = f" WITH OPTIONS = {{{options}}}" if options else ""
    session.execute(f"CREATE CUSTOM INDEX {table}_{column} ON {table} ({column}) USING '{using}'{options}")


def write(rng, session, table, columns):
    k, c = rng.randrange(12), rng.randrange(4)
    kind = rng.random()
    if kind < 0.1:
        session.execute(f"DELETE FROM {table} WHERE k = {k} AND c = {c}")
    elif kind < 0.15:
        session.execute(f"DELETE {rng.choice(columns)} FROM {table} WHERE k = {k} AND c = {c}")
    elif kind < 0.25:
        session.execute(f"UPDATE {table} SET s = %s WHERE k = {k}", [value(rng)])
    else:
        names = rng.sample(columns, rng.randrange(1, len(columns) + 1))
        assignments = ", ".join(f"{name} = %s" for name in names + ["v"])
        values = [value(rng) for _ in names] + [rng.randrange(9)]
        session.execute(f"UPDATE {table} SET {assignments} WHERE k = {k} AND c = {c}", values)


def has_like_by_sai(session):
    """Helenus only."""
    session.execute("CREATE TABLE IF NOT EXISTS sai_like (k int PRIMARY KEY, v text)")
    session.execute("CREATE CUSTOM INDEX IF NOT EXISTS sai_like_v ON sai_like (v) USING 'StorageAttachedIndex'")
    try:
        rows_of(session, "SELECT * FROM sai_like WHERE v LIKE '%a%'")
    except InvalidRequest:
        return False
    return True


def check(rng, session, table, columns, several):
    everything = rows_of(session, f"SELECT * FROM {table}")
    found_any = 0
    for _ in range(60):
        column = rng.choice(list(columns))
        _, terms, kinds, equality = columns[column]
        kind, text = pattern(rng, kinds, several)
        accepts = like(terms, kind, text)
        where, values = f"{column} LIKE %s", [shown(kind, text)]
        if equality and rng.random() < 0.2:
            text = value(rng)
            accepts, where, values = like(terms, "m", text), f"{column} = %s", [text]
        test = lambda row, accepts=accepts, column=column: accepts(getattr(row, column))
        if rng.random() < 0.3:
            k = rng.randrange(12)
            where += f" AND k = {k}"
            test = lambda row, test=test, k=k: test(row) and row.k == k
        elif rng.random() < 0.3:
            v = rng.randrange(9)
            where += f" AND v > {v} ALLOW FILTERING"
            test = lambda row, test=test, v=v: test(row) and row.v is not None and row.v > v
        expected = [row for row in everything if test(row)]
        for pages in (5000, 3):
            found = rows_of(session, f"SELECT * FROM {table} WHERE {where}", values, pages)
            assert found == expected, f"seed {SEED}, pages of {pages}: WHERE {where} {values}"
        found_any += len(expected)
    return found_any


def run(session, table, columns, using, late, several):
    rng = random.Random(f"{SEED} {table} {late}")
    session.execute(f"DROP TABLE IF EXISTS {table}")
    definitions = ", ".join(f"{name} text" for name in columns)
    session.execute(f"CREATE TABLE {table} (k int, c int, s text static, v int, {definitions}, PRIMARY KEY (k, c))")
    of_all = dict(columns, s=({"mode": "CONTAINS"} if using == SASI else {}, lambda v: [v], EVERY, True))
    make = lambda: [create(session, table, name, of_all[name][0], using) for name in of_all]
    if not late:
        make()
    found = 0
    for round in range(ROUNDS):
        for _ in range(80):
            write(rng, session, table, list(columns))
        if late and round == 0:
            make()
        if FLUSH and round % 2 == 0:
            subprocess.run(FLUSH, shell=True, check=True, stdout=subprocess.DEVNULL)
        found += check(rng, session, table, of_all, several)
    assert found > 200, found


@pytest.mark.parametrize("late", [False, True])
def test_like_by_sasi_finds_what_its_analyzer_matches(session, late):
    session.execute("CREATE TABLE IF NOT EXISTS sasi_off (k int PRIMARY KEY, v text)")
    try:
        session.execute(f"CREATE CUSTOM INDEX IF NOT EXISTS sasi_off_v ON sasi_off (v) USING '{SASI}'")
    except InvalidRequest as refused:
        assert "SASI indexes are disabled" in str(refused)
        pytest.skip("sasi_indexes_enabled is off")
    # With several tokens a row of the same partition is enough for Cassandra.
    run(session, f"sasi_{int(late)}", SASI_COLUMNS, SASI, late, several=has_like_by_sai(session))


@pytest.mark.parametrize("late", [False, True])
def test_like_by_storage_attached_indexes_finds_what_their_options_match(session, late):
    if not has_like_by_sai(session):
        pytest.skip("LIKE by storage-attached indexes is of Helenus")
    run(session, f"sai_{int(late)}", SAI_COLUMNS, "StorageAttachedIndex", late, several=True)


def test_patterns_are_bound_and_refused(session):
    if not has_like_by_sai(session):
        pytest.skip("LIKE by storage-attached indexes is of Helenus")
    session.execute("INSERT INTO sai_like (k, v) VALUES (1, 'one%two')")
    prepared = session.prepare("SELECT k FROM sai_like WHERE v LIKE ?")
    found = lambda text: [row.k for row in session.execute(prepared, [text])]
    for text in ("one%", "%two", "%e%t%", "one%two", "%%%"):
        assert found(text) == [1], text
    for text in ("two%", "%one", "ONE%", "%x%"):
        assert found(text) == [], text
    for text in ("", "%", "%%"):
        with pytest.raises(InvalidRequest, match="LIKE value can't be empty"):
            found(text)
