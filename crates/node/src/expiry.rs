//! Removal of expired snapshots, also on a node without peers.

use std::time::Duration;

use rt::{Gate, Group, Rt};
use store::Store;

/// Delay of the first check, and interval of the checks: Cassandra's
/// (`cassandra.snapshot.ttl_cleanup_initial_delay_seconds`, `…_period_seconds`).
const FIRST: Duration = Duration::from_secs(5);
const PERIOD: Duration = Duration::from_secs(60);

/// Removes them in the background. On shard 0 only: snapshots belong to the node.
pub(crate) fn expire_snapshots(rt: &Rt, gate: &Gate, store: &Store) {
    let (own, store) = (rt.clone(), store.clone());
    let task = async move {
        let mut next = own.now() + FIRST;
        while own.timeout(next, own.stop_requested()).await.is_err() {
            match store.lifecycle().clear_expired().await {
                Ok(0) => {}
                Ok(count) => tracing::info!(count, "removed snapshots that have expired"),
                Err(error) => tracing::warn!(%error, "expired snapshots cannot be removed"),
            }
            next = own.now() + PERIOD;
        }
    };
    // A closed gate: the node stops.
    let _ = gate.spawn(rt, Group::Admin, "expire-snapshots", task);
}
