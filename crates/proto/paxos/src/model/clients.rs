//! The clients of the world: each drives its own proposer, as a coordinator does.

use std::collections::BTreeMap;
use std::time::Duration;

use stdx::{Instant, WallMicros};

use super::network::{Answer, Event};
use super::node::{Data, Payload, SKEW_MAX_MICROS, merge, payload};
use super::world::{Corruption, World};
use crate::acceptor::{Permit, Reply, Request};
use crate::ballot::{Ballot, BallotClock, Scope};
use crate::linear::{Call, CasResult, End, RegisterOperation};
use crate::plan::{CommitQuorum, Plan, Target, TargetSet};
use crate::proposer::{
    Context, Decision, Effect, Failure, Input, Kind, Options, Outcome, Output, Proposer,
};

#[derive(Debug)]
pub(super) struct Client {
    pub(super) clock: BallotClock,
    pub(super) skew: i64,
    pub(super) left: u32,
    pub(super) known: [u64; 2],
}

#[derive(Debug)]
pub(super) struct Operation {
    pub(super) client: usize,
    pub(super) machine: Proposer<Payload>,
    pub(super) kind: Kind,
    pub(super) history: usize,
    /// Register, expected value, target, new value.
    pub(super) cas: (usize, u64, usize, u64),
    /// The round that `reads` belong to.
    pub(super) round: Ballot,
    pub(super) reads: BTreeMap<Target, Data>,
    pub(super) seen: [u64; 2],
    pub(super) wake: u64,
    /// Plans so far: replies to messages of earlier ones are dropped.
    pub(super) generation: u64,
    pub(super) done: bool,
}

impl World {
    fn plan(&self, commit_quorum: bool) -> Plan {
        let (natural, pending): (TargetSet, TargetSet) = match self.epoch.0 {
            1 => (TargetSet::first(self.replicas), TargetSet::EMPTY),
            2 => (TargetSet::first(3), [3].into_iter().collect()),
            _ => ([1, 2, 3].into_iter().collect(), TargetSet::EMPTY),
        };
        let among = natural.or(pending);
        let commit = CommitQuorum { among, required: natural.len() / 2 + 1 };
        let commit = if commit_quorum { vec![commit] } else { Vec::new() };
        Plan::new(self.epoch, natural, pending, TargetSet::EMPTY, &commit).unwrap()
    }

    pub(super) fn start_operation(&mut self, client: usize, kind: Kind) {
        self.clients[client].left -= 1;
        let id = self.next_operation;
        self.next_operation += 1;
        self.next_value += 1;
        let register = self.rng.below(2) as usize;
        let target = if self.rng.percent(70) { register } else { 1 - register };
        let expect = if self.rng.percent(85) { self.clients[client].known[register] } else { 7 };
        let cas = (register, expect, target, 100 + self.next_value);
        let operation = match kind {
            Kind::Read => RegisterOperation::Read(Vec::new()),
            Kind::Write => RegisterOperation::Cas {
                register,
                expect,
                target,
                new: cas.3,
                result: CasResult::Unknown,
            },
        };
        let history = self.history.len();
        self.history.push(Call { start: self.now, end: End::Unknown, operation });
        let deadline = Instant(self.now * 1_000) + Duration::from_micros(6_000);
        let options = Options {
            deadline,
            commit_deadline: deadline + Duration::from_micros(2_000),
            round_timeout: Duration::from_micros(400),
            backoff_min: Duration::from_micros(50),
            backoff_max: Duration::from_micros(600),
            scope: Scope::Global,
        };
        let commit_quorum = self.rng.percent(60);
        // Most coordinators are on a replica.
        let own = Target::try_from(client).ok().filter(|_| self.rng.percent(70));
        let machine = Proposer::new(kind, self.plan(commit_quorum).with_own(own), options);
        let (reads, seen) = (BTreeMap::new(), [0; 2]);
        let operation = Operation {
            client,
            machine,
            kind,
            history,
            cas,
            round: Ballot::ZERO,
            reads,
            seen,
            wake: 0,
            generation: 0,
            done: false,
        };
        self.operations.insert(id, operation);
        self.step(id, Input::Start);
    }

    /// The coordinator dies: what its operation comes to is never known.
    pub(super) fn client_crash(&mut self, client: usize) {
        let dead: Vec<u64> =
            self.operations.iter().filter(|(_, o)| o.client == client).map(|(id, _)| *id).collect();
        for id in dead {
            let operation = self.operations.remove(&id).unwrap();
            if !operation.done {
                self.unknown(operation.history, operation.kind);
                let later = self.now + self.rng.range(100, 2_000);
                self.events.at(later, Event::Next { client });
            }
        }
        let tie = self.rng.next() | 1 << 63;
        let c = &mut self.clients[client];
        c.clock = BallotClock::new(tie, SKEW_MAX_MICROS);
        // Its wall clock may come back early or late.
        c.skew = self.rng.below(20_001).cast_signed() - 10_000;
        c.known = [0; 2];
    }

    /// A read without an answer says nothing. A write without one took effect before its
    /// coordinator gave up, as all see that start later, or it never will (CASSANDRA-12126).
    fn unknown(&mut self, history: usize, kind: Kind) {
        self.history[history].end = End::Doubtful(self.now);
        if kind == Kind::Read {
            self.certain_failures.push(history);
            self.certain_failures.sort_unstable();
        }
    }

    fn send(&mut self, to: TargetSet, operation: u64, request: &Request<Payload>) {
        let Some(o) = self.operations.get(&operation) else { return };
        let (epoch, generation) = (o.machine.plan().epoch, o.generation);
        for target in to.iter() {
            for at in self.faults.arrivals(self.now, &mut self.rng) {
                let (node, request) = (usize::from(target), request.clone());
                self.events.at(at, Event::ToNode { node, operation, generation, epoch, request });
            }
        }
    }

    pub(super) fn client_gets(&mut self, id: u64, generation: u64, from: Target, answer: Answer) {
        let Some(operation) = self.operations.get_mut(&id) else { return };
        if operation.generation != generation {
            return;
        }
        let input = match answer {
            Answer::WrongEpoch(ballot, epoch) => Input::WrongEpoch { from, ballot, epoch },
            Answer::Reply(mut reply, view) => {
                if let Reply::Promise(promise) = &mut reply {
                    let reads = operation.kind == Kind::Read;
                    match self.config.corruption {
                        Corruption::IgnoreUnfinished => promise.accepted = None,
                        Corruption::ReadSkipsRepair if reads => {
                            promise.accepted = None;
                            promise.promised_write = Ballot::ZERO;
                        }
                        _ => {}
                    }
                    let read_only = matches!(promise.permit, Permit::ReadOnly { .. });
                    self.reached.read_only_permits += u64::from(read_only);
                    // The data of the first answer counts, as the machine counts it.
                    if promise.ballot == operation.round {
                        operation.reads.entry(from).or_insert(view.unwrap());
                    }
                }
                Input::Reply { from, reply }
            }
        };
        self.step(id, input);
    }

    pub(super) fn step(&mut self, id: u64, input: Input<Payload>) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let Some(operation) = self.operations.get_mut(&id) else { return };
            let random = self.rng.next();
            let client = &mut self.clients[operation.client];
            let wall = WallMicros(self.now.cast_signed() + client.skew);
            let now = Instant(self.now * 1_000);
            let mut cx = Context { now, wall, random, clock: &mut client.clock };
            let mut out = Vec::new();
            operation.machine.step(&mut cx, input, &mut out);
            for output in out {
                // Answers to an output are fed in when all outputs are done.
                inputs.extend(self.output(id, output));
            }
        }
    }

    fn output(&mut self, id: u64, output: Output<Payload>) -> Option<Input<Payload>> {
        match output {
            Output::Prepare { to, ballot, write, .. } => {
                let operation = self.operations.get_mut(&id).unwrap();
                operation.reads.clear();
                operation.round = ballot;
                self.send(to, id, &Request::Prepare { ballot, write });
            }
            Output::Refresh { to, ballot, commit } => {
                self.reached.refreshes += 1;
                self.send(to, id, &Request::Refresh { ballot, commit });
            }
            Output::Propose { proposal, .. }
                if self.config.corruption == Corruption::ConcludeAtOnce && !proposal.is_empty() =>
            {
                let to = self.operations[&id].machine.plan().voters;
                self.send(to, id, &Request::Conclude(proposal));
            }
            Output::Propose { to, proposal, .. } => {
                let other = proposal.ballot != proposal.origin;
                self.reached.finished_others += u64::from(other);
                self.send(to, id, &Request::Propose(proposal));
            }
            Output::Conclude { to, proposal, .. } => {
                self.reached.concluded += 1;
                self.send(to, id, &Request::Conclude(proposal));
            }
            Output::Commit { to, commit } => self.send(to, id, &Request::Commit(commit)),
            Output::Prune { to, ballot } => {
                self.reached.pruned += 1;
                self.send(to, id, &Request::Prune { ballot });
            }
            Output::Decide { replies, .. } => {
                let operation = self.operations.get_mut(&id).unwrap();
                let readers = operation.machine.plan().readers;
                let mut data = Data::default();
                for target in replies.and(readers).iter() {
                    merge(&mut data, &operation.reads[&target]);
                }
                operation.seen = data.map(|(_, value)| value);
                let (register, expect, target, new) = operation.cas;
                let met = operation.kind == Kind::Write && operation.seen[register] == expect;
                let decision =
                    if met { Decision::Value(payload(target, new)) } else { Decision::NoOp };
                return Some(Input::Decided(decision));
            }
            Output::Replan { at_least } => {
                self.reached.replans += 1;
                self.epoch = self.epoch.max(at_least);
                let operation = self.operations.get_mut(&id).unwrap();
                operation.generation += 1;
                let own = operation.machine.plan().own;
                let plan = self.plan(true).with_own(own);
                return Some(Input::Plan(plan));
            }
            Output::WakeAt(Instant(at)) => {
                let at = at.div_ceil(1_000);
                self.operations.get_mut(&id).unwrap().wake = at;
                self.events.at(at, Event::Wake { operation: id, at });
            }
            Output::SlotFree => {}
            Output::Hint { .. } => self.reached.hints += 1,
            Output::Done(outcome) => self.done(id, outcome),
            Output::Finished => {
                self.operations.remove(&id);
            }
        }
        None
    }

    fn done(&mut self, id: u64, outcome: Outcome) {
        let operation = self.operations.get_mut(&id).unwrap();
        assert!(!std::mem::replace(&mut operation.done, true), "answered twice");
        let (client, history) = (operation.client, operation.history);
        let (seen, kind) = (operation.seen, operation.kind);
        let rounds = operation.machine.rounds();
        self.last = Some(outcome);
        let call = &mut self.history[history];
        let finish = |call: &mut Call<RegisterOperation>, now, new: CasResult| {
            call.end = End::Known(now);
            if let RegisterOperation::Cas { result, .. } = &mut call.operation {
                *result = new;
            }
        };
        match outcome {
            Outcome::Applied => {
                self.reached.applied += 1;
                let (_, _, target, new) = operation.cas;
                self.clients[client].known[target] = new;
                finish(call, self.now, CasResult::Applied);
            }
            Outcome::Failed(Failure { effect: Effect::Chosen, .. }) => {
                finish(call, self.now, CasResult::Applied);
            }
            Outcome::NotApplied => {
                self.reached.not_applied += 1;
                self.clients[client].known = seen;
                finish(call, self.now, CasResult::NotApplied(seen.to_vec()));
            }
            Outcome::Read => {
                self.reached.reads += 1;
                self.reached.one_round_reads += u64::from(rounds == 1);
                self.clients[client].known = seen;
                call.end = End::Known(self.now);
                call.operation = RegisterOperation::Read(seen.to_vec());
            }
            Outcome::Failed(Failure { effect: Effect::Unknown, .. }) => {
                self.reached.unknown += 1;
                self.unknown(history, kind);
            }
            // Certainly without effect: it is taken out of the history, so if it has one after
            // all, what it wrote comes from nowhere.
            Outcome::Failed(Failure { effect: Effect::None, .. }) => {
                self.reached.failed_for_certain += 1;
                self.certain_failures.push(history);
                self.certain_failures.sort_unstable();
            }
        }
        let think = self.now + self.rng.below(400);
        self.events.at(think, Event::Next { client });
    }
}
