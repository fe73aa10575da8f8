//! Proposing one entry of a log.
//!
//! Owns the rounds of one instance. The outcome is always distinguished: the entry is ours, or it
//! is another one, or it is not known yet.

use smallvec::SmallVec;
use stdx::{Epoch, Instant};

use super::LogEntry;
use crate::acceptor::{Rejection, Reply};
use crate::ballot::{Ballot, check_skew};
use crate::plan::{Plan, Target, TargetSet};
use crate::proposer::{Context, Effect, Failure, FailureKind, Options};
use crate::value::{Accepted, Commit};

/// Event for a log's proposer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogInput<V> {
    /// Begin.
    Start,
    /// A voter answered.
    Reply {
        /// Which.
        from: Target,
        /// What.
        reply: Reply<V>,
    },
    /// The instance is decided, says a member, and this is its entry.
    Known(LogEntry<V>),
    /// A voter lacks entries from this one on.
    Missing {
        /// Which.
        from: Target,
        /// The round of the message that it could not handle.
        ballot: Ballot,
        /// The first entry it lacks.
        first: Epoch,
    },
    /// A member will not answer.
    Failed {
        /// Which.
        from: Target,
        /// The round, or commit, of the message.
        ballot: Ballot,
    },
    /// The time of [`LogOutput::WakeAt`] is reached.
    Tick,
}

/// An instruction to the driver of a log's proposer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogOutput<V> {
    /// Send prepare for the instance, as of a write.
    Prepare {
        /// Receivers.
        to: TargetSet,
        /// The round.
        ballot: Ballot,
    },
    /// Send the proposal.
    Propose {
        /// Receivers.
        to: TargetSet,
        /// What.
        proposal: Accepted<V>,
    },
    /// Send the decided entry to the members.
    Commit {
        /// Receivers.
        to: TargetSet,
        /// What.
        commit: Commit<V>,
    },
    /// Send the entries before the instance, from `first` on; what follows on the same connection
    /// finds them there.
    SendEntries {
        /// Receivers.
        to: Target,
        /// The first that it lacks.
        first: Epoch,
    },
    /// Give [`LogInput::Tick`] then. Replaces the time asked for before.
    WakeAt(Instant),
    /// The outcome.
    Done(LogOutcome<V>),
    /// The machine can be dropped.
    Finished,
}

/// Outcome of the submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogOutcome<V> {
    /// The entry is ours, and a quorum of the commit acknowledged it if the plan asked for that.
    Decided(LogEntry<V>),
    /// The entry is another: ours was decided nowhere. Rebase it on this one and submit again.
    Conflict(LogEntry<V>),
    /// Not known: see [`Failure::effect`].
    Failed(Failure),
}

#[derive(Clone, Debug)]
enum Phase<V> {
    New,
    Preparing { promised: TargetSet, best: Option<Accepted<V>> },
    Proposing { proposal: Accepted<V>, accepted: TargetSet },
    Committing { commit: Commit<V>, acknowledged: TargetSet, failed: TargetSet, answered: bool },
    Finished,
}

/// Machine of one submission. After [`LogOutput::Finished`] it produces nothing more.
#[derive(Clone, Debug)]
pub struct LogProposer<V> {
    entry: Epoch,
    value: V,
    plan: Plan,
    options: Options,
    phase: Phase<V>,
    ballot: Ballot,
    seen: Ballot,
    /// Rounds that proposed our value for the first time.
    own: SmallVec<[Ballot; 2]>,
    failed: TargetSet,
    rounds: u32,
    contentions: u32,
    retry_at: Instant,
    wake_at: Option<Instant>,
}

impl<V: Clone> LogProposer<V> {
    /// Submits `value` as the entry after `expect`, the epoch that it was made for. The plan's
    /// voters are those of that epoch, its learners all members.
    pub fn submit(expect: Epoch, value: V, plan: Plan, options: Options) -> LogProposer<V> {
        LogProposer {
            entry: Epoch(expect.0.saturating_add(1)),
            value,
            plan,
            options,
            phase: Phase::New,
            ballot: Ballot::ZERO,
            seen: Ballot::ZERO,
            own: SmallVec::new(),
            failed: TargetSet::EMPTY,
            rounds: 0,
            contentions: 0,
            retry_at: options.deadline,
            wake_at: None,
        }
    }

    /// The instance.
    pub fn entry(&self) -> Epoch {
        self.entry
    }

    /// Returns true if [`LogOutput::Finished`] was returned.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished)
    }

    /// Advances by one event and appends what the driver must do.
    pub fn step(&mut self, cx: &mut Context<'_>, input: LogInput<V>, out: &mut Vec<LogOutput<V>>) {
        match input {
            LogInput::Start => {
                if matches!(self.phase, Phase::New) {
                    self.begin_round(cx, out);
                }
            }
            LogInput::Reply { from, reply } => self.reply(cx, from, reply, out),
            LogInput::Known(entry) => self.known(entry, out),
            LogInput::Missing { from, ballot, first } => self.missing(from, ballot, first, out),
            LogInput::Failed { from, ballot } => self.failed(from, ballot, out),
            LogInput::Tick => self.tick(cx, out),
        }
        self.update_wake(out);
    }

    fn begin_round(&mut self, cx: &mut Context<'_>, out: &mut Vec<LogOutput<V>>) {
        match cx.clock.next(cx.wall, self.seen, self.options.scope) {
            Ok(ballot) => self.ballot = ballot,
            Err(skew) => return self.fail(FailureKind::ClockSkew(skew), 0, out),
        }
        self.retry_at = cx.now + self.options.patience(self.rounds);
        self.rounds = self.rounds.saturating_add(1);
        self.failed = TargetSet::EMPTY;
        self.phase = Phase::Preparing { promised: TargetSet::EMPTY, best: None };
        out.push(LogOutput::Prepare { to: self.plan.voters, ballot: self.ballot });
    }

    fn reply(
        &mut self,
        cx: &mut Context<'_>,
        from: Target,
        reply: Reply<V>,
        out: &mut Vec<LogOutput<V>>,
    ) {
        if let Phase::Committing { commit, acknowledged, .. } = &mut self.phase {
            if matches!(reply, Reply::Committed { ballot } if ballot == commit.ballot) {
                acknowledged.insert(from);
                self.advance_commit(out);
            }
            return;
        }
        if reply.ballot() != self.ballot || !self.plan.voters.contains(from) {
            return;
        }
        match (reply, &mut self.phase) {
            (Reply::Promise(promise), Phase::Preparing { promised, best }) => {
                // A permit to read is no promise, and the log has no reads.
                if matches!(promise.permit, crate::acceptor::Permit::ReadOnly { .. }) {
                    return;
                }
                promised.insert(from);
                let newer = |a: &Accepted<V>| best.as_ref().is_none_or(|b| a.ballot > b.ballot);
                if let Some(accepted) = promise.accepted.filter(newer) {
                    *best = Some(accepted);
                }
                if promised.len() >= self.plan.quorum {
                    let proposal = match best.take() {
                        Some(accepted) => accepted.reproposed(self.ballot),
                        None => {
                            self.own.push(self.ballot);
                            Accepted::first(self.ballot, Some(self.value.clone()))
                        }
                    };
                    self.retry_at = cx.now + self.options.patience(self.rounds.saturating_sub(1));
                    self.phase =
                        Phase::Proposing { proposal: proposal.clone(), accepted: TargetSet::EMPTY };
                    out.push(LogOutput::Propose { to: self.plan.voters, proposal });
                }
            }
            (Reply::Accepted { .. }, Phase::Proposing { proposal, accepted }) => {
                accepted.insert(from);
                if accepted.len() >= self.plan.quorum {
                    let commit = proposal.clone().into_commit();
                    self.begin_commit(commit, out);
                }
            }
            (Reply::Rejected { why, .. }, _) => {
                let newer = match why {
                    Rejection::Newer(ballot) => Some(ballot),
                    Rejection::TooFarAhead { .. } | Rejection::Overloaded => None,
                };
                let bound = cx.clock.skew_max_micros();
                match newer.filter(|b| check_skew(*b, cx.wall, bound).is_ok()) {
                    Some(newer) => self.overtaken(cx, newer),
                    None => self.failed(from, self.ballot, out),
                }
            }
            _ => {}
        }
    }

    /// Like for a partition: the round may still win, the next one begins after a random wait.
    fn overtaken(&mut self, cx: &mut Context<'_>, newer: Ballot) {
        self.seen = self.seen.max(newer);
        if self.contentions >= self.rounds {
            return;
        }
        self.contentions = self.rounds;
        let nanos = |d: std::time::Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let (low, high) = (nanos(self.options.backoff_min), nanos(self.options.backoff_max));
        let doubled = low.saturating_mul(1 << self.rounds.min(20)).min(high);
        let range = doubled.saturating_sub(low).saturating_add(1);
        let wait = low.saturating_add(cx.random.checked_rem(range).unwrap_or(0));
        self.retry_at = self.retry_at.min(cx.now + std::time::Duration::from_nanos(wait));
    }

    fn missing(&mut self, from: Target, ballot: Ballot, first: Epoch, out: &mut Vec<LogOutput<V>>) {
        if first >= self.entry {
            return;
        }
        let to: TargetSet = [from].into_iter().collect();
        let again = match &self.phase {
            Phase::Preparing { .. } if ballot == self.ballot => LogOutput::Prepare { to, ballot },
            Phase::Proposing { proposal, .. } if ballot == self.ballot => {
                LogOutput::Propose { to, proposal: proposal.clone() }
            }
            Phase::Committing { commit, .. } if ballot == commit.ballot => {
                LogOutput::Commit { to, commit: commit.clone() }
            }
            Phase::New
            | Phase::Preparing { .. }
            | Phase::Proposing { .. }
            | Phase::Committing { .. }
            | Phase::Finished => return,
        };
        out.push(LogOutput::SendEntries { to: from, first });
        out.push(again);
    }

    fn failed(&mut self, from: Target, ballot: Ballot, out: &mut Vec<LogOutput<V>>) {
        if let Phase::Committing { commit, failed, .. } = &mut self.phase {
            if ballot == commit.ballot {
                failed.insert(from);
                self.advance_commit(out);
            }
            return;
        }
        if ballot != self.ballot {
            return;
        }
        let done = match &self.phase {
            Phase::Preparing { promised, .. } => *promised,
            Phase::Proposing { accepted, .. } => *accepted,
            Phase::New | Phase::Committing { .. } | Phase::Finished => return,
        };
        self.failed.insert(from);
        let possible = self.plan.voters.without(self.failed.without(done));
        if possible.len() < self.plan.quorum {
            self.fail(FailureKind::Replicas, done.len(), out);
        }
    }

    fn known(&mut self, entry: LogEntry<V>, out: &mut Vec<LogOutput<V>>) {
        let undecided = matches!(self.phase, Phase::Preparing { .. } | Phase::Proposing { .. });
        if !undecided || entry.number != self.entry {
            return;
        }
        // The sender has committed the entry, and so will spread it.
        let outcome = self.outcome(entry);
        out.push(LogOutput::Done(outcome));
        self.phase = Phase::Finished;
        out.push(LogOutput::Finished);
    }

    fn outcome(&self, entry: LogEntry<V>) -> LogOutcome<V> {
        if self.own.contains(&entry.origin) {
            LogOutcome::Decided(entry)
        } else {
            LogOutcome::Conflict(entry)
        }
    }

    fn begin_commit(&mut self, commit: Commit<V>, out: &mut Vec<LogOutput<V>>) {
        out.push(LogOutput::Commit { to: self.plan.learners, commit: commit.clone() });
        self.phase = Phase::Committing {
            commit,
            acknowledged: TargetSet::EMPTY,
            failed: TargetSet::EMPTY,
            answered: false,
        };
        self.advance_commit(out);
    }

    fn advance_commit(&mut self, out: &mut Vec<LogOutput<V>>) {
        let Phase::Committing { commit, acknowledged, failed, answered } = &mut self.phase else {
            return;
        };
        let (commit, acknowledged, failed) = (commit.clone(), *acknowledged, *failed);
        let all = acknowledged.or(failed).includes(self.plan.learners);
        // Decided is decided: a commit that fails to arrive does not change the outcome, the
        // members learn it from each other.
        if !*answered && (self.plan.is_committed(acknowledged) || all) {
            *answered = true;
            self.answer(commit, out);
        }
        if all {
            self.phase = Phase::Finished;
            out.push(LogOutput::Finished);
        }
    }

    fn answer(&mut self, commit: Commit<V>, out: &mut Vec<LogOutput<V>>) {
        let Commit { origin, value: Some(value), .. } = commit else { return };
        let outcome = self.outcome(LogEntry { number: self.entry, origin, value });
        out.push(LogOutput::Done(outcome));
    }

    fn tick(&mut self, cx: &mut Context<'_>, out: &mut Vec<LogOutput<V>>) {
        match &self.phase {
            Phase::New | Phase::Finished => {}
            Phase::Committing { commit, answered, .. } => {
                if cx.now >= self.options.commit_deadline {
                    if !*answered {
                        self.answer(commit.clone(), out);
                    }
                    self.phase = Phase::Finished;
                    out.push(LogOutput::Finished);
                }
            }
            Phase::Preparing { promised: received, .. }
            | Phase::Proposing { accepted: received, .. } => {
                if cx.now >= self.options.deadline {
                    self.fail(FailureKind::Timeout, received.len(), out);
                } else if cx.now >= self.retry_at {
                    self.begin_round(cx, out);
                }
            }
        }
    }

    fn fail(&mut self, kind: FailureKind, received: usize, out: &mut Vec<LogOutput<V>>) {
        let effect = if self.own.is_empty() { Effect::None } else { Effect::Unknown };
        let (required, contentions) = (self.plan.quorum, self.contentions);
        let failure = Failure { kind, effect, received, required, contentions };
        out.push(LogOutput::Done(LogOutcome::Failed(failure)));
        self.phase = Phase::Finished;
        out.push(LogOutput::Finished);
    }

    fn update_wake(&mut self, out: &mut Vec<LogOutput<V>>) {
        let wake = match &self.phase {
            Phase::New | Phase::Finished => return,
            Phase::Preparing { .. } | Phase::Proposing { .. } => {
                self.retry_at.min(self.options.deadline)
            }
            Phase::Committing { .. } => self.options.commit_deadline,
        };
        if self.wake_at != Some(wake) {
            self.wake_at = Some(wake);
            out.push(LogOutput::WakeAt(wake));
        }
    }
}
