//! LIST ROLES, USERS, PERMISSIONS.

use cluster::{Auth, Permission, PermissionSet};
use types::CqlType;

use super::access::{Datacenters, datacenters};
use super::statement::not_supported;
use super::{AuthContext, AuthOutcome, ListedRows, Resource};
use crate::error::PlanError;

#[derive(Clone, Debug)]
pub(super) enum List {
    Users,
    Roles {
        of: Option<String>,
        recursive: bool,
    },
    Permissions {
        permissions: PermissionSet,
        resource: Option<Resource>,
        of: Option<String>,
        recursive: bool,
    },
}

impl List {
    pub(super) fn outcome(&self, cx: &AuthContext<'_>) -> Result<AuthOutcome, PlanError> {
        let user = cx.access.check_not_anonymous()?;
        let rows = match self {
            List::Users => {
                let roles = visible(user, None, false, cx)?;
                (!roles.is_empty()).then(|| users(&roles, cx))
            }
            List::Roles { of, recursive } => {
                check_exists(of.as_deref(), cx)?;
                let listed = visible(user, of.as_deref(), *recursive, cx)?;
                (!listed.is_empty()).then(|| roles(&listed, cx))
            }
            List::Permissions { permissions, resource, of, recursive } => {
                let resource = &resource.as_ref().map(|r| r.in_schema(cx.schema));
                if let Some(resource) = resource
                    && !resource.exists(cx.auth, cx.schema)?
                {
                    return Err(PlanError::invalid(format!("{resource} doesn't exist")));
                }
                check_exists(of.as_deref(), cx)?;
                if !cx.rules.permissions {
                    return Err(not_supported("LIST PERMISSIONS"));
                }
                may_list_permissions(user, of.as_deref(), cx)?;
                let resources = match resource {
                    None => None,
                    Some(resource) if *recursive => Some(resource.chain()),
                    Some(resource) => Some(vec![resource.clone()]),
                };
                let listed = granted(*permissions, resources.as_deref(), of.as_deref(), cx.auth);
                (!listed.is_empty()).then(|| permission_rows(listed))
            }
        };
        Ok(AuthOutcome { rows, ..AuthOutcome::default() })
    }
}

fn check_exists(of: Option<&str>, cx: &AuthContext<'_>) -> Result<(), PlanError> {
    match of {
        Some(role) if !cx.auth.roles.contains_key(role) => {
            Err(PlanError::invalid(format!("<role {role}> doesn't exist")))
        }
        _ => Ok(()),
    }
}

/// A role and those it has, directly or at all.
fn with_granted<'a>(auth: &'a Auth, role: &'a str, recursive: bool) -> Vec<&'a str> {
    if recursive || !auth.roles.contains_key(role) {
        return auth.roles_of(role);
    }
    let granted = auth.member_of.get(role).into_iter().flatten().map(String::as_str);
    std::iter::once(role).chain(granted).collect()
}

/// Returns the roles that the user is shown, sorted. With DESCRIBE on all roles it sees all of them
/// or those of any role, otherwise only its own.
fn visible<'a>(
    user: &'a str,
    of: Option<&'a str>,
    recursive: bool,
    cx: &AuthContext<'a>,
) -> Result<Vec<&'a str>, PlanError> {
    let sees_all = cx.access.on(&Resource::AllRoles).contains(Permission::Describe);
    let mut roles = match of {
        None if sees_all => cx.auth.roles.keys().map(String::as_str).collect(),
        None => with_granted(cx.auth, user, recursive),
        Some(of) if sees_all || cx.auth.roles_of(user).contains(&of) => {
            with_granted(cx.auth, of, recursive)
        }
        Some(of) => {
            return Err(PlanError::unauthorized(format!(
                "You are not authorized to view roles granted to {of} "
            )));
        }
    };
    roles.sort_unstable();
    Ok(roles)
}

fn text(value: &str) -> Vec<u8> {
    value.as_bytes().to_vec()
}

fn shown_datacenters(role: &str, cx: &AuthContext<'_>) -> Vec<u8> {
    if !cx.rules.datacenters {
        return text("ALL");
    }
    match datacenters(cx.auth, role) {
        Datacenters::None => text("n/a"),
        Datacenters::All => text("ALL"),
        Datacenters::Some(some) => text(&some.join(", ")),
    }
}

fn users(roles: &[&str], cx: &AuthContext<'_>) -> ListedRows {
    let can_login = |role: &&&str| cx.auth.roles.get(**role).is_some_and(|r| r.can_login);
    let row = |role: &&str| {
        vec![text(role), vec![u8::from(cx.auth.is_superuser(role))], shown_datacenters(role, cx)]
    };
    ListedRows {
        table: "users",
        columns: vec![
            ("name", CqlType::Text),
            ("super", CqlType::Boolean),
            ("datacenters", CqlType::Text),
        ],
        rows: roles.iter().filter(can_login).map(row).collect(),
    }
}

fn roles(roles: &[&str], cx: &AuthContext<'_>) -> ListedRows {
    let row = |role: &&str| {
        let found = cx.auth.roles.get(*role);
        vec![
            text(role),
            vec![u8::from(found.is_some_and(|r| r.is_superuser))],
            vec![u8::from(found.is_some_and(|r| r.can_login))],
            // A map without entries.
            vec![0; 4],
            shown_datacenters(role, cx),
        ]
    };
    let options =
        CqlType::Map { key: CqlType::Text.into(), value: CqlType::Text.into(), frozen: true };
    ListedRows {
        table: "roles",
        columns: vec![
            ("role", CqlType::Text),
            ("super", CqlType::Boolean),
            ("login", CqlType::Boolean),
            ("options", options),
            ("datacenters", CqlType::Text),
        ],
        rows: roles.iter().map(row).collect(),
    }
}

fn may_list_permissions(
    user: &str,
    of: Option<&str>,
    cx: &AuthContext<'_>,
) -> Result<(), PlanError> {
    let has_on = |resource: &Resource| cx.access.on(resource).contains(Permission::Describe);
    let may = cx.access.is_superuser
        || of.is_some_and(|of| cx.auth.roles_of(user).contains(&of))
        || has_on(&Resource::AllRoles)
        || of.is_some_and(|of| has_on(&Resource::Role(of.to_owned())));
    if may {
        return Ok(());
    }
    Err(PlanError::unauthorized(format!(
        "You are not authorized to view {}'s permissions",
        of.unwrap_or("everyone")
    )))
}

type Granted<'a> = (&'a str, &'a str, Permission);

/// Role, name of the resource and permission, in this order.
fn granted<'a>(
    wanted: PermissionSet,
    resources: Option<&[Resource]>,
    of: Option<&'a str>,
    auth: &'a Auth,
) -> Vec<Granted<'a>> {
    let names: Option<Vec<String>> = resources.map(|r| r.iter().map(Resource::name).collect());
    let of = of.map(|of| auth.roles_of(of));
    let mut found = Vec::new();
    for (role, of_role) in &auth.permissions {
        if of.as_ref().is_some_and(|of| !of.contains(&role.as_str())) {
            continue;
        }
        for (resource, permissions) in of_role {
            if names.as_ref().is_some_and(|names| !names.contains(resource)) {
                continue;
            }
            let permissions = permissions.intersection(wanted);
            found.extend(permissions.iter().map(|p| (role.as_str(), resource.as_str(), p)));
        }
    }
    found
}

fn permission_rows(granted: Vec<Granted<'_>>) -> ListedRows {
    let row = |(role, resource, permission): Granted<'_>| {
        let shown = Resource::from_name(resource).map(|r| r.to_string());
        let shown = shown.unwrap_or_else(|| resource.to_owned());
        vec![text(role), text(role), text(&shown), text(permission.name())]
    };
    ListedRows {
        table: "permissions",
        columns: vec![
            ("role", CqlType::Text),
            ("username", CqlType::Text),
            ("resource", CqlType::Text),
            ("permission", CqlType::Text),
        ],
        rows: granted.into_iter().map(row).collect(),
    }
}
