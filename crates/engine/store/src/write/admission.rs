//! Which writes may begin: the memtables' budget, space on the disk, the state of the log.

use schema::Table;
use stdx::TableId;

use crate::error::StoreError;
use crate::write::Writer;

/// Bytes of memtables beyond the budget that only tables of the node's metadata may use, per shard.
const METADATA_RESERVE_BYTES: usize = 4 << 20;

/// Returns true if the node shows its metadata in this table. Clients cannot write it.
fn shows_metadata(table: &Table) -> bool {
    &*table.keyspace == "system_schema"
        || (&*table.keyspace == "system" && matches!(&*table.name, "local" | "peers" | "peers_v2"))
}

impl Writer {
    /// To be asked before a write is begun.
    ///
    /// # Errors
    /// `Overloaded`: over the memtable budget, [`Writer::wait_for_room`] may help. `DiskFull`,
    /// `LogFailed`, `Stopping`.
    pub fn admit_write(&self) -> Result<(), StoreError> {
        if self.env.stopping.get() || self.env.drained.get() {
            return Err(StoreError::Stopping);
        }
        if let Some(error) = self.env.log.failure() {
            return Err(error.into());
        }
        let space = match self.env.log.disk_full() {
            Some(error) => Err(error.into()),
            None => self.env.full_disk.check(),
        };
        if let Err(error) = space {
            self.env.full_disk.note_refusal(&error);
            return Err(error);
        }
        let (used, limit) = self.flushable_bytes();
        if used > limit {
            return Err(StoreError::Overloaded { used, limit });
        }
        Ok(())
    }

    /// Like [`Writer::admit_write`], for a write to one table. The tables in which the node shows
    /// its metadata have a reserve beyond the memtables' budget, and are written in memory while
    /// the disk is full: decisions of the metadata log are shown whatever clients write.
    ///
    /// # Errors
    /// Those of [`Writer::admit_write`].
    pub fn admit_write_of(&self, id: TableId) -> Result<(), StoreError> {
        let refused = match self.admit_write() {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let shows_metadata =
            || self.tables.table(id).is_some_and(|table| shows_metadata(&table.version().table));
        match refused {
            StoreError::Overloaded { used, limit }
                if used <= limit.saturating_add(METADATA_RESERVE_BYTES) && shows_metadata() =>
            {
                Ok(())
            }
            StoreError::DiskFull { .. } if shows_metadata() => Ok(()),
            refused => Err(refused),
        }
    }

    /// Waits until memtables are within their budget, at most `room_wait_max`.
    ///
    /// # Errors
    /// Those of [`Writer::admit_write`].
    pub async fn wait_for_room(&self) -> Result<(), StoreError> {
        let deadline = self.env.rt.now() + self.env.options.room_wait_max;
        let mut blocked = None;
        loop {
            match self.admit_write() {
                Err(StoreError::Overloaded { used, limit }) => {
                    blocked.get_or_insert_with(|| self.env.stages.mutation.block());
                    let freed = self.room.notified();
                    if self.env.rt.timeout(deadline, freed).await.is_err() {
                        return Err(StoreError::Overloaded { used, limit });
                    }
                }
                other => return other,
            }
        }
    }

    /// Returns true if memtables are so large that a flush should begin; called after each write.
    #[inline]
    pub(crate) fn wants_flush(&self) -> bool {
        let (used, limit) = self.flushable_bytes();
        used > limit / 3
    }
}
