//! The audit log of one shard: sees finished requests, queues their events, has them written.
//!
//! Owns: the destinations in force, changes of settings while the node runs, and on shard 0 the files. Never: formats
//! ([`crate::line`], [`crate::binary`]), what a full queue does ([`crate::binlog`]).
//!
//! A change of settings, led by shard 0: 1. every shard takes events into the new destinations and empties the old
//! ones; 2. shard 0 closes the old file; 3. every shard begins to write. No request passes unseen meanwhile.

use crate::binary;
use crate::binlog::rolling::Layout;
use crate::binlog::{
    Archiver, CLOSE_MAX, Destination, FileSettings, FileWriter, FullQueue, LogCounters, Pushed,
    RecordQueue, WAIT_MAX, Weighed, Write, WriteFailure, Writer, check_directory, wait_for,
};
use crate::counters::counters;
use crate::event::{Event, EventRecord, EventTimes, EventType, SharedEvent};
use crate::filter::Filter;
use crate::known_events::{KnownEvents, RoutedEvent, SinkSet, TEXT_BYTES_MAX};
use crate::line::{LineStyle, LineWriter, escape, syslog_message};
use crate::recorder::{Recorder, times};
use crate::settings::{AuditHelper, AuditSettings};
use crate::table;
use conf::AuditLogger;
use cql_wire::{Consistency, QueryParameters};
use query::{
    ClientState, Executor, Failure, ObservedRequest, ObservedStatement, Prepared, RequestObserver,
    RequestRecord, Taken,
};
use rt::sync::Semaphore;
use rt::{Gate, Group, Mesh, MeshError, Reply, Rt};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use stdx::{ShardId, Uuid};

/// Name of the log in messages.
const LOG: &str = "audit log";

/// A request between the audit logs of a node's shards.
pub enum AuditRequest {
    /// Take events by these settings, and empty the old destinations.
    Prepare(Arc<AuditSettings>),
    /// Begin to write.
    Begin,
    /// To shard 0: append to the file.
    Append(Vec<u8>),
    /// To shard 0: send to the syslog socket.
    Syslog(Vec<String>),
    /// To any shard, from the HTTP server's thread: record an administrative action.
    Admin(AdminEvent),
}

/// Answer of an audit log to another shard's.
pub type AuditAnswer = Result<(), WriteFailure>;

/// Channels between the audit logs of a node's shards.
pub type AuditMesh = Mesh<AuditRequest, AuditAnswer>;

/// Parts of an [`Auditor`].
pub struct AuditorParts {
    /// The shard.
    pub rt: Rt,
    /// Its statements.
    pub executor: Rc<Executor>,
    /// Channels between shards.
    pub mesh: AuditMesh,
    /// Services of the program; `None`: no archive command and no syslog.
    pub helper: Option<Arc<dyn AuditHelper>>,
    /// Settings of the start.
    pub settings: AuditSettings,
}

/// An administrative action, as an event.
pub struct AdminEvent {
    /// Role of the administrator, if any logged in.
    pub user: Option<String>,
    /// Address of the administrator.
    pub source: SocketAddr,
    /// Description of the action.
    pub operation: String,
    /// Reason of a refusal, or of a failure.
    pub refusal: Option<String>,
}

/// The audit log of one shard.
pub struct Auditor {
    rt: Rt,
    executor: Rc<Executor>,
    mesh: AuditMesh,
    helper: Option<Arc<dyn AuditHelper>>,
    settings: RefCell<Arc<AuditSettings>>,
    recorder: Recorder,
    counters: Rc<LogCounters>,
    destinations: RefCell<Vec<Rc<Sink>>>,
    /// Events that `destinations` got before.
    known: RefCell<KnownEvents>,
    /// Destinations of `destinations` that are not written to yet.
    is_prepared: Cell<bool>,
    gate: Gate,
    /// This auditor as it is installed.
    installed: RefCell<Option<Rc<dyn RequestObserver>>>,
    /// Shard 0: the files.
    files: FileWriter,
    /// One change of settings at a time.
    changing: Semaphore,
}

/// A destination and the events that it gets.
struct Sink {
    filter: Filter,
    to: Rc<Destination<EventRecord>>,
}

impl Auditor {
    /// Creates the audit log of a shard and serves the other shards. Nothing is logged before
    /// [`Auditor::change`].
    pub fn new(parts: AuditorParts) -> Rc<Auditor> {
        let AuditorParts { rt, executor, mesh, helper, settings } = parts;
        let archiver = helper.clone().map(|helper| -> Arc<dyn Archiver> { helper });
        let auditor = Rc::new(Auditor {
            counters: Rc::new(counters(&rt.telemetry())),
            gate: rt.gate("audit"),
            executor,
            mesh: mesh.clone(),
            helper,
            settings: RefCell::new(Arc::new(settings)),
            recorder: Recorder::default(),
            destinations: RefCell::default(),
            known: RefCell::default(),
            is_prepared: Cell::new(false),
            installed: RefCell::new(None),
            files: FileWriter::new(&rt, LOG, archiver),
            changing: Semaphore::new(1),
            rt: rt.clone(),
        });
        // The executor holds the installed auditor, which holds the executor.
        let at_end = Rc::downgrade(&auditor);
        rt.at_end(move || {
            if let Some(auditor) = at_end.upgrade() {
                auditor.uninstall();
                auditor.destinations.borrow_mut().clear();
            }
        });
        let weak = Rc::downgrade(&auditor);
        mesh.serve(&rt, move |request, reply| match weak.upgrade() {
            Some(auditor) => auditor.serve(request, reply),
            None => drop(reply),
        });
        auditor
    }

    /// Returns the settings in force.
    pub fn settings(&self) -> Arc<AuditSettings> {
        self.settings.borrow().clone()
    }

    /// Applies settings on all shards. Shard 0 only.
    ///
    /// # Errors
    /// In words. Nothing is changed if the settings cannot be used; a shard that does not answer, and a directory that
    /// fails during the change, leave them in force where they were applied.
    pub async fn change(&self, settings: AuditSettings) -> Result<(), String> {
        let _alone = self.changing.acquire(1).await;
        if settings.scylla.syslog && self.helper.is_none() {
            return Err("this program cannot write to a syslog socket".to_owned());
        }
        if !settings.options.log.archive_command.is_empty() && self.helper.is_none() {
            return Err("this program cannot run an archive_command".to_owned());
        }
        if settings.scylla.table {
            self.create_table().await?;
        }
        if settings.has_files() {
            let checked = check_directory(&self.rt, &settings.directory).await;
            checked.map_err(|error| format!("audit_logs_dir {error}"))?;
        }
        self.record_change(&settings);
        let settings = Arc::new(settings);
        let prepare = || AuditRequest::Prepare(settings.clone());
        let prepared = self.tell_all(prepare).await;
        let opened = self.files.swap(file_settings(&settings)).await;
        // In any case: what is prepared holds requests back until it is written.
        let begun = self.tell_all(|| AuditRequest::Begin).await;
        prepared.and(opened).and(begun)
    }

    /// Writes the queued events, for some seconds at most, and stops. To be called on every shard before the node stops
    /// serving requests between shards.
    pub async fn stop(&self) {
        self.uninstall();
        let old = std::mem::take(&mut *self.destinations.borrow_mut());
        self.begin_writing(&old);
        self.close(&old).await;
    }

    /// Closes the files; on shard 0, after all shards have stopped.
    pub async fn close_files(&self) {
        self.files.close().await;
        // A destination that hangs does not hold up the stop.
        let _ = self.rt.timeout(self.rt.now() + CLOSE_MAX, self.gate.close()).await;
    }

    /// Records a change of settings in the old destinations: the event of the request that changes them is made when it
    /// ends, which is too late for a log that is switched off.
    fn record_change(&self, new: &AuditSettings) {
        let (enabled, logger) = (new.options.enabled, new.options.logger.class());
        let operation = format!("change of the audit log: enabled {enabled}, logger {logger}");
        self.record_admin(AdminEvent { user: None, source: new.host, operation, refusal: None });
    }

    /// Records an administrative action.
    fn record_admin(&self, admin: AdminEvent) {
        if self.destinations.borrow().is_empty() {
            return;
        }
        let (event_type, operation) = match &admin.refusal {
            None => (EventType::AdminAction, admin.operation),
            Some(refusal) => (EventType::AdminRefused, format!("{}; {refusal}", admin.operation)),
        };
        let now = self.rt.wall().0.div_euclid(1000);
        let event = Event {
            event_type,
            statement: event_type,
            // A name that was not checked yet.
            user: admin.user.map(|user| escape(&user).into()),
            source: admin.source,
            batch: None,
            keyspace: None,
            scope: None,
            operation: escape(&operation).into(),
            consistency: None,
            is_error: admin.refusal.is_some(),
        };
        let times = EventTimes { at_millis: now, logged_millis: now };
        let record = EventRecord { event: SharedEvent::once(event), times };
        let passes = |sink: &&Rc<Sink>| sink.filter.passes(&record.event);
        for sink in self.destinations.borrow().iter().filter(passes) {
            if sink.to.is_lost_unlogged(self.rt.now(), record.clone()) {
                tracing::error!(
                    destination = sink.to.name(),
                    operation = &*record.event.operation,
                    "audit event of an administrative action dropped: the queue is full"
                );
            }
        }
    }

    fn serve(self: &Rc<Self>, request: AuditRequest, reply: Reply<AuditAnswer>) {
        let this = self.clone();
        let task = async move {
            let result = match request {
                AuditRequest::Prepare(settings) => {
                    this.prepare(settings).await;
                    Ok(())
                }
                AuditRequest::Begin => {
                    let destinations = this.destinations.borrow().clone();
                    this.begin_writing(&destinations);
                    Ok(())
                }
                AuditRequest::Append(bytes) => {
                    this.files.append(bytes).await.map_err(WriteFailure::from)
                }
                AuditRequest::Syslog(messages) => this.send_syslog(messages).await,
                AuditRequest::Admin(admin) => {
                    this.record_admin(admin);
                    Ok(())
                }
            };
            reply.send(result);
        };
        // A closed gate: the node stops, and the caller gets an error.
        let _ = self.gate.spawn(&self.rt, Group::Admin, "audit-request", task);
    }

    async fn tell_all(&self, request: impl Fn() -> AuditRequest) -> Result<(), String> {
        let shards = (0..self.rt.shard_count()).map(ShardId);
        let calls: Vec<_> =
            shards.map(|shard| self.mesh.call(&self.rt, shard, request())).collect();
        let mut result = Ok(());
        for call in calls {
            result = result.and(answered(call.await).map_err(|failure| failure.error));
        }
        result
    }

    /// Takes events into new destinations, and empties the old ones.
    async fn prepare(self: &Rc<Self>, settings: Arc<AuditSettings>) {
        let new = self.new_destinations(&settings);
        let is_on = !new.is_empty();
        *self.settings.borrow_mut() = settings;
        let old = std::mem::replace(&mut *self.destinations.borrow_mut(), new);
        *self.known.borrow_mut() = KnownEvents::default();
        if is_on {
            self.install();
        } else {
            self.uninstall();
        }
        if self.is_prepared.replace(true) {
            self.begin_writing(&old);
            self.is_prepared.set(true);
        }
        self.close(&old).await;
    }

    fn begin_writing(&self, destinations: &[Rc<Sink>]) {
        if !self.is_prepared.replace(false) {
            return;
        }
        for destination in destinations {
            let run = destination.to.clone().run(self.rt.clone());
            // A closed gate: the node stops.
            let _ = self.gate.spawn(&self.rt, Group::Admin, "audit-writer", run);
        }
    }

    async fn close(&self, destinations: &[Rc<Sink>]) {
        let deadline = self.rt.now() + CLOSE_MAX;
        for destination in destinations {
            destination.to.close(&self.rt, deadline).await;
        }
    }

    fn install(self: &Rc<Self>) {
        let mut installed = self.installed.borrow_mut();
        if installed.is_none() {
            let observer: Rc<dyn RequestObserver> = self.clone();
            self.executor.observers.add(observer.clone());
            *installed = Some(observer);
        }
    }

    fn uninstall(&self) {
        if let Some(observer) = self.installed.borrow_mut().take() {
            self.executor.observers.remove(&observer);
        }
    }

    fn new_destinations(&self, settings: &Arc<AuditSettings>) -> Vec<Rc<Sink>> {
        let shards = u64::from(self.rt.shard_count().max(1));
        let full = if settings.options.log.block { FullQueue::Wait } else { FullQueue::Drop };
        let limit = (settings.options.log.max_queue_weight / shards).max(1);
        let sink = |name, filter, write| {
            let writer = Writer { log: LOG, write, counters: self.counters.clone() };
            Rc::new(Sink {
                filter,
                to: Destination::new(name, RecordQueue::new(limit, full), writer),
            })
        };
        let mut new = Vec::new();
        if settings.has_files() {
            let filter = Filter::cassandra(&settings.options);
            let name = settings.options.logger.class();
            new.push(sink(name, filter, self.file_writer(settings)));
        }
        let scylla = || Filter::scylla(&settings.categories, &settings.tables, &settings.keyspaces);
        if settings.scylla.syslog {
            new.push(sink("syslog", scylla(), self.syslog_writer(settings)));
        }
        if settings.scylla.table {
            new.push(sink("table", scylla(), table::writer(&self.executor, settings.host)));
        }
        new
    }

    fn file_writer(&self, settings: &Arc<AuditSettings>) -> Write<EventRecord> {
        let style = line_style(settings);
        let (rt, mesh, logger) = (self.rt.clone(), self.mesh.clone(), settings.options.logger);
        Box::new(move |records| {
            let bytes = encode(records, &style, logger, rt.shard());
            let call = mesh.call(&rt, ShardId(0), AuditRequest::Append(bytes));
            Box::pin(async move { answered(call.await) })
        })
    }

    fn syslog_writer(&self, settings: &Arc<AuditSettings>) -> Write<EventRecord> {
        let style = line_style(settings);
        let (rt, mesh) = (self.rt.clone(), self.mesh.clone());
        Box::new(move |records| {
            let messages = records.iter().map(|record| syslog_message(record, &style)).collect();
            let call = mesh.call(&rt, ShardId(0), AuditRequest::Syslog(messages));
            Box::pin(async move { answered(call.await) })
        })
    }

    async fn create_table(&self) -> Result<(), String> {
        let host = self.settings.borrow().host;
        for text in [table::CREATE_KEYSPACE, table::CREATE_TABLE] {
            let parameters = QueryParameters::new(Consistency::One);
            let done = query::execute_for_node(&self.executor, text, &parameters).await;
            done.map_err(|failure| format!("audit.audit_log: {}", failure.message(host)))?;
        }
        Ok(())
    }

    async fn send_syslog(&self, messages: Vec<String>) -> AuditAnswer {
        let Some(helper) = self.helper.clone() else {
            return Err("this program cannot write to a syslog socket".to_owned().into());
        };
        let socket = self.settings.borrow().socket.clone();
        self.rt.offload("syslog", move || helper.send_syslog(&socket, &messages)).await
    }

    /// Queues an event. Adds the destinations that are over their limit.
    fn push(&self, record: &EventRecord, sinks: SinkSet, over: &mut Vec<Rc<Sink>>) {
        for (index, sink) in self.destinations.borrow().iter().enumerate() {
            if sinks & (1 << index) != 0
                && sink.to.push(record.clone()) == Pushed::Over
                && !over.iter().any(|known| Rc::ptr_eq(known, sink))
            {
                over.push(sink.clone());
            }
        }
    }

    /// Returns the destinations that take an event.
    fn sinks(&self, event: &Event) -> SinkSet {
        let destinations = self.destinations.borrow();
        let passing = destinations.iter().enumerate().filter(|(_, sink)| sink.filter.passes(event));
        passing.map(|(index, _)| 1 << index).sum()
    }

    /// Queues the events of a request that no earlier one was like.
    #[inline(never)]
    fn push_new(&self, client: &ClientState, request: &RequestRecord, over: &mut Vec<Rc<Sink>>) {
        let batch = match request.request {
            ObservedRequest::Batch { .. } => self.random_uuid(),
            _ => Uuid::nil(),
        };
        let times = times(request);
        let executed = executed(request);
        for event in self.recorder.events(client, request, batch) {
            let sinks = self.sinks(&event);
            let event = match executed {
                Some(statement) if event.operation.len() <= TEXT_BYTES_MAX => {
                    let event = SharedEvent::repeated(event);
                    let routed = RoutedEvent { event: event.clone(), sinks };
                    self.known.borrow_mut().insert(client, request, statement, routed);
                    event
                }
                _ => SharedEvent::once(event),
            };
            self.push(&EventRecord { event, times }, sinks, over);
        }
    }
}

/// The prepared statement of a request that executed it with success: its event is that of each further execution.
#[inline]
fn executed(request: &RequestRecord) -> Option<&Rc<Prepared>> {
    match &request.request {
        ObservedRequest::Execute(ObservedStatement::Prepared(statement))
            if request.failure.is_none() =>
        {
            Some(statement)
        }
        _ => None,
    }
}

impl RequestObserver for Auditor {
    fn admits(&self) -> bool {
        let admits = self.destinations.borrow().iter().all(|sink| sink.to.admits());
        if !admits {
            self.counters.refused.inc();
        }
        admits
    }

    fn finished(&self, client: &ClientState, request: &RequestRecord) -> Option<Taken> {
        let mut over = Vec::new();
        let known = self.known.borrow();
        let found = executed(request).and_then(|statement| known.get(client, request, statement));
        if let Some(routed) = found {
            let record = EventRecord { event: routed.event.clone(), times: times(request) };
            self.push(&record, routed.sinks, &mut over);
        } else {
            drop(known);
            self.push_new(client, request, &mut over);
        }
        if over.is_empty() {
            return None;
        }
        self.counters.waits.inc();
        let over = over.into_iter().map(|sink| sink.to.clone()).collect();
        let in_time = wait_for(&self.rt, over, WAIT_MAX);
        Some(Box::pin(async move {
            if in_time.await {
                return Ok(());
            }
            Err(Failure::overloaded("the request was executed, but the audit log cannot keep up"))
        }))
    }
}

impl Auditor {
    fn random_uuid(&self) -> Uuid {
        let mut bytes = [0; 16];
        self.rt.random_fill(&mut bytes);
        let number = u128::from_be_bytes(bytes);
        // Version 4, variant of RFC 4122.
        let number = number & !(0xf << 76) & !(0x3 << 62) | (4 << 76) | (2 << 62);
        Uuid::from_u128(number)
    }
}

/// Files by these settings; `None` without any.
fn file_settings(settings: &AuditSettings) -> Option<FileSettings> {
    let options = &settings.options;
    settings.has_files().then(|| FileSettings {
        directory: settings.directory.clone(),
        layout: match options.logger {
            AuditLogger::Bin => binary::layout(options.log.roll_cycle),
            AuditLogger::File | AuditLogger::NoOp => Layout::Text,
        },
        bytes_max: options.log.max_log_size,
        archive_command: options.log.archive_command.clone(),
        max_archive_retries: options.log.max_archive_retries,
    })
}

fn line_style(settings: &AuditSettings) -> LineStyle {
    let options = &settings.options;
    LineStyle {
        host: settings.host,
        pair: options.key_value_separator.clone(),
        field: options.field_separator.clone(),
    }
}

#[inline(never)]
fn encode(
    records: &[EventRecord],
    style: &LineStyle,
    logger: AuditLogger,
    shard: ShardId,
) -> Vec<u8> {
    // The weight of a record is about that of its line.
    let weight: u64 = records.iter().map(Weighed::weight).sum();
    let mut bytes = Vec::with_capacity(usize::try_from(weight).unwrap_or(0));
    let mut writer = LineWriter::new(style, shard.0);
    if logger == AuditLogger::Bin {
        for record in records {
            binary::push_record(&mut bytes, record.times.logged_millis, |bytes| {
                writer.push_fields(bytes, record);
            });
        }
    } else {
        for record in records {
            writer.push_line(&mut bytes, record);
        }
    }
    bytes
}

fn answered(answer: Result<AuditAnswer, MeshError>) -> AuditAnswer {
    answer.map_err(|error| error.to_string())?
}
