//! Delay of answers to failed logins with tokens and certificates, by address.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// Addresses that are remembered; above it the one that failed the longest ago is forgotten.
const ADDRESSES_MAX: usize = 4096;
/// A failure counts for this long.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// Delay of the answer to the first failure; each further one doubles it.
const DELAY_FIRST: Duration = Duration::from_millis(250);
/// Longest delay.
const DELAY_MAX: Duration = Duration::from_secs(8);

/// Failed logins of the last minute with tokens and certificates. Passwords do not count here: the shard that verifies
/// them delays those that fail, of CQL clients and of the API together. Only answers to failures are delayed, so that a client with the right credentials
/// is not locked out by another one with the same address.
#[derive(Clone, Debug)]
pub struct FailedLogins {
    by_address: BTreeMap<IpAddr, Failures>,
    delay_first: Duration,
}

impl Default for FailedLogins {
    fn default() -> FailedLogins {
        FailedLogins::delayed_by(DELAY_FIRST)
    }
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    last: Duration,
}

impl FailedLogins {
    /// No failures; the first one is delayed by this time.
    pub fn delayed_by(delay_first: Duration) -> FailedLogins {
        FailedLogins { by_address: BTreeMap::new(), delay_first }
    }

    /// Counts a failure; returns the delay of its answer. `now` is the time since the start.
    pub fn count(&mut self, address: IpAddr, now: Duration) -> Duration {
        let address = network(address);
        let is_new = !self.by_address.contains_key(&address);
        if is_new && self.by_address.len() >= ADDRESSES_MAX {
            let oldest = self.by_address.iter().min_by_key(|(_, f)| f.last).map(|(a, _)| *a);
            oldest.and_then(|oldest| self.by_address.remove(&oldest));
        }
        let failures = self.by_address.entry(address).or_insert(Failures { count: 0, last: now });
        if now.saturating_sub(failures.last) >= FORGOTTEN_AFTER {
            failures.count = 0;
        }
        failures.count = failures.count.saturating_add(1);
        failures.last = now;
        let doublings = (failures.count - 1).min(16);
        self.delay_first.saturating_mul(1 << doublings).min(DELAY_MAX)
    }
}

/// The network that one client usually has: an IPv4 address, or the /64 of an IPv6 address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_of_an_address_doubles_the_delay_until_it_is_quiet() {
        let mut failed = FailedLogins::default();
        let one: IpAddr = "10.0.0.1".parse().unwrap();
        let at = Duration::from_secs;
        let delays: Vec<u128> = (0..8).map(|s| failed.count(one, at(s)).as_millis()).collect();
        assert_eq!(delays, [250, 500, 1000, 2000, 4000, 8000, 8000, 8000]);
        assert_eq!(failed.count("10.0.0.2".parse().unwrap(), at(8)).as_millis(), 250);
        assert_eq!(failed.count("::ffff:10.0.0.1".parse().unwrap(), at(8)).as_millis(), 8000);
        assert_eq!(failed.count(one, at(67)).as_millis(), 8000);
        assert_eq!(failed.count(one, at(127)).as_millis(), 250);
        // One client has a whole /64.
        let of = |failed: &mut FailedLogins, text: &str| {
            failed.count(text.parse().unwrap(), at(200)).as_millis()
        };
        assert_eq!(of(&mut failed, "2001:db8::1"), 250);
        assert_eq!(of(&mut failed, "2001:db8::2"), 500);
        assert_eq!(of(&mut failed, "2001:db8:0:1::2"), 250);
    }

    /// INV-scope-3.
    #[test]
    fn the_memory_of_addresses_is_bounded() {
        let mut failed = FailedLogins::default();
        for n in 0..2 * u32::try_from(ADDRESSES_MAX).unwrap() {
            failed.count(IpAddr::from(n.to_be_bytes()), Duration::from_millis(u64::from(n)));
        }
        assert_eq!(failed.by_address.len(), ADDRESSES_MAX);
        // The newest ones are kept.
        let newest = IpAddr::from((2 * u32::try_from(ADDRESSES_MAX).unwrap() - 1).to_be_bytes());
        assert_eq!(failed.count(newest, Duration::from_secs(9)).as_millis(), 500);
    }
}
