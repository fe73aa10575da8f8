//! Life cycle of one shard: start, serve, stop. The crate documentation has the order of steps.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeSet;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use ::audit::{Auditor, AuditorParts};
use admin::{AdminError, AdminParts, AdminServer, LogControl, ShardParts};
use cluster::ClusterSnapshot;
use conf::{Archiving, Options};
use coordinator::{BatchReplay, Coordinator, IdOrigin};
use cql_server::{CqlServer, PortEncryption, ServerParts};
use key_client::KeyClient;
use membership::Membership;
use membership::log::{LogFile, LogReader};
use messaging::Messaging;
use repair::RepairHistory;
use rt::service::ServiceFailure;
use rt::{FileLock, Gate, Group, Rt};
use stdx::{ShardId, TableId};
use store::Store;
use system_tables::stored::own_rows::{OwnRows, RowWriter};
use system_tables::stored::writer::{LocalAddresses, SystemTables};
use system_tables::{NodeTables, Sources};
use topology::TopologyError;
use topology::identity::Identity;
use topology::introduction::{self, Run};

use crate::actions::Actions;
use crate::api_access::{ApiAccess, ApiFollowers};
use crate::boot::{self, Beginning, Point};
use crate::cluster::member::ClusterShard;
use crate::cluster::network;
use crate::disk_usage::{self, DiskMonitor, LiveLimits};
use crate::dropped::CarriedOut;
use crate::encryption::ClientKeys;
use crate::encryption::follow::KeyFollower;
use crate::encryption::nodes::NodeKeys;
use crate::meshes::Meshes;
use crate::policy::Policy;
use crate::{
    Outcome, Program, ReadyHook, StartError, archiving, audit, bug_log, commit_log, counter_id,
    default_password, dropped, expiry, first_role, index_files, log_lines, open, parts, query_log,
    remedies, replay_report, serving,
};

/// A starting shard of a node.
pub(crate) struct Shard {
    pub(crate) rt: Rt,
    pub(crate) options: Arc<Options>,
    pub(crate) meshes: Meshes,
    pub(crate) outcome: Arc<Outcome>,
    /// Runs on the first shard once the node is ready.
    pub(crate) hook: Option<ReadyHook>,
    /// Services of the program.
    pub(crate) program: Program,
}

/// Shard 0's result of opening the work directory, in the form for each shard.
struct Begun {
    snapshot: Arc<ClusterSnapshot>,
    run: u64,
    tables_ever: Arc<BTreeSet<TableId>>,
    archiving: Archiving,
    messaging: Option<Messaging>,
    /// Metadata log, on shard 0.
    log: Option<LogFile>,
    /// Lock of the data directory, on shard 0: held while the shard runs.
    lock: Option<FileLock>,
    /// Encryption of client connections.
    encryption: PortEncryption,
    /// Keys of client connections on shard 0, if they are encrypted.
    client_keys: Option<ClientKeys>,
    /// Keys of connections between nodes on shard 0, if they are encrypted.
    node_keys: Option<NodeKeys>,
    /// Client of the providers of keys of this shard's files.
    key_client: RefCell<Option<KeyClient>>,
    /// Logins and TLS of the API on shard 0.
    api: Option<ApiAccess>,
}

/// Builds the state with which the other shards begin.
fn beginning(opened: &open::Opened) -> Beginning {
    let keys = opened.client_keys.as_ref();
    Beginning {
        snapshot: opened.snapshot.clone(),
        run: opened.run,
        tables_ever: opened.tables_ever.clone(),
        archiving: opened.archiving.clone(),
        has_peers: opened.messaging.is_some(),
        encryption: keys.map_or(PortEncryption::Plain, |keys| keys.encryption),
    }
}

/// Guards and facts that a shard holds until it stops, beside its parts.
struct Held {
    lock: Option<FileLock>,
    /// Only on shard 0: the metadata log as it was when the store looked for tables that the schema
    /// lacks.
    log_at_start: Option<LogReader>,
    /// True if the counter id is that of an earlier run.
    counter_id_was_kept: bool,
}

impl Shard {
    /// Runs until the node is asked to stop.
    pub(crate) async fn run(self) {
        let Some(begun) = self.begin().await else { return };
        let Some(store) = self.open_store(&begun).await else { return };
        let (parts, held) = self.build(begun, store).await;
        let served = self.noted(parts.serve().await);
        let boot = &self.meshes.boot;
        let serves = boot::arrive(&self.rt, boot, Point::Serving, arrived(&served)).await;
        if serves {
            self.live(&parts, served.as_ref(), &held).await;
        } else {
            self.rt.request_stop();
        }
        // A rejected start has carried out no drops.
        let notes_drops = serves && held.lock.is_some();
        let lock = self.stop(parts, served, held, notes_drops).await;
        drop(lock);
    }

    /// Records an error as the node's outcome; returns the value of a success.
    fn noted<T>(&self, result: Result<T, StartError>) -> Option<T> {
        result.map_err(|error| self.outcome.fail(error)).ok()
    }

    /// Shard 0 opens the work directory, the others get its result. Returns `None` if the start
    /// failed.
    async fn begin(&self) -> Option<Begun> {
        let (rt, boot) = (&self.rt, &self.meshes.boot);
        let opened = if rt.shard() == ShardId(0) {
            let opened = open::open(rt, &self.options, &self.meshes.messaging).await;
            let opened = self.noted(opened);
            boot::serve(rt, boot, opened.as_ref().map(beginning));
            opened
        } else {
            None
        };
        let Some(beginning) = boot::snapshot(rt, boot).await else {
            self.outcome.fail(StartError::Abandoned);
            rt.request_stop();
            // Shard 0 waits until the others have read its answer.
            boot::arrive(rt, boot, Point::Opened, Err(())).await;
            return None;
        };
        let Beginning { snapshot, run, tables_ever, archiving, has_peers, encryption } = beginning;
        let mut begun = Begun {
            snapshot,
            run,
            tables_ever,
            archiving,
            messaging: None,
            log: None,
            lock: None,
            encryption,
            client_keys: None,
            node_keys: None,
            key_client: RefCell::default(),
            api: None,
        };
        match opened {
            Some(opened) => {
                (begun.log, begun.lock) = (Some(opened.log), Some(opened.lock));
                begun.messaging = opened.messaging;
                (begun.client_keys, begun.node_keys) = (opened.client_keys, opened.node_keys);
                begun.key_client = RefCell::new(opened.key_client);
                begun.api = Some(opened.api);
            }
            None => {
                let snapshot = &begun.snapshot;
                let join = || join_messaging(rt, &self.options, &self.meshes, snapshot, run);
                begun.messaging = has_peers.then(join);
            }
        }
        Some(begun)
    }

    /// Opens the store; returns `None` if some shard failed to.
    async fn open_store(&self, begun: &Begun) -> Option<Store> {
        let (rt, options) = (&self.rt, &self.options);
        let Begun { snapshot, archiving, .. } = begun;
        let host = snapshot.local.host_id;
        let mut settings = parts::store_options(options, host, begun.run, rt.shard_count());
        settings.tables_ever = Some(begun.tables_ever.clone());
        settings.replay = archiving::replay_options(options, archiving);
        settings.commitlog_archive_directory.clone_from(&archiving.archive_directory);
        let keys = match rt.shard() {
            // Loaded when it opened the directory.
            ShardId(0) => Ok(()),
            _ => crate::file_keys::load(rt, options).await.map(|client| {
                *begun.key_client.borrow_mut() = client;
            }),
        };
        let keys = match keys {
            Ok(()) => archiving::keys(rt, options).await,
            Err(error) => Err(error),
        };
        let opened = match keys {
            Ok(keys) => {
                settings.commitlog_keys = keys;
                let opened = Store::open(rt.clone(), settings, snapshot.schema.clone()).await;
                opened.map_err(|error| {
                    let error = remedies::with_remedy(error);
                    StartError::Store { shard: rt.shard().0, error }
                })
            }
            Err(error) => Err(error),
        };
        let opened = match opened {
            Ok((store, report)) => {
                replay_report::replay(rt, &report);
                let claimed = match rt.shard() {
                    ShardId(0) => commit_log::claim(rt, options, host, begun.run).await,
                    _ => Ok(()),
                };
                claimed.map(|()| store)
            }
            Err(error) => Err(error),
        };
        let store = self.noted(opened);
        if let Some(store) = &store {
            store.observer().set_partition_guardrails(parts::partition_guardrails(options));
            store.observer().set_large_thresholds(parts::large_thresholds(options));
            store.observer().on_large_partition(|(is_error, text)| match is_error {
                true => tracing::error!("{text}"),
                false => tracing::warn!("{text}"),
            });
            crate::upkeep::log_damage(store);
            crate::upkeep::log_built_indexes(store, rt.shard());
            crate::upkeep::log_disk_space(store, rt.shard());
            // Before any compaction: data of replicated tables must not be purged yet.
            repair::history::apply(snapshot, &RepairHistory::default(), store);
        }
        let all_open = boot::arrive(rt, &self.meshes.boot, Point::Opened, arrived(&store)).await;
        if !all_open {
            rt.request_stop();
            return None;
        }
        store
    }

    /// Builds the parts of a shard that is open.
    async fn build(&self, begun: Begun, store: Store) -> (Parts, Held) {
        let (rt, options, meshes) = (&self.rt, &self.options, &self.meshes);
        let begun_log = store.begin_log().await;
        let log_failure =
            begun_log.err().map(|error| StartError::Store { shard: rt.shard().0, error });
        let log_at_start = begun.log.as_ref().map(LogFile::reader);
        let log = begun.log.map(|log| (log, options.workdir.as_str()));
        let membership = Membership::new(rt.clone(), meshes.metadata.clone(), begun.snapshot, log);
        let coordinator = Coordinator::new(rt.clone(), store.clone(), meshes.data.clone());
        if let Some(window) = self.program.replica_window {
            coordinator.limit_windows(window);
        }
        if let Some(limit) = self.program.page_limit {
            coordinator.local().limit_pages(limit);
        }
        if options.query_tombstone_page_limit > 0 {
            coordinator.local().limit_replica_pages(options.query_tombstone_page_limit);
        }
        let (counter_id, counter_id_was_kept) = counter_id::take(rt, &options.workdir).await;
        coordinator.counters().set_counter_id(counter_id);
        // Tables must exist before any statement is planned on the new schema.
        let on_change = store.clone();
        membership.on_change(move |_, after| {
            on_change.set_schema(after.schema.clone());
            if after.members.len() <= 1 {
                repair::history::apply(after, &RepairHistory::default(), &on_change);
            }
        });
        let (cluster, cluster_failure) = match begun.messaging {
            None => (None, None),
            Some(messaging) => {
                let ways = meshes.of_cluster();
                let (metadata, data) = (&membership, &coordinator);
                match ClusterShard::new(rt, options, messaging, ways, metadata, data).await {
                    Ok(cluster) => (Some(cluster), None),
                    Err(error) => (None, Some(error)),
                }
            }
        };
        let parts = Parts {
            rt: rt.clone(),
            cluster,
            failure: log_failure.or(cluster_failure),
            outcome: self.outcome.clone(),
            own_rows: rt.gate("own-rows"),
            encryption: begun.encryption,
            client_keys: RefCell::new(begun.client_keys),
            node_keys: RefCell::new(begun.node_keys),
            key_client: begun.key_client.take(),
            api: RefCell::new(begun.api),
            api_followers: Rc::default(),
            options: options.clone(),
            meshes: meshes.clone(),
            store,
            membership,
            coordinator,
            run: begun.run,
            program: self.program.clone(),
        };
        (parts, Held { lock: begun.lock, log_at_start, counter_id_was_kept })
    }

    /// Runs once all shards serve: completes deferred work, then waits until the node is asked to
    /// stop.
    async fn live(&self, parts: &Parts, served: Option<&Served>, held: &Held) {
        let (rt, outcome) = (&self.rt, &self.outcome);
        // Nothing can refuse the start from here on.
        let (schema, map) =
            (parts.membership.snapshot().schema.clone(), parts.coordinator.shard_map());
        index_files::remove(rt, &parts.options, &schema, map, &parts.store).await;
        if let Some(log) = &held.log_at_start {
            let carried_out = CarriedOut::new(rt, &parts.options.workdir);
            dropped::finish(log, &parts.membership, &parts.store, &carried_out).await;
            carried_out.watch(rt, &parts.own_rows, &parts.membership, &parts.store);
        }
        if rt.shard() == ShardId(0) {
            let work_dir = parts.options.workdir.trim_end_matches('/');
            crate::small_files::record(rt, work_dir).await;
            outcome.set_ready();
            if let Some(line) = log_lines::connecting(&parts.options, parts.encryption) {
                tracing::info!("{line}");
            }
            tracing::info!("{}", log_lines::COMPLETE);
            tracing::info!("{}", log_lines::initialized());
            if let (Some(hook), Some(served)) = (&self.hook, served) {
                hook(rt.clone(), served.server.clone(), parts.store.clone()).await;
            }
        }
        rt.stop_requested().await;
    }

    /// Stops the parts, from the front to the engine. The lock of the directory is still held.
    async fn stop(
        &self,
        parts: Parts,
        served: Option<Served>,
        held: Held,
        notes_drops: bool,
    ) -> Option<FileLock> {
        let rt = &self.rt;
        let Parts { store, membership, coordinator, own_rows, cluster, options, .. } = parts;
        let logs = served
            .as_ref()
            .map(|served| (served.actions.auditor.clone(), served.actions.query_logger.clone()));
        if let Some(served) = served {
            served.stop().await;
        }
        boot::arrive(rt, &self.meshes.boot, Point::Closed, Ok(())).await;
        if let Some((auditor, query_logger)) = logs {
            // No shard writes events or records any more.
            auditor.close_files().await;
            query_logger.close_files().await;
        }
        if let Some(cluster) = &cluster {
            cluster.stop().await;
        }
        own_rows.close().await;
        coordinator.stop().await;
        membership.stop().await;
        let drained = store.drain().await;
        if let Err(error) = &drained {
            // No acknowledged write is lost: all are in the commit log.
            tracing::error!(
                shard = rt.shard().0,
                %error,
                "cannot flush all memtables; the commit log has their writes"
            );
        }
        store.stop().await;
        if notes_drops {
            let epoch = membership.snapshot().epoch;
            CarriedOut::new(rt, &options.workdir).note(epoch, &store).await;
        }
        let origin =
            if held.counter_id_was_kept { IdOrigin::EarlierRun } else { IdOrigin::ThisRun };
        let counter_id = coordinator.counters().counter_id(origin);
        if let (Ok(()), Some(id)) = (drained, counter_id) {
            counter_id::keep(rt, &options.workdir, id).await;
        }
        if let Some(cluster) = &cluster {
            cluster.cleaning.close().await;
        }
        held.lock
    }
}

/// Returns `Ok` if this shard has passed a step, that is, if the step's result exists.
fn arrived<T>(made: &Option<T>) -> Result<(), ()> {
    made.as_ref().map(drop).ok_or(())
}

/// Starts messaging on a shard other than 0.
fn join_messaging(
    rt: &Rt,
    options: &Options,
    meshes: &Meshes,
    snapshot: &ClusterSnapshot,
    run: u64,
) -> Messaging {
    let (host_id, cluster_id) = (snapshot.local.host_id, Some(snapshot.cluster_id));
    let identity = Identity { host_id, cluster_id };
    let run = Run { number: run, shards: rt.shard_count() };
    let member = introduction::Membership::Member;
    let introduced = introduction::introduction(options, &identity, run, member);
    network::messaging(rt, options, introduced, &meshes.messaging)
}

/// The parts of an open shard.
struct Parts {
    rt: Rt,
    /// `None`: the node stands alone.
    cluster: Option<ClusterShard>,
    /// Reason why this shard cannot serve.
    failure: Option<StartError>,
    options: Arc<Options>,
    meshes: Meshes,
    store: Store,
    membership: Membership,
    coordinator: Coordinator,
    /// Number of this run.
    run: u64,
    outcome: Arc<Outcome>,
    /// Services of the program.
    program: Program,
    /// Owner of the tasks that write the node's own rows.
    own_rows: Gate,
    /// Encryption of client connections.
    encryption: PortEncryption,
    /// On shard 0, until the server is created: the keys of client connections.
    client_keys: RefCell<Option<ClientKeys>>,
    /// On shard 0, until they are followed: the keys of connections between nodes.
    node_keys: RefCell<Option<NodeKeys>>,
    /// Client of the providers of keys of this shard's files.
    key_client: Option<KeyClient>,
    /// On shard 0, until the server of the API is created: its logins and TLS.
    api: RefCell<Option<ApiAccess>>,
    api_followers: Rc<OnceCell<ApiFollowers>>,
}

/// Servers of clients and administrators.
struct Served {
    server: CqlServer,
    actions: Rc<Actions>,
    /// Shard 0 of a real machine: the HTTP server.
    admin: Option<AdminServer>,
}

impl Served {
    async fn stop(self) {
        self.actions.serving.set(false);
        self.server.stop().await;
        self.actions.auditor.stop().await;
        self.actions.query_logger.stop().await;
        if let Some(admin) = self.admin {
            admin.stop().await;
        }
    }
}

impl Parts {
    /// Builds the servers and serves. When this returns, shard 0 serves, and the others do too.
    async fn serve(&self) -> Result<Served, StartError> {
        let made = match &self.failure {
            Some(error) => Err(error.clone()),
            None => self.make(),
        };
        let boot = &self.meshes.boot;
        let is_made =
            boot::arrive(&self.rt, boot, Point::Made, made.as_ref().map(drop).map_err(drop)).await;
        let (mut served, own_rows) = made?;
        if !is_made {
            return Err(StartError::Abandoned);
        }
        let settled = match self.rt.shard() {
            ShardId(0) => self.settle(&served.server).await,
            _ => Ok(()),
        };
        let is_settled =
            boot::arrive(&self.rt, boot, Point::Settled, settled.as_ref().map(drop).map_err(drop))
                .await;
        settled?;
        if !is_settled {
            return Err(StartError::Abandoned);
        }
        if let Some(cluster) = &self.cluster {
            let server = served.server.clone();
            cluster.liveness.on_ready(move |host, is_up| server.note_liveness(host, is_up));
            let server = served.server.clone();
            cluster.liveness.on_disk_usage(move |host, usage| {
                server.note_disk_usage(host, disk_usage::pressure(usage));
            });
            cluster.serve_peers();
        }
        if self.rt.shard() == ShardId(0) {
            let limits = LiveLimits {
                options: served.actions.live.clone(),
                changed: served.actions.limits_changed.clone(),
            };
            let auditor = served.actions.auditor.clone();
            served.admin = self.begin(&served.server, &auditor, own_rows, limits).await?;
            served.actions.opened();
        }
        Ok(served)
    }

    /// Completes the last run's unfinished work, before anything else is read or written. Shard 0
    /// only.
    async fn settle(&self, server: &CqlServer) -> Result<(), StartError> {
        let work_dir = self.options.workdir.trim_end_matches('/');
        let (of_hook, directory) = (server.clone(), work_dir.to_owned());
        // Until the system tables are updated automatically: catching up must not defer a
        // truncation to a later moment, when newer data could be lost.
        self.membership.on_apply(move |_, after| {
            let (server, directory) = (of_hook.clone(), directory.clone());
            Box::pin(async move {
                if let Err(error) = server.truncations().apply(&directory, &after).await {
                    tracing::error!(%error, "cannot read the truncation records");
                }
            })
        });
        let truncated = server.truncations().apply(work_dir, &self.membership.snapshot()).await;
        truncated.map_err(|error| StartError::Store { shard: self.rt.shard().0, error })
    }

    /// Contacts the other nodes, brings this one to `Normal`, listens for clients. Shard 0 only.
    async fn begin(
        &self,
        server: &CqlServer,
        auditor: &Auditor,
        own_rows: OwnRows,
        limits: LiveLimits,
    ) -> Result<Option<AdminServer>, StartError> {
        let (rt, options) = (&self.rt, &self.options);
        if let Some(cluster) = &self.cluster {
            let (rt, outcome) = (rt.clone(), self.outcome.clone());
            cluster.topology.address_discovery().seek_members(move |host| {
                let removed = TopologyError::Removed { host };
                tracing::error!("{removed}");
                outcome.fail(removed.into());
                rt.request_stop();
            });
            cluster.meet_others().await?;
            cluster.topology.bootstrap().describe_itself().await?;
        }
        let (membership, coordinator) = (&self.membership, &self.coordinator);
        self.write_system_tables(server).await?;
        // Before the node joins, which may take hours: operators want to watch it.
        let handle = self.administer()?;
        if let Some(cluster) = &self.cluster {
            cluster.topology.bootstrap().come_to_normal().await?;
        }
        let (mesh, liveness) = (&self.meshes.disks, self.cluster.as_ref().map(|c| &c.liveness));
        DiskMonitor::new(rt, limits, mesh.clone(), liveness.cloned()).start(&self.own_rows);
        replay_report::batches(
            rt,
            &coordinator.batches().replay_batches(&membership.snapshot()).await,
        );
        own_rows.record_estimates();
        expiry::expire_snapshots(rt, &self.own_rows, &self.store);
        bug_log::log_bugs(rt, &self.own_rows);
        if let Some(cluster) = &self.cluster {
            let liveness = cluster.liveness.clone();
            server.truncations().set_applied_epochs(move |host| liveness.applied_epoch(host));
            cluster.tell_of_truncations(server);
            cluster.topology.bootstrap().settle().await;
        }
        audit::start(auditor).await?;
        self.listen(server).await?;
        if let Some(cluster) = &self.cluster {
            cluster.tell_load(self.meshes.admin.clone());
            cluster.topology.replication_change().hand_over_keyspaces();
            cluster.topology.departure().go_on_leaving();
            cluster.liveness.set_ready(options.start_native_transport);
        }
        Ok(handle)
    }

    /// Writes the system tables, and updates them from now on. Shard 0 only.
    async fn write_system_tables(&self, server: &CqlServer) -> Result<(), StartError> {
        let (rt, options) = (&self.rt, &self.options);
        let tables = SystemTables {
            rt: rt.clone(),
            membership: self.membership.clone(),
            coordinator: self.coordinator.clone(),
            executor: server.executor().clone(),
            truncations: server.truncations().clone(),
            work_dir: options.workdir.trim_end_matches('/').to_owned(),
            addresses: LocalAddresses {
                listen: parts::ip(&options.listen_address)?,
                broadcast: parts::ip(options.announced_address())?,
                rpc: parts::ip(options.announced_rpc_address())?,
                storage_port: options.storage_port,
                native_transport_port: options.native_transport_port,
            },
            run: self.run,
            gate: self.own_rows.clone(),
        };
        let installed = tables.install().await;
        installed.map_err(|error| StartError::Store { shard: rt.shard().0, error })
    }

    /// Builds the servers of clients and administrators; from then on other shards are served.
    fn make(&self) -> Result<(Served, OwnRows), StartError> {
        let (rt, options) = (&self.rt, &self.options);
        let live = Rc::new(RefCell::new(Options::clone(options)));
        let server = CqlServer::new(ServerParts {
            rt: rt.clone(),
            coordinator: self.coordinator.clone(),
            membership: self.membership.clone(),
            settings: Arc::new(parts::server_settings(options, self.encryption)?),
            plan_limits: parts::plan_limits(options),
            mesh: self.meshes.server.clone(),
            virtual_source: Rc::new(NodeTables::new(Sources {
                rt: rt.clone(),
                live: live.clone(),
                admin: self.meshes.admin.clone(),
                log: self.program.log.clone(),
            })),
        });
        let writer = RowWriter {
            rt: rt.clone(),
            coordinator: self.coordinator.clone(),
            membership: self.membership.clone(),
            gate: self.own_rows.clone(),
        };
        let own_rows = OwnRows::new(writer, &self.meshes.admin);
        let actions = self.actions(&server, &live, &own_rows);
        let parts = ShardParts {
            rt: rt.clone(),
            store: self.store.clone(),
            membership: self.membership.clone(),
            actions: actions.clone(),
            facts: Arc::new(parts::node_facts(options, rt.wall().seconds().0)?),
            gate: rt.gate("admin"),
        };
        let policy = Policy {
            rt: rt.clone(),
            options: options.clone(),
            mesh: self.meshes.policy.clone(),
            actions: actions.clone(),
            outcome: self.outcome.clone(),
            gate: parts.gate.clone(),
        };
        policy.install();
        admin::serve_shard(&self.meshes.admin, parts);
        let host = self.membership.snapshot().local.host_id;
        disk_usage::serve(rt, &self.meshes.disks, &server, &self.store, host);
        own_rows.record_compactions(&self.store);
        own_rows.record_large_data(&self.store, server.executor());
        let (membership, of_shard) = (self.membership.clone(), rt.clone());
        let timeout = options.write_request_timeout;
        self.coordinator.batches().set_batch_replay_throttle(options.batchlog_replay_throttle.0);
        let traces = server.clone();
        self.coordinator.on_peer_trace(Rc::new(move |session, events| {
            traces.record_peer_trace(session, events);
        }));
        let report = move |replay: &BatchReplay| replay_report::batches(&of_shard, replay);
        self.coordinator.batches().start_batch_replay(
            timeout,
            move || membership.snapshot(),
            report,
        );
        Ok((Served { server, actions, admin: None }, own_rows))
    }

    /// Builds the actions of this shard for administrators.
    fn actions(
        &self,
        server: &CqlServer,
        live: &Rc<RefCell<Options>>,
        own_rows: &OwnRows,
    ) -> Rc<Actions> {
        let (rt, options) = (&self.rt, &self.options);
        Rc::new(Actions {
            rt: rt.clone(),
            store: self.store.clone(),
            server: server.clone(),
            coordinator: self.coordinator.clone(),
            membership: self.membership.clone(),
            options: options.clone(),
            live: live.clone(),
            seeds: self.cluster.as_ref().map_or_else(
                || Rc::new(RefCell::new(options.seeds.clone())),
                |cluster| cluster.seeds.clone(),
            ),
            seed_source: self.program.seeds.clone(),
            limits_changed: Rc::default(),
            serving: Rc::default(),
            stopped: Rc::default(),
            // Until the ports are opened.
            is_switching: Rc::new(Cell::new(rt.shard() == ShardId(0))),
            drained: Rc::default(),
            cluster: self.cluster.clone(),
            policy: self.meshes.policy.clone(),
            own_rows: own_rows.clone(),
            encryption: self.encryption,
            auditor: Auditor::new(AuditorParts {
                helper: self.program.audit.clone(),
                ..audit::parts(rt, options, server, &self.meshes.audit)
            }),
            query_logger: query_log::logger(rt, server, &self.meshes.query_log, &self.program),
            client_keys: self.follow_client_keys(server),
            node_keys: self.follow_node_keys(),
            key_client: self.key_client.clone(),
            api: self.api_followers.clone(),
        })
    }

    /// Passes the keys of client connections to the server and follows them, if this node has any.
    fn follow_client_keys(&self, server: &CqlServer) -> Option<Rc<KeyFollower>> {
        let keys = self.client_keys.take()?.install(&self.rt, &self.own_rows, server);
        self.end_with(keys.failure());
        Some(keys)
    }

    /// Follows the keys of connections between nodes, if this node has them and peers.
    fn follow_node_keys(&self) -> Option<Rc<KeyFollower>> {
        let (keys, cluster) = self.node_keys.take().zip(self.cluster.as_ref())?;
        let keys = keys.install(&self.rt, &self.own_rows, &cluster.messaging);
        self.end_with(keys.failure());
        Some(keys)
    }

    /// Opens the ports for clients; shard 0 only.
    async fn listen(&self, server: &CqlServer) -> Result<(), StartError> {
        let options = &self.options;
        let loaded = server.load_prepared().await;
        let loaded =
            loaded.map_err(|error| StartError::Store { shard: self.rt.shard().0, error })?;
        if loaded > 0 {
            tracing::info!(statements = loaded, "reloaded the prepared statements of the last run");
        }
        first_role::ensure(&self.rt, &self.own_rows, &self.membership, options);
        if options.authenticator.has_passwords() {
            let failure = server.start_logins().map_err(|error| {
                StartError::Setting(format!(
                    "\"authenticator\": no threads for passwords ({error})"
                ))
            })?;
            self.end_with(failure);
            default_password::watch(&self.rt, &self.own_rows, server, options);
        }
        if options.start_native_transport {
            serving::listen(options, server, self.encryption).await?;
        }
        Ok(())
    }

    /// Opens the port for administrators; shard 0 only.
    fn administer(&self) -> Result<Option<AdminServer>, StartError> {
        let options = &self.options;
        if !rt::service::have_threads(&self.rt) {
            return Ok(None);
        }
        let address = SocketAddr::new(parts::ip(&options.api_address)?, options.api_port);
        let caller = self.meshes.admin.foreign();
        let log = self.program.log.clone().map(|log| log as Arc<dyn LogControl>);
        let Some(api) = self.api.take() else { return Ok(None) };
        let (access, encryption) = (api.parts(options, &self.meshes.audit), api.encryption());
        let parts = AdminParts { address, caller, log, access, encryption };
        let started = AdminServer::start(&self.rt, parts);
        let server = started.map_err(|e| StartError::Listen {
            address: address.to_string(),
            purpose: "the API",
            detail: match e {
                // The address is in the text already.
                AdminError::Listen { error, .. } => error.to_string(),
                other => other.to_string(),
            },
        })?;
        let followers = api.install(&self.rt, &self.own_rows, server.access());
        let _ = self.api_followers.set(followers);
        self.end_with(server.failure());
        Ok(Some(server))
    }

    /// Stops the node when one of its services ends unexpectedly: a node without administration or
    /// helpers is restarted as a whole.
    fn end_with(&self, failure: impl Future<Output = Option<ServiceFailure>> + 'static) {
        let (rt, outcome) = (self.rt.clone(), self.outcome.clone());
        let watch = async move {
            if let Some(error) = failure.await {
                tracing::error!(%error, "stopping this node: one of its services ended");
                outcome.fail(StartError::Service(error));
                rt.request_stop();
            }
        };
        // A closed gate: the node stops anyway.
        let _ = self.own_rows.spawn(&self.rt, Group::Admin, "service-watch", watch);
    }
}
