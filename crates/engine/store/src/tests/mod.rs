//! Tests of the store in the simulator: one world per test, one node, shared facts of what was
//! acknowledged.
#![allow(clippy::disallowed_types, reason = "facts are shared with the world's main function")]

mod any_options;
mod basics;
mod compact;
mod crash;
mod damage;
mod everywhere;
mod faults;
mod files;
mod observe;
mod read;
mod repair;
mod replay;
mod requests;
mod shards;
mod tables;
mod transfer;
mod upkeep;
mod write;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use codec::Algorithm;
use data::command::{KeyRange, Partitions, ReadCommand};
use data::{
    CellRef, ClusteringBuf, ColumnRef, DeletionTime, Liveness, MutationBuilder, MutationRef,
    RangeTombstoneRef, RowBuilder, RowRef, Slice, Slices,
};
use rt::sim::{SimNode, World, WorldOptions};
use rt::{NodeSpec, Rt};
use schema::{
    Column, ColumnKind, Keyspace, KeyspaceParams, Schema, Table, TableKind, TableOptions,
};
use stdx::{
    ColumnId, DeletionSeconds, FixedMap, HostId, ShardId, ShardMap, TableId, TimestampMicros,
    Token, Uuid,
};
use types::CqlType;

use crate::{Flow, Look, LookedAt, RowSink, Store, StoreError, StoreOptions};

pub(crate) const TABLE: TableId = TableId(Uuid::from_u128(0x11));
pub(crate) const STATIC: ColumnId = ColumnId(2);
pub(crate) const VALUE: ColumnId = ColumnId(3);
/// Reads in these tests are done at this second.
pub(crate) const NOW: DeletionSeconds = DeletionSeconds(2_000_000_000);

pub(crate) fn shard_of(token: Token, shards: u16) -> ShardId {
    ShardMap::ByTokenHash { shards }.shard_of(TABLE, token)
}

pub(crate) fn table(options: TableOptions) -> Table {
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

pub(crate) fn schema_of(tables: Vec<Table>) -> Arc<Schema> {
    let tables: Vec<Arc<Table>> = tables.into_iter().map(Arc::new).collect();
    let keyspace = Keyspace {
        name: "ks".into(),
        params: KeyspaceParams { durable_writes: true, replication: BTreeMap::new() },
        tables: tables.iter().map(|t| (t.name.clone(), t.clone())).collect(),
        types: BTreeMap::new(),
        functions: Vec::new(),
        aggregates: Vec::new(),
        is_virtual: false,
    };
    let mut by_id: FixedMap<TableId, Arc<Table>> = FixedMap::default();
    for table in tables {
        by_id.insert(table.id, table);
    }
    Arc::new(Schema {
        keyspaces: BTreeMap::from([("ks".into(), Arc::new(keyspace))]),
        tables_by_id: by_id,
        version: Uuid::from_u128(1),
    })
}

/// Tombstones are never old enough to be purged.
pub(crate) fn schema() -> Arc<Schema> {
    let options = TableOptions { gc_grace_seconds: i32::MAX, ..TableOptions::default() };
    schema_of(vec![table(options)])
}

/// Small sizes, so that flushes and rotations happen; each start writes another version of files and
/// compresses its log in another way.
pub(crate) fn options(rt: &Rt) -> StoreOptions {
    let run = u64::try_from(rt.wall().0).unwrap();
    let host = HostId(Uuid::from_u128(7));
    let shard_map = ShardMap::ByTokenHash { shards: rt.shard_count() };
    let mut options =
        StoreOptions::new("data".into(), "commitlog".into(), host, run, shard_map, |t| {
            format!("CREATE TABLE {}", t.name)
        });
    // Each shard has another of them, and a start may change which.
    options.data_directories.push("more".into());
    if rt.random_u64().is_multiple_of(2) {
        options.data_directories.reverse();
    }
    options.segment_bytes = 64 << 10;
    options.disk_reserve_bytes = 0;
    let versions = sstable::WriterOptions::VERSIONS;
    let random = rt.random_u64() as usize;
    options.sstable_version = versions[random % versions.len()];
    options.commitlog_compression = match random / versions.len() % 5 {
        1 => Some(Algorithm::Lz4),
        2 => Some(Algorithm::Snappy),
        3 => Some(Algorithm::Deflate),
        4 => Some(Algorithm::Zstd),
        _ => None,
    };
    // Every life has both keys, some write with one of them.
    let (a, b) = ("a".repeat(64), "b".repeat(64));
    let keys = match random / versions.len() / 5 % 4 {
        0 => format!("{a}\n{b}"),
        1 => format!("{b}\n{a}"),
        _ => format!("none\n{a}\n{b}"),
    };
    options.commitlog_keys = Some(commitlog::Keys::parse(&keys).unwrap());
    options
}

pub(crate) fn key(pk: i32) -> Vec<u8> {
    pk.to_be_bytes().to_vec()
}

pub(crate) fn clustering(ck: i32) -> Vec<u8> {
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

/// INSERT of one row.
pub(crate) fn insert(pk: i32, ck: i32, value: &str, timestamp: i64) -> Vec<u8> {
    insert_at(pk, &clustering(ck), value, timestamp)
}

pub(crate) fn insert_at(pk: i32, clustering: &[u8], value: &str, timestamp: i64) -> Vec<u8> {
    let timestamp = TimestampMicros(timestamp);
    let cell = CellRef::live(timestamp, value.as_bytes());
    let row = packed(Liveness::new(timestamp), DeletionTime::LIVE, &[(VALUE, cell)]);
    encode(pk, |m| m.rows([(clustering, RowRef::trusted(&row))].into_iter()))
}

/// INSERT of the static column.
pub(crate) fn insert_static(pk: i32, value: &str, timestamp: i64) -> Vec<u8> {
    let cell = CellRef::live(TimestampMicros(timestamp), value.as_bytes());
    let row = packed(Liveness::NONE, DeletionTime::LIVE, &[(STATIC, cell)]);
    encode(pk, |m| m.static_row(RowRef::trusted(&row)))
}

pub(crate) fn deletion(timestamp: i64) -> DeletionTime {
    DeletionTime { timestamp: TimestampMicros(timestamp), local: DeletionSeconds(1_000_000) }
}

/// DELETE of one row.
pub(crate) fn delete_row(pk: i32, ck: i32, timestamp: i64) -> Vec<u8> {
    let row = packed(Liveness::NONE, deletion(timestamp), &[]);
    let clustering = clustering(ck);
    encode(pk, |m| m.rows([(clustering.as_slice(), RowRef::trusted(&row))].into_iter()))
}

/// DELETE of the rows `from <= ck < to`.
pub(crate) fn delete_range(pk: i32, from: i32, to: i32, timestamp: i64) -> Vec<u8> {
    let (from, to) = (clustering(from), clustering(to));
    let tombstone = RangeTombstoneRef {
        start: data::BoundRef { prefix: &from, after: false },
        end: data::BoundRef { prefix: &to, after: false },
        deletion: deletion(timestamp),
    };
    encode(pk, |m| m.range_tombstones([tombstone].into_iter()))
}

/// DELETE of a partition.
pub(crate) fn delete_partition(pk: i32, timestamp: i64) -> Vec<u8> {
    encode(pk, |m| m.deletion(deletion(timestamp)))
}

pub(crate) async fn write(store: &Store, mutation: &[u8]) -> Result<(), StoreError> {
    store.writer().admit_write()?;
    let mutation = MutationRef::open(mutation).unwrap();
    store.apply(&mutation, true)?;
    store.commit().await
}

pub(crate) fn read_of(partitions: Partitions) -> ReadCommand {
    ReadCommand { wants_static: true, ..ReadCommand::whole(TABLE, partitions, NOW) }
}

pub(crate) fn slice(from: i32, to: i32) -> Slices {
    Slices(vec![Slice {
        start: clustering(from),
        start_after: false,
        end: clustering(to),
        end_after: false,
    }])
}

/// One row as text: (pk, ck or none for a partition with only a static row, static, value).
pub(crate) type Found = (i32, Option<i32>, Option<String>, Option<String>);

#[derive(Default)]
pub(crate) struct Collect {
    pub(crate) rows: Vec<Found>,
    pub(crate) stop_after: Option<usize>,
    /// Tombstones above which the read fails.
    pub(crate) refuses_above: Option<u32>,
    current: (i32, Option<String>),
    in_partition: bool,
    any: bool,
}

pub(crate) fn text_of(row: RowRef<'_>, id: ColumnId) -> Option<String> {
    match row.column(id)? {
        ColumnRef::Simple(cell) => Some(String::from_utf8(cell.value.to_vec()).unwrap()),
        ColumnRef::Complex(_) => None,
    }
}

impl RowSink for Collect {
    fn partition(&mut self, token: Token, key: &[u8], static_row: Option<RowRef<'_>>) -> Flow {
        assert!(!self.in_partition);
        assert_eq!(token, codec::token_of(key));
        self.in_partition = true;
        self.any = false;
        let pk = i32::from_be_bytes(key.try_into().unwrap());
        self.current = (pk, static_row.and_then(|r| text_of(r, STATIC)));
        Flow::Continue
    }

    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        assert!(self.in_partition);
        self.any = true;
        let ck = data::clustering::components(clustering).next().unwrap().unwrap();
        let ck = i32::from_be_bytes(ck.try_into().unwrap());
        let (pk, s) = self.current.clone();
        self.rows.push((pk, Some(ck), s, text_of(row, VALUE)));
        if self.stop_after.is_some_and(|n| self.rows.len() >= n) {
            Flow::Stop
        } else {
            Flow::Continue
        }
    }

    fn looked_at(&mut self, upto: LookedAt<'_>) -> Look {
        match self.refuses_above {
            Some(most) if upto.tombstones > most => Look::Refuse,
            _ => Look::Continue,
        }
    }

    fn tombstones_per_look(&self) -> u32 {
        self.refuses_above.map_or(u32::MAX, |_| 1)
    }

    fn partition_end(&mut self) -> Flow {
        assert!(self.in_partition);
        self.in_partition = false;
        if !self.any {
            let (pk, s) = self.current.clone();
            self.rows.push((pk, None, s, None));
        }
        Flow::Continue
    }
}

pub(crate) async fn read(store: &Store, command: &ReadCommand) -> Vec<Found> {
    let mut sink = Collect::default();
    store.read(command, &mut sink).await.unwrap();
    sink.rows
}

pub(crate) async fn read_partition(store: &Store, pk: i32) -> Vec<Found> {
    read(store, &read_of(Partitions::Key(key(pk)))).await
}

pub(crate) async fn read_all(store: &Store) -> Vec<Found> {
    read(store, &read_of(Partitions::Range(KeyRange::all()))).await
}

/// `(ck, value)` of the rows found.
pub(crate) fn values(found: &[Found]) -> Vec<(i32, String)> {
    found.iter().filter_map(|(_, ck, _, v)| Some(((*ck)?, v.clone().unwrap_or_default()))).collect()
}

pub(crate) fn start<F: Future<Output = ()> + 'static>(
    world: &World,
    shards: u16,
    main: impl Fn(Rt) -> F + Send + Sync + 'static,
) -> SimNode {
    let spec = NodeSpec { name: "n1".into(), shards, work_dir: "/n1".into() };
    world.start_node(spec, Arc::new(move |rt| Box::pin(main(rt))))
}

pub(crate) fn world(seed: u64) -> World {
    World::new(seed, WorldOptions::default())
}

/// Runs `main` on one node to its end.
pub(crate) fn run<F: Future<Output = ()> + 'static>(
    seed: u64,
    main: impl Fn(Rt) -> F + Send + Sync + Clone + 'static,
) {
    let world = world(seed);
    run_in(&world, main);
}

pub(crate) fn run_in<F: Future<Output = ()> + 'static>(
    world: &World,
    main: impl Fn(Rt) -> F + Send + Sync + Clone + 'static,
) {
    let done = Arc::new(Mutex::new(false));
    let flag = done.clone();
    start(world, 1, move |rt| {
        let (main, flag) = (main.clone(), flag.clone());
        async move {
            main(rt).await;
            *flag.lock().unwrap() = true;
        }
    });
    world.run_until(|| *done.lock().unwrap(), Duration::from_secs(3600)).unwrap();
}

pub(crate) async fn open(rt: &Rt) -> Store {
    Store::open(rt.clone(), options(rt), schema()).await.unwrap().0
}
