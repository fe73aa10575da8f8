//! The registers of an acceptor as a row of `system.paxos`.

use std::cell::RefCell;
use std::sync::Arc;

use data::command::{Partitions, ReadCommand};
use data::{
    CellRef, ClusteringBuf, ColumnRef, DeletionTime, Liveness, MutationBuilder, RowBuilder, RowRef,
};
use paxos::acceptor::cells::{Column, RowUpdate};
use schema::Schema;
use stdx::{ColumnId, DeletionSeconds, ShardId, ShardMap, TableId, TimestampMicros, Token};
use store::{Flow, RowSink};

/// Encoded mutations: shared by the machine, the messages and the acceptors.
pub(crate) type Payload = Arc<[u8]>;

/// A partition of a table; also sent between shards.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Partition {
    /// The table.
    pub table: TableId,
    /// The serialised partition key.
    pub key: Arc<[u8]>,
}

impl Partition {
    pub(crate) fn token(&self) -> Token {
        codec::token_of(&self.key)
    }

    /// The shard that owns it on a node with such a map.
    pub(crate) fn owner(&self, map: ShardMap) -> ShardId {
        map.shard_of(self.table, self.token())
    }

    fn clustering(&self) -> ClusteringBuf {
        ClusteringBuf::from_components([self.table.0.as_bytes().as_slice()])
    }
}

/// `system.paxos` as acceptors need it.
#[derive(Clone, Copy, Debug)]
pub struct PaxosTable {
    table: TableId,
    schema_version: u64,
    columns: [(Column, ColumnId); Column::ALL.len()],
}

impl PaxosTable {
    /// Returns the Paxos table; `None`: the schema has none.
    pub(crate) fn of(schema: &Schema) -> Option<PaxosTable> {
        let table = schema.table("system", "paxos")?;
        let mut columns = [(Column::Proposal, ColumnId(0)); Column::ALL.len()];
        for (to, column) in columns.iter_mut().zip(Column::ALL) {
            *to = (column, table.column(column.name())?.id);
        }
        columns.sort_by_key(|(_, id)| *id);
        Some(PaxosTable { table: table.id, schema_version: table.version, columns })
    }

    /// Returns the table's id.
    pub(crate) fn id(&self) -> TableId {
        self.table
    }

    /// The columns of the registers.
    pub(crate) fn columns(&self) -> &[(Column, ColumnId)] {
        &self.columns
    }

    /// The mutation of one record.
    pub(crate) fn mutation(
        &self,
        partition: &Partition,
        update: &RowUpdate,
        now: DeletionSeconds,
    ) -> Vec<u8> {
        let at = update.timestamp;
        let mut row = Vec::new();
        let mut builder = RowBuilder::new(&mut row, Liveness::NONE, DeletionTime::LIVE, at);
        for (column, id) in &self.columns {
            match update.cells.iter().find(|(c, _)| c == column) {
                Some((_, Some(value))) => builder.cell(*id, &CellRef::live(at, value)),
                Some((_, None)) => builder.cell(*id, &CellRef::tombstone(at, now)),
                None => {}
            }
        }
        builder.finish();
        self.around(partition, &row)
    }

    /// Deletes the row, up to a timestamp.
    pub(crate) fn deletion(
        &self,
        partition: &Partition,
        timestamp: TimestampMicros,
        now: DeletionSeconds,
    ) -> Vec<u8> {
        let mut row = Vec::new();
        let deletion = DeletionTime { timestamp, local: now };
        RowBuilder::new(&mut row, Liveness::NONE, deletion, timestamp).finish();
        self.around(partition, &row)
    }

    /// The mutation of one encoded row.
    fn around(&self, partition: &Partition, row: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(row.len() + partition.key.len() + 96);
        let (table, version) = (self.table, self.schema_version);
        let mut mutation = MutationBuilder::new(&mut out, table, version, &partition.key);
        let clustering = partition.clustering();
        mutation.rows([(clustering.as_bytes(), RowRef::trusted(row))].into_iter());
        mutation.finish();
        out
    }

    /// Reads the rows of a key: one for each table that had conditional writes with that key.
    pub(crate) fn read(&self, partition: &Partition, now: DeletionSeconds) -> ReadCommand {
        ReadCommand::whole(self.table, Partitions::Key(partition.key.to_vec()), now)
    }
}

/// The table of the schema that was asked for last: each message asks, the schema rarely changes.
#[derive(Default)]
pub(crate) struct NewestTable(RefCell<Option<(Arc<Schema>, PaxosTable)>>);

impl NewestTable {
    /// Like [`PaxosTable::of`], from the cache when the schema is the same.
    pub(crate) fn of(&self, schema: &Arc<Schema>) -> Option<PaxosTable> {
        let mut newest = self.0.borrow_mut();
        if let Some((known, table)) = &*newest
            && Arc::ptr_eq(known, schema)
        {
            return Some(*table);
        }
        let table = PaxosTable::of(schema)?;
        *newest = Some((schema.clone(), table));
        Some(table)
    }
}

/// Takes the cells of one partition's row out of a read.
pub(crate) struct Cells<'t> {
    table: &'t PaxosTable,
    clustering: ClusteringBuf,
    found: Vec<(Column, Vec<u8>)>,
}

impl<'t> Cells<'t> {
    pub(crate) fn new(table: &'t PaxosTable, partition: &Partition) -> Cells<'t> {
        Cells { table, clustering: partition.clustering(), found: Vec::new() }
    }

    pub(crate) fn get(&self, column: Column) -> Option<&[u8]> {
        self.found.iter().find(|(c, _)| *c == column).map(|(_, value)| value.as_slice())
    }
}

impl RowSink for Cells<'_> {
    fn partition(&mut self, _: Token, _: &[u8], _: Option<RowRef<'_>>) -> Flow {
        Flow::Continue
    }

    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        if clustering != self.clustering.as_bytes() {
            return Flow::Continue;
        }
        for (column, id) in &self.table.columns {
            if let Some(ColumnRef::Simple(cell)) = row.column(*id) {
                self.found.push((*column, cell.value.to_vec()));
            }
        }
        Flow::Stop
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}
