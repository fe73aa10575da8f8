//! The compaction backlog, and the share that follows.

use rt::Group;

use crate::tests::*;

fn schema_with(enabled: &str) -> Arc<Schema> {
    let map = [("class", "SizeTieredCompactionStrategy"), ("enabled", enabled)];
    let compaction = map.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    schema_of(vec![table(TableOptions { compaction, ..TableOptions::default() })])
}

async fn seconds(rt: &Rt, n: u64) {
    rt.sleep(Duration::from_secs(n)).await;
}

#[test]
fn the_share_follows_what_is_due_and_goes_back_when_it_is_done() {
    run(870, |rt| async move {
        let options = StoreOptions {
            // Some seconds for what follows.
            compaction_bytes_per_second: 200_000,
            memtable_bytes_max: 1_000_000,
            ..options(&rt)
        };
        let (store, _) = Store::open(rt.clone(), options, schema_with("false")).await.unwrap();
        for n in 0..8 {
            for pk in 0..150 {
                let value = crate::tests::compact::incremental::noise(pk * 8 + n, 2_000);
                write(&store, &insert(pk, n, &value, 100)).await.unwrap();
            }
            store.flush(None).await.unwrap();
        }
        seconds(&rt, 2).await;
        let idle = store.compactor().backlog();
        assert_eq!((idle.bytes, idle.share, idle.bytes_per_second), (0, 100, 0.0));
        let on_disk = store.table_stats(TABLE).disk_bytes;

        store.set_schema(schema_with("true"));
        store.compactor().set_compaction_share(None);
        let due = store.compactor().backlog();
        assert!((on_disk / 2..=on_disk).contains(&due.bytes), "{due:?} of {on_disk}");
        assert!(due.share > 200, "{due:?}");
        assert_eq!(rt.share(Group::Compaction), due.share);
        seconds(&rt, 3).await;
        let running = store.compactor().backlog();
        assert_eq!(store.files().slots().compactions().len(), 1);
        assert!(running.bytes > 0 && running.bytes < on_disk, "{running:?} of {on_disk}");
        let rate = running.bytes_per_second;
        assert!((50_000.0..600_000.0).contains(&rate), "{rate} of 200000 a second");

        // A share set by the operator stays.
        store.compactor().set_compaction_share(Some(700));
        seconds(&rt, 2).await;
        assert_eq!((store.compactor().backlog().share, rt.share(Group::Compaction)), (700, 700));
        store.compactor().set_compaction_share(None);

        seconds(&rt, 60).await;
        let done = store.compactor().backlog();
        assert_eq!((done.bytes, done.share, rt.share(Group::Compaction)), (0, 100, 100));
        store.stop().await;
    });
}

#[test]
fn what_is_due_of_very_many_files_is_reckoned_from_the_first_compaction() {
    run(871, |rt| async move {
        let options = StoreOptions { compaction_bytes_per_second: 1_000, ..options(&rt) };
        let (store, _) = Store::open(rt.clone(), options, schema_with("false")).await.unwrap();
        for n in 0..240 {
            write(&store, &insert(n, n, "value", 100)).await.unwrap();
            store.flush(None).await.unwrap();
        }
        store.set_schema(schema_with("true"));
        store.compactor().set_compaction_share(None);
        let due = store.compactor().backlog();
        // Seven compactions of 32 files and one of 16 are due, each file is as large as the others.
        let files = store.rooms.tables.table(TABLE).unwrap().view().files.clone();
        let of_data: u64 = files.iter().map(|f| f.reader.meta().data_file_length()).sum();
        assert!(
            (of_data * 9 / 10..=of_data * 12 / 10).contains(&due.bytes),
            "{due:?} of {of_data}"
        );
        store.stop().await;
    });
}
