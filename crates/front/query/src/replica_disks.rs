//! A shard's view of the disks of all nodes, from gossip, and the times of the last warnings to clients.
//! Source: `DiskUsageBroadcaster`.

use cql_plan::guardrails::{DiskPressure, Notice};
use std::cell::{Cell, RefCell};
use std::time::Duration;
use stdx::{FixedMap, HostId, Instant};

/// Between two warnings of one kind, by this shard; `cassandra.disk_usage.notify_interval_ms`.
const NOTIFY_INTERVAL: Duration = Duration::from_secs(30 * 60);

/// A shard's view of the disks of all nodes.
#[derive(Default)]
pub struct ReplicaDisks {
    /// Nodes with fuller disks than they should have; members of the cluster, so that it is bounded.
    pub(crate) pressed: RefCell<FixedMap<HostId, DiskPressure>>,
    warned: Cell<Option<Instant>>,
    refused: Cell<Option<Instant>>,
}

impl ReplicaDisks {
    /// Records a node's report of its disks; `None`: not fuller than they should be.
    pub fn set(&self, host: HostId, pressure: Option<DiskPressure>) {
        let mut pressed = self.pressed.borrow_mut();
        match pressure {
            Some(pressure) => pressed.insert(host, pressure),
            None => pressed.remove(&host),
        };
    }

    pub(crate) fn is_pressed(&self) -> bool {
        !self.pressed.borrow().is_empty()
    }

    /// Decides if a client is notified now.
    pub(crate) fn notice(&self, pressure: DiskPressure, now: Instant) -> Notice {
        let last = match pressure {
            DiskPressure::Stuffed => &self.warned,
            DiskPressure::Full => &self.refused,
        };
        let is_due = last.get().is_none_or(|last| now >= last + NOTIFY_INTERVAL);
        if is_due {
            last.set(Some(now));
        }
        if is_due { Notice::Given } else { Notice::Withheld }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_told_once_in_half_an_hour_of_each_kind() {
        let disks = ReplicaDisks::default();
        let at = |minutes: u64| Instant::ZERO + Duration::from_secs(minutes * 60);
        let of = |pressure, minutes| disks.notice(pressure, at(minutes)) == Notice::Given;
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
