//! Decides when changed files are reloaded, and when the expiry of a certificate is reported.
//!
//! Owns: decisions. Never: reads files. Contents are compared, not modification times: orchestrators swap links and
//! preserve times.

use core::time::Duration;

use sha2::{Digest, Sha256};
use stdx::Instant;

use crate::material::Source;

/// How long a change must be stable before it is loaded: key and certificate are rarely written at
/// the same time.
pub const QUIET: Duration = Duration::from_secs(1);

/// Days before its expiry at which a certificate is reported.
const NOTICE_DAYS: [i64; 2] = [30, 7];
const DAY_SECONDS: i64 = 86_400;

/// The content of all files of one configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Computes the fingerprint of these sources; their order matters.
    pub fn of<'a>(sources: impl IntoIterator<Item = &'a Source>) -> Fingerprint {
        let mut hash = Sha256::new();
        for source in sources {
            for part in [source.place.as_bytes(), source.bytes.as_slice()] {
                hash.update((part.len() as u64).to_be_bytes());
                hash.update(part);
            }
        }
        Fingerprint(hash.finalize().into())
    }
}

/// Next step for the files that were just read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// They are in use already, or failed to load before.
    Keep,
    /// They changed recently: read them again after [`QUIET`].
    Wait,
    /// They changed and are stable: load them, then call [`Reload::loaded`] or [`Reload::failed`].
    Load,
}

/// Follows the files of one configuration.
#[derive(Clone, Debug)]
pub struct Reload {
    in_use: Fingerprint,
    /// A change that is not stable yet, and when it was first read.
    changing: Option<(Fingerprint, Instant)>,
    /// Content that last failed to load.
    failed: Option<Fingerprint>,
    failures: u64,
    reloads: u64,
}

impl Reload {
    /// Starts with files that were loaded.
    pub fn new(in_use: Fingerprint) -> Reload {
        Reload { in_use, changing: None, failed: None, failures: 0, reloads: 0 }
    }

    /// Decides the next step for files that were read now.
    pub fn observe(&mut self, now: Instant, read: Fingerprint) -> Decision {
        if read == self.in_use {
            self.changing = None;
            self.failed = None;
            return Decision::Keep;
        }
        if self.failed == Some(read) {
            self.changing = None;
            return Decision::Keep;
        }
        match self.changing {
            Some((changing, since)) if changing == read => match now.since(since) >= QUIET {
                true => Decision::Load,
                false => Decision::Wait,
            },
            _ => {
                self.changing = Some((read, now));
                Decision::Wait
            }
        }
    }

    /// Records that the files with this content are in use.
    pub fn loaded(&mut self, read: Fingerprint) {
        self.in_use = read;
        self.changing = None;
        self.failed = None;
        self.reloads += 1;
    }

    /// Records that they cannot be used: the earlier content stays in use, and these are not
    /// retried until they change.
    pub fn failed(&mut self, read: Fingerprint) {
        self.changing = None;
        self.failed = Some(read);
        self.failures += 1;
    }

    /// Number of reloads that succeeded.
    pub fn reloads(&self) -> u64 {
        self.reloads
    }

    /// Number of reloads that failed.
    pub fn failures(&self) -> u64 {
        self.failures
    }
}

/// Reason for an operator to renew a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExpiryNotice {
    /// It expires within this many days.
    Days(i64),
    /// It has expired.
    Expired,
}

/// Reports the expiry of one certificate, each notice once.
#[derive(Clone, Debug, Default)]
pub struct ExpiryWatch {
    not_after: i64,
    reported: Option<ExpiryNotice>,
}

impl ExpiryWatch {
    /// Returns the notice that is due. A certificate with another end of validity starts over.
    pub fn check(&mut self, not_after: i64, now_seconds: i64) -> Option<ExpiryNotice> {
        if self.not_after != not_after {
            *self = ExpiryWatch { not_after, reported: None };
        }
        let left = not_after.saturating_sub(now_seconds);
        let within = |days: &&i64| left <= **days * DAY_SECONDS;
        let due = match NOTICE_DAYS.iter().rev().find(within) {
            _ if left < 0 => ExpiryNotice::Expired,
            Some(days) => ExpiryNotice::Days(*days),
            None => return None,
        };
        (self.reported.replace(due) != Some(due)).then_some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(content: &str) -> Fingerprint {
        Fingerprint::of([&Source { place: "a".to_owned(), bytes: content.as_bytes().to_vec() }])
    }

    fn at(millis: u64) -> Instant {
        Instant(millis * 1_000_000)
    }

    #[test]
    fn a_change_is_loaded_once_it_has_come_to_rest() {
        let mut reload = Reload::new(print("old"));
        assert_eq!(reload.observe(at(0), print("old")), Decision::Keep);
        assert_eq!(reload.observe(at(100), print("half")), Decision::Wait);
        assert_eq!(reload.observe(at(1000), print("new")), Decision::Wait);
        assert_eq!(reload.observe(at(1999), print("new")), Decision::Wait);
        assert_eq!(reload.observe(at(2000), print("new")), Decision::Load);
        reload.loaded(print("new"));
        assert_eq!(reload.observe(at(9000), print("new")), Decision::Keep);
        assert_eq!((reload.reloads(), reload.failures()), (1, 0));
    }

    #[test]
    fn what_failed_is_tried_again_only_when_it_changed() {
        let mut reload = Reload::new(print("old"));
        reload.observe(at(0), print("half"));
        assert_eq!(reload.observe(at(1000), print("half")), Decision::Load);
        reload.failed(print("half"));
        assert_eq!(reload.observe(at(5000), print("half")), Decision::Keep);
        assert_eq!(reload.observe(at(6000), print("whole")), Decision::Wait);
        assert_eq!(reload.observe(at(7000), print("whole")), Decision::Load);
        reload.loaded(print("whole"));
        assert_eq!((reload.reloads(), reload.failures()), (1, 1));
        // The half-written content again is a change again.
        assert_eq!(reload.observe(at(8000), print("half")), Decision::Wait);
    }

    #[test]
    fn a_change_that_is_taken_back_is_forgotten() {
        let mut reload = Reload::new(print("old"));
        reload.observe(at(0), print("new"));
        assert_eq!(reload.observe(at(500), print("old")), Decision::Keep);
        assert_eq!(reload.observe(at(1500), print("new")), Decision::Wait);
    }

    #[test]
    fn the_end_of_validity_is_reported_thirty_and_seven_days_before_and_at_the_end() {
        let mut watch = ExpiryWatch::default();
        let end = 1000 * DAY_SECONDS;
        let mut notices = Vec::new();
        for day in 960..=1001 {
            // Twice a day: each notice comes once.
            for second in [0, 1] {
                if let Some(notice) = watch.check(end, day * DAY_SECONDS + second) {
                    notices.push((day, notice));
                }
            }
        }
        let expected = [
            (970, ExpiryNotice::Days(30)),
            (993, ExpiryNotice::Days(7)),
            (1000, ExpiryNotice::Expired),
        ];
        assert_eq!(notices, expected);
        assert_eq!(watch.check(end + DAY_SECONDS, end), Some(ExpiryNotice::Days(7)));
    }
}
