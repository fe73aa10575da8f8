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
//! A login that is under way counts like a failure of its address, or of its known pair, until it ends: guesses in
//! parallel have no more free failures than guesses one by one. A login beyond the free ones is queued until one of its
//! address ends, so that an application that opens many connections at once is neither paused nor refused.
//!
//! Roles that do not exist count like others: the slow-down does not reveal them. Failures are forgotten one by one,
//! each after [`FORGET_ONE`]; at most [`BEYOND_FREE_MAX`] beyond the free ones are counted. In a full map the entry that
//! was used least recently makes room (INV-logins-3).

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
/// Failures that are counted beyond the free ones. More change no delay and would only be forgotten later.
pub const BEYOND_FREE_MAX: u32 = 16;
/// Entries of each map.
pub const ENTRIES_MAX: usize = 10_000;

/// Decision about a login before its password is verified.
#[derive(Debug, PartialEq, Eq)]
pub enum Admission {
    /// Verify the password after this time, which may be zero; then call [`Slowdown::ended`].
    After(Duration, Login),
    /// Ask again when a login of this queue has ended: all that may fail for free are under way.
    Queued(LoginQueue),
    /// Refuse it: too many failed logins of this address.
    Refused,
}

/// Logins that wait for the end of the same others: what is decided about one holds for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoginQueue {
    /// A login of a network whose free failures are all under way.
    Address(u64),
    /// A login of a network and a role that has logged in from there before.
    Pair(u64, u64),
}

/// An admitted login; it counts until [`Slowdown::ended`].
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub struct Login {
    network: u64,
    role: u64,
    is_known: bool,
}

impl Login {
    /// Returns true if the role has logged in from this address before.
    pub fn is_known(&self) -> bool {
        self.is_known
    }

    /// Returns the queues whose logins wait for the end of this one: that of its network, that of the pair.
    pub fn queues(&self) -> [LoginQueue; 2] {
        [LoginQueue::Address(self.network), LoginQueue::Pair(self.network, self.role)]
    }

    /// Returns the key of its role, see [`role_key`].
    pub fn role(&self) -> u64 {
        self.role
    }
}

/// End of an admitted login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The password is right.
    Right,
    /// The password is wrong, or there is no such role.
    Wrong,
    /// The password was not verified.
    Unverified,
}

/// Failed logins of a node.
#[derive(Debug, Default)]
pub struct Slowdown {
    addresses: Recent<u64, Failures>,
    roles: Recent<u64, Failures>,
    pairs: Recent<(u64, u64), Pair>,
}

/// Logins of a role from an address where it has succeeded before.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    /// Failures since the last success.
    failed: u32,
    under_way: u32,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    /// Admitted logins that have not ended; of addresses only.
    under_way: u32,
    /// When `count` was right.
    counted_at: Instant,
    /// End of the pauses that were given out.
    busy_until: Instant,
}

impl Failures {
    fn new(now: Instant) -> Failures {
        Failures { count: 0, under_way: 0, counted_at: now, busy_until: now }
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

    /// Returns true if the entry holds nothing.
    fn is_idle(&self, now: Instant) -> bool {
        self.count == 0 && self.under_way == 0 && self.busy_until <= now
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
    /// Returns true if this role has logged in from this address, and has not failed too often since.
    pub fn is_known(&self, address: IpAddr, role: &str) -> bool {
        let pair = (network(address), role_key(role));
        self.pairs.get(&pair).is_some_and(|pair| pair.failed < FREE_OF_PAIR)
    }

    /// Decides about a login of a role from an address.
    pub fn admit(&mut self, now: Instant, address: IpAddr, role: &str) -> Admission {
        let (network, role) = (network(address), role_key(role));
        if let Some(pair) = self.pairs.get_mut(&(network, role))
            && pair.failed < FREE_OF_PAIR
        {
            if pair.failed.saturating_add(pair.under_way) >= FREE_OF_PAIR {
                return Admission::Queued(LoginQueue::Pair(network, role));
            }
            pair.under_way += 1;
            return Admission::After(Duration::ZERO, Login { network, role, is_known: true });
        }
        let of_role = self.roles.get_mut(&role).map_or(Duration::ZERO, |failures| {
            failures.settle(now);
            delay(failures.count, FREE_OF_ROLE, ROLE_DELAY_MAX)
        });
        let known = self.addresses.get(&network).copied();
        let mut failures = known.unwrap_or_else(|| Failures::new(now));
        failures.settle(now);
        let count = failures.count.saturating_add(failures.under_way);
        if count > FREE_OF_ADDRESS && failures.count <= FREE_OF_ADDRESS {
            return Admission::Queued(LoginQueue::Address(network));
        }
        let pause = delay(count, FREE_OF_ADDRESS, ADDRESS_DELAY_MAX);
        let begins = failures.busy_until.max(now) + pause;
        let waits = begins.since(now);
        if waits > ADDRESS_WAIT_MAX {
            return Admission::Refused;
        }
        if !pause.is_zero() {
            failures.busy_until = begins;
        }
        failures.under_way += 1;
        self.addresses.update(network, |_| failures);
        Admission::After(waits.max(of_role), Login { network, role, is_known: false })
    }

    /// Counts the end of an admitted login.
    pub fn ended(&mut self, now: Instant, login: Login, verdict: Verdict) {
        let Login { network, role, is_known } = login;
        // An entry may have been forgotten since.
        if is_known {
            if let Some(pair) = self.pairs.get_mut(&(network, role)) {
                pair.under_way = pair.under_way.saturating_sub(1);
            }
        } else if let Some(failures) = self.addresses.get_mut(&network) {
            failures.under_way = failures.under_way.saturating_sub(1);
        }
        match verdict {
            Verdict::Right => self
                .pairs
                .update((network, role), |pair| Pair { failed: 0, ..pair.unwrap_or_default() }),
            Verdict::Wrong => {
                if let Some(pair) = self.pairs.get_mut(&(network, role)) {
                    pair.failed = pair.failed.saturating_add(1);
                }
                self.addresses.update(network, |known| counted(known, now, FREE_OF_ADDRESS));
                self.roles.update(role, |known| counted(known, now, FREE_OF_ROLE));
            }
            Verdict::Unverified => {}
        }
        if self.addresses.get(&network).is_some_and(|failures| failures.is_idle(now)) {
            self.addresses.remove(&network);
        }
    }

    /// Returns the number of addresses, roles and pairs in memory.
    pub fn entries(&self) -> usize {
        self.addresses.len() + self.roles.len() + self.pairs.len()
    }
}

fn counted(known: Option<Failures>, now: Instant, free: u32) -> Failures {
    let mut failures = known.unwrap_or_else(|| Failures::new(now));
    failures.settle(now);
    failures.count = failures.count.saturating_add(1).min(free + BEYOND_FREE_MAX);
    failures
}

/// Key of the addresses that are counted together: those of one /64 of IPv6 belong to one client.
pub fn network(address: IpAddr) -> u64 {
    let address = match address.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
        v4 @ IpAddr::V4(_) => v4,
    };
    stdx::FixedHasher.hash_one(address)
}

/// Two names with one key are slowed together, which the delays of a role bound.
pub fn role_key(role: &str) -> u64 {
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

    fn remove(&mut self, key: &K) {
        if let Some((age, _)) = self.entries.remove(key) {
            self.by_age.remove(&age);
        }
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

    /// Wait of a login in milliseconds; it ends without a verdict.
    fn wait(slowdown: &mut Slowdown, now: Instant, address: IpAddr, role: &str) -> u64 {
        match slowdown.admit(now, address, role) {
            Admission::After(wait, login) => {
                slowdown.ended(now, login, Verdict::Unverified);
                u64::try_from(wait.as_millis()).unwrap()
            }
            Admission::Queued(_) => panic!("queued"),
            Admission::Refused => u64::MAX,
        }
    }

    fn end(slowdown: &mut Slowdown, now: Instant, address: IpAddr, role: &str, verdict: Verdict) {
        let login = Login { network: network(address), role: role_key(role), is_known: false };
        slowdown.ended(now, login, verdict);
    }

    fn fail(slowdown: &mut Slowdown, now: Instant, address: IpAddr, role: &str) {
        end(slowdown, now, address, role, Verdict::Wrong);
    }

    fn succeed(slowdown: &mut Slowdown, address: IpAddr, role: &str) {
        end(slowdown, START, address, role, Verdict::Right);
    }

    fn admitted(slowdown: &mut Slowdown, now: Instant, address: IpAddr, role: &str) -> Vec<Login> {
        let mut admitted = Vec::new();
        while let Admission::After(Duration::ZERO, login) = slowdown.admit(now, address, role) {
            admitted.push(login);
        }
        admitted
    }

    fn of_address() -> Admission {
        Admission::Queued(LoginQueue::Address(network(ip(1))))
    }

    #[test]
    fn guesses_in_parallel_have_no_more_free_failures_than_guesses_one_by_one() {
        let mut slowdown = Slowdown::default();
        let mut under_way = admitted(&mut slowdown, START, ip(1), "r");
        assert_eq!(under_way.len(), 6);
        assert_eq!(slowdown.admit(START, ip(1), "other"), of_address());
        assert_eq!(wait(&mut slowdown, START, ip(2), "r"), 0);
        // The end of one that is not verified, or is right, makes room for one.
        for verdict in [Verdict::Unverified, Verdict::Right] {
            slowdown.ended(START, under_way.remove(0), verdict);
            under_way.extend(admitted(&mut slowdown, START, ip(1), "other"));
            assert_eq!(under_way.len(), 6);
        }
        // Failures do not; after the last free one the pauses begin.
        for login in under_way {
            assert_eq!(slowdown.admit(START, ip(1), "other"), of_address());
            slowdown.ended(START, login, Verdict::Wrong);
        }
        let mut waits = Vec::new();
        let mut under_way = Vec::new();
        while let Admission::After(wait, login) = slowdown.admit(START, ip(1), "other") {
            waits.push(wait.as_millis());
            under_way.push(login);
        }
        assert_eq!(waits, [100, 300, 700, 1500, 3100, 6300]);
        assert_eq!(slowdown.admit(START, ip(1), "other"), Admission::Refused);
    }

    #[test]
    fn a_known_pair_guesses_in_parallel_as_often_as_one_by_one() {
        let mut slowdown = Slowdown::default();
        succeed(&mut slowdown, ip(1), "app");
        let under_way = admitted(&mut slowdown, START, ip(1), "app");
        assert_eq!(under_way.len(), FREE_OF_PAIR as usize);
        assert!(under_way.iter().all(Login::is_known));
        let pair = LoginQueue::Pair(network(ip(1)), role_key("app"));
        assert_eq!(slowdown.admit(START, ip(1), "app"), Admission::Queued(pair));
        for login in under_way {
            assert!(slowdown.is_known(ip(1), "app"));
            slowdown.ended(START, login, Verdict::Wrong);
        }
        assert!(!slowdown.is_known(ip(1), "app"));
        assert!(wait(&mut slowdown, START, ip(1), "app") > 0);
    }

    #[test]
    fn a_thousand_failures_are_forgotten_as_soon_as_twenty() {
        let mut slowdown = Slowdown::default();
        for _ in 0..1000 {
            fail(&mut slowdown, START, ip(1), "r");
        }
        let periods = FREE_OF_ADDRESS.max(FREE_OF_ROLE) + BEYOND_FREE_MAX;
        assert!(wait(&mut slowdown, START + FORGET_ONE * 15, ip(1), "x") > 0);
        assert_eq!(wait(&mut slowdown, START + FORGET_ONE * periods, ip(1), "r"), 0);
    }

    #[test]
    fn addresses_without_failures_take_no_memory() {
        let mut slowdown = Slowdown::default();
        for n in 0..100 {
            assert_eq!(wait(&mut slowdown, START, ip(n), "r"), 0);
        }
        assert_eq!(slowdown.entries(), 0);
    }

    #[test]
    fn an_address_that_fails_waits_longer_each_time_and_is_refused_at_last() {
        let mut slowdown = Slowdown::default();
        let mut waits = Vec::new();
        for n in 0..14 {
            waits.push(wait(&mut slowdown, START, ip(1), &format!("r{n}")));
            fail(&mut slowdown, START, ip(1), &format!("r{n}"));
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
                fail(&mut slowdown, START, ip(1), "r");
            }
            slowdown
        };
        let later = |periods: u32| START + FORGET_ONE * periods;
        let just_before = Instant(later(1).0 - 1);
        assert_eq!(wait(&mut after_six(), just_before, ip(1), "x"), 100);
        let mut slowdown = after_six();
        assert_eq!(wait(&mut slowdown, later(1), ip(1), "x"), 0);
        fail(&mut slowdown, later(1), ip(1), "r");
        assert_eq!(wait(&mut slowdown, later(1), ip(1), "x"), 100);
        assert_eq!(wait(&mut slowdown, later(100), ip(1), "x"), 0);
    }

    /// INV-logins-2.
    #[test]
    fn strangers_delay_a_role_a_little_and_never_lock_it_out() {
        let mut slowdown = Slowdown::default();
        succeed(&mut slowdown, ip(7), "app");
        let mut longest = 0;
        for stranger in 100..5100 {
            let waits = wait(&mut slowdown, START, ip(stranger), "app");
            assert!(waits <= 1000, "{waits}");
            longest = longest.max(waits);
            fail(&mut slowdown, START, ip(stranger), "app");
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
        succeed(&mut slowdown, ip(1), "app");
        for _ in 0..FREE_OF_PAIR {
            assert_eq!(wait(&mut slowdown, START, ip(1), "app"), 0);
            fail(&mut slowdown, START, ip(1), "app");
        }
        assert!(wait(&mut slowdown, START, ip(1), "app") > 0);
        succeed(&mut slowdown, ip(1), "app");
        assert_eq!(wait(&mut slowdown, START, ip(1), "app"), 0);
        // A known pair does not cover other roles of the address.
        assert!(wait(&mut slowdown, START, ip(1), "admin") > 0);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address_and_so_is_a_mapped_one() {
        let mut slowdown = Slowdown::default();
        let v6 = |text: &str| text.parse::<IpAddr>().unwrap();
        for n in 0..6 {
            fail(&mut slowdown, START, v6(&format!("2001:db8::{n}")), "r");
        }
        assert_eq!(wait(&mut slowdown, START, v6("2001:db8::ffff:1"), "x"), 100);
        assert_eq!(wait(&mut slowdown, START, v6("2001:db8:0:1::1"), "x"), 0);
        for _ in 0..6 {
            fail(&mut slowdown, START, v6("::ffff:0.0.0.9"), "r");
        }
        assert_eq!(wait(&mut slowdown, START, ip(9), "x"), 100);
    }

    /// INV-logins-3.
    #[test]
    fn memory_is_bounded_whatever_is_tried() {
        let mut slowdown = Slowdown::default();
        let tried = u32::try_from(ENTRIES_MAX).unwrap() + 500;
        for n in 0..tried {
            fail(&mut slowdown, START, ip(n), &format!("role {n}"));
            succeed(&mut slowdown, ip(n), "app");
            if n % 100 == 0 {
                // In use all the time: it is not forgotten.
                fail(&mut slowdown, START, ip(0), "victim");
            }
        }
        assert_eq!(slowdown.entries(), 3 * ENTRIES_MAX);
        assert!(wait(&mut slowdown, START, ip(0), "x") > 0);
        assert_eq!(wait(&mut slowdown, START, ip(1), "x"), 0);
    }
}
