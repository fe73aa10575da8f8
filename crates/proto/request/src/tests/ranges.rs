//! Scans: merged sub-ranges, concurrency, order; a simulated ring under random schedules.

use std::collections::BTreeMap;

use cluster::Consistency;
use proptest::collection::vec;
use proptest::prelude::*;
use stdx::{Instant, Token};

use super::reads::{config, plan};
use super::writes::{DEADLINE, dead, pending, replica};
use crate::digest::PageDigest;
use crate::plan::ReplicaInfo;
use crate::range::{
    RANGES_IN_FLIGHT_MAX, RangeConfig, RangeInput, RangeOutput, RangeRequest, ScanEnd, SubRange,
    TokenRange,
};
use crate::read::{PageFacts, ReadConfig, ReadInput, ReadOutcome, ReadOutput, RowsFrom};
use crate::speculation::Threshold;
use crate::types::{Outputs, ReplicaError, RequestError, Target};

fn range(after: i64, upto: i64) -> TokenRange {
    TokenRange { after: Token(after), upto: Token(upto) }
}

/// A sub-range (10 n, 10 n + 10] with these replicas.
fn sub(n: i64, level: Consistency, replicas: &[ReplicaInfo]) -> SubRange {
    SubRange { range: range(10 * n, 10 * n + 10), plan: plan(level, replicas), ranges: 1 }
}

fn scan(rows: u32, ranges_total: u32, ranges_at_first: u32) -> RangeConfig {
    let read = ReadConfig { rows, ..config(Threshold::Never) };
    RangeConfig { read, ranges_total, ranges_at_first, in_flight_max: 4, page_timeout: None }
}

struct Run {
    request: RangeRequest,
    ranges: std::vec::IntoIter<SubRange>,
    now: u64,
}

impl Run {
    fn new(config: RangeConfig, ranges: Vec<SubRange>) -> Run {
        Run { request: RangeRequest::new(config), ranges: ranges.into_iter(), now: 0 }
    }

    fn step(&mut self, input: RangeInput) -> Vec<RangeOutput> {
        let mut out = Outputs::new();
        self.request.step(Instant(self.now), input, &mut self.ranges, &mut out);
        self.now += 1;
        out.into_vec()
    }

    fn data(&mut self, slot: u16, live_rows: u32, exhausted: bool) -> Vec<RangeOutput> {
        let page = PageFacts { digest: PageDigest(0), live_rows, exhausted };
        let from = Target(0);
        self.step(RangeInput::Slot { slot, input: ReadInput::Data { from, page } })
    }
}

fn open(slot: u16, range: TokenRange, goes_on: bool, rows: u32) -> RangeOutput {
    RangeOutput::Open { slot, range, goes_on, rows }
}

fn ask(slot: u16, n: u8) -> RangeOutput {
    RangeOutput::Slot { slot, output: ReadOutput::Data { to: Target(n) } }
}

fn emit(slot: u16, live_rows: u32, exhausted: bool) -> RangeOutput {
    let outcome = ReadOutcome { rows: RowsFrom::Page(Target(0)), live_rows, exhausted };
    RangeOutput::Emit { slot, outcome }
}

fn done(end: ScanEnd) -> RangeOutput {
    RangeOutput::Done(Ok(end))
}

const ONE: Consistency = Consistency::One;
const NONE: Vec<RangeOutput> = Vec::new();

/// Sub-ranges that no replica shares.
fn apart(count: i64) -> Vec<SubRange> {
    (0..count).map(|n| sub(n, ONE, &[replica(u8::try_from(n).unwrap() + 1, 0)])).collect()
}

#[test]
fn sub_ranges_are_shown_in_ring_order_whoever_answers_first() {
    let mut run = Run::new(scan(100, 3, 2), apart(3));
    let wake = RangeOutput::WakeAt(DEADLINE);
    let expect = [
        open(0, range(0, 10), false, 100),
        ask(0, 0),
        open(1, range(10, 20), false, 100),
        ask(1, 0),
        wake,
    ];
    assert_eq!(run.step(RangeInput::Start), expect);
    assert_eq!(run.data(1, 5, true), NONE);
    let next = [open(0, range(20, 30), false, 88), ask(0, 0)];
    assert_eq!(run.data(0, 7, true), [&[emit(0, 7, true), emit(1, 5, true)][..], &next].concat());
    assert_eq!(run.data(0, 0, true), [emit(0, 0, true), done(ScanEnd::Exhausted)]);
    assert!(run.request.is_finished());
}

#[test]
fn a_sub_range_that_was_cut_goes_on_before_the_next_is_shown() {
    let mut run = Run::new(scan(10, 2, 2), apart(2));
    run.step(RangeInput::Start);
    run.data(1, 3, true);
    let again = [emit(0, 4, false), open(0, range(0, 10), true, 6), ask(0, 0)];
    assert_eq!(run.data(0, 4, false), again);
    assert_eq!(run.data(0, 6, false), [emit(0, 6, false), done(ScanEnd::InPage)]);
    // The next page begins there; the page of the other slot is dropped.
    assert_eq!(run.data(0, 6, true), NONE);
}

#[test]
fn a_full_page_says_where_it_ended() {
    let ended = |ranges: i64, rows: u32, exhausted| {
        let mut run = Run::new(scan(5, 3, 1), apart(ranges));
        run.step(RangeInput::Start);
        run.data(0, rows, exhausted).pop()
    };
    assert_eq!(ended(2, 5, true), Some(done(ScanEnd::After(Token(10)))));
    assert_eq!(ended(2, 7, false), Some(done(ScanEnd::InPage)));
    assert_eq!(ended(1, 5, true), Some(done(ScanEnd::Exhausted)));
    let mut run = Run::new(scan(5, 3, 1), apart(2));
    run.step(RangeInput::Start);
    assert_eq!(run.step(RangeInput::Enough), [done(ScanEnd::InPage)]);
    let mut run = Run::new(scan(5, 3, 1), vec![]);
    assert_eq!(run.step(RangeInput::Start), [done(ScanEnd::Exhausted)]);
}

#[test]
fn adjacent_ranges_are_one_when_the_shared_replicas_are_enough() {
    let r = |hosts: &[u8]| hosts.iter().map(|n| replica(*n, 0)).collect::<Vec<_>>();
    let merged = |level, a: &[ReplicaInfo], b: &[ReplicaInfo]| {
        let plan = plan(level, a).merge(&plan(level, b))?;
        let of = |t: &Target| plan.replicas.get(*t).unwrap().host;
        Some(plan.contacts().iter().map(of).collect::<Vec<_>>())
    };
    let hosts = |n: &[u8]| Some(n.iter().map(|n| super::writes::host(*n)).collect::<Vec<_>>());
    let quorum = Consistency::Quorum;
    assert_eq!(merged(quorum, &r(&[1, 2, 3]), &r(&[2, 3, 4])), hosts(&[2, 3]));
    assert_eq!(merged(quorum, &r(&[1, 2, 3]), &r(&[3, 4, 5])), None);
    assert_eq!(merged(ONE, &r(&[1, 2, 3]), &r(&[3, 4, 5])), hosts(&[3]));
    // Not over a remote replica when each had a near one.
    let near_far = |near, far| [replica(near, 0), replica(far, 1)];
    assert_eq!(merged(ONE, &near_far(1, 9), &near_far(2, 9)), None);
    assert_eq!(merged(ONE, &[replica(9, 1)], &near_far(2, 9)), hosts(&[9]));
    // A dead or pending replica joins nothing.
    let with_dead = [dead(1, 0), replica(2, 0)];
    assert_eq!(merged(ONE, &with_dead, &[dead(1, 0), replica(3, 0)]), None);
    let moving = [replica(1, 0), pending(2, 0)];
    assert_eq!(merged(ONE, &moving, &moving), None);

    let all = r(&[1, 2, 3]);
    let ranges = vec![sub(0, quorum, &all), sub(1, quorum, &all), sub(3, quorum, &all)];
    let mut run = Run::new(scan(100, 3, 1), ranges);
    let first = run.step(RangeInput::Start).remove(0);
    // The third does not touch the second.
    assert_eq!(first, open(0, range(0, 20), false, 100));
}

#[test]
fn the_number_of_ranges_at_a_time_follows_the_rows_found() {
    let opened = |rows_of_first: u32| {
        let mut run = Run::new(scan(100, 50, 1), apart(50));
        run.step(RangeInput::Start);
        let out = run.data(0, rows_of_first, true);
        out.iter().filter(|o| matches!(o, RangeOutput::Open { .. })).count()
    };
    // Nothing found: as many as allowed. 40 per range and 60 missing: 1.5, rounded.
    assert_eq!([opened(0), opened(40), opened(90), opened(1)], [4, 2, 1, 4]);
    let config = RangeConfig { in_flight_max: u16::MAX, ..scan(100, 1000, 1000) };
    let mut run = Run::new(config, apart(100));
    let out = run.step(RangeInput::Start);
    let opened = out.iter().filter(|o| matches!(o, RangeOutput::Open { .. })).count();
    assert_eq!(opened, usize::from(RANGES_IN_FLIGHT_MAX));
}

#[test]
fn a_batch_with_an_unavailable_range_sends_nothing() {
    let level = Consistency::Two;
    let good = [replica(1, 0), replica(2, 0)];
    let bad = [replica(3, 0), dead(4, 0)];
    let mut run = Run::new(scan(10, 2, 2), vec![sub(0, level, &good), sub(1, level, &bad)]);
    let error = RequestError::Unavailable { consistency: level, required: 2, alive: 1 };
    assert_eq!(run.step(RangeInput::Start), [RangeOutput::Done(Err(error))]);
}

#[test]
fn a_failure_answers_when_its_turn_comes() {
    let mut run = Run::new(scan(10, 2, 2), apart(2));
    run.step(RangeInput::Start);
    let failed = ReadInput::Failed { from: Target(0), reason: ReplicaError::Timeout };
    assert_eq!(run.step(RangeInput::Slot { slot: 1, input: failed }), NONE);
    // The first sub-range fills the page: the second one is not needed.
    assert_eq!(run.data(0, 10, true), [emit(0, 10, true), done(ScanEnd::After(Token(10)))]);

    let timeout = |data_present| {
        let (consistency, received, block_for) = (ONE, 0, 1);
        let error = RequestError::ReadTimeout { consistency, received, block_for, data_present };
        RangeOutput::Done(Err(error))
    };
    let mut run = Run::new(scan(10, 2, 2), apart(2));
    run.step(RangeInput::Start);
    run.step(RangeInput::Slot { slot: 1, input: failed });
    assert_eq!(run.data(0, 9, true), [emit(0, 9, true), timeout(false)]);

    let mut run = Run::new(scan(10, 2, 2), apart(2));
    run.step(RangeInput::Start);
    run.data(1, 3, true);
    run.now = DEADLINE.0;
    assert_eq!(run.step(RangeInput::Tick), [timeout(false)]);
}

#[test]
fn pages_with_deadlines_of_their_own_are_waited_for_each_by_itself() {
    let page_timeout = Some(std::time::Duration::from_nanos(100));
    let config = RangeConfig { page_timeout, ..scan(1000, 2, 2) };
    let mut run = Run::new(config, apart(2));
    let out = run.step(RangeInput::Start);
    assert_eq!(out.last(), Some(&RangeOutput::WakeAt(Instant(100))));
    run.now = 50;
    run.data(1, 3, true);
    // Each page of the first range is requested again, also after the deadline of a scan that has
    // one.
    let times: Vec<u64> = (1..=12).map(|page| 90 * page).collect();
    let last = times[11];
    assert!(last > DEADLINE.0);
    for at in times {
        run.now = at;
        let out = run.data(0, 5, false);
        assert_eq!(out.first(), Some(&emit(0, 5, false)), "at {at}");
        assert_eq!(out.last(), Some(&RangeOutput::WakeAt(Instant(at + 100))));
    }
    run.now = last + 99;
    assert_eq!(run.step(RangeInput::Tick), [RangeOutput::WakeAt(Instant(last + 100))]);
    run.now = last + 100;
    let out = run.step(RangeInput::Tick);
    assert!(
        matches!(out[..], [RangeOutput::Done(Err(RequestError::ReadTimeout { .. }))]),
        "{out:?}"
    );
}

#[test]
fn slots_speculate_each_for_itself() {
    let read = config(Threshold::After(std::time::Duration::from_nanos(100)));
    let config = RangeConfig { read, ..scan(10, 2, 2) };
    let two = |a, b| vec![replica(a, 0), replica(b, 0)];
    let ranges = vec![sub(0, ONE, &two(1, 2)), sub(1, ONE, &two(3, 4))];
    let mut run = Run::new(config, ranges);
    let out = run.step(RangeInput::Start);
    assert_eq!(out.last(), Some(&RangeOutput::WakeAt(Instant(100))));
    run.data(1, 1, true);
    run.now = 100;
    assert_eq!(run.step(RangeInput::Tick), [ask(0, 1), RangeOutput::WakeAt(DEADLINE)]);
}

// A simulated ring.

/// Rows of each range by position; pages of at most `page` rows.
#[derive(Clone, Debug)]
struct Ring {
    rows: Vec<u32>,
    /// Hosts of each range.
    hosts: Vec<Vec<u8>>,
    wanted: u32,
    page: u32,
    at_first: u32,
    seed: u64,
    /// Per cent of messages that are lost.
    lost: u64,
    speculate: bool,
}

fn rings() -> impl Strategy<Value = Ring> {
    let range = (0..9_u32, vec(0..6_u8, 1..4));
    let settings = (1..30_u32, 1..6_u32, 1..6_u32, any::<u64>(), 0..6_u64, any::<bool>());
    (vec(range, 0..14), settings).prop_map(
        |(ranges, (wanted, page, at_first, seed, lost, speculate))| {
            let (rows, mut hosts): (Vec<u32>, Vec<Vec<u8>>) = ranges.into_iter().unzip();
            for list in &mut hosts {
                list.sort_unstable();
                list.dedup();
            }
            Ring { rows, hosts, wanted, page, at_first, seed, lost, speculate }
        },
    )
}

/// Rows as (range, number) in the order shown, and how it ended.
type Shown = (Vec<(usize, u32)>, Result<ScanEnd, RequestError>);

/// A slot in use: the ranges it covers and the rows it has given.
#[derive(Clone, Copy, Default)]
struct Place {
    first: usize,
    last: usize,
    given: u32,
    /// Number of the page in flight.
    page: u32,
}

#[expect(clippy::too_many_lines, reason = "one loop over the outputs of the machine")]
fn simulate(ring: &Ring) -> Result<Shown, &'static str> {
    let subs = ring.hosts.iter().enumerate().map(|(n, hosts)| {
        let replicas: Vec<_> = hosts.iter().map(|h| replica(*h, 0)).collect();
        sub(i64::try_from(n).unwrap(), ONE, &replicas)
    });
    let mut ranges = subs.collect::<Vec<_>>().into_iter();
    let after = Threshold::After(std::time::Duration::from_nanos(15));
    let speculate = if ring.speculate { after } else { Threshold::Never };
    let read = ReadConfig { rows: ring.wanted, ..config(speculate) };
    let total = u32::try_from(ring.rows.len()).unwrap();
    let mut request = RangeRequest::new(RangeConfig {
        read,
        ranges_total: total,
        ranges_at_first: ring.at_first,
        in_flight_max: 4,
        page_timeout: None,
    });
    let mut state = ring.seed;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state >> 33
    };
    let rows_of = |p: &Place| ring.rows[p.first..=p.last].iter().sum::<u32>();
    let mut slots: BTreeMap<u16, Place> = BTreeMap::new();
    let mut queue: BTreeMap<(u64, u32), (u16, Target, u32)> = BTreeMap::new();
    let (mut now, mut number, mut opened, mut wake) = (0, 0, 0, None);
    let mut shown = Vec::new();
    let mut inputs = vec![RangeInput::Start];
    let mut asked = 0_u32;
    loop {
        for input in std::mem::take(&mut inputs) {
            let mut out = Outputs::new();
            request.step(Instant(now), input, &mut ranges, &mut out);
            for output in out {
                match output {
                    RangeOutput::Open { slot, range, goes_on, rows } => {
                        if rows > ring.wanted {
                            return Err("more rows are asked for than wanted");
                        }
                        asked = rows;
                        let first = usize::try_from(range.after.0 / 10).unwrap();
                        let last = usize::try_from(range.upto.0 / 10).unwrap() - 1;
                        if goes_on {
                            continue;
                        }
                        if first != opened {
                            return Err("a range is left out or read twice");
                        }
                        opened = last + 1;
                        slots.insert(slot, Place { first, last, given: 0, page: 0 });
                        if slots.len() > 4 {
                            return Err("too many ranges at a time");
                        }
                    }
                    RangeOutput::Slot { slot, output: ReadOutput::Data { to } } => {
                        number += 1;
                        if random() % 100 >= ring.lost {
                            let at = now + 1 + random() % 20;
                            queue.insert((at, number), (slot, to, asked));
                        }
                    }
                    RangeOutput::Slot { .. } => return Err("ONE needs one page"),
                    RangeOutput::Emit { slot, outcome } => {
                        let place = slots.get_mut(&slot).ok_or("an unknown slot is shown")?;
                        for _ in 0..outcome.live_rows {
                            // The row's range, and its number in it.
                            let mut left = place.given;
                            let mut at = place.first;
                            while left >= ring.rows[at] {
                                left -= ring.rows[at];
                                at += 1;
                            }
                            shown.push((at, left));
                            place.given += 1;
                        }
                        if outcome.exhausted {
                            slots.remove(&slot);
                        }
                    }
                    RangeOutput::WakeAt(at) => wake = Some(at.0),
                    RangeOutput::Done(result) => {
                        if now > DEADLINE.0 {
                            return Err("INV-request-1: a request outlives its deadline");
                        }
                        return Ok((shown, result));
                    }
                }
            }
        }
        let next = queue.keys().next().copied();
        match (next, wake) {
            (Some((at, _)), wake) if wake.is_none_or(|w| at < w) => {
                now = at;
                let (slot, from, limit) = queue.remove(&next.unwrap()).unwrap();
                let Some(place) = slots.get_mut(&slot) else { continue };
                let left = rows_of(place) - place.given;
                let live_rows = left.min(ring.page).min(limit);
                place.page = live_rows;
                let exhausted = live_rows == left;
                let page = PageFacts { digest: PageDigest(0), live_rows, exhausted };
                inputs.push(RangeInput::Slot { slot, input: ReadInput::Data { from, page } });
            }
            (_, Some(at)) => {
                now = at;
                wake = None;
                inputs.push(RangeInput::Tick);
            }
            (_, None) => return Err("never answered"),
        }
    }
}

/// Checks the ring order, that every row occurs once, and that the end is right.
fn check(ring: &Ring, (shown, result): &Shown) -> Result<(), &'static str> {
    let all: Vec<(usize, u32)> = ring
        .rows
        .iter()
        .enumerate()
        .flat_map(|(range, rows)| (0..*rows).map(move |n| (range, n)))
        .collect();
    if !all.starts_with(shown) {
        return Err("INV-range-1: rows are out of order, left out or shown twice");
    }
    match result {
        Ok(ScanEnd::Exhausted) if shown.len() < all.len() => Err("not at the end"),
        Ok(ScanEnd::After(token)) => {
            let upto = usize::try_from(token.0 / 10).unwrap();
            let before = all.iter().filter(|(range, _)| *range < upto).count();
            if before == shown.len() { Ok(()) } else { Err("it ended elsewhere") }
        }
        Ok(ScanEnd::InPage) if shown.len() < ring.wanted as usize => Err("too few rows"),
        Err(RequestError::ReadTimeout { .. }) if ring.lost == 0 => Err("failed without a reason"),
        _ => Ok(()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn a_scan_shows_every_row_once_in_ring_order(ring in rings()) {
        match simulate(&ring) {
            Ok(shown) => prop_assert_eq!(check(&ring, &shown), Ok(()), "{:?}", shown),
            Err(what) => prop_assert!(false, "{}", what),
        }
    }
}

#[test]
fn the_checker_sees_every_corruption() {
    let ring = Ring {
        rows: vec![3, 0, 4, 2],
        hosts: vec![vec![0], vec![1], vec![2], vec![3]],
        wanted: 100,
        page: 2,
        at_first: 2,
        seed: 1,
        lost: 0,
        speculate: false,
    };
    let good = simulate(&ring).unwrap();
    assert_eq!(check(&ring, &good), Ok(()));
    assert_eq!(good.0.len(), 9);
    let corrupt = |what: &str, change: &dyn Fn(&mut Shown)| {
        let mut shown = good.clone();
        change(&mut shown);
        assert_eq!(check(&ring, &shown), Err(what));
    };
    let order = "INV-range-1: rows are out of order, left out or shown twice";
    corrupt(order, &|s| s.0.swap(2, 3));
    corrupt(order, &|s| {
        s.0.remove(4);
    });
    corrupt(order, &|s| s.0.insert(4, s.0[3]));
    corrupt("not at the end", &|s| s.0.truncate(8));
    corrupt("it ended elsewhere", &|s| s.1 = Ok(ScanEnd::After(Token(20))));
    corrupt("too few rows", &|s| s.1 = Ok(ScanEnd::InPage));
    corrupt("failed without a reason", &|s| {
        let (consistency, received, block_for, data_present) = (ONE, 0, 1, false);
        s.1 = Err(RequestError::ReadTimeout { consistency, received, block_for, data_present });
    });
}
