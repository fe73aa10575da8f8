//! Roles, users, permissions, identities.

use super::{FunctionName, Ident, Literal, QualifiedName, RawType};

/// A permission that can be granted. Source: Cassandra 5.0's `Permission`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "named after the keyword")]
pub enum Permission {
    Create,
    Alter,
    Drop,
    Select,
    Modify,
    Authorize,
    Describe,
    Execute,
    Unmask,
    SelectMasked,
}

impl Permission {
    /// The keyword.
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
}

/// `ALL [PERMISSIONS]` or a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permissions {
    /// All that the resource knows.
    All,
    /// At least one; may repeat.
    List(Vec<Permission>),
}

/// Resource of a permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    /// `ALL KEYSPACES`.
    AllKeyspaces,
    /// `KEYSPACE name`.
    Keyspace(Ident),
    /// `ALL TABLES IN KEYSPACE name`.
    AllTables(Ident),
    /// `[TABLE] name`.
    Table(QualifiedName),
    /// `ALL ROLES`.
    AllRoles,
    /// `ROLE name`.
    Role(Ident),
    /// `ALL FUNCTIONS`.
    AllFunctions,
    /// `ALL FUNCTIONS IN KEYSPACE name`.
    KeyspaceFunctions(Ident),
    /// `FUNCTION name(types)`.
    Function(FunctionName, Vec<RawType>),
    /// `ALL MBEANS`.
    AllMbeans,
    /// `MBEAN 'name'`; an object name that is not checked here.
    Mbean(String),
    /// `MBEANS 'pattern'`; an object name pattern that is not checked here.
    Mbeans(String),
}

/// `GRANT … ON … TO …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantPermissions {
    /// The granted permissions.
    pub permissions: Permissions,
    /// The resource.
    pub resource: Resource,
    /// The role that receives them.
    pub role: Ident,
}

/// `REVOKE … ON … FROM …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevokePermissions {
    /// The revoked permissions.
    pub permissions: Permissions,
    /// The resource.
    pub resource: Resource,
    /// The role that loses them.
    pub role: Ident,
}

/// `GRANT role TO grantee`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRole {
    /// The role given.
    pub role: Ident,
    /// The role that receives it.
    pub grantee: Ident,
}

/// `REVOKE role FROM revokee`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevokeRole {
    /// The role taken.
    pub role: Ident,
    /// The role that loses it.
    pub revokee: Ident,
}

/// `LIST … PERMISSIONS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPermissions {
    /// The permissions.
    pub permissions: Permissions,
    /// `ON`.
    pub resource: Option<Resource>,
    /// `OF`.
    pub of: Option<Ident>,
    /// Inherited ones too; false with NORECURSIVE.
    pub recursive: bool,
}

/// `LIST ROLES`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRoles {
    /// `OF`.
    pub of: Option<Ident>,
    /// Inherited ones too; false with NORECURSIVE.
    pub recursive: bool,
}

/// `CREATE ROLE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateRole {
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The role.
    pub name: Ident,
    /// `WITH`.
    pub options: Vec<RoleOption>,
}

/// `ALTER ROLE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterRole {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The role.
    pub name: Ident,
    /// `WITH`.
    pub options: Vec<RoleOption>,
}

/// One option of a role. Each kind occurs once at most (access clauses excepted); PASSWORD and
/// HASHED PASSWORD never together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleOption {
    /// `PASSWORD = '…'`.
    Password(String),
    /// `HASHED PASSWORD = '…'`.
    HashedPassword(String),
    /// `OPTIONS = {…}`.
    Options(Vec<(Literal, Literal)>),
    /// `SUPERUSER = …`.
    Superuser(bool),
    /// `LOGIN = …`.
    Login(bool),
    /// `ACCESS TO ALL DATACENTERS`.
    AccessToAllDatacenters,
    /// `ACCESS TO DATACENTERS {…}`.
    AccessToDatacenters(Vec<String>),
    /// `ACCESS FROM ALL CIDRS`.
    AccessFromAllCidrs,
    /// `ACCESS FROM CIDRS {…}`.
    AccessFromCidrs(Vec<String>),
}

/// `DROP ROLE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropRole {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The role.
    pub name: Ident,
}

/// Password of CREATE USER and ALTER USER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserPassword {
    /// `PASSWORD '…'`.
    Plain(String),
    /// `HASHED PASSWORD '…'`.
    Hashed(String),
}

/// `CREATE USER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateUser {
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The user, case as written.
    pub name: String,
    /// `WITH PASSWORD`.
    pub password: Option<UserPassword>,
    /// `SUPERUSER` or `NOSUPERUSER`; not written means no.
    pub superuser: Option<bool>,
}

/// `ALTER USER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterUser {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The user, case as written.
    pub name: String,
    /// `WITH PASSWORD`.
    pub password: Option<UserPassword>,
    /// `SUPERUSER` or `NOSUPERUSER`; not written means unchanged.
    pub superuser: Option<bool>,
}

/// `DROP USER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropUser {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The user, case as written.
    pub name: String,
}

/// `ADD IDENTITY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddIdentity {
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The identity, case as written.
    pub identity: String,
    /// The role it stands for, case as written.
    pub role: String,
}

/// `DROP IDENTITY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropIdentity {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The identity, case as written.
    pub identity: String,
}
