//! Partitions that have too much in one file.

use crate::large::{PartitionGuardrails, Thresholds};

use super::*;

#[test]
fn flushes_and_compactions_tell_of_partitions_above_the_limits() {
    let (heard, world) = (Arc::new(Mutex::new(Vec::new())), world(910));
    let told = heard.clone();
    run_in(&world, move |rt| {
        let told = told.clone();
        async move {
            let store = Store::open(rt.clone(), options(&rt), schema()).await.unwrap().0;
            let notes = told.clone();
            store.on_large_partition(move |(is_error, text)| {
                notes.lock().unwrap().push((is_error, text));
            });
            let limits = |bytes, tombstones| PartitionGuardrails {
                size: Thresholds { warn: None, fail: Some(bytes) },
                tombstones: Thresholds { warn: Some(tombstones), fail: None },
            };
            store.set_partition_guardrails(limits(2_000, 3));
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
            store.set_partition_guardrails(limits(u64::MAX, 4));
            for ck in 10..12 {
                write(&store, &delete_row(2, ck, 6)).await.unwrap();
            }
            store.flush(None).await.unwrap();
            assert!(told.lock().unwrap().is_empty());
            store.compact_major(TABLE).await.unwrap();
            let said = std::mem::take(&mut *told.lock().unwrap());
            assert_eq!(said.len(), 1, "{said:?}");
            assert!(said[0].1.contains("has 6 tombstones"), "{said:?}");

            store.set_partition_guardrails(PartitionGuardrails::default());
            write(&store, &insert(1, 2, "y", 7)).await.unwrap();
            store.flush(None).await.unwrap();
            store.compact_major(TABLE).await.unwrap();
            assert!(told.lock().unwrap().is_empty());
        }
    });
}
