//! The registers of one partition at one replica, and their pure transitions.
//!
//! Owns what may be promised, accepted and committed, and which record makes each step durable.
//! Never waits and never answers: [`super::Acceptor`] holds answers back until their records are
//! durable. See docs/internals/paxos.md, "Acceptor".

use stdx::WallMicros;

use crate::ballot::{Ballot, TooFarAhead, check_skew};
use crate::value::{Accepted, Commit};

/// Registers of one partition. All of it is stored in one row of `system.paxos` ([`super::cells`]).
///
/// `promised` is never older than the other three.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AcceptorState<V> {
    /// Newest ballot promised, accepted or committed: nothing older is accepted any more.
    pub promised: Ballot,
    /// Newest ballot promised to a write. Reads with newer ballots may be answered as long as no
    /// write was promised after the last commit.
    pub promised_write: Ballot,
    /// Newest accepted proposal that is not known to be committed.
    pub accepted: Option<Accepted<V>>,
    /// Newest commit.
    pub committed: Option<Commit<V>>,
}

impl<V> Default for AcceptorState<V> {
    fn default() -> Self {
        AcceptorState {
            promised: Ballot::ZERO,
            promised_write: Ballot::ZERO,
            accepted: None,
            committed: None,
        }
    }
}

/// A replica's knowledge besides the registers when a request arrives.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    /// The replica's wall clock.
    pub now: WallMicros,
    /// Upper bound of a ballot's distance ahead of it.
    pub skew_max_micros: u64,
    /// Ballots up to this one are refused, because registers that were not newer may have been
    /// dropped. Durable before the first of them is dropped; never goes back.
    pub floor: Ballot,
    /// Promises of ballots up to this one need no record: that a start of this replica promises it to
    /// every partition ([`AcceptorState::promised_to_all`]) is durable. [`Ballot::ZERO`]: none.
    pub horizon: Ballot,
}

/// A message to an acceptor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request<V> {
    /// Asks for a promise and for the data to read.
    Prepare {
        /// The round.
        ballot: Ballot,
        /// True if the operation may write. A read's promise does not disturb other reads.
        write: bool,
    },
    /// Asks to accept a value.
    Propose(Accepted<V>),
    /// Asks to accept a value that a quorum but for one has accepted. The replica that accepts it
    /// knows that the value is chosen, so it commits in the same step. Never empty.
    Conclude(Accepted<V>),
    /// Reports that a quorum accepted the value.
    Commit(Commit<V>),
    /// Brings a commit that the answer to `ballot`'s prepare lacked, and asks whether that promise
    /// still stands.
    Refresh {
        /// The round that goes on if it does.
        ballot: Ballot,
        /// The missing commit.
        commit: Commit<V>,
    },
    /// Reports that every replica has applied this commit: its value need not be kept.
    Prune {
        /// The commit.
        ballot: Ballot,
    },
}

/// A change that must be durable before the answer to its request is sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Record<V> {
    /// A promise.
    Promise {
        /// To which round.
        ballot: Ballot,
        /// True if the promise is to a write.
        write: bool,
    },
    /// An acceptance.
    Accept(Accepted<V>),
    /// A commit. The driver applies the mutation to the table in the same append, and makes it
    /// readable in the same turn: a replica that reports a commit must also read it.
    Commit(Commit<V>),
    /// The value of this commit is dropped. Losing the record costs a few bytes, nothing else.
    Prune {
        /// The commit.
        ballot: Ballot,
    },
}

/// Extent of a granted prepare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Permit {
    /// Nothing older will be accepted.
    Promised,
    /// A newer read was promised, but no newer write: the read may be used, a proposal would be
    /// rejected.
    ReadOnly {
        /// The newest ballot seen here.
        newest: Ballot,
    },
}

/// Answer to a granted prepare. The data that was read goes with it, beside this value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Promise<V> {
    /// The round.
    pub ballot: Ballot,
    /// Extent of the grant.
    pub permit: Permit,
    /// Newest accepted proposal not known to be committed.
    pub accepted: Option<Accepted<V>>,
    /// Newest commit.
    pub committed: Option<Commit<V>>,
    /// Newest ballot promised to a write before this prepare. If it is newer than all that is
    /// settled, a write may be on its way that this read does not see.
    pub promised_write: Ballot,
}

/// Reason for a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rejection {
    /// A newer ballot was seen here.
    Newer(Ballot),
    /// The ballot is too far ahead of this replica's clock.
    TooFarAhead {
        /// By how much.
        ahead_micros: u64,
        /// The bound.
        max_micros: u64,
    },
    /// Too many answers wait for the disk.
    Overloaded,
}

impl From<TooFarAhead> for Rejection {
    fn from(e: TooFarAhead) -> Rejection {
        Rejection::TooFarAhead { ahead_micros: e.ahead_micros, max_micros: e.max_micros }
    }
}

/// Answer of an acceptor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply<V> {
    /// To a prepare.
    Promise(Promise<V>),
    /// To a propose.
    Accepted {
        /// The round.
        ballot: Ballot,
    },
    /// To a commit, and to a conclusion that was accepted.
    Committed {
        /// The commit.
        ballot: Ballot,
    },
    /// To a refresh.
    Refreshed {
        /// The round.
        ballot: Ballot,
        /// The newest ballot, if the promise does not stand any more.
        superseded: Option<Ballot>,
    },
    /// To a prepare or propose.
    Rejected {
        /// The round.
        ballot: Ballot,
        /// Why.
        why: Rejection,
    },
}

impl<V> Reply<V> {
    /// The round or commit that it answers.
    pub fn ballot(&self) -> Ballot {
        match self {
            Reply::Promise(promise) => promise.ballot,
            Reply::Accepted { ballot }
            | Reply::Committed { ballot }
            | Reply::Refreshed { ballot, .. }
            | Reply::Rejected { ballot, .. } => *ballot,
        }
    }
}

/// One step: what to make durable, and what may be answered then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition<V> {
    /// Nothing when the state did not change.
    pub record: Option<Record<V>>,
    /// Nothing for [`Request::Prune`].
    pub reply: Option<Reply<V>>,
}

impl<V: Clone> AcceptorState<V> {
    /// Handles one request. The registers change at once; the reply is not to be given before the
    /// record, and every record before it, is durable.
    pub fn handle(&mut self, admission: Admission, request: Request<V>) -> Transition<V> {
        match request {
            Request::Prepare { ballot, write } => self.prepare(admission, ballot, write),
            Request::Propose(proposal) => self.propose(admission, proposal),
            Request::Conclude(proposal) => self.conclude(admission, proposal),
            Request::Commit(commit) => {
                let ballot = commit.ballot;
                let record = self.commit(commit);
                Transition { record, reply: Some(Reply::Committed { ballot }) }
            }
            Request::Refresh { ballot, commit } => {
                let record = self.commit(commit);
                let stands = self.promised == ballot;
                let superseded = if stands { None } else { Some(self.promised) };
                Transition { record, reply: Some(Reply::Refreshed { ballot, superseded }) }
            }
            Request::Prune { ballot } => {
                let known = self.committed.as_ref().is_some_and(|c| c.ballot == ballot);
                let record = known.then_some(Record::Prune { ballot });
                if let Some(record) = &record {
                    self.apply(record.clone());
                }
                Transition { record, reply: None }
            }
        }
    }

    fn prepare(&mut self, admission: Admission, ballot: Ballot, write: bool) -> Transition<V> {
        if let Err(e) = check_skew(ballot, admission.now, admission.skew_max_micros) {
            return rejected(ballot, e.into());
        }
        let latest = self.promised.max(admission.floor);
        let promised_write = self.promised_write;
        let again = ballot == self.promised && ballot.is_newer_than(admission.floor);
        if again && !self.is_committed_at(ballot) {
            // The same message again: the same promise, with what is here now.
            return granted(self.promise(ballot, Permit::Promised, promised_write), None);
        }
        if ballot.is_newer_than(latest) {
            let record = Record::Promise { ballot, write };
            self.apply(record.clone());
            return granted(self.promise(ballot, Permit::Promised, promised_write), Some(record));
        }
        if ballot.is_newer_than(self.latest_write().max(admission.floor)) {
            let permit = Permit::ReadOnly { newest: latest };
            return granted(self.promise(ballot, permit, promised_write), None);
        }
        rejected(ballot, Rejection::Newer(latest))
    }

    fn propose(&mut self, admission: Admission, proposal: Accepted<V>) -> Transition<V> {
        let ballot = proposal.ballot;
        if let Err(e) = check_skew(ballot, admission.now, admission.skew_max_micros) {
            return rejected(ballot, e.into());
        }
        let accepted = Some(Reply::Accepted { ballot });
        // Accepted before: one ballot proposes one value, so this is the same message again.
        if self.is_committed_at(ballot)
            || self.accepted.as_ref().is_some_and(|a| a.ballot == ballot)
        {
            return Transition { record: None, reply: accepted };
        }
        let floor = admission.floor;
        if !ballot.is_newer_than(floor) || !ballot.is_same_or_newer_than(self.promised) {
            return rejected(ballot, Rejection::Newer(self.promised.max(floor)));
        }
        let record = Record::Accept(proposal);
        self.apply(record.clone());
        Transition { record: Some(record), reply: accepted }
    }

    fn conclude(&mut self, admission: Admission, proposal: Accepted<V>) -> Transition<V> {
        let ballot = proposal.ballot;
        if let Err(e) = check_skew(ballot, admission.now, admission.skew_max_micros) {
            return rejected(ballot, e.into());
        }
        let committed = Some(Reply::Committed { ballot });
        if self.is_committed_at(ballot) {
            return Transition { record: None, reply: committed };
        }
        // A value accepted before counts, whatever was promised since.
        let is_accepted = self.accepted.as_ref().is_some_and(|a| a.ballot == ballot);
        let floor = admission.floor;
        let is_late = !ballot.is_newer_than(floor) || !ballot.is_same_or_newer_than(self.promised);
        if is_late && !is_accepted {
            return rejected(ballot, Rejection::Newer(self.promised.max(floor)));
        }
        let record = self.commit(proposal.into_commit());
        Transition { record, reply: committed }
    }

    /// Commits are unconditional: an older one than the newest is recorded too, because its
    /// mutation may be missing here.
    fn commit(&mut self, commit: Commit<V>) -> Option<Record<V>> {
        if self.is_committed_at(commit.ballot) {
            return None;
        }
        let record = Record::Commit(commit);
        self.apply(record.clone());
        Some(record)
    }

    /// Folds one record in. The registers after a restart are the fold of all durable records.
    pub fn apply(&mut self, record: Record<V>) {
        match record {
            Record::Promise { ballot, write } => {
                self.promised = self.promised.max(ballot);
                if write {
                    self.promised_write = self.promised_write.max(ballot);
                }
            }
            Record::Accept(proposal) => {
                self.promised = self.promised.max(proposal.ballot);
                let newest = newest(self.accepted.as_ref().map(|a| a.ballot), self.commit_ballot());
                if proposal.ballot.is_newer_than(newest) {
                    self.accepted = Some(proposal);
                }
            }
            Record::Commit(commit) => {
                self.promised = self.promised.max(commit.ballot);
                let prunes = commit.value.is_none() && self.is_committed_at(commit.ballot);
                if prunes || commit.ballot.is_newer_than(self.commit_ballot()) {
                    // The row of a pruned commit keeps its ballot only (`most_recent_commit_at`).
                    let origin = commit.value.as_ref().map_or(commit.ballot, |_| commit.origin);
                    self.committed = Some(Commit { origin, ..commit });
                }
                let committed = self.commit_ballot();
                self.accepted = self.accepted.take().filter(|a| a.ballot.is_newer_than(committed));
            }
            Record::Prune { ballot } => {
                if self.is_committed_at(ballot) {
                    self.apply(Record::Commit(Commit { ballot, origin: ballot, value: None }));
                }
            }
        }
    }

    /// The registers as they are after a start that does not know which promises up to `ballot` were
    /// given: as if it were promised to a write of every partition. Nothing that was promised is
    /// forgotten so, and what was accepted or committed stays.
    #[must_use]
    pub fn promised_to_all(mut self, ballot: Ballot) -> AcceptorState<V> {
        self.apply(Record::Promise { ballot, write: true });
        self
    }

    /// Takes over what another replica of the partition knows, for a replica that joins.
    ///
    /// A joining replica must have merged a quorum of the old electorate, each read after it began
    /// to refuse the old epoch, and their data, before it votes as a natural one: then every quorum
    /// of the new electorate knows what any quorum of the old one accepted or promised.
    pub fn merge(&mut self, other: AcceptorState<V>) -> Vec<Record<V>> {
        let AcceptorState { promised, promised_write, accepted, committed } = other;
        let records: Vec<Record<V>> = [
            (!promised_write.is_zero())
                .then_some(Record::Promise { ballot: promised_write, write: true }),
            (!promised.is_zero()).then_some(Record::Promise { ballot: promised, write: false }),
            accepted.map(Record::Accept),
            committed.map(Record::Commit),
        ]
        .into_iter()
        .flatten()
        .collect();
        for record in &records {
            self.apply(record.clone());
        }
        records
    }

    /// Returns true if the row may be deleted once `floor` is durable: every replica has the last
    /// commit, no write was promised since, and whatever the registers would reject the floor
    /// rejects too.
    ///
    /// A promised write keeps the row, because it shows a read that the write may have been
    /// accepted elsewhere. So does an accepted empty proposal, because an unfinished older value
    /// elsewhere may lose against it.
    pub fn is_droppable(&self, floor: Ballot) -> bool {
        !self.promised.is_newer_than(floor)
            && self.accepted.is_none()
            && self.commit_ballot().is_same_or_newer_than(self.promised_write)
            && self.committed.as_ref().is_none_or(|c| c.value.is_none())
    }

    fn promise(&self, ballot: Ballot, permit: Permit, promised_write: Ballot) -> Promise<V> {
        let (accepted, committed) = (self.accepted.clone(), self.committed.clone());
        Promise { ballot, permit, accepted, committed, promised_write }
    }

    fn commit_ballot(&self) -> Ballot {
        self.committed.as_ref().map_or(Ballot::ZERO, |c| c.ballot)
    }

    fn is_committed_at(&self, ballot: Ballot) -> bool {
        self.committed.as_ref().is_some_and(|c| c.ballot == ballot)
    }

    /// Newest ballot that may have written or may still write.
    fn latest_write(&self) -> Ballot {
        let accepted = self.accepted.as_ref().filter(|a| !a.is_empty()).map(|a| a.ballot);
        newest(accepted, self.commit_ballot()).max(self.promised_write)
    }
}

fn newest(a: Option<Ballot>, b: Ballot) -> Ballot {
    a.map_or(b, |a| a.max(b))
}

fn granted<V>(promise: Promise<V>, record: Option<Record<V>>) -> Transition<V> {
    Transition { record, reply: Some(Reply::Promise(promise)) }
}

fn rejected<V>(ballot: Ballot, why: Rejection) -> Transition<V> {
    Transition { record: None, reply: Some(Reply::Rejected { ballot, why }) }
}
