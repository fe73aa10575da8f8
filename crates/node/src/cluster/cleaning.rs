//! Data that this node does not own any more goes: `nodetool cleanup`, and by itself some time after
//! another node has taken ranges over.
//!
//! Never while anybody moves: a movement that is given up makes the old owners owners again.
//! INV-cleaning-1: what is owned is asked of the snapshot in use, without a wait before the store
//! chooses its files. Ranges that this node gets in a later snapshot are streamed anew, into other
//! files.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use admin::ActionError;
use cluster::ranges::merge;
use cluster::{ClusterSnapshot, MemberState, Replication};
use rt::Group;
use stdx::{TableId, Token};
use store::{OwnedRanges, StoreError};

use super::member::ClusterShard;

/// How long nobody has moved, at least, before data goes by itself; also how often it is looked.
const QUIET: Duration = Duration::from_secs(60);

/// What the node of `snapshot` owns of a table; `None` when nothing may be removed from it: its node
/// or another one moves, or the table is not replicated.
fn owned(snapshot: &ClusterSnapshot, table: TableId) -> Option<OwnedRanges> {
    if !is_settled(snapshot) {
        return None;
    }
    let replication = snapshot.replication_of_table(table)?;
    if replication == Replication::Local {
        return None;
    }
    let placements = snapshot.placements(&replication);
    // A keyspace that nobody has is not understood: it is left alone.
    if !placements.ranges().any(|(_, replicas)| replicas.natural().next().is_some()) {
        return None;
    }
    let ranges = merge(placements.ranges_written_to(snapshot.local.host_id));
    let mut ranges: Vec<(Token, Token)> =
        ranges.into_iter().flat_map(|range| range.unwrapped()).map(|r| (r.start, r.end)).collect();
    ranges.sort_unstable();
    Some(OwnedRanges::new(ranges))
}

/// Whether nobody moves and this node owns what the ring says.
fn is_settled(snapshot: &ClusterSnapshot) -> bool {
    let is_member = snapshot.local_member().is_some_and(|me| me.state == MemberState::Normal);
    is_member && !snapshot.members.values().any(|member| member.is_in_transition())
}

/// Whether a movement that takes ranges from others has been finished between two snapshots.
fn took_ranges(before: &ClusterSnapshot, after: &ClusterSnapshot) -> bool {
    after.members.values().any(|member| {
        let was = before.members.get(&member.host_id).map(|m| m.state);
        let had_them = matches!(
            was,
            Some(MemberState::Normal | MemberState::Leaving | MemberState::LeaveHandover)
        );
        member.state == MemberState::Normal && member.host_id != after.local.host_id && !had_them
    })
}

impl ClusterShard {
    /// Removes from this shard's files of the tables what this node does not own.
    ///
    /// # Errors
    /// `Failed`: a node moves, in Cassandra's words, or the store could not.
    pub(crate) async fn clean(&self, tables: &[TableId]) -> Result<(), ActionError> {
        for table in tables {
            if !is_settled(&self.membership.snapshot()) {
                let text =
                    "Node is involved in cluster membership changes. Not safe to run cleanup.";
                return Err(ActionError::Failed(text.to_owned()));
            }
            match self.clean_one(*table).await {
                Ok(()) | Err(StoreError::UnknownTable(_)) => {}
                Err(error) => return Err(ActionError::Failed(error.to_string())),
            }
        }
        Ok(())
    }

    async fn clean_one(&self, table: TableId) -> Result<(), StoreError> {
        let membership = self.membership.clone();
        let store = self.coordinator.store().clone();
        let owned = move || owned(&membership.snapshot(), table);
        let cleaned = store.cleanup(table, owned).await?;
        if cleaned.rewritten + cleaned.removed > 0 {
            tracing::info!(table = %table.0, shard = self.rt.shard().0, ?cleaned,
                "removed data that this node does not own");
        }
        Ok(())
    }

    /// Cleans by itself whenever another node has taken ranges over, all members are alive, and
    /// nobody has moved for a while. A start forgets what was due.
    pub(crate) fn clean_by_itself(&self) {
        let due = Rc::new(Cell::new(false));
        let set = due.clone();
        self.membership.on_change(move |before, after| {
            if before.members != after.members && took_ranges(before, after) {
                set.set(true);
            }
        });
        let this = self.clone();
        let task = async move {
            let mut members = this.membership.snapshot().members.clone();
            loop {
                let next = this.rt.now() + QUIET;
                if this.rt.timeout(next, this.rt.stop_requested()).await.is_ok() {
                    return;
                }
                let snapshot = this.membership.snapshot();
                // Somebody has moved since the last look.
                if snapshot.members != members {
                    members = snapshot.members.clone();
                    continue;
                }
                let me = snapshot.local.host_id;
                let is_alive = |host| host == me || this.liveness.is_alive(host);
                let all_alive = members.keys().all(|host| is_alive(*host));
                if !due.get() || !all_alive || !is_settled(&snapshot) {
                    continue;
                }
                due.set(false);
                let tables: Vec<TableId> = snapshot.schema.tables_by_id.keys().copied().collect();
                for table in tables {
                    match this.clean_one(table).await {
                        Ok(()) | Err(StoreError::UnknownTable(_)) => {}
                        Err(StoreError::Stopping) => return,
                        Err(error) => {
                            tracing::warn!(%error, "data that is not owned could not be removed");
                        }
                    }
                }
            }
        };
        // A closed gate: the node stops.
        let _ = self.cleaning.spawn(&self.rt, Group::Compaction, "cleanup", task);
    }
}
