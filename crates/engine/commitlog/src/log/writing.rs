//! From the buffer to the kernel and to the disk: writes, syncs, markers.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use rt::{Buf, File, Group, IoError, OpenOptions};
use stdx::Instant;

use super::{BUFFER_BYTES, CommitLog, SegmentFile, State};
use crate::blocks::BlockPlace;
use crate::error::LogError;
use crate::format::{self, LogPosition, SegmentId};
use crate::inventory::Update;

/// Once this many tasks waited for one slow sync, the next one gathers.
const GATHERS_FROM: usize = 8;
/// A sync that is as fast as this is never waited for: timers are not finer.
const GATHERS_ABOVE: Duration = Duration::from_micros(300);
/// The longest time that more are waited for.
const GATHERS_MAX: Duration = Duration::from_millis(1);

/// A segment that is synced: its file, and its bytes as positions count them and as they are stored.
type Syncing = (SegmentId, File, u64, u64);

/// Counts one task that waits for a sync, until it is dropped.
struct Waiter<'a>(&'a RefCell<State>);

impl<'a> Waiter<'a> {
    fn new(state: &'a RefCell<State>) -> Waiter<'a> {
        state.borrow_mut().waiting += 1;
        Waiter(state)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.borrow_mut().waiting -= 1;
    }
}

impl State {
    /// The kernel has `len` more bytes at `at`, which take `stored` bytes of the file.
    fn note_written(&mut self, at: LogPosition, len: u64, stored: u64) {
        self.disk_full = None;
        self.written += len;
        let Some(file) = self.files.get_mut(&at.segment) else {
            stdx::invariant::broken(format_args!(
                "INV-log-1: no account of {at:?}, which was written"
            ))
        };
        stdx::invariant!(
            file.written == at.offset && !file.is_released,
            "INV-log-1: {len} bytes written at {at:?} of a segment that has {}",
            file.written
        );
        file.written = at.offset + len;
        file.stored += stored;
        stdx::invariant!(
            self.written <= self.appended,
            "INV-log-1: {} bytes written of {} appended",
            self.written,
            self.appended
        );
    }

    /// These files are synced, and with them all of the first `goal` bytes.
    fn note_synced(&mut self, files: &[Syncing], goal: u64) {
        self.synced = self.synced.max(goal);
        for (id, _, written, stored) in files {
            let Some(file) = self.files.get_mut(id) else { continue };
            stdx::invariant!(
                file.synced <= *written && *written <= file.written,
                "INV-log-3: {written} bytes of {id:?} synced after {}, {} are written",
                file.synced,
                file.written
            );
            file.synced = *written;
            file.synced_stored = *stored;
        }
        for file in self.files.values_mut() {
            file.entry_synced |= file.synced > 0;
        }
        // The next record begins a segment.
        if stdx::chaos!("commitlog-segment-sealed-early")
            && self.queue.is_empty()
            && let Some(mut last) = self.files.last_entry()
        {
            last.get_mut().sealed = true;
        }
    }

    /// Delays the next sync after one that took long. Where many tasks wait for a slow disk, a
    /// delayed sync is shared by more of them than one that starts at once; a sync costs the same
    /// for one and for a hundred.
    fn gather(&mut self, ended: Instant, took: Duration) {
        let gathers = self.waiting >= GATHERS_FROM && took > GATHERS_ABOVE;
        if gathers {
            stdx::reached!("commitlog-sync-gathers");
        }
        self.gathers_until = if gathers { ended + took.min(GATHERS_MAX) } else { ended };
    }
}

impl CommitLog {
    pub(super) async fn write_until(&self, target: u64) -> Result<(), LogError> {
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

    /// Polls the write once here; when it has to wait, a task of the gate continues it.
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
                        // Later appends go after the bytes being written.
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
            let (mut buf, result) = if self.inner.packer.borrow().is_some() {
                // In a box: every write makes the future around it.
                Box::pin(self.put_blocks(&file, segment, offset, buf)).await
            } else {
                let (buf, result) = file.write_at(buf, offset).await;
                (buf, result.map(|()| len))
            };
            let stored = match result {
                Ok(stored) => stored,
                Err(error) => {
                    self.write_failed(offset, buf, error);
                    break;
                }
            };
            self.inner.bytes_total.add(stored);
            buf.clear();
            let mut state = self.inner.state.borrow_mut();
            state.note_written(LogPosition { segment, offset }, len, stored);
            state.keep_spare(buf);
        }
        self.inner.signal.notify();
    }

    /// Writes the records appended at `offset` as blocks. Returns the buffer, and by how many bytes
    /// the file has grown. The header of a segment is written plain, records become blocks after
    /// the file's existing content. After a failure the next attempt writes at the same offset,
    /// from the same record on.
    async fn put_blocks(
        &self,
        file: &File,
        segment: SegmentId,
        offset: u64,
        buf: Buf,
    ) -> (Buf, Result<u64, IoError>) {
        let place = self.inner.state.borrow().files.get(&segment).map_or(0, |f| f.stored);
        let header = if offset == 0 { format::HEADER_BYTES.min(buf.len()) } else { 0 };
        let mut packed = Buf::with_capacity(BUFFER_BYTES);
        packed.extend_from_slice(buf.get(..header).unwrap_or(&[]));
        let records = buf.get(header..).unwrap_or(&[]);
        match self.inner.packer.borrow_mut().as_mut() {
            Some(packer) => {
                let random = |out: &mut [u8]| self.inner.rt.random_fill(out);
                let at = BlockPlace { segment, offset: place };
                packer.pack(at, offset + header as u64, records, random, &mut packed);
            }
            None => stdx::invariant!(false, "commit log: records would be left out of {segment:?}"),
        }
        let stored = packed.len() as u64;
        let (_, result) = file.write_at(packed, place).await;
        (buf, result.map(|()| stored))
    }

    fn write_failed(&self, offset: u64, buf: Buf, error: IoError) {
        let mut state = self.inner.state.borrow_mut();
        state.writing = false;
        stdx::reached!("commitlog-write-put-back");
        let Some(chunk) = state.queue.front_mut() else {
            stdx::invariant::broken(format_args!(
                "commit log: {} unwritten bytes have no chunk",
                buf.len()
            ))
        };
        stdx::invariant!(
            chunk.offset == offset + buf.len() as u64,
            "commit log: {} unwritten bytes of {offset} are not followed by {}",
            buf.len(),
            chunk.offset
        );
        // Put the bytes back before the ones appended meanwhile.
        let mut whole = buf;
        whole.extend_from_slice(&chunk.buf);
        chunk.buf = whole;
        chunk.offset = offset;
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
            stored: 0,
            synced: 0,
            synced_stored: 0,
            is_released: false,
            entry_synced: false,
            sealed: false,
        };
        self.inner.state.borrow_mut().files.insert(segment, entry);
        Ok(file)
    }

    /// Writes and syncs everything appended so far, whatever the mode.
    ///
    /// # Errors
    /// Those of [`CommitLog::commit`].
    pub async fn sync(&self) -> Result<(), LogError> {
        let target = self.inner.state.borrow().appended;
        self.sync_until(target).await
    }

    /// Waits until records up to `target` are durable. The sync that makes them durable also writes
    /// them: all records appended during the previous sync are written in one request.
    pub(super) async fn sync_until(&self, target: u64) -> Result<(), LogError> {
        let mut has_waited = false;
        loop {
            let (is_synced, begins) = {
                let mut state = self.inner.state.borrow_mut();
                if let Some(error) = &state.failed {
                    return Err(error.clone());
                }
                let is_synced = state.synced >= target;
                let was_refused = has_waited && !is_synced && state.written < target;
                if let (true, Some(error)) = (was_refused, &state.disk_full) {
                    return Err(LogError::DiskFull(error.clone()));
                }
                let begins = !is_synced && !state.syncing;
                state.syncing |= begins;
                (is_synced, begins)
            };
            if is_synced {
                // A marker, which no task syncs, may have found no room.
                return self.write_until(target).await;
            }
            if begins {
                let log = self.clone();
                let task = async move { log.sync_once().await };
                let spawned = self.inner.gate.spawn(&self.inner.rt, Group::Statement, "sync", task);
                if spawned.is_err() {
                    self.inner.state.borrow_mut().syncing = false;
                    return Err(LogError::Closed);
                }
            }
            let inner = &self.inner;
            let _waits = Waiter::new(&inner.state);
            inner
                .signal
                .wait(|| {
                    let state = inner.state.borrow();
                    (state.synced >= target || !state.syncing || state.failed.is_some())
                        .then_some(())
                })
                .await;
            has_waited = true;
        }
    }

    /// Writes the appended records and syncs every segment that has unsynced bytes, oldest first,
    /// then appends the marker.
    async fn sync_once(&self) {
        let gathers_until = self.inner.state.borrow().gathers_until;
        if gathers_until > self.inner.rt.now() {
            self.inner.rt.sleep_until(gathers_until).await;
        }
        let began = self.inner.rt.now();
        let target = self.inner.state.borrow().appended;
        // The state holds the failure, for the waiting tasks; the written part is synced all the
        // same.
        let _ = self.write_until(target).await;
        let (goal, files, needs_entry) = {
            let state = self.inner.state.borrow();
            let files: Vec<Syncing> = state
                .files
                .iter()
                .filter(|(_, f)| f.written > f.synced)
                .map(|(id, f)| (*id, f.file.clone(), f.written, f.stored))
                .collect();
            (state.written, files, state.files.values().any(|f| !f.entry_synced))
        };
        let result = self.sync_files(&files, needs_entry).await;
        {
            let mut state = self.inner.state.borrow_mut();
            state.syncing = false;
            let ended = self.inner.rt.now();
            state.gather(ended, ended.since(began));
            match result {
                Err(error) => {
                    // After a failed fsync the state of the disk is unknown: no later one can be
                    // believed either.
                    state.failed.get_or_insert(LogError::Failed(error));
                }
                Ok(()) => {
                    state.last_sync = began;
                    state.note_synced(&files, goal);
                    if let Some((segment, _, offset, _)) = files.last() {
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
        // A list that lags is written with the next sync.
        let _ = self.write_inventory(Update::Routine).await;
        self.archive_finished().await;
    }

    /// The next sync does not begin before.
    #[cfg(test)]
    pub(crate) fn gathers_until(&self) -> Instant {
        self.inner.state.borrow().gathers_until
    }

    #[cfg(test)]
    pub(crate) fn set_gathers_until(&self, at: Instant) {
        self.inner.state.borrow_mut().gathers_until = at;
    }

    async fn sync_files(&self, files: &[Syncing], needs_entry: bool) -> Result<(), IoError> {
        for (_, file, _, _) in files {
            file.sync_data().await?;
        }
        if needs_entry {
            self.inner.fs.sync_dir(&self.inner.options.directory).await?;
        }
        Ok(())
    }

    /// The marker counts as appended, but not as something that needs a sync of its own.
    fn append_marker(&self, state: &mut State, synced: LogPosition) {
        stdx::invariant!(
            state.files.get(&synced.segment).is_none_or(|file| file.synced >= synced.offset),
            "INV-log-3: a marker would attest {synced:?}, which is not synced"
        );
        self.reserve(state, 24);
        let at = state.end();
        let before = state.appended;
        state.put(|buf| format::encode_marker(buf, at, synced));
        // Markers are not waited for: when nothing else was unsynced, nothing is now.
        if state.synced == before {
            state.synced = state.appended;
        }
        stdx::invariant!(
            state.synced <= state.appended,
            "INV-log-1: {} bytes count as synced, {} were appended",
            state.synced,
            state.appended
        );
    }
}
