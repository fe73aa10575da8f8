//! Access of the users of a shard, cached per user and state of the roles.

use cql_plan::auth::{Access, CidrFinding};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use stdx::Epoch;

/// Most users in the cache; beyond it all are computed again.
pub(crate) const USERS_MAX: usize = 10_000;

/// A user's access with a number that no other one of this shard has or had.
pub(crate) struct Numbered {
    pub(crate) number: u64,
    pub(crate) access: Access,
    /// Each check of where it connects from counts one here for each CIDR group.
    pub(crate) cidr_counters: Vec<telemetry::Counter>,
}

/// Numbers of checks where clients connect from.
pub(crate) struct CidrMetrics {
    registry: telemetry::Shard,
    /// Time of the checks whose answer was not cached; nanoseconds.
    pub(crate) checks: telemetry::Histogram,
}

impl CidrMetrics {
    pub(crate) fn new(registry: &telemetry::Shard) -> CidrMetrics {
        let help = "duration of checks of clients' addresses, nanoseconds";
        let checks = registry.histogram("cql_cidr_check_nanos", help, &[]);
        CidrMetrics { registry: registry.clone(), checks }
    }

    /// Returns the counters of the checks with this finding. As in Cassandra, an address in no
    /// group counts as `Undefined`.
    pub(crate) fn counters(
        &self,
        found: &CidrFinding,
        is_accepted: bool,
    ) -> Vec<telemetry::Counter> {
        let counter = |group: &str| {
            let result = if is_accepted { "accepted" } else { "rejected" };
            let labels = [("group", group), ("result", result)];
            self.registry.counter(
                "cql_cidr_accesses_total",
                "checks of clients' addresses",
                &labels,
            )
        };
        match found.groups.as_slice() {
            [] => vec![counter("Undefined")],
            groups => groups.iter().map(|group| counter(group)).collect(),
        }
    }
}

/// A user, and the address where it matters.
type Key = (Option<Rc<str>>, Option<IpAddr>);

/// The users of a shard.
#[derive(Default)]
pub(crate) struct Accesses {
    pub(crate) last: Cell<u64>,
    /// Epoch of the roles that `by_user` was computed from.
    pub(crate) as_of: Cell<Epoch>,
    pub(crate) by_user: RefCell<BTreeMap<Key, Rc<Numbered>>>,
}

impl Numbered {
    pub(crate) fn count_check(&self) {
        self.cidr_counters.iter().for_each(telemetry::Counter::inc);
    }
}
