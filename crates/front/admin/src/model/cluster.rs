//! A node's part in a cluster as the API reports it, and the requests that change it.
//!
//! The members and their tokens are in [`super::NodeReport`]. This module has what only gossip,
//! messaging, hints and streaming of this node know. A subsystem that a node does not have is
//! `None` or empty. A request that needs it is answered "not supported": no value here is made up.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `GET /api/v1/cluster`: a node's part in the cluster. Each shard reports its share, the server
/// adds them up ([`ClusterReport::merge`]).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClusterReport {
    /// Operation mode, in Cassandra's words: `STARTING`, `JOINING`, `NORMAL`, `LEAVING`,
    /// `DECOMMISSIONED`, `MOVING`, `DRAINING`, `DRAINED`; empty when the node reports none. From
    /// shard 0.
    #[serde(default)]
    pub operation_mode: String,
    /// Peers and their liveness; `None`: no gossip on this node. From shard 0.
    #[serde(default)]
    pub gossip: Option<GossipReport>,
    /// Replicas are ranked by how fast they answered.
    #[serde(default)]
    pub dynamic_snitch: bool,
    /// Messages from and to each peer.
    #[serde(default)]
    pub traffic: Vec<TrafficReport>,
    /// Messages to all peers by kind; `None`: no messaging on this node.
    #[serde(default)]
    pub messages: Option<MessagesReport>,
    /// Hints for replicas that missed writes; `None`: no hints on this node.
    #[serde(default)]
    pub hints: Option<HintsReport>,
    /// Data that moves between nodes; `None`: no streaming on this node.
    #[serde(default)]
    pub streaming: Option<StreamingReport>,
    /// `None`: reads of this node never compare replicas.
    #[serde(default)]
    pub read_repair: Option<ReadRepairReport>,
    /// Milliseconds by Cassandra's name for `gettimeout`: `read`, `range`, `write`, …; only those
    /// that are in force. From shard 0.
    #[serde(default)]
    pub timeouts: BTreeMap<String, u64>,
    /// A removal in progress of a dead node. From shard 0.
    #[serde(default)]
    pub removal: Option<RemovalReport>,
    /// The last decommission of this run has failed. From shard 0.
    #[serde(default)]
    pub decommission_failed: bool,
    /// Operations by stage, in the role of Cassandra's thread pools.
    #[serde(default)]
    pub stages: Vec<StageReport>,
    /// Dropped messages, by Cassandra's name of the message.
    #[serde(default)]
    pub dropped: BTreeMap<String, u64>,
    /// Waiting times of dropped messages, microseconds; only of kinds with drops.
    #[serde(default)]
    pub dropped_waits: BTreeMap<String, crate::histogram::HistogramReport>,
    /// From shard 0.
    #[serde(default)]
    pub settings: Option<SettingsReport>,
}

/// Settings as they are in force now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SettingsReport {
    /// Seeds of the configuration.
    pub seeds: Vec<String>,
    /// Where SSTables are.
    #[serde(default)]
    pub data_directories: Vec<String>,
    /// Bytes per second that replayed batches write, before they are divided by the number of nodes;
    /// 0 is no limit.
    pub batchlog_bytes_per_second: u64,
    /// Bytes of rows between two entries of a partition's index.
    pub column_index_bytes: u64,
    /// Default number of replicas of a keyspace.
    #[serde(default)]
    pub default_keyspace_rf: u32,
    /// Fraction of the requests that are traced without the client's request, 0 to 1.
    pub trace_probability: f64,
    /// Flushed SSTables are linked into `backups`.
    pub incremental_backups: bool,
    /// `phi_convict_threshold`.
    pub phi_convict_threshold: f64,
    /// How often it is saved which partitions are in the row cache; 0: never.
    #[serde(default)]
    pub row_cache_save_seconds: u64,
    /// The same of counters in the counter cache.
    #[serde(default)]
    pub counter_cache_save_seconds: u64,
    /// Hard links of snapshots per second; 0 is no limit.
    #[serde(default)]
    pub snapshot_links_per_second: u64,
    /// For how long a verified password is remembered.
    #[serde(default)]
    pub credentials_validity_millis: u64,
    /// How many verified passwords each shard remembers.
    #[serde(default)]
    pub credentials_cache_max_entries: u64,
    /// Names and values of `audit_logging_options`, in the order of `nodetool getauditlog`.
    #[serde(default)]
    pub audit_log: Vec<(String, String)>,
    /// Names and values of the full query log, in the order of `nodetool getfullquerylog`.
    #[serde(default)]
    pub full_query_log: Vec<(String, String)>,
}

/// Least severe events of a part of the program that are logged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogLevelReport {
    /// A module; empty, or `ROOT`: all that have no level of their own.
    pub logger: String,
    /// `ERROR`, `WARN`, `INFO`, `DEBUG`, `TRACE`, `OFF`; empty: as the program was started.
    #[serde(default)]
    pub level: String,
}

/// A connection of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientReport {
    /// The client's IP address.
    pub address: String,
    /// The client's port.
    pub port: u16,
    /// `established`, `authenticating`, `ready`.
    pub stage: String,
    /// Version of the native protocol.
    pub protocol_version: u8,
    /// Role that the client has logged in as; `anonymous` where no login is required.
    pub user: String,
    /// Keyspace of the connection's last USE; empty: none.
    pub keyspace: String,
    /// Since it connected.
    pub requests: u64,
    /// Driver name, as the driver sent it.
    pub driver_name: Option<String>,
    /// Driver version, as the driver sent it.
    pub driver_version: Option<String>,
    /// Options of the STARTUP message.
    pub options: BTreeMap<String, String>,
    /// Java's name, such as `TLSv1.3`; `None` in the clear.
    #[serde(default)]
    pub ssl_protocol: Option<String>,
    /// Java's name; `None` in the clear.
    #[serde(default)]
    pub ssl_cipher_suite: Option<String>,
}

impl ClusterReport {
    /// Adds another shard's share.
    pub fn merge(&mut self, other: ClusterReport) {
        if self.operation_mode.is_empty() {
            self.operation_mode = other.operation_mode;
        }
        self.dynamic_snitch |= other.dynamic_snitch;
        self.decommission_failed |= other.decommission_failed;
        self.gossip = self.gossip.take().or(other.gossip);
        self.removal = self.removal.take().or(other.removal);
        self.settings = self.settings.take().or(other.settings);
        for (kind, millis) in other.timeouts {
            self.timeouts.entry(kind).or_insert(millis);
        }
        for traffic in other.traffic {
            match self.traffic.iter_mut().find(|t| t.host_id == traffic.host_id) {
                Some(mine) => mine.merge(&traffic),
                None => self.traffic.push(traffic),
            }
        }
        self.messages = merged(self.messages.take(), other.messages, MessagesReport::merge);
        self.hints = merged(self.hints.take(), other.hints, HintsReport::merge);
        self.streaming = merged(self.streaming.take(), other.streaming, StreamingReport::merge);
        self.read_repair = merged(self.read_repair.take(), other.read_repair, |a, b| {
            a.attempted += b.attempted;
            a.blocking += b.blocking;
            a.background += b.background;
        });
        for stage in other.stages {
            match self.stages.iter_mut().find(|s| s.name == stage.name) {
                Some(mine) => mine.merge(&stage),
                None => self.stages.push(stage),
            }
        }
        for (message, count) in other.dropped {
            *self.dropped.entry(message).or_default() += count;
        }
        for (message, waits) in other.dropped_waits {
            self.dropped_waits.entry(message).or_default().merge(&waits);
        }
    }
}

fn merged<T>(mine: Option<T>, other: Option<T>, merge: impl FnOnce(&mut T, T)) -> Option<T> {
    match (mine, other) {
        (Some(mut mine), Some(other)) => {
            merge(&mut mine, other);
            Some(mine)
        }
        (one, other) => one.or(other),
    }
}

/// Peers as gossip of this node sees them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GossipReport {
    /// False after `disablegossip`.
    pub active: bool,
    /// Every node that was heard of, this one included.
    pub peers: Vec<GossipPeerReport>,
}

impl GossipReport {
    /// Returns the peer with this host id, if gossip knows it.
    pub fn peer(&self, host_id: &str) -> Option<&GossipPeerReport> {
        self.peers.iter().find(|p| p.host_id == host_id)
    }
}

/// One node as gossip knows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GossipPeerReport {
    /// UUID.
    pub host_id: String,
    /// When its run began, seconds since 1970.
    pub generation: u64,
    /// Its newest heartbeat.
    pub heartbeat: u64,
    /// Version of the state below.
    pub version: u64,
    /// True if the node is alive.
    pub is_alive: bool,
    /// Suspicion on the scale of `phi_convict_threshold`; `None` for this node and for one with too
    /// few heartbeats.
    pub phi: Option<f64>,
    /// Bytes of its SSTables.
    pub load_bytes: u64,
    /// Its epoch of the metadata.
    pub epoch: u64,
    /// It serves CQL clients.
    pub cql_ready: bool,
    /// It announced its stop.
    pub shutting_down: bool,
    /// It found that its wall clock is not that of most other nodes.
    #[serde(default)]
    pub wrong_clock: bool,
    /// Disk usage as the node reports it, in Cassandra's words; empty when it reports none.
    #[serde(default)]
    pub disk_usage: String,
    /// Version of Cassandra that it announces.
    pub release_version: String,
    /// Version of its schema; `None` when its epoch is none that this node has had in this run.
    /// Filled in by administration.
    #[serde(default)]
    pub schema_version: Option<String>,
}

/// Messages from and to one peer since this node started: `messaging::PeerStats`, shards added up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrafficReport {
    /// UUID of the peer.
    pub host_id: String,
    /// Open connections to it.
    pub links: u64,
    /// Open connections from it.
    pub inbounds: u64,
    /// Requests that wait for its answers.
    pub pending: u64,
    /// Bytes that wait to be sent.
    pub queued_bytes: u64,
    /// Messages sent, answers included.
    pub sent: u64,
    /// Messages received, answers included.
    pub received: u64,
    /// Messages dropped.
    pub dropped: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// The slowest of the shards' last round trips.
    pub rtt_micros: Option<u64>,
}

impl TrafficReport {
    fn merge(&mut self, other: &TrafficReport) {
        self.links += other.links;
        self.inbounds += other.inbounds;
        self.pending += other.pending;
        self.queued_bytes += other.queued_bytes;
        self.sent += other.sent;
        self.received += other.received;
        self.dropped += other.dropped;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.rtt_micros = self.rtt_micros.max(other.rtt_micros);
    }
}

/// Messages of this node by kind, as Cassandra tells its connections apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessagesReport {
    /// Messages of streams and repairs.
    pub large: MessageCounts,
    /// All others.
    pub small: MessageCounts,
    /// Messages of gossip.
    pub gossip: MessageCounts,
}

/// Messages of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageCounts {
    /// Requests that wait for answers.
    pub pending: u64,
    /// Messages sent, answers included.
    pub sent: u64,
    /// Requests and messages dropped.
    pub dropped: u64,
}

impl MessagesReport {
    fn merge(&mut self, other: MessagesReport) {
        for (mine, other) in [
            (&mut self.large, other.large),
            (&mut self.small, other.small),
            (&mut self.gossip, other.gossip),
        ] {
            mine.pending += other.pending;
            mine.sent += other.sent;
            mine.dropped += other.dropped;
        }
    }
}

/// Hinted handoff.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HintsReport {
    /// New hints are stored.
    pub enabled: bool,
    /// Delivery is paused.
    pub paused: bool,
    /// A node that has been down for longer gets no further hints, milliseconds.
    pub window_millis: u64,
    /// Most that is delivered, KiB per second; 0 is no limit.
    pub throttle_kib: u64,
    /// Data centres for which nothing is stored.
    pub disabled_datacenters: Vec<String>,
    /// Pending hints, by node.
    pub pending: Vec<PendingHintsReport>,
}

impl HintsReport {
    fn merge(&mut self, other: HintsReport) {
        for pending in other.pending {
            match self.pending.iter_mut().find(|p| p.host_id == pending.host_id) {
                Some(mine) => {
                    mine.files += pending.files;
                    mine.bytes += pending.bytes;
                    mine.oldest_millis = mine.oldest_millis.min(pending.oldest_millis);
                    mine.newest_millis = mine.newest_millis.max(pending.newest_millis);
                }
                None => self.pending.push(pending),
            }
        }
    }
}

/// Hints that wait for one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingHintsReport {
    /// UUID of the node.
    pub host_id: String,
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Age of the oldest file, milliseconds since 1970.
    pub oldest_millis: i64,
    /// Timestamp of the newest file.
    pub newest_millis: i64,
}

/// Streaming.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamingReport {
    /// Most that is sent, bytes per second; 0 is no limit.
    pub bytes_per_second_max: u64,
    /// The same to other datacenters; 0 is no limit of their own.
    #[serde(default)]
    pub inter_dc_bytes_per_second_max: u64,
    /// Running sessions.
    pub sessions: Vec<StreamReport>,
}

impl StreamingReport {
    fn merge(&mut self, other: StreamingReport) {
        self.bytes_per_second_max += other.bytes_per_second_max;
        self.inter_dc_bytes_per_second_max += other.inter_dc_bytes_per_second_max;
        self.sessions.extend(other.sessions);
    }
}

/// Data in transit between this node and a peer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamReport {
    /// Why: `Bootstrap`, `Unbootstrap`, `Restore replica count`, `Rebuild`, `Relocation`, `Repair`.
    pub operation: String,
    /// UUID of the plan; the same for all peers of one operation.
    pub plan_id: String,
    /// UUID of the peer.
    pub host_id: String,
    /// From the peer.
    pub receiving: Option<StreamProgress>,
    /// To the peer.
    pub sending: Option<StreamProgress>,
    /// Files on their way.
    #[serde(default)]
    pub current: Vec<StreamFileReport>,
    /// True while the session is running, even if the remaining amount is unknown.
    #[serde(default)]
    pub is_active: bool,
    /// When it began, milliseconds since 1970.
    #[serde(default)]
    pub started_at_millis: i64,
    /// When something of it was heard last, milliseconds since 1970.
    #[serde(default)]
    pub updated_at_millis: i64,
}

/// A file on its way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamFileReport {
    /// Its name at the source.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
    /// Those that are here, or there.
    pub bytes_done: u64,
}

impl StreamReport {
    /// Returns true if all files are done and nothing of the session is running any more.
    pub fn is_finished(&self) -> bool {
        let both = [self.receiving, self.sending];
        !self.is_active
            && both
                .into_iter()
                .flatten()
                .all(|p| p.files_done >= p.files && p.bytes_done >= p.bytes)
    }
}

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamProgress {
    /// Files, or ranges where no files are sent.
    pub files: u64,
    /// Done of them.
    pub files_done: u64,
    /// Bytes, as they were estimated at the start.
    pub bytes: u64,
    /// Done of them.
    pub bytes_done: u64,
}

/// Reads that compared replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadRepairReport {
    /// Repairs that were tried.
    pub attempted: u64,
    /// Reads that waited for a repair.
    pub blocking: u64,
    /// Repairs beside a read that did not wait.
    pub background: u64,
}

/// A removal in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovalReport {
    /// UUID of the node that leaves.
    pub host_id: String,
    /// UUIDs of the nodes that have not confirmed yet.
    pub waiting_for: Vec<String>,
    /// Progress of the nodes that copy its data.
    #[serde(default)]
    pub copies: Vec<CopyReport>,
}

/// Progress of a node that copies because another one leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyReport {
    /// UUID of the node that copies.
    pub host_id: String,
    /// Ranges of tables that it copies; 0: it has not begun, or does not report.
    pub ranges: u64,
    /// Those that it has; counted when a table is done.
    pub ranges_done: u64,
    /// Bytes that came to it.
    pub bytes: u64,
}

/// One kind of work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageReport {
    /// Cassandra's name of the thread pool that does it there.
    pub name: String,
    /// Running now.
    pub active: u64,
    /// Waiting for their turn.
    pub pending: u64,
    /// Done since start.
    pub completed: u64,
    /// Waiting for room now.
    pub blocked: u64,
    /// Refused or delayed for lack of room since start.
    pub blocked_total: u64,
}

impl StageReport {
    fn merge(&mut self, other: &StageReport) {
        self.completed += other.completed;
        self.active += other.active;
        self.pending += other.pending;
        self.blocked += other.blocked;
        self.blocked_total += other.blocked_total;
    }
}

/// `DELETE /api/v1/credentials_cache`: passwords are verified at the next login.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgetCredentials {
    /// Only of this role.
    #[serde(default)]
    pub role: Option<String>,
}

/// `GET /api/v1/cidr_filtering`: checks of where clients connect from, under the names of
/// `system_views.cidr_filtering_metrics_counts` and `…_latencies`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CidrFilteringReport {
    /// Names and numbers.
    pub counts: Vec<(String, u64)>,
    /// Names and the 50th, 95th, 99th, 99.9th percentile and maximum in nanoseconds; `None`: not
    /// measured.
    pub latencies: Vec<(String, Option<[f64; 5]>)>,
}

/// `GET /api/v1/endpoints`: natural replicas of a partition, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointsReport {
    /// Token of the partition.
    pub token: i64,
    /// UUIDs.
    pub host_ids: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_shards_are_added_up() {
        let hints = |host: &str, files, oldest, newest| {
            let pending = vec![PendingHintsReport {
                host_id: host.to_owned(),
                files,
                bytes: 10,
                oldest_millis: oldest,
                newest_millis: newest,
            }];
            Some(HintsReport { enabled: true, pending, ..HintsReport::default() })
        };
        let traffic = |host: &str, sent, rtt| TrafficReport {
            host_id: host.to_owned(),
            sent,
            rtt_micros: rtt,
            ..TrafficReport::default()
        };
        let messages = |n| {
            let counts = |of: u64| MessageCounts { pending: of, sent: of * 2, dropped: of * 3 };
            let (large, small, gossip) = (counts(n), counts(n * 4), counts(n * 5));
            Some(MessagesReport { large, small, gossip })
        };
        let mut all = ClusterReport {
            operation_mode: "NORMAL".to_owned(),
            gossip: Some(GossipReport { active: true, peers: Vec::new() }),
            traffic: vec![traffic("a", 3, None)],
            messages: messages(1),
            hints: hints("a", 1, 50, 60),
            ..ClusterReport::default()
        };
        all.merge(ClusterReport {
            traffic: vec![traffic("a", 4, Some(7)), traffic("b", 1, Some(2))],
            messages: messages(10),
            hints: hints("a", 2, 40, 55),
            dropped: BTreeMap::from([("READ_REQ".to_owned(), 2)]),
            ..ClusterReport::default()
        });
        assert_eq!(all.operation_mode, "NORMAL");
        assert_eq!(all.messages, messages(11));
        assert!(all.gossip.is_some_and(|g| g.active));
        let sent: Vec<_> = all.traffic.iter().map(|t| (t.sent, t.rtt_micros)).collect();
        assert_eq!(sent, [(7, Some(7)), (1, Some(2))]);
        let pending = &all.hints.unwrap().pending;
        assert_eq!(pending.len(), 1);
        let p = &pending[0];
        assert_eq!((p.files, p.bytes, p.oldest_millis, p.newest_millis), (3, 20, 40, 60));
        assert_eq!((all.streaming, all.dropped["READ_REQ"]), (None, 2));
    }
}
