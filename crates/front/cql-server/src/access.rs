//! What the users of this shard's connections may do, found out once per user and state of the roles.
//!
//! Owns: the remembered [`Access`] of each user, the check in front of every statement. Never: the
//! rules (`cql-plan::auth`). With everything allowed to everybody a check is one comparison.
//!
//! INV-access-1: what is remembered is used only as long as the roles in the snapshot are as they were
//! when it was found out, so that a change counts from the next statement on.

use crate::failure::Result;
use crate::prepared::Compiled;
use crate::server::Server;
use crate::session::Session;
use cluster::Permission;
use cql_plan::auth::{Access, Resource, requirements};
use cql_plan::plan::PlanKind;
use schema::Table;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use stdx::Epoch;

/// Most users that are remembered at a time; beyond it all are looked at again.
const USERS_MAX: usize = 10_000;

/// A user's access with a number that no other one of this shard has or had.
pub(crate) struct Numbered {
    number: u64,
    access: Access,
}

/// The users of a shard.
#[derive(Default)]
pub(crate) struct Accesses {
    last: Cell<u64>,
    /// When the roles were as they are in `by_user`.
    as_of: Cell<Epoch>,
    by_user: RefCell<BTreeMap<Option<Rc<str>>, Rc<Numbered>>>,
}

/// Checks that the user of a connection may do what a plan does.
///
/// # Errors
/// `Unauthorized`, in Cassandra's words.
#[inline]
pub(crate) fn authorize(server: &Server, session: &Session, compiled: &Compiled) -> Result<()> {
    if !server.settings.access.restricts() {
        return Ok(());
    }
    authorize_plan(server, session, compiled)
}

/// Whether the user of a connection is a superuser, or has a role that is one.
pub(crate) fn is_superuser(server: &Server, session: &Session) -> bool {
    numbered(server, session).access.is_superuser
}

/// Checks that the user of a connection may use this node at all.
///
/// # Errors
/// As [`authorize`].
pub(crate) fn check_login(server: &Server, session: &Session) -> Result<()> {
    if !server.settings.access.restricts() {
        return Ok(());
    }
    Ok(numbered(server, session).access.check_login()?)
}

fn authorize_plan(server: &Server, session: &Session, compiled: &Compiled) -> Result<()> {
    let user = numbered(server, session);
    // What a schema change needs depends on the schema as it is now.
    if matches!(compiled.plan.kind, PlanKind::Ddl(_)) {
        let needed = requirements(&compiled.plan, &server.snapshot().schema);
        return Ok(user.access.ensure_all(&needed)?);
    }
    // The same user, the same plan and the same roles: the same answer.
    if compiled.allowed_to.get() == user.number {
        return Ok(());
    }
    let needed =
        compiled.needs.get_or_init(|| requirements(&compiled.plan, &server.snapshot().schema));
    user.access.ensure_all(needed)?;
    compiled.allowed_to.set(user.number);
    Ok(())
}

/// Whether whoever asks is shown the values that the masks of a table hide. Found out at each
/// execution: a prepared statement is everybody's.
pub(crate) fn unmasks(server: &Server, session: &Session, table: &Table) -> bool {
    let settings = &server.settings;
    if table.masks.is_empty() || !settings.dynamic_data_masking_enabled {
        return true;
    }
    if session.forwarded.is_some() {
        // The node that the client is connected to has found out.
        return session.unmasks.get();
    }
    let resource = || Resource::table(&table.keyspace, &table.name);
    !settings.access.permissions
        || numbered(server, session).access.has(Permission::Unmask, &resource())
}

/// The access of a connection's user, as the roles are now.
fn numbered(server: &Server, session: &Session) -> Rc<Numbered> {
    let snapshot = server.snapshot();
    let auth = &snapshot.auth;
    if let Some(known) = &*session.access.borrow()
        && known.access.as_of == auth.changed_at
    {
        return known.clone();
    }
    let users = &server.accesses;
    let mut by_user = users.by_user.borrow_mut();
    if users.as_of.replace(auth.changed_at) != auth.changed_at || by_user.len() >= USERS_MAX {
        by_user.clear();
    }
    let user = session.user.borrow().clone();
    let found = by_user.entry(user).or_insert_with_key(|user| {
        users.last.set(users.last.get() + 1);
        let (rules, datacenter) = (server.settings.access, &snapshot.local.datacenter);
        let access = Access::of(user.as_deref(), auth, rules, datacenter);
        Rc::new(Numbered { number: users.last.get(), access })
    });
    *session.access.borrow_mut() = Some(found.clone());
    found.clone()
}
