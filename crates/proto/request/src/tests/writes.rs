//! Writes: tables of inputs and outputs, random schedules.

use cluster::Consistency;
use proptest::collection::vec;
use proptest::prelude::*;
use smallvec::smallvec;
use stdx::{HostId, Instant, Uuid};

use crate::plan::{Factors, Need, ReplicaInfo, WritePlan};
use crate::types::{Outputs, ReplicaError, RequestError, Target, WriteType};
use crate::write::{WriteInput, WriteOutput, WriteRequest};

pub(crate) const DEADLINE: Instant = Instant(1000);

pub(crate) fn host(n: u8) -> HostId {
    HostId(Uuid::from_u128(u128::from(n) + 1))
}

/// An alive natural replica; datacenter 0 is the coordinator's, host 0 is the coordinator.
pub(crate) fn replica(n: u8, dc: u8) -> ReplicaInfo {
    ReplicaInfo {
        host: host(n),
        dc,
        is_local_dc: dc == 0,
        is_self: n == 0,
        alive: true,
        pending: false,
        moves: false,
        hintable: n != 0,
        latency_rank: u16::from(n),
    }
}

pub(crate) fn dead(n: u8, dc: u8) -> ReplicaInfo {
    ReplicaInfo { alive: false, ..replica(n, dc) }
}

pub(crate) fn pending(n: u8, dc: u8) -> ReplicaInfo {
    ReplicaInfo { pending: true, moves: true, ..replica(n, dc) }
}

/// Returns the need of a level with these replicas' factors.
pub(crate) fn need(consistency: Consistency, replicas: &[ReplicaInfo]) -> Need {
    let natural = || replicas.iter().filter(|r| !r.pending);
    let mut factors = Factors {
        total: 0,
        local: 0,
        datacenters: smallvec![],
        names: ["dc1".into(), "dc2".into(), "dc3".into()].into(),
    };
    for replica in natural() {
        factors.total += 1;
        factors.local += u16::from(replica.is_local_dc);
        match factors.datacenters.iter_mut().find(|(dc, _)| *dc == replica.dc) {
            Some((_, n)) => *n += 1,
            None => factors.datacenters.push((replica.dc, 1)),
        }
    }
    Need::of(consistency, &factors)
}

fn plan(consistency: Consistency, replicas: &[ReplicaInfo]) -> WritePlan {
    let need = need(consistency, replicas);
    WritePlan::new(consistency, WriteType::Simple, need, replicas).unwrap()
}

/// A write and its time.
struct Run {
    request: WriteRequest,
    now: u64,
}

impl Run {
    fn new(consistency: Consistency, replicas: &[ReplicaInfo]) -> Run {
        let request = WriteRequest::new(plan(consistency, replicas), DEADLINE, 0);
        Run { request, now: 0 }
    }

    fn started(consistency: Consistency, replicas: &[ReplicaInfo]) -> Run {
        let mut run = Run::new(consistency, replicas);
        run.step(WriteInput::Start);
        run
    }

    fn step(&mut self, input: WriteInput) -> Vec<WriteOutput> {
        let mut out = Outputs::new();
        self.request.step(Instant(self.now), input, &mut out);
        self.now += 1;
        out.into_vec()
    }

    fn ack(&mut self, n: u8) -> Vec<WriteOutput> {
        self.step(WriteInput::Ack { from: Target(n) })
    }

    fn fail(&mut self, n: u8, reason: ReplicaError) -> Vec<WriteOutput> {
        self.step(WriteInput::Failed { from: Target(n), reason })
    }

    fn expire(&mut self) -> Vec<WriteOutput> {
        self.now = DEADLINE.0;
        self.step(WriteInput::Tick)
    }
}

fn send(n: u8) -> WriteOutput {
    WriteOutput::Send { to: Target(n), forward: smallvec![] }
}

fn hint(n: u8) -> WriteOutput {
    WriteOutput::StoreHint { to: Target(n) }
}

fn ok() -> Vec<WriteOutput> {
    vec![WriteOutput::Done(Ok(()))]
}

fn timeout(consistency: Consistency, received: u32, block_for: u32) -> WriteOutput {
    let write_type = WriteType::Simple;
    let error = RequestError::WriteTimeout { consistency, received, block_for, write_type };
    WriteOutput::Done(Err(error))
}

fn unavailable(consistency: Consistency, required: u32, alive: u32) -> Vec<WriteOutput> {
    let error = RequestError::Unavailable { consistency, required, alive };
    vec![WriteOutput::Done(Err(error))]
}

const NONE: Vec<WriteOutput> = Vec::new();
const THREE: fn() -> [ReplicaInfo; 3] = || [replica(0, 0), replica(1, 0), replica(2, 0)];

#[test]
fn a_quorum_is_answered_by_the_second_acknowledgement() {
    let mut run = Run::new(Consistency::Quorum, &THREE());
    let local = WriteOutput::ApplyLocal { target: Target(0) };
    let wake = WriteOutput::WakeAt(DEADLINE);
    assert_eq!(run.step(WriteInput::Start), [local, send(1), send(2), wake]);
    assert_eq!(run.ack(0), NONE);
    // The same answer twice is one.
    assert_eq!(run.ack(0), NONE);
    assert_eq!(run.ack(2), ok());
    assert!(!run.request.is_finished());
    assert_eq!(run.ack(1), NONE);
    assert!(run.request.is_finished());
}

#[test]
fn a_laggard_gets_a_hint_at_the_deadline_unless_it_answered_after_the_client() {
    let mut run = Run::started(Consistency::One, &THREE());
    assert_eq!(run.ack(0), ok());
    assert_eq!(run.ack(1), NONE);
    assert_eq!(run.expire(), [hint(2)]);
    assert!(run.request.is_finished());
    assert_eq!(run.ack(2), NONE);
}

#[test]
fn one_node_of_a_remote_datacenter_forwards() {
    let replicas = [replica(0, 0), replica(1, 0), replica(2, 1), replica(3, 1), replica(4, 1)];
    let mut run = Run::new(Consistency::LocalQuorum, &replicas);
    let out = run.step(WriteInput::Start);
    let forward = WriteOutput::Send { to: Target(2), forward: smallvec![Target(3), Target(4)] };
    assert_eq!(out[1..3], [send(1), forward]);
    // Another datacenter's answers do not count for LOCAL_QUORUM, but spare hints.
    assert_eq!(run.ack(3), NONE);
    assert_eq!(run.ack(4), NONE);
    assert_eq!(run.ack(0), NONE);
    assert_eq!(run.ack(1), ok());
    assert_eq!(run.expire(), [hint(2)]);
}

#[test]
fn a_forwarding_node_that_refuses_does_not_take_its_datacenter_along() {
    let replicas = [replica(0, 0), replica(1, 1), replica(2, 1), replica(3, 1)];
    let mut run = Run::started(Consistency::EachQuorum, &replicas);
    assert_eq!(run.ack(2), NONE);
    // Only replicas that have not acknowledged get it again.
    assert_eq!(run.fail(1, ReplicaError::NodeDown), [hint(1), send(3)]);
    assert_eq!(run.ack(0), NONE);
    assert_eq!(run.ack(3), ok());

    // One that does not know the table yet has passed nothing on.
    let mut run = Run::started(Consistency::EachQuorum, &replicas);
    assert_eq!(run.fail(1, ReplicaError::IncompatibleSchema), [hint(1), send(2), send(3)]);

    // One that failed in applying has passed the write on.
    let mut run = Run::started(Consistency::EachQuorum, &replicas);
    assert_eq!(run.fail(1, ReplicaError::Unknown), [hint(1)]);
}

#[test]
fn nothing_is_sent_when_too_few_are_alive() {
    let check = |consistency, replicas: &[ReplicaInfo], required, alive| {
        let mut run = Run::new(consistency, replicas);
        let expect = unavailable(consistency, required, alive);
        assert_eq!(run.step(WriteInput::Start), expect);
        assert!(run.request.is_finished());
    };
    let one = [replica(0, 0), dead(1, 0), dead(2, 0)];
    check(Consistency::Quorum, &one, 2, 1);
    check(Consistency::All, &one, 3, 1);
    check(Consistency::Two, &one, 2, 1);
    let remote = [dead(1, 0), dead(2, 0), replica(3, 1), replica(4, 1)];
    check(Consistency::LocalOne, &remote, 1, 0);
    check(Consistency::LocalQuorum, &remote, 2, 0);
    let half = [replica(0, 0), replica(1, 1), dead(2, 1)];
    let (consistency, datacenter) = (Consistency::EachQuorum, "dc2".into());
    let error = RequestError::UnavailableIn { consistency, datacenter, required: 2, alive: 1 };
    let mut run = Run::new(consistency, &half);
    assert_eq!(run.step(WriteInput::Start), [WriteOutput::Done(Err(error))]);
    // A range moves: old and new owners are needed.
    let moving =
        [replica(0, 0), replica(1, 0), dead(2, 0), ReplicaInfo { alive: false, ..pending(3, 0) }];
    check(Consistency::Quorum, &moving, 3, 2);
    // ANY: no replica is alive and no hint may be stored.
    let hopeless = ReplicaInfo { hintable: false, ..dead(1, 0) };
    check(Consistency::Any, &[hopeless], 1, 0);
}

#[test]
fn a_pending_replica_counts_on_top() {
    let replicas = [replica(0, 0), replica(1, 0), replica(2, 0), pending(3, 0), pending(4, 1)];
    let mut run = Run::started(Consistency::Quorum, &replicas);
    for n in [0, 1, 2] {
        assert_eq!(run.ack(n), NONE);
    }
    assert_eq!(run.ack(3), ok());
    // LOCAL levels need those of their datacenter only.
    let mut run = Run::started(Consistency::LocalOne, &replicas);
    assert_eq!(run.ack(3), NONE);
    assert_eq!(run.ack(0), ok());
}

#[test]
fn a_stored_hint_is_enough_for_any() {
    let mut run = Run::new(Consistency::Any, &[dead(1, 0), dead(2, 0)]);
    let out = run.step(WriteInput::Start);
    assert_eq!(out, [hint(0), hint(1), WriteOutput::WakeAt(DEADLINE)]);
    assert_eq!(run.step(WriteInput::HintFailed { to: Target(0) }), NONE);
    assert_eq!(run.step(WriteInput::HintStored { to: Target(1) }), ok());
    assert!(run.request.is_finished());

    let mut run = Run::started(Consistency::Any, &[dead(1, 0)]);
    let failed = run.step(WriteInput::HintFailed { to: Target(0) });
    assert_eq!(failed, [timeout(Consistency::Any, 0, 1)]);

    // For any other level a hint counts nothing.
    let mut run = Run::started(Consistency::One, &[replica(0, 0), dead(1, 0)]);
    assert_eq!(run.step(WriteInput::HintStored { to: Target(1) }), NONE);
    assert_eq!(run.ack(0), ok());
}

#[test]
fn each_quorum_needs_every_datacenter() {
    let replicas: Vec<_> = (0..6).map(|n| replica(n, n / 3)).collect();
    let mut run = Run::started(Consistency::EachQuorum, &replicas);
    for n in [0, 1, 2, 3] {
        assert_eq!(run.ack(n), NONE);
    }
    assert_eq!(run.ack(5), ok());
}

#[test]
fn a_write_that_cannot_succeed_any_more_fails_at_once_with_its_reasons() {
    let mut run = Run::started(Consistency::Quorum, &THREE());
    assert_eq!(run.fail(1, ReplicaError::Overloaded), [hint(1)]);
    let out = run.fail(2, ReplicaError::IncompatibleSchema);
    let failures =
        smallvec![(host(1), ReplicaError::Overloaded), (host(2), ReplicaError::IncompatibleSchema)];
    let error = RequestError::WriteFailure {
        consistency: Consistency::Quorum,
        received: 0,
        block_for: 2,
        failures,
        write_type: WriteType::Simple,
    };
    assert_eq!(out, [hint(2), WriteOutput::Done(Err(error))]);
    assert_eq!(run.ack(0), NONE);
    assert!(run.request.is_finished());
}

#[test]
fn only_failures_in_scope_decide() {
    let replicas = [replica(0, 0), replica(1, 0), replica(2, 1), replica(3, 1)];
    let mut run = Run::started(Consistency::LocalQuorum, &replicas);
    assert_eq!(run.fail(2, ReplicaError::Unknown), [hint(2)]);
    assert_eq!(run.fail(3, ReplicaError::Unknown), [hint(3)]);
    assert_eq!(run.ack(0), NONE);
    // All that failed in scope failed by time: a timeout, for drivers' retry policies.
    let out = run.fail(1, ReplicaError::Timeout);
    assert_eq!(out, [hint(1), timeout(Consistency::LocalQuorum, 1, 2)]);
}

#[test]
fn the_deadline_answers_and_stores_hints() {
    let mut run = Run::started(Consistency::All, &[replica(0, 0), replica(1, 0), replica(2, 0)]);
    assert_eq!(run.ack(0), NONE);
    assert_eq!(run.ack(1), NONE);
    assert_eq!(run.expire(), [timeout(Consistency::All, 2, 3), hint(2)]);
    assert!(run.request.is_finished());

    // An acknowledgement at the deadline is too late for the client, but saves a hint.
    let mut run = Run::started(Consistency::Two, &THREE());
    run.ack(0);
    run.now = DEADLINE.0;
    assert_eq!(run.ack(1), [timeout(Consistency::Two, 1, 2), hint(2)]);

    let mut run = Run::new(Consistency::One, &THREE());
    run.now = DEADLINE.0;
    assert_eq!(run.step(WriteInput::Start), [timeout(Consistency::One, 0, 1)]);
}

#[test]
fn a_plan_takes_as_many_replicas_as_it_can_number() {
    let replicas: Vec<_> = (0..129).map(|n| replica(n, 0)).collect();
    let need = Need::Anywhere(128);
    let plan = |n: usize| {
        WritePlan::new(Consistency::All, WriteType::Simple, need.clone(), &replicas[..n])
    };
    assert!(plan(129).is_err());
    let mut run = Run { request: WriteRequest::new(plan(128).unwrap(), DEADLINE, 0), now: 0 };
    assert_eq!(run.step(WriteInput::Start).len(), 129);
    for n in 0..127 {
        assert_eq!(run.ack(n), NONE);
    }
    assert_eq!(run.ack(127), ok());
}

// Random schedules.

/// Inputs and outputs, in order.
#[derive(Clone, Debug)]
enum Event {
    In(u64, WriteInput),
    Out(u64, WriteOutput),
}

const LEVELS: [Consistency; 9] = [
    Consistency::Any,
    Consistency::One,
    Consistency::Two,
    Consistency::Quorum,
    Consistency::All,
    Consistency::LocalOne,
    Consistency::LocalQuorum,
    Consistency::EachQuorum,
    Consistency::Three,
];

/// Returns true if these replicas together meet the level; independent of the plan's arithmetic.
fn makes(consistency: Consistency, replicas: &[ReplicaInfo], have: &[u8]) -> bool {
    let has = |n: usize| have.iter().any(|h| usize::from(*h) == n);
    let met = |scope: &dyn Fn(&ReplicaInfo) -> bool, natural_needed: usize| {
        let in_scope = || replicas.iter().enumerate().filter(|(_, r)| scope(r));
        let pending = in_scope().filter(|(_, r)| r.pending).count();
        in_scope().filter(|(n, _)| has(*n)).count() >= natural_needed + pending
    };
    let natural = |scope: &dyn Fn(&ReplicaInfo) -> bool| {
        replicas.iter().filter(|r| !r.pending && scope(r)).count()
    };
    let all = |_: &ReplicaInfo| true;
    let local = |r: &ReplicaInfo| r.dc == 0;
    match consistency {
        Consistency::Any => !have.is_empty(),
        Consistency::One => met(&all, 1),
        Consistency::Two => met(&all, 2),
        Consistency::Three => met(&all, 3),
        Consistency::Quorum => met(&all, natural(&all) / 2 + 1),
        Consistency::All => met(&all, natural(&all)),
        Consistency::LocalOne => met(&local, 1),
        Consistency::LocalQuorum => met(&local, natural(&local) / 2 + 1),
        _ => (0..3).all(|dc| {
            let here = |r: &ReplicaInfo| r.dc == dc;
            natural(&here) == 0 || met(&here, natural(&here) / 2 + 1)
        }),
    }
}

/// INV-request-1 to 5 and the rules of hints, over what happened in one write that was driven past
/// its deadline.
fn check(
    consistency: Consistency,
    replicas: &[ReplicaInfo],
    trace: &[Event],
) -> Result<(), &'static str> {
    let (mut acked, mut sent, mut hinted, mut stored) = (vec![], vec![], vec![], vec![]);
    let mut failed = vec![];
    let mut done: Option<Result<(), RequestError>> = None;
    let mut expired = false;
    for event in trace {
        match event {
            Event::In(at, input) => {
                if expired && done.is_none() {
                    return Err("INV-request-1: a request outlives its deadline");
                }
                expired |= *at >= DEADLINE.0;
                match input {
                    WriteInput::Ack { from } if sent.contains(&from.0) => acked.push(from.0),
                    WriteInput::Failed { from, .. }
                        if sent.contains(&from.0) && !acked.contains(&from.0) =>
                    {
                        failed.push(from.0);
                    }
                    WriteInput::HintStored { to } if hinted.contains(&to.0) => stored.push(to.0),
                    _ => {}
                }
            }
            Event::Out(_, WriteOutput::StoreHint { to }) => {
                let n = to.0;
                if hinted.contains(&n) {
                    return Err("two hints for one replica");
                }
                if !replicas[usize::from(n)].hintable {
                    return Err("a hint where none may be stored");
                }
                if acked.contains(&n) {
                    return Err("a hint for a replica that has the write");
                }
                hinted.push(n);
            }
            Event::Out(..) if done.is_some() => {
                return Err("INV-request-5: an output after the answer");
            }
            Event::Out(_, WriteOutput::WakeAt(_)) => {}
            Event::Out(_, WriteOutput::ApplyLocal { target }) => {
                if !replicas[usize::from(target.0)].is_self {
                    return Err("another replica's write is applied here");
                }
                sent.push(target.0);
            }
            Event::Out(_, WriteOutput::Send { to, forward }) => {
                for n in forward.iter().chain([to]).map(|t| t.0) {
                    if acked.contains(&n) {
                        return Err("INV-request-4: a replica that acknowledged is sent to");
                    }
                    if !replicas[usize::from(n)].alive || replicas[usize::from(n)].is_self {
                        return Err("a dead replica is sent to");
                    }
                    if replicas[usize::from(n)].dc != replicas[usize::from(to.0)].dc {
                        return Err("forwarded into another datacenter");
                    }
                    sent.push(n);
                }
            }
            Event::Out(at, WriteOutput::Done(result)) => {
                let by_hint = consistency == Consistency::Any && !stored.is_empty();
                if result.is_ok() && !by_hint && !makes(consistency, replicas, &acked) {
                    return Err("INV-request-2: success without the level");
                }
                if result.is_ok() && *at >= DEADLINE.0 {
                    return Err("success after the deadline");
                }
                if let Err(RequestError::Unavailable { .. } | RequestError::UnavailableIn { .. }) =
                    result
                    && !(sent.is_empty() && hinted.is_empty())
                {
                    return Err("INV-request-3: unavailable after something was sent");
                }
                let possible: Vec<u8> =
                    sent.iter().copied().filter(|n| !failed.contains(n)).collect();
                let early = *at < DEADLINE.0 && consistency != Consistency::Any;
                if early
                    && matches!(
                        result,
                        Err(RequestError::WriteTimeout { .. } | RequestError::WriteFailure { .. })
                    )
                    && makes(consistency, replicas, &possible)
                {
                    return Err("failure while the level could be met");
                }
                done = Some(result.clone());
            }
        }
    }
    let Some(result) = done else { return Err("never answered") };
    let unavailable = matches!(
        result,
        Err(RequestError::Unavailable { .. } | RequestError::UnavailableIn { .. })
    );
    if unavailable {
        let alive: Vec<u8> = (0..).zip(replicas).filter(|(_, r)| r.alive).map(|(n, _)| n).collect();
        if makes(consistency, replicas, &alive) {
            return Err("unavailable with enough replicas");
        }
        return Ok(());
    }
    for (n, replica) in (0..).zip(replicas) {
        if replica.alive && !sent.contains(&n) {
            return Err("an alive replica is not sent to");
        }
        if replica.hintable && !acked.contains(&n) && !hinted.contains(&n) {
            return Err("a replica is left without write and hint");
        }
    }
    Ok(())
}

fn replicas() -> impl Strategy<Value = Vec<ReplicaInfo>> {
    vec((0..3_u8, 0..10_u8, any::<bool>()), 1..7).prop_map(|list| {
        let mut list: Vec<ReplicaInfo> = (0..)
            .zip(list)
            .map(|(n, (dc, state, hintable))| {
                // Host 0 is the coordinator, alive and in datacenter 0.
                let me = n == 0;
                let replica = replica(n, if me { 0 } else { dc });
                let (alive, pending) = (me || state > 2, state == 9);
                ReplicaInfo { alive, pending, hintable: !me && hintable, ..replica }
            })
            .collect();
        // Somewhere without the coordinator among the replicas.
        if list.len().is_multiple_of(2) {
            list.remove(0);
        }
        // One replica owns the token.
        list[0].pending = false;
        list
    })
}

fn input() -> impl Strategy<Value = (u64, WriteInput)> {
    let target = || (0..6_u8).prop_map(Target);
    let reason = prop_oneof![
        Just(ReplicaError::Unknown),
        Just(ReplicaError::Timeout),
        Just(ReplicaError::NodeDown),
        Just(ReplicaError::Overloaded)
    ];
    let input = prop_oneof![
        6 => target().prop_map(|from| WriteInput::Ack { from }),
        3 => (target(), reason).prop_map(|(from, reason)| WriteInput::Failed { from, reason }),
        2 => target().prop_map(|to| WriteInput::HintStored { to }),
        1 => target().prop_map(|to| WriteInput::HintFailed { to }),
        1 => Just(WriteInput::Tick),
        1 => Just(WriteInput::Start),
    ];
    // Some come after the deadline.
    (0..1100_u64, input)
}

fn drive(
    consistency: Consistency,
    replicas: &[ReplicaInfo],
    random: u64,
    mut inputs: Vec<(u64, WriteInput)>,
) -> Vec<Event> {
    let mut request = WriteRequest::new(plan(consistency, replicas), DEADLINE, random);
    inputs.sort_by_key(|(at, _)| *at);
    inputs.insert(0, (0, WriteInput::Start));
    inputs.push((2000, WriteInput::Tick));
    let mut trace = Vec::new();
    for (at, input) in inputs {
        let mut out = Outputs::new();
        let was_finished = request.is_finished();
        request.step(Instant(at), input, &mut out);
        assert!(!was_finished || out.is_empty(), "an output after the end");
        trace.push(Event::In(at, input));
        trace.extend(out.into_iter().map(|o| Event::Out(at, o)));
    }
    assert!(request.is_finished());
    trace
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn invariants_hold_in_any_order_of_events(
        level in 0..LEVELS.len(),
        replicas in replicas(),
        random: u64,
        inputs in vec(input(), 0..24),
    ) {
        let trace = drive(LEVELS[level], &replicas, random, inputs);
        if let Err(what) = check(LEVELS[level], &replicas, &trace) {
            prop_assert!(false, "{}: {:#?}", what, trace);
        }
    }
}

/// Each rule of the checker is seen to fail.
#[test]
fn the_checker_sees_every_corruption() {
    let replicas = [replica(0, 0), replica(1, 0), replica(2, 0), dead(3, 0)];
    let level = Consistency::Two;
    let ack = |n| WriteInput::Ack { from: Target(n) };
    let inputs = vec![(1, ack(0)), (2, ack(1)), (3, ack(2))];
    let failing = vec![
        (1, ack(0)),
        (2, WriteInput::Failed { from: Target(1), reason: ReplicaError::Unknown }),
    ];
    let good = drive(level, &replicas, 0, inputs);
    assert_eq!(check(level, &replicas, &good), Ok(()));
    let failed = drive(level, &replicas, 0, failing);
    assert_eq!(check(level, &replicas, &failed), Ok(()));
    let find =
        |trace: &[Event], what: &dyn Fn(&Event) -> bool| trace.iter().position(what).unwrap();
    let is_done = |e: &Event| matches!(e, Event::Out(_, WriteOutput::Done(_)));
    let ack_in =
        |n: u8| move |e: &Event| matches!(e, Event::In(_, WriteInput::Ack { from }) if from.0 == n);
    let corrupt = |base: &[Event], what: &str, change: &dyn Fn(&mut Vec<Event>)| {
        let mut trace = base.to_vec();
        change(&mut trace);
        assert_eq!(check(level, &replicas, &trace), Err(what));
    };
    let out = |o| Event::Out(5, o);
    corrupt(&good, "never answered", &|t| {
        t.retain(|e| !is_done(e) && !matches!(e, Event::In(2000, _)));
    });
    corrupt(&good, "INV-request-5: an output after the answer", &|t| {
        let at = find(t, &is_done);
        t.insert(at + 1, t[at].clone());
    });
    corrupt(&good, "INV-request-2: success without the level", &|t| {
        let at = find(t, &ack_in(1));
        t.remove(at);
    });
    corrupt(&good, "INV-request-4: a replica that acknowledged is sent to", &|t| {
        let at = find(t, &ack_in(0));
        t.insert(at + 1, out(send(0)));
    });
    corrupt(&good, "a dead replica is sent to", &|t| {
        let at = find(t, &ack_in(0));
        t.insert(at, out(send(3)));
    });
    corrupt(&good, "an alive replica is not sent to", &|t| {
        t.retain(|e| !matches!(e, Event::Out(_, WriteOutput::Send { to, .. }) if to.0 == 2));
    });
    corrupt(&good, "a replica is left without write and hint", &|t| {
        t.retain(|e| !matches!(e, Event::Out(_, WriteOutput::StoreHint { .. })));
    });
    corrupt(&good, "two hints for one replica", &|t| t.push(out(hint(3))));
    corrupt(&good, "a hint where none may be stored", &|t| t.push(out(hint(0))));
    corrupt(&good, "a hint for a replica that has the write", &|t| t.push(out(hint(1))));
    corrupt(&good, "another replica's write is applied here", &|t| {
        t.insert(1, out(WriteOutput::ApplyLocal { target: Target(1) }));
    });
    corrupt(&good, "success after the deadline", &|t| {
        let at = find(t, &is_done);
        t[at] = Event::Out(DEADLINE.0, WriteOutput::Done(Ok(())));
    });
    corrupt(&good, "INV-request-3: unavailable after something was sent", &|t| {
        let at = find(t, &is_done);
        t[at] = out(unavailable(level, 2, 1).remove(0));
    });
    corrupt(&good, "unavailable with enough replicas", &|t| {
        let at = find(t, &is_done);
        t[at] = out(unavailable(level, 2, 1).remove(0));
        t.retain(|e| matches!(e, Event::In(..)) || is_done(e));
    });
    corrupt(&good, "failure while the level could be met", &|t| {
        let at = find(t, &is_done);
        t[at] = out(timeout(level, 1, 2));
    });
    corrupt(&failed, "INV-request-1: a request outlives its deadline", &|t| {
        t.retain(|e| !is_done(e));
        t.push(Event::In(2001, WriteInput::Tick));
    });
    let remote = [replica(1, 0), replica(2, 1)];
    let trace = [
        Event::In(0, WriteInput::Start),
        Event::Out(0, WriteOutput::Send { to: Target(0), forward: smallvec![Target(1)] }),
    ];
    assert_eq!(check(level, &remote, &trace), Err("forwarded into another datacenter"));
}
