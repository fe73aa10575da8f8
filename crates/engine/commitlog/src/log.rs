//! The writer: append into a buffer, hand it to the kernel, sync, mark.
//!
//! `append` is synchronous and returns positions; `commit` writes everything appended so far with
//! one call per segment. The first poll of the write happens inside `commit`. A task of the log's
//! gate finishes a write that has to wait, so a dropped `commit` never leaves a write half done.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use codec::Algorithm;
use rt::{Buf, File, Fs, Gate, Group, Rt};
use schema::Table;
use stdx::{HostId, Instant, IoError, TableId, TimestampMicros};

use crate::archive::Archive;
use crate::blocks::Packer;
use crate::error::LogError;
use crate::format::{self, LogPosition, SegmentHeader, SegmentId};
use crate::inventory::{Inventory, Update};
use crate::keys::Keys;
use crate::signal::Signal;

mod release;
mod writing;

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
    /// Like `Batch`, with at most one sync per `window`.
    Group {
        /// Between two syncs.
        window: Duration,
    },
}

/// Settings of a log.
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
    /// How segments are compressed; `None`: not, in the format of the first builds.
    pub compression: Option<Algorithm>,
    /// Keys that encrypt segments and open old ones; `None`: segments are not encrypted.
    pub keys: Option<Keys>,
    /// Where every segment is linked, else copied, before it is deleted.
    pub archive_directory: Option<String>,
    /// The directory of the lists of segments, in the node's metadata.
    pub inventories: String,
    /// The run whose missing or damaged data the operator gives up.
    pub accept_loss: Option<u64>,
}

impl LogOptions {
    /// Keys, if new blocks are encrypted.
    fn written_with(&self) -> Option<Keys> {
        self.keys.clone().filter(Keys::is_written_with)
    }
}

/// A table version as its writer uses it: the record to append before the first mutation per
/// segment.
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
    /// Their offset in the file.
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
    /// Bytes of it that the kernel has, before compression, as positions count them.
    written: u64,
    /// The same as they are in the file.
    stored: u64,
    /// Bytes of it that are synced.
    synced: u64,
    /// The same as they are in the file.
    synced_stored: u64,
    /// It is being deleted.
    is_released: bool,
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
    /// Number of tasks that wait for a sync.
    waiting: usize,
    /// The next sync does not begin before.
    gathers_until: Instant,
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
    /// Packs blocks; used by the one write at a time.
    packer: RefCell<Option<Packer>>,
    archive: Option<Archive>,
    inventory: Inventory,
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
        fs.create_dir_durably(&options.inventories).await?;
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
            waiting: 0,
            gathers_until: Instant(0),
            next_sequence: after_old.max(by_clock),
            failed: None,
            disk_full: None,
            spare: None,
            closed: false,
            last_sync: rt.now(),
        };
        // Only zstd's set-up can fail, for want of memory.
        let packer = match (options.compression, options.written_with()) {
            (None, None) => None,
            (algorithm, keys) => Some(Packer::new(algorithm, keys).ok_or(LogError::NoMemory)?),
        };
        let archive = match &options.archive_directory {
            Some(directory) => Some(Archive::open(rt, directory).await?),
            None => None,
        };
        let inner = Inner {
            packer: RefCell::new(packer),
            archive,
            inventory: Inventory::new(),
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

    pub(crate) fn inventory(&self) -> &Inventory {
        &self.inner.inventory
    }

    pub(crate) fn now(&self) -> Instant {
        self.inner.rt.now()
    }

    /// This run's segments that are needed, and how many bytes of their files are synced.
    pub(crate) fn synced_segments(&self) -> BTreeMap<SegmentId, u64> {
        let state = self.inner.state.borrow();
        let is_listed = |f: &SegmentFile| f.entry_synced && f.synced_stored > 0 && !f.is_released;
        let listed = state.files.iter().filter(|(_, f)| is_listed(f));
        listed.map(|(id, f)| (*id, f.synced_stored)).collect()
    }

    pub(crate) fn archive(&self) -> Option<&Archive> {
        self.inner.archive.as_ref()
    }

    /// Nothing can be promised any more.
    pub(crate) fn fail(&self, error: LogError) {
        self.inner.state.borrow_mut().failed.get_or_insert(error);
        self.inner.signal.notify();
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
        stdx::debug_invariant!(
            state.end().segment == at.segment
                && state.end().offset == at.offset + format::record_bytes(mutation.len()) as u64
                && state.end().offset <= self.inner.options.segment_bytes.max(at.offset),
            "commit log: a record of {} bytes at {at:?} ends at {:?}",
            mutation.len(),
            state.end()
        );
        Ok(at)
    }

    /// Appends a TRUNCATE of this shard's slice of a table.
    ///
    /// # Errors
    /// Those of [`CommitLog::append`].
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
        let (shard, shards) = (self.inner.rt.shard().0, self.inner.rt.shard_count());
        let by = format::TruncatingShard { shard, shards };
        state.put(|buf| {
            format::encode_truncation(buf, at, table, truncated_at, by, generations);
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
        stdx::invariant!(
            id > previous.segment && !state.files.contains_key(&id),
            "INV-log-4: segment {id:?} does not come after {:?}",
            previous.segment
        );
        stdx::invariant!(
            u32::try_from(self.inner.options.segment_bytes.max(previous.offset)).is_ok(),
            "commit log: segments of {} bytes, positions have room for 4 GiB",
            self.inner.options.segment_bytes
        );
        state.next_sequence += 1;
        let header = SegmentHeader {
            id,
            host: self.inner.options.host,
            shard: self.inner.rt.shard().0,
            shards: self.inner.rt.shard_count(),
            created: self.inner.rt.wall().0,
            run: self.inner.options.run,
            previous,
            compression: self.inner.options.compression,
            sealed: self.inner.options.written_with().is_some(),
        };
        let mut bytes = Vec::with_capacity(format::HEADER_BYTES);
        header.encode(&mut bytes);
        stdx::invariant!(
            bytes.len() == format::HEADER_BYTES,
            "commit log: a header of {} bytes, its reader takes {}",
            bytes.len(),
            format::HEADER_BYTES
        );
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
    /// `DiskFull`: the appended records stay in the buffer and a later commit writes them.
    /// `Failed`: for ever.
    pub async fn commit(&self) -> Result<(), LogError> {
        let target = {
            let state = self.inner.state.borrow();
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            state.appended
        };
        match self.inner.options.sync {
            SyncMode::Periodic { .. } => self.write_until(target).await,
            SyncMode::Batch => self.sync_until(target).await,
            SyncMode::Group { .. } => {
                self.write_until(target).await?;
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

    /// The error of the last write, when it was a full disk and no write succeeded since.
    pub fn disk_full(&self) -> Option<IoError> {
        self.inner.state.borrow().disk_full.clone()
    }

    /// The failure after which nothing more is written.
    pub fn failure(&self) -> Option<LogError> {
        self.inner.state.borrow().failed.clone()
    }

    /// Syncs everything appended and refuses later appends. Does not delete segments.
    ///
    /// # Errors
    /// Those of [`CommitLog::commit`].
    pub async fn close(&self) -> Result<(), LogError> {
        if self.inner.state.borrow().closed {
            return Ok(());
        }
        let result = self.sync().await;
        self.inner.state.borrow_mut().closed = true;
        // Without it the loss of a part of the data synced now would not be noticed.
        let _ = self.write_inventory(Update::Now).await;
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
        let Some(chunk) = self.queue.back_mut() else {
            stdx::invariant::broken(format_args!("commit log: a record has no chunk to be put in"))
        };
        let before = chunk.buf.len();
        encode(&mut chunk.buf);
        self.appended += (chunk.buf.len() - before) as u64;
    }
}
