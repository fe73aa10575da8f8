//! The life of one shard: start, serve, stop. Order is the module documentation of the crate.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use admin::{AdminHandle, AdminMesh, AdminServer, ShardParts};
use cluster::{ClusterSnapshot, LocalNode, Role, Transformation, metalog};
use conf::{Authenticator, Options};
use coordinator::{BatchReplay, Coordinator, ShardMesh};
use cql_server::{CqlServer, ServerMesh, ServerParts};
use membership::log::LogFile;
use membership::{Membership, MetaMesh};
use rt::{FileLock, Gate, IoErrorKind, Rt};
use stdx::{HostId, ShardId, Token};
use store::Store;

use crate::actions::Actions;
use crate::boot::{self, BootMesh, Point};
use crate::own_rows::OwnRows;
use crate::policy::{Policy, PolicyMesh};
use crate::views::NodeViews;
use crate::{Outcome, ReadyHook, StartError, import, parts, system_tables};

/// Requests that may wait for one shard, per kind of request.
const MESH_CAPACITY: usize = 4096;

/// bcrypt hash (cost 10) of the well-known default password `cassandra`, computed once, so that the
/// first start does not pay for it.
const DEFAULT_SUPERUSER_HASH: &str = "$2a$10$AaZBeH0YDCt.sW/RE37neeguGz4zpbkvPgRaIhdDMzewkmK6nOmFC";

/// The ways between the shards of one node.
#[derive(Clone)]
pub struct Meshes {
    boot: Arc<BootMesh>,
    data: Arc<ShardMesh>,
    metadata: Arc<MetaMesh>,
    server: Arc<ServerMesh>,
    admin: Arc<AdminMesh>,
    policy: Arc<PolicyMesh>,
}

impl Meshes {
    /// Ways between that many shards.
    pub fn new(shards: u16) -> Meshes {
        Meshes {
            boot: Arc::new(BootMesh::new(shards, MESH_CAPACITY)),
            data: Arc::new(ShardMesh::new(shards, MESH_CAPACITY)),
            metadata: Arc::new(MetaMesh::new(shards, MESH_CAPACITY)),
            server: Arc::new(ServerMesh::new(shards, MESH_CAPACITY)),
            admin: Arc::new(AdminMesh::new(shards, MESH_CAPACITY)),
            policy: Arc::new(PolicyMesh::new(shards, MESH_CAPACITY)),
        }
    }
}

/// What shard 0 made of the work directory.
struct Opened {
    snapshot: Arc<ClusterSnapshot>,
    run: u64,
    log: LogFile,
    /// Held as long as the node runs.
    _lock: FileLock,
}

/// Runs one shard until the node is asked to stop.
pub(crate) async fn run(
    rt: Rt,
    options: Arc<Options>,
    meshes: Meshes,
    outcome: Arc<Outcome>,
    hook: Option<ReadyHook>,
) {
    let opened = if rt.shard() == ShardId(0) {
        let opened = match open_work_directory(&rt, &options).await {
            Ok(opened) => Some(opened),
            Err(error) => {
                outcome.fail(error);
                None
            }
        };
        let answer = opened.as_ref().map(|o| (o.snapshot.clone(), o.run));
        boot::serve(&rt, &meshes.boot, answer);
        opened
    } else {
        None
    };
    let Some((snapshot, run)) = boot::snapshot(&rt, &meshes.boot).await else {
        outcome.fail(StartError::Abandoned);
        rt.request_stop();
        // Shard 0 stays until the others have read its answer.
        boot::arrive(&rt, &meshes.boot, Point::Opened, false).await;
        return;
    };
    let (log, lock) = match opened {
        Some(o) => (Some(o.log), Some(o._lock)),
        None => (None, None),
    };

    let store_options =
        parts::store_options(&options, snapshot.local.host_id, run, rt.shard_count());
    let store = match Store::open(rt.clone(), store_options, snapshot.schema.clone()).await {
        Ok((store, report)) => {
            report_replay(&rt, &report);
            Some(store)
        }
        Err(error) => {
            outcome.fail(StartError::Store { shard: rt.shard().0, error });
            None
        }
    };
    let all_open = boot::arrive(&rt, &meshes.boot, Point::Opened, store.is_some()).await;
    let (Some(store), true) = (store, all_open) else {
        rt.request_stop();
        return;
    };

    let log = log.map(|log| (log, options.workdir.as_str()));
    let membership = Membership::new(rt.clone(), meshes.metadata.clone(), snapshot, log);
    let coordinator = Coordinator::new(rt.clone(), store.clone(), meshes.data.clone());
    // Tables are there before any statement can be planned on the new schema.
    let on_change = store.clone();
    membership.on_change(move |_, after| on_change.set_schema(after.schema.clone()));
    for directory in store.directories_of_unknown_tables() {
        tracing::warn!(
            %directory,
            "SSTables of a table that is not in the schema are left alone; remove the directory or \
             create the table with this id"
        );
    }
    let parts = Parts {
        rt: rt.clone(),
        outcome: outcome.clone(),
        own_rows: rt.gate("own-rows"),
        options,
        meshes: meshes.clone(),
        store,
        membership,
        coordinator,
        run,
    };
    let served = match parts.serve().await {
        Ok(served) => Some(served),
        Err(error) => {
            outcome.fail(error);
            None
        }
    };
    if boot::arrive(&rt, &meshes.boot, Point::Serving, served.is_some()).await {
        if rt.shard() == ShardId(0) {
            outcome.set_ready();
            tracing::info!("ready");
            if let (Some(hook), Some(served)) = (&hook, &served) {
                hook(rt.clone(), served.server.clone(), parts.store.clone()).await;
            }
        }
        rt.stop_requested().await;
    } else {
        rt.request_stop();
    }

    let Parts { store, membership, coordinator, own_rows, .. } = parts;
    if let Some(served) = served {
        served.actions.serving.set(false);
        served.server.stop().await;
    }
    boot::arrive(&rt, &meshes.boot, Point::Closed, true).await;
    own_rows.close().await;
    coordinator.stop().await;
    membership.stop().await;
    if let Err(error) = store.drain().await {
        // Nothing acknowledged is lost: it is in the commit log.
        tracing::error!(shard = rt.shard().0, %error, "not everything could be flushed");
    }
    store.stop().await;
    drop(lock);
}

/// The parts of a shard that is open.
struct Parts {
    rt: Rt,
    options: Arc<Options>,
    meshes: Meshes,
    store: Store,
    membership: Membership,
    coordinator: Coordinator,
    /// Number of this run.
    run: u64,
    outcome: Arc<Outcome>,
    /// Owner of what writes the node's own rows.
    own_rows: Gate,
}

/// What serves clients and administrators.
struct Served {
    server: CqlServer,
    actions: Rc<Actions>,
    /// Shard 0 of a real machine: the HTTP server, ended when this is dropped.
    _admin: Option<AdminHandle>,
}

impl Parts {
    async fn serve(&self) -> Result<Served, StartError> {
        let (rt, options) = (&self.rt, &self.options);
        let server = CqlServer::new(ServerParts {
            rt: rt.clone(),
            coordinator: self.coordinator.clone(),
            membership: self.membership.clone(),
            settings: Arc::new(parts::server_settings(options)?),
            plan_limits: parts::plan_limits(options),
            mesh: self.meshes.server.clone(),
            virtual_source: Rc::new(NodeViews {
                rt: rt.clone(),
                options: options.clone(),
                admin: self.meshes.admin.clone(),
            }),
        });
        let actions = Rc::new(Actions {
            rt: rt.clone(),
            store: self.store.clone(),
            server: server.clone(),
            coordinator: self.coordinator.clone(),
            membership: self.membership.clone(),
            compaction_bytes_per_second: options.compaction_throughput.0,
            serving: Cell::new(options.start_native_transport),
        });
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
        let own_rows = OwnRows {
            rt: rt.clone(),
            coordinator: self.coordinator.clone(),
            membership: self.membership.clone(),
            admin: self.meshes.admin.clone(),
            gate: self.own_rows.clone(),
        };
        own_rows.record_compactions(&self.store);
        let (membership, of_shard) = (self.membership.clone(), rt.clone());
        let timeout = options.write_request_timeout;
        let report = move |replay: &BatchReplay| report_batches(&of_shard, replay);
        self.coordinator.start_batch_replay(timeout, move || membership.snapshot(), report);
        let mut handle = None;
        if rt.shard() == ShardId(0) {
            system_tables::install(rt, options, &self.membership, &self.coordinator, self.run)
                .await?;
            report_batches(rt, &self.coordinator.replay_batches(&self.membership.snapshot()).await);
            own_rows.record_estimates();
            handle = self.listen(&server).await?;
        }
        Ok(Served { server, actions, _admin: handle })
    }

    /// Opens the ports; shard 0 only.
    async fn listen(&self, server: &CqlServer) -> Result<Option<AdminHandle>, StartError> {
        let options = &self.options;
        let refused = |address: SocketAddr, purpose: &'static str, detail: String| {
            StartError::Listen { address: address.to_string(), purpose, detail }
        };
        let loaded = server.load_prepared().await;
        let loaded =
            loaded.map_err(|error| StartError::Store { shard: self.rt.shard().0, error })?;
        if loaded > 0 {
            tracing::info!(statements = loaded, "prepared statements of the last run");
        }
        if options.start_native_transport {
            let address = parts::socket(&options.rpc_address, options.native_transport_port)?;
            let at = server.listen(address).await;
            let at = at.map_err(|e| refused(address, "CQL", e.detail))?;
            tracing::info!(%at, "listening for CQL");
            if options.native_shard_aware_transport_port != 0 {
                let port = options.native_shard_aware_transport_port;
                let address = parts::socket(&options.rpc_address, port)?;
                let at = server.listen_shard_aware(address).await;
                at.map_err(|e| refused(address, "shard-aware CQL", e.detail))?;
            }
        }
        if !self.rt.is_native() {
            return Ok(None);
        }
        let address = parts::ip(&options.api_address)?;
        let caller = self.meshes.admin.foreign();
        let started = AdminServer::start(address, options.api_port, caller, self.rt.shard_count());
        let at = SocketAddr::new(address, options.api_port);
        started.map(Some).map_err(|e| refused(at, "the API", e.to_string()))
    }
}

fn report_replay(rt: &Rt, report: &store::ReplayReport) {
    for (file, offset, bytes) in &report.tails {
        tracing::warn!(
            shard = rt.shard().0,
            file,
            offset,
            bytes,
            "dropped the unsynced tail of a commit log"
        );
    }
    if report.segments > 0 {
        tracing::info!(
            shard = rt.shard().0,
            segments = report.segments,
            bytes = report.bytes,
            applied = report.applied,
            took_ms = report.took.as_millis() as u64,
            "replayed the commit log"
        );
    }
}

fn report_batches(rt: &Rt, replay: &BatchReplay) {
    let shard = rt.shard().0;
    if let Some(error) = &replay.error {
        tracing::warn!(shard, left = replay.left, %error, "logged batches wait for another replay");
    }
    if replay.lost + replay.past_grace > 0 {
        let (lost, past_grace) = (replay.lost, replay.past_grace);
        tracing::warn!(shard, lost, past_grace, "parts of logged batches could not be replayed");
    }
    if replay.batches > 0 {
        let (batches, mutations) = (replay.batches, replay.mutations);
        tracing::info!(shard, batches, mutations, "replayed logged batches");
    }
}

async fn open_work_directory(rt: &Rt, options: &Options) -> Result<Opened, StartError> {
    let work_dir = options.workdir.trim_end_matches('/').to_owned();
    let fs = rt.fs();
    fs.create_dir_all(&work_dir).await?;
    let lock = match fs.lock_exclusive(&format!("{work_dir}/.lock")).await {
        Ok(lock) => lock,
        Err(error) if error.kind == IoErrorKind::AlreadyExists => {
            return Err(StartError::InUse(work_dir));
        }
        Err(error) => return Err(error.into()),
    };
    fs.create_dir_all(&options.data_directory()).await?;
    fs.create_dir_all(&options.commitlog_directory()).await?;
    let base = cql_plan::system::system_schema();
    let opened = membership::log::open(rt, &work_dir, &base).await?;
    if opened.dropped_bytes > 0 {
        tracing::warn!(
            bytes = opened.dropped_bytes,
            "dropped an incomplete last entry of the metadata log; it was never acknowledged"
        );
    }
    let (log, snapshot) = match opened.snapshot {
        Some(snapshot) => {
            // Cassandra may have run on the directory in between.
            import::commit_log::check(&fs, &options.commitlog_directory()).await?;
            (opened.log, snapshot)
        }
        None => {
            drop(opened.log);
            first_start(rt, options, &base, &work_dir).await?
        }
    };
    if snapshot.local.cluster_name != options.cluster_name {
        return Err(StartError::ClusterName {
            found: snapshot.local.cluster_name.clone(),
            configured: options.cluster_name.clone(),
        });
    }
    // Larger than every earlier run's even when the clock went back: runs are counted in a file.
    let run = next_run(rt, &work_dir).await?;
    Ok(Opened { snapshot: Arc::new(snapshot), run, log, _lock: lock })
}

/// The number of this run: one more than the last, at least the wall clock in microseconds.
async fn next_run(rt: &Rt, work_dir: &str) -> Result<u64, StartError> {
    let path = format!("{work_dir}/{}/run", membership::log::DIRECTORY);
    let last = match rt.fs().read(&path, 64).await {
        Ok(bytes) => std::str::from_utf8(&bytes).ok().and_then(|t| t.trim().parse().ok()),
        Err(error) if error.kind == IoErrorKind::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    let wall = u64::try_from(rt.wall().0).unwrap_or(0);
    let run = wall.max(last.map_or(1, |l: u64| l.saturating_add(1)));
    rt.fs().write_atomic(&path, format!("{run}\n").into_bytes()).await?;
    Ok(run)
}

/// Identity and place of a node that starts on an empty directory.
fn new_node(rt: &Rt, options: &Options) -> LocalNode {
    let mut random = [0_u8; 16];
    rt.random_fill(&mut random);
    let host_id = HostId(uuid::Builder::from_random_bytes(random).into_uuid());
    let tokens = if options.initial_token.is_empty() {
        let count = u16::try_from(options.num_tokens).unwrap_or(u16::MAX);
        cluster::tokens_for_single_node(count, rt.random_u64())
    } else {
        let mut tokens: Vec<Token> = options.initial_token.clone();
        tokens.sort();
        tokens
    };
    LocalNode {
        host_id,
        cluster_name: options.cluster_name.clone(),
        datacenter: "datacenter1".to_owned(),
        rack: "rack1".to_owned(),
        tokens,
        created_at: rt.wall(),
    }
}

/// The first entries of a new node's metadata log.
async fn first_start(
    rt: &Rt,
    options: &Options,
    base: &schema::Schema,
    work_dir: &str,
) -> Result<(LogFile, ClusterSnapshot), StartError> {
    let imported = import::import(rt, options, base).await?;
    let (local, changes, roles) = match imported {
        Some(imported) => {
            tracing::info!(
                host_id = %imported.local.host_id,
                changes = imported.changes.len(),
                "taking over a data directory of Cassandra's"
            );
            (imported.local, imported.changes, imported.roles)
        }
        None => (new_node(rt, options), Vec::new(), Vec::new()),
    };
    let has_roles = !roles.is_empty();
    let mut entries = vec![Transformation::Bootstrap(local)];
    entries.extend(changes.into_iter().map(|c| Transformation::Schema(Box::new(c))));
    entries.extend(roles.into_iter().map(|(name, role)| Transformation::PutRole { name, role }));
    if options.authenticator == Authenticator::Password && !has_roles {
        let role = Role {
            is_superuser: true,
            can_login: true,
            salted_hash: DEFAULT_SUPERUSER_HASH.to_owned(),
        };
        entries.push(Transformation::PutRole { name: "cassandra".to_owned(), role });
    }
    let mut framed = Vec::new();
    let mut snapshot: Option<ClusterSnapshot> = None;
    for entry in &entries {
        let next = match &snapshot {
            None => metalog::bootstrap(entry, base),
            Some(before) => before.apply(entry),
        };
        let next = next.map_err(membership::SubmitError::from)?;
        entry.encode_entry(next.epoch, &mut framed);
        snapshot = Some(next);
    }
    let Some(snapshot) = snapshot else { return Err(StartError::Abandoned) };
    // All entries or none: a taken-over directory must not be taken over by half.
    let created = membership::log::create(rt, work_dir, base, &framed, snapshot.epoch).await?;
    Ok((created.log, snapshot))
}
