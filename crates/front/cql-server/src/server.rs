//! The CQL server of one shard: who is connected and what all connections share: limits, prepared
//! statements, the schema in use, events.
//!
//! Never: how connections come in ([`crate::accept`]), bytes of the protocol
//! ([`crate::connection`]), statements ([`crate::execute`]).

use crate::access::{Accesses, CidrMetrics};
use crate::account::{Account, REQUEST_BYTES};
use crate::auth::CredentialsCache;
use crate::counters::Counters;
use crate::disk_usage::ReplicaDisks;
use crate::failure::{Failure, Internal};
use crate::guardrails::Guardrails;
use crate::latency::{Latencies, TableLatencies};
use crate::mesh::{ClientInfo, QueryInfo, ServerMesh, ServerReply, ServerRequest};
use crate::pending::Freed;
use crate::prepared::PreparedCache;
use crate::session::{Session, Stage};
use crate::settings::{ServerSettings, Timeout, Timeouts};
use crate::topology_events::News;
use crate::virtual_tables::VirtualSource;
use cluster::{ADDRESS_UNKNOWN, ClusterSnapshot};
use coordinator::Coordinator;
use cql_plan::functions::user::UserFunctions;
use cql_plan::guardrails::DiskPressure;
use cql_plan::plan::{PlanLimits, UuidSource};
use cql_wire::{
    Consistency, ErrorCode, Event, FailureReason, Negotiated, Opcode, ProtocolVersion, scylla,
};
use membership::Membership;
use rt::sync::Semaphore;
use rt::{Gate, Group, MeshError, Reply, Rt, Stream};
use schema::Schema;
use std::cell::{Cell, Ref, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use stdx::{FixedMap, HostId, Instant, TableId, TimestampMicros, Uuid, WallMicros};
use store::StoreError;
use truncation::{AskShard, TruncationParts, Truncations};

/// What a [`CqlServer`] is made of.
pub struct ServerParts {
    /// The shard.
    pub rt: Rt,
    /// Access to all data of the node.
    pub coordinator: Coordinator,
    /// Schema and roles.
    pub membership: Membership,
    /// The same on all shards.
    pub settings: Arc<ServerSettings>,
    /// Limits that plans enforce.
    pub plan_limits: PlanLimits,
    /// The way to the other shards' servers.
    pub mesh: Arc<ServerMesh>,
    /// Rows of virtual tables that this crate does not compute.
    pub virtual_source: Rc<dyn VirtualSource>,
}

/// The CQL server of one shard; clones are the same server.
#[derive(Clone)]
pub struct CqlServer {
    pub(crate) inner: Rc<Server>,
}

/// What statements are planned by.
pub(crate) struct Planning {
    pub(crate) limits: PlanLimits,
    /// Compiled functions of users.
    pub(crate) functions: UserFunctions,
}

impl std::ops::Deref for Planning {
    type Target = PlanLimits;

    fn deref(&self) -> &PlanLimits {
        &self.limits
    }
}

pub(crate) struct Server {
    pub(crate) rt: Rt,
    pub(crate) coordinator: Coordinator,
    pub(crate) membership: Membership,
    pub(crate) settings: Arc<ServerSettings>,
    pub(crate) timeouts: Timeouts,
    pub(crate) guardrails: RefCell<Guardrails>,
    /// Which nodes have full disks.
    pub(crate) replica_disks: ReplicaDisks,
    pub(crate) plan_limits: Planning,
    pub(crate) mesh: Arc<ServerMesh>,
    pub(crate) virtual_source: Rc<dyn VirtualSource>,
    pub(crate) gate: Gate,
    pub(crate) prepared: PreparedCache,
    pub(crate) credentials: CredentialsCache,
    pub(crate) accesses: Accesses,
    pub(crate) cidr_metrics: CidrMetrics,
    pub(crate) uuids: UuidSource,
    pub(crate) counters: Counters,
    pub(crate) latencies: Rc<Latencies>,
    /// Encoded mutations of the statement that is being run.
    pub(crate) scratch: RefCell<Vec<u8>>,
    pub(crate) truncations: Truncations,
    /// What clients were told of the other nodes.
    news: News,
    snapshot: RefCell<Arc<ClusterSnapshot>>,
    pub(crate) sessions: RefCell<BTreeMap<u64, Rc<Session>>>,
    next_session: Cell<u64>,
    /// Shard 0: connections by client address, when that is limited.
    pub(crate) by_ip: RefCell<FixedMap<IpAddr, usize>>,
    last_timestamp: Cell<i64>,
    /// The last commit of a turn had to wait, as all do in batch and group mode.
    pub(crate) commits_wait: Cell<bool>,
    waiting: Cell<usize>,
    /// Memory of this shard's requests.
    pub(crate) account: Rc<Account>,
    /// Scans, and reads of one partition on another shard: what they have of pages that are on their way is
    /// in no account.
    pub(crate) scans: Semaphore,
    pub(crate) remote_reads: Semaphore,
    pub(crate) draining: Cell<bool>,
    pub(crate) drained: rt::sync::Notify,
    /// Of 2^32 requests so many are traced although nobody asks.
    traced_by_chance: Cell<u64>,
    /// Connections may begin with protocols older than the current one.
    pub(crate) allow_older_protocols: Cell<bool>,
    /// Replicas of a keyspace that does not say how many.
    pub(crate) default_keyspace_rf: Cell<u32>,
    /// Ports that are listened on.
    pub(crate) listening: Cell<usize>,
    buffers: RefCell<Vec<Vec<u8>>>,
}

/// What a client is told of a result that is too large.
const RESULT_TOO_LARGE: &str =
    "the result is larger than half of the memory for requests of a shard: use paging";

/// What a page of another shard is reckoned to take, and how many reads may wait for one however little memory
/// there is.
const PAGE_BYTES: usize = 1 << 20;
const REMOTE_READS_MIN: usize = 64;
/// The same of scans, which have pages of several shards.
const SCAN_BYTES: usize = 4 << 20;
const SCANS_MIN: usize = 8;

/// Buffers of answers that are kept for reuse, and how large one may be.
const BUFFERS_MAX: usize = 64;
const BUFFER_BYTES_MAX: usize = 64 << 10;

/// Asks the truncations of other shards over the mesh of the servers.
fn ask_truncations(rt: &Rt, mesh: &Arc<ServerMesh>) -> AskShard {
    let (rt, mesh) = (rt.clone(), mesh.clone());
    Rc::new(move |shard, request| -> Pin<Box<dyn Future<Output = _>>> {
        let call = mesh.calls.call(&rt, shard, ServerRequest::Truncation(request));
        Box::pin(async move {
            match call.await? {
                ServerReply::Truncation(answer) => Ok(answer),
                _ => Err(MeshError::Closed),
            }
        })
    })
}

/// Logs failures of the store while it empties tables, once there is a server.
fn log_truncate_failures(server: &Rc<RefCell<Weak<Server>>>) -> Rc<dyn Fn(&StoreError)> {
    let server = server.clone();
    Rc::new(move |error| {
        if let Some(server) = server.borrow().upgrade() {
            server.log_failure("truncate", error);
        }
    })
}

impl CqlServer {
    /// Puts the parts together and begins to serve the other shards' servers. No connection is
    /// taken before [`CqlServer::listen`].
    pub fn new(parts: ServerParts) -> CqlServer {
        let ServerParts {
            rt,
            coordinator,
            membership,
            settings,
            plan_limits,
            mesh,
            virtual_source,
        } = parts;
        let mut salt = [0; 16];
        rt.random_fill(&mut salt);
        let latencies = Rc::new(Latencies::new(&rt.telemetry()));
        let request_bytes_max = settings.request_bytes_max / usize::from(rt.shard_count().max(1));
        let gate = rt.gate("cql-connections");
        let logging: Rc<RefCell<Weak<Server>>> = Rc::default();
        let truncation_parts = TruncationParts {
            rt: rt.clone(),
            coordinator: coordinator.clone(),
            membership: membership.clone(),
            gate: gate.clone(),
            storage_address: settings.storage_address,
            timeout: settings.truncate_timeout,
            ask: ask_truncations(&rt, &mesh),
            on_failure: log_truncate_failures(&logging),
        };
        let inner = Rc::new(Server {
            truncations: Truncations::new(truncation_parts),
            coordinator,
            snapshot: RefCell::new(membership.snapshot()),
            membership: membership.clone(),
            plan_limits: Planning {
                limits: plan_limits,
                functions: UserFunctions::new(
                    settings.user_defined_functions_enabled,
                    settings.user_function_limits,
                ),
            },
            mesh: mesh.clone(),
            virtual_source,
            gate,
            prepared: PreparedCache::new(settings.prepared_bytes_max),
            credentials: CredentialsCache::new(
                salt,
                settings.credentials_validity,
                settings.credentials_cache_max_entries,
            ),
            accesses: Accesses::default(),
            cidr_metrics: CidrMetrics::new(&rt.telemetry()),
            uuids: UuidSource::new(rt.random_u64()),
            counters: Counters::new(&rt.telemetry(), &latencies),
            latencies,
            scratch: RefCell::default(),
            news: News::default(),
            sessions: RefCell::default(),
            next_session: Cell::new(1),
            by_ip: RefCell::default(),
            last_timestamp: Cell::new(0),
            commits_wait: Cell::new(false),
            waiting: Cell::new(0),
            account: Account::new(request_bytes_max),
            scans: Semaphore::new((request_bytes_max / SCAN_BYTES).max(SCANS_MIN)),
            remote_reads: Semaphore::new((request_bytes_max / PAGE_BYTES).max(REMOTE_READS_MIN)),
            draining: Cell::new(false),
            drained: rt::sync::Notify::new(),
            traced_by_chance: Cell::new(0),
            allow_older_protocols: Cell::new(settings.allow_older_protocols),
            default_keyspace_rf: Cell::new(settings.default_keyspace_rf),
            listening: Cell::new(0),
            buffers: RefCell::default(),
            timeouts: Timeouts::new(&settings),
            guardrails: RefCell::new(settings.guardrails.clone()),
            replica_disks: ReplicaDisks::default(),
            settings,
            rt: rt.clone(),
        });
        *logging.borrow_mut() = Rc::downgrade(&inner);
        let server = CqlServer { inner };
        crate::forwarded::install(&server);
        crate::scanned::install(&server);
        let hook = server.clone();
        membership.on_change(move |_, after| hook.on_snapshot(after));
        let hook = server.clone();
        membership.on_applied(move |before, after| hook.announce_changes(before, after));
        let serving = server.clone();
        mesh.calls.serve(&rt, move |request, reply| serving.serve_request(request, reply));
        server
    }

    pub(crate) fn inner(&self) -> &Rc<Server> {
        &self.inner
    }

    /// Takes a new snapshot over. Called by the hook that [`CqlServer::new`] puts into membership.
    pub fn on_snapshot(&self, after: &Arc<ClusterSnapshot>) {
        *self.inner.snapshot.borrow_mut() = after.clone();
    }

    /// What the failure detector says of another node: `is_up` when it is alive and serves clients.
    /// To be called on every shard. Registered clients are told, each change once.
    pub fn note_liveness(&self, host: HostId, is_up: bool) {
        let snapshot = self.inner.snapshot().clone();
        let events = self.inner.news.liveness(&snapshot, host, is_up);
        self.inner.announce_nodes(&events);
    }

    /// What a node, this one too, says of its disks: `Some` when they are fuller than they should be.
    /// To be called on every shard. Ordinary users are warned of writes to its ranges, or refused.
    pub fn note_disk_usage(&self, host: HostId, pressure: Option<DiskPressure>) {
        self.inner.replica_disks.set(host, pressure);
    }

    /// The truncations of this shard.
    pub fn truncations(&self) -> &Truncations {
        &self.inner.truncations
    }

    /// Tells registered clients what changed, once the system tables say it too: drivers answer an
    /// event with a look into `system_schema` or `system.peers`.
    fn announce_changes(&self, before: &Arc<ClusterSnapshot>, after: &Arc<ClusterSnapshot>) {
        if before.members != after.members {
            let events = self.inner.news.changed(before, after);
            self.inner.announce_nodes(&events);
        }
        if Arc::ptr_eq(&before.schema, &after.schema) {
            return;
        }
        for event in crate::schema_change::events(&before.schema, &after.schema) {
            self.inner.announce(&Event::SchemaChange(event.as_wire()));
        }
    }

    /// Loads the statements that were prepared before the last stop, on all shards. To be called on
    /// one shard, once the node's shards serve each other. Returns how many there are.
    ///
    /// # Errors
    /// `system.prepared_statements` cannot be read.
    pub async fn load_prepared(&self) -> Result<usize, StoreError> {
        crate::internal::load_prepared(&self.inner).await
    }

    /// Changes how long requests of this shard may take that begin from now on.
    pub fn set_timeout(&self, kind: Timeout, timeout: Duration) {
        self.inner.timeouts.set(kind, timeout);
        if kind == Timeout::Truncate {
            self.inner.truncations.set_timeout(timeout);
        }
    }

    /// Changes the limits on requests of this shard that begin from now on.
    pub fn set_guardrails(&self, guardrails: Guardrails) {
        *self.inner.guardrails.borrow_mut() = guardrails;
    }

    /// Whether connections of this shard may begin with protocols older than the current one; those that
    /// have begun go on.
    pub fn set_allow_older_protocols(&self, allowed: bool) {
        self.inner.allow_older_protocols.set(allowed);
    }

    /// For how long a verified password needs no new verification on this shard.
    pub fn set_credentials_validity(&self, validity: Duration) {
        self.inner.credentials.set_validity(validity);
    }

    /// How many verified passwords this shard remembers.
    pub fn set_credentials_cache_max_entries(&self, entries: usize) {
        self.inner.credentials.set_entries_max(entries);
    }

    /// How many replicas a keyspace gets that does not say how many.
    pub fn set_default_keyspace_rf(&self, factor: u32) {
        self.inner.default_keyspace_rf.set(factor);
    }

    /// Traces a part of this shard's requests, 0 to 1, although their clients do not ask for it.
    pub fn set_trace_probability(&self, probability: f64) {
        let of_all = probability.clamp(0.0, 1.0) * (1_u64 << 32) as f64;
        self.inner.traced_by_chance.set(of_all as u64);
    }

    /// What [`CqlServer::set_trace_probability`] was told.
    pub fn trace_probability(&self) -> f64 {
        self.inner.traced_by_chance.get() as f64 / (1_u64 << 32) as f64
    }

    /// What requests of tables took that this shard was asked for; tables without any may be missing.
    pub fn table_latencies(&self) -> Vec<(TableId, TableLatencies)> {
        self.inner.latencies.of_tables()
    }

    /// Roles whose passwords were verified lately, on this shard.
    pub fn cached_credentials(&self) -> BTreeSet<String> {
        self.inner.credentials.users(self.inner.rt.now())
    }

    /// Has the next login of a role, or of all, verify its password on this shard; whether there was
    /// one that would not have.
    pub fn forget_credentials(&self, role: Option<&str>) -> bool {
        self.inner.credentials.forget(role, self.inner.rt.now())
    }

    /// Connections of this shard.
    pub fn clients(&self) -> Vec<ClientInfo> {
        self.inner.clients()
    }

    /// How long a request of this shard may take that begins now.
    pub fn timeout(&self, kind: Timeout) -> Duration {
        self.inner.timeouts.as_set(kind)
    }

    /// Writes down what this node did for a request that another one coordinates and traces, when
    /// there is time.
    pub fn record_peer_trace(&self, session: Uuid, events: Vec<coordinator::TracedEvent>) {
        let server = self.inner.clone();
        let task = async move {
            crate::internal::write_peer_trace(&server, session, events).await;
        };
        // A closed gate: the node stops, its part of the trace is lost.
        let _ = self.inner.gate.spawn(&self.inner.rt, Group::Admin, "peer-trace", task);
    }

    /// Number of connections of this shard.
    pub fn connection_count(&self) -> usize {
        self.inner.sessions.borrow().len()
    }

    /// Whether [`CqlServer::stop`] was called: no request is taken any more.
    pub fn is_stopped(&self) -> bool {
        self.inner.is_draining()
    }

    /// Refuses new requests, finishes running ones, closes all connections of this shard.
    pub async fn stop(&self) {
        self.end_connections();
        self.inner.gate.close().await;
    }

    pub(crate) fn end_connections(&self) {
        self.inner.draining.set(true);
        self.inner.truncations.stop();
        self.inner.drained.notify_waiters();
        let sessions: Vec<Rc<Session>> = self.inner.sessions.borrow().values().cloned().collect();
        for session in sessions {
            session.wake();
        }
    }

    fn serve_request(&self, request: ServerRequest, reply: Reply<ServerReply>) {
        let server = self.inner.clone();
        match request {
            ServerRequest::Adopt(moved) => {
                // Counted by the shard that accepted it.
                match Stream::from_moved(&server.rt, moved) {
                    Ok(conn) => self.serve_counted(conn),
                    Err(error) => {
                        server.mesh.closed(server.rt.shard());
                        tracing::warn!(%error, "a connection could not be taken over");
                    }
                }
                reply.send(ServerReply::Done);
            }
            ServerRequest::Closed(ip) => {
                server.forget_ip(ip);
                reply.send(ServerReply::Done);
            }
            ServerRequest::Prepare { text, keyspace } => {
                // An error is told by the shard that the client is connected to.
                let _ = crate::execute::prepare_here(&server, &text, keyspace.as_deref());
                reply.send(ServerReply::Done);
            }
            ServerRequest::Clients => reply.send(ServerReply::Clients(server.clients())),
            ServerRequest::Queries => reply.send(ServerReply::Queries(server.queries())),
            ServerRequest::Truncation(request) => server
                .truncations
                .serve(request, move |answer| reply.send(ServerReply::Truncation(answer))),
        }
    }
}

impl Server {
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// The snapshot in use; not to be held over an await.
    #[inline]
    pub(crate) fn snapshot(&self) -> Ref<'_, Arc<ClusterSnapshot>> {
        self.snapshot.borrow()
    }

    /// The schema in use.
    pub(crate) fn schema(&self) -> Arc<Schema> {
        self.snapshot.borrow().schema.clone()
    }

    /// The next timestamp of this shard: later than every one before, never behind the clock.
    #[inline]
    pub(crate) fn next_timestamp(&self, wall: WallMicros) -> TimestampMicros {
        let next = wall.0.max(self.last_timestamp.get().saturating_add(1));
        self.last_timestamp.set(next);
        TimestampMicros(next)
    }

    pub(crate) fn next_time_uuid(&self) -> [u8; 16] {
        self.uuids.time_uuid(self.rt.wall())
    }

    /// Why the shard cannot let another request of so many bytes wait, whose connection holds `own` bytes.
    pub(crate) fn refuses(&self, bytes: usize, is_alone: bool, own: usize) -> Option<String> {
        let waiting = self.waiting.get();
        if waiting >= self.settings.requests_per_shard_max {
            return Some(format!("{waiting} requests of this shard wait already"));
        }
        // A request that is larger than all the memory for requests is served when there is no other.
        let has_others = waiting > 0 || self.account.is_full_beside(own);
        if has_others && !self.account.admits(bytes, is_alone) {
            return Some("requests and their answers take too many bytes".to_owned());
        }
        None
    }

    pub(crate) fn enter(&self, taken: Freed) {
        self.waiting.set(self.waiting.get() + taken.count);
        self.account.add(taken.bytes + taken.count * REQUEST_BYTES);
        self.counters.waiting.set(i64::try_from(self.waiting.get()).unwrap_or(i64::MAX));
    }

    pub(crate) fn leave(&self, freed: Freed) {
        self.waiting.set(self.waiting.get().saturating_sub(freed.count));
        self.account.remove(freed.bytes + freed.count * REQUEST_BYTES);
        self.counters.waiting.set(i64::try_from(self.waiting.get()).unwrap_or(i64::MAX));
    }

    /// An empty buffer for an answer.
    #[inline]
    pub(crate) fn buffer(&self) -> Vec<u8> {
        self.buffers.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes a buffer back.
    pub(crate) fn recycle(&self, mut buffer: Vec<u8>) {
        let mut buffers = self.buffers.borrow_mut();
        let size = buffer.capacity();
        if size > 0 && size <= BUFFER_BYTES_MAX && buffers.len() < BUFFERS_MAX {
            buffer.clear();
            buffers.push(buffer);
        }
    }

    pub(crate) fn open_session(&self, peer: SocketAddr) -> Rc<Session> {
        let id = self.next_session.get();
        self.next_session.set(id + 1);
        let session = Rc::new(Session::new(id, peer, self.settings.storage_address));
        self.sessions.borrow_mut().insert(id, session.clone());
        self.counters.connections.add(1);
        session
    }

    /// A session for a statement that another node forwarded for its client.
    pub(crate) fn forwarded_session(&self, negotiated: Negotiated, deadline: Instant) -> Session {
        let address = self.settings.storage_address;
        let mut session = Session::new(0, address, address);
        session.stage.set(Stage::Ready);
        session.negotiated.set(negotiated);
        session.forwarded = Some(deadline);
        session
    }

    pub(crate) fn close_session(&self, session: &Session) {
        if self.sessions.borrow_mut().remove(&session.id).is_some() {
            self.counters.connections.add(-1);
        }
    }

    /// Answers OPTIONS.
    pub(crate) fn supported(&self) -> Vec<(&'static str, Vec<String>)> {
        let versions = ProtocolVersion::ALL
            .into_iter()
            .filter(|v| self.allow_older_protocols.get() || *v >= ProtocolVersion::CURRENT);
        let mut supported: Vec<(&'static str, Vec<String>)> = vec![
            (cql_wire::startup::CQL_VERSION, vec!["3.4.7".to_owned()]),
            (
                cql_wire::startup::COMPRESSION,
                cql_wire::Compression::ALL.iter().map(|c| c.name().to_owned()).collect(),
            ),
            (cql_wire::startup::PROTOCOL_VERSIONS, versions.map(|v| v.name().to_owned()).collect()),
        ];
        let sharding = scylla::ShardingInfo {
            shard: self.rt.shard().0,
            shard_count: self.rt.shard_count(),
            ignore_msb: u8::try_from(stdx::shard_map::IGNORE_MSB).unwrap_or(0),
            shard_aware_port: self.settings.shard_aware_port,
            shard_aware_port_ssl: None,
        };
        supported.extend(sharding.supported_options());
        let version = env!("CARGO_PKG_VERSION").to_owned();
        supported.push((cql_wire::startup::HELENUS_VERSION, vec![version]));
        supported.push((scylla::USE_METADATA_ID, vec![String::new()]));
        supported.push((scylla::LWT_ADD_METADATA_MARK, vec![scylla::lwt_mark_value()]));
        supported
    }

    /// Runs something to its end whatever becomes of the request that asked for it.
    ///
    /// # Errors
    /// As `work`; `Overloaded` when the node stops.
    pub(crate) async fn to_its_end<T: 'static>(
        self: &Rc<Self>,
        name: &'static str,
        work: impl Future<Output = crate::failure::Result<T>> + 'static,
    ) -> crate::failure::Result<T> {
        let (done, result) = rt::sync::oneshot::channel();
        let task = async move {
            // Nobody may be waiting any more.
            let _ = done.send(work.await);
        };
        let stopping = || Failure::overloaded("the node is stopping");
        self.gate.spawn(&self.rt, Group::Admin, name, task).map_err(|_| stopping())?;
        result.await.map_err(|_| stopping())?
    }

    fn announce_nodes(&self, events: &[Event<'static>]) {
        let own = self.settings.broadcast_address;
        for event in events {
            let (Event::TopologyChange { address, .. } | Event::StatusChange { address, .. }) =
                event
            else {
                continue;
            };
            // Not to be told apart from this node, or not known (CASSANDRA-10052).
            if *address != own && *address != ADDRESS_UNKNOWN {
                self.announce(event);
            }
        }
    }

    /// Sends an event to every registered client of this shard.
    pub(crate) fn announce(&self, event: &Event<'_>) {
        let mut encoded: [Option<Vec<u8>>; ProtocolVersion::ALL.len()] = Default::default();
        for session in self.sessions.borrow().values() {
            if session.stage.get() != Stage::Ready
                || !session.registered.get().contains(event.kind())
            {
                continue;
            }
            let version = session.version();
            let Some(slot) = encoded.get_mut(usize::from(version.number() - 3)) else { continue };
            if slot.is_none() {
                let mut frame = Vec::new();
                let extras = cql_wire::FrameExtras::default();
                let written = cql_wire::response::encode_frame(
                    &mut frame,
                    version,
                    -1,
                    Opcode::Event,
                    &extras,
                    |body| cql_wire::response::put_event(body, version, event),
                );
                if written.is_err() {
                    return;
                }
                *slot = Some(frame);
            }
            if let Some(frame) = slot {
                session.push_event(frame, self.settings.output_bytes_max);
            }
        }
    }

    /// Whether this request is one of those that are traced without being asked.
    pub(crate) fn is_traced_by_chance(&self) -> bool {
        match self.traced_by_chance.get() {
            0 => false,
            of_all => self.rt.random_u64() >> 32 < of_all,
        }
    }

    /// Statements of this shard's connections that run, no more than may wait on it.
    pub(crate) fn queries(&self) -> Vec<QueryInfo> {
        let (now, shard) = (self.rt.now(), self.rt.shard().0);
        let mut queries = Vec::new();
        for session in self.sessions.borrow().values() {
            let name = format!("Native-Transport-Requests-{shard}-{}", session.id);
            session.running.list(&name, now, &mut queries);
        }
        queries
    }

    /// This shard's connections.
    pub(crate) fn clients(&self) -> Vec<ClientInfo> {
        let sessions = self.sessions.borrow();
        sessions
            .values()
            .map(|s| {
                let (driver_name, driver_version) = s.driver.borrow().clone();
                ClientInfo {
                    address: s.peer.ip(),
                    port: s.peer.port(),
                    options: s.options.borrow().clone(),
                    stage: match s.stage.get() {
                        Stage::Established => "established",
                        Stage::Authenticating => "authenticating",
                        Stage::Ready => "ready",
                    },
                    driver_name,
                    driver_version,
                    keyspace: s.keyspace.borrow().as_deref().map(str::to_owned),
                    protocol_version: s.version().number(),
                    requests: s.requests.get(),
                    user: s.user.borrow().as_deref().map(str::to_owned),
                }
            })
            .collect()
    }

    /// Writes the one log line of an internal failure and returns the id that names it.
    #[cold]
    pub(crate) fn log_failure(&self, what: &'static str, error: &StoreError) -> Uuid {
        let id = Uuid::from_bytes(self.uuids.random_uuid());
        match error {
            StoreError::Overloaded { .. } | StoreError::QueueFull | StoreError::Stopping => {
                tracing::debug!(%id, %error, "{what} refused");
            }
            // The store logs when the disk gets full and when it has space again.
            StoreError::UnknownTable(_) | StoreError::DiskFull { .. } => {
                tracing::debug!(%id, %error, "{what} failed");
            }
            StoreError::TombstoneFailure { .. } => {
                tracing::warn!(%id, %error, "{what} failed");
            }
            _ => tracing::error!(%id, %error, "{what} failed"),
        }
        // What becomes of the node is decided elsewhere.
        self.coordinator.store().note_failure(error);
        id
    }

    /// A [`Failure`] of a read with a larger result than memory allows.
    #[cold]
    pub(crate) fn result_too_large(&self, limit: usize, consistency: Consistency) -> Failure {
        let id = Uuid::from_bytes(self.uuids.random_uuid());
        tracing::warn!(%id, limit, "read failed: its result without paging is larger than memory allows");
        let internal = Internal { id, cause: RESULT_TOO_LARGE };
        Failure::ReadFailure { consistency, reason: FailureReason::ReadSize, internal }
    }

    /// A [`Failure`] of something that must not fail.
    #[cold]
    pub(crate) fn internal_failure(&self, what: &str) -> Failure {
        let id = Uuid::from_bytes(self.uuids.random_uuid());
        tracing::error!(%id, "internal error: {what}");
        let internal = crate::failure::Internal { id, cause: "internal error" };
        Failure::Internal(ErrorCode::ServerError, "internal error".to_owned(), internal)
    }
}
