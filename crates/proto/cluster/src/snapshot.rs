//! The immutable picture of the cluster at one epoch.

use std::collections::BTreeMap;
use std::sync::Arc;

use schema::Schema;
use stdx::{Epoch, Generation, HostId, TableId, TimestampMicros, Token, WallMicros};

/// Who this node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalNode {
    /// Identity; never changes.
    pub host_id: HostId,
    /// `cluster_name` of the first start; a different one later is refused.
    pub cluster_name: String,
    /// Datacenter, from the snitch.
    pub datacenter: String,
    /// Rack, from the snitch.
    pub rack: String,
    /// Tokens this node owns, ascending.
    pub tokens: Vec<Token>,
    /// Wall clock of the first start. Timestamps of what the node writes about itself count from
    /// here by epoch, so that they never go back when the clock does.
    pub created_at: WallMicros,
}

/// A role that can log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// May do everything.
    pub is_superuser: bool,
    /// May log in.
    pub can_login: bool,
    /// bcrypt hash of the password.
    pub salted_hash: String,
}

/// The newest truncation of a table: what existed at it is gone.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Truncation {
    /// When, for `system.local`'s `truncated_at` and for tools.
    pub truncated_at: WallMicros,
    /// Per shard of that time: commit-log segment and offset up to which records are gone.
    pub positions: Vec<(u64, u64)>,
    /// SSTables that existed and are gone.
    pub generations: Vec<Generation>,
}

/// The cluster at one epoch: the fold of the metadata log. Shared as `Arc`, never edited in place.
#[derive(Clone, Debug)]
pub struct ClusterSnapshot {
    /// Number of the last entry in it.
    pub epoch: Epoch,
    /// This node.
    pub local: LocalNode,
    /// Everything that exists.
    pub schema: Arc<Schema>,
    /// Roles by name.
    pub roles: BTreeMap<String, Role>,
    /// Newest truncation of each table that had one.
    pub truncations: BTreeMap<TableId, Truncation>,
}

impl ClusterSnapshot {
    /// Timestamp of the system-table rows that describe this epoch.
    pub fn system_timestamp(&self) -> TimestampMicros {
        let steps = i64::try_from(self.epoch.0).unwrap_or(i64::MAX).saturating_mul(2);
        TimestampMicros(self.local.created_at.0.saturating_add(steps))
    }
}
