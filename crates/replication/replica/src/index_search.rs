//! Searches of indexes on one node: the matches of its shards, united.
//!
//! Each shard has its own part of the tokens' partitions, so the matches of a node are those of all its shards up to the
//! smallest of their frontiers. A search of one partition asks its owner only.

use std::future::Future;
use std::rc::Rc;

use data::ClusteringComparator;
use data::command::{Partitions, ReadCommand};
use index_format::{IndexSearch, Matches};
use internode::{ErrorReply, ReadLimits, ReadRequest, decode_index_search, encode_matches};
use messaging::{Request, Responder};
use stdx::{Epoch, ShardId};
use store::StoreError;

use crate::node::Node;
use crate::outdated::is_outdated;
use crate::replica_errors::error_reply;
use crate::serve_read::{ReplicaReads, Terms};
use crate::tables::TableFacts;

/// Most keys of an answer, whatever a peer asks for.
const KEYS_MAX: u32 = 4096;
/// Bytes of keys after which an answer ends, whatever a peer asks for.
const BYTES_MAX: u64 = 1 << 20;
/// Rows that an answer looks at, whatever a peer asks for.
const SCANNED_MAX: u64 = 1 << 20;

/// Searches the shards of this node that have something of it.
///
/// # Errors
/// Those of [`crate::Replica::search`], of the first shard that fails.
pub async fn search_node<N: Node>(
    node: &N,
    search: IndexSearch,
    order: &ClusteringComparator,
) -> Result<Matches, StoreError> {
    let env = node.env();
    let (own, shards) = (env.rt.shard(), env.rt.shard_count());
    if let Partitions::Key(key) = &search.command.partitions {
        let owner = env.shard_map().shard_of(search.command.table, codec::token_of(key));
        return match owner == own {
            true => env.replica.search(&search).await,
            false => node.matches_of(owner, search).await,
        };
    }
    // The others begin before this shard searches its own.
    let others: Vec<_> = (0..shards)
        .map(ShardId)
        .filter(|shard| *shard != own)
        .map(|shard| node.matches_of(shard, search.clone()))
        .collect();
    let mut answers = vec![env.replica.search(&search).await?];
    for other in others {
        answers.push(other.await?);
    }
    Ok(index_read::unite(answers, order, &search.limits))
}

/// How an answer with keys of rows is sent.
pub(crate) struct Answering<T> {
    /// Said in the trace when the search begins.
    pub(crate) begins: String,
    /// Number of keys.
    pub(crate) keys: fn(&T) -> usize,
    /// Appends the answer.
    pub(crate) encode: fn(&mut Vec<u8>, &T),
}

/// A search of a peer that may run.
pub(crate) struct AdmittedSearch {
    /// Its command, with slices that fit the table.
    pub(crate) command: ReadCommand,
    pub(crate) facts: Rc<TableFacts>,
    /// The metadata of this node.
    pub(crate) epoch: Epoch,
}

impl<N: Node> ReplicaReads<N> {
    /// Serves the verb `IndexSearch`.
    pub fn serve_search(&self, request: &Request<'_>, responder: Responder) {
        let terms = Terms::of(request);
        let search = match decode_index_search(request.payload) {
            Ok(search) => search,
            Err(error) => return responder.fail(&ErrorReply::Invalid(error.to_string())),
        };
        let count = search.predicates.len();
        let answering = Answering {
            begins: format!("Searching indexes for {count} restrictions"),
            keys: Matches::keys,
            encode: encode_matches,
        };
        let this = self.clone();
        let answer = async move { this.answer_search(search, terms).await };
        self.serve_keys(request, responder, answering, answer);
    }

    /// Runs a search for a peer and sends its answer.
    pub(crate) fn serve_keys<T: 'static>(
        &self,
        request: &Request<'_>,
        responder: Responder,
        answering: Answering<T>,
        answer: impl Future<Output = Result<T, ErrorReply>> + 'static,
    ) {
        let terms = Terms::of(request);
        let trace = request.trace.and_then(|_| self.inner.node.env().peer_trace(request));
        let this = self.clone();
        let task = async move {
            let counters = &this.inner.counters;
            if responder.is_cancelled() || this.inner.node.env().rt.now() >= terms.deadline {
                counters.served_late.inc();
                return responder.fail(&ErrorReply::Timeout);
            }
            counters.searches_served.inc();
            if let Some(trace) = &trace {
                trace.note(answering.begins);
            }
            let answer = this.in_time(terms.deadline, answer).await;
            if let Some(trace) = &trace {
                trace.note(match &answer {
                    Ok(answer) => {
                        format!("Enqueuing response of {} keys", (answering.keys)(answer))
                    }
                    Err(error) => format!("Failed: {error}"),
                });
            }
            match answer {
                Ok(answer) => responder.respond(|out| (answering.encode)(out, &answer)),
                Err(error) => responder.fail(&error),
            }
        };
        self.inner.node.env().spawn_or_drop("replica-search", task);
    }

    /// Checks that a search of a peer may run with this node's metadata, which it may wait for.
    pub(crate) async fn admit_search(
        &self,
        command: ReadCommand,
        terms: Terms,
    ) -> Result<AdmittedSearch, ErrorReply> {
        let env = self.inner.node.env();
        let Some(cluster) = env.cluster() else { return Err(ErrorReply::Stopping) };
        let table = command.table;
        let mut snapshot = cluster.snapshot();
        if snapshot.epoch < terms.epoch && env.facts(&snapshot, table).is_none() {
            // A table that was created a moment ago.
            cluster.wait_for(terms.epoch, terms.deadline).await;
            snapshot = cluster.snapshot();
        }
        let Some(facts) = env.facts(&snapshot, table) else {
            return Err(ErrorReply::UnknownTable(table));
        };
        if terms.epoch < snapshot.epoch && is_outdated(cluster, &snapshot, terms.epoch, &command) {
            self.inner.counters.outdated.inc();
            return Err(ErrorReply::EpochTooOld { needed: snapshot.epoch });
        }
        let rows = ReadLimits { rows: 1, bytes: 1, rows_per_partition: u32::MAX };
        let read = ReadRequest { digest: false, limits: rows, command };
        if !read.check_slices(facts.shape.clustering()) {
            let text = "the slices do not fit the table's clustering columns".to_owned();
            return Err(ErrorReply::Invalid(text));
        }
        Ok(AdmittedSearch { command: read.command, facts, epoch: snapshot.epoch })
    }

    /// Repeats a search whose index was created a moment ago, when this node knows it; the reply to its failure.
    pub(crate) async fn or_with_new_index<T>(
        &self,
        answer: Result<T, StoreError>,
        epoch: Epoch,
        terms: Terms,
        again: impl AsyncFnOnce() -> Result<T, StoreError>,
    ) -> Result<T, ErrorReply> {
        let env = self.inner.node.env();
        let answer = match (answer, env.cluster()) {
            (Err(StoreError::IndexNotAvailable { .. }), Some(cluster)) if epoch < terms.epoch => {
                cluster.wait_for(terms.epoch, terms.deadline).await;
                again().await
            }
            (answer, _) => answer,
        };
        answer.map_err(|error| {
            env.store.note_failure(&error);
            error_reply(&error)
        })
    }

    async fn answer_search(
        &self,
        mut search: IndexSearch,
        terms: Terms,
    ) -> Result<Matches, ErrorReply> {
        let AdmittedSearch { command, facts, epoch } =
            self.admit_search(search.command, terms).await?;
        search.command = command;
        let limits = &mut search.limits;
        limits.keys = limits.keys.min(KEYS_MAX);
        limits.bytes = limits.bytes.min(BYTES_MAX);
        limits.scanned = limits.scanned.min(SCANNED_MAX);
        let (node, order) = (&self.inner.node, facts.shape.clustering());
        let answer = search_node(node, search.clone(), order).await;
        let again = async || search_node(node, search, order).await;
        self.or_with_new_index(answer, epoch, terms, again).await
    }
}
