use std::time::Duration;

use super::*;
use crate::acceptor::Rejection;
use crate::ballot::{BallotClock, Scope};
use crate::model::Rng;
use crate::plan::{Plan, Target, TargetSet};
use crate::proposer::{Context, Effect, Failure, Options};
use stdx::{Instant, WallMicros};

type V = Vec<u8>;

const MEMBERS: usize = 3;

fn entry(number: u64) -> LogEntry<V> {
    LogEntry { number: Epoch(number), origin: Ballot::ZERO, value: vec![number as u8; 10] }
}

#[test]
fn a_learner_takes_pages_in_order_and_refuses_gaps() {
    let log: Vec<_> = (1..=9).map(entry).collect();
    let mut learner = Learner::new(Epoch(3), 25);
    let mut have = Vec::new();
    let mut ask = Some(learner.request());
    while let Some(request) = ask {
        let from = log.iter().filter(|e| e.number >= request.from);
        let answer = Entries::answer(request, from, Epoch(10));
        assert!(!answer.entries.is_empty() && answer.entries.len() <= 2);
        let (new, more) = learner.take(answer).unwrap();
        have.extend(new);
        ask = more;
    }
    assert_eq!(have, log[2..]);
    // Known entries are skipped, a gap is refused.
    let again = Entries { entries: log[7..].to_vec(), end: Epoch(10) };
    assert_eq!(learner.take(again), Ok((vec![], None)));
    let gap = Entries { entries: vec![entry(11)], end: Epoch(12) };
    let error = LearnError { expected: Epoch(10), found: Epoch(11) };
    assert_eq!(learner.take(gap), Err(error));
}

struct Member {
    acceptor: LogAcceptor<V>,
    log: Vec<LogEntry<V>>,
    /// Not yet durable; answers wait for them.
    disk: Vec<(Token, Epoch, Record<V>)>,
    durable: Option<(Epoch, AcceptorState<V>)>,
    durable_log: usize,
}

enum Message {
    Ask { from: usize, to: usize, run: u64, entry: Epoch, request: Request<V> },
    Entries { to: usize, entries: Vec<LogEntry<V>> },
    Tell { from: usize, to: usize, run: u64, entry: Epoch, reply: Reply<V> },
    Known { to: usize, run: u64, entry: LogEntry<V> },
    Missing { from: usize, to: usize, run: u64, ballot: Ballot, first: Epoch },
}

struct Submitter {
    machine: Option<LogProposer<V>>,
    clock: BallotClock,
    run: u64,
    sent: Vec<(Epoch, V)>,
}

struct World {
    rng: Rng,
    now: u64,
    members: Vec<Member>,
    submitters: Vec<Submitter>,
    messages: Vec<Message>,
    slots: Vec<(usize, usize, u64, Epoch, Ballot)>,
    decided: Vec<(Epoch, V)>,
    refused: Vec<(Epoch, V)>,
}

fn admission() -> Admission {
    Admission {
        now: WallMicros(1_000_000),
        skew_max_micros: u64::MAX,
        floor: Ballot::ZERO,
        horizon: Ballot::ZERO,
    }
}

impl World {
    fn new(seed: u64) -> World {
        let member = |_| Member {
            acceptor: LogAcceptor::new(Epoch(1), None),
            log: Vec::new(),
            disk: Vec::new(),
            durable: None,
            durable_log: 0,
        };
        let submitter = |at| Submitter {
            machine: None,
            clock: BallotClock::new(at, u64::MAX),
            run: 0,
            sent: Vec::new(),
        };
        World {
            rng: Rng(seed),
            now: 0,
            members: (0..MEMBERS).map(member).collect(),
            submitters: (0..MEMBERS as u64).map(submitter).collect(),
            messages: Vec::new(),
            slots: Vec::new(),
            decided: Vec::new(),
            refused: Vec::new(),
        }
    }

    fn submit(&mut self, at: usize) {
        let three = TargetSet::first(MEMBERS);
        let plan = Plan::new(Epoch(0), three, TargetSet::EMPTY, TargetSet::EMPTY, &[]).unwrap();
        let after = |nanos| Instant(self.now) + Duration::from_nanos(nanos);
        let options = Options {
            deadline: after(400),
            commit_deadline: after(600),
            round_timeout: Duration::from_nanos(60),
            backoff_min: Duration::from_nanos(5),
            backoff_max: Duration::from_nanos(60),
            scope: Scope::None,
        };
        let expect = self.members[at].log.len() as u64;
        let s = &mut self.submitters[at];
        s.run += 1;
        let value = vec![at as u8, s.run as u8];
        s.sent.push((Epoch(expect + 1), value.clone()));
        s.machine = Some(LogProposer::submit(Epoch(expect), value, plan, options));
        self.step(at, LogInput::Start);
    }

    fn step(&mut self, at: usize, input: LogInput<V>) {
        let random = self.rng.next();
        let s = &mut self.submitters[at];
        let Some(machine) = &mut s.machine else { return };
        let (now, wall) = (Instant(self.now), WallMicros(self.now.cast_signed()));
        let mut cx = Context { now, wall, random, clock: &mut s.clock };
        let mut out = Vec::new();
        machine.step(&mut cx, input, &mut out);
        let (number, run) = (machine.entry(), s.run);
        for output in out {
            let (to, request) = match output {
                LogOutput::Prepare { to, ballot } => (to, Request::Prepare { ballot, write: true }),
                LogOutput::Propose { to, proposal } => (to, Request::Propose(proposal)),
                LogOutput::Commit { to, commit } => (to, Request::Commit(commit)),
                LogOutput::SendEntries { to, first } => {
                    let first = first.0 as usize - 1;
                    let entries = self.members[at].log.iter().skip(first).cloned().collect();
                    self.messages.push(Message::Entries { to: usize::from(to), entries });
                    continue;
                }
                LogOutput::Done(outcome) => {
                    let sent = self.submitters[at].sent.last().unwrap().clone();
                    match outcome {
                        LogOutcome::Decided(entry) => {
                            assert_eq!((entry.number, &entry.value), (sent.0, &sent.1));
                            self.decided.push(sent);
                        }
                        LogOutcome::Conflict(entry) => {
                            assert_ne!(entry.value, sent.1);
                            self.refused.push(sent);
                        }
                        LogOutcome::Failed(Failure { effect: Effect::None, .. }) => {
                            self.refused.push(sent);
                        }
                        LogOutcome::Failed(_) => {}
                    }
                    continue;
                }
                LogOutput::WakeAt(_) => continue,
                LogOutput::Finished => {
                    self.submitters[at].machine = None;
                    continue;
                }
            };
            for target in to.iter() {
                let (to, request) = (usize::from(target), request.clone());
                self.messages.push(Message::Ask { from: at, to, run, entry: number, request });
            }
        }
    }

    fn outputs(&mut self, at: usize, out: Vec<AcceptorOutput<V>>) {
        for output in out {
            match output {
                AcceptorOutput::Persist { token, entry, record } => {
                    if let Record::Commit(commit) = &record {
                        let (origin, value) = (commit.origin, commit.value.clone().unwrap());
                        self.members[at].log.push(LogEntry { number: entry, origin, value });
                    }
                    self.members[at].disk.push((token, entry, record));
                }
                AcceptorOutput::Reply { to, reply } => {
                    let Some(&(from, to, run, entry, _)) = self.slots.get(to.0 as usize) else {
                        continue;
                    };
                    self.messages.push(Message::Tell { from: to, to: from, run, entry, reply });
                }
                AcceptorOutput::Known { to, from } => {
                    let (to, _, run, _, _) = self.slots[to.0 as usize];
                    let entry = self.members[at].log[from.0 as usize - 1].clone();
                    self.messages.push(Message::Known { to, run, entry });
                }
                AcceptorOutput::Missing { to, from: first } => {
                    let (to, _, run, _, ballot) = self.slots[to.0 as usize];
                    self.messages.push(Message::Missing { from: at, to, run, ballot, first });
                }
            }
        }
    }

    fn learn(&mut self, at: usize, entries: Vec<LogEntry<V>>) {
        for entry in entries {
            let mut out = Vec::new();
            // No client waits for this answer.
            let nobody = ReplyTo(u64::MAX);
            self.members[at].acceptor.learned(admission(), entry, nobody, &mut out);
            self.outputs(at, out);
        }
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Ask { from, to, run, entry, request } => {
                let ballot = match &request {
                    Request::Prepare { ballot, .. } => *ballot,
                    Request::Propose(proposal) => proposal.ballot,
                    Request::Commit(commit) => commit.ballot,
                    Request::Refresh { .. } | Request::Prune { .. } | Request::Conclude(_) => {
                        unreachable!()
                    }
                };
                self.slots.push((from, to, run, entry, ballot));
                let slot = ReplyTo(self.slots.len() as u64 - 1);
                let mut out = Vec::new();
                self.members[to].acceptor.request(admission(), entry, slot, request, &mut out);
                self.outputs(to, out);
            }
            Message::Entries { to, entries } => self.learn(to, entries),
            Message::Tell { from, to, run, entry, reply } => {
                let s = &self.submitters[to];
                let current =
                    s.run == run && s.machine.as_ref().is_some_and(|m| m.entry() == entry);
                if current {
                    self.step(to, LogInput::Reply { from: from as Target, reply });
                }
            }
            Message::Known { to, run, entry } => {
                self.learn(to, vec![entry.clone()]);
                if self.submitters[to].run == run {
                    self.step(to, LogInput::Known(entry));
                }
            }
            Message::Missing { from, to, run, ballot, first } => {
                if self.submitters[to].run == run {
                    self.step(to, LogInput::Missing { from: from as Target, ballot, first });
                }
            }
        }
    }

    fn sync(&mut self, at: usize) {
        let m = &mut self.members[at];
        let Some((token, entry, record)) = (!m.disk.is_empty()).then(|| m.disk.remove(0)) else {
            return;
        };
        let commits = matches!(record, Record::Commit(_));
        let same = m.durable.take().filter(|(e, _)| *e == entry).map(|(_, state)| state);
        let mut state = same.unwrap_or_default();
        state.apply(record);
        m.durable = Some((entry, state));
        m.durable_log += usize::from(commits);
        let mut out = Vec::new();
        m.acceptor.persisted(admission(), token, &mut out);
        self.outputs(at, out);
    }

    fn crash(&mut self, at: usize) {
        let m = &mut self.members[at];
        m.disk.clear();
        m.log.truncate(m.durable_log);
        m.acceptor = LogAcceptor::new(Epoch(m.durable_log as u64 + 1), m.durable.clone());
        self.submitters[at].machine = None;
    }

    fn run(&mut self) {
        for step in 0..3_000 {
            self.now += 1;
            let at = self.rng.below(MEMBERS as u64) as usize;
            match self.rng.below(100) {
                0..60 if !self.messages.is_empty() => {
                    let pick = self.rng.below(self.messages.len() as u64) as usize;
                    let message = self.messages.swap_remove(pick);
                    if !self.rng.percent(5) {
                        self.deliver(message);
                    }
                }
                0..90 => self.sync(at),
                90..98 => match self.submitters[at].machine {
                    Some(_) => self.step(at, LogInput::Tick),
                    None if step < 2_500 => self.submit(at),
                    None => {}
                },
                98 if self.rng.percent(20) => self.crash(at),
                _ => {}
            }
        }
    }

    fn check(&self) {
        let longest = self.members.iter().map(|m| &m.log).max_by_key(|l| l.len()).unwrap();
        for member in &self.members {
            assert_eq!(member.log[..], longest[..member.log.len()], "INV-paxos-log-1");
        }
        let times = |(number, value): &(Epoch, V)| {
            longest.iter().filter(|e| e.value == *value && e.number == *number).count()
        };
        for sent in self.decided.iter().filter(|(n, _)| n.0 as usize <= longest.len()) {
            assert_eq!(times(sent), 1, "INV-paxos-log-1: decided once: {sent:?}");
        }
        assert!(self.refused.iter().all(|sent| times(sent) == 0), "refused, and yet decided");
    }
}

#[test]
fn all_members_have_one_log_with_what_was_decided_and_nothing_that_was_refused() {
    let (mut entries, mut decided, mut refused) = (0, 0, 0);
    for seed in 0..300 {
        let mut world = World::new(seed);
        world.run();
        world.check();
        entries += world.members.iter().map(|m| m.log.len()).max().unwrap();
        decided += world.decided.len();
        refused += world.refused.len();
    }
    assert!(entries > 1_000 && decided > 1_000 && refused > 300, "{entries} {decided} {refused}");
}

/// INV-paxos-log-2.
#[test]
fn a_member_that_is_behind_says_so_and_one_that_is_ahead_gives_the_entry() {
    let mut a = LogAcceptor::<V>::new(Epoch(3), None);
    let prepare = || Request::Prepare { ballot: Ballot::new(9, Scope::None, 1), write: true };
    let to = ReplyTo(0);
    let mut out = Vec::new();
    a.request(admission(), Epoch(4), to, prepare(), &mut out);
    a.request(admission(), Epoch(2), to, prepare(), &mut out);
    let (missing, known) = (Epoch(3), Epoch(2));
    assert_eq!(
        out,
        [AcceptorOutput::Missing { to, from: missing }, AcceptorOutput::Known { to, from: known }]
    );
    assert!(!a.learned(admission(), entry(4), to, &mut out));
    assert!(a.learned(admission(), entry(3), to, &mut out) && a.next() == Epoch(4));
    // Registers of another instance do not count.
    let mut state = AcceptorState::default();
    state.apply(Record::Promise { ballot: Ballot::new(50, Scope::None, 1), write: true });
    let mut a = LogAcceptor::new(Epoch(3), Some((Epoch(2), state.clone())));
    out.clear();
    a.request(admission(), Epoch(3), to, prepare(), &mut out);
    assert!(matches!(out[..], [AcceptorOutput::Persist { entry: Epoch(3), .. }]));
    let mut a = LogAcceptor::new(Epoch(3), Some((Epoch(3), state)));
    out.clear();
    a.request(admission(), Epoch(3), to, prepare(), &mut out);
    let [AcceptorOutput::Reply { reply: Reply::Rejected { why, .. }, .. }] = out[..] else {
        panic!("{out:?}")
    };
    assert_eq!(why, Rejection::Newer(Ballot::new(50, Scope::None, 1)));
}
