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
use cql_plan::auth::{Access, CidrFinding, Resource};
use cql_plan::plan::PlanKind;
use cql_plan::requirements;
use schema::Table;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use stdx::Epoch;

/// Most users that are remembered at a time; beyond it all are looked at again.
const USERS_MAX: usize = 10_000;

/// A user's access with a number that no other one of this shard has or had.
pub(crate) struct Numbered {
    number: u64,
    access: Access,
    /// Each check of where it connects from counts one here for each CIDR group.
    cidr_counters: Vec<telemetry::Counter>,
}

/// Numbers of checks where clients connect from.
pub(crate) struct CidrMetrics {
    registry: telemetry::Shard,
    /// Of those whose answer was not remembered; nanoseconds.
    checks: telemetry::Histogram,
}

impl CidrMetrics {
    pub(crate) fn new(registry: &telemetry::Shard) -> CidrMetrics {
        let help = "time to find out what a client may do, nanoseconds";
        let checks = registry.histogram("cql_cidr_check_nanos", help, &[]);
        CidrMetrics { registry: registry.clone(), checks }
    }

    /// What counts the checks of this finding. As in Cassandra, who is in no group is `Undefined`.
    fn counters(&self, found: &CidrFinding, is_accepted: bool) -> Vec<telemetry::Counter> {
        let counter = |group: &str| {
            let result = if is_accepted { "accepted" } else { "rejected" };
            let labels = [("group", group), ("result", result)];
            self.registry.counter(
                "cql_cidr_accesses_total",
                "checks of clients' addresses",
                &labels,
            )
        };
        match found.groups.as_slice() {
            [] => vec![counter("Undefined")],
            groups => groups.iter().map(|group| counter(group)).collect(),
        }
    }
}

/// A user, and the address where it matters.
type Key = (Option<Rc<str>>, Option<IpAddr>);

/// The users of a shard.
#[derive(Default)]
pub(crate) struct Accesses {
    last: Cell<u64>,
    /// When the roles were as they are in `by_user`.
    as_of: Cell<Epoch>,
    by_user: RefCell<BTreeMap<Key, Rc<Numbered>>>,
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
    let user = numbered(server, session);
    user.count_check();
    Ok(user.access.check_login()?)
}

fn authorize_plan(server: &Server, session: &Session, compiled: &Compiled) -> Result<()> {
    let user = numbered(server, session);
    user.count_check();
    // What a schema change needs depends on the schema as it is now.
    if let PlanKind::Ddl(plan) = &compiled.plan.kind {
        if !user.access.is_superuser
            && let Some(refusal) = plan.refusal_of_others()
        {
            return Err(refusal.into());
        }
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

impl Numbered {
    fn count_check(&self) {
        self.cidr_counters.iter().for_each(telemetry::Counter::inc);
    }
}

fn find_out(server: &Server, user: Option<&str>, address: IpAddr, number: u64) -> Numbered {
    let snapshot = server.snapshot();
    let rules = server.settings.access;
    let datacenter = &snapshot.local.datacenter;
    let began = server.rt.now();
    let access = Access::of(user, &snapshot.auth, rules, datacenter, address);
    let mut cidr_counters = Vec::new();
    if let (Some(rules), Some(found)) = (rules.cidrs, &access.cidr) {
        let took = server.rt.now().since(began).as_nanos();
        let took = u64::try_from(took).unwrap_or(u64::MAX);
        server.cidr_metrics.checks.record(took);
        cidr_counters = server.cidr_metrics.counters(found, found.is_allowed || !rules.enforce);
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
    let rules = server.settings.access;
    let address = session.peer.ip().to_canonical();
    let user = (session.user.borrow().clone(), rules.cidrs.map(|_| address));
    let found = by_user.entry(user).or_insert_with_key(|(user, _)| {
        users.last.set(users.last.get() + 1);
        Rc::new(find_out(server, user.as_deref(), address, users.last.get()))
    });
    *session.access.borrow_mut() = Some(found.clone());
    found.clone()
}
