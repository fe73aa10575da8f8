//! Pages that replicas filter: tables of inputs and outputs, and filtered real pages.

use cluster::Consistency;
use data::page_cursor::{PageChain, PageCursor, PageStops};
use data::replica_page::{PageLimits, ReplicaPage};
use data::{Advance, Cursor, Item, MergeCursor, MergeMode, RowFilter, RowRef};
use proptest::prelude::*;
use smallvec::smallvec;
use stdx::Instant;

use super::reads::{after, config, plan};
use super::world::{From, NOW, Replica, shape, spread};
use super::writes::{DEADLINE, host, replica};
use crate::digest::PageDigest;
use crate::plan::ReplicaInfo;
use crate::read::{
    PageFacts, ReadConfig, ReadInput, ReadOutcome, ReadOutput, ReadRequest, RowsFrom,
};
use crate::speculation::Threshold;
use crate::types::{Outputs, ReplicaError, RequestError, Target, TargetSet};

struct Run {
    request: ReadRequest,
    now: u64,
}

fn facts(digest: u128) -> PageFacts {
    PageFacts { digest: PageDigest(digest), live_rows: 3, exhausted: true }
}

impl Run {
    /// Starts a read of four replicas; returns it with the first outputs.
    fn start(level: Consistency, speculate: Threshold) -> (Run, Vec<ReadOutput>) {
        let replicas: Vec<ReplicaInfo> = (0..4).map(|n| replica(n, 0)).collect();
        let config = ReadConfig { filtered: true, ..config(speculate) };
        let mut run = Run { request: ReadRequest::new(plan(level, &replicas), config), now: 0 };
        let out = run.step(ReadInput::Start);
        (run, out)
    }

    fn step(&mut self, input: ReadInput) -> Vec<ReadOutput> {
        let mut out = Outputs::new();
        self.request.step(Instant(self.now), input, &mut out);
        self.now += 1;
        out.into_vec()
    }

    fn filtered(&mut self, n: u8, digest: u128) -> Vec<ReadOutput> {
        self.step(ReadInput::Filtered { from: Target(n), page: facts(digest) })
    }

    fn data(&mut self, n: u8, digest: u128) -> Vec<ReadOutput> {
        self.step(ReadInput::Data { from: Target(n), page: facts(digest) })
    }

    fn digest(&mut self, n: u8, digest: u128) -> Vec<ReadOutput> {
        self.step(ReadInput::Digest { from: Target(n), digest: PageDigest(digest) })
    }

    fn fail(&mut self, n: u8) -> Vec<ReadOutput> {
        self.step(ReadInput::Failed { from: Target(n), reason: ReplicaError::Unknown })
    }
}

fn two() -> Run {
    let (run, out) = Run::start(Consistency::Two, Threshold::Never);
    assert_eq!(out, [filter(0), digest(1), wake(DEADLINE.0)]);
    run
}

fn filter(n: u8) -> ReadOutput {
    ReadOutput::Filtered { to: Target(n) }
}

fn data(n: u8) -> ReadOutput {
    ReadOutput::Data { to: Target(n) }
}

fn digest(n: u8) -> ReadOutput {
    ReadOutput::Digest { to: Target(n) }
}

fn wake(at: u64) -> ReadOutput {
    ReadOutput::WakeAt(Instant(at))
}

fn merge(pages: &[u8]) -> [ReadOutput; 2] {
    let pages: TargetSet = pages.iter().map(|n| Target(*n)).collect();
    [wake(DEADLINE.0), ReadOutput::Reconcile { pages }]
}

fn shown(rows: RowsFrom) -> [ReadOutput; 1] {
    [ReadOutput::Done(Ok(ReadOutcome { rows, live_rows: 3, exhausted: true }))]
}

fn filtered_of(n: u8) -> [ReadOutput; 1] {
    shown(RowsFrom::Filtered(Target(n)))
}

const NONE: [ReadOutput; 0] = [];

#[test]
fn a_filtered_page_is_shown_when_digests_agree_whichever_comes_first() {
    let mut run = two();
    assert_eq!(run.filtered(0, 7), NONE);
    assert_eq!(run.digest(1, 7), filtered_of(0));
    let mut run = two();
    assert_eq!(run.digest(1, 7), NONE);
    // The answer of a replica that was not asked to filter.
    assert_eq!(run.filtered(1, 7), NONE);
    assert_eq!(run.filtered(0, 7), filtered_of(0));
    // Where one answer is enough, its digest does not count.
    let (mut run, out) = Run::start(Consistency::One, Threshold::Never);
    assert_eq!(out, [filter(0), wake(DEADLINE.0)]);
    assert_eq!(run.filtered(0, 7), filtered_of(0));
}

#[test]
fn whoever_filtered_is_asked_for_its_page_when_digests_differ() {
    // The digest first, then the other way round.
    let mut run = two();
    run.digest(1, 8);
    assert_eq!(run.filtered(0, 7), [data(0), data(1), wake(DEADLINE.0)]);
    assert_eq!(run.data(1, 8), NONE);
    // A filtered page is not merged, however often it arrives.
    assert_eq!(run.filtered(0, 7), NONE);
    assert_eq!(run.data(0, 7), merge(&[0, 1]));

    let mut run = two();
    run.filtered(0, 7);
    assert_eq!(run.digest(1, 8), [data(0), data(1), wake(DEADLINE.0)]);
    assert_eq!(run.data(0, 7), NONE);
    assert_eq!(run.data(1, 8), merge(&[0, 1]));

    // It fails then: the next best one takes its place.
    let mut run = two();
    run.filtered(0, 7);
    run.digest(1, 8);
    assert_eq!(run.fail(0), [data(2)]);
    assert_eq!(run.data(2, 7), NONE);
    assert_eq!(run.data(1, 8), merge(&[1, 2]));
}

#[test]
fn a_whole_page_in_the_place_of_a_filtered_one_is_not_asked_for_again() {
    let mut run = two();
    run.digest(1, 7);
    assert_eq!(run.data(0, 7), shown(RowsFrom::Page(Target(0))));
    let mut run = two();
    run.data(0, 7);
    assert_eq!(run.digest(1, 8), [data(1), wake(DEADLINE.0)]);
    assert_eq!(run.data(1, 8), merge(&[0, 1]));
}

#[test]
fn another_replica_filters_in_the_place_of_one_that_fails() {
    let mut run = two();
    assert_eq!(run.fail(0), [filter(2)]);
    assert_eq!(run.digest(1, 7), NONE);
    // A late answer of a failed replica counts for nothing.
    assert_eq!(run.filtered(0, 7), NONE);
    assert_eq!(run.filtered(2, 7), filtered_of(2));

    // A digest's replica.
    let mut run = two();
    assert_eq!(run.fail(1), [digest(2)]);
    run.filtered(0, 7);
    assert_eq!(run.digest(2, 7), filtered_of(0));

    let mut run = two();
    for next in [filter(2), filter(3)] {
        let failed = if next == filter(2) { 0 } else { 2 };
        assert_eq!(run.fail(failed), [next]);
    }
    let error = RequestError::ReadFailure {
        consistency: Consistency::Two,
        received: 0,
        block_for: 2,
        failures: smallvec![
            (host(0), ReplicaError::Unknown),
            (host(2), ReplicaError::Unknown),
            (host(3), ReplicaError::Unknown)
        ],
        data_present: false,
    };
    assert_eq!(run.fail(3), [ReadOutput::Done(Err(error))]);
}

#[test]
fn others_filter_the_page_of_one_that_is_silent() {
    let (mut run, out) = Run::start(Consistency::Three, after(100));
    assert_eq!(out, [filter(0), digest(1), digest(2), wake(100)]);
    run.digest(1, 7);
    run.digest(2, 7);
    run.now = 100;
    assert_eq!(run.step(ReadInput::Tick), [wake(DEADLINE.0), filter(3)]);
    assert_eq!(run.fail(3), NONE);
    assert_eq!(run.fail(0).len(), 1, "two of four");

    let (mut run, _) = Run::start(Consistency::Two, after(100));
    run.digest(1, 7);
    run.now = 100;
    assert_eq!(run.step(ReadInput::Tick), [wake(DEADLINE.0), filter(2)]);
    assert_eq!(run.fail(2), NONE);
    assert_eq!(run.fail(0), [filter(3)]);
    assert_eq!(run.filtered(3, 7), filtered_of(3));
}

#[test]
fn a_page_that_was_asked_for_twice_is_read_of_whoever_is_first() {
    let (mut run, out) = Run::start(Consistency::Two, Threshold::Always);
    assert_eq!(out, [filter(0), filter(1), digest(2), wake(DEADLINE.0)]);
    run.filtered(1, 7);
    assert_eq!(run.filtered(0, 7), filtered_of(1));
    // They differ: both are asked for their pages.
    let (mut run, _) = Run::start(Consistency::Two, Threshold::Always);
    run.filtered(1, 7);
    assert_eq!(run.filtered(0, 8), [data(0), data(1), wake(DEADLINE.0)]);
}

/// Lets some partitions and rows pass, by their bytes.
#[derive(Clone, Copy, Debug)]
struct Sieve(u8);

impl RowFilter for Sieve {
    fn keeps_partition(&self, key: &[u8], static_row: Option<RowRef<'_>>) -> bool {
        let of_static = static_row.map_or(1, |row| row.columns().count() as u8);
        key.last().is_none_or(|last| !(last + of_static + self.0).is_multiple_of(4))
    }

    fn keeps_row(&self, clustering: &[u8], row: RowRef<'_>) -> bool {
        // Only live cells count.
        let cells = row.columns().filter(|(_, column)| match column {
            data::ColumnRef::Simple(cell) => cell.is_live(NOW),
            data::ColumnRef::Complex(complex) => complex.cells().any(|(_, c)| c.is_live(NOW)),
        });
        clustering.last().is_none_or(|last| (last + cells.count() as u8 + self.0).is_multiple_of(3))
    }
}

/// Shows a page to a reader; returns the rows and the number of tombstones.
fn show(page: &[u8], reversed: bool, sieve: Sieve) -> (Vec<String>, u32) {
    let shape = shape();
    let page = ReplicaPage::parse(page, &shape, reversed).unwrap();
    let (chain, stops) = (PageChain::new(page), PageStops::NONE);
    let lane = PageCursor::new(&shape, reversed, &chain, &stops);
    let mut merge = MergeCursor::new(&shape, MergeMode::Live { now: NOW }, reversed, [lane]);
    let mut shown = Vec::new();
    let (mut key, mut fixed, mut is_announced) = (Vec::new(), None, false);
    // A partition is announced with its first row, or alone for its static row.
    let passes = |key: &[u8], fixed: &Option<Vec<u8>>| {
        sieve.keeps_partition(key, fixed.as_deref().map(RowRef::trusted))
    };
    while merge.advance().unwrap() == Advance::Item {
        let is_alone = !is_announced && fixed.is_some();
        match merge.item() {
            Item::Partition { key: here, .. } => {
                (key, fixed, is_announced) = (here.to_vec(), None, false);
            }
            Item::Static(row) => fixed = Some(row.bytes().to_vec()),
            Item::Row { clustering, row } => {
                if passes(&key, &fixed) && sieve.keeps_row(clustering, row) {
                    is_announced = true;
                    let (liveness, deletion, columns) = row.parts();
                    let columns: Vec<_> = columns.collect();
                    shown.push(format!(
                        "{key:?} {fixed:?} {clustering:?} {liveness:?} {deletion:?} {columns:?}"
                    ));
                }
            }
            Item::PartitionEnd if is_alone && passes(&key, &fixed) => {
                shown.push(format!("{key:?} {fixed:?}"));
            }
            Item::Marker(_) | Item::PartitionEnd => {}
        }
    }
    (shown, merge.tombstones())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn what_is_left_of_a_page_shows_what_the_filter_leaves_of_all_of_it(
        writes in spread(1), sieve in (0..12_u8).prop_map(Sieve), reversed: bool,
        rows in prop_oneof![Just(u32::MAX), 1..6_u32], tombstones in prop_oneof![Just(u32::MAX), 1..4_u32],
    ) {
        let replica = Replica { mutations: writes.into_iter().map(|(write, _)| write).collect() };
        let limits = PageLimits { rows, tombstones, ..PageLimits::default() };
        let mut from = From::Start;
        for _ in 0..20 {
            let (whole, filtered) = replica.read_filtered(reversed, &from, limits, Some(&sieve));
            prop_assert_eq!(&whole, &replica.read(reversed, &from, limits));
            let filtered = filtered.unwrap();
            let (expected, tombstones) = show(&whole, reversed, sieve);
            let (shown, _) = show(&filtered.page, reversed, sieve);
            // A page that ends inside of a partition leaves its static row to the next one.
            let next = From::end_of(&whole);
            let (expected, shown) = match &next {
                Some(From::Inside(key, _)) => {
                    let alone = format!("{key:?} Some");
                    let is_alone = |line: &String| line.starts_with(&alone) && line.ends_with("])");
                    let but = |lines: Vec<String>| {
                        lines.into_iter().filter(|line| !is_alone(line)).collect::<Vec<_>>()
                    };
                    (but(expected), but(shown))
                }
                _ => (expected, shown),
            };
            prop_assert_eq!(shown, expected);
            let page = ReplicaPage::open(&whole).unwrap();
            prop_assert_eq!(ReplicaPage::open(&filtered.page).unwrap().end(), page.end());
            prop_assert_eq!(filtered.whole.live_rows, page.live_rows());
            prop_assert_eq!(filtered.whole.bytes, whole.len() as u64);
            prop_assert_eq!(filtered.whole.tombstones, tombstones);
            match next {
                Some(next) => from = next,
                None => break,
            }
        }
    }
}
