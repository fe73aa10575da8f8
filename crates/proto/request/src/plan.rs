//! Plans: the replicas of one token with what the coordinator knows of them, and how many of them
//! a consistency level needs.
//!
//! Sources of the arithmetic: Cassandra `ConsistencyLevel.blockFor`, `blockForWrite`,
//! `ReplicaPlans.assureSufficientLiveReplicas`, `contactForRead`, `maybeMerge`.

use std::sync::Arc;

use cluster::Consistency;
use smallvec::SmallVec;
use stdx::HostId;

use crate::types::{REPLICAS_MAX, RequestError, Target, TargetSet, WriteType, count};

/// One replica as the coordinator sees it when the request starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaInfo {
    /// Identity.
    pub host: HostId,
    /// Its datacenter, a small number of the snapshot's.
    pub dc: u8,
    /// That is the coordinator's own.
    pub is_local_dc: bool,
    /// It is the coordinator itself.
    pub is_self: bool,
    /// The failure detector holds it for alive.
    pub alive: bool,
    /// It will own the token, or hands it over. It gets every write in addition, and is read only
    /// together with natural replicas that move ([`ReadPlan`]).
    pub pending: bool,
    /// It owns the token only before the movements in progress, or only after them. Every pending
    /// one moves.
    pub moves: bool,
    /// A hint may be stored for it: hints are on for its datacenter, its hint window has not
    /// passed, its hints do not fill their space. False for the coordinator itself. Of one that is
    /// alive it means only that it may be tried.
    pub hintable: bool,
    /// Place in the order of expected latency, 0 first; equal ranks go by position.
    pub latency_rank: u16,
}

/// Replication factors of one keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Factors {
    /// All replicas of a token.
    pub total: u16,
    /// Those of the coordinator's datacenter; `SimpleStrategy`: all.
    pub local: u16,
    /// By datacenter, zero factors left out; empty with `SimpleStrategy`.
    pub datacenters: SmallVec<[(u8, u16); 4]>,
    /// Names of datacenters by number, for errors; may be empty with `SimpleStrategy`.
    pub names: Arc<[Arc<str>]>,
}

/// How many natural replicas a level needs. Pending ones of the same scope come on top in writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// One replica or one stored hint.
    Any,
    /// That many, anywhere.
    Anywhere(u16),
    /// That many of the coordinator's datacenter; others do not count.
    Local(u16),
    /// So many of each datacenter, and the names of datacenters by number.
    Each(SmallVec<[(u8, u16); 4]>, Arc<[Arc<str>]>),
    /// The coordinator itself.
    ThisNode,
}

fn quorum(n: u16) -> u16 {
    n / 2 + 1
}

impl Need {
    /// Returns the need of a level with these factors.
    pub fn of(consistency: Consistency, factors: &Factors) -> Need {
        match consistency {
            Consistency::Any => Need::Any,
            Consistency::One => Need::Anywhere(1),
            Consistency::Two => Need::Anywhere(2),
            Consistency::Three => Need::Anywhere(3),
            Consistency::Quorum | Consistency::Serial => Need::Anywhere(quorum(factors.total)),
            // With a factor of 0 no replica can be asked: the request is unavailable, not complete
            // at once.
            Consistency::All => Need::Anywhere(factors.total.max(1)),
            Consistency::LocalOne => Need::Local(1),
            Consistency::LocalQuorum | Consistency::LocalSerial => {
                Need::Local(quorum(factors.local))
            }
            Consistency::EachQuorum if factors.datacenters.is_empty() => {
                Need::Anywhere(quorum(factors.total))
            }
            Consistency::EachQuorum => {
                let each = factors.datacenters.iter().map(|(dc, n)| (*dc, quorum(*n))).collect();
                Need::Each(each, factors.names.clone())
            }
            Consistency::NodeLocal => Need::ThisNode,
        }
    }

    /// Returns true if an answer of this replica counts.
    fn counts(&self, replica: &ReplicaInfo) -> bool {
        match self {
            Need::Any | Need::Anywhere(_) | Need::Each(..) => true,
            Need::Local(_) => replica.is_local_dc,
            Need::ThisNode => replica.is_self,
        }
    }

    /// Replicas needed in all, pending ones not counted.
    pub fn sum(&self) -> usize {
        match self {
            Need::Any | Need::ThisNode => 1,
            Need::Anywhere(n) | Need::Local(n) => usize::from(*n),
            Need::Each(list, _) => list.iter().map(|(_, n)| usize::from(*n)).sum(),
        }
    }

    /// The error for too few replicas, of a datacenter when it is known which one lacks them.
    fn unavailable(
        &self,
        consistency: Consistency,
        datacenter: Option<u8>,
        required: u32,
        alive: u32,
    ) -> RequestError {
        let name = match (self, datacenter) {
            (Need::Each(_, names), Some(number)) => names.get(usize::from(number)).cloned(),
            _ => None,
        };
        match name {
            Some(datacenter) => {
                RequestError::UnavailableIn { consistency, datacenter, required, alive }
            }
            None => RequestError::Unavailable { consistency, required, alive },
        }
    }
}

/// A plan that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// More replicas than a plan can number.
    #[error("a token has {0} replicas, at most {REPLICAS_MAX} are supported")]
    TooManyReplicas(usize),
}

/// The replicas of a plan, by their targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicas(SmallVec<[ReplicaInfo; 8]>);

impl Replicas {
    fn new(replicas: &[ReplicaInfo]) -> Result<Replicas, PlanError> {
        if replicas.len() > REPLICAS_MAX {
            return Err(PlanError::TooManyReplicas(replicas.len()));
        }
        Ok(Replicas(SmallVec::from_slice(replicas)))
    }

    /// The replica of that index.
    pub fn get(&self, target: Target) -> Option<&ReplicaInfo> {
        self.0.get(usize::from(target.0))
    }

    /// All with their indexes.
    pub fn iter(&self) -> impl Iterator<Item = (Target, &ReplicaInfo)> {
        // At most REPLICAS_MAX, so the index always fits.
        (0..=u8::MAX).map(Target).zip(self.0.iter())
    }

    /// Returns the targets for which `keep` holds.
    pub fn which(&self, keep: impl Fn(&ReplicaInfo) -> bool) -> TargetSet {
        self.iter().filter(|(_, r)| keep(r)).map(|(t, _)| t).collect()
    }

    fn count_in(&self, set: TargetSet, keep: impl Fn(&ReplicaInfo) -> bool) -> usize {
        self.iter().filter(|(t, r)| set.contains(*t) && keep(r)).count()
    }
}

/// Where one mutation goes and what its level needs.
#[derive(Clone, Debug)]
pub struct WritePlan {
    /// The level asked for.
    pub consistency: Consistency,
    /// For the errors.
    pub write_type: WriteType,
    /// Natural and pending replicas, dead ones included.
    pub replicas: Replicas,
    need: Need,
    /// Those whose acknowledgements count, and how many are needed; meaningless where datacenters
    /// are counted apart.
    in_scope: TargetSet,
    required: u32,
}

impl WritePlan {
    /// A plan for one mutation.
    ///
    /// # Errors
    /// `TooManyReplicas`.
    pub fn new(
        consistency: Consistency,
        write_type: WriteType,
        need: Need,
        replicas: &[ReplicaInfo],
    ) -> Result<WritePlan, PlanError> {
        let replicas = Replicas::new(replicas)?;
        // Looked at with every acknowledgement.
        let in_scope = replicas.which(|r| need.counts(r));
        let pending = replicas.which(|r| r.pending && need.counts(r)).len();
        let sum = need.sum().saturating_add(pending);
        let required = if need == Need::Any { 1 } else { count(sum) };
        Ok(WritePlan { consistency, write_type, replicas, need, in_scope, required })
    }

    /// The level is met by a stored hint too.
    pub fn takes_hints(&self) -> bool {
        self.need == Need::Any
    }

    /// Acknowledgements needed, pending replicas in scope included: while ranges move, both the old
    /// and the new owners must have the write.
    pub fn block_for(&self) -> u32 {
        self.required
    }

    /// How many of a set count.
    pub fn counted(&self, set: TargetSet) -> u32 {
        count(set.intersection(self.in_scope).len())
    }

    /// Returns true if a failure of this replica counts.
    pub(crate) fn counts(&self, target: Target) -> bool {
        self.replicas.get(target).is_some_and(|r| self.need.counts(r))
    }

    /// Returns true if acknowledgements of all of `set` meet the level.
    pub fn is_met_by(&self, set: TargetSet) -> bool {
        self.missing(set).is_none()
    }

    /// Returns the shortfall when exactly `set` acknowledges: the datacenter, if that counts, and
    /// the required and given acknowledgements.
    fn missing(&self, set: TargetSet) -> Option<(Option<u8>, u32, u32)> {
        if let Need::Each(list, _) = &self.need {
            for (dc, n) in list {
                let here = |r: &ReplicaInfo| r.dc == *dc;
                let pending = self.replicas.which(|r| r.pending && here(r)).len();
                let required = usize::from(*n).saturating_add(pending);
                let there = self.replicas.count_in(set, here);
                if there < required {
                    return Some((Some(*dc), count(required), count(there)));
                }
            }
            return None;
        }
        let (required, there) = (self.block_for(), self.counted(set));
        (there < required).then_some((None, required, there))
    }

    /// Checks that enough replicas are alive. With ANY a replica for which a hint may be stored is
    /// enough; without one nothing would be written anywhere, which Cassandra reports as a timeout.
    ///
    /// # Errors
    /// `Unavailable`.
    pub fn check(&self) -> Result<(), RequestError> {
        let usable = |r: &ReplicaInfo| r.alive || (self.takes_hints() && r.hintable);
        let Some((datacenter, required, alive)) = self.missing(self.replicas.which(usable)) else {
            return Ok(());
        };
        let consistency = self.consistency;
        // Cassandra's words: a LOCAL_ONE needs 1, whatever is pending.
        let required = if consistency == Consistency::LocalOne { 1 } else { required };
        let alive = alive.min(required.saturating_sub(1));
        Err(self.need.unavailable(consistency, datacenter, required, alive))
    }
}

/// The replicas that a read asks, in order.
///
/// While a token moves, data that a majority has shown must still be seen after the movement, even
/// if no replica acknowledged it. The answers must therefore be enough of the natural replicas.
/// From the replicas on the movement's other side there must be so many that each majority of those
/// meets them. Replicas that do not move are on both sides and come first, so that mostly no other
/// replica is asked. Levels below a majority (ONE) promise nothing of the kind and ask natural
/// replicas only.
#[derive(Clone, Debug)]
pub struct ReadPlan {
    /// The level asked for.
    pub consistency: Consistency,
    /// Natural and pending replicas, dead ones included.
    pub replicas: Replicas,
    need: Need,
    /// The level is a majority, and some in scope move.
    is_joint: bool,
    /// Those whose answers may count, alive, best first.
    candidates: SmallVec<[Target; 8]>,
    /// The first of them that meet the level.
    contacts: SmallVec<[Target; 8]>,
}

impl ReadPlan {
    /// A plan for reading one token or range.
    ///
    /// # Errors
    /// `TooManyReplicas`.
    pub fn new(
        consistency: Consistency,
        need: Need,
        replicas: &[ReplicaInfo],
    ) -> Result<ReadPlan, PlanError> {
        let replicas = Replicas::new(replicas)?;
        let below = matches!(consistency, Consistency::One | Consistency::LocalOne);
        let is_joint = !below && replicas.iter().any(|(_, r)| r.moves && need.counts(r));
        let mut candidates: SmallVec<[Target; 8]> = replicas
            .iter()
            .filter(|(_, r)| r.alive && (is_joint || !r.pending) && need.counts(r))
            .map(|(t, _)| t)
            .collect();
        let rank = |t: &Target| {
            let replica = replicas.get(*t);
            let moves = is_joint && replica.is_some_and(|r| r.moves);
            let pending = replica.is_some_and(|r| r.pending);
            (moves, pending, replica.map_or(u16::MAX, |r| r.latency_rank), *t)
        };
        candidates.sort_by_key(rank);
        let contacts = SmallVec::new();
        let mut plan = ReadPlan { consistency, replicas, need, is_joint, candidates, contacts };
        plan.contacts = plan.choose_contacts();
        Ok(plan)
    }

    fn choose_contacts(&self) -> SmallVec<[Target; 8]> {
        let mut chosen = TargetSet::EMPTY;
        let mut contacts = SmallVec::new();
        for target in &self.candidates {
            let Some(replica) = self.replicas.get(*target) else { continue };
            let is_met = match &self.need {
                Need::Each(list, _) => {
                    let need = list.iter().find(|(dc, _)| *dc == replica.dc);
                    need.is_none_or(|(dc, n)| self.is_met_where(chosen, |r| r.dc == *dc, *n))
                }
                _ => self.is_met_by(chosen),
            };
            if !is_met {
                chosen.insert(*target);
                contacts.push(*target);
            }
        }
        contacts
    }

    /// Returns true if the answers of `set`, all of them in scope, are enough.
    pub fn is_met_by(&self, set: TargetSet) -> bool {
        if let Need::Each(list, _) = &self.need {
            return list.iter().all(|(dc, n)| self.is_met_where(set, |r| r.dc == *dc, *n));
        }
        if !self.is_joint {
            return set.len() >= self.need.sum();
        }
        let n = u16::try_from(self.need.sum()).unwrap_or(u16::MAX);
        self.is_met_where(set, |r| self.need.counts(r), n)
    }

    /// Returns true if the answer of this replica alone is enough. [`ReadPlan::block_for`] does not say so: while a token
    /// moves, the only alive replica may be one that moves in and lacks rows.
    pub fn is_met_by_one(&self, replica: Target) -> bool {
        self.is_met_by([replica].into_iter().collect())
    }

    /// The same of one datacenter or all.
    fn is_met_where(&self, set: TargetSet, here: impl Fn(&ReplicaInfo) -> bool, n: u16) -> bool {
        let n = usize::from(n);
        let (mut natural, mut other_side) = (0, 0);
        for (_, replica) in self.replicas.iter().filter(|(t, r)| set.contains(*t) && here(r)) {
            natural += usize::from(!replica.pending);
            other_side += usize::from(replica.pending || !replica.moves);
        }
        natural >= n && (!self.is_joint || other_side >= self.needed_beside(here, n))
    }

    /// Number of replicas that own the token on the other side of its movement, so that they meet
    /// each `n` of them. 0 when `n` are no majority there, so that `n` and `n` need not meet
    /// either.
    fn needed_beside(&self, here: impl Fn(&ReplicaInfo) -> bool, n: usize) -> usize {
        let is_there = |r: &ReplicaInfo| here(r) && (r.pending || !r.moves);
        let all = self.replicas.iter().filter(|(_, r)| is_there(r)).count();
        let moves = self.replicas.iter().any(|(_, r)| here(r) && r.moves);
        if moves && n.saturating_mul(2) > all { (all + 1).saturating_sub(n) } else { 0 }
    }

    /// Alive replicas whose answers may count, best first.
    pub fn candidates(&self) -> &[Target] {
        &self.candidates
    }

    /// Returns the replicas that the read asks first, best first.
    pub fn contacts(&self) -> &[Target] {
        &self.contacts
    }

    /// Answers needed, when the contacts give them.
    pub fn block_for(&self) -> usize {
        self.need.sum().max(self.contacts.len())
    }

    /// Replicas that may take a repair: alive, in scope, pending ones too.
    pub fn repairable(&self) -> TargetSet {
        self.replicas.which(|r| r.alive && self.need.counts(r))
    }

    /// Another replica may stand in for one that does not answer. Not with EACH_QUORUM: it would
    /// count for the wrong datacenter.
    pub fn may_replace(&self) -> bool {
        !matches!(self.need, Need::Each(..))
    }

    /// Checks that enough replicas are alive.
    ///
    /// # Errors
    /// `Unavailable`.
    pub fn check(&self) -> Result<(), RequestError> {
        let all: TargetSet = self.candidates.iter().copied().collect();
        if self.is_met_by(all) {
            return Ok(());
        }
        let missing = |datacenter: Option<u8>, n: usize, here: &dyn Fn(&ReplicaInfo) -> bool| {
            let natural = self.replicas.count_in(all, |r| !r.pending && here(r));
            if natural < n {
                return self.need.unavailable(
                    self.consistency,
                    datacenter,
                    count(n),
                    count(natural),
                );
            }
            // Counts as for a write, where the pending replicas are added to the level's number.
            let required = n + self.replicas.which(|r| r.pending && here(r)).len().max(1);
            let alive = self.replicas.count_in(all, here).min(required - 1);
            let (required, alive) = (count(required), count(alive));
            self.need.unavailable(self.consistency, datacenter, required, alive)
        };
        if let Need::Each(list, _) = &self.need {
            for (dc, n) in list {
                if !self.is_met_where(all, |r| r.dc == *dc, *n) {
                    return Err(missing(Some(*dc), usize::from(*n), &|r| r.dc == *dc));
                }
            }
        }
        Err(missing(None, self.need.sum(), &|r| self.need.counts(r)))
    }

    fn is_remote(&self, targets: &[Target]) -> bool {
        targets.iter().any(|t| self.replicas.get(*t).is_some_and(|r| !r.is_local_dc))
    }

    /// One plan for two adjacent ranges of one scan, when the replicas that both have are enough
    /// and reading both from them is no detour: asking a remote replica for both when each had
    /// enough near ones is not worth it.
    pub fn merge(&self, next: &ReadPlan) -> Option<ReadPlan> {
        if self.need != next.need {
            return None;
        }
        let in_next = |host: HostId| {
            next.candidates.iter().any(|t| next.replicas.get(*t).is_some_and(|r| r.host == host))
        };
        let shared: SmallVec<[ReplicaInfo; 8]> = self
            .candidates
            .iter()
            .filter_map(|t| self.replicas.get(*t).copied())
            .filter(|r| in_next(r.host))
            .collect();
        // A replica that moves may have only one of the ranges, and be needed for it.
        if self.replicas.iter().chain(next.replicas.iter()).any(|(_, r)| r.pending || r.moves) {
            return None;
        }
        let merged = ReadPlan::new(self.consistency, self.need.clone(), &shared).ok()?;
        merged.check().ok()?;
        let detour = merged.is_remote(&merged.contacts)
            && !self.is_remote(&self.contacts)
            && !next.is_remote(&next.contacts);
        (!detour).then_some(merged)
    }
}
