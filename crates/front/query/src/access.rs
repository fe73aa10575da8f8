//! Access of the users of this shard's connections, cached per user and state of the roles.
//!
//! Owns: the cached [`Access`] of each user, the check before every statement. Never: the rules
//! (`cql-plan::auth`). Without restrictions a check is one comparison.
//!
//! INV-access-1: a cached access is used only as long as the roles in the snapshot are as they were
//! when it was computed, so that a change counts from the next statement on.

use crate::client::ClientState;
use crate::executor::Executor;
use crate::failure::{Failure, Result};
use crate::prepared::Compiled;
use crate::users::{Numbered, USERS_MAX};
use cluster::Permission;
use cql_plan::PlanError;
use cql_plan::auth::{Access, AccessRules, Resource};
use cql_plan::plan::CommandPlan;
use cql_syntax::ast::StatementKind;
use schema::Table;
use std::net::IpAddr;
use std::rc::Rc;

/// Checks that the user of a connection may do what a plan does.
///
/// # Errors
/// `Unauthorized`, in Cassandra's words.
#[inline]
pub(crate) fn authorize(
    executor: &Executor,
    client: &ClientState,
    compiled: &Compiled,
) -> Result<()> {
    if !executor.settings.access.restricts() {
        return Ok(());
    }
    authorize_plan(executor, client, compiled)
}

/// Returns true if the user of a connection is a superuser, or has a role that is one.
pub(crate) fn is_superuser(executor: &Executor, client: &ClientState) -> bool {
    numbered(executor, client).access.is_superuser
}

/// Checks that the user of a connection may use this node at all.
///
/// # Errors
/// As [`authorize`].
pub(crate) fn check_login(executor: &Executor, client: &ClientState) -> Result<()> {
    if !executor.settings.access.restricts() {
        return Ok(());
    }
    let user = numbered(executor, client);
    user.count_check();
    Ok(user.access.check_login()?)
}

/// Returns the error of a statement that cannot be planned. As in Cassandra, the user's permission
/// is checked first where it does not depend on what exists: a user without it does not learn
/// whether there is such a table.
#[cold]
pub(crate) fn error_of_unplanned(
    executor: &Executor,
    client: &ClientState,
    statement: &StatementKind,
    keyspace: Option<&str>,
    error: PlanError,
) -> Failure {
    let StatementKind::Truncate(truncate) = statement else { return error.into() };
    let named = truncate.table.keyspace.as_ref().map(|keyspace| keyspace.text.as_str());
    let Some(keyspace) = named.or(keyspace) else { return error.into() };
    if !executor.settings.access.restricts() {
        return error.into();
    }
    let resource = Resource::table(keyspace, &truncate.table.name.text);
    match numbered(executor, client).access.ensure(Permission::Modify, &resource) {
        Ok(()) => error.into(),
        Err(refusal) => refusal.into(),
    }
}

fn authorize_plan(executor: &Executor, client: &ClientState, compiled: &Compiled) -> Result<()> {
    let user = numbered(executor, client);
    user.count_check();
    // The permissions for a schema change depend on the current schema.
    if let Compiled::Command(command) = compiled
        && let CommandPlan::Ddl(plan) = &command.plan
    {
        if !user.access.is_superuser
            && let Some(refusal) = plan.refusal_of_others()
        {
            return Err(refusal.into());
        }
        let needed = compiled.requirements(&executor.snapshot().schema);
        return Ok(user.access.ensure_all(&needed)?);
    }
    // The same user, the same plan and the same roles: the same answer.
    let header = compiled.header();
    if header.allowed_to.get() == user.number {
        return Ok(());
    }
    let needed = header.needs.get_or_init(|| compiled.requirements(&executor.snapshot().schema));
    user.access.ensure_all(needed)?;
    header.allowed_to.set(user.number);
    Ok(())
}

/// Returns true if the user sees the values that the masks of a table hide. Computed at each
/// execution, for all users share a prepared statement.
pub(crate) fn unmasks(executor: &Executor, client: &ClientState, table: &Table) -> bool {
    let settings = &executor.settings;
    if table.masks.is_empty() || !settings.dynamic_data_masking_enabled {
        return true;
    }
    if let Some(forwarded) = client.forwarded {
        // The node that the client is connected to has found out.
        return forwarded.unmasks;
    }
    let resource = || Resource::table(&table.keyspace, &table.name);
    !settings.access.permissions
        || numbered(executor, client).access.has(Permission::Unmask, &resource())
}

/// The node's own access, which no rule limits.
fn access_of_node(executor: &Executor, number: u64) -> Numbered {
    let snapshot = executor.snapshot();
    let (rules, datacenter) = (AccessRules::default(), &snapshot.local.datacenter);
    let address = executor.settings.storage_address.ip();
    let access = Access::of(None, &snapshot.auth, rules, datacenter, address);
    Numbered { number, access, cidr_counters: Vec::new() }
}

fn find_out(executor: &Executor, user: Option<&str>, address: IpAddr, number: u64) -> Numbered {
    let snapshot = executor.snapshot();
    let rules = executor.settings.access;
    let datacenter = &snapshot.local.datacenter;
    let began = executor.rt.now();
    let access = Access::of(user, &snapshot.auth, rules, datacenter, address);
    let mut cidr_counters = Vec::new();
    if let (Some(rules), Some(found)) = (rules.cidrs, &access.cidr) {
        let took = executor.rt.now().since(began).as_nanos();
        let took = u64::try_from(took).unwrap_or(u64::MAX);
        executor.cidr_metrics.checks.record(took);
        cidr_counters = executor.cidr_metrics.counters(found, found.is_allowed || !rules.enforce);
        let (role, groups) = (user.unwrap_or_default(), found.groups.join(", "));
        match (found.is_allowed, rules.enforce) {
            (true, true) => {}
            (true, false) => tracing::info!(role, %address, groups, "a role connects"),
            (false, enforced) => tracing::warn!(
                role,
                %address,
                groups,
                refused = enforced,
                "a role connects from an address that it may not connect from"
            ),
        }
    }
    Numbered { number, access, cidr_counters }
}

/// The access of a connection's user, as the roles are now.
fn numbered(executor: &Executor, client: &ClientState) -> Rc<Numbered> {
    let snapshot = executor.snapshot();
    let auth = &snapshot.auth;
    if let Some(known) = &*client.access.borrow()
        && known.access.as_of == auth.changed_at
    {
        return known.clone();
    }
    let users = &executor.accesses;
    if client.is_node {
        users.last.set(users.last.get() + 1);
        let own = Rc::new(access_of_node(executor, users.last.get()));
        *client.access.borrow_mut() = Some(own.clone());
        return own;
    }
    let mut by_user = users.by_user.borrow_mut();
    if users.as_of.replace(auth.changed_at) != auth.changed_at || by_user.len() >= USERS_MAX {
        by_user.clear();
    }
    let rules = executor.settings.access;
    let address = client.peer.ip().to_canonical();
    let user = (client.user(), rules.cidrs.map(|_| address));
    let found = by_user.entry(user).or_insert_with_key(|(user, _)| {
        users.last.set(users.last.get() + 1);
        Rc::new(find_out(executor, user.as_deref(), address, users.last.get()))
    });
    *client.access.borrow_mut() = Some(found.clone());
    found.clone()
}
