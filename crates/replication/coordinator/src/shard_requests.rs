//! Requests between the shards of one node.

use index_format::{IndexSearch, Matches, Neighbours, VectorSearch};
use replica::{Origin, PackedPage, PackedRead, ReplicaMutation, ReplicaQuery};
use rt::Mesh;
use store::{ReplicaRead, StoreError};

use crate::orders::{Lead, ReplicatedError};

/// Request of one shard to another.
#[derive(Debug)]
pub enum ShardRequest {
    /// Apply one mutation and make it as durable as configured.
    Apply(ReplicaMutation, Origin),
    /// Apply several mutations and make them as durable as configured.
    ApplyAll(Vec<ReplicaMutation>, Origin),
    /// Read one page.
    Read(Box<PackedRead>),
    /// Read as a replica: with tombstones, for a coordinator that merges.
    Replica(Box<ReplicaQuery>),
    /// Search indexes.
    Search(Box<IndexSearch>),
    /// Search nearest rows.
    SearchVectors(Box<VectorSearch>),
    /// Lead increments of counters.
    Count(Box<Lead>),
    /// A request of conditional writes and serial reads to the shard that owns a partition.
    Lwt(lwt::ShardRequest),
}

/// Answer to a [`ShardRequest`].
#[derive(Debug)]
pub enum ShardReply {
    /// To `Apply` and `ApplyAll`.
    Applied(Result<(), StoreError>),
    /// To `Read`.
    Page(Result<PackedPage, StoreError>),
    /// To `Replica`.
    Replica(Result<ReplicaRead, StoreError>),
    /// To `Search`.
    Matches(Result<Matches, StoreError>),
    /// To `SearchVectors`.
    Neighbours(Result<Neighbours, StoreError>),
    /// To `Count`, with the events of its trace.
    Counted(Result<(), ReplicatedError>, Vec<String>),
    /// To `Lwt`.
    Lwt(lwt::ShardReply),
}

/// The way between the shards of one node.
pub type ShardMesh = Mesh<ShardRequest, ShardReply>;
