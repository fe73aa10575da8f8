//! The commands of a cluster, each declared once: its JSON, the action of a shard, and its
//! permissions.
//!
//! A row gives three types their variants: [`ClusterCommand`], the JSON of version 1 of the API;
//! [`ClusterAction`], the action of a shard, with ids instead of names; and `Unresolved`. The
//! latter has the commands whose names must be resolved or whose values must be checked, which
//! `commands::resolve` does.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use cluster::TokenRange;
use cluster::cidr::IpNet;
use serde::{Deserialize, Serialize};
use stdx::{HostId, TableId, Token};

use crate::operation::{Class, CommandRow, Scope};

/// Rows of `Variant { fields of the command } as <action> = <row>, "<its name in a refusal>";` where the action is
/// `given` (the command as it is), `checked` (the same fields, but some values are refused), `{ fields }` (with
/// ids in the place of names) or `another` (there is no action of this name).
macro_rules! cluster_commands {
    ($( $(#[$doc:meta])* $variant:ident { $( $(#[$of_field:meta])* $field:ident : $type:ty ),* $(,)? }
        as $how:tt = $row:expr, $word:literal; )*) => {
        /// `POST /api/v1/cluster`: commands to a node about its part in the cluster.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
        pub enum ClusterCommand {
            $( $(#[$doc])* $variant { $( $(#[$of_field])* $field : $type ),* } ),*
        }

        impl ClusterCommand {
            /// The rows of all commands.
            pub const ROWS: &'static [CommandRow] = &[$($row),*];

            /// The row of this command.
            pub fn row(&self) -> &'static CommandRow {
                match self {
                    $( ClusterCommand::$variant { .. } => const { &$row } ),*
                }
            }
        }

        cluster_commands! {
            @split [] [] [] []
            $( $(#[$doc])* $variant { $( $field : $type ),* } as $how $word; )*
        }
    };

    (@split [$($action:tt)*] [$($name:tt)*] [$($unresolved:tt)*] [$($arm:tt)*]
        $(#[$doc:meta])* $variant:ident {} as given $word:literal; $($rest:tt)*) => {
        cluster_commands! {
            @split
            [$($action)* $(#[$doc])* $variant,]
            [$($name)* ClusterAction::$variant => $word,]
            [$($unresolved)*]
            [$($arm)* ClusterCommand::$variant {} => Ok(ClusterAction::$variant),]
            $($rest)*
        }
    };
    (@split [$($action:tt)*] [$($name:tt)*] [$($unresolved:tt)*] [$($arm:tt)*]
        $(#[$doc:meta])* $variant:ident { $($field:ident : $type:ty),* } as given $word:literal; $($rest:tt)*) => {
        cluster_commands! {
            @split
            [$($action)* $(#[$doc])* $variant { $($field : $type),* },]
            [$($name)* ClusterAction::$variant { .. } => $word,]
            [$($unresolved)*]
            [$($arm)* ClusterCommand::$variant { $($field),* } => Ok(ClusterAction::$variant { $($field),* }),]
            $($rest)*
        }
    };
    (@split [$($action:tt)*] [$($name:tt)*] [$($unresolved:tt)*] [$($arm:tt)*]
        $(#[$doc:meta])* $variant:ident { $($field:ident : $type:ty),* } as checked $word:literal; $($rest:tt)*) => {
        cluster_commands! {
            @split
            [$($action)* $(#[$doc])* $variant { $($field : $type),* },]
            [$($name)* ClusterAction::$variant { .. } => $word,]
            [$($unresolved)* $variant { $($field : $type),* },]
            [$($arm)* ClusterCommand::$variant { $($field),* } => Err(Unresolved::$variant { $($field),* }),]
            $($rest)*
        }
    };
    (@split [$($action:tt)*] [$($name:tt)*] [$($unresolved:tt)*] [$($arm:tt)*]
        $(#[$doc:meta])* $variant:ident { $($field:ident : $type:ty),* } as another $word:literal; $($rest:tt)*) => {
        cluster_commands! {
            @split
            [$($action)*]
            [$($name)*]
            [$($unresolved)* $variant { $($field : $type),* },]
            [$($arm)* ClusterCommand::$variant { $($field),* } => Err(Unresolved::$variant { $($field),* }),]
            $($rest)*
        }
    };
    (@split [$($action:tt)*] [$($name:tt)*] [$($unresolved:tt)*] [$($arm:tt)*]
        $(#[$doc:meta])* $variant:ident { $($field:ident : $type:ty),* } as { $($found:tt)* } $word:literal;
        $($rest:tt)*) => {
        cluster_commands! {
            @split
            [$($action)* $(#[$doc])* $variant { $($found)* },]
            [$($name)* ClusterAction::$variant { .. } => $word,]
            [$($unresolved)* $variant { $($field : $type),* },]
            [$($arm)* ClusterCommand::$variant { $($field),* } => Err(Unresolved::$variant { $($field),* }),]
            $($rest)*
        }
    };

    (@split [$($action:tt)*] [$($name:tt)*] [$($unresolved:tt)*] [$($arm:tt)*]) => {
        /// An action of a shard in its cluster: a [`ClusterCommand`] with all names resolved. The
        /// command's row names the shards that carry it out: shard 0 or every shard.
        #[expect(missing_docs, reason = "fields without a text are those of the command, which have one")]
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum ClusterAction { $($action)* }

        impl ClusterAction {
            /// Name of the action, for a refusal.
            pub fn name(&self) -> &'static str {
                match self { $($name)* }
            }
        }

        /// Commands that name something that may not exist, or have values that may be wrong.
        pub(crate) enum Unresolved { $($unresolved)* }

        impl ClusterCommand {
            /// Returns the action, unless a name must be resolved.
            pub(crate) fn into_action(self) -> Result<ClusterAction, Unresolved> {
                match self { $($arm)* }
            }
        }
    };
}

cluster_commands! {
    /// Gives its data to others and leaves.
    Decommission {
        /// Also when fewer nodes stay than a keyspace has replicas.
        #[serde(default)]
        force: bool,
    } as checked
        = CommandRow::new("decommission", Scope::Cluster, Class::Destroys), "decommission";
    /// Removes a dead node; its data is copied from the other replicas.
    RemoveNode {
        /// UUID.
        host_id: String,
    } as {
        /// Which one; not this node, not alive.
        host: HostId,
    }
        = CommandRow::new("remove_node", Scope::Cluster, Class::Destroys).members_only(), "removenode";
    /// Ends a removal without waiting for the copies.
    ForceRemoval {} as given
        = CommandRow::new("force_removal", Scope::Cluster, Class::Destroys).members_only(), "removenode";
    /// Aborts a decommission or a move of this node while its data is copied.
    AbortMovement {} as given
        = CommandRow::new("abort_movement", Scope::Cluster, Class::Changes).members_only(), "giving up a movement";
    /// Aborts the removal of a dead node while its data is copied.
    AbortRemoval {
        /// UUID; `None`: the removal in progress, or the abandoned one.
        #[serde(default)]
        host_id: Option<String>,
    } as {
        /// Which one; `None`: the one in progress.
        host: Option<HostId>,
    }
        = CommandRow::new("abort_removal", Scope::Cluster, Class::Changes).members_only(), "abortremovenode";
    /// Aborts the rebuild of this node; received data stays.
    AbortRebuild {} as given
        = CommandRow::new("abort_rebuild", Scope::Node, Class::Changes).members_only(), "abortrebuild";
    /// Removes a node whose join is unfinished.
    AbortBootstrap {
        /// UUID, or IP address with or without port.
        node: String,
    } as {
        /// Which one; it joins.
        host: HostId,
    }
        = CommandRow::new("abort_bootstrap", Scope::Cluster, Class::Destroys).members_only(), "abortbootstrap";
    /// Moves the node to another token.
    Move {
        /// The token.
        token: String,
    } as {
        /// The token; no member has it.
        token: Token,
    }
        = CommandRow::new("move", Scope::Cluster, Class::Changes).members_only(), "move";
    /// Copies what the node owns from other replicas.
    Rebuild {
        /// Only from this data centre.
        #[serde(default)]
        datacenter: Option<String>,
        /// Only this keyspace.
        #[serde(default)]
        keyspace: Option<String>,
        /// Only these ranges, as `(1,5],(8,13]`.
        #[serde(default)]
        tokens: Option<String>,
        /// Only from these nodes: addresses, separated by commas.
        #[serde(default)]
        sources: Option<String>,
        /// Not from the node's own data centre.
        #[serde(default)]
        exclude_local_dc: bool,
    } as {
        /// Only from this data centre.
        datacenter: Option<String>,
        /// Only this keyspace.
        keyspace: Option<String>,
        /// Only these ranges; empty: all.
        ranges: Vec<TokenRange>,
        /// Only from these nodes; empty: any.
        sources: Vec<HostId>,
        /// Not from the node's own data centre.
        exclude_local_dc: bool,
    }
        = CommandRow::new("rebuild", Scope::Node, Class::Changes).members_only(), "rebuild";
    /// Removes a dead node; nothing is copied.
    Assassinate {
        /// IP address, with or without port.
        address: String,
    } as {
        /// Which one; not this node, not alive.
        host: HostId,
    }
        = CommandRow::new("assassinate", Scope::Cluster, Class::Destroys).members_only(), "assassinate";
    /// Removes data that the node no longer owns.
    Cleanup {
        /// Keyspace.
        keyspace: String,
        /// Tables; empty is all.
        #[serde(default)]
        tables: Vec<String>,
    } as {
        /// Tables to clean up.
        tables: Vec<TableId>,
    }
        = CommandRow::new("cleanup", Scope::Shard, Class::Destroys).members_only(), "cleanup";
    /// Turns gossip on or off.
    SetGossip {
        /// On.
        enabled: bool,
    } as given
        = CommandRow::new("set_gossip", Scope::Node, Class::Changes), "turning gossip on or off";
    /// Serves CQL clients or not.
    SetNativeTransport {
        /// Serves them.
        enabled: bool,
    } as given
        = CommandRow::new("set_native_transport", Scope::Shard, Class::Changes), "turning the native transport on or off";
    /// Stores new hints or not.
    SetHintedHandoff {
        /// Stores them.
        enabled: bool,
    } as given
        = CommandRow::new("set_hinted_handoff", Scope::Shard, Class::Changes), "turning hinted handoff on or off";
    /// Stores new hints for the nodes of a data centre or not.
    SetHintsForDatacenter {
        /// The data centre.
        datacenter: String,
        /// Stores them.
        enabled: bool,
    } as checked
        = CommandRow::new("set_hints_for_datacenter", Scope::Shard, Class::Changes), "turning hints off for a data center";
    /// Delivers hints or not.
    PauseHints {
        /// Does not.
        paused: bool,
    } as given
        = CommandRow::new("pause_hints", Scope::Shard, Class::Changes), "pausing hints";
    /// Deletes hints.
    TruncateHints {
        /// Only those for this node: IP address, with or without port.
        #[serde(default)]
        address: Option<String>,
    } as {
        /// For this node; `None`: all.
        host: Option<HostId>,
    }
        = CommandRow::new("truncate_hints", Scope::Shard, Class::Destroys), "truncatehints";
    /// Most that the delivery of hints sends.
    SetHintThrottle {
        /// KiB per second; 0 is no limit.
        kib_per_second: u64,
    } as given
        = CommandRow::new("set_hint_throttle", Scope::Shard, Class::Changes), "sethintedhandoffthrottlekb";
    /// How long a node may be down and still gets hints.
    SetHintWindow {
        /// Milliseconds.
        millis: u64,
    } as given
        = CommandRow::new("set_hint_window", Scope::Shard, Class::Changes), "setmaxhintwindow";
    /// Most that streaming sends.
    SetStreamThroughput {
        /// Bytes per second; 0 is no limit.
        bytes_per_second: u64,
    } as given
        = CommandRow::new("set_stream_throughput", Scope::Shard, Class::Changes), "setstreamthroughput";
    /// Most that streaming sends to other datacenters, within the limit of all.
    SetInterDcStreamThroughput {
        /// Bytes per second; 0 is no limit of their own.
        bytes_per_second: u64,
    } as given
        = CommandRow::new("set_inter_dc_stream_throughput", Scope::Shard, Class::Changes), "setinterdcstreamthroughput";
    /// Links new SSTables into `backups`, or does not.
    SetIncrementalBackups {
        /// Links them.
        enabled: bool,
    } as given
        = CommandRow::new("set_incremental_backups", Scope::Shard, Class::Changes), "turning backups on or off";
    /// Most that compactions write.
    SetCompactionThroughput {
        /// Bytes per second; 0 is no limit.
        bytes_per_second: u64,
    } as given
        = CommandRow::new("set_compaction_throughput", Scope::Shard, Class::Changes), "setcompactionthroughput";
    /// Memory for cached rows, of all shards.
    SetRowCacheCapacity {
        /// At most half of what caches have; 0: there is no row cache.
        bytes: u64,
    } as given
        = CommandRow::new("set_row_cache_capacity", Scope::Shard, Class::Changes), "setcachecapacity";
    /// Forgets all rows that are cached.
    InvalidateRowCache {} as given
        = CommandRow::new("invalidate_row_cache", Scope::Shard, Class::Changes), "invalidaterowcache";
    /// Memory for cached counts, of all shards.
    SetCounterCacheCapacity {
        /// At most a quarter of what caches have; 0: there is no counter cache.
        bytes: u64,
    } as given
        = CommandRow::new("set_counter_cache_capacity", Scope::Shard, Class::Changes), "setcachecapacity";
    /// Forgets all counts that are cached.
    InvalidateCounterCache {} as given
        = CommandRow::new("invalidate_counter_cache", Scope::Shard, Class::Changes), "invalidatecountercache";
    /// Compactions at a time.
    SetConcurrentCompactors {
        /// Number for the whole node, 1 or more; each shard runs its part, rounded up.
        count: u32,
    } as given
        = CommandRow::new("set_concurrent_compactors", Scope::Shard, Class::Changes), "setconcurrentcompactors";
    /// The share of the processor that compaction gets under load; statements have 1000.
    SetCompactionShare {
        /// 1 to 1000; none: it follows what compaction owes.
        share: Option<u32>,
    } as checked
        = CommandRow::new("set_compaction_share", Scope::Shard, Class::Changes), "setcompactionshare";
    /// Most that replayed batches write.
    SetBatchlogThrottle {
        /// KiB per second, divided by the number of nodes; 0 is no limit.
        kib_per_second: u64,
    } as given
        = CommandRow::new("set_batchlog_throttle", Scope::Shard, Class::Changes), "setbatchlogreplaythrottle";
    /// Replays the batch log now; done once every batch was tried.
    ReplayBatchlog {} as given
        = CommandRow::new("replay_batchlog", Scope::Node, Class::Changes), "replaybatchlog";
    /// Rewrites the estimates of `system.size_estimates` and `system.table_estimates`.
    RefreshSizeEstimates {} as given
        = CommandRow::new("refresh_size_estimates", Scope::Node, Class::Changes), "refreshsizeestimates";
    /// Changes a setting until the node stops.
    SetSetting {
        /// Its name in cassandra.yaml.
        name: String,
        /// Numbers of bytes without a unit.
        value: String,
    } as given
        = CommandRow::new("set_setting", Scope::Shard, Class::Changes), "changing a setting";
    /// Traces a random share of the requests that ask for no trace.
    SetTraceProbability {
        /// Traced requests per million.
        per_million: u32,
    } as checked
        = CommandRow::new("set_trace_probability", Scope::Shard, Class::Changes), "settraceprobability";
    /// Makes or replaces a CIDR group.
    PutCidrGroup {
        /// Its name.
        name: String,
        /// Its ranges, as `10.0.0.0/8`; at least one.
        cidrs: Vec<String>,
    } as {
        /// Its name.
        name: String,
        /// Its ranges; none: drop it, it exists.
        ranges: BTreeSet<IpNet>,
    }
        = CommandRow::new("put_cidr_group", Scope::Cluster, Class::Changes), "changing CIDR groups";
    /// Drops a CIDR group; roles that are restricted to it stay so.
    DropCidrGroup {
        /// Its name.
        name: String,
    } as another
        = CommandRow::new("drop_cidr_group", Scope::Cluster, Class::Destroys), "";
    /// Reads the seeds from the configuration again.
    ReloadSeeds {} as given
        = CommandRow::new("reload_seeds", Scope::Shard, Class::Changes), "reloadseeds";
    /// Loads keys and certificates of encrypted connections again, for new connections.
    ReloadSsl {} as given
        = CommandRow::new("reload_ssl", Scope::Shard, Class::Changes), "reloadssl";
    /// Reads the key file of encryption at rest again, and asks the providers of keys for their newest ones.
    ReloadFileKeys {} as given
        = CommandRow::new("reload_file_keys", Scope::Shard, Class::Changes), "reloadkeys";
    /// Switches the audit log on, or changes its settings, until the node stops.
    EnableAuditLog {
        /// Keys of `audit_logging_options` with values other than those of the configuration.
        changes: BTreeMap<String, String>,
    } as given
        = CommandRow::new("enable_audit_log", Scope::Shard, Class::Changes), "enableauditlog";
    /// Switches the audit log off until the node stops.
    DisableAuditLog {} as given
        = CommandRow::new("disable_audit_log", Scope::Shard, Class::Changes), "disableauditlog";
    /// Switches the full query log on until the node stops; its older files in the directory are deleted or archived.
    EnableFullQueryLog {
        /// Keys of `full_query_logging_options` with values other than those of the configuration.
        changes: BTreeMap<String, String>,
    } as given
        = CommandRow::new("enable_full_query_log", Scope::Shard, Class::Changes), "enablefullquerylog";
    /// Switches the full query log off; its files stay.
    DisableFullQueryLog {} as given
        = CommandRow::new("disable_full_query_log", Scope::Shard, Class::Changes), "disablefullquerylog";
    /// Switches the full query log off and deletes its files.
    ResetFullQueryLog {} as given
        = CommandRow::new("reset_full_query_log", Scope::Shard, Class::Destroys), "resetfullquerylog";
    /// Drains the node and ends its process.
    StopDaemon {} as given
        = CommandRow::new("stop_daemon", Scope::Node, Class::Destroys), "stopdaemon";
    /// Cuts the links to these nodes and heals all others; for tests, on nodes that allow it.
    CutLinks {
        /// IP addresses.
        addresses: Vec<String>,
    } as {
        /// Addresses of the peers' storage ports.
        addresses: BTreeSet<IpAddr>,
    }
        = CommandRow::new("cut_links", Scope::Shard, Class::Changes), "cutting links";
    /// How long requests may take.
    SetTimeout {
        /// Kind of the timeout, a key of [`ClusterReport::timeouts`].
        kind: String,
        /// Milliseconds.
        millis: u64,
    } as checked
        = CommandRow::new("set_timeout", Scope::Shard, Class::Changes), "settimeout";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_strictly() {
        let read = |text: &str| serde_json::from_str::<ClusterCommand>(text);
        let force = read(r#"{"command":"decommission"}"#).unwrap();
        assert_eq!(force, ClusterCommand::Decommission { force: false });
        assert!(read(r#"{"command":"decommission","froce":true}"#).is_err());
        assert!(read(r#"{"command":"decomission"}"#).is_err());
        assert!(read(r#"{"command":"set_gossip"}"#).is_err());
        assert_eq!(
            read(r#"{"command":"force_removal"}"#).unwrap(),
            ClusterCommand::ForceRemoval {}
        );
    }
}
