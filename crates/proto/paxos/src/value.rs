//! Proposed, accepted and committed values. The payload type `V` is the driver's.

use crate::ballot::Ballot;

/// A value with the ballot it is proposed or was accepted at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Accepted<V> {
    /// Ballot of the round.
    pub ballot: Ballot,
    /// Ballot of the round that proposed this value first: its identity, and its write timestamp.
    /// Completing an unfinished round changes `ballot` only.
    pub origin: Ballot,
    /// The encoded mutation; `None` is the empty proposal, which orders reads and failed
    /// conditions after older rounds and changes nothing.
    pub value: Option<V>,
}

/// A value that a quorum accepted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Commit<V> {
    /// Ballot of the round in which a quorum accepted it.
    pub ballot: Ballot,
    /// See [`Accepted::origin`].
    pub origin: Ballot,
    /// The encoded mutation. `None`: pruned after every replica had applied it; such a commit and
    /// all before it need no repair.
    pub value: Option<V>,
}

impl<V> Accepted<V> {
    /// A value proposed for the first time.
    pub fn first(ballot: Ballot, value: Option<V>) -> Accepted<V> {
        Accepted { ballot, origin: ballot, value }
    }

    /// Returns true for the empty proposal.
    pub fn is_empty(&self) -> bool {
        self.value.is_none()
    }

    /// The same value in a newer round.
    #[must_use]
    pub fn reproposed(self, ballot: Ballot) -> Accepted<V> {
        Accepted { ballot, ..self }
    }

    /// The commit that follows once a quorum has accepted it.
    pub fn into_commit(self) -> Commit<V> {
        Commit { ballot: self.ballot, origin: self.origin, value: self.value }
    }
}
