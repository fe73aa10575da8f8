//! Options and descriptions of arguments that the rows of the table share, and those of verbs with many.

use super::command::{Flag, switch, valued};

pub(super) const GLOBAL: &[Flag] = &[
    valued(&["-h", "--host"], "host", "Node hostname or ip address"),
    valued(&["-p", "--port"], "port", "Port of the node's API"),
    switch(&["-pp", "--print-port"], "Show hosts with their port"),
    valued(&["-pw", "--password"], "password", "Password of the role"),
    valued(
        &["-pwf", "--password-file"],
        "passwordFilePath",
        "Path to the password file: a line \"role password\" for each role",
    ),
    switch(
        &["--ssl"],
        "Connect with TLS; Java's properties in ~/.cassandra/nodetool-ssl.properties name key stores",
    ),
    valued(&["--ssl-ca"], "file", "Authority of the node's certificate: PEM, JKS or PKCS12"),
    valued(&["--ssl-cert"], "file", "Certificate of this tool: PEM, or a key store with its key"),
    valued(&["--ssl-key"], "file", "Key of the certificate: PEM"),
    switch(&["--ssl-verify-host"], "The node's certificate must name the host"),
    valued(&["--token-file"], "file", "File whose first line is a token, instead of a role"),
    valued(&["-u", "--username"], "username", "Role that logs in"),
];

/// Names are resolved on the machine of the tool.
pub(super) const RESOLVE: Flag =
    switch(&["-r", "--resolve-ip"], "Show node domain names instead of IPs");
pub(super) const THROUGHPUT_FLAGS: &[Flag] = &[
    switch(&["-m", "--mib"], "Print the throughput cap in MiB/s"),
    switch(&["-d", "--precise-mbit"], "Print the throughput cap in precise Mbits (double)"),
];

/// Arguments of the commands for authentication caches.
pub(super) const CACHE_NAME: Flag = valued(
    &["--cache-name"],
    "cache-name",
    "Name of Auth cache (required): CredentialsCache, PermissionsCache, RolesCache or NetworkPermissionsCache",
);

pub(super) const TABLES: &str = "[<keyspace> <tables>...]";
/// Help of the argument of `gettimeout`.
pub(super) const TIMEOUT_HELP: &str = "The timeout type, one of (read, range, write, counterwrite, cascontention, truncate, internodeconnect, internodeuser, internodestreaminguser, misc (general rpc_timeout_in_ms))";
pub(super) const TABLES_HELP: &str = "The keyspace followed by one or many tables";

/// Options of `profileload` and `toppartitions`.
pub(super) const SAMPLING: &[Flag] = &[
    valued(
        &["-a"],
        "samplers",
        "Comma separated list of samplers to use (Default: all): READS, WRITES, LOCAL_READ_TIME, READ_ROW_COUNT, READ_TOMBSTONE_COUNT, READ_SSTABLE_COUNT, WRITE_SIZE, CAS_CONTENTIONS",
    ),
    valued(
        &["-i", "--interval"],
        "intervalMillis",
        "Schedule a new job that samples every interval milliseconds (Default: disabled) in the background",
    ),
    valued(&["-k"], "topCount", "Number of the top samples to list (Default: 10)"),
    switch(&["-l", "--list"], "List the scheduled sampling jobs"),
    valued(&["-s"], "capacity", "Capacity of the sampler, higher for more accuracy (Default: 256)"),
    switch(
        &["-t", "--stop"],
        "Stop the scheduled sampling job identified by <keyspace> and <cfname>. Jobs are stopped until the last schedules complete.",
    ),
];
pub(super) const SAMPLED: &str = "<keyspace> <cfname> <duration>";
pub(super) const SAMPLED_HELP: &str =
    "The keyspace, column family name, and duration in milliseconds (Default: 10000)";

/// Options of `repair`.
pub(super) const REPAIR: &[Flag] = &[
    switch(
        &["-dcpar", "--dc-parallel"],
        "Use -dcpar to read from one replica of each datacenter at a time",
    ),
    valued(
        &["-et", "--end-token"],
        "end_token",
        "Use -et to specify a token at which repair range ends (inclusive)",
    ),
    switch(
        &["-force", "--force"],
        "Use -force to leave replicas out that are not alive; what is repaired then does not count as repaired",
    ),
    switch(&["-full", "--full"], "Use -full to issue a full repair"),
    valued(&["-dc", "--in-dc"], "specific_dc", "Use -dc to repair specific datacenters"),
    valued(&["-hosts", "--in-hosts"], "specific_host", "Use -hosts to repair specific hosts"),
    switch(
        &["-iuk", "--ignore-unreplicated-keyspaces"],
        "Use --ignore-unreplicated-keyspaces to ignore keyspaces which are not replicated, otherwise the repair will fail",
    ),
    switch(
        &["-local", "--in-local-dc"],
        "Use -local to only repair against nodes in the same datacenter",
    ),
    valued(
        &["-j", "--job-threads"],
        "job_threads",
        "Number of tables to repair concurrently (default: 1, max: 4)",
    ),
    switch(
        &["-os", "--optimise-streams"],
        "Accepted: rows are only ever sent to replicas that lack them",
    ),
    switch(
        &["-paxos-only", "--paxos-only"],
        "Use --paxos-only to only bring unfinished lightweight transactions to their ends, without the rows",
    ),
    switch(
        &["-pr", "--partitioner-range"],
        "Use -pr to repair only the first range returned by the partitioner",
    ),
    switch(
        &["-prv", "--preview"],
        "Determine ranges and amount of data to be streamed, but don't actually perform repair",
    ),
    switch(
        &["-pl", "--pull"],
        "Use --pull to perform a one way repair where data is only sent to this node, from the other one of -hosts, for -st and -et",
    ),
    switch(&["-seq", "--sequential"], "Use -seq to read from one replica after the other"),
    switch(
        &["-skip-paxos", "--skip-paxos"],
        "If the --skip-paxos flag is included, the paxos repair step is skipped",
    ),
    valued(
        &["-st", "--start-token"],
        "start_token",
        "Use -st to specify a token at which the repair range starts (exclusive)",
    ),
    switch(
        &["-tr", "--trace"],
        "Use -tr to trace the repair. Traces are logged to system_traces.events.",
    ),
    switch(
        &["-vd", "--validate"],
        "Checks that repaired data is in sync between nodes. Out of sync repaired data indicates a full repair should be run",
    ),
];
