//! The tables of these tests: `ks.t (pk int PRIMARY KEY, v text, w text)`, `ks.n (pk int PRIMARY KEY,
//! v counter)`, `system.batches` and `system.paxos`.

use std::collections::BTreeMap;
use std::sync::Arc;

use data::command::{KeyRange, Partitions, ReadCommand};
use data::{CellRef, ColumnRef, DeletionTime, Liveness, MutationBuilder, RowBuilder, RowRef};
use replica::ReplicaMutation;
use schema::{
    Column, ColumnKind, Keyspace, KeyspaceParams, Schema, Table, TableKind, TableOptions,
};
use stdx::{ColumnId, DeletionSeconds, FixedMap, TableId, TimestampMicros, Token, Uuid};
use store::{Flow, RowSink};
use types::CqlType;

pub(super) const TABLE: TableId = TableId(Uuid::from_u128(0x11));
pub(super) const COUNTERS: TableId = TableId(Uuid::from_u128(0x14));
const BATCHES: TableId = TableId(Uuid::from_u128(0x12));
const PAXOS: TableId = TableId(Uuid::from_u128(0x13));
pub(super) const VALUE: ColumnId = ColumnId(1);
pub(super) const OTHER: ColumnId = ColumnId(2);

fn table(
    id: TableId,
    (keyspace, name): (&str, &str),
    columns: Vec<Column>,
    options: TableOptions,
) -> Table {
    let next_column_id = columns.len() as u16;
    Table {
        id,
        keyspace: keyspace.into(),
        name: name.into(),
        kind: TableKind::Regular,
        columns,
        partition_key_count: 1,
        clustering_count: 0,
        static_count: 0,
        options,
        dropped: BTreeMap::new(),
        masks: BTreeMap::new(),
        indexes: Default::default(),
        version: 1,
        next_column_id,
    }
}

fn keyspace(name: &str, tables: &[&Arc<Table>], replication: &[(&str, &str)]) -> Arc<Keyspace> {
    let replication = replication.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    Arc::new(Keyspace {
        name: name.into(),
        params: KeyspaceParams { durable_writes: true, replication: replication.collect() },
        tables: tables.iter().map(|t| (t.name.clone(), Arc::clone(t))).collect(),
        types: BTreeMap::new(),
        functions: Vec::new(),
        aggregates: Vec::new(),
        is_virtual: false,
    })
}

pub(super) fn schema(replication: &[(&str, &str)], with_table: bool) -> Arc<Schema> {
    let column =
        |id, name: &str, ty, kind| Column { id: ColumnId(id), name: name.into(), ty, kind };
    let own = vec![
        column(0, "pk", CqlType::Int, ColumnKind::PartitionKey(0)),
        column(1, "v", CqlType::Text, ColumnKind::Regular),
        column(2, "w", CqlType::Text, ColumnKind::Regular),
    ];
    let log = vec![
        column(0, "id", CqlType::Timeuuid, ColumnKind::PartitionKey(0)),
        column(
            1,
            "mutations",
            CqlType::List { element: Arc::new(CqlType::Blob), frozen: false },
            ColumnKind::Regular,
        ),
        column(2, "version", CqlType::Int, ColumnKind::Regular),
    ];
    let regular = |id, name: &str, ty| column(id, name, ty, ColumnKind::Regular);
    let registers = vec![
        column(0, "row_key", CqlType::Blob, ColumnKind::PartitionKey(0)),
        column(1, "cf_id", CqlType::Uuid, ColumnKind::Clustering { position: 0, reversed: false }),
        regular(2, "in_progress_ballot", CqlType::Timeuuid),
        regular(3, "in_progress_read_ballot", CqlType::Timeuuid),
        regular(4, "most_recent_commit", CqlType::Blob),
        regular(5, "most_recent_commit_at", CqlType::Timeuuid),
        regular(6, "most_recent_commit_version", CqlType::Int),
        regular(7, "proposal", CqlType::Blob),
        regular(8, "proposal_ballot", CqlType::Timeuuid),
        regular(9, "proposal_version", CqlType::Int),
    ];
    let grace = TableOptions { gc_grace_seconds: 0, ..TableOptions::default() };
    let local = "org.apache.cassandra.locator.LocalStrategy";
    let own = Arc::new(table(TABLE, ("ks", "t"), own, TableOptions::default()));
    let log = Arc::new(table(BATCHES, ("system", "batches"), log, grace.clone()));
    let mut paxos = table(PAXOS, ("system", "paxos"), registers, grace);
    paxos.clustering_count = 1;
    let paxos = Arc::new(paxos);
    let mut keyspaces = BTreeMap::from([(
        "system".into(),
        keyspace("system", &[&log, &paxos], &[("class", local)]),
    )]);
    let mut tables_by_id: FixedMap<TableId, Arc<Table>> = FixedMap::default();
    if with_table {
        let columns = vec![
            column(0, "pk", CqlType::Int, ColumnKind::PartitionKey(0)),
            column(1, "v", CqlType::Counter, ColumnKind::Regular),
        ];
        let counters = table(COUNTERS, ("ks", "n"), columns, TableOptions::default());
        let counters = Arc::new(counters);
        keyspaces.insert("ks".into(), keyspace("ks", &[&own, &counters], replication));
        tables_by_id.insert(TABLE, own);
        tables_by_id.insert(COUNTERS, counters);
    }
    tables_by_id.insert(BATCHES, log);
    tables_by_id.insert(PAXOS, paxos);
    Arc::new(Schema { keyspaces, tables_by_id, version: Uuid::from_u128(1) })
}

pub(super) fn simple(factor: &'static str) -> Vec<(&'static str, &'static str)> {
    let class = "org.apache.cassandra.locator.SimpleStrategy";
    vec![("class", class), ("replication_factor", factor)]
}

/// INSERT of one row.
pub(super) fn insert(pk: i32, value: &str, at: i64) -> ReplicaMutation {
    let at = TimestampMicros(at);
    let mut row = Vec::new();
    let mut builder = RowBuilder::new(&mut row, Liveness::new(at), DeletionTime::LIVE, at);
    builder.cell(VALUE, &CellRef::live(at, value.as_bytes()));
    builder.finish();
    let key = pk.to_be_bytes();
    let mut out = Vec::new();
    let mut mutation = MutationBuilder::new(&mut out, TABLE, 1, &key);
    mutation.rows([([].as_slice(), RowRef::trusted(&row))].into_iter());
    mutation.finish();
    ReplicaMutation::durable(codec::token_of(&key), out)
}

pub(super) fn read_all(table: TableId) -> ReadCommand {
    ReadCommand {
        wants_static: true,
        ..ReadCommand::whole(
            table,
            Partitions::Range(KeyRange::all()),
            DeletionSeconds(2_000_000_000),
        )
    }
}

/// Reads one partition.
pub(super) fn read_key(pk: i32) -> ReadCommand {
    ReadCommand { partitions: Partitions::Key(pk.to_be_bytes().to_vec()), ..read_all(TABLE) }
}

/// UPDATE of one column.
pub(super) fn update(pk: i32, column: ColumnId, value: &str, at: TimestampMicros) -> Vec<u8> {
    let mut row = Vec::new();
    let mut builder = RowBuilder::new(&mut row, Liveness::NONE, DeletionTime::LIVE, at);
    builder.cell(column, &CellRef::live(at, value.as_bytes()));
    builder.finish();
    let mut out = Vec::new();
    let mut mutation = MutationBuilder::new(&mut out, TABLE, 1, &pk.to_be_bytes());
    mutation.rows([([].as_slice(), RowRef::trusted(&row))].into_iter());
    mutation.finish();
    out
}

/// Reads every entry of the batch log.
pub(super) fn read_log() -> ReadCommand {
    read_all(BATCHES)
}

/// Keys and values found.
#[derive(Default)]
pub(super) struct Collect {
    pub(super) rows: BTreeMap<Vec<u8>, String>,
    key: Vec<u8>,
}

impl RowSink for Collect {
    fn partition(&mut self, _: Token, key: &[u8], _: Option<RowRef<'_>>) -> Flow {
        self.key = key.to_vec();
        Flow::Continue
    }

    fn row(&mut self, _: &[u8], row: RowRef<'_>) -> Flow {
        let value = row.columns().find_map(|(id, column)| match column {
            ColumnRef::Simple(cell) if id == VALUE => {
                Some(String::from_utf8_lossy(cell.value).into_owned())
            }
            _ => None,
        });
        self.rows.insert(self.key.clone(), value.unwrap_or_default());
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}
