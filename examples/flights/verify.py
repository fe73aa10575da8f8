"""Compares what the server has with what was sent and acknowledged, value for value.

A row that was acknowledged must be there with all its values. A row that is there must have been
sent. Nothing is said of rows that were sent and not acknowledged.
"""
import random

from cassandra.concurrent import execute_concurrent_with_args
from cassandra.query import SimpleStatement

POINT_READS = 500  # per table
SHOWN_MAX = 5  # differences that are printed per table


def verify(connection, loader, checks):
    """One check per table by full scan and one by key."""
    data = loader.data
    partitions_of_flights = {
        row[:2] for row, sent in zip(data.by_hour.rows, loader.sent[data.by_hour.source]) if sent}
    partitions_of_weather = {
        row[:2] for row, sent in zip(data.weather.rows, loader.sent[data.weather.source]) if sent}
    for table in data.tables:
        found = {}
        twice = []
        for row in _scan(connection, table):
            key, values = row[:table.keys], row[table.keys:]
            if table is data.weather and not any(v is not None for v in values) \
                    and key in partitions_of_flights:
                continue  # a partition that has flights and no weather
            if table is data.by_hour and row[2] is None and key[:2] in partitions_of_weather:
                continue  # a partition that has weather and no flights
            if key in found:
                twice.append(f"row found twice: {key}")
            found[key] = values
        _compare(table, loader, found, twice, checks)
        _point_reads(connection, table, loader, checks)


def _scan(connection, table):
    for row in connection.session.execute(SimpleStatement(table.scan, fetch_size=2000)):
        yield tuple(row)


def _compare(table, loader, found, wrong, checks):
    sent, acked = loader.sent[table.source], loader.acked[table.source]
    total = sum(acked)
    for index, row in enumerate(table.rows):
        key, values = row[:table.keys], row[table.keys:]
        if key not in found:
            if acked[index]:
                wrong.append(f"acknowledged row is missing: {row}")
            continue
        values_found = found.pop(key)
        if not sent[index]:
            wrong.append(f"row was never sent: {key}")
        elif values_found != values:
            wrong.append(f"values differ: key {key}, sent {values}, found {values_found}")
    wrong.extend(f"row was never sent: {key}" for key in found)
    checks.check(f"{table.source}: {total:,} acknowledged rows are there, value for value, and no "
                 "other row", not wrong, wrong[:SHOWN_MAX])


def _point_reads(connection, table, loader, checks):
    acked = [i for i, one in enumerate(loader.acked[table.source]) if one]
    sample = random.Random(len(acked)).sample(acked, min(POINT_READS, len(acked)))
    select = connection.prepare(table.by_key)
    keys = [table.rows[index][:table.keys] for index in sample]
    wrong = []
    results = execute_concurrent_with_args(
        connection.session, select, keys, concurrency=32, raise_on_first_error=False)
    for index, (success, result) in zip(sample, results):
        rows = [tuple(row) for row in result] if success else result
        if rows != [table.rows[index]]:
            wrong.append(f"sent {table.rows[index]}, read {rows!r}")
    checks.check(f"{table.source}: {len(sample):,} rows read by key", not wrong, wrong[:SHOWN_MAX])
