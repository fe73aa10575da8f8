//! The cluster: replicas, clients that each propose for themselves, faults, and the history.

use std::collections::BTreeMap;

use stdx::Epoch;

use super::Rng;
use super::clients::{Client, Operation};
use super::network::{Answer, Event, Events, Faults};
use super::node::{Node, Payload, SKEW_MAX_MICROS};
use crate::acceptor::Request;
use crate::acceptor::{Input as AcceptorInput, Output as AcceptorOutput, ReplyTo};
use crate::ballot::BallotClock;
use crate::linear::{Call, End, RegisterOperation};
use crate::plan::Target;
use crate::proposer::{Input, Kind, Outcome};

/// A defect built in to see that the checker finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Corruption {
    None,
    /// Acceptors answer before their records are durable.
    AnswerBeforePersist,
    /// Proposers do not see what may have been chosen before them.
    IgnoreUnfinished,
    /// Serial reads answer with what they find.
    ReadSkipsRepair,
    /// A proposer asks acceptors to conclude when no acceptor has accepted before them.
    ConcludeAtOnce,
    /// A start forgets what was promised without a record.
    ForgetHorizon,
    /// An acceptor is dropped before what it promised without a record is appended.
    ForgetUnwritten,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Config {
    pub(super) seed: u64,
    pub(super) corruption: Corruption,
    /// A replica joins and another leaves on the way.
    pub(super) movement: bool,
    pub(super) weather: Weather,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weather {
    Fair,
    /// Slow disks and many crashes.
    Harsh,
    /// Acceptors are dropped, and replicas crash for a moment, between any two messages.
    Restless,
}

/// How often rare things happened, over many runs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reached {
    pub(super) applied: u64,
    pub(super) not_applied: u64,
    pub(super) reads: u64,
    pub(super) one_round_reads: u64,
    pub(super) unknown: u64,
    pub(super) failed_for_certain: u64,
    pub(super) refreshes: u64,
    pub(super) finished_others: u64,
    pub(super) pruned: u64,
    pub(super) replans: u64,
    pub(super) hints: u64,
    pub(super) read_only_permits: u64,
    pub(super) dropped: u64,
    pub(super) concluded: u64,
    pub(super) unwritten: u64,
    pub(super) evicted: u64,
}

pub(super) struct World {
    pub(super) config: Config,
    pub(super) rng: Rng,
    pub(super) now: u64,
    pub(super) events: Events,
    pub(super) faults: Faults,
    pub(super) nodes: Vec<Node>,
    pub(super) replicas: usize,
    pub(super) epoch: Epoch,
    pub(super) clients: Vec<Client>,
    pub(super) operations: BTreeMap<u64, Operation>,
    pub(super) next_operation: u64,
    pub(super) slots: BTreeMap<ReplyTo, (u64, u64, Target, Option<Epoch>)>,
    pub(super) next_value: u64,
    pub(super) healed: bool,
    /// Replicas promise without records.
    has_horizons: bool,
    pub(super) history: Vec<Call<RegisterOperation>>,
    pub(super) certain_failures: Vec<usize>,
    pub(super) last: Option<Outcome>,
    pub(super) reached: Reached,
}

const START: u64 = 1_000_000;

impl World {
    pub(super) fn new(config: Config) -> World {
        let mut rng = Rng(config.seed);
        let replicas = if config.movement || rng.percent(60) { 3 } else { 5 };
        let skews = rng.below(20_000).cast_signed();
        let skew = |rng: &mut Rng| rng.below(2 * skews.unsigned_abs() + 1).cast_signed() - skews;
        let nodes = (0..replicas + usize::from(config.movement))
            .map(|_| Node::new(skew(&mut rng)))
            .collect();
        let clients = (0..rng.range(2, 4))
            .map(|at| Client {
                clock: BallotClock::new(at + 1, SKEW_MAX_MICROS),
                skew: skew(&mut rng),
                left: 4 + u32::try_from(rng.below(6)).unwrap(),
                known: [0; 2],
            })
            .collect();
        let faults = match rng.below(4) {
            0 => Faults::default(),
            1 => Faults { lost: 5, doubled: 5, slow: 5 },
            2 => Faults { lost: 20, doubled: 10, slow: 0 },
            _ => Faults { lost: 5, doubled: 10, slow: 40 },
        };
        let has_horizons = config.weather == Weather::Restless || rng.percent(70);
        World {
            config,
            rng,
            has_horizons,
            now: START,
            events: Events::default(),
            faults,
            nodes,
            replicas,
            epoch: Epoch(1),
            clients,
            operations: BTreeMap::new(),
            next_operation: 0,
            slots: BTreeMap::new(),
            next_value: 0,
            healed: false,
            history: Vec::new(),
            certain_failures: Vec::new(),
            last: None,
            reached: Reached::default(),
        }
    }

    /// Runs until all clients are done, heals, and reads what is left three times.
    pub(super) fn run(&mut self) {
        for client in 0..self.clients.len() {
            let at = START + self.rng.below(500);
            self.events.at(at, Event::Next { client });
            if self.rng.percent(30) {
                let at = START + self.rng.below(20_000);
                self.events.at(at, Event::ClientCrash { client });
            }
        }
        let restless = self.config.weather == Weather::Restless;
        let crashes = match self.config.weather {
            Weather::Fair => 8,
            Weather::Harsh => 60,
            Weather::Restless => 2_000,
        };
        for _ in 0..self.rng.below(crashes) {
            let node = self.rng.below(self.nodes.len() as u64) as usize;
            let at = START + self.rng.below(15_000);
            self.events.at(at, Event::Crash { node });
        }
        if self.rng.percent(50) {
            for at in (0..40).map(|k| START + 500 * k) {
                let node = self.rng.below(self.nodes.len() as u64) as usize;
                self.events.at(at, Event::Sweep { node });
            }
        }
        if restless || self.rng.percent(50) {
            let pause = if restless { 20 } else { 500 };
            for at in (0..20_000 / pause).map(|k| START + pause * k) {
                let node = self.rng.below(self.nodes.len() as u64) as usize;
                self.events.at(at, Event::Evict { node });
            }
        }
        if self.config.movement {
            let joins = START + self.rng.below(10_000);
            let copied = joins + self.rng.range(100, 5_000);
            self.events.at(joins, Event::Epoch { to: Epoch(2) });
            self.events.at(copied, Event::TakeOver);
        }
        self.drain();
        // Nothing bad happens any more: every operation must come to its end.
        self.faults = Faults::default();
        self.healed = true;
        for node in 0..self.nodes.len() {
            if !self.nodes[node].up {
                self.restart(node);
            }
        }
        for _ in 0..3 {
            self.clients[0].left = 1;
            self.now += 100_000;
            self.start_operation(0, Kind::Read);
            self.drain();
            let last = self.history.last().unwrap();
            let seed = self.config.seed;
            assert!(
                last.end != End::Unknown,
                "seed {seed:#x}: {:?} in a healthy cluster",
                self.last
            );
        }
        for at in std::mem::take(&mut self.certain_failures).into_iter().rev() {
            self.history.remove(at);
        }
    }

    fn drain(&mut self) {
        while let Some((at, event)) = self.events.pop() {
            self.now = self.now.max(at);
            self.event(event);
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::ToNode { node, operation, generation, epoch, request } => {
                self.node_gets(node, operation, generation, epoch, request);
            }
            Event::ToClient { operation, generation, from, answer } => {
                self.client_gets(operation, generation, from, answer);
            }
            Event::Synced { node, incarnation, token, record } => {
                if self.nodes[node].incarnation == incarnation {
                    self.nodes[node].sync(record);
                    self.node_step(node, AcceptorInput::Persisted(token));
                }
            }
            Event::Wake { operation, at } => {
                if self.operations.get(&operation).is_some_and(|o| o.wake == at) {
                    self.step(operation, Input::Tick);
                }
            }
            Event::Next { client } => {
                if self.clients[client].left > 0 {
                    let write = self.rng.percent(65);
                    self.start_operation(client, if write { Kind::Write } else { Kind::Read });
                }
            }
            Event::ClientCrash { client } => self.client_crash(client),
            Event::Crash { node } => {
                if self.nodes[node].up && !self.healed {
                    self.nodes[node].crash();
                    let longest = match self.config.weather {
                        Weather::Fair => 4_000,
                        Weather::Harsh => 400,
                        Weather::Restless => 8,
                    };
                    let back = self.now + self.rng.range(longest.min(10), longest);
                    self.events.at(back, Event::Restart { node });
                }
            }
            Event::Restart { node } => {
                if !self.nodes[node].up {
                    self.restart(node);
                }
            }
            Event::Evict { node } => {
                let known = self.config.corruption != Corruption::AnswerBeforePersist;
                if self.nodes[node].up && known {
                    let forgets = self.config.corruption == Corruption::ForgetUnwritten;
                    self.reached.evicted += u64::from(self.nodes[node].evict(forgets));
                }
            }
            Event::Horizon { node, incarnation, to } => {
                if self.nodes[node].incarnation == incarnation {
                    self.nodes[node].raise_horizon(to);
                }
            }
            Event::Sweep { node } => {
                // With that defect the model does not know what still waits for the disk.
                let known = self.config.corruption != Corruption::AnswerBeforePersist;
                if self.nodes[node].up && known {
                    let dropped = self.nodes[node].sweep(self.now);
                    self.reached.dropped += u64::from(dropped);
                }
            }
            Event::Epoch { to } => self.epoch = to,
            Event::TakeOver => self.take_over(),
        }
    }

    fn restart(&mut self, node: usize) {
        let forgets = self.config.corruption == Corruption::ForgetHorizon;
        self.nodes[node].restart(self.now, forgets);
    }

    /// The joining replica (3) takes over from a quorum of the old ones and becomes a natural one;
    /// replica 0 leaves.
    fn take_over(&mut self) {
        let first = self.rng.below(3) as usize;
        let sources = [first, (first + 1) % 3];
        let joining = self.nodes[3].up && self.nodes[3].acceptor.is_idle();
        if !joining || !sources.iter().all(|n| self.nodes[*n].up) {
            let later = self.now + 500;
            return self.events.at(later, Event::TakeOver);
        }
        for source in sources {
            self.nodes[source].epoch = Epoch(2);
            let state = self.nodes[source].acceptor.state().clone();
            let data = self.nodes[source].data;
            self.nodes[3].take_over(state, &data);
        }
        self.nodes[3].epoch = Epoch(2);
        let later = self.now + self.rng.range(10, 2_000);
        self.events.at(later, Event::Epoch { to: Epoch(3) });
    }

    fn node_gets(
        &mut self,
        node: usize,
        operation: u64,
        generation: u64,
        epoch: Epoch,
        request: Request<Payload>,
    ) {
        let n = &mut self.nodes[node];
        if !n.up {
            return;
        }
        // A message from a newer epoch brings its snapshot along; nodes learn of one on their own
        // at some time too.
        n.epoch = n.epoch.max(epoch);
        if self.rng.percent(10) {
            n.epoch = n.epoch.max(self.epoch);
        }
        let stale = epoch < n.epoch;
        let known = n.epoch;
        let from = Target::try_from(node).unwrap();
        let round = match &request {
            Request::Prepare { ballot, .. } | Request::Refresh { ballot, .. } => Some(*ballot),
            Request::Propose(proposal) | Request::Conclude(proposal) => Some(proposal.ballot),
            Request::Commit(_) | Request::Prune { .. } => None,
        };
        if let (true, Some(ballot)) = (stale, round) {
            let answer = Answer::WrongEpoch(ballot, known);
            return self.answer(operation, generation, from, answer);
        }
        if stale && matches!(request, Request::Prune { .. }) {
            return;
        }
        if self.has_horizons
            && let Some(to) = self.nodes[node].wants_horizon(self.now)
        {
            let (incarnation, at) = (self.nodes[node].incarnation, self.now + self.rng.below(100));
            self.events.at(at, Event::Horizon { node, incarnation, to });
        }
        let to = ReplyTo(self.rng.next());
        self.slots.insert(to, (operation, generation, from, stale.then_some(known)));
        self.node_step(node, AcceptorInput::Request { to, request });
    }

    fn node_step(&mut self, node: usize, input: AcceptorInput<Payload>) {
        let outputs = self.nodes[node].step(self.now, input);
        self.reached.unwritten += u64::from(self.nodes[node].acceptor.has_unwritten());
        for output in outputs {
            match output {
                AcceptorOutput::Persist { token, record, .. } => {
                    let rare = if self.config.weather == Weather::Harsh { 60 } else { 10 };
                    let slow = if self.rng.percent(rare) { 1_000 } else { 30 };
                    let at = self.nodes[node].disk_free_at.max(self.now) + self.rng.below(slow);
                    self.nodes[node].disk_free_at = at;
                    let incarnation = self.nodes[node].incarnation;
                    self.events.at(at, Event::Synced { node, incarnation, token, record });
                    if self.config.corruption == Corruption::AnswerBeforePersist {
                        self.node_step(node, AcceptorInput::Persisted(token));
                    }
                }
                AcceptorOutput::TakeReadView { .. } => {}
                AcceptorOutput::Reply { to, reply } => {
                    let view = self.nodes[node].take_view(to);
                    let Some((operation, generation, from, stale)) = self.slots.remove(&to) else {
                        continue;
                    };
                    let answer = match stale {
                        Some(epoch) => Answer::WrongEpoch(reply.ballot(), epoch),
                        None => Answer::Reply(reply, view),
                    };
                    self.answer(operation, generation, from, answer);
                }
            }
        }
    }

    fn answer(&mut self, operation: u64, generation: u64, from: Target, answer: Answer) {
        for at in self.faults.arrivals(self.now, &mut self.rng) {
            let answer = answer.clone();
            self.events.at(at, Event::ToClient { operation, generation, from, answer });
        }
    }
}
