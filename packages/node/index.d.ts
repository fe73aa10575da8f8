/** A setting of the server; a list or a map is written as the command line has it. */
export type Setting = string | number | boolean | readonly string[] | { readonly [key: string]: unknown };

export interface StartOptions {
  /**
   * Settings of the server, `{ authenticator: 'PasswordAuthenticator', smp: 2 }`. Without them the
   * node has one shard, 256 MiB, and takes no snapshots of dropped tables.
   */
  settings?: { readonly [name: string]: Setting };
  /**
   * Where the data lie. They stay there, for a later node on the same directory. Without it they
   * are removed with the node.
   */
  directory?: string;
  /** The server; without it the one that the package carries. */
  binary?: string;
  /** Milliseconds until a start that is not complete is an error; 30,000 without it. */
  timeoutMs?: number;
}

/** How `cql` connects. */
export interface CqlOptions {
  keyspace?: string;
  user?: string;
  password?: string;
}

/** A running node. */
export interface Node {
  /** Address of every listener. */
  readonly host: string;
  /** Port for CQL clients. */
  readonly port: number;
  /** Port for shard-aware drivers. */
  readonly shardAwarePort: number;
  /** Port for nodetool, the HTTP API and `/metrics`. */
  readonly apiPort: number;
  /** `host:port` for CQL clients. */
  readonly contactPoint: string;
  /** Directory of the data. */
  readonly directory: string;
  /** File with everything that the node has logged. */
  readonly logPath: string;
  /** Whether the node has neither been shut down nor ended otherwise. */
  readonly isRunning: boolean;
  /** Runs statements with the package's own cqlsh; resolves to what it prints. */
  cql(statements: string, options?: CqlOptions): Promise<string>;
  /** Runs a command of nodetool on the node; resolves to what it prints. */
  nodetool(...command: string[]): Promise<string>;
  /** Returns what the node has logged so far. */
  log(): string;
  /**
   * Ends the node and removes its data, unless they lie in a directory of the caller's. Further
   * calls have no effect.
   */
  shutdown(): Promise<void>;
}

/** Starts a node and resolves to it once clients can connect. */
export function start(options?: StartOptions): Promise<Node>;

/** Returns the path of the server that this package carries. */
export function binaryPath(): string;

/** The node did not start. The message has the last lines of its log. */
export class StartError extends Error {}

/** A statement of `cql` or a command of `nodetool` failed. */
export class StatementError extends Error {}
