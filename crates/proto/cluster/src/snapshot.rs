//! The immutable picture of the cluster at one epoch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use schema::Schema;
use stdx::{Epoch, Generation, HostId, TableId, TimestampMicros, Token, Uuid, WallMicros};

use crate::place_history::PlaceHistory;
use crate::{Auth, Handover, Members};

/// Identity of this node.
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

/// The newest truncation of a table: what existed at it is gone.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Truncation {
    /// When, for `system.local`'s `truncated_at` and for tools.
    pub truncated_at: WallMicros,
    /// Per shard of that time: commit-log segment and offset up to which records are gone.
    pub positions: Vec<(u64, u64)>,
    /// SSTables that existed and are gone.
    pub generations: Vec<Generation>,
    /// Number of the log's entry; set by the fold, not encoded.
    pub epoch: Epoch,
}

/// The cluster at one epoch: the fold of the metadata log. Shared as `Arc`, never edited in place.
#[derive(Clone, Debug)]
pub struct ClusterSnapshot {
    /// Number of the last entry in it.
    pub epoch: Epoch,
    /// Identity of the cluster, derived from the log's first entry: the same on every node, and
    /// another one for every cluster, whatever its name.
    pub cluster_id: Uuid,
    /// This node. The fold of a log begins as its founder; [`ClusterSnapshot::with_local`] makes it
    /// another node's. Everything else is the same on every node.
    pub local: LocalNode,
    /// The members, by host id.
    pub members: Members,
    /// History of the members' places in the ring.
    pub places: PlaceHistory,
    /// Former members: they left, were removed, or did not complete their join. A host id does not
    /// come back.
    pub departed: Arc<BTreeSet<HostId>>,
    /// The voters for the next entry, ascending; never empty.
    pub voters: Vec<HostId>,
    /// Features in use, one bit each; every member can do them.
    pub features: u64,
    /// Everything that exists.
    pub schema: Arc<Schema>,
    /// Roles and what they may do.
    pub auth: Arc<Auth>,
    /// Keyspaces whose lightweight transactions are being handed over to other replicas.
    pub handovers: BTreeMap<Arc<str>, Handover>,
    /// Newest truncation of each table that had one.
    pub truncations: BTreeMap<TableId, Truncation>,
}

impl ClusterSnapshot {
    /// The same as the member `host` sees it; it stays so over [`ClusterSnapshot::apply`]. `None`
    /// when there is no such member.
    pub fn with_local(&self, host: HostId) -> Option<ClusterSnapshot> {
        if !self.members.contains_key(&host) {
            return None;
        }
        let mut local = self.local.clone();
        local.host_id = host;
        Some(self.seen_by(local))
    }

    /// The same as a node sees it that may not be a member (yet). Name and birth of the cluster
    /// stay; what is known of the member, if it is one, goes before what `local` says.
    pub fn seen_by(&self, local: LocalNode) -> ClusterSnapshot {
        let mut seen = self.clone();
        seen.local = LocalNode {
            cluster_name: self.local.cluster_name.clone(),
            created_at: self.local.created_at,
            ..local
        };
        seen.refresh_local();
        seen
    }

    /// Updates `local` from the membership; it stays as it was when the node is out.
    pub(crate) fn refresh_local(&mut self) {
        if let Some(member) = self.members.get(&self.local.host_id) {
            self.local.datacenter.clone_from(&member.datacenter);
            self.local.rack.clone_from(&member.rack);
            self.local.tokens.clone_from(&member.tokens);
        }
    }

    /// Timestamp of the system-table rows that describe this epoch.
    pub fn system_timestamp(&self) -> TimestampMicros {
        let steps = i64::try_from(self.epoch.0).unwrap_or(i64::MAX).saturating_mul(2);
        TimestampMicros(self.local.created_at.0.saturating_add(steps))
    }
}
