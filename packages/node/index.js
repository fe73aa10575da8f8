'use strict';

// Starts a Helenus node for a test run: its process, its ports, its directory, and its end.

const { execFile, spawn } = require('node:child_process');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');

/** The node logs this once it serves clients; nothing can refuse the start afterwards. */
const READY = 'Startup complete';

/** The server's exit code for an address that is in use. */
const ADDRESS_IN_USE = 5;

/** Attempts with other ports: another process may take a port between its choice and its use. */
const ATTEMPTS = 5;

/** Free bytes that a directory in memory must have. The node refuses writes below 50 MiB. */
const ROOM = 512 * 1024 * 1024;

/** The directory in memory of Linux. */
const MEMORY_DIRECTORY = '/dev/shm';

/** Lines of the log that an error shows. */
const LINES_SHOWN = 20;

const HOST = '127.0.0.1';

/** Settings of ports, in the order of the ports that are chosen. */
const PORTS = ['native_transport_port', 'native_shard_aware_transport_port', 'api_port'];

/** The node did not start. The message has the last lines of its log. */
class StartError extends Error {
  name = 'StartError';
}

/** A statement of `cql` or a command of `nodetool` failed. */
class StatementError extends Error {
  name = 'StatementError';
}

/** Returns the path of the server that this package carries. */
function binaryPath() {
  const file = path.join(__dirname, 'bin', 'helenus');
  if (!fs.existsSync(file)) {
    throw new StartError(`this package carries no server: ${file} is missing`);
  }
  return file;
}

/** A running node. */
class Node {
  #binary;
  #process;
  #ended;
  #exitCode;

  constructor(home, directory, ports, binary, process_) {
    this.host = HOST;
    [this.port, this.shardAwarePort, this.apiPort] = ports;
    this.contactPoint = `${HOST}:${this.port}`;
    this.directory = directory;
    this.logPath = path.join(home, 'node.log');
    this.#binary = binary;
    this.#process = process_;
    this.#ended = new Promise((resolve) => {
      process_.once('error', (error) => resolve(error));
      process_.once('exit', (code, signal) => resolve(code ?? signal));
    });
    this.#ended.then((code) => { this.#exitCode = code; });
    // The process that runs the tests ends although it has a node; the node ends then.
    process_.unref();
    process_.stdin.unref();
    // The node has ended by itself when there is nothing to write to.
    process_.stdin.on('error', () => {});
  }

  /** Whether the node has neither been shut down nor ended otherwise. */
  get isRunning() {
    return this.#exitCode === undefined;
  }

  /** Runs statements with the package's own cqlsh; resolves to what it prints. */
  cql(statements, { keyspace, user, password } = {}) {
    const options = [['-k', keyspace], ['-u', user], ['-p', password]];
    const given = options.filter(([, value]) => value !== undefined).flat();
    return this.#tool('cqlsh', [HOST, String(this.port), '-e', statements, ...given]);
  }

  /** Runs a command of nodetool on the node; resolves to what it prints. */
  nodetool(...command) {
    return this.#tool('nodetool', ['-h', HOST, '-p', String(this.apiPort), ...command]);
  }

  /** Returns what the node has logged so far. */
  log() {
    return fs.readFileSync(this.logPath, 'utf8');
  }

  /** Ends the node and removes its data, unless they lie in a directory of the caller's. */
  async shutdown() {
    if (this.isRunning) {
      this.#process.ref();
      this.#process.stdin.end('\n');
    }
    await this.#ended;
  }

  /** Waits for the start; resolves to the exit code of a node that has ended instead. */
  async started(deadline) {
    const file = fs.openSync(this.logPath, 'r');
    try {
      let text = '';
      const bytes = Buffer.alloc(65536);
      for (;;) {
        const ended = this.#exitCode;
        for (let read; (read = fs.readSync(file, bytes)) > 0;) {
          text += bytes.toString('utf8', 0, read);
        }
        if (text.includes(READY)) return { ready: true };
        if (ended !== undefined) return { code: ended, text };
        if (performance.now() > deadline) return { timeout: true, text };
        await new Promise((resolve) => { setTimeout(resolve, 1); });
      }
    } finally {
      fs.closeSync(file);
    }
  }

  #tool(tool, command) {
    return new Promise((resolve, reject) => {
      const options = { env: environment(), maxBuffer: 256 * 1024 * 1024 };
      const child = execFile(this.#binary, [tool, ...command], options, (error, out, complaints) => {
        if (error === null) return resolve(out);
        const printed = complaints.trim() || out.trim() || error.message;
        return reject(new StatementError(`${tool} ended with exit code ${error.code}: ${printed}`));
      });
      child.stdin.end();
    });
  }
}

/** Starts a node and resolves to it once clients can connect. */
async function start(options = {}) {
  const { settings = {}, directory, binary = binaryPath(), timeoutMs = 30_000 } = options;
  for (const name of Object.keys(options)) {
    if (!['settings', 'directory', 'binary', 'timeoutMs'].includes(name)) {
      throw new TypeError(`unknown option ${name}; settings of the server are given in "settings"`);
    }
  }
  const given = commandLine(settings);
  const deadline = performance.now() + timeoutMs;
  for (let attempt = 1; ; attempt += 1) {
    const node = await spawnNode(given, settings, directory, binary);
    const { ready, timeout, code, text } = await node.started(deadline);
    if (ready) return node;
    if (timeout) await node.shutdown();
    if (timeout || code !== ADDRESS_IN_USE || attempt === ATTEMPTS) {
      const happened = timeout
        ? `the node did not start within ${timeoutMs} ms`
        : `the node ended with exit code ${code}`;
      const lines = text.trimEnd().split('\n').slice(-LINES_SHOWN).join('\n');
      throw new StartError(`${happened}; the end of its log:\n${lines}`);
    }
  }
}

async function spawnNode(given, settings, directory, binary) {
  let home;
  let data;
  let removed;
  if (directory === undefined) {
    // The log lies beside the data, so that one removal takes both.
    home = fs.mkdtempSync(path.join(base(), 'helenus-test-'));
    [data, removed] = [path.join(home, 'data'), home];
  } else {
    home = path.resolve(directory);
    fs.mkdirSync(home, { recursive: true });
    [data, removed] = [home, ''];
  }
  const log = path.join(home, 'node.log');
  fs.writeFileSync(log, '');
  const free = await freePorts(PORTS.length);
  const ports = PORTS.map((name, at) => Number(settings[name] ?? free[at]));
  const child = spawn('/bin/sh', [
    path.join(__dirname, 'supervise.sh'), removed ? 'KILL' : 'TERM', removed, log,
    binary, 'server', `--workdir=${data}`,
    ...PORTS.map((name, at) => argument(name, ports[at])), ...given,
  ], {
    stdio: ['pipe', 'ignore', 'ignore'],
    env: environment(),
    // Ctrl-C in a terminal is for the tests, which end the node.
    detached: true,
  });
  return new Node(home, data, ports, binary, child);
}

/** Returns the directory for the data of tests: in memory if there is room. */
function base() {
  try {
    fs.accessSync(MEMORY_DIRECTORY, fs.constants.W_OK);
    // statfs is newer than Node 18.0.
    const room = fs.statfsSync?.(MEMORY_DIRECTORY);
    if (room && room.bavail * room.bsize >= ROOM) return MEMORY_DIRECTORY;
  } catch {
    // Not there or not ours.
  }
  return os.tmpdir();
}

/** Resolves to ports that were free a moment ago. All are open together, so that they differ. */
async function freePorts(count) {
  const servers = Array.from({ length: count }, () => net.createServer());
  await Promise.all(servers.map((server) => new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, HOST, resolve);
  })));
  const ports = servers.map((server) => server.address().port);
  await Promise.all(servers.map((server) => new Promise((resolve) => { server.close(resolve); })));
  return ports;
}

/** Returns the command line for settings. Ports are added by the start. */
function commandLine(settings) {
  const taken = { workdir: '; use the option "directory"', rpc_address: '', api_address: '' };
  for (const [name, instead] of Object.entries(taken)) {
    if (name in settings) throw new TypeError(`the setting ${name} is chosen by start()${instead}`);
  }
  if (['warn', 'error'].includes(settings.log_level)) {
    throw new TypeError('log_level: the start is recognised by a line of the level info');
  }
  const all = { smp: 1, memory: '256MiB', auto_snapshot: false, ...settings };
  return Object.entries(all)
    .filter(([name]) => !PORTS.includes(name))
    .map(([name, value]) => argument(name, value));
}

function argument(name, value) {
  let text = String(value);
  if (Array.isArray(value)) text = value.join(',');
  else if (typeof value === 'object' && value !== null) text = JSON.stringify(value);
  return `--${name.replaceAll('_', '-')}=${text}`;
}

/** Returns the environment without the settings of a server that runs here otherwise. */
function environment() {
  const kept = Object.entries(process.env).filter(([name]) => !name.startsWith('HELENUS_'));
  return Object.fromEntries(kept);
}

module.exports = { start, binaryPath, StartError, StatementError };
