'use strict';

// Tests of an application against a node of their own; with jest or mocha the hooks are the same.

const assert = require('node:assert/strict');
const { after, before, test } = require('node:test');

const { Client } = require('cassandra-driver');
const helenus = require('helenus');

let node;
let client;

before(async () => {
  node = await helenus.start();
  await node.cql(`
    CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
    CREATE TABLE shop.orders (customer text, id int, PRIMARY KEY (customer, id));`);
  client = new Client({
    contactPoints: [node.contactPoint],
    localDataCenter: 'datacenter1',
    keyspace: 'shop',
  });
});

after(async () => {
  await client?.shutdown();
  await node?.shutdown();
});

test('orders of a customer are in order', async () => {
  for (const id of [3, 1, 2]) {
    await client.execute('INSERT INTO orders (customer, id) VALUES (?, ?)', ['ada', id], { prepare: true });
  }
  const { rows } = await client.execute("SELECT id FROM orders WHERE customer = 'ada'");
  assert.deepEqual(rows.map((row) => row.id), [1, 2, 3]);
});
