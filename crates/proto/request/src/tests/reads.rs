//! Reads: tables of inputs and outputs.

use std::time::Duration;

use cluster::Consistency;
use smallvec::smallvec;
use stdx::Instant;

use super::writes::{DEADLINE, dead, host, need, pending, replica};
use crate::digest::PageDigest;
use crate::plan::{ReadPlan, ReplicaInfo};
use crate::read::{
    PageFacts, ReadConfig, ReadInput, ReadOutcome, ReadOutput, ReadRepair, ReadRequest, RowsFrom,
    SHORT_READ_ROUNDS_MAX,
};
use crate::speculation::Threshold;
use crate::types::{Outputs, ReplicaError, RequestError, Target, TargetSet};

const ROWS: u32 = 10;

pub(crate) fn plan(consistency: Consistency, replicas: &[ReplicaInfo]) -> ReadPlan {
    ReadPlan::new(consistency, need(consistency, replicas), replicas).unwrap()
}

pub(crate) fn config(speculate: Threshold) -> ReadConfig {
    ReadConfig {
        deadline: DEADLINE,
        speculate,
        read_repair: ReadRepair::Blocking,
        additional_write: Threshold::Never,
        rows: ROWS,
        filtered: false,
    }
}

pub(crate) fn after(nanos: u64) -> Threshold {
    Threshold::After(Duration::from_nanos(nanos))
}

struct Run {
    request: ReadRequest,
    now: u64,
}

impl Run {
    fn new(consistency: Consistency, replicas: &[ReplicaInfo], config: ReadConfig) -> Run {
        Run { request: ReadRequest::new(plan(consistency, replicas), config), now: 0 }
    }

    fn started(consistency: Consistency, replicas: &[ReplicaInfo], config: ReadConfig) -> Run {
        let mut run = Run::new(consistency, replicas, config);
        run.step(ReadInput::Start);
        run
    }

    fn step(&mut self, input: ReadInput) -> Vec<ReadOutput> {
        let mut out = Outputs::new();
        self.request.step(Instant(self.now), input, &mut out);
        self.now += 1;
        out.into_vec()
    }

    /// A page with that digest.
    fn data(&mut self, n: u8, digest: u128) -> Vec<ReadOutput> {
        let page = PageFacts { digest: PageDigest(digest), live_rows: 3, exhausted: true };
        self.step(ReadInput::Data { from: Target(n), page })
    }

    fn digest(&mut self, n: u8, digest: u128) -> Vec<ReadOutput> {
        self.step(ReadInput::Digest { from: Target(n), digest: PageDigest(digest) })
    }

    fn fail(&mut self, n: u8, reason: ReplicaError) -> Vec<ReadOutput> {
        self.step(ReadInput::Failed { from: Target(n), reason })
    }

    fn reconciled(&mut self, live_rows: u32, short: &[u8], repairs: &[u8]) -> Vec<ReadOutput> {
        let (short, repairs) = (set(short), set(repairs));
        let exhausted = short.is_empty();
        self.step(ReadInput::Reconciled { live_rows, exhausted, short, repairs })
    }

    fn repair_ack(&mut self, n: u8) -> Vec<ReadOutput> {
        self.step(ReadInput::RepairAck { from: Target(n) })
    }

    fn tick_at(&mut self, now: u64) -> Vec<ReadOutput> {
        self.now = now;
        self.step(ReadInput::Tick)
    }
}

fn set(targets: &[u8]) -> TargetSet {
    targets.iter().map(|n| Target(*n)).collect()
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

fn repair(n: u8, of: &[u8]) -> ReadOutput {
    ReadOutput::Repair { to: Target(n), of: set(of) }
}

fn merge(pages: &[u8]) -> [ReadOutput; 2] {
    [ReadOutput::WakeAt(DEADLINE), ReadOutput::Reconcile { pages: set(pages) }]
}

fn rows(rows: RowsFrom, live_rows: u32) -> [ReadOutput; 1] {
    [ReadOutput::Done(Ok(ReadOutcome { rows, live_rows, exhausted: true }))]
}

fn page_of(n: u8) -> [ReadOutput; 1] {
    rows(RowsFrom::Page(Target(n)), 3)
}

fn timeout(received: u32, block_for: u32, data_present: bool) -> [ReadOutput; 1] {
    let consistency = Consistency::Quorum;
    let error = RequestError::ReadTimeout { consistency, received, block_for, data_present };
    [ReadOutput::Done(Err(error))]
}

const NONE: [ReadOutput; 0] = [];
const END: u64 = DEADLINE.0;

fn three() -> Vec<ReplicaInfo> {
    (0..3).map(|n| replica(n, 0)).collect()
}

fn quorum(config: ReadConfig) -> Run {
    Run::started(Consistency::Quorum, &three(), config)
}

#[test]
fn one_replica_is_asked_for_the_page_and_others_for_digests() {
    let mut run = Run::new(Consistency::Quorum, &three(), config(Threshold::Never));
    assert!(run.request.needs_digests());
    assert_eq!(run.step(ReadInput::Start), [data(0), digest(1), wake(END)]);
    assert_eq!(run.digest(1, 7), NONE);
    // Strays: not asked, asked for something else.
    assert_eq!(run.digest(2, 7), NONE);
    assert_eq!(run.data(1, 7), NONE);
    assert_eq!(run.data(0, 7), page_of(0));
    assert!(run.request.is_finished());
    assert_eq!(run.data(0, 7), NONE);

    let mut run = Run::new(Consistency::One, &three(), config(Threshold::Never));
    assert!(!run.request.needs_digests());
    assert_eq!(run.step(ReadInput::Start), [data(0), wake(END)]);
    assert_eq!(run.data(0, 7), page_of(0));
}

#[test]
fn the_best_replicas_in_scope_are_asked() {
    let slow = |n, dc, latency_rank| ReplicaInfo { latency_rank, ..replica(n, dc) };
    let replicas = [slow(1, 0, 5), slow(2, 1, 0), slow(3, 0, 2), slow(4, 0, 9), dead(5, 0)];
    let start = |consistency| {
        let mut run = Run::new(consistency, &replicas, config(Threshold::Never));
        run.step(ReadInput::Start)
    };
    assert_eq!(start(Consistency::Two), [data(1), digest(2), wake(END)]);
    assert_eq!(start(Consistency::LocalQuorum), [data(2), digest(0), digest(3), wake(END)]);
    let moving = [pending(1, 0), slow(2, 0, 3)];
    let mut run = Run::new(Consistency::One, &moving, config(Threshold::Never));
    assert_eq!(run.step(ReadInput::Start), [data(1), wake(END)]);
}

#[test]
fn nothing_is_sent_when_too_few_are_alive() {
    let check = |consistency, replicas: &[ReplicaInfo], required, alive| {
        let mut run = Run::new(consistency, replicas, config(Threshold::Always));
        let error = RequestError::Unavailable { consistency, required, alive };
        assert_eq!(run.step(ReadInput::Start), [ReadOutput::Done(Err(error))]);
    };
    check(Consistency::Quorum, &[replica(0, 0), dead(1, 0), dead(2, 0)], 2, 1);
    check(Consistency::LocalOne, &[dead(1, 0), replica(2, 1)], 1, 0);
    let replicas = [replica(0, 0), replica(1, 1), dead(2, 1), dead(3, 1)];
    let mut run = Run::new(Consistency::EachQuorum, &replicas, config(Threshold::Always));
    let (consistency, datacenter) = (Consistency::EachQuorum, "dc2".into());
    let error = RequestError::UnavailableIn { consistency, datacenter, required: 2, alive: 1 };
    assert_eq!(run.step(ReadInput::Start), [ReadOutput::Done(Err(error))]);
    // A pending replica has not all of the data yet.
    check(Consistency::Two, &[replica(0, 0), pending(1, 0)], 2, 1);
}

#[test]
fn each_quorum_asks_a_quorum_of_each_datacenter_and_replaces_none() {
    let replicas: Vec<_> = (0..6).map(|n| replica(n, n / 3)).collect();
    let mut run = Run::new(Consistency::EachQuorum, &replicas, config(Threshold::Always));
    let expect = [data(0), digest(1), digest(3), digest(4), wake(END)];
    assert_eq!(run.step(ReadInput::Start), expect);
    let error = RequestError::ReadFailure {
        consistency: Consistency::EachQuorum,
        received: 0,
        block_for: 4,
        failures: smallvec![(host(3), ReplicaError::Unknown)],
        data_present: false,
    };
    assert_eq!(run.fail(3, ReplicaError::Unknown), [ReadOutput::Done(Err(error))]);
}

#[test]
fn differing_digests_are_reconciled_and_repaired() {
    let mut run = quorum(config(Threshold::Never));
    assert_eq!(run.data(0, 7), NONE);
    // The page that has arrived is not requested again.
    assert_eq!(run.digest(1, 8), [data(1), wake(END)]);
    assert_eq!(run.data(1, 8), merge(&[0, 1]));
    assert_eq!(run.reconciled(4, &[], &[0, 1]), [repair(0, &[0]), repair(1, &[1]), wake(END)]);
    assert_eq!(run.repair_ack(0), NONE);
    assert_eq!(run.repair_ack(0), NONE);
    assert_eq!(run.repair_ack(1), rows(RowsFrom::Merged, 4));
}

#[test]
fn a_replica_that_misses_nothing_needs_no_acknowledgement() {
    let mut run = quorum(config(Threshold::Never));
    run.data(0, 7);
    run.digest(1, 8);
    run.data(1, 8);
    assert_eq!(run.reconciled(3, &[], &[1]), [repair(1, &[1]), wake(END)]);
    assert_eq!(run.repair_ack(1), rows(RowsFrom::Merged, 3));

    // Differences that had disappeared when the page arrived.
    let mut run = quorum(config(Threshold::Never));
    run.data(0, 7);
    run.digest(1, 8);
    assert_eq!(run.data(1, 7), merge(&[0, 1]));
    assert_eq!(run.reconciled(3, &[], &[]), rows(RowsFrom::Merged, 3));

    let config = ReadConfig { read_repair: ReadRepair::None, ..config(Threshold::Never) };
    let mut run = quorum(config);
    run.data(0, 7);
    run.digest(1, 8);
    run.data(1, 8);
    assert_eq!(run.reconciled(3, &[], &[1]), rows(RowsFrom::Merged, 3));
}

#[test]
fn always_asks_one_more_from_the_start() {
    let mut run = Run::new(Consistency::Quorum, &three(), config(Threshold::Always));
    assert_eq!(run.step(ReadInput::Start), [data(0), data(1), digest(2), wake(END)]);
    assert_eq!(run.digest(2, 7), NONE);
    assert_eq!(run.data(1, 7), page_of(1));
}

#[test]
fn a_slow_replica_is_stood_in_for_by_the_next_one() {
    let mut run = Run::new(Consistency::Quorum, &three(), config(after(100)));
    assert_eq!(run.step(ReadInput::Start), [data(0), digest(1), wake(100)]);
    run.digest(1, 7);
    // Without the page, it is asked for.
    assert_eq!(run.tick_at(100), [wake(END), data(2)]);
    assert_eq!(run.data(2, 7), page_of(2));

    let mut run = quorum(config(after(100)));
    run.data(0, 7);
    assert_eq!(run.tick_at(99), NONE);
    assert_eq!(run.tick_at(100), [wake(END), digest(2)]);
    assert_eq!(run.digest(2, 7), page_of(0));

    // The threshold is after the deadline, and no replica is left to ask.
    let mut run = Run::new(Consistency::Quorum, &three(), config(after(END)));
    assert_eq!(run.step(ReadInput::Start), [data(0), digest(1), wake(END)]);
    let mut run = Run::started(Consistency::All, &three(), config(after(100)));
    run.digest(1, 7);
    assert_eq!(run.tick_at(100), [wake(END)]);
    // All digests are there and the page is not: nothing to do but wait.
    assert_eq!(run.digest(2, 7), NONE);
}

#[test]
fn a_failed_replica_is_replaced_at_once() {
    let mut run = quorum(config(Threshold::Never));
    assert_eq!(run.fail(1, ReplicaError::Overloaded), [digest(2)]);
    assert_eq!(run.fail(0, ReplicaError::NodeDown)[..], {
        let error = RequestError::ReadFailure {
            consistency: Consistency::Quorum,
            received: 0,
            block_for: 2,
            failures: smallvec![
                (host(1), ReplicaError::Overloaded),
                (host(0), ReplicaError::NodeDown)
            ],
            data_present: false,
        };
        [ReadOutput::Done(Err(error))]
    });

    // The replacement is asked for the page when no other replica sends it.
    let mut run = quorum(config(Threshold::Never));
    assert_eq!(run.fail(0, ReplicaError::NodeDown), [data(2)]);
    assert_eq!(run.digest(1, 7), NONE);
    assert_eq!(run.data(2, 7), page_of(2));

    // Failures by time alone are a timeout.
    let mut run = quorum(config(Threshold::Never));
    run.fail(0, ReplicaError::Timeout);
    assert_eq!(run.fail(2, ReplicaError::Timeout), timeout(0, 2, false));
}

#[test]
fn enough_digests_without_the_page_ask_one_of_them_for_it() {
    let mut run = quorum(config(after(100)));
    run.digest(1, 7);
    run.tick_at(100);
    assert_eq!(run.fail(2, ReplicaError::Unknown), NONE);
    assert_eq!(run.fail(0, ReplicaError::Unknown).len(), 1, "two of three failed");

    let replicas: Vec<_> = (0..4).map(|n| replica(n, 0)).collect();
    let mut run = Run::started(Consistency::Two, &replicas, config(Threshold::Never));
    run.digest(1, 7);
    assert_eq!(run.fail(0, ReplicaError::Unknown), [data(2)]);
    assert_eq!(run.fail(2, ReplicaError::Unknown), [data(3)]);
    assert_eq!(run.fail(3, ReplicaError::Unknown).len(), 1);

    // Both digests are there when the page's replica fails.
    let mut run = Run::started(Consistency::Three, &replicas, config(after(100)));
    run.digest(1, 7);
    run.digest(2, 7);
    assert_eq!(run.tick_at(100), [wake(END), data(3)]);
    assert_eq!(run.fail(0, ReplicaError::Unknown), NONE);
    assert_eq!(run.data(3, 7), page_of(3));
}

#[test]
fn a_short_read_asks_those_whose_pages_ended_first() {
    let mut run = quorum(config(Threshold::Never));
    run.data(0, 7);
    run.digest(1, 8);
    run.data(1, 8);
    let more = |n, rows| ReadOutput::More { to: Target(n), rows };
    assert_eq!(run.reconciled(2, &[1], &[0]), [more(1, 2 * ROWS)]);
    assert_eq!(run.data(1, 9), merge(&[0, 1]));
    assert_eq!(run.reconciled(5, &[0, 1], &[0]), [more(0, 4 * ROWS), more(1, 4 * ROWS)]);
    assert_eq!(run.data(1, 9), NONE);
    // A replica that cannot continue ends the page at its position.
    assert_eq!(run.fail(0, ReplicaError::Unknown), merge(&[0, 1]));
    assert_eq!(run.reconciled(6, &[0], &[0]), [repair(0, &[0]), wake(END)]);
    let page = ReadOutcome { rows: RowsFrom::Merged, live_rows: 6, exhausted: false };
    assert_eq!(run.repair_ack(0), [ReadOutput::Done(Ok(page))]);

    // Ends with the wanted number of rows, or after too many rounds.
    let mut run = quorum(config(Threshold::Never));
    run.data(0, 7);
    run.digest(1, 8);
    run.data(1, 8);
    for _ in 0..SHORT_READ_ROUNDS_MAX {
        assert_eq!(run.reconciled(ROWS - 1, &[1], &[]).len(), 1);
        assert_eq!(run.data(1, 9), merge(&[0, 1]));
    }
    let page = ReadOutcome { rows: RowsFrom::Merged, live_rows: 9, exhausted: false };
    assert_eq!(run.reconciled(ROWS - 1, &[1], &[]), [ReadOutput::Done(Ok(page))]);
}

#[test]
fn a_repair_that_is_not_acknowledged_goes_to_another_replica() {
    let config = ReadConfig { additional_write: after(100), ..config(Threshold::Never) };
    let start = || {
        let mut run = quorum(config);
        run.data(0, 7);
        run.digest(1, 8);
        run.data(1, 8);
        let out = run.reconciled(3, &[], &[0, 1]);
        assert_eq!(out, [repair(0, &[0]), repair(1, &[1]), wake(run.now - 1 + 100)]);
        run
    };
    let mut run = start();
    run.repair_ack(0);
    let due = run.now + 100;
    // Sends the data that the silent replica misses; an acknowledgement of either will do.
    assert_eq!(run.tick_at(due), [wake(END), repair(2, &[1])]);
    assert_eq!(run.repair_ack(2), rows(RowsFrom::Merged, 3));

    // A refusal does not wait for the timer.
    let mut run = start();
    let failed =
        |from| ReadInput::RepairFailed { from: Target(from), reason: ReplicaError::Overloaded };
    assert_eq!(run.step(failed(1)), [repair(2, &[0, 1])]);
    assert_eq!(run.repair_ack(0), NONE);
    let out = run.step(failed(2));
    let expect = RequestError::ReadFailure {
        consistency: Consistency::Quorum,
        received: 1,
        block_for: 2,
        failures: smallvec![
            (host(1), ReplicaError::Overloaded),
            (host(2), ReplicaError::Overloaded)
        ],
        data_present: true,
    };
    assert_eq!(out, [ReadOutput::Done(Err(expect))]);
}

/// Replicas 0, 1, 2 have the token; 3 takes the place of 2.
fn taking_over() -> [ReplicaInfo; 4] {
    let goes = ReplicaInfo { moves: true, ..replica(2, 0) };
    [replica(0, 0), replica(1, 0), goes, pending(3, 0)]
}

#[test]
fn replicas_that_stay_are_enough_while_a_token_moves() {
    // Even if the replica that leaves is the quickest.
    let quick = |r: ReplicaInfo| ReplicaInfo { latency_rank: 9 - r.latency_rank, ..r };
    let mut run =
        Run::started(Consistency::Quorum, &taking_over().map(quick), config(Threshold::Never));
    run.data(1, 7);
    run.digest(0, 8);
    run.data(0, 8);
    assert_eq!(run.reconciled(3, &[], &[0]), [repair(0, &[0]), wake(END)]);
    assert_eq!(run.repair_ack(0), rows(RowsFrom::Merged, 3));
}

#[test]
fn who_goes_answers_together_with_who_comes() {
    let mut replicas = taking_over();
    replicas[0].alive = false;
    let mut run = Run::new(Consistency::Quorum, &replicas, config(Threshold::Never));
    let out = run.step(ReadInput::Start);
    assert_eq!(out, [data(1), digest(2), digest(3), wake(END)]);
    // A value that only 1 and 2 have would be lost if 0 and 3 were asked.
    assert_eq!(run.data(1, 7), NONE);
    assert_eq!(run.digest(2, 7), NONE);
    assert_eq!(run.digest(3, 8), [data(2), data(3), wake(END)]);
    run.data(2, 7);
    assert_eq!(run.data(3, 8), merge(&[1, 2, 3]));
    assert_eq!(run.reconciled(3, &[], &[3]), [repair(3, &[3]), wake(END)]);
    assert_eq!(run.repair_ack(3), rows(RowsFrom::Merged, 3));

    // One that stays fails during the read: the two that move stand in for it.
    let mut run = Run::started(Consistency::Quorum, &taking_over(), config(Threshold::Never));
    assert_eq!(run.fail(1, ReplicaError::Overloaded), [digest(2), digest(3)]);

    // ONE promises nothing about the next read.
    let mut run = Run::new(Consistency::One, &replicas, config(Threshold::Never));
    assert_eq!(run.step(ReadInput::Start), [data(1), wake(END)]);
}

#[test]
fn a_replica_that_moves_in_is_not_enough_although_it_is_the_only_candidate() {
    let mut goes = ReplicaInfo { moves: true, ..replica(0, 0) };
    let alone = |goes| plan(Consistency::Quorum, &[goes, pending(1, 0)]);
    assert_eq!((alone(goes).contacts().len(), alone(goes).block_for()), (2, 2));
    goes.alive = false;
    let alone = alone(goes);
    assert_eq!((alone.candidates(), alone.block_for()), ([Target(1)].as_slice(), 1));
    assert!(!alone.is_met_by_one(Target(1)) && alone.check().is_err());
}

#[test]
fn a_level_that_only_one_side_of_a_movement_meets_is_unavailable() {
    let mut replicas = taking_over();
    replicas[0].alive = false;
    replicas[3].alive = false;
    let mut run = Run::new(Consistency::Quorum, &replicas, config(Threshold::Never));
    let consistency = Consistency::Quorum;
    let error = RequestError::Unavailable { consistency, required: 3, alive: 2 };
    assert_eq!(run.step(ReadInput::Start), [ReadOutput::Done(Err(error))]);
    // With ALL no replica can be missed: the replica that stays was asked, and every coordinator
    // asks it.
    let mut replicas = taking_over();
    replicas[3].alive = false;
    let mut run = Run::new(Consistency::All, &replicas, config(Threshold::Never));
    assert_eq!(run.step(ReadInput::Start), [data(0), digest(1), digest(2), wake(END)]);
}

/// Any two reads during the steps of a movement, and on the ring before or after it, meet: of every
/// set that satisfies the first, the second asks one. Once all data is copied, it may instead ask a
/// replica that copied from one of them.
#[test]
fn reads_before_during_and_behind_a_movement_meet() {
    let plan_of = |replicas: &[ReplicaInfo], consistency| {
        ReadPlan::new(consistency, need(consistency, replicas), replicas).unwrap()
    };
    // Hosts by their bits: those that stay, then the one that goes, then the one that comes.
    let hosts = |plan: &ReadPlan, bits: u32| -> Option<u32> {
        let set = (0..8).filter(|n| bits & (1 << n) != 0).map(Target).collect();
        let met = plan.is_met_by(set);
        let of = |t: Target| plan.replicas.get(t).map_or(0, |r| 1 << (r.host.0.as_u128() - 1));
        met.then(|| set.iter().map(of).sum())
    };
    let answers = |replicas: &[ReplicaInfo], level| -> Vec<u32> {
        let plan = plan_of(replicas, level);
        (0..1_u32 << replicas.len()).filter_map(|bits| hosts(&plan, bits)).collect()
    };
    let levels = [Consistency::Quorum, Consistency::LocalQuorum, Consistency::All];
    let mut pairs = 0;
    for factor in 1..=5_u8 {
        let stay: Vec<ReplicaInfo> = (0..factor - 1).map(|n| replica(n, 0)).collect();
        let with = |more: &[ReplicaInfo]| [stay.clone(), more.to_vec()].concat();
        let moving = |r: ReplicaInfo| ReplicaInfo { moves: true, ..r };
        let (goes, comes) = (factor - 1, factor);
        let steps = [
            with(&[replica(goes, 0)]),
            with(&[moving(replica(goes, 0)), pending(comes, 0)]),
            with(&[moving(replica(comes, 0)), pending(goes, 0)]),
            with(&[replica(comes, 0)]),
        ];
        for level in levels {
            for (earlier, first) in steps.iter().enumerate() {
                for (later, second) in steps.iter().enumerate().skip(earlier) {
                    for mut seen in answers(first, level) {
                        // The copy begins when no coordinator reads by the first step any more.
                        if earlier == 0 && later >= 2 && seen & (1 << goes) != 0 {
                            seen |= 1 << (goes + 1);
                        }
                        for asked in answers(second, level) {
                            assert!(
                                seen & asked != 0,
                                "{level:?} of {factor}: {seen:b} in step {earlier}, {asked:b} in {later}"
                            );
                            pairs += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(pairs > 1_000, "{pairs}");
}

#[test]
fn the_deadline_ends_every_step_with_its_fields() {
    let expire = |run: &mut Run| run.tick_at(END);
    let mut run = quorum(config(Threshold::Never));
    run.digest(1, 7);
    assert_eq!(expire(&mut run), timeout(1, 2, false));
    let mut run = quorum(config(Threshold::Never));
    run.data(0, 7);
    assert_eq!(expire(&mut run), timeout(1, 2, true));
    // All had answered (CASSANDRA-7947).
    let mut run = quorum(config(Threshold::Never));
    run.data(0, 7);
    run.digest(1, 8);
    assert_eq!(expire(&mut run), timeout(1, 2, true));
    let mut run = quorum(config(Threshold::Never));
    run.data(0, 7);
    run.digest(1, 8);
    run.data(1, 8);
    run.reconciled(1, &[1], &[]);
    assert_eq!(expire(&mut run), timeout(1, 2, true));
    let mut run = quorum(config(Threshold::Never));
    run.data(0, 7);
    run.digest(1, 8);
    run.data(1, 8);
    run.reconciled(1, &[], &[0, 1]);
    assert_eq!(expire(&mut run), timeout(0, 2, true));
    let mut run = Run::new(Consistency::Quorum, &three(), config(Threshold::Never));
    run.now = END;
    assert_eq!(run.step(ReadInput::Start), timeout(0, 2, false));
}
