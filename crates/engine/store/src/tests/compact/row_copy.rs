//! Flushes and compactions write the same files whether they copy rows verbatim or merge each of them.

use data::command::KeyRange;
use sst_format::Component;

use crate::tests::*;
use crate::write::verbatim_copy::{CUT_OFF, IS_ON, PARTITIONS, RUN_ROWS};

/// Without static columns, with or without a clustering column.
fn table_of(has_clustering: bool, compaction: &[(&str, &str)]) -> Table {
    let compaction = compaction.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let options = TableOptions { gc_grace_seconds: 1_000, compaction, ..TableOptions::default() };
    let mut table = table(options);
    table.columns.retain(|c| c.id != STATIC && (has_clustering || c.id != ColumnId(1)));
    table.static_count = 0;
    table.clustering_count = usize::from(has_clustering) as _;
    table
}

/// Draws below a bound, each time another number.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }
}

/// Clusterings of a file: the first one, and how many.
type Span = (i32, usize);

/// A write, most often of all columns of a row.
fn draw_write(
    draw: &mut Draw,
    (has_clustering, (from, count)): (bool, Span),
    keys: usize,
) -> Vec<u8> {
    let (pk, ck) = (draw.below(keys) as i32, from + draw.below(count) as i32);
    let timestamp = 1_000_000 + draw.below(60) as i64;
    if draw.below(60) == 0 {
        return delete_partition(pk, timestamp);
    }
    if draw.below(30) == 0 && has_clustering {
        return delete_range(pk, ck, ck + 3, timestamp);
    }
    let at = TimestampMicros(timestamp);
    let local = DeletionSeconds(if draw.below(2) == 0 { 10 } else { 4_000_000_000 });
    let value = "v".repeat(1 + draw.below(40));
    let live = CellRef::live(at, value.as_bytes());
    let (mut liveness, mut deletion) = (Liveness::new(at), DeletionTime::LIVE);
    let cells = match draw.below(30) {
        0 => vec![(VALUE, live)],
        1 => vec![(VALUE, live), (ColumnId(4), CellRef::tombstone(at, local))],
        2 => {
            liveness = Liveness::NONE;
            vec![(VALUE, live), (ColumnId(4), live)]
        }
        3 => {
            liveness.ttl = stdx::TtlSeconds(60);
            liveness.expires_at = local;
            vec![(VALUE, live), (ColumnId(4), live)]
        }
        4 => {
            (liveness, deletion) = (Liveness::NONE, DeletionTime { timestamp: at, local });
            Vec::new()
        }
        _ => vec![(VALUE, live), (ColumnId(4), live)],
    };
    let row = packed(liveness, deletion, &cells);
    let name = if has_clustering { clustering(ck) } else { Vec::new() };
    encode(pk, |m| m.rows([(name.as_slice(), RowRef::trusted(&row))].into_iter()))
}

/// The bytes of each component of each file of the table, by generation.
type Files = Vec<(u64, Component, Vec<u8>)>;

async fn files_of(rt: &Rt, store: &Store) -> Files {
    let mut files = Files::new();
    let view = store.rooms.tables.table(TABLE).unwrap().view();
    for file in &view.files {
        let meta = file.reader.meta();
        for component in meta.components() {
            let bytes = rt.fs().read(&meta.file(*component), 1 << 24).await.unwrap();
            files.push((file.generation.0, *component, bytes));
        }
    }
    files.sort();
    files
}

/// Files of flushes and of a compaction, the rows read then, and three counts: the rows copied of
/// partitions with several inputs, the partitions copied whole, and those for which the next block
/// was requested.
fn outcome(seed: u64, is_on: bool) -> (Files, Files, Vec<String>, [u64; 3]) {
    let found = Arc::new(Mutex::new(None));
    let result = found.clone();
    run(seed, move |rt| {
        let result = result.clone();
        async move {
            IS_ON.set(is_on);
            RUN_ROWS.set(0);
            PARTITIONS.set(0);
            CUT_OFF.set(0);
            let has_clustering = !seed.is_multiple_of(3);
            let cut: &[(&str, &str)] = match seed % 4 {
                0 => &[("class", "UnifiedCompactionStrategy"), ("min_sstable_size", "0B")],
                _ => &[("class", "SizeTieredCompactionStrategy")],
            };
            let schema = schema_of(vec![table_of(has_clustering, cut)]);
            let store = Store::open(rt.clone(), options(&rt), schema).await.unwrap().0;
            let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
            store.compactor().set_automatic_compaction(TABLE, false).unwrap();
            let few = if has_clustering { 4 } else { 30 };
            let keys = [few, 30, 2_000][draw.below(3)];
            // Rows of the files interleave, or follow each other, or overlap in part.
            let (count, shift) = [(9, 0), (300, 300), (300, 200)][draw.below(3)];
            let files = [3, 12][draw.below(2)];
            for file in 0..files {
                let span = (has_clustering, (file * shift, count));
                for _ in 0..1_800 / files {
                    write(&store, &draw_write(&mut draw, span, keys)).await.unwrap();
                }
                store.flush(None).await.unwrap();
            }
            let flushed = files_of(&rt, &store).await;
            store.compactor().compact_major(TABLE).await.unwrap();
            let compacted = files_of(&rt, &store).await;
            let mut rows = Rows::default();
            let command = read_of(Partitions::Range(KeyRange::all()));
            store.read(&command, &mut rows).await.unwrap();
            IS_ON.set(true);
            store.stop().await;
            let counts = [RUN_ROWS.get(), PARTITIONS.get(), CUT_OFF.get()];
            *result.lock().unwrap() = Some((flushed, compacted, rows.0, counts));
        }
    });
    found.lock().unwrap().take().unwrap()
}

/// Rows as text.
#[derive(Default)]
struct Rows(Vec<String>);

impl RowSink for Rows {
    fn partition(&mut self, _: Token, key: &[u8], _: Option<RowRef<'_>>) -> Flow {
        self.0.push(format!("{key:?}"));
        Flow::Continue
    }

    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        self.0.push(format!("{clustering:?} {:?}", row.columns().collect::<Vec<_>>()));
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

/// INV-copying-1, INV-ahead-1.
#[test]
fn what_is_copied_is_byte_for_byte_what_merging_gives() {
    let (mut run_rows, mut partitions, mut cut_off) = (0, 0, 0);
    for seed in 0..36 {
        let (merged, copied) = (outcome(seed, false), outcome(seed, true));
        assert!(merged.0.len() > 20 && merged.2.len() > 20, "seed {seed}");
        for (merged, copied) in [(merged.0, copied.0), (merged.1, copied.1)] {
            assert_eq!(merged.len(), copied.len(), "seed {seed}");
            for (merged, copied) in merged.iter().zip(&copied) {
                assert!(merged == copied, "seed {seed}: {:?} of {} differs", merged.1, merged.0);
            }
        }
        assert_eq!(merged.2, copied.2, "seed {seed}");
        assert_eq!(merged.3, [0, 0, 0], "seed {seed}");
        run_rows += copied.3[0];
        partitions += copied.3[1];
        cut_off += copied.3[2];
    }
    assert!(run_rows > 1_000, "{run_rows} rows in runs");
    assert!(partitions > 2_000, "{partitions} partitions");
    assert!(cut_off > 20, "{cut_off} partitions that a block cut off");
}
