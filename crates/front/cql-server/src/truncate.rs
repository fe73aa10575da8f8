//! TRUNCATE.
//!
//! Owns: the order of things when a table is emptied, on this node and on all of them, and which truncations
//! this node has carried out ([`records`]). Never: how a store empties its slice ([`store::Store::truncate`]).
//!
//! A truncation is an entry of the metadata log. Each node empties its shards when it applies the entry
//! ([`crate::CqlServer::apply_truncations`]); the client is answered when all nodes have applied it and report
//! that nothing is left and that this is durable. As in Cassandra all nodes must be alive.
//!
//! A second run would remove rows that were acknowledged after the first one. So:
//!
//! INV-truncation-1: a truncation runs once. A shard that has its record in the commit log skips it
//! ([`store::Store::is_truncated`]), and the log keeps the record until `metadata/truncated` has the truncation.
//! INV-truncation-2: a start carries out a truncation only when its entry is the last one of the log (the
//! process ended between the entry and its application: no client was answered) and `metadata/truncated` was
//! written for this cluster, by the last run, and for an earlier entry. Otherwise newer rows may have been
//! acknowledged. So that a file of an earlier run is known for one, each run writes it when it begins
//! ([`begin_truncations`]).
//! INV-truncation-3: OK is answered when `metadata/truncated` has the truncation on every node. A failed write
//! fails the statement and is retried.
//! INV-truncation-4: a node that has served clients since a truncation was issued carries it out within the time that
//! TRUNCATE has, or not at all; the coordinator does not report a failure before that time has passed unless the entry
//! cannot be decided any more. So rows written after the client was told of a failure stay.

use crate::execute::join_all;
use crate::failure::{Failure, Result};
use crate::mesh::{Emptied, ServerReply, ServerRequest};
use crate::schema_change::{await_next_attempt, moving};
use crate::server::Server;
use crate::settings::Timeout;
use cluster::{ClusterSnapshot, Transformation, Truncation};
use cql_wire::ErrorCode;
use membership::SubmitError;
use records::{Known, Records};
use rt::sync::Semaphore;
use rt::{Fs, Group};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use stdx::{Epoch, HostId, Instant, ShardId, TableId, WallMicros};
use store::StoreError;

pub(crate) mod records;

/// Interval between polls of how far a truncation has come.
const POLL: Duration = Duration::from_millis(20);
/// Interval between attempts to complete a truncation of this node.
const RETRY: Duration = Duration::from_secs(1);

/// The truncations of this node. Those of shard 0 are in use.
pub(crate) struct Truncations {
    /// Truncations carried out on all shards; `None` before the file was read.
    carried_out: RefCell<Option<Records>>,
    /// Part of `carried_out` that the file has, durably.
    recorded: RefCell<Known>,
    /// Truncations that could not be completed so far, and why.
    failed: RefCell<BTreeMap<TableId, (WallMicros, String)>>,
    /// Truncations that came too late and are not carried out here.
    expired: RefCell<BTreeMap<TableId, WallMicros>>,
    /// When this run began to carry out truncations.
    began: Cell<WallMicros>,
    /// One application at a time.
    applying: Semaphore,
    is_retrying: Cell<bool>,
    applied_epochs: RefCell<Option<AppliedEpochs>>,
    of_others: RefCell<Option<OfOthers>>,
}

impl Default for Truncations {
    fn default() -> Truncations {
        Truncations {
            carried_out: RefCell::default(),
            recorded: RefCell::default(),
            failed: RefCell::default(),
            expired: RefCell::default(),
            began: Cell::new(WallMicros(i64::MIN)),
            applying: Semaphore::new(1),
            is_retrying: Cell::default(),
            applied_epochs: RefCell::default(),
            of_others: RefCell::default(),
        }
    }
}

/// How a truncation went on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TruncationState {
    /// It has not been carried out yet.
    Pending,
    /// Nothing is left.
    Done,
    /// Something could not be removed; the node's log says why.
    Failed,
}

impl TruncationState {
    /// On the wire (`docs/formats/internode.md`).
    pub const fn code(self) -> u8 {
        match self {
            TruncationState::Pending => 0,
            TruncationState::Done => 1,
            TruncationState::Failed => 2,
        }
    }

    /// What a code stands for.
    pub const fn from_code(code: u8) -> Option<TruncationState> {
        match code {
            0 => Some(TruncationState::Pending),
            1 => Some(TruncationState::Done),
            2 => Some(TruncationState::Failed),
            _ => None,
        }
    }
}

/// Asks a member how a truncation went there; `None`: no answer.
type OfOthers = Rc<
    dyn Fn(HostId, TableId, WallMicros) -> Pin<Box<dyn Future<Output = Option<TruncationState>>>>,
>;

/// Which entry of the metadata a member has applied last.
type AppliedEpochs = Rc<dyn Fn(HostId) -> Option<Epoch>>;

impl Truncations {
    pub(crate) fn set_applied_epochs(&self, applied: AppliedEpochs) {
        *self.applied_epochs.borrow_mut() = Some(applied);
    }

    pub(crate) fn set_of_others(&self, ask: OfOthers) {
        *self.of_others.borrow_mut() = Some(ask);
    }

    /// Forgets who holds what holds this.
    pub(crate) fn let_go(&self) {
        drop(self.applied_epochs.take());
        drop(self.of_others.take());
    }

    /// How the truncation of that time, or a later one, went here.
    pub(crate) fn state(&self, table: TableId, at: WallMicros) -> TruncationState {
        if self.failure(table, at).is_some() {
            TruncationState::Failed
        } else if self.recorded.borrow().get(&table).is_some_and(|done| *done >= at) {
            TruncationState::Done
        } else {
            TruncationState::Pending
        }
    }

    /// Why the truncation of that time is not complete here.
    pub(crate) fn failure(&self, table: TableId, at: WallMicros) -> Option<String> {
        if self.expired.borrow().get(&table) == Some(&at) {
            return Some("this node learned of it too late".to_owned());
        }
        let failed = self.failed.borrow();
        failed.get(&table).filter(|(of, _)| *of >= at).map(|(_, why)| why.clone())
    }

    /// Whether a truncation of that time comes too late. `within`: the time that TRUNCATE has. A quarter of it is left
    /// for clocks that differ.
    fn is_late(&self, at: WallMicros, now: WallMicros, within: Duration) -> bool {
        let from = at.max(self.began.get());
        let within = i64::try_from(within.as_micros()).unwrap_or(i64::MAX);
        now.0.saturating_sub(from.0) > within.saturating_sub(within / 4)
    }
}

/// Why a TRUNCATE did not happen, as Cassandra's `TruncateException` puts it.
fn failed(what: &str) -> Failure {
    Failure::Plain(ErrorCode::TruncateError, format!("Error during truncate: {what}"))
}

/// Empties a table on all nodes. In a task of its own, as a schema change.
pub(crate) async fn truncate(server: &Rc<Server>, table: TableId) -> Result<()> {
    let this = server.clone();
    let work = async move {
        let deadline = this.rt.now() + this.timeouts.get(Timeout::Truncate);
        truncate_everywhere(&this, table, deadline).await
    };
    server.to_its_end("truncate-table", work).await
}

/// When a truncation that begins now is: behind the one before, whatever the clocks say. Else it would
/// be taken for that one, which is done.
fn time_of(snapshot: &ClusterSnapshot, table: TableId, now: WallMicros) -> WallMicros {
    let before = snapshot.truncations.get(&table).map(|t| t.truncated_at.0.saturating_add(1));
    WallMicros(before.map_or(now.0, |least| now.0.max(least)))
}

async fn truncate_everywhere(server: &Rc<Server>, table: TableId, deadline: Instant) -> Result<()> {
    let snapshot = server.membership.snapshot();
    let is_alive = |host| server.coordinator.is_alive(host);
    if snapshot.members.len() > 1 {
        if !snapshot.members.keys().all(|host| is_alive(*host)) {
            // The text of Cassandra's UnavailableException inside.
            return Err(failed("Cannot achieve consistency level ALL"));
        }
        refuse_moving(&snapshot)?;
    }
    let at = time_of(&snapshot, table, server.rt.wall());
    let recorded = record(server, table, at, deadline).await;
    let recorded = recorded.map_err(|failure| match failure {
        Failure::Plain(ErrorCode::ServerError, text) => failed(&text),
        other => other,
    })?;
    let Some(epoch) = recorded else { return Ok(()) };
    // That the entry is decided does not say that every node has carried it out.
    loop {
        let emptied = match server.rt.shard() {
            ShardId(0) => emptied(server, table, at, epoch).await,
            _ => {
                let request = ServerRequest::WereEmptied { table, at, epoch };
                match server.mesh.calls.call(&server.rt, ShardId(0), request).await {
                    Ok(ServerReply::Emptied(emptied)) => emptied,
                    _ => return Err(Failure::overloaded("a shard takes no more requests")),
                }
            }
        };
        if let Some(why) = emptied.why.filter(|_| snapshot.members.len() <= 1) {
            return Err(failed(&why));
        }
        if !emptied.failed.is_empty() && server.schema().table_by_id(table).is_some() {
            let each: Vec<String> =
                emptied.failed.iter().map(|node| format!("/{node} -> UNKNOWN")).collect();
            let text = format!("Truncate failed on replica {}", each.join(", "));
            return Err(Failure::Plain(ErrorCode::TruncateError, text));
        }
        if emptied.missing == 0 {
            return Ok(());
        }
        if server.rt.now() >= deadline {
            let nodes = emptied.nodes;
            return Err(failed(&format!("Truncate timed out - received only {nodes} responses")));
        }
        server.rt.sleep(POLL).await;
    }
}

/// What is on its way between nodes would arrive behind the truncation.
fn refuse_moving(snapshot: &ClusterSnapshot) -> Result<()> {
    let moving: Vec<String> = moving(snapshot).map(|node| format!("/{node}")).collect();
    if moving.is_empty() {
        return Ok(());
    }
    Err(failed(&format!(
        "nodes join, leave or move; try again when they have finished: [{}]",
        moving.join(", ")
    )))
}

/// How far a truncation has come, as far as this shard (0) knows.
pub(crate) async fn emptied(
    server: &Server,
    table: TableId,
    at: WallMicros,
    epoch: Epoch,
) -> Emptied {
    let snapshot = server.snapshot().clone();
    let own = snapshot.local.host_id;
    let applied = server.truncations.applied_epochs.borrow().clone();
    let has_applied = |host: HostId| match &applied {
        Some(applied) if host != own => applied(host).is_some_and(|done| done >= epoch),
        _ => true,
    };
    let (applied, missing): (Vec<HostId>, Vec<HostId>) =
        snapshot.members.keys().partition(|host| has_applied(**host));
    let (nodes, missing_count) = (applied.len(), missing.len());
    let mut emptied = Emptied { failed: Vec::new(), nodes, missing: missing_count, why: None };
    // What a node has applied it has carried out; whether that went well only it knows.
    let ask = server.truncations.of_others.borrow().clone();
    let others: Vec<HostId> = applied.into_iter().filter(|host| *host != own).collect();
    let states = match ask.filter(|_| missing.is_empty()) {
        Some(ask) => join_all(others.iter().map(|host| ask(*host, table, at)).collect()).await,
        None => Vec::new(),
    };
    for (host, state) in others.iter().zip(states) {
        match state {
            Some(TruncationState::Done) => continue,
            Some(TruncationState::Failed) => {
                emptied.failed.extend(snapshot.members.get(host).map(|m| m.storage));
            }
            Some(TruncationState::Pending) | None => emptied.missing += 1,
        }
        emptied.nodes -= 1;
    }
    if server.truncations.state(table, at) != TruncationState::Done
        && snapshot.schema.table_by_id(table).is_some()
    {
        emptied.failed.push(server.settings.storage_address);
        let why = server.truncations.failure(table, at);
        emptied.why = Some(why.unwrap_or_else(|| "this node did not carry it out".to_owned()));
    }
    emptied
}

/// Writes the entry of the metadata log and gives its epoch; `None` when the table is gone
/// meanwhile.
async fn record(
    server: &Rc<Server>,
    table: TableId,
    at: WallMicros,
    deadline: Instant,
) -> Result<Option<Epoch>> {
    let truncation = Truncation { truncated_at: at, ..Truncation::default() };
    loop {
        let snapshot = server.membership.snapshot();
        if snapshot.schema.table_by_id(table).is_none() {
            return Ok(None);
        }
        if snapshot.members.len() > 1 {
            // Also one that has come since this began.
            refuse_moving(&snapshot)?;
        }
        let entry = Transformation::Truncate { table, truncation: truncation.clone() };
        match server.membership.submit(snapshot.epoch, vec![entry]).await {
            Ok(after) => return Ok(Some(after.epoch)),
            Err(error @ SubmitError::Unknown { .. }) => {
                // It may be decided still, and nodes carry it out until the time is over.
                match decided(server, table, at, deadline).await {
                    Some(epoch) => return Ok(Some(epoch)),
                    None => await_next_attempt(server, error, "truncation", deadline).await?,
                }
            }
            Err(error) => await_next_attempt(server, error, "truncation", deadline).await?,
        }
    }
}

/// Waits until the log has a truncation: the epoch of its entry; `None` when the time is over.
async fn decided(
    server: &Server,
    table: TableId,
    at: WallMicros,
    deadline: Instant,
) -> Option<Epoch> {
    loop {
        let snapshot = server.membership.snapshot();
        if let Some(found) = snapshot.truncations.get(&table).filter(|t| t.truncated_at >= at) {
            return Some(found.epoch);
        }
        let next = Epoch(snapshot.epoch.0.saturating_add(1));
        if !server.membership.wait_for(next, deadline).await {
            return None;
        }
    }
}

/// Empties a table on all shards of this node, durably.
///
/// # Errors
/// Why a shard could not.
async fn empty(
    server: &Rc<Server>,
    table: TableId,
    at: WallMicros,
) -> std::result::Result<(), String> {
    let own = server.rt.shard();
    let others = (0..server.rt.shard_count()).map(ShardId).filter(|shard| *shard != own);
    let others = others.map(|shard| {
        let server = server.clone();
        async move { empty_on(&server, shard, table, at).await }
    });
    let mut calls: Vec<Pin<Box<dyn Future<Output = _>>>> = Vec::new();
    for other in others {
        calls.push(Box::pin(other));
    }
    let here = server.clone();
    calls.push(Box::pin(async move { here.truncate_here(table, at).await }));
    join_all(calls).await.into_iter().collect()
}

/// Asks another shard until it answers: to try it later would take rows that were acknowledged meanwhile.
async fn empty_on(
    server: &Server,
    shard: ShardId,
    table: TableId,
    at: WallMicros,
) -> std::result::Result<(), String> {
    loop {
        let request = ServerRequest::Truncate { table, at };
        match server.mesh.calls.call(&server.rt, shard, request).await {
            Ok(ServerReply::Truncated(result)) => return result,
            _ if server.is_draining() => return Err("the node stops".to_owned()),
            _ => server.rt.sleep(POLL).await,
        }
    }
}

/// Carries out what the metadata has decided and this node has not done, and records it. On shard 0. What
/// cannot be completed is retried in the background.
///
/// # Errors
/// `Corrupt`, `Io`: the file cannot be read. The first call, at the start, alone reads it.
pub(crate) async fn apply(
    server: &Rc<Server>,
    work_dir: &str,
    snapshot: &ClusterSnapshot,
) -> std::result::Result<(), StoreError> {
    let _one = server.truncations.applying.acquire(1).await;
    let known = server.truncations.carried_out.borrow().clone();
    let (mut records, is_first) = match known {
        Some(records) => (records, false),
        None => (records::load(&server.rt.fs(), &path(work_dir), snapshot).await?, true),
    };
    if is_first {
        server.truncations.began.set(server.rt.wall());
        let due = records.is_due_at_start(snapshot);
        records.skip_all_but(snapshot, due);
    }
    let within = server.timeouts.get(Timeout::Truncate);
    for (table, at) in records.due(snapshot) {
        if server.truncations.is_late(at, server.rt.wall(), within) {
            tracing::error!(
                table = %table.0,
                "a TRUNCATE is not carried out on this node: it was decided or arrived after its time, and newer rows \
                 may have been written since; if old rows are shown, run TRUNCATE again"
            );
            server.truncations.expired.borrow_mut().insert(table, at);
            server.truncations.failed.borrow_mut().remove(&table);
            records.note(table, at);
            continue;
        }
        match empty(server, table, at).await {
            Ok(()) => records.note(table, at),
            // The next start carries it out: nothing is written until then.
            Err(_) if server.is_draining() => break,
            Err(why) => {
                let why =
                    format!("the data of a shard could not be removed, which is retried: {why}");
                note_failure(server, table, at, why);
            }
        }
    }
    records.reflect(snapshot);
    *server.truncations.carried_out.borrow_mut() = Some(records.clone());
    record_durably(server, work_dir, &records).await;
    let there = |table: &TableId| snapshot.schema.table_by_id(*table).is_some();
    server.truncations.failed.borrow_mut().retain(|table, _| there(table));
    if !server.truncations.failed.borrow().is_empty() {
        retry(server, work_dir);
    }
    Ok(())
}

/// Replaces the file when it lacks something; then the shards may drop the records in their logs.
async fn record_durably(server: &Rc<Server>, work_dir: &str, records: &Records) {
    if records.is_durable() {
        // At a start: the replayed logs have records of earlier runs.
        if *server.truncations.recorded.borrow() != *records.known() {
            tell_recorded(server, records).await;
        }
        return;
    }
    match records::store(&server.rt.fs(), &path(work_dir), records).await {
        Ok(()) => {
            if let Some(records) = server.truncations.carried_out.borrow_mut().as_mut() {
                records.set_durable();
            }
            tell_recorded(server, records).await;
        }
        Err(error) => {
            let why = format!("the truncation cannot be recorded, which is retried: {error}");
            let missing: Vec<(TableId, WallMicros)> = {
                let recorded = server.truncations.recorded.borrow();
                let known = records.known().iter();
                known
                    .filter(|(t, at)| recorded.get(*t) != Some(*at))
                    .map(|(t, at)| (*t, *at))
                    .collect()
            };
            for (table, at) in missing {
                note_failure(server, table, at, why.clone());
            }
        }
    }
}

async fn tell_recorded(server: &Rc<Server>, records: &Records) {
    let known = records.known().clone();
    server
        .truncations
        .failed
        .borrow_mut()
        .retain(|table, (at, _)| known.get(table).is_none_or(|done| *done < *at));
    *server.truncations.recorded.borrow_mut() = known.clone();
    server.truncation_recorded_here(&known);
    let known = Arc::new(known);
    for shard in (0..server.rt.shard_count()).map(ShardId) {
        if shard != server.rt.shard() {
            // A shard that does not hear it keeps the log record until the next start.
            let request = ServerRequest::TruncationsRecorded(known.clone());
            let _ = server.mesh.calls.call(&server.rt, shard, request).await;
        }
    }
}

fn note_failure(server: &Server, table: TableId, at: WallMicros, why: String) {
    let mut failed = server.truncations.failed.borrow_mut();
    if failed.get(&table).is_none_or(|(of, before)| *of != at || *before != why) {
        tracing::error!(table = %table.0, "TRUNCATE is not complete on this node: {why}");
    }
    failed.insert(table, (at, why));
}

/// Completes what failed, until nothing is left or the node stops.
fn retry(server: &Rc<Server>, work_dir: &str) {
    if server.truncations.is_retrying.replace(true) {
        return;
    }
    let (this, work_dir) = (server.clone(), work_dir.to_owned());
    let task = async move {
        loop {
            let next = this.rt.now() + RETRY;
            if this.rt.timeout(next, this.rt.stop_requested()).await.is_ok() || this.is_draining() {
                break;
            }
            let snapshot = this.membership.snapshot();
            // The file was read by then.
            let _ = apply(&this, &work_dir, &snapshot).await;
            if this.truncations.failed.borrow().is_empty() {
                tracing::info!("truncations that had failed are complete");
                break;
            }
        }
        this.truncations.is_retrying.set(false);
    };
    // A closed gate: the node stops.
    let _ = server.gate.spawn(&server.rt, Group::Admin, "truncate-retry", task);
}

/// Makes `metadata/truncated` that of the run that begins, before `metadata/run` gets its number: a crash between
/// the two must not leave a file that looks like an older copy. A file of an earlier run than [`Runs::last`] is one,
/// and is not believed: every truncation of the metadata counts as carried out. `work_dir` is the directory that the metadata log lies below.
///
/// # Errors
/// `Corrupt`: the file is damaged; any other when it cannot be read or written.
pub async fn begin_truncations(
    fs: &Fs,
    work_dir: &str,
    snapshot: &ClusterSnapshot,
    runs: Runs,
) -> std::result::Result<(), StoreError> {
    Ok(records::begin_run(fs, &path(work_dir), snapshot, runs).await?)
}

/// Numbers of two runs of a node.
#[derive(Clone, Copy, Debug)]
pub struct Runs {
    /// Number of the previous run, from `metadata/run`.
    pub last: Option<u64>,
    /// Number of the run that begins.
    pub this: u64,
}

fn path(work_dir: &str) -> String {
    format!("{work_dir}/{}/truncated", membership::log::DIRECTORY)
}

#[cfg(test)]
mod tests;
