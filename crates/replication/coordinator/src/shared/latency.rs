//! Latencies of replicas: they decide which replicas reads prefer, and when reads ask one more.
//!
//! Owns: a moving average per host, latencies of a table's reads. Never: clocks (`now` is an
//! argument), requests.
//!
//! Source of the preference: Cassandra `DynamicEndpointSnitch.sortByProximityWithScore`, with an
//! exponentially weighted average instead of a decaying reservoir's median.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use request::ReplicaInfo;
use smallvec::SmallVec;
use stdx::{FixedMap, HostId, Instant, TableId};

use replica::ReplicationSettings;

/// Weight of a new sample in a host's average: an eighth, as TCP's round-trip time.
const WEIGHT_SHIFT: u32 = 3;
/// Samples of a table before a percentile is believed.
const SAMPLES_MIN: u64 = 64;
/// Maximum age of a cached percentile.
const PERCENTILE_AGE_MAX: Duration = Duration::from_secs(1);
/// Samples are halved when so much time has passed, so that the last minutes count.
const HALF_LIFE: Duration = Duration::from_secs(60);
/// Eight buckets for each power of two, from a microsecond to over an hour.
const BUCKETS: usize = 256;

/// Latencies that one shard has measured.
pub(crate) struct Latencies {
    state: RefCell<State>,
    settings: Settings,
}

#[derive(Clone, Copy)]
struct Settings {
    is_dynamic: bool,
    update_interval: Duration,
    reset_interval: Duration,
    badness_threshold: f64,
}

#[derive(Default)]
struct State {
    /// Moving average of each host since the last reset, nanoseconds.
    averages: BTreeMap<HostId, u64>,
    /// The averages as of the last update; reads use these.
    scores: FixedMap<HostId, u64>,
    updated_at: Option<Instant>,
    reset_at: Instant,
    tables: FixedMap<TableId, ReadLatencies>,
}

struct ReadLatencies {
    buckets: Vec<u32>,
    count: u64,
    halved_at: Instant,
    /// Percentiles that were asked for: share in millionths, value, when it was taken.
    known: SmallVec<[(u32, Duration, Instant); 2]>,
}

impl Latencies {
    pub(crate) fn new(settings: &ReplicationSettings) -> Latencies {
        Latencies {
            state: RefCell::default(),
            settings: Settings {
                is_dynamic: settings.dynamic_snitch,
                update_interval: settings.dynamic_snitch_update_interval,
                reset_interval: settings.dynamic_snitch_reset_interval,
                badness_threshold: settings.dynamic_snitch_badness_threshold,
            },
        }
    }

    /// A replica took so long to answer a read; a timeout counts with its whole time.
    pub(crate) fn note(&self, host: HostId, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1);
        let mut state = self.state.borrow_mut();
        let average = state.averages.entry(host).or_insert(nanos);
        *average = moved(*average, nanos);
    }

    /// Sets the ranks of replicas: by place (this node, its rack, its datacenter, others), unless
    /// the best by place is much slower than the fastest of them.
    pub(crate) fn rank(
        &self,
        now: Instant,
        replicas: &mut [ReplicaInfo],
        is_local_rack: impl Fn(HostId) -> bool,
    ) {
        let mut state = self.state.borrow_mut();
        state.update(now, &self.settings);
        let entries: SmallVec<[Entry; 8]> = replicas
            .iter()
            .map(|r| Entry {
                place: place_of(r, is_local_rack(r.host)),
                score: if self.settings.is_dynamic {
                    state.scores.get(&r.host).copied()
                } else {
                    None
                },
            })
            .collect();
        let mut order: SmallVec<[usize; 8]> = (0..replicas.len()).collect();
        sort(&entries, self.settings.badness_threshold, &mut order);
        for (rank, at) in order.into_iter().enumerate() {
            if let Some(replica) = replicas.get_mut(at) {
                replica.latency_rank = u16::try_from(rank).unwrap_or(u16::MAX);
            }
        }
    }

    /// A read of this table took so long, seen from the coordinator.
    pub(crate) fn note_read(&self, now: Instant, table: TableId, took: Duration) {
        let mut state = self.state.borrow_mut();
        let latencies = state.tables.entry(table).or_insert_with(|| ReadLatencies {
            buckets: vec![0; BUCKETS],
            count: 0,
            halved_at: now,
            known: SmallVec::new(),
        });
        latencies.note(now, took);
    }

    /// The latency that a share (0 to 1) of this table's reads keeps to; at most a second old.
    /// `None`: too few samples.
    pub(crate) fn percentile(&self, now: Instant, table: TableId, share: f64) -> Option<Duration> {
        self.state.borrow_mut().tables.get_mut(&table)?.percentile(now, share)
    }

    /// Forgets tables that are gone.
    pub(crate) fn retain_tables(&self, exists: impl Fn(TableId) -> bool) {
        self.state.borrow_mut().tables.retain(|table, _| exists(*table));
    }
}

impl State {
    fn update(&mut self, now: Instant, settings: &Settings) {
        if now.since(self.reset_at) >= settings.reset_interval {
            self.reset_at = now;
            self.averages.clear();
            self.updated_at = None;
        }
        let is_due = self.updated_at.is_none_or(|at| now.since(at) >= settings.update_interval);
        if is_due {
            self.updated_at = Some(now);
            self.scores.clear();
            self.scores.extend(self.averages.iter().map(|(host, average)| (*host, *average)));
        }
    }
}

/// The average after one more sample.
fn moved(average: u64, sample: u64) -> u64 {
    average - (average >> WEIGHT_SHIFT) + (sample >> WEIGHT_SHIFT)
}

/// Steps away from this node.
fn place_of(replica: &ReplicaInfo, is_local_rack: bool) -> u8 {
    match (replica.is_self, is_local_rack, replica.is_local_dc) {
        (true, ..) => 0,
        (false, true, _) => 1,
        (false, false, true) => 2,
        (false, false, false) => 3,
    }
}

#[derive(Clone, Copy)]
struct Entry {
    place: u8,
    /// Nanoseconds; `None`: nothing is known, which counts as quick so that it is tried.
    score: Option<u64>,
}

/// Orders replicas by place. Orders them by score instead if at any position the score is worse
/// than the one that would be there by score, by more than the threshold.
fn sort(entries: &[Entry], badness_threshold: f64, order: &mut [usize]) {
    let get = |at: &usize| entries.get(*at);
    let score = |at: &usize| get(at).and_then(|e| e.score).unwrap_or(0);
    order.sort_by_key(|at| (get(at).map_or(u8::MAX, |e| e.place), *at));
    let mut by_score: SmallVec<[u64; 8]> = order.iter().map(score).collect();
    by_score.sort_unstable();
    let is_bad = order.iter().zip(&by_score).any(|(at, best)| {
        // Shares of the worst: exact enough for a threshold.
        *best > 0 && score(at) as f64 > *best as f64 * (1.0 + badness_threshold)
    });
    if is_bad {
        order.sort_by_key(score);
    }
}

impl ReadLatencies {
    fn note(&mut self, now: Instant, took: Duration) {
        if now.since(self.halved_at) >= HALF_LIFE {
            self.halved_at = now;
            self.count = 0;
            for bucket in &mut self.buckets {
                *bucket /= 2;
                self.count += u64::from(*bucket);
            }
        }
        if let Some(bucket) = self.buckets.get_mut(bucket_of(took)) {
            *bucket = bucket.saturating_add(1);
            self.count += 1;
        }
    }

    fn percentile(&mut self, now: Instant, share: f64) -> Option<Duration> {
        let name = (share * 1e6) as u32;
        let known = self.known.iter().position(|(n, ..)| *n == name);
        if let Some((_, value, at)) = known.and_then(|i| self.known.get(i))
            && now.since(*at) < PERCENTILE_AGE_MAX
        {
            return Some(*value);
        }
        if self.count < SAMPLES_MIN {
            return None;
        }
        let value = self.measure(share);
        if let Some(at) = known {
            self.known.remove(at);
        } else if self.known.len() >= 4 {
            // Policies changed: what was asked for before is not asked for again.
            self.known.remove(0);
        }
        self.known.push((name, value, now));
        Some(value)
    }

    fn measure(&self, share: f64) -> Duration {
        let wanted = (self.count as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, n) in self.buckets.iter().enumerate() {
            seen += u64::from(*n);
            if seen >= wanted.max(1) {
                return end_of(bucket);
            }
        }
        end_of(BUCKETS - 1)
    }
}

/// Buckets 0 to 7 are of one microsecond; then eight for each power of two.
fn bucket_of(took: Duration) -> usize {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    let octave = (63 - micros.max(1).leading_zeros()) as usize;
    if octave < 3 {
        return usize::try_from(micros).unwrap_or(0);
    }
    let within = usize::try_from(micros >> (octave - 3)).unwrap_or(0) & 7;
    ((octave - 2) * 8 + within).min(BUCKETS - 1)
}

/// The longest time in a bucket.
fn end_of(bucket: usize) -> Duration {
    if bucket < 8 {
        return Duration::from_micros(bucket as u64 + 1);
    }
    let (octave, within) = (bucket / 8 + 2, (bucket % 8) as u64);
    Duration::from_micros((9 + within) << (octave - 3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::Uuid;

    fn host(n: u8) -> HostId {
        HostId(Uuid::from_bytes([n; 16]))
    }

    fn at(millis: u64) -> Instant {
        Instant(millis * 1_000_000)
    }

    fn replica(n: u8, is_local_dc: bool) -> ReplicaInfo {
        ReplicaInfo {
            host: host(n),
            dc: u8::from(!is_local_dc),
            is_local_dc,
            is_self: n == 1,
            alive: true,
            pending: false,
            moves: false,
            hintable: true,
            latency_rank: 0,
        }
    }

    fn ranks(latencies: &Latencies, now: Instant, mut replicas: Vec<ReplicaInfo>) -> Vec<u16> {
        latencies.rank(now, &mut replicas, |h| h == host(2));
        replicas.iter().map(|r| r.latency_rank).collect()
    }

    #[test]
    fn near_replicas_come_first_until_they_are_much_slower() {
        let latencies = Latencies::new(&ReplicationSettings::default());
        let all = || vec![replica(4, false), replica(3, true), replica(2, true), replica(1, true)];
        assert_eq!(ranks(&latencies, at(0), all()), [3, 2, 1, 0], "by place without samples");
        let note = |n: u8, micros: u64| {
            for _ in 0..100 {
                latencies.note(host(n), Duration::from_micros(micros));
            }
        };
        for (n, micros) in [(1, 190), (2, 100), (3, 100), (4, 100)] {
            note(n, micros);
        }
        assert_eq!(ranks(&latencies, at(200), all()), [3, 2, 1, 0], "not twice as slow");
        note(1, 300);
        assert_eq!(ranks(&latencies, at(250), all()), [3, 2, 1, 0], "not updated yet");
        assert_eq!(ranks(&latencies, at(400), all())[3], 3, "slow ones come last");
        assert_eq!(ranks(&latencies, at(700_000), all()), [3, 2, 1, 0], "forgotten in time");
        let settings = ReplicationSettings { dynamic_snitch: false, ..Default::default() };
        let latencies = Latencies::new(&settings);
        latencies.note(host(1), Duration::from_secs(9));
        latencies.note(host(2), Duration::from_micros(9));
        assert_eq!(ranks(&latencies, at(9000), all()), [3, 2, 1, 0], "not dynamic");
    }

    #[test]
    fn percentiles_need_samples_and_follow_the_last_minutes() {
        let latencies = Latencies::new(&ReplicationSettings::default());
        let table = TableId(Uuid::from_u128(7));
        let note = |now, micros, times| {
            for _ in 0..times {
                latencies.note_read(now, table, Duration::from_micros(micros));
            }
        };
        assert_eq!(latencies.percentile(at(0), table, 0.99), None);
        note(at(0), 100, SAMPLES_MIN - 1);
        assert_eq!(latencies.percentile(at(0), table, 0.99), None);
        note(at(0), 100, 1);
        let value = latencies.percentile(at(0), table, 0.99).unwrap();
        assert!(value > Duration::from_micros(99) && value < Duration::from_micros(115));
        note(at(1), 10_000, 1000);
        assert_eq!(latencies.percentile(at(1), table, 0.99), Some(value), "at most a second old");
        let value = latencies.percentile(at(1500), table, 0.99).unwrap();
        assert!(value >= Duration::from_millis(10) && value < Duration::from_millis(12));
        for minute in 1..30 {
            note(at(minute * 61_000), 100, 50);
        }
        let value = latencies.percentile(at(31 * 61_000), table, 0.5).unwrap();
        assert!(value < Duration::from_micros(115), "old samples fade: {value:?}");
        latencies.retain_tables(|_| false);
        assert_eq!(latencies.percentile(at(31 * 61_000), table, 0.5), None);
    }

    #[test]
    fn every_time_lies_in_a_bucket_that_ends_behind_it() {
        for shift in 0..40 {
            for micros in [(1_u64 << shift) - 1, 1 << shift, (1 << shift) + (1 << shift >> 1)] {
                let took = Duration::from_micros(micros);
                let bucket = bucket_of(took);
                assert!(bucket == BUCKETS - 1 || end_of(bucket) > took, "{micros}");
                assert!(bucket == 0 || end_of(bucket - 1) <= took, "{micros}");
            }
        }
    }
}
