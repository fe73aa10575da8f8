//! Scans of other coordinators, which a shard of this node filters or folds: the verb `Scan`.
//!
//! The front end ([`ScanPlanner`]) plans the work on the rows, with this node's schema. It refuses work that it
//! would plan differently from the coordinator; the coordinator then reads rows.

use std::cell::RefCell;
use std::sync::Arc;

use cluster::ClusterSnapshot;
use data::command::{Partitions, ReadCommand};
use internode::{ErrorReply, ScanRequest};
use messaging::{Request, Responder};
use stdx::TableId;

use crate::node::Node;
use crate::outdated::is_outdated;
use crate::packed_page::{PackedPage, PageLimit};
use crate::packed_read::{PackedRead, ScanPlanner, ShardWork};
use crate::replica_errors::error_reply;
use crate::scan_page;
use crate::serve_read::{ReplicaReads, Terms};

/// Most bytes of rows after which a page ends, whatever a peer asks for: half of what a message may have.
const PAGE_BYTES_MAX: u64 = 8 << 20;
/// Most bytes that are read for a page, whatever a peer requests: some tens of milliseconds of
/// work.
const LEFT_OUT_MAX: u64 = 64 << 20;
/// The front end's planner, once there is one.
#[derive(Default)]
pub(crate) struct Planner(RefCell<Option<ScanPlanner>>);

impl Planner {
    fn set(&self, planner: ScanPlanner) {
        *self.0.borrow_mut() = Some(planner);
    }

    fn get(&self) -> Option<ScanPlanner> {
        self.0.borrow().clone()
    }

    pub(crate) fn let_go(&self) {
        drop(self.0.take());
    }
}

impl<N: Node> ReplicaReads<N> {
    /// Sets the planner of other nodes' scans. Until then scans are refused, and coordinators read
    /// rows.
    pub fn serve_scans(&self, planner: ScanPlanner) {
        self.inner.planner.set(planner);
    }

    /// Serves the verb `Scan`.
    pub fn serve_scan(&self, request: &Request<'_>, responder: Responder) {
        let terms = Terms::of(request);
        let trace = request.trace.and_then(|_| self.inner.node.env().peer_trace(request));
        let (this, payload) = (self.clone(), request.payload.to_vec());
        let task = async move {
            let counters = &this.inner.counters;
            if responder.is_cancelled() || this.inner.node.env().rt.now() >= terms.deadline {
                counters.served_late.inc();
                return responder.fail(&ErrorReply::Timeout);
            }
            counters.scans_served.inc();
            let work = this.answer_scan(&payload, terms);
            let answer = this.in_time(terms.deadline, work).await;
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
        self.inner.node.env().spawn_or_drop("replica-scan", task);
    }

    /// The page, and the state of its fold.
    async fn answer_scan(
        &self,
        payload: &[u8],
        terms: Terms,
    ) -> Result<(PackedPage, Option<Vec<u8>>), ErrorReply> {
        let invalid = |text: &str| ErrorReply::Invalid(text.to_owned());
        let request =
            ScanRequest::decode(payload).map_err(|error| ErrorReply::Invalid(error.to_string()))?;
        let env = self.inner.node.env();
        if request.shards != env.rt.shard_count() {
            return Err(invalid("a scan for another number of shards"));
        }
        let work = self.scan_work(&request, terms).await?;
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
            tombstones: env.tombstones_of_pages(),
        };
        let ScanRequest { shard, command, further, .. } = request;
        let read = PackedRead { command, further, limit, work: Some(work.clone()), state };
        let page = match shard == env.rt.shard() {
            true => read.read(env).await,
            // The peer had no connection to that shard yet when it sent the request.
            false => self.inner.node.packed_page_of(shard, read).await,
        };
        let mut page = page.map_err(|error| {
            env.store.note_failure(&error);
            error_reply(&error)
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

    /// Plans the work on rows that another node requests, with this node's schema. Returns the
    /// snapshot of the plan too.
    pub(crate) async fn plan_work(
        &self,
        id: TableId,
        work: &[u8],
        terms: Terms,
    ) -> Result<(ShardWork, Arc<ClusterSnapshot>), ErrorReply> {
        let Some(cluster) = self.inner.node.env().cluster() else {
            return Err(ErrorReply::Stopping);
        };
        let Some(planner) = self.inner.planner.get() else {
            return Err(ErrorReply::Invalid("this node does not plan scans".to_owned()));
        };
        let plan = || {
            let snapshot = (cluster.parts.snapshot)();
            let table = snapshot.schema.table_by_id(id);
            let work = table.map(|table| planner(work, table));
            (snapshot, work)
        };
        let (mut snapshot, mut work) = plan();
        if snapshot.epoch < terms.epoch && !matches!(work, Some(Ok(_))) {
            // The work may be of a table that was created or changed a moment ago.
            cluster.wait_for(terms.epoch, terms.deadline).await;
            (snapshot, work) = plan();
        }
        let work = work.ok_or(ErrorReply::UnknownTable(id))?.map_err(ErrorReply::Invalid)?;
        Ok((work, snapshot))
    }

    /// Plans the work on the rows, if this node may do it.
    async fn scan_work(
        &self,
        request: &ScanRequest<'_>,
        terms: Terms,
    ) -> Result<ShardWork, ErrorReply> {
        let Some(cluster) = self.inner.node.env().cluster() else {
            return Err(ErrorReply::Stopping);
        };
        let id = request.command.table;
        let (work, snapshot) = self.plan_work(id, request.work, terms).await?;
        let facts =
            self.inner.node.env().facts(&snapshot, id).ok_or(ErrorReply::UnknownTable(id))?;
        if !request.check_slices(facts.shape.clustering()) {
            let text = "the slices do not fit the table's clustering columns".to_owned();
            return Err(ErrorReply::Invalid(text));
        }
        let mut command = request.command.clone();
        let is_outdated =
            |command: &ReadCommand| is_outdated(cluster, &snapshot, terms.epoch, command);
        let mut refuses = terms.epoch < snapshot.epoch && is_outdated(&command);
        for range in request.further.iter().take_while(|_| terms.epoch < snapshot.epoch) {
            command.partitions = Partitions::Range(range.clone());
            refuses |= is_outdated(&command);
        }
        if refuses {
            self.inner.counters.outdated.inc();
            return Err(ErrorReply::EpochTooOld { needed: snapshot.epoch });
        }
        Ok(work)
    }
}
