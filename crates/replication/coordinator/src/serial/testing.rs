//! What tests of the crate may look at and break.

use std::sync::Arc;

use cluster::ClusterSnapshot;
use paxos::acceptor::{Reply, Request};
use stdx::TableId;
use store::StoreError;

use super::acceptors::Ask;
use super::row::{Partition, PaxosTable, Payload};
use crate::Coordinator;

impl Coordinator {
    /// Answers leave from now on before what they show is durable: a defect.
    pub(crate) fn answer_before_sync(&self) {
        self.inner.serial.acceptors.lies.set(true);
    }

    /// Forgets what was promised without a record before the last start: a defect.
    pub(crate) fn forget_horizon(&self) {
        self.inner.serial.horizon.forget_all();
    }

    /// Asks this node's acceptor of a partition, without any check of the electorate.
    pub(crate) async fn ask_acceptor(
        &self,
        snapshot: &ClusterSnapshot,
        (table, key): (TableId, &[u8]),
        request: Request<Payload>,
    ) -> Result<Option<Reply<Payload>>, StoreError> {
        let partition = Partition { table, key: Arc::from(key) };
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
        Ok(self.ask(ask).await?.reply)
    }

    /// Acceptors in memory.
    pub(crate) fn acceptors(&self) -> usize {
        self.inner.serial.acceptors.len()
    }
}
