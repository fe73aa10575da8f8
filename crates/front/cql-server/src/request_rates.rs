//! Limits of requests per second: of all clients together, of an address, of a role.
//!
//! The rates are those of the node: its shards share one bucket for each limit. A bucket is one number, the time from
//! which it is full again, so that a request costs one atomic update for each limit that is set. Addresses and roles
//! have their buckets in tables of fixed size. A bucket that is full holds nothing, and another key may take its slot.
//!
//! INV-rates-1: a bucket admits at most its rate at once, and at most its rate per second after that.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use stdx::Instant;

/// One second of the clock of buckets, whose unit is a sixteenth of a nanosecond: intervals at high rates are exact.
const SECOND: u64 = 1_000_000_000 << UNIT_BITS;
const UNIT_BITS: u32 = 4;
/// Buckets of a table. Only keys with requests within the last second hold one.
const SLOTS: usize = 4096;
/// Slots that are searched for a key.
const PROBES: usize = 8;

/// Requests per second that a node admits; `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// Limit of all clients together.
    pub of_all: Option<u32>,
    /// Limit of one client address, or of one /64 network of IPv6.
    pub of_address: Option<u32>,
    /// Limit of the clients that are logged in as one role.
    pub of_role: Option<u32>,
}

impl RateLimits {
    /// Returns true if a rate is limited.
    pub(crate) fn are_on(&self) -> bool {
        *self != RateLimits::default()
    }
}

/// The limit that a request exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exceeded {
    /// [`RateLimits::of_all`].
    All(u32),
    /// [`RateLimits::of_address`].
    Address(u32),
    /// [`RateLimits::of_role`].
    Role(u32),
}

/// Origin of a request.
pub(crate) struct Requester<'a> {
    pub(crate) address: IpAddr,
    pub(crate) role: Option<&'a str>,
}

/// The buckets of a node.
pub(crate) struct RequestRates {
    all: Bucket,
    addresses: Buckets,
    roles: Buckets,
}

impl RequestRates {
    pub(crate) fn new() -> RequestRates {
        RequestRates {
            all: Bucket::default(),
            addresses: Buckets::new(SLOTS),
            roles: Buckets::new(SLOTS),
        }
    }

    /// Counts a request.
    ///
    /// # Errors
    /// The limit that it exceeds. A request above the limit of its address or role does not count for all clients.
    pub(crate) fn admit(
        &self,
        limits: &RateLimits,
        requester: &Requester<'_>,
        now: Instant,
    ) -> Result<(), Exceeded> {
        let now = now.0 << UNIT_BITS;
        if let Some(rate) = limits.of_address
            && !self.addresses.take(address_key(requester.address), now, rate)
        {
            return Err(Exceeded::Address(rate));
        }
        if let (Some(rate), Some(role)) = (limits.of_role, requester.role)
            && !self.roles.take(role_key(role), now, rate)
        {
            return Err(Exceeded::Role(rate));
        }
        match limits.of_all {
            Some(rate) if !self.all.take(now, rate) => Err(Exceeded::All(rate)),
            _ => Ok(()),
        }
    }
}

/// The addresses of one /64 of IPv6 belong to one client. No two other addresses have one key.
fn address_key(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(address) => 1 << 32 | u64::from(address.to_bits()),
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
    }
}

fn role_key(role: &str) -> u64 {
    std::hash::BuildHasher::hash_one(&stdx::FixedHasher, role)
}

/// When a bucket is full again after one more request; `None`: it has no room.
fn after_one_more(full_at: u64, now: u64, rate: u32) -> Option<u64> {
    let interval = (SECOND / u64::from(rate.max(1))).max(1);
    let full_at = full_at.max(now).saturating_add(interval);
    (full_at <= now.saturating_add(SECOND)).then_some(full_at)
}

/// Requests within the last second of one origin.
#[derive(Default)]
struct Bucket {
    full_at: AtomicU64,
}

impl Bucket {
    /// Takes one request out; false if none is left.
    fn take(&self, now: u64, rate: u32) -> bool {
        // Nothing else is published by this number.
        let update = |full_at| after_one_more(full_at, now, rate);
        self.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update).is_ok()
    }

    fn is_full(&self, now: u64) -> bool {
        self.full_at.load(Ordering::Relaxed) <= now
    }
}

/// Buckets by key. While two shards give a new key its slot at the same time, it may have two for a moment.
struct Buckets {
    slots: Box<[Slot]>,
}

#[derive(Default)]
struct Slot {
    key: AtomicU64,
    bucket: Bucket,
}

impl Buckets {
    fn new(slots: usize) -> Buckets {
        Buckets { slots: (0..slots.max(1)).map(|_| Slot::default()).collect() }
    }

    /// Takes one request out of the bucket of a key; true without counting it if all slots for it are in use.
    fn take(&self, key: u64, now: u64, rate: u32) -> bool {
        self.of(key, now).is_none_or(|bucket| bucket.take(now, rate))
    }

    fn of(&self, key: u64, now: u64) -> Option<&Bucket> {
        if let Some(slot) = self.probe(key).find(|slot| slot.key.load(Ordering::Relaxed) == key) {
            return Some(&slot.bucket);
        }
        let is_claimed = |slot: &&Slot| {
            let held = slot.key.load(Ordering::Relaxed);
            slot.bucket.is_full(now)
                && slot
                    .key
                    .compare_exchange(held, key, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
        };
        let claimed = self.probe(key).find(is_claimed).map(|slot| &slot.bucket);
        if claimed.is_none() {
            stdx::reached!("cql-rates-no-slot");
        }
        claimed
    }

    fn probe(&self, key: u64) -> impl Iterator<Item = &Slot> {
        let mixed = std::hash::BuildHasher::hash_one(&stdx::FixedHasher, key);
        let first = usize::try_from(mixed % self.slots.len() as u64).unwrap_or(0);
        self.slots.iter().cycle().skip(first).take(PROBES.min(self.slots.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: u64 = SECOND / 1000;

    /// Admitted requests out of `asked` at that time.
    fn admitted(buckets: &Buckets, key: u64, asked: u32, now: u64) -> usize {
        (0..asked).filter(|_| buckets.take(key, now, 100)).count()
    }

    /// INV-rates-1.
    #[test]
    fn a_rate_is_admitted_at_once_and_per_second_afterwards() {
        let buckets = Buckets::new(SLOTS);
        let start = 7 * SECOND;
        assert_eq!(admitted(&buckets, 1, 200, start), 100);
        assert_eq!(admitted(&buckets, 1, 200, start + 10 * MILLI - 1), 0);
        assert_eq!(admitted(&buckets, 1, 200, start + 10 * MILLI), 1);
        assert_eq!(admitted(&buckets, 1, 200, start + 500 * MILLI), 49);
        assert_eq!(admitted(&buckets, 1, 200, start + 3600 * SECOND), 100);
        for rate in [1, 3, 7, 1000, 999_999, u32::MAX >> 1] {
            let bucket = Bucket::default();
            let asked = rate.min(2000);
            assert!((0..asked).all(|_| bucket.take(start, rate)), "{rate}");
            if asked == rate {
                assert!(!bucket.take(start, rate), "{rate}");
                assert!(bucket.take(start + SECOND, rate), "{rate}");
            }
        }
    }

    #[test]
    fn keys_have_buckets_of_their_own_and_full_ones_make_room() {
        let buckets = Buckets::new(4);
        for key in 1..=4 {
            assert_eq!(admitted(&buckets, key, 200, SECOND), 100, "{key}");
        }
        // No slot is left: the fifth is not limited.
        assert_eq!(admitted(&buckets, 5, 200, SECOND), 200);
        assert_eq!(admitted(&buckets, 5, 200, 2 * SECOND), 100);
        // One of the four lost its slot to the fifth; no slot is left for it.
        let left: Vec<usize> = (1..=4).map(|key| admitted(&buckets, key, 200, SECOND)).collect();
        let of = |count| left.iter().filter(|left| **left == count).count();
        assert_eq!((of(0), of(200)), (3, 1), "{left:?}");
    }

    #[test]
    fn addresses_of_one_network_are_one_client() {
        let key = |address: &str| address_key(address.parse().unwrap());
        assert_eq!(key("2001:db8:1:2::3"), key("2001:db8:1:2:ffff::"));
        assert_ne!(key("2001:db8:1:2::3"), key("2001:db8:1:3::3"));
        assert_ne!(key("10.0.0.1"), key("10.0.0.2"));
        assert_eq!(key("10.0.0.1"), key("::ffff:10.0.0.1"));
    }

    #[test]
    fn the_limit_that_a_request_exceeds_is_named() {
        let rates = RequestRates::new();
        let limits = RateLimits { of_all: Some(4), of_address: Some(2), of_role: Some(3) };
        let ask = |address: &str, role| {
            let requester = Requester { address: address.parse().unwrap(), role };
            rates.admit(&limits, &requester, Instant(0))
        };
        assert_eq!(ask("10.0.0.1", Some("a")), Ok(()));
        assert_eq!(ask("10.0.0.1", Some("a")), Ok(()));
        assert_eq!(ask("10.0.0.1", Some("a")), Err(Exceeded::Address(2)));
        assert_eq!(ask("10.0.0.2", Some("a")), Ok(()));
        assert_eq!(ask("10.0.0.2", Some("a")), Err(Exceeded::Role(3)));
        assert_eq!(ask("10.0.0.3", None), Ok(()));
        assert_eq!(ask("10.0.0.3", None), Err(Exceeded::All(4)));
    }
}
