//! Requested and aborted compactions, thresholds, and the switch for automatic ones.

use crate::files::slots::CompactionProgress;
use crate::tests::*;
use crate::{CompactionControl, Version};

fn schema_with(extra: &[(&str, &str)]) -> Arc<Schema> {
    let class = ("class", "SizeTieredCompactionStrategy");
    let map = [class].into_iter().chain(extra.iter().copied());
    let compaction = map.map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    schema_of(vec![table(TableOptions { compaction, ..TableOptions::default() })])
}

async fn open_with(rt: &Rt, extra: &[(&str, &str)]) -> Store {
    let options = StoreOptions { sstable_version: Version::Nb, ..options(rt) };
    Store::open(rt.clone(), options, schema_with(extra)).await.unwrap().0
}

/// A file with one row of each of these partitions.
async fn file_of(store: &Store, keys: impl Iterator<Item = i32>, ck: i32) {
    for pk in keys {
        // Does not compress.
        let value: String = (0..400_u32)
            .map(|n| char::from(b'a' + (codec::crc32(&(n, pk, ck).bytes()) % 26) as u8))
            .collect();
        write(store, &insert(pk, ck, &value, 100)).await.unwrap();
    }
    store.flush(None).await.unwrap();
}

trait Bytes {
    fn bytes(&self) -> Vec<u8>;
}

impl Bytes for (u32, i32, i32) {
    fn bytes(&self) -> Vec<u8> {
        [self.0.to_be_bytes(), self.1.to_be_bytes(), self.2.to_be_bytes()].concat()
    }
}

fn generations(store: &Store) -> Vec<u64> {
    let view = store.rooms.tables.table(TABLE).unwrap().view();
    let mut all: Vec<u64> = view.files.iter().map(|f| f.generation.0).collect();
    all.sort_unstable();
    all
}

async fn names(rt: &Rt, store: &Store) -> Vec<String> {
    let directory = store
        .rooms
        .files
        .directories
        .directory_of(&store.rooms.tables.table(TABLE).unwrap().version().table);
    rt.fs().read_dir(&directory).await.unwrap().into_iter().map(|e| e.name).collect()
}

async fn wait_until(rt: &Rt, what: impl Fn() -> bool) {
    for _ in 0..2_000 {
        if what() {
            return;
        }
        rt.sleep(Duration::from_millis(10)).await;
    }
    panic!("it never came to that");
}

#[test]
fn a_compaction_that_is_given_up_leaves_its_inputs_and_no_output() {
    run(420, |rt| async move {
        let store = open_with(&rt, &[("enabled", "false")]).await;
        for ck in 0..2 {
            file_of(&store, 0..600, ck).await;
        }
        let (before, rows) = (names(&rt, &store).await, read_all(&store).await);
        store.compactor().set_compaction_throughput(100_000);
        let other = store.clone();
        let ended = std::rc::Rc::new(std::cell::RefCell::new(None));
        let seen = ended.clone();
        let gate = rt.gate("test");
        let task = async move {
            let result = other.compactor().compact_major(TABLE).await;
            *seen.borrow_mut() = Some(result);
        };
        gate.spawn(&rt, rt::Group::Admin, "compaction", task).unwrap();
        wait_until(&rt, || store.files().slots().compactions().iter().any(|c| c.done_bytes > 0))
            .await;
        // A file is being written.
        assert!(names(&rt, &store).await.len() > before.len());
        let id = store.files().slots().compactions()[0].id;
        assert_eq!(
            store.files().slots().stop_compactions(|c: &CompactionProgress| c.kind == "Cleanup"),
            0
        );
        assert_eq!(store.files().slots().stop_compactions(|c| c.id == id + 1), 0);
        assert!(ended.borrow().is_none());
        let is_meant = |c: &CompactionProgress| c.kind == "Major compaction" && c.id == id;
        assert_eq!(store.files().slots().stop_compactions(is_meant), 1);
        wait_until(&rt, || ended.borrow().is_some()).await;
        let result = ended.borrow_mut().take().unwrap();
        assert_eq!(result, Err(StoreError::Invalid("Compaction interrupted".to_owned())));
        assert_eq!(names(&rt, &store).await, before);
        assert_eq!(store.files().slots().compactions(), vec![]);
        assert_eq!(read_all(&store).await, rows);
        // Nothing is held that the next one needs.
        store.compactor().set_compaction_throughput(0);
        store.compactor().compact_major(TABLE).await.unwrap();
        assert_eq!(store.table_stats(TABLE).sstables, 1);
        assert_eq!(read_all(&store).await, rows);
        gate.close().await;
    });
}

#[test]
fn the_progress_of_a_compaction_ends_at_its_total() {
    run(426, |rt| async move {
        let store = open_with(&rt, &[("enabled", "false")]).await;
        for ck in 0..2 {
            file_of(&store, 0..2_000, ck).await;
        }
        store.compactor().set_compaction_throughput(1 << 20);
        let (other, gate) = (store.clone(), rt.gate("test"));
        let ended = std::rc::Rc::new(std::cell::Cell::new(false));
        let seen = ended.clone();
        let task = async move {
            other.compactor().compact_major(TABLE).await.unwrap();
            seen.set(true);
        };
        gate.spawn(&rt, rt::Group::Admin, "compaction", task).unwrap();
        let (mut done, mut total) = (0, 0);
        while !ended.get() {
            if let Some(shown) = store.files().slots().compactions().first() {
                (done, total) = (shown.done_bytes, shown.total_bytes);
            }
            rt.sleep(Duration::from_millis(1)).await;
        }
        // Many blocks, and rows over their ends.
        assert!(total > 500_000 && done <= total && done > total / 2, "{done} of {total}");
        gate.close().await;
    });
}

#[test]
fn thresholds_hold_from_when_they_are_set_and_over_changes_of_the_table() {
    run(421, |rt| async move {
        let store = open_with(&rt, &[("max_threshold", "10"), ("min_threshold", "8")]).await;
        let control = |store: &Store| {
            let CompactionControl { automatic, min_threshold, max_threshold } =
                store.compactor().compaction_control(TABLE).unwrap();
            (automatic, min_threshold, max_threshold)
        };
        assert_eq!(control(&store), (true, 8, 10));
        for ck in 0..4 {
            file_of(&store, 0..3, ck).await;
        }
        rt.sleep(Duration::from_secs(5)).await;
        assert_eq!(store.table_stats(TABLE).sstables, 4);
        store.compactor().set_compaction_thresholds(TABLE, 2, 3).unwrap();
        wait_until(&rt, || store.table_stats(TABLE).sstables < 3).await;
        store.set_schema(schema_with(&[("max_threshold", "20")]));
        assert_eq!(control(&store), (true, 2, 3));
        for (thresholds, text) in [
            (
                (5, 4),
                "The min_compaction_threshold cannot be larger than the max_compaction_threshold. Min is '5', Max is '4'.",
            ),
            (
                (0, 4),
                "Disabling compaction by setting min_compaction_threshold or max_compaction_threshold to 0 is deprecated, set the compaction strategy option 'enabled' to 'false' instead or use the nodetool command 'disableautocompaction'.",
            ),
        ] {
            let refused =
                store.compactor().set_compaction_thresholds(TABLE, thresholds.0, thresholds.1);
            assert_eq!(refused, Err(StoreError::Invalid(text.to_owned())));
        }
        assert_eq!(control(&store), (true, 2, 3));
    });
}

#[test]
fn no_compaction_begins_by_itself_while_that_is_switched_off() {
    run(422, |rt| async move {
        let store = open_with(&rt, &[("min_threshold", "2")]).await;
        store.compactor().set_automatic_compaction(TABLE, false).unwrap();
        for ck in 0..4 {
            file_of(&store, 0..3, ck).await;
        }
        rt.sleep(Duration::from_secs(5)).await;
        assert_eq!(store.table_stats(TABLE).sstables, 4);
        assert!(!store.compactor().compaction_control(TABLE).unwrap().automatic);
        store.compactor().set_automatic_compaction(TABLE, true).unwrap();
        wait_until(&rt, || store.table_stats(TABLE).sstables == 1).await;
        // Also where the table's option disables automatic ones.
        store.set_schema(schema_with(&[("min_threshold", "2"), ("enabled", "false")]));
        file_of(&store, 0..3, 9).await;
        wait_until(&rt, || store.table_stats(TABLE).sstables == 1).await;
    });
}

#[test]
fn named_files_are_compacted_and_no_others() {
    run(423, |rt| async move {
        let store = open_with(&rt, &[("enabled", "false")]).await;
        for ck in 0..4 {
            file_of(&store, 0..3, ck).await;
        }
        let rows = read_all(&store).await;
        let all = generations(&store);
        let named = [all[0], all[2], 9_999].map(stdx::Generation);
        assert_eq!(store.compactor().compact_files(TABLE, &named).await, Ok(2));
        let left = generations(&store);
        assert_eq!((left.len(), &left[..2]), (3, &[all[1], all[3]][..]));
        assert_eq!(store.compactor().compact_files(TABLE, &[stdx::Generation(9_999)]).await, Ok(0));
        assert_eq!(read_all(&store).await, rows);
    });
}

#[test]
fn files_with_tokens_of_a_range_or_with_a_partition_are_compacted_and_no_others() {
    run(424, |rt| async move {
        let store = open_with(&rt, &[("enabled", "false")]).await;
        let mut keys: Vec<i32> = (0..30).collect();
        keys.sort_by_key(|pk| codec::token_of(&key(*pk)));
        let (low, high) = keys.split_at(15);
        for ck in 0..2 {
            file_of(&store, low.iter().copied(), ck).await;
            file_of(&store, high.iter().copied(), ck).await;
        }
        let rows = read_all(&store).await;
        let all = generations(&store);
        let token = |pk: i32| codec::token_of(&key(pk));
        // Both ends count: the first token of the upper half is its first partition.
        let gap = [(Token(token(low[14]).0 + 1), Token(token(high[0]).0 - 1))];
        assert_eq!(store.compactor().compact_ranges(TABLE, &gap).await, Ok(0));
        let upper = [(Token(token(low[14]).0 + 1), token(high[0]))];
        assert_eq!(store.compactor().compact_ranges(TABLE, &upper).await, Ok(2));
        let left = generations(&store);
        assert_eq!((left.len(), &left[..2]), (3, &[all[0], all[2]][..]));
        let files = store.compactor().files_of_partition(TABLE, &key(low[3])).await.unwrap();
        let numbers: Vec<&str> =
            files.iter().filter_map(|(path, _)| path.rsplit('-').nth(2)).collect();
        assert_eq!(numbers, [all[0].to_string(), all[2].to_string()], "{files:?}");
        assert_eq!(store.compactor().compact_partition(TABLE, &key(low[3])).await, Ok(2));
        assert_eq!(generations(&store).len(), 2);
        assert_eq!(
            store.compactor().files_of_partition(TABLE, &key(low[3])).await.unwrap().len(),
            1
        );
        let nobodys = store.compactor().files_of_partition(TABLE, &key(1_000_000)).await;
        assert_eq!(nobodys, Ok(vec![]), "no row of it was written");
        assert_eq!(read_all(&store).await, rows);
    });
}

#[test]
fn outputs_are_cut_at_sizes() {
    run(425, |rt| async move {
        let store = open_with(&rt, &[("enabled", "false")]).await;
        for ck in 0..2 {
            file_of(&store, 0..600, ck).await;
        }
        let rows = read_all(&store).await;
        let table = store.rooms.tables.table(TABLE).unwrap();
        let bytes: u64 =
            table.view().files.iter().map(|f| f.reader.meta().data_file_length()).sum();
        let plan = compact_plan::Plan {
            inputs: table.view().files.iter().map(|f| f.generation).collect(),
            expired: Vec::new(),
            level: 0,
            cut: compact_plan::Cut::AtSizes(vec![bytes / 2, bytes / 4]),
            apart: false,
            reason: compact_plan::Reason::Major,
        };
        let version = table.version();
        let options = crate::compact::compaction::options_of(&version).unwrap();
        let job = crate::compact::compaction::Job { plan: &plan, options, owned: None };
        store.rooms.compactor.compact(&table, job).await.unwrap();
        let sizes: Vec<u64> =
            table.view().files.iter().map(|f| f.reader.meta().data_file_length()).collect();
        assert_eq!(sizes.len(), 3, "{sizes:?} of {bytes}");
        assert!(sizes[0] > sizes[1] && sizes[1] > sizes[2] / 2, "{sizes:?} of {bytes}");
        assert_eq!(read_all(&store).await, rows);
        // Little data is not cut.
        store.compactor().compact_split(TABLE).await.unwrap();
        assert_eq!(store.table_stats(TABLE).sstables, 1);
        assert_eq!(read_all(&store).await, rows);
    });
}
