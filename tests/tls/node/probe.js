// Probe of the Node driver (cassandra-driver): see ../README.md for its requests and answers.
'use strict';
const fs = require('node:fs');
const readline = require('node:readline');
const tls = require('node:tls');
const cassandra = require('cassandra-driver');

function client(request) {
  const options = {
    contactPoints: [`${request.host}:${request.port}`],
    localDataCenter: request.dc,
    socketOptions: { connectTimeout: 10000 },
    pooling: { warmup: true },
  };
  if (request.tls === 'yes') {
    options.sslOptions = { ca: fs.readFileSync(request.ca), rejectUnauthorized: true };
    if (request.cert) {
      options.sslOptions.cert = fs.readFileSync(request.cert);
      options.sslOptions.key = fs.readFileSync(request.key);
    }
    options.sslOptions.checkServerIdentity = request.name === 'check'
      ? (host, certificate) => tls.checkServerIdentity(request.host, certificate) : () => undefined;
  }
  if (request.user) {
    options.authProvider = new cassandra.auth.PlainTextAuthProvider(request.user, request.password);
  }
  return new cassandra.Client(options);
}

async function connect(request) {
  const made = client(request);
  try {
    await made.connect();
  } catch (error) {
    await made.shutdown();
    const inner = Object.values(error.innerErrors || {});
    throw new Error([error.message, ...inner.map((e) => e.message)].join(': '));
  }
  return made;
}

async function query(session) {
  return (await session.execute('SELECT key FROM system.local')).first().key;
}

class Load {
  stopped = false;
  constructor(request) {
    this.ended = this.run(request);
  }
  async run(request) {
    let done = 0;
    const failures = [];
    while (!this.stopped) {
      try {
        const session = await connect(request);
        for (let i = 0; i < 20; i++) {
          await query(session).then(() => done++, (error) => failures.push(error.message));
        }
        await session.shutdown();
      } catch (error) {
        failures.push(error.message);
      }
    }
    return `${done} ${failures.length} ${failures[0] || ''}`;
  }
}

let open;
let running;
async function answer(verb, request) {
  switch (verb) {
    case 'try': {
      const session = await connect(request);
      try {
        return await query(session);
      } finally {
        await session.shutdown();
      }
    }
    case 'open':
      open = await connect(request);
      return '';
    case 'close':
      await open.shutdown();
      return '';
    case 'load':
      running = new Load(request);
      return '';
    case 'stop':
      running.stopped = true;
      return running.ended;
    default:
      throw new Error(`no request ${verb}`);
  }
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [verb, ...fields] = line.split('\t');
    const request = Object.fromEntries(fields.map((field) => {
      const at = field.indexOf('=');
      return [field.slice(0, at), field.slice(at + 1)];
    }));
    let text;
    try {
      text = `ok ${await answer(verb, request)}`;
    } catch (error) {
      text = `error ${error.message}`;
    }
    console.log(text.replaceAll('\n', ' '));
  }
}
main();
