//! The chunk cache when files are written that replace cached ones.

use crate::tests::*;

const KEYS: i32 = 60;
const ROWS: i32 = 40;

/// Some chunks in each of three files; no compressor makes the rows much smaller. `reads`: every tenth
/// operation is one.
async fn fill(store: &Store, reads: bool) {
    for file in 0..3 {
        for i in 0..KEYS * ROWS {
            let text =
                format!("{:x}", (i as u64 + 77).wrapping_mul(0x9E37_79B9_7F4A_7C15)).repeat(6);
            write(store, &insert(i % KEYS, i / KEYS * 3 + file, &text, 1)).await.unwrap();
            if reads && i % 10 == 0 {
                read_partition(store, i).await;
            }
        }
        store.flush(None).await.unwrap();
    }
}

/// Rows of the partitions, and how many blocks were not cached.
async fn read_keys(store: &Store, keys: impl Iterator<Item = i32>) -> (Vec<Found>, u64) {
    let (mut sink, mut blocks) = (Collect::default(), 0);
    for pk in keys {
        let command = read_of(Partitions::Key(key(pk)));
        blocks += u64::from(store.read(&command, &mut sink).await.unwrap().blocks_read);
    }
    (sink.rows, blocks)
}

fn forget_all(store: &Store) {
    for file in &store.rooms.tables.table(TABLE).unwrap().view().files {
        store.rooms.files.cache.forget(file.id);
    }
    assert_eq!(store.rooms.files.cache.bytes(), 0);
}

async fn open_uncompacted(rt: &Rt, cache: usize) -> Store {
    let mut of_table = TableOptions { gc_grace_seconds: i32::MAX, ..TableOptions::default() };
    of_table.compaction.insert("enabled".to_owned(), "false".to_owned());
    of_table.compression.insert("chunk_length_in_kb".to_owned(), "4".to_owned());
    let options = StoreOptions { chunk_cache_bytes_max: cache, ..options(rt) };
    Store::open(rt.clone(), options, schema_of(vec![table(of_table)])).await.unwrap().0
}

#[test]
fn what_was_cached_of_the_inputs_is_cached_of_the_outputs_and_nothing_else_is() {
    for seed in 120..124 {
        run(seed, |rt| async move {
            let store = open_uncompacted(&rt, 64 << 20).await;
            fill(&store, true).await;
            let (rows, blocks) = read_keys(&store, 0..KEYS).await;
            assert_eq!((rows.len() as i32, blocks), (3 * KEYS * ROWS, 0), "behind flushes");

            forget_all(&store);
            store.compactor().compact_major(TABLE).await.unwrap();
            assert_eq!(store.rooms.files.cache.bytes(), 0, "nobody has read the inputs");
            let hot = || (0..KEYS).filter(|pk| pk % 20 == 0);
            let (_, blocks) = read_keys(&store, hot()).await;
            assert!(blocks > 3, "{blocks}");

            let before = store.rooms.files.cache.bytes();
            store.compactor().compact_major(TABLE).await.unwrap();
            let after = store.rooms.files.cache.bytes();
            // A chunk more for each of three stretches.
            assert!(after <= before + 3 * 4300, "{before} then {after}");
            let (hot_rows, blocks) = read_keys(&store, hot()).await;
            assert_eq!(blocks, 0, "of {} rows", hot_rows.len());
            let (all, blocks) = read_keys(&store, 0..KEYS).await;
            assert!(blocks > 10, "{blocks}");
            assert_eq!(all, rows);
            store.stop().await;
        });
    }
}

#[test]
fn a_flush_leaves_what_is_cached_where_there_is_no_room() {
    run(130, |rt| async move {
        let store = open_uncompacted(&rt, 200 << 10).await;
        fill(&store, true).await;
        let bytes = store.rooms.files.cache.bytes();
        assert!((100 << 10..200 << 10).contains(&bytes), "{bytes}");
        // The first file came first, and stays.
        let view = store.rooms.tables.table(TABLE).unwrap().view();
        assert!(store.rooms.files.cache.has(view.files[0].id, 0));
        assert!(!store.rooms.files.cache.has(view.files[2].id, 0));
        store.compactor().compact_major(TABLE).await.unwrap();
        assert!(store.rooms.files.cache.bytes() < 200 << 10);
        let files: Vec<_> = store.rooms.tables.table(TABLE).unwrap().view().files.clone();
        assert!(files.iter().all(|file| file.id != view.files[0].id));
        assert!(!store.rooms.files.cache.has(view.files[0].id, 0), "of a file that is gone");
        store.stop().await;
    });
}

#[test]
fn what_nobody_reads_is_not_cached_when_it_is_flushed() {
    run(131, |rt| async move {
        let store = open_uncompacted(&rt, 64 << 20).await;
        fill(&store, false).await;
        assert_eq!(store.rooms.files.cache.bytes(), 0);
        store.stop().await;
    });
}
