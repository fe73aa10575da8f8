//! Long simulated workloads: the cost of each strategy in writes, reads and space.
//!
//! A table is a set of files, a file the versions of keys that it holds; writes fill files of one size,
//! which are flushed at even times, and after each flush everything runs that the pickers want. Versions
//! are merged as the store merges them: the newest of a key wins, what has expired becomes a tombstone,
//! and a tombstone goes when it is old enough and no other file has the key. There is no clock and no
//! chance in it but a generator of fixed seed: equal arguments give equal counts.
//!
//! It leaves out: different sizes of values, compression, false positives of Bloom filters, memtables (a
//! read checks files only), and time: compactions end at once, so none falls behind.

use std::collections::BTreeMap;

use stdx::{DeletionSeconds, Generation, TimestampMicros, Token, Uuid, WallMicros};

use crate::parts::parts;
use crate::{CompactionOptions, Cut, Plan, SstableInfo, TableState, Windows, next};

/// Versions of keys in a flushed file.
pub const FLUSH_ENTRIES: u64 = 512;
/// Bytes of a version on disk.
pub const ENTRY_BYTES: u64 = 128 << 10;
/// Seconds between two flushes.
pub const FLUSH_SECONDS: i64 = 600;
/// Age at which tombstones may go, seconds.
pub const GRACE_SECONDS: i64 = 3_600;
/// Life of what [`Workload::Expiring`] writes, seconds.
pub const TTL_SECONDS: i64 = 86_400;
/// Keys that [`Workload::Overwrite`] writes repeatedly.
pub const OVERWRITTEN_KEYS: u64 = 8_192;
/// Reads whose files are counted after each flush.
const READS: u64 = 64;

/// Pattern of the writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Every key once.
    Insert,
    /// The same keys repeatedly, each as often as the others.
    Overwrite,
    /// Equal numbers of deletions and insertions, the deletions of keys of any age.
    Delete,
    /// Every key once, each with a time to live: a time series.
    Expiring,
}

impl Workload {
    /// All.
    pub const ALL: [Workload; 4] =
        [Workload::Insert, Workload::Overwrite, Workload::Delete, Workload::Expiring];

    /// For tables.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Insert => "insert only",
            Workload::Overwrite => "overwrite",
            Workload::Delete => "delete-heavy",
            Workload::Expiring => "time series with TTL",
        }
    }
}

/// Cost of a workload. Space and reads are of the second half of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    /// Bytes flushed.
    pub flushed: u64,
    /// Bytes written, those that were flushed among them.
    pub written: u64,
    /// Compactions.
    pub compactions: u64,
    /// Files that hold a version of the key that is read, which is alive: mean, what 99 of 100 reads
    /// keep to, and most.
    pub files_per_read: f64,
    /// See `files_per_read`.
    pub files_per_read_p99: u64,
    /// See `files_per_read`.
    pub files_per_read_max: u64,
    /// Bytes of all files relative to those of live data: mean and maximum.
    pub space: f64,
    /// See `space`.
    pub space_max: f64,
    /// Most bytes that one compaction had written before its inputs were removed.
    pub temporary: u64,
    /// The same for the bytes of the table at that moment, at most.
    pub temporary_share: f64,
    /// Bytes of the files at the end.
    pub bytes: u64,
    /// Files at the end.
    pub files: u64,
    /// Keys that the files show otherwise at the end than they were written: none, or merging or purging
    /// is wrong.
    pub wrong: u64,
}

impl Costs {
    /// Bytes written for each byte flushed.
    pub fn write_amplification(&self) -> f64 {
        self.written as f64 / self.flushed.max(1) as f64
    }
}

/// A version of a key.
#[derive(Clone, Copy, Debug)]
struct Version {
    token: i64,
    /// First clustering value: the key's number.
    clustering: i64,
    /// Time of the write, seconds.
    at: i64,
    /// When it ends; of a tombstone, when it was deleted. `i64::MAX`: it does not.
    ends: i64,
    is_tombstone: bool,
}

impl Version {
    fn is_alive(&self, now: i64) -> bool {
        !self.is_tombstone && self.ends > now
    }
}

struct File {
    info: SstableInfo,
    /// Ascending by token, each once.
    versions: Vec<Version>,
}

impl File {
    fn has(&self, token: i64) -> bool {
        self.versions.binary_search_by_key(&token, |v| v.token).is_ok()
    }
}

/// splitmix64.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn token_of(key: u64) -> i64 {
    i64::from_be_bytes(mix(key).to_be_bytes())
}

struct Table<'a> {
    options: &'a CompactionOptions,
    files: Vec<File>,
    generation: u64,
    runs: u128,
    costs: Costs,
    is_measured: bool,
}

/// Runs a workload of this many flushes.
pub fn run(options: &CompactionOptions, workload: Workload, flushes: u64) -> Costs {
    let mut table = Table {
        options,
        files: Vec::new(),
        generation: 0,
        runs: 0,
        costs: Costs::default(),
        is_measured: false,
    };
    let mut writes = Writes { workload, inserted: 0, drawn: 0, newest: Default::default() };
    let (mut reads, mut states) = (Vec::new(), (0.0, 0));
    for flush in 0..flushes {
        let seconds = i64::try_from(flush + 1).unwrap_or(i64::MAX).saturating_mul(FLUSH_SECONDS);
        let versions = writes.draw(seconds);
        table.is_measured = flush >= flushes / 2;
        table.flush(versions, seconds);
        if !table.is_measured {
            continue;
        }
        for n in 0..READS {
            let Some(token) = writes.alive(flush * READS + n, seconds) else { continue };
            let files = table.files.iter().filter(|f| f.has(token)).count() as u64;
            reads.push(files);
        }
        let alive = writes.newest.values().filter(|v| v.is_alive(seconds)).count() as u64;
        let space = table.bytes() as f64 / (alive.max(1) * ENTRY_BYTES) as f64;
        states = (states.0 + space, states.1 + 1);
        table.costs.space_max = table.costs.space_max.max(space);
    }
    reads.sort_unstable();
    table.costs.files_per_read = reads.iter().sum::<u64>() as f64 / reads.len().max(1) as f64;
    table.costs.files_per_read_p99 = reads.get(reads.len() * 99 / 100).copied().unwrap_or(0);
    table.costs.files_per_read_max = reads.last().copied().unwrap_or(0);
    table.costs.space = states.0 / f64::from(states.1.max(1));
    table.costs.bytes = table.bytes();
    table.costs.files = table.files.len() as u64;
    let end = i64::try_from(flushes).unwrap_or(i64::MAX).saturating_mul(FLUSH_SECONDS);
    table.costs.wrong = table.wrong(&writes.newest, end);
    table.costs
}

/// Generator of the writes, with the newest version of each key.
struct Writes {
    workload: Workload,
    inserted: u64,
    drawn: u64,
    newest: BTreeMap<i64, Version>,
}

impl Writes {
    fn random(&mut self) -> u64 {
        self.drawn += 1;
        mix(self.drawn ^ 0xA5A5_0000_0000)
    }

    fn draw(&mut self, seconds: i64) -> Vec<Version> {
        let mut drawn = BTreeMap::new();
        while (drawn.len() as u64) < FLUSH_ENTRIES {
            let version = self.version(seconds);
            drawn.insert(version.token, version);
            self.newest.insert(version.token, version);
        }
        if self.workload == Workload::Expiring {
            // Drops expired versions, which no read returns.
            self.newest.retain(|_, v| v.is_alive(seconds));
        }
        drawn.into_values().collect()
    }

    fn version(&mut self, seconds: i64) -> Version {
        let is_tombstone = self.workload == Workload::Delete && self.random().is_multiple_of(2);
        let key = match self.workload {
            Workload::Overwrite => self.random() % OVERWRITTEN_KEYS,
            _ if is_tombstone => self.random() % self.inserted.max(1),
            _ => {
                self.inserted += 1;
                self.inserted - 1
            }
        };
        let ends = match self.workload {
            Workload::Expiring => seconds + TTL_SECONDS,
            _ if is_tombstone => seconds,
            _ => i64::MAX,
        };
        let clustering = i64::try_from(key).unwrap_or(i64::MAX);
        Version { token: token_of(key), clustering, at: seconds, ends, is_tombstone }
    }

    /// Any key that is alive.
    fn alive(&self, n: u64, now: i64) -> Option<i64> {
        let after = token_of(n ^ 0x5EED_0000);
        let mut behind = self.newest.range(after..).chain(&self.newest);
        behind.find(|(_, version)| version.is_alive(now)).map(|(token, _)| *token)
    }
}

impl Table<'_> {
    fn bytes(&self) -> u64 {
        self.files.iter().map(|f| f.info.size_bytes).sum()
    }

    fn wrong(&self, newest: &BTreeMap<i64, Version>, now: i64) -> u64 {
        let mut found: BTreeMap<i64, &Version> = BTreeMap::new();
        for version in self.files.iter().flat_map(|f| &f.versions) {
            let slot = found.entry(version.token).or_insert(version);
            if version.at > slot.at {
                *slot = version;
            }
        }
        found.retain(|_, v| v.is_alive(now));
        let alive = newest.values().filter(|v| v.is_alive(now));
        let right = alive.clone().filter(|v| found.get(&v.token).is_some_and(|f| f.at == v.at));
        let right = right.count() as u64;
        // Missing versions, and versions that should be gone.
        alive.count() as u64 - right + found.len() as u64 - right
    }

    fn flush(&mut self, versions: Vec<Version>, seconds: i64) {
        let bytes = versions.len() as u64 * ENTRY_BYTES;
        self.costs.flushed += bytes;
        self.add(versions, seconds, 0, None);
        // Far more than a table needs until no compaction is due.
        for _ in 0..10_000 {
            let candidates: Vec<SstableInfo> = self.files.iter().map(|f| f.info.clone()).collect();
            let state = TableState {
                candidates: &candidates,
                others: &[],
                memtable_min_timestamp: None,
                gc_before: DeletionSeconds(seconds - GRACE_SECONDS),
                now: WallMicros(seconds.saturating_mul(1_000_000)),
                flush_bytes: Some(bytes),
            };
            let Some(plan) = next(self.options, &state) else { return };
            self.costs.compactions += 1;
            self.runs += 1;
            for part in parts(&plan, &candidates) {
                self.compact(&part, seconds);
            }
        }
    }

    fn compact(&mut self, plan: &Plan, seconds: i64) {
        let before = self.bytes();
        let (inputs, rest): (Vec<File>, Vec<File>) =
            self.files.drain(..).partition(|file| plan.inputs.contains(&file.info.generation));
        self.files = rest;
        let runs: Vec<Option<Uuid>> = inputs.iter().map(|f| f.info.run).collect();
        let run = match runs.split_first() {
            Some((Some(first), others)) if others.iter().all(|r| *r == Some(*first)) => {
                Some(*first)
            }
            _ => Some(Uuid::from_u128(self.runs)),
        };
        let is_read = |file: &&File| !plan.expired.contains(&file.info.generation);
        let mut versions: Vec<Version> =
            inputs.iter().filter(is_read).flat_map(|f| f.versions.iter().copied()).collect();
        // The newest of a key first; of a tie the tombstone, then what ends first.
        versions.sort_unstable_by_key(|v| (v.token, -v.at, !v.is_tombstone, v.ends));
        versions.dedup_by_key(|v| v.token);
        for version in &mut versions {
            version.is_tombstone |= version.ends <= seconds;
        }
        let files = &self.files;
        versions.retain(|v| {
            let may_go = v.is_tombstone && v.ends < seconds - GRACE_SECONDS;
            !may_go
                || files
                    .iter()
                    .any(|f| f.info.min_timestamp.0 <= v.at * 1_000_000 && f.has(v.token))
        });
        let written = versions.len() as u64 * ENTRY_BYTES;
        if self.is_measured {
            self.costs.temporary = self.costs.temporary.max(written);
            let share = written as f64 / before.max(1) as f64;
            self.costs.temporary_share = self.costs.temporary_share.max(share);
        }
        for piece in pieces(versions, &plan.cut, self.options.cluster_key.windows) {
            self.add(piece, seconds, plan.level, run);
        }
    }

    fn add(&mut self, versions: Vec<Version>, seconds: i64, level: u32, run: Option<Uuid>) {
        let (Some(first), Some(last)) = (versions.first(), versions.last()) else { return };
        self.generation += 1;
        let bytes = versions.len() as u64 * ENTRY_BYTES;
        self.costs.written += bytes;
        let before = seconds - GRACE_SECONDS;
        let droppable = versions.iter().filter(|v| v.ends < before).count();
        let micros = |of: Option<i64>| TimestampMicros(of.unwrap_or(0).saturating_mul(1_000_000));
        let info = SstableInfo {
            generation: Generation(self.generation),
            size_bytes: bytes,
            level,
            min_timestamp: micros(versions.iter().map(|v| v.at).min()),
            max_timestamp: micros(versions.iter().map(|v| v.at).max()),
            max_local_deletion_time: match versions.iter().map(|v| v.ends).max() {
                Some(ends) if ends < i64::MAX => DeletionSeconds(ends),
                _ => DeletionSeconds::NONE,
            },
            droppable_tombstone_ratio: droppable as f64 / versions.len().max(1) as f64,
            first_token: Token(first.token),
            last_token: Token(last.token),
            repaired_at: 0,
            pending_repair: None,
            run,
            windows: self.options.cluster_key.windows.and_then(|windows| {
                let of = versions.iter().map(|v| windows.window_of(v.clustering));
                Some((of.clone().min()?, of.max()?))
            }),
            created_at: WallMicros(seconds.saturating_mul(1_000_000)),
            hotness: 0.0,
        };
        self.files.push(File { info, versions });
    }
}

/// The outputs of a compaction.
fn pieces(versions: Vec<Version>, cut: &Cut, windows: Option<Windows>) -> Vec<Vec<Version>> {
    match cut {
        // Only a compaction on request has such sizes; this model has background compactions only.
        Cut::Never | Cut::AtSizes(_) => vec![versions],
        Cut::AtBytes(bytes) => {
            let most = usize::try_from((bytes / ENTRY_BYTES).max(1)).unwrap_or(usize::MAX);
            versions.chunks(most).map(<[Version]>::to_vec).collect()
        }
        Cut::AtWindows => {
            let mut pieces: BTreeMap<i64, Vec<Version>> = BTreeMap::new();
            for version in versions {
                let window = windows.map_or(0, |windows| windows.window_of(version.clustering));
                pieces.entry(window).or_default().push(version);
            }
            pieces.into_values().collect()
        }
        Cut::AtTokens(tokens) => {
            let mut pieces = vec![Vec::new()];
            let mut last = 0;
            for version in versions {
                let at = tokens.partition_point(|t| t.0 < version.token);
                if at != last {
                    pieces.push(Vec::new());
                    last = at;
                }
                if let Some(piece) = pieces.last_mut() {
                    piece.push(version);
                }
            }
            pieces
        }
    }
}

/// The strategies that are compared, each with a name: by their defaults, but for the window.
pub fn compared() -> Vec<(&'static str, CompactionOptions)> {
    let of = |class: &str, more: &[(&str, &str)]| {
        let class = [("class", class)];
        crate::parse_options(class.into_iter().chain(more.iter().copied())).unwrap_or_default()
    };
    let window = [("compaction_window_unit", "HOURS"), ("compaction_window_size", "4")];
    // The number of keys that are inserted in such a window.
    let keys = [("compaction_window_unit", "THOUSANDS"), ("compaction_window_size", "12")];
    let key = Some(("k", "bigint"));
    vec![
        ("STCS", of("SizeTieredCompactionStrategy", &[])),
        ("LCS", of("LeveledCompactionStrategy", &[])),
        ("TWCS", of("TimeWindowCompactionStrategy", &window)),
        ("UCS", of("UnifiedCompactionStrategy", &[])),
        ("ICS", of("IncrementalCompactionStrategy", &[])),
        (
            "ICS, goal 1.5",
            of("IncrementalCompactionStrategy", &[("space_amplification_goal", "1.5")]),
        ),
        ("CKCS", of("ClusterKeyCompactionStrategy", &keys).for_table(key).unwrap_or_default()),
    ]
}

#[cfg(test)]
mod tests;
