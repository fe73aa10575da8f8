"""The questions that the tables are made for; each answer is printed and checked against the CSV.

Every function takes the connection, the data set and the checks, and may return data to plot.
"""
import datetime
import zoneinfo
from collections import Counter, defaultdict

from cassandra.concurrent import execute_concurrent_with_args
from cassandra.query import SimpleStatement


NEW_YORK = zoneinfo.ZoneInfo("America/New_York")


def run_all(connection, data, checks):
    by_carrier_and_day(connection, data, checks)
    by_tailnum(connection, data, checks)
    by_origin_and_hour(connection, data, checks)
    one_wide_partition(connection, data, checks)
    return per_destination(connection, data, checks), through_the_day(connection, data, checks)


def by_carrier_and_day(connection, data, checks):
    rows = data.by_carrier.rows
    (carrier, day), count = Counter(row[:2] for row in rows).most_common(1)[0]
    name = connection.execute("SELECT name FROM airlines WHERE carrier = ?", (carrier,)).one().name
    found = list(connection.execute(
        f"{data.by_carrier.scan} WHERE carrier = ? AND day = ?", (carrier, day)))
    print(f"\n{name} on {day}: {count} flights; the first")
    _table(("scheduled (UTC)", "flight", "from", "to", "delay"), [
        (row.scheduled, row.flight, row.origin, row.destination, row.departure_delay)
        for row in found[:3]])
    expected = sorted((row for row in rows if row[:2] == (carrier, day)), key=lambda row: row[2:4])
    checks.check("by carrier and day: all flights, in order",
                 [tuple(row) for row in found] == expected)


def by_tailnum(connection, data, checks):
    rows = data.by_tailnum.rows
    known = {row[0] for row in data.planes.rows}
    tailnum = Counter(row[0] for row in rows if row[0] in known).most_common(1)[0][0]
    plane = connection.execute("SELECT * FROM planes WHERE tailnum = ?", (tailnum,)).one()
    mine = sorted((row for row in rows if row[0] == tailnum),
                  key=lambda row: (-row[1].timestamp(), row[2:4]))
    latest = list(connection.execute(
        f"{data.by_tailnum.scan} WHERE tailnum = ? LIMIT 5", (tailnum,)))
    print(f"\n{tailnum}, a {plane.manufacturer} {plane.model}: its latest flights")
    _table(("scheduled (UTC)", "flight", "from", "to", "delay"), [
        (row.scheduled, f"{row.carrier} {row.flight}", row.origin, row.destination,
         row.arrival_delay) for row in latest])
    checks.check("by tail number: newest first", [tuple(row) for row in latest] == mine[:5])
    low, high = mine[-1 - len(mine) // 4][1], mine[len(mine) // 4][1]
    found = connection.execute(
        f"{data.by_tailnum.scan} WHERE tailnum = ? AND scheduled >= ? AND scheduled < ? "
        "ORDER BY scheduled ASC, carrier DESC, flight DESC", (tailnum, low, high))
    expected = [row for row in reversed(mine) if low <= row[1] < high]
    checks.check("by tail number: a slice of time, oldest first",
                 [tuple(row) for row in found] == expected)


def by_origin_and_hour(connection, data, checks):
    weather = {row[:2]: row[2:] for row in data.weather.rows}
    counts = Counter(row[:2] for row in data.by_hour.rows if row[:2] in weather)
    (origin, hour), count = counts.most_common(1)[0]
    found = list(connection.execute(
        "SELECT * FROM departures_by_origin_and_hour WHERE origin = ? AND hour = ?",
        (origin, hour)))
    first = found[0]
    print(f"\n{origin}, the hour from {hour} UTC: {count} departures at {first.temperature} F, "
          f"wind {_round(first.wind_speed)} mph, visibility {first.visibility} miles")
    _table(("scheduled (UTC)", "flight", "to", "delay"), [
        (row.scheduled, f"{row.carrier} {row.flight}", row.destination, row.departure_delay)
        for row in found[:3]])
    names = data.by_hour.columns
    statics = data.weather.columns[2:]
    expected = sorted((row for row in data.by_hour.rows if row[:2] == (origin, hour)),
                      key=lambda row: row[2:5])
    checks.check("by origin and hour: all departures",
                 [tuple(getattr(row, name) for name in names) for row in found] == expected)
    checks.check("by origin and hour: the weather stands beside each", all(
        tuple(getattr(row, name) for name in statics) == weather[origin, hour] for row in found))


def one_wide_partition(connection, data, checks):
    destination, count = Counter(
        row[0] for row in data.by_destination.rows).most_common(1)[0]
    mine = sorted((row for row in data.by_destination.rows if row[0] == destination),
                  key=lambda row: row[1:4])
    query = f"{data.by_destination.scan} WHERE destination = %s"
    forward = connection.session.execute(
        SimpleStatement(query, fetch_size=700), (destination,))
    checks.check(f"paging: {count:,} rows of one partition, in order",
                 [tuple(row) for row in forward] == mine)
    backward = connection.session.execute(
        SimpleStatement(query + " ORDER BY scheduled DESC, carrier DESC, flight DESC",
                        fetch_size=700), (destination,))
    checks.check("paging: the same backwards", [tuple(row) for row in backward] == mine[::-1])


def per_destination(connection, data, checks):
    """(destination, name, flights, mean delay in minutes), of all destinations, latest first."""
    expected = defaultdict(lambda: [0, 0, 0, None])
    for row in data.by_destination.rows:
        entry, delay = expected[row[0]], row[6]
        entry[0] += 1
        if delay is not None:
            entry[1] += 1
            entry[2] += delay
            entry[3] = delay if entry[3] is None else max(entry[3], delay)
    destinations = sorted(expected)
    select = connection.prepare(
        "SELECT count(*) AS flights, count(arrival_delay) AS arrived, "
        "sum(arrival_delay) AS minutes, max(arrival_delay) AS worst "
        "FROM delays_by_destination WHERE destination = ?")
    results = execute_concurrent_with_args(
        connection.session, select, [(name,) for name in destinations], concurrency=16)
    found = {name: list(result.one()) for name, (_, result) in zip(destinations, results)}
    checks.check(f"delays per destination: {len(destinations)} aggregates", all(
        found[name] == expected[name] for name in destinations))
    names = {row.airport: row.name
             for row in connection.session.execute("SELECT airport, name FROM airports")}
    means = [(name, names.get(name, ""), flights, minutes / arrived)
             for name, (flights, arrived, minutes, _) in found.items() if arrived]
    means.sort(key=lambda row: -row[3])
    print("\nLatest on average, of destinations with 100 flights or more")
    _table(("", "destination", "flights", "mean delay"), [
        (name, long, flights, f"{mean:.1f} min") for name, long, flights, mean in means
        if flights >= 100][:5])
    return means


def through_the_day(connection, data, checks):
    """{origin: {hour of the day in New York: mean departure delay}}, from one scan of the table."""
    local_hours = {row[1]: _local_hour(row[1]) for row in data.by_hour.rows}
    sums = defaultdict(lambda: [0, 0])
    count = 0
    scan = SimpleStatement(
        "SELECT origin, hour, scheduled, departure_delay FROM departures_by_origin_and_hour",
        fetch_size=2000)
    for origin, hour, scheduled, delay in connection.session.execute(scan):
        if scheduled is None:
            continue  # weather without departures
        count += 1
        if delay is not None:
            entry = sums[origin, local_hours.get(hour)]
            entry[0] += delay
            entry[1] += 1
    expected = defaultdict(lambda: [0, 0])
    for row in data.by_hour.rows:
        if row[7] is not None:
            entry = expected[row[0], local_hours[row[1]]]
            entry[0] += row[7]
            entry[1] += 1
    checks.check(f"scan: {count:,} departures, delays summed by hour of the day",
                 count == len(data.by_hour.rows) and sums == expected)
    means = defaultdict(dict)
    for (origin, hour), (minutes, flights) in sums.items():
        means[origin][hour] = minutes / flights
    return means


def _local_hour(moment):
    """Hour of the day in New York of a naive datetime in UTC."""
    return moment.replace(tzinfo=datetime.timezone.utc).astimezone(NEW_YORK).hour


def _round(value):
    return "?" if value is None else round(value)


def _table(header, rows):
    cells = [tuple("-" if cell is None else str(cell) for cell in row) for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    for row in cells:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
