//! Authentication of clients: SASL PLAIN against the roles of the cluster snapshot.
//!
//! Owns: the decoding of credentials, with Cassandra's error messages, and the cache of verified
//! passwords. Never stores a password: the cache holds an MD5 of it with the stored hash, which is
//! worthless without the process's random salt.

use md5::{Digest, Md5};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::Duration;
use stdx::{FixedMap, Instant};

/// The class name that AUTHENTICATE carries; drivers compare it.
pub(crate) const AUTHENTICATOR: &str = "org.apache.cassandra.auth.PasswordAuthenticator";

/// The same where clients without a certificate send a password.
pub(crate) const FALLBACK_AUTHENTICATOR: &str =
    "org.apache.cassandra.auth.MutualTlsWithPasswordFallbackAuthenticator";

/// Longest SASL token. Many logins may wait, before anything is known about their clients.
const TOKEN_BYTES_MAX: usize = 4096;

/// Credentials that a client sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) user: String,
    pub(crate) password: String,
}

/// Decodes a SASL PLAIN token: `[authorisation id] NUL user NUL password`.
///
/// # Errors
/// Cassandra's message, to be sent as bad credentials.
pub(crate) fn decode_plain(token: &[u8]) -> Result<Credentials, String> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(format!("Credentials are longer than {TOKEN_BYTES_MAX} bytes"));
    }
    let mut parts = token.rsplit(|b| *b == 0);
    let password = parts.next().unwrap_or_default();
    let user = parts.next();
    let authorisation = parts.next();
    if parts.next().is_some() {
        return Err("Credential format error: username or password is empty or contains NUL(\\0) \
                    character"
            .to_owned());
    }
    // Without two NULs there is no user in front of the password.
    let user = authorisation.and(user);
    if password.is_empty() || !token.contains(&0) {
        return Err("Password must not be null".to_owned());
    }
    match user {
        Some(user) if !user.is_empty() => Ok(Credentials {
            user: String::from_utf8_lossy(user).into_owned(),
            password: String::from_utf8_lossy(password).into_owned(),
        }),
        _ => Err("Authentication ID must not be null".to_owned()),
    }
}

/// Error message of a failed login.
pub(crate) fn incorrect(user: &str) -> String {
    format!("Provided username {user} and/or password are incorrect")
}

/// Cache of recently verified passwords.
pub(crate) struct CredentialsCache {
    salt: [u8; 16],
    validity: Cell<Duration>,
    /// A full cache is emptied, which costs some hashing.
    entries_max: Cell<usize>,
    entries: RefCell<FixedMap<[u8; 16], Verified>>,
}

/// Time and user of a password verification.
struct Verified {
    at: Instant,
    user: String,
}

impl CredentialsCache {
    pub(crate) fn new(salt: [u8; 16], validity: Duration, entries_max: usize) -> CredentialsCache {
        CredentialsCache {
            salt,
            validity: Cell::new(validity),
            entries_max: Cell::new(entries_max),
            entries: RefCell::default(),
        }
    }

    /// Changes how long a password counts as verified; applies to cached ones too.
    pub(crate) fn set_validity(&self, validity: Duration) {
        self.validity.set(validity);
    }

    /// Changes how many passwords are cached at most.
    pub(crate) fn set_entries_max(&self, entries_max: usize) {
        self.entries_max.set(entries_max);
        if self.entries.borrow().len() > entries_max {
            self.entries.borrow_mut().clear();
        }
    }

    fn key(&self, credentials: &Credentials, hash: &str) -> [u8; 16] {
        Md5::new()
            .chain_update(self.salt)
            .chain_update((credentials.user.len() as u64).to_le_bytes())
            .chain_update(&credentials.user)
            .chain_update((hash.len() as u64).to_le_bytes())
            .chain_update(hash)
            .chain_update(&credentials.password)
            .finalize()
            .into()
    }

    /// Returns true if this password was recently verified against this stored hash.
    pub(crate) fn knows(&self, credentials: &Credentials, hash: &str, now: Instant) -> bool {
        let entries = self.entries.borrow();
        entries
            .get(&self.key(credentials, hash))
            .is_some_and(|verified| now.since(verified.at) < self.validity.get())
    }

    /// Caches the credentials as verified.
    pub(crate) fn remember(&self, credentials: &Credentials, hash: &str, now: Instant) {
        let mut entries = self.entries.borrow_mut();
        if entries.len() >= self.entries_max.get() {
            entries.clear();
        }
        if self.entries_max.get() == 0 {
            return;
        }
        let verified = Verified { at: now, user: credentials.user.clone() };
        entries.insert(self.key(credentials, hash), verified);
    }

    /// Returns the users whose passwords need no verification at the next login, in order.
    pub(crate) fn users(&self, now: Instant) -> BTreeSet<String> {
        let entries = self.entries.borrow();
        let valid =
            entries.values().filter(|verified| now.since(verified.at) < self.validity.get());
        valid.map(|verified| verified.user.clone()).collect()
    }

    /// Removes the verified passwords of one user or of all. Returns true if one was still valid.
    pub(crate) fn forget(&self, user: Option<&str>, now: Instant) -> bool {
        let mut found = false;
        self.entries.borrow_mut().retain(|_, verified| {
            let is_meant = user.is_none_or(|user| verified.user == user);
            found |= is_meant && now.since(verified.at) < self.validity.get();
            !is_meant
        });
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(token: &[u8]) -> Result<(String, String), String> {
        decode_plain(token).map(|c| (c.user, c.password))
    }

    #[test]
    fn plain_tokens_are_taken_apart_as_cassandra_does() {
        assert_eq!(plain(b"\0me\0secret"), Ok(("me".into(), "secret".into())));
        assert_eq!(plain(b"other\0me\0secret"), Ok(("me".into(), "secret".into())));
        let null_password = Err("Password must not be null".to_owned());
        assert_eq!(plain(b""), null_password);
        assert_eq!(plain(b"me"), null_password);
        assert_eq!(plain(b"\0me\0"), null_password);
        let null_user = Err("Authentication ID must not be null".to_owned());
        assert_eq!(plain(b"\0\0secret"), null_user);
        assert_eq!(plain(b"me\0secret"), null_user);
        assert!(plain(b"\0me\0se\0cret").unwrap_err().contains("contains NUL"));
        let long = |bytes: usize| [b"\0me\0".as_slice(), &vec![b'x'; bytes - 4]].concat();
        assert!(plain(&long(4096)).is_ok());
        assert_eq!(plain(&long(4097)).unwrap_err(), "Credentials are longer than 4096 bytes");
    }

    #[test]
    fn a_verified_password_is_known_until_it_expires_or_the_hash_changes() {
        let cache = CredentialsCache::new([7; 16], Duration::from_secs(2), 1000);
        let me = Credentials { user: "me".into(), password: "secret".into() };
        let start = Instant(0);
        assert!(!cache.knows(&me, "hash", start));
        cache.remember(&me, "hash", start);
        assert!(cache.knows(&me, "hash", start + Duration::from_millis(1999)));
        assert!(!cache.knows(&me, "hash", start + Duration::from_secs(2)));
        assert!(!cache.knows(&me, "other hash", start));
        let wrong = Credentials { password: "Secret".into(), ..me };
        assert!(!cache.knows(&wrong, "hash", start));
    }

    #[test]
    fn what_is_changed_while_it_runs_counts_for_remembered_passwords_too() {
        let cache = CredentialsCache::new([7; 16], Duration::from_secs(2), 1000);
        let me = Credentials { user: "me".into(), password: "secret".into() };
        let later = Instant(0) + Duration::from_secs(5);
        cache.remember(&me, "hash", Instant(0));
        assert!(!cache.knows(&me, "hash", later));
        cache.set_validity(Duration::from_secs(10));
        assert!(cache.knows(&me, "hash", later));
        cache.set_entries_max(1);
        assert!(cache.knows(&me, "hash", later));
        cache.set_entries_max(0);
        assert!(!cache.knows(&me, "hash", later));
        cache.remember(&me, "hash", later);
        assert!(!cache.knows(&me, "hash", later));
    }

    #[test]
    fn no_more_passwords_are_remembered_than_may_be() {
        let credentials = |n: usize| Credentials { user: n.to_string(), password: "p".into() };
        for entries_max in [0, 1, 3] {
            let cache = CredentialsCache::new([7; 16], Duration::from_secs(2), entries_max);
            for n in 0..=entries_max {
                cache.remember(&credentials(n), "hash", Instant(0));
                assert!(cache.users(Instant(0)).len() <= entries_max, "{entries_max}");
                assert_eq!(cache.knows(&credentials(n), "hash", Instant(0)), entries_max > 0);
            }
        }
    }

    #[test]
    fn whose_passwords_are_known_is_told_and_forgotten() {
        let cache = CredentialsCache::new([7; 16], Duration::from_secs(2), 1000);
        let credentials = |user: &str| Credentials { user: user.into(), password: "p".into() };
        let (start, later) = (Instant(0), Instant(0) + Duration::from_secs(1));
        cache.remember(&credentials("b"), "hash", start);
        cache.remember(&credentials("a"), "hash", later);
        assert_eq!(cache.users(later), ["a".to_owned(), "b".to_owned()].into());
        let expired = start + Duration::from_secs(2);
        assert_eq!(cache.users(expired), ["a".to_owned()].into());
        assert!(!cache.forget(Some("b"), expired));
        assert!(cache.forget(Some("a"), expired));
        assert!(!cache.knows(&credentials("a"), "hash", later));
        cache.remember(&credentials("a"), "hash", later);
        assert!(cache.forget(None, later));
        assert!(!cache.forget(None, later));
    }
}
