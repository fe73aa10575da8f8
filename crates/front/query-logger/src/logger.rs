//! The full query log of one shard, and on shard 0 its files.
//!
//! Owns: when the log is on, which files it begins with. Never: formats, what a full queue does.
//!
//! Led by shard 0. On: 1. the directory is created and old files are deleted or archived; 2. every shard queues and
//! writes. Off: 1. every shard writes its queue; 2. the file is closed.

use crate::recorder::{EncodedRecord, encoded};
use audit::binlog::{
    Archiver, BinaryFiles, CLOSE_MAX, Destination, FileSettings, FileWriter, FullQueue, Layout,
    LogCounters, Pushed, RecordQueue, WAIT_MAX, Writer, check_directory, wait_for,
};
use conf::{QueryLogOptions, RollCycle};
use query::{ClientState, Executor, Failure, RequestObserver, RequestRecord, Taken};
use query_log::format::{EXTENSION, QUERY_LOG};
use rt::sync::Semaphore;
use rt::{Gate, Group, Mesh, MeshError, Reply, Rt};
use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use stdx::{IoErrorKind, ShardId};
use telemetry::Shard;

/// Name of the log in messages.
const LOG: &str = "full query log";

/// Settings of a log that is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryLogSettings {
    /// `full_query_logging_options` with the changes of the command that switched it on.
    pub options: QueryLogOptions,
    /// Directory of its files.
    pub directory: String,
}

/// A request between the full query logs of a node's shards.
pub enum QueryLogRequest {
    /// Begin to log.
    Begin(Arc<QueryLogSettings>),
    /// Write what is queued, and stop.
    End,
    /// To shard 0: append to the file.
    Append(Vec<u8>),
}

/// Channels between the full query logs of a node's shards. Answers: an error in words.
pub type QueryLogMesh = Mesh<QueryLogRequest, Result<(), String>>;

/// Reason why the log is not switched on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnableError {
    /// It is on.
    #[error("Binlog is already configured")]
    IsOn,
    /// The directory is none. The text is Cassandra's.
    #[error("path exists and is not a directory or couldn't be created")]
    Directory,
    /// In words.
    #[error("{0}")]
    Failed(String),
}

/// Parts of a [`QueryLogger`].
pub struct QueryLoggerParts {
    /// The shard.
    pub rt: Rt,
    /// Its statements.
    pub executor: Rc<Executor>,
    /// Channels between shards.
    pub mesh: QueryLogMesh,
    /// Runs archive commands; `None`: there are none.
    pub archiver: Option<Arc<dyn Archiver>>,
}

/// The full query log of one shard.
pub struct QueryLogger {
    rt: Rt,
    executor: Rc<Executor>,
    mesh: QueryLogMesh,
    can_archive: bool,
    counters: Rc<LogCounters>,
    active: RefCell<Option<Active>>,
    gate: Gate,
    /// Shard 0: the files.
    files: FileWriter,
    /// One change at a time.
    changing: Semaphore,
}

/// A log that is on.
struct Active {
    settings: Arc<QueryLogSettings>,
    observer: Rc<dyn RequestObserver>,
    destination: Rc<Destination<EncodedRecord>>,
}

impl QueryLogger {
    /// Creates the log of a shard, which is off, and serves the other shards.
    pub fn new(parts: QueryLoggerParts) -> Rc<QueryLogger> {
        let QueryLoggerParts { rt, executor, mesh, archiver } = parts;
        let logger = Rc::new(QueryLogger {
            executor,
            mesh: mesh.clone(),
            can_archive: archiver.is_some(),
            counters: Rc::new(counters(&rt.telemetry())),
            active: RefCell::new(None),
            gate: rt.gate("full-query-log"),
            files: FileWriter::new(&rt, LOG, archiver),
            changing: Semaphore::new(1),
            rt: rt.clone(),
        });
        let at_end = Rc::downgrade(&logger);
        rt.at_end(move || {
            if let Some(logger) = at_end.upgrade() {
                drop(logger.uninstall());
            }
        });
        let weak = Rc::downgrade(&logger);
        mesh.serve(&rt, move |request, reply| match weak.upgrade() {
            Some(logger) => logger.serve(request, reply),
            None => drop(reply),
        });
        logger
    }

    /// Returns the settings of the log; `None` if it is off.
    pub fn settings(&self) -> Option<Arc<QueryLogSettings>> {
        Some(self.active.borrow().as_ref()?.settings.clone())
    }

    /// Switches the log on, on all shards. Its older files are deleted, or archived. Shard 0 only.
    ///
    /// # Errors
    /// It is on; its files cannot be written. The log is off then.
    pub async fn enable(&self, settings: QueryLogSettings) -> Result<(), EnableError> {
        let _alone = self.changing.acquire(1).await;
        if self.active.borrow().is_some() {
            return Err(EnableError::IsOn);
        }
        let archives = !settings.options.log.archive_command.is_empty();
        if archives && !self.can_archive {
            let text = "this program cannot run an archive_command".to_owned();
            return Err(EnableError::Failed(text));
        }
        if let Err(error) = check_directory(&self.rt, &settings.directory).await {
            tracing::warn!(directory = settings.directory, "log_dir {error}");
            return Err(EnableError::Directory);
        }
        if !archives {
            self.clean(&settings.directory).await.map_err(EnableError::Failed)?;
        }
        self.files.swap(Some(file_settings(&settings))).await.map_err(EnableError::Failed)?;
        let settings = Arc::new(settings);
        let begun = self.tell_all(|| QueryLogRequest::Begin(settings.clone())).await;
        if begun.is_err() {
            self.end().await;
        }
        begun.map_err(EnableError::Failed)
    }

    /// Switches the log off, on all shards. Its files stay. Shard 0 only.
    pub async fn disable(&self) {
        let _alone = self.changing.acquire(1).await;
        self.end().await;
    }

    /// Switches the log off and deletes its files, those in `configured` too. Shard 0 only.
    ///
    /// # Errors
    /// A file cannot be deleted; in words.
    pub async fn reset(&self, configured: Option<&str>) -> Result<(), String> {
        let _alone = self.changing.acquire(1).await;
        let used = self.settings().map(|settings| settings.directory.clone());
        self.end().await;
        let mut cleaned = Ok(());
        let directories = used.as_deref().into_iter().chain(configured);
        for directory in directories {
            cleaned = cleaned.and(self.clean(directory).await);
        }
        cleaned
    }

    /// Writes the queued records, for some seconds at most, and stops. To be called on every shard before the node
    /// stops serving requests between shards.
    pub async fn stop(&self) {
        self.end_here().await;
    }

    /// Closes the files; on shard 0, after all shards have stopped.
    pub async fn close_files(&self) {
        self.files.close().await;
        // A disk that hangs does not hold up the stop.
        let _ = self.rt.timeout(self.rt.now() + CLOSE_MAX, self.gate.close()).await;
    }

    async fn end(&self) {
        if let Err(error) = self.tell_all(|| QueryLogRequest::End).await {
            tracing::error!(error, "a shard did not end the full query log");
        }
        if let Err(error) = self.files.swap(None).await {
            tracing::error!(error, "cannot close the full query log");
        }
    }

    /// Deletes the files of the log in a directory. Other files stay: the directory comes from a command.
    async fn clean(&self, directory: &str) -> Result<(), String> {
        let fs = self.rt.fs();
        let failed = |name: &str, error| format!("{directory}{name} cannot be cleaned: {error}");
        let entries = match fs.read_dir(directory).await {
            Err(error) if error.kind == IoErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(|error| failed("", error))?,
        };
        let files: Vec<_> =
            entries.into_iter().filter(|e| !e.is_dir).map(|e| (e.name, e.len)).collect();
        for (name, _) in layout(RollCycle::HOURLY).finished(&files, "") {
            let name = format!("/{name}");
            match fs.remove_file(&format!("{directory}{name}")).await {
                Err(error) if error.kind != IoErrorKind::NotFound => {
                    return Err(failed(&name, error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn serve(self: &Rc<Self>, request: QueryLogRequest, reply: Reply<Result<(), String>>) {
        let this = self.clone();
        let task = async move {
            let result = match request {
                QueryLogRequest::Begin(settings) => {
                    this.begin_here(settings);
                    Ok(())
                }
                QueryLogRequest::End => {
                    this.end_here().await;
                    Ok(())
                }
                QueryLogRequest::Append(bytes) => this.files.append(bytes).await,
            };
            reply.send(result);
        };
        // A closed gate: the node stops, and the caller gets an error.
        let _ = self.gate.spawn(&self.rt, Group::Admin, "query-log-request", task);
    }

    async fn tell_all(&self, request: impl Fn() -> QueryLogRequest) -> Result<(), String> {
        let shards = (0..self.rt.shard_count()).map(ShardId);
        let calls: Vec<_> =
            shards.map(|shard| self.mesh.call(&self.rt, shard, request())).collect();
        let mut result = Ok(());
        for call in calls {
            result = result.and(answered(call.await));
        }
        result
    }

    fn begin_here(self: &Rc<Self>, settings: Arc<QueryLogSettings>) {
        if self.active.borrow().is_some() {
            return;
        }
        let destination = self.destination(&settings.options);
        let run = destination.clone().run(self.rt.clone());
        // A closed gate: the node stops.
        let _ = self.gate.spawn(&self.rt, Group::Admin, "query-log-writer", run);
        let observer: Rc<dyn RequestObserver> =
            Rc::new(Observer { logger: Rc::downgrade(self), destination: destination.clone() });
        self.executor.observers.add(observer.clone());
        *self.active.borrow_mut() = Some(Active { settings, observer, destination });
    }

    fn uninstall(&self) -> Option<Active> {
        let active = self.active.borrow_mut().take()?;
        self.executor.observers.remove(&active.observer);
        Some(active)
    }

    async fn end_here(&self) {
        if let Some(active) = self.uninstall() {
            active.destination.close(&self.rt, self.rt.now() + CLOSE_MAX).await;
        }
    }

    fn destination(&self, options: &QueryLogOptions) -> Rc<Destination<EncodedRecord>> {
        let shards = u64::from(self.rt.shard_count().max(1));
        let full = if options.log.block { FullQueue::Wait } else { FullQueue::Drop };
        let limit = (options.log.max_queue_weight / shards).max(1);
        let (rt, mesh) = (self.rt.clone(), self.mesh.clone());
        let writer = Writer {
            log: LOG,
            write: Box::new(move |records: &[EncodedRecord]| {
                let bytes: Vec<&[u8]> = records.iter().map(|record| &*record.0).collect();
                let append = QueryLogRequest::Append(bytes.concat());
                let call = mesh.call(&rt, ShardId(0), append);
                Box::pin(async move { Ok(answered(call.await)?) })
            }),
            counters: self.counters.clone(),
        };
        Destination::new("files", RecordQueue::new(limit, full), writer)
    }
}

/// A log that is on, as the executor calls it.
struct Observer {
    logger: Weak<QueryLogger>,
    destination: Rc<Destination<EncodedRecord>>,
}

impl RequestObserver for Observer {
    fn wants_details(&self) -> bool {
        true
    }

    fn admits(&self) -> bool {
        let admits = self.destination.admits();
        if let (false, Some(logger)) = (admits, self.logger.upgrade()) {
            logger.counters.refused.inc();
        }
        admits
    }

    fn finished(&self, _: &ClientState, request: &RequestRecord) -> Option<Taken> {
        let record = encoded(request)?;
        let logger = self.logger.upgrade()?;
        if self.destination.push(record) != Pushed::Over {
            return None;
        }
        logger.counters.waits.inc();
        let in_time = wait_for(&logger.rt, vec![self.destination.clone()], WAIT_MAX);
        Some(Box::pin(async move {
            if in_time.await {
                return Ok(());
            }
            Err(Failure::overloaded(
                "the request was executed, but the full query log cannot keep up",
            ))
        }))
    }
}

fn layout(cycle: RollCycle) -> Layout {
    Layout::Binary(BinaryFiles { cycle, extension: EXTENSION, header: QUERY_LOG.header() })
}

fn file_settings(settings: &QueryLogSettings) -> FileSettings {
    let options = &settings.options;
    FileSettings {
        directory: settings.directory.clone(),
        layout: layout(options.log.roll_cycle),
        bytes_max: options.log.max_log_size,
        archive_command: options.log.archive_command.clone(),
        max_archive_retries: options.log.max_archive_retries,
    }
}

fn answered(answer: Result<Result<(), String>, MeshError>) -> Result<(), String> {
    answer.map_err(|error| error.to_string())?
}

fn counters(shard: &Shard) -> LogCounters {
    let counter = |name, help| shard.counter(name, help, &[]);
    LogCounters {
        records: counter(
            "query_log_records_total",
            "records of the full query log that were queued",
        ),
        dropped: counter(
            "query_log_records_dropped_total",
            "records of the full query log that were not written",
        ),
        failures: counter(
            "query_log_write_failures_total",
            "attempts to write the full query log that failed",
        ),
        waits: counter(
            "query_log_waits_total",
            "answers that waited because the queue of the full query log was full",
        ),
        refused: counter(
            "query_log_requests_refused_total",
            "times at which requests were refused because the queue of the full query log was full",
        ),
        queue_bytes: shard.gauge(
            "query_log_queue_bytes",
            "bytes of the full query log that are not written",
            &[],
        ),
    }
}
