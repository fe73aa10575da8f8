//! `ks.t`: pk int, ck int, static s text, v text, w text; its writes as encoded
//! mutations, and random ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use data::{
    BoundRef, CellRef, ClusteringBuf, DeletionTime, Liveness, MutationBuilder, RangeTombstoneRef,
    RowBuilder, RowRef,
};
use schema::{
    Column, ColumnKind, Keyspace, KeyspaceParams, Schema, Table, TableKind, TableOptions,
};
use stdx::{ColumnId, DeletionSeconds, FixedMap, TableId, TimestampMicros, TtlSeconds, Uuid};
use types::CqlType;

use crate::Random;

/// Its id.
pub const TABLE: TableId = TableId(Uuid::from_u128(0x11));
/// The static column.
pub const STATIC: ColumnId = ColumnId(2);
/// A regular column, which inserts write.
pub const V: ColumnId = ColumnId(3);
/// Another one.
pub const W: ColumnId = ColumnId(4);
/// The second at which the worlds begin.
pub const NOW: DeletionSeconds = DeletionSeconds(2_000_000_000);

fn table(options: TableOptions) -> Table {
    let column =
        |id, name: &str, ty, kind| Column { id: ColumnId(id), name: name.into(), ty, kind };
    Table {
        id: TABLE,
        keyspace: "ks".into(),
        name: "t".into(),
        kind: TableKind::Regular,
        columns: vec![
            column(0, "pk", CqlType::Int, ColumnKind::PartitionKey(0)),
            column(1, "ck", CqlType::Int, ColumnKind::Clustering { position: 0, reversed: false }),
            column(2, "s", CqlType::Text, ColumnKind::Static),
            column(3, "v", CqlType::Text, ColumnKind::Regular),
            column(4, "w", CqlType::Text, ColumnKind::Regular),
        ],
        partition_key_count: 1,
        clustering_count: 1,
        static_count: 1,
        options,
        dropped: BTreeMap::new(),
        masks: BTreeMap::new(),
        indexes: Default::default(),
        version: 1,
        next_column_id: 5,
    }
}

/// The schema with that table: RF `factor`, or that of each datacenter where there are any.
pub fn schema(options: TableOptions, factor: u32, datacenters: &[(String, u32)]) -> Arc<Schema> {
    let table = Arc::new(table(options));
    let class = |name: &str| ("class".to_owned(), format!("org.apache.cassandra.locator.{name}"));
    let mut replication = vec![class("SimpleStrategy")];
    replication.push(("replication_factor".to_owned(), factor.to_string()));
    if !datacenters.is_empty() {
        replication = vec![class("NetworkTopologyStrategy")];
        replication.extend(datacenters.iter().map(|(dc, n)| (dc.clone(), n.to_string())));
    }
    let keyspace = Keyspace {
        name: "ks".into(),
        params: KeyspaceParams {
            durable_writes: true,
            replication: replication.into_iter().collect(),
        },
        tables: BTreeMap::from([(table.name.clone(), table.clone())]),
        types: BTreeMap::new(),
        functions: Vec::new(),
        aggregates: Vec::new(),
        is_virtual: false,
    };
    let mut by_id: FixedMap<TableId, Arc<Table>> = FixedMap::default();
    by_id.insert(TABLE, table);
    Arc::new(Schema {
        keyspaces: BTreeMap::from([("ks".into(), Arc::new(keyspace))]),
        tables_by_id: by_id,
        version: Uuid::from_u128(1),
    })
}

/// A partition key.
pub fn key(pk: i32) -> Vec<u8> {
    pk.to_be_bytes().to_vec()
}

/// A clustering.
pub fn clustering(ck: i32) -> Vec<u8> {
    ClusteringBuf::from_components([ck.to_be_bytes().as_slice()]).0
}

fn encode(pk: i32, build: impl FnOnce(&mut MutationBuilder<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    let mut builder = MutationBuilder::new(&mut out, TABLE, 1, &key(pk));
    build(&mut builder);
    builder.finish();
    out
}

fn packed(
    liveness: Liveness,
    deletion: DeletionTime,
    cells: &[(ColumnId, CellRef<'_>)],
) -> Vec<u8> {
    let mut row = Vec::new();
    let mut builder = RowBuilder::new(&mut row, liveness, deletion, TimestampMicros(0));
    for (id, cell) in cells {
        builder.cell(*id, cell);
    }
    builder.finish();
    row
}

fn one_row(pk: i32, ck: i32, row: &[u8]) -> Vec<u8> {
    let clustering = clustering(ck);
    encode(pk, |m| m.rows([(clustering.as_slice(), RowRef::trusted(row))].into_iter()))
}

/// INSERT of one row.
pub fn insert(pk: i32, ck: i32, value: &str, at: i64) -> Vec<u8> {
    let at = TimestampMicros(at);
    let cell = CellRef::live(at, value.as_bytes());
    one_row(pk, ck, &packed(Liveness::new(at), DeletionTime::LIVE, &[(V, cell)]))
}

/// UPDATE of one column.
pub fn update(pk: i32, ck: i32, column: ColumnId, cell: &CellRef<'_>) -> Vec<u8> {
    one_row(pk, ck, &packed(Liveness::NONE, DeletionTime::LIVE, &[(column, *cell)]))
}

/// INSERT of the static column.
pub fn insert_static(pk: i32, value: &str, at: i64) -> Vec<u8> {
    let cell = CellRef::live(TimestampMicros(at), value.as_bytes());
    let row = packed(Liveness::NONE, DeletionTime::LIVE, &[(STATIC, cell)]);
    encode(pk, |m| m.static_row(RowRef::trusted(&row)))
}

fn deletion(at: i64) -> DeletionTime {
    DeletionTime { timestamp: TimestampMicros(at), local: DeletionSeconds(NOW.0 - 100) }
}

/// DELETE of one row.
pub fn delete_row(pk: i32, ck: i32, at: i64) -> Vec<u8> {
    one_row(pk, ck, &packed(Liveness::NONE, deletion(at), &[]))
}

/// DELETE of the rows `from <= ck < to`.
pub fn delete_range(pk: i32, from: i32, to: i32, at: i64) -> Vec<u8> {
    let (from, to) = (clustering(from), clustering(to));
    let range = RangeTombstoneRef {
        start: BoundRef { prefix: &from, after: false },
        end: BoundRef { prefix: &to, after: false },
        deletion: deletion(at),
    };
    encode(pk, |m| m.range_tombstones([range].into_iter()))
}

/// DELETE of a partition.
pub fn delete_partition(pk: i32, at: i64) -> Vec<u8> {
    encode(pk, |m| m.deletion(deletion(at)))
}

impl Random {
    /// A write to one of `keys` partitions with rows 0..16, at that time.
    pub fn write(&mut self, keys: i32, at: i64) -> Vec<u8> {
        let pk = (self.next() % keys as u64) as i32;
        let ck = self.below(16) as i32;
        let value = format!("{at}");
        let timestamp = TimestampMicros(at);
        match self.below(40) {
            0 => delete_partition(pk, at),
            1..=3 => delete_range(pk, ck, ck + 1 + self.below(6) as i32, at),
            4..=7 => delete_row(pk, ck, at),
            8..=9 => insert_static(pk, &value, at),
            10..=12 => update(pk, ck, W, &CellRef::live(timestamp, value.as_bytes())),
            13..=14 => {
                update(pk, ck, V, &CellRef::tombstone(timestamp, DeletionSeconds(NOW.0 - 50)))
            }
            15..=16 => {
                // Some of them are expired.
                let (ttl, left) = (TtlSeconds(100), self.below(60) as i64 - 30);
                let cell =
                    CellRef::expiring(timestamp, ttl, DeletionSeconds(NOW.0 + left), b"soon gone");
                update(pk, ck, W, &cell)
            }
            _ => insert(pk, ck, &value, at),
        }
    }
}
