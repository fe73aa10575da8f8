//! The end of a write: a chosen value is brought to all replicas.

use super::{Effect, Failure, FailureKind, Outcome, Output, Phase, Proposer};
use crate::ballot::Ballot;
use crate::plan::{Plan, Target, TargetSet};
use crate::value::Commit;

/// Delivery of one commit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Committing<V> {
    commit: Commit<V>,
    acknowledged: TargetSet,
    failed: TargetSet,
    /// These were asked to conclude the round and have not answered: they may refuse, and then have
    /// nothing.
    concluding: TargetSet,
    /// No replica said that the electorate has changed.
    complete: bool,
    answered: bool,
}

impl<V: Clone> Committing<V> {
    pub(super) fn acknowledged(&mut self, from: Target, ballot: Ballot) {
        if ballot == self.commit.ballot {
            self.acknowledged.insert(from);
            self.concluding.remove(from);
        }
    }

    /// Returns true if this answers a conclusion that was not accepted: its replica needs the
    /// commit.
    fn declined(&mut self, from: Target, ballot: Ballot) -> bool {
        ballot == self.commit.ballot && self.concluding.remove(from)
    }

    /// False for a message of another round. With the wrong epoch the commit was applied, but there
    /// are replicas that we do not know of.
    pub(super) fn failed(&mut self, from: Target, ballot: Ballot, applied: bool) -> bool {
        if ballot != self.commit.ballot {
            return false;
        }
        let set = if applied { &mut self.acknowledged } else { &mut self.failed };
        set.insert(from);
        self.complete &= !applied;
        true
    }

    /// Sends it to the replicas of a new plan, to all of them: targets are its own.
    pub(super) fn restart(&mut self, plan: &Plan, out: &mut Vec<Output<V>>) {
        self.acknowledged = TargetSet::EMPTY;
        self.failed = TargetSet::EMPTY;
        self.complete = true;
        out.push(Output::Commit { to: plan.learners, commit: self.commit.clone() });
    }
}

/// Replicas that need not be sent a commit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holders {
    /// They have it.
    pub(super) concluded: TargetSet,
    /// They are about to have it.
    pub(super) concluding: TargetSet,
}

impl Holders {
    pub(super) const NONE: Holders =
        Holders { concluded: TargetSet::EMPTY, concluding: TargetSet::EMPTY };
}

impl<V: Clone> Proposer<V> {
    /// The operation's value is chosen. A pruned commit needs no delivery: all have it.
    pub(super) fn begin_commit(
        &mut self,
        commit: Commit<V>,
        holders: Holders,
        out: &mut Vec<Output<V>>,
    ) {
        let Holders { concluded, concluding } = holders;
        self.doubtful.clear();
        if commit.value.is_none() {
            return self.finish(Outcome::Applied, out);
        }
        let to = self.plan.learners.without(concluded.or(concluding));
        if !to.is_empty() {
            out.push(Output::Commit { to, commit: commit.clone() });
        }
        self.phase = Phase::Committing(Committing {
            commit,
            acknowledged: concluded,
            concluding,
            failed: TargetSet::EMPTY,
            complete: true,
            answered: false,
        });
        self.free_slot(out);
        self.advance_commit(out);
    }

    /// A replica did not conclude the round that the others did: it is brought the commit.
    pub(super) fn conclusion_declined(
        &mut self,
        from: Target,
        ballot: Ballot,
        out: &mut Vec<Output<V>>,
    ) -> bool {
        let Phase::Committing(committing) = &mut self.phase else { return false };
        if !committing.declined(from, ballot) {
            return false;
        }
        let commit = committing.commit.clone();
        out.push(Output::Commit { to: [from].into_iter().collect(), commit });
        true
    }

    pub(super) fn advance_commit(&mut self, out: &mut Vec<Output<V>>) {
        let Phase::Committing(committing) = &mut self.phase else { return };
        if !committing.answered {
            let possible = self.plan.learners.without(committing.failed);
            if self.plan.is_committed(committing.acknowledged) {
                committing.answered = true;
                out.push(Output::Done(Outcome::Applied));
            } else if !self.plan.is_committed(possible) {
                self.undelivered(FailureKind::Replicas, out);
            }
        }
        let Phase::Committing(committing) = &self.phase else { return };
        if self.epoch_wanted.is_some() {
            return;
        }
        if committing.complete && committing.acknowledged.includes(self.plan.learners) {
            // Only now: every replica of this epoch has it, so no later round needs it.
            let ballot = committing.commit.ballot;
            out.push(Output::Prune { to: self.plan.learners, ballot });
            self.phase = Phase::Finished;
            out.push(Output::Finished);
        } else if committing.acknowledged.or(committing.failed).includes(self.plan.learners) {
            self.end_commit(out);
        }
    }

    /// No more acknowledgements are waited for.
    pub(super) fn end_commit(&mut self, out: &mut Vec<Output<V>>) {
        let Phase::Committing(committing) = &self.phase else { return };
        if !committing.answered {
            self.undelivered(FailureKind::Timeout, out);
        }
        let Phase::Committing(committing) = &self.phase else { return };
        let to = self.plan.learners.without(committing.acknowledged);
        if !to.is_empty() {
            out.push(Output::Hint { to, commit: committing.commit.clone() });
        }
        self.phase = Phase::Finished;
        out.push(Output::Finished);
    }

    fn undelivered(&mut self, kind: FailureKind, out: &mut Vec<Output<V>>) {
        let Phase::Committing(committing) = &mut self.phase else { return };
        committing.answered = true;
        out.push(Output::Done(Outcome::Failed(Failure {
            kind,
            effect: Effect::Chosen,
            received: committing.acknowledged.len(),
            required: self.plan.commit_required(),
            contentions: self.contentions,
        })));
    }
}
