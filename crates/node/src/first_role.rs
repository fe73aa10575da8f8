//! The first superuser of a cluster with roles: created with the cluster, or, when roles are
//! enabled later, by the first node that starts with them.

use std::time::Duration;

use cluster::{Role, Transformation};
use conf::Options;
use membership::Membership;
use rt::{Gate, Group, Rt};

/// bcrypt hash of `cassandra`.
const DEFAULT_HASH: &str = "$2a$10$AaZBeH0YDCt.sW/RE37neeguGz4zpbkvPgRaIhdDMzewkmK6nOmFC";

/// Pause between attempts while the voters cannot be asked.
const PAUSE: Duration = Duration::from_secs(2);

/// Builds the entry that creates the first superuser; `None` when clients do not log in, or none is
/// wanted.
pub(crate) fn entry(options: &Options) -> Option<Transformation> {
    let name = &options.auth_superuser_name;
    if !options.authenticator.requires_login() || options.skip_default_role_setup {
        return None;
    }
    let hash = options.auth_superuser_salted_password.as_deref().unwrap_or(DEFAULT_HASH);
    let role = Role { is_superuser: true, can_login: true, salted_hash: hash.to_owned() };
    Some(Transformation::PutRole { name: name.clone(), role })
}

/// Makes it when there are no roles at all, in the background: the voters may not be there yet.
/// To be called on shard 0 when the node is a member.
pub(crate) fn ensure(rt: &Rt, gate: &Gate, membership: &Membership, options: &Options) {
    let Some(entry) = entry(options) else { return };
    if !membership.snapshot().auth.roles.is_empty() {
        return;
    }
    let (own, membership) = (rt.clone(), membership.clone());
    let role = options.auth_superuser_name.clone();
    let has_default_password = options.auth_superuser_salted_password.is_none();
    let task = async move {
        loop {
            let snapshot = membership.snapshot();
            if !snapshot.auth.roles.is_empty() {
                return;
            }
            match membership.submit(snapshot.epoch, vec![entry.clone()]).await {
                Ok(_) => {
                    match has_default_password {
                        true => tracing::info!(
                            role,
                            "created the first superuser with the default password; change it now"
                        ),
                        false => tracing::info!(role, "created the first superuser"),
                    }
                    return;
                }
                Err(error) => tracing::debug!(%error, "creation of the first superuser deferred"),
            }
            let pause = own.now() + PAUSE;
            if own.timeout(pause, own.stop_requested()).await.is_ok() {
                return;
            }
        }
    };
    // A closed gate: the node stops, the next start retries.
    let _ = gate.spawn(rt, Group::Admin, "first-role", task);
}
