//! Participants of an operation: the replicas of a token as targets, and quorums derived from
//! levels.

use std::sync::Arc;

use cluster::{ClusterSnapshot, Consistency};
use paxos::plan::{CommitQuorum, TARGETS_MAX, Target, TargetSet};
use paxos::wire::{Electorate, Hosts};
use paxos::{Plan, Scope};
use request::{Factors, Need, ReplicaInfo, RequestError};
use smallvec::SmallVec;
use stdx::Epoch;

use crate::paxos_row::Partition;
use replica::Env;
use replica::ReplicaList;

/// At which levels an operation votes and commits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Level {
    pub(crate) scope: Scope,
    pub(crate) commit: Consistency,
}

/// The replicas of a token at one epoch.
pub(crate) struct Voters {
    pub(crate) epoch: Epoch,
    pub(crate) plan: Plan,
    /// Electorate of the plan's scope.
    pub(crate) electorate: Electorate,
    /// Electorate of all datacenters.
    pub(crate) everybody: Electorate,
}

/// All replicas that an operation has met. A target is an index into it and stays valid.
#[derive(Default)]
pub(crate) struct Targets(Vec<ReplicaInfo>);

impl Targets {
    fn of(&mut self, replica: &ReplicaInfo) -> Option<Target> {
        let at = match self.0.iter().position(|r| r.host == replica.host) {
            Some(at) => at,
            None if self.0.len() < TARGETS_MAX => {
                self.0.push(*replica);
                self.0.len() - 1
            }
            None => return None,
        };
        if let Some(known) = self.0.get_mut(at) {
            *known = *replica;
        }
        Target::try_from(at).ok()
    }

    pub(crate) fn get(&self, target: Target) -> Option<&ReplicaInfo> {
        self.0.get(usize::from(target))
    }

    pub(crate) fn alive(&self, among: TargetSet) -> usize {
        among.iter().filter(|t| self.get(*t).is_some_and(|r| r.alive)).count()
    }
}

/// The level that a scope is called in errors.
pub(crate) fn level_of(scope: Scope) -> Consistency {
    match scope {
        Scope::Local => Consistency::LocalSerial,
        Scope::None | Scope::Global => Consistency::Serial,
    }
}

/// Sorted into natural and pending.
pub(crate) fn electorate(replicas: &[ReplicaInfo], is_local: bool) -> Electorate {
    let of = |pending: bool| -> Hosts {
        let chosen = replicas.iter().filter(|r| r.pending == pending);
        chosen.filter(|r| !is_local || r.is_local_dc).map(|r| r.host).collect()
    };
    Electorate { natural: of(false), pending: of(true) }
}

fn commit_quorums(
    consistency: Consistency,
    factors: &Factors,
    replicas: &[(Target, ReplicaInfo)],
) -> SmallVec<[CommitQuorum; 2]> {
    let quorum = |natural: u16, counts: &dyn Fn(&ReplicaInfo) -> bool| {
        let among = replicas.iter().filter(|(_, r)| counts(r));
        let pending = among.clone().filter(|(_, r)| r.pending).count();
        let among = among.map(|(t, _)| *t).collect();
        CommitQuorum { among, required: usize::from(natural).saturating_add(pending) }
    };
    match Need::of(consistency, factors) {
        Need::Any => SmallVec::new(),
        Need::Anywhere(n) => SmallVec::from_iter([quorum(n, &|_| true)]),
        Need::Local(n) => SmallVec::from_iter([quorum(n, &|r| r.is_local_dc)]),
        Need::Each(list, _) => list.iter().map(|(dc, n)| quorum(*n, &|r| r.dc == *dc)).collect(),
        Need::ThisNode => SmallVec::from_iter([quorum(1, &|r| r.is_self)]),
    }
}

/// The replicas of a partition as a snapshot has them, natural ones first. `None`: there is no
/// such table.
pub(crate) fn replicas_of(
    env: &Env,
    snapshot: &ClusterSnapshot,
    partition: &Partition,
) -> Option<(ReplicaList, Factors)> {
    let mut list = ReplicaList::new();
    let Some(cluster) = env.cluster() else {
        // Alone.
        list.push(ReplicaInfo {
            host: snapshot.local.host_id,
            dc: 0,
            is_local_dc: true,
            is_self: true,
            alive: true,
            pending: false,
            moves: false,
            hintable: false,
            latency_rank: 0,
        });
        let factors =
            Factors { total: 1, local: 1, datacenters: SmallVec::new(), names: Arc::default() };
        return Some((list, factors));
    };
    let topology = cluster.serial_topology(snapshot, partition.table)?;
    cluster.replicas(&topology, partition.token(), &mut list);
    Some((list, topology.factors.clone()))
}

/// The plan of a partition at a snapshot. `Ok(None)`: no such table, or more replicas than can be
/// numbered.
///
/// # Errors
/// `Unavailable`: a quorum, or what the commit level needs, is not alive.
pub(crate) fn voters(
    env: &Env,
    snapshot: &ClusterSnapshot,
    partition: &Partition,
    level: Level,
    targets: &mut Targets,
) -> Result<Option<Voters>, RequestError> {
    let Some((list, factors)) = replicas_of(env, snapshot, partition) else { return Ok(None) };
    let Level { scope, commit } = level;
    let is_local = scope == Scope::Local;
    let numbered: Option<Vec<(Target, ReplicaInfo)>> =
        list.iter().map(|r| Some((targets.of(r)?, *r))).collect();
    let Some(replicas) = numbered else { return Ok(None) };
    let set = |wanted: &dyn Fn(&ReplicaInfo) -> bool| -> TargetSet {
        replicas.iter().filter(|(_, r)| wanted(r)).map(|(t, _)| *t).collect()
    };
    let votes = |r: &ReplicaInfo| !is_local || r.is_local_dc;
    let natural = set(&|r| votes(r) && !r.pending);
    let pending = set(&|r| votes(r) && r.pending);
    let elsewhere = set(&|r| !votes(r));
    let unavailable = |consistency, required: usize, alive: usize| {
        let (required, alive) = (narrow(required), narrow(alive));
        RequestError::Unavailable { consistency, required, alive }
    };
    let quorum = natural.len() / 2 + 1 + pending.len();
    let alive = targets.alive(natural.or(pending));
    if alive < quorum {
        return Err(unavailable(level_of(scope), quorum, alive));
    }
    let own = replicas.iter().find(|(_, r)| r.is_self).map(|(t, _)| *t);
    let mut quorums = commit_quorums(commit, &factors, &replicas);
    if snapshot.handover_of_table(partition.table).is_some() {
        // A datacenter that has had no replicas yet needs those that it will have.
        for quorum in &mut quorums {
            quorum.required = quorum.required.min(quorum.among.len());
        }
    }
    for CommitQuorum { among, required } in &quorums {
        let alive = targets.alive(*among);
        if alive < *required {
            return Err(unavailable(commit, *required, alive));
        }
    }
    match Plan::new(snapshot.epoch, natural, pending, elsewhere, &quorums) {
        Ok(plan) => Ok(Some(Voters {
            epoch: snapshot.epoch,
            plan: plan.with_own(own),
            electorate: electorate(&list, is_local),
            everybody: electorate(&list, false),
        })),
        Err(error) => {
            tracing::warn!(%error, "cannot choose the voters of a partition");
            Err(unavailable(level_of(scope), quorum, alive))
        }
    }
}

pub(crate) fn narrow(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
