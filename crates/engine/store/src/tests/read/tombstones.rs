//! A partition with a million tombstones stays readable: the cost of a read does not grow with their number.

use data::replica_page::{PageEnd, PageLimits, ReplicaPage};

use crate::ReadStats;
use crate::tests::*;

const TOMBSTONES: i32 = 1_000_000;
/// One row in this many is live.
const STEP: i32 = 100_000;
/// Rows of one mutation.
const TOGETHER: i32 = 1_000;

/// Deletions of the rows from one on, except those at whole steps, which are live.
fn rows_from(from: i32) -> Vec<u8> {
    let at = TimestampMicros(100);
    let dead = packed(Liveness::NONE, deletion(100), &[]);
    let live =
        packed(Liveness::new(at), DeletionTime::LIVE, &[(VALUE, CellRef::live(at, b"here"))]);
    let clusterings: Vec<Vec<u8>> = (from..from + TOGETHER).map(clustering).collect();
    let rows = clusterings.iter().enumerate().map(|(at, of)| {
        let row = if (from + at as i32) % STEP == 0 { &live } else { &dead };
        (of.as_slice(), RowRef::trusted(row))
    });
    encode(1, |m| m.rows(rows))
}

/// Rows that are found, at most as many as wanted, and what that took.
async fn found(store: &Store, command: &ReadCommand, rows: usize) -> (Vec<i32>, ReadStats) {
    for file in &store.rooms.tables.table(TABLE).unwrap().view().files {
        store.rooms.files.cache.forget(file.id);
    }
    let mut sink = Collect { stop_after: Some(rows), ..Collect::default() };
    let stats = store.read(command, &mut sink).await.unwrap();
    (sink.rows.iter().filter_map(|row| row.1).collect(), stats)
}

#[test]
fn a_partition_with_a_million_tombstones_stays_readable() {
    run(1_300, |rt| async move {
        let mut options = options(&rt);
        options.segment_bytes = 4 << 20;
        options.chunk_cache_bytes_max = 1 << 20;
        let store = Store::open(rt.clone(), options, schema()).await.unwrap().0;
        for (part, from) in (0..TOMBSTONES).step_by(TOGETHER as usize).enumerate() {
            write(&store, &rows_from(from)).await.unwrap();
            if part % 500 == 499 {
                store.flush(None).await.unwrap();
            }
        }
        let all = read_of(Partitions::Key(key(1)));
        let of = |slices: Slices, reversed| ReadCommand {
            slices: slices.into(),
            reversed,
            ..all.clone()
        };
        for compacted in [false, true] {
            if compacted {
                store.compactor().compact_major(TABLE).await.unwrap();
            }
            // A row by name, in the middle of them.
            let name = Slices(vec![Slice::prefix(clustering(7 * STEP))]);
            let (rows, stats) = found(&store, &of(name, false), 9).await;
            assert_eq!((rows, stats.tombstones), (vec![7 * STEP], 0), "{stats:?}");
            assert!(stats.blocks_read <= 8, "{stats:?}");
            // A stretch, and the last row backwards: the tombstones in front of it, no others.
            let stretch = slice(7 * STEP, 7 * STEP + 500);
            let (rows, stats) = found(&store, &of(stretch, false), 9).await;
            assert_eq!((rows, stats.tombstones), (vec![7 * STEP], 499), "{stats:?}");
            assert!(stats.blocks_read <= 12, "{stats:?}");
            let (rows, stats) = found(&store, &of(Slices::all(), true), 1).await;
            assert_eq!((rows, stats.tombstones), (vec![9 * STEP], 99_999), "{stats:?}");

            // All of it: more tombstones than a read may meet that is refused them, and it ends there.
            let mut sink = Collect { refuses_above: Some(100_000), ..Collect::default() };
            let failed = store.read(&all, &mut sink).await;
            assert_eq!(failed, Err(StoreError::TombstoneFailure { scanned: 100_001 }));
            assert_eq!(sink.rows.len(), 2);
            // In pages that end after 10,000 of them each row occurs once, either way.
            for reversed in [false, true] {
                let mut live: Vec<i32> = (0..TOMBSTONES).step_by(STEP as usize).collect();
                if reversed {
                    live.reverse();
                }
                let (rows, pages) = paged(&store, &of(Slices::all(), reversed), 10_000).await;
                assert_eq!(rows, live);
                assert!((99..102).contains(&pages), "{pages} pages");
            }
            pages_of_all(&store, &all).await;
            let cached = store.rooms.files.cache.bytes();
            assert!(cached <= 1 << 20, "{cached} bytes of blocks");
        }
        store.stop().await;
    });
}

/// The rows of all pages that end after this many tombstones, and the number of pages.
async fn paged(store: &Store, command: &ReadCommand, tombstones: u32) -> (Vec<i32>, usize) {
    let (mut command, mut rows, mut pages) = (command.clone(), Vec::new(), 0);
    loop {
        let mut sink = crate::tests::read::tombstone_pages::Page::new(tombstones);
        store.read(&command, &mut sink).await.unwrap();
        pages += 1;
        rows.extend(sink.found.iter().filter_map(|row| row.1));
        match sink.going_on(&command) {
            Some(next) => command = next,
            None => return (rows, pages),
        }
    }
}

/// Pages with all tombstones, as repairs and streams read them: none is larger than it may be.
async fn pages_of_all(store: &Store, all: &ReadCommand) {
    let limits = PageLimits { bytes: 64 << 10, ..PageLimits::default() };
    let (mut command, mut pages, mut live) = (all.clone(), 0, 0);
    loop {
        let everything = DeletionSeconds(i64::MIN);
        let scope = crate::ReadScope::Repair;
        let read =
            store.reader().read_for_repair(&command, limits, everything, scope).await.unwrap();
        assert!(read.page.len() < 80 << 10, "a page of {} bytes", read.page.len());
        (pages, live) = (pages + 1, live + read.stats.rows);
        let page = ReplicaPage::open(&read.page).unwrap();
        match page.end() {
            PageEnd::Exhausted => break,
            PageEnd::Inside { clustering, .. } => {
                command.resume = Some(data::command::ResumePosition {
                    clustering: Some(clustering.to_vec()),
                    rows_in_partition: 0,
                });
            }
            end => panic!("{end:?}"),
        }
    }
    assert_eq!(live, 10);
    assert!(pages > 100, "{pages} pages");
}
