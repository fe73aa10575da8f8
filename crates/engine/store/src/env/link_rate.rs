//! Pace of the hard links that snapshots create and remove (`snapshot_links_per_second`).
//!
//! Owns: when the next link may be made. Never: waits, links.
//! Source: Cassandra's `DatabaseDescriptor.getSnapshotRateLimiter`.

use std::cell::Cell;
use std::time::Duration;

use stdx::Instant;

/// Shards of a node share its rate in equal parts.
pub(crate) struct LinkRate {
    shards: u32,
    /// Between two links of the node; zero: no limit.
    interval: Cell<Duration>,
    /// No link of this shard before.
    next: Cell<Instant>,
}

impl LinkRate {
    pub(crate) fn new(shards: u16, per_second: u64) -> LinkRate {
        let rate = LinkRate {
            shards: u32::from(shards.max(1)),
            interval: Cell::new(Duration::ZERO),
            next: Cell::new(Instant(0)),
        };
        rate.set(per_second);
        rate
    }

    /// Changes the links per second of the node; 0 is no limit.
    pub(crate) fn set(&self, per_second: u64) {
        let nanos = 1_000_000_000_u64.checked_div(per_second).unwrap_or(0);
        self.interval.set(Duration::from_nanos(nanos));
        // A wait under an earlier, lower rate is not kept.
        self.next.set(Instant(0));
    }

    pub(crate) fn is_limited(&self) -> bool {
        !self.interval.get().is_zero()
    }

    /// Takes the next permit of this shard; returns when it is valid, `None`: now. `alone`: the other shards link
    /// nothing meanwhile.
    pub(crate) fn permit(&self, now: Instant, alone: bool) -> Option<Instant> {
        let interval = self.interval.get();
        if interval.is_zero() {
            return None;
        }
        let at = self.next.get().max(now);
        self.next.set(at + interval.saturating_mul(if alone { 1 } else { self.shards }));
        (at > now).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_all_shards_together_keep_the_rate_of_the_node() {
        let rate = LinkRate::new(4, 100);
        let start = Instant(1_000_000_000);
        // Each of 4 shards gets 25 links a second.
        let permits: Vec<Option<Instant>> = (0..4).map(|_| rate.permit(start, false)).collect();
        let after = |millis| Some(start + Duration::from_millis(millis));
        assert_eq!(permits, [None, after(40), after(80), after(120)]);
        // Time that was not used is not made up for.
        let later = start + Duration::from_secs(9);
        assert_eq!(rate.permit(later, true), None);
        assert_eq!(rate.permit(later, true), Some(later + Duration::from_millis(10)));
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let rate = LinkRate::new(1, 1);
        rate.permit(Instant(5), false);
        assert!(rate.is_limited() && rate.permit(Instant(5), false).is_some());
        rate.set(0);
        assert!(!rate.is_limited());
        assert_eq!((rate.permit(Instant(5), false), rate.permit(Instant(5), false)), (None, None));
    }
}
