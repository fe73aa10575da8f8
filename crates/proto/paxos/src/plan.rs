//! Participants of an operation, and how many of them are enough.
//!
//! Owns the arithmetic of quorums. Never: addresses or liveness; the driver keeps the list that a
//! [`Target`] is an index into and checks before it starts that enough of them are alive.

use smallvec::SmallVec;
use stdx::Epoch;

/// Index into the driver's list of replicas, below [`TARGETS_MAX`].
pub type Target = u8;

/// Replicas that one plan can name. Above any sensible sum of replication factors.
pub const TARGETS_MAX: usize = 128;

/// A set of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct TargetSet(u128);

impl TargetSet {
    /// No replica.
    pub const EMPTY: TargetSet = TargetSet(0);

    /// The first `count` replicas; at most [`TARGETS_MAX`].
    pub fn first(count: usize) -> TargetSet {
        (0..count.min(TARGETS_MAX)).filter_map(|t| Target::try_from(t).ok()).collect()
    }

    /// Adds one; false when it was there or is beyond [`TARGETS_MAX`].
    pub fn insert(&mut self, target: Target) -> bool {
        let before = self.0;
        self.0 |= 1u128.checked_shl(u32::from(target)).unwrap_or(0);
        self.0 != before
    }

    /// Takes one out; false when it was not there.
    pub fn remove(&mut self, target: Target) -> bool {
        let before = self.0;
        self.0 &= !1u128.checked_shl(u32::from(target)).unwrap_or(0);
        self.0 != before
    }

    /// Returns true if the set contains the target.
    pub fn contains(self, target: Target) -> bool {
        self.0 & 1u128.checked_shl(u32::from(target)).unwrap_or(0) != 0
    }

    /// Returns the number of targets in the set.
    pub fn len(self) -> usize {
        usize::try_from(self.0.count_ones()).unwrap_or(TARGETS_MAX)
    }

    /// Returns true if the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those in both.
    #[must_use]
    pub fn and(self, other: TargetSet) -> TargetSet {
        TargetSet(self.0 & other.0)
    }

    /// Those in either.
    #[must_use]
    pub fn or(self, other: TargetSet) -> TargetSet {
        TargetSet(self.0 | other.0)
    }

    /// Those in this one only.
    #[must_use]
    pub fn without(self, other: TargetSet) -> TargetSet {
        TargetSet(self.0 & !other.0)
    }

    /// Returns true if the set contains all of `other`.
    pub fn includes(self, other: TargetSet) -> bool {
        other.without(self).is_empty()
    }

    /// In ascending order.
    pub fn iter(self) -> impl Iterator<Item = Target> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let lowest = Target::try_from(left.trailing_zeros()).ok().filter(|t| *t < 128)?;
            left &= left.wrapping_sub(1);
            Some(lowest)
        })
    }
}

impl FromIterator<Target> for TargetSet {
    fn from_iter<I: IntoIterator<Item = Target>>(targets: I) -> TargetSet {
        let mut set = TargetSet::EMPTY;
        for target in targets {
            set.insert(target);
        }
        set
    }
}

/// Commit acknowledgements to wait for: `required` of `among`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommitQuorum {
    /// Replicas whose acknowledgements count: all, or those of one datacenter.
    pub among: TargetSet,
    /// Number of acknowledgements needed.
    pub required: usize,
}

/// Participants of one operation at one epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    /// Epoch of the snapshot that the plan was made from; sent with every message, so that a
    /// replica whose electorate differs can say so.
    pub epoch: Epoch,
    /// Replicas whose promises and acceptances count: natural and pending ones, for LOCAL_SERIAL
    /// of the coordinator's datacenter only.
    pub voters: TargetSet,
    /// Voters whose reads count: the natural ones. A pending replica does not have the data yet.
    pub readers: TargetSet,
    /// Promises, and later acceptances, that make a quorum.
    pub quorum: usize,
    /// Promises with a read among them.
    pub read_quorum: usize,
    /// Receivers of the commit: the voters and, for LOCAL_SERIAL, the replicas elsewhere.
    pub learners: TargetSet,
    /// Quorums of the commit consistency level. Empty for ANY: the client is answered as soon as
    /// the value is decided. EACH_QUORUM is one entry per datacenter.
    pub commit: SmallVec<[CommitQuorum; 2]>,
    /// The voter on the proposer's own node, if there is one: it can be asked before the others
    /// without a round trip.
    pub own: Option<Target>,
}

/// A plan that could decide two things at once, or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Two quorums could have no member in common.
    #[error("a quorum of {quorum} among {voters} voters does not meet every other quorum")]
    QuorumTooSmall {
        /// Voters.
        voters: usize,
        /// Quorum.
        quorum: usize,
    },
    /// More is required than there are replicas.
    #[error("{required} replicas are required, the plan names {available}")]
    NotEnough {
        /// Required.
        required: usize,
        /// Named.
        available: usize,
    },
    /// A reader is no voter, or a voter gets no commit.
    #[error("readers must be voters, and voters must get the commit")]
    NotContained,
}

impl Plan {
    /// The plan for these natural and pending replicas: a quorum of the natural ones plus all
    /// pending ones, so that it meets the quorums of the electorate before and after the change.
    /// Source: `Paxos.Participants` (`sizeOfConsensusQuorum = natural / 2 + 1 + pending`).
    ///
    /// # Errors
    /// No natural replica; `learners` or `commit` do not fit.
    pub fn new(
        epoch: Epoch,
        natural: TargetSet,
        pending: TargetSet,
        elsewhere: TargetSet,
        commit: &[CommitQuorum],
    ) -> Result<Plan, PlanError> {
        let read_quorum = natural.len() / 2 + 1;
        let voters = natural.or(pending);
        let plan = Plan {
            epoch,
            voters,
            readers: natural.without(pending),
            quorum: read_quorum.saturating_add(pending.len()),
            read_quorum,
            learners: voters.or(elsewhere),
            commit: commit.into(),
            own: None,
        };
        plan.check()?;
        Ok(plan)
    }

    /// The same with a voter on the proposer's own node.
    #[must_use]
    pub fn with_own(self, own: Option<Target>) -> Plan {
        Plan { own: own.filter(|own| self.voters.contains(*own)), ..self }
    }

    /// Checks that the numbers can decide, and decide once.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn check(&self) -> Result<(), PlanError> {
        let voters = self.voters.len();
        if self.quorum.saturating_mul(2) <= voters {
            return Err(PlanError::QuorumTooSmall { voters, quorum: self.quorum });
        }
        if !self.voters.includes(self.readers) || !self.learners.includes(self.voters) {
            return Err(PlanError::NotContained);
        }
        let needs = [(self.quorum, self.voters), (self.read_quorum, self.readers)];
        let commits = self.commit.iter().map(|c| (c.required, c.among.and(self.learners)));
        for (required, set) in needs.into_iter().chain(commits) {
            if required > set.len() {
                return Err(PlanError::NotEnough { required, available: set.len() });
            }
        }
        Ok(())
    }

    /// Returns true if these acknowledgements satisfy the commit consistency level.
    pub fn is_committed(&self, acks: TargetSet) -> bool {
        self.commit.iter().all(|c| acks.and(c.among).len() >= c.required)
    }

    /// Acknowledgements that the commit consistency level asks for, in all.
    pub fn commit_required(&self) -> usize {
        self.commit.iter().map(|c| c.required).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(targets: &[Target]) -> TargetSet {
        targets.iter().copied().collect()
    }

    #[test]
    fn a_target_set_is_a_set() {
        let mut s = set(&[3, 0, 127]);
        assert!(!s.insert(3) && s.insert(5) && s.remove(0) && !s.remove(0));
        assert!(!s.insert(128) && !s.contains(200));
        assert_eq!(s.iter().collect::<Vec<_>>(), [3, 5, 127]);
        assert_eq!((s.len(), s.is_empty()), (3, false));
        assert_eq!(TargetSet::first(3), set(&[0, 1, 2]));
        assert!(s.includes(set(&[5])) && !s.includes(set(&[5, 6])));
    }

    #[test]
    fn pending_replicas_raise_the_quorum() {
        let epoch = Epoch(1);
        let quorum = |natural, pending| {
            let natural_set = TargetSet::first(natural);
            let pending_set = TargetSet::first(natural + pending).without(natural_set);
            Plan::new(epoch, natural_set, pending_set, TargetSet::EMPTY, &[]).unwrap().quorum
        };
        assert_eq!([quorum(1, 0), quorum(3, 0), quorum(3, 1), quorum(5, 2)], [1, 2, 3, 5]);
    }

    #[test]
    fn a_plan_that_could_decide_twice_or_never_is_refused() {
        let epoch = Epoch(1);
        let three = TargetSet::first(3);
        let mut plan = Plan::new(epoch, three, TargetSet::EMPTY, TargetSet::EMPTY, &[]).unwrap();
        plan.quorum = 1;
        assert_eq!(plan.check(), Err(PlanError::QuorumTooSmall { voters: 3, quorum: 1 }));
        plan.quorum = 4;
        assert_eq!(plan.check(), Err(PlanError::NotEnough { required: 4, available: 3 }));
        plan.quorum = 2;
        plan.learners = set(&[0, 1]);
        assert_eq!(plan.check(), Err(PlanError::NotContained));
        let commit = [CommitQuorum { among: set(&[2, 3]), required: 2 }];
        assert_eq!(
            Plan::new(epoch, three, TargetSet::EMPTY, TargetSet::EMPTY, &commit),
            Err(PlanError::NotEnough { required: 2, available: 1 })
        );
        let plan = Plan::new(epoch, three, TargetSet::EMPTY, set(&[3]), &commit).unwrap();
        assert!(!plan.is_committed(set(&[0, 1, 2])) && plan.is_committed(set(&[2, 3])));
    }
}
