//! Hooks for tests of the crates above: inspection and fault injection.

use std::sync::Arc;

use cluster::ClusterSnapshot;
use paxos::acceptor::{Reply, Request};
use stdx::TableId;
use store::StoreError;

use crate::Lwt;
use crate::acceptors::Ask;
use crate::paxos_row::{Partition, PaxosTable, Payload};
use crate::shards::Shards;

/// Fault injection: answers are sent before the state that they reveal is durable.
pub fn answer_before_sync<N: Shards>(lwt: &Lwt<N>) {
    lwt.inner.acceptors.registers().lies.set(true);
}

/// Forgets what was promised without a record before the last start: a defect.
pub fn forget_horizon<N: Shards>(lwt: &Lwt<N>) {
    lwt.inner.acceptors.horizon().forget_all();
}

/// Bounds the acceptors in memory.
pub fn limit_acceptors<N: Shards>(lwt: &Lwt<N>, most: usize) {
    lwt.inner.acceptors.registers().most.0.set(most);
}

/// Acceptors in memory.
pub fn acceptors<N: Shards>(lwt: &Lwt<N>) -> usize {
    lwt.inner.acceptors.registers().len()
}

/// Asks this node's acceptor of a partition, without any check of the electorate.
///
/// # Errors
/// Those of the acceptor's.
pub async fn ask_acceptor<N: Shards>(
    lwt: &Lwt<N>,
    snapshot: &ClusterSnapshot,
    partition: Partition,
    request: Request<Arc<[u8]>>,
) -> Result<Option<Reply<Payload>>, StoreError> {
    let table: TableId = partition.table;
    let Some(paxos) = PaxosTable::of(&snapshot.schema) else {
        return Err(StoreError::UnknownTable(table));
    };
    let ask = Ask {
        partition,
        request,
        query: None,
        durable: true,
        truncated_at: None,
        table: paxos,
        adopted: None,
        checked: None,
    };
    Ok(lwt.inner.acceptors.ask(ask).await?.reply)
}
