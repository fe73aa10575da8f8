//! One conditional write or serial read: from the first prepare to the last commit.
//!
//! Owns the rounds, their restarts, and the time and content of the client's answer ([`Outcome`]). Never evaluates
//! a condition or merges reads: that is the driver's answer to [`Output::Decide`]. Never draws numbers or reads
//! clocks: [`Context`].
//!
//! Round trips without contention: prepare with the read (1), propose (2); then the value is decided. With a
//! quorum of two (three replicas) and our own acceptor among them, that acceptor is asked first, on this node. The
//! replica that accepts next is the second: it knows that the value is chosen and commits it in the same step
//! ([`Output::Conclude`]), so that the commit is no round trip of its own. With larger quorums the commit's
//! acknowledgements are a third one, as in Cassandra, unless its level is ANY or this node's own will do. The next
//! operation of the partition does not wait for it ([`Output::SlotFree`]). A serial read, or a condition that is
//! false, takes one round trip when no write is in progress.
//!
//! See docs/internals/paxos.md, "Proposer". Reading order: `proposer/types.rs`,
//! `proposer/round.rs` (what a quorum of promises means), this file, `proposer/faults.rs`
//! (rejections, failures, other electorates), `proposer/commit.rs`.

mod commit;
mod faults;
mod round;
#[cfg(test)]
mod tests;
pub mod types;

use smallvec::SmallVec;
use stdx::{Epoch, Instant};

use crate::acceptor::Reply;
use crate::ballot::Ballot;
use crate::plan::{Plan, Target, TargetSet};
use crate::value::Accepted;
use commit::{Committing, Holders};
use round::{Round, Verdict};
pub use types::{
    Context, Decision, Effect, Failure, FailureKind, Input, Kind, Options, Outcome, Output,
};

/// Values of its own that one operation may have in doubt at once. With more it fails as uncertain:
/// so many rounds lost between promise and acceptance mean that it cannot win.
pub const DOUBTFUL_MAX: usize = 16;

/// Machine of one operation. After [`Output::Finished`] it produces nothing more.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Proposer<V> {
    kind: Kind,
    options: Options,
    plan: Plan,
    phase: Phase<V>,
    /// The current round.
    ballot: Ballot,
    /// Newest ballot that an acceptor rejected us with.
    seen: Ballot,
    /// Rounds in which own values were proposed that may still be chosen.
    doubtful: SmallVec<[Ballot; 2]>,
    /// A serial read may answer before the commit that it saw is repaired everywhere.
    early_read: bool,
    rounds: u32,
    contentions: u32,
    /// Start of the next round, unless this one succeeds before.
    retry_at: Instant,
    wake_at: Option<Instant>,
    epoch_wanted: Option<Epoch>,
    /// Came while a round was under way; the next round uses it.
    next_plan: Option<Plan>,
    slot_held: bool,
    /// Our own acceptor, if it promised this round.
    first: Option<Target>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(
    clippy::large_enum_variant,
    reason = "one per machine; a box would be an allocation in every round"
)]
enum Phase<V> {
    New,
    /// Waiting for a plan; a commit in delivery waits beside its acknowledgements instead.
    Replanning,
    Preparing(Round<V>),
    /// The round is lost; the next one begins at `retry_at`.
    Waiting,
    Deciding {
        can_propose: bool,
        stable: bool,
    },
    Proposing(Vote<V>),
    Committing(Committing<V>),
    Finished,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Vote<V> {
    proposal: Accepted<V>,
    stage: Stage,
    accepted: TargetSet,
    rejected: TargetSet,
    failed: TargetSet,
    /// Replicas that accepted it as the last of a quorum: they have the commit.
    concluded: TargetSet,
}

/// Replicas that were asked for a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// All, for an acceptance.
    Open,
    /// Our own acceptor alone.
    First(Target),
    /// The others, each of which decides and commits.
    Last,
}

impl<V: Clone> Proposer<V> {
    /// A machine that begins at [`Input::Start`].
    pub fn new(kind: Kind, plan: Plan, options: Options) -> Proposer<V> {
        Proposer {
            kind,
            options,
            plan,
            phase: Phase::New,
            ballot: Ballot::ZERO,
            seen: Ballot::ZERO,
            doubtful: SmallVec::new(),
            early_read: true,
            rounds: 0,
            contentions: 0,
            retry_at: options.deadline,
            wake_at: None,
            epoch_wanted: None,
            next_plan: None,
            slot_held: true,
            first: None,
        }
    }

    /// Rounds begun.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Rounds lost to other proposers.
    pub fn contentions(&self) -> u32 {
        self.contentions
    }

    /// Returns true if [`Output::Finished`] was returned.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished)
    }

    /// The plan in use: [`Target`]s index its replicas.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Advances by one event and appends what the driver must do.
    ///
    /// `context.now` never decreases between calls.
    pub fn step(&mut self, cx: &mut Context<'_>, input: Input<V>, out: &mut Vec<Output<V>>) {
        match input {
            Input::Start => {
                if matches!(self.phase, Phase::New) {
                    self.begin_round(cx, out);
                }
            }
            Input::Reply { from, reply } => self.reply(cx, from, reply, out),
            Input::Failed { from, ballot } => self.failed(from, ballot, None, out),
            Input::WrongEpoch { from, ballot, epoch } => {
                self.failed(from, ballot, Some(epoch), out);
            }
            Input::Plan(plan) => self.replanned(cx, plan, out),
            Input::NoPlan => {
                self.epoch_wanted = None;
                if matches!(self.phase, Phase::Replanning) {
                    self.fail(FailureKind::Unavailable, 0, 0, out);
                }
                // A commit goes on to those that the old plan names.
                self.advance_commit(out);
            }
            Input::Decided(decision) => self.decided(cx, decision, out),
            Input::Tick => self.tick(cx, out),
        }
        self.update_wake(out);
    }

    fn begin_round(&mut self, cx: &mut Context<'_>, out: &mut Vec<Output<V>>) {
        if let Some(plan) = self.next_plan.take() {
            self.plan = plan;
        }
        match cx.clock.next(cx.wall, self.seen, self.options.scope) {
            Ok(ballot) => self.ballot = ballot,
            Err(skew) => return self.fail(FailureKind::ClockSkew(skew), 0, 0, out),
        }
        self.retry_at = cx.now + self.options.patience(self.rounds);
        self.rounds = self.rounds.saturating_add(1);
        self.phase = Phase::Preparing(Round::default());
        out.push(Output::Prepare {
            to: self.plan.voters,
            readers: self.plan.readers,
            ballot: self.ballot,
            write: self.kind == Kind::Write,
            epoch: self.plan.epoch,
        });
    }

    fn reply(
        &mut self,
        cx: &mut Context<'_>,
        from: Target,
        reply: Reply<V>,
        out: &mut Vec<Output<V>>,
    ) {
        if let Phase::Committing(committing) = &mut self.phase {
            match reply {
                Reply::Committed { ballot } => {
                    committing.acknowledged(from, ballot);
                    self.advance_commit(out);
                }
                Reply::Rejected { ballot, .. } => {
                    self.conclusion_declined(from, ballot, out);
                }
                Reply::Promise(_) | Reply::Accepted { .. } | Reply::Refreshed { .. } => {}
            }
            return;
        }
        if reply.ballot() != self.ballot || !self.plan.voters.contains(from) {
            return;
        }
        match reply {
            Reply::Promise(promise) => {
                let Phase::Preparing(round) = &mut self.phase else { return };
                if round.promised(from, promise) {
                    self.judge(cx, out);
                }
            }
            Reply::Refreshed { superseded, .. } => {
                let Phase::Preparing(round) = &mut self.phase else { return };
                match superseded {
                    None => round.refreshed(from),
                    Some(newer) => {
                        round.rejected(from);
                        self.overtaken(cx, newer);
                    }
                }
                self.judge(cx, out);
            }
            Reply::Accepted { .. } => {
                let Phase::Proposing(vote) = &mut self.phase else { return };
                vote.accepted.insert(from);
                if vote.stage == Stage::First(from) {
                    vote.stage = Stage::Last;
                    let (mut to, epoch) = (self.plan.voters, self.plan.epoch);
                    to.remove(from);
                    out.push(Output::Conclude { to, proposal: vote.proposal.clone(), epoch });
                }
                self.count_votes(cx, out);
            }
            Reply::Committed { .. } if self.is_concluding() => {
                let Phase::Proposing(vote) = &mut self.phase else { return };
                vote.accepted.insert(from);
                vote.concluded.insert(from);
                self.count_votes(cx, out);
            }
            Reply::Rejected { why, .. } => self.rejected(cx, from, why, out),
            // Reply to a commit sent on the way: its replica confirms by its next promise.
            Reply::Committed { .. } => {}
        }
    }

    fn is_concluding(&self) -> bool {
        matches!(&self.phase, Phase::Proposing(Vote { stage: Stage::Last, .. }))
    }

    fn judge(&mut self, cx: &mut Context<'_>, out: &mut Vec<Output<V>>) {
        let Phase::Preparing(round) = &mut self.phase else { return };
        self.first = self.plan.own.filter(|own| round.has_promised(*own));
        match round.judge(&self.plan, self.kind, self.early_read, &self.doubtful) {
            Verdict::Wait => {}
            Verdict::Contended => {
                let newer = round.newest_seen();
                self.overtaken(cx, newer);
            }
            Verdict::Applied(commit) => {
                self.begin_commit(commit, Holders::NONE, out);
            }
            Verdict::Uncertain => {
                let received = round.promises();
                self.fail(FailureKind::Superseded, received, self.plan.quorum, out);
            }
            Verdict::Finish(unfinished) => {
                let proposal = unfinished.reproposed(self.ballot);
                self.begin_vote(cx, proposal, out);
            }
            Verdict::Repair { to, commit } => {
                out.push(Output::Commit { to, commit });
                self.begin_round(cx, out);
            }
            Verdict::Refresh { to, commit } => {
                out.push(Output::Refresh { to, ballot: self.ballot, commit });
            }
            Verdict::Ready { can_propose, stable, refresh } => {
                if let Some((to, commit)) = refresh {
                    out.push(Output::Refresh { to, ballot: self.ballot, commit });
                }
                let replies = round.repliers();
                // A clock that lags would win reads only.
                let newer = round.newest_seen();
                if cx.clock.observe(cx.wall, newer).is_ok() {
                    self.seen = self.seen.max(newer);
                }
                self.phase = Phase::Deciding { can_propose, stable };
                out.push(Output::Decide { ballot: self.ballot, replies });
            }
        }
    }

    fn decided(&mut self, cx: &mut Context<'_>, decision: Decision<V>, out: &mut Vec<Output<V>>) {
        let Phase::Deciding { can_propose, stable } = self.phase else { return };
        let value = match decision {
            Decision::NoOp if stable && self.doubtful.is_empty() => {
                return self.finish_without_effect(out);
            }
            Decision::NoOp => None,
            Decision::Value(value) => Some(value),
            Decision::ReadAgain => {
                self.early_read = false;
                return self.begin_round(cx, out);
            }
            Decision::Abort => return self.fail(FailureKind::Aborted, 0, 0, out),
        };
        if !can_propose {
            // Only reads were permitted: a proposal would be rejected.
            self.phase = Phase::Waiting;
            return self.back_off(cx);
        }
        if value.is_some() {
            if self.doubtful.len() >= DOUBTFUL_MAX {
                return self.fail(FailureKind::Superseded, 0, self.plan.quorum, out);
            }
            self.doubtful.push(self.ballot);
        }
        let proposal = Accepted::first(self.ballot, value);
        self.begin_vote(cx, proposal, out);
    }

    fn begin_vote(
        &mut self,
        cx: &mut Context<'_>,
        proposal: Accepted<V>,
        out: &mut Vec<Output<V>>,
    ) {
        self.retry_at = cx.now + self.options.patience(self.rounds.saturating_sub(1));
        // The vote that makes a quorum can be its commit too, where there is one such vote.
        let (stage, to) = match (self.plan.quorum, self.first) {
            _ if proposal.is_empty() => (Stage::Open, self.plan.voters),
            (1, _) => (Stage::Last, self.plan.voters),
            (2, Some(own)) => (Stage::First(own), [own].into_iter().collect()),
            _ => (Stage::Open, self.plan.voters),
        };
        self.phase = Phase::Proposing(Vote {
            proposal: proposal.clone(),
            stage,
            accepted: TargetSet::EMPTY,
            rejected: TargetSet::EMPTY,
            failed: TargetSet::EMPTY,
            concluded: TargetSet::EMPTY,
        });
        let epoch = self.plan.epoch;
        out.push(match stage {
            Stage::Last => Output::Conclude { to, proposal, epoch },
            Stage::Open | Stage::First(_) => Output::Propose { to, proposal, epoch },
        });
    }

    fn count_votes(&mut self, cx: &mut Context<'_>, out: &mut Vec<Output<V>>) {
        let Phase::Proposing(vote) = &self.phase else { return };
        if vote.accepted.len() < self.plan.quorum {
            return;
        }
        let (proposal, concluded) = (vote.proposal.clone(), vote.concluded);
        let concluding = match vote.stage {
            Stage::Last => {
                let answered = vote.accepted.or(vote.rejected).or(vote.failed);
                self.plan.voters.without(answered)
            }
            Stage::Open | Stage::First(_) => TargetSet::EMPTY,
        };
        let own = self.doubtful.contains(&proposal.origin);
        // Whatever we proposed before was not chosen when this round was prepared, and is older
        // than what is chosen now (INV-paxos-5).
        self.doubtful.clear();
        if proposal.is_empty() {
            return self.finish_without_effect(out);
        }
        let commit = proposal.into_commit();
        if own {
            return self.begin_commit(commit, Holders { concluded, concluding }, out);
        }
        // Another proposer's value is finished; now ours. The prepare follows the commit on the
        // same connection, so its promise finds the commit applied.
        out.push(Output::Commit { to: self.plan.learners.without(concluded), commit });
        self.begin_round(cx, out);
    }

    fn finish_without_effect(&mut self, out: &mut Vec<Output<V>>) {
        let outcome = match self.kind {
            Kind::Write => Outcome::NotApplied,
            Kind::Read => Outcome::Read,
        };
        self.finish(outcome, out);
    }

    fn tick(&mut self, cx: &mut Context<'_>, out: &mut Vec<Output<V>>) {
        if matches!(self.phase, Phase::Finished | Phase::New) {
            return;
        }
        if matches!(self.phase, Phase::Committing(_)) {
            if cx.now >= self.options.commit_deadline {
                self.end_commit(out);
            }
            return;
        }
        if cx.now >= self.options.deadline {
            let received = match &self.phase {
                Phase::Preparing(round) => round.promises(),
                Phase::Proposing(vote) => vote.accepted.len(),
                Phase::New
                | Phase::Replanning
                | Phase::Waiting
                | Phase::Deciding { .. }
                | Phase::Committing(_)
                | Phase::Finished => 0,
            };
            return self.fail(FailureKind::Timeout, received, self.plan.quorum, out);
        }
        let round =
            matches!(self.phase, Phase::Preparing(_) | Phase::Proposing(_) | Phase::Waiting);
        if round && cx.now >= self.retry_at {
            if self.epoch_wanted.is_some() {
                self.phase = Phase::Replanning;
            } else {
                self.begin_round(cx, out);
            }
        }
    }

    fn fail(
        &mut self,
        kind: FailureKind,
        received: usize,
        required: usize,
        out: &mut Vec<Output<V>>,
    ) {
        let effect = if self.doubtful.is_empty() { Effect::None } else { Effect::Unknown };
        let contentions = self.contentions;
        let failure = Failure { kind, effect, received, required, contentions };
        self.finish(Outcome::Failed(failure), out);
    }

    fn finish(&mut self, outcome: Outcome, out: &mut Vec<Output<V>>) {
        out.push(Output::Done(outcome));
        self.free_slot(out);
        self.phase = Phase::Finished;
        out.push(Output::Finished);
    }

    fn free_slot(&mut self, out: &mut Vec<Output<V>>) {
        if std::mem::take(&mut self.slot_held) {
            out.push(Output::SlotFree);
        }
    }

    fn update_wake(&mut self, out: &mut Vec<Output<V>>) {
        let wake = match &self.phase {
            Phase::New | Phase::Finished => return,
            Phase::Preparing(_) | Phase::Proposing(_) | Phase::Waiting => {
                self.retry_at.min(self.options.deadline)
            }
            Phase::Replanning | Phase::Deciding { .. } => self.options.deadline,
            Phase::Committing(_) => self.options.commit_deadline,
        };
        if self.wake_at != Some(wake) {
            self.wake_at = Some(wake);
            out.push(Output::WakeAt(wake));
        }
    }
}
