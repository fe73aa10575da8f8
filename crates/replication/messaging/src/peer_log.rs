//! Log of what peers do repeatedly: each event of each address once, then once a minute with a count.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;
use stdx::Instant;

/// Pause between two lines of one event and address.
const PAUSE: Duration = Duration::from_secs(60);
/// Most addresses and events that are remembered; then all are forgotten.
const ENTRIES_MAX: usize = 1024;

/// Events of peers that concern encryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// It came in the clear where encryption is required.
    Plain,
    /// It came with TLS, which is not configured here.
    Encrypted,
    /// The handshake failed.
    Handshake,
    /// Its certificate is trusted by its chain, but not accepted.
    Certificate,
    /// It does not speak TLS, and `optional` allowed a connection in the clear.
    MadeInTheClear,
    /// Its certificate ends soon.
    EndsSoon,
}

struct Entry {
    logged_at: Instant,
    since: u64,
}

/// When events were logged.
#[derive(Default)]
pub(crate) struct PeerLog(RefCell<BTreeMap<(IpAddr, Event), Entry>>);

impl PeerLog {
    /// Notes an event. Returns the number of those since the last line, this one included, if a
    /// line is due.
    pub(crate) fn note(&self, now: Instant, address: IpAddr, event: Event) -> Option<u64> {
        let mut entries = self.0.borrow_mut();
        if entries.len() >= ENTRIES_MAX && !entries.contains_key(&(address, event)) {
            entries.clear();
        }
        match entries.get_mut(&(address, event)) {
            Some(entry) if now.since(entry.logged_at) < PAUSE => {
                entry.since += 1;
                None
            }
            Some(entry) => {
                entry.logged_at = now;
                Some(std::mem::take(&mut entry.since) + 1)
            }
            None => {
                entries.insert((address, event), Entry { logged_at: now, since: 0 });
                Some(1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000_000)
    }

    #[test]
    fn a_peer_that_is_refused_again_and_again_is_logged_once_a_minute() {
        let log = PeerLog::default();
        let (one, two) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        assert_eq!(log.note(at(0), one, Event::Plain), Some(1));
        assert_eq!(log.note(at(1), one, Event::Plain), None);
        assert_eq!(log.note(at(2), one, Event::Certificate), Some(1));
        assert_eq!(log.note(at(2), two, Event::Plain), Some(1));
        assert_eq!(log.note(at(59), one, Event::Plain), None);
        assert_eq!(log.note(at(60), one, Event::Plain), Some(3));
        assert_eq!(log.note(at(61), one, Event::Plain), None);
    }

    #[test]
    fn many_addresses_take_bounded_memory() {
        let log = PeerLog::default();
        for n in 0..5000u32 {
            assert_eq!(log.note(at(0), IpAddr::from(n.to_be_bytes()), Event::Plain), Some(1));
        }
        assert!(log.0.borrow().len() <= ENTRIES_MAX);
    }
}
