"""Tests of an application against a node of their own: pip install pytest cassandra-driver."""

import pytest


@pytest.fixture
def orders(helenus_session):
    helenus_session.execute("CREATE TABLE orders (customer text, id int, PRIMARY KEY (customer, id))")
    return helenus_session


def test_orders_of_a_customer_are_in_order(orders):
    for number in (3, 1, 2):
        orders.execute("INSERT INTO orders (customer, id) VALUES (%s, %s)", ("ada", number))
    rows = orders.execute("SELECT id FROM orders WHERE customer = 'ada'")
    assert [row.id for row in rows] == [1, 2, 3]


def test_every_test_has_a_keyspace_of_its_own(orders):
    assert orders.execute("SELECT count(*) FROM orders").one()[0] == 0
