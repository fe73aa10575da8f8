use std::time::Duration;

use super::*;
use crate::acceptor::{Permit, Promise, Rejection};
use crate::ballot::{BallotClock, Scope};
use crate::plan::CommitQuorum;
use crate::value::Commit;
use stdx::WallMicros;

type V = u32;

const WALL: u64 = 1_000_000;

struct Case {
    machine: Proposer<V>,
    clock: BallotClock,
    now: u64,
    out: Vec<Output<V>>,
}

fn plan(commit: usize) -> Plan {
    let three = TargetSet::first(3);
    let commit = [CommitQuorum { among: three, required: commit }];
    Plan::new(Epoch(1), three, TargetSet::EMPTY, TargetSet::EMPTY, &commit).unwrap()
}

fn case(kind: Kind, commit: usize) -> Case {
    let options = Options {
        deadline: Instant(1_000),
        commit_deadline: Instant(2_000),
        round_timeout: Duration::from_nanos(100),
        backoff_min: Duration::from_nanos(10),
        backoff_max: Duration::from_nanos(10),
        scope: Scope::Global,
    };
    let machine = Proposer::new(kind, plan(commit), options);
    let mut case = Case { machine, clock: BallotClock::new(1, 1_000), now: 0, out: Vec::new() };
    case.step(Input::Start);
    case
}

impl Case {
    fn step(&mut self, input: Input<V>) -> Vec<Output<V>> {
        let (now, wall) = (Instant(self.now), WallMicros(WALL.cast_signed()));
        let mut cx = Context { now, wall, random: 7, clock: &mut self.clock };
        self.out.clear();
        self.machine.step(&mut cx, input, &mut self.out);
        self.out.retain(|o| !matches!(o, Output::WakeAt(_)));
        self.out.clone()
    }

    fn ballot(&self) -> Ballot {
        self.machine.ballot
    }

    fn reply(&mut self, from: Target, reply: Reply<V>) -> Vec<Output<V>> {
        self.step(Input::Reply { from, reply })
    }

    fn promise(&mut self, from: Target, edit: impl Fn(&mut Promise<V>)) -> Vec<Output<V>> {
        let mut promise = Promise {
            ballot: self.ballot(),
            permit: Permit::Promised,
            accepted: None,
            committed: None,
            promised_write: Ballot::ZERO,
        };
        edit(&mut promise);
        self.reply(from, Reply::Promise(promise))
    }

    fn accept(&mut self, from: Target) -> Vec<Output<V>> {
        let ballot = self.ballot();
        self.reply(from, Reply::Accepted { ballot })
    }

    fn reject(&mut self, from: Target, newer: Ballot) -> Vec<Output<V>> {
        let (ballot, why) = (self.ballot(), Rejection::Newer(newer));
        self.reply(from, Reply::Rejected { ballot, why })
    }

    fn committed(&mut self, from: Target) -> Vec<Output<V>> {
        let ballot = self.ballot();
        self.reply(from, Reply::Committed { ballot })
    }

    fn tick(&mut self, now: u64) -> Vec<Output<V>> {
        self.now = now;
        self.step(Input::Tick)
    }

    /// Up to the propose of `value` in the first round, nothing being in the way.
    fn proposed(kind: Kind, commit: usize, value: V) -> Case {
        let mut c = case(kind, commit);
        c.promise(0, |_| {});
        assert!(matches!(c.promise(1, |_| {})[..], [Output::Decide { .. }]));
        let out = c.step(Input::Decided(Decision::Value(value)));
        assert!(matches!(out[..], [Output::Propose { .. }]));
        c
    }
}

fn b(micros: u64) -> Ballot {
    Ballot::new(micros, Scope::Global, 9)
}

fn commit(ballot: Ballot, value: V) -> Commit<V> {
    Commit { ballot, origin: ballot, value: Some(value) }
}

fn failure(out: &[Output<V>]) -> Failure {
    out.iter()
        .find_map(|o| match o {
            Output::Done(Outcome::Failed(failure)) => Some(*failure),
            _ => None,
        })
        .unwrap_or_else(|| panic!("no failure in {out:?}"))
}

fn is_done(out: &[Output<V>], outcome: Outcome) -> bool {
    out.contains(&Output::Done(outcome))
}

#[test]
fn an_uncontended_write_takes_two_round_trips_when_the_commit_is_not_awaited() {
    let mut c = Case::proposed(Kind::Write, 0, 5);
    assert_eq!(c.accept(0), []);
    let out = c.accept(1);
    assert!(matches!(
        out[..],
        [Output::Commit { .. }, Output::SlotFree, Output::Done(Outcome::Applied)]
    ));
    assert!(c.committed(0).is_empty() && c.committed(1).is_empty());
    // All have it: its value need not be kept.
    assert!(matches!(c.committed(2)[..], [Output::Prune { .. }, Output::Finished]));
}

#[test]
fn with_a_commit_level_the_answer_waits_for_the_third_but_the_slot_does_not() {
    let mut c = Case::proposed(Kind::Write, 2, 5);
    c.accept(0);
    assert!(matches!(c.accept(1)[..], [Output::Commit { .. }, Output::SlotFree]));
    assert_eq!(c.committed(0), []);
    assert_eq!(c.committed(2), [Output::Done(Outcome::Applied)]);
    let out = c.tick(2_000);
    assert!(matches!(&out[..], [Output::Hint { to, .. }, Output::Finished] if to.contains(1)));
}

#[test]
fn an_uncontended_serial_read_takes_one_round_trip() {
    let mut c = case(Kind::Read, 0);
    c.promise(2, |_| {});
    assert!(matches!(c.promise(1, |_| {})[..], [Output::Decide { .. }]));
    assert!(is_done(&c.step(Input::Decided(Decision::NoOp)), Outcome::Read));
}

#[test]
fn a_read_that_may_miss_a_promised_write_buries_it_with_an_empty_proposal() {
    let mut c = case(Kind::Read, 0);
    c.promise(0, |p| p.promised_write = b(5));
    c.promise(1, |_| {});
    let out = c.step(Input::Decided(Decision::NoOp));
    assert!(matches!(&out[..], [Output::Propose { proposal, .. }] if proposal.is_empty()));
    c.accept(0);
    assert!(is_done(&c.accept(2), Outcome::Read));
}

#[test]
fn an_empty_proposal_settles_only_with_a_quorum() {
    for (acceptors, settled) in [(1, false), (2, true)] {
        let mut c = case(Kind::Read, 0);
        for from in 0..2 {
            c.promise(from, |p| {
                p.promised_write = b(5);
                p.accepted = (from < acceptors).then(|| Accepted::first(b(6), None));
            });
        }
        let out = c.step(Input::Decided(Decision::NoOp));
        assert_eq!(is_done(&out, Outcome::Read), settled, "{acceptors} have accepted it");
    }
}

#[test]
fn an_unfinished_value_is_finished_first() {
    let mut c = case(Kind::Write, 0);
    c.promise(0, |p| p.accepted = Some(Accepted::first(b(5), Some(1))));
    let out = c.promise(1, |p| p.accepted = Some(Accepted::first(b(6), Some(2))));
    let first = c.ballot();
    let expected = Accepted { ballot: first, origin: b(6), value: Some(2) };
    assert!(matches!(&out[..], [Output::Propose { proposal, .. }] if *proposal == expected));
    c.accept(1);
    let out = c.accept(2);
    let [Output::Commit { commit, .. }, Output::Prepare { ballot, .. }] = &out[..] else {
        panic!("{out:?}")
    };
    assert_eq!((commit.origin, commit.value), (b(6), Some(2)));
    assert!(ballot.is_newer_than(first));
}

/// INV-paxos-4.
#[test]
fn the_last_commit_is_confirmed_by_a_quorum_before_a_write_goes_on() {
    let mut c = case(Kind::Write, 0);
    c.promise(0, |p| p.committed = Some(commit(b(5), 1)));
    let out = c.promise(1, |_| {});
    assert!(matches!(&out[..], [Output::Refresh { to, .. }] if to.iter().eq([1])));
    let ballot = c.ballot();
    let out = c.reply(1, Reply::Refreshed { ballot, superseded: None });
    assert!(matches!(out[..], [Output::Decide { .. }]));
}

#[test]
fn a_promise_that_does_not_stand_after_the_refresh_does_not_count() {
    let mut c = case(Kind::Write, 0);
    c.promise(0, |p| p.committed = Some(commit(b(5), 1)));
    c.promise(1, |_| {});
    let (ballot, newer) = (c.ballot(), b(WALL + 50));
    assert_eq!(c.reply(1, Reply::Refreshed { ballot, superseded: Some(newer) }), []);
    let out = c.tick(10);
    assert!(
        matches!(out[..], [Output::Prepare { ballot, .. }] if ballot.is_newer_than(newer)),
        "{out:?}"
    );
}

#[test]
fn a_read_does_not_wait_for_the_repair() {
    let mut c = case(Kind::Read, 0);
    c.promise(0, |p| {
        p.committed = Some(commit(b(5), 1));
        p.promised_write = b(5);
    });
    let out = c.promise(1, |p| p.promised_write = b(4));
    assert!(matches!(out[..], [Output::Refresh { .. }, Output::Decide { .. }]));
    assert!(is_done(&c.step(Input::Decided(Decision::NoOp)), Outcome::Read));
}

#[test]
fn a_timeout_is_certain_before_a_proposal_and_uncertain_after() {
    let mut c = case(Kind::Write, 0);
    c.promise(0, |_| {});
    let timeout = failure(&c.tick(1_000));
    assert_eq!((timeout.kind, timeout.effect), (FailureKind::Timeout, Effect::None));
    assert_eq!((timeout.received, timeout.required), (1, 2));
    let mut c = Case::proposed(Kind::Write, 0, 5);
    c.accept(2);
    let timeout = failure(&c.tick(1_000));
    assert_eq!((timeout.kind, timeout.effect), (FailureKind::Timeout, Effect::Unknown));
    let mut c = Case::proposed(Kind::Write, 3, 5);
    c.accept(0);
    c.accept(1);
    c.committed(1);
    let timeout = failure(&c.tick(2_000));
    assert_eq!((timeout.effect, timeout.received, timeout.required), (Effect::Chosen, 1, 3));
}

/// Proposed 5 at the first ballot, was overtaken, and begins a second round.
fn doubtful() -> (Case, Ballot) {
    let mut c = Case::proposed(Kind::Write, 0, 5);
    let first = c.ballot();
    c.reject(0, b(WALL + 10));
    c.reject(1, b(WALL + 20));
    assert!(matches!(c.tick(10)[..], [Output::Prepare { .. }]));
    assert!(c.ballot().is_newer_than(b(WALL + 20)));
    (c, first)
}

#[test]
fn a_value_in_doubt_that_turns_up_committed_or_accepted_was_applied() {
    let (mut c, first) = doubtful();
    c.promise(0, |_| {});
    let out = c.promise(1, |p| p.committed = Some(commit(first, 5)));
    assert!(is_done(&out, Outcome::Applied), "{out:?}");

    let (mut c, first) = doubtful();
    c.promise(0, |_| {});
    c.promise(1, |p| p.accepted = Some(Accepted::first(first, Some(5))));
    c.accept(0);
    let out = c.accept(1);
    let Output::Commit { commit, .. } = &out[0] else { panic!("{out:?}") };
    assert_eq!((commit.origin, commit.value), (first, Some(5)));
    assert!(is_done(&out, Outcome::Applied));
}

#[test]
fn a_value_in_doubt_behind_a_newer_commit_stays_uncertain() {
    let (mut c, _) = doubtful();
    c.promise(0, |_| {});
    let failed = failure(&c.promise(1, |p| p.committed = Some(commit(b(WALL + 10), 7))));
    assert_eq!((failed.kind, failed.effect), (FailureKind::Superseded, Effect::Unknown));
    assert_eq!(failed.contentions, 1);
}

/// INV-paxos-5.
#[test]
fn a_value_in_doubt_is_buried_before_not_applied_is_answered() {
    let (mut c, first) = doubtful();
    c.promise(0, |p| p.promised_write = first);
    c.promise(1, |_| {});
    let out = c.step(Input::Decided(Decision::NoOp));
    assert!(matches!(&out[..], [Output::Propose { proposal, .. }] if proposal.is_empty()));
    c.accept(0);
    assert!(is_done(&c.accept(1), Outcome::NotApplied));
}

#[test]
fn a_rejection_from_beyond_the_clock_bound_is_a_failed_replica_not_a_goal() {
    let mut c = case(Kind::Write, 0);
    let wild = b(WALL + 1_001);
    assert_eq!(c.reject(0, wild), []);
    // The others are a quorum.
    c.promise(1, |_| {});
    assert!(matches!(c.promise(2, |_| {})[..], [Output::Decide { .. }]));
    let mut c = case(Kind::Write, 0);
    c.reject(0, wild);
    assert_eq!(failure(&c.reject(1, wild)).kind, FailureKind::Replicas);
}

#[test]
fn another_electorate_means_another_plan_and_another_round() {
    let mut c = case(Kind::Write, 0);
    let ballot = c.ballot();
    let out = c.step(Input::WrongEpoch { from: 0, ballot, epoch: Epoch(4) });
    assert_eq!(out, [Output::Replan { at_least: Epoch(4) }]);
    assert_eq!(c.promise(1, |_| {}), []);
    let natural = TargetSet::first(3);
    let pending: TargetSet = [3].into_iter().collect();
    let plan = Plan::new(Epoch(4), natural, pending, TargetSet::EMPTY, &[]).unwrap();
    let out = c.step(Input::Plan(plan));
    assert!(matches!(out[..], [Output::Prepare { to, readers, epoch: Epoch(4), .. }]
        if to.len() == 4 && readers == natural));
    c.promise(0, |_| {});
    assert_eq!(c.promise(1, |_| {}), [], "the pending replica raises the quorum");
    assert!(matches!(c.promise(3, |_| {})[..], [Output::Decide { .. }]));
}

#[test]
fn without_a_plan_the_operation_fails_for_certain() {
    let mut c = case(Kind::Write, 0);
    let ballot = c.ballot();
    c.step(Input::WrongEpoch { from: 0, ballot, epoch: Epoch(4) });
    let failed = failure(&c.step(Input::NoPlan));
    assert_eq!((failed.kind, failed.effect), (FailureKind::Unavailable, Effect::None));
}

#[test]
fn a_commit_under_an_old_plan_goes_to_the_replicas_of_the_new_one_and_is_not_pruned_before() {
    let mut c = Case::proposed(Kind::Write, 2, 5);
    c.accept(0);
    c.accept(1);
    let ballot = c.ballot();
    let out = c.step(Input::WrongEpoch { from: 0, ballot, epoch: Epoch(2) });
    assert_eq!(out, [Output::Replan { at_least: Epoch(2) }]);
    c.committed(1);
    assert_eq!(c.committed(2), []);
    let four = TargetSet::first(4);
    let plan = Plan::new(Epoch(2), four, TargetSet::EMPTY, TargetSet::EMPTY, &[]).unwrap();
    let out = c.step(Input::Plan(plan));
    assert!(matches!(&out[..], [Output::Commit { to, .. }] if *to == four));
    for from in 0..3 {
        c.committed(from);
    }
    assert!(matches!(c.committed(3)[..], [Output::Prune { .. }, Output::Finished]));
}

/// Like [`Case::proposed`], by a proposer on the node of replica 0.
fn proposed_at_home(commit: usize) -> (Case, Vec<Output<V>>) {
    let mut c = case(Kind::Write, commit);
    c.machine.plan = plan(commit).with_own(Some(0));
    c.promise(0, |_| {});
    c.promise(1, |_| {});
    let out = c.step(Input::Decided(Decision::Value(5)));
    (c, out)
}

fn to(targets: &[Target]) -> TargetSet {
    targets.iter().copied().collect()
}

#[test]
fn the_last_vote_of_a_quorum_is_its_commit() {
    let (mut c, out) = proposed_at_home(2);
    assert!(matches!(&out[..], [Output::Propose { to: own, .. }] if *own == to(&[0])));
    let out = c.accept(0);
    assert!(matches!(&out[..], [Output::Conclude { to: others, .. }] if *others == to(&[1, 2])));
    // The second round trip ends here, with a quorum of commits but for our own.
    let out = c.committed(2);
    assert!(
        matches!(&out[..], [Output::Commit { to: own, .. }, Output::SlotFree] if *own == to(&[0])),
        "{out:?}"
    );
    assert_eq!(c.committed(1), [Output::Done(Outcome::Applied)]);
    assert!(matches!(c.committed(0)[..], [Output::Prune { .. }, Output::Finished]));
}

#[test]
fn who_does_not_conclude_is_brought_the_commit() {
    for fails in [false, true] {
        let (mut c, _) = proposed_at_home(3);
        c.accept(0);
        c.committed(2);
        let out = match fails {
            true => {
                let ballot = c.ballot();
                c.step(Input::Failed { from: 1, ballot })
            }
            false => c.reject(1, b(9_000_000)),
        };
        assert!(
            matches!(&out[..], [Output::Commit { to: one, .. }] if *one == to(&[1])),
            "{out:?}"
        );
        assert_eq!(c.committed(0), []);
        assert!(is_done(&c.committed(1), Outcome::Applied));
    }
}

#[test]
fn without_our_own_acceptor_the_others_are_asked_in_the_plain_way() {
    let (mut c, _) = proposed_at_home(0);
    let ballot = c.ballot();
    let out = c.step(Input::Failed { from: 0, ballot });
    assert!(matches!(&out[..], [Output::Propose { to: others, .. }] if *others == to(&[1, 2])));
    assert_eq!(c.accept(1), []);
    assert!(is_done(&c.accept(2), Outcome::Applied));
    // Overtaken at home: no other replica is asked, and the next round learns the outcome.
    let (mut c, _) = proposed_at_home(0);
    assert_eq!(c.reject(0, b(WALL + 5)), []);
    assert!(matches!(c.tick(50)[..], [Output::Prepare { .. }]));
    c.promise(1, |_| {});
    assert!(matches!(c.promise(2, |_| {})[..], [Output::Decide { .. }]));
    // A voter that has not promised is not asked first.
    let mut c = case(Kind::Write, 0);
    c.machine.plan = plan(0).with_own(Some(0));
    c.promise(1, |_| {});
    c.promise(2, |_| {});
    let out = c.step(Input::Decided(Decision::Value(5)));
    assert!(matches!(&out[..], [Output::Propose { to, .. }] if *to == TargetSet::first(3)));
}
