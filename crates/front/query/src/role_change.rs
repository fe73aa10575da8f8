//! Statements about roles and permissions: planned on the newest metadata, submitted, again when
//! another change was faster; LIST answers rows.

use crate::context::{Cx, Waiting, finish};
use crate::describe::described;
use crate::executor::Executor;
use crate::failure::{Failure, Result};
use crate::schema_change::await_next_attempt;
use crate::settings::Timeout;
use crate::sink::{Describe, MadeRows, ResultSink};
use cql_plan::PlanError;
use cql_plan::auth::{Access, AuthContext, AuthOutcome, AuthPlan};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::rc::Rc;
use stdx::ShardId;

/// Runs a statement about roles.
pub(crate) fn run<S: ResultSink>(
    plan: AuthPlan,
    mode: Describe,
    cx: &Cx<'_, S>,
) -> Waiting<S::Answer> {
    let (executor, sink) = (cx.executor.clone(), cx.sink.clone());
    let ticket = cx.ticket.clone();
    Box::pin(async move {
        let (user, address) = (sink.client().user(), sink.client().peer.ip());
        let (result, outcome) = match execute(&executor, plan, user, address).await {
            Ok(outcome) => (Ok(()), outcome),
            Err(failure) => (Err(failure), AuthOutcome::default()),
        };
        finish(&executor, &sink, &ticket, result, |out| match &outcome.rows {
            None => {
                let warnings: Vec<&str> = outcome.warnings.iter().map(String::as_str).collect();
                sink.void(out, &ticket, &warnings);
                Ok(())
            }
            Some(listed) => {
                let rows = listed.rows.iter();
                let made = MadeRows {
                    columns: &described("system_auth", listed.table, &listed.columns),
                    describe: mode,
                    rows: rows.map(|row| row.iter().map(|value| Some(value.as_slice()))),
                    paging_state: None,
                    warnings: &[],
                };
                sink.rows(out, &ticket, made)
            }
        })
        .await
    })
}

/// Runs in its own task: a client that disconnects must not stop the metadata log in the middle of
/// a write.
async fn execute(
    executor: &Rc<Executor>,
    plan: AuthPlan,
    user: Option<Rc<str>>,
    address: IpAddr,
) -> Result<AuthOutcome> {
    let this = executor.clone();
    let work = async move { change(&this, &plan, user.as_deref(), address).await };
    executor.to_its_end("role-change", work).await
}

async fn change(
    executor: &Executor,
    plan: &AuthPlan,
    user: Option<&str>,
    address: IpAddr,
) -> Result<AuthOutcome> {
    let deadline = executor.rt.now() + executor.timeouts.get(Timeout::Request);
    let mut hash: Option<String> = None;
    loop {
        let snapshot = executor.membership.snapshot();
        let outcome = {
            let members = snapshot.members.values().map(|member| member.datacenter.as_str());
            let own = snapshot.local.datacenter.as_str();
            let datacenters: BTreeSet<&str> = members.chain([own]).collect();
            let datacenters: Vec<&str> = datacenters.into_iter().collect();
            let rules = executor.settings.access;
            let context = AuthContext {
                auth: &snapshot.auth,
                schema: &snapshot.schema,
                datacenters: &datacenters,
                access: &Access::of(user, &snapshot.auth, rules, own, address),
                rules,
                hash: hash.as_deref(),
            };
            plan.outcome(&context)?
        };
        if outcome.changes.is_empty() {
            return Ok(outcome);
        }
        if let (None, Some(password)) = (&hash, plan.password()) {
            // Hashing takes long, so it is done only for a user with the permission. Then
            // everything is checked again.
            hash = Some(hashed(executor, password).await?);
            continue;
        }
        match executor.membership.submit(snapshot.epoch, outcome.changes.clone()).await {
            Ok(_) => return Ok(outcome),
            Err(error) => await_next_attempt(executor, error, "role change", deadline).await?,
        }
    }
}

async fn hashed(executor: &Executor, password: &str) -> Result<String> {
    hash_password(executor, password).await.map_err(|error| {
        Failure::from(PlanError::invalid(format!("the password cannot be hashed: {error}")))
    })
}

/// Hashes a password in the form that Cassandra reads, off the shards.
///
/// # Errors
/// The problem, as the end of a sentence.
pub async fn hash_password(
    executor: &Executor,
    password: &str,
) -> std::result::Result<String, String> {
    let own = executor.passwords.borrow().clone();
    let deadline = executor.rt.now() + executor.timeouts.get(Timeout::Request);
    match own {
        Some(passwords) => passwords.hash(&executor.rt, password.to_owned(), deadline).await,
        None if executor.rt.shard() == ShardId(0) => {
            Err("the threads for passwords are not running".to_owned())
        }
        None => match executor.shards.hash_password(password.to_owned()).await {
            Ok(hashed) => hashed,
            Err(error) => Err(error.to_string()),
        },
    }
}
