//! Samples of the partitions that are read and written most, or cost most, for `nodetool
//! profileload`.
//!
//! While off, they cost a read or write one check of a flag. While on, each sampler of a table keeps at
//! most as many partitions as its capacity: frequencies by the space-saving sketch, whose counts are at
//! most `error` too high, and exact maxima.
//! Source: Cassandra `metrics.Sampler`, `FrequencySampler`, `MaxSampler`; Metwally et al., "Efficient
//! Computation of Frequent and Top-k Elements in Data Streams".

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use data::command::{Partitions, RingBound};
use schema::{Column, Table};
use sstable::offline::key_text;
use stdx::{Instant, Token};
use types::CqlType;

use crate::error::StoreError;
use crate::tables::read_stats::ReadStats;

/// Events that can be sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sampler {
    /// How often partitions are read.
    Reads,
    /// How often partitions are written.
    Writes,
    /// Longest reads, in microseconds.
    LocalReadTime,
    /// Reads of one partition that met the most rows.
    ReadRowCount,
    /// Those that met the most tombstones.
    ReadTombstoneCount,
    /// Those that read the most SSTables.
    ReadSstableCount,
    /// Largest mutations, in bytes.
    WriteSize,
    /// How often conditional writes of a partition met others.
    CasContentions,
}

impl Sampler {
    /// All, in the order in which they are shown.
    pub const ALL: [Sampler; 8] = [
        Sampler::Reads,
        Sampler::Writes,
        Sampler::LocalReadTime,
        Sampler::ReadRowCount,
        Sampler::ReadTombstoneCount,
        Sampler::ReadSstableCount,
        Sampler::WriteSize,
        Sampler::CasContentions,
    ];

    /// Returns Cassandra's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Sampler::Reads => "READS",
            Sampler::Writes => "WRITES",
            Sampler::LocalReadTime => "LOCAL_READ_TIME",
            Sampler::ReadRowCount => "READ_ROW_COUNT",
            Sampler::ReadTombstoneCount => "READ_TOMBSTONE_COUNT",
            Sampler::ReadSstableCount => "READ_SSTABLE_COUNT",
            Sampler::WriteSize => "WRITE_SIZE",
            Sampler::CasContentions => "CAS_CONTENTIONS",
        }
    }

    /// The sampler of a name.
    pub fn of_name(name: &str) -> Option<Sampler> {
        Sampler::ALL.into_iter().find(|sampler| sampler.name() == name)
    }

    /// Returns true if values of one partition add up; else the largest counts.
    fn adds_up(self) -> bool {
        matches!(self, Sampler::Reads | Sampler::Writes | Sampler::CasContentions)
    }
}

/// Subject of a sample.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sampled {
    /// A partition, by its key.
    Partition(Vec<u8>),
    /// A range of tokens, from after the first up to the second.
    Range(Token, Token),
}

impl Sampled {
    fn of(partitions: &Partitions) -> Sampled {
        let token = |bound: &RingBound| match bound {
            RingBound::Token { token, .. } | RingBound::Key { token, .. } => *token,
        };
        match partitions {
            Partitions::Key(key) => Sampled::Partition(key.to_vec()),
            Partitions::Range(range) => Sampled::Range(token(&range.start), token(&range.end)),
        }
    }
}

impl Sampled {
    /// The key as text, as Cassandra's tools show it; for the sampler of reads' times the read as a query.
    pub fn text(&self, table: &Table, sampler: Sampler) -> String {
        let is_query = sampler == Sampler::LocalReadTime;
        let keys = table.partition_key();
        let from = format!("SELECT * FROM {}.{} WHERE", table.keyspace, table.name);
        match self {
            Sampled::Partition(key) if is_query => {
                let values = key_values(keys.len(), key);
                let pairs = keys.iter().zip(values);
                let equal = |(column, value): (&Column, &[u8])| {
                    format!("{} = {}", column.name, column.ty.format_cql_literal(value))
                };
                format!("{from} {}", pairs.map(equal).collect::<Vec<_>>().join(" AND "))
            }
            Sampled::Partition(key) => {
                let types: Vec<CqlType> = keys.iter().map(|column| column.ty.clone()).collect();
                key_text(&types, key)
            }
            Sampled::Range(start, end) => {
                let names: Vec<&str> = keys.iter().map(|column| &*column.name).collect();
                let names = names.join(", ");
                format!("{from} token({names}) > {} AND token({names}) <= {}", start.0, end.0)
            }
        }
    }
}

/// The values of a key's components; fewer where it is damaged.
fn key_values(components: usize, key: &[u8]) -> Vec<&[u8]> {
    if components == 1 {
        return vec![key];
    }
    let mut r = codec::Reader::new(key, "composite key");
    let mut values = Vec::new();
    while values.len() < components {
        let Ok(value) = r.bytes_u16() else { break };
        values.push(value);
        if r.u8().is_err() {
            break;
        }
    }
    values
}

/// One of the first of a sampler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The subject.
    pub what: Sampled,
    /// How often, or how much.
    pub count: u64,
    /// By how much `count` may be too high.
    pub error: u64,
}

/// The first of many, in bounded memory.
#[derive(Debug)]
struct Sketch {
    capacity: usize,
    counts: BTreeMap<Sampled, (u64, u64)>,
    order: BTreeSet<(u64, Sampled)>,
}

impl Sketch {
    fn new(capacity: usize) -> Sketch {
        Sketch { capacity: capacity.max(1), counts: BTreeMap::new(), order: BTreeSet::new() }
    }

    fn set(&mut self, what: Sampled, count: u64, error: u64) {
        self.order.insert((count, what.clone()));
        self.counts.insert(what, (count, error));
    }

    fn take_least(&mut self) -> u64 {
        let Some((least, what)) = self.order.pop_first() else { return 0 };
        self.counts.remove(&what);
        least
    }

    /// Adds to the count of one entry. Without room it replaces the least one, and inherits its
    /// count.
    fn add(&mut self, what: Sampled, by: u64) {
        match self.counts.get(&what).copied() {
            Some((count, error)) => {
                self.order.remove(&(count, what.clone()));
                self.set(what, count.saturating_add(by), error);
            }
            None if self.counts.len() < self.capacity => self.set(what, by, 0),
            None => {
                let least = self.take_least();
                self.set(what, least.saturating_add(by), least);
            }
        }
    }

    /// Keeps the larger value of one entry. Without room it replaces the least one.
    fn raise(&mut self, what: Sampled, to: u64) {
        match self.counts.get(&what).copied() {
            Some((count, _)) if count >= to => {}
            Some((count, _)) => {
                self.order.remove(&(count, what.clone()));
                self.set(what, to, 0);
            }
            None if self.counts.len() < self.capacity => self.set(what, to, 0),
            None if self.order.first().is_some_and(|(least, _)| *least < to) => {
                self.take_least();
                self.set(what, to, 0);
            }
            None => {}
        }
    }

    fn first(mut self, count: usize) -> Vec<Sample> {
        let mut first = Vec::new();
        while let Some((value, what)) = self.order.pop_last().filter(|_| first.len() < count) {
            let error = self.counts.get(&what).map_or(0, |(_, error)| *error);
            first.push(Sample { what, count: value, error });
        }
        first
    }
}

#[derive(Debug)]
struct Running {
    until: Instant,
    sketch: Sketch,
}

/// The samplers of a table that are on.
#[derive(Debug, Default)]
pub(crate) struct Sampling {
    is_on: Cell<bool>,
    running: RefCell<BTreeMap<Sampler, Running>>,
}

/// How long samples are kept that no client fetches.
const KEPT_FOR: Duration = Duration::from_secs(600);

impl Sampling {
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.get()
    }

    pub(crate) fn begin(
        &self,
        samplers: &[Sampler],
        capacity: usize,
        now: Instant,
        duration: Duration,
    ) -> Result<(), StoreError> {
        let until = now + duration;
        let mut running = self.running.borrow_mut();
        let is_active = |sampler| running.get(sampler).is_some_and(|r| r.until > now);
        if samplers.iter().any(is_active) {
            return Err(StoreError::Invalid("Sampling already in progress".to_owned()));
        }
        for sampler in samplers {
            running.insert(*sampler, Running { until, sketch: Sketch::new(capacity) });
        }
        self.is_on.set(!running.is_empty());
        Ok(())
    }

    pub(crate) fn finish(&self, samplers: &[Sampler], count: usize) -> Vec<(Sampler, Vec<Sample>)> {
        let mut running = self.running.borrow_mut();
        let mut all = Vec::new();
        for sampler in samplers {
            let first = running.remove(sampler).map(|running| running.sketch.first(count));
            all.push((*sampler, first.unwrap_or_default()));
        }
        self.is_on.set(!running.is_empty());
        all
    }

    fn note(&self, now: Instant, sampler: Sampler, what: &Sampled, value: u64) {
        let mut all = self.running.borrow_mut();
        let Some(running) = all.get_mut(&sampler) else { return };
        if value > 0 && now <= running.until {
            let (what, sketch) = (what.clone(), &mut running.sketch);
            match sampler.adds_up() {
                true => sketch.add(what, value),
                false => sketch.raise(what, value),
            }
        } else if now > running.until + KEPT_FOR {
            // The client that began it went away.
            all.remove(&sampler);
            self.is_on.set(!all.is_empty());
        }
    }

    #[cold]
    pub(crate) fn note_read(
        &self,
        partitions: &Partitions,
        began: Instant,
        took: Duration,
        stats: &ReadStats,
    ) {
        let (now, what) = (began + took, Sampled::of(partitions));
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.note(now, Sampler::LocalReadTime, &what, micros);
        if let Sampled::Partition(_) = what {
            self.note(now, Sampler::Reads, &what, 1);
            self.note(now, Sampler::ReadRowCount, &what, stats.rows);
            self.note(now, Sampler::ReadTombstoneCount, &what, u64::from(stats.tombstones));
            self.note(now, Sampler::ReadSstableCount, &what, u64::from(stats.sstables));
        }
    }

    #[cold]
    pub(crate) fn note_write(&self, now: Instant, key: &[u8], bytes: usize) {
        let what = Sampled::Partition(key.to_vec());
        self.note(now, Sampler::Writes, &what, 1);
        self.note(now, Sampler::WriteSize, &what, bytes as u64);
    }

    #[cold]
    pub(crate) fn note_contentions(&self, now: Instant, key: &[u8], contentions: u64) {
        self.note(now, Sampler::CasContentions, &Sampled::Partition(key.to_vec()), contentions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(n: u64) -> Sampled {
        Sampled::Partition(n.to_be_bytes().to_vec())
    }

    #[test]
    fn frequent_ones_are_found_among_many_and_errors_bound_their_counts() {
        let mut sketch = Sketch::new(100);
        let mut true_counts: BTreeMap<Sampled, u64> = BTreeMap::new();
        let mut state = 1_u64;
        for _ in 0..50_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Half of all are one of ten, n of them n times as often; the others one of 10,000.
            let random = state >> 33;
            let n = match random % 2 {
                0 => ((random / 2) % 55).isqrt(),
                _ => 1000 + random / 2 % 10_000,
            };
            sketch.add(of(n), 1);
            *true_counts.entry(of(n)).or_default() += 1;
        }
        assert!(sketch.counts.len() <= 100 && sketch.order.len() == sketch.counts.len());
        let first = sketch.first(5);
        let mut largest: Vec<_> = true_counts.iter().map(|(what, n)| (*n, what)).collect();
        largest.sort_unstable_by(|a, b| b.cmp(a));
        for (sample, (count, what)) in first.iter().zip(&largest) {
            assert_eq!(&sample.what, *what);
            assert!(sample.count >= *count && sample.count - sample.error <= *count, "{sample:?}");
        }
        assert_eq!(first.len(), 5);
    }

    #[test]
    fn the_largest_are_kept_once_each() {
        let mut sketch = Sketch::new(3);
        for (n, value) in [(1, 5), (2, 7), (1, 3), (3, 1), (4, 2), (5, 1), (1, 9)] {
            sketch.raise(of(n), value);
        }
        let found: Vec<_> = sketch.first(10).into_iter().map(|s| (s.what, s.count)).collect();
        assert_eq!(found, [(of(1), 9), (of(2), 7), (of(4), 2)]);
    }
}
