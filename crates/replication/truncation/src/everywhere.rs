//! The statement: an entry of the metadata log, and waiting until all nodes have carried it out.

use crate::shards::{ShardReply, ShardRequest, join_all};
use crate::state::{Inner, POLL, TruncationState, Truncations};
use cluster::{ClusterSnapshot, MemberState, Transformation, Truncation};
use membership::SubmitError;
use std::net::SocketAddr;
use stdx::{Epoch, HostId, Instant, ShardId, TableId, WallMicros};

/// Why a TRUNCATE did not happen, or is not known to have happened everywhere. Texts as Cassandra's
/// `TruncateException` has them.
#[derive(Debug, thiserror::Error)]
pub enum TruncateError {
    /// A node is down. The text of Cassandra's `UnavailableException` inside.
    #[error("Error during truncate: Cannot achieve consistency level ALL")]
    NotAllAlive,
    /// Data in flight between these nodes would arrive after the truncation.
    #[error("Error during truncate: nodes join, leave or move; try again when they have finished: [{}]", slashed(.0))]
    Moving(Vec<SocketAddr>),
    /// This node, the only one, could not carry it out.
    #[error("Error during truncate: {0}")]
    Incomplete(String),
    /// Nodes that could not carry it out.
    #[error("Truncate failed on replica {}", unknown_of(.0))]
    Replicas(Vec<SocketAddr>),
    /// Its time has passed; `nodes` have carried it out.
    #[error("Error during truncate: Truncate timed out - received only {nodes} responses")]
    TimedOut {
        /// Number of nodes that have.
        nodes: usize,
    },
    /// Shard 0 accepts no more requests.
    #[error("a shard takes no more requests")]
    ShardBusy,
    /// The metadata log did not take the entry.
    #[error("{0}")]
    Submit(SubmitError),
}

fn slashed(nodes: &[SocketAddr]) -> String {
    nodes.iter().map(|node| format!("/{node}")).collect::<Vec<_>>().join(", ")
}

fn unknown_of(nodes: &[SocketAddr]) -> String {
    nodes.iter().map(|node| format!("/{node} -> UNKNOWN")).collect::<Vec<_>>().join(", ")
}

/// Progress of a truncation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Storage addresses of members that could not.
    pub failed: Vec<SocketAddr>,
    /// Members that have carried it out.
    pub nodes: usize,
    /// Nodes that have not, as far as is known.
    pub missing: usize,
    /// Why this node is among `failed`.
    pub why: Option<String>,
}

/// Returns the time of a truncation that begins now: later than the previous one, whatever the
/// clocks say. Otherwise it would be taken for the previous one, which is done.
fn time_of(snapshot: &ClusterSnapshot, table: TableId, now: WallMicros) -> WallMicros {
    let before = snapshot.truncations.get(&table).map(|t| t.truncated_at.0.saturating_add(1));
    WallMicros(before.map_or(now.0, |least| now.0.max(least)))
}

/// Refuses while nodes move: data in flight between them would arrive after the truncation.
fn refuse_moving(snapshot: &ClusterSnapshot) -> Result<(), TruncateError> {
    let moving = snapshot.members.values().filter(|m| m.state != MemberState::Normal);
    let moving: Vec<SocketAddr> = moving.map(|m| m.storage).collect();
    if moving.is_empty() { Ok(()) } else { Err(TruncateError::Moving(moving)) }
}

impl Truncations {
    /// Empties a table on all nodes. Must run in a task of its own, like a schema change.
    ///
    /// # Errors
    /// It did not happen, or not everywhere.
    pub async fn truncate(&self, table: TableId) -> Result<(), TruncateError> {
        let deadline = self.inner.rt.now() + self.inner.timeout.get();
        let snapshot = self.inner.membership.snapshot();
        if snapshot.members.len() > 1 {
            if !snapshot.members.keys().all(|host| self.inner.coordinator.is_alive(*host)) {
                return Err(TruncateError::NotAllAlive);
            }
            refuse_moving(&snapshot)?;
        }
        let at = time_of(&snapshot, table, self.inner.rt.wall());
        let Some(epoch) = self.record(table, at, deadline).await? else { return Ok(()) };
        // A decided entry does not mean that every node has carried it out.
        loop {
            let Progress { failed, nodes, missing, why } =
                self.progress_of_node(table, at, epoch).await?;
            if let Some(why) = why.filter(|_| snapshot.members.len() <= 1) {
                return Err(TruncateError::Incomplete(why));
            }
            if !failed.is_empty() && Inner::has_table(&self.inner.membership.snapshot(), table) {
                return Err(TruncateError::Replicas(failed));
            }
            if missing == 0 {
                return Ok(());
            }
            if self.inner.rt.now() >= deadline {
                return Err(TruncateError::TimedOut { nodes });
            }
            self.inner.rt.sleep(POLL).await;
        }
    }

    /// Like [`Truncations::progress`], from any shard.
    async fn progress_of_node(
        &self,
        table: TableId,
        at: WallMicros,
        epoch: Epoch,
    ) -> Result<Progress, TruncateError> {
        if self.inner.rt.shard() == ShardId(0) {
            return Ok(self.progress(table, at, epoch).await);
        }
        match (self.inner.ask)(ShardId(0), ShardRequest::Progress { table, at, epoch }).await {
            Ok(ShardReply::Progress(progress)) => Ok(progress),
            _ => Err(TruncateError::ShardBusy),
        }
    }

    /// Returns the progress of a truncation, as far as this shard (0) knows.
    pub(crate) async fn progress(&self, table: TableId, at: WallMicros, epoch: Epoch) -> Progress {
        let snapshot = self.inner.membership.snapshot();
        let own = snapshot.local.host_id;
        let applied = self.inner.applied_epochs.borrow().clone();
        let has_applied = |host: HostId| match &applied {
            Some(applied) if host != own => applied(host).is_some_and(|done| done >= epoch),
            _ => true,
        };
        let (applied, missing): (Vec<HostId>, Vec<HostId>) =
            snapshot.members.keys().partition(|host| has_applied(**host));
        let mut progress = Progress {
            failed: Vec::new(),
            nodes: applied.len(),
            missing: missing.len(),
            why: None,
        };
        // A node carries a truncation out when it applies the entry; only the node itself knows the
        // result.
        let ask = self.inner.of_others.borrow().clone();
        let others: Vec<HostId> = applied.into_iter().filter(|host| *host != own).collect();
        let states = match ask.filter(|_| missing.is_empty()) {
            Some(ask) => join_all(others.iter().map(|host| ask(*host, table, at)).collect()).await,
            None => Vec::new(),
        };
        for (host, state) in others.iter().zip(states) {
            match state {
                Some(TruncationState::Done) => continue,
                Some(TruncationState::Failed) => {
                    progress.failed.extend(snapshot.members.get(host).map(|m| m.storage));
                }
                Some(TruncationState::Pending) | None => progress.missing += 1,
            }
            progress.nodes -= 1;
        }
        if self.state(table, at) != TruncationState::Done && Inner::has_table(&snapshot, table) {
            progress.failed.push(self.inner.storage_address);
            let why = self.inner.failure(table, at);
            progress.why = Some(why.unwrap_or_else(|| "this node did not carry it out".to_owned()));
        }
        progress
    }

    /// Writes the entry of the metadata log and returns its epoch; `None` if the table was dropped
    /// meanwhile.
    async fn record(
        &self,
        table: TableId,
        at: WallMicros,
        deadline: Instant,
    ) -> Result<Option<Epoch>, TruncateError> {
        let truncation = Truncation { truncated_at: at, ..Truncation::default() };
        let membership = &self.inner.membership;
        loop {
            let snapshot = membership.snapshot();
            if !Inner::has_table(&snapshot, table) {
                return Ok(None);
            }
            if snapshot.members.len() > 1 {
                // Also one that has come since this began.
                refuse_moving(&snapshot)?;
            }
            let entry = Transformation::Truncate { table, truncation: truncation.clone() };
            match membership.submit(snapshot.epoch, vec![entry]).await {
                Ok(after) => return Ok(Some(after.epoch)),
                Err(error @ (SubmitError::Unknown { .. } | SubmitError::VoterUnsure(_))) => {
                    // It may still be decided, and nodes carry it out until its time is over.
                    match self.decided(table, at, deadline).await {
                        Some(epoch) => return Ok(Some(epoch)),
                        None => self.await_next_attempt(error, deadline).await?,
                    }
                }
                Err(error) => self.await_next_attempt(error, deadline).await?,
            }
        }
    }

    /// Waits until the log has a truncation: the epoch of its entry; `None` when the time is over.
    async fn decided(&self, table: TableId, at: WallMicros, deadline: Instant) -> Option<Epoch> {
        let membership = &self.inner.membership;
        loop {
            let snapshot = membership.snapshot();
            if let Some(found) = snapshot.truncations.get(&table).filter(|t| t.truncated_at >= at) {
                return Some(found.epoch);
            }
            let next = Epoch(snapshot.epoch.0.saturating_add(1));
            if !membership.wait_for(next, deadline).await {
                return None;
            }
        }
    }

    /// After a submission that another entry was faster than: waits until this shard has the other one.
    async fn await_next_attempt(
        &self,
        error: SubmitError,
        deadline: Instant,
    ) -> Result<(), TruncateError> {
        if let SubmitError::Conflict(epoch) = &error
            && self.inner.rt.now() < deadline
            && self.inner.membership.wait_for(*epoch, deadline).await
        {
            return Ok(());
        }
        Err(TruncateError::Submit(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::tests::metadata;

    #[test]
    fn a_truncation_is_later_than_the_one_before_whatever_the_clock_says() {
        let table = TableId(stdx::Uuid::from_u128(2));
        let snapshot = metadata(7, &[(table, 7, 100)]);
        assert_eq!(time_of(&snapshot, table, WallMicros(7)), WallMicros(101));
        assert_eq!(time_of(&snapshot, table, WallMicros(102)), WallMicros(102));
        let other = TableId(stdx::Uuid::from_u128(3));
        assert_eq!(time_of(&snapshot, other, WallMicros(7)), WallMicros(7));
    }

    #[test]
    fn texts_are_those_of_cassandra() {
        let nodes: Vec<SocketAddr> =
            ["127.0.0.1:7000", "127.0.0.2:7000"].map(|a| a.parse().unwrap()).into();
        let check = |error: TruncateError, expect: &str| assert_eq!(error.to_string(), expect);
        check(
            TruncateError::NotAllAlive,
            "Error during truncate: Cannot achieve consistency level ALL",
        );
        check(
            TruncateError::Replicas(nodes.clone()),
            "Truncate failed on replica /127.0.0.1:7000 -> UNKNOWN, /127.0.0.2:7000 -> UNKNOWN",
        );
        check(
            TruncateError::Moving(nodes),
            "Error during truncate: nodes join, leave or move; try again when they have finished: \
             [/127.0.0.1:7000, /127.0.0.2:7000]",
        );
        check(
            TruncateError::TimedOut { nodes: 1 },
            "Error during truncate: Truncate timed out - received only 1 responses",
        );
    }
}
