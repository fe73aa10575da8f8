//! One disk: page cache against durable image, names against durable names.
//!
//! A write is in the cache at once and durable after a sync. A name is visible at once and durable
//! after its directory was synced. A kill keeps the cache; a power cut resolves it
//! ([`Disk::power_cut`]).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use stdx::{IoErrorKind, WallMicros};

/// Unit that a disk writes atomically.
pub const SECTOR_BYTES: u64 = 512;
/// Unsynced bytes of one file above which the kernel writes the older half back automatically.
const WRITE_BACK_BYTES: usize = 16 * 1024 * 1024;

/// How a process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashKind {
    /// The process is killed: everything handed to the kernel stays.
    Kill,
    /// The machine loses power: a seeded part of the unsynced data survives, torn at sectors.
    PowerCut,
    /// The machine loses power and all unsynced data is lost.
    PowerCutLosingAll,
}

#[derive(Clone)]
pub(crate) enum Node {
    Dir,
    File(Rc<RefCell<Inode>>),
}

#[derive(Default)]
pub(crate) struct Inode {
    pub(crate) cache: Vec<u8>,
    pub(crate) durable: Vec<u8>,
    pending: Vec<Pending>,
    pending_bytes: usize,
    last: u64,
    /// The last count of the disk's bytes that it was in.
    counted: u64,
    /// When it was written last.
    pub(crate) modified: WallMicros,
}

struct Pending {
    number: u64,
    change: Change,
}

enum Change {
    Write { offset: u64, data: Vec<u8> },
    SetLen(u64),
}

impl Inode {
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        put(&mut self.cache, offset, data);
        self.pending_bytes += data.len();
        self.push(Change::Write { offset, data: data.to_vec() });
        if self.pending_bytes > WRITE_BACK_BYTES {
            let half = self.pending.len() / 2;
            let number = self.pending.get(half).map_or(self.last, |p| p.number);
            self.sync_up_to(number);
        }
    }

    pub(crate) fn set_len(&mut self, len: u64) {
        set_len(&mut self.cache, len);
        self.push(Change::SetLen(len));
    }

    fn push(&mut self, change: Change) {
        self.last += 1;
        self.pending.push(Pending { number: self.last, change });
    }

    /// Returns the number of the last change that a sync starting now will cover.
    pub(crate) fn sync_point(&self) -> u64 {
        self.last
    }

    pub(crate) fn sync_up_to(&mut self, number: u64) {
        stdx::debug_invariant!(
            number <= self.last && self.pending.is_sorted_by(|a, b| a.number < b.number),
            "INV-sim-3: a sync makes changes durable out of order, or before they were made"
        );
        let count = self.pending.iter().take_while(|p| p.number <= number).count();
        for pending in self.pending.drain(..count) {
            match pending.change {
                Change::Write { offset, data } => {
                    self.pending_bytes = self.pending_bytes.saturating_sub(data.len());
                    put(&mut self.durable, offset, &data);
                }
                Change::SetLen(len) => set_len(&mut self.durable, len),
            }
        }
    }

    /// Simulates a kernel after a failed sync: pages count as clean, but are never written
    /// automatically.
    pub(crate) fn sync_failed(&mut self, number: u64) {
        self.pending.retain(|p| p.number > number);
    }

    fn power_cut(&mut self, random: &mut dyn FnMut() -> u64, lose_all: bool) {
        let pending = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        let mode = if lose_all { 0 } else { random() % 3 };
        let kept_whole = if mode == 1 { random() % (pending.len() as u64 + 1) } else { 0 };
        for (i, pending) in (0u64..).zip(pending) {
            match mode {
                0 => break,
                1 if i < kept_whole => self.keep(pending.change, &mut |_| true),
                // The first write that is not kept whole is torn: a prefix of its sectors stays.
                1 => {
                    let mut left = random() % 9;
                    self.keep(pending.change, &mut |_| {
                        left = left.saturating_sub(1);
                        left > 0
                    });
                    break;
                }
                // Written back in any order: each sector or length change separately.
                _ => self.keep(pending.change, &mut |_| random().is_multiple_of(2)),
            }
        }
        self.cache.clone_from(&self.durable);
        stdx::debug_invariant!(
            self.pending.is_empty() && self.pending_bytes == 0,
            "INV-sim-3: an unsynced change waits over a power cut"
        );
    }

    fn keep(&mut self, change: Change, wanted: &mut dyn FnMut(u64) -> bool) {
        match change {
            Change::SetLen(len) => {
                if wanted(len) {
                    set_len(&mut self.durable, len);
                }
            }
            Change::Write { offset, data } => {
                let mut at = 0usize;
                while at < data.len() {
                    let position = offset + at as u64;
                    let room = SECTOR_BYTES - position % SECTOR_BYTES;
                    let end = data.len().min(at + room as usize);
                    if wanted(position) {
                        put(&mut self.durable, position, &data[at..end]);
                    }
                    at = end;
                }
            }
        }
    }
}

fn put(image: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let start = offset as usize;
    let end = start + data.len();
    if image.len() < end {
        image.resize(end, 0);
    }
    image[start..end].copy_from_slice(data);
}

fn set_len(image: &mut Vec<u8>, len: u64) {
    image.resize(len as usize, 0);
}

/// A read or write of a file, with its arguments. See [`crate::DiskControl::watch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataCall {
    /// It writes.
    pub is_write: bool,
    /// The page cache is bypassed, so place and length have to be aligned (the last ones of a file: the
    /// length of the file).
    pub is_direct: bool,
    /// The path, as it was opened.
    pub path: String,
    /// The first byte.
    pub offset: u64,
    /// Bytes that are wanted, or given.
    pub bytes: usize,
}

/// Most calls that are recorded.
const CALLS_MAX: usize = 100_000;

/// One atomic change of names, waiting for a sync of one of `parents`.
struct NameChange {
    parents: Vec<String>,
    changes: Vec<(String, Option<Node>)>,
}

#[derive(Default)]
pub(crate) struct Disk {
    pub(crate) names: BTreeMap<String, Node>,
    durable_names: BTreeMap<String, Node>,
    journal: Vec<NameChange>,
    /// Bytes that files may take; `None` is a large disk.
    pub(crate) capacity: Option<u64>,
    pub(crate) calls: u64,
    /// Calls that change the disk ([`is_change`]).
    pub(crate) changes: u64,
    /// (number of the call, how it fails).
    pub(crate) failures: Vec<(u64, IoErrorKind)>,
    /// (number of the change, how it fails).
    pub(crate) change_failures: Vec<(u64, IoErrorKind)>,
    /// Every change fails like this.
    pub(crate) failing: Option<IoErrorKind>,
    /// Every change of a path that has this part fails like this.
    pub(crate) failing_below: Option<(String, IoErrorKind)>,
    /// Reads that fail like this, one in this many.
    pub(crate) failing_reads: Option<(u64, IoErrorKind)>,
    pub(crate) crash_at: Option<(u64, CrashKind)>,
    /// Like `crash_at`, counting only changes of paths that contain this part; the number of
    /// changes left.
    pub(crate) crash_below: Option<(String, u64, CrashKind)>,
    pub(crate) slow_micros: Option<Range<u64>>,
    /// Calls at a path that has this part take this long.
    pub(crate) slow_below: Option<(String, Range<u64>)>,
    /// Recorded reads and writes of files whose path contains this part, up to [`CALLS_MAX`].
    pub(crate) watched: Option<(String, Vec<DataCall>)>,
    /// Locked path -> number of the process.
    pub(crate) locks: BTreeMap<String, usize>,
    /// How often its bytes were counted.
    rounds: Cell<u64>,
}

impl Disk {
    pub(crate) fn note_call(&mut self, call: impl FnOnce() -> DataCall, path: &str) {
        if let Some((part, calls)) = &mut self.watched
            && path.contains(part.as_str())
            && calls.len() < CALLS_MAX
        {
            calls.push(call());
        }
    }
}

/// The disks of all machines. Numbers are for callers that need a disk at every file call.
#[derive(Default)]
pub(crate) struct Disks {
    numbers: BTreeMap<String, usize>,
    all: Vec<Disk>,
}

impl Disks {
    /// The number of the disk of that machine, made when there is none yet.
    pub(crate) fn number(&mut self, name: &str) -> usize {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        self.all.push(Disk::default());
        self.numbers.insert(name.to_string(), self.all.len() - 1);
        self.all.len() - 1
    }

    pub(crate) fn get(&self, number: usize) -> Option<&Disk> {
        self.all.get(number)
    }

    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut Disk> {
        self.all.get_mut(number)
    }

    /// Returns the disk of that number; created if the world has ended.
    pub(crate) fn at(&mut self, number: usize) -> &mut Disk {
        if self.all.len() <= number {
            self.all.resize_with(number + 1, Disk::default);
        }
        &mut self.all[number]
    }

    pub(crate) fn find_mut(&mut self, name: &str) -> Option<&mut Disk> {
        let number = *self.numbers.get(name)?;
        self.all.get_mut(number)
    }
}

/// Returns true if a call changes the disk: a full or broken disk refuses these.
pub(crate) fn is_change(operation: &str) -> bool {
    matches!(operation, "write" | "truncate" | "mkdir" | "rename" | "link" | "fsync")
}

/// Free bytes of a disk without a set limit, whatever its content.
pub(crate) const LARGE_DISK_BYTES: u64 = 1 << 40;

impl Disk {
    pub(crate) fn make_work_dir(&mut self, work_dir: &str) {
        let path = normal("", work_dir);
        for dir in self_and_parents(&path) {
            self.names.entry(dir.clone()).or_insert(Node::Dir);
            self.durable_names.entry(dir).or_insert(Node::Dir);
        }
    }

    /// How long calls at a path take, in microseconds, where that is not the usual.
    pub(crate) fn slowness(&self, path: &str) -> Option<&Range<u64>> {
        let below = self.slow_below.as_ref().filter(|(part, _)| path.contains(part.as_str()));
        below.map(|(_, micros)| micros).or(self.slow_micros.as_ref())
    }

    pub(crate) fn is_dir(&self, path: &str) -> bool {
        path.is_empty() || matches!(self.names.get(path), Some(Node::Dir))
    }

    pub(crate) fn file(&self, path: &str) -> Option<Rc<RefCell<Inode>>> {
        match self.names.get(path) {
            Some(Node::File(inode)) => Some(Rc::clone(inode)),
            Some(Node::Dir) | None => None,
        }
    }

    /// Changes names now; durable when one of `parents` is synced.
    pub(crate) fn change(&mut self, parents: Vec<String>, changes: Vec<(String, Option<Node>)>) {
        apply(&mut self.names, &changes);
        self.journal.push(NameChange { parents, changes });
    }

    pub(crate) fn sync_dir(&mut self, dir: &str) {
        // From the end: an older change of a path that becomes durable must not overtake it later.
        let mut paths = BTreeSet::new();
        let mut selected = Vec::new();
        for (i, entry) in self.journal.iter().enumerate().rev() {
            let wanted = entry.parents.iter().any(|p| p == dir)
                || entry.changes.iter().any(|(path, _)| paths.contains(path));
            if wanted {
                paths.extend(entry.changes.iter().map(|(path, _)| path.clone()));
                selected.push(i);
            }
        }
        let mut kept = Vec::new();
        for (i, entry) in std::mem::take(&mut self.journal).into_iter().enumerate() {
            if selected.contains(&i) {
                apply(&mut self.durable_names, &entry.changes);
            } else {
                kept.push(entry);
            }
        }
        self.journal = kept;
    }

    /// All that is below `dir`, with `dir` itself.
    pub(crate) fn subtree(&self, dir: &str) -> Vec<(String, Node)> {
        let prefix = format!("{dir}/");
        let below = |path: &String| path == dir || path.starts_with(&prefix);
        self.names
            .range(dir.to_string()..)
            .take_while(|(path, _)| path.starts_with(dir))
            .filter(|(path, _)| below(path))
            .map(|(path, node)| (path.clone(), node.clone()))
            .collect()
    }

    /// Returns the direct entries of `dir`, by path.
    pub(crate) fn children(&self, dir: &str) -> impl Iterator<Item = (&String, &Node)> {
        let prefix = if dir.is_empty() { String::new() } else { format!("{dir}/") };
        let mut from = prefix.clone();
        std::iter::from_fn(move || {
            loop {
                let (path, node) = self.names.range(from.clone()..).next()?;
                let name = path.strip_prefix(&prefix)?;
                match name.split_once('/') {
                    None => {
                        from = format!("{path}\0");
                        return Some((path, node));
                    }
                    // Below a directory: skip to the first path after all of its entries.
                    Some((below, _)) => from = format!("{prefix}{below}0"),
                }
            }
        })
    }

    /// Bytes that all files take.
    pub(crate) fn used(&self) -> u64 {
        let round = self.rounds.get().wrapping_add(1);
        self.rounds.set(round);
        let mut total = 0;
        for node in self.names.values() {
            if let Node::File(inode) = node {
                let mut inode = inode.borrow_mut();
                // Hard links share an inode, which counts once.
                if inode.counted != round {
                    inode.counted = round;
                    total += inode.cache.len() as u64;
                }
            }
        }
        total
    }

    /// Size of the disk: used and free bytes; a large disk has at least its reported free space.
    pub(crate) fn total(&self) -> u64 {
        self.capacity.unwrap_or(LARGE_DISK_BYTES)
    }

    pub(crate) fn free(&self) -> u64 {
        match self.capacity {
            Some(capacity) => capacity.saturating_sub(self.used()),
            // Not worth a scan of every file.
            None => LARGE_DISK_BYTES,
        }
    }

    /// Applies a power cut. A prefix of the unsynced name changes (file systems log them in order)
    /// and, per file, a part of the unsynced writes survive.
    pub(crate) fn power_cut(&mut self, random: &mut dyn FnMut() -> u64, lose_all: bool) {
        let journal = std::mem::take(&mut self.journal);
        let kept = if lose_all { 0 } else { random() % (journal.len() as u64 + 1) };
        for (_, entry) in (0..kept).zip(&journal) {
            apply(&mut self.durable_names, &entry.changes);
        }
        drop(journal);
        // A name whose directory is missing is lost with it.
        let mut names: BTreeMap<String, Node> = BTreeMap::new();
        for (path, node) in &self.durable_names {
            let parent = parent(path);
            if parent.is_empty() || matches!(names.get(parent), Some(Node::Dir)) {
                names.insert(path.clone(), node.clone());
            }
        }
        for node in names.values() {
            if let Node::File(inode) = node {
                inode.borrow_mut().power_cut(random, lose_all);
            }
        }
        self.durable_names = names.clone();
        self.names = names;
    }

    /// The durable content of a durable name.
    pub(crate) fn durable_content(&self, path: &str) -> Option<Vec<u8>> {
        match self.durable_names.get(path) {
            Some(Node::File(inode)) => Some(inode.borrow().durable.clone()),
            Some(Node::Dir) | None => None,
        }
    }

    /// Puts a file there from outside, durably.
    pub(crate) fn put_file(&mut self, path: &str, content: &[u8]) {
        self.make_work_dir(parent(path));
        let inode =
            Inode { cache: content.to_vec(), durable: content.to_vec(), ..Inode::default() };
        let node = Node::File(Rc::new(RefCell::new(inode)));
        self.names.insert(path.to_string(), node.clone());
        self.durable_names.insert(path.to_string(), node);
    }

    /// Removes a file from outside, durably.
    pub(crate) fn take_file(&mut self, path: &str) {
        self.names.remove(path);
        self.durable_names.remove(path);
    }
}

fn apply(names: &mut BTreeMap<String, Node>, changes: &[(String, Option<Node>)]) {
    for (path, node) in changes {
        match node {
            Some(node) => names.insert(path.clone(), node.clone()),
            None => names.remove(path),
        };
    }
}

/// The path without its last part; "" is the root.
pub(crate) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// `path` and all its parents, outermost first, without the root.
pub(crate) fn self_and_parents(path: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut current = path;
    while !current.is_empty() {
        all.push(current.to_string());
        current = parent(current);
    }
    all.reverse();
    all
}

/// The path from the root without leading slash, `.` and `..`.
pub(crate) fn normal(work_dir: &str, path: &str) -> String {
    let whole = if path.starts_with('/') { path.to_string() } else { format!("{work_dir}/{path}") };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}
