//! Roles, users, permissions, identities.

use std::fmt::{self, Display, Formatter};

use super::ddl::property_map;
use super::{commas, join, string, when};
use crate::ast::{
    AddIdentity, AlterRole, AlterUser, CreateRole, CreateUser, DropIdentity, DropRole, DropUser,
    GrantPermissions, GrantRole, Ident, ListPermissions, ListRoles, Permissions, Resource,
    RevokePermissions, RevokeRole, RoleOption, UserPassword,
};

/// Writes a role's name. The empty one can only be written as a string.
fn role(f: &mut Formatter<'_>, name: &Ident) -> fmt::Result {
    if name.text.is_empty() { f.write_str("''") } else { name.fmt(f) }
}

impl Display for Permissions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Permissions::All => f.write_str("ALL PERMISSIONS"),
            Permissions::List(list) => {
                join(f, list, ", ", |f, permission| f.write_str(permission.name()))
            }
        }
    }
}

impl Display for Resource {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Resource::AllKeyspaces => f.write_str("ALL KEYSPACES"),
            Resource::Keyspace(name) => write!(f, "KEYSPACE {name}"),
            Resource::AllTables(name) => write!(f, "ALL TABLES IN KEYSPACE {name}"),
            Resource::Table(name) => write!(f, "TABLE {name}"),
            Resource::AllRoles => f.write_str("ALL ROLES"),
            Resource::Role(name) => {
                f.write_str("ROLE ")?;
                role(f, name)
            }
            Resource::AllFunctions => f.write_str("ALL FUNCTIONS"),
            Resource::KeyspaceFunctions(name) => write!(f, "ALL FUNCTIONS IN KEYSPACE {name}"),
            Resource::Function(name, types) => {
                write!(f, "FUNCTION {name}(")?;
                commas(f, types)?;
                f.write_str(")")
            }
            Resource::AllMbeans => f.write_str("ALL MBEANS"),
            Resource::Mbean(name) => {
                f.write_str("MBEAN ")?;
                string(f, name)
            }
            Resource::Mbeans(pattern) => {
                f.write_str("MBEANS ")?;
                string(f, pattern)
            }
        }
    }
}

impl Display for GrantPermissions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "GRANT {} ON {} TO ", self.permissions, self.resource)?;
        role(f, &self.role)
    }
}

impl Display for RevokePermissions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "REVOKE {} ON {} FROM ", self.permissions, self.resource)?;
        role(f, &self.role)
    }
}

impl Display for GrantRole {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("GRANT ")?;
        role(f, &self.role)?;
        f.write_str(" TO ")?;
        role(f, &self.grantee)
    }
}

impl Display for RevokeRole {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("REVOKE ")?;
        role(f, &self.role)?;
        f.write_str(" FROM ")?;
        role(f, &self.revokee)
    }
}

impl Display for ListPermissions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "LIST {}", self.permissions)?;
        if let Some(resource) = &self.resource {
            write!(f, " ON {resource}")?;
        }
        if let Some(of) = &self.of {
            f.write_str(" OF ")?;
            role(f, of)?;
        }
        when(f, !self.recursive, " NORECURSIVE")
    }
}

impl Display for ListRoles {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("LIST ROLES")?;
        if let Some(of) = &self.of {
            f.write_str(" OF ")?;
            role(f, of)?;
        }
        when(f, !self.recursive, " NORECURSIVE")
    }
}

fn role_options(f: &mut Formatter<'_>, options: &[RoleOption]) -> fmt::Result {
    when(f, !options.is_empty(), " WITH ")?;
    join(f, options, " AND ", |f, option| option.fmt(f))
}

fn strings_in_braces(f: &mut Formatter<'_>, items: &[String]) -> fmt::Result {
    f.write_str("{")?;
    join(f, items, ", ", |f, item| string(f, item))?;
    f.write_str("}")
}

impl Display for RoleOption {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            RoleOption::Password(password) => {
                f.write_str("PASSWORD = ")?;
                string(f, password)
            }
            RoleOption::HashedPassword(hash) => {
                f.write_str("HASHED PASSWORD = ")?;
                string(f, hash)
            }
            RoleOption::Options(map) => {
                f.write_str("OPTIONS = ")?;
                property_map(f, map)
            }
            RoleOption::Superuser(value) => write!(f, "SUPERUSER = {value}"),
            RoleOption::Login(value) => write!(f, "LOGIN = {value}"),
            RoleOption::AccessToAllDatacenters => f.write_str("ACCESS TO ALL DATACENTERS"),
            RoleOption::AccessToDatacenters(names) => {
                f.write_str("ACCESS TO DATACENTERS ")?;
                strings_in_braces(f, names)
            }
            RoleOption::AccessFromAllCidrs => f.write_str("ACCESS FROM ALL CIDRS"),
            RoleOption::AccessFromCidrs(names) => {
                f.write_str("ACCESS FROM CIDRS ")?;
                strings_in_braces(f, names)
            }
        }
    }
}

impl Display for CreateRole {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("CREATE ROLE ")?;
        when(f, self.if_not_exists, "IF NOT EXISTS ")?;
        role(f, &self.name)?;
        role_options(f, &self.options)
    }
}

impl Display for AlterRole {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("ALTER ROLE ")?;
        when(f, self.if_exists, "IF EXISTS ")?;
        role(f, &self.name)?;
        role_options(f, &self.options)
    }
}

impl Display for DropRole {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("DROP ROLE ")?;
        when(f, self.if_exists, "IF EXISTS ")?;
        role(f, &self.name)
    }
}

fn user_options(
    f: &mut Formatter<'_>,
    password: Option<&UserPassword>,
    superuser: Option<bool>,
) -> fmt::Result {
    match password {
        Some(UserPassword::Plain(text)) => {
            f.write_str(" WITH PASSWORD ")?;
            string(f, text)?;
        }
        Some(UserPassword::Hashed(text)) => {
            f.write_str(" WITH HASHED PASSWORD ")?;
            string(f, text)?;
        }
        None => {}
    }
    when(f, superuser == Some(true), " SUPERUSER")?;
    when(f, superuser == Some(false), " NOSUPERUSER")
}

impl Display for CreateUser {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("CREATE USER ")?;
        when(f, self.if_not_exists, "IF NOT EXISTS ")?;
        string(f, &self.name)?;
        user_options(f, self.password.as_ref(), self.superuser)
    }
}

impl Display for AlterUser {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("ALTER USER ")?;
        when(f, self.if_exists, "IF EXISTS ")?;
        string(f, &self.name)?;
        user_options(f, self.password.as_ref(), self.superuser)
    }
}

impl Display for DropUser {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("DROP USER ")?;
        when(f, self.if_exists, "IF EXISTS ")?;
        string(f, &self.name)
    }
}

impl Display for AddIdentity {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("ADD IDENTITY ")?;
        when(f, self.if_not_exists, "IF NOT EXISTS ")?;
        string(f, &self.identity)?;
        f.write_str(" TO ROLE ")?;
        string(f, &self.role)
    }
}

impl Display for DropIdentity {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("DROP IDENTITY ")?;
        when(f, self.if_exists, "IF EXISTS ")?;
        string(f, &self.identity)
    }
}
