//! Warning of superusers that still have the default password: every client that reaches a port can log in as one.
//!
//! Owns: when the warning is logged, the gauge of such roles. Never: changes a role. Runs on shard 0.
//! The gauge follows a changed password within [`PAUSE`]; the warning is logged once an [`INTERVAL`].

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::Auth;
use conf::Options;
use cql_server::CqlServer;
use rt::{Gate, Group, Rt};
use stdx::Instant;

/// Password of the first superuser, as in Cassandra.
const PASSWORD: &str = "cassandra";
/// Its name, unless `auth_superuser_name` names another.
const NAME: &str = "cassandra";
/// Interval of the warning.
const INTERVAL: Duration = Duration::from_secs(3600);
/// Pause between two comparisons of the roles with those that were verified.
const PAUSE: Duration = Duration::from_secs(2);

/// Returns the superusers that may have the default password, with their hashes.
fn suspects(auth: &Auth, options: &Options) -> BTreeMap<String, String> {
    let names = [NAME, options.auth_superuser_name.as_str()];
    let found = names.into_iter().filter_map(|name| {
        let role = auth.roles.get(name).filter(|role| role.can_login && role.is_superuser)?;
        (!role.salted_hash.is_empty()).then(|| (name.to_owned(), role.salted_hash.clone()))
    });
    found.collect()
}

/// Results for the stored hashes, by role.
#[derive(Default)]
struct Verdicts {
    /// Hash, and true if it is that of the default password.
    known: BTreeMap<String, (String, bool)>,
    /// When all are verified, and warned of, again.
    again_at: Option<Instant>,
}

impl Verdicts {
    /// Drops what the suspects make obsolete; returns those to verify. Hashes that were verified within the interval are
    /// not among them: a verification costs as much as a login.
    fn due(&mut self, now: Instant, suspects: &BTreeMap<String, String>) -> Vec<(String, String)> {
        if self.again_at.is_none_or(|at| now >= at) {
            self.known.clear();
            self.again_at = Some(now + INTERVAL);
        }
        self.known.retain(|role, (hash, _)| suspects.get(role) == Some(hash));
        let unknown = suspects.iter().filter(|(role, _)| !self.known.contains_key(*role));
        unknown.map(|(role, hash)| (role.clone(), hash.clone())).collect()
    }

    /// Number of roles with the default password.
    fn count(&self) -> usize {
        self.known.values().filter(|(_, is_default)| *is_default).count()
    }
}

/// Watches until the gate closes. To be called on shard 0 when passwords can be verified.
pub(crate) fn watch(rt: &Rt, gate: &Gate, server: &CqlServer, options: &Options) {
    let (own, server, options) = (rt.clone(), server.clone(), options.clone());
    let found = rt.telemetry().gauge(
        "cql_default_passwords",
        "superusers whose password is still the default one",
        &[],
    );
    let task = async move {
        let mut verdicts = Verdicts::default();
        loop {
            let suspects = suspects(&server.executor().membership.snapshot().auth, &options);
            for (role, hash) in verdicts.due(own.now(), &suspects) {
                let is_default = server.is_password(PASSWORD, hash.clone()).await;
                if is_default {
                    tracing::warn!(
                        role,
                        "superuser still has its default password: every client that reaches this cluster can do \
                         everything; change it with ALTER ROLE, or create another superuser and drop this one"
                    );
                }
                verdicts.known.insert(role, (hash, is_default));
            }
            found.set(i64::try_from(verdicts.count()).unwrap_or(i64::MAX));
            let until = own.now() + PAUSE;
            if own.timeout(until, own.stop_requested()).await.is_ok() {
                return;
            }
        }
    };
    // A closed gate: the node stops.
    let _ = gate.spawn(rt, Group::Admin, "default-password", task);
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::Role;

    #[test]
    fn superusers_that_can_log_in_under_a_first_name_are_checked() {
        let role = |is_superuser, can_login, hash: &str| Role {
            is_superuser,
            can_login,
            salted_hash: hash.to_owned(),
        };
        let options = Options { auth_superuser_name: "admin".to_owned(), ..Options::default() };
        let of = |roles: &[(&str, Role)]| {
            let mut auth = Auth::default();
            auth.roles.extend(roles.iter().map(|(name, role)| ((*name).to_owned(), role.clone())));
            suspects(&auth, &options).into_keys().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            of(&[("cassandra", role(true, true, "h")), ("admin", role(true, true, "h"))]),
            "admin cassandra"
        );
        assert_eq!(of(&[("other", role(true, true, "h"))]), "");
        for harmless in [role(false, true, "h"), role(true, false, "h"), role(true, true, "")] {
            assert_eq!(of(&[("cassandra", harmless)]), "");
        }
    }

    #[test]
    fn a_changed_password_is_verified_at_once_and_an_unchanged_one_once_an_hour() {
        let at = |seconds: u64| Instant(seconds * 1_000_000_000);
        let suspects = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(role, hash)| ((*role).to_owned(), (*hash).to_owned())).collect()
        };
        let mut verdicts = Verdicts::default();
        let mut verify = |seconds: u64, suspects: &BTreeMap<String, String>| {
            let due = verdicts.due(at(seconds), suspects);
            for (role, hash) in &due {
                verdicts.known.insert(role.clone(), (hash.clone(), hash == "default"));
            }
            (due.into_iter().map(|(role, _)| role).collect::<Vec<_>>(), verdicts.count())
        };
        let first = suspects(&[("admin", "default"), ("cassandra", "default")]);
        assert_eq!(verify(0, &first), (vec!["admin".to_owned(), "cassandra".to_owned()], 2));
        assert_eq!(verify(2, &first), (vec![], 2));
        let changed = suspects(&[("admin", "default"), ("cassandra", "own")]);
        assert_eq!(verify(4, &changed), (vec!["cassandra".to_owned()], 1));
        // The other one is dropped.
        assert_eq!(verify(6, &suspects(&[("cassandra", "own")])), (vec![], 0));
        assert_eq!(verify(3600, &changed), (vec!["admin".to_owned(), "cassandra".to_owned()], 1));
    }
}
