//! Which truncations are carried out on this shard, and which of their log records are still needed.
//!
//! A truncation removes what was written before it, so it must never run twice: the second run would remove
//! rows that were acknowledged after the first. The record in the commit log orders it with the writes of its
//! shard. The log keeps the record until the removal is complete and the node has recorded the truncation
//! elsewhere.
//!
//! INV-truncate-1: a truncation for which [`Lifecycle::is_truncated`] answers false has no acknowledged write of
//! its table after it on this shard.

use std::rc::Rc;

use commitlog::LogPosition;
use stdx::{TableId, TimestampMicros};

use crate::error::StoreError;
use crate::lifecycle::Lifecycle;
use crate::tables::table::TableState;

impl Lifecycle {
    /// Returns true if the truncation of that time, or a later one, emptied this shard's slice of a
    /// table, as far as this run and the replayed log know. False for a table that does not exist
    /// here.
    pub fn is_truncated(&self, id: TableId, at: TimestampMicros) -> bool {
        let own = self.env.shard();
        self.tables.table(id).is_some_and(|table| table.truncated.borrow().covers(own, at))
    }

    /// Makes the records of truncations in [`Lifecycle::is_truncated`] durable.
    ///
    /// # Errors
    /// `UnknownTable`; as [`Store::sync`].
    pub async fn sync_truncation(&self, id: TableId) -> Result<(), StoreError> {
        let Some(table) = self.tables.table(id) else { return Err(StoreError::UnknownTable(id)) };
        self.sync_truncations(&table).await
    }

    pub(crate) async fn sync_truncations(&self, table: &Rc<TableState>) -> Result<(), StoreError> {
        let before: Vec<LogPosition> =
            table.pins.borrow().iter().filter(|p| !p.is_durable).map(|p| p.position).collect();
        self.env.log.sync().await?;
        table.change_pins(|pin| {
            if before.contains(&pin.position) && !pin.is_durable {
                pin.is_durable = true;
                table.replayed_removals.set(table.replayed_removals.get().saturating_sub(1));
            }
        });
        Ok(())
    }

    /// The node has recorded, durably, that the truncation of that time and earlier ones are carried out: the
    /// log need not know it any more.
    pub fn truncation_recorded(&self, id: TableId, at: TimestampMicros) {
        let Some(table) = self.tables.table(id) else { return };
        table.change_pins(|pin| pin.is_recorded |= pin.at <= at);
        let mut replayed = table.replayed_truncations.borrow_mut();
        let before = replayed.len();
        replayed.retain(|of| *of > at);
        if replayed.len() < before {
            self.env.work.notify_one();
        }
    }
}
