//! Reads of files in the order of their timestamps find the same as merges of all files, in fewer files.

use data::replica_page::PageLimits;
use stdx::TtlSeconds;

use crate::tests::*;
use crate::{ReadScope, ReadStats};

const OTHER: ColumnId = ColumnId(4);

fn below(rt: &Rt, count: u64) -> u64 {
    rt.random_u64() % count
}

/// With clusterings, or one row to a partition.
fn schema_with(is_skinny: bool) -> Arc<Schema> {
    let options = TableOptions {
        gc_grace_seconds: i32::MAX,
        compaction: BTreeMap::from([
            ("class".to_owned(), "SizeTieredCompactionStrategy".to_owned()),
            ("enabled".to_owned(), "false".to_owned()),
        ]),
        ..TableOptions::default()
    };
    let mut table = table(options);
    if is_skinny {
        // Without clusterings there are no static columns either.
        table.columns.retain(|c| c.id != ColumnId(1) && c.id != STATIC);
        (table.clustering_count, table.static_count) = (0, 0);
    }
    schema_of(vec![table])
}

async fn open_with(rt: &Rt, is_skinny: bool) -> Store {
    Store::open(rt.clone(), options(rt), schema_with(is_skinny)).await.unwrap().0
}

fn clustering_in(is_skinny: bool, ck: i32) -> Vec<u8> {
    if is_skinny { Vec::new() } else { clustering(ck) }
}

/// A mutation of a row of its cells.
fn put(pk: i32, of: &[u8], liveness: Liveness, cells: &[(ColumnId, CellRef<'_>)]) -> Vec<u8> {
    let row = packed(liveness, DeletionTime::LIVE, cells);
    encode(pk, |m| m.rows([(of, RowRef::trusted(&row))].into_iter()))
}

/// Kind of data that a seed writes.
#[derive(Clone, Copy)]
struct Kind {
    is_skinny: bool,
    /// Nothing is deleted or expires.
    is_plain: bool,
    /// Timestamps are multiples of it.
    clock: i64,
}

/// Cells of every kind: live, expired or not at [`NOW`], and deleted.
fn random_cell<'v>(rt: &Rt, kind: Kind, timestamp: i64, value: &'v str) -> CellRef<'v> {
    let timestamp = TimestampMicros(timestamp);
    let expires = |seconds| DeletionSeconds(NOW.0 + seconds);
    match below(rt, 10) {
        0..3 if kind.is_plain => CellRef::live(timestamp, value.as_bytes()),
        0 => CellRef::tombstone(timestamp, DeletionSeconds(1_000_000)),
        1 => CellRef::expiring(timestamp, TtlSeconds(1_000), expires(-5), value.as_bytes()),
        2 => CellRef::expiring(timestamp, TtlSeconds(1_000), expires(500), value.as_bytes()),
        _ => CellRef::live(timestamp, value.as_bytes()),
    }
}

fn random_liveness(rt: &Rt, kind: Kind, timestamp: i64) -> Liveness {
    let plain = Liveness::new(TimestampMicros(timestamp));
    match below(rt, 6) {
        0 | 1 => Liveness::NONE,
        2 if kind.is_plain => plain,
        2 => Liveness { ttl: TtlSeconds(1_000), expires_at: DeletionSeconds(NOW.0 - 5), ..plain },
        _ => plain,
    }
}

/// Timestamps mostly ascend with the steps, as clocks do, but not always.
fn random_mutation(rt: &Rt, step: i64, kind: Kind) -> Vec<u8> {
    let is_skinny = kind.is_skinny;
    let back = [0, 0, 3, 20, 200][below(rt, 5) as usize];
    let timestamp = (1_000 + step - below(rt, back + 1) as i64) / kind.clock * kind.clock;
    let (pk, ck) = (below(rt, 3) as i32, below(rt, 5) as i32);
    let of = clustering_in(is_skinny, ck);
    let value = format!("{step}");
    let cell = |id| (id, random_cell(rt, kind, timestamp, &value));
    match below(rt, 24) {
        0..5 if kind.is_plain => put(pk, &of, random_liveness(rt, kind, timestamp), &[cell(OTHER)]),
        0 => delete_partition(pk, timestamp),
        1 | 2 if !is_skinny => delete_range(pk, ck, ck + 1 + below(rt, 3) as i32, timestamp),
        3 | 4 if !is_skinny => delete_row(pk, ck, timestamp),
        5 | 6 if !is_skinny => insert_static(pk, &value, timestamp),
        3 | 4 => {
            let row = packed(Liveness::NONE, deletion(timestamp), &[]);
            encode(pk, |m| m.rows([(of.as_slice(), RowRef::trusted(&row))].into_iter()))
        }
        7..12 => put(pk, &of, random_liveness(rt, kind, timestamp), &[cell(VALUE)]),
        12..15 => put(pk, &of, random_liveness(rt, kind, timestamp), &[cell(OTHER)]),
        15 => put(pk, &of, random_liveness(rt, kind, timestamp), &[]),
        _ => put(pk, &of, random_liveness(rt, kind, timestamp), &[cell(VALUE), cell(OTHER)]),
    }
}

/// Names of rows, or bounds.
fn random_slices(rt: &Rt, is_skinny: bool) -> Slices {
    if is_skinny || below(rt, 8) == 0 {
        return Slices::all();
    }
    if below(rt, 6) == 0 {
        let from = below(rt, 5) as i32;
        return slice(from, from + 1 + below(rt, 3) as i32);
    }
    let chosen = below(rt, 31) + 1;
    let mut cks: Vec<i32> = (0..5).filter(|ck| chosen >> ck & 1 == 1).collect();
    cks.truncate(1 + below(rt, 3) as usize);
    Slices(cks.into_iter().map(|ck| Slice::prefix(clustering(ck))).collect())
}

/// Rows with the requested columns.
#[derive(Default)]
struct Seen {
    columns: Vec<ColumnId>,
    wants_static: bool,
    partition: String,
    rows: Vec<String>,
    of_partition: usize,
}

impl Seen {
    fn show(&self, row: RowRef<'_>, is_static: bool) -> String {
        let looked_at = self.columns.iter().filter(|id| (**id == STATIC) == is_static);
        let cells = looked_at.map(|id| (*id, text_of(row, *id)));
        format!("{:?}", cells.collect::<Vec<_>>())
    }
}

impl RowSink for Seen {
    fn partition(&mut self, _: Token, key: &[u8], static_row: Option<RowRef<'_>>) -> Flow {
        let looked_at = self.columns.contains(&STATIC);
        let shown = static_row.filter(|_| looked_at).map(|row| self.show(row, true));
        self.partition = format!("{key:?} {shown:?}");
        self.of_partition = 0;
        Flow::Continue
    }

    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        self.of_partition += 1;
        let row = self.show(row, false);
        self.rows.push(format!("{} {clustering:?} {row}", self.partition));
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        assert!(self.of_partition > 0 || self.wants_static);
        if self.of_partition == 0 {
            self.rows.push(self.partition.clone());
        }
        Flow::Continue
    }
}

async fn seen(store: &Store, command: &ReadCommand) -> (Vec<String>, ReadStats) {
    let all = [STATIC, VALUE, OTHER];
    let columns = command.columns.as_ref().map_or(all.to_vec(), |c| c.to_vec());
    let mut sink = Seen { columns, wants_static: command.wants_static, ..Seen::default() };
    let stats = store.read(command, &mut sink).await.unwrap();
    (sink.rows, stats)
}

/// Scans and reads for repairs merge all files: the others must find the same. Returns the numbers of
/// files that the two kinds of reads have read.
async fn compare(rt: &Rt, store: &Store, is_skinny: bool, place: &str) -> (u64, u64) {
    let mask = below(rt, 8);
    let chosen = [STATIC, VALUE, OTHER].into_iter().enumerate();
    let chosen = chosen.filter(|(at, id)| mask >> at & 1 == 1 && (!is_skinny || *id != STATIC));
    let columns: Vec<ColumnId> = chosen.map(|(_, id)| id).collect();
    let by_key = ReadCommand {
        slices: random_slices(rt, is_skinny).into(),
        reversed: below(rt, 4) == 0,
        columns: (below(rt, 4) > 0).then(|| columns.into()),
        wants_static: !is_skinny && below(rt, 4) == 0,
        bypass_cache: below(rt, 4) == 0,
        now: DeletionSeconds(NOW.0 + [0, 1_000][below(rt, 2) as usize]),
        ..ReadCommand::whole(TABLE, Partitions::Key(key(below(rt, 3) as i32)), NOW)
    };
    let Partitions::Key(pk) = &by_key.partitions else { unreachable!() };
    let (found, stats) = seen(store, &by_key).await;
    let range = Partitions::Range(KeyRange::all());
    let scan = ReadCommand { partitions: range, reversed: false, ..by_key.clone() };
    let (mut scanned, _) = seen(store, &scan).await;
    let of_key = format!("{pk:?} ");
    scanned.retain(|row| row.starts_with(&of_key));
    if by_key.reversed {
        scanned.reverse();
    }
    assert_eq!(found, scanned, "{place}: {by_key:?}");

    let (limits, all) = (PageLimits::default(), DeletionSeconds(i64::MIN));
    let page = store.reader().read_replica(&by_key, limits, true, all).await.unwrap();
    let merged =
        store.reader().read_for_repair(&by_key, limits, all, ReadScope::Repair).await.unwrap();
    assert_eq!(page.page, merged.page, "{place}: pages of {by_key:?}");
    let looked = u64::from(stats.sstables) + u64::from(page.stats.sstables);
    (looked, 2 * u64::from(merged.stats.sstables))
}

/// INV-by-timestamp-1.
#[test]
fn any_read_of_a_partition_finds_what_a_merge_of_all_files_finds() {
    let counts: Arc<Mutex<(u64, u64)>> = Arc::default();
    for seed in 0..40_u64 {
        let told = counts.clone();
        run(1_100 + seed, move |rt| {
            let told = told.clone();
            async move {
                let is_skinny = seed % 4 == 3;
                let is_plain = seed % 5 == 2;
                let kind = Kind { is_skinny, is_plain, clock: [1, 8][seed as usize / 4 % 2] };
                let store = open_with(&rt, is_skinny).await;
                for step in 0..160_i64 {
                    write(&store, &random_mutation(&rt, step, kind)).await.unwrap();
                    if below(&rt, 12) == 0 {
                        store.flush(None).await.unwrap();
                    }
                    if below(&rt, 200) == 0 {
                        store.compactor().compact_major(TABLE).await.unwrap();
                    }
                    if step % 4 == 0 {
                        let place = format!("seed {seed}, step {step}");
                        let (looked, there) = compare(&rt, &store, is_skinny, &place).await;
                        let mut told = told.lock().unwrap();
                        (told.0, told.1) = (told.0 + looked, told.1 + there);
                    }
                }
                store.stop().await;
            }
        });
    }
    let (looked, there) = *counts.lock().unwrap();
    assert!(looked * 10 < there * 8, "{looked} files of {there}");
}

/// Files that a read of one row reads.
async fn files_of(store: &Store, columns: Option<&[ColumnId]>, ck: i32) -> u32 {
    let command = ReadCommand {
        slices: Slices(vec![Slice::prefix(clustering(ck))]).into(),
        columns: columns.map(Into::into),
        ..ReadCommand::whole(TABLE, Partitions::Key(key(1)), NOW)
    };
    seen(store, &command).await.1.sstables
}

#[test]
fn a_row_that_is_complete_in_the_newest_file_is_looked_for_in_no_other() {
    run(1_180, |rt| async move {
        let store = open_with(&rt, false).await;
        let cell = |id, at| (id, CellRef::live(TimestampMicros(at), b"x"));
        let new = |at| Liveness::new(TimestampMicros(at));
        let of = clustering(2);
        for at in [100, 200, 300] {
            let row = put(1, &of, new(at), &[cell(VALUE, at), cell(OTHER, at)]);
            write(&store, &row).await.unwrap();
            store.flush(None).await.unwrap();
        }
        let (value, both) = ([VALUE], [VALUE, OTHER]);
        assert_eq!(files_of(&store, Some(&both), 2).await, 1);
        // The static row may be in any file.
        assert_eq!(files_of(&store, None, 2).await, 3);
        // No file has such a row, and each is read, as it may have its static row.
        assert_eq!(files_of(&store, Some(&value), 3).await, 3);

        // One column alone is newer: a read of the other one needs one more file.
        write(&store, &put(1, &of, Liveness::NONE, &[cell(VALUE, 400)])).await.unwrap();
        store.flush(None).await.unwrap();
        assert_eq!(files_of(&store, Some(&value), 2).await, 1);
        assert_eq!(files_of(&store, Some(&both), 2).await, 2);
        // In memory it is complete.
        let row = put(1, &of, new(500), &[cell(VALUE, 500), cell(OTHER, 500)]);
        write(&store, &row).await.unwrap();
        assert_eq!(files_of(&store, Some(&both), 2).await, 0);
        write(&store, &delete_row(1, 2, 600)).await.unwrap();
        assert_eq!(files_of(&store, Some(&both), 2).await, 0, "deleted behind all files");

        // A deletion of the partition in a file leaves older ones out of reads of any kind.
        write(&store, &delete_partition(1, 700)).await.unwrap();
        write(&store, &put(1, &of, new(800), &[cell(VALUE, 800)])).await.unwrap();
        store.flush(None).await.unwrap();
        assert_eq!(files_of(&store, Some(&both), 2).await, 1);
        let whole = ReadCommand::whole(TABLE, Partitions::Key(key(1)), NOW);
        let (rows, stats) = seen(&store, &whole).await;
        assert_eq!((rows.len(), stats.sstables), (1, 1));
        // Nine reads of twelve files; each counts one more.
        let per_read = store.table_stats(TABLE).sstables_per_read;
        assert_eq!((per_read.buckets.iter().sum::<u64>(), per_read.sum), (9, 21));
    });
}

/// A deletion wins over a cell of the same timestamp, so only an older liveness makes the row
/// exist.
#[test]
fn a_cell_that_may_have_lost_proves_no_row() {
    run(1_183, |rt| async move {
        let store = open_with(&rt, false).await;
        let at = TimestampMicros(8);
        let of = clustering(2);
        write(&store, &put(1, &of, Liveness::new(TimestampMicros(1)), &[])).await.unwrap();
        store.flush(None).await.unwrap();
        let live = (VALUE, CellRef::live(at, b"x"));
        write(&store, &put(1, &of, Liveness::NONE, &[live])).await.unwrap();
        store.flush(None).await.unwrap();
        let dead = (VALUE, CellRef::tombstone(at, DeletionSeconds(1_000_000)));
        write(&store, &put(1, &of, Liveness::NONE, &[dead])).await.unwrap();
        let command = ReadCommand {
            slices: Slices(vec![Slice::prefix(of)]).into(),
            columns: Some([VALUE].into()),
            ..ReadCommand::whole(TABLE, Partitions::Key(key(1)), NOW)
        };
        assert_eq!(seen(&store, &command).await.0.len(), 1);
    });
}

/// Rows too large to be copied are read as they are.
#[test]
fn large_rows_are_found_too() {
    run(1_181, |rt| async move {
        let options = StoreOptions { segment_bytes: 4 << 20, ..options(&rt) };
        let opened = Store::open(rt.clone(), options, schema_with(false)).await;
        let store = opened.unwrap().0;
        let text = "x".repeat(300 << 10);
        for at in [100, 200, 300] {
            let (timestamp, value) = (TimestampMicros(at), format!("{at}{text}"));
            let cell = (VALUE, CellRef::live(timestamp, value.as_bytes()));
            write(&store, &put(1, &clustering(2), Liveness::NONE, &[cell])).await.unwrap();
            store.flush(None).await.unwrap();
        }
        let command = ReadCommand {
            slices: Slices(vec![Slice::prefix(clustering(2))]).into(),
            columns: Some([VALUE, OTHER].into()),
            ..ReadCommand::whole(TABLE, Partitions::Key(key(1)), NOW)
        };
        let (rows, stats) = seen(&store, &command).await;
        assert!(rows.len() == 1 && rows[0].contains("300xxx"), "{} rows", rows.len());
        assert_eq!(stats.sstables, 3);
    });
}

/// Reads that must not fill the caches.
#[test]
fn reads_that_pass_by_the_caches_leave_nothing_there() {
    run(1_182, |rt| async move {
        let mut cached = schema_with(false).tables_by_id[&TABLE].as_ref().clone();
        cached.options.caching.insert("rows_per_partition".to_owned(), "ALL".to_owned());
        let options = StoreOptions { row_cache_bytes_max: 1 << 20, ..options(&rt) };
        let opened = Store::open(rt.clone(), options, schema_of(vec![cached])).await;
        let store = opened.unwrap().0;
        for (pk, value) in [(1, "a"), (1, "b"), (2, "c")] {
            write(&store, &insert(pk, 1, value, 100 + i64::from(pk))).await.unwrap();
            store.flush(None).await.unwrap();
        }
        for file in &store.rooms.tables.table(TABLE).unwrap().view().files {
            store.rooms.files.cache.forget(file.id);
        }
        let limits = PageLimits::default();
        for partitions in [Partitions::Key(key(1)), Partitions::Range(KeyRange::all())] {
            let before = store.rooms.reader.row_cache.stats().requests;
            let passing = ReadCommand { bypass_cache: true, ..read_of(partitions) };
            let rows = read(&store, &passing).await;
            assert!(!rows.is_empty());
            let all = DeletionSeconds(i64::MIN);
            store.reader().read_replica(&passing, limits, true, all).await.unwrap();
            assert_eq!(store.rooms.files.cache.bytes(), 0, "{passing:?}");
            let stats = store.rooms.reader.row_cache.stats();
            assert_eq!((stats.entries, stats.requests), (0, before), "{passing:?}");
            let usual = ReadCommand { bypass_cache: false, ..passing };
            assert_eq!(read(&store, &usual).await, rows);
            assert!(store.rooms.files.cache.bytes() > 0);
            for file in &store.rooms.tables.table(TABLE).unwrap().view().files {
                store.rooms.files.cache.forget(file.id);
            }
            store.reader().invalidate_row_cache();
        }
        assert!(store.rooms.reader.row_cache.stats().requests > 0);
    });
}
