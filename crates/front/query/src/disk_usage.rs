//! Writes to replicas whose disks are fuller than they should be: ordinary users are warned or refused.
//!
//! Owns: the check before a write. Never: checks a disk, decides how full is too full (each node does for
//! itself).
//!
//! Like in Cassandra, every replica counts, pending ones and those that are down too, and a write is refused even if
//! its level could be reached. A statement with IF is checked in batches only. Clients get a warning once in half an
//! hour, as every write would have it; refusals are errors each time.
//! Source: `ModificationStatement.validateDiskUsage`, `DiskUsageBroadcaster`,
//! `Guardrails.replicaDiskUsage`.

use cql_plan::guardrails::Watch;

use crate::executor::Executor;
use crate::failure::Result;
use crate::modification::Modification;

/// Checks the disks of the replicas of everything that is to be written.
///
/// # Errors
/// One of them is full; invalid values of a partition key.
#[inline]
pub(crate) fn check(
    executor: &Executor,
    request: &Modification<'_>,
    watch: Option<&Watch>,
) -> Result<()> {
    match watch {
        Some(watch) if executor.replica_disks.is_pressed() => check_all(executor, request, watch),
        _ => Ok(()),
    }
}

#[inline(never)]
fn check_all(executor: &Executor, request: &Modification<'_>, watch: &Watch) -> Result<()> {
    let (disks, snapshot) = (&executor.replica_disks, executor.snapshot());
    let pressed = disks.pressed.borrow();
    for (plan, values) in request.statements.modifications() {
        for token in plan.partition_tokens(values, &request.options)? {
            for host in executor.coordinator.write_replicas(&snapshot, plan.table().id, token) {
                if let Some(pressure) = pressed.get(&host).copied() {
                    watch.replica_disk(pressure, disks.notice(pressure, executor.rt.now()))?;
                }
            }
        }
    }
    Ok(())
}
