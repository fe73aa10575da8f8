//! Removes data that this node does not own any more: `nodetool cleanup`, and automatically some time after
//! another node has taken ranges over.
//!
//! Data is not removed while a member moves: a movement that is aborted makes the old owners owners again.
//! INV-cleaning-1: owned ranges come from the snapshot in use, without a wait before the store chooses its files.
//! Ranges that this node gets in a later snapshot are streamed again, into other files.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use cluster::ranges::merge;
use cluster::{ClusterSnapshot, MemberState, PlacementKey, Replication};
use rt::{Fs, Group, OpenOptions, Rt};
use stdx::{TableId, Token};
use store::{OwnedRanges, StoreError};

use crate::env::Env;

/// Shortest time without a movement before data is removed automatically; also the interval of the
/// check.
const QUIET: Duration = Duration::from_secs(60);

/// Returns the ranges of a table that the node of `snapshot` owns. `None`: nothing may be removed
/// from the table, because this node or another one moves, or the table is not replicated.
fn owned(snapshot: &ClusterSnapshot, table: TableId) -> Option<OwnedRanges> {
    if !is_settled(snapshot) {
        return None;
    }
    let placements = snapshot.placements_of_table(table)?;
    if *placements.replication() == Replication::Local {
        return None;
    }
    // A keyspace without any replica is not understood: its data stays.
    if !placements.ranges().any(|(_, replicas)| replicas.natural().next().is_some()) {
        return None;
    }
    let ranges = merge(placements.ranges_written_to(snapshot.local.host_id));
    let mut ranges: Vec<(Token, Token)> =
        ranges.into_iter().flat_map(|range| range.unwrapped()).map(|r| (r.start, r.end)).collect();
    ranges.sort_unstable();
    Some(OwnedRanges::new(ranges))
}

/// Returns true if no member moves, no keyspace is handed over, and this node is a normal member.
fn is_settled(snapshot: &ClusterSnapshot) -> bool {
    let is_member = snapshot.local_member().is_some_and(|me| me.state == MemberState::Normal);
    is_member
        && snapshot.handovers.is_empty()
        && !snapshot.members.values().any(|member| member.is_in_transition())
}

/// Returns true if this node may have data that it does not own any more after the change from one
/// snapshot to the next. A member has joined or moved, or stays where it was although others copied
/// from it, or a keyspace has other replicas.
fn took_ranges(before: &ClusterSnapshot, after: &ClusterSnapshot) -> bool {
    let me = after.local.host_id;
    let settled = after.members.values().any(|member| {
        let was = before.members.get(&member.host_id);
        let is_mine = member.host_id == me;
        let moved = match was {
            None => !is_mine,
            Some(was) if is_mine => was.is_in_transition() && was.tokens != member.tokens,
            Some(was) => was.is_in_transition(),
        };
        member.state == MemberState::Normal && moved
    });
    // Until the handover is over the old replicas keep what they have.
    let handed_over = before.handovers.len() > after.handovers.len();
    settled || handed_over || is_replicated_otherwise(before, after)
}

/// Returns true if a keyspace has other replicas than before.
fn is_replicated_otherwise(before: &ClusterSnapshot, after: &ClusterSnapshot) -> bool {
    if std::sync::Arc::ptr_eq(&before.schema, &after.schema) {
        return false;
    }
    after.schema.keyspaces.iter().any(|(name, keyspace)| {
        let was = before.schema.keyspaces.get(name);
        let is_other = |was| {
            PlacementKey::of_keyspace(before, was) != PlacementKey::of_keyspace(after, keyspace)
        };
        was.is_some_and(|was| is_other(was))
    })
}

/// Marker that a shard has data to remove: a file without content,
/// `metadata/cleanup/<shard>of<shards>` of the work directory.
struct Due {
    fs: Fs,
    directory: String,
    own: String,
}

impl Due {
    fn new(rt: &Rt, work_dir: &str) -> Due {
        let directory = format!("{}/metadata/cleanup", work_dir.trim_end_matches('/'));
        let own = format!("{}of{}", rt.shard().0, rt.shard_count());
        Due { fs: rt.fs(), directory, own }
    }

    /// Returns true if an earlier run has left data to remove; also a run with another number of
    /// shards.
    async fn is_set(&self) -> bool {
        let names = self.names().await;
        let ending = self.own.split_once("of").map_or("", |(_, shards)| shards);
        let others = |name: &String| name.split_once("of").is_some_and(|(_, n)| n != ending);
        if names.iter().any(others) {
            // Before shard 0 removes them.
            self.set().await;
            return true;
        }
        names.contains(&self.own)
    }

    async fn names(&self) -> Vec<String> {
        match self.fs.read_dir(&self.directory).await {
            Ok(entries) => entries.into_iter().map(|entry| entry.name).collect(),
            Err(_) => Vec::new(),
        }
    }

    async fn set(&self) {
        let path = format!("{}/{}", self.directory, self.own);
        let written = async {
            self.fs.create_dir_durably(&self.directory).await?;
            let options = OpenOptions { write: true, create: true, ..OpenOptions::default() };
            drop(self.fs.open(&path, options).await?);
            self.fs.sync_dir(&self.directory).await
        };
        if let Err(error) = written.await {
            tracing::warn!(
                %error,
                "cannot persist that a cleanup is due: run nodetool cleanup after a restart"
            );
        }
    }

    /// Notes that all is removed. Shard 0 also removes the marks of runs with other shards.
    async fn clear(&self, is_first: bool) {
        let ending = self.own.split_once("of").map_or("", |(_, shards)| shards);
        for name in self.names().await {
            let is_other = name.split_once("of").is_none_or(|(_, n)| n != ending);
            if name == self.own || (is_first && is_other) {
                // A mark that stays costs a check of the files after the next start.
                let _ = self.fs.remove_file(&format!("{}/{name}", self.directory)).await;
            }
        }
    }
}

/// Reason why an ordered cleanup was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CleanupError {
    /// A node moves; in Cassandra's words.
    #[error("Node is involved in cluster membership changes. Not safe to run cleanup.")]
    Moving,
    /// The store failed.
    #[error("{0}")]
    Store(StoreError),
}

/// Removal of data that this node does not own. Clones share.
#[derive(Clone)]
pub struct Cleanup {
    env: Rc<Env>,
}

impl Cleanup {
    pub(crate) fn new(env: &Rc<Env>) -> Cleanup {
        Cleanup { env: env.clone() }
    }

    /// Removes from this shard's files of the tables what this node does not own.
    ///
    /// # Errors
    /// A node moves, or the store could not.
    pub async fn clean(&self, tables: &[TableId]) -> Result<(), CleanupError> {
        for table in tables {
            if !is_settled(&self.env.membership.snapshot()) {
                return Err(CleanupError::Moving);
            }
            match self.clean_one(*table).await {
                Ok(()) | Err(StoreError::UnknownTable(_)) => {}
                Err(error) => return Err(CleanupError::Store(error)),
            }
        }
        Ok(())
    }

    async fn clean_one(&self, table: TableId) -> Result<(), StoreError> {
        let membership = self.env.membership.clone();
        let store = self.env.coordinator.store().clone();
        let owned = move || owned(&membership.snapshot(), table);
        let cleaned = store.compactor().cleanup(table, owned).await?;
        if cleaned.rewritten + cleaned.removed > 0 {
            tracing::info!(table = %table.0, shard = self.env.rt.shard().0, ?cleaned,
                "removed data that this node does not own");
        }
        Ok(())
    }

    /// Starts the automatic cleanup. It runs after another node has taken ranges over or a keyspace
    /// has got other replicas, once all members are alive and no member has moved for a while. A
    /// due cleanup is remembered over restarts.
    pub fn clean_by_itself(&self) {
        let due = Rc::new(Cell::new(false));
        let set = due.clone();
        let remembered = Rc::new(Due::new(&self.env.rt, &self.env.options.workdir));
        let (rt, gate, of_change) =
            (self.env.rt.clone(), self.env.cleaning.clone(), remembered.clone());
        let quiet_since = Rc::new(Cell::new(self.env.rt.now()));
        let changed_at = quiet_since.clone();
        self.env.membership.on_change(move |before, after| {
            if took_ranges(before, after) {
                changed_at.set(rt.now());
                if !set.replace(true) {
                    let remembered = of_change.clone();
                    let task = async move { remembered.set().await };
                    // A closed gate: the node stops.
                    let _ = gate.spawn(&rt, Group::Compaction, "cleanup-due", task);
                }
            }
        });
        let this = self.clone();
        let task = async move {
            if remembered.is_set().await {
                due.set(true);
            }
            let mut members = this.env.membership.snapshot().members.clone();
            loop {
                let next = this.env.rt.now() + QUIET;
                if this.env.rt.timeout(next, this.env.rt.stop_requested()).await.is_ok() {
                    return;
                }
                let snapshot = this.env.membership.snapshot();
                // A member has changed since the last check.
                if snapshot.members != members {
                    members = snapshot.members.clone();
                    continue;
                }
                let me = snapshot.local.host_id;
                let is_alive = |host| host == me || this.env.liveness.is_alive(host);
                let all_alive = members.keys().all(|host| is_alive(*host));
                let is_quiet = this.env.rt.now().since(quiet_since.get()) >= QUIET;
                if !due.get() || !all_alive || !is_quiet || !is_settled(&snapshot) {
                    continue;
                }
                due.set(false);
                let mut is_clean = true;
                let tables: Vec<TableId> = snapshot.schema.tables_by_id.keys().copied().collect();
                for table in tables {
                    match this.clean_one(table).await {
                        Ok(()) | Err(StoreError::UnknownTable(_)) => {}
                        Err(StoreError::Stopping) => return,
                        Err(error) => {
                            is_clean = false;
                            tracing::warn!(%error, "cannot remove data that is not owned");
                        }
                    }
                }
                // A change that came meanwhile keeps its mark.
                if is_clean && !due.get() {
                    remembered.clear(this.env.rt.shard().0 == 0).await;
                    if due.get() {
                        remembered.set().await;
                    }
                }
            }
        };
        // A closed gate: the node stops.
        let _ = self.env.cleaning.spawn(&self.env.rt, Group::Compaction, "cleanup", task);
    }
}
