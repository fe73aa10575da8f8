//! Warning of superusers that still have the default password: every client that reaches a port can log in as one.
//!
//! Owns: when the warning is logged, the gauge of such roles. Never: changes a role. Runs on shard 0.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::Auth;
use conf::Options;
use cql_server::CqlServer;
use rt::{Gate, Group, Rt};

/// Password of the first superuser, as in Cassandra.
const PASSWORD: &str = "cassandra";
/// Its name, unless `auth_superuser_name` names another.
const NAME: &str = "cassandra";
/// Interval of the warning.
const INTERVAL: Duration = Duration::from_secs(3600);
/// Pause while there are no roles yet.
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

/// Watches until the gate closes. To be called on shard 0 when passwords can be verified.
pub(crate) fn watch(rt: &Rt, gate: &Gate, server: &CqlServer, options: &Options) {
    let (own, server, options) = (rt.clone(), server.clone(), options.clone());
    let found = rt.telemetry().gauge(
        "cql_default_passwords",
        "superusers whose password is still the default one",
        &[],
    );
    let task = async move {
        loop {
            let auth = server.executor().membership.snapshot().auth.clone();
            let mut count = 0;
            for (role, hash) in suspects(&auth, &options) {
                if server.is_password(PASSWORD, hash).await {
                    count += 1;
                    tracing::warn!(
                        role,
                        "superuser still has its default password: every client that reaches this cluster can do \
                         everything; change it with ALTER ROLE, or create another superuser and drop this one"
                    );
                }
            }
            found.set(count);
            let pause = if auth.roles.is_empty() { PAUSE } else { INTERVAL };
            let until = own.now() + pause;
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
}
