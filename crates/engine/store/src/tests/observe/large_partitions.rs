//! Partitions, rows and cells that have too much in one file.

use std::cell::RefCell;
use std::rc::Rc;

use crate::observe::large_partitions::{
    LargeFate, LargeThresholds, PartitionGuardrails, Thresholds,
};
use crate::tables::large_files::{CellFacts, LargeEvent, PartitionFacts, RowFacts, SstableName};
use crate::tests::*;

#[test]
fn flushes_and_compactions_tell_of_partitions_above_the_limits() {
    let (heard, world) = (Arc::new(Mutex::new(Vec::new())), world(910));
    let told = heard.clone();
    run_in(&world, move |rt| {
        let told = told.clone();
        async move {
            let store = Store::open(rt.clone(), options(&rt), schema()).await.unwrap().0;
            let notes = told.clone();
            store.observer().on_large_partition(move |(is_error, text)| {
                notes.lock().unwrap().push((is_error, text));
            });
            let limits = |bytes, tombstones| PartitionGuardrails {
                size: Thresholds { warn: None, fail: Some(bytes) },
                tombstones: Thresholds { warn: Some(tombstones), fail: None },
                ..PartitionGuardrails::default()
            };
            store.observer().set_partition_guardrails(limits(2_000, 3));
            // 1 has much, 2 has four deletions, 3 neither; a deleted partition counts once.
            write(&store, &insert(1, 1, &"x".repeat(2_000), 5)).await.unwrap();
            for ck in 0..3 {
                write(&store, &delete_row(2, ck, 5)).await.unwrap();
            }
            write(&store, &delete_partition(2, 1)).await.unwrap();
            write(&store, &insert(3, 1, "x", 5)).await.unwrap();
            write(&store, &delete_partition(3, 1)).await.unwrap();
            store.flush(None).await.unwrap();
            let said: Vec<(bool, String)> = std::mem::take(&mut *told.lock().unwrap());
            assert_eq!(said.len(), 2, "{said:?}");
            let of = |key: &str| {
                let here =
                    |(_, text): &&(bool, String)| text.contains(&format!("{key} on sstable "));
                said.iter().find(here).unwrap_or_else(|| panic!("{key}: {said:?}"))
            };
            let (is_error, text) = of(":1");
            assert!(*is_error && text.starts_with("Guardrail partition_size violated"), "{text}");
            assert!(text.contains("the failure threshold of 2000."), "{text}");
            let (is_error, text) = of(":2");
            assert!(!*is_error && text.contains(":2 on sstable"), "{text}");
            assert!(
                text.contains("has 4 tombstones, this exceeds the warning threshold of 3."),
                "{text}"
            );

            // A compaction brings together what no file had alone; limits may change meanwhile.
            store.observer().set_partition_guardrails(limits(u64::MAX, 4));
            for ck in 10..12 {
                write(&store, &delete_row(2, ck, 6)).await.unwrap();
            }
            store.flush(None).await.unwrap();
            assert!(told.lock().unwrap().is_empty());
            store.compactor().compact_major(TABLE).await.unwrap();
            let said = std::mem::take(&mut *told.lock().unwrap());
            assert_eq!(said.len(), 1, "{said:?}");
            assert!(said[0].1.contains("has 6 tombstones"), "{said:?}");

            store.observer().set_partition_guardrails(PartitionGuardrails::default());
            write(&store, &insert(1, 2, "y", 7)).await.unwrap();
            store.flush(None).await.unwrap();
            store.compactor().compact_major(TABLE).await.unwrap();
            assert!(told.lock().unwrap().is_empty());
        }
    });
}

/// Summary of a report; `-` before a file that is gone.
pub(crate) fn told_of(event: &LargeEvent) -> Vec<String> {
    match event {
        LargeEvent::Gone(name) => vec![format!("-{}", name.table)],
        LargeEvent::Found(file) => {
            let p = |p: &PartitionFacts| {
                let (rows, ranges, dead) = (p.rows, p.range_tombstones, p.dead_rows);
                format!("partition {} {rows} rows {ranges} ranges {dead} dead", p.partition_key)
            };
            let r = |r: &RowFacts| format!("row {} {}", r.partition_key, r.clustering_key);
            let c = |c: &CellFacts| {
                let (key, clustering) = (&c.partition_key, &c.clustering_key);
                format!("cell {key} {clustering} {} {} {}", c.column, c.bytes, c.elements)
            };
            let mut all: Vec<String> = file.partitions.iter().map(p).collect();
            all.extend(file.rows.iter().map(r));
            all.extend(file.cells.iter().map(c));
            all
        }
    }
}

/// The usual table with a map beside.
pub(crate) fn schema_with_map() -> Arc<Schema> {
    let options = TableOptions { gc_grace_seconds: i32::MAX, ..TableOptions::default() };
    let mut table = table(options);
    let text = || Arc::new(CqlType::Text);
    table.columns.push(Column {
        id: ColumnId(5),
        name: "m".into(),
        ty: CqlType::Map { key: text(), value: text(), frozen: false },
        kind: ColumnKind::Regular,
    });
    table.columns[3..].sort_by(|a, b| a.name.cmp(&b.name));
    table.next_column_id = 6;
    schema_of(vec![table])
}

/// A row of a map with this many entries.
pub(crate) fn insert_map(pk: i32, ck: i32, entries: u32) -> Vec<u8> {
    let mut row = Vec::new();
    let at = TimestampMicros(5);
    let mut builder = RowBuilder::new(&mut row, Liveness::new(at), DeletionTime::LIVE, at);
    builder.begin_complex(ColumnId(5), DeletionTime::LIVE);
    for n in 0..entries {
        builder.complex_cell(format!("{n:04}").as_bytes(), &CellRef::live(at, b"x"));
    }
    builder.end_complex();
    builder.finish();
    let clustering = clustering(ck);
    encode(pk, |m| m.rows([(clustering.as_slice(), RowRef::trusted(&row))].into_iter()))
}

pub(crate) const THRESHOLDS: LargeThresholds = LargeThresholds {
    partition_bytes: 40_000,
    partition_rows: 20,
    row_bytes: 3_000,
    cell_bytes: 2_000,
    elements: 50,
};

#[test]
fn files_with_large_rows_and_cells_are_told_of_as_long_as_they_are_used() {
    let world = world(911);
    let known: Arc<Mutex<Vec<SstableName>>> = Arc::default();
    let of_run = known.clone();
    run_in(&world, move |rt| {
        let known = of_run.clone();
        async move {
            let opened = Store::open(rt.clone(), options(&rt), schema_with_map()).await;
            let store = opened.unwrap().0;
            store.observer().set_large_thresholds(THRESHOLDS);
            let events: Rc<RefCell<Vec<LargeEvent>>> = Rc::default();
            let logged: Rc<RefCell<Vec<String>>> = Rc::default();
            let (told, lines) = (events.clone(), logged.clone());
            store.observer().on_large_data(move |event| told.borrow_mut().push(event));
            store.observer().on_large_partition(move |(_, text)| lines.borrow_mut().push(text));
            let take = async || {
                rt.sleep(Duration::from_secs(2)).await;
                let events = std::mem::take(&mut *events.borrow_mut());
                for event in &events {
                    if let LargeEvent::Found(file) = event {
                        known.lock().unwrap().push(file.name.clone());
                    }
                }
                let mut told: Vec<String> = events.iter().flat_map(told_of).collect();
                told.sort();
                told
            };

            // At a limit nothing is large.
            write(&store, &insert(1, 1, &"x".repeat(2_000), 5)).await.unwrap();
            write(&store, &insert_map(1, 2, 50)).await.unwrap();
            for ck in 0..20 {
                write(&store, &insert(2, ck, "x", 5)).await.unwrap();
            }
            store.flush(None).await.unwrap();
            assert_eq!(take().await, Vec::<String>::new());
            assert!(logged.borrow().is_empty(), "{logged:?}");

            write(&store, &insert(1, 1, &"x".repeat(2_001), 6)).await.unwrap();
            write(&store, &insert_map(1, 2, 51)).await.unwrap();
            write(&store, &insert(3, 3, &"x".repeat(3_000), 6)).await.unwrap();
            write(&store, &insert_static(3, &"y".repeat(2_500), 6)).await.unwrap();
            for ck in 0..18 {
                write(&store, &insert(2, ck, "x", 6)).await.unwrap();
            }
            for ck in 18..21 {
                write(&store, &delete_row(2, ck, 6)).await.unwrap();
            }
            write(&store, &delete_range(2, 30, 40, 6)).await.unwrap();
            // One of its columns is deleted; the row still exists.
            let at = TimestampMicros(6);
            let dead = (VALUE, CellRef::tombstone(at, DeletionSeconds(1_000_000)));
            let row = packed(Liveness::new(at), DeletionTime::LIVE, &[dead]);
            let of = clustering(0);
            let rows = || [(of.as_slice(), RowRef::trusted(&row))].into_iter();
            write(&store, &encode(2, |m| m.rows(rows()))).await.unwrap();
            store.flush(None).await.unwrap();
            let expect = [
                "cell 1 1 v 2001 0",
                "cell 1 2 m 255 51",
                "cell 3  s 2500 0",
                "cell 3 3 v 3000 0",
                "partition 2 21 rows 1 ranges 3 dead",
                "row 3 3",
            ];
            assert_eq!(take().await, expect);
            let said = std::mem::take(&mut *logged.borrow_mut());
            assert_eq!(said.len(), 6, "{said:?}");
            assert!(
                said.iter().any(|s| s.starts_with("Writing large row ks/t: 3 3 (30")),
                "{said:?}"
            );
            assert!(
                said.iter().any(|s| s.starts_with("Writing large cell ks/t: 1 2 m (255 bytes, 51")),
                "{said:?}"
            );

            // A compaction makes one of both files, and what was large in one is so in the other.
            store.compactor().compact_major(TABLE).await.unwrap();
            let mut after: Vec<String> = expect.map(str::to_owned).to_vec();
            after.insert(0, "-t".to_owned());
            assert_eq!(take().await, after);
            known.lock().unwrap().remove(0);
            store.stop().await;
        }
    });
    run_in(&world, move |rt| {
        let known = known.clone();
        async move {
            let opened = Store::open(rt.clone(), options(&rt), schema_with_map()).await;
            let store = opened.unwrap().0;
            let events: Rc<RefCell<Vec<LargeEvent>>> = Rc::default();
            let told = events.clone();
            store.observer().on_large_data(move |event| told.borrow_mut().push(event));
            // When the existing one of the files that an earlier run reported is removed, a report
            // follows.
            let known = std::mem::take(&mut *known.lock().unwrap());
            let [used] = known.as_slice() else { panic!("{known:?}") };
            assert_eq!(store.observer().large_fate(used), LargeFate::Used);
            let mut gone = used.clone();
            gone.sstable = gone.sstable.replace(|c: char| c.is_ascii_digit(), "7");
            assert_eq!(store.observer().large_fate(&gone), LargeFate::Gone);
            gone.sstable = "what is this".to_owned();
            assert_eq!(store.observer().large_fate(&gone), LargeFate::Gone);
            store.lifecycle().truncate(TABLE, TimestampMicros(1_000_000)).await.unwrap();
            rt.sleep(Duration::from_secs(2)).await;
            assert_eq!(*events.borrow(), [LargeEvent::Gone(used.clone())]);

            store.observer().set_large_thresholds(THRESHOLDS);
            write(&store, &insert(3, 3, &"x".repeat(3_000), 6)).await.unwrap();
            store.flush(None).await.unwrap();
            rt.sleep(Duration::from_secs(2)).await;
            assert_eq!(events.borrow().len(), 2);
            store.set_schema(schema_of(Vec::new()));
            assert!(matches!(events.borrow().last(), Some(LargeEvent::Gone(_))), "dropped");
            assert_eq!(events.borrow().len(), 3);
            store.stop().await;
        }
    });
}

/// Cells of the map of a row.
fn map_cells<'a>(pk: i32, ck: i32, cells: impl Iterator<Item = (u32, CellRef<'a>)>) -> Vec<u8> {
    let mut row = Vec::new();
    let base = TimestampMicros(5);
    let mut builder = RowBuilder::new(&mut row, Liveness::NONE, DeletionTime::LIVE, base);
    builder.begin_complex(ColumnId(5), DeletionTime::LIVE);
    for (n, cell) in cells {
        builder.complex_cell(format!("{n:04}").as_bytes(), &cell);
    }
    builder.end_complex();
    builder.finish();
    let clustering = clustering(ck);
    encode(pk, |m| m.rows([(clustering.as_slice(), RowRef::trusted(&row))].into_iter()))
}

#[test]
fn collections_above_their_guardrails_are_told_of_when_a_file_is_written() {
    run_in(&world(912), |rt| async move {
        let opened = Store::open(rt.clone(), options(&rt), schema_with_map()).await;
        let store = opened.unwrap().0;
        let logged: Rc<RefCell<Vec<(bool, String)>>> = Rc::default();
        let lines = logged.clone();
        store.observer().on_large_partition(move |line| lines.borrow_mut().push(line));
        let take = || std::mem::take(&mut *logged.borrow_mut());
        let guardrails = PartitionGuardrails {
            collection_size: Thresholds { warn: Some(111), fail: None },
            collection_items: Thresholds { warn: Some(3), fail: Some(5) },
            ..PartitionGuardrails::default()
        };
        store.observer().set_partition_guardrails(guardrails);
        let live = |n| (n, CellRef::live(TimestampMicros(5), b"x"));

        // Four of 4 + 1 + 20 bytes, and 12 for the whole.
        write(&store, &map_cells(1, 1, (0..3).map(live))).await.unwrap();
        write(&store, &map_cells(1, 2, (0..4).map(live))).await.unwrap();
        store.flush(None).await.unwrap();
        let what = "Detected collection m in row (1, 2) in table ks.t";
        let size = format!(
            "Guardrail collection_size violated: {what} of size 112, this exceeds the warning threshold of 111."
        );
        let items = format!(
            "Guardrail items_per_collection violated: {what} with 4 items, this exceeds the warning threshold of 3."
        );
        assert_eq!(take(), [(false, size), (false, items)]);

        // A collection that no single file has.
        write(&store, &map_cells(1, 1, (3..6).map(live))).await.unwrap();
        store.flush(None).await.unwrap();
        assert_eq!(take(), []);
        store.observer().set_partition_guardrails(PartitionGuardrails {
            collection_size: Thresholds::default(),
            ..guardrails
        });
        store.compactor().compact_major(TABLE).await.unwrap();
        let said = take();
        let failed = "Guardrail items_per_collection violated: Detected collection m in row (1, 1) in table ks.t \
                      with 6 items, this exceeds the failure threshold of 5.";
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said.contains(&(true, failed.to_owned())), "{said:?}");

        // Only live elements count.
        let at = TimestampMicros(6);
        let dead = |n| (n, CellRef::tombstone(at, DeletionSeconds(1_000_000)));
        write(&store, &map_cells(1, 1, (0..3).map(dead))).await.unwrap();
        write(&store, &map_cells(1, 2, (0..1).map(dead))).await.unwrap();
        store.flush(None).await.unwrap();
        store.compactor().compact_major(TABLE).await.unwrap();
        assert_eq!(take(), []);

        store.observer().set_partition_guardrails(PartitionGuardrails::default());
        write(&store, &insert_map(1, 3, 500)).await.unwrap();
        store.flush(None).await.unwrap();
        assert_eq!(take(), []);
        store.stop().await;
    });
}

#[test]
fn guardrails_of_collections_concern_tables_of_users_that_have_some() {
    let is_guarded = |table: &Table| {
        let store = crate::observe::large_partitions::Limits::with(PartitionGuardrails {
            collection_items: Thresholds { warn: Some(3), fail: None },
            ..PartitionGuardrails::default()
        });
        store.of_writer(table, NOW).collection_items == 3
    };
    let with_map = schema_with_map().tables_by_id[&TABLE].clone();
    assert!(is_guarded(&with_map));
    for keyspace in ["system", "system_auth"] {
        assert!(!is_guarded(&Table { keyspace: keyspace.into(), ..Table::clone(&with_map) }));
    }
    assert!(!is_guarded(&table(TableOptions::default())));
    let mut frozen = Table::clone(&with_map);
    for column in &mut frozen.columns {
        column.ty = column.ty.freeze();
    }
    assert!(!is_guarded(&frozen));
}
