//! Handover of the batch log of a node that leaves its cluster: other members take over its entries.
//!
//! No replica accepts the writes of a departed node, or only those replicas do that have not heard of
//! its departure. A batch that it replayed then would be applied in part. Cassandra's `decommission`
//! replays its log (`BatchlogManager.startBatchlogReplay`) and leaves entries that could not be applied.
//! Here each entry is handed to another member, which replays it like one that its coordinator stored
//! there.
//!
//! Owns: [`Batches::hand_over_batches`]. The caller chooses the takers and the time.

use cluster::{ClusterSnapshot, MemberState};
use internode::Verb;
use messaging::Outgoing;
use stdx::{HostId, Uuid};

use super::batch_log::{self, BatchTable, Entries, Entry, Fate};
use super::{Batches, batch_wire};
use crate::shared::Cluster;

/// Returns true if this node stores batches for other coordinators and replays those they abandon.
/// A node that is about to leave, or has left, does not. The entries in its log are then handed
/// over, or wait until the leave is rolled back.
pub(crate) fn keeps_batches(snapshot: &ClusterSnapshot) -> bool {
    // A node without members was not attached to a cluster yet.
    snapshot.members.is_empty()
        || snapshot.local_member().is_some_and(|own| own.state != MemberState::LeaveHandover)
}

/// Entries of one page of the log.
const PAGE_ENTRIES: usize = 128;

impl Batches {
    /// Hands every entry of this node's batch log, of all shards, to one of `takers`: the first
    /// that accepts it. Must be called on one shard, once no coordinator stores more entries here,
    /// that is, when the cluster knows that this node is about to leave. Returns the number of
    /// entries handed over.
    ///
    /// # Errors
    /// In words for the operator: the log cannot be read, or no taker accepts an entry. Entries
    /// handed over until then are replayed by their new keeper; the others stay in the log.
    pub async fn hand_over_batches(
        &self,
        snapshot: &ClusterSnapshot,
        takers: &[HostId],
    ) -> Result<u64, String> {
        let (Some(cluster), Some(table)) =
            (self.inner.shared.cluster(), BatchTable::of(&snapshot.schema))
        else {
            return Ok(0);
        };
        let mut given = 0;
        let mut behind: Option<Vec<u8>> = None;
        loop {
            let mut page = Entries::new(table, PAGE_ENTRIES);
            let command = table.scan(behind.as_deref(), self.env().rt.wall().seconds());
            let read = self.local().read(&command, PAGE_ENTRIES, &mut page).await;
            read.map_err(|error| format!("the batch log cannot be read: {error}"))?;
            let Some(last) = page.found.last() else { break };
            behind = Some(last.id.clone());
            for entry in &page.found {
                given += u64::from(self.hand_over_entry(cluster, snapshot, entry, takers).await?);
                self.inner.log.remove_entry(table, &entry.id, entry.written_at);
            }
        }
        // The deletions; a failure of the log shows at the next write.
        let _ = self.local().commit().await;
        Ok(given)
    }

    /// Hands over one entry. Returns false if there was nothing to hand over.
    async fn hand_over_entry(
        &self,
        cluster: &Cluster,
        snapshot: &ClusterSnapshot,
        entry: &Entry,
        takers: &[HostId],
    ) -> Result<bool, String> {
        let Ok(id) = <[u8; 16]>::try_from(entry.id.as_slice()) else { return Ok(false) };
        if entry.is_past_grace(snapshot, self.env().rt.wall()) {
            return Ok(false);
        }
        let fates = entry.fates(snapshot);
        let kept = entry.mutations.iter().zip(fates);
        let kept: Vec<&[u8]> = kept
            .filter(|(_, fate)| matches!(fate, Fate::Apply { .. }))
            .map(|(mutation, _)| mutation.as_slice())
            .collect();
        if kept.is_empty() {
            return Ok(false);
        }
        let table = || batch_log::table_id(&snapshot.schema);
        let mut refusal = "no other node is alive".to_owned();
        for host in takers {
            let outgoing = Outgoing {
                host: *host,
                shard: cluster.shard_map_of(*host).shard_of_lazy(codec::token_of(&id), table),
                verb: Verb::BatchStore,
                deadline: self.env().rt.now() + self.write_timeout(),
                trace: None,
            };
            let stored = cluster.parts.messaging.request(&outgoing, |out| {
                let mutations = kept.iter().copied();
                batch_wire::encode_store(out, Uuid::from_bytes(id), entry.written_at, mutations);
            });
            match stored.await {
                Ok(_) => return Ok(true),
                Err(error) => refusal = format!("node {host}: {error}"),
            }
        }
        Err(format!("cannot hand a logged batch to another node: {refusal}"))
    }
}
