//! Reads skip files by their Statistics.db, and show the same.

use data::{BoundRef, ClusteringComparator};

use crate::tests::*;
use crate::{ReadStats, Version};

/// Values of each clustering column are below this.
const DOMAIN: i32 = 6;

/// Clustered by `a` ascending and `b` descending; no static column; no automatic compaction.
fn table_ab() -> Table {
    let column =
        |id, name: &str, ty, kind| Column { id: ColumnId(id), name: name.into(), ty, kind };
    let clustering = |position, reversed| ColumnKind::Clustering { position, reversed };
    let class = ("class".to_owned(), "SizeTieredCompactionStrategy".to_owned());
    let compaction = BTreeMap::from([class, ("min_threshold".to_owned(), "30".to_owned())]);
    let options =
        TableOptions { compaction, gc_grace_seconds: i32::MAX, ..TableOptions::default() };
    Table {
        columns: vec![
            column(0, "pk", CqlType::Int, ColumnKind::PartitionKey(0)),
            column(1, "a", CqlType::Int, clustering(0, false)),
            column(2, "b", CqlType::Int, clustering(1, true)),
            column(3, "v", CqlType::Text, ColumnKind::Regular),
        ],
        clustering_count: 2,
        static_count: 0,
        next_column_id: 4,
        ..table(options)
    }
}

async fn open_writing(rt: &Rt, version: Version) -> Store {
    let options = StoreOptions { sstable_version: version, ..options(rt) };
    Store::open(rt.clone(), options, schema_of(vec![table_ab()])).await.unwrap().0
}

fn prefix(values: &[i32]) -> Vec<u8> {
    let values: Vec<[u8; 4]> = values.iter().map(|v| v.to_be_bytes()).collect();
    ClusteringBuf::from_components(values.iter().map(<[u8; 4]>::as_slice)).0
}

/// A bound: leading values, and true if it lies after all that begins with them.
#[derive(Clone, Debug)]
struct At(Vec<i32>, bool);

impl At {
    /// Returns true if a row lies before it. Independent of the comparator: `b` is descending.
    fn is_behind(&self, row: (i32, i32)) -> bool {
        let mine: Vec<i32> =
            self.0.iter().enumerate().map(|(i, v)| if i == 1 { -v } else { *v }).collect();
        let row = [row.0, -row.1];
        match row[..mine.len()].cmp(&mine[..]) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => self.1,
            std::cmp::Ordering::Greater => false,
        }
    }
}

#[derive(Clone, Debug)]
struct Stretch(At, At);

impl Stretch {
    fn has(&self, row: (i32, i32)) -> bool {
        !self.0.is_behind(row) && self.1.is_behind(row)
    }

    fn slice(&self) -> Slice {
        Slice {
            start: prefix(&self.0.0),
            start_after: self.0.1,
            end: prefix(&self.1.0),
            end_after: self.1.1,
        }
    }

    fn random(rt: &Rt, order: &ClusteringComparator, a_from: i32) -> Stretch {
        loop {
            let bound = || {
                let values = [a_from + below(rt, DOMAIN - a_from), below(rt, DOMAIN)];
                let len = below(rt, 3) as usize;
                At(values[..len].to_vec(), below(rt, 2) == 1)
            };
            let mut stretch = Stretch(bound(), bound());
            // Both sides of a whole partition have one form.
            if stretch.0.0.is_empty() {
                stretch.0 = if a_from == 0 { At(vec![], false) } else { At(vec![a_from], false) };
            }
            if stretch.1.0.is_empty() {
                stretch.1.1 = true;
            }
            if !stretch.slice().is_empty(order) {
                return stretch;
            }
        }
    }
}

fn below(rt: &Rt, bound: i32) -> i32 {
    (rt.random_u64() % u64::from(bound.unsigned_abs())) as i32
}

/// A write: partition, rows, the value (`None`: a deletion), timestamp.
struct Op {
    pk: i32,
    of: Stretch,
    value: Option<String>,
    timestamp: i64,
}

fn put(pk: i32, row: (i32, i32), value: &str, timestamp: i64) -> Vec<u8> {
    let timestamp = TimestampMicros(timestamp);
    let cell = CellRef::live(timestamp, value.as_bytes());
    let packed = packed(Liveness::new(timestamp), DeletionTime::LIVE, &[(VALUE, cell)]);
    let clustering = prefix(&[row.0, row.1]);
    encode(pk, |m| m.rows([(clustering.as_slice(), RowRef::trusted(&packed))].into_iter()))
}

fn delete(pk: i32, of: &Stretch, timestamp: i64) -> Vec<u8> {
    if of.0.0.is_empty() && of.1.0.is_empty() {
        return delete_partition(pk, timestamp);
    }
    let slice = of.slice();
    let tombstone = RangeTombstoneRef {
        start: BoundRef { prefix: &slice.start, after: slice.start_after },
        end: BoundRef { prefix: &slice.end, after: slice.end_after },
        deletion: deletion(timestamp),
    };
    encode(pk, |m| m.range_tombstones([tombstone].into_iter()))
}

type Row = (i32, (i32, i32), String);

#[derive(Default)]
struct Rows {
    pk: i32,
    rows: Vec<Row>,
}

impl RowSink for Rows {
    fn partition(&mut self, _: Token, key: &[u8], _: Option<RowRef<'_>>) -> Flow {
        self.pk = i32::from_be_bytes(key.try_into().unwrap());
        Flow::Continue
    }

    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        let mut values = data::clustering::components(clustering)
            .map(|c| i32::from_be_bytes(c.unwrap().try_into().unwrap()));
        let at = (values.next().unwrap(), values.next().unwrap());
        self.rows.push((self.pk, at, text_of(row, VALUE).unwrap()));
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

async fn found(store: &Store, command: &ReadCommand) -> (Vec<Row>, ReadStats) {
    let mut sink = Rows::default();
    let stats = store.read(command, &mut sink).await.unwrap();
    (sink.rows, stats)
}

/// The rows of one partition that the newest write of each leaves, in order.
fn expected(ops: &[Op], pk: i32, slices: &[Stretch]) -> Vec<Row> {
    let rows = (0..DOMAIN).flat_map(|a| (0..DOMAIN).rev().map(move |b| (a, b)));
    rows.filter(|row| slices.iter().any(|s| s.has(*row)))
        .filter_map(|row| {
            let newest = ops
                .iter()
                .filter(|op| op.pk == pk && op.of.has(row))
                .max_by_key(|op| op.timestamp)?;
            Some((pk, row, newest.value.clone()?))
        })
        .collect()
}

async fn write_some(rt: &Rt, store: &Store, order: &ClusteringComparator, ops: &mut Vec<Op>) {
    // Most often a file has rows of a part of the clusterings.
    let a_from = below(rt, DOMAIN);
    for _ in 0..1 + below(rt, 4) {
        let pk = below(rt, 3);
        // Unique, and not in the order of the writes.
        let timestamp = i64::from(below(rt, 1000)) * 1000 + ops.len() as i64;
        let (of, value) = match below(rt, 20) {
            0 => (Stretch(At(vec![], false), At(vec![], true)), None),
            1..4 => (Stretch::random(rt, order, a_from), None),
            _ => {
                let at = vec![(a_from + below(rt, 2)).min(DOMAIN - 1), below(rt, DOMAIN)];
                (Stretch(At(at.clone(), false), At(at, true)), Some(format!("v{}", ops.len())))
            }
        };
        let mutation = match &value {
            Some(text) => put(pk, (of.0.0[0], of.0.0[1]), text, timestamp),
            None => delete(pk, &of, timestamp),
        };
        write(store, &mutation).await.unwrap();
        ops.push(Op { pk, of, value, timestamp });
    }
}

/// Reads under random bounds; counts the files read and the existing files.
async fn check(rt: &Rt, store: &Store, order: &ClusteringComparator, ops: &[Op]) -> (u64, u64) {
    let (mut looked, mut there) = (0, 0);
    let files = store.table_stats(TABLE).sstables;
    for _ in 0..60 {
        let mut slices = vec![Stretch::random(rt, order, 0)];
        if let [a, ..] = slices[0].1.0[..]
            && a + 1 < DOMAIN
            && below(rt, 3) == 0
        {
            slices.push(Stretch::random(rt, order, a + 1));
        }
        let of = |partitions, reversed| ReadCommand {
            slices: Slices(slices.iter().map(Stretch::slice).collect()).into(),
            reversed,
            ..ReadCommand::whole(TABLE, partitions, NOW)
        };
        let mut all = Vec::new();
        for pk in 0..3 {
            let mut rows = expected(ops, pk, &slices);
            let (forward, stats) = found(store, &of(Partitions::Key(key(pk)), false)).await;
            assert_eq!(forward, rows, "partition {pk}, {slices:?}");
            looked += u64::from(stats.sstables);
            all.extend(rows.iter().cloned());
            rows.reverse();
            let (backward, _) = found(store, &of(Partitions::Key(key(pk)), true)).await;
            assert_eq!(backward, rows, "partition {pk} reversed, {slices:?}");
        }
        let (mut scanned, stats) =
            found(store, &of(Partitions::Range(KeyRange::all()), false)).await;
        scanned.sort_by_key(|(pk, ..)| *pk);
        assert_eq!(scanned, all, "scan, {slices:?}");
        looked += u64::from(stats.sstables);
        there += 4 * files;
    }
    (looked, there)
}

#[test]
fn reads_under_any_bounds_show_what_was_written_last_and_look_into_few_files() {
    run(310, |rt| async move {
        let order = ClusteringComparator::for_table(&table_ab());
        let mut ops = Vec::new();
        for version in sstable::WriterOptions::VERSIONS {
            let store = open_writing(&rt, version).await;
            for _ in 0..4 {
                write_some(&rt, &store, &order, &mut ops).await;
                store.flush(None).await.unwrap();
            }
            write_some(&rt, &store, &order, &mut ops).await;
            let (looked, there) = check(&rt, &store, &order, &ops).await;
            // A partition is deleted in memory up to some of the writes.
            let timestamp = i64::from(below(&rt, 1000)) * 1000 + ops.len() as i64;
            let (pk, of) = (below(&rt, 3), Stretch(At(vec![], false), At(vec![], true)));
            write(&store, &delete(pk, &of, timestamp)).await.unwrap();
            ops.push(Op { pk, of, value: None, timestamp });
            check(&rt, &store, &order, &ops).await;
            assert!(looked < there * 4 / 5, "{looked} of {there} files");
            store.stop().await;
        }
    });
}

#[test]
fn a_read_looks_into_files_that_meet_its_bounds_or_delete_partitions() {
    for version in sstable::WriterOptions::VERSIONS {
        run(311, move |rt| async move {
            let store = open_writing(&rt, version).await;
            for a in 0..3 {
                for b in 0..2 {
                    write(&store, &put(1, (2 * a, b), "x", 100)).await.unwrap();
                }
                store.flush(None).await.unwrap();
            }
            let looked = async |from: i32, to: i32| {
                let slices =
                    Slices(vec![Stretch(At(vec![from], false), At(vec![to], true)).slice()]);
                let mut of_both = Vec::new();
                for partitions in [Partitions::Key(key(1)), Partitions::Range(KeyRange::all())] {
                    let slices = slices.clone();
                    let command = ReadCommand {
                        slices: slices.into(),
                        ..ReadCommand::whole(TABLE, partitions, NOW)
                    };
                    of_both.push(found(&store, &command).await.1.sstables);
                }
                (of_both[0], of_both[1])
            };
            assert_eq!(looked(2, 2).await, (1, 1), "the one that has it");
            assert_eq!(looked(3, 3).await, (0, 0), "between two files");
            assert_eq!(looked(1, 4).await, (2, 2));
            assert_eq!(looked(0, 9).await, (3, 3));
            // A range deletion is met where it reaches to.
            let of = Stretch(At(vec![7], false), At(vec![8], true));
            write(&store, &delete(1, &of, 200)).await.unwrap();
            // Before `oa` no file tells its tombstones of partitions from others.
            let of_any = u32::from(!matches!(version, Version::Oa | Version::Da));
            store.flush(None).await.unwrap();
            assert_eq!(looked(8, 9).await, (1, 1));
            assert_eq!(looked(2, 2).await, (1 + of_any, 1 + of_any));
            // A deleted partition is needed by every read of its file.
            write(&store, &delete_partition(1, 50)).await.unwrap();
            store.flush(None).await.unwrap();
            assert_eq!(looked(2, 2).await, (2 + of_any, 2 + of_any));
            // Older files are not searched for data that is deleted in memory.
            write(&store, &delete_partition(1, 150)).await.unwrap();
            assert_eq!(looked(0, 9).await.0, 1, "the range deletion is newer");
            write(&store, &delete_partition(1, 201)).await.unwrap();
            assert_eq!(looked(0, 9).await.0, 0);
        });
    }
}
