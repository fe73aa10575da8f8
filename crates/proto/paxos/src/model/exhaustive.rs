//! Every interleaving of two conditional writes on three replicas.
//!
//! Both want to set the register if it is still 0. Any message may come at any time after it was
//! sent, or never: what must hold is checked in every state, not only at the end. One of them may
//! also start a second round at any time. Where an operation has been answered, serial reads by
//! each quorum must agree with the answer. Depth is bounded for the time it takes; 16 steps, and 12
//! with the second round, were explored when this was written (600,000 states).

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use stdx::{Epoch, FixedHasher, FixedSet, Instant, WallMicros};

use crate::acceptor::{AcceptorState, Admission, Record, Reply, Request, Transition};
use crate::ballot::{Ballot, BallotClock, Scope};
use crate::plan::{Plan, Target, TargetSet};
use crate::proposer::{
    Context, Decision, Effect, Failure, Input, Kind, Options, Outcome, Output, Proposer,
};

const NODES: u8 = 3;
const ROUND: u64 = 1_000;

#[derive(Clone, PartialEq, Eq, Hash)]
enum Message {
    Ask(Target, Request<u8>),
    Tell(Target, Reply<u8>, u8),
}

#[derive(Clone, PartialEq, Eq, Hash, Default)]
struct Node {
    state: AcceptorState<u8>,
    /// Timestamp and value.
    data: (u64, u8),
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Client {
    machine: Proposer<u8>,
    clock: BallotClock,
    value: u8,
    now: u64,
    retries: u8,
    reads: Vec<(Target, Ballot, u8)>,
    seen: u8,
    outcome: Option<Answer>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Answer {
    Applied,
    NotApplied(u8),
    Read(u8),
    Unknown,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    nodes: Vec<Node>,
    clients: Vec<Client>,
    /// With the client that each belongs to; sorted by fingerprint, since order means nothing.
    messages: Vec<(usize, Message)>,
}

fn fingerprint(value: &impl Hash) -> u64 {
    FixedHasher.hash_one(value)
}

/// The identity of a proposer.
struct Identity {
    /// Orders its ballots among those of one microsecond.
    tie: u64,
    /// Itself, when it is a replica.
    own: Option<Target>,
}

fn client(kind: Kind, value: u8, start: u64, proposer: Identity, retries: u8) -> Client {
    let Identity { tie, own } = proposer;
    let none = TargetSet::EMPTY;
    let plan = Plan::new(Epoch(1), TargetSet::first(usize::from(NODES)), none, none, &[]);
    let plan = plan.unwrap().with_own(own);
    let options = Options {
        deadline: Instant(u64::MAX),
        commit_deadline: Instant(u64::MAX),
        round_timeout: Duration::from_nanos(ROUND),
        backoff_min: Duration::from_nanos(ROUND),
        backoff_max: Duration::from_nanos(ROUND),
        scope: Scope::Global,
    };
    Client {
        machine: Proposer::new(kind, plan, options),
        clock: BallotClock::new(tie, u64::MAX),
        value,
        now: start,
        retries,
        reads: Vec::new(),
        seen: 0,
        outcome: None,
    }
}

impl State {
    fn step(&mut self, at: usize, input: Input<u8>) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let c = &mut self.clients[at];
            let (now, wall) = (Instant(c.now), WallMicros(c.now.cast_signed()));
            let mut cx = Context { now, wall, random: 0, clock: &mut c.clock };
            let mut out = Vec::new();
            c.machine.step(&mut cx, input, &mut out);
            for output in out {
                inputs.extend(self.output(at, output));
            }
        }
        self.messages.sort_by_key(fingerprint);
    }

    fn output(&mut self, at: usize, output: Output<u8>) -> Option<Input<u8>> {
        let (to, request) = match output {
            Output::Prepare { to, ballot, write, .. } => (to, Request::Prepare { ballot, write }),
            Output::Refresh { to, ballot, commit } => (to, Request::Refresh { ballot, commit }),
            Output::Propose { to, proposal, .. } => (to, Request::Propose(proposal)),
            Output::Conclude { to, proposal, .. } => (to, Request::Conclude(proposal)),
            Output::Commit { to, commit } => (to, Request::Commit(commit)),
            Output::Prune { to, ballot } => (to, Request::Prune { ballot }),
            Output::Decide { ballot, replies } => {
                let c = &mut self.clients[at];
                let of_round =
                    c.reads.iter().filter(|(t, b, _)| *b == ballot && replies.contains(*t));
                // All values differ, and a replica that lacks the commit has an older one: 0.
                c.seen = of_round.map(|(_, _, value)| *value).max().unwrap();
                c.reads.clear();
                let write = c.value != 0 && c.seen == 0;
                let decision = if write { Decision::Value(c.value) } else { Decision::NoOp };
                return Some(Input::Decided(decision));
            }
            Output::Done(outcome) => {
                let c = &mut self.clients[at];
                c.outcome = Some(match outcome {
                    Outcome::Applied => Answer::Applied,
                    Outcome::NotApplied => Answer::NotApplied(c.seen),
                    Outcome::Read => Answer::Read(c.seen),
                    Outcome::Failed(Failure { effect: Effect::Unknown, .. }) => Answer::Unknown,
                    Outcome::Failed(failure) => panic!("{failure:?}"),
                });
                return None;
            }
            Output::WakeAt(_) | Output::SlotFree | Output::Hint { .. } | Output::Finished => {
                return None;
            }
            Output::Replan { .. } => panic!("nobody moves"),
        };
        let messages = to.iter().map(|t| (at, Message::Ask(t, request.clone())));
        self.messages.extend(messages);
        None
    }

    fn deliver(&mut self, index: usize) {
        let (at, message) = self.messages.remove(index);
        match message {
            Message::Ask(target, request) => {
                let node = &mut self.nodes[usize::from(target)];
                let admission = Admission {
                    now: WallMicros(0),
                    skew_max_micros: u64::MAX,
                    floor: Ballot::ZERO,
                    horizon: Ballot::ZERO,
                };
                let Transition { record, reply } = node.state.handle(admission, request);
                if let Some(Record::Commit(commit)) = record {
                    node.data = node.data.max((commit.origin.micros(), commit.value.unwrap_or(0)));
                }
                let value = node.data.1;
                if let Some(reply) = reply {
                    self.messages.push((at, Message::Tell(target, reply, value)));
                    self.messages.sort_by_key(fingerprint);
                }
            }
            Message::Tell(from, reply, value) => {
                if matches!(reply, Reply::Promise(_)) {
                    self.clients[at].reads.push((from, reply.ballot(), value));
                    self.clients[at].reads.sort_unstable();
                }
                self.step(at, Input::Reply { from, reply });
            }
        }
    }

    /// Drops answers that change nothing: they would not later either, because a round only goes
    /// forward, so they only multiply the states. So do prunes.
    fn tidy(&mut self) {
        let clients = &self.clients;
        self.messages.retain(|(at, message)| match message {
            Message::Ask(_, request) => !matches!(request, Request::Prune { .. }),
            Message::Tell(from, reply, _) => {
                let mut c = clients[*at].clone();
                let before = c.machine.clone();
                let mut clock = c.clock.clone();
                let (now, wall) = (Instant(c.now), WallMicros(c.now.cast_signed()));
                let mut cx = Context { now, wall, random: 0, clock: &mut clock };
                let mut out = Vec::new();
                let input = Input::Reply { from: *from, reply: reply.clone() };
                c.machine.step(&mut cx, input, &mut out);
                let late = matches!(reply, Reply::Committed { .. }) && c.outcome.is_some();
                !late && (c.machine != before || !out.is_empty())
            }
        });
    }

    /// Returns the answer of a serial read by these two replicas; all other messages stay where
    /// they are.
    fn probe(&self, quorum: [Target; 2]) -> Answer {
        let mut world = self.clone();
        world.messages.clear();
        world.clients.push(client(Kind::Read, 0, 1_000_000, Identity { tie: 9, own: None }, 0));
        let at = world.clients.len() - 1;
        world.step(at, Input::Start);
        while world.clients[at].outcome.is_none() {
            let next = world.messages.iter().position(|(_, message)| match message {
                Message::Ask(target, _) | Message::Tell(target, _, _) => quorum.contains(target),
            });
            world.deliver(next.expect("a read with a quorum comes to its end"));
        }
        world.clients[at].outcome.unwrap()
    }

    fn check(&self) {
        let answers: Vec<(u8, Answer)> =
            self.clients.iter().filter_map(|c| Some((c.value, c.outcome?))).collect();
        let applied: Vec<u8> =
            answers.iter().filter(|(_, a)| *a == Answer::Applied).map(|(v, _)| *v).collect();
        assert!(applied.len() <= 1, "two winners of one condition");
        let seen = answers.iter().filter_map(|(_, a)| match a {
            Answer::NotApplied(value) | Answer::Read(value) => Some(*value),
            Answer::Applied | Answer::Unknown => None,
        });
        let winners: Vec<u8> = seen.chain(applied.iter().copied()).collect();
        for quorum in [[0, 1], [0, 2], [1, 2]] {
            let Answer::Read(value) = self.probe(quorum) else { panic!("a read fails") };
            assert!(winners.iter().all(|w| *w == value), "{answers:?}, but {quorum:?} has {value}");
        }
    }
}

/// Explores all states that `steps_max` deliveries and retries lead to; how many there are.
fn explore(retries: u8, steps_max: u32, own: [Option<Target>; 2]) -> usize {
    let mut first = State {
        nodes: vec![Node::default(); usize::from(NODES)],
        clients: vec![
            client(Kind::Write, 1, 1_000, Identity { tie: 1, own: own[0] }, retries),
            client(Kind::Write, 2, 1_500, Identity { tie: 2, own: own[1] }, 0),
        ],
        messages: Vec::new(),
    };
    // Starting later is the same as messages that are delivered later.
    first.step(0, Input::Start);
    first.step(1, Input::Start);
    let mut seen: FixedSet<u64> = FixedSet::default();
    let mut todo = VecDeque::from([(0, first)]);
    while let Some((steps, state)) = todo.pop_front() {
        if steps == steps_max {
            continue;
        }
        for at in 0..state.clients.len() {
            let c = &state.clients[at];
            if c.outcome.is_none() && c.retries > 0 {
                let mut next = state.clone();
                next.clients[at].retries -= 1;
                next.clients[at].now += ROUND;
                next.step(at, Input::Tick);
                visit(&mut seen, &mut todo, steps, next, &state);
            }
        }
        for index in 0..state.messages.len() {
            let mut next = state.clone();
            next.deliver(index);
            next.tidy();
            visit(&mut seen, &mut todo, steps, next, &state);
        }
    }
    seen.len()
}

fn visit(
    seen: &mut FixedSet<u64>,
    todo: &mut VecDeque<(u32, State)>,
    steps: u32,
    next: State,
    before: &State,
) {
    if !seen.insert(fingerprint(&next)) {
        return;
    }
    let answered = |s: &State| s.clients.iter().filter(|c| c.outcome.is_some()).count();
    if answered(&next) > answered(before) {
        next.check();
    }
    todo.push_back((steps + 1, next));
}

#[test]
fn all_interleavings_of_two_writes_have_one_winner_that_all_quorums_know() {
    let states = explore(0, 13, [None; 2]);
    assert!(states > 40_000, "{states} states");
}

#[test]
fn a_second_round_of_one_of_them_changes_nothing() {
    let states = explore(1, 9, [None; 2]);
    assert!(states > 20_000, "{states} states");
}

#[test]
fn rounds_that_the_last_vote_commits_have_one_winner_too() {
    for own in [[Some(0), Some(1)], [Some(0), Some(0)], [Some(2), None]] {
        let states = explore(0, 13, own);
        assert!(states > 10_000, "{own:?}: {states} states");
    }
    let states = explore(1, 10, [Some(0), Some(1)]);
    assert!(states > 10_000, "{states} states");
}
