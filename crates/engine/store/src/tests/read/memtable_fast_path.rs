//! Rows that a memtable shows verbatim are the ones that a merge over files shows.

use crate::tests::*;

/// Shown keys and clusterings; stops, and leaves a partition, after fixed numbers of rows.
struct Limited {
    rows: Vec<(i32, Option<i32>)>,
    pk: i32,
    of_partition: usize,
    stop_after: usize,
    skip_after: usize,
    /// Partitions below this one are skipped.
    first: i32,
    ends: usize,
}

impl RowSink for Limited {
    fn partition(&mut self, _: Token, key: &[u8], _: Option<RowRef<'_>>) -> Flow {
        assert_eq!(self.ends, 0, "a partition that is not over");
        self.pk = i32::from_be_bytes(key.try_into().unwrap());
        (self.of_partition, self.ends) = (0, 1);
        self.rows.push((self.pk, None));
        if self.pk < self.first { Flow::SkipPartition } else { Flow::Continue }
    }

    fn row(&mut self, clustering: &[u8], _: RowRef<'_>) -> Flow {
        assert!(self.pk >= self.first && self.of_partition < self.skip_after);
        let ck = data::clustering::components(clustering).next().unwrap().unwrap();
        self.rows.push((self.pk, Some(i32::from_be_bytes(ck.try_into().unwrap()))));
        self.of_partition += 1;
        match self.rows.len() >= self.stop_after {
            true => Flow::Stop,
            false if self.of_partition >= self.skip_after => Flow::SkipPartition,
            false => Flow::Continue,
        }
    }

    fn partition_end(&mut self) -> Flow {
        self.ends -= 1;
        if self.rows.len() >= self.stop_after { Flow::Stop } else { Flow::Continue }
    }
}

async fn shown(
    store: &Store,
    command: &ReadCommand,
    (stop_after, skip_after, first): (usize, usize, i32),
) -> (Vec<(i32, Option<i32>)>, crate::ReadStats) {
    let (rows, pk, of_partition, ends) = (Vec::new(), 0, 0, 0);
    let mut sink = Limited { rows, pk, of_partition, stop_after, skip_after, first, ends };
    let stats = store.read(command, &mut sink).await.unwrap();
    (sink.rows, crate::ReadStats { sstables: 0, blocks_read: 0, block_bytes: 0, ..stats })
}

#[test]
fn a_memtable_shows_what_its_file_shows() {
    run(77, |rt| async move {
        let store = open(&rt).await;
        for pk in 0..40 {
            // Partitions of one row, of few, and of more than a block and the items between two
            // checks of the clock.
            let rows = [1, 1, 3, 64, 65, 300][pk as usize % 6];
            for ck in 0..rows {
                write(&store, &insert(pk, ck, "value", 10)).await.unwrap();
            }
            match pk % 7 {
                3 => write(&store, &insert_static(pk, "static", 10)).await.unwrap(),
                4 => write(&store, &delete_row(pk, rows / 2, 20)).await.unwrap(),
                5 => write(&store, &delete_range(pk, 1, 3, 20)).await.unwrap(),
                6 if pk % 2 == 0 => write(&store, &delete_partition(pk, 5)).await.unwrap(),
                6 => write(&store, &delete_partition(pk, 20)).await.unwrap(),
                _ => {}
            }
        }
        let mut questions = Vec::new();
        for limits in [(usize::MAX, usize::MAX, 0), (100, usize::MAX, 0), (usize::MAX, 2, 0)] {
            for first in [0, 20] {
                let limits = (limits.0, limits.1, first);
                let scan = ReadCommand {
                    wants_static: false,
                    ..read_of(Partitions::Range(KeyRange::all()))
                };
                let slices = slice(1, 70);
                questions.push((ReadCommand { slices: slices.into(), ..scan.clone() }, limits));
                questions.push((scan, limits));
                for pk in [0, 2, 3, 4, 5, 6, 11, 17, 23] {
                    questions.push((read_of(Partitions::Key(key(pk))), limits));
                }
            }
        }
        let mut from_memory = Vec::new();
        for (command, limits) in &questions {
            from_memory.push(shown(&store, command, *limits).await);
        }
        assert!(from_memory.iter().any(|(rows, _)| rows.len() > 1_000));
        store.flush(None).await.unwrap();
        for ((command, limits), expected) in questions.iter().zip(from_memory) {
            assert_eq!(shown(&store, command, *limits).await, expected, "{command:?} {limits:?}");
        }
        store.stop().await;
    });
}
