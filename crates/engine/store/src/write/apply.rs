//! A write: appended to the commit log's buffer, applied to the memtable, committed.

use commitlog::{LogError, LogPosition};
use data::MutationRef;
use data::writable::{Unwritable, WriteLimits};
use schema::Table;
use stdx::Token;

use crate::error::StoreError;
use crate::memtable::Memtable;
use crate::tables::composite_keys::composite_parts;
use crate::tables::table::{TableState, WriteFollower, bump};
use crate::write::Writer;
use crate::write::unflushable::place_of;

impl Writer {
    /// See [`crate::Store::apply`].
    pub(crate) fn apply(
        &self,
        mutation: &MutationRef<'_>,
        durable: bool,
    ) -> Result<(), StoreError> {
        if self.env.stopping.get() || self.env.drained.get() {
            return Err(StoreError::Stopping);
        }
        let began = self.env.rt.now();
        let tables = self.tables.map.borrow();
        let Some(table) = tables.get(&mutation.table) else {
            return Err(StoreError::UnknownTable(mutation.table));
        };
        let (bytes, max) = (mutation.bytes().len(), self.env.options.mutation_bytes_max);
        if bytes > max {
            return Err(too_large(&table.version().table, mutation.key, bytes, max));
        }
        self.check_writable(table, mutation)?;
        if table.refused_bytes.get() > 0 {
            self.admit_to_refused(table, mutation)?;
        }
        let position = if durable {
            let version = table.version.borrow();
            match self.env.log.append(&version.ticket, mutation.bytes()) {
                Ok(position) => Some(position),
                Err(LogError::TooLarge { bytes, max }) => {
                    return Err(too_large(&version.table, mutation.key, bytes, max));
                }
                Err(error) => return Err(error.into()),
            }
        } else {
            if table.refuses_unlogged.get() {
                return Err(StoreError::LogFailed("a truncation could not be logged".to_owned()));
            }
            None
        };
        let token = codec::token_of(mutation.key);
        self.apply_to_memtable(table, mutation, token, position);
        bump(&table.counters.writes, 1);
        self.env.stages.mutation.completed();
        let now = self.env.rt.now();
        table.counters.note_write(now.since(began));
        if table.counters.sampling.is_on() {
            table.counters.sampling.note_write(now, mutation.key, bytes);
        }
        Ok(())
    }

    /// Limits of this node's SSTable formats, beyond those of the column types.
    pub fn write_limits(&self) -> WriteLimits {
        // The sign bit marks "not deleted".
        WriteLimits { negative_deletions: !self.env.options.sstable_version.has_uint_times() }
    }

    /// Checks a mutation before it is applied, or sent to replicas.
    ///
    /// # Errors
    /// `Unwritable`.
    #[inline]
    pub fn check(&self, mutation: &MutationRef<'_>) -> Result<(), StoreError> {
        match data::writable::check(mutation, self.write_limits()) {
            Ok(()) => Ok(()),
            Err(error) => {
                let table = self.tables.table(mutation.table);
                let table = table.map(|table| table.version().table.clone());
                Err(unwritable(&error, table.as_deref(), mutation))
            }
        }
    }

    #[inline]
    pub(crate) fn check_writable(
        &self,
        table: &TableState,
        mutation: &MutationRef<'_>,
    ) -> Result<(), StoreError> {
        data::writable::check(mutation, self.write_limits())
            .map_err(|error| unwritable(&error, Some(&table.version().table), mutation))
    }

    pub(crate) fn apply_to_memtable(
        &self,
        table: &TableState,
        mutation: &MutationRef<'_>,
        token: Token,
        position: Option<LogPosition>,
    ) {
        let mut scratch = self.scratch.borrow_mut();
        let version = table.version.borrow();
        let view = table.view.borrow();
        match version.follower {
            WriteFollower::Nothing => {}
            WriteFollower::CounterCache => self.counter_cache.note(table, token, mutation),
            WriteFollower::Indexes => self.index(&view.active, token, mutation),
        }
        let delta = view.active.apply(&version.shape, token, mutation, position, &mut scratch);
        let bytes = self.memtable_bytes.get().saturating_add_signed(delta);
        self.memtable_bytes.set(bytes);
        if self.wants_flush() {
            self.env.work.notify_one();
        }
    }

    /// Enters a mutation into the indexes of a memtable.
    #[cold]
    pub(crate) fn index(&self, memtable: &Memtable, token: Token, mutation: &MutationRef<'_>) {
        let grown = memtable.index(token, mutation);
        self.memtable_bytes.set(self.memtable_bytes.get().saturating_add(grown));
    }

    /// Hands everything applied so far to the kernel with one write, in batch and group mode also
    /// synced. Does not suspend in periodic mode.
    ///
    /// # Errors
    /// `DiskFull`: the writes are in memory and in the log's buffer, which is written when space
    /// returns; the client is notified that its write failed. `LogFailed`.
    pub async fn commit(&self) -> Result<(), StoreError> {
        let _waiting = self.env.stages.mutation.hold();
        match self.env.log.commit().await {
            Ok(()) => Ok(()),
            Err(error) => {
                let error = StoreError::from(error);
                self.env.full_disk.note_refusal(&error);
                self.files.note_failure(&error);
                Err(error)
            }
        }
    }

    /// Makes everything applied so far durable, whatever `commitlog_sync` is. For data that other
    /// nodes rely on, such as Paxos promises.
    ///
    /// # Errors
    /// Those of [`Store::commit`].
    pub async fn sync(&self) -> Result<(), StoreError> {
        match self.env.log.sync().await {
            Ok(()) => Ok(()),
            Err(error) => {
                let error = StoreError::from(error);
                self.env.full_disk.note_refusal(&error);
                self.files.note_failure(&error);
                Err(error)
            }
        }
    }
}

#[cold]
fn unwritable(error: &Unwritable, table: Option<&Table>, mutation: &MutationRef<'_>) -> StoreError {
    let long = |prefix: &&[u8]| data::writable::check_prefix(prefix).is_err();
    let rows = mutation.rows().map(|(clustering, _)| clustering);
    let bounds = mutation.range_tombstones().flat_map(|t| [t.start.prefix, t.end.prefix]);
    let clustering = rows.chain(bounds).find(long);
    let place = match table {
        Some(table) => place_of(table, mutation.key, clustering),
        None => mutation.table.to_string(),
    };
    StoreError::Unwritable { what: error.to_string(), place }
}

#[cold]
fn too_large(table: &Table, key: &[u8], bytes: usize, max: usize) -> StoreError {
    let types = table.columns.iter().take(table.partition_key_count).map(|c| &c.ty);
    let parts: Vec<&[u8]> = match table.partition_key_count {
        1 => vec![key],
        _ => composite_parts(key),
    };
    let texts: Vec<String> = types.zip(parts).map(|(ty, part)| ty.format_plain(part)).collect();
    StoreError::MutationTooLarge {
        bytes,
        max,
        keyspace: table.keyspace.to_string(),
        table: table.name.to_string(),
        key: texts.join(":"),
    }
}
