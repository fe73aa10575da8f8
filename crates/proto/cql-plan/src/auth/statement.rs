//! Statements about roles: checked as Cassandra checks them, turned into changes of the metadata.
//!
//! A plan is made from the statement alone; [`AuthPlan::outcome`] checks it against the state that it
//! will be applied to, so that a retry on a newer state is just another call. Texts and their order
//! are those of the `authorize`, `validate` and `execute` of Cassandra 5.0's statements.

use std::collections::BTreeSet;

use cluster::{Auth, AuthChange, Permission, PermissionSet, Role, Transformation};
use cql_syntax::ast::{self, RoleOption, StatementKind, UserPassword};
use schema::Schema;
use types::CqlType;

use super::access::is_ungrantable;
use super::{Access, AccessRules, Resource, list};
use crate::error::PlanError;

/// A statement about roles or permissions.
#[derive(Clone, Debug)]
pub struct AuthPlan {
    action: Action,
}

/// The action of a statement, with names resolved.
#[derive(Clone, Debug)]
enum Action {
    Create { name: String, options: Options, if_not_exists: bool },
    Alter { name: String, options: Options, if_exists: bool },
    Drop { name: String, if_exists: bool },
    GrantRole { role: String, grantee: String },
    RevokeRole { role: String, revokee: String },
    Grant(Permissions),
    Revoke(Permissions),
    AddIdentity { identity: String, role: String, if_not_exists: bool },
    DropIdentity { identity: String, if_exists: bool },
    List(list::List),
}

#[derive(Clone, Debug)]
struct Permissions {
    permissions: PermissionSet,
    resource: Resource,
    role: String,
}

/// Options of a role as written.
#[derive(Clone, Debug, Default)]
struct Options {
    password: Option<String>,
    hashed_password: Option<String>,
    superuser: Option<bool>,
    login: Option<bool>,
    has_custom: bool,
    /// Empty: all.
    datacenters: Option<BTreeSet<String>>,
    /// Empty: from everywhere.
    cidr_groups: Option<BTreeSet<String>>,
}

/// State and settings that a statement is checked against.
#[derive(Clone, Copy)]
pub struct AuthContext<'a> {
    /// The state that it will be applied to.
    pub auth: &'a Auth,
    /// The schema of the same epoch.
    pub schema: &'a Schema,
    /// Datacenters of the cluster.
    pub datacenters: &'a [&'a str],
    /// Access of the user that sends the statement.
    pub access: &'a Access,
    /// Rules of access that are in force.
    pub rules: AccessRules,
    /// The hash of [`AuthPlan::password`]. Without it the outcome is good for its errors only.
    pub hash: Option<&'a str>,
}

/// Rows of a LIST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRows {
    /// The table of `system_auth` that the column metadata names.
    pub table: &'static str,
    /// Names and types.
    pub columns: Vec<(&'static str, CqlType)>,
    /// Values in the order of the columns, none of them null.
    pub rows: Vec<Vec<Vec<u8>>>,
}

/// Outcome of a statement: changes, warnings, rows.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct AuthOutcome {
    /// To be applied together; none when nothing is to be done.
    pub changes: Vec<Transformation>,
    /// For the client.
    pub warnings: Vec<String>,
    /// The answer, if it is not void.
    pub rows: Option<ListedRows>,
}

impl AuthPlan {
    /// Takes a statement about roles; `None` for statements of other kinds.
    ///
    /// # Errors
    /// A resource that needs a keyspace and has none; permissions that there are not on it; an
    /// option that is not supported.
    pub fn new(
        statement: &StatementKind,
        keyspace: Option<&str>,
    ) -> Option<Result<AuthPlan, PlanError>> {
        let action = action(statement, keyspace)?;
        Some(action.map(|action| AuthPlan { action }))
    }

    /// The password that the statement gives a role and that must be hashed.
    pub fn password(&self) -> Option<&str> {
        match &self.action {
            Action::Create { options, .. } | Action::Alter { options, .. } => {
                options.password.as_deref()
            }
            _ => None,
        }
    }

    /// Computes the outcome of the statement.
    ///
    /// # Errors
    /// Everything Cassandra refuses, in its words.
    pub fn outcome(&self, cx: &AuthContext<'_>) -> Result<AuthOutcome, PlanError> {
        match &self.action {
            Action::Create { name, options, if_not_exists } => {
                create(name, options, *if_not_exists, cx)
            }
            Action::Alter { name, options, if_exists } => alter(name, options, *if_exists, cx),
            Action::Drop { name, if_exists } => drop_role(name, *if_exists, cx),
            Action::GrantRole { role, grantee } => grant_role(role, grantee, cx),
            Action::RevokeRole { role, revokee } => revoke_role(role, revokee, cx),
            Action::Grant(what) => grant(&what.in_schema(cx.schema), cx),
            Action::Revoke(what) => revoke(&what.in_schema(cx.schema), cx),
            Action::AddIdentity { identity, role, if_not_exists } => {
                add_identity(identity, role, *if_not_exists, cx)
            }
            Action::DropIdentity { identity, if_exists } => drop_identity(identity, *if_exists, cx),
            Action::List(list) => list.outcome(cx),
        }
    }
}

fn action(statement: &StatementKind, keyspace: Option<&str>) -> Option<Result<Action, PlanError>> {
    let name = |ident: &ast::Ident| ident.text.clone();
    Some(match statement {
        StatementKind::CreateRole(s) => options(&s.options).map(|options| Action::Create {
            name: name(&s.name),
            // Not written means no.
            options: Options {
                superuser: options.superuser.or(Some(false)),
                login: options.login.or(Some(false)),
                ..options
            },
            if_not_exists: s.if_not_exists,
        }),
        StatementKind::AlterRole(s) => options(&s.options).map(|options| Action::Alter {
            name: name(&s.name),
            options,
            if_exists: s.if_exists,
        }),
        StatementKind::DropRole(s) => {
            Ok(Action::Drop { name: name(&s.name), if_exists: s.if_exists })
        }
        StatementKind::CreateUser(s) => Ok(Action::Create {
            name: s.name.clone(),
            options: Options {
                login: Some(true),
                superuser: Some(s.superuser.unwrap_or(false)),
                ..with_password(s.password.as_ref())
            },
            if_not_exists: s.if_not_exists,
        }),
        StatementKind::AlterUser(s) => Ok(Action::Alter {
            name: s.name.clone(),
            options: Options { superuser: s.superuser, ..with_password(s.password.as_ref()) },
            if_exists: s.if_exists,
        }),
        StatementKind::DropUser(s) => {
            Ok(Action::Drop { name: s.name.clone(), if_exists: s.if_exists })
        }
        StatementKind::GrantRole(s) => {
            Ok(Action::GrantRole { role: name(&s.role), grantee: name(&s.grantee) })
        }
        StatementKind::RevokeRole(s) => {
            Ok(Action::RevokeRole { role: name(&s.role), revokee: name(&s.revokee) })
        }
        StatementKind::GrantPermissions(s) => {
            permissions(&s.permissions, &s.resource, &s.role, keyspace).map(Action::Grant)
        }
        StatementKind::RevokePermissions(s) => {
            permissions(&s.permissions, &s.resource, &s.role, keyspace).map(Action::Revoke)
        }
        StatementKind::AddIdentity(s) => Ok(Action::AddIdentity {
            identity: s.identity.clone(),
            role: s.role.clone(),
            if_not_exists: s.if_not_exists,
        }),
        StatementKind::DropIdentity(s) => {
            Ok(Action::DropIdentity { identity: s.identity.clone(), if_exists: s.if_exists })
        }
        StatementKind::ListUsers => Ok(Action::List(list::List::Users)),
        StatementKind::ListRoles(s) => Ok(Action::List(list::List::Roles {
            of: s.of.as_ref().map(name),
            recursive: s.recursive,
        })),
        StatementKind::ListPermissions(s) => {
            let resource = s.resource.as_ref().map(|r| Resource::of_statement(r, keyspace));
            resource.transpose().map(|resource| {
                Action::List(list::List::Permissions {
                    permissions: set_of(&s.permissions),
                    resource,
                    of: s.of.as_ref().map(name),
                    recursive: s.recursive,
                })
            })
        }
        _ => return None,
    })
}

fn options(given: &[RoleOption]) -> Result<Options, PlanError> {
    let mut options = Options::default();
    for option in given {
        match option {
            RoleOption::Password(password) => options.password = Some(password.clone()),
            RoleOption::HashedPassword(hash) => options.hashed_password = Some(hash.clone()),
            RoleOption::Options(_) => options.has_custom = true,
            RoleOption::Superuser(is) => options.superuser = Some(*is),
            RoleOption::Login(can) => options.login = Some(*can),
            RoleOption::AccessToAllDatacenters => {
                merge(&mut options.datacenters, &[], "DCs have already been set")?;
            }
            RoleOption::AccessToDatacenters(some) => {
                merge(&mut options.datacenters, some, "DCs have already been set")?;
            }
            RoleOption::AccessFromAllCidrs => {
                merge(&mut options.cidr_groups, &[], "CIDR Groups have already been set")?;
            }
            RoleOption::AccessFromCidrs(some) => {
                merge(&mut options.cidr_groups, some, "CIDR Groups have already been set")?;
            }
        }
    }
    Ok(options)
}

/// Adds names to those of an earlier clause; no names are all.
fn merge(
    so_far: &mut Option<BTreeSet<String>>,
    names: &[String],
    conflict: &str,
) -> Result<(), PlanError> {
    match so_far {
        Some(some) if some.is_empty() && !names.is_empty() => {
            return Err(PlanError::syntax("All has been set"));
        }
        Some(some) if !some.is_empty() && names.is_empty() => {
            return Err(PlanError::syntax(conflict));
        }
        _ => {}
    }
    so_far.get_or_insert_default().extend(names.iter().cloned());
    Ok(())
}

fn with_password(password: Option<&UserPassword>) -> Options {
    match password {
        None => Options::default(),
        Some(UserPassword::Plain(password)) => {
            Options { password: Some(password.clone()), ..Options::default() }
        }
        Some(UserPassword::Hashed(hash)) => {
            Options { hashed_password: Some(hash.clone()), ..Options::default() }
        }
    }
}

fn permission(permission: ast::Permission) -> Permission {
    match permission {
        ast::Permission::Create => Permission::Create,
        ast::Permission::Alter => Permission::Alter,
        ast::Permission::Drop => Permission::Drop,
        ast::Permission::Select => Permission::Select,
        ast::Permission::Modify => Permission::Modify,
        ast::Permission::Authorize => Permission::Authorize,
        ast::Permission::Describe => Permission::Describe,
        ast::Permission::Execute => Permission::Execute,
        ast::Permission::Unmask => Permission::Unmask,
        ast::Permission::SelectMasked => Permission::SelectMasked,
    }
}

fn set_of(permissions: &ast::Permissions) -> PermissionSet {
    match permissions {
        ast::Permissions::All => PermissionSet::of(&Permission::ALL),
        ast::Permissions::List(list) => {
            let list: Vec<Permission> = list.iter().map(|p| permission(*p)).collect();
            PermissionSet::of(&list)
        }
    }
}

impl Permissions {
    /// The same on the resource with its user types looked up.
    fn in_schema(&self, schema: &Schema) -> Permissions {
        let (permissions, resource) = (self.permissions, self.resource.in_schema(schema));
        Permissions { permissions, resource, role: self.role.clone() }
    }
}

/// Keeps of the permissions those that there are on the resource.
fn permissions(
    given: &ast::Permissions,
    resource: &ast::Resource,
    role: &ast::Ident,
    keyspace: Option<&str>,
) -> Result<Permissions, PlanError> {
    // An error of Cassandra's parser, which does not know the keyspace in use.
    let resource = Resource::of_statement(resource, Some(keyspace.unwrap_or_default()))
        .and_then(|r| with_keyspace(r, keyspace))?;
    let permissions = set_of(given).intersection(resource.applicable());
    if permissions.is_empty() {
        return Err(PlanError::syntax(format!(
            "Resource type {} does not support any of the requested permissions",
            resource.class()
        )));
    }
    Ok(Permissions { permissions, resource, role: role.text.clone() })
}

fn with_keyspace(resource: Resource, keyspace: Option<&str>) -> Result<Resource, PlanError> {
    match &resource {
        Resource::Table { keyspace: named, .. } if named.is_empty() && keyspace.is_none() => {
            Err(PlanError::invalid(
                "No keyspace has been specified. USE a keyspace, or explicitly specify \
                 keyspace.tablename",
            ))
        }
        _ => Ok(resource),
    }
}

/// Checks that the user has a permission on a role; the error has the words of statements about
/// roles.
fn ensure_on_role(
    cx: &AuthContext<'_>,
    permission: Permission,
    resource: &Resource,
) -> Result<(), PlanError> {
    if cx.access.has(permission, resource) {
        return Ok(());
    }
    Err(PlanError::unauthorized(format!(
        "User {} does not have sufficient privileges to perform the requested operation",
        cx.access.user.as_deref().unwrap_or("anonymous")
    )))
}

fn role(name: &str) -> Resource {
    Resource::Role(name.to_owned())
}

impl Options {
    /// `IRoleManager.Option`s that are given, in their order.
    fn given(&self) -> impl Iterator<Item = &'static str> {
        [
            (self.password.is_some(), "PASSWORD"),
            (self.superuser.is_some(), "SUPERUSER"),
            (self.login.is_some(), "LOGIN"),
            (self.has_custom, "OPTIONS"),
            (self.hashed_password.is_some(), "HASHED_PASSWORD"),
        ]
        .into_iter()
        .filter_map(|(is_given, name)| is_given.then_some(name))
    }

    fn check(&self, cx: &AuthContext<'_>) -> Result<(), PlanError> {
        for option in self.given() {
            let is_supported = match option {
                "OPTIONS" => false,
                "PASSWORD" | "HASHED_PASSWORD" => cx.rules.passwords,
                _ => true,
            };
            if !is_supported {
                return Err(PlanError::invalid(format!(
                    "org.apache.cassandra.auth.CassandraRoleManager doesn't support {option}"
                )));
            }
        }
        match &self.hashed_password {
            Some(hash) if !is_bcrypt(hash) => {
                Err(PlanError::invalid("Invalid hashed password value. Please use jBcrypt."))
            }
            // One login with such a hash would hold a thread of those that verify passwords for minutes or days.
            Some(hash) if bcrypt_cost(hash) > BCRYPT_COST_MAX => Err(PlanError::invalid(format!(
                "Invalid hashed password value. Its cost is above {BCRYPT_COST_MAX}."
            ))),
            _ => Ok(()),
        }
    }

    fn check_datacenters(&self, cx: &AuthContext<'_>) -> Result<(), PlanError> {
        let Some(given) = &self.datacenters else { return Ok(()) };
        if given.iter().all(|datacenter| cx.datacenters.contains(&datacenter.as_str())) {
            return Ok(());
        }
        let given: Vec<&str> = given.iter().map(String::as_str).collect();
        Err(PlanError::invalid(format!(
            "Invalid value(s) for DATACENTERS '[{}]',All values must be valid datacenters",
            given.join(", ")
        )))
    }

    fn check_cidr_groups(&self, cx: &AuthContext<'_>) -> Result<(), PlanError> {
        let Some(given) = &self.cidr_groups else { return Ok(()) };
        if given.iter().all(|group| cx.auth.cidr_groups.contains_key(group)) {
            return Ok(());
        }
        let given: Vec<&str> = given.iter().map(String::as_str).collect();
        let known: Vec<&str> = cx.auth.cidr_groups.keys().map(String::as_str).collect();
        Err(PlanError::invalid(format!(
            "Invalid CIDR group(s): [{}]. Available CIDR Groups are: [{}]",
            given.join(", "),
            known.join(", ")
        )))
    }

    /// The hash of either password.
    fn hash(&self, cx: &AuthContext<'_>) -> Option<String> {
        let hash = self.password.as_ref().map(|_| cx.hash.unwrap_or("?"));
        hash.or(self.hashed_password.as_deref()).map(str::to_owned)
    }
}

/// Highest cost of a hash that a role may have: some three seconds of a processor for each login.
const BCRYPT_COST_MAX: u8 = 16;

fn bcrypt_cost(hash: &str) -> u8 {
    hash.get(4..6).and_then(|rounds| rounds.parse().ok()).unwrap_or(0)
}

/// Returns true for a hash that jBCrypt accepts: `$2a$`, two digits from 04 to 31, 53 characters of
/// its Base64.
fn is_bcrypt(hash: &str) -> bool {
    let Some(rest) = hash.strip_prefix("$2a$") else { return false };
    let Some((rounds, rest)) = rest.split_once('$') else { return false };
    let is_base64 = |b: u8| b.is_ascii_alphanumeric() || b == b'.' || b == b'/';
    rounds.len() == 2
        && rounds.parse::<u8>().is_ok_and(|n| (4..=31).contains(&n))
        && rest.len() == 53
        && rest.bytes().all(is_base64)
}

fn create(
    name: &str,
    options: &Options,
    if_not_exists: bool,
    cx: &AuthContext<'_>,
) -> Result<AuthOutcome, PlanError> {
    ensure_on_role(cx, Permission::Create, &Resource::AllRoles)?;
    if options.superuser == Some(true) && !cx.access.is_superuser {
        return Err(PlanError::unauthorized(
            "Only superusers can create a role with superuser status",
        ));
    }
    options.check(cx)?;
    if name.is_empty() {
        return Err(PlanError::invalid("Role name can't be an empty string"));
    }
    options.check_datacenters(cx)?;
    options.check_cidr_groups(cx)?;
    let creator = cx.access.check_not_anonymous()?;
    if cx.auth.roles.contains_key(name) {
        if if_not_exists {
            return Ok(AuthOutcome::default());
        }
        return Err(PlanError::invalid(format!("{name} already exists")));
    }
    let created = Role {
        is_superuser: options.superuser == Some(true),
        can_login: options.login == Some(true),
        salted_hash: options.hash(cx).unwrap_or_default(),
    };
    let mut outcome = AuthOutcome::default();
    outcome.changes.push(Transformation::PutRole { name: name.to_owned(), role: created });
    if let Some(datacenters) = options.datacenters.as_ref().filter(|some| !some.is_empty()) {
        if cx.rules.datacenters {
            let (role, datacenters) = (name.to_owned(), datacenters.clone());
            let change = AuthChange::SetDatacenters { role, datacenters };
            outcome.changes.push(Transformation::Auth(change));
        } else {
            outcome.warnings.push(
                "ACCESS TO DATACENTERS is not kept: network_authorizer is \
                 AllowAllNetworkAuthorizer"
                    .to_owned(),
            );
        }
    }
    // Stored also while no authorizer uses them, as in Cassandra.
    if let Some(cidr_groups) = options.cidr_groups.as_ref().filter(|some| !some.is_empty()) {
        let (role, cidr_groups) = (name.to_owned(), cidr_groups.clone());
        let change = AuthChange::SetCidrGroups { role, cidr_groups };
        outcome.changes.push(Transformation::Auth(change));
    }
    if cx.rules.permissions {
        let resource = role(name);
        outcome.changes.push(Transformation::Auth(AuthChange::Grant {
            role: creator.to_owned(),
            permissions: resource.applicable(),
            resource: resource.name(),
        }));
    }
    Ok(outcome)
}

fn alter(
    name: &str,
    options: &Options,
    if_exists: bool,
    cx: &AuthContext<'_>,
) -> Result<AuthOutcome, PlanError> {
    may_alter(name, options, cx)?;
    options.check(cx)?;
    let is_empty = options.given().next().is_none();
    if is_empty && options.datacenters.is_none() && options.cidr_groups.is_none() {
        return Err(PlanError::invalid("ALTER [ROLE|USER] can't be empty"));
    }
    options.check_datacenters(cx)?;
    options.check_cidr_groups(cx)?;
    cx.access.check_not_anonymous()?;
    let Some(old) = cx.auth.roles.get(name) else {
        if if_exists {
            return Ok(AuthOutcome::default());
        }
        return Err(PlanError::invalid(format!("Role {name} doesn't exist")));
    };
    if options.datacenters.is_some() && !cx.rules.datacenters {
        return Err(PlanError::invalid(
            "ACCESS TO DATACENTERS operations not supported by AllowAllNetworkAuthorizer",
        ));
    }
    let altered = Role {
        is_superuser: options.superuser.unwrap_or(old.is_superuser),
        can_login: options.login.unwrap_or(old.can_login),
        salted_hash: options.hash(cx).unwrap_or_else(|| old.salted_hash.clone()),
    };
    let mut outcome = AuthOutcome::default();
    if altered != *old {
        outcome.changes.push(Transformation::PutRole { name: name.to_owned(), role: altered });
    }
    if let Some(datacenters) = &options.datacenters {
        let (role, datacenters) = (name.to_owned(), datacenters.clone());
        let change = AuthChange::SetDatacenters { role, datacenters };
        outcome.changes.push(Transformation::Auth(change));
    }
    // To everywhere from everywhere would be nothing but an entry that older builds cannot read.
    if let Some(cidr_groups) = &options.cidr_groups
        && cx.auth.cidr_permissions.get(name) != Some(cidr_groups)
        && (!cidr_groups.is_empty() || cx.auth.cidr_permissions.contains_key(name))
    {
        let (role, cidr_groups) = (name.to_owned(), cidr_groups.clone());
        let change = AuthChange::SetCidrGroups { role, cidr_groups };
        outcome.changes.push(Transformation::Auth(change));
    }
    Ok(outcome)
}

fn may_alter(name: &str, options: &Options, cx: &AuthContext<'_>) -> Result<(), PlanError> {
    let user = cx.access.user.as_deref();
    if options.superuser.is_some() {
        if user.is_some_and(|user| cx.auth.roles_of(user).contains(&name)) {
            return Err(PlanError::unauthorized(
                "You aren't allowed to alter your own superuser status or that of a role granted \
                 to you",
            ));
        }
        if !cx.access.is_superuser {
            return Err(PlanError::unauthorized(
                "Only superusers are allowed to alter superuser status",
            ));
        }
    }
    if cx.access.is_superuser {
        return Ok(());
    }
    if user != Some(name) {
        return ensure_on_role(cx, Permission::Alter, &role(name));
    }
    let is_alterable =
        |option: &str| cx.rules.passwords && matches!(option, "PASSWORD" | "HASHED_PASSWORD");
    match options.given().find(|option| !is_alterable(option)) {
        None => Ok(()),
        Some(option) => {
            Err(PlanError::unauthorized(format!("You aren't allowed to alter {option}")))
        }
    }
}

fn drop_role(name: &str, if_exists: bool, cx: &AuthContext<'_>) -> Result<AuthOutcome, PlanError> {
    ensure_on_role(cx, Permission::Drop, &role(name))?;
    if cx.auth.is_superuser(name) && !cx.access.is_superuser {
        return Err(PlanError::unauthorized(
            "Only superusers can drop a role with superuser status",
        ));
    }
    let user = cx.access.check_not_anonymous()?;
    let exists = cx.auth.roles.contains_key(name);
    if !exists && !if_exists {
        return Err(PlanError::invalid(format!("{name} doesn't exist")));
    }
    if user == name {
        return Err(PlanError::invalid("Cannot DROP primary role for current login"));
    }
    let mut outcome = AuthOutcome::default();
    if exists {
        let change = AuthChange::DropRole { name: name.to_owned() };
        outcome.changes.push(Transformation::Auth(change));
    }
    Ok(outcome)
}

/// Checks that precede GRANT and REVOKE of a role.
fn check_roles(first: &str, second: &str, cx: &AuthContext<'_>) -> Result<(), PlanError> {
    ensure_on_role(cx, Permission::Authorize, &role(first))?;
    cx.access.check_not_anonymous()?;
    for name in [first, second] {
        if !cx.auth.roles.contains_key(name) {
            return Err(PlanError::invalid(format!("{name} doesn't exist")));
        }
    }
    Ok(())
}

fn grant_role(role: &str, grantee: &str, cx: &AuthContext<'_>) -> Result<AuthOutcome, PlanError> {
    check_roles(role, grantee, cx)?;
    if cx.auth.roles_of(grantee).contains(&role) {
        return Err(PlanError::invalid(format!("{grantee} is a member of {role}")));
    }
    if cx.auth.roles_of(role).contains(&grantee) {
        return Err(PlanError::invalid(format!("{role} is a member of {grantee}")));
    }
    let change = AuthChange::GrantRole { role: role.to_owned(), grantee: grantee.to_owned() };
    Ok(AuthOutcome { changes: vec![Transformation::Auth(change)], ..AuthOutcome::default() })
}

fn revoke_role(role: &str, revokee: &str, cx: &AuthContext<'_>) -> Result<AuthOutcome, PlanError> {
    check_roles(role, revokee, cx)?;
    // Like Cassandra: a role is a member of itself here, and revoking it from itself has no effect.
    let is_member = cx.auth.member_of.get(revokee).is_some_and(|granted| granted.contains(role));
    if !is_member && role != revokee {
        return Err(PlanError::invalid(format!("{revokee} is not a member of {role}")));
    }
    let change = AuthChange::RevokeRole { role: role.to_owned(), revokee: revokee.to_owned() };
    let changes = if is_member { vec![Transformation::Auth(change)] } else { Vec::new() };
    Ok(AuthOutcome { changes, ..AuthOutcome::default() })
}

/// Checks that precede GRANT and REVOKE of permissions.
fn check_permissions(what: &Permissions, cx: &AuthContext<'_>) -> Result<(), PlanError> {
    cx.access.ensure(Permission::Authorize, &what.resource)?;
    for permission in what.permissions.iter() {
        cx.access.ensure(permission, &what.resource)?;
    }
    cx.access.check_not_anonymous()?;
    if !cx.auth.roles.contains_key(&what.role) {
        return Err(PlanError::invalid(format!("Role {} doesn't exist", what.role)));
    }
    if !what.resource.exists(cx.auth, cx.schema)? {
        return Err(PlanError::invalid(format!("Resource {} doesn't exist", what.resource)));
    }
    Ok(())
}

fn existing(what: &Permissions, cx: &AuthContext<'_>) -> PermissionSet {
    let of_role = cx.auth.permissions.get(&what.role);
    of_role.and_then(|r| r.get(&what.resource.name())).copied().unwrap_or_default()
}

fn names(permissions: PermissionSet) -> String {
    permissions.iter().map(Permission::name).collect::<Vec<_>>().join(", ")
}

fn grant(what: &Permissions, cx: &AuthContext<'_>) -> Result<AuthOutcome, PlanError> {
    check_permissions(what, cx)?;
    if !cx.rules.permissions {
        return Err(not_supported("GRANT"));
    }
    if what.permissions.iter().any(|permission| is_ungrantable(permission, &what.resource)) {
        return Err(PlanError::unauthorized(
            "Granting permissions on system keyspaces is strictly limited, this operation is not permitted",
        ));
    }
    let (had, mut outcome) = (existing(what, cx), AuthOutcome::default());
    let new = what.permissions.without(had);
    if new != what.permissions {
        outcome.warnings.push(format!(
            "Role '{}' was already granted {} on {}",
            what.role,
            names(what.permissions.intersection(had)),
            what.resource
        ));
    }
    if !new.is_empty() {
        outcome.changes.push(Transformation::Auth(AuthChange::Grant {
            role: what.role.clone(),
            resource: what.resource.name(),
            permissions: new,
        }));
    }
    if matches!(what.resource, Resource::Mbean(_)) {
        let text = "Permissions on single MBeans have no effect: there is no JMX; those on ALL MBEANS are for nodetool and the API";
        outcome.warnings.push(text.to_owned());
    }
    Ok(outcome)
}

fn revoke(what: &Permissions, cx: &AuthContext<'_>) -> Result<AuthOutcome, PlanError> {
    check_permissions(what, cx)?;
    if !cx.rules.permissions {
        return Err(not_supported("REVOKE"));
    }
    let (had, mut outcome) = (existing(what, cx), AuthOutcome::default());
    let gone = what.permissions.intersection(had);
    if gone != what.permissions {
        outcome.warnings.push(format!(
            "Role '{}' was not granted {} on {}",
            what.role,
            names(what.permissions.without(had)),
            what.resource
        ));
    }
    if !gone.is_empty() {
        outcome.changes.push(Transformation::Auth(AuthChange::Revoke {
            role: what.role.clone(),
            resource: what.resource.name(),
            permissions: gone,
        }));
    }
    Ok(outcome)
}

/// Error of `AllowAllAuthorizer`.
pub(super) fn not_supported(operation: &str) -> PlanError {
    PlanError::invalid(format!("{operation} operation is not supported by AllowAllAuthorizer"))
}

fn add_identity(
    identity: &str,
    name: &str,
    if_not_exists: bool,
    cx: &AuthContext<'_>,
) -> Result<AuthOutcome, PlanError> {
    let own = role(cx.access.user.as_deref().unwrap_or("anonymous"));
    ensure_on_role(cx, Permission::Create, &own)?;
    cx.access.check_not_anonymous()?;
    if !cx.auth.roles.contains_key(name) {
        return Err(PlanError::invalid(format!(
            "Can not add identity for non-existent role '{name}'"
        )));
    }
    let exists = cx.auth.identities.contains_key(identity);
    if exists && !if_not_exists {
        return Err(PlanError::invalid(format!("{identity} already exists")));
    }
    let (identity, role) = (identity.to_owned(), name.to_owned());
    let change = Transformation::Auth(AuthChange::AddIdentity { identity, role });
    let changes = if exists { Vec::new() } else { vec![change] };
    Ok(AuthOutcome { changes, ..AuthOutcome::default() })
}

fn drop_identity(
    identity: &str,
    if_exists: bool,
    cx: &AuthContext<'_>,
) -> Result<AuthOutcome, PlanError> {
    let own = role(cx.access.user.as_deref().unwrap_or("anonymous"));
    ensure_on_role(cx, Permission::Drop, &own)?;
    cx.access.check_not_anonymous()?;
    let exists = cx.auth.identities.contains_key(identity);
    if !exists && !if_exists {
        return Err(PlanError::invalid(format!("identity '{identity}' doesn't exist")));
    }
    let change = AuthChange::DropIdentity { identity: identity.to_owned() };
    let changes = if exists { vec![Transformation::Auth(change)] } else { Vec::new() };
    Ok(AuthOutcome { changes, ..AuthOutcome::default() })
}
