'use strict';
// What an application does with the Node driver, against the server under test.
//
// It uses only what a single node must offer: no conditional statements, counters, views or roles.

const assert = require('node:assert/strict');
const { after, before, test } = require('node:test');
const { cassandra, makeClient, makeKeyspace } = require('./support');
const { types } = cassandra;

let client;
let keyspace;
let remove;

before(async () => {
  ({ client, keyspace, remove } = await makeKeyspace());
});
after(async () => {
  await remove();
});

/** Statements of the schema, not prepared. */
function define(cql) {
  return client.execute(cql, [], { prepare: false });
}

/** The rows of a query as plain objects. */
async function rows(cql, values = [], options = {}) {
  const result = await client.execute(cql, values, options);
  return result.rows.map(row => Object.fromEntries(row.keys().map(key => [key, row.get(key)])));
}

// ------------------------------------------------------------------ connection, metadata

test('connects and reads system.local', async () => {
  const row = (await client.execute('SELECT * FROM system.local')).first();
  assert.equal(row.key, 'local');
  assert.equal(row.release_version, '5.0.9');
  assert.equal(row.cql_version, '3.4.7');
  assert.equal(row.partitioner, 'org.apache.cassandra.dht.Murmur3Partitioner');
});

test('the cluster has one host, with tokens and versions', async () => {
  const hosts = client.hosts.values();
  assert.equal(hosts.length, 1);
  assert.ok(hosts[0].isUp());
  assert.equal(hosts[0].cassandraVersion, '5.0.9');
  assert.ok(hosts[0].tokens.length >= 1);
  assert.ok(hosts[0].datacenter && hosts[0].rack && hosts[0].hostId);
});

for (const version of [types.protocolVersion.v3, types.protocolVersion.v4]) {
  test(`protocol version ${version} connects and answers`, async () => {
    const other = makeClient({ keyspace, protocolOptions: { maxVersion: version } });
    try {
      await other.connect();
      assert.equal(other.controlConnection.protocolVersion, version);
      const table = `by_version_${version}`;
      await other.execute(`CREATE TABLE ${table} (k int PRIMARY KEY, v blob)`, [], { prepare: false });
      for (const size of [0, 100, 300000]) {
        const value = Buffer.alloc(size, 'xyz');
        await other.execute(`INSERT INTO ${table} (k, v) VALUES (?, ?)`, [size, value]);
        const read = await other.execute(`SELECT v FROM ${table} WHERE k = ?`, [size]);
        assert.deepEqual(read.first().v, value);
      }
    } finally {
      await other.shutdown();
    }
  });
}

test('a keyspace that is not there is refused', async () => {
  const other = makeClient({ keyspace: 'no_such_keyspace_at_all' });
  await assert.rejects(other.connect());
  await other.shutdown();
});

test('schema metadata of a table is complete', async () => {
  await define('CREATE TABLE meta (a int, b text, c timestamp, d uuid, s int static, v list<int>, ' +
    'm map<text, frozen<set<int>>>, PRIMARY KEY ((a, b), c, d)) ' +
    "WITH CLUSTERING ORDER BY (c DESC, d ASC) AND comment = 'a comment' " +
    'AND gc_grace_seconds = 1234 AND default_time_to_live = 77');
  const table = await client.metadata.getTable(keyspace, 'meta');
  assert.deepEqual(table.partitionKeys.map(column => column.name), ['a', 'b']);
  assert.deepEqual(table.clusteringKeys.map(column => column.name), ['c', 'd']);
  assert.deepEqual(table.clusteringOrder, ['DESC', 'ASC']);
  assert.deepEqual(table.columns.map(column => column.name).sort(),
    ['a', 'b', 'c', 'd', 'm', 's', 'v']);
  assert.equal(table.columnsByName.s.isStatic, true);
  assert.equal(table.columnsByName.v.type.code, types.dataTypes.list);
  assert.equal(table.comment, 'a comment');
  assert.equal(table.gcGraceSeconds, 1234);
  assert.equal(table.defaultTtl, 77);
});

test('schema metadata of user types and of the keyspace', async () => {
  await define('CREATE TYPE inner_t (x int, y text)');
  await define('CREATE TYPE outer_t (i frozen<inner_t>, l list<frozen<inner_t>>)');
  const udt = await client.metadata.getUdt(keyspace, 'outer_t');
  assert.deepEqual(udt.fields.map(field => field.name), ['i', 'l']);
  assert.equal(udt.fields[0].type.info.name, 'inner_t');
  await client.metadata.refreshKeyspace(keyspace);
  const meta = client.metadata.keyspaces[keyspace];
  assert.equal(meta.strategy, 'org.apache.cassandra.locator.SimpleStrategy');
  assert.equal(meta.durableWrites, true);
  assert.equal(client.metadata.getReplicas(keyspace, Buffer.from([0, 0, 0, 1])).length, 1);
});

test('schema metadata of indexes', async () => {
  await define('CREATE TABLE indexed (k int PRIMARY KEY, v int, m map<text, int>)');
  await define('CREATE INDEX ON indexed (v)');
  await define("CREATE INDEX indexed_m ON indexed (entries(m)) USING 'sai'");
  const indexes = async () => {
    const table = await client.metadata.getTable(keyspace, 'indexed');
    return Object.fromEntries(table.indexes.map(index => [index.name, index]));
  };
  const both = await indexes();
  assert.deepEqual(Object.keys(both).sort(), ['indexed_m', 'indexed_v_idx']);
  assert.ok(both.indexed_v_idx.isCompositesKind());
  assert.equal(both.indexed_v_idx.target, 'v');
  assert.ok(both.indexed_m.isCustomKind());
  assert.equal(both.indexed_m.target, 'entries(m)');
  assert.equal(both.indexed_m.options.class_name, 'sai');
  await define('DROP INDEX indexed_m');
  // As below, the event may come after the answer.
  const deadline = Date.now() + 20000;
  let left = Object.keys(await indexes());
  while (left.length !== 1 && Date.now() < deadline) {
    await new Promise(resolve => setTimeout(resolve, 20));
    left = Object.keys(await indexes());
  }
  assert.deepEqual(left, ['indexed_v_idx']);
});

test('schema metadata follows events', async () => {
  await define('CREATE TABLE evolving (k int PRIMARY KEY, a int)');
  assert.equal((await client.metadata.getTable(keyspace, 'evolving')).columns.length, 2);
  await define('ALTER TABLE evolving ADD b text');
  // The event may come after the answer: the deadline is far, the loop usually runs once.
  const deadline = Date.now() + 20000;
  let columns = 0;
  while (columns !== 3 && Date.now() < deadline) {
    columns = (await client.metadata.getTable(keyspace, 'evolving')).columns.length;
    if (columns !== 3) await new Promise(resolve => setTimeout(resolve, 20));
  }
  assert.equal(columns, 3);
  await define('DROP TABLE evolving');
});

test('tracing gives a trace', async () => {
  const result = await client.execute('SELECT key FROM system.local', [], { traceQuery: true });
  assert.ok(result.info.traceId);
  const trace = await client.metadata.getTrace(result.info.traceId);
  assert.ok(trace.requestType);
  assert.ok(trace.events.length >= 1);
});

// ------------------------------------------------------------------ statements

test('insert, select, update, delete, truncate', async () => {
  await define('CREATE TABLE crud (k int, c int, a text, b int, PRIMARY KEY (k, c))');
  await client.execute('INSERT INTO crud (k, c, a, b) VALUES (?, ?, ?, ?)', [1, 1, 'one', 10]);
  await define("INSERT INTO crud (k, c, a) VALUES (1, 2, 'two')");
  await client.execute('UPDATE crud SET b = ? WHERE k = ? AND c = ?', [20, 1, 2]);
  assert.deepEqual(await rows('SELECT * FROM crud WHERE k = 1'), [
    { k: 1, c: 1, a: 'one', b: 10 }, { k: 1, c: 2, a: 'two', b: 20 }]);
  await client.execute('DELETE FROM crud WHERE k = ? AND c = ?', [1, 1]);
  assert.equal((await rows('SELECT * FROM crud')).length, 1);
  await define('TRUNCATE crud');
  assert.deepEqual(await rows('SELECT * FROM crud'), []);
});

test('simple statements take values with hints', async () => {
  await define('CREATE TABLE simple (k int PRIMARY KEY, v text)');
  await client.execute('INSERT INTO simple (k, v) VALUES (?, ?)', [1, "it's"],
    { prepare: false, hints: ['int', 'text'] });
  assert.deepEqual(await rows('SELECT * FROM simple'), [{ k: 1, v: "it's" }]);
});

test('named, unset and null values', async () => {
  await define('CREATE TABLE unset (k int PRIMARY KEY, a int, b int)');
  await client.execute('INSERT INTO unset (k, a, b) VALUES (:key, :x, :y)', { y: 20, key: 1, x: 10 });
  assert.deepEqual(await rows('SELECT * FROM unset'), [{ k: 1, a: 10, b: 20 }]);
  await client.execute('INSERT INTO unset (k, a, b) VALUES (?, ?, ?)', [1, types.unset, 30]);
  assert.deepEqual(await rows('SELECT * FROM unset'), [{ k: 1, a: 10, b: 30 }]);
  await client.execute('INSERT INTO unset (k, a, b) VALUES (?, ?, ?)', [1, null, types.unset]);
  assert.deepEqual(await rows('SELECT * FROM unset'), [{ k: 1, a: null, b: 30 }]);
});

test('a prepared SELECT * keeps its values in place across ALTER TABLE', async () => {
  await define('CREATE TABLE altered (k int PRIMARY KEY, a int)');
  await define('INSERT INTO altered (k, a) VALUES (1, 2)');
  const select = 'SELECT * FROM altered WHERE k = ?';
  assert.deepEqual(await rows(select, [1]), [{ k: 1, a: 2 }]);
  await define('ALTER TABLE altered ADD b text');
  await define("INSERT INTO altered (k, a, b) VALUES (1, 3, 'x')");
  const [row] = await rows(select, [1]);
  assert.equal(row.k, 1);
  assert.equal(row.a, 3);
});

test('client timestamps decide which write wins', async () => {
  await define('CREATE TABLE stamped (k int PRIMARY KEY, v text)');
  const insert = 'INSERT INTO stamped (k, v) VALUES (1, ?)';
  await client.execute(insert, ['new'], { timestamp: types.Long.fromNumber(2000) });
  await client.execute(insert, ['old'], { timestamp: types.Long.fromNumber(1000) });
  const row = (await client.execute('SELECT v, writetime(v) AS w FROM stamped')).first();
  assert.equal(row.v, 'new');
  assert.equal(row.w.toString(), '2000');
});

test('aggregates and functions', async () => {
  await define('CREATE TABLE agg (k int, c int, v double, PRIMARY KEY (k, c))');
  for (let i = 0; i < 10; i++) {
    await client.execute('INSERT INTO agg (k, c, v) VALUES (0, ?, ?)', [i, i / 2]);
  }
  const row = (await client.execute('SELECT count(*) AS n, min(v) AS lo, max(v) AS hi, ' +
    'sum(c) AS total, avg(v) AS mean FROM agg WHERE k = 0')).first();
  assert.deepEqual([Number(row.n), row.lo, row.hi, row.total, row.mean], [10, 0, 4.5, 45, 2.25]);
});

// ------------------------------------------------------------------ paging

async function fill() {
  await define('CREATE TABLE IF NOT EXISTS paged (k int, c int, v text, PRIMARY KEY (k, c))');
  const values = [];
  for (let k = 0; k < 5; k++) {
    for (let c = 0; c < 40; c++) values.push([k, c, `v${k}-${c}`]);
  }
  await cassandra.concurrent.executeConcurrent(
    client, 'INSERT INTO paged (k, c, v) VALUES (?, ?, ?)', values, { concurrencyLevel: 32 });
}

test('paging returns every row once', async () => {
  await fill();
  for (const fetchSize of [1, 7, 40, 199, 200, 5000]) {
    const seen = new Set();
    const result = await client.execute('SELECT k, c, v FROM paged', [], { fetchSize });
    for await (const row of result) {
      assert.equal(row.v, `v${row.k}-${row.c}`);
      seen.add(row.v);
    }
    assert.equal(seen.size, 200);
  }
});

test('paging inside a partition, backwards, with a limit, by stream', async () => {
  await fill();
  const read = async (cql, fetchSize) => {
    const clusterings = [];
    for await (const row of client.stream(cql, [3], { fetchSize })) clusterings.push(row.c);
    return clusterings;
  };
  const up = [...Array(40).keys()];
  assert.deepEqual(await read('SELECT c FROM paged WHERE k = ?', 7), up);
  assert.deepEqual(await read('SELECT c FROM paged WHERE k = ? ORDER BY c DESC', 7),
    [...up].reverse());
  assert.deepEqual(await read('SELECT c FROM paged WHERE k = ? LIMIT 23', 5), up.slice(0, 23));
});

test('the paging state can be carried to another client', async () => {
  await fill();
  const query = 'SELECT c FROM paged WHERE k = 4';
  const first = await client.execute(query, [], { fetchSize: 15 });
  assert.equal(first.rows.length, 15);
  const other = makeClient({ keyspace });
  try {
    const rest = await other.execute(query, [], { fetchSize: 100, pageState: first.pageState });
    assert.deepEqual(rest.rows.map(row => row.c), [...Array(25).keys()].map(i => i + 15));
    assert.equal(rest.pageState, null);
  } finally {
    await other.shutdown();
  }
});

// ------------------------------------------------------------------ types

const uuid = types.Uuid.fromString('f79326be-2d7b-4996-b881-f9f0d571ffe0');
const long = text => types.Long.fromString(text);
const integer = text => types.Integer.fromString(text);
const decimal = text => types.BigDecimal.fromString(text);
const huge = '1606938044258990275541962092341162602522202993782792835301376';

const VALUES = {
  ascii: ['', 'plain ascii'],
  bigint: [long('0'), long('9223372036854775807'), long('-9223372036854775808')],
  blob: [Buffer.alloc(0), Buffer.from([0, 255])],
  boolean: [true, false],
  date: [types.LocalDate.fromString('1970-01-01'), types.LocalDate.fromString('2024-02-29'),
    types.LocalDate.fromString('1696-03-16')],
  decimal: [decimal('0'), decimal('-123456789012345678901234567890.1234567890'),
    decimal('0.00000000000000000001')],
  double: [0, -0, 1.5e300, Infinity, -Infinity, NaN, 5e-324],
  duration: [new types.Duration(0, 0, long('0')), new types.Duration(14, 3, long('5000000000')),
    new types.Duration(-1, -2, long('-3'))],
  float: [0, 1.5, -2.25, Infinity],
  inet: [types.InetAddress.fromString('127.0.0.1'),
    types.InetAddress.fromString('2001:db8::ff00:42:8329')],
  int: [0, 2147483647, -2147483648],
  smallint: [0, 32767, -32768],
  text: ['', 'Žluťoučký kůň', '\u{1f600} \n\t\'"'],
  time: [types.LocalTime.fromString('00:00:00'), types.LocalTime.fromString('23:59:59.999999999')],
  timestamp: [new Date(0), new Date('2026-07-01T12:30:45.678Z'), new Date('1900-01-01T00:00:00Z')],
  timeuuid: [types.TimeUuid.fromString('d2177dd0-eaa2-11de-a572-001b779c76e3')],
  tinyint: [0, 127, -128],
  uuid: [types.Uuid.fromString('00000000-0000-0000-0000-000000000000'), uuid],
  varchar: ['varchar is text'],
  varint: ['0', '1', '-1', '127', '128', '-128', '-129', huge, '-' + huge].map(integer),
  'list<int>': [[1, 2, 3, 2]],
  'set<text>': [['a', 'x']],
  'map<text, int>': [{ a: 1, b: 2 }],
  'map<text, frozen<list<text>>>': [{ a: ['x'], b: ['y', 'z'] }],
  'frozen<list<int>>': [[1, 2, 3]],
  'frozen<set<uuid>>': [[uuid]],
  'list<frozen<map<text, frozen<set<int>>>>>': [[{ a: [1, 2] }]],
  'tuple<int, text, boolean>': [new types.Tuple(1, 'a', true), new types.Tuple(1, null, false)],
  'list<frozen<tuple<int, text>>>': [[new types.Tuple(1, 'a'), new types.Tuple(2, 'b')]],
};

/** A form that deepEqual compares by value, also for the driver's own classes. */
function plain(value) {
  if (value instanceof types.Tuple) return ['tuple', ...value.elements.map(plain)];
  if (Array.isArray(value)) return value.map(plain);
  if (Buffer.isBuffer(value)) return 'blob ' + value.toString('hex');
  if (value instanceof Date) return value.toISOString();
  if (value !== null && typeof value === 'object') {
    if (value.constructor !== Object) return value.toString();
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, plain(each)]));
  }
  return value === undefined ? null : value;
}

Object.entries(VALUES).forEach(([type, values], number) => {
  test(`type ${type} round trips`, async () => {
    const table = `rt_${number}`;
    await define(`CREATE TABLE ${table} (k int PRIMARY KEY, v ${type})`);
    const insert = `INSERT INTO ${table} (k, v) VALUES (?, ?)`;
    const select = `SELECT v FROM ${table} WHERE k = ?`;
    for (const [key, value] of values.entries()) {
      await client.execute(insert, [key, value]);
      const read = (await client.execute(select, [key])).first().v;
      assert.deepEqual(plain(read), plain(value));
    }
    await client.execute(insert, [99, null]);
    assert.equal((await client.execute(select, [99])).first().v, null);
  });
});

test('a vector round trips', async () => {
  await define('CREATE TABLE vec (k int PRIMARY KEY, v vector<float, 3>)');
  const value = new types.Vector(new Float32Array([1.5, -2, 0.25]));
  await client.execute('INSERT INTO vec (k, v) VALUES (?, ?)', [1, value]);
  const read = (await client.execute('SELECT v FROM vec WHERE k = 1')).first().v;
  assert.deepEqual([...read], [1.5, -2, 0.25]);
});

test('a user type round trips as an object', async () => {
  await define('CREATE TYPE address (street text, zip int, tags frozen<set<text>>)');
  await define('CREATE TABLE people (k int PRIMARY KEY, a frozen<address>, b address, ' +
    'l list<frozen<address>>)');
  const home = { street: 'Main', zip: 12345, tags: ['a', 'b'] };
  const part = { street: 'Half', zip: null, tags: null };
  await client.execute('INSERT INTO people (k, a, b, l) VALUES (?, ?, ?, ?)',
    [1, home, part, [home, part]]);
  await define('UPDATE people SET b.zip = 7 WHERE k = 1');
  const row = (await client.execute('SELECT a, b, l, a.street AS s FROM people WHERE k = 1')).first();
  assert.deepEqual(plain(row.a), home);
  assert.deepEqual(plain(row.b), { ...part, zip: 7 });
  assert.deepEqual(plain(row.l), [home, part]);
  assert.equal(row.s, 'Main');
});

// ------------------------------------------------------------------ batches, errors, load

for (const logged of [true, false]) {
  test(`${logged ? 'logged' : 'unlogged'} batches apply all statements`, async () => {
    const table = logged ? 'batch_logged' : 'batch_unlogged';
    await define(`CREATE TABLE ${table} (k int, c int, v text, PRIMARY KEY (k, c))`);
    const queries = [...Array(20).keys()].map(i => ({
      query: `INSERT INTO ${table} (k, c, v) VALUES (?, ?, ?)`, params: [i % 3, i, `p${i}`] }));
    queries.push({ query: `INSERT INTO ${table} (k, c, v) VALUES (?, ?, ?)`, params: [9, 9, 's'] });
    queries.push({ query: `DELETE FROM ${table} WHERE k = ? AND c = ?`, params: [0, 0] });
    await client.batch(queries, { prepare: true, logged, timestamp: types.Long.fromNumber(5555) });
    const found = await rows(`SELECT k, c, v, writetime(v) AS w FROM ${table}`);
    assert.equal(found.length, 20);
    assert.ok(found.every(row => row.w.toString() === '5555'));
    assert.ok(!found.some(row => row.k === 0 && row.c === 0));
  });
}

const codes = types.responseErrorCodes;
for (const [cql, code, text] of [
  ['SELEKT * FROM nothing', codes.syntaxError, 'line 1:0'],
  ['SELECT * FROM nosuch', codes.invalid, 'table nosuch does not exist'],
  ['SELECT * FROM nokeyspace.t', codes.invalid, 'keyspace nokeyspace does not exist'],
  ['SELECT zzz FROM errs', codes.invalid, 'Undefined column name zzz'],
  ['SELECT * FROM errs WHERE v = 1', codes.invalid, 'use ALLOW FILTERING'],
  ['INSERT INTO errs (k, v) VALUES (1, 1)', codes.invalid, 'Some clustering keys are missing: c'],
  ['CREATE TABLE errs (k int PRIMARY KEY)', codes.alreadyExists, 'errs'],
  ["CREATE KEYSPACE badrep WITH replication = {'class': 'NoStrategy'}", codes.configError,
    'NoStrategy'],
]) {
  test(`${cql} is an error`, async () => {
    await define('CREATE TABLE IF NOT EXISTS errs (k int, c int, v int, PRIMARY KEY (k, c))');
    await assert.rejects(define(cql), error => {
      assert.equal(error.code, code);
      assert.ok(error.message.includes(text), error.message);
      return true;
    });
  });
}

test('a quorum of three replicas is unavailable on one node', async () => {
  const name = keyspace + '_rf3';
  await define(`CREATE KEYSPACE ${name} WITH replication = ` +
    "{'class': 'SimpleStrategy', 'replication_factor': 3}");
  await define(`CREATE TABLE ${name}.t (k int PRIMARY KEY)`);
  const insert = `INSERT INTO ${name}.t (k) VALUES (1)`;
  await assert.rejects(
    client.execute(insert, [], { consistency: types.consistencies.quorum }), error => {
      const inner = error.innerErrors ? Object.values(error.innerErrors)[0] : error;
      assert.equal(inner.code, codes.unavailableException);
      return true;
    });
  await client.execute(insert, [], { consistency: types.consistencies.one });
  await define(`DROP KEYSPACE ${name}`);
});

test('concurrent load reads what it wrote', async () => {
  await define('CREATE TABLE load (k int PRIMARY KEY, v text, n bigint)');
  const keys = [...Array(2000).keys()];
  const inserted = await cassandra.concurrent.executeConcurrent(client,
    'INSERT INTO load (k, v, n) VALUES (?, ?, ?)',
    keys.map(k => [k, `value-${k}`, types.Long.fromNumber(k * k)]),
    { concurrencyLevel: 64, raiseOnFirstError: true });
  assert.equal(inserted.totalExecuted, 2000);
  const read = await cassandra.concurrent.executeConcurrent(client,
    'SELECT k, v, n FROM load WHERE k = ?', keys.map(k => [k]),
    { concurrencyLevel: 64, collectResults: true });
  read.resultItems.forEach((result, k) => {
    const row = result.first();
    assert.deepEqual([row.k, row.v, row.n.toNumber()], [k, `value-${k}`, k * k]);
  });
  assert.equal(Number((await client.execute('SELECT count(*) AS n FROM load')).first().n), 2000);
});
