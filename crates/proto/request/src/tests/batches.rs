//! Batches and the choice of their log nodes.

use cluster::Consistency;
use proptest::collection::vec;
use proptest::prelude::*;
use smallvec::{SmallVec, smallvec};
use stdx::Instant;

use super::writes::{DEADLINE, dead, host, need, replica};
use crate::batch::{BATCH_MUTATIONS_MAX, BatchInput, BatchOutput, BatchPlan, BatchRequest};
use crate::batchlog::{LogCandidate, choose_log_nodes};
use crate::plan::{ReplicaInfo, WritePlan};
use crate::types::{Outputs, ReplicaError, RequestError, Target, WriteType};
use crate::write::{WriteInput, WriteOutput};

fn mutation(replicas: &[ReplicaInfo]) -> WritePlan {
    let level = Consistency::Quorum;
    WritePlan::new(level, WriteType::Batch, need(level, replicas), replicas).unwrap()
}

fn three() -> WritePlan {
    mutation(&[replica(0, 0), replica(1, 0), replica(2, 0)])
}

struct Run {
    batch: BatchRequest,
    now: u64,
}

impl Run {
    fn new(mutations: Vec<WritePlan>, log: Option<&[u8]>) -> Run {
        let log = log.map(|l| l.iter().map(|n| host(*n)).collect());
        let batch = BatchRequest::new(BatchPlan { mutations, log }, DEADLINE, 0).unwrap();
        Run { batch, now: 0 }
    }

    fn step(&mut self, input: BatchInput) -> Vec<BatchOutput> {
        let mut out = Outputs::new();
        self.batch.step(Instant(self.now), input, &mut out);
        self.now += 1;
        out.into_vec()
    }

    fn ack(&mut self, index: u16, n: u8) -> Vec<BatchOutput> {
        self.step(BatchInput::Mutation { index, input: WriteInput::Ack { from: Target(n) } })
    }

    fn expire(&mut self) -> Vec<BatchOutput> {
        self.now = DEADLINE.0;
        self.step(BatchInput::Tick)
    }
}

fn writes(index: u16) -> Vec<BatchOutput> {
    let send = |n| WriteOutput::Send { to: Target(n), forward: smallvec![] };
    [WriteOutput::ApplyLocal { target: Target(0) }, send(1), send(2)]
        .map(|output| BatchOutput::Mutation { index, output })
        .to_vec()
}

fn hint(index: u16, n: u8) -> BatchOutput {
    BatchOutput::Mutation { index, output: WriteOutput::StoreHint { to: Target(n) } }
}

fn log(n: u8) -> BatchOutput {
    BatchOutput::StoreLog { to: n }
}

fn stored(from: u8) -> BatchInput {
    BatchInput::LogStored { from }
}

const NONE: Vec<BatchOutput> = Vec::new();

#[test]
fn a_batch_is_logged_then_written_then_forgotten() {
    let mut run = Run::new(vec![three(), three()], Some(&[3, 4]));
    let wake = BatchOutput::WakeAt(DEADLINE);
    assert_eq!(run.step(BatchInput::Start), [wake, log(0), log(1)]);
    assert_eq!(run.step(stored(1)), NONE);
    assert_eq!(run.step(stored(1)), NONE);
    // Nothing is written before all log nodes have the batch.
    assert_eq!(run.step(stored(0)), [writes(0), writes(1)].concat());
    assert_eq!(run.ack(0, 0), NONE);
    assert_eq!(run.ack(0, 1), NONE);
    assert_eq!(run.ack(1, 2), NONE);
    let removed = [BatchOutput::RemoveLog { to: 0 }, BatchOutput::RemoveLog { to: 1 }];
    let done = BatchOutput::Done(Ok(()));
    assert_eq!(run.ack(1, 0), [&removed[..], &[done]].concat());
    assert_eq!(run.ack(0, 2), NONE);
    assert_eq!(run.expire(), [hint(1, 1)]);
    assert!(run.batch.is_finished());
}

#[test]
fn a_log_that_is_not_stored_fails_as_a_batch_log() {
    let error = |received, failures: &[(u8, ReplicaError)], block_for| {
        let consistency = if block_for == 1 { Consistency::One } else { Consistency::Two };
        let write_type = WriteType::BatchLog;
        let failures: SmallVec<_> = failures.iter().map(|(n, r)| (host(*n), *r)).collect();
        BatchOutput::Done(Err(if failures.is_empty() {
            RequestError::WriteTimeout { consistency, received, block_for, write_type }
        } else {
            RequestError::WriteFailure { consistency, received, block_for, failures, write_type }
        }))
    };
    let mut run = Run::new(vec![three()], Some(&[3, 4]));
    run.step(BatchInput::Start);
    run.step(stored(0));
    assert_eq!(run.expire(), [error(1, &[], 2)]);
    assert!(run.batch.is_finished());

    let mut run = Run::new(vec![three()], Some(&[3]));
    run.step(BatchInput::Start);
    let failed = BatchInput::LogFailed { from: 0, reason: ReplicaError::Overloaded };
    assert_eq!(run.step(failed), [error(0, &[(3, ReplicaError::Overloaded)], 1)]);
    assert_eq!(run.step(stored(0)), NONE);
}

#[test]
fn nothing_is_logged_when_a_mutation_cannot_meet_its_level() {
    let unavailable = |consistency, required, alive| {
        let error = RequestError::Unavailable { consistency, required, alive };
        [BatchOutput::Done(Err(error))]
    };
    let few = mutation(&[replica(0, 0), dead(1, 0), dead(2, 0)]);
    let mut run = Run::new(vec![three(), few], Some(&[3, 4]));
    assert_eq!(run.step(BatchInput::Start), unavailable(Consistency::Quorum, 2, 1));
    let mut run = Run::new(vec![three()], Some(&[]));
    assert_eq!(run.step(BatchInput::Start), unavailable(Consistency::Two, 2, 0));
}

#[test]
fn a_mutation_that_fails_leaves_the_log() {
    let mut run = Run::new(vec![three(), three()], Some(&[3]));
    run.step(BatchInput::Start);
    run.step(stored(0));
    run.ack(0, 0);
    run.ack(0, 1);
    run.ack(1, 0);
    let error = RequestError::WriteTimeout {
        consistency: Consistency::Quorum,
        received: 1,
        block_for: 2,
        write_type: WriteType::Batch,
    };
    let done = BatchOutput::Done(Err(error));
    assert_eq!(run.expire(), [hint(0, 2), done, hint(1, 1), hint(1, 2)]);
    assert!(run.batch.is_finished());
}

#[test]
fn an_unlogged_batch_has_no_log() {
    let mut run = Run::new(vec![three()], None);
    let wake = BatchOutput::WakeAt(DEADLINE);
    assert_eq!(run.step(BatchInput::Start), [&[wake][..], &writes(0)].concat());
    run.ack(0, 0);
    assert_eq!(run.ack(0, 1), [BatchOutput::Done(Ok(()))]);

    // A batch of nothing.
    let mut run = Run::new(vec![], None);
    assert_eq!(run.step(BatchInput::Start).last(), Some(&BatchOutput::Done(Ok(()))));
    assert!(run.batch.is_finished());
}

#[test]
fn a_batch_takes_as_many_mutations_as_it_can_number() {
    let plan = |n: usize| BatchPlan { mutations: vec![three(); n], log: None };
    assert!(BatchRequest::new(plan(BATCH_MUTATIONS_MAX), DEADLINE, 0).is_ok());
    assert!(BatchRequest::new(plan(BATCH_MUTATIONS_MAX + 1), DEADLINE, 0).is_err());
}

/// The order of a batch, over what happened in one that was driven past its deadline.
fn check(
    mutations: usize,
    logs: usize,
    trace: &[(u64, Result<BatchInput, BatchOutput>)],
) -> Result<(), &'static str> {
    let (mut done, mut log_acks, mut acks) = (None, vec![], vec![vec![]; mutations]);
    for (at, event) in trace {
        match event {
            Ok(BatchInput::LogStored { from })
                if usize::from(*from) < logs && !log_acks.contains(from) =>
            {
                log_acks.push(*from);
            }
            Ok(BatchInput::Mutation { index, input: WriteInput::Ack { from } })
                if from.0 < 3 && log_acks.len() >= logs =>
            {
                let acks = &mut acks[usize::from(*index)];
                if !acks.contains(from) {
                    acks.push(*from);
                }
            }
            Ok(_) => {}
            Err(BatchOutput::Mutation { output, .. }) => {
                if log_acks.len() < logs {
                    return Err("written before it was logged");
                }
                if done.is_some() && !matches!(output, WriteOutput::StoreHint { .. }) {
                    return Err("INV-request-5: an output after the answer");
                }
            }
            Err(output) => {
                if done.is_some() {
                    return Err("INV-request-5: an output after the answer");
                }
                let all_met = acks.iter().all(|a| a.len() >= 2);
                match output {
                    BatchOutput::RemoveLog { .. } if !all_met => {
                        return Err("the log is removed too early");
                    }
                    BatchOutput::Done(Ok(())) if !all_met => {
                        return Err("INV-request-2: success without the level");
                    }
                    _ => {}
                }
                if let BatchOutput::Done(result) = output {
                    if *at > DEADLINE.0 {
                        return Err("INV-request-1: a request outlives its deadline");
                    }
                    done = Some(result.is_ok());
                }
            }
        }
    }
    if done.is_none() { Err("never answered") } else { Ok(()) }
}

fn drive(
    mutations: usize,
    logs: u8,
    mut inputs: Vec<(u64, BatchInput)>,
) -> Vec<(u64, Result<BatchInput, BatchOutput>)> {
    let places: Vec<u8> = (3..3 + logs).collect();
    let mut run = Run::new(vec![three(); mutations], Some(&places));
    inputs.push((DEADLINE.0, BatchInput::Tick));
    inputs.sort_by_key(|(at, _)| *at);
    inputs.insert(0, (0, BatchInput::Start));
    let mut trace = Vec::new();
    for (at, input) in inputs {
        run.now = at;
        trace.push((at, Ok(input)));
        trace.extend(run.step(input).into_iter().map(|o| (at, Err(o))));
    }
    assert!(run.batch.is_finished());
    trace
}

fn input() -> impl Strategy<Value = (u64, BatchInput)> {
    let reason = || Just(ReplicaError::Unknown);
    let write = prop_oneof![
        5 => (0..4_u8).prop_map(|n| WriteInput::Ack { from: Target(n) }),
        1 => (0..4_u8, reason()).prop_map(|(n, reason)| WriteInput::Failed { from: Target(n), reason }),
    ];
    let input = prop_oneof![
        2 => (0..3_u8).prop_map(|from| BatchInput::LogStored { from }),
        8 => (0..2_u16, write).prop_map(|(index, input)| BatchInput::Mutation { index, input }),
    ];
    // The log's answers come early, or nothing else could be seen.
    (0..1200_u64, input, 0..20_u64, reason()).prop_map(|(at, input, early, reason)| match input {
        BatchInput::LogStored { from } if early == 0 => {
            (at, BatchInput::LogFailed { from, reason })
        }
        BatchInput::LogStored { .. } => (early, input),
        other => (at, other),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn the_order_of_a_batch_holds_in_any_order_of_events(logs in 1..3_u8, inputs in vec(input(), 0..30)) {
        let trace = drive(2, logs, inputs);
        if let Err(what) = check(2, usize::from(logs), &trace) {
            prop_assert!(false, "{}: {:#?}", what, trace);
        }
    }
}

#[test]
fn the_checker_sees_every_corruption() {
    let ack = |index, n| BatchInput::Mutation { index, input: WriteInput::Ack { from: Target(n) } };
    let inputs =
        vec![(1, stored(0)), (2, ack(0, 0)), (3, ack(0, 1)), (4, ack(1, 1)), (5, ack(1, 2))];
    let good = drive(2, 1, inputs);
    assert_eq!(check(2, 1, &good), Ok(()));
    type Trace = Vec<(u64, Result<BatchInput, BatchOutput>)>;
    let corrupt = |what: &str, change: &dyn Fn(&mut Trace)| {
        let mut trace = good.clone();
        change(&mut trace);
        assert_eq!(check(2, 1, &trace), Err(what));
    };
    let is_done =
        |e: &(u64, Result<BatchInput, BatchOutput>)| matches!(e.1, Err(BatchOutput::Done(_)));
    corrupt("never answered", &|t| t.retain(|e| !is_done(e)));
    corrupt("written before it was logged", &|t| t.retain(|e| e.1 != Ok(stored(0))));
    corrupt("the log is removed too early", &|t| t.retain(|e| e.1 != Ok(ack(0, 1))));
    corrupt("INV-request-2: success without the level", &|t| {
        t.retain(|e| e.1 != Ok(ack(0, 1)) && !matches!(e.1, Err(BatchOutput::RemoveLog { .. })));
    });
    corrupt("INV-request-5: an output after the answer", &|t| t.push((7, Err(log(0)))));
    corrupt("INV-request-5: an output after the answer", &|t| {
        t.push((7, Err(writes(0).remove(1))))
    });
    corrupt("INV-request-1: a request outlives its deadline", &|t| {
        let at = t.iter().position(is_done).unwrap();
        t[at].0 = DEADLINE.0 + 1;
    });
}

// The choice of log nodes; Cassandra's BatchlogEndpointFilterTest and its rules as properties.

fn node(rack: u16) -> LogCandidate {
    LogCandidate { rack, alive: true, is_self: false }
}

#[test]
fn a_lone_node_keeps_its_own_log() {
    let me = LogCandidate { is_self: true, ..node(0) };
    assert_eq!(choose_log_nodes(&[me], 0, 9).as_slice(), [0]);
    assert_eq!(choose_log_nodes(&[], 0, 9).len(), 0);
    assert_eq!(choose_log_nodes(&[me, node(0)], 0, 9).as_slice(), [1]);
    let down = LogCandidate { alive: false, ..node(1) };
    assert_eq!(choose_log_nodes(&[me, down], 0, 9).len(), 0);
    assert_eq!(choose_log_nodes(&[me, node(0), down, node(0)], 0, 9).as_slice(), [1, 3]);
}

proptest! {
    #[test]
    fn log_nodes_are_two_alive_others_of_different_racks(
        nodes in vec((0..4_u16, any::<bool>()), 2..12),
        me in 0..12_usize,
        random: u64,
    ) {
        let me = me % nodes.len();
        let nodes: Vec<LogCandidate> = nodes
            .iter()
            .enumerate()
            .map(|(n, (rack, alive))| LogCandidate { rack: *rack, alive: *alive, is_self: n == me })
            .collect();
        let local = nodes[me].rack;
        let chosen = choose_log_nodes(&nodes, local, random);
        let usable: Vec<&LogCandidate> = nodes.iter().filter(|n| n.alive && !n.is_self).collect();
        prop_assert_eq!(chosen.len(), usable.len().min(2));
        prop_assert!(chosen.iter().all(|i| nodes[*i].alive && !nodes[*i].is_self));
        if let [a, b] = chosen.as_slice() {
            prop_assert_ne!(a, b);
            let elsewhere: Vec<u16> =
                usable.iter().map(|n| n.rack).filter(|r| *r != local).collect();
            if usable.len() > 2 {
                let racks = [nodes[*a].rack, nodes[*b].rack];
                if elsewhere.len() >= 2 {
                    prop_assert!(!racks.contains(&local));
                }
                let pool = if elsewhere.len() >= 2 {
                    elsewhere
                } else {
                    usable.iter().map(|n| n.rack).collect()
                };
                let one_rack = pool.iter().all(|r| *r == pool[0]);
                prop_assert_eq!(racks[0] == racks[1], one_rack);
            }
        }
    }
}

#[test]
fn every_node_of_the_pool_is_chosen_sometimes() {
    let nodes: Vec<_> = [0, 1, 1, 2, 2, 3].map(node).to_vec();
    let mut chosen = [0; 6];
    for random in 0..200 {
        for n in choose_log_nodes(&nodes, 0, random) {
            chosen[n] += 1;
        }
    }
    assert_eq!(chosen[0], 0);
    assert!(chosen[1..].iter().all(|n| *n > 10), "{chosen:?}");
}
