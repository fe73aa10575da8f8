//! Evaluation of a quorum of promises.
//!
//! Owns the central decision of the proposer ([`Round::judge`]): repair, finish, or go on. Pure in
//! the replies; sends nothing.

use smallvec::SmallVec;

use super::Kind;
use crate::acceptor::{Permit, Promise};
use crate::ballot::Ballot;
use crate::plan::{Plan, Target, TargetSet};
use crate::value::{Accepted, Commit};

/// Replies to one prepare.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Round<V> {
    promises: SmallVec<[(Target, Promise<V>); 3]>,
    rejected: TargetSet,
    failed: TargetSet,
    /// The commit that refreshes bring.
    refresh: Ballot,
    refresh_sent: TargetSet,
    refreshed: TargetSet,
}

impl<V> Default for Round<V> {
    fn default() -> Self {
        Round {
            promises: SmallVec::new(),
            rejected: TargetSet::EMPTY,
            failed: TargetSet::EMPTY,
            refresh: Ballot::ZERO,
            refresh_sent: TargetSet::EMPTY,
            refreshed: TargetSet::EMPTY,
        }
    }
}

/// The next step of the proposer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict<V> {
    /// More replies are needed.
    Wait,
    /// This round can do nothing; a newer one might.
    Contended,
    /// A value of ours is committed.
    Applied(Commit<V>),
    /// A newer value than one of ours is committed: ours may have been chosen before it, or not.
    Uncertain,
    /// Another proposer's value may have been chosen: finish it.
    Finish(Accepted<V>),
    /// No read saw the last commit: bring it to these and start over.
    Repair { to: TargetSet, commit: Commit<V> },
    /// Bring the last commit to these, then go on.
    Refresh { to: TargetSet, commit: Commit<V> },
    /// The reads are those of the last commit.
    Ready { can_propose: bool, stable: bool, refresh: Option<(TargetSet, Commit<V>)> },
}

impl<V: Clone> Round<V> {
    /// Adds a promise; false when it came before.
    pub(super) fn promised(&mut self, from: Target, promise: Promise<V>) -> bool {
        if self.repliers().contains(from) || self.rejected.contains(from) {
            return false;
        }
        self.promises.push((from, promise));
        true
    }

    /// The replica has a newer promise, or does not keep ours any more.
    pub(super) fn rejected(&mut self, from: Target) {
        self.promises.retain(|(target, _)| *target != from);
        self.rejected.insert(from);
    }

    pub(super) fn failed(&mut self, from: Target) {
        // A replica that promised before has still promised.
        if !self.repliers().contains(from) {
            self.failed.insert(from);
        }
    }

    pub(super) fn refreshed(&mut self, from: Target) {
        if self.refresh_sent.contains(from) {
            self.refreshed.insert(from);
        }
    }

    pub(super) fn failures(&self) -> TargetSet {
        self.failed
    }

    pub(super) fn promises(&self) -> usize {
        self.promises.len()
    }

    pub(super) fn repliers(&self) -> TargetSet {
        self.promises.iter().map(|(target, _)| *target).collect()
    }

    /// Returns true if the replica has granted a promise that still stands.
    pub(super) fn has_promised(&self, target: Target) -> bool {
        self.promises.iter().any(|(t, promise)| *t == target && has_granted(promise))
    }

    /// Newest ballot that read-only permits name.
    pub(super) fn newest_seen(&self) -> Ballot {
        let newest = self.promises.iter().filter_map(|(_, p)| match p.permit {
            Permit::ReadOnly { newest } => Some(newest),
            Permit::Promised => None,
        });
        newest.max().unwrap_or(Ballot::ZERO)
    }

    /// Judges the replies so far; `doubtful` are the rounds of own values that may be chosen.
    pub(super) fn judge(
        &mut self,
        plan: &Plan,
        kind: Kind,
        early_read: bool,
        doubtful: &[Ballot],
    ) -> Verdict<V> {
        let repliers = self.repliers();
        if repliers.len() < plan.quorum || repliers.and(plan.readers).len() < plan.read_quorum {
            return Verdict::Wait;
        }
        let latest = self.latest_commit();
        if let Some(verdict) = self.fate(latest.as_ref(), doubtful) {
            return verdict;
        }
        let stable = self.is_stable(plan, latest.as_ref());
        let promised: TargetSet = self
            .promises
            .iter()
            .filter(|(_, p)| has_granted(p))
            .map(|(target, _)| *target)
            .collect();
        let can_promise = promised.len() >= plan.quorum;
        if !can_promise && !stable {
            return Verdict::Contended;
        }
        if let Some(unfinished) = self.unfinished(latest.as_ref()) {
            return if can_promise { Verdict::Finish(unfinished) } else { Verdict::Contended };
        }
        let (witnessed, with_latest) = match &latest {
            None => (repliers, repliers),
            Some(latest) => {
                if self.refresh != latest.origin {
                    self.refresh = latest.origin;
                    (self.refresh_sent, self.refreshed) = (TargetSet::EMPTY, TargetSet::EMPTY);
                }
                self.with_latest(latest)
            }
        };
        if witnessed.and(plan.readers).is_empty() {
            // Only pending replicas have it, whose data is not complete: read again.
            let Some(commit) = latest else { return Verdict::Wait };
            if commit.value.is_none() {
                return Verdict::Contended;
            }
            return Verdict::Repair { to: repliers.without(with_latest), commit };
        }
        if promised.and(with_latest).len() >= plan.quorum {
            return Verdict::Ready { can_propose: true, stable, refresh: None };
        }
        if stable && !can_promise && with_latest.len() >= plan.quorum {
            return Verdict::Ready { can_propose: false, stable, refresh: None };
        }
        let to = repliers.without(with_latest).without(self.refresh_sent);
        self.refresh_sent = self.refresh_sent.or(to);
        let refresh = latest.filter(|_| !to.is_empty()).map(|commit| (to, commit));
        // No value can be chosen that this read should have seen, and the commit that it saw stays
        // chosen: the read does not wait for the repair.
        if stable && kind == Kind::Read && early_read {
            return Verdict::Ready { can_propose: false, stable, refresh };
        }
        match refresh {
            Some((to, commit)) => Verdict::Refresh { to, commit },
            None => Verdict::Wait,
        }
    }

    /// Returns the fate of this operation's own values of earlier rounds, if the replies show it.
    ///
    /// When the newest commit is older than all of them, none was chosen so far: this round, if it
    /// wins, buries them (docs/internals/paxos.md, "Doubtful values").
    fn fate(&self, latest: Option<&Commit<V>>, doubtful: &[Ballot]) -> Option<Verdict<V>> {
        let own = self.commits().find(|c| doubtful.contains(&c.origin));
        if let Some(own) = own {
            return Some(Verdict::Applied(own.clone()));
        }
        let latest = latest?;
        let hidden = doubtful.iter().any(|round| !round.is_newer_than(latest.ballot));
        hidden.then_some(Verdict::Uncertain)
    }

    fn commits(&self) -> impl Iterator<Item = &Commit<V>> {
        self.promises.iter().filter_map(|(_, p)| p.committed.as_ref())
    }

    fn latest_commit(&self) -> Option<Commit<V>> {
        // Among equally new commits a pruned one is preferred: all replicas have it.
        self.commits().max_by_key(|c| (c.ballot, c.value.is_none())).cloned()
    }

    /// No write can be chosen that this read did not see: none was promised after what is settled,
    /// that is the newest commit, or a newer empty proposal that a quorum has accepted. One that
    /// fewer have accepted settles nothing: what it was to bury may live on elsewhere (here we are
    /// stricter than Cassandra, whose `hasProposalStability` takes any).
    fn is_stable(&self, plan: &Plan, latest: Option<&Commit<V>>) -> bool {
        let newest = self.newest_accepted().filter(|a| a.is_empty()).map(|a| a.ballot);
        let has = |p: &Promise<V>| p.accepted.as_ref().map(|a| a.ballot) == newest;
        let chosen =
            newest.filter(|_| self.promises.iter().filter(|(_, p)| has(p)).count() >= plan.quorum);
        let committed = latest.map_or(Ballot::ZERO, |c| c.ballot);
        let settled = chosen.map_or(committed, |empty| empty.max(committed));
        self.promises.iter().all(|(_, p)| settled.is_same_or_newer_than(p.promised_write))
    }

    fn newest_accepted(&self) -> Option<&Accepted<V>> {
        let accepted = self.promises.iter().filter_map(|(_, p)| p.accepted.as_ref());
        accepted.max_by_key(|a| a.ballot)
    }

    /// Returns the newest accepted value, if it may have been chosen without being committed. An
    /// empty one either was chosen and changes nothing, or was not chosen and matters to no
    /// proposer.
    fn unfinished(&self, latest: Option<&Commit<V>>) -> Option<Accepted<V>> {
        let newest = self.newest_accepted()?;
        let done = latest.is_some_and(|c| {
            // A newer round of the very value that is committed is that value.
            !newest.ballot.is_newer_than(c.ballot) || newest.origin == c.origin
        });
        (!newest.is_empty() && !done).then(|| newest.clone())
    }

    /// Returns the replicas that had the commit when they read, and those that have it by now.
    fn with_latest(&self, latest: &Commit<V>) -> (TargetSet, TargetSet) {
        // A pruned commit has forgotten its origin.
        let same = |c: &Commit<V>| c.origin == latest.origin || c.ballot == latest.ballot;
        let had = |p: &Promise<V>| p.committed.as_ref().is_some_and(same);
        let witnessed: TargetSet =
            self.promises.iter().filter(|(_, p)| had(p)).map(|(target, _)| *target).collect();
        let by_now = if latest.value.is_none() { self.repliers() } else { TargetSet::EMPTY };
        (witnessed, witnessed.or(self.refreshed.and(self.repliers())).or(by_now))
    }
}

fn has_granted<V>(promise: &Promise<V>) -> bool {
    match promise.permit {
        Permit::Promised => true,
        Permit::ReadOnly { .. } => false,
    }
}
