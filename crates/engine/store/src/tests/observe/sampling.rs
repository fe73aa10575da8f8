//! Samples of a table.

use crate::tables::sampling::{Sampled, Sampler};
use crate::tests::*;

fn told(store: &Store, samplers: &[Sampler], count: usize) -> Vec<(Sampler, Vec<(i32, u64)>)> {
    let found = store.observer().finish_sampling(TABLE, samplers, count).into_iter();
    found
        .map(|(sampler, samples)| {
            let pk = |what: &Sampled| match what {
                Sampled::Partition(key) => i32::from_be_bytes(key.as_slice().try_into().unwrap()),
                Sampled::Range(..) => -1,
            };
            (sampler, samples.iter().map(|s| (pk(&s.what), s.count)).collect())
        })
        .collect()
}

#[test]
fn samplers_tell_what_was_read_and_written_most_while_they_were_on() {
    run(140, |rt| async move {
        let store = open(&rt).await;
        for ck in 0..9 {
            write(&store, &insert(1, ck, "before", 1)).await.unwrap();
        }
        for ck in 0..3 {
            write(&store, &delete_row(2, ck, 1)).await.unwrap();
        }
        write(&store, &insert(2, 7, "x", 1)).await.unwrap();
        store.flush(None).await.unwrap();
        let for_a_minute = (16, Duration::from_secs(60));
        store
            .observer()
            .begin_sampling(TABLE, &Sampler::ALL, for_a_minute.0, for_a_minute.1)
            .unwrap();
        let again = store.observer().begin_sampling(
            TABLE,
            &[Sampler::Writes],
            for_a_minute.0,
            for_a_minute.1,
        );
        assert!(matches!(again, Err(StoreError::Invalid(_))), "{again:?}");
        for pk in [1, 2, 2, 3, 2] {
            read_partition(&store, pk).await;
        }
        read_all(&store).await;
        let long = "long".repeat(100);
        for (pk, value) in [(5, "a"), (5, "b"), (6, long.as_str()), (7, "c"), (5, "d")] {
            write(&store, &insert(pk, 1, value, 2)).await.unwrap();
        }
        store.observer().note_contentions(TABLE, &key(5), 2);
        store.observer().note_contentions(TABLE, &key(6), 0);
        let found = told(&store, &Sampler::ALL, 2);
        let of = |sampler| &found.iter().find(|(s, _)| *s == sampler).unwrap().1;
        assert_eq!(of(Sampler::Reads)[0], (2, 3));
        assert_eq!(of(Sampler::Writes)[0], (5, 3));
        assert_eq!(of(Sampler::ReadRowCount), &[(1, 9), (2, 1)]);
        assert_eq!(of(Sampler::ReadTombstoneCount), &[(2, 3)]);
        assert_eq!(of(Sampler::ReadSstableCount), &[(2, 1), (1, 1)]);
        assert_eq!(of(Sampler::CasContentions), &[(5, 2)]);
        let sizes = of(Sampler::WriteSize);
        assert!(sizes.len() == 2 && sizes[0].0 == 6 && sizes[0].1 > 400, "{sizes:?}");
        assert!(found.iter().all(|(_, samples)| samples.len() <= 2), "{found:?}");

        // Nothing is on, so nothing is found.
        read_partition(&store, 1).await;
        assert!(told(&store, &Sampler::ALL, 9).iter().all(|(_, samples)| samples.is_empty()));
        // Events after the duration do not count, and another sampling may begin.
        let short = (16, Duration::from_secs(1));
        store.observer().begin_sampling(TABLE, &[Sampler::Writes], short.0, short.1).unwrap();
        write(&store, &insert(8, 1, "in time", 3)).await.unwrap();
        rt.sleep(Duration::from_secs(2)).await;
        write(&store, &insert(9, 1, "too late", 3)).await.unwrap();
        assert_eq!(told(&store, &[Sampler::Writes], 9)[0].1, [(8, 1)]);
        store.stop().await;
    });
}
