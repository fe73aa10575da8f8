"""The object mapper of the Python driver (cqlengine) against the server under test.

Tables are made by sync_table and read back through the driver's parser of the schema.
"""
import datetime
import decimal
import os
import uuid

import pytest
from cassandra.cqlengine import columns, connection
from cassandra.cqlengine.functions import MaxTimeUUID, MinTimeUUID, Token
from cassandra.cqlengine.management import drop_table, sync_table, sync_type
from cassandra.cqlengine.models import Model
from cassandra.cqlengine.query import (
    BatchQuery,
    BatchType,
    ContextQuery,
    DoesNotExist,
    LWTException,
    MultipleObjectsReturned,
)
from cassandra.cqlengine.usertype import UserType
from cassandra.util import min_uuid_from_time

from conftest import connect

NAME = "default"
# cqlengine warns of tables that it makes unless this says that it may.
os.environ.setdefault("CQLENG_ALLOW_SCHEMA_MANAGEMENT", "1")


class Address(UserType):
    street = columns.Text()
    zip_code = columns.Integer()


class User(Model):
    __table_name__ = "users"
    __options__ = {
        "gc_grace_seconds": 1000,
        "compaction": {"class": "LeveledCompactionStrategy", "sstable_size_in_mb": "64"},
        "comment": "made by cqlengine",
    }
    id = columns.UUID(primary_key=True, default=uuid.uuid4)
    name = columns.Text(required=True)
    born = columns.Date()
    balance = columns.Decimal()
    score = columns.Double()
    active = columns.Boolean(default=True)
    tags = columns.Set(columns.Text)
    visits = columns.List(columns.Integer)
    settings = columns.Map(columns.Text, columns.Text)
    home = columns.UserDefinedType(Address)
    pair = columns.Tuple(columns.Integer, columns.Text)
    made = columns.DateTime()


class Event(Model):
    __table_name__ = "events"
    source = columns.Integer(partition_key=True)
    day = columns.Text(partition_key=True)
    at = columns.TimeUUID(primary_key=True, clustering_order="DESC")
    number = columns.Integer(primary_key=True)
    owner = columns.Text(static=True)
    value = columns.BigInt()


class Hit(Model):
    __table_name__ = "hits"
    page = columns.Text(primary_key=True)
    count = columns.Counter()


class Animal(Model):
    __table_name__ = "animals"
    id = columns.Integer(primary_key=True)
    kind = columns.Text(discriminator_column=True)
    name = columns.Text()


class Cat(Animal):
    __discriminator_value__ = "cat"
    lives = columns.Integer()


class Dog(Animal):
    __discriminator_value__ = "dog"
    trick = columns.Text()


MODELS = (User, Event, Hit, Animal, Cat, Dog)


@pytest.fixture(scope="module", autouse=True)
def engine(keyspace):
    cluster = connect()
    connection.register_connection(NAME, session=cluster.connect(), default=True)
    for model in MODELS:
        model.__keyspace__ = keyspace
    sync_type(keyspace, Address)
    for model in (User, Event, Hit, Cat, Dog):
        sync_table(model)
    yield
    for model in (User, Event, Hit, Cat):
        drop_table(model)
    connection.unregister_connection(NAME)
    cluster.shutdown()


def test_sync_table_makes_what_the_model_says_and_then_nothing_more(keyspace):
    table = connection.get_cluster().metadata.keyspaces[keyspace].tables["users"]
    assert table.options["gc_grace_seconds"] == 1000
    assert table.options["comment"] == "made by cqlengine"
    assert table.options["compaction"]["sstable_size_in_mb"] == "64"
    before = table.export_as_string()
    sync_table(User)
    connection.get_cluster().refresh_table_metadata(keyspace, "users")
    after = connection.get_cluster().metadata.keyspaces[keyspace].tables["users"].export_as_string()
    assert after == before
    events = connection.get_cluster().metadata.keyspaces[keyspace].tables["events"]
    assert [c.name for c in events.partition_key] == ["source", "day"]
    assert events.clustering_key[0].is_reversed
    assert events.columns["owner"].is_static


def test_sync_table_adds_columns(keyspace):
    class Wider(Model):
        __table_name__ = "grows"
        id = columns.Integer(primary_key=True)
        first = columns.Text()

    Wider.__keyspace__ = keyspace
    sync_table(Wider)

    class Grown(Model):
        __table_name__ = "grows"
        __options__ = {"gc_grace_seconds": 5}
        id = columns.Integer(primary_key=True)
        first = columns.Text()
        second = columns.List(columns.Integer)

    Grown.__keyspace__ = keyspace
    sync_table(Grown)
    Grown.create(id=1, first="a", second=[1])
    assert Grown.get(id=1).second == [1]
    connection.get_cluster().refresh_table_metadata(keyspace, "grows")
    grown = connection.get_cluster().metadata.keyspaces[keyspace].tables["grows"]
    assert grown.options["gc_grace_seconds"] == 5
    drop_table(Grown)


def test_every_column_comes_back():
    made = datetime.datetime(2024, 2, 29, 12, 30, 15, 123000)
    user = User.create(
        name="Ann",
        born=datetime.date(1990, 1, 2),
        balance=decimal.Decimal("12.50"),
        score=1.5,
        tags={"a", "b"},
        visits=[3, 1, 2],
        settings={"x": "1"},
        home=Address(street="Main", zip_code=12345),
        pair=(7, "seven"),
        made=made,
    )
    found = User.get(id=user.id)
    assert found.name == "Ann" and found.active is True
    assert found.born.date() == datetime.date(1990, 1, 2)
    assert found.balance == decimal.Decimal("12.50") and found.score == 1.5
    assert found.tags == {"a", "b"} and found.visits == [3, 1, 2]
    assert found.settings == {"x": "1"} and found.pair == (7, "seven")
    assert found.home.street == "Main" and found.home.zip_code == 12345
    assert found.made == made
    assert User.objects.count() >= 1
    user.delete()
    with pytest.raises(DoesNotExist):
        User.get(id=user.id)


def test_saves_write_what_changed():
    user = User.create(name="Bob", tags={"a"}, visits=[1], settings={"a": "1"})
    user.tags.add("b")
    user.visits.append(2)
    user.visits.insert(0, 0)
    user.settings["b"] = "2"
    user.name = "Robert"
    user.save()
    found = User.get(id=user.id)
    assert (found.name, found.tags, found.visits) == ("Robert", {"a", "b"}, [0, 1, 2])
    assert found.settings == {"a": "1", "b": "2"}
    found.settings.pop("a")
    found.tags.remove("a")
    found.score = None
    found.save()
    again = User.get(id=user.id)
    assert again.settings == {"b": "2"} and again.tags == {"b"} and again.score is None
    again.update(name="Rob", active=False)
    last = User.get(id=user.id)
    assert (last.name, last.active) == ("Rob", False)


def test_query_updates_of_collections():
    user = User.create(name="Cid", tags={"a"}, visits=[2], settings={"a": "1"})
    one = User.objects(id=user.id)
    one.update(tags__add={"b"}, visits__append=[3], settings__update={"c": "3"})
    one.update(visits__prepend=[1], tags__remove={"a"})
    found = one.get()
    assert (found.tags, found.visits, found.settings) == ({"b"}, [1, 2, 3], {"a": "1", "c": "3"})
    one.update(settings__remove={"a"})
    assert User.get(id=user.id).settings == {"c": "3"}


@pytest.fixture(scope="module")
def events(engine):
    start = datetime.datetime(2024, 1, 1)
    for number in range(10):
        at = uuid_of(start + datetime.timedelta(hours=number))
        Event.create(source=1, day="mon", at=at, number=number, value=number * 10)
    Event.create(source=1, day="tue", at=uuid_of(start), number=0, value=1)
    Event.objects(source=1, day="mon").update(owner="me")
    return start


def uuid_of(moment):
    return min_uuid_from_time(moment.replace(tzinfo=datetime.timezone.utc).timestamp())


def test_queries_by_keys_slices_order_and_limit(events):
    monday = Event.objects(source=1, day="mon")
    assert [e.number for e in monday] == list(range(9, -1, -1))
    assert {e.owner for e in monday} == {"me"}
    assert [e.number for e in monday.order_by("at").limit(3)] == [0, 1, 2]
    middle = monday.filter(
        at__gte=MinTimeUUID(events + datetime.timedelta(hours=3)),
        at__lt=MaxTimeUUID(events + datetime.timedelta(hours=5)),
    )
    assert sorted(e.number for e in middle) == [3, 4, 5]
    assert monday.count() == 10
    assert [e.number for e in monday[2:4]] == [7, 6]
    both = Event.objects.filter(source=1, day__in=["mon", "tue"]).limit(None)
    assert len(both.all()) == 11
    assert sorted(monday.values_list("value", flat=True)) == [n * 10 for n in range(10)]
    with pytest.raises(MultipleObjectsReturned):
        monday.get()


def test_filters_distinct_and_tokens(events):
    found = Event.objects(value=50).allow_filtering()
    assert [e.number for e in found] == [5]
    keys = Event.objects.distinct(["source", "day"])
    assert sorted(e.day for e in keys) == ["mon", "tue"]
    first = User.objects.limit(1).first()
    if first is not None:
        behind = User.objects.filter(pk__token__gt=Token(first.pk)).limit(None)
        assert all(u.id != first.id for u in behind)
    fields = Event.objects(source=1, day="tue").only(["value"]).first()
    assert fields.value == 1


def test_pages_are_fetched_as_they_are_read(events):
    small = Event.objects(source=1, day="mon").fetch_size(3)
    assert [e.number for e in small] == list(range(9, -1, -1))


def test_ttl_and_timestamps(session, keyspace):
    user = User.ttl(1000).create(name="short")
    row = session.execute(
        f"SELECT ttl(name) AS t FROM {keyspace}.users WHERE id = %s", [user.id]
    ).one()
    assert 0 < row.t <= 1000
    late = datetime.timedelta(seconds=30)
    user.timestamp(late).update(name="later")
    user.update(name="lost")
    assert User.get(id=user.id).name == "later"


def test_lightweight_transactions():
    key = uuid.uuid4()
    User.if_not_exists().create(id=key, name="first")
    with pytest.raises(LWTException) as refused:
        User.if_not_exists().create(id=key, name="second")
    assert refused.value.existing["name"] == "first"
    User.objects(id=key).iff(name="first").update(name="third")
    with pytest.raises(LWTException) as refused:
        User.objects(id=key).iff(name="first").update(name="fourth")
    assert refused.value.existing["name"] == "third"
    User.objects(id=key).if_exists().update(score=2.0)
    with pytest.raises(LWTException):
        User.objects(id=uuid.uuid4()).if_exists().update(score=2.0)
    User.objects(id=key).iff(name="third").delete()
    with pytest.raises(DoesNotExist):
        User.get(id=key)


@pytest.mark.parametrize("kind", [None, BatchType.Unlogged])
def test_batches(kind):
    keys = [uuid.uuid4() for _ in range(3)]
    with BatchQuery(batch_type=kind) as batch:
        for key in keys:
            User.batch(batch).create(id=key, name="of a batch")
    assert User.objects(id__in=keys).count() == 3
    with BatchQuery() as batch:
        User.objects(id=keys[0]).batch(batch).delete()
        User.objects(id=keys[1]).batch(batch).update(name="changed")
    assert {u.name for u in User.objects(id__in=keys)} == {"of a batch", "changed"}


def test_counters():
    hit = Hit.create(page="home")
    hit.count += 5
    hit.save()
    Hit.objects(page="home").update(count=2)
    with BatchQuery(batch_type=BatchType.Counter) as batch:
        hit = Hit.get(page="home")
        hit.count -= 1
        hit.batch(batch).save()
    assert Hit.get(page="home").count == 6


def test_models_of_one_table():
    Cat.create(id=1, name="Tom", lives=9)
    Dog.create(id=2, name="Rex", trick="sit")
    animals = {a.id: a for a in Animal.all()}
    assert isinstance(animals[1], Cat) and animals[1].lives == 9
    assert isinstance(animals[2], Dog) and animals[2].trick == "sit"


def test_another_keyspace_in_a_context(session, keyspace):
    other = keyspace + "_ctx"
    session.execute(
        f"CREATE KEYSPACE {other} WITH replication = "
        "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    try:
        session.execute(f"CREATE TABLE {other}.hits (page text PRIMARY KEY, count counter)")
        with ContextQuery(Hit, keyspace=other) as elsewhere:
            elsewhere.objects(page="there").update(count=3)
            assert elsewhere.get(page="there").count == 3
        assert Hit.objects(page="there").first() is None
    finally:
        session.execute(f"DROP KEYSPACE {other}")
