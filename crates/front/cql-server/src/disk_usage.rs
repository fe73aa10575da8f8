//! Writes to replicas whose disks are fuller than they should be: ordinary users are warned or refused.
//!
//! Owns: which nodes are how full, as they say by gossip, and when a client was last told. Never:
//! looks at a disk, decides how full is too full (each node does for itself).
//!
//! As in Cassandra every replica counts, pending ones and those that are down too, and a refusal
//! does not wait for a level to be missed. A statement with IF is looked at in batches only. Clients
//! get a warning once in [`NOTIFY_INTERVAL`], as every write would have it; refusals are errors each
//! time. Source: `ModificationStatement.validateDiskUsage`, `DiskUsageBroadcaster`,
//! `Guardrails.replicaDiskUsage`.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use cql_plan::ModifyPlan;
use cql_plan::guardrails::{DiskPressure, Watch};
use cql_plan::plan::{BoundValue, ExecuteOptions, PlanKind};
use stdx::{FixedMap, HostId, Instant};

use crate::execute::Modification;
use crate::failure::Result;
use crate::server::Server;

/// Between two warnings of one kind, by this shard; `cassandra.disk_usage.notify_interval_ms`.
const NOTIFY_INTERVAL: Duration = Duration::from_secs(30 * 60);

/// What a shard knows of the disks of all nodes.
#[derive(Default)]
pub(crate) struct ReplicaDisks {
    /// Nodes with fuller disks than they should have; members of the cluster, so that it is bounded.
    pressed: RefCell<FixedMap<HostId, DiskPressure>>,
    warned: Cell<Option<Instant>>,
    refused: Cell<Option<Instant>>,
}

impl ReplicaDisks {
    pub(crate) fn set(&self, host: HostId, pressure: Option<DiskPressure>) {
        let mut pressed = self.pressed.borrow_mut();
        match pressure {
            Some(pressure) => pressed.insert(host, pressure),
            None => pressed.remove(&host),
        };
    }

    fn is_pressed(&self) -> bool {
        !self.pressed.borrow().is_empty()
    }

    /// Whether a client is to be told now.
    fn notifies(&self, pressure: DiskPressure, now: Instant) -> bool {
        let last = match pressure {
            DiskPressure::Stuffed => &self.warned,
            DiskPressure::Full => &self.refused,
        };
        let is_due = last.get().is_none_or(|last| now >= last + NOTIFY_INTERVAL);
        if is_due {
            last.set(Some(now));
        }
        is_due
    }
}

/// Looks at the replicas of everything that is to be written.
///
/// # Errors
/// One of them is full; what is wrong with the values of a partition key.
#[inline]
pub(crate) fn check(
    server: &Server,
    request: &Modification<'_>,
    watch: Option<&Watch>,
) -> Result<()> {
    match watch {
        Some(watch) if server.replica_disks.is_pressed() => check_all(server, request, watch),
        _ => Ok(()),
    }
}

#[inline(never)]
fn check_all(server: &Server, request: &Modification<'_>, watch: &Watch) -> Result<()> {
    for (compiled, values) in request.statements {
        let plans = match &compiled.plan.kind {
            PlanKind::Modify(plan) => std::slice::from_ref(plan),
            PlanKind::Batch(plan) => plan.statements(),
            _ => &[],
        };
        for plan in plans {
            check_one(server, (plan, values), &request.options, watch)?;
        }
    }
    Ok(())
}

fn check_one(
    server: &Server,
    (plan, values): (&ModifyPlan, &[BoundValue<'_>]),
    options: &ExecuteOptions<'_>,
    watch: &Watch,
) -> Result<()> {
    let (disks, snapshot) = (&server.replica_disks, server.snapshot());
    let pressed = disks.pressed.borrow();
    for token in plan.partition_tokens(values, options)? {
        for host in server.coordinator.write_replicas(&snapshot, plan.table().id, token) {
            if let Some(pressure) = pressed.get(&host).copied() {
                watch.replica_disk(pressure, disks.notifies(pressure, server.rt.now()))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_told_once_in_half_an_hour_of_each_kind() {
        let disks = ReplicaDisks::default();
        let at = |minutes: u64| Instant::ZERO + Duration::from_secs(minutes * 60);
        let of = |pressure, minutes| disks.notifies(pressure, at(minutes));
        assert!(of(DiskPressure::Stuffed, 0) && !of(DiskPressure::Stuffed, 0));
        assert!(of(DiskPressure::Full, 20) && !of(DiskPressure::Full, 49));
        assert!(!of(DiskPressure::Stuffed, 29) && of(DiskPressure::Stuffed, 30));
        assert!(of(DiskPressure::Full, 50));
    }

    #[test]
    fn who_has_room_again_is_forgotten() {
        let disks = ReplicaDisks::default();
        let host = HostId(stdx::Uuid::from_u128(1));
        for (pressure, is_pressed) in [
            (None, false),
            (Some(DiskPressure::Stuffed), true),
            (Some(DiskPressure::Full), true),
            (None, false),
        ] {
            disks.set(host, pressure);
            assert_eq!(disks.is_pressed(), is_pressed);
        }
    }
}
