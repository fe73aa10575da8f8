//! Clock offsets of peers, measured with each ping, and the decision whose clock is wrong.
//!
//! A node whose clock is wrong by a minute or more cannot take part in lightweight transactions. It
//! gives plain writes without a client timestamp times that shadow those of others. The majority
//! decides which clock is wrong: [`judge`].

use crate::env::Env;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;
use stdx::{HostId, Instant, WallMicros};
use telemetry::Gauge;

/// Clocks that are this far apart are not those of one cluster.
pub const CLOCK_OFFSET_MAX: Duration = Duration::from_secs(30);
/// Measurements with a longer round trip are too inaccurate.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(5);
/// A measurement that is older does not count.
const FRESH: Duration = Duration::from_secs(10);

/// Nodes whose clock is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClockVerdict {
    /// This node's clock is wrong by so many microseconds (ahead of the others, if positive).
    Own(i64),
    /// Clocks of these peers are wrong, each with its offset; empty: all clocks agree.
    Peers(Vec<(HostId, i64)>),
}

/// Decides whose clock is wrong. `ahead`: how far each peer is ahead of this node, microseconds.
/// This node's clock is wrong if more peers agree with each other than with it. Two nodes cannot
/// decide it: each treats the other's clock as wrong.
pub fn judge(ahead: &[(HostId, i64)]) -> ClockVerdict {
    let max = i64::try_from(CLOCK_OFFSET_MAX.as_micros()).unwrap_or(i64::MAX);
    let near = |a: i64, b: i64| a.saturating_sub(b).unsigned_abs() <= max.unsigned_abs();
    // This node and those that agree with it.
    let mine = 1 + ahead.iter().filter(|(_, at)| near(*at, 0)).count();
    let around = |at: i64| ahead.iter().filter(|(_, other)| near(at, *other)).count();
    let most = ahead.iter().map(|(_, at)| (around(*at), *at)).max_by_key(|(count, _)| *count);
    if let Some((count, at)) = most
        && count > mine
    {
        return ClockVerdict::Own(at.saturating_neg());
    }
    ClockVerdict::Peers(ahead.iter().filter(|(_, at)| !near(*at, 0)).copied().collect())
}

struct Measured {
    ahead_micros: i64,
    at: Instant,
    gauge: Gauge,
}

/// Latest measurements.
#[derive(Default)]
pub(crate) struct Clocks {
    by_host: RefCell<BTreeMap<HostId, Measured>>,
}

impl Clocks {
    pub(crate) fn forget(&self, host: HostId) {
        self.by_host.borrow_mut().remove(&host);
    }

    /// Returns the recently measured offsets of peers' clocks from this node's, by host id.
    pub(crate) fn fresh(&self, now: Instant) -> Vec<(HostId, i64)> {
        let by_host = self.by_host.borrow();
        let fresh = by_host.iter().filter(|(_, measured)| now.since(measured.at) <= FRESH);
        fresh.map(|(host, measured)| (*host, measured.ahead_micros)).collect()
    }

    /// Notes that a peer's clock showed `wall` in an answer after `round_trip`. Returns false if
    /// the measurement is too inaccurate.
    pub(crate) fn note(
        &self,
        env: &Env,
        host: HostId,
        wall: WallMicros,
        round_trip: Duration,
    ) -> bool {
        if round_trip > ROUND_TRIP_MAX {
            return false;
        }
        let on_the_way = i64::try_from(round_trip.as_micros() / 2).unwrap_or(0);
        let ahead_micros = wall.0.saturating_add(on_the_way).saturating_sub(env.rt.wall().0);
        let at = env.rt.now();
        {
            let mut by_host = self.by_host.borrow_mut();
            let measured = by_host.entry(host).or_insert_with(|| {
                let peer = host.to_string();
                let help = "how far the wall clock of a peer is ahead of this node's";
                let labels = [("peer", peer.as_str())];
                let gauge = env.rt.telemetry().gauge("internode_clock_ahead_micros", help, &labels);
                Measured { ahead_micros, at, gauge }
            });
            (measured.ahead_micros, measured.at) = (ahead_micros, at);
            measured.gauge.set(ahead_micros);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::Uuid;

    const HOUR: i64 = 3_600_000_000;

    fn check(ahead: &[i64], expected: ClockVerdict) {
        let host = |n: usize| HostId(Uuid::from_u128(n as u128));
        let ahead: Vec<_> = ahead.iter().enumerate().map(|(n, at)| (host(n), *at)).collect();
        assert_eq!(judge(&ahead), expected);
    }

    fn peers(list: &[(usize, i64)]) -> ClockVerdict {
        let host = |n: usize| HostId(Uuid::from_u128(n as u128));
        ClockVerdict::Peers(list.iter().map(|(n, at)| (host(*n), *at)).collect())
    }

    #[test]
    fn the_clock_that_differs_from_those_of_the_majority_is_wrong() {
        check(&[], peers(&[]));
        check(&[1000, -29_000_000], peers(&[]));
        check(&[1000, HOUR], peers(&[(1, HOUR)]));
        check(&[-HOUR, 0, 5], peers(&[(0, -HOUR)]));
        check(&[-HOUR, -HOUR + 10], ClockVerdict::Own(HOUR - 10));
        check(&[HOUR, HOUR], ClockVerdict::Own(-HOUR));
        // Two others that do not agree either: undecidable.
        check(&[HOUR, -HOUR], peers(&[(0, HOUR), (1, -HOUR)]));
        check(&[HOUR], peers(&[(0, HOUR)]));
        check(&[0, HOUR, HOUR], peers(&[(1, HOUR), (2, HOUR)]));
        check(&[0, HOUR, HOUR, HOUR], ClockVerdict::Own(-HOUR));
        check(&[i64::MIN, i64::MAX], peers(&[(0, i64::MIN), (1, i64::MAX)]));
    }
}
