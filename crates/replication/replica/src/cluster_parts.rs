//! The services of the cluster that a shard uses.
//!
//! Owns: the types that `node` provides. Never: decides anything.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::ClusterSnapshot;
use messaging::Messaging;
use request::WindowSettings;
use stdx::{Epoch, HostId, Instant, WallMicros};

/// Waits until this node has applied an epoch, at most until an instant; returns true if it has.
pub type EpochWait = Rc<dyn Fn(Epoch, Instant) -> Pin<Box<dyn Future<Output = bool>>>>;

/// The services that `node` hands to each shard's coordinator once, when the node becomes part of a
/// cluster.
pub struct ClusterParts {
    /// The way to other nodes; it serves already, or will.
    pub messaging: Messaging,
    /// The metadata in use.
    pub snapshot: Rc<dyn Fn() -> Arc<ClusterSnapshot>>,
    /// Verdicts of the failure detector. Not asked about this node.
    pub is_alive: Rc<dyn Fn(HostId) -> bool>,
    /// Destination of the writes that a replica missed.
    pub hints: Rc<dyn HintSink>,
    /// For requests of peers that know newer metadata; `None`: they are refused at once.
    pub epoch_wait: Option<EpochWait>,
    /// Limits and times.
    pub settings: ReplicationSettings,
}

/// Keeps writes for replicas that missed them.
pub trait HintSink {
    /// Returns true if a hint for the host would be stored: hints are enabled, its hint window has
    /// not passed, and its hints do not fill their space.
    fn may_hint(&self, host: HostId) -> bool;

    /// Stores an encoded mutation for a host, in memory at first. Bounded; false: it could not be
    /// stored, and is counted.
    fn store(&self, host: HostId, mutation: &[u8], written_at: WallMicros) -> bool;

    /// Makes what was stored so far durable; false: it could not be.
    fn flush(&self) -> Pin<Box<dyn Future<Output = bool>>>;
}

/// Hints are off.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHints;

impl HintSink for NoHints {
    fn may_hint(&self, _: HostId) -> bool {
        false
    }

    fn store(&self, _: HostId, _: &[u8], _: WallMicros) -> bool {
        false
    }

    fn flush(&self) -> Pin<Box<dyn Future<Output = bool>>> {
        Box::pin(std::future::ready(true))
    }
}

/// Limits and times of requests to several nodes, per shard. The defaults are Cassandra's where it
/// has them.
#[derive(Clone, Debug)]
pub struct ReplicationSettings {
    /// For writes without a client: replayed batches, hints whose replica has moved.
    pub write_request_timeout: Duration,
    /// Writes that are not finished: answered ones linger until all replicas have answered.
    pub writes_in_flight_max: usize,
    /// Bytes of their mutations, with the bookkeeping of each.
    pub write_bytes_in_flight_max: usize,
    /// Limit of requests in flight to one shard of a replica. Further requests wait, and their
    /// clients with them.
    pub replica_window: WindowSettings,
    /// True if reads prefer replicas that answer quickly.
    pub dynamic_snitch: bool,
    /// Interval at which the order of replicas is recomputed.
    pub dynamic_snitch_update_interval: Duration,
    /// Interval after which measurements are discarded, so that a slow replica is tried again.
    pub dynamic_snitch_reset_interval: Duration,
    /// A nearby replica is preferred until it is so much slower than the best one (1.0: twice as
    /// slow).
    pub dynamic_snitch_badness_threshold: f64,
}

impl Default for ReplicationSettings {
    fn default() -> ReplicationSettings {
        ReplicationSettings {
            write_request_timeout: Duration::from_secs(2),
            writes_in_flight_max: 131_072,
            write_bytes_in_flight_max: 128 << 20,
            replica_window: WindowSettings::default(),
            dynamic_snitch: true,
            dynamic_snitch_update_interval: Duration::from_millis(100),
            dynamic_snitch_reset_interval: Duration::from_secs(600),
            dynamic_snitch_badness_threshold: 1.0,
        }
    }
}
