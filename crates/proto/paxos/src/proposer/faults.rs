//! Obstacles of a round: newer ballots, replicas that fail, another electorate.

use stdx::Epoch;

use super::{Context, FailureKind, Output, Phase, Proposer, Stage};
use crate::acceptor::Rejection;
use crate::ballot::{Ballot, check_skew};
use crate::plan::{Plan, Target};

impl<V: Clone> Proposer<V> {
    pub(super) fn rejected(
        &mut self,
        cx: &mut Context<'_>,
        from: Target,
        why: Rejection,
        out: &mut Vec<Output<V>>,
    ) {
        let newer = match why {
            // A promise from beyond the bound was made by a wild clock. Overtaking it would carry
            // its time on to others, so this replica just does not take part.
            Rejection::Newer(ballot) => {
                check_skew(ballot, cx.wall, cx.clock.skew_max_micros()).ok().map(|()| ballot)
            }
            Rejection::TooFarAhead { .. } | Rejection::Overloaded => None,
        };
        match (&mut self.phase, newer) {
            (Phase::Preparing(round), Some(_)) => round.rejected(from),
            (Phase::Preparing(round), None) => round.failed(from),
            (Phase::Proposing(vote), Some(newer)) if vote.stage == Stage::First(from) => {
                // The others need not be asked. It stays in doubt: of a message that came twice the
                // first may have been accepted.
                self.phase = Phase::Waiting;
                return self.overtaken(cx, newer);
            }
            (Phase::Proposing(vote), Some(_)) => {
                vote.rejected.insert(from);
            }
            (Phase::Proposing(vote), None) => {
                vote.failed.insert(from);
                self.ask_the_others(from, out);
            }
            _ => return,
        }
        if let Some(newer) = newer {
            self.overtaken(cx, newer);
        }
        self.check_possible(out);
    }

    /// Our own acceptor cannot take part: the others decide.
    fn ask_the_others(&mut self, own: Target, out: &mut Vec<Output<V>>) {
        let Phase::Proposing(vote) = &mut self.phase else { return };
        if vote.stage != Stage::First(own) {
            return;
        }
        vote.stage = Stage::Open;
        let mut to = self.plan.voters;
        to.remove(own);
        let (proposal, epoch) = (vote.proposal.clone(), self.plan.epoch);
        out.push(Output::Propose { to, proposal, epoch });
    }

    /// Another proposer has a newer ballot. The round may still win a quorum elsewhere. If it has
    /// not when the back-off is over, a newer one is begun.
    pub(super) fn overtaken(&mut self, cx: &mut Context<'_>, newer: Ballot) {
        if cx.clock.observe(cx.wall, newer).is_ok() {
            self.seen = self.seen.max(newer);
        }
        self.back_off(cx);
    }

    /// Once per round: the random wait, doubled with each lost round, never less than the minimum.
    pub(super) fn back_off(&mut self, cx: &mut Context<'_>) {
        if self.contentions >= self.rounds {
            return;
        }
        self.contentions = self.rounds;
        let low = u64::try_from(self.options.backoff_min.as_nanos()).unwrap_or(u64::MAX);
        let high = u64::try_from(self.options.backoff_max.as_nanos()).unwrap_or(u64::MAX);
        let doubled = low.saturating_mul(1 << self.rounds.min(20));
        let range = doubled.min(high).saturating_sub(low).saturating_add(1);
        let wait = low.saturating_add(cx.random.checked_rem(range).unwrap_or(0));
        self.retry_at = self.retry_at.min(cx.now + std::time::Duration::from_nanos(wait));
    }

    pub(super) fn failed(
        &mut self,
        from: Target,
        ballot: Ballot,
        epoch: Option<Epoch>,
        out: &mut Vec<Output<V>>,
    ) {
        // Reply to a conclusion: nothing was done there, or its effect is unknown. The commit may
        // still get there.
        if self.conclusion_declined(from, ballot, out) {
            return;
        }
        if let Phase::Committing(committing) = &mut self.phase {
            if committing.failed(from, ballot, epoch.is_some()) {
                self.want_epoch(epoch, out);
                self.advance_commit(out);
            }
            return;
        }
        if ballot != self.ballot || !self.plan.voters.contains(from) {
            return;
        }
        match &mut self.phase {
            Phase::Preparing(round) => {
                round.failed(from);
                if epoch.is_some() {
                    // Nothing is proposed yet, so the round is worth nothing: plan again at once.
                    self.want_epoch(epoch, out);
                    self.phase = Phase::Replanning;
                    return;
                }
            }
            Phase::Proposing(vote) if epoch.is_some() && vote.stage == Stage::First(from) => {
                self.want_epoch(epoch, out);
                self.phase = Phase::Replanning;
                return;
            }
            Phase::Proposing(vote) => {
                vote.failed.insert(from);
                if epoch.is_none() {
                    self.ask_the_others(from, out);
                }
                // The others may still decide, each at the epoch that it knows.
                self.want_epoch(epoch, out);
                if epoch.is_some() && !self.is_vote_possible() {
                    self.phase = Phase::Replanning;
                    return;
                }
            }
            Phase::New
            | Phase::Replanning
            | Phase::Waiting
            | Phase::Deciding { .. }
            | Phase::Committing(_)
            | Phase::Finished => return,
        }
        self.check_possible(out);
    }

    pub(super) fn want_epoch(&mut self, epoch: Option<Epoch>, out: &mut Vec<Output<V>>) {
        let newest = epoch.max(self.epoch_wanted);
        if newest > self.epoch_wanted
            && let Some(at_least) = newest
        {
            self.epoch_wanted = newest;
            out.push(Output::Replan { at_least });
        }
    }

    pub(super) fn replanned(&mut self, cx: &mut Context<'_>, plan: Plan, out: &mut Vec<Output<V>>) {
        if matches!(self.phase, Phase::New | Phase::Finished) {
            return;
        }
        self.epoch_wanted = None;
        if let Phase::Committing(committing) = &mut self.phase {
            self.plan = plan;
            committing.restart(&self.plan, out);
            return;
        }
        self.next_plan = Some(plan);
        if matches!(self.phase, Phase::Replanning) {
            self.begin_round(cx, out);
        }
    }

    /// Fails the operation when the remaining replicas are no quorum.
    pub(super) fn check_possible(&mut self, out: &mut Vec<Output<V>>) {
        let (failed, received) = match &self.phase {
            Phase::Preparing(round) => (round.failures(), round.promises()),
            Phase::Proposing(vote) => (vote.failed.without(vote.accepted), vote.accepted.len()),
            Phase::New
            | Phase::Replanning
            | Phase::Waiting
            | Phase::Deciding { .. }
            | Phase::Committing(_)
            | Phase::Finished => return,
        };
        if self.plan.voters.without(failed).len() < self.plan.quorum {
            self.fail(FailureKind::Replicas, received, self.plan.quorum, out);
        }
    }

    pub(super) fn is_vote_possible(&self) -> bool {
        let Phase::Proposing(vote) = &self.phase else { return false };
        let lost = vote.rejected.or(vote.failed).without(vote.accepted);
        self.plan.voters.without(lost).len() >= self.plan.quorum
    }
}
