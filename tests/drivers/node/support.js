'use strict';
// The server under test comes from HELENUS_HOST and HELENUS_PORT.

const cassandra = require('cassandra-driver');
const crypto = require('node:crypto');

const host = process.env.HELENUS_HOST || '127.0.0.1';
const port = Number(process.env.HELENUS_PORT || 9042);

/** A client that is not connected yet; the caller shuts it down. */
function makeClient(options = {}) {
  return new cassandra.Client({
    contactPoints: [host],
    localDataCenter: options.localDataCenter,
    keyspace: options.keyspace,
    protocolOptions: { port, ...options.protocolOptions },
    socketOptions: { connectTimeout: 20000, readTimeout: 30000 },
    policies: {
      loadBalancing: new cassandra.policies.loadBalancing.RoundRobinPolicy(),
      ...options.policies,
    },
    queryOptions: { prepare: true, ...options.queryOptions },
    encoding: options.encoding,
  });
}

/** A connected client in a new keyspace, and what removes both. */
async function makeKeyspace() {
  const keyspace = 'drv_node_' + crypto.randomBytes(4).toString('hex');
  const admin = makeClient();
  await admin.execute(`CREATE KEYSPACE ${keyspace} WITH replication = ` +
    "{'class': 'SimpleStrategy', 'replication_factor': 1}", [], { prepare: false });
  const client = makeClient({ keyspace });
  await client.connect();
  return {
    client, keyspace,
    async remove() {
      await admin.execute(`DROP KEYSPACE ${keyspace}`, [], { prepare: false });
      await client.shutdown();
      await admin.shutdown();
    },
  };
}

module.exports = { cassandra, makeClient, makeKeyspace };
