// Compiled, not run: what the types allow, and what they refuse.

import * as helenus from 'helenus';

export async function uses(): Promise<string> {
  const node: helenus.Node = await helenus.start({
    settings: { smp: 2, auto_snapshot: true, seeds: ['127.0.0.2'], commitlog_compression: { class_name: 'LZ4Compressor' } },
    directory: '/tmp/x',
    timeoutMs: 1000,
  });
  const port: number = node.port + node.shardAwarePort + node.apiPort;
  const printed = await node.cql('SELECT * FROM t', { keyspace: 'k', user: 'u', password: 'p' });
  await node.nodetool('flush', 'k');
  await node.shutdown();
  // @ts-expect-error the server's settings stand in "settings"
  await helenus.start({ smp: 2 });
  // @ts-expect-error a port is not changed
  node.port = 1;
  const error: Error = new helenus.StartError(node.log());
  return `${port} ${printed} ${error.message} ${node.contactPoint} ${helenus.binaryPath()}`;
}
