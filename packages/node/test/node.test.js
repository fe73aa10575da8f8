'use strict';

// The npm package as it is installed: nodes, their end, errors, types, the example.

const assert = require('node:assert/strict');
const { spawn, spawnSync } = require('node:child_process');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const { once } = require('node:events');
const { after, test } = require('node:test');

const { auth, Client } = require('cassandra-driver');
const helenus = require('helenus');

const EXAMPLE = process.env.EXAMPLE;
const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'helenus-npm-'));
after(() => fs.rmSync(scratch, { recursive: true }));

const keyspace = (name) =>
  `CREATE KEYSPACE ${name} WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};`;

async function firstAnswer(node, authProvider) {
  const client = new Client({
    contactPoints: [node.contactPoint],
    localDataCenter: 'datacenter1',
    authProvider,
  });
  try {
    const { rows } = await client.execute('SELECT cluster_name FROM system.local');
    return rows[0].cluster_name;
  } finally {
    await client.shutdown();
  }
}

/** Ids of processes whose command line has a text. */
function processesWith(text) {
  return fs.readdirSync('/proc').filter((id) => {
    try {
      return /^\d+$/.test(id) && fs.readFileSync(`/proc/${id}/cmdline`, 'utf8').includes(text);
    } catch {
      return false;
    }
  });
}

/** Waits for a condition; a minute is for a machine that has stalled. */
async function until(condition) {
  const deadline = performance.now() + 60_000;
  while (!condition()) {
    assert(performance.now() < deadline, 'waited for a minute');
    await new Promise((resolve) => { setTimeout(resolve, 5); });
  }
}

test('a driver connects while the node runs and not after', async () => {
  const node = await helenus.start();
  assert.equal(node.contactPoint, `127.0.0.1:${node.port}`);
  assert.equal(await firstAnswer(node), 'Test Cluster');
  assert(node.isRunning);
  const home = path.dirname(node.directory);
  assert(fs.existsSync(node.directory) && processesWith(home).length >= 2);
  await node.shutdown();
  await node.shutdown();
  assert(!node.isRunning && !fs.existsSync(home));
  assert.deepEqual(processesWith(home), []);
  await assert.rejects(firstAnswer(node), { name: 'NoHostAvailableError' });
});

test('two nodes at once are apart', async () => {
  const [one, other] = await Promise.all([helenus.start(), helenus.start()]);
  assert.equal(new Set([one.port, one.apiPort, other.port, other.apiPort]).size, 4);
  await one.cql(keyspace('only_here'));
  assert.match(await one.cql('DESCRIBE KEYSPACES'), /only_here/);
  assert.doesNotMatch(await other.cql('DESCRIBE KEYSPACES'), /only_here/);
  await Promise.all([one.shutdown(), other.shutdown()]);
});

for (const signal of ['SIGKILL', 'SIGTERM', 'SIGINT', undefined]) {
  test(`a node ends with its parent: ${signal ?? 'no work left'}`, async () => {
    const program = `
      require('helenus').start().then((node) => {
        console.log(node.directory);
        if (${signal !== undefined}) setInterval(() => {}, 60_000);
      });`;
    const parent = spawn(process.execPath, ['-e', program], { stdio: ['ignore', 'pipe', 'inherit'] });
    const home = path.dirname(String(await once(parent.stdout, 'data')).trim());
    if (signal) {
      assert(processesWith(home).length >= 2);
      parent.kill(signal);
    }
    await once(parent, 'exit');
    await until(() => processesWith(home).length === 0 && !fs.existsSync(home));
  });
}

test('an error of the start shows the log', async () => {
  await assert.rejects(helenus.start({ settings: { no_such_setting: 1 } }), (error) => {
    assert(error instanceof helenus.StartError);
    assert.match(error.message, /exit code 2; .*\n.*unknown option --no-such-setting/);
    return true;
  });
  await assert.rejects(helenus.start({ smp: 2 }), /unknown option smp/);
  for (const name of ['workdir', 'rpc_address', 'api_address']) {
    await assert.rejects(helenus.start({ settings: { [name]: 'x' } }), new RegExp(name));
  }
  await assert.rejects(helenus.start({ settings: { log_level: 'warn' } }), /log_level/);
  const silent = path.join(scratch, 'silent');
  fs.writeFileSync(silent, '#!/bin/sh\necho still reading\nexec tail -f /dev/null\n', { mode: 0o755 });
  await assert.rejects(
    helenus.start({ binary: silent, timeoutMs: 500 }),
    /did not start within 500 ms; .*\nstill reading/,
  );
  assert.deepEqual(processesWith(silent), []);
});

test('settings reach the server, those of the environment do not', async () => {
  process.env.HELENUS_CLUSTER_NAME = 'Production';
  const disks = [path.join(scratch, 'one'), path.join(scratch, 'two')];
  const node = await helenus.start({
    settings: {
      authenticator: 'PasswordAuthenticator',
      data_file_directories: disks,
      commitlog_compression: { class_name: 'LZ4Compressor' },
      auto_snapshot: true,
    },
  });
  delete process.env.HELENUS_CLUSTER_NAME;
  await assert.rejects(firstAnswer(node), { name: 'NoHostAvailableError' });
  const login = { user: 'cassandra', password: 'cassandra' };
  const provider = new auth.PlainTextAuthProvider(login.user, login.password);
  assert.equal(await firstAnswer(node, provider), 'Test Cluster');
  const settings = await node.cql('SELECT name, value FROM system_views.settings', login);
  assert.match(settings, /commitlog_compression \| +LZ4Compressor\n/);
  assert.match(settings, new RegExp(`data_file_directories \\| +${disks.join(', ')}\n`));
  assert.match(settings, /auto_snapshot \| +true\n/);
  await assert.rejects(node.cql('SELECT nothing', login), /exit code 2: [^]*SyntaxException/);
  await assert.rejects(node.cql('SELECT * FROM system.local'), helenus.StatementError);
  assert.match(await node.nodetool('describecluster'), /Test Cluster/);
  await node.shutdown();
});

test('another program on a port of the caller is an error', async () => {
  const server = net.createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const settings = { native_transport_port: server.address().port };
  await assert.rejects(helenus.start({ settings }), /exit code 5/);
  server.close();
});

test('a port that was taken meanwhile leads to other ports', async () => {
  // The first choice of ports is a port that this test listens on.
  const server = net.createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const real = net.Server.prototype.address;
  let calls = 0;
  net.Server.prototype.address = function address() {
    calls += 1;
    return calls === 1 ? real.call(server) : real.call(this);
  };
  const node = await helenus.start();
  net.Server.prototype.address = real;
  assert(calls >= 6);
  assert.notEqual(node.port, server.address().port);
  assert.equal(await firstAnswer(node), 'Test Cluster');
  await node.shutdown();
  server.close();
});

test('a directory of the caller keeps the data', async () => {
  const directory = path.join(scratch, 'kept');
  const one = await helenus.start({ directory });
  await one.cql(`${keyspace('k')} CREATE TABLE k.t (k int PRIMARY KEY); INSERT INTO k.t (k) VALUES (42)`);
  await one.shutdown();
  assert.match(one.log(), /draining and stopping/);
  const two = await helenus.start({ directory });
  assert.match(await two.cql('SELECT * FROM k.t'), /42/);
  await two.shutdown();
});

function runExample(environment = {}) {
  // A test run inside a test run is refused where this variable is set.
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  return spawnSync(process.execPath, ['--test', EXAMPLE], {
    encoding: 'utf8',
    env: { ...env, ...environment },
  });
}

test('the example passes', () => {
  const run = runExample();
  assert.equal(run.status, 0, run.stdout);
  assert.match(run.stdout, /pass 1\n/);
});

test('the example fails without a node', () => {
  const broken = path.join(scratch, 'broken.js');
  fs.writeFileSync(broken, `
    const helenus = require('helenus');
    const { start } = helenus;
    helenus.start = async () => { const node = await start(); await node.shutdown(); return node; };`);
  const run = runExample({ NODE_OPTIONS: `--require ${broken}` });
  assert.equal(run.status, 1, run.stdout);
  assert.match(run.stdout, /fail 1\n/);
});

test('the types allow what the package does', () => {
  const modules = process.env.NODE_PATH;
  const directory = path.dirname(modules);
  for (const file of ['types.ts', 'tsconfig.json']) {
    fs.copyFileSync(path.join(__dirname, file), path.join(directory, file));
  }
  const tsc = path.join(modules, 'typescript/bin/tsc');
  const run = spawnSync(process.execPath, [tsc, '-p', directory], { encoding: 'utf8' });
  assert.equal(run.status, 0, run.stdout);
});

test('the program is there as a command', () => {
  const command = path.join(process.env.NODE_PATH, 'helenus/cli.js');
  const run = spawnSync(command, ['version'], { encoding: 'utf8' });
  assert.match(run.stdout, /^helenus \d+\.\d+\.\d+ /);
  assert.equal(spawnSync(command, ['no-such-command']).status, 2);
});
