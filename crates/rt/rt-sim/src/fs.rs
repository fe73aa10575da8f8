//! File calls of a simulated shard, and the outside control of its disk.
//!
//! Every call counts as one IO call of its node: it can be the one that fails or that crashes.
//! Changes of names and content take effect at once, syncs when they are done.

use crate::disk::{
    CrashKind, DataCall, Disk, Inode, Node, is_change, normal, parent, self_and_parents,
};
use crate::env::Env;
use crate::state::{Core, ProcessId, State};
use crate::trace::hash_bytes;
use std::cell::RefCell;
use std::future::pending;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use stdx::{IoError, IoErrorKind, WallMicros};

/// Larger buffered writes wait for the disk, as natively.
const INLINE_WRITE_BYTES_MAX: usize = 256 * 1024;

/// How to open a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Make it when it does not exist.
    pub create: bool,
    /// Make it, and fail when it exists.
    pub create_new: bool,
    /// Empty it.
    pub truncate: bool,
    /// Bypass the page cache.
    pub direct: bool,
    /// Small writes wait for the disk too.
    pub offload_writes: bool,
}

/// An open file.
#[derive(Clone)]
pub struct File {
    inner: Rc<Opened>,
}

struct Opened {
    env: Env,
    inode: Rc<RefCell<Inode>>,
    options: OpenOptions,
    path: String,
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(mut state) = self.env.alive() {
            state.count_file(self.env.process, false);
        }
    }
}

/// A held lock.
pub struct FileLock {
    env: Env,
    path: String,
}

/// Outcome of the start of a call.
enum Begun {
    Ok(Duration),
    Failed(IoError),
    /// The process died before or in this call: it never returns. `true`: it died just now.
    Dead(bool),
}

impl Env {
    /// Counts one call and decides whether it continues, fails or is the last.
    fn begin(&self, operation: &'static str, path: &str, argument: u64) -> Begun {
        let Some(mut guard) = self.alive() else { return Begun::Dead(false) };
        let state = &mut *guard;
        let Some(disk) = state.disks.get_mut(self.disk) else { return Begun::Dead(false) };
        disk.calls += 1;
        let call = disk.calls;
        let slow = disk.slowness(path).cloned();
        let crash = disk.crash_at.take_if(|(at, _)| *at <= call).map(|(_, kind)| kind);
        let below = disk.crash_below.take_if(|(part, left, _)| {
            let is_counted = is_change(operation) && path.contains(part.as_str());
            *left = left.saturating_sub(u64::from(is_counted));
            *left == 0
        });
        let crash = crash.or(below.map(|(_, _, kind)| kind));
        let failure = disk.failures.iter().position(|(at, _)| *at == call);
        let mut failure = failure.map(|i| disk.failures.swap_remove(i).1);
        if is_change(operation) {
            disk.changes += 1;
            let number = disk.changes;
            let found = disk.change_failures.iter().position(|(at, _)| *at == number);
            failure = failure.or(found.map(|i| disk.change_failures.swap_remove(i).1));
            let below =
                disk.failing_below.as_ref().filter(|(part, _)| path.contains(part.as_str()));
            failure = failure.or(disk.failing).or(below.map(|(_, kind)| *kind));
        }
        let reads = disk.failing_reads.filter(|_| operation == "read");
        if let Some((one_in, kind)) = reads
            && state.random().is_multiple_of(one_in)
        {
            failure = failure.or(Some(kind));
        }
        state.note(operation, hash_bytes(path.as_bytes()), argument);
        if let Some(kind) = crash {
            if let Some(process) = state.processes.get_mut(self.process.0) {
                process.alive = false;
                state.has_new_shards = true;
            }
            state.crashes.push((self.process, kind));
            return Begun::Dead(true);
        }
        if let Some(kind) = failure {
            return Begun::Failed(self.error(kind, operation, path, "injected failure"));
        }
        let range = slow.unwrap_or_else(|| state.options.io_micros.clone());
        Begun::Ok(state.random_micros(&range))
    }

    /// One call that waits for the disk before its effect.
    async fn io(&self, operation: &'static str, path: &str, argument: u64) -> Result<(), IoError> {
        match self.begin(operation, path, argument) {
            Begun::Ok(duration) => {
                self.delay(duration).await;
                Ok(())
            }
            Begun::Failed(error) => Err(error),
            Begun::Dead(_) => pending().await,
        }
    }

    fn with_disk<T>(&self, f: impl FnOnce(&mut Disk) -> T) -> Option<T> {
        let mut state = self.alive()?;
        state.disks.get_mut(self.disk).map(f)
    }

    async fn change<T>(
        &self,
        operation: &'static str,
        path: &str,
        f: impl FnOnce(&mut Disk, &str) -> Result<T, (IoErrorKind, &'static str)>,
    ) -> Result<T, IoError> {
        self.io(operation, path, 0).await?;
        let full = normal(&self.work_dir, path);
        match self.with_disk(|disk| f(disk, &full)) {
            Some(Ok(value)) => Ok(value),
            Some(Err((kind, detail))) => Err(self.error(kind, operation, path, detail)),
            None => pending().await,
        }
    }

    /// Opens a file; a new name is durable after a sync of its directory.
    pub async fn open(&self, path: &str, options: OpenOptions) -> Result<File, IoError> {
        let inode = self.change("open", path, |disk, full| open(disk, full, options)).await?;
        if let Some(mut state) = self.alive() {
            state.count_file(self.process, true);
        }
        let inner = Opened { env: self.clone(), inode, options, path: path.to_string() };
        Ok(File { inner: Rc::new(inner) })
    }

    /// Makes a directory and its missing parents.
    pub async fn create_dir_all(&self, path: &str) -> Result<(), IoError> {
        self.change("mkdir", path, |disk, full| {
            for dir in self_and_parents(full) {
                match disk.names.get(&dir) {
                    Some(Node::Dir) => {}
                    Some(Node::File(_)) => return Err((IoErrorKind::AlreadyExists, "is a file")),
                    None => {
                        let parents = vec![parent(&dir).to_string()];
                        disk.change(parents, vec![(dir, Some(Node::Dir))]);
                    }
                }
            }
            Ok(())
        })
        .await
    }

    /// (name, is a directory, length, when it was written last; 0 for a directory), ordered by name.
    pub async fn read_dir(
        &self,
        path: &str,
    ) -> Result<Vec<(String, bool, u64, WallMicros)>, IoError> {
        self.change("readdir", path, |disk, full| {
            if !disk.is_dir(full) {
                return Err(MISSING);
            }
            let mut entries = Vec::new();
            for (child, node) in disk.children(full) {
                let name = child.rsplit('/').next().unwrap_or_default().to_string();
                entries.push(match node {
                    Node::Dir => (name, true, 0, WallMicros(0)),
                    Node::File(inode) => {
                        let inode = inode.borrow();
                        (name, false, inode.cache.len() as u64, inode.modified)
                    }
                });
            }
            entries.sort();
            Ok(entries)
        })
        .await
    }

    /// Renames a file or a directory with all below it.
    pub async fn rename(&self, from: &str, to: &str) -> Result<(), IoError> {
        let to = normal(&self.work_dir, to);
        self.change("rename", from, |disk, from| {
            if !disk.is_dir(parent(&to)) {
                return Err(MISSING);
            }
            let moved = disk.subtree(from);
            if moved.is_empty() {
                return Err(MISSING);
            }
            if from == to {
                return Ok(());
            }
            let is_dir = disk.is_dir(from);
            let taken = disk.subtree(&to);
            if taken.len() > 1 || (!taken.is_empty() && is_dir != disk.is_dir(&to)) {
                return Err((IoErrorKind::AlreadyExists, "target is there"));
            }
            let mut changes = Vec::new();
            for (path, node) in moved {
                let suffix = path.get(from.len()..).unwrap_or_default();
                changes.push((format!("{to}{suffix}"), Some(node)));
                changes.push((path, None));
            }
            disk.change(vec![parent(from).to_string(), parent(&to).to_string()], changes);
            Ok(())
        })
        .await
    }

    /// Removes a file.
    pub async fn remove_file(&self, path: &str) -> Result<(), IoError> {
        self.change("unlink", path, |disk, full| {
            if disk.file(full).is_none() {
                return Err(MISSING);
            }
            disk.change(vec![parent(full).to_string()], vec![(full.to_string(), None)]);
            Ok(())
        })
        .await
    }

    /// Removes a directory with all it holds.
    pub async fn remove_dir_all(&self, path: &str) -> Result<(), IoError> {
        self.change("rmdir", path, |disk, full| {
            if full.is_empty() || !disk.is_dir(full) {
                return Err(MISSING);
            }
            let changes = disk.subtree(full).into_iter().map(|(path, _)| (path, None)).collect();
            disk.change(vec![parent(full).to_string()], changes);
            Ok(())
        })
        .await
    }

    /// Gives a file a second name.
    pub async fn hard_link(&self, from: &str, to: &str) -> Result<(), IoError> {
        let to = normal(&self.work_dir, to);
        self.change("link", from, |disk, from| {
            let inode = disk.file(from).ok_or(MISSING)?;
            if disk.names.contains_key(&to) {
                return Err((IoErrorKind::AlreadyExists, "target is there"));
            }
            if !disk.is_dir(parent(&to)) {
                return Err(MISSING);
            }
            let parents = vec![parent(&to).to_string()];
            disk.change(parents, vec![(to.clone(), Some(Node::File(inode)))]);
            Ok(())
        })
        .await
    }

    /// Makes the names in a directory durable.
    pub async fn sync_dir(&self, path: &str) -> Result<(), IoError> {
        self.change("fsync", path, |disk, full| {
            if !disk.is_dir(full) {
                return Err(MISSING);
            }
            disk.sync_dir(full);
            Ok(())
        })
        .await
    }

    /// (is a directory, length).
    pub async fn metadata(&self, path: &str) -> Result<(bool, u64), IoError> {
        self.change("stat", path, |disk, full| match disk.names.get(full) {
            Some(Node::File(inode)) => Ok((false, inode.borrow().cache.len() as u64)),
            Some(Node::Dir) => Ok((true, 0)),
            None if full.is_empty() => Ok((true, 0)),
            None => Err(MISSING),
        })
        .await
    }

    /// Bytes left on this node's disk.
    pub async fn free_bytes(&self, path: &str) -> Result<u64, IoError> {
        self.change("statvfs", path, |disk, full| {
            let there = disk.is_dir(full) || disk.names.contains_key(full);
            if there { Ok(disk.free()) } else { Err(MISSING) }
        })
        .await
    }

    /// (bytes that this node's disk has, bytes that are left on it).
    pub async fn disk_space(&self, path: &str) -> Result<(u64, u64), IoError> {
        self.change("statvfs", path, |disk, full| {
            let there = disk.is_dir(full) || disk.names.contains_key(full);
            if there { Ok((disk.total(), disk.free())) } else { Err(MISSING) }
        })
        .await
    }

    /// Acquires a lock file.
    pub async fn lock_exclusive(&self, path: &str) -> Result<FileLock, IoError> {
        let options = OpenOptions { write: true, create: true, ..OpenOptions::default() };
        let process = self.process.0;
        self.change("lock", path, |disk, full| {
            open(disk, full, options)?;
            if disk.locks.contains_key(full) {
                return Err((IoErrorKind::AlreadyExists, "held by another process"));
            }
            disk.locks.insert(full.to_string(), process);
            Ok(())
        })
        .await?;
        Ok(FileLock { env: self.clone(), path: normal(&self.work_dir, path) })
    }
}

const MISSING: (IoErrorKind, &str) = (IoErrorKind::NotFound, "no such file or directory");

fn open(
    disk: &mut Disk,
    full: &str,
    options: OpenOptions,
) -> Result<Rc<RefCell<Inode>>, (IoErrorKind, &'static str)> {
    if disk.is_dir(full) {
        return Err((IoErrorKind::Device, "is a directory"));
    }
    if let Some(inode) = disk.file(full) {
        if options.create_new {
            return Err((IoErrorKind::AlreadyExists, "file exists"));
        }
        if options.truncate && !inode.borrow().cache.is_empty() {
            inode.borrow_mut().set_len(0);
        }
        return Ok(inode);
    }
    if !(options.create || options.create_new) || !disk.is_dir(parent(full)) {
        return Err(MISSING);
    }
    let inode = Rc::new(RefCell::new(Inode::default()));
    let node = Some(Node::File(Rc::clone(&inode)));
    disk.change(vec![parent(full).to_string()], vec![(full.to_string(), node)]);
    Ok(inode)
}

impl File {
    /// Reads up to `len` bytes at `offset` and hands them to `take`; fewer only at end of file.
    pub async fn read_at(
        &self,
        offset: u64,
        len: usize,
        take: impl FnOnce(&[u8]),
    ) -> Result<usize, IoError> {
        let file = &*self.inner;
        if !file.options.read {
            return Err(self.error(IoErrorKind::PermissionDenied, "read", "not open for reading"));
        }
        self.note_call(false, offset, len);
        file.env.io("read", &file.path, offset).await?;
        let inode = file.inode.borrow();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(inode.cache.len());
        let end = start.saturating_add(len).min(inode.cache.len());
        let bytes = inode.cache.get(start..end).unwrap_or_default();
        if let Some(mut state) = file.env.alive() {
            state.trace.add_bytes(bytes);
        }
        take(bytes);
        Ok(bytes.len())
    }

    fn note_call(&self, is_write: bool, offset: u64, bytes: usize) {
        let file = &*self.inner;
        let Some(mut state) = file.env.alive() else { return };
        let Some(disk) = state.disks.get_mut(file.env.disk) else { return };
        let (is_direct, path) = (file.options.direct, &file.path);
        disk.note_call(
            || DataCall { is_write, is_direct, path: path.clone(), offset, bytes },
            path.as_str(),
        );
    }

    /// Writes all bytes into the page cache, at once; waits only when there are many.
    pub async fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), IoError> {
        let file = &*self.inner;
        if !file.options.write {
            return Err(self.error(IoErrorKind::PermissionDenied, "write", "not open for writing"));
        }
        self.note_call(true, offset, bytes.len());
        let duration = match file.env.begin("write", &file.path, offset) {
            Begun::Ok(duration) => duration,
            Begun::Failed(error) => return Err(error),
            Begun::Dead(now) => {
                // The call that kills may or may not have reached the kernel.
                let applied = now && file.env.core.state.borrow_mut().random().is_multiple_of(2);
                if applied {
                    file.inode.borrow_mut().write(offset, bytes);
                }
                return pending().await;
            }
        };
        let end = offset.saturating_add(bytes.len() as u64);
        let grows = end.saturating_sub(file.inode.borrow().cache.len() as u64);
        let is_slow = {
            let Some(mut state) = file.env.alive() else { return pending().await };
            state.trace.add_bytes(bytes);
            let disk = state.disks.get(file.env.disk);
            if disk.is_some_and(|d| d.capacity.is_some() && grows > d.free()) {
                return Err(self.error(IoErrorKind::NoSpace, "write", "no space left on device"));
            }
            disk.is_some_and(|d| d.slowness(&file.path).is_some())
        };
        if !bytes.is_empty() {
            let now = file.env.wall();
            let mut inode = file.inode.borrow_mut();
            inode.write(offset, bytes);
            inode.modified = now;
        }
        let is_inline = bytes.len() <= INLINE_WRITE_BYTES_MAX && !file.options.offload_writes;
        if is_slow || file.options.direct || !is_inline {
            file.env.delay(duration).await;
        }
        Ok(())
    }

    /// Makes earlier writes durable.
    pub async fn sync_data(&self) -> Result<(), IoError> {
        let file = &*self.inner;
        let point = file.inode.borrow().sync_point();
        match file.env.io("fsync", &file.path, point).await {
            Ok(()) if file.env.alive().is_none() => pending().await,
            Ok(()) => {
                file.inode.borrow_mut().sync_up_to(point);
                Ok(())
            }
            Err(error) => {
                file.inode.borrow_mut().sync_failed(point);
                Err(IoError { kind: IoErrorKind::Device, ..error })
            }
        }
    }

    /// Length now.
    #[expect(clippy::len_without_is_empty, reason = "a system call that can fail")]
    pub async fn len(&self) -> Result<u64, IoError> {
        let file = &*self.inner;
        match file.env.begin("stat", &file.path, 0) {
            Begun::Ok(_) => Ok(file.inode.borrow().cache.len() as u64),
            Begun::Failed(error) => Err(error),
            Begun::Dead(_) => pending().await,
        }
    }

    /// Cuts or extends with zeros.
    pub async fn set_len(&self, len: u64) -> Result<(), IoError> {
        let file = &*self.inner;
        if !file.options.write {
            return Err(self.error(IoErrorKind::PermissionDenied, "truncate", "not for writing"));
        }
        file.env.io("truncate", &file.path, len).await?;
        let grows = len.saturating_sub(file.inode.borrow().cache.len() as u64);
        let full = file.env.with_disk(|d| d.capacity.is_some() && grows > d.free());
        match full {
            None => pending().await,
            Some(true) => {
                Err(self.error(IoErrorKind::NoSpace, "truncate", "no space left on device"))
            }
            Some(false) => {
                file.inode.borrow_mut().set_len(len);
                Ok(())
            }
        }
    }

    /// Returns true if it was opened for direct IO; a simulated disk never refuses.
    pub fn is_direct(&self) -> bool {
        self.inner.options.direct
    }

    /// The path it was opened with.
    pub fn path(&self) -> &str {
        &self.inner.path
    }

    fn error(&self, kind: IoErrorKind, operation: &'static str, detail: &str) -> IoError {
        self.inner.env.error(kind, operation, &self.inner.path, detail)
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        let process = self.env.process.0;
        self.env.with_disk(|disk| {
            if disk.locks.get(&self.path) == Some(&process) {
                disk.locks.remove(&self.path);
            }
        });
    }
}

/// Applies the death of a process to the disk of `name`.
pub(crate) fn process_died(state: &mut State, name: &str, process: ProcessId, kind: CrashKind) {
    let State { disks, rng, .. } = state;
    let Some(disk) = disks.find_mut(name) else { return };
    disk.locks.retain(|_, holder| *holder != process.0);
    disk.crash_at = None;
    disk.crash_below = None;
    let mut random = || rand_core::Rng::next_u64(rng);
    match kind {
        CrashKind::Kill => {}
        CrashKind::PowerCut => disk.power_cut(&mut random, false),
        CrashKind::PowerCutLosingAll => disk.power_cut(&mut random, true),
    }
}

/// A hand on one node's disk, from outside the simulation. Paths are absolute.
#[derive(Clone)]
pub struct DiskControl {
    core: Rc<Core>,
    disk: usize,
}

impl DiskControl {
    pub(crate) fn new(core: &Rc<Core>, name: &str) -> DiskControl {
        let disk = core.state.borrow_mut().disks.number(name);
        DiskControl { core: Rc::clone(core), disk }
    }

    fn with<T>(&self, f: impl FnOnce(&mut Disk) -> T) -> T {
        f(self.core.state.borrow_mut().disks.at(self.disk))
    }

    /// File calls so far.
    pub fn io_count(&self) -> u64 {
        self.with(|disk| disk.calls)
    }

    /// Lets the `n`-th call from now (1 = the next) fail. Several may be set.
    pub fn fail_nth(&self, n: u64, kind: IoErrorKind) {
        self.with(|disk| disk.failures.push((disk.calls + n, kind)));
    }

    /// Like [`DiskControl::fail_nth`], counting only calls that write to the disk: writes, syncs,
    /// new directories, second names, renames.
    pub fn fail_nth_change(&self, n: u64, kind: IoErrorKind) {
        self.with(|disk| disk.change_failures.push((disk.changes + n, kind)));
    }

    /// Failures that were set and have not happened.
    pub fn pending_failures(&self) -> usize {
        self.with(|disk| disk.failures.len() + disk.change_failures.len())
    }

    /// Lets every call that puts something on the disk fail, until it is set to `None`.
    pub fn set_failing(&self, kind: Option<IoErrorKind>) {
        self.with(|disk| disk.failing = kind);
    }

    /// The same of calls at a path that has this part, as it was given to the call.
    pub fn set_failing_below(&self, failing: Option<(&str, IoErrorKind)>) {
        self.with(|disk| disk.failing_below = failing.map(|(part, kind)| (part.to_owned(), kind)));
    }

    /// Makes one in this many reads fail, by the seed, until it is set to `None`.
    pub fn set_failing_reads(&self, failing: Option<(u64, IoErrorKind)>) {
        self.with(|disk| disk.failing_reads = failing);
    }

    /// Crashes the node in its `n`-th call from now (1 = the next); a write may or may not be done.
    pub fn crash_at_nth_io(&self, n: u64, kind: CrashKind) {
        self.with(|disk| disk.crash_at = Some((disk.calls + n, kind)));
    }

    /// Crashes the node in its `n`-th call from now (1 = the next) that puts something on the disk at
    /// a path that has this part, as it was given to the call.
    pub fn crash_at_nth_change_below(&self, part: &str, n: u64, kind: CrashKind) {
        self.with(|disk| disk.crash_below = Some((part.to_owned(), n.max(1), kind)));
    }

    /// Cancels all failures and crashes that have not happened, and slowness.
    pub fn clear_faults(&self) {
        self.with(|disk| {
            disk.failures.clear();
            disk.change_failures.clear();
            disk.failing = None;
            disk.failing_below = None;
            disk.failing_reads = None;
            disk.crash_at = None;
            disk.crash_below = None;
            disk.slow_micros = None;
            disk.slow_below = None;
        });
    }

    /// Records from now on the reads and writes of files whose path contains this part.
    pub fn watch(&self, part: &str) {
        self.with(|disk| disk.watched = Some((part.to_owned(), Vec::new())));
    }

    /// Returns the reads and writes since [`DiskControl::watch`], in order; the watch ends.
    pub fn take_calls(&self) -> Vec<DataCall> {
        self.with(|disk| disk.watched.take()).map(|(_, calls)| calls).unwrap_or_default()
    }

    /// Makes waiting calls (and buffered writes) take this long, in microseconds.
    pub fn set_slow(&self, micros: Option<Range<u64>>) {
        self.with(|disk| disk.slow_micros = micros);
    }

    /// The same of calls at a path that has this part. A call that has begun takes as long as it was given.
    pub fn set_slow_below(&self, slow: Option<(&str, Range<u64>)>) {
        self.with(|disk| disk.slow_below = slow.map(|(part, micros)| (part.to_owned(), micros)));
    }

    /// Leaves room for this many more bytes; `None` makes the disk large again.
    pub fn set_free_bytes(&self, bytes: Option<u64>) {
        self.with(|disk| disk.capacity = bytes.map(|b| disk.used().saturating_add(b)));
    }

    /// Flips bit `bit % 8` of byte `bit / 8` on the platter and in the cache; false when the file
    /// is shorter or not there.
    pub fn flip_bit(&self, path: &str, bit: u64) -> bool {
        let path = normal("", path);
        let byte = usize::try_from(bit / 8).unwrap_or(usize::MAX);
        let mask = 1u8 << (bit % 8);
        let Some(inode) = self.with(|disk| disk.file(&path)) else { return false };
        let mut inode = inode.borrow_mut();
        if let Some(durable) = inode.durable.get_mut(byte) {
            *durable ^= mask;
        }
        match inode.cache.get_mut(byte) {
            Some(cached) => {
                *cached ^= mask;
                true
            }
            None => false,
        }
    }

    /// All files, ordered by path, with leading slash.
    pub fn list(&self) -> Vec<String> {
        self.with(|disk| {
            let files = disk.names.iter().filter(|(_, node)| matches!(node, Node::File(_)));
            files.map(|(path, _)| format!("/{path}")).collect()
        })
    }

    /// Content as a process would read it.
    pub fn read(&self, path: &str) -> Option<Vec<u8>> {
        let inode = self.with(|disk| disk.file(&normal("", path)))?;
        let content = inode.borrow().cache.clone();
        Some(content)
    }

    /// Content that is certain to survive a power cut; `None` when the name is not durable.
    pub fn read_durable(&self, path: &str) -> Option<Vec<u8>> {
        self.with(|disk| disk.durable_content(&normal("", path)))
    }

    /// Puts a file there, durably, with its directories.
    pub fn write(&self, path: &str, content: &[u8]) {
        self.with(|disk| disk.put_file(&normal("", path), content));
    }

    /// Removes a file, durably.
    pub fn remove(&self, path: &str) {
        self.with(|disk| disk.take_file(&normal("", path)));
    }
}
