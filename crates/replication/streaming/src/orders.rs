//! Orders of the shard that fetches to all shards of its node.

use std::sync::Arc;

use rt::Mesh;
use stdx::{HostId, TableId, Uuid};

use crate::error::StreamError;
use crate::plan::FetchRange;
use crate::report::FetchReport;

/// One table's ranges, for every shard.
#[derive(Clone)]
pub(crate) struct TableOrder {
    pub(crate) plan: Uuid,
    pub(crate) operation: Arc<str>,
    pub(crate) table: TableId,
    pub(crate) ranges: Arc<[FetchRange]>,
}

/// Order to a shard.
pub(crate) enum Order {
    /// Fetch what of these ranges is yours.
    Fetch(TableOrder),
    /// Abort the work of the operation that still runs.
    Abort(Uuid),
    /// The operation is over.
    Forget(Uuid),
}

/// Outcome of one shard's fetch of a table.
#[derive(Debug, Default)]
pub(crate) struct ShardOutcome {
    pub(crate) report: FetchReport,
    /// Index of a range, the last source and why it failed.
    pub(crate) failed: Vec<(usize, Option<HostId>, String)>,
}

/// Orders of the shard that fetches to all shards, and their outcomes.
pub struct StreamMesh(pub(crate) Mesh<Order, Result<ShardOutcome, StreamError>>);

/// Creates the mesh of a node with so many shards; call it before they start.
pub fn new_mesh(shards: u16) -> StreamMesh {
    // One table at a time, and seldom more than one operation.
    StreamMesh(Mesh::new(shards, 64))
}
