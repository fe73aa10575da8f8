//! Columns that are dropped and added again: whatever lies between, cells that are newer than the drop come back, and
//! older ones do not.

use data::ColumnRef;
use schema::DroppedColumn;
use sstable::offline::ScrubOptions;

use crate::compact::cleanup::OwnedRanges;
use crate::tests::read::replica_pages::open_at;
use crate::tests::transfer::row_ingest::whole;
use crate::tests::*;
use crate::{ImportOptions, UpgradeScope};

const OTHER: ColumnId = ColumnId(4);
const MAP: ColumnId = ColumnId(5);
const DROPPED_AT: i64 = 20_000;

/// The table, with `v`, `s` and `m` as they are; `None`: dropped. `added`: after a drop.
fn altered(version: u64, are_there: bool, was_dropped: bool) -> Arc<Schema> {
    let mut table = table(TableOptions { gc_grace_seconds: i32::MAX, ..TableOptions::default() });
    let ty = CqlType::map(CqlType::Int, CqlType::Text, false);
    let map = Column { id: MAP, name: "m".into(), ty, kind: ColumnKind::Regular };
    table.columns.insert(3, map);
    (table.next_column_id, table.version) = (6, version);
    if was_dropped {
        for column in table.columns.iter().filter(|c| [STATIC, VALUE, MAP].contains(&c.id)) {
            let dropped_at = TimestampMicros(DROPPED_AT);
            let dropped = DroppedColumn { column: column.clone(), dropped_at };
            table.dropped.insert(column.name.clone(), dropped);
        }
    }
    if !are_there {
        table.columns.retain(|c| !table.dropped.contains_key(&c.name));
        table.static_count = 0;
    }
    schema_of(vec![table])
}

fn before_drop() -> Arc<Schema> {
    altered(1, true, false)
}

fn dropped() -> Arc<Schema> {
    altered(2, false, true)
}

fn added() -> Arc<Schema> {
    altered(3, true, true)
}

/// A row with these cells of the map.
fn map_cells(deletion: Option<i64>, cells: &[(i32, &str, i64)]) -> Vec<u8> {
    let mut row = Vec::new();
    let base = TimestampMicros(0);
    let mut builder = RowBuilder::new(&mut row, Liveness::NONE, DeletionTime::LIVE, base);
    builder.begin_complex(MAP, deletion.map_or(DeletionTime::LIVE, crate::tests::deletion));
    for (path, value, timestamp) in cells {
        let cell = CellRef::live(TimestampMicros(*timestamp), value.as_bytes());
        builder.complex_cell(&path.to_be_bytes(), &cell);
    }
    builder.end_complex();
    builder.finish();
    row
}

fn of_row(pk: i32, row: &[u8]) -> Vec<u8> {
    encode(pk, |m| m.rows([(clustering(1).as_slice(), RowRef::trusted(row))].into_iter()))
}

fn cell(pk: i32, column: ColumnId, value: &str, timestamp: i64) -> Vec<u8> {
    let cell = CellRef::live(TimestampMicros(timestamp), value.as_bytes());
    of_row(pk, &packed(Liveness::NONE, DeletionTime::LIVE, &[(column, cell)]))
}

fn mutations() -> Vec<Vec<u8>> {
    vec![
        insert(1, 1, "new", 30_000),
        insert_static(1, "new static", 30_000),
        of_row(1, &map_cells(None, &[(1, "new", 30_000)])),
        insert(2, 1, "old", 10_000),
        insert_static(2, "old static", DROPPED_AT),
        of_row(2, &map_cells(Some(9_000), &[(1, "old", 10_000)])),
        cell(3, VALUE, "alone", DROPPED_AT + 1),
        cell(3, VALUE, "covered", 15_000),
        of_row(4, &map_cells(Some(25_000), &[(1, "new", 30_000)])),
        of_row(4, &map_cells(Some(15_000), &[(2, "deleted", 22_000), (3, "old", 16_000)])),
        cell(5, OTHER, "other", 10),
        insert_static(7, "only static", 40_000),
    ]
}

/// Cells that a client sees, one per line.
#[derive(Default)]
struct Seen(Vec<String>, i32);

impl RowSink for Seen {
    fn partition(&mut self, _: Token, key: &[u8], row: Option<RowRef<'_>>) -> Flow {
        self.1 = i32::from_be_bytes(key.try_into().unwrap());
        row.into_iter().for_each(|row| self.cells(row));
        Flow::Continue
    }

    fn row(&mut self, _: &[u8], row: RowRef<'_>) -> Flow {
        self.0.push(format!("{} row", self.1));
        self.cells(row);
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

impl Seen {
    fn cells(&mut self, row: RowRef<'_>) {
        let text = |cell: &CellRef<'_>| String::from_utf8(cell.value.to_vec()).unwrap();
        for (id, column) in row.columns() {
            let (pk, id) = (self.1, id.0);
            match column {
                ColumnRef::Simple(cell) => self.0.push(format!("{pk} {id} {}", text(&cell))),
                ColumnRef::Complex(complex) => {
                    let line = |(path, cell): (&[u8], CellRef<'_>)| {
                        format!("{pk} {id} {} {}", path.last().unwrap(), text(&cell))
                    };
                    self.0.extend(complex.cells().map(line));
                }
            }
        }
    }
}

async fn seen(store: &Store) -> Vec<String> {
    let mut sink = Seen::default();
    store.read(&read_of(Partitions::Range(KeyRange::all())), &mut sink).await.unwrap();
    sink.0.sort();
    let mut by_key = Seen::default();
    for pk in 1..=9 {
        store.read(&read_of(Partitions::Key(key(pk))), &mut by_key).await.unwrap();
    }
    by_key.0.sort();
    assert_eq!(sink.0, by_key.0);
    sink.0
}

/// Cells seen between DROP and ADD.
const WITHOUT: [&str; 4] = ["1 row", "2 row", "5 4 other", "5 row"];
/// Cells seen after ADD.
const AGAIN: [&str; 12] = [
    "1 2 new static",
    "1 3 new",
    "1 5 1 new",
    "1 row",
    "2 row",
    "3 3 alone",
    "3 row",
    "4 5 1 new",
    "4 row",
    "5 4 other",
    "5 row",
    "7 2 only static",
];

/// Operation between DROP and ADD.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Between {
    Flush,
    Compact,
    Upgrade,
    Scrub,
    Garbage,
    Cleanup,
    Restart,
    Stream,
    Import,
    /// A write of the column that was sent before the drop.
    Late,
    /// Rows are written again.
    Write,
}

const ALL: [Between; 11] = [
    Between::Flush,
    Between::Compact,
    Between::Upgrade,
    Between::Scrub,
    Between::Garbage,
    Between::Cleanup,
    Between::Restart,
    Between::Stream,
    Between::Import,
    Between::Late,
    Between::Write,
];

struct Place {
    store: Store,
    name: String,
    /// Another store each time.
    streams: u32,
    late: u32,
}

async fn carry_out(rt: &Rt, place: &mut Place, what: Between) {
    let store = &place.store;
    match what {
        Between::Flush => store.flush(None).await.unwrap(),
        Between::Compact => store.compactor().compact_major(TABLE).await.unwrap(),
        Between::Upgrade => {
            store.compactor().upgrade(TABLE, UpgradeScope::All).await.unwrap();
        }
        Between::Scrub => {
            for (_, scrubbed) in
                store.compactor().scrub(TABLE, None, ScrubOptions::default()).await.unwrap()
            {
                scrubbed.unwrap();
            }
        }
        Between::Garbage => {
            store
                .compactor()
                .garbage_collect(TABLE, compact_plan::TombstoneOption::Cell)
                .await
                .unwrap();
        }
        Between::Cleanup => {
            let half = codec::token_of(&key(1));
            let owned = OwnedRanges::new(vec![(Token::MIN, half), (half, Token::MAX)]);
            store.compactor().cleanup(TABLE, || Some(owned)).await.unwrap();
        }
        Between::Restart => {
            store.stop().await;
            place.store = open_at(rt, &place.name, dropped()).await;
        }
        Between::Stream => {
            place.streams += 1;
            let name = format!("{}-{}", place.name, place.streams);
            let to = open_at(rt, &name, dropped()).await;
            let mut ingest = to.transfer().ingest(TABLE).await.unwrap();
            let read = store.reader().read_stream(whole(1 << 20)).await.unwrap();
            ingest.page(&read.page).await.unwrap();
            ingest.finish().await.unwrap();
            store.stop().await;
            (place.store, place.name) = (to, name);
        }
        Between::Import => {
            place.streams += 1;
            store.flush(None).await.unwrap();
            let from =
                store.rooms.files.directories.directories_of(&table(TableOptions::default()));
            let name = format!("{}-{}", place.name, place.streams);
            let to = open_at(rt, &name, dropped()).await;
            let options = ImportOptions { copy: true, verify: true, ..ImportOptions::default() };
            // A compaction of a running store would remove files while they are copied.
            store.stop().await;
            let imported = to.transfer().import(TABLE, &from, &options).await.unwrap();
            assert_eq!(imported.failed, [], "{from:?}");
            to.transfer().adopt(TABLE, &imported.files).await.unwrap();
            (place.store, place.name) = (to, name);
        }
        Between::Late => {
            place.late += 1;
            write(store, &cell(8, VALUE, "late", 50_000)).await.unwrap();
        }
        Between::Write => {
            for pk in 1..=7 {
                write(store, &cell(pk, OTHER, "again", 60_000)).await.unwrap();
                write(store, &delete_row(9, 1, 60_000)).await.unwrap();
            }
        }
    }
}

/// Columns that one file has in its header, at most.
async fn columns_of_files(store: &Store) -> Vec<usize> {
    let table = store.rooms.tables.table(TABLE).unwrap();
    let files = &table.view().files;
    let header = |f: &std::rc::Rc<crate::tables::table_file::TableFile>| {
        let header = &f.reader.meta().statistics().header;
        header.statics.len() + header.regulars.len()
    };
    files.iter().map(header).collect()
}

fn check(seed: u64, list: impl Fn(&Rt) -> Vec<Between> + Send + Sync + Clone + 'static) {
    run(seed, move |rt| {
        let list = list.clone();
        async move {
            let store = open_at(&rt, "a", before_drop()).await;
            for mutation in mutations() {
                write(&store, &mutation).await.unwrap();
                if rt.random_u64().is_multiple_of(8) {
                    store.flush(None).await.unwrap();
                }
            }
            store.set_schema(dropped());
            assert_eq!(seen(&store).await, WITHOUT);
            let mut place = Place { store, name: "a".to_owned(), streams: 0, late: 0 };
            let list = list(&rt);
            for what in &list {
                carry_out(&rt, &mut place, *what).await;
                let mut without = WITHOUT.map(str::to_owned).to_vec();
                if list.iter().take_while(|w| !std::ptr::eq(*w, what)).any(|w| *w == Between::Write)
                    || *what == Between::Write
                {
                    without = (1..=7)
                        .flat_map(|pk| [format!("{pk} 4 again"), format!("{pk} row")])
                        .collect();
                }
                assert_eq!(seen(&place.store).await, without, "seed {seed}: {list:?}, {what:?}");
            }
            place.store.set_schema(added());
            let mut again: Vec<String> = AGAIN.map(str::to_owned).to_vec();
            if place.late > 0 {
                again.extend(["8 3 late".to_owned(), "8 row".to_owned()]);
            }
            if list.contains(&Between::Write) {
                again.retain(|line| line != "5 4 other");
                again.extend((1..=7).flat_map(|pk| [format!("{pk} 4 again"), format!("{pk} row")]));
                again.sort();
                again.dedup();
            }
            assert_eq!(seen(&place.store).await, again, "seed {seed}: {list:?}");
            // Data that no drop hides stays visible, however the files are written.
            place.store.compactor().compact_major(TABLE).await.unwrap();
            assert_eq!(seen(&place.store).await, again, "seed {seed}: {list:?}");
        }
    });
}

/// INV-hidden-1.
#[test]
fn each_action_between_drop_and_add_keeps_newer_cells() {
    for (seed, what) in (0..).zip(ALL) {
        check(seed, move |_| vec![what]);
        check(seed + 100, move |_| vec![Between::Flush, what, Between::Compact]);
    }
}

#[test]
fn any_actions_between_drop_and_add_keep_newer_cells() {
    for seed in 1000..1060 {
        check(seed, |rt| {
            let count = 1 + rt.random_u64() % 6;
            (0..count).map(|_| ALL[(rt.random_u64() % ALL.len() as u64) as usize]).collect()
        });
    }
}

#[test]
fn a_replay_between_drop_and_add_keeps_newer_cells() {
    let world = world(7);
    run_in(&world, |rt| async move {
        let store = open_at(&rt, "a", before_drop()).await;
        for mutation in mutations() {
            write(&store, &mutation).await.unwrap();
        }
        store.set_schema(dropped());
        store.commit().await.unwrap();
    });
    run_in(&world, |rt| async move {
        let store = open_at(&rt, "a", dropped()).await;
        assert!(store.table_stats(TABLE).memtable_mutations > 0, "nothing was replayed");
        store.compactor().compact_major(TABLE).await.unwrap();
        assert_eq!(seen(&store).await, WITHOUT);
        store.set_schema(added());
        assert_eq!(seen(&store).await, AGAIN);
    });
}

#[test]
fn a_file_opened_between_drop_and_add_shows_newer_cells_without_a_restart() {
    run(8, |rt| async move {
        let store = open_at(&rt, "a", before_drop()).await;
        for mutation in mutations() {
            write(&store, &mutation).await.unwrap();
        }
        store.flush(None).await.unwrap();
        store.stop().await;
        let store = open_at(&rt, "a", dropped()).await;
        assert_eq!(seen(&store).await, WITHOUT);
        store.set_schema(added());
        assert_eq!(seen(&store).await, AGAIN);
    });
}

#[test]
fn files_without_newer_cells_do_not_have_a_dropped_column() {
    run(9, |rt| async move {
        let store = open_at(&rt, "a", before_drop()).await;
        for pk in 1..50 {
            write(&store, &insert(pk, 1, "old", DROPPED_AT)).await.unwrap();
        }
        store.flush(None).await.unwrap();
        // It is in the memtable when the column is dropped.
        write(&store, &insert(1, 2, "old", DROPPED_AT)).await.unwrap();
        assert_eq!(columns_of_files(&store).await, [4]);
        store.set_schema(dropped());
        write(&store, &cell(1, OTHER, "x", DROPPED_AT + 5)).await.unwrap();
        store.flush(None).await.unwrap();
        assert_eq!(columns_of_files(&store).await, [4, 1]);
        store.compactor().compact_major(TABLE).await.unwrap();
        assert_eq!(columns_of_files(&store).await, [1]);
        // With one of them the file has that column, and no other.
        write(&store, &cell(1, VALUE, "late", DROPPED_AT + 1)).await.unwrap();
        store.flush(None).await.unwrap();
        assert_eq!(columns_of_files(&store).await, [1, 2]);
        store.compactor().compact_major(TABLE).await.unwrap();
        assert_eq!(columns_of_files(&store).await, [2]);
    });
}
