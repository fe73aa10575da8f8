//! Whether a statement may run at its consistency level.

use crate::failure::{Failure, Result};
use crate::prepared::Compiled;
use crate::server::Server;
use cluster::ClusterSnapshot;
use cql_plan::plan::Plan;
use cql_wire::Consistency;

/// What a statement does with its tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// High bit of [`Compiled::achievable`]: the keyspaces have durable writes.
const DURABLE: u32 = 1 << 31;

/// Checks the consistency level against the replicas there are, and tells whether writes are
/// durable. The answer is remembered until the next epoch.
pub(crate) fn check(
    server: &Server,
    compiled: &Compiled,
    consistency: Consistency,
    access: Access,
) -> Result<bool> {
    let snapshot = server.snapshot();
    let (epoch, known) = compiled.achievable.get();
    let bit = 1 << consistency.number();
    if epoch == snapshot.epoch && known & bit != 0 {
        return Ok(known & DURABLE != 0);
    }
    let known = if epoch == snapshot.epoch { known } else { 0 };
    let durable = check_tables(&snapshot, &compiled.plan, consistency, access)?;
    let mask = known | bit | if durable { DURABLE } else { 0 };
    compiled.achievable.set((snapshot.epoch, mask));
    Ok(durable)
}

fn check_tables(
    snapshot: &ClusterSnapshot,
    plan: &Plan,
    consistency: Consistency,
    access: Access,
) -> Result<bool> {
    match (access, consistency) {
        (Access::Read, Consistency::Any) => {
            return Err(Failure::invalid("ANY ConsistencyLevel is only supported for writes"));
        }
        (Access::Write, Consistency::Serial | Consistency::LocalSerial) => {
            return Err(Failure::invalid(
                "You must use conditional updates for serializable writes",
            ));
        }
        _ => {}
    }
    // One keyspace with durable writes is enough: a log record too many harms nobody.
    let mut durable = false;
    for (id, _) in &plan.tables {
        let keyspace = snapshot
            .schema
            .table_by_id(*id)
            .and_then(|table| snapshot.schema.keyspace(&table.keyspace));
        let Some(keyspace) = keyspace else {
            return Err(Failure::invalid("the table was dropped"));
        };
        durable |= keyspace.params.durable_writes;
        snapshot
            .check_consistency(keyspace, level(consistency), access == Access::Write)
            .map_err(|error| Failure::replication(error, consistency))?;
    }
    Ok(durable)
}

fn level(consistency: Consistency) -> cluster::Consistency {
    match consistency {
        Consistency::Any => cluster::Consistency::Any,
        Consistency::One => cluster::Consistency::One,
        Consistency::Two => cluster::Consistency::Two,
        Consistency::Three => cluster::Consistency::Three,
        Consistency::Quorum => cluster::Consistency::Quorum,
        Consistency::All => cluster::Consistency::All,
        Consistency::LocalQuorum => cluster::Consistency::LocalQuorum,
        Consistency::EachQuorum => cluster::Consistency::EachQuorum,
        Consistency::Serial => cluster::Consistency::Serial,
        Consistency::LocalSerial => cluster::Consistency::LocalSerial,
        Consistency::LocalOne => cluster::Consistency::LocalOne,
        Consistency::NodeLocal => cluster::Consistency::NodeLocal,
    }
}
