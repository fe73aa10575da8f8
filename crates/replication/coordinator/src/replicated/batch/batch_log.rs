//! Entries of the batch log, and the decisions of a replay. Decisions only: no IO, no clock.
//!
//! Owns: the row of `system.batches` that holds a logged batch, and which of its mutations a replay
//! applies. Never: writes, reads or deletes entries ([`super`] does).
//!
//! An entry is a row as Cassandra's: `id` (timeuuid), `mutations` (one blob for each mutation),
//! `version` (of the mutation encoding, see `docs/formats/mutation.md`; Cassandra has its messaging
//! version there). Its write time is the row's timestamp.

use std::time::Duration;

use cluster::ClusterSnapshot;
use data::command::{KeyRange, Partitions, ReadCommand, RingBound};
use data::{
    CellRef, ColumnRef, DeletionTime, Liveness, MutationBuilder, MutationRef, RowBuilder, RowRef,
};
use schema::{Schema, Table};
use stdx::{ColumnId, DeletionSeconds, TableId, TimestampMicros, Token, Uuid, WallMicros};
use store::{Flow, RowSink};

/// `version` of the entries: the version of the mutation encoding that is written.
const ENCODING: i32 = 1;

/// `system.batches` as its writers need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchTable {
    table: TableId,
    schema_version: u64,
    mutations: ColumnId,
    version: ColumnId,
}

/// One logged batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The row's key.
    pub(crate) id: Vec<u8>,
    /// When it was logged.
    pub(crate) written_at: TimestampMicros,
    /// Version of the encoding of the mutations.
    pub(crate) version: i32,
    /// Encoded mutations.
    pub(crate) mutations: Vec<Vec<u8>>,
}

/// Decision of a replay about one mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Apply it, logged or not as its keyspace wants.
    Apply {
        /// The token of its partition.
        token: Token,
        /// False: the keyspace has `durable_writes = false`.
        durable: bool,
    },
    /// Its table was dropped, or truncated since.
    Obsolete,
    /// These bytes are not a mutation that this build reads.
    Unreadable,
}

/// The id of `system.batches`, which every schema of a node has.
pub(crate) fn table_id(schema: &Schema) -> TableId {
    schema.table("system", "batches").map_or(TableId(Uuid::nil()), |table| table.id)
}

impl BatchTable {
    /// Returns the batch log's table; `None`: the schema has none.
    pub(crate) fn of(schema: &Schema) -> Option<BatchTable> {
        let table = schema.table("system", "batches")?;
        Some(BatchTable {
            table: table.id,
            schema_version: table.version,
            mutations: table.column("mutations")?.id,
            version: table.column("version")?.id,
        })
    }

    /// Returns the table's id.
    pub(crate) fn id(&self) -> TableId {
        self.table
    }

    /// Builds the mutation that logs a batch. `next_id` generates ascending time UUIDs.
    pub(crate) fn entry<'m>(
        &self,
        id: &[u8; 16],
        at: TimestampMicros,
        mutations: impl Iterator<Item = &'m [u8]>,
        next_id: &mut dyn FnMut() -> [u8; 16],
    ) -> Vec<u8> {
        let mut row = Vec::new();
        let mut builder = RowBuilder::new(&mut row, Liveness::new(at), DeletionTime::LIVE, at);
        let version = ENCODING.to_be_bytes();
        let put_version =
            |b: &mut RowBuilder<'_>| b.cell(self.version, &CellRef::live(at, &version));
        if self.version < self.mutations {
            put_version(&mut builder);
        }
        builder.begin_complex(self.mutations, DeletionTime::LIVE);
        for mutation in mutations {
            builder.complex_cell(&next_id(), &CellRef::live(at, mutation));
        }
        builder.end_complex();
        if self.version > self.mutations {
            put_version(&mut builder);
        }
        builder.finish();
        let mut out = Vec::with_capacity(row.len() + 64);
        let mut mutation = MutationBuilder::new(&mut out, self.table, self.schema_version, id);
        mutation.rows([([].as_slice(), RowRef::trusted(&row))].into_iter());
        mutation.finish();
        out
    }

    /// Builds the mutation that deletes an entry from the log.
    pub(crate) fn deletion(&self, id: &[u8], at: TimestampMicros) -> Vec<u8> {
        let mut out = Vec::new();
        let mut mutation = MutationBuilder::new(&mut out, self.table, self.schema_version, id);
        let local = DeletionSeconds(at.0.div_euclid(1_000_000));
        mutation.deletion(DeletionTime { timestamp: at, local });
        mutation.finish();
        out
    }

    /// Builds the command that reads the entries after a key, in ring order; without a key, the
    /// whole log.
    pub(crate) fn scan(&self, behind: Option<&[u8]>, now: DeletionSeconds) -> ReadCommand {
        let mut range = KeyRange::all();
        if let Some(key) = behind {
            let token = codec::token_of(key);
            range.start = RingBound::Key { token, key: key.to_vec(), after: true };
        }
        self.command(Partitions::Range(range), now)
    }

    /// Reads one entry.
    pub(crate) fn lookup(&self, id: &[u8], now: DeletionSeconds) -> ReadCommand {
        self.command(Partitions::Key(id.to_vec()), now)
    }

    fn command(&self, partitions: Partitions, now: DeletionSeconds) -> ReadCommand {
        ReadCommand::whole(self.table, partitions, now)
    }
}

/// Collects entries from a read, up to a maximum.
pub(crate) struct Entries {
    table: BatchTable,
    most: usize,
    key: Vec<u8>,
    pub(crate) found: Vec<Entry>,
}

impl Entries {
    pub(crate) fn new(table: BatchTable, most: usize) -> Entries {
        Entries { table, most, key: Vec::new(), found: Vec::new() }
    }
}

impl RowSink for Entries {
    fn partition(&mut self, _: Token, key: &[u8], _: Option<RowRef<'_>>) -> Flow {
        self.key = key.to_vec();
        Flow::Continue
    }

    fn row(&mut self, _: &[u8], row: RowRef<'_>) -> Flow {
        let mut mutations = Vec::new();
        if let Some(ColumnRef::Complex(list)) = row.column(self.table.mutations) {
            mutations.extend(list.cells().map(|(_, cell)| cell.value.to_vec()));
        }
        let version = match row.column(self.table.version) {
            Some(ColumnRef::Simple(cell)) => cell.value.first_chunk().copied(),
            _ => None,
        };
        self.found.push(Entry {
            id: self.key.clone(),
            written_at: row.liveness().timestamp,
            version: version.map_or(0, i32::from_be_bytes),
            mutations,
        });
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        if self.found.len() >= self.most { Flow::Stop } else { Flow::Continue }
    }
}

impl Entry {
    /// Decides for each mutation how a replay handles it.
    pub(crate) fn fates(&self, snapshot: &ClusterSnapshot) -> Vec<Fate> {
        self.mutations.iter().map(|bytes| self.fate(bytes, snapshot)).collect()
    }

    fn fate(&self, bytes: &[u8], snapshot: &ClusterSnapshot) -> Fate {
        if self.version != ENCODING {
            return Fate::Unreadable;
        }
        let Some(opened) = MutationRef::open(bytes) else { return Fate::Unreadable };
        let Some(table) = snapshot.schema.table_by_id(opened.table) else { return Fate::Obsolete };
        if MutationRef::parse(bytes, table.clustering_count).is_none() {
            return Fate::Unreadable;
        }
        let truncated = snapshot.truncations.get(&opened.table).map(|t| t.truncated_at.0);
        if truncated.is_some_and(|at| self.written_at.0 <= at) {
            return Fate::Obsolete;
        }
        let durable = is_durable(snapshot, table);
        Fate::Apply { token: codec::token_of(opened.key), durable }
    }

    /// Returns true if the entry is older than the `gc_grace_seconds` of one of its tables:
    /// replaying it could resurrect rows whose tombstones are purged already. As in Cassandra such
    /// an entry is dropped, so that 0 means no batch log.
    pub(crate) fn is_past_grace(&self, snapshot: &ClusterSnapshot, now: WallMicros) -> bool {
        let mut graces = self
            .mutations
            .iter()
            .filter_map(|bytes| snapshot.schema.table_by_id(MutationRef::open(bytes)?.table))
            .map(|table| i64::from(table.options.gc_grace_seconds));
        let written = self.written_at.0.div_euclid(1_000_000);
        graces.any(|grace| written.saturating_add(grace) <= now.seconds().0)
    }

    /// Returns true if no coordinator works on the entry any more: its write and the deletion of
    /// the entry have timed out.
    pub(crate) fn is_abandoned(&self, now: WallMicros, write_timeout: Duration) -> bool {
        let wait = i64::try_from(patience(write_timeout).as_micros()).unwrap_or(i64::MAX);
        self.written_at.0.saturating_add(wait) <= now.0
    }

    /// Bytes of its mutations.
    pub(crate) fn bytes(&self) -> usize {
        self.mutations.iter().map(Vec::len).sum()
    }
}

/// Returns how long a batch is left to its coordinator: as in Cassandra, time for the write and for
/// the removal of the entry.
pub(crate) fn patience(write_timeout: Duration) -> Duration {
    write_timeout.saturating_mul(2)
}

/// Returns true if writes to the table go to the commit log.
pub(crate) fn is_durable(snapshot: &ClusterSnapshot, table: &Table) -> bool {
    snapshot.schema.keyspace(&table.keyspace).is_none_or(|k| k.params.durable_writes)
}
