//! Answers to the reads of other coordinators, for which this node is a replica.

use std::future::Future;
use std::rc::Rc;

use cluster::ClusterSnapshot;
use data::RowFilter;
use data::command::{Partitions, ReadCommand};
use data::replica_page::{FilteredPage, PageLimits};
use internode::{ErrorReply, FilteredAnswer, FilteredRead, ReadRequest, Verb};
use messaging::{Request, Responder};
use request::{PageDigest, digest_of};
use stdx::{Epoch, Instant};
use store::{ReadScope, StoreError};
use telemetry::Counter;

use crate::node::Node;
use crate::node_page::{NodePage, NodeRead};
use crate::outdated::is_outdated;
use crate::packed_read::ShardWork;
use crate::replica_errors::error_reply;
use crate::replica_query::ReplicaQuery;
use crate::serve_scan::Planner;
use crate::shard_reads::ShardReads;

/// Most bytes after which a page ends, whatever a peer asks for: half of what a message may have, so
/// that a last row of usual size still fits.
const PAGE_BYTES_MAX: u64 = 8 << 20;

/// Epoch of a peer's request, and the deadline of its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// The epoch of its metadata.
    pub(crate) epoch: Epoch,
    pub(crate) deadline: Instant,
}

impl Terms {
    pub(crate) fn of(request: &Request<'_>) -> Terms {
        Terms { epoch: request.epoch, deadline: request.deadline }
    }
}

/// Options for reading a page for a peer.
#[derive(Clone, Copy)]
struct Reading<'a> {
    /// Part of the table that the query sees.
    scope: ReadScope,
    /// Receives the reads of each shard.
    notes: Option<&'a ShardReads>,
    filter: Option<&'a dyn RowFilter>,
}

pub(crate) struct Counters {
    served: Counter,
    served_filtered: Counter,
    pub(crate) served_late: Counter,
    pub(crate) outdated: Counter,
    pub(crate) scans_served: Counter,
    pub(crate) searches_served: Counter,
}

impl Counters {
    fn new(telemetry: &telemetry::Shard) -> Counters {
        let counter = |name, help| telemetry.counter(name, help, &[]);
        Counters {
            served: counter("replica_reads_total", "pages and digests read for other coordinators"),
            served_filtered: counter(
                "replica_filtered_pages_total",
                "pages of which what passes a filter was sent to other coordinators",
            ),
            served_late: counter(
                "replica_reads_late_total",
                "reads not served, because their coordinator had given up",
            ),
            outdated: counter(
                "replica_reads_outdated_total",
                "reads not served, because their coordinator did not know who has their range now",
            ),
            searches_served: counter(
                "replica_index_searches_total",
                "searches of indexes for other coordinators",
            ),
            scans_served: counter(
                "replica_scans_total",
                "pages that this shard filtered or aggregated for other coordinators",
            ),
        }
    }
}

/// Reads for peers, on a shard of this node.
pub struct ReplicaReads<N> {
    pub(crate) inner: Rc<Inner<N>>,
}

pub(crate) struct Inner<N> {
    pub(crate) node: N,
    pub(crate) counters: Counters,
    /// Planner of the work that other nodes may request on rows.
    pub(crate) planner: Planner,
}

impl<N> Clone for ReplicaReads<N> {
    fn clone(&self) -> ReplicaReads<N> {
        ReplicaReads { inner: self.inner.clone() }
    }
}

impl<N: Node> ReplicaReads<N> {
    /// Nothing is served yet.
    pub fn new(node: N) -> ReplicaReads<N> {
        let counters = Counters::new(&node.env().rt.telemetry());
        ReplicaReads { inner: Rc::new(Inner { node, counters, planner: Planner::default() }) }
    }

    /// Releases what may hold this.
    pub fn let_go(&self) {
        self.inner.planner.let_go();
    }

    /// Serves the verbs `Read` and `RangeRead`.
    pub fn serve_read(&self, request: &Request<'_>, responder: Responder) {
        let read = match ReadRequest::decode(request.payload) {
            Ok(read) => read,
            Err(error) => return responder.fail(&ErrorReply::Invalid(error.to_string())),
        };
        let is_range = matches!(read.command.partitions, Partitions::Range(_));
        if is_range != (request.verb == Verb::RangeRead) {
            let text = "the verb does not fit the partitions that are read".to_owned();
            return responder.fail(&ErrorReply::Invalid(text));
        }
        let terms = Terms::of(request);
        let trace = request.trace.and_then(|_| self.inner.node.env().peer_trace(request));
        let this = self.clone();
        let task = async move {
            let counters = &this.inner.counters;
            if responder.is_cancelled() || this.inner.node.env().rt.now() >= terms.deadline {
                // It waited too long for its turn: the work is better spent on others.
                counters.served_late.inc();
                return responder.fail(&ErrorReply::Timeout);
            }
            counters.served.inc();
            let is_digest = read.digest;
            if let Some(trace) = &trace {
                trace.note(this.describe_read(&read.command));
            }
            let notes = trace.as_ref().map(|_| ShardReads::default());
            let how = Reading { scope: ReadScope::All, notes: notes.as_ref(), filter: None };
            let work = this.answer_page(read, terms, how);
            let answer = this.in_time(terms.deadline, work).await;
            if let (Some(trace), Some(notes)) = (&trace, &notes) {
                trace.note_reads(notes, is_range);
                trace.note(match &answer {
                    Ok(page) => format!("Enqueuing response of {} bytes", page.page.len()),
                    Err(error) => format!("Failed: {error}"),
                });
            }
            match answer {
                Ok(page) if is_digest => {
                    let digest = digest_of(&page.page).0.to_be_bytes();
                    responder.respond(|out| out.extend_from_slice(&digest));
                }
                Ok(page) => responder.respond(|out| out.extend_from_slice(&page.page)),
                Err(error) => responder.fail(&error),
            }
        };
        self.inner.node.env().spawn_or_drop("replica-read", task);
    }

    /// Runs work for a peer; `Timeout` once the peer does not wait any more.
    pub(crate) async fn in_time<T>(
        &self,
        deadline: Instant,
        work: impl Future<Output = Result<T, ErrorReply>>,
    ) -> Result<T, ErrorReply> {
        self.inner.node.env().rt.timeout(deadline, work).await.unwrap_or_else(|_| {
            self.inner.counters.served_late.inc();
            Err(ErrorReply::Timeout)
        })
    }

    /// Describes the read in the words of Cassandra's replicas.
    fn describe_read(&self, command: &ReadCommand) -> String {
        let cluster = self.inner.node.env().cluster();
        let snapshot = cluster.map(|cluster| cluster.snapshot());
        let table = snapshot.as_ref().and_then(|s| s.schema.table_by_id(command.table));
        let name = table.map_or("an unknown table", |table| &*table.name);
        match &command.partitions {
            Partitions::Key(_) => format!("Executing single-partition query on {name}"),
            Partitions::Range(_) => format!("Executing seq scan on {name}"),
        }
    }

    /// Reads the page that a peer requests, with the rows of it that pass the filter.
    async fn answer_page(
        &self,
        read: ReadRequest,
        terms: Terms,
        how: Reading<'_>,
    ) -> Result<NodePage, ErrorReply> {
        let env = self.inner.node.env();
        let Some(cluster) = env.cluster() else { return Err(ErrorReply::Stopping) };
        let Terms { epoch, deadline } = terms;
        let table = read.command.table;
        let mut snapshot: std::sync::Arc<ClusterSnapshot> = cluster.snapshot();
        if snapshot.epoch < epoch && env.facts(&snapshot, table).is_none() {
            // A table that was created a moment ago.
            cluster.wait_for(epoch, deadline).await;
            snapshot = cluster.snapshot();
        }
        let Some(facts) = env.facts(&snapshot, table) else {
            return Err(ErrorReply::UnknownTable(table));
        };
        if epoch < snapshot.epoch && is_outdated(cluster, &snapshot, epoch, &read.command) {
            self.inner.counters.outdated.inc();
            return Err(ErrorReply::EpochTooOld { needed: snapshot.epoch });
        }
        if !read.check_slices(facts.shape.clustering()) {
            let text = "the slices do not fit the table's clustering columns".to_owned();
            return Err(ErrorReply::Invalid(text));
        }
        let Reading { scope, notes, filter } = how;
        let ReadRequest { limits, command, .. } = read;
        let limits = PageLimits {
            rows: u32::try_from(limits.rows).unwrap_or(u32::MAX).max(1),
            rows_per_partition: limits.rows_per_partition.max(1),
            bytes: usize::try_from(limits.bytes.min(PAGE_BYTES_MAX)).unwrap_or(usize::MAX),
            tombstones: match scope {
                ReadScope::All => env.tombstones_of_pages(),
                _ => u32::MAX,
            },
        };
        let purge_before = facts.purge_before(&env.store, command.now);
        let query = ReplicaQuery { command, limits, purge_before, scope };
        let read = NodeRead::new(&facts.shape, query).noted(notes).filtered(filter);
        read.read(&self.inner.node).await.map_err(|error| {
            env.store.note_failure(&error);
            error_reply(&error)
        })
    }

    /// Serves the verb `FilteredRead`.
    pub fn serve_filtered(&self, request: &Request<'_>, responder: Responder) {
        let terms = Terms::of(request);
        let trace = request.trace.and_then(|_| self.inner.node.env().peer_trace(request));
        let (this, payload) = (self.clone(), request.payload.to_vec());
        let task = async move {
            let counters = &this.inner.counters;
            if responder.is_cancelled() || this.inner.node.env().rt.now() >= terms.deadline {
                counters.served_late.inc();
                return responder.fail(&ErrorReply::Timeout);
            }
            counters.served.inc();
            let read = match FilteredRead::decode(&payload) {
                Ok(read) => read,
                Err(error) => return responder.fail(&ErrorReply::Invalid(error.to_string())),
            };
            if let Some(trace) = &trace {
                trace.note(this.describe_read(&read.command));
            }
            let notes = trace.as_ref().map(|_| ShardReads::default());
            let work = this.answer_filtered(read, terms, notes.as_ref());
            let answer = this.in_time(terms.deadline, work).await;
            if let (Some(trace), Some(notes)) = (&trace, &notes) {
                trace.note_reads(notes, true);
                trace.note(match &answer {
                    Ok(filtered) => {
                        let FilteredPage { page, whole, .. } = &filtered.page;
                        let (bytes, dropped) = (page.len(), whole.dropped_rows);
                        format!(
                            "Filter dropped {dropped} rows; enqueuing response of {bytes} bytes"
                        )
                    }
                    Err(error) => format!("Failed: {error}"),
                });
            }
            match answer {
                Ok(Filtered { page, digest }) => {
                    counters.served_filtered.inc();
                    let FilteredPage { page, whole, last_key } = &page;
                    let (digest, whole, last_key) = (digest.0, *whole, last_key.as_deref());
                    let answer = FilteredAnswer { digest, whole, last_key, page };
                    responder.respond(|out| answer.encode(out));
                }
                Err(error) => responder.fail(&error),
            }
        };
        self.inner.node.env().spawn_or_drop("replica-filter", task);
    }

    async fn answer_filtered(
        &self,
        read: FilteredRead<'_>,
        terms: Terms,
        notes: Option<&ShardReads>,
    ) -> Result<Filtered, ErrorReply> {
        let FilteredRead { work, limits, command } = read;
        let (work, _) = self.plan_work(command.table, work, terms).await?;
        let ShardWork::Filter(filter) = work else {
            return Err(ErrorReply::Invalid("work that is no filter".to_owned()));
        };
        let read = ReadRequest { digest: false, limits, command };
        let how = Reading { scope: ReadScope::All, notes, filter: Some(&*filter) };
        let NodePage { page, filtered } = self.answer_page(read, terms, how).await?;
        let digest = digest_of(&page);
        match filtered {
            Some(page) => Ok(Filtered { page, digest }),
            None => Err(ErrorReply::Internal("a page was not filtered".to_owned())),
        }
    }

    /// Reads the page of this node that a peer requests, as the verbs `Read` and `RangeRead` answer
    /// it, restricted to the scope.
    ///
    /// # Errors
    /// The error reply to the peer: unknown table, differing metadata, invalid bounds, an error of
    /// the store.
    pub async fn read_as_replica(
        &self,
        read: ReadRequest,
        epoch: Epoch,
        deadline: Instant,
        scope: ReadScope,
    ) -> Result<Vec<u8>, ErrorReply> {
        let how = Reading { scope, notes: None, filter: None };
        Ok(self.answer_page(read, Terms { epoch, deadline }, how).await?.page)
    }

    /// Reads a page of about so many bytes over all shards of this node. Its end depends on the
    /// number of shards. Nothing is read that the page does not return, except the data that the
    /// other shards have after the first one's end.
    ///
    /// # Errors
    /// `UnknownTable`; those of [`store::Store::read_replica`]. An error of the store is noted
    /// there.
    pub async fn read_stretch(
        &self,
        snapshot: &ClusterSnapshot,
        command: ReadCommand,
        bytes: usize,
        scope: ReadScope,
    ) -> Result<Vec<u8>, StoreError> {
        let env = self.inner.node.env();
        let Some(table) = env.facts(snapshot, command.table) else {
            return Err(StoreError::UnknownTable(command.table));
        };
        let shards = match &command.partitions {
            Partitions::Key(_) => 1,
            Partitions::Range(_) => usize::from(env.rt.shard_count().max(1)),
        };
        let limits = PageLimits { bytes: (bytes / shards).max(1), ..PageLimits::default() };
        let purge_before = table.purge_before(&env.store, command.now);
        let query = ReplicaQuery { command, limits, purge_before, scope };
        let whole = PageLimits {
            bytes: if shards == 1 { bytes } else { usize::MAX },
            ..PageLimits::default()
        };
        let read = NodeRead::new(&table.shape, query).within(whole).read(&self.inner.node).await;
        let page = read.inspect_err(|error| env.store.note_failure(error))?;
        Ok(page.page)
    }
}

/// The rows of a page that pass a filter, with the digest of the whole page.
struct Filtered {
    page: FilteredPage,
    digest: PageDigest,
}
