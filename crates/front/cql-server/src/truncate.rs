//! TRUNCATE.
//!
//! Owns: the order of things when a table is emptied, on this node and on all of them. Never: how a
//! store empties its slice ([`store::Store::truncate`]).
//!
//! A node that is alone empties its shards and then writes the metadata entry. Several nodes do it
//! by the entry: each of them empties its shards when it applies it
//! ([`crate::CqlServer::apply_truncations`]), and the client is answered when all of them have
//! applied it and say that nothing is left. As in Cassandra all nodes must be alive. A store empties what it has, whenever it was written; so each
//! entry must be carried out once and not be found anew at a later start. That is what the file
//! `metadata/truncated` is for: lines of table id and microseconds, those that are done. An entry
//! that is not in it at a start was decided just before the node died, and nobody was answered.

use crate::execute::join_all;
use crate::failure::{Failure, Result};
use crate::mesh::{Emptied, ServerReply, ServerRequest};
use crate::schema_change::{await_next_attempt, moving};
use crate::server::Server;
use crate::settings::Timeout;
use cluster::{ClusterSnapshot, Transformation, Truncation};
use cql_wire::ErrorCode;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use stdx::{Epoch, HostId, Instant, IoErrorKind, ShardId, TableId, Uuid, WallMicros};
use store::StoreError;

/// Longest file that is read.
const FILE_BYTES_MAX: usize = 64 << 20;

/// Between two looks at how far a truncation has come.
const POLL: Duration = Duration::from_millis(20);

type Known = BTreeMap<TableId, WallMicros>;

/// What this node has emptied. Shard 0's is the node's.
#[derive(Default)]
pub(crate) struct Truncations {
    /// What the file says; `None` before it was read.
    recorded: RefCell<Option<Known>>,
    /// Emptied by this run.
    emptied: RefCell<Known>,
    /// What could not be emptied in this run.
    failed: RefCell<Known>,
    applied_epochs: RefCell<Option<AppliedEpochs>>,
    of_others: RefCell<Option<OfOthers>>,
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
    /// The table was emptied on all shards.
    pub(crate) fn note(&self, table: TableId, at: WallMicros) {
        self.emptied.borrow_mut().insert(table, at);
    }

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
        let has = |known: &Known| known.get(&table).is_some_and(|done| *done >= at);
        if self.is_done(table, at) {
            TruncationState::Done
        } else if has(&self.failed.borrow()) {
            TruncationState::Failed
        } else if self.recorded.borrow().as_ref().is_some_and(has) {
            // By an earlier run.
            TruncationState::Done
        } else {
            TruncationState::Pending
        }
    }

    /// Whether the table was emptied at that time, or later.
    pub(crate) fn is_done(&self, table: TableId, at: WallMicros) -> bool {
        self.emptied.borrow().get(&table).is_some_and(|done| *done >= at)
    }
}

/// Why a TRUNCATE did not happen, as Cassandra's `TruncateException` puts it.
fn failed(what: &str) -> Failure {
    Failure::Plain(ErrorCode::TruncateError, format!("Error during truncate: {what}"))
}

/// Empties a table on all nodes and records it. In a task of its own, as a schema change.
pub(crate) async fn truncate(server: &Rc<Server>, table: TableId) -> Result<()> {
    let this = server.clone();
    let work = async move {
        let deadline = this.rt.now() + this.timeouts.get(Timeout::Truncate);
        if this.membership.snapshot().members.len() > 1 {
            truncate_everywhere(&this, table, deadline).await
        } else {
            truncate_alone(&this, table, deadline).await
        }
    };
    server.to_its_end("truncate-table", work).await
}

/// When a truncation that begins now is: behind the one before, whatever the clocks say. Else it would
/// be taken for that one, which is done.
fn time_of(snapshot: &ClusterSnapshot, table: TableId, now: WallMicros) -> WallMicros {
    let before = snapshot.truncations.get(&table).map(|t| t.truncated_at.0.saturating_add(1));
    WallMicros(before.map_or(now.0, |least| now.0.max(least)))
}

async fn truncate_alone(server: &Rc<Server>, table: TableId, deadline: Instant) -> Result<()> {
    let at = time_of(&server.membership.snapshot(), table, server.rt.wall());
    match server.rt.timeout(deadline, empty(server, table, at)).await {
        Err(_) => return Err(failed("Operation timed out - received only 0 responses.")),
        Ok(false) => return Err(failed("the data of a shard could not be removed")),
        Ok(true) => {}
    }
    if server.rt.shard() == ShardId(0) {
        server.truncations.note(table, at);
    } else {
        let request = ServerRequest::Emptied { table, at };
        if server.mesh.calls.call(&server.rt, ShardId(0), request).await.is_err() {
            return Err(Failure::overloaded("a shard takes no more requests"));
        }
    }
    record(server, table, at, deadline).await.map(drop)
}

async fn truncate_everywhere(server: &Rc<Server>, table: TableId, deadline: Instant) -> Result<()> {
    let snapshot = server.membership.snapshot();
    let is_alive = |host| server.coordinator.is_alive(host);
    if !snapshot.members.keys().all(|host| is_alive(*host)) {
        // The text of Cassandra's UnavailableException inside.
        return Err(failed("Cannot achieve consistency level ALL"));
    }
    refuse_moving(&snapshot)?;
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
    let mut emptied = Emptied { failed: Vec::new(), nodes: applied.len(), missing: missing.len() };
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
    if !server.truncations.is_done(table, at) {
        emptied.failed.push(server.settings.storage_address);
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
    let truncation =
        Truncation { truncated_at: at, positions: Vec::new(), generations: Vec::new() };
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
            Err(error) => await_next_attempt(server, error, "truncation", deadline).await?,
        }
    }
}

/// Empties a table on all shards of this node; false when one of them could not.
async fn empty(server: &Rc<Server>, table: TableId, at: WallMicros) -> bool {
    let mut calls = Vec::new();
    for shard in (0..server.rt.shard_count()).map(ShardId) {
        if shard != server.rt.shard() {
            let request = ServerRequest::Truncate { table, at };
            calls.push(server.mesh.calls.call(&server.rt, shard, request));
        }
    }
    let mut done = server.truncate_here(table, at).await;
    for call in calls {
        done &= matches!(call.await, Ok(ServerReply::Truncated(true)));
    }
    done
}

/// Carries out what the metadata says and this node has not done. On shard 0.
///
/// # Errors
/// The file cannot be read or written.
pub(crate) async fn apply(
    server: &Rc<Server>,
    work_dir: &str,
    snapshot: &ClusterSnapshot,
) -> std::result::Result<(), StoreError> {
    let path = path(work_dir);
    let is_first = server.truncations.recorded.borrow().is_none();
    let recorded = server.truncations.recorded.borrow_mut().take();
    let mut known = match recorded {
        Some(known) => known,
        None => load(server, &path, snapshot).await?,
    };
    let there = |table: &TableId| snapshot.schema.table_by_id(*table).is_some();
    let wanted = snapshot.truncations.iter().filter(|(table, _)| there(table));
    let due: Vec<(TableId, WallMicros)> = wanted
        .map(|(table, truncation)| (*table, truncation.truncated_at))
        .filter(|(table, at)| known.get(table) != Some(at))
        .collect();
    for (table, at) in &due {
        if !server.truncations.is_done(*table, *at) {
            if empty(server, *table, *at).await {
                server.truncations.note(*table, *at);
            } else if server.is_draining() {
                // The next start does it; nothing is written until then.
                break;
            } else {
                // Later is not better: by then there is something to lose.
                server.truncations.failed.borrow_mut().insert(*table, *at);
                tracing::error!(table = %table.0, "a truncated table could not be emptied on this \
                    node and may show old rows: run TRUNCATE again");
            }
        }
        known.insert(*table, *at);
    }
    known.retain(|table, _| there(table));
    server.truncations.failed.borrow_mut().retain(|table, _| there(table));
    let mut result = Ok(());
    if is_first || !due.is_empty() {
        let fs = server.rt.fs();
        let written = fs.write_atomic(&path, encode(&known)).await;
        result = written.map_err(|error| StoreError::Invalid(error.to_string()));
    }
    *server.truncations.recorded.borrow_mut() = Some(known);
    result
}

fn path(work_dir: &str) -> String {
    format!("{work_dir}/{}/truncated", membership::log::DIRECTORY)
}

/// Reads the file. A node that has none keeps none yet: what it has in its log was carried out
/// before this file was thought of, or before the node joined with empty stores.
async fn load(
    server: &Server,
    path: &str,
    snapshot: &ClusterSnapshot,
) -> std::result::Result<Known, StoreError> {
    let invalid = |what: String| StoreError::Invalid(format!("{path}: {what}"));
    let bytes = match server.rt.fs().read(path, FILE_BYTES_MAX).await {
        Ok(bytes) => bytes,
        Err(error) if error.kind == IoErrorKind::NotFound => {
            let all = snapshot.truncations.iter();
            return Ok(all.map(|(table, t)| (*table, t.truncated_at)).collect());
        }
        Err(error) => return Err(invalid(error.to_string())),
    };
    decode(&bytes).ok_or_else(|| invalid("is not a list of truncations".to_owned()))
}

fn encode(known: &Known) -> Vec<u8> {
    let mut text = String::new();
    for (table, at) in known {
        text.push_str(&format!("{} {}\n", table.0, at.0));
    }
    text.into_bytes()
}

fn decode(bytes: &[u8]) -> Option<Known> {
    let line = |line: &str| {
        let (table, at) = line.split_once(' ')?;
        Some((TableId(Uuid::parse_str(table).ok()?), WallMicros(at.parse().ok()?)))
    };
    std::str::from_utf8(bytes).ok()?.lines().map(line).collect()
}

#[cfg(test)]
mod tests;
