//! The CQL server of one shard: the connected clients and the state that all connections share, that is limits,
//! events and the executor of statements.
//!
//! Never: accepts connections ([`crate::accept`]), handles bytes of the protocol ([`crate::connection`]) or
//! statements ([`query`]).

use crate::auth::CredentialsCache;
use crate::client_info::{ClientInfo, QueryInfo};
use crate::counters::Counters;
use crate::login_desk::Desk;
use crate::mesh::ServerMesh;
use crate::pending::Freed;
use crate::port::{ClientChecks, HANDSHAKES_MAX};
use crate::request_rates::RateLimits;
use crate::running::Task;
use crate::schema_events;
use crate::session::{Session, Stage};
use crate::settings::ServerSettings;
use crate::topology_events::News;
use cluster::{ADDRESS_UNKNOWN, ClusterSnapshot};
use cql_plan::guardrails::DiskPressure;
use cql_wire::{Event, Opcode, ProtocolVersion, scylla};
use query::{ConnectionLoad, Executor, Guardrails, REQUEST_BYTES, TableLatencies};
use rt::sync::Semaphore;
use rt::{Gate, Group, Rt, TlsInfo, TlsServer};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use stdx::{FixedMap, HostId, Instant, TableId, Uuid};
use store::StoreError;
use truncation::Truncations;

/// The CQL server of one shard. Clones share it.
#[derive(Clone)]
pub struct CqlServer {
    pub(crate) inner: Rc<Server>,
}

/// The parts of a [`Server`] that others made.
pub(crate) struct ServerCore {
    pub(crate) rt: Rt,
    pub(crate) query: Rc<Executor>,
    pub(crate) settings: Arc<ServerSettings>,
    pub(crate) mesh: Arc<ServerMesh>,
    pub(crate) gate: Gate,
}

/// State of the CQL server of one shard, which all its connections share.
pub(crate) struct Server {
    pub(crate) rt: Rt,
    /// Executes the statements of this shard.
    pub(crate) query: Rc<Executor>,
    pub(crate) settings: Arc<ServerSettings>,
    pub(crate) mesh: Arc<ServerMesh>,
    pub(crate) gate: Gate,
    pub(crate) credentials: CredentialsCache,
    /// Verifies passwords; on shard 0.
    pub(crate) desk: RefCell<Option<Rc<Desk>>>,
    /// On shard 0: connections by role, if they are limited.
    pub(crate) by_role: RefCell<FixedMap<String, usize>>,
    pub(crate) counters: Counters,
    /// State of the other nodes as reported to clients.
    news: News,
    pub(crate) sessions: RefCell<BTreeMap<u64, Rc<Session>>>,
    next_session: Cell<u64>,
    /// On shard 0: connections by client address, if they are limited.
    pub(crate) by_ip: RefCell<FixedMap<IpAddr, usize>>,
    /// The last commit of a turn had to wait, as all do in batch and group mode.
    pub(crate) commits_wait: Cell<bool>,
    waiting: Cell<usize>,
    pub(crate) drained: rt::sync::Notify,
    /// The server ends, unlike one whose port is closed for a while: logins of the API go on then.
    pub(crate) is_stopping: Cell<bool>,
    /// Number of requests out of 2^32 that are sampled for tracing.
    traced_by_chance: Cell<u64>,
    /// Connections may begin with protocols older than the current one.
    pub(crate) allow_older_protocols: Cell<bool>,
    /// Number of listening ports.
    pub(crate) listening: Cell<usize>,
    /// Keys and settings of future handshakes; set on the shard that listens.
    pub(crate) tls: RefCell<Option<(TlsServer, ClientChecks)>>,
    /// When a client's expiring certificate was last logged.
    pub(crate) warned_of_expiry: Cell<Option<Instant>>,
    /// Limits of requests per second.
    pub(crate) rate_limits: Cell<RateLimits>,
    /// True if one of them is set.
    pub(crate) limits_rates: Cell<bool>,
    /// Permits for handshakes.
    pub(crate) handshakes: Semaphore,
}

impl CqlServer {
    /// Returns the executor of this shard's statements.
    pub fn executor(&self) -> &Rc<Executor> {
        &self.inner.query
    }

    pub(crate) fn inner(&self) -> &Rc<Server> {
        &self.inner
    }

    /// Applies a change of another node's liveness: `is_up` if it is alive and serves clients. To
    /// be called on every shard. Registered clients are notified, of each change once.
    pub fn note_liveness(&self, host: HostId, is_up: bool) {
        let snapshot = self.inner.query.snapshot().clone();
        let events = self.inner.news.liveness(&snapshot, host, is_up);
        self.inner.announce_nodes(&events);
    }

    /// Applies the disk usage of a node, possibly this one: `Some` if its disks are fuller than
    /// they should be. To be called on every shard. Ordinary users are warned of writes to its
    /// ranges, or refused.
    pub fn note_disk_usage(&self, host: HostId, pressure: Option<DiskPressure>) {
        self.inner.query.replica_disks.set(host, pressure);
    }

    /// The truncations of this shard.
    pub fn truncations(&self) -> &Truncations {
        &self.inner.query.truncations
    }

    /// Notifies registered clients of changes, once the system tables show them: drivers answer an
    /// event with a query of `system_schema` or `system.peers`.
    pub(crate) fn announce_changes(
        &self,
        before: &Arc<ClusterSnapshot>,
        after: &Arc<ClusterSnapshot>,
    ) {
        if before.members != after.members {
            let events = self.inner.news.changed(before, after);
            self.inner.announce_nodes(&events);
        }
        if Arc::ptr_eq(&before.schema, &after.schema) {
            return;
        }
        for event in schema_events::events(&before.schema, &after.schema) {
            self.inner.announce(&Event::SchemaChange(event.as_wire()));
        }
    }

    /// Loads the statements that were prepared before the last stop, on all shards. To be called on
    /// one shard, once the node's shards serve each other. Returns the number of statements.
    ///
    /// # Errors
    /// `system.prepared_statements` cannot be read.
    pub async fn load_prepared(&self) -> Result<usize, StoreError> {
        query::load_prepared(&self.inner.query).await
    }

    /// Changes the limits of requests that this shard begins from now on.
    pub fn set_guardrails(&self, guardrails: Guardrails) {
        *self.inner.query.guardrails.borrow_mut() = guardrails;
    }

    /// Allows or forbids protocols older than the current one for new connections of this shard.
    /// Existing connections continue.
    pub fn set_allow_older_protocols(&self, allowed: bool) {
        self.inner.allow_older_protocols.set(allowed);
    }

    /// Changes how long a verified password needs no new verification on this shard, and how many verified passwords
    /// it caches.
    pub fn set_credentials_cache(&self, validity: Duration, entries_max: usize) {
        self.inner.credentials.set_validity(validity);
        self.inner.credentials.set_entries_max(entries_max);
    }

    /// Changes the limits of requests per second that this shard enforces.
    pub fn set_rate_limits(&self, limits: RateLimits) {
        self.inner.rate_limits.set(limits);
        self.inner.limits_rates.set(limits.are_on());
    }

    /// Traces this share of the shard's requests, 0 to 1, although their clients do not ask for it.
    pub fn set_trace_probability(&self, probability: f64) {
        let of_all = probability.clamp(0.0, 1.0) * (1_u64 << 32) as f64;
        self.inner.traced_by_chance.set(of_all as u64);
    }

    /// Returns the value of the last [`CqlServer::set_trace_probability`].
    pub fn trace_probability(&self) -> f64 {
        self.inner.traced_by_chance.get() as f64 / (1_u64 << 32) as f64
    }

    /// Returns latencies by table of the requests to this shard; tables without any may be missing.
    pub fn table_latencies(&self) -> Vec<(TableId, TableLatencies)> {
        self.inner.query.latencies.of_tables()
    }

    /// Returns the roles whose passwords were recently verified on this shard.
    pub fn cached_credentials(&self) -> BTreeSet<String> {
        self.inner.credentials.users(self.inner.rt.now())
    }

    /// Removes the cached passwords of a role, or of all, on this shard: the next login verifies
    /// them. Returns true if one was still valid.
    pub fn forget_credentials(&self, role: Option<&str>) -> bool {
        self.inner.credentials.forget(role, self.inner.rt.now())
    }

    /// Lists the connections of this shard.
    pub fn clients(&self) -> Vec<ClientInfo> {
        self.inner.clients()
    }

    /// Records in the background what this node did for a traced request of another coordinator.
    pub fn record_peer_trace(&self, session: Uuid, events: Vec<coordinator::TracedEvent>) {
        let query = self.inner.query.clone();
        let task = async move {
            query::write_peer_trace(&query, session, events).await;
        };
        // The gate is closed: the node stops, its part of the trace is lost.
        let _ = self.inner.gate.spawn(&self.inner.rt, Group::Admin, "peer-trace", task);
    }

    /// Returns the number of connections of this shard.
    pub fn connection_count(&self) -> usize {
        self.inner.sessions.borrow().len()
    }

    /// Returns true once [`CqlServer::stop`] was called: no request is accepted any more.
    pub fn is_stopped(&self) -> bool {
        self.inner.is_draining()
    }

    /// Refuses new requests, finishes running ones, closes all connections of this shard.
    pub async fn stop(&self) {
        self.begin_to_stop();
        self.inner.gate.close().await;
        let desk = self.inner.desk.borrow_mut().take();
        if let Some(desk) = desk {
            desk.stop().await;
        }
    }

    /// Refuses requests and logins from now on, those of the API too.
    pub(crate) fn begin_to_stop(&self) {
        self.inner.is_stopping.set(true);
        self.end_connections();
    }

    pub(crate) fn end_connections(&self) {
        self.inner.query.stop();
        self.inner.drained.notify_waiters();
        let sessions: Vec<Rc<Session>> = self.inner.sessions.borrow().values().cloned().collect();
        for session in sessions {
            session.wake();
        }
    }
}

impl Server {
    /// A server without connections and ports.
    pub(crate) fn new(core: ServerCore) -> Server {
        let ServerCore { rt, query, settings, mesh, gate } = core;
        let mut salt = [0; 16];
        rt.random_fill(&mut salt);
        Server {
            query,
            mesh,
            gate,
            credentials: CredentialsCache::new(
                salt,
                settings.credentials_validity,
                settings.credentials_cache_max_entries,
            ),
            desk: RefCell::new(None),
            by_role: RefCell::default(),
            counters: Counters::new(&rt.telemetry()),
            news: News::default(),
            sessions: RefCell::default(),
            next_session: Cell::new(1),
            by_ip: RefCell::default(),
            commits_wait: Cell::new(false),
            waiting: Cell::new(0),
            drained: rt::sync::Notify::new(),
            is_stopping: Cell::new(false),
            traced_by_chance: Cell::new(0),
            allow_older_protocols: Cell::new(settings.allow_older_protocols),
            listening: Cell::new(0),
            tls: RefCell::new(None),
            warned_of_expiry: Cell::new(None),
            rate_limits: Cell::new(settings.rate_limits),
            limits_rates: Cell::new(settings.rate_limits.are_on()),
            handshakes: Semaphore::new(HANDSHAKES_MAX),
            settings,
            rt,
        }
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.query.is_draining()
    }

    /// Returns why the shard cannot let another request of this size wait; its connection holds
    /// `own` bytes.
    pub(crate) fn refuses(&self, bytes: usize, load: ConnectionLoad, own: usize) -> Option<String> {
        let waiting = self.waiting.get();
        if waiting >= self.settings.requests_per_shard_max {
            return Some(format!("{waiting} requests of this shard wait already"));
        }
        // A request larger than all the memory for requests is served while it is the only one.
        let has_others = waiting > 0 || self.query.account.is_full_beside(own);
        if has_others && !self.query.account.admits(bytes, load) {
            return Some("requests and their answers take too many bytes".to_owned());
        }
        None
    }

    /// Removes a completed request from the list of waiting ones.
    pub(crate) fn end_running(&self, session: &Session, stream: i16) {
        if let Some(buffer) = session.running.end(stream).and_then(Task::into_buffer) {
            self.query.recycle(buffer);
        }
    }

    pub(crate) fn enter(&self, taken: Freed) {
        self.waiting.set(self.waiting.get() + taken.count);
        self.query.account.add(taken.bytes + taken.count * REQUEST_BYTES);
        self.counters.waiting.set(i64::try_from(self.waiting.get()).unwrap_or(i64::MAX));
    }

    pub(crate) fn leave(&self, freed: Freed) {
        self.waiting.set(self.waiting.get().saturating_sub(freed.count));
        self.query.account.remove(freed.bytes + freed.count * REQUEST_BYTES);
        self.counters.waiting.set(i64::try_from(self.waiting.get()).unwrap_or(i64::MAX));
    }

    pub(crate) fn open_session(&self, peer: SocketAddr, tls: Option<TlsInfo>) -> Rc<Session> {
        let id = self.next_session.get();
        self.next_session.set(id + 1);
        let node = self.settings.query.storage_address;
        let session = Rc::new(Session::new(id, peer, node, tls));
        self.sessions.borrow_mut().insert(id, session.clone());
        self.counters.connections.add(1);
        session
    }

    pub(crate) fn close_session(&self, session: &Session) {
        session.has_ended.set(true);
        if self.sessions.borrow_mut().remove(&session.id).is_some() {
            self.counters.connections.add(-1);
        }
    }

    /// Returns the options of the SUPPORTED answer.
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
            shard_aware_port_ssl: self.settings.shard_aware_port_ssl,
        };
        supported.extend(sharding.supported_options());
        let version = env!("CARGO_PKG_VERSION").to_owned();
        supported.push((cql_wire::startup::HELENUS_VERSION, vec![version]));
        supported.push((scylla::USE_METADATA_ID, vec![String::new()]));
        supported.push((scylla::LWT_ADD_METADATA_MARK, vec![scylla::lwt_mark_value()]));
        supported
    }

    fn announce_nodes(&self, events: &[Event<'static>]) {
        let own = self.settings.query.broadcast_address;
        for event in events {
            let (Event::TopologyChange { address, .. } | Event::StatusChange { address, .. }) =
                event
            else {
                continue;
            };
            // Clients cannot distinguish this address from this node's, or it is unknown
            // (CASSANDRA-10052).
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

    /// Returns true if this request is sampled for tracing.
    pub(crate) fn is_traced_by_chance(&self) -> bool {
        match self.traced_by_chance.get() {
            0 => false,
            of_all => self.rt.random_u64() >> 32 < of_all,
        }
    }

    /// Lists the waiting statements of this shard's connections; at most as many as may wait on it.
    pub(crate) fn queries(&self) -> Vec<QueryInfo> {
        let (now, shard) = (self.rt.now(), self.rt.shard().0);
        let mut queries = Vec::new();
        for session in self.sessions.borrow().values() {
            let name = format!("Native-Transport-Requests-{shard}-{}", session.id);
            session.running.list(&name, now, &mut queries);
        }
        queries
    }

    /// Lists this shard's connections.
    pub(crate) fn clients(&self) -> Vec<ClientInfo> {
        let sessions = self.sessions.borrow();
        sessions
            .values()
            .map(|s| {
                let (driver_name, driver_version) = s.driver.borrow().clone();
                ClientInfo {
                    address: s.client.peer.ip(),
                    port: s.client.peer.port(),
                    options: s.options.borrow().clone(),
                    stage: match s.stage.get() {
                        Stage::Established => "established",
                        Stage::Authenticating => "authenticating",
                        Stage::Ready => "ready",
                    },
                    driver_name,
                    driver_version,
                    keyspace: s.client.keyspace.borrow().as_deref().map(str::to_owned),
                    protocol_version: s.version().number(),
                    requests: s.requests.get(),
                    user: s.client.user().as_deref().map(str::to_owned),
                    tls: s.tls.as_ref().map(|tls| (tls.protocol, tls.cipher_suite)),
                }
            })
            .collect()
    }
}
