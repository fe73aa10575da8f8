//! The commands of nodetool: names, options, arguments, help, as Cassandra 5.0 has them.

/// One option of a command.
pub(super) struct Flag {
    /// As it is written, the long form last.
    pub(super) names: &'static [&'static str],
    /// Name of its value; `None` for a switch.
    pub(super) value: Option<&'static str>,
    pub(super) help: &'static str,
}

/// One command.
pub(super) struct Verb {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) flags: &'static [Flag],
    /// Positional arguments, as the help shows them; empty: none.
    pub(super) arguments: &'static str,
    pub(super) arguments_help: &'static str,
    pub(super) arguments_max: usize,
    /// Name of an argument that must be there; empty: none must.
    pub(super) required: &'static str,
}

impl Verb {
    /// A command without options and arguments.
    const fn plain(name: &'static str, help: &'static str) -> Verb {
        Verb {
            name,
            help,
            flags: &[],
            arguments: "",
            arguments_help: "",
            arguments_max: 0,
            required: "",
        }
    }

    const fn flags(mut self, flags: &'static [Flag]) -> Verb {
        self.flags = flags;
        self
    }

    /// Takes up to `max` arguments.
    const fn takes(mut self, arguments: &'static str, help: &'static str, max: usize) -> Verb {
        self.arguments = arguments;
        self.arguments_help = help;
        self.arguments_max = max;
        self
    }

    /// Takes one argument that must be there.
    const fn needs(self, title: &'static str, arguments: &'static str, help: &'static str) -> Verb {
        let mut verb = self.takes(arguments, help, 1);
        verb.required = title;
        verb
    }
}

const fn switch(names: &'static [&'static str], help: &'static str) -> Flag {
    Flag { names, value: None, help }
}

const fn valued(names: &'static [&'static str], value: &'static str, help: &'static str) -> Flag {
    Flag { names, value: Some(value), help }
}

/// Cassandra without authentication ignores credentials as well; they are neither sent nor read.
const NO_LOGINS: &str = "Accepted and not used: the API has no logins";

pub(super) const GLOBAL: &[Flag] = &[
    valued(&["-h", "--host"], "host", "Node hostname or ip address"),
    valued(&["-p", "--port"], "port", "Port of the node's API"),
    switch(&["-pp", "--print-port"], "Show hosts with their port"),
    valued(&["-pw", "--password"], "password", NO_LOGINS),
    valued(&["-pwf", "--password-file"], "passwordFilePath", NO_LOGINS),
    switch(&["--ssl"], "Accepted with a note: the API has no TLS"),
    valued(&["-u", "--username"], "username", NO_LOGINS),
];

/// Names are looked up where the tool runs.
const RESOLVE: Flag = switch(&["-r", "--resolve-ip"], "Show node domain names instead of IPs");
const THROUGHPUT_FLAGS: &[Flag] = &[
    switch(&["-m", "--mib"], "Print the throughput cap in MiB/s"),
    switch(&["-d", "--precise-mbit"], "Print the throughput cap in precise Mbits (double)"),
];

/// Arguments of the commands for authentication caches.
const CACHE_NAME: Flag = valued(
    &["--cache-name"],
    "cache-name",
    "Name of Auth cache (required): CredentialsCache, PermissionsCache, RolesCache or NetworkPermissionsCache",
);

const TABLES: &str = "[<keyspace> <tables>...]";
/// Of `gettimeout`.
const TIMEOUT_HELP: &str = "The timeout type, one of (read, range, write, counterwrite, cascontention, truncate, internodeconnect, internodeuser, internodestreaminguser, misc (general rpc_timeout_in_ms))";
const TABLES_HELP: &str = "The keyspace followed by one or many tables";

/// Of `profileload` and `toppartitions`.
const SAMPLING: &[Flag] = &[
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
const SAMPLED: &str = "<keyspace> <cfname> <duration>";
const SAMPLED_HELP: &str =
    "The keyspace, column family name, and duration in milliseconds (Default: 10000)";

/// Of `repair`.
const REPAIR: &[Flag] = &[
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

pub(super) const VERBS: &[Verb] = &[
    Verb::plain("abortbootstrap", "Takes a node out that joins and has not finished; start it again with an empty work directory").flags(&[
            valued(&["--node"], "node", "Node ID of the node that failed bootstrap"),
            valued(&["--ip"], "ip", "IP of the node that failed bootstrap"),
        ]),
    Verb::plain("abortdecommission", "Abort an in-progress decommission of the node I am connecting to while its data is copied"),
    Verb::plain("abortmove", "Abort an in-progress move of the node I am connecting to while data is copied"),
    Verb::plain("abortrebuild", "Abort an in-progress rebuild of the node I am connecting to; what came stays, and the same rebuild goes on with the rest"),
    Verb::plain("abortremovenode", "Abort the removal of a dead node while its data is copied").takes("[<ID>]", "Host ID of the node; the one whose removal is in progress otherwise", 1),
    Verb::plain("assassinate", "Forcefully remove a dead node without re-replicating any data. Use as a last resort if you cannot removenode").needs("ip address", "<ip_address>", "IP address of the endpoint to assassinate"),
    Verb::plain("autorepairstatus", "Print what is repaired by itself, and when it was"),
    Verb::plain("bootstrap", "Monitor/manage node's bootstrap process").flags(&[switch(&["-f", "--force"], "Accepted: a bootstrap that was cut off goes on with the next start by itself")]).takes("resume", "Resume bootstrap streaming", 1),
    Verb::plain("checktokenmetadata", "Compare the epoch of the metadata log, which has the tokens, with what live peers gossip; prints any mismatches found"),
    Verb::plain("cidrfilteringstats", "Print statistics on CIDR filtering"),
    Verb::plain("cleanup", "Triggers the immediate cleanup of keys no longer belonging to a node. By default, clean all keyspaces").flags(&[valued(&["-j", "--jobs"], "jobs", "Accepted: each shard cleans one table at a time")]).takes(TABLES, TABLES_HELP, usize::MAX),
    Verb::plain("clearsnapshot", "Remove the snapshot with the given name from the given keyspaces").flags(&[
            valued(&["-t"], "snapshot_name", "Remove the snapshot with a given name"),
            switch(&["--all"], "Removes all snapshots"),
            valued(&["--older-than"], "older_than", "Clear snapshots older than specified time period."),
            valued(&["--older-than-timestamp"], "older_than_timestamp", "Clear snapshots older than specified timestamp. It has to be a string in ISO format, for example '2022-12-03T10:15:30Z'"),
        ]).takes("[<keyspaces>...]", "Remove snapshots from the given keyspaces", usize::MAX),
    Verb::plain("clientstats", "Print information about connected clients").flags(&[
            switch(&["--all"], "Lists all connections"),
            switch(&["--client-options"], "Lists all connections and the client options"),
        ]),
    Verb::plain("compact", "Force a (major) compaction on one or more tables or user-defined compaction on given SSTables").flags(&[
            valued(&["-et", "--end-token"], "end_token", "Use -et to specify a token at which compaction range ends (inclusive)"),
            valued(&["--partition"], "partition_key", "String representation of the partition key"),
            switch(&["-s", "--split-output"], "Use -s to not create a single big file"),
            valued(&["-st", "--start-token"], "start_token", "Use -st to specify a token at which the compaction range starts (inclusive)"),
            switch(&["--user-defined"], "Use --user-defined to submit listed files for user-defined compaction"),
        ]).takes("[<keyspace> <tables>...] or <SSTable file>...", "The keyspace followed by one or many tables or list of SSTable data files when using --user-defined", usize::MAX),
    Verb::plain("compactionhistory", "Print history of compaction").flags(&[valued(&["-F", "--format"], "format", "Output format (json, yaml)")]),
    Verb::plain("compactionplan", "Print what would be compacted now, and why; nothing is changed").flags(&[switch(
            &["-H", "--human-readable"],
            "Display bytes in human readable form, i.e. KiB, MiB, GiB, TiB",
        )]).takes(TABLES, TABLES_HELP, usize::MAX),
    Verb::plain("compactionstats", "Print statistics on compactions").flags(&[
            switch(&["-H", "--human-readable"], "Display bytes in human readable form, i.e. KiB, MiB, GiB, TiB"),
            switch(&["-V", "--vtable"], "Display fields matching vtable output"),
        ]),
    Verb::plain("datapaths", "Print all directories where data of tables are stored").flags(&[valued(&["-F", "--format"], "format", "Output format (json, yaml)")]).takes("[<keyspace.table>...]", "List of table (or keyspace) names", usize::MAX),
    Verb::plain("decommission", "Decommission the *node I am connecting to*").flags(&[switch(&["-f", "--force"], "Force decommission of this node even when it reduces the number of replicas to below configured RF")]),
    Verb::plain("damagedsstables", "List SSTables of this node that were found damaged"),
    Verb::plain("describecluster", "Print the name, snitch, partitioner and schema version of a cluster"),
    Verb::plain("describering", "Shows the token ranges info of a given keyspace").needs("keyspace", "<keyspace>", "The keyspace name"),
    Verb::plain("disableauditlog", "Disable the audit log"),
    Verb::plain("disableautocompaction", "Disable autocompaction for the given keyspace and table").takes(TABLES, TABLES_HELP, usize::MAX),
    Verb::plain("disablebackup", "Disable incremental backup"),
    Verb::plain("disablebinary", "Disable native transport (binary protocol)"),
    Verb::plain("disablefullquerylog", "Disable the full query log"),
    Verb::plain("disablegossip", "Disable gossip (effectively marking the node down)"),
    Verb::plain("disablehandoff", "Disable storing hinted handoffs"),
    Verb::plain("disablehintsfordc", "Disable hints for a data center").takes("<datacenter>", "The data center to disable", 1),
    Verb::plain("disableoldprotocolversions", "Disable old protocol versions"),
    Verb::plain("drain", "Drain the node (stop accepting writes and flush all tables)"),
    Verb::plain("dropcidrgroup", "Drop an existing cidr group").takes("<cidrGroup>", "Requires a cidr group name", 1),
    Verb::plain("enableautocompaction", "Enable autocompaction for the given keyspace and table").takes(TABLES, TABLES_HELP, usize::MAX),
    Verb::plain("enablebackup", "Enable incremental backup"),
    Verb::plain("enablebinary", "Reenable native transport (binary protocol)"),
    Verb::plain("enablegossip", "Reenable gossip"),
    Verb::plain("enablehandoff", "Reenable future hints storing on the current node"),
    Verb::plain("enablehintsfordc", "Enable hints for a data center that was previsouly disabled").takes("<datacenter>", "The data center to enable", 1),
    Verb::plain("enableoldprotocolversions", "Enable old protocol versions"),
    Verb::plain("failuredetector", "Shows the failure detector information for the cluster"),
    Verb::plain("flush", "Flush one or more tables").takes(TABLES, TABLES_HELP, usize::MAX),
    Verb::plain("forcecompact", "Force a (major) compaction on a table").takes("[<keyspace> <table> <keys>]", "The keyspace, table, and a list of partition keys ignoring the gc_grace_seconds", usize::MAX),
    Verb::plain("getauditlog", "Print whether there is an audit log"),
    Verb::plain("getauthcacheconfig", "Get configuration of Auth cache").flags(&[CACHE_NAME]),
    Verb::plain("getautorepairconfig", "Print autorepair configurations"),
    Verb::plain("getbatchlogreplaythrottle", "Print batchlog replay throttle in KB/s. This is reduced proportionally to the number of nodes in the cluster."),
    Verb::plain("getcidrgroupsofip", "Print CIDR groups associated with given IP").takes("<ip_address>", "Requires IP address as a string", 1),
    Verb::plain("getcolumnindexsize", "Print the granularity of the collation index of rows within a partition in KiB"),
    Verb::plain("garbagecollect", "Remove deleted data from one or more tables").flags(&[
            valued(&["-g", "--granularity"], "granularity", "Granularity of garbage removal. ROW (default) removes deleted partitions and rows, CELL also removes overwritten or deleted cells."),
            valued(&["-j", "--jobs"], "jobs", "Accepted: each shard looks at one file at a time"),
        ]).takes(TABLES, TABLES_HELP, usize::MAX),
    Verb::plain("getcompactionshare", "Print the share of the processor that compaction gets under load (of Helenus)"),
    Verb::plain("getcompactionthreshold", "Print min and max compaction thresholds for a given table").takes("<keyspace> <table>", "The keyspace with a table", usize::MAX),
    Verb::plain("getcompactionthroughput", "Print the MiB/s throughput cap for compaction in the system as a rounded number").flags(&[switch(&["-d", "--precise-mib"], "Print the MiB/s throughput cap for compaction in the system as a precise number (double)")]),
    Verb::plain("getconcurrentcompactors", "Get the number of concurrent compactors in the system."),
    Verb::plain("getdefaultrf", "Gets default keyspace replication factor."),
    Verb::plain("getendpoints", "Print the end points that owns the key").takes("<keyspace> <table> <key>", "The keyspace, the table, and the partition key for which we need to find the endpoint", usize::MAX),
    Verb::plain("getfullquerylog", "Print whether there is a log of all queries"),
    Verb::plain("getguardrailsconfig", "Print runtime configuration of guardrails.").flags(&[valued(&["-c", "--category"], "guardrailCategory", "Category of guardrails to filter, can be one of 'values', 'thresholds', 'flags', 'others'."), switch(&["--expand"], "Expand all guardrail names so they reflect their counterparts in cassandra.yaml")]).takes("[<name>]", "Specific name of a guardrail to get configuration of.", usize::MAX),
    Verb::plain("getinterdcstreamthroughput", "Print the throughput cap for inter-datacenter streaming in rounded megabits. For precise number, please, use option -d").flags(THROUGHPUT_FLAGS),
    Verb::plain("getlogginglevels", "Get the runtime logging levels"),
    Verb::plain("getmaxhintwindow", "Print the max hint window in ms"),
    Verb::plain("getseeds", "Get the currently in use seed node IP list excluding the node IP"),
    Verb::plain("getsnapshotthrottle", "Print the snapshot_links_per_second throttle for snapshot/clearsnapshot"),
    Verb::plain("getsstables", "Print the sstable filenames that own the key").flags(&[
            switch(&["-hf", "--hex-format"], "Specify the key in hexadecimal string format"),
            switch(&["-l", "--show-levels"], "If the table is using leveled compaction the level of each sstable will be included in the output (Default: false)"),
        ]).takes("<keyspace> <cfname> <key>", "The keyspace, the column family, and the key", usize::MAX),
    Verb::plain("getstreamthroughput", "Print the throughput cap for streaming in rounded megabits. For precise number, please, use option -d").flags(&[switch(&["-m", "--mib"], "Print the throughput cap for streaming in MiB/s"), switch(&["-d", "--precise-mbit"], "Print the throughput cap for streaming in precise Mbits (double)")]),
    Verb::plain("gettimeout", "Print the timeout of the given type in ms").takes("<timeout_type>", TIMEOUT_HELP, usize::MAX),
    Verb::plain("gettraceprobability", "Print the current trace probability value"),
    Verb::plain("gossipinfo", "Shows the gossip information for the cluster").flags(&[RESOLVE]),
    Verb::plain("help", "Display help information").takes("[<command>]", "The command", 1),
    Verb::plain("import", "Import new SSTables to the system").flags(&[
            switch(&["-c", "--no-invalidate-caches"], "Accepted: what is cached of the table is never used behind an import"),
            switch(&["-e", "--extended-verify"], "Verify all values in the new SSTables, which is also done without it"),
            switch(&["-l", "--keep-level"], "Keep the level on the new SSTables"),
            switch(&["-p", "-cd", "--copy-data"], "Copy data from source directories instead of moving them"),
            switch(&["-q", "--quick"], "Do a quick import without verifying SSTables and tokens"),
            switch(&["-r", "--keep-repaired"], "Keep any repaired information from the SSTables"),
            switch(&["-t", "--no-tokens"], "Don't verify that all tokens in the new SSTable are owned by the current node"),
            switch(&["-v", "--no-verify"], "Don't verify new SSTables"),
        ]).takes("<keyspace> <table> <directory> ...", "The keyspace, table name and directories to import SSTables from", usize::MAX),
    Verb::plain("info", "Print node information (uptime, load, ...)").flags(&[switch(&["-T", "--tokens"], "Display all tokens")]),
    Verb::plain("join", "Join the ring"),
    Verb::plain("invalidatecidrpermissionscache", "Invalidate the cidr permissions cache (nothing is remembered longer than it is true)").takes("[<role>...]", "List of roles to invalidate. By default, all roles", usize::MAX),
    Verb::plain("invalidatecountercache", "Invalidate the counter cache"),
    Verb::plain("invalidatecredentialscache", "Invalidate the credentials cache").takes("[<role>...]", "List of roles to invalidate. By default, all roles", usize::MAX),
    Verb::plain("invalidatekeycache", "Invalidate the key cache (there is none: nothing is kept of keys)"),
    Verb::plain("invalidatenetworkpermissionscache", "Invalidate the network permissions cache (nothing is remembered longer than it is true)").takes("[<role>...]", "List of roles to invalidate. By default, all roles", usize::MAX),
    Verb::plain("invalidatepermissionscache", "Invalidate the permissions cache (nothing is remembered longer than it is true)").flags(&[
            switch(&["--all-functions"], "Invalidate permissions for 'ALL FUNCTIONS'"),
            switch(&["--all-keyspaces"], "Invalidate permissions for 'ALL KEYSPACES'"),
            switch(&["--all-mbeans"], "Invalidate permissions for 'ALL MBEANS'"),
            switch(&["--all-roles"], "Invalidate permissions for 'ALL ROLES'"),
            switch(&["--all-tables"], "Invalidate permissions for 'ALL TABLES'"),
            valued(&["--function"], "function", "Function to invalidate permissions for (you must specify --functions-in-keyspace for using this option; function format: name[arg1^..^agrN], for example: foo[Int32Type^DoubleType])"),
            valued(&["--functions-in-keyspace"], "functions-in-keyspace", "Keyspace to invalidate permissions for"),
            valued(&["--keyspace"], "keyspace", "Keyspace to invalidate permissions for"),
            valued(&["--mbean"], "mbean", "MBean to invalidate permissions for"),
            valued(&["--role"], "role", "Role to invalidate permissions for"),
            valued(&["--table"], "table", "Table to invalidate permissions for (you must specify --keyspace for using this option)"),
        ]).takes("[<role>]", "A role for which permissions to specified resources need to be invalidated", usize::MAX),
    Verb::plain("invalidaterolescache", "Invalidate the roles cache (nothing is remembered longer than it is true)").takes("[<role>...]", "List of roles to invalidate. By default, all roles", usize::MAX),
    Verb::plain("invalidaterowcache", "Invalidate the row cache"),
    Verb::plain("listcidrgroups", "List existing cidr groups").takes("[<cidrGroup>]", "LIST operation can be invoked with or without cidr group name", 1),
    Verb::plain("listpendinghints", "Print all pending hints that this node has"),
    Verb::plain("listsnapshots", "Lists all the snapshots along with the size on disk and true size").flags(&[
            switch(&["-nt", "--no-ttl"], "Skip snapshots with TTL"),
            switch(&["-e", "--ephemeral"], "Include ephemeral snapshots, which a Cassandra has made for its repairs"),
        ]),
    Verb::plain("move", "Move node on the token ring to a new token").needs("newToken", "<new token>", "The new token."),
    Verb::plain("netstats", "Print network information on provided host (connecting node by default)").flags(&[switch(&["-H", "--human-readable"], "Display bytes in human readable form, i.e. KiB, MiB, GiB, TiB")]),
    Verb::plain("pausehandoff", "Pause hints delivery process"),
    Verb::plain("profileload", "Low footprint profiling of activity for a period of time").flags(SAMPLING).takes(SAMPLED, SAMPLED_HELP, usize::MAX),
    Verb::plain("proxyhistograms", "Print statistic histograms for network operations"),
    Verb::plain("rebuild", "Rebuild data by streaming from other nodes (similarly to bootstrap)").flags(&[
            switch(&["--exclude-local-dc"], "Use --exclude-local-dc to exclude nodes in local data center as source for streaming."),
            valued(&["-ks", "--keyspace"], "specific_keyspace", "Use -ks to rebuild specific keyspace."),
            valued(&["-s", "--sources"], "specific_sources", "Use -s to specify hosts that this node should stream from when -ts is used. Multiple hosts should be separated using commas (e.g. 127.0.0.1,127.0.0.2,...)"),
            valued(&["-ts", "--tokens"], "specific_tokens", "Use -ts to rebuild specific token ranges, in the format of \"(start_token_1,end_token_1],(start_token_2,end_token_2],...(start_token_n,end_token_n]\"."),
        ]).takes("[<src-dc-name>]", "Name of DC from which to select sources for streaming. By default, pick any DC (except local DC when --exclude-local-dc is set)", 1),
    Verb::plain("rangekeysample", "Shows the sampled keys held across all keyspaces"),
    Verb::plain("recompress_sstables", "Rewrite sstables (for the requested tables) that have compression configuration different from the current").flags(&[
            valued(&["-j", "--jobs"], "jobs", "Accepted: each shard writes one file at a time"),
        ]).takes(TABLES, TABLES_HELP, usize::MAX),
    Verb::plain("refresh", "Load newly placed SSTables to the system without restart (deprecated, use import)").takes("<keyspace> <table>", "The keyspace and table name", usize::MAX),
    Verb::plain("refreshsizeestimates", "Refresh system.size_estimates"),
    Verb::plain("relocatesstables", "Relocates sstables to the correct disk").flags(&[
            valued(&["-j", "--jobs"], "jobs", "Accepted: each shard takes one file at a time"),
        ]).takes("<keyspace> <table>", "The keyspace and table name", usize::MAX),
    Verb::plain("reloadcidrgroupscache", "Reload CIDR groups cache with latest entries in cidr_groups table (there is none: a change counts from the next statement on)"),
    Verb::plain("reloadseeds", "Reload the seed node list from the configuration"),
    Verb::plain("removenode", "Show status of current node removal, force completion of pending removal or remove provided ID").needs("remove_operation", "<status>|<force>|<ID>", "Show status of current node removal, force completion of pending removal, or remove provided ID"),
    Verb::plain("repair", "Repair one or more tables").flags(REPAIR).takes(TABLES, TABLES_HELP, usize::MAX),
    Verb::plain("repair_admin", "List, summarize and cancel repairs of this node").flags(&[
        valued(&["-s", "--session"], "session", "The session or the number of the command to cancel"),
        switch(&["-v", "--verbose"], "print additional info"),
        valued(&["-st", "--start-token"], "start_token", "Use -st to specify a token at which the repair range starts"),
        valued(&["-et", "--end-token"], "end_token", "Use -et to specify a token at which repair range ends"),
    ]).takes("list | cancel | summarize-pending | summarize-repaired [<keyspace> <tables>...]", "list: the repairs of this run of the node; cancel: end the one of --session; summarize-pending: the data that takes part in sessions; summarize-repaired: when ranges were repaired", usize::MAX),
    Verb::plain("replaybatchlog", "Kick off batchlog replay and wait for finish"),
    Verb::plain("resumehandoff", "Resume hints delivery process"),
    Verb::plain("ring", "Print information about the token ring").flags(&[RESOLVE]).takes("[<keyspace>]", "Specify a keyspace for accurate ownership information", 1),
    Verb::plain("scrub", "Scrub (rebuild sstables for) one or more tables").flags(&[
            valued(&["-j", "--jobs"], "jobs", "Accepted: each shard scrubs one file at a time"),
            switch(&["-n", "--no-validate"], "Do not validate columns using column validator"),
            switch(&["-ns", "--no-snapshot"], "Scrubbed CFs will be snapshotted first, if disableSnapshot is false. (default false)"),
            switch(&["-r", "--reinsert-overflowed-ttl"], "Rewrites rows with overflowed expiration date affected by CASSANDRA-14092 with the maximum supported expiration date of 2038-01-19T03:14:06+00:00. The rows are rewritten with the original timestamp incremented by one microsecond to override/supersede any potential tombstone that may have been generated during compaction of the affected rows."),
            switch(&["-s", "--skip-corrupted"], "Skip corrupted partitions even when scrubbing counter tables. (default false)"),
        ]).takes(TABLES, TABLES_HELP, usize::MAX),
    Verb::plain("setauthcacheconfig", "Set configuration for Auth cache").flags(&[
            CACHE_NAME,
            switch(&["--disable-active-update"], "Disable active update"),
            switch(&["--enable-active-update"], "Enable active update: refused, what is remembered is never read again"),
            valued(&["--max-entries"], "max-entries", "Max entries, of each shard"),
            valued(&["--update-interval"], "update-interval", "Update interval in milliseconds: refused, what is remembered is never read again"),
            valued(&["--validity-period"], "validity-period", "Validity period in milliseconds"),
        ]),
    Verb::plain("setautorepairconfig", "Let repairs begin by themselves, or not, until the node stops").takes("enabled true | enabled false", "What is set, and to what", 2),
    Verb::plain("setbatchlogreplaythrottle", "Set batchlog replay throttle in KB per second, or 0 to disable throttling. This will be reduced proportionally to the number of nodes in the cluster.").needs("batchlog_replay_throttle", "<value_in_kb_per_sec>", "Value in KiB per second, 0 to disable throttling"),
    Verb::plain("setcompactionshare", "Give compaction a share of the processor under load, or let it follow what compaction owes (of Helenus)").needs("compaction_share", "<share>", "1 to 1000 (statements have 1000), or auto"),
    Verb { required: "<key-cache-keys-to-save> <row-cache-keys-to-save> <counter-cache-keys-to-save>", ..Verb::plain("setcachekeystosave", "Set number of keys saved by each cache for faster post-restart warmup. 0 to disable").takes("<key-cache-keys-to-save> <row-cache-keys-to-save> <counter-cache-keys-to-save>", "The number of keys saved by each cache. 0 to disable; there is no key cache here", usize::MAX) },
    Verb::plain("setcolumnindexsize", "Set the granularity of the collation index of rows within a partition in KiB").needs("column_index_size", "<value_in_kib>", "Value in KiB"),
    Verb { required: "<keyspace> <table> <minthreshold> <maxthreshold>", ..Verb::plain("setcompactionthreshold", "Set min and max compaction thresholds for a given table").takes("<keyspace> <table> <minthreshold> <maxthreshold>", "The keyspace, the table, min and max threshold", usize::MAX) },
    Verb::plain("setcachecapacity", "Set global key, row, and counter cache capacities (in MB units)").takes("<key-cache-capacity> <row-cache-capacity> <counter-cache-capacity>", "Key cache, row cache, and counter cache (in MB); there is no key cache here, give 0 for it", usize::MAX),
    Verb::plain("setcompactionthroughput", "Set the MiB/s throughput cap for compaction in the system, or 0 to disable throttling").needs("compaction_throughput", "<value_in_mb>", "Value in MiB, 0 to disable throttling"),
    Verb::plain("setconcurrentcompactors", "Set number of concurrent compactors in the system.").needs("concurrent_compactors", "<value>", "Number of concurrent compactors, greater than 0."),
    Verb::plain("setdefaultrf", "Sets default keyspace replication factor.").needs("default_rf", "<value>", "Default replication factor"),
    Verb::plain("sethintedhandoffthrottlekb", "Set hinted handoff throttle in KiB per second, per delivery thread.").needs("throttle_in_kb", "<value_in_kb_per_sec>", "Value in KiB per second"),
    Verb::plain("setguardrailsconfig", "Modify runtime configuration of guardrails.").takes("[<setter> <value1> ...]", "For flags, possible values are 'true' or 'false'. For thresholds, two values are expected, first for failure, second for warning. For values, enumeration of values expected or one value where multiple items are separated by comma. Setting for thresholds accepting strings and value guardrails are reset by specifying 'null' or '[]' value. For thresholds accepting integers, the reset value is -1.", usize::MAX),
    Verb::plain("setinterdcstreamthroughput", "Set throughput cap for inter-datacenter streaming, within that of all streams, or 0 to disable throttling").flags(&[switch(&["-m", "--mib"], "Set streaming throughput in MiB/s")]).needs("inter_dc_stream_throughput", "<value_in_mb>", "Value in megabits, 0 to disable throttling"),
    Verb::plain("setlogginglevel", "Set the log level threshold for a given component or class. Will reset to the initial configuration if called with no parameters.").takes("<component|module> <level>", "The component or module to change the level for and the log level threshold to set. Will reset to initial level if omitted. Available components: bootstrap, compaction, repair, streaming, cql, ring; ROOT is everything", 2),
    Verb::plain("setmaxhintwindow", "Set the specified max hint window in ms").needs("max_hint_window", "<value_in_ms>", "Value of maxhintwindow in ms"),
    Verb::plain("setsnapshotthrottle", "Set the snapshot_links_per_second cap for snapshot and clearsnapshot throttling").needs("setsnapshotthrottle", "<value>", "Hard links per second, 0 to disable throttling"),
    Verb::plain("setstreamthroughput", "Set throughput cap for streaming in the system, or 0 to disable throttling").flags(&[switch(&["-m", "--mib"], "Set streaming throughput in MiB/s")]).needs("stream_throughput", "<value_in_mb>", "Value in megabits, 0 to disable throttling"),
    Verb { required: "args", ..Verb::plain("settimeout", "Set the specified timeout in ms, or 0 to disable timeout").takes("<timeout_type> <timeout_in_ms>", "Timeout type followed by value in ms (0 disables socket streaming timeout)", usize::MAX) },
    Verb::plain("settraceprobability", "Sets the probability for tracing any given request to value. 0 disables, 1 enables for all requests, 0 is the default").needs("trace_probability", "<value>", "Trace probability between 0 and 1 (ex: 0.2)"),
    Verb::plain("snapshot", "Take a snapshot of specified keyspaces or a snapshot of the specified table").flags(&[
            valued(
                &["-cf", "--column-family", "--table"],
                "table",
                "The table name (you must specify one and only one keyspace for using this option)",
            ),
            valued(
                &["-kt", "--kt-list", "-kc", "--kc.list"],
                "ktlist",
                "The list of Keyspace.table to take snapshot.(you must not specify only keyspace)",
            ),
            valued(&["-t", "--tag"], "tag", "The name of the snapshot"),
            valued(&["--ttl"], "ttl", "Specify a TTL of created snapshot"),
            switch(
                &["-sf", "--skip-flush"],
                "Do not flush memtables before snapshotting (snapshot will not contain unflushed \
                 data)",
            ),
        ]).takes("[<keyspaces...>]", "List of keyspaces. By default, all keyspaces", usize::MAX),
    Verb::plain("sstablerepairedset", "Set the repaired state of SSTables for given keyspace/tables").flags(&[
            switch(&["--is-repaired"], "Set SSTables to repaired state."),
            switch(&["--is-unrepaired"], "Set SSTables to unrepaired state."),
            switch(&["--really-set"], "Really set the repaired state of SSTables. If not set, only print SSTables that would be affected."),
        ]).takes("[<keyspace> <table...>]", "Optional keyspace followed by zero or more tables", usize::MAX),
    Verb::plain("status", "Print cluster information (state, load, IDs, ...)").flags(&[RESOLVE]).takes("[<keyspace>]", "The keyspace name", 1),
    Verb::plain("statusautocompaction", "status of autocompaction of the given keyspace and table").flags(&[switch(&["-a", "--all"], "Show auto compaction status for each keyspace/table")]).takes(TABLES, TABLES_HELP, usize::MAX),
    Verb::plain("statusbackup", "Status of incremental backup"),
    Verb::plain("statusbinary", "Status of native transport (binary protocol)"),
    Verb::plain("statusgossip", "Status of gossip"),
    Verb::plain("statushandoff", "Status of storing future hints on the current node"),
    Verb::plain("stop", "Stop compaction").flags(&[valued(&["-id", "--compaction-id"], "compactionId", "Use -id to stop a compaction by the specified id. Ids are those that compactionstats shows.")]).takes("<compaction type>", "Supported types are COMPACTION, MAJOR_COMPACTION, TOMBSTONE_COMPACTION, CLEANUP, UPGRADE_SSTABLES, RELOCATE, ANTICOMPACTION, GARBAGE_COLLECT, SCRUB, VERIFY; of Cassandra's other types none run here", 1),
    Verb::plain("stopdaemon", "Stop cassandra daemon"),
    Verb::plain("tablehistograms", "Print statistic histograms for a given table").takes("[<keyspace> <table> | <keyspace.table>]", "The keyspace and table name", usize::MAX),
    Verb::plain("tablestats", "Print statistics on tables").flags(&[
            valued(&["-F", "--format"], "format", "Output format (json, yaml)"),
            valued(&["-s", "--sort"], "sort_key", "Sort tables by specified sort key (as Cassandra's; a wrong one is answered with the list)"),
            valued(&["-t", "--top"], "top", "Show only the top K tables for the sort key (specify the number K of tables to be shown"),
            switch(
                &["-H", "--human-readable"],
                "Display bytes in human readable form, i.e. KiB, MiB, GiB, TiB",
            ),
            switch(&["-i"], "Ignore the list of tables and display the remaining tables"),
            switch(
                &["-l", "--sstable-location-check"],
                "Check whether or not the SSTables are in the correct location.",
            ),
        ]).takes("[<keyspace.table>...]", "List of tables (or keyspace) names", usize::MAX),
    Verb::plain("toppartitions", "Sample and print the most active partitions").flags(SAMPLING).takes(SAMPLED, SAMPLED_HELP, usize::MAX),
    Verb::plain("tpstats", "Print usage statistics of thread pools").flags(&[valued(&["-F", "--format"], "format", "Output format (json, yaml)")]),
    Verb::plain("truncatehints", "Truncate all hints on the local node, or truncate hints for the endpoint(s) specified.").takes("[endpoint ... ]", "IP address(es) of the endpoint(s) to delete hints for", usize::MAX),
    Verb::plain("updatecidrgroup", "Insert/Update a cidr group").takes("[<cidrGroup> <cidr> ...]", "Requires a cidr group name, followed by one or more CIDRs separated by space", usize::MAX),
    Verb::plain("upgradesstables", "Rewrite sstables (for the requested tables) that are not on the current version (thus upgrading them to said current version)").flags(&[
            switch(&["-a", "--include-all-sstables"], "Use -a to include all sstables, even those already on the current version"),
            valued(&["-j", "--jobs"], "jobs", "Accepted: each shard upgrades one file at a time"),
            valued(&["-t", "--max-timestamp"], "max_timestamp", "Use -t to compact only SSTables that have local creation time _older_ than the given timestamp (milliseconds since 1970)"),
        ]).takes(TABLES, TABLES_HELP, usize::MAX),
    Verb::plain("verify", "Verify (check data checksum for) one or more tables").flags(&[
            switch(&["-c", "--check-version"], "Also check that all sstables are the latest version"),
            switch(&["-d", "--dfp"], "Invoke the disk failure policy if a corrupt sstable is found"),
            switch(&["-e", "--extended-verify"], "Verify each cell data, beyond simply checking sstable checksums"),
            switch(&["-f", "--force"], "Accepted: it need not be forced"),
            switch(&["-q", "--quick"], "Do a quick check - avoid reading all data to verify checksums"),
            switch(&["-r", "--rsc"], "Mutate the repair status on corrupt sstables"),
            switch(&["-t", "--check-tokens"], "Verify that all tokens in sstables are owned by this node"),
        ]).takes(TABLES, TABLES_HELP, usize::MAX),
    Verb::plain("version", "Print cassandra version"),
];

pub(super) fn verb(name: &str) -> Option<&'static Verb> {
    let name = match name {
        "cfstats" => "tablestats",
        "cfhistograms" => "tablehistograms",
        other => other,
    };
    VERBS.iter().find(|v| v.name == name)
}
