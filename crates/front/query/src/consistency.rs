//! Checks if a statement may run at its consistency level.

use crate::executor::Executor;
use crate::failure::{Failure, Result, level};
use crate::prepared::CompiledHeader;
use cluster::ClusterSnapshot;
use cql_plan::auth::is_computed;
use cql_plan::plan::PlanInputs;
use cql_wire::Consistency;
use std::sync::Arc;
use stdx::TableId;

/// Access of a statement to its tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Properties of the tables of a statement that may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allowed {
    /// The keyspaces have durable writes.
    pub(crate) durable: bool,
    /// Other nodes may have the data too: it goes by the replicated paths.
    pub(crate) replicated: bool,
}

/// High bits of [`CompiledHeader::achievable`].
const DURABLE: u32 = 1 << 31;
const REPLICATED: u32 = 1 << 30;

impl Allowed {
    #[inline]
    fn of(known: u32) -> Allowed {
        Allowed { durable: known & DURABLE != 0, replicated: known & REPLICATED != 0 }
    }

    /// That of two statements together.
    pub(crate) fn and(self, other: Allowed) -> Allowed {
        Allowed {
            durable: self.durable | other.durable,
            replicated: self.replicated | other.replicated,
        }
    }

    /// The metadata that a request for several nodes begins with; `None` when this one has it all.
    #[inline]
    pub(crate) fn snapshot(self, executor: &Executor) -> Option<Arc<ClusterSnapshot>> {
        self.replicated.then(|| executor.snapshot().clone())
    }
}

/// Checks the consistency level. A single node checks it against the existing replicas. In a
/// cluster only the level itself is checked, because the live replicas are known when the request
/// runs. The answer is cached until the next epoch.
pub(crate) fn check(
    executor: &Executor,
    header: &CompiledHeader,
    consistency: Consistency,
    access: Access,
) -> Result<Allowed> {
    let snapshot = executor.snapshot();
    let (epoch, known) = header.achievable.get();
    let bit = 1 << consistency.number();
    if epoch == snapshot.epoch && known & bit != 0 {
        return Ok(Allowed::of(known));
    }
    let known = if epoch == snapshot.epoch { known } else { 0 };
    let is_replicated =
        |table| snapshot.members.len() > 1 && executor.coordinator.is_replicated(&snapshot, table);
    let allowed = check_tables(&snapshot, &header.inputs, consistency, access, is_replicated)?;
    let mut mask = known | bit;
    mask |= if allowed.durable { DURABLE } else { 0 };
    mask |= if allowed.replicated { REPLICATED } else { 0 };
    header.achievable.set((snapshot.epoch, mask));
    Ok(allowed)
}

fn is_on_counters(snapshot: &ClusterSnapshot, inputs: &PlanInputs) -> bool {
    let mut tables = inputs.tables.iter().filter_map(|(id, _)| snapshot.schema.table_by_id(*id));
    tables.any(|table| table.is_counter())
}

fn check_tables(
    snapshot: &ClusterSnapshot,
    inputs: &PlanInputs,
    consistency: Consistency,
    access: Access,
    is_replicated: impl Fn(TableId) -> bool,
) -> Result<Allowed> {
    match (access, consistency) {
        (Access::Read, Consistency::Any) => {
            return Err(Failure::invalid("ANY ConsistencyLevel is only supported for writes"));
        }
        (Access::Write, Consistency::Serial | Consistency::LocalSerial)
            if !is_on_counters(snapshot, inputs) =>
        {
            return Err(Failure::invalid(
                "You must use conditional updates for serializable writes",
            ));
        }
        _ => {}
    }
    // One keyspace with durable writes is enough: an unneeded log record does no harm.
    let mut allowed = Allowed::default();
    for (id, _) in &inputs.tables {
        let keyspace = snapshot
            .schema
            .table_by_id(*id)
            .and_then(|table| snapshot.schema.keyspace(&table.keyspace));
        let Some(keyspace) = keyspace else {
            return Err(Failure::invalid("the table was dropped"));
        };
        if snapshot.schema.table_by_id(*id).is_some_and(|table| is_computed(table)) {
            // Every node has all of it.
            level(consistency)
                .validate_for_read()
                .map_err(|error| Failure::replication(error, consistency))?;
            continue;
        }
        if access == Access::Write
            && let Some(table) = snapshot.schema.table_by_id(*id).filter(|t| t.is_counter())
        {
            let checked = level(consistency).validate_for_counter_write(&table.name);
            checked.map_err(|error| Failure::replication(error, consistency))?;
        }
        allowed.durable |= keyspace.params.durable_writes;
        let level = level(consistency);
        let replicated = is_replicated(*id);
        allowed.replicated |= replicated;
        let checked = match (replicated, access) {
            (false, _) => snapshot.check_consistency(keyspace, level, access == Access::Write),
            (true, Access::Read) => level.validate_for_read(),
            (true, Access::Write) => level.validate_for_write(),
        };
        checked.map_err(|error| Failure::replication(error, consistency))?;
    }
    Ok(allowed)
}

/// The scope of a serial level; `None` for others.
pub(crate) fn scope_of(consistency: Consistency) -> Option<paxos::Scope> {
    match consistency {
        Consistency::Serial => Some(paxos::Scope::Global),
        Consistency::LocalSerial => Some(paxos::Scope::Local),
        _ => None,
    }
}
