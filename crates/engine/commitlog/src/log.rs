//! The writer: append into a buffer, hand it to the kernel, sync, mark.
//!
//! `append` is synchronous and gives positions; `commit` writes everything appended so far with one
//! call per segment. The first poll of the write happens inside `commit`; a write that has to wait
//! is finished by a task of the log's gate, so a dropped `commit` never leaves a write half done.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use rt::{Buf, File, Fs, Gate, Group, OpenOptions, Rt};
use schema::Table;
use stdx::{HostId, Instant, IoError, IoErrorKind, TableId, TimestampMicros};

use crate::error::LogError;
use crate::format::{self, LogPosition, SegmentHeader, SegmentId};
use crate::signal::Signal;

/// Larger buffers are given back after a burst.
const SPARE_BYTES_MAX: usize = 1 << 20;
const BUFFER_BYTES: usize = 64 * 1024;

/// When `commit` may return, beside the write to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// At once; a sync every `period`. A power cut may cost the unsynced suffix.
    Periodic {
        /// Between two syncs; Cassandra's default is 10 s.
        period: Duration,
    },
    /// After a sync that began after the write.
    Batch,
    /// As `Batch`, with at most one sync per `window`.
    Group {
        /// Between two syncs.
        window: Duration,
    },
}

/// What a log is made of.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// The directory of all shards' segments.
    pub directory: String,
    /// This node.
    pub host: HostId,
    /// Number of this run of the node, the same on all shards and different from every earlier
    /// run's (the wall clock at start, in microseconds).
    pub run: u64,
    /// When commits return.
    pub sync: SyncMode,
    /// A segment is closed when a record would make it longer; at least 64 KiB. A record may take
    /// half of it.
    pub segment_bytes: u64,
    /// This shard's share of the log's total size; above it the oldest tables are flushed.
    pub total_bytes_max: u64,
}

/// A table version as its writer uses it: what to append before the first mutation per segment.
pub struct TableTicket {
    descriptor: Vec<u8>,
    described_in: Cell<SegmentId>,
}

impl TableTicket {
    /// For a table version.
    pub fn new(table: &Table) -> TableTicket {
        TableTicket {
            descriptor: format::encode_descriptor(table),
            described_in: Cell::new(SegmentId(0)),
        }
    }
}

/// Bytes of one segment that wait to be written.
struct Chunk {
    segment: SegmentId,
    /// Where in the file they go.
    offset: u64,
    buf: Buf,
}

impl Chunk {
    fn end(&self) -> u64 {
        self.offset + self.buf.len() as u64
    }
}

#[derive(Clone)]
struct SegmentFile {
    file: File,
    /// Bytes of it that the kernel has.
    written: u64,
    /// Bytes of it that are synced.
    synced: u64,
    /// Its directory entry is synced.
    entry_synced: bool,
    /// Nothing is appended to it any more.
    sealed: bool,
}

struct State {
    queue: VecDeque<Chunk>,
    /// This run's segments that have a file.
    files: BTreeMap<SegmentId, SegmentFile>,
    /// Bytes appended, written, synced since open, over all segments.
    appended: u64,
    written: u64,
    synced: u64,
    writing: bool,
    syncing: bool,
    next_sequence: u64,
    failed: Option<LogError>,
    disk_full: Option<IoError>,
    spare: Option<Buf>,
    closed: bool,
    last_sync: Instant,
}

struct Inner {
    rt: Rt,
    fs: Fs,
    gate: Gate,
    options: LogOptions,
    old: RefCell<VecDeque<SegmentId>>,
    state: RefCell<State>,
    signal: Signal,
    bytes_total: telemetry::Counter,
    syncs_total: telemetry::Counter,
    sync_micros: telemetry::Histogram,
}

/// The log of one shard. Cheap to clone.
#[derive(Clone)]
pub struct CommitLog {
    inner: Rc<Inner>,
}

impl CommitLog {
    /// Opens the directory (made if missing) and starts the sync task. Nothing is written before
    /// the first append. Old segments stay until [`CommitLog::release_old`].
    ///
    /// # Errors
    /// `Io`: the directory cannot be made or read.
    pub async fn open(rt: &Rt, options: LogOptions) -> Result<CommitLog, LogError> {
        let fs = rt.fs();
        fs.create_dir_durably(&options.directory).await?;
        let mut old: Vec<SegmentId> = fs
            .read_dir(&options.directory)
            .await?
            .iter()
            .filter_map(|entry| SegmentId::from_file_name(&entry.name))
            .collect();
        old.sort_unstable();
        let after_old = old.last().map_or(0, |id| id.sequence() + 1);
        let by_clock = u64::try_from(rt.wall().millis()).unwrap_or(0);
        let telemetry = rt.telemetry();
        let state = State {
            queue: VecDeque::new(),
            files: BTreeMap::new(),
            appended: 0,
            written: 0,
            synced: 0,
            writing: false,
            syncing: false,
            next_sequence: after_old.max(by_clock),
            failed: None,
            disk_full: None,
            spare: None,
            closed: false,
            last_sync: rt.now(),
        };
        let inner = Inner {
            fs,
            gate: rt.gate("commitlog"),
            old: RefCell::new(old.into()),
            state: RefCell::new(state),
            signal: Signal::default(),
            bytes_total: telemetry.counter(
                "commitlog_written_bytes_total",
                "bytes handed to the kernel for the commit log",
                &[],
            ),
            syncs_total: telemetry.counter(
                "commitlog_syncs_total",
                "completed syncs of the commit log",
                &[],
            ),
            sync_micros: telemetry.histogram(
                "commitlog_sync_micros",
                "duration of commit-log syncs, microseconds",
                &[],
            ),
            rt: rt.clone(),
            options,
        };
        let log = CommitLog { inner: Rc::new(inner) };
        log.start_sync_task();
        Ok(log)
    }

    fn start_sync_task(&self) {
        let period = match self.inner.options.sync {
            SyncMode::Periodic { period } => period,
            SyncMode::Group { window } => window,
            SyncMode::Batch => return,
        };
        let log = self.clone();
        let task = async move {
            loop {
                log.inner.rt.sleep(period).await;
                if log.inner.state.borrow().closed {
                    return;
                }
                // A failure is kept in the state, where every later commit finds it.
                let _ = log.sync().await;
            }
        };
        // A closed gate means that the log is being closed already.
        let _ = self.inner.gate.spawn(&self.inner.rt, Group::Statement, "commitlog-sync", task);
    }

    pub(crate) fn fs(&self) -> &Fs {
        &self.inner.fs
    }

    pub(crate) fn options(&self) -> &LogOptions {
        &self.inner.options
    }

    pub(crate) fn shard(&self) -> (rt::ShardId, u16) {
        (self.inner.rt.shard(), self.inner.rt.shard_count())
    }

    pub(crate) fn old_segments(&self) -> Vec<SegmentId> {
        self.inner.old.borrow().iter().copied().collect()
    }

    pub(crate) fn forget_old(&self, id: SegmentId) {
        self.inner.old.borrow_mut().retain(|o| *o != id);
    }

    pub(crate) fn path_of(&self, id: SegmentId) -> String {
        format!("{}/{}", self.inner.options.directory, id.file_name())
    }

    /// Largest record payload.
    pub fn record_bytes_max(&self) -> usize {
        usize::try_from(self.inner.options.segment_bytes / 2).unwrap_or(usize::MAX)
    }

    /// Appends a mutation; it is durable after the next [`CommitLog::commit`].
    ///
    /// # Errors
    /// `TooLarge`, `Failed`, `Closed`; nothing was appended then.
    pub fn append(&self, ticket: &TableTicket, mutation: &[u8]) -> Result<LogPosition, LogError> {
        let max = self.record_bytes_max();
        if mutation.len() > max {
            return Err(LogError::TooLarge { bytes: mutation.len(), max });
        }
        let mut state = self.inner.state.borrow_mut();
        state.check_open()?;
        self.reserve(&mut state, mutation.len());
        let mut at = state.end();
        if ticket.described_in.get() != at.segment {
            self.reserve(&mut state, ticket.descriptor.len() + mutation.len() + 16);
            at = state.end();
            state.put(|buf| format::encode_descriptor_record(buf, at, &ticket.descriptor));
            ticket.described_in.set(at.segment);
            at = state.end();
        }
        state.put(|buf| format::encode_mutation(buf, at, mutation));
        Ok(at)
    }

    /// Appends a TRUNCATE of this shard's slice of a table.
    ///
    /// # Errors
    /// As [`CommitLog::append`].
    pub fn append_truncation(
        &self,
        table: TableId,
        truncated_at: TimestampMicros,
        generations: &[u64],
    ) -> Result<LogPosition, LogError> {
        let mut state = self.inner.state.borrow_mut();
        state.check_open()?;
        self.reserve(&mut state, 64 + generations.len() * 8);
        let at = state.end();
        let shard = (self.inner.rt.shard().0, self.inner.rt.shard_count());
        state.put(|buf| {
            format::encode_truncation(buf, at, table, truncated_at, shard, generations);
        });
        Ok(at)
    }

    /// Makes sure that the last chunk has room for a record, else begins the next segment.
    fn reserve(&self, state: &mut State, payload: usize) {
        let need = format::record_bytes(payload) as u64;
        let full = match state.queue.back() {
            Some(chunk) => chunk.end() + need > self.inner.options.segment_bytes,
            None => match state.files.last_key_value() {
                Some((_, file)) => {
                    file.sealed || file.written + need > self.inner.options.segment_bytes
                }
                None => true,
            },
        };
        if full {
            self.begin_segment(state);
        } else if state.queue.is_empty()
            && let Some((id, file)) = state.files.last_key_value()
        {
            let (segment, offset) = (*id, file.written);
            let buf = state.spare.take().unwrap_or_else(|| Buf::with_capacity(BUFFER_BYTES));
            state.queue.push_back(Chunk { segment, offset, buf });
        }
    }

    fn begin_segment(&self, state: &mut State) {
        let previous = state.end_if_any().unwrap_or_default();
        if state.queue.is_empty()
            && let Some(mut last) = state.files.last_entry()
        {
            last.get_mut().sealed = true;
        }
        let id = SegmentId::new(state.next_sequence, self.inner.rt.shard().0);
        state.next_sequence += 1;
        let header = SegmentHeader {
            id,
            host: self.inner.options.host,
            shard: self.inner.rt.shard().0,
            shards: self.inner.rt.shard_count(),
            created: self.inner.rt.wall().0,
            run: self.inner.options.run,
            previous,
        };
        let mut bytes = Vec::with_capacity(format::HEADER_BYTES);
        header.encode(&mut bytes);
        let mut buf = state.spare.take().unwrap_or_else(|| Buf::with_capacity(BUFFER_BYTES));
        buf.extend_from_slice(&bytes);
        state.appended += bytes.len() as u64;
        state.queue.push_back(Chunk { segment: id, offset: 0, buf });
    }

    /// Where the next record will lie; everything appended so far is below.
    pub fn position(&self) -> LogPosition {
        self.inner.state.borrow().end_if_any().unwrap_or_default()
    }

    /// Hands everything appended so far to the kernel, in batch and group mode to the disk.
    ///
    /// # Errors
    /// `DiskFull`: what was appended stays in the buffer and is written by a later commit.
    /// `Failed`: for ever.
    pub async fn commit(&self) -> Result<(), LogError> {
        let target = {
            let state = self.inner.state.borrow();
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            state.appended
        };
        self.write_until(target).await?;
        match self.inner.options.sync {
            SyncMode::Periodic { .. } => Ok(()),
            SyncMode::Batch => self.sync_until(target).await,
            SyncMode::Group { .. } => {
                let inner = &self.inner;
                inner
                    .signal
                    .wait(|| {
                        let state = inner.state.borrow();
                        if let Some(error) = &state.failed {
                            return Some(Err(error.clone()));
                        }
                        (state.synced >= target).then_some(Ok(()))
                    })
                    .await
            }
        }
    }

    async fn write_until(&self, target: u64) -> Result<(), LogError> {
        loop {
            let begins = {
                let mut state = self.inner.state.borrow_mut();
                if state.written >= target {
                    return Ok(());
                }
                if let Some(error) = &state.failed {
                    return Err(error.clone());
                }
                !std::mem::replace(&mut state.writing, true)
            };
            if begins {
                self.start_write().await;
                let state = self.inner.state.borrow();
                if state.written < target
                    && let (false, Some(error)) = (state.writing, &state.disk_full)
                {
                    return Err(LogError::DiskFull(error.clone()));
                }
                continue;
            }
            let inner = &self.inner;
            inner
                .signal
                .wait(|| {
                    let state = inner.state.borrow();
                    (state.written >= target || !state.writing || state.failed.is_some())
                        .then_some(())
                })
                .await;
            let state = self.inner.state.borrow();
            if state.written < target
                && let Some(error) = &state.disk_full
            {
                return Err(LogError::DiskFull(error.clone()));
            }
        }
    }

    /// Polls the write once here; when it has to wait, a task of the gate goes on with it.
    async fn start_write(&self) {
        let log = self.clone();
        let mut write: Pin<Box<dyn Future<Output = ()>>> =
            Box::pin(async move { log.write_all().await });
        let done = poll_fn(|cx| Poll::Ready(write.as_mut().poll(cx).is_ready())).await;
        if !done {
            let spawned =
                self.inner.gate.spawn(&self.inner.rt, Group::Statement, "commitlog-write", write);
            if spawned.is_err() {
                let mut state = self.inner.state.borrow_mut();
                state.writing = false;
                state.failed.get_or_insert(LogError::Closed);
                drop(state);
                self.inner.signal.notify();
            }
        }
    }

    /// Writes chunks until none is left. Runs at most once at a time (`writing`).
    async fn write_all(&self) {
        loop {
            let (segment, offset, buf) = {
                let mut state = self.inner.state.borrow_mut();
                let spare = match state.queue.front() {
                    Some(chunk) if !chunk.buf.is_empty() => state.spare.take().unwrap_or_default(),
                    _ => Buf::default(),
                };
                let count = state.queue.len();
                match state.queue.front_mut() {
                    Some(chunk) if !chunk.buf.is_empty() => {
                        let offset = chunk.offset;
                        let buf = std::mem::replace(&mut chunk.buf, spare);
                        // Appends from now on go behind what is being written.
                        chunk.offset = offset + buf.len() as u64;
                        (chunk.segment, offset, buf)
                    }
                    Some(_) if count > 1 => {
                        let chunk = state.queue.pop_front();
                        if let Some(chunk) = chunk
                            && state.queue.front().is_some_and(|c| c.segment != chunk.segment)
                            && let Some(file) = state.files.get_mut(&chunk.segment)
                        {
                            file.sealed = true;
                        }
                        continue;
                    }
                    _ => {
                        if let Some(chunk) = state.queue.pop_front() {
                            state.keep_spare(chunk.buf);
                        }
                        state.writing = false;
                        break;
                    }
                }
            };
            let len = buf.len() as u64;
            let file = match self.file_of(segment).await {
                Ok(file) => file,
                Err(error) => {
                    self.write_failed(offset, buf, error);
                    break;
                }
            };
            let (mut buf, result) = file.write_at(buf, offset).await;
            if let Err(error) = result {
                self.write_failed(offset, buf, error);
                break;
            }
            self.inner.bytes_total.add(len);
            buf.clear();
            let mut state = self.inner.state.borrow_mut();
            state.disk_full = None;
            state.written += len;
            if let Some(file) = state.files.get_mut(&segment) {
                file.written = offset + len;
            }
            state.keep_spare(buf);
        }
        self.inner.signal.notify();
    }

    fn write_failed(&self, offset: u64, buf: Buf, error: IoError) {
        let mut state = self.inner.state.borrow_mut();
        state.writing = false;
        if let Some(chunk) = state.queue.front_mut() {
            // Put the bytes back in front of what was appended meanwhile.
            let mut whole = buf;
            whole.extend_from_slice(&chunk.buf);
            chunk.buf = whole;
            chunk.offset = offset;
        }
        match LogError::of_write(error) {
            LogError::DiskFull(error) => state.disk_full = Some(error),
            error => {
                state.failed.get_or_insert(error);
            }
        }
    }

    async fn file_of(&self, segment: SegmentId) -> Result<File, IoError> {
        if let Some(file) = self.inner.state.borrow().files.get(&segment) {
            return Ok(file.file.clone());
        }
        let options =
            OpenOptions { read: true, write: true, create: true, ..OpenOptions::default() };
        let file = self.inner.fs.open(&self.path_of(segment), options).await?;
        let entry = SegmentFile {
            file: file.clone(),
            written: 0,
            synced: 0,
            entry_synced: false,
            sealed: false,
        };
        self.inner.state.borrow_mut().files.insert(segment, entry);
        Ok(file)
    }

    /// Writes and syncs everything appended so far, whatever the mode.
    ///
    /// # Errors
    /// As [`CommitLog::commit`].
    pub async fn sync(&self) -> Result<(), LogError> {
        let target = self.inner.state.borrow().appended;
        self.write_until(target).await?;
        self.sync_until(target).await
    }

    async fn sync_until(&self, target: u64) -> Result<(), LogError> {
        loop {
            {
                let mut state = self.inner.state.borrow_mut();
                if let Some(error) = &state.failed {
                    return Err(error.clone());
                }
                if state.synced >= target {
                    return Ok(());
                }
                if !state.syncing {
                    state.syncing = true;
                    drop(state);
                    let log = self.clone();
                    let task = async move { log.sync_once().await };
                    let spawned =
                        self.inner.gate.spawn(&self.inner.rt, Group::Statement, "sync", task);
                    if spawned.is_err() {
                        self.inner.state.borrow_mut().syncing = false;
                        return Err(LogError::Closed);
                    }
                }
            }
            let inner = &self.inner;
            inner
                .signal
                .wait(|| {
                    let state = inner.state.borrow();
                    (state.synced >= target || !state.syncing || state.failed.is_some())
                        .then_some(())
                })
                .await;
        }
    }

    /// Syncs every segment that has unsynced bytes, oldest first, then appends the marker.
    async fn sync_once(&self) {
        let began = self.inner.rt.now();
        let (goal, files, needs_entry) = {
            let state = self.inner.state.borrow();
            let files: Vec<(SegmentId, File, u64)> = state
                .files
                .iter()
                .filter(|(_, f)| f.written > f.synced)
                .map(|(id, f)| (*id, f.file.clone(), f.written))
                .collect();
            (state.written, files, state.files.values().any(|f| !f.entry_synced))
        };
        let result = self.sync_files(&files, needs_entry).await;
        {
            let mut state = self.inner.state.borrow_mut();
            state.syncing = false;
            match result {
                Err(error) => {
                    // After a failed fsync nobody knows what is on the disk: no later one can be
                    // believed either.
                    state.failed.get_or_insert(LogError::Failed(error));
                }
                Ok(()) => {
                    state.last_sync = began;
                    state.synced = state.synced.max(goal);
                    for (id, _, written) in &files {
                        if let Some(file) = state.files.get_mut(id) {
                            file.synced = *written;
                        }
                    }
                    for file in state.files.values_mut() {
                        file.entry_synced |= file.synced > 0;
                    }
                    if let Some((segment, _, offset)) = files.last() {
                        let synced = LogPosition { segment: *segment, offset: *offset };
                        self.append_marker(&mut state, synced);
                    }
                    self.inner.syncs_total.inc();
                    let took = self.inner.rt.now().since(began).as_micros();
                    self.inner.sync_micros.record(u64::try_from(took).unwrap_or(u64::MAX));
                }
            }
        }
        self.inner.signal.notify();
        let target = self.inner.state.borrow().appended;
        // The marker itself waits for no one; a failure shows at the next commit.
        let _ = self.write_until(target).await;
    }

    async fn sync_files(
        &self,
        files: &[(SegmentId, File, u64)],
        needs_entry: bool,
    ) -> Result<(), IoError> {
        for (_, file, _) in files {
            file.sync_data().await?;
        }
        if needs_entry {
            self.inner.fs.sync_dir(&self.inner.options.directory).await?;
        }
        Ok(())
    }

    /// The marker counts as appended, but not as something that needs a sync of its own.
    fn append_marker(&self, state: &mut State, synced: LogPosition) {
        self.reserve(state, 24);
        let at = state.end();
        let before = state.appended;
        state.put(|buf| format::encode_marker(buf, at, synced));
        // Markers are not waited for: when nothing else was unsynced, nothing is now.
        if state.synced == before {
            state.synced = state.appended;
        }
    }

    /// Deletes this run's segments that lie wholly below `position`, oldest first, and none while
    /// segments of earlier runs are there (INV-log-4).
    ///
    /// # Errors
    /// `Io`: a file could not be removed.
    pub async fn release_below(&self, position: LogPosition) -> Result<(), LogError> {
        loop {
            if !self.inner.old.borrow().is_empty() {
                return Ok(());
            }
            let segment = {
                let state = self.inner.state.borrow();
                match state.files.first_key_value() {
                    Some((id, file))
                        if *id < position.segment
                            && file.sealed
                            && state.queue.front().is_none_or(|c| c.segment != *id) =>
                    {
                        *id
                    }
                    _ => return Ok(()),
                }
            };
            match self.inner.fs.remove_file(&self.path_of(segment)).await {
                Ok(()) => {}
                Err(error) if error.kind == IoErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
            self.inner.state.borrow_mut().files.remove(&segment);
        }
    }

    /// Deletes all segments of this run and takes no more appends: everything in them is flushed
    /// and the node is drained.
    ///
    /// # Errors
    /// `Io`: a file could not be removed.
    pub async fn release_all(&self) -> Result<(), LogError> {
        let after = {
            let mut state = self.inner.state.borrow_mut();
            state.closed = true;
            if let Some(mut last) = state.files.last_entry() {
                last.get_mut().sealed = true;
            }
            SegmentId::new(state.next_sequence, 0)
        };
        self.release_below(LogPosition { segment: after, offset: 0 }).await
    }

    /// Bytes of this run's segments.
    pub fn total_bytes(&self) -> u64 {
        self.inner.state.borrow().files.values().map(|f| f.written).sum()
    }

    /// When the log takes more than its share: the end of its oldest segment. Flushing every table
    /// whose first unflushed mutation lies below frees it.
    pub fn oldest_over_limit(&self) -> Option<LogPosition> {
        if self.total_bytes() <= self.inner.options.total_bytes_max {
            return None;
        }
        let state = self.inner.state.borrow();
        let (id, file) = state.files.first_key_value()?;
        file.sealed.then_some(LogPosition { segment: *id, offset: u64::MAX })
    }

    /// The error of the last write, when it was a full disk and no write succeeded since.
    pub fn disk_full(&self) -> Option<IoError> {
        self.inner.state.borrow().disk_full.clone()
    }

    /// The failure after which nothing more is written.
    pub fn failure(&self) -> Option<LogError> {
        self.inner.state.borrow().failed.clone()
    }

    /// Syncs what is there and refuses everything after. Does not delete segments.
    ///
    /// # Errors
    /// As [`CommitLog::commit`].
    pub async fn close(&self) -> Result<(), LogError> {
        if self.inner.state.borrow().closed {
            return Ok(());
        }
        let result = self.sync().await;
        self.inner.state.borrow_mut().closed = true;
        result
    }
}

impl State {
    fn check_open(&self) -> Result<(), LogError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.closed { Err(LogError::Closed) } else { Ok(()) }
    }

    /// Keeps a written buffer's memory for the next chunk, unless a burst made it large.
    fn keep_spare(&mut self, buf: Buf) {
        if buf.capacity() <= SPARE_BYTES_MAX
            && self.spare.as_ref().is_none_or(|s| s.capacity() < buf.capacity())
        {
            self.spare = Some(buf);
        }
    }

    fn end_if_any(&self) -> Option<LogPosition> {
        match self.queue.back() {
            Some(chunk) => Some(LogPosition { segment: chunk.segment, offset: chunk.end() }),
            None => self
                .files
                .last_key_value()
                .map(|(id, f)| LogPosition { segment: *id, offset: f.written }),
        }
    }

    fn end(&self) -> LogPosition {
        match self.end_if_any() {
            Some(end) => end,
            None => stdx::invariant::broken(format_args!("commit log: append before a segment")),
        }
    }

    fn put(&mut self, encode: impl FnOnce(&mut Buf)) {
        if let Some(chunk) = self.queue.back_mut() {
            let before = chunk.buf.len();
            encode(&mut chunk.buf);
            self.appended += (chunk.buf.len() - before) as u64;
        }
    }
}
