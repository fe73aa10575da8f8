//! Nodes of an earlier release, which do not know a verb: they are not asked again for a while.

use std::cell::RefCell;
use std::time::Duration;

use stdx::{FixedMap, HostId, Instant};

/// A node that does not know a verb is not asked again for so long.
const REFUSED_FOR: Duration = Duration::from_secs(60);
/// Nodes that are remembered; above it all are forgotten.
const REFUSED_MAX: usize = 4096;

/// Nodes that do not know a verb, and when that was found.
#[derive(Default)]
pub struct UnsupportedVerb(RefCell<FixedMap<HostId, Instant>>);

impl UnsupportedVerb {
    /// A node does not know the verb.
    pub fn note(&self, host: HostId, now: Instant) {
        let mut refused = self.0.borrow_mut();
        if refused.len() >= REFUSED_MAX {
            refused.clear();
        }
        refused.insert(host, now);
    }

    /// Returns true if a node may be asked.
    pub fn may_ask(&self, host: HostId, now: Instant) -> bool {
        let refused = self.0.borrow();
        refused.get(&host).is_none_or(|since| now.since(*since) >= REFUSED_FOR)
    }
}
