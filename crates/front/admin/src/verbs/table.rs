//! The table of verbs: one row for each, in the order of the help.
//!
//! A row names the requests that its function may send, no others: a test carries out every verb and compares.

use super::cluster::tell;
use super::command::Argument::{
    Address, Cidr, Datacenter, Directory, Fraction, HostId, Key, Keyspace, Name, Number, Role,
    Table, TableName, Token, Word,
};
use super::command::{Verb, switch, valued};
use super::flags::{
    CACHE_NAME, REPAIR, RESOLVE, SAMPLED, SAMPLED_HELP, SAMPLING, TABLES, TABLES_HELP,
    THROUGHPUT_FLAGS, TIMEOUT_HELP,
};
use super::settings::set;
use super::{
    audit, auth_caches, cidr, cluster, limits, node, query_log, repair, repaired_set, sampling,
    settings, snapshots, tables, token_metadata, upkeep,
};
use crate::model::ClusterCommand;
use crate::operation::{CLUSTER, COMPACTIONS, cluster, compaction, delete, get, post, put};

/// Setting of `enableoldprotocolversions`.
const OLD_PROTOCOLS: &str = "native_transport_allow_older_protocols";

/// All verbs that are carried out; the others of Cassandra's are in [`super::REFUSED`].
pub const VERBS: &[Verb] = &[
    Verb::new("abortbootstrap", "Remove a node that has not finished joining; start it again with an empty work directory", &[cluster("abort_bootstrap")], cluster::abort_bootstrap)
        .flags(&[
            valued(&["--node"], "node", "Node ID of the node that failed bootstrap"),
            valued(&["--ip"], "ip", "IP of the node that failed bootstrap"),
        ]),
    Verb::new("abortdecommission", "Abort an in-progress decommission of the node I am connecting to while its data is copied", &[cluster("abort_movement")], cluster::abort_movement),
    Verb::new("abortmove", "Abort an in-progress move of the node I am connecting to while data is copied", &[cluster("abort_movement")], cluster::abort_movement),
    Verb::new("abortrebuild", "Abort an in-progress rebuild of the node I am connecting to; received data stays, and the same rebuild continues with the rest", &[cluster("abort_rebuild")], |line| tell(&line.api, &ClusterCommand::AbortRebuild {})),
    Verb::new("abortremovenode", "Abort the removal of a dead node while its data is copied", &[cluster("abort_removal")], cluster::abort_removal)
        .takes("[<ID>]", "Host ID of the node; the one whose removal is in progress otherwise", 1)
        .kinds(&[HostId]),
    Verb::new("assassinate", "Forcefully remove a dead node without re-replicating any data. Use as a last resort if you cannot removenode", &[cluster("assassinate")], |line| tell(&line.api, &ClusterCommand::Assassinate { address: line.first() }))
        .needs("ip address", "<ip_address>", "IP address of the endpoint to assassinate")
        .kinds(&[Address])
        .scylla(&["POST /gossiper/assassinate/{addr}"]),
    Verb::new("autorepairstatus", "Print the schedule of automatic repairs, and when each was last done", &[get("/api/v1/auto_repair")], repair::auto_status),
    Verb::new("bootstrap", "Monitor/manage node's bootstrap process", &[get(CLUSTER)], cluster::bootstrap)
        .flags(&[switch(&["-f", "--force"], "Accepted: a bootstrap that was cut off goes on with the next start by itself")])
        .takes("resume", "Resume bootstrap streaming", 1)
        .kinds(&[Word]),
    Verb::new("checktokenmetadata", "Compare the epoch of the metadata log, which has the tokens, with what live peers gossip; prints any mismatches found", &[get("/api/v1/node"), get(CLUSTER)], token_metadata::run),
    Verb::new("cidrfilteringstats", "Print statistics on CIDR filtering", &[get("/api/v1/cidr_filtering")], cidr::stats),
    Verb::new("cleanup", "Triggers the immediate cleanup of keys no longer belonging to a node. By default, clean all keyspaces", &[get("/api/v1/node"), cluster("cleanup")], cluster::cleanup)
        .flags(&[valued(&["-j", "--jobs"], "jobs", "Accepted: each shard cleans one table at a time")])
        .takes(TABLES, TABLES_HELP, usize::MAX)
        .kinds(&[Keyspace, Table])
        .scylla(&["POST /storage_service/keyspace_cleanup/{keyspace}"]),
    Verb::new("clearsnapshot", "Remove the snapshot with the given name from the given keyspaces", &[delete("/api/v1/snapshots")], snapshots::clear)
        .flags(&[
            valued(&["-t"], "snapshot_name", "Remove the snapshot with a given name"),
            switch(&["--all"], "Removes all snapshots"),
            valued(&["--older-than"], "older_than", "Clear snapshots older than specified time period."),
            valued(&["--older-than-timestamp"], "older_than_timestamp", "Clear snapshots older than specified timestamp. It has to be a string in ISO format, for example '2022-12-03T10:15:30Z'"),
        ])
        .takes("[<keyspaces>...]", "Remove snapshots from the given keyspaces", usize::MAX)
        .kinds(&[Keyspace])
        .scylla(&["DELETE /storage_service/snapshots"]),
    Verb::new("clientstats", "Print information about connected clients", &[get("/api/v1/clients")], settings::clients)
        .flags(&[
            switch(&["--all"], "Lists all connections"),
            switch(&["--client-options"], "Lists all connections and the client options"),
        ]),
    Verb::new("compact", "Force a (major) compaction on one or more tables or user-defined compaction on given SSTables", &[get("/api/v1/node"), post("/api/v1/compact"), compaction("files"), compaction("partition"), compaction("range"), compaction("split")], upkeep::compact)
        .flags(&[
            valued(&["-et", "--end-token"], "end_token", "Use -et to specify a token at which compaction range ends (inclusive)"),
            valued(&["--partition"], "partition_key", "String representation of the partition key"),
            switch(&["-s", "--split-output"], "Use -s to not create a single big file"),
            valued(&["-st", "--start-token"], "start_token", "Use -st to specify a token at which the compaction range starts (inclusive)"),
            switch(&["--user-defined"], "Use --user-defined to submit listed files for user-defined compaction"),
        ])
        .takes("[<keyspace> <tables>...] or <SSTable file>...", "The keyspace followed by one or many tables or list of SSTable data files when using --user-defined", usize::MAX)
        .kinds(&[Keyspace, Table])
        .scylla(&["POST /storage_service/keyspace_compaction/{keyspace}"]),
    Verb::new("compactionhistory", "Print history of compaction", &[get("/api/v1/compactions/history")], tables::compaction_history)
        .flags(&[valued(&["-F", "--format"], "format", "Output format (json, yaml)")]),
    Verb::new("compactionplan", "Print what would be compacted now, and why; nothing is changed", &[get("/api/v1/node"), get("/api/v1/compactions/plan")], tables::compaction_plan)
        .flags(&[switch(
            &["-H", "--human-readable"],
            "Display bytes in human readable form, i.e. KiB, MiB, GiB, TiB",
        )])
        .takes(TABLES, TABLES_HELP, usize::MAX)
        .kinds(&[Keyspace, Table]),
    Verb::new("compactionstats", "Print statistics on compactions", &[get(COMPACTIONS)], tables::compaction_stats)
        .flags(&[
            switch(&["-H", "--human-readable"], "Display bytes in human readable form, i.e. KiB, MiB, GiB, TiB"),
            switch(&["-V", "--vtable"], "Display fields matching vtable output"),
        ])
        .scylla(&["GET /compaction_manager/compactions"]),
    Verb::new("datapaths", "Print all directories where data of tables are stored", &[get(CLUSTER), get("/api/v1/tables")], settings::data_paths)
        .flags(&[valued(&["-F", "--format"], "format", "Output format (json, yaml)")])
        .takes("[<keyspace.table>...]", "List of table (or keyspace) names", usize::MAX)
        .kinds(&[TableName])
        .scylla(&["GET /storage_service/data_file/locations"]),
    Verb::new("decommission", "Decommission the *node I am connecting to*", &[get(CLUSTER), cluster("decommission")], cluster::decommission)
        .flags(&[switch(&["-f", "--force"], "Force decommission of this node even when it reduces the number of replicas to below configured RF")])
        .scylla(&["POST /storage_service/decommission"]),
    Verb::new("damagedsstables", "List SSTables of this node that were found damaged", &[get("/api/v1/damaged")], upkeep::damaged),
    Verb::new("describecluster", "Print the name, snitch, partitioner and schema version of a cluster", &[get("/api/v1/node"), get(CLUSTER)], node::describe_cluster)
        .scylla(&["GET /storage_service/cluster_name", "GET /snitch/name", "GET /storage_service/partitioner_name", "GET /storage_proxy/schema_versions"]),
    Verb::new("describering", "Shows the token ranges info of a given keyspace", &[get("/api/v1/node")], cluster::describe_ring)
        .needs("keyspace", "<keyspace>", "The keyspace name")
        .kinds(&[Keyspace])
        .scylla(&["GET /storage_service/describe_ring/{keyspace}"]),
    Verb::new("disableauditlog", "Disable the audit log", &[cluster("disable_audit_log")], audit::disable),
    Verb::new("disableautocompaction", "Disable autocompaction for the given keyspace and table", &[get("/api/v1/node"), compaction("set_automatic")], upkeep::disable_automatic)
        .takes(TABLES, TABLES_HELP, usize::MAX)
        .kinds(&[Keyspace, Table]),
    Verb::new("disablebackup", "Disable incremental backup", &[cluster("set_incremental_backups")], |line| tell(&line.api, &ClusterCommand::SetIncrementalBackups { enabled: false }))
        .scylla(&["POST /storage_service/incremental_backups"]),
    Verb::new("disablebinary", "Disable native transport (binary protocol)", &[cluster("set_native_transport")], |line| tell(&line.api, &ClusterCommand::SetNativeTransport { enabled: false }))
        .scylla(&["DELETE /storage_service/native_transport"]),
    Verb::new("disablefullquerylog", "Disable the full query log", &[cluster("disable_full_query_log")], query_log::disable),
    Verb::new("disablegossip", "Disable gossip (effectively marking the node down)", &[cluster("set_gossip")], |line| tell(&line.api, &ClusterCommand::SetGossip { enabled: false }))
        .scylla(&["DELETE /storage_service/gossiping"]),
    Verb::new("disablehandoff", "Disable storing hinted handoffs", &[cluster("set_hinted_handoff")], |line| tell(&line.api, &ClusterCommand::SetHintedHandoff { enabled: false }))
        .scylla(&["POST /storage_proxy/hinted_handoff_enabled"]),
    Verb::new("disablehintsfordc", "Disable hints for a data center", &[cluster("set_hints_for_datacenter")], limits::disable_hints_for_dc)
        .takes("<datacenter>", "The data center to disable", 1)
        .kinds(&[Datacenter]),
    Verb::new("disableoldprotocolversions", "Disable old protocol versions", &[cluster("set_setting")], |line| set(&line.api, OLD_PROTOCOLS, "false")),
    Verb::new("drain", "Drain the node (stop accepting writes and flush all tables)", &[post("/api/v1/drain")], node::drain)
        .scylla(&["POST /storage_service/drain"]),
    Verb::new("dropcidrgroup", "Drop an existing cidr group", &[cluster("drop_cidr_group")], cidr::drop_group)
        .takes("<cidrGroup>", "Requires a cidr group name", 1)
        .kinds(&[Name]),
    Verb::new("enableauditlog", "Enable the audit log", &[cluster("enable_audit_log")], audit::enable)
        .flags(&[
            valued(&["--archive-command"], "archive_command", "Command that will handle archiving rolled audit log files. Format is \"/path/to/script.sh %path\" where %path will be replaced with the file to archive Enable this by setting the audit_logging_options.allow_nodetool_archive_command: true in the config."),
            valued(&["--blocking"], "blocking", "If the queue is full whether to block producers or drop samples [true|false]."),
            valued(&["--excluded-categories"], "excluded_categories", "Comma separated list of Audit Log Categories to be excluded for audit log. If not set the value from cassandra.yaml will be used"),
            valued(&["--excluded-keyspaces"], "excluded_keyspaces", "Comma separated list of keyspaces to be excluded for audit log. If not set the value from cassandra.yaml will be used"),
            valued(&["--excluded-users"], "excluded_users", "Comma separated list of users to be excluded for audit log. If not set the value from cassandra.yaml will be used"),
            valued(&["--included-categories"], "included_categories", "Comma separated list of Audit Log Categories to be included for audit log. If not set the value from cassandra.yaml will be used"),
            valued(&["--included-keyspaces"], "included_keyspaces", "Comma separated list of keyspaces to be included for audit log. If not set the value from cassandra.yaml will be used"),
            valued(&["--included-users"], "included_users", "Comma separated list of users to be included for audit log. If not set the value from cassandra.yaml will be used"),
            valued(&["--logger"], "logger", "Logger name to be used for AuditLogging. Default BinAuditLogger. If not set the value from cassandra.yaml will be used"),
            valued(&["--max-archive-retries"], "archive_retries", "Max number of archive retries."),
            valued(&["--max-log-size"], "max_log_size", "How many bytes of log data to store before dropping segments. Might not be respected if a log file hasn't rolled so it can be deleted."),
            valued(&["--max-queue-weight"], "max_queue_weight", "Maximum number of bytes of query data to queue to disk before blocking or dropping samples."),
            valued(&["--roll-cycle"], "roll_cycle", "How often to roll the log file (MINUTELY, HOURLY, DAILY)."),
        ]),
    Verb::new("enableautocompaction", "Enable autocompaction for the given keyspace and table", &[get("/api/v1/node"), compaction("set_automatic")], upkeep::enable_automatic)
        .takes(TABLES, TABLES_HELP, usize::MAX)
        .kinds(&[Keyspace, Table]),
    Verb::new("enablebackup", "Enable incremental backup", &[cluster("set_incremental_backups")], |line| tell(&line.api, &ClusterCommand::SetIncrementalBackups { enabled: true }))
        .scylla(&["POST /storage_service/incremental_backups"]),
    Verb::new("enablebinary", "Reenable native transport (binary protocol)", &[cluster("set_native_transport")], |line| tell(&line.api, &ClusterCommand::SetNativeTransport { enabled: true }))
        .scylla(&["POST /storage_service/native_transport"]),
    Verb::new("enablefullquerylog", "Enable full query logging, defaults for the options are configured in cassandra.yaml", &[cluster("enable_full_query_log")], query_log::enable)
        .flags(&[
            valued(&["--archive-command"], "archive_command", "Command that will handle archiving rolled full query log files. Format is \"/path/to/script.sh %path\" where %path will be replaced with the file to archive Enable this by setting the full_query_logging_options.allow_nodetool_archive_command: true in the config."),
            valued(&["--blocking"], "blocking", "If the queue is full whether to block producers or drop samples [true|false]."),
            valued(&["--max-archive-retries"], "archive_retries", "Max number of archive retries."),
            valued(&["--max-log-size"], "max_log_size", "How many bytes of log data to store before dropping segments. Might not be respected if a log file hasn't rolled so it can be deleted."),
            valued(&["--max-queue-weight"], "max_queue_weight", "Maximum number of bytes of query data to queue to disk before blocking or dropping samples."),
            valued(&["--path"], "path", "Path to store the full query log at. Older files of the log in it are deleted."),
            valued(&["--roll-cycle"], "roll_cycle", "How often to roll the log file (MINUTELY, HOURLY, DAILY)."),
        ]),
    Verb::new("enablegossip", "Reenable gossip", &[cluster("set_gossip")], |line| tell(&line.api, &ClusterCommand::SetGossip { enabled: true }))
        .scylla(&["POST /storage_service/gossiping"]),
    Verb::new("enablehandoff", "Reenable future hints storing on the current node", &[cluster("set_hinted_handoff")], |line| tell(&line.api, &ClusterCommand::SetHintedHandoff { enabled: true }))
        .scylla(&["POST /storage_proxy/hinted_handoff_enabled"]),
    Verb::new("enablehintsfordc", "Enable hints for a data center that was previsouly disabled", &[cluster("set_hints_for_datacenter")], limits::enable_hints_for_dc)
        .takes("<datacenter>", "The data center to enable", 1)
        .kinds(&[Datacenter]),
    Verb::new("enableoldprotocolversions", "Enable old protocol versions", &[cluster("set_setting")], |line| set(&line.api, OLD_PROTOCOLS, "true")),
    Verb::new("failuredetector", "Shows the failure detector information for the cluster", &[get("/api/v1/node"), get(CLUSTER)], cluster::failure_detector)
        .scylla(&["GET /failure_detector/endpoint_phi_values"]),
    Verb::new("flush", "Flush one or more tables", &[get("/api/v1/node"), post("/api/v1/flush")], node::flush)
        .takes(TABLES, TABLES_HELP, usize::MAX)
        .kinds(&[Keyspace, Table])
        .scylla(&["POST /storage_service/keyspace_flush/{keyspace}"]),
    Verb::new("forcecompact", "Force a (major) compaction on a table", &[compaction("force")], upkeep::force)
        .takes("[<keyspace> <table> <keys>]", "The keyspace, table, and a list of partition keys ignoring the gc_grace_seconds", usize::MAX)
        .kinds(&[Keyspace, Table, Key]),
    Verb::new("getauditlog", "Print configuration of audit log if enabled, otherwise the configuration reflected in cassandra.yaml", &[get(CLUSTER)], audit::get),
    Verb::new("getauthcacheconfig", "Get configuration of Auth cache", &[get(CLUSTER)], auth_caches::config)
        .flags(&[CACHE_NAME]),
    Verb::new("getautorepairconfig", "Print autorepair configurations", &[get("/api/v1/auto_repair")], repair::auto_config),
    Verb::new("getbatchlogreplaythrottle", "Print batchlog replay throttle in KB/s. This is reduced proportionally to the number of nodes in the cluster.", &[get(CLUSTER)], settings::batchlog_throttle),
    Verb::new("getcidrgroupsofip", "Print CIDR groups associated with given IP", &[get("/api/v1/cidr_groups")], cidr::groups_of)
        .takes("<ip_address>", "Requires IP address as a string", 1)
        .kinds(&[Address]),
    Verb::new("getcolumnindexsize", "Print the granularity of the collation index of rows within a partition in KiB", &[get(CLUSTER)], settings::column_index_size),
    Verb::new("garbagecollect", "Remove deleted data from one or more tables", &[get("/api/v1/node"), compaction("garbage_collect")], upkeep::garbage_collect)
        .flags(&[
            valued(&["-g", "--granularity"], "granularity", "Granularity of garbage removal. ROW (default) removes deleted partitions and rows, CELL also removes overwritten or deleted cells."),
            valued(&["-j", "--jobs"], "jobs", "Accepted: each shard looks at one file at a time"),
        ])
        .takes(TABLES, TABLES_HELP, usize::MAX)
        .kinds(&[Keyspace, Table]),
    Verb::new("getcompactionshare", "Print the share of the processor that compaction gets under load (of Helenus)", &[get(COMPACTIONS)], settings::compaction_share),
    Verb::new("getcompactionthreshold", "Print min and max compaction thresholds for a given table", &[get("/api/v1/compactions/settings")], upkeep::threshold)
        .takes("<keyspace> <table>", "The keyspace with a table", usize::MAX)
        .kinds(&[Keyspace, Table]),
    Verb::new("getcompactionthroughput", "Print the MiB/s throughput cap for compaction in the system as a rounded number", &[get(COMPACTIONS)], settings::compaction_throughput)
        .flags(&[switch(&["-d", "--precise-mib"], "Print the MiB/s throughput cap for compaction in the system as a precise number (double)")])
        .scylla(&["GET /storage_service/compaction_throughput"]),
    Verb::new("getconcurrentcompactors", "Get the number of concurrent compactors in the system.", &[get(COMPACTIONS)], settings::concurrent_compactors),
    Verb::new("getdefaultrf", "Gets default keyspace replication factor.", &[get(CLUSTER)], settings::default_rf),
    Verb::new("getendpoints", "Print the end points that owns the key", &[get("/api/v1/endpoints"), get("/api/v1/node")], cluster::get_endpoints)
        .takes("<keyspace> <table> <key>", "The keyspace, the table, and the partition key for which we need to find the endpoint", usize::MAX)
        .kinds(&[Keyspace, Table, Key])
        .scylla(&["GET /storage_service/natural_endpoints/{keyspace}"]),
    Verb::new("getfullquerylog", "Print configuration of fql if enabled, otherwise the configuration reflected in cassandra.yaml", &[get(CLUSTER)], query_log::get),
    Verb::new("getguardrailsconfig", "Print runtime configuration of guardrails.", &[get("/api/v1/guardrails")], settings::guardrails)
        .flags(&[valued(&["-c", "--category"], "guardrailCategory", "Category of guardrails to filter, can be one of 'values', 'thresholds', 'flags', 'others'."), switch(&["--expand"], "Expand all guardrail names so they reflect their counterparts in cassandra.yaml")])
        .takes("[<name>]", "Specific name of a guardrail to get configuration of.", usize::MAX)
        .kinds(&[Word]),
    Verb::new("getinterdcstreamthroughput", "Print the throughput cap for inter-datacenter streaming in rounded megabits. For precise number, please, use option -d", &[get(CLUSTER)], limits::inter_dc_stream_throughput)
        .flags(THROUGHPUT_FLAGS),
    Verb::new("getlogginglevels", "Get the runtime logging levels", &[get("/api/v1/log")], settings::logging_levels)
        .scylla(&["GET /system/logger"]),
    Verb::new("getmaxhintwindow", "Print the max hint window in ms", &[get(CLUSTER)], limits::hint_window)
        .scylla(&["GET /storage_proxy/max_hint_window"]),
    Verb::new("getseeds", "Get the currently in use seed node IP list excluding the node IP", &[get(CLUSTER), get("/api/v1/node")], settings::list_seeds),
    Verb::new("getsnapshotthrottle", "Print the snapshot_links_per_second throttle for snapshot/clearsnapshot", &[get(CLUSTER)], settings::snapshot_throttle),
    Verb::new("getsstables", "Print the sstable filenames that own the key", &[get("/api/v1/sstables")], upkeep::sstables)
        .flags(&[
            switch(&["-hf", "--hex-format"], "Specify the key in hexadecimal string format"),
            switch(&["-l", "--show-levels"], "If the table is using leveled compaction the level of each sstable will be included in the output (Default: false)"),
        ])
        .takes("<keyspace> <cfname> <key>", "The keyspace, the column family, and the key", usize::MAX)
        .kinds(&[Keyspace, Table, Key]),
    Verb::new("getstreamthroughput", "Print the throughput cap for streaming in rounded megabits. For precise number, please, use option -d", &[get(CLUSTER)], limits::stream_throughput)
        .flags(&[switch(&["-m", "--mib"], "Print the throughput cap for streaming in MiB/s"), switch(&["-d", "--precise-mbit"], "Print the throughput cap for streaming in precise Mbits (double)")])
        .scylla(&["GET /storage_service/stream_throughput"]),
    Verb::new("gettimeout", "Print the timeout of the given type in ms", &[get(CLUSTER)], limits::timeout)
        .takes("<timeout_type>", TIMEOUT_HELP, usize::MAX)
        .kinds(&[Word])
        .scylla(&["GET /storage_proxy/read_rpc_timeout"]),
    Verb::new("gettraceprobability", "Print the current trace probability value", &[get(CLUSTER)], settings::trace_probability)
        .scylla(&["GET /storage_service/trace_probability"]),
    Verb::new("gossipinfo", "Shows the gossip information for the cluster", &[get("/api/v1/node"), get(CLUSTER)], cluster::gossip_info)
        .flags(&[RESOLVE])
        .scylla(&["GET /failure_detector/endpoints"]),
    Verb::new("help", "Display help information", &[], node::help)
        .takes("[<command>]", "The command", 1)
        .kinds(&[Word]),
    Verb::new("import", "Import new SSTables to the system", &[post("/api/v1/import")], upkeep::import)
        .flags(&[
            switch(&["-c", "--no-invalidate-caches"], "Accepted without effect: an import always invalidates the caches of the table"),
            switch(&["-e", "--extended-verify"], "Verify all values in the new SSTables, which is also done without it"),
            switch(&["-l", "--keep-level"], "Keep the level on the new SSTables"),
            switch(&["-p", "-cd", "--copy-data"], "Copy data from source directories instead of moving them"),
            switch(&["-q", "--quick"], "Do a quick import without verifying SSTables and tokens"),
            switch(&["-r", "--keep-repaired"], "Keep any repaired information from the SSTables"),
            switch(&["-t", "--no-tokens"], "Don't verify that all tokens in the new SSTable are owned by the current node"),
            switch(&["-v", "--no-verify"], "Don't verify new SSTables"),
        ])
        .takes("<keyspace> <table> <directory> ...", "The keyspace, table name and directories to import SSTables from", usize::MAX)
        .kinds(&[Keyspace, Table, Directory]),
    Verb::new("info", "Print node information (uptime, load, ...)", &[get("/api/v1/node"), get("/api/v1/tables"), get("/api/v1/caches"), get(CLUSTER)], node::info)
        .flags(&[switch(&["-T", "--tokens"], "Display all tokens")])
        .scylla(&["GET /storage_service/load", "GET /system/uptime_ms"]),
    Verb::new("join", "Join the ring", &[get(CLUSTER)], settings::join)
        .scylla(&["GET /storage_service/join_ring"]),
    Verb::new("invalidatecidrpermissionscache", "Invalidate the cidr permissions cache (does nothing: it is never stale)", &[get("/api/v1/cidr_groups")], cidr::invalidate)
        .takes("[<role>...]", "List of roles to invalidate. By default, all roles", usize::MAX)
        .kinds(&[Role]),
    Verb::new("invalidatecountercache", "Invalidate the counter cache", &[cluster("invalidate_counter_cache")], |line| tell(&line.api, &ClusterCommand::InvalidateCounterCache {})),
    Verb::new("invalidatecredentialscache", "Invalidate the credentials cache", &[delete("/api/v1/credentials_cache")], cidr::forget_credentials)
        .takes("[<role>...]", "List of roles to invalidate. By default, all roles", usize::MAX)
        .kinds(&[Role]),
    Verb::new("invalidatekeycache", "Invalidate the key cache (does nothing: there is no key cache)", &[get(CLUSTER)], settings::invalidate_key_cache),
    Verb::new("invalidatenetworkpermissionscache", "Invalidate the network permissions cache (does nothing: it is never stale)", &[get("/api/v1/node")], node::asked)
        .takes("[<role>...]", "List of roles to invalidate. By default, all roles", usize::MAX)
        .kinds(&[Role]),
    Verb::new("invalidatepermissionscache", "Invalidate the permissions cache (does nothing: it is never stale)", &[get("/api/v1/node")], auth_caches::permissions)
        .flags(&[
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
        ])
        .takes("[<role>]", "A role for which permissions to specified resources need to be invalidated", usize::MAX)
        .kinds(&[Role]),
    Verb::new("invalidaterolescache", "Invalidate the roles cache (does nothing: it is never stale)", &[get("/api/v1/node")], node::asked)
        .takes("[<role>...]", "List of roles to invalidate. By default, all roles", usize::MAX)
        .kinds(&[Role]),
    Verb::new("invalidaterowcache", "Invalidate the row cache", &[cluster("invalidate_row_cache")], |line| tell(&line.api, &ClusterCommand::InvalidateRowCache {})),
    Verb::new("listcidrgroups", "List existing cidr groups", &[get("/api/v1/cidr_groups")], cidr::list)
        .takes("[<cidrGroup>]", "LIST operation can be invoked with or without cidr group name", 1)
        .kinds(&[Name]),
    Verb::new("listpendinghints", "Print all pending hints that this node has", &[get("/api/v1/node"), get(CLUSTER)], limits::pending_hints)
        .scylla(&["GET /hinted_handoff/hints"]),
    Verb::new("listsnapshots", "Lists all the snapshots along with the size on disk and true size", &[get("/api/v1/snapshots")], snapshots::list)
        .flags(&[
            switch(&["-nt", "--no-ttl"], "Skip snapshots with TTL"),
            switch(&["-e", "--ephemeral"], "Include ephemeral snapshots, which a Cassandra has made for its repairs"),
        ])
        .scylla(&["GET /storage_service/snapshots"]),
    Verb::new("move", "Move node on the token ring to a new token", &[cluster("move")], cluster::move_to)
        .needs("newToken", "<new token>", "The new token.")
        .kinds(&[Token])
        .scylla(&["POST /storage_service/move/{new_token}"]),
    Verb::new("netstats", "Print network information on provided host (connecting node by default)", &[get("/api/v1/node"), get(CLUSTER)], cluster::net_stats)
        .flags(&[switch(&["-H", "--human-readable"], "Display bytes in human readable form, i.e. KiB, MiB, GiB, TiB")])
        .scylla(&["GET /stream_manager/"]),
    Verb::new("pausehandoff", "Pause hints delivery process", &[cluster("pause_hints")], |line| tell(&line.api, &ClusterCommand::PauseHints { paused: true }))
        .scylla(&["POST /hinted_handoff/pause"]),
    Verb::new("profileload", "Low footprint profiling of activity for a period of time", &[post("/api/v1/samples"), get("/api/v1/samples/jobs"), post("/api/v1/samples/jobs"), delete("/api/v1/samples/jobs")], sampling::profile_load)
        .flags(SAMPLING)
        .takes(SAMPLED, SAMPLED_HELP, usize::MAX)
        .kinds(&[Keyspace, Table, Number]),
    Verb::new("proxyhistograms", "Print statistic histograms for network operations", &[get("/api/v1/latencies")], tables::proxy_histograms)
        .scylla(&["GET /storage_proxy/metrics/{operation}/{number}"]),
    Verb::new("rebuild", "Rebuild data by streaming from other nodes (similarly to bootstrap)", &[cluster("rebuild")], cluster::rebuild)
        .flags(&[
            switch(&["--exclude-local-dc"], "Use --exclude-local-dc to exclude nodes in local data center as source for streaming."),
            valued(&["-ks", "--keyspace"], "specific_keyspace", "Use -ks to rebuild specific keyspace."),
            valued(&["-s", "--sources"], "specific_sources", "Use -s to specify hosts that this node should stream from when -ts is used. Multiple hosts should be separated using commas (e.g. 127.0.0.1,127.0.0.2,...)"),
            valued(&["-ts", "--tokens"], "specific_tokens", "Use -ts to rebuild specific token ranges, in the format of \"(start_token_1,end_token_1],(start_token_2,end_token_2],...(start_token_n,end_token_n]\"."),
        ])
        .takes("[<src-dc-name>]", "Name of DC from which to select sources for streaming. By default, pick any DC (except local DC when --exclude-local-dc is set)", 1)
        .kinds(&[Datacenter])
        .scylla(&["POST /storage_service/rebuild"]),
    Verb::new("rangekeysample", "Shows the sampled keys held across all keyspaces", &[get("/api/v1/key_samples")], settings::key_samples),
    Verb::new("rebuild_index", "A full rebuild of native secondary indexes for a given table", &[compaction("rebuild_indexes")], upkeep::rebuild_index)
        .takes("<keyspace> <table> <indexName...>", "The keyspace and table name followed by a list of index names", usize::MAX)
        .kinds(&[Keyspace, Table, Name]),
    Verb::new("recompress_sstables", "Rewrite sstables (for the requested tables) that have compression configuration different from the current", &[get("/api/v1/node"), compaction("recompress")], upkeep::recompress)
        .flags(&[
            valued(&["-j", "--jobs"], "jobs", "Accepted: each shard writes one file at a time"),
        ])
        .takes(TABLES, TABLES_HELP, usize::MAX)
        .kinds(&[Keyspace, Table]),
    Verb::new("refresh", "Load newly placed SSTables to the system without restart (deprecated, use import)", &[post("/api/v1/refresh"), get("/api/v1/node")], upkeep::refresh)
        .takes("<keyspace> <table>", "The keyspace and table name", usize::MAX)
        .kinds(&[Keyspace, Table]),
    Verb::new("refreshsizeestimates", "Refresh system.size_estimates", &[cluster("refresh_size_estimates")], |line| tell(&line.api, &ClusterCommand::RefreshSizeEstimates {})),
    Verb::new("relocatesstables", "Relocates sstables to the correct disk", &[get("/api/v1/node"), compaction("relocate")], upkeep::relocate)
        .flags(&[
            valued(&["-j", "--jobs"], "jobs", "Accepted: each shard takes one file at a time"),
        ])
        .takes("<keyspace> <table>", "The keyspace and table name", usize::MAX)
        .kinds(&[Keyspace, Table]),
    Verb::new("reloadcidrgroupscache", "Reload CIDR groups cache with latest entries in cidr_groups table (there is none: a change counts from the next statement on)", &[get("/api/v1/cidr_groups")], cidr::reload_groups),
    Verb::new("reloadkeys", "Read the key file of encryption at rest again, and ask the providers of keys for their newest ones; new files are encrypted with them", &[cluster("reload_file_keys")], settings::reload_file_keys),
    Verb::new("reloadseeds", "Reload the seed node list from the configuration", &[cluster("reload_seeds"), get(CLUSTER), get("/api/v1/node")], settings::reload_seeds),
    Verb::new("reloadssl", "Signals Cassandra to reload SSL certificates", &[cluster("reload_ssl")], settings::reload_ssl),
    Verb::new("removenode", "Show status of current node removal, force completion of pending removal or remove provided ID", &[cluster("remove_node"), cluster("force_removal"), get("/api/v1/node"), get(CLUSTER)], cluster::remove_node)
        .needs("remove_operation", "<status>|<force>|<ID>", "Show status of current node removal, force completion of pending removal, or remove provided ID")
        .kinds(&[HostId])
        .scylla(&["POST /storage_service/remove_node", "GET /storage_service/removal_status", "POST /storage_service/force_remove_completion"]),
    Verb::new("repair", "Repair one or more tables", &[get("/api/v1/node"), post("/storage_service/repair_async/{keyspace}"), get("/api/v1/repairs/{id}")], repair::run)
        .flags(REPAIR)
        .takes(TABLES, TABLES_HELP, usize::MAX)
        .kinds(&[Keyspace, Table])
        .scylla(&["POST /storage_service/repair_async/{keyspace}"]),
    Verb::new("repair_admin", "List, summarize and cancel repairs of this node", &[get("/api/v1/repairs"), delete("/api/v1/repairs/{id}"), get("/api/v1/repair_summary")], repair::admin)
        .flags(&[
        valued(&["-s", "--session"], "session", "The session or the number of the command to cancel"),
        switch(&["-v", "--verbose"], "print additional info"),
        valued(&["-st", "--start-token"], "start_token", "Use -st to specify a token at which the repair range starts"),
        valued(&["-et", "--end-token"], "end_token", "Use -et to specify a token at which repair range ends"),
    ])
        .takes("list | cancel | summarize-pending | summarize-repaired [<keyspace> <tables>...]", "list: the repairs of this run of the node; cancel: end the one of --session; summarize-pending: the data that takes part in sessions; summarize-repaired: when ranges were repaired", usize::MAX)
        .kinds(&[Word, Keyspace, Table])
        .scylla(&["GET /task_manager/list_module_tasks/{module}", "POST /storage_service/force_terminate_repair"]),
    Verb::new("replaybatchlog", "Kick off batchlog replay and wait for finish", &[cluster("replay_batchlog")], |line| tell(&line.api, &ClusterCommand::ReplayBatchlog {})),
    Verb::new("resetfullquerylog", "Stop the full query log and clean files in the configured full query log directory from cassandra.yaml as well as JMX", &[cluster("reset_full_query_log")], query_log::reset),
    Verb::new("resumehandoff", "Resume hints delivery process", &[cluster("pause_hints")], |line| tell(&line.api, &ClusterCommand::PauseHints { paused: false }))
        .scylla(&["POST /hinted_handoff/pause"]),
    Verb::new("ring", "Print information about the token ring", &[get("/api/v1/node")], node::ring)
        .flags(&[RESOLVE])
        .takes("[<keyspace>]", "Specify a keyspace for accurate ownership information", 1)
        .kinds(&[Keyspace])
        .scylla(&["GET /storage_service/tokens_endpoint"]),
    Verb::new("scrub", "Scrub (rebuild sstables for) one or more tables", &[get("/api/v1/node"), compaction("scrub")], upkeep::scrub)
        .flags(&[
            valued(&["-j", "--jobs"], "jobs", "Accepted: each shard scrubs one file at a time"),
            switch(&["-n", "--no-validate"], "Do not validate columns using column validator"),
            switch(&["-ns", "--no-snapshot"], "Scrubbed CFs will be snapshotted first, if disableSnapshot is false. (default false)"),
            switch(&["-r", "--reinsert-overflowed-ttl"], "Rewrites rows with overflowed expiration date affected by CASSANDRA-14092 with the maximum supported expiration date of 2038-01-19T03:14:06+00:00. The rows are rewritten with the original timestamp incremented by one microsecond to override/supersede any potential tombstone that may have been generated during compaction of the affected rows."),
            switch(&["-s", "--skip-corrupted"], "Skip corrupted partitions even when scrubbing counter tables. (default false)"),
        ])
        .takes(TABLES, TABLES_HELP, usize::MAX)
        .kinds(&[Keyspace, Table]),
    Verb::new("setauthcacheconfig", "Set configuration for Auth cache", &[cluster("set_setting")], auth_caches::set_config)
        .flags(&[
            CACHE_NAME,
            switch(&["--disable-active-update"], "Disable active update"),
            switch(&["--enable-active-update"], "Enable active update: refused, what is remembered is never read again"),
            valued(&["--max-entries"], "max-entries", "Max entries, of each shard"),
            valued(&["--update-interval"], "update-interval", "Update interval in milliseconds: refused, what is remembered is never read again"),
            valued(&["--validity-period"], "validity-period", "Validity period in milliseconds"),
        ]),
    Verb::new("setautorepairconfig", "Switch automatic repairs on or off, until the node stops", &[put("/api/v1/auto_repair")], repair::set_auto)
        .takes("enabled true | enabled false", "What is set, and to what", 2)
        .kinds(&[Word]),
    Verb::new("setbatchlogreplaythrottle", "Set batchlog replay throttle in KB per second, or 0 to disable throttling. This will be reduced proportionally to the number of nodes in the cluster.", &[cluster("set_batchlog_throttle")], settings::set_batchlog_throttle)
        .needs("batchlog_replay_throttle", "<value_in_kb_per_sec>", "Value in KiB per second, 0 to disable throttling")
        .kinds(&[Number]),
    Verb::new("setcompactionshare", "Give compaction a share of the processor under load, or let it follow what compaction owes (of Helenus)", &[cluster("set_compaction_share")], settings::set_compaction_share)
        .needs("compaction_share", "<share>", "1 to 1000 (statements have 1000), or auto")
        .kinds(&[Number]),
    Verb::new("setcachekeystosave", "Set number of keys saved by each cache for faster post-restart warmup. 0 to disable", &[cluster("set_setting")], settings::set_keys_to_save)
        .takes("<key-cache-keys-to-save> <row-cache-keys-to-save> <counter-cache-keys-to-save>", "The number of keys saved by each cache. 0 to disable; there is no key cache here", usize::MAX)
        .requires("<key-cache-keys-to-save> <row-cache-keys-to-save> <counter-cache-keys-to-save>")
        .kinds(&[Number]),
    Verb::new("setcolumnindexsize", "Set the granularity of the collation index of rows within a partition in KiB", &[cluster("set_setting")], settings::set_column_index_size)
        .needs("column_index_size", "<value_in_kib>", "Value in KiB")
        .kinds(&[Number]),
    Verb::new("setcompactionthreshold", "Set min and max compaction thresholds for a given table", &[compaction("set_thresholds")], upkeep::set_threshold)
        .takes("<keyspace> <table> <minthreshold> <maxthreshold>", "The keyspace, the table, min and max threshold", usize::MAX)
        .requires("<keyspace> <table> <minthreshold> <maxthreshold>")
        .kinds(&[Keyspace, Table, Number]),
    Verb::new("setcachecapacity", "Set global key, row, and counter cache capacities (in MB units)", &[cluster("set_row_cache_capacity"), cluster("set_counter_cache_capacity")], settings::set_cache_capacity)
        .takes("<key-cache-capacity> <row-cache-capacity> <counter-cache-capacity>", "Key cache, row cache, and counter cache (in MB); there is no key cache here, give 0 for it", usize::MAX)
        .kinds(&[Number]),
    Verb::new("setcompactionthroughput", "Set the MiB/s throughput cap for compaction in the system, or 0 to disable throttling", &[cluster("set_compaction_throughput")], settings::set_compaction_throughput)
        .needs("compaction_throughput", "<value_in_mb>", "Value in MiB, 0 to disable throttling")
        .kinds(&[Number])
        .scylla(&["POST /storage_service/compaction_throughput"]),
    Verb::new("setconcurrentcompactors", "Set number of concurrent compactors in the system.", &[cluster("set_concurrent_compactors")], settings::set_concurrent_compactors)
        .needs("concurrent_compactors", "<value>", "Number of concurrent compactors, greater than 0.")
        .kinds(&[Number]),
    Verb::new("setdefaultrf", "Sets default keyspace replication factor.", &[cluster("set_setting")], settings::set_default_rf)
        .needs("default_rf", "<value>", "Default replication factor")
        .kinds(&[Number]),
    Verb::new("sethintedhandoffthrottlekb", "Set hinted handoff throttle in KiB per second, per node that hints are sent to", &[cluster("set_hint_throttle")], limits::set_hint_throttle)
        .needs("throttle_in_kb", "<value_in_kb_per_sec>", "Value in KiB per second")
        .kinds(&[Number])
        .scylla(&["POST /storage_service/hinted_handoff"]),
    Verb::new("setguardrailsconfig", "Modify runtime configuration of guardrails.", &[put("/api/v1/guardrails")], settings::set_guardrail)
        .takes("[<setter> <value1> ...]", "For flags, possible values are 'true' or 'false'. For thresholds, two values are expected, first for failure, second for warning. For values, enumeration of values expected or one value where multiple items are separated by comma. Setting for thresholds accepting strings and value guardrails are reset by specifying 'null' or '[]' value. For thresholds accepting integers, the reset value is -1.", usize::MAX)
        .kinds(&[Word]),
    Verb::new("setinterdcstreamthroughput", "Set throughput cap for inter-datacenter streaming, within that of all streams, or 0 to disable throttling", &[cluster("set_inter_dc_stream_throughput")], limits::set_inter_dc_stream_throughput)
        .flags(&[switch(&["-m", "--mib"], "Set streaming throughput in MiB/s")])
        .needs("inter_dc_stream_throughput", "<value_in_mb>", "Value in megabits, 0 to disable throttling")
        .kinds(&[Number]),
    Verb::new("setlogginglevel", "Set the log level threshold for a given component or class. Will reset to the initial configuration if called with no parameters.", &[put("/api/v1/log")], settings::set_level)
        .takes("<component|module> <level>", "The component or module to change the level for and the log level threshold to set. Will reset to initial level if omitted. Available components: bootstrap, compaction, repair, streaming, cql, ring; ROOT is everything", 2)
        .kinds(&[Word])
        .scylla(&["POST /system/logger/{name}"]),
    Verb::new("setmaxhintwindow", "Set the specified max hint window in ms", &[cluster("set_hint_window")], limits::set_hint_window)
        .needs("max_hint_window", "<value_in_ms>", "Value of maxhintwindow in ms")
        .kinds(&[Number])
        .scylla(&["POST /storage_proxy/max_hint_window"]),
    Verb::new("setsnapshotthrottle", "Set the snapshot_links_per_second cap for snapshot and clearsnapshot throttling", &[cluster("set_setting")], settings::set_snapshot_throttle)
        .needs("setsnapshotthrottle", "<value>", "Hard links per second, 0 to disable throttling")
        .kinds(&[Number]),
    Verb::new("setstreamthroughput", "Set throughput cap for streaming in the system, or 0 to disable throttling", &[cluster("set_stream_throughput")], limits::set_stream_throughput)
        .flags(&[switch(&["-m", "--mib"], "Set streaming throughput in MiB/s")])
        .needs("stream_throughput", "<value_in_mb>", "Value in megabits, 0 to disable throttling")
        .kinds(&[Number])
        .scylla(&["POST /storage_service/stream_throughput"]),
    Verb::new("settimeout", "Set the specified timeout in ms", &[cluster("set_timeout")], limits::set_timeout)
        .takes("<timeout_type> <timeout_in_ms>", "Timeout type (one of read, range, write, counterwrite, cascontention, truncate, misc) followed by value in ms, 1 at least", usize::MAX)
        .requires("args")
        .kinds(&[Word, Number])
        .scylla(&["POST /storage_proxy/read_rpc_timeout"]),
    Verb::new("settraceprobability", "Sets the probability for tracing any given request to value. 0 disables, 1 enables for all requests, 0 is the default", &[cluster("set_trace_probability")], settings::set_trace_probability)
        .needs("trace_probability", "<value>", "Trace probability between 0 and 1 (ex: 0.2)")
        .kinds(&[Fraction])
        .scylla(&["POST /storage_service/trace_probability"]),
    Verb::new("snapshot", "Take a snapshot of specified keyspaces or a snapshot of the specified table", &[post("/api/v1/snapshots")], snapshots::take)
        .flags(&[
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
        ])
        .takes("[<keyspaces...>]", "List of keyspaces. By default, all keyspaces", usize::MAX)
        .kinds(&[Keyspace])
        .scylla(&["POST /storage_service/snapshots"]),
    Verb::new("sstablerepairedset", "Set the repaired state of SSTables for given keyspace/tables", &[get("/api/v1/node"), post("/api/v1/repaired")], repaired_set::run)
        .flags(&[
            switch(&["--is-repaired"], "Set SSTables to repaired state."),
            switch(&["--is-unrepaired"], "Set SSTables to unrepaired state."),
            switch(&["--really-set"], "Really set the repaired state of SSTables. If not set, only print SSTables that would be affected."),
        ])
        .takes("[<keyspace> <table...>]", "Optional keyspace followed by zero or more tables", usize::MAX)
        .kinds(&[Keyspace, Table]),
    Verb::new("status", "Print cluster information (state, load, IDs, ...)", &[get("/api/v1/node")], node::status)
        .flags(&[RESOLVE])
        .takes("[<keyspace>]", "The keyspace name", 1)
        .kinds(&[Keyspace])
        .scylla(&["GET /storage_service/host_id", "GET /storage_service/load_map", "GET /storage_service/ownership/{keyspace}"]),
    Verb::new("statusautocompaction", "status of autocompaction of the given keyspace and table", &[get("/api/v1/node"), get("/api/v1/compactions/settings")], upkeep::automatic)
        .flags(&[switch(&["-a", "--all"], "Show auto compaction status for each keyspace/table")])
        .takes(TABLES, TABLES_HELP, usize::MAX)
        .kinds(&[Keyspace, Table]),
    Verb::new("statusbackup", "Status of incremental backup", &[get(CLUSTER)], settings::backup_status)
        .scylla(&["GET /storage_service/incremental_backups"]),
    Verb::new("statusbinary", "Status of native transport (binary protocol)", &[get("/api/v1/node")], cluster::binary_status)
        .scylla(&["GET /storage_service/native_transport"]),
    Verb::new("statusgossip", "Status of gossip", &[get(CLUSTER)], cluster::gossip_status)
        .scylla(&["GET /storage_service/gossiping"]),
    Verb::new("statushandoff", "Status of storing future hints on the current node", &[get(CLUSTER)], limits::handoff_status)
        .scylla(&["GET /storage_proxy/hinted_handoff_enabled"]),
    Verb::new("stop", "Stop compaction", &[compaction("stop")], upkeep::stop)
        .flags(&[valued(&["-id", "--compaction-id"], "compactionId", "Use -id to stop a compaction by the specified id. Ids are those that compactionstats shows.")])
        .takes("<compaction type>", "Supported types are COMPACTION, MAJOR_COMPACTION, TOMBSTONE_COMPACTION, CLEANUP, UPGRADE_SSTABLES, RELOCATE, ANTICOMPACTION, GARBAGE_COLLECT, INDEX_BUILD, SCRUB, VERIFY; of Cassandra's other types none run here", 1)
        .kinds(&[Word]),
    Verb::new("stopdaemon", "Drain this node and end its process", &[cluster("stop_daemon")], settings::stop_daemon),
    Verb::new("tablehistograms", "Print statistic histograms for a given table", &[get("/api/v1/tables")], tables::table_histograms)
        .also(&["cfhistograms"])
        .takes("[<keyspace> <table> | <keyspace.table>]", "The keyspace and table name", usize::MAX)
        .kinds(&[TableName])
        .scylla(&["GET /column_family/metrics/{*metric}"]),
    Verb::new("tablestats", "Print statistics on tables", &[get("/api/v1/tables")], tables::table_stats)
        .also(&["cfstats"])
        .flags(&[
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
        ])
        .takes("[<keyspace.table>...]", "List of tables (or keyspace) names", usize::MAX)
        .kinds(&[TableName])
        .scylla(&["GET /column_family/", "GET /column_family/metrics/{*metric}"]),
    Verb::new("toppartitions", "Sample and print the most active partitions", &[post("/api/v1/samples"), get("/api/v1/samples/jobs"), post("/api/v1/samples/jobs"), delete("/api/v1/samples/jobs")], sampling::profile_load)
        .flags(SAMPLING)
        .takes(SAMPLED, SAMPLED_HELP, usize::MAX)
        .kinds(&[Keyspace, Table, Number]),
    Verb::new("tpstats", "Print usage statistics of thread pools", &[get(CLUSTER)], cluster::tp_stats)
        .flags(&[valued(&["-F", "--format"], "format", "Output format (json, yaml)")]),
    Verb::new("truncatehints", "Truncate all hints on the local node, or truncate hints for the endpoint(s) specified.", &[cluster("truncate_hints")], cluster::truncate_hints)
        .takes("[endpoint ... ]", "IP address(es) of the endpoint(s) to delete hints for", usize::MAX)
        .kinds(&[Address])
        .scylla(&["DELETE /hinted_handoff/hints"]),
    Verb::new("updatecidrgroup", "Insert/Update a cidr group", &[cluster("put_cidr_group")], cidr::update)
        .takes("[<cidrGroup> <cidr> ...]", "Requires a cidr group name, followed by one or more CIDRs separated by space", usize::MAX)
        .kinds(&[Name, Cidr]),
    Verb::new("upgradesstables", "Rewrite sstables (for the requested tables) that are not on the current version (thus upgrading them to said current version)", &[get("/api/v1/node"), post("/api/v1/upgradesstables")], tables::upgrade_sstables)
        .flags(&[
            switch(&["-a", "--include-all-sstables"], "Use -a to include all sstables, even those already on the current version"),
            valued(&["-j", "--jobs"], "jobs", "Accepted: each shard upgrades one file at a time"),
            valued(&["-t", "--max-timestamp"], "max_timestamp", "Use -t to compact only SSTables that have local creation time _older_ than the given timestamp (milliseconds since 1970)"),
        ])
        .takes(TABLES, TABLES_HELP, usize::MAX)
        .kinds(&[Keyspace, Table]),
    Verb::new("verify", "Verify (check data checksum for) one or more tables", &[get("/api/v1/node"), compaction("verify")], upkeep::verify)
        .flags(&[
            switch(&["-c", "--check-version"], "Also check that all sstables are the latest version"),
            switch(&["-d", "--dfp"], "Invoke the disk failure policy if a corrupt sstable is found"),
            switch(&["-e", "--extended-verify"], "Verify each cell data, beyond simply checking sstable checksums"),
            switch(&["-f", "--force"], "Accepted: it need not be forced"),
            switch(&["-q", "--quick"], "Do a quick check - avoid reading all data to verify checksums"),
            switch(&["-r", "--rsc"], "Mutate the repair status on corrupt sstables"),
            switch(&["-t", "--check-tokens"], "Verify that all tokens in sstables are owned by this node"),
        ])
        .takes(TABLES, TABLES_HELP, usize::MAX)
        .kinds(&[Keyspace, Table]),
    Verb::new("version", "Print cassandra version", &[get("/api/v1/node")], node::version)
        .scylla(&["GET /storage_service/release_version"]),
];

/// The verb of a name, or of an older one.
pub fn verb(name: &str) -> Option<&'static Verb> {
    VERBS.iter().find(|verb| verb.name == name || verb.aliases.contains(&name))
}
