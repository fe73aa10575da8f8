//! Log of failed logins: one line per client network and minute, with the number of failures since the last one.
//!
//! Never: decides about a login. On shard 0, which verifies the passwords of all shards.

use logins::slowdown;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;
use stdx::Instant;

/// Pause between two lines about one network.
const PAUSE: Duration = Duration::from_secs(60);
/// Most networks that are remembered; then all are forgotten.
const NETWORKS_MAX: usize = 1024;
/// Characters of a role's name that are logged: the client chose them.
const ROLE_CHARS_MAX: usize = 64;

struct Entry {
    logged_at: Instant,
    since: u64,
}

/// When failed logins were logged, by network as [`slowdown::network`] numbers them.
#[derive(Default)]
pub(crate) struct LoginLog(RefCell<BTreeMap<u64, Entry>>);

impl LoginLog {
    /// Logs a login with a wrong role or password, if a line about its network is due.
    pub(crate) fn failed(&self, now: Instant, address: IpAddr, role: &str) {
        let Some(failures) = self.note(now, slowdown::network(address)) else { return };
        let role: String = role.chars().take(ROLE_CHARS_MAX).collect();
        tracing::info!(role, %address, failures, "login failed: wrong role or password");
    }

    /// Returns the number of failures since the last line, this one included, if a line is due.
    fn note(&self, now: Instant, network: u64) -> Option<u64> {
        let mut entries = self.0.borrow_mut();
        if entries.len() >= NETWORKS_MAX && !entries.contains_key(&network) {
            entries.clear();
        }
        match entries.get_mut(&network) {
            Some(entry) if now.since(entry.logged_at) < PAUSE => {
                entry.since = entry.since.saturating_add(1);
                None
            }
            Some(entry) => {
                entry.logged_at = now;
                Some(std::mem::take(&mut entry.since).saturating_add(1))
            }
            None => {
                entries.insert(network, Entry { logged_at: now, since: 0 });
                Some(1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_one_network_are_logged_once_a_minute_with_their_number() {
        let at = |seconds: u64| Instant(seconds * 1_000_000_000);
        let log = LoginLog::default();
        assert_eq!(log.note(at(0), 1), Some(1));
        assert_eq!(log.note(at(1), 1), None);
        assert_eq!(log.note(at(59), 1), None);
        assert_eq!(log.note(at(59), 2), Some(1));
        assert_eq!(log.note(at(60), 1), Some(3));
        assert_eq!(log.note(at(61), 1), None);
    }

    #[test]
    fn networks_without_number_are_forgotten_and_not_kept() {
        let log = LoginLog::default();
        for network in 0..5 * NETWORKS_MAX as u64 {
            assert_eq!(log.note(Instant(0), network), Some(1));
            assert!(log.0.borrow().len() <= NETWORKS_MAX);
        }
    }
}
