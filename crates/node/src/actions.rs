//! Actions of a shard for administrators, bound to its store and server.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use ::audit::Auditor;
use admin::model::{
    AutoRepairConfig, AutoRepairReport, ClearRequest, ClientReport, ClusterReport,
    CompactionReport, CoordinatorReport, EstimateReport, GuardrailReport, GuardrailRequest,
    HistoryReport, ParticipationReport, RepairCommand, RepairReport, RepairSummary,
    RepairSummaryQuery, RunningReport, SettingsReport, SnapshotReport,
};
use admin::{
    ActionError, CertificateIdentity, ClusterAction, LoginRefusal, PasswordLogin, ShardActions,
    UpkeepAction, UpkeepReply, Work,
};
use admin_access::RolePermissions;
use cluster::AuthChange;
use conf::Options;
use coordinator::Coordinator;
use cql_server::{CqlServer, PortEncryption};
use key_client::KeyClient;
use membership::Membership;
use query::TableLatencies;
use query_logger::QueryLogger;
use rt::Rt;
use rt::sync::Notify;
use stdx::{ShardId, TableId, Token, Uuid, WallMicros};
use store::{SnapshotOptions, Store, StoreError, UpgradeScope};
use system_tables::stored::compaction_history;
use system_tables::stored::estimates::PrimaryRanges;
use system_tables::stored::own_rows::OwnRows;
use tls::PeerCertificate;

use crate::SeedSource;
use crate::api_access::{ApiFollowers, logins};
use crate::cidr;
use crate::cluster::member::ClusterShard;
use crate::cluster::repairing::{self, RepairedParts};
use crate::disk_usage;
use crate::encryption::follow::KeyFollower;
use crate::file_keys;
use crate::live_settings;
use crate::parts;
use crate::policy::{PolicyMesh, Serving};
use crate::query_log::QueryLogCommands;
use crate::upkeep::unless_gone;

/// The commands of one shard. Clones share.
#[derive(Clone)]
pub(crate) struct Actions {
    /// The shard.
    pub(crate) rt: Rt,
    /// Its tables.
    pub(crate) store: Store,
    /// Its connections.
    pub(crate) server: CqlServer,
    /// All data of the node.
    pub(crate) coordinator: Coordinator,
    /// The schema.
    pub(crate) membership: Membership,
    /// The settings of the start.
    pub(crate) options: Arc<Options>,
    /// The settings in force on this shard.
    pub(crate) live: Rc<RefCell<Options>>,
    /// The seeds in force; shard 0's are the node's.
    pub(crate) seeds: Rc<RefCell<Vec<String>>>,
    /// Source of re-read seeds.
    pub(crate) seed_source: Option<Arc<dyn SeedSource>>,
    /// Limits among them were changed: shard 0 checks its disks at once.
    pub(crate) limits_changed: Rc<Notify>,
    /// Clients are served.
    pub(crate) serving: Rc<Cell<bool>>,
    /// Serving is stopped until the process ends.
    pub(crate) stopped: Rc<Cell<bool>>,
    /// Shard 0 opens or closes the ports.
    pub(crate) is_switching: Rc<Cell<bool>>,
    /// Everything is on the disk and nothing more is taken.
    pub(crate) drained: Rc<Cell<bool>>,
    /// The other nodes; `None`: it stands alone.
    pub(crate) cluster: Option<ClusterShard>,
    /// Mesh through which every shard stops serving clients.
    pub(crate) policy: Arc<PolicyMesh>,
    /// Writer of the node's rows about itself.
    pub(crate) own_rows: OwnRows,
    /// Encryption of client connections.
    pub(crate) encryption: PortEncryption,
    /// The audit log of the shard.
    pub(crate) auditor: Rc<Auditor>,
    /// The full query log of the shard.
    pub(crate) query_logger: Rc<QueryLogger>,
    /// Shard 0: keys of encrypted connections of clients; `None`: there are none.
    pub(crate) client_keys: Option<Rc<KeyFollower>>,
    /// Shard 0: keys of encrypted connections between nodes; `None`: there are none.
    pub(crate) node_keys: Option<Rc<KeyFollower>>,
    /// Client of the providers of keys of files; `None`: there are none.
    pub(crate) key_client: Option<KeyClient>,
    /// Shard 0, once the API is served: its keys and tokens.
    pub(crate) api: Rc<OnceCell<ApiFollowers>>,
}

/// A UUID with the form of Cassandra's: of the number that a compaction has on its shard, the shard, and
/// the second half of the table's id.
pub(crate) fn task_id(table: TableId, shard: ShardId, number: u64) -> Uuid {
    let table = table.0.as_u128() & u128::from(u64::MAX >> 2);
    let (low, middle) = (number & 0xffff_ffff, (number >> 32) & 0xffff);
    let time = low << 32 | middle << 16 | 0x1000 | u64::from(shard.0 & 0xfff);
    Uuid::from_u128(u128::from(time) << 64 | 1 << 63 | table)
}

fn failed(error: StoreError) -> ActionError {
    match error {
        StoreError::Invalid(text) | StoreError::Unsupported(text) => ActionError::Argument(text),
        other => ActionError::Failed(other.to_string()),
    }
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Actions {
    fn query_log(&self) -> QueryLogCommands<'_> {
        QueryLogCommands {
            rt: &self.rt,
            configured: &self.options.full_query_logging_options,
            logger: &self.query_logger,
        }
    }

    fn settings(&self) -> SettingsReport {
        let options = &self.options;
        SettingsReport {
            seeds: self.seeds.borrow().clone(),
            data_directories: options.data_directories(),
            batchlog_bytes_per_second: self.coordinator.batches().batch_replay_throttle(),
            column_index_bytes: self.store.env().live().column_index_bytes(),
            default_keyspace_rf: self.live.borrow().default_keyspace_rf,
            trace_probability: self.server.trace_probability(),
            incremental_backups: self.store.files().links().incremental_backups(),
            phi_convict_threshold: options.phi_convict_threshold.0,
            row_cache_save_seconds: options.row_cache_save_period.as_secs(),
            counter_cache_save_seconds: options.counter_cache_save_period.as_secs(),
            snapshot_links_per_second: self.live.borrow().snapshot_links_per_second,
            credentials_validity_millis: millis(self.live.borrow().credentials_validity),
            credentials_cache_max_entries: self.live.borrow().credentials_cache_max_entries,
            audit_log: self.audit_rows(),
            full_query_log: self.query_log().rows(),
        }
    }
}

impl Actions {
    /// Applies the seeds that the configuration names now. Shard 0 only.
    async fn reload_seeds(&self) -> Result<(), ActionError> {
        let Some(source) = self.seed_source.clone() else {
            return Err(ActionError::Unsupported("reloadseeds"));
        };
        let seeds = self.rt.offload("read-seeds", move || source.read()).await;
        let seeds = seeds.map_err(ActionError::Failed)?;
        match &self.cluster {
            Some(cluster) => {
                cluster.set_seeds(seeds).map_err(|e| ActionError::Failed(e.to_string()))?
            }
            None => *self.seeds.borrow_mut() = seeds,
        }
        tracing::info!(seeds = ?self.seeds.borrow(), "seeds reloaded");
        Ok(())
    }

    /// Has the node stop as SIGTERM does.
    fn stop_daemon(&self) -> Result<(), ActionError> {
        tracing::info!("stopped by an administrator");
        self.rt.request_stop();
        Ok(())
    }

    /// Loads keys and certificates again; nothing where none are used, as in Cassandra. Shard 0 only.
    async fn reload_keys(&self) -> Result<(), ActionError> {
        // One failure does not keep the other keys from being loaded.
        let mut failures = Vec::new();
        for keys in [&self.client_keys, &self.node_keys].into_iter().flatten() {
            failures.extend(keys.reload().await.err().map(|error| error.to_string()));
        }
        if let Some(api) = self.api.get() {
            failures.extend(api.reload().await);
        }
        match failures.is_empty() {
            true => Ok(()),
            false => Err(ActionError::Failed(failures.join("; "))),
        }
    }
}

impl Actions {
    /// Carries a command out, and records the setting that it changed.
    async fn command(&self, action: ClusterAction) -> Result<(), ActionError> {
        let recorded = action.clone();
        self.carry_out_command(action).await?;
        live_settings::record(&mut self.live.borrow_mut(), &recorded);
        Ok(())
    }

    /// Carries a command out: of the whole node, of its storage, or of its cluster.
    async fn carry_out_command(&self, action: ClusterAction) -> Result<(), ActionError> {
        match action {
            ClusterAction::SetNativeTransport { enabled } => {
                self.set_native_transport(enabled).await
            }
            ClusterAction::SetTimeout { kind, millis } => self.set_timeout(&kind, millis),
            ClusterAction::ReplayBatchlog => self.replay_batch_log().await,
            ClusterAction::RefreshSizeEstimates => {
                self.own_rows.write_estimates().await.map_err(failed)
            }
            ClusterAction::SetSetting { name, value } => self.set_setting(&name, &value),
            ClusterAction::SetTraceProbability { per_million } => {
                self.server.set_trace_probability(f64::from(per_million) / 1e6);
                Ok(())
            }
            ClusterAction::PutCidrGroup { name, ranges } => {
                let change = AuthChange::PutCidrGroup { name, ranges };
                let changed = cidr::change(&self.rt, &self.membership, change).await;
                changed.map_err(|error| ActionError::Failed(error.to_string()))
            }
            ClusterAction::ReloadSeeds => self.reload_seeds().await,
            ClusterAction::ReloadSsl => self.reload_keys().await,
            ClusterAction::ReloadFileKeys => {
                let (client, snapshot) = (self.key_client.as_ref(), self.membership.snapshot());
                let reloaded = file_keys::reload(&self.rt, &self.options, client, &snapshot.schema);
                reloaded.await.map_err(|error| ActionError::Failed(error.to_string()))
            }
            ClusterAction::EnableAuditLog { changes } => self.enable_audit_log(&changes).await,
            ClusterAction::DisableAuditLog => self.disable_audit_log().await,
            ClusterAction::EnableFullQueryLog { changes } => {
                self.query_log().enable(&changes).await
            }
            ClusterAction::DisableFullQueryLog => self.query_log().disable().await,
            ClusterAction::ResetFullQueryLog => self.query_log().reset().await,
            ClusterAction::StopDaemon => self.stop_daemon(),
            other => match self.tune_storage(other)? {
                None => Ok(()),
                Some(of_cluster) => self.command_cluster(of_cluster).await,
            },
        }
    }

    /// Carries a command about caches and compaction out; gives any other back.
    fn tune_storage(&self, action: ClusterAction) -> Result<Option<ClusterAction>, ActionError> {
        let shards = self.rt.shard_count().max(1);
        let store = &self.store;
        match action {
            ClusterAction::SetCompactionThroughput { bytes_per_second } => {
                let share = bytes_per_second / u64::from(shards);
                // A small limit is not none.
                store.compactor().set_compaction_throughput(share.max(bytes_per_second.min(1)));
                if let Some(cluster) = &self.cluster {
                    // Reads of repairs keep to the limit too, as Cassandra's validation does.
                    cluster.repair.set_throughput(bytes_per_second);
                }
            }
            ClusterAction::SetRowCacheCapacity { bytes } => {
                let share = bytes / u64::from(shards);
                store.reader().set_row_cache_capacity(share).map_err(failed)?;
            }
            ClusterAction::InvalidateRowCache => store.reader().invalidate_row_cache(),
            ClusterAction::SetCounterCacheCapacity { bytes } => {
                let share = bytes / u64::from(shards);
                store.counters().set_counter_cache_capacity(share).map_err(failed)?;
            }
            ClusterAction::InvalidateCounterCache => store.counters().invalidate_counter_cache(),
            ClusterAction::SetConcurrentCompactors { count } => {
                store.files().slots().set_concurrent_compactors(count.div_ceil(u32::from(shards)));
            }
            ClusterAction::SetCompactionShare { share } => {
                store.compactor().set_compaction_share(share);
            }
            ClusterAction::SetBatchlogThrottle { kib_per_second } => {
                let bytes = kib_per_second.saturating_mul(1024);
                self.coordinator.batches().set_batch_replay_throttle(bytes);
            }
            ClusterAction::SetIncrementalBackups { enabled } => {
                store.files().links().set_incremental_backups(enabled);
            }
            other => return Ok(Some(other)),
        }
        Ok(None)
    }

    async fn replay_batch_log(&self) -> Result<(), ActionError> {
        let snapshot = self.membership.snapshot();
        let replay = self.coordinator.batches().replay_abandoned(&snapshot).await;
        let (batches, left) = (replay.batches, replay.left);
        tracing::info!(batches, left, "batch log replayed by command");
        match replay.error {
            // Batches for dead replicas are left in the log and retried automatically: no error.
            Some(error) if left == 0 => Err(failed(error)),
            _ => Ok(()),
        }
    }

    /// Carries a command about the other nodes out.
    async fn command_cluster(&self, action: ClusterAction) -> Result<(), ActionError> {
        let Some(cluster) = &self.cluster else {
            return match action {
                // It owns everything.
                ClusterAction::Cleanup { .. } => Ok(()),
                // Nothing is sent to others.
                setting if live_settings::is_between_nodes(&setting) => Ok(()),
                other => Err(ActionError::Unsupported(other.name())),
            };
        };
        let leaves = matches!(action, ClusterAction::Decommission { .. });
        cluster.command(action).await?;
        if leaves {
            // The node has left the cluster: its clients find the others.
            cluster.liveness.set_gossiping(false);
            self.tell_all(Serving::Stop).await;
            if let Some(lost) = cluster.topology.orders().take_lost_hints() {
                // The node has left nevertheless; the administrator who forced it sees the cost.
                return Err(ActionError::Failed(lost));
            }
        }
        Ok(())
    }
}

impl ShardActions for Actions {
    fn table_latencies(&self) -> Vec<(TableId, CoordinatorReport)> {
        let report = |(id, of): (TableId, TableLatencies)| {
            let report = CoordinatorReport {
                read: of.reads.into(),
                range: of.scans.into(),
                write: of.writes.into(),
            };
            (id, report)
        };
        self.server.table_latencies().into_iter().map(report).collect()
    }

    fn flush(&self, tables: Vec<TableId>) -> Work<()> {
        let store = self.store.clone();
        Box::pin(async move { store.flush(Some(&tables)).await.map_err(failed) })
    }

    fn compact(&self, tables: Vec<TableId>) -> Work<()> {
        let store = self.store.clone();
        Box::pin(async move {
            for table in tables {
                unless_gone(store.compactor().compact_major(table).await).map_err(failed)?;
            }
            Ok(())
        })
    }

    fn upgrade(&self, tables: Vec<TableId>, all: bool, written_by: Option<i64>) -> Work<()> {
        let latest = written_by.map_or(i64::MAX, |millis| millis.saturating_mul(1000));
        let store = self.store.clone();
        let scope = if all { UpgradeScope::All } else { UpgradeScope::OtherVersions };
        Box::pin(async move {
            for table in tables {
                let latest = WallMicros(latest);
                let done = store.compactor().upgrade_written_by(table, scope, latest).await;
                unless_gone(done).map_err(failed)?;
            }
            Ok(())
        })
    }

    fn upkeep(&self, action: UpkeepAction) -> Work<UpkeepReply> {
        let this = self.clone();
        Box::pin(async move { this.carry_out(action).await })
    }

    fn drain(&self) -> Work<()> {
        self.serving.set(false);
        self.stopped.set(true);
        self.drained.set(true);
        if let Some(cluster) = &self.cluster {
            // To the others it is down, as Cassandra's is.
            cluster.liveness.set_gossiping(false);
        }
        let (store, server) = (self.store.clone(), self.server.clone());
        Box::pin(async move {
            server.stop().await;
            store.drain().await.map_err(failed)
        })
    }

    fn take_snapshot(
        &self,
        (tag, ttl_seconds): (String, Option<u32>),
        tables: Vec<TableId>,
        skip_flush: bool,
    ) -> Work<()> {
        let store = self.store.clone();
        Box::pin(async move {
            let options = SnapshotOptions { ttl_seconds, skip_flush };
            store.lifecycle().snapshot_with(&tag, Some(&tables), options).await.map_err(failed)
        })
    }

    fn abandon_snapshot(&self, tag: String, tables: Vec<TableId>) -> Work<()> {
        let store = self.store.clone();
        Box::pin(async move {
            store.lifecycle().clear_snapshot(Some(&tag), Some(&tables)).await.map_err(failed)
        })
    }

    fn compaction_history(&self) -> Work<Vec<HistoryReport>> {
        let executor = self.server.executor().clone();
        Box::pin(async move {
            let history = compaction_history::read(&executor).await;
            history.map_err(|error| ActionError::Failed(error.to_string()))
        })
    }

    fn estimates(&self, table: TableId, ranges: &[(Token, Token)]) -> Vec<EstimateReport> {
        let found = self.store.tables().range_estimates(table, ranges);
        found
            .into_iter()
            .map(|e| EstimateReport {
                partitions: e.partitions,
                bytes: e.bytes,
                counted: e.counted,
            })
            .collect()
    }

    fn key_samples(&self, table: TableId) -> Vec<Token> {
        let ranges = PrimaryRanges::of(&self.membership.snapshot()).in_ring;
        self.store.tables().key_samples(table, &ranges)
    }

    fn list_snapshots(&self) -> Work<Vec<SnapshotReport>> {
        let (store, shard) = (self.store.clone(), self.rt.shard());
        Box::pin(async move {
            // Snapshots are directories of the node, not of a shard: one shard reports them.
            if shard != ShardId(0) {
                return Ok(Vec::new());
            }
            let found = store.lifecycle().snapshots().await.map_err(failed)?;
            Ok(found
                .into_iter()
                .map(|s| SnapshotReport {
                    tag: s.tag,
                    keyspace: s.keyspace,
                    table: s.name,
                    true_bytes: s.true_bytes,
                    disk_bytes: s.disk_bytes,
                    created_at: s.created_at,
                    expires_at: s.expires_at,
                    is_ephemeral: s.is_ephemeral,
                })
                .collect())
        })
    }

    fn clear_snapshots(&self, which: ClearRequest) -> Work<()> {
        let (store, shard) = (self.store.clone(), self.rt.shard());
        let ClearRequest { tag, keyspaces, older_than_seconds, older_than_millis } = which;
        let ago = older_than_seconds.map(|seconds| i64::try_from(seconds).unwrap_or(i64::MAX));
        let before = match (ago, older_than_millis) {
            (Some(ago), _) => {
                let now = self.rt.wall().0;
                Some(WallMicros(now.saturating_sub(ago.saturating_mul(1_000_000))))
            }
            (None, millis) => millis.map(|millis| WallMicros(millis.saturating_mul(1000))),
        };
        Box::pin(async move {
            if shard != ShardId(0) {
                return Ok(());
            }
            let mut tables = Vec::new();
            for snapshot in store.lifecycle().snapshots().await.map_err(failed)? {
                if keyspaces.is_empty() || keyspaces.contains(&snapshot.keyspace) {
                    tables.push(snapshot.table);
                }
            }
            let cleared =
                store.lifecycle().clear_snapshot_made_before(tag.as_deref(), Some(&tables), before);
            cleared.await.map_err(failed)
        })
    }

    fn compactions(&self) -> CompactionReport {
        let running: Vec<RunningReport> = self
            .store
            .files()
            .slots()
            .compactions()
            .into_iter()
            .map(|c| RunningReport {
                target_directory: match c.kind {
                    // They write nothing.
                    "Verify" | "Unknown compaction type" => String::new(),
                    _ => self.store.files().target_directory(c.table).unwrap_or_default(),
                },
                id: task_id(c.table, self.rt.shard(), c.id).to_string(),
                sstables: c.inputs as u64,
                kind: c.kind.to_owned(),
                keyspace: c.keyspace,
                table: c.name,
                completed: c.done_bytes,
                total: c.total_bytes,
            })
            .collect();
        let (bytes_compacted, compressed_bytes_compacted) =
            self.store.compactor().compacted_bytes();
        let backlog = self.store.compactor().backlog();
        CompactionReport {
            backlog_bytes: backlog.bytes,
            // Not negative, and far below the limit.
            backlog_bytes_per_second: backlog.bytes_per_second as u64,
            share: backlog.share,
            concurrent: self.store.files().slots().concurrent_compactors(),
            completed: self.store.compactor().finished_compactions(),
            bytes_compacted,
            compressed_bytes_compacted,
            // This shard's share: the sum over shards is the node's limit.
            bytes_per_second_max: self.store.compactor().compaction_throughput(),
            // Like in Cassandra, only compactions that the disk had no room for.
            aborted: self.store.files().slots().refused_compactions(),
            running,
            ..CompactionReport::default()
        }
    }

    fn cached_credentials(&self) -> BTreeSet<String> {
        self.server.cached_credentials()
    }

    fn log_in(&self, login: PasswordLogin) -> Work<Result<(), LoginRefusal>> {
        logins::log_in(&self.server, &self.options, login)
    }

    fn identity_of(&self, certificate: &PeerCertificate) -> Option<CertificateIdentity> {
        logins::identity_of(&self.options, certificate)
    }

    fn role_permissions(&self) -> RolePermissions {
        logins::role_permissions(&self.options)
    }

    fn forget_credentials(&self, role: Option<&str>) -> bool {
        self.server.forget_credentials(role)
    }

    fn clients(&self) -> Vec<ClientReport> {
        let anonymous = || "anonymous".to_owned();
        let clients = self.server.clients().into_iter();
        clients
            .map(|c| ClientReport {
                address: c.address.to_string(),
                port: c.port,
                stage: c.stage.to_owned(),
                protocol_version: c.protocol_version,
                user: c.user.unwrap_or_else(anonymous),
                keyspace: c.keyspace.unwrap_or_default(),
                requests: c.requests,
                driver_name: c.driver_name,
                driver_version: c.driver_version,
                options: c.options.into_iter().collect(),
                ssl_protocol: c.tls.map(|(protocol, _)| protocol.to_owned()),
                ssl_cipher_suite: c.tls.map(|(_, suite)| suite.to_owned()),
            })
            .collect()
    }

    fn guardrails(&self) -> Vec<GuardrailReport> {
        let all = conf::guardrails::report(&self.live.borrow()).into_iter();
        all.map(|g| GuardrailReport { name: g.name, settings: g.settings }).collect()
    }

    fn set_guardrail(&self, change: GuardrailRequest) -> Work<()> {
        let this = self.clone();
        Box::pin(async move {
            let GuardrailRequest { name, values } = &change;
            let mut changed = this.live.borrow().clone();
            conf::guardrails::set(&mut changed, name, values).map_err(ActionError::Argument)?;
            if name == "data_disk_usage_max_disk_size" {
                let checked = disk_usage::check_max_size(&this.rt.fs(), &changed).await;
                checked.map_err(|reason| {
                    ActionError::Argument(format!(
                        "Error occured when setting the config for setter {name} with arguments \
                         [{}]: {reason}",
                        values.join(", ")
                    ))
                })?;
            }
            let mut live = this.live.borrow_mut();
            // Again, as others may have changed something meanwhile.
            conf::guardrails::set(&mut live, name, values).map_err(ActionError::Argument)?;
            this.server.set_guardrails(parts::guardrails(&live));
            this.store.observer().set_partition_guardrails(parts::partition_guardrails(&live));
            if this.rt.shard() == ShardId(0) {
                tracing::info!(%name, ?values, "guardrail changed");
                this.limits_changed.notify_one();
            }
            Ok(())
        })
    }

    fn native_transport_active(&self) -> bool {
        self.serving.get()
    }

    fn cluster(&self) -> ClusterReport {
        let mut report = self.cluster.as_ref().map(ClusterShard::report).unwrap_or_default();
        report.dynamic_snitch = self.options.dynamic_snitch;
        if self.rt.shard() == ShardId(0) {
            report.timeouts.extend(self.timeouts());
            report.settings = Some(self.settings());
        }
        if self.drained.get() && !report.operation_mode.is_empty() {
            report.operation_mode = "DRAINED".to_owned();
        }
        report
    }

    fn repair(&self, command: RepairCommand) -> Result<Vec<RepairReport>, ActionError> {
        match &self.cluster {
            Some(cluster) => repairing::carry_out(&cluster.repair, command),
            None => repairing::alone(&self.membership.snapshot(), command),
        }
    }

    fn participations(&self) -> Vec<ParticipationReport> {
        let cluster = self.cluster.as_ref();
        cluster.map(|cluster| repairing::participations(&cluster.repair)).unwrap_or_default()
    }

    fn auto_repair(&self, enabled: Option<bool>) -> Result<AutoRepairReport, ActionError> {
        // A node without others has nothing to repair.
        let Some(cluster) = &self.cluster else { return Ok(AutoRepairReport::default()) };
        let options = &self.options;
        let config = AutoRepairConfig {
            window_seconds: options.auto_repair_window.as_secs(),
            initial_delay_seconds: options.auto_repair_initial_delay.as_secs(),
            turn_seconds: options.auto_repair_turn.as_secs(),
        };
        Ok(AutoRepairReport { config: Some(config), ..repairing::auto(&cluster.repair, enabled) })
    }

    fn repair_summary(
        &self,
        query: &RepairSummaryQuery,
    ) -> Result<Vec<RepairSummary>, ActionError> {
        let snapshot = self.membership.snapshot();
        let repaired = match &self.cluster {
            _ if self.rt.shard() != ShardId(0) => RepairedParts::OtherShard,
            Some(cluster) => RepairedParts::Of(&cluster.repair),
            None => RepairedParts::Never,
        };
        repairing::summary(&snapshot, &self.store, repaired, query)
    }

    fn cluster_command(&self, action: ClusterAction) -> Work<()> {
        let this = self.clone();
        Box::pin(async move { this.command(action).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_name_is_a_wrong_argument_whatever_it_says() {
        for text in ["\"a/b\" cannot be the name", "\"exists/b\" cannot be the name"] {
            let error = failed(StoreError::Invalid(text.to_owned()));
            assert_eq!(error, ActionError::Argument(text.to_owned()));
        }
    }
}
