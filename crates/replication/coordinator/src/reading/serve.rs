//! Reads of other coordinators, for which this node is a replica.

use data::RowFilter;
use data::command::Partitions;
use data::replica_page::PageLimits;
use internode::{ErrorReply, ReadRequest, Verb};
use messaging::{Request, Responder};
use request::digest_of;
use rt::Group;
use stdx::{Epoch, Instant};
use store::ReadScope;

use super::outdated::is_outdated;
use super::plan::TableFacts;
use super::shards::{NodePage, ReplicaQuery};
use crate::read_trace::ShardReads;
use crate::{Coordinator, failing};

/// Most bytes after which a page ends, whatever a peer asks for: half of what a message may have, so
/// that a last row of usual size still fits.
const PAGE_BYTES_MAX: u64 = 8 << 20;

impl Coordinator {
    /// Serves the verbs `Read` and `RangeRead`.
    pub(crate) fn serve_read(&self, request: &Request<'_>, responder: Responder) {
        let read = match ReadRequest::decode(request.payload) {
            Ok(read) => read,
            Err(error) => return responder.fail(&ErrorReply::Invalid(error.to_string())),
        };
        let is_range = matches!(read.command.partitions, Partitions::Range(_));
        if is_range != (request.verb == Verb::RangeRead) {
            let text = "the verb does not fit the partitions that are read".to_owned();
            return responder.fail(&ErrorReply::Invalid(text));
        }
        let (epoch, deadline) = (request.epoch, request.deadline);
        let trace = request.trace.and_then(|_| self.peer_trace(request));
        let this = self.clone();
        let task = async move {
            let reading = &this.inner.reading;
            if responder.is_cancelled() || this.inner.rt.now() >= deadline {
                // It waited too long for its turn: what it costs is better spent on others.
                reading.served_late.inc();
                return responder.fail(&ErrorReply::Timeout);
            }
            reading.served.inc();
            let is_digest = read.digest;
            if let Some(trace) = &trace {
                trace.note(this.describe_read(&read.command));
            }
            let notes = trace.as_ref().map(|_| ShardReads::default());
            let work = this.answer_read(read, (epoch, deadline), ReadScope::All, notes.as_ref());
            let answer = this.in_time(deadline, work).await;
            if let (Some(trace), Some(notes)) = (&trace, &notes) {
                trace.note_reads(notes, is_range);
                trace.note(match &answer {
                    Ok(page) => format!("Enqueuing response of {} bytes", page.len()),
                    Err(error) => format!("Failed: {error}"),
                });
            }
            match answer {
                Ok(page) if is_digest => {
                    let digest = digest_of(&page).0.to_be_bytes();
                    responder.respond(|out| out.extend_from_slice(&digest));
                }
                Ok(page) => responder.respond(|out| out.extend_from_slice(&page)),
                Err(error) => responder.fail(&error),
            }
        };
        // A closed gate means that the node stops: the responder is dropped, which says so.
        let _ = self.inner.gate.spawn(&self.inner.rt, Group::Statement, "replica-read", task);
    }

    /// What a peer waits for, unless that takes longer than it waits.
    pub(crate) async fn in_time<T>(
        &self,
        deadline: Instant,
        work: impl Future<Output = Result<T, ErrorReply>>,
    ) -> Result<T, ErrorReply> {
        self.inner.rt.timeout(deadline, work).await.unwrap_or_else(|_| {
            self.inner.reading.served_late.inc();
            Err(ErrorReply::Timeout)
        })
    }

    /// As Cassandra's replicas say it.
    pub(super) fn describe_read(&self, command: &data::command::ReadCommand) -> String {
        let cluster = self.cluster();
        let snapshot = cluster.map(|cluster| (cluster.parts.snapshot)());
        let table = snapshot.as_ref().and_then(|s| s.schema.table_by_id(command.table));
        let name = table.map_or("an unknown table", |table| &*table.name);
        match &command.partitions {
            Partitions::Key(_) => format!("Executing single-partition query on {name}"),
            Partitions::Range(_) => format!("Executing seq scan on {name}"),
        }
    }

    /// The page, encoded; `notes` gets what each shard has read for it.
    pub(super) async fn answer_read(
        &self,
        read: ReadRequest,
        (epoch, deadline): (Epoch, Instant),
        scope: ReadScope,
        notes: Option<&ShardReads>,
    ) -> Result<Vec<u8>, ErrorReply> {
        let page = self.answer_page(read, (epoch, deadline), (scope, notes), None).await?;
        Ok(page.page)
    }

    /// As [`Coordinator::answer_read`], with what of the page passes a filter.
    pub(super) async fn answer_page(
        &self,
        read: ReadRequest,
        (epoch, deadline): (Epoch, Instant),
        (scope, notes): (ReadScope, Option<&ShardReads>),
        filter: Option<&dyn RowFilter>,
    ) -> Result<NodePage, ErrorReply> {
        let Some(cluster) = self.cluster() else { return Err(ErrorReply::Stopping) };
        let ReadRequest { limits, command, .. } = read;
        let reading = &self.inner.reading;
        let tables = &reading.tables;
        let mut snapshot = (cluster.parts.snapshot)();
        if snapshot.epoch < epoch && tables.get(&snapshot, command.table).is_none() {
            // A table that was made a moment ago.
            if let Some(wait) = &cluster.parts.epoch_wait {
                wait(epoch, deadline).await;
            }
            snapshot = (cluster.parts.snapshot)();
        }
        let Some(table) = tables.get(&snapshot, command.table) else {
            return Err(ErrorReply::UnknownTable(command.table));
        };
        let table: &TableFacts = &table;
        if epoch < snapshot.epoch && is_outdated(&cluster, &snapshot, epoch, &command) {
            reading.outdated.inc();
            return Err(ErrorReply::EpochTooOld { needed: snapshot.epoch });
        }
        let purge_before = table.purge_before(&self.inner.store, command.now);
        let bytes = usize::try_from(limits.bytes.min(PAGE_BYTES_MAX)).unwrap_or(usize::MAX);
        let limits = PageLimits {
            rows: u32::try_from(limits.rows).unwrap_or(u32::MAX).max(1),
            rows_per_partition: limits.rows_per_partition.max(1),
            bytes,
            tombstones: match scope {
                ReadScope::All => self.tombstones_of_pages(),
                _ => u32::MAX,
            },
        };
        let request = ReadRequest { digest: read.digest, limits: read.limits, command };
        if !request.check_slices(table.shape.clustering()) {
            let text = "the slices do not fit the table's clustering columns".to_owned();
            return Err(ErrorReply::Invalid(text));
        }
        let query = ReplicaQuery { command: request.command, limits, purge_before, scope };
        self.read_node(&table.shape, query, notes, filter).await.map_err(|error| {
            self.inner.store.note_failure(&error);
            failing::error_reply(&error)
        })
    }
}
