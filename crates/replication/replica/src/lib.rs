//! The one door to a shard's data, for every writer and reader that uses it as one replica.
//!
//! Owns: admission and application of mutations ([`Replica::apply`]), reads of the owning shard
//! ([`Replica::read`], [`PackedRead`]), searches of indexes ([`Replica::search`], [`search_node`]), the page of a node out of those of its shards ([`NodeRead`]), the answers to
//! peers' reads ([`ReplicaReads`]), the registry of verbs ([`VerbRegistry`]), and what all of them stand on:
//! the environment of a shard ([`Env`]) and its view of the cluster ([`ClusterView`]). Never: which replicas a
//! request goes to, consistency levels, CQL.
//!
//! Invariants: INV-replica-1 (`apply`), INV-reading-1 (`node_page`), INV-verbs-1 (`verbs`).
//!
//! Reading order: `apply`, `env`, `cluster_view`, `placements`, `tables`, `node_page`, `packed_read`,
//! `serve_read`, `serve_scan`, `index_search`, `verbs`.

mod apply;
mod cluster_parts;
mod cluster_view;
mod env;
mod folded_page;
mod index_search;
mod node;
mod node_page;
mod outdated;
mod packed_page;
mod packed_read;
mod page_rows;
mod peer_traces;
mod placements;
mod replica_errors;
mod replica_query;
mod request_trace;
mod resume;
mod scan_page;
mod serve_read;
mod serve_scan;
mod shard_reads;
mod tables;
mod token_range;
mod vector_search;
mod verbs;

pub use apply::{Admitted, IndexSearcher, Origin, Replica, ReplicaMutation, VectorSearcher};
pub use cluster_parts::{ClusterParts, EpochWait, HintSink, NoHints, ReplicationSettings};
pub use cluster_view::ClusterView;
pub use env::{Env, Joined};
pub use folded_page::open_result;
pub use index_search::search_node;
pub use node::Node;
pub use node_page::{NodePage, NodeRead};
pub use outdated::{has_moved, is_outdated};
pub use packed_page::{
    PackedPage, PageEnd, PageItem, PageLimit, PageWriter, RowPosition, TOMBSTONES_OF_A_PAGE,
};
pub use packed_read::{PackedRead, ScanPlanner, ShardWork};
pub use page_rows::{PageRows, Shown};
pub use peer_traces::{EVENTS_MAX, PeerTrace, TraceSink, TracedEvent};
pub use placements::{ReplicaList, Topology};
pub use replica_errors::{error_reply, of_forward, of_reply, of_store, replica_error};
pub use replica_query::ReplicaQuery;
pub use request_trace::{RequestTrace, name_of};
pub use resume::{go_on, resumed};
pub use scan_page::{Expected, decode as decode_scan_page, encode as encode_scan_page};
pub use serve_read::ReplicaReads;
pub use shard_reads::{ShardReads, add as add_stats};
pub use tables::TableFacts;
pub use token_range::{part_of, tokens_of};
pub use vector_search::search_vectors_node;
pub use verbs::{VerbHandler, VerbRegistry};
