//! Builds a machine from an order: the replicas, the needs of the level, the nodes that store the
//! log.

use request::batchlog::{LogCandidate, choose_log_nodes};
use request::{BatchPlan, BatchRequest, Need, ReplicaInfo, WritePlan, WriteRequest};
use smallvec::SmallVec;
use stdx::HostId;
use store::StoreError;

use super::{Attached, Machine, Writer};
use crate::shared::{ReplicatedError, ReplicatedWrite};
use cluster::{ClusterSnapshot, Consistency, MemberState};
use data::MutationRef;
use replica::ReplicaList;
use replica::ReplicaMutation;

impl Writer {
    pub(super) fn machine_for(
        &self,
        attached: &Attached,
        order: &ReplicatedWrite,
    ) -> Result<Machine, ReplicatedError> {
        let random = self.env().rt.random_u64();
        if let ([mutation], false) = (&order.mutations[..], order.logged) {
            let plan = plan_of(attached, order, mutation)?;
            return Ok(Machine::One(WriteRequest::new(plan, order.deadline, random)));
        }
        let mutations = order.mutations.iter();
        let plans = mutations.map(|mutation| plan_of(attached, order, mutation));
        let log = order.logged.then(|| {
            let takes_hints = order.consistency == Consistency::Any;
            log_nodes(&order.snapshot, |host| self.inner.shared.is_alive(host), takes_hints, random)
        });
        let plan = BatchPlan { mutations: plans.collect::<Result<_, _>>()?, log };
        let request = BatchRequest::new(plan, order.deadline, random).map_err(invalid)?;
        Ok(Machine::Batch(Box::new(request)))
    }
}

fn invalid(error: impl std::fmt::Display) -> ReplicatedError {
    StoreError::Invalid(error.to_string()).into()
}

fn plan_of(
    attached: &Attached,
    order: &ReplicatedWrite,
    mutation: &ReplicaMutation,
) -> Result<WritePlan, ReplicatedError> {
    let token = mutation.token;
    let Some(opened) = MutationRef::open(&mutation.bytes) else {
        stdx::invariant::broken(format_args!("mutation made by this node does not open"))
    };
    let topology = attached
        .cluster
        .topology(&order.snapshot, opened.table)
        .ok_or_else(|| ReplicatedError::unknown_table(opened.table))?;
    let mut replicas = ReplicaList::new();
    attached.cluster.replicas(&topology, token, &mut replicas);
    let need = Need::of(order.consistency, &topology.factors);
    let plan = WritePlan::new(order.consistency, order.write_type, need.clone(), &replicas);
    let plan = plan.map_err(invalid)?;
    if !attached.backlogs.has_stalled()
        || !leave_out_stalled(attached, &plan, &mut replicas, mutation)
    {
        return Ok(plan);
    }
    WritePlan::new(order.consistency, order.write_type, need, &replicas).map_err(invalid)
}

/// Treats replicas that make no progress as if they were dead, where hints for them are kept and the
/// others meet the level. Whether that changes anything.
fn leave_out_stalled(
    attached: &Attached,
    plan: &WritePlan,
    replicas: &mut ReplicaList,
    mutation: &ReplicaMutation,
) -> bool {
    let now = attached.cluster.now();
    let is_stalled = |r: &ReplicaInfo| {
        let place = (r.host, mutation.owner(attached.cluster.shard_map_of(r.host)));
        r.alive && !r.is_self && attached.backlogs.is_stalled(place, now)
    };
    let stalled = plan.replicas.which(is_stalled);
    let others = plan.replicas.which(|r| r.alive).minus(stalled);
    if stalled.is_empty() || !plan.is_met_by(others) {
        return false;
    }
    let mut changes = false;
    for target in stalled.iter() {
        let replica = replicas.get_mut(usize::from(target.0));
        if let Some(replica) = replica
            && attached.cluster.parts.hints.may_hint(replica.host)
        {
            (replica.alive, replica.hintable) = (false, true);
            attached.cluster.counters.writes_rerouted.inc();
            changes = true;
        }
    }
    changes
}

/// Returns the nodes that store a batch's log. At ANY, this node does if no other is alive.
fn log_nodes(
    snapshot: &ClusterSnapshot,
    is_alive: impl Fn(HostId) -> bool,
    takes_hints: bool,
    random: u64,
) -> SmallVec<[HostId; 2]> {
    let local = &snapshot.local;
    let members: Vec<_> = snapshot
        .members
        .values()
        .filter(|m| {
            // A node that is about to leave accepts none (`batch_handover`).
            let keeps = !matches!(m.state, MemberState::Joining | MemberState::LeaveHandover);
            m.datacenter == local.datacenter && keeps
        })
        .collect();
    let mut racks: Vec<&str> = members.iter().map(|m| m.rack.as_str()).collect();
    racks.push(&local.rack);
    racks.sort_unstable();
    racks.dedup();
    let number = |rack: &str| {
        let at = racks.binary_search(&rack).unwrap_or(usize::MAX);
        u16::try_from(at).unwrap_or(u16::MAX)
    };
    let candidates: Vec<LogCandidate> = members
        .iter()
        .map(|m| LogCandidate {
            rack: number(&m.rack),
            alive: is_alive(m.host_id),
            is_self: m.host_id == local.host_id,
        })
        .collect();
    let chosen = choose_log_nodes(&candidates, number(&local.rack), random);
    let mut hosts: SmallVec<[HostId; 2]> =
        chosen.into_iter().filter_map(|at| members.get(at).map(|m| m.host_id)).collect();
    if hosts.is_empty() && takes_hints {
        hosts.push(local.host_id);
    }
    hosts
}
