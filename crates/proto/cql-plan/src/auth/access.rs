//! Access control: the permissions a role has through all its roles, the permissions a statement
//! needs.
//!
//! Source: Cassandra 5.0's `ClientState`, `CassandraAuthorizer`, and `authorize` of its statements.

use std::cell::RefCell;
use std::net::IpAddr;

use cluster::{Auth, Permission, PermissionSet, cidr};
use stdx::{Epoch, FixedMap};

use super::Resource;
use crate::error::PlanError;
use crate::system_keyspaces::{REPLICATED_SYSTEM, SYSTEM, VIRTUAL};

/// Which of Cassandra's classes decide about access, as far as there is a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AccessRules {
    /// `PasswordAuthenticator`: clients log in and roles have passwords. Else all are anonymous.
    pub passwords: bool,
    /// `CassandraAuthorizer`: roles need permissions. Otherwise every user may do everything.
    pub permissions: bool,
    /// `CassandraNetworkAuthorizer`: roles may be kept out of datacenters.
    pub datacenters: bool,
    /// `CassandraCIDRAuthorizer`: roles may be kept to connect from some CIDR groups; `None`:
    /// `AllowAllCIDRAuthorizer`.
    pub cidrs: Option<CidrRules>,
}

/// Rules on the addresses that a role may connect from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CidrRules {
    /// True in mode ENFORCE: a connection from another address may do nothing. Otherwise (MONITOR)
    /// it is only logged.
    pub enforce: bool,
    /// True if CIDR groups restrict superusers, too.
    pub superusers: bool,
}

/// Result of the check of a user's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CidrFinding {
    /// The CIDR groups of the address; none: it is in no range.
    pub groups: Vec<String>,
    /// True if the role may connect from this address.
    pub is_allowed: bool,
}

/// Permission that a statement needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// A permission on a resource or on something that it is part of.
    Permission(Permission, Resource),
    /// UNMASK or SELECT_MASKED on a table, to ask by the values of masked columns.
    Masked {
        /// The table.
        resource: Resource,
        /// `keyspace.table`.
        table: String,
        /// Names of the columns.
        columns: Vec<String>,
    },
}

/// A user and all that it has, as of one state of the roles. Good until [`Auth::changed_at`] moves.
#[derive(Debug)]
pub struct Access {
    /// `None`: anonymous.
    pub user: Option<String>,
    /// Epoch at which the roles had this state.
    pub as_of: Epoch,
    /// It or a role of its may do everything.
    pub is_superuser: bool,
    rules: AccessRules,
    /// Why the user may do nothing here: the datacenter of this node, or where it connects from.
    kept_out: Option<String>,
    /// Result of the address check, if it ran. Mode MONITOR reports it and rejects nothing.
    pub cidr: Option<CidrFinding>,
    /// By name of the resource: the permissions of its roles there.
    granted: FixedMap<String, PermissionSet>,
    /// Names of resources are made here.
    scratch: RefCell<String>,
}

impl AccessRules {
    /// Returns true if a statement may be rejected because of the user that sends it. Statements
    /// about roles are not considered.
    #[inline]
    pub fn restricts(self) -> bool {
        self.permissions || self.datacenters || self.cidrs.is_some()
    }
}

impl Access {
    /// Returns the access of `user` in `datacenter` when it connects from `address`. The address is
    /// checked only where rules for it exist.
    pub fn of(
        user: Option<&str>,
        auth: &Auth,
        rules: AccessRules,
        datacenter: &str,
        address: IpAddr,
    ) -> Access {
        let roles = user.map_or_else(Vec::new, |user| auth.roles_of(user));
        let is_superuser = roles.iter().any(|r| auth.roles.get(*r).is_some_and(|r| r.is_superuser));
        let mut granted: FixedMap<String, PermissionSet> = FixedMap::default();
        for of_role in roles.iter().filter_map(|role| auth.permissions.get(*role)) {
            for (resource, permissions) in of_role {
                let set = granted.entry(resource.clone()).or_default();
                *set = set.union(*permissions);
            }
        }
        let may_use = match user {
            Some(user) if rules.datacenters => datacenters(auth, user).allows(datacenter),
            _ => true,
        };
        let mut kept_out =
            (!may_use).then(|| format!("You do not have access to this datacenter ({datacenter})"));
        let looked_at = rules.cidrs.zip(user).filter(|_| may_use);
        let cidr = looked_at.and_then(|(rules, user)| find_cidr(auth, user, rules, address));
        let is_enforced = rules.cidrs.is_some_and(|rules| rules.enforce);
        if is_enforced && cidr.as_ref().is_some_and(|found| !found.is_allowed) {
            let address = cidr::address_text(address);
            kept_out = Some(format!("You do not have access from this IP {address}"));
        }
        Access {
            user: user.map(str::to_owned),
            as_of: auth.changed_at,
            is_superuser,
            rules,
            kept_out,
            cidr,
            granted,
            scratch: RefCell::default(),
        }
    }

    /// Checks the conditions of every statement.
    ///
    /// # Errors
    /// `Unauthorized`: the user may not use this datacenter, or may not connect from its address.
    pub fn check_login(&self) -> Result<(), PlanError> {
        match &self.kept_out {
            None => Ok(()),
            Some(reason) => Err(PlanError::unauthorized(reason.clone())),
        }
    }

    /// Returns the user's name.
    ///
    /// # Errors
    /// Those of [`Access::check_login`]; `Unauthorized`: the connection is not logged in.
    pub fn check_not_anonymous(&self) -> Result<&str, PlanError> {
        self.check_login()?;
        self.user.as_deref().ok_or_else(|| {
            PlanError::unauthorized(
                "You have to be logged in and not anonymous to perform this request",
            )
        })
    }

    /// Returns the user's permissions on exactly this resource.
    pub fn on(&self, resource: &Resource) -> PermissionSet {
        if self.is_superuser || !self.rules.permissions {
            return resource.applicable();
        }
        self.granted.get(&resource.name()).copied().unwrap_or_default()
    }

    /// Returns true if the user has a permission on a resource or on one of its parents.
    pub fn has(&self, permission: Permission, resource: &Resource) -> bool {
        if !self.rules.permissions {
            return true;
        }
        if self.is_superuser || self.granted.is_empty() {
            return self.is_superuser
                && resource.chain().iter().any(|r| r.applicable().contains(permission));
        }
        if let Resource::Table { keyspace, table } = resource {
            return self.has_on_table(permission, keyspace, table);
        }
        let excludes_all = is_in_system_keyspace(resource);
        let mut chain = resource.chain();
        chain.retain(|part| !excludes_all || *part != Resource::AllKeyspaces);
        chain.iter().any(|part| self.on(part).contains(permission))
    }

    /// The same without making a name for each step.
    fn has_on_table(&self, permission: Permission, keyspace: &str, table: &str) -> bool {
        let mut name = self.scratch.borrow_mut();
        name.clear();
        name.push_str("data");
        let is_granted = |name: &str| {
            self.granted.get(name).is_some_and(|permissions| permissions.contains(permission))
        };
        let excludes_all = is_system_keyspace(keyspace);
        for part in [None, Some(keyspace), Some("*")] {
            if let Some(part) = part {
                name.push('/');
                name.push_str(part);
            }
            let counts = part.is_some() || !excludes_all;
            if counts && is_granted(&name) {
                return true;
            }
        }
        name.pop();
        name.push_str(table);
        is_granted(&name)
    }

    /// # Errors
    /// `Unauthorized`: the user has not got a permission.
    pub fn ensure(&self, permission: Permission, resource: &Resource) -> Result<(), PlanError> {
        if self.has(permission, resource) {
            return Ok(());
        }
        Err(PlanError::unauthorized(format!(
            "User {} has no {} permission on {resource} or any of its parents",
            self.user.as_deref().unwrap_or("anonymous"),
            permission.name()
        )))
    }

    /// Rejects schema changes of replicated system keyspaces before permissions are checked, as
    /// Cassandra does. Their replication may be altered.
    fn check_modifiable(
        &self,
        permission: Permission,
        resource: &Resource,
    ) -> Result<(), PlanError> {
        let changes =
            matches!(permission, Permission::Create | Permission::Alter | Permission::Drop);
        let alters_replication =
            permission == Permission::Alter && matches!(resource, Resource::Keyspace(_));
        let is_replicated =
            data_keyspace(resource).is_some_and(|name| REPLICATED_SYSTEM.contains(&name));
        if self.rules.permissions && changes && is_replicated && !alters_replication {
            let verb = permission.name();
            return Err(PlanError::unauthorized(format!("Cannot {verb} {resource}")));
        }
        Ok(())
    }

    /// Checks all that a statement needs.
    ///
    /// # Errors
    /// `Unauthorized`: the first thing that is missing.
    pub fn ensure_all(&self, requirements: &[Requirement]) -> Result<(), PlanError> {
        self.check_login()?;
        for requirement in requirements {
            match requirement {
                Requirement::Permission(permission, resource) => {
                    self.check_modifiable(*permission, resource)?;
                    self.ensure(*permission, resource)?;
                }
                Requirement::Masked { resource, table, columns } => {
                    let has = |permission| self.has(permission, resource);
                    if has(Permission::Unmask) || has(Permission::SelectMasked) {
                        continue;
                    }
                    return Err(PlanError::unauthorized(format!(
                        "User {} has no UNMASK nor SELECT_MASKED permission on table {table}, \
                         cannot query masked columns [{}]",
                        self.user.as_deref().unwrap_or("anonymous"),
                        columns.join(", ")
                    )));
                }
            }
        }
        Ok(())
    }
}

/// Keyspace of a resource of data below ALL KEYSPACES.
fn data_keyspace(resource: &Resource) -> Option<&str> {
    match resource {
        Resource::Keyspace(keyspace)
        | Resource::AllTables(keyspace)
        | Resource::Table { keyspace, .. } => Some(keyspace),
        _ => None,
    }
}

/// Permissions on ALL KEYSPACES are none on these, as in Cassandra: they must be granted on the
/// keyspace or the table.
fn is_system_keyspace(name: &str) -> bool {
    [SYSTEM, VIRTUAL, REPLICATED_SYSTEM].iter().any(|names| names.contains(&name))
}

fn is_in_system_keyspace(resource: &Resource) -> bool {
    data_keyspace(resource).is_some_and(is_system_keyspace)
}

/// Returns true if a permission on this resource cannot be granted: of system keyspaces that are
/// not virtual only SELECT, DESCRIBE and ALTER can. Source: `Permission.INVALID_FOR_SYSTEM_KEYSPACES`.
pub(super) fn is_ungrantable(permission: Permission, resource: &Resource) -> bool {
    let is_system = data_keyspace(resource)
        .is_some_and(|name| SYSTEM.contains(&name) || REPLICATED_SYSTEM.contains(&name));
    let is_grantable =
        matches!(permission, Permission::Select | Permission::Describe | Permission::Alter);
    is_system && !is_grantable
}

/// Datacenters that a role may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Datacenters<'a> {
    /// It may not even log in.
    None,
    All,
    Some(Vec<&'a str>),
}

impl Datacenters<'_> {
    fn allows(&self, datacenter: &str) -> bool {
        match self {
            Datacenters::None => false,
            Datacenters::All => true,
            Datacenters::Some(some) => some.contains(&datacenter),
        }
    }
}

/// Returns the datacenters that a role may use when access to them is restricted. As in Cassandra,
/// those of the roles granted to it do not count, but a superuser among these does.
pub(super) fn datacenters<'a>(auth: &'a Auth, role: &str) -> Datacenters<'a> {
    if !auth.roles.get(role).is_some_and(|r| r.can_login) {
        return Datacenters::None;
    }
    match auth.datacenters.get(role) {
        Some(some) if !auth.is_superuser(role) => {
            Datacenters::Some(some.iter().map(String::as_str).collect())
        }
        _ => Datacenters::All,
    }
}

/// Checks if a role may connect from `address`; `None` when no check is needed. As in Cassandra,
/// CIDR groups of the roles granted to it do not count.
fn find_cidr(auth: &Auth, role: &str, rules: CidrRules, address: IpAddr) -> Option<CidrFinding> {
    let can_login = auth.roles.get(role).is_some_and(|r| r.can_login);
    let is_free = auth.is_superuser(role) && !rules.superusers;
    let allowed = auth.cidr_permissions.get(role).filter(|_| !is_free);
    if can_login && allowed.is_none() && rules.enforce {
        return None;
    }
    let groups = cidr::groups_of(&auth.cidr_groups, address);
    let is_allowed = can_login
        && allowed.is_none_or(|allowed| groups.iter().any(|group| allowed.contains(*group)));
    Some(CidrFinding { groups: groups.into_iter().map(str::to_owned).collect(), is_allowed })
}
