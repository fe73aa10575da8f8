//! Scans of other coordinators, which a shard of this node filters or folds: the verb `Scan`.
//!
//! What is done with the rows is planned by the front end ([`ScanPlanner`]), with this node's schema. What it would
//! plan otherwise than the coordinator, it refuses; the coordinator then reads rows.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use cluster::ClusterSnapshot;
use data::FoldState;
use data::command::{Partitions, ReadCommand};
use internode::{ErrorReply, ScanRequest};
use messaging::{Request, Responder};
use rt::Group;
use schema::Table;
use stdx::{Epoch, FixedMap, HostId, Instant, TableId};

use crate::page::PackedPage;
use crate::pages::{PageError, PageRequest, Place};
use crate::read::ShardWork;
use crate::reading::outdated::is_outdated;
use crate::{Coordinator, PageLimit, failing, scan_page};

/// Most bytes of rows after which a page ends, whatever a peer asks for: half of what a message may have.
const PAGE_BYTES_MAX: u64 = 8 << 20;
/// Most bytes that are looked at for a page, whatever a peer asks for: some tens of milliseconds of work.
const LEFT_OUT_MAX: u64 = 64 << 20;
/// A node that does not do scans is not asked again for so long.
const SILENT_FOR: std::time::Duration = std::time::Duration::from_secs(60);
/// Nodes that are remembered; above it all are forgotten.
const SILENT_MAX: usize = 4096;

/// What the bytes of another node's front end ask shards to do with rows of a table, or why it is not done.
pub type ScanPlanner = Rc<dyn Fn(&[u8], &Arc<Table>) -> Result<ShardWork, String>>;

/// What a shard keeps for scans of several nodes.
#[derive(Default)]
pub(crate) struct Scans {
    planner: RefCell<Option<ScanPlanner>>,
    /// Nodes that do not know the verb `Scan`.
    silent: Silent,
    /// Nodes that do not know the verb `FilteredRead`.
    pub(crate) not_filtering: Silent,
}

/// Nodes that do not know a verb, and when that was found.
#[derive(Default)]
pub(crate) struct Silent(RefCell<FixedMap<HostId, Instant>>);

impl Silent {
    /// A node does not know the verb.
    pub(crate) fn note(&self, host: HostId, now: Instant) {
        let mut silent = self.0.borrow_mut();
        if silent.len() >= SILENT_MAX {
            silent.clear();
        }
        silent.insert(host, now);
    }

    /// Whether a node may be asked.
    pub(crate) fn may_ask(&self, host: HostId, now: Instant) -> bool {
        let silent = self.0.borrow();
        silent.get(&host).is_none_or(|since| now.since(*since) >= SILENT_FOR)
    }
}

impl Scans {
    pub(crate) fn let_go(&self) {
        drop(self.planner.take());
    }

    /// A node does not know the verb.
    pub(crate) fn note_silent(&self, host: HostId, now: Instant) {
        self.silent.note(host, now);
    }

    /// Whether a node may be asked.
    pub(crate) fn may_ask(&self, host: HostId, now: Instant) -> bool {
        self.silent.may_ask(host, now)
    }
}

impl Coordinator {
    /// Sets what plans the scans of other nodes. Until then they are refused, and rows are read.
    pub fn serve_scans(&self, planner: ScanPlanner) {
        *self.inner.reading.scans.planner.borrow_mut() = Some(planner);
    }

    /// Serves the verb `Scan`.
    pub(crate) fn serve_scan(&self, request: &Request<'_>, responder: Responder) {
        let (epoch, deadline) = (request.epoch, request.deadline);
        let trace = request.trace.and_then(|_| self.peer_trace(request));
        let (this, payload) = (self.clone(), request.payload.to_vec());
        let task = async move {
            let reading = &this.inner.reading;
            if responder.is_cancelled() || this.inner.rt.now() >= deadline {
                reading.served_late.inc();
                return responder.fail(&ErrorReply::Timeout);
            }
            reading.scans_served.inc();
            let work = this.answer_scan(&payload, (epoch, deadline));
            let answer = this.in_time(deadline, work).await;
            if let Some(trace) = &trace {
                trace.note(match &answer {
                    Ok((page, _)) => format!(
                        "Looked at {} rows of {} partitions; enqueuing response of {} bytes",
                        page.stats.rows,
                        page.stats.partitions,
                        page.len()
                    ),
                    Err(error) => format!("Failed: {error}"),
                });
            }
            match answer {
                Ok((page, state)) => {
                    responder.respond(|out| scan_page::encode(&page, state.as_deref(), out));
                }
                Err(error) => responder.fail(&error),
            }
        };
        // A closed gate means that the node stops: the responder is dropped, which says so.
        let _ = self.inner.gate.spawn(&self.inner.rt, Group::Statement, "replica-scan", task);
    }

    /// The page, and what it has left of a fold.
    async fn answer_scan(
        &self,
        payload: &[u8],
        (epoch, deadline): (Epoch, Instant),
    ) -> Result<(PackedPage, Option<Vec<u8>>), ErrorReply> {
        let invalid = |text: &str| ErrorReply::Invalid(text.to_owned());
        let request =
            ScanRequest::decode(payload).map_err(|error| ErrorReply::Invalid(error.to_string()))?;
        if request.shards != self.inner.rt.shard_count() {
            return Err(invalid("a scan for another number of shards"));
        }
        let work = self.scan_work(&request, (epoch, deadline)).await?;
        let state = match (&work, request.state) {
            (ShardWork::Fold(fold), Some(state)) => {
                Some(fold.decode_state(state).ok_or_else(|| invalid("a state of another fold"))?)
            }
            (ShardWork::Filter(_), Some(_)) => return Err(invalid("a filter has no state")),
            (_, None) => None,
        };
        let most = |asked: u64, max: u64| usize::try_from(asked.min(max)).unwrap_or(usize::MAX);
        let limit = PageLimit {
            rows: usize::try_from(request.limits.rows).unwrap_or(usize::MAX).max(1),
            bytes: most(request.limits.bytes, PAGE_BYTES_MAX).max(1),
            left_out: most(request.left_out, LEFT_OUT_MAX).max(1),
            tombstones: self.tombstones_of_pages(),
        };
        let ScanRequest { shard, shards, command, further, .. } = request;
        let place = Place { peer: None, shard, shards, epoch };
        let page = self.page_of_scan(place, (command, further, limit), &work, state).await;
        let mut page = page.map_err(|error| match error {
            PageError::Store(error) => {
                self.inner.store.note_failure(&error);
                failing::error_reply(&error)
            }
            PageError::Peer(error) => ErrorReply::Internal(error.to_string()),
        })?;
        let state = match (&work, page.state.take()) {
            (ShardWork::Fold(fold), Some(state)) => {
                let mut bytes = Vec::new();
                match fold.encode_state(&state, &mut bytes) {
                    true => Some(bytes),
                    false => return Err(invalid("a state that cannot be sent")),
                }
            }
            _ => None,
        };
        Ok((page, state))
    }

    async fn page_of_scan(
        &self,
        place: Place,
        (command, further, limit): (ReadCommand, Vec<data::command::KeyRange>, PageLimit),
        work: &ShardWork,
        state: Option<FoldState>,
    ) -> Result<PackedPage, PageError> {
        if place.shard == self.inner.rt.shard() {
            return Ok(self.work_page((&command, &further), limit, Some(work), state).await?);
        }
        // Its connection was not there yet when it was sent.
        let work = Some(work.clone());
        self.ask_shard(PageRequest { place, command, further, limit, work, state }).await
    }

    /// What another node's bytes ask to be done with rows of a table, planned with this node's schema, and the
    /// metadata that it is of.
    pub(crate) async fn plan_work(
        &self,
        (id, work): (TableId, &[u8]),
        (epoch, deadline): (Epoch, Instant),
    ) -> Result<(ShardWork, Arc<ClusterSnapshot>), ErrorReply> {
        let Some(cluster) = self.cluster() else { return Err(ErrorReply::Stopping) };
        let Some(planner) = self.inner.reading.scans.planner.borrow().clone() else {
            return Err(ErrorReply::Invalid("nobody here plans scans".to_owned()));
        };
        let plan = || {
            let snapshot = (cluster.parts.snapshot)();
            let table = snapshot.schema.table_by_id(id);
            let work = table.map(|table| planner(work, table));
            (snapshot, work)
        };
        let (mut snapshot, mut work) = plan();
        if snapshot.epoch < epoch && !matches!(work, Some(Ok(_))) {
            // It may be of a table that was made or changed a moment ago.
            if let Some(wait) = &cluster.parts.epoch_wait {
                wait(epoch, deadline).await;
            }
            (snapshot, work) = plan();
        }
        let work = work.ok_or(ErrorReply::UnknownTable(id))?.map_err(ErrorReply::Invalid)?;
        Ok((work, snapshot))
    }

    /// What is to be done with the rows, when this node may do it.
    async fn scan_work(
        &self,
        request: &ScanRequest<'_>,
        (epoch, deadline): (Epoch, Instant),
    ) -> Result<ShardWork, ErrorReply> {
        let Some(cluster) = self.cluster() else { return Err(ErrorReply::Stopping) };
        let (reading, id) = (&self.inner.reading, request.command.table);
        let (work, snapshot) = self.plan_work((id, request.work), (epoch, deadline)).await?;
        let facts = reading.facts(&snapshot, id).ok_or(ErrorReply::UnknownTable(id))?;
        if !request.check_slices(facts.shape.clustering()) {
            let text = "the slices do not fit the table's clustering columns".to_owned();
            return Err(ErrorReply::Invalid(text));
        }
        let mut command = request.command.clone();
        let is_outdated = |command: &ReadCommand| is_outdated(&cluster, &snapshot, epoch, command);
        let mut refuses = epoch < snapshot.epoch && is_outdated(&command);
        for range in request.further.iter().take_while(|_| epoch < snapshot.epoch) {
            command.partitions = Partitions::Range(range.clone());
            refuses |= is_outdated(&command);
        }
        if refuses {
            reading.outdated.inc();
            return Err(ErrorReply::EpochTooOld { needed: snapshot.epoch });
        }
        Ok(work)
    }
}
