//! Slow-down of failed logins: a pure machine over time, addresses and role names.
//!
//! Three things are counted, each in a map of bounded size:
//! - **failures of an address** (of a /64 of IPv6). After [`FREE_OF_ADDRESS`] failures its logins are served one after
//!   the other with a growing pause between them; what would wait longer than [`ADDRESS_WAIT_MAX`] is refused.
//! - **failures of a role** from all addresses. After [`FREE_OF_ROLE`] failures each login of the role waits a growing
//!   time, at most [`ROLE_DELAY_MAX`]; it is never refused, so strangers cannot lock a role out.
//! - **known pairs**: a role that has logged in from an address waits for neither, until it has failed
//!   [`FREE_OF_PAIR`] times from there without success. An application that reconnects is not slowed by an attack on
//!   its role, nor by one from the same address.
//!
//! Roles that do not exist count like others: the slow-down does not reveal them. Failures are forgotten one by one,
//! each after [`FORGET_ONE`]. In a full map the entry that was used least recently makes room (INV-logins-3).

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use stdx::{FixedMap, Instant};

/// Failures of an address without a pause.
pub const FREE_OF_ADDRESS: u32 = 5;
/// Failures of a role without a delay.
pub const FREE_OF_ROLE: u32 = 10;
/// Failures of a known pair until it counts as unknown.
pub const FREE_OF_PAIR: u32 = 10;
/// Pause after the first failure that is not free; doubles with each further one.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// Longest pause between two logins of an address.
const ADDRESS_DELAY_MAX: Duration = Duration::from_secs(5);
/// A login of an address that would wait longer is refused.
pub const ADDRESS_WAIT_MAX: Duration = Duration::from_secs(10);
/// Longest delay of a login because of failures of its role.
pub const ROLE_DELAY_MAX: Duration = Duration::from_secs(1);
/// Time after which one failure is forgotten.
pub const FORGET_ONE: Duration = Duration::from_secs(30);
/// Entries of each map.
pub const ENTRIES_MAX: usize = 10_000;

/// Decision about a login before its password is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Verify the password after this time, which may be zero.
    After(Duration),
    /// Refuse it: too many failed logins of this address.
    Refused,
}

/// Failed logins of a node.
#[derive(Debug, Default)]
pub struct Slowdown {
    addresses: Recent<u64, Failures>,
    roles: Recent<u64, Failures>,
    pairs: Recent<(u64, u64), u32>,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    /// When `count` was right.
    counted_at: Instant,
    /// End of the pauses that were given out.
    busy_until: Instant,
}

impl Failures {
    fn new(now: Instant) -> Failures {
        Failures { count: 0, counted_at: now, busy_until: now }
    }

    /// Forgets what is old.
    fn settle(&mut self, now: Instant) {
        let periods = now.since(self.counted_at).as_secs() / FORGET_ONE.as_secs();
        let periods = u32::try_from(periods).unwrap_or(u32::MAX);
        if periods > 0 {
            self.count = self.count.saturating_sub(periods);
            self.counted_at = self.counted_at + FORGET_ONE * periods;
        }
    }
}

/// Delay after this many failures of which some are free.
fn delay(count: u32, free: u32, max: Duration) -> Duration {
    match count.checked_sub(free) {
        None | Some(0) => Duration::ZERO,
        Some(more) => FIRST_DELAY.saturating_mul(1 << (more - 1).min(16)).min(max),
    }
}

impl Slowdown {
    /// Decides about a login of a role from an address.
    pub fn admit(&mut self, now: Instant, address: IpAddr, role: &str) -> Admission {
        let (address, role) = (address_key(address), role_key(role));
        if self.pairs.get(&(address, role)).is_some_and(|failed| *failed < FREE_OF_PAIR) {
            return Admission::After(Duration::ZERO);
        }
        let of_role = self.roles.get_mut(&role).map_or(Duration::ZERO, |failures| {
            failures.settle(now);
            delay(failures.count, FREE_OF_ROLE, ROLE_DELAY_MAX)
        });
        let Some(failures) = self.addresses.get_mut(&address) else {
            return Admission::After(of_role);
        };
        failures.settle(now);
        let pause = delay(failures.count, FREE_OF_ADDRESS, ADDRESS_DELAY_MAX);
        let begins = failures.busy_until.max(now) + pause;
        let waits = begins.since(now);
        if waits > ADDRESS_WAIT_MAX {
            return Admission::Refused;
        }
        if !pause.is_zero() {
            failures.busy_until = begins;
        }
        Admission::After(waits.max(of_role))
    }

    /// Counts a failed login.
    pub fn failed(&mut self, now: Instant, address: IpAddr, role: &str) {
        let (address, role) = (address_key(address), role_key(role));
        if let Some(failed) = self.pairs.get_mut(&(address, role)) {
            *failed = failed.saturating_add(1);
        }
        self.addresses.update(address, |known| counted(known, now));
        self.roles.update(role, |known| counted(known, now));
    }

    /// Records a successful login.
    pub fn succeeded(&mut self, address: IpAddr, role: &str) {
        self.pairs.update((address_key(address), role_key(role)), |_| 0);
    }

    /// Returns the number of addresses, roles and pairs in memory.
    pub fn entries(&self) -> usize {
        self.addresses.len() + self.roles.len() + self.pairs.len()
    }
}

fn counted(known: Option<Failures>, now: Instant) -> Failures {
    let mut failures = known.unwrap_or_else(|| Failures::new(now));
    failures.settle(now);
    failures.count = failures.count.saturating_add(1);
    failures
}

/// Addresses of one network of IPv6 belong to one client.
fn address_key(address: IpAddr) -> u64 {
    let address = match address.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
        v4 @ IpAddr::V4(_) => v4,
    };
    stdx::FixedHasher.hash_one(address)
}

/// Two names with one key are slowed together, which the delays of a role bound.
fn role_key(role: &str) -> u64 {
    stdx::FixedHasher.hash_one(role)
}

/// A map of at most [`ENTRIES_MAX`] entries that forgets the one that was written least recently.
#[derive(Debug)]
struct Recent<K, V> {
    entries: FixedMap<K, (u64, V)>,
    by_age: BTreeMap<u64, K>,
    next: u64,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Recent { entries: FixedMap::default(), by_age: BTreeMap::new(), next: 0 }
    }
}

impl<K: Copy + Eq + std::hash::Hash, V: Copy> Recent<K, V> {
    fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }

    fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key).map(|(_, value)| value)
    }

    fn update(&mut self, key: K, change: impl FnOnce(Option<V>) -> V) {
        let old = self.entries.get(&key).copied();
        if let Some((age, _)) = old {
            self.by_age.remove(&age);
        } else if self.entries.len() >= ENTRIES_MAX
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.entries.remove(&oldest);
        }
        self.entries.insert(key, (self.next, change(old.map(|(_, value)| value))));
        self.by_age.insert(self.next, key);
        self.next += 1;
    }

    fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant(1_000_000_000);

    fn ip(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    fn wait(slowdown: &mut Slowdown, now: Instant, address: IpAddr, role: &str) -> u64 {
        match slowdown.admit(now, address, role) {
            Admission::After(wait) => u64::try_from(wait.as_millis()).unwrap(),
            Admission::Refused => u64::MAX,
        }
    }

    #[test]
    fn an_address_that_fails_waits_longer_each_time_and_is_refused_at_last() {
        let mut slowdown = Slowdown::default();
        let mut waits = Vec::new();
        for n in 0..14 {
            waits.push(wait(&mut slowdown, START, ip(1), &format!("r{n}")));
            slowdown.failed(START, ip(1), &format!("r{n}"));
        }
        // The pauses are served one after the other: 100, 200, 400, … on top of each other.
        let expected = [0, 0, 0, 0, 0, 0, 100, 300, 700, 1500, 3100, 6300, u64::MAX, u64::MAX];
        assert_eq!(waits, expected);
        // Another address is not concerned.
        assert_eq!(wait(&mut slowdown, START, ip(2), "r0"), 0);
    }

    #[test]
    fn failures_are_forgotten_one_by_one() {
        // A login that waits moves the turn of the next one: each check has its own machine.
        let after_six = || {
            let mut slowdown = Slowdown::default();
            for _ in 0..6 {
                slowdown.failed(START, ip(1), "r");
            }
            slowdown
        };
        let later = |periods: u32| START + FORGET_ONE * periods;
        let just_before = Instant(later(1).0 - 1);
        assert_eq!(wait(&mut after_six(), just_before, ip(1), "x"), 100);
        let mut slowdown = after_six();
        assert_eq!(wait(&mut slowdown, later(1), ip(1), "x"), 0);
        slowdown.failed(later(1), ip(1), "r");
        assert_eq!(wait(&mut slowdown, later(1), ip(1), "x"), 100);
        assert_eq!(wait(&mut slowdown, later(100), ip(1), "x"), 0);
    }

    /// INV-logins-2.
    #[test]
    fn strangers_delay_a_role_a_little_and_never_lock_it_out() {
        let mut slowdown = Slowdown::default();
        slowdown.succeeded(ip(7), "app");
        let mut longest = 0;
        for stranger in 100..5100 {
            let waits = wait(&mut slowdown, START, ip(stranger), "app");
            assert!(waits <= 1000, "{waits}");
            longest = longest.max(waits);
            slowdown.failed(START, ip(stranger), "app");
        }
        assert_eq!(longest, 1000);
        // From where it logged in before it does not wait at all, from elsewhere the bounded time.
        assert_eq!(wait(&mut slowdown, START, ip(7), "app"), 0);
        assert_eq!(wait(&mut slowdown, START, ip(8), "app"), 1000);
        assert_eq!(wait(&mut slowdown, START, ip(8), "other"), 0);
    }

    #[test]
    fn a_known_pair_that_keeps_failing_counts_as_unknown_until_it_succeeds() {
        let mut slowdown = Slowdown::default();
        slowdown.succeeded(ip(1), "app");
        for _ in 0..FREE_OF_PAIR {
            assert_eq!(wait(&mut slowdown, START, ip(1), "app"), 0);
            slowdown.failed(START, ip(1), "app");
        }
        assert!(wait(&mut slowdown, START, ip(1), "app") > 0);
        slowdown.succeeded(ip(1), "app");
        assert_eq!(wait(&mut slowdown, START, ip(1), "app"), 0);
        // A known pair does not cover other roles of the address.
        assert!(wait(&mut slowdown, START, ip(1), "admin") > 0);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address_and_so_is_a_mapped_one() {
        let mut slowdown = Slowdown::default();
        let v6 = |text: &str| text.parse::<IpAddr>().unwrap();
        for n in 0..6 {
            slowdown.failed(START, v6(&format!("2001:db8::{n}")), "r");
        }
        assert_eq!(wait(&mut slowdown, START, v6("2001:db8::ffff:1"), "x"), 100);
        assert_eq!(wait(&mut slowdown, START, v6("2001:db8:0:1::1"), "x"), 0);
        for _ in 0..6 {
            slowdown.failed(START, v6("::ffff:0.0.0.9"), "r");
        }
        assert_eq!(wait(&mut slowdown, START, ip(9), "x"), 100);
    }

    /// INV-logins-3.
    #[test]
    fn memory_is_bounded_whatever_is_tried() {
        let mut slowdown = Slowdown::default();
        let tried = u32::try_from(ENTRIES_MAX).unwrap() + 500;
        for n in 0..tried {
            slowdown.failed(START, ip(n), &format!("role {n}"));
            slowdown.succeeded(ip(n), "app");
            if n % 100 == 0 {
                // In use all the time: it is not forgotten.
                slowdown.failed(START, ip(0), "victim");
            }
        }
        assert_eq!(slowdown.entries(), 3 * ENTRIES_MAX);
        assert!(wait(&mut slowdown, START, ip(0), "x") > 0);
        assert_eq!(wait(&mut slowdown, START, ip(1), "x"), 0);
    }
}
