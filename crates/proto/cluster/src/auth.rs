//! Roles and what they may do, as every node knows them.
//!
//! Owns: [`Auth`] (roles and their memberships, permissions, datacenters, CIDR groups, identities), its changes
//! ([`AuthChange`]) and their encoding. Never: the right to change it (`cql-plan::auth` decides), the meaning of a
//! resource's name.
//!
//! INV-auth-1: nothing speaks of a role that does not exist: dropping it takes its memberships,
//! permissions of it and on it, datacenters, CIDR groups and identities with it, in the same entry.
//! INV-auth-2: a dropped keyspace, table or function leaves no permission on it.

use std::collections::{BTreeMap, BTreeSet};

use codec::{DecodeError, Reader, Writer};
use ipnet::IpNet;
use schema::SchemaChange;
use stdx::Epoch;
use types::CqlType;

use crate::cidr;
use crate::metalog::{read_count, read_text, text};

/// A role: its own properties. Its permissions stand in [`Auth`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// May do everything.
    pub is_superuser: bool,
    /// May log in.
    pub can_login: bool,
    /// bcrypt hash of the password; empty: no password, so the role cannot log in with one.
    pub salted_hash: String,
}

/// One permission. The order is Cassandra's, so is that of lists; numbers are in the log's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "named after the keyword")]
#[repr(u8)]
pub enum Permission {
    Create = 0,
    Alter = 1,
    Drop = 2,
    Select = 3,
    Modify = 4,
    Authorize = 5,
    Describe = 6,
    Execute = 7,
    Unmask = 8,
    SelectMasked = 9,
}

impl Permission {
    /// All of them in order.
    pub const ALL: [Permission; 10] = [
        Permission::Create,
        Permission::Alter,
        Permission::Drop,
        Permission::Select,
        Permission::Modify,
        Permission::Authorize,
        Permission::Describe,
        Permission::Execute,
        Permission::Unmask,
        Permission::SelectMasked,
    ];

    /// The name in statements and in `system_auth.role_permissions`.
    pub fn name(self) -> &'static str {
        match self {
            Permission::Create => "CREATE",
            Permission::Alter => "ALTER",
            Permission::Drop => "DROP",
            Permission::Select => "SELECT",
            Permission::Modify => "MODIFY",
            Permission::Authorize => "AUTHORIZE",
            Permission::Describe => "DESCRIBE",
            Permission::Execute => "EXECUTE",
            Permission::Unmask => "UNMASK",
            Permission::SelectMasked => "SELECT_MASKED",
        }
    }

    /// The permission of that name.
    pub fn from_name(name: &str) -> Option<Permission> {
        Permission::ALL.into_iter().find(|p| p.name() == name)
    }
}

/// A set of permissions: bit n is the permission with number n.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub struct PermissionSet(u16);

impl PermissionSet {
    /// Nothing.
    pub const NONE: PermissionSet = PermissionSet(0);

    /// Exactly these.
    pub const fn of(permissions: &[Permission]) -> PermissionSet {
        let mut bits = 0;
        let mut rest = permissions;
        while let [first, after @ ..] = rest {
            bits |= 1 << *first as u8;
            rest = after;
        }
        PermissionSet(bits)
    }

    /// Returns true if the set contains the permission.
    #[inline]
    pub fn contains(self, permission: Permission) -> bool {
        self.0 & 1 << permission as u8 != 0
    }

    /// Returns true if the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those in either.
    #[must_use]
    pub fn union(self, other: PermissionSet) -> PermissionSet {
        PermissionSet(self.0 | other.0)
    }

    /// Those in both.
    #[must_use]
    pub fn intersection(self, other: PermissionSet) -> PermissionSet {
        PermissionSet(self.0 & other.0)
    }

    /// Those that are not in `other`.
    #[must_use]
    pub fn without(self, other: PermissionSet) -> PermissionSet {
        PermissionSet(self.0 & !other.0)
    }

    /// In order.
    pub fn iter(self) -> impl Iterator<Item = Permission> {
        Permission::ALL.into_iter().filter(move |p| self.contains(*p))
    }
}

/// All roles and what belongs to them. Shared as `Arc` by the snapshots between two changes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Auth {
    /// The epoch of the newest change; what was found out about roles is good until it moves.
    pub changed_at: Epoch,
    /// By name.
    pub roles: BTreeMap<String, Role>,
    /// Role to the roles granted to it directly; no empty sets.
    pub member_of: BTreeMap<String, BTreeSet<String>>,
    /// Role to resource (by Cassandra's name of it, `data/ks/t`) to what it may do with it itself.
    /// No empty maps or sets.
    pub permissions: BTreeMap<String, BTreeMap<String, PermissionSet>>,
    /// Role to the datacenters it may use; roles that are not in it may use all.
    pub datacenters: BTreeMap<String, BTreeSet<String>>,
    /// Name of a CIDR group to its ranges, without bits after their prefixes; no empty sets.
    pub cidr_groups: BTreeMap<String, BTreeSet<IpNet>>,
    /// Role to the CIDR groups it may connect from, of which there need not be any; roles that are
    /// not in it may connect from everywhere. No empty sets.
    pub cidr_permissions: BTreeMap<String, BTreeSet<String>>,
    /// Identity of a certificate to the role it stands for.
    pub identities: BTreeMap<String, String>,
}

/// One change to roles and permissions, apart from the creation and replacement of a role. A change
/// that names a missing role has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthChange {
    /// A role and all that speaks of it is gone.
    DropRole {
        /// Which.
        name: String,
    },
    /// A role gets permissions.
    Grant {
        /// The role.
        role: String,
        /// On what, by name.
        resource: String,
        /// Added to those it has.
        permissions: PermissionSet,
    },
    /// A role loses permissions.
    Revoke {
        /// The role.
        role: String,
        /// On what, by name.
        resource: String,
        /// Taken from those it has.
        permissions: PermissionSet,
    },
    /// A role is granted to another.
    GrantRole {
        /// The role given.
        role: String,
        /// The role that gets it.
        grantee: String,
    },
    /// A role is taken from another.
    RevokeRole {
        /// The role taken.
        role: String,
        /// The role that loses it.
        revokee: String,
    },
    /// The datacenters a role may use are replaced.
    SetDatacenters {
        /// The role.
        role: String,
        /// Empty: all.
        datacenters: BTreeSet<String>,
    },
    /// The CIDR groups a role may connect from are replaced.
    SetCidrGroups {
        /// The role.
        role: String,
        /// Empty: everywhere.
        cidr_groups: BTreeSet<String>,
    },
    /// A CIDR group is made, replaced or dropped.
    PutCidrGroup {
        /// Its name.
        name: String,
        /// Without bits after their prefixes; empty: there is no such group any more.
        ranges: BTreeSet<IpNet>,
    },
    /// An identity stands for a role.
    AddIdentity {
        /// The identity, as in the certificate.
        identity: String,
        /// The role.
        role: String,
    },
    /// An identity stands for no role any more.
    DropIdentity {
        /// The identity, as in the certificate.
        identity: String,
    },
}

impl AuthChange {
    /// Appends the payload after the entry's kind.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            AuthChange::DropRole { name } => {
                out.put_u8(0);
                text(out, name);
            }
            AuthChange::Grant { role, resource, permissions } => {
                out.put_u8(1);
                text(out, role);
                text(out, resource);
                out.put_u16(permissions.0);
            }
            AuthChange::Revoke { role, resource, permissions } => {
                out.put_u8(2);
                text(out, role);
                text(out, resource);
                out.put_u16(permissions.0);
            }
            AuthChange::GrantRole { role, grantee } => {
                out.put_u8(3);
                text(out, role);
                text(out, grantee);
            }
            AuthChange::RevokeRole { role, revokee } => {
                out.put_u8(4);
                text(out, role);
                text(out, revokee);
            }
            AuthChange::SetDatacenters { role, datacenters } => {
                out.put_u8(5);
                text(out, role);
                out.put_vint_unsigned(datacenters.len() as u64);
                for datacenter in datacenters {
                    text(out, datacenter);
                }
            }
            AuthChange::AddIdentity { identity, role } => {
                out.put_u8(6);
                text(out, identity);
                text(out, role);
            }
            AuthChange::DropIdentity { identity } => {
                out.put_u8(7);
                text(out, identity);
            }
            AuthChange::SetCidrGroups { role, cidr_groups } => {
                out.put_u8(8);
                text(out, role);
                out.put_vint_unsigned(cidr_groups.len() as u64);
                for name in cidr_groups {
                    text(out, name);
                }
            }
            AuthChange::PutCidrGroup { name, ranges } => {
                out.put_u8(9);
                text(out, name);
                out.put_vint_unsigned(ranges.len() as u64);
                for range in ranges {
                    cidr::encode(range, out);
                }
            }
        }
    }

    /// Reads what [`AuthChange::encode`] wrote.
    ///
    /// # Errors
    /// Anything else.
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<AuthChange, DecodeError> {
        let kind = r.u8()?;
        let first = read_text(r)?;
        Ok(match kind {
            0 => AuthChange::DropRole { name: first },
            1 | 2 => {
                let (role, resource) = (first, read_text(r)?);
                let permissions = PermissionSet(r.u16()?);
                if usize::from(permissions.0) >> Permission::ALL.len() != 0 {
                    return Err(r.invalid(i64::from(permissions.0)));
                }
                if kind == 1 {
                    AuthChange::Grant { role, resource, permissions }
                } else {
                    AuthChange::Revoke { role, resource, permissions }
                }
            }
            3 => AuthChange::GrantRole { role: first, grantee: read_text(r)? },
            4 => AuthChange::RevokeRole { role: first, revokee: read_text(r)? },
            5 => {
                let mut datacenters = BTreeSet::new();
                for _ in 0..read_count(r)? {
                    datacenters.insert(read_text(r)?);
                }
                AuthChange::SetDatacenters { role: first, datacenters }
            }
            6 => AuthChange::AddIdentity { identity: first, role: read_text(r)? },
            7 => AuthChange::DropIdentity { identity: first },
            8 => {
                let mut cidr_groups = BTreeSet::new();
                for _ in 0..read_count(r)? {
                    cidr_groups.insert(read_text(r)?);
                }
                AuthChange::SetCidrGroups { role: first, cidr_groups }
            }
            9 => {
                let mut ranges = BTreeSet::new();
                for _ in 0..read_count(r)? {
                    ranges.insert(cidr::read(r)?);
                }
                AuthChange::PutCidrGroup { name: first, ranges }
            }
            _ => return Err(r.invalid(i64::from(kind))),
        })
    }
}

impl Auth {
    /// The names of a role and of all roles it has, directly or through others; a role that does not
    /// exist has none. The role itself comes first.
    pub fn roles_of<'a>(&'a self, name: &'a str) -> Vec<&'a str> {
        let mut found: Vec<&str> = Vec::new();
        if self.roles.contains_key(name) {
            found.push(name);
        }
        let mut next = 0;
        while let Some(role) = found.get(next).copied() {
            next += 1;
            for granted in self.member_of.get(role).into_iter().flatten() {
                if self.roles.contains_key(granted) && !found.contains(&granted.as_str()) {
                    found.push(granted);
                }
            }
        }
        found
    }

    /// Returns true if a role, or one of its roles, is a superuser.
    pub fn is_superuser(&self, name: &str) -> bool {
        self.roles_of(name).iter().any(|r| self.roles.get(*r).is_some_and(|r| r.is_superuser))
    }

    pub(crate) fn put_role(&mut self, name: &str, role: &Role) {
        self.roles.insert(name.to_owned(), role.clone());
    }

    pub(crate) fn apply(&mut self, change: &AuthChange) {
        match change {
            AuthChange::DropRole { name } => self.drop_role(name),
            AuthChange::Grant { role, resource, permissions } => {
                if self.roles.contains_key(role) && !permissions.is_empty() {
                    let of_role = self.permissions.entry(role.clone()).or_default();
                    let set = of_role.entry(resource.clone()).or_default();
                    *set = set.union(*permissions);
                }
            }
            AuthChange::Revoke { role, resource, permissions } => {
                if let Some(set) = self.permissions.get_mut(role).and_then(|p| p.get_mut(resource))
                {
                    *set = set.without(*permissions);
                    self.drop_empty();
                }
            }
            AuthChange::GrantRole { role, grantee } => {
                if self.roles.contains_key(role) && self.roles.contains_key(grantee) {
                    self.member_of.entry(grantee.clone()).or_default().insert(role.clone());
                }
            }
            AuthChange::RevokeRole { role, revokee } => {
                if let Some(granted) = self.member_of.get_mut(revokee) {
                    granted.remove(role);
                }
                self.drop_empty();
            }
            AuthChange::SetDatacenters { role, datacenters } => {
                if !self.roles.contains_key(role) || datacenters.is_empty() {
                    self.datacenters.remove(role);
                } else {
                    self.datacenters.insert(role.clone(), datacenters.clone());
                }
            }
            AuthChange::SetCidrGroups { role, cidr_groups } => {
                if !self.roles.contains_key(role) || cidr_groups.is_empty() {
                    self.cidr_permissions.remove(role);
                } else {
                    self.cidr_permissions.insert(role.clone(), cidr_groups.clone());
                }
            }
            AuthChange::PutCidrGroup { name, ranges } => {
                if ranges.is_empty() {
                    self.cidr_groups.remove(name);
                } else {
                    self.cidr_groups.insert(name.clone(), ranges.clone());
                }
            }
            AuthChange::AddIdentity { identity, role } => {
                if self.roles.contains_key(role) {
                    self.identities.insert(identity.clone(), role.clone());
                }
            }
            AuthChange::DropIdentity { identity } => {
                self.identities.remove(identity);
            }
        }
    }

    fn drop_role(&mut self, name: &str) {
        self.roles.remove(name);
        self.member_of.remove(name);
        for granted in self.member_of.values_mut() {
            granted.remove(name);
        }
        self.permissions.remove(name);
        let own = format!("roles/{name}");
        self.drop_resources(|resource| resource == own);
        self.datacenters.remove(name);
        self.cidr_permissions.remove(name);
        self.identities.retain(|_, role| role != name);
        self.drop_empty();
    }

    fn drop_resources(&mut self, is_gone: impl Fn(&str) -> bool) {
        for of_role in self.permissions.values_mut() {
            of_role.retain(|resource, _| !is_gone(resource));
        }
        self.drop_empty();
    }

    fn drop_empty(&mut self) {
        self.member_of.retain(|_, granted| !granted.is_empty());
        for of_role in self.permissions.values_mut() {
            of_role.retain(|_, set| !set.is_empty());
        }
        self.permissions.retain(|_, of_role| !of_role.is_empty());
    }

    /// Returns the roles and permissions after a change of the schema; `None` when the change does
    /// not affect them.
    pub(crate) fn after_schema_change(&self, change: &SchemaChange) -> Option<Auth> {
        let roots = match change {
            SchemaChange::DropKeyspace { name } => {
                vec![format!("data/{name}"), format!("functions/{name}")]
            }
            SchemaChange::DropTable { keyspace, table } => vec![format!("data/{keyspace}/{table}")],
            SchemaChange::DropFunction { keyspace, name, args }
            | SchemaChange::DropAggregate { keyspace, name, args } => {
                let classes: Vec<String> = args.iter().map(CqlType::to_marshal_name).collect();
                vec![format!("functions/{keyspace}/{name}[{}]", classes.join("^"))]
            }
            _ => return None,
        };
        let is_gone = |resource: &str| {
            roots.iter().any(|root| {
                let rest = resource.strip_prefix(root.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        };
        if !self.permissions.values().any(|of_role| of_role.keys().any(|r| is_gone(r))) {
            return None;
        }
        let mut next = self.clone();
        next.drop_resources(is_gone);
        Some(next)
    }
}

#[cfg(test)]
mod tests;
