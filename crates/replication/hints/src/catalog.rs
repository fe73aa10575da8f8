//! Catalog of a shard's hints: files, hints in memory, liveness of replicas. No effects.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rt::File;
use stdx::{HostId, Instant, WallMicros};

use crate::format::{FileId, HEADER_BYTES, HintRef, record_bytes};
use crate::sealed::HintCipher;
use crate::settings::HintsSettings;

/// Bytes that one write and one sync make durable, at most (one hint may stick out).
const PORTION_BYTES_MAX: u64 = 4 << 20;

/// A hint that waits in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) written_at: WallMicros,
    pub(crate) gc_grace_seconds: u32,
    pub(crate) mutation: Box<[u8]>,
}

impl Kept {
    pub(crate) fn hint(&self) -> HintRef<'_> {
        HintRef {
            written_at: self.written_at,
            gc_grace_seconds: self.gc_grace_seconds,
            mutation: &self.mutation,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        record_bytes(self.mutation.len())
    }
}

/// A hint file that has synced records.
#[derive(Clone, Debug)]
pub(crate) struct HintFile {
    pub(crate) created: WallMicros,
    /// Bytes that may be read: synced by this run, or found at the start.
    pub(crate) bytes: u64,
    /// Everything before was delivered or dropped. Meaningful when `opened`.
    pub(crate) offset: u64,
    /// `offset` as the progress file has it.
    pub(crate) saved: u64,
    /// Offsets of delivered hints after `offset`.
    pub(crate) acked: BTreeSet<u64>,
    /// Header and progress were read.
    pub(crate) opened: bool,
    /// Had damage: it is quarantined once delivered.
    pub(crate) damaged: bool,
    /// Starts of the gaps that were logged.
    pub(crate) reported: BTreeSet<u64>,
    /// Failed reads since it last went on.
    pub(crate) read_failures: u32,
}

impl HintFile {
    pub(crate) fn new(created: WallMicros, bytes: u64) -> HintFile {
        HintFile {
            created,
            bytes,
            offset: HEADER_BYTES as u64,
            saved: 0,
            acked: BTreeSet::new(),
            opened: false,
            damaged: false,
            reported: BTreeSet::new(),
            read_failures: 0,
        }
    }
}

/// The file that is being written for a replica.
#[derive(Clone)]
pub(crate) struct Active {
    pub(crate) id: FileId,
    pub(crate) file: File,
    /// True if its directory entry is durable.
    pub(crate) entry_synced: bool,
    /// Its encryption; `None`: there is none.
    pub(crate) cipher: Option<HintCipher>,
}

/// One replica.
#[derive(Default)]
pub(crate) struct Host {
    pub(crate) up: bool,
    pub(crate) down_since: Option<Instant>,
    /// The replica was down when some of its hints were stored, or has been since. Its delivery is
    /// throttled, because a node that comes back has much else to do. Hints for a replica that was
    /// up all the time are delivered at full speed.
    pub(crate) throttled: bool,
    /// A delivery failed: the next one begins then.
    pub(crate) retry_at: Instant,
    /// The replica left the cluster; its hints are dropped or redistributed.
    pub(crate) left: bool,
    pub(crate) files: BTreeMap<FileId, HintFile>,
    pub(crate) active: Option<Active>,
    pub(crate) waiting: VecDeque<Kept>,
    /// Bytes of `waiting` and of the portion that is being written.
    pub(crate) waiting_bytes: u64,
    /// When the first and the last hint of that portion were written.
    pub(crate) writing: Option<(WallMicros, WallMicros)>,
    /// A task delivers, hands on or removes its files.
    pub(crate) busy: bool,
}

impl Host {
    /// Bytes kept for it.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.values().map(|f| f.bytes).sum::<u64>() + self.waiting_bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.waiting_bytes == 0
    }

    /// When the oldest hint was written, or its file begun.
    pub(crate) fn oldest(&self) -> Option<WallMicros> {
        let file = self.files.values().map(|f| f.created).min();
        let waiting = self.waiting.front().map(|k| k.written_at);
        [file, self.writing.map(|w| w.0), waiting].into_iter().flatten().min()
    }

    /// When the youngest file was begun, or its last waiting hint written.
    fn newest(&self) -> Option<WallMicros> {
        let file = self.files.values().map(|f| f.created).max();
        let waiting = self.waiting.back().map(|k| k.written_at);
        [file, self.writing.map(|w| w.1), waiting].into_iter().flatten().max()
    }
}

/// Hints kept for one replica, for `nodetool listpendinghints`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingHints {
    /// The replica.
    pub host: HostId,
    /// Files.
    pub files: u64,
    /// Their bytes, and those in memory.
    pub bytes: u64,
    /// When the oldest file was begun, or the oldest hint in memory written.
    pub oldest: WallMicros,
    /// The same time of the newest one.
    pub newest: WallMicros,
}

impl PendingHints {
    /// Puts the lists of several shards together, by host id.
    pub fn merge(lists: impl IntoIterator<Item = Vec<PendingHints>>) -> Vec<PendingHints> {
        let mut all: BTreeMap<HostId, PendingHints> = BTreeMap::new();
        for one in lists.into_iter().flatten() {
            let Some(sum) = all.get_mut(&one.host) else {
                all.insert(one.host, one);
                continue;
            };
            sum.files += one.files;
            sum.bytes += one.bytes;
            sum.oldest = sum.oldest.min(one.oldest);
            sum.newest = sum.newest.max(one.newest);
        }
        all.into_values().collect()
    }
}

pub(crate) struct State {
    pub(crate) settings: HintsSettings,
    pub(crate) hosts: BTreeMap<HostId, Host>,
    /// Bytes of files that were set aside; they count into the total.
    pub(crate) aside_bytes: u64,
    pub(crate) next_sequence: u64,
    pub(crate) disk_full: bool,
    pub(crate) paused: bool,
    /// Number of running transfers, which hand over all hints.
    pub(crate) transfers: i64,
    pub(crate) closed: bool,
}

impl State {
    pub(crate) fn buffered_bytes(&self) -> u64 {
        self.hosts.values().map(|h| h.waiting_bytes).sum()
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        self.hosts.values().map(Host::bytes).sum::<u64>() + self.aside_bytes
    }

    pub(crate) fn files(&self) -> usize {
        self.hosts.values().map(|h| h.files.len()).sum()
    }

    pub(crate) fn file(&self, id: FileId) -> Option<&HintFile> {
        self.hosts.get(&id.target)?.files.get(&id)
    }

    pub(crate) fn file_mut(&mut self, id: FileId) -> Option<&mut HintFile> {
        self.hosts.get_mut(&id.target)?.files.get_mut(&id)
    }

    pub(crate) fn pending(&self) -> Vec<PendingHints> {
        let of = |(host, h): (&HostId, &Host)| {
            let (oldest, newest) = (h.oldest()?, h.newest()?);
            let files = h.files.len() as u64;
            Some(PendingHints { host: *host, files, bytes: h.bytes(), oldest, newest })
        };
        self.hosts.iter().filter_map(of).collect()
    }

    /// Takes the oldest waiting hints of a replica, as many as one write makes durable.
    pub(crate) fn take_portion(&mut self, target: HostId) -> Vec<Kept> {
        let room = self.settings.file_bytes_max.saturating_sub(HEADER_BYTES as u64);
        let most = PORTION_BYTES_MAX.min(room);
        let mut portion = Vec::new();
        let mut bytes = 0;
        let Some(host) = self.hosts.get_mut(&target) else { return portion };
        while let Some(kept) = host.waiting.pop_front() {
            let ends = bytes + kept.bytes() > most || stdx::chaos!("hints-portion-small");
            if !portion.is_empty() && ends {
                host.waiting.push_front(kept);
                break;
            }
            bytes += kept.bytes();
            portion.push(kept);
        }
        let ends = portion.first().zip(portion.last());
        host.writing = ends.map(|(first, last)| (first.written_at, last.written_at));
        portion
    }

    /// The portion is durable, or dropped.
    pub(crate) fn portion_done(&mut self, target: HostId, portion: &[Kept]) {
        let bytes: u64 = portion.iter().map(Kept::bytes).sum();
        if let Some(host) = self.hosts.get_mut(&target) {
            host.writing = None;
            stdx::invariant!(
                host.waiting_bytes >= bytes,
                "INV-hints-3: {bytes} bytes of hints leave memory, {} were counted",
                host.waiting_bytes
            );
            host.waiting_bytes = host.waiting_bytes.saturating_sub(bytes);
        }
    }

    /// Puts a portion back that could not be written: it waits again, before later hints.
    pub(crate) fn portion_failed(&mut self, target: HostId, portion: Vec<Kept>) {
        if let Some(host) = self.hosts.get_mut(&target) {
            host.writing = None;
            for kept in portion.into_iter().rev() {
                host.waiting.push_front(kept);
            }
        }
    }

    /// Forgets what waits for a replica, but for the portion that is being written: the number of
    /// hints.
    pub(crate) fn drop_waiting(&mut self, target: HostId) -> u64 {
        let Some(host) = self.hosts.get_mut(&target) else { return 0 };
        let waiting = std::mem::take(&mut host.waiting);
        let bytes: u64 = waiting.iter().map(Kept::bytes).sum();
        stdx::invariant!(
            host.waiting_bytes >= bytes,
            "INV-hints-3: {bytes} bytes of hints are dropped, {} were counted",
            host.waiting_bytes
        );
        host.waiting_bytes = host.waiting_bytes.saturating_sub(bytes);
        waiting.len() as u64
    }
}
